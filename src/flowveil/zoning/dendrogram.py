"""A hierarchy for zone maps without one: Ward's dendrogram of the tiles' centres.

As Matet et al. build the trees of taxi zones and base stations (L2 distance, Ward linkage). Ward's
criterion is reducible: mutual nearest neighbours may be merged at any time without changing the
result. So every round merges all pairs of mutual nearest neighbours, found in a spatial index;
100,000 places take some fifty rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Mask, Positions
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.geometry import on_earth
from flowveil.zoning.table import by_first

#: Neighbours that are looked at first.
_NEIGHBOURS = 8


def ward_hierarchy(codes: NDArray[np.str_], lat: Floats, lon: Floats) -> Hierarchy:
    """Returns the Ward dendrogram of tile centres as a hierarchy.

    Distances are straight lines between points on the ellipsoid, in metres. They need no
    projection, have no seam at 180 degrees, and differ from surface distances by less than a
    thousandth over 900 km.

    Tiles with the same centre become children of one node; every other inner node has two children.
    Inner nodes are called ``c1``, ``c2``, ... in order of merging, cheapest first, padded with
    zeros; if a tile has such a name, ``c`` is doubled. The tree does not depend on the order of the
    tiles: ties are decided by code. Codes are distinct, and centres valid (`refuse_places`).
    """
    order = np.argsort(codes, kind="stable")
    names = codes[order]
    points = on_earth(lat[order], lon[order])
    # Minus zero is zero.
    first, place_of_tile = by_first(points + 0.0)
    points = points[first]
    tiles_at = np.bincount(place_of_tile, minlength=len(points))
    merges = ward_merges(points, tiles_at.astype(np.float64))

    # Items: tiles, then a node for every shared centre, then one for every merge.
    n, shared = len(names), np.flatnonzero(tiles_at > 1)
    item_of_place = np.empty(len(points), dtype=np.int64)
    item_of_place[place_of_tile] = np.arange(n)
    item_of_place[shared] = n + np.arange(len(shared))
    n_items = n + len(shared) + len(merges)
    parent = np.full(n_items, -1, dtype=np.int64)
    is_shared = tiles_at[place_of_tile] > 1
    parent[:n][is_shared] = item_of_place[place_of_tile[is_shared]]
    item_of_cluster = np.concatenate((item_of_place, np.arange(n + len(shared), n_items)))
    parent[item_of_cluster[merges].ravel()] = np.repeat(np.arange(n + len(shared), n_items), 2)
    code = np.concatenate((names, _cluster_codes(n_items - n, names)))
    tree, _ = Hierarchy.from_parents(parent, code, kind="dendrogram")
    return tree


def ward_merges(points: Floats, weight: Floats) -> NDArray[np.int64]:
    """Merges weighted points, one row of coordinates each, by Ward's criterion until one cluster is
    left.

    Returns for merge i, in order of cost, the two clusters that become cluster ``n + i``; the
    points are clusters 0..n. Cost is the growth of the sum of squared distances to the centroids.
    Equal costs are ordered by a hash of the two clusters' smallest points.
    """
    n = len(points)
    centre = np.array(points, dtype=np.float64)
    centre -= centre.mean(axis=0)  # smaller numbers round less
    clusters = _Clusters(
        centre,
        mass=np.array(weight, dtype=np.float64),
        first=np.arange(n),
        number=np.arange(n),
    )
    height = np.zeros(2 * n, dtype=np.float64)
    pairs = [np.empty((0, 2), dtype=np.int64)]
    nearest, cost = np.full(n, -1), np.full(n, np.inf)
    stale = np.ones(n, dtype=np.bool_)
    made = n
    while len(clusters) > 1:
        rows = np.flatnonzero(stale)
        nearest[rows], cost[rows] = clusters.nearest(rows)
        position = np.arange(len(clusters))
        one = np.flatnonzero((nearest[nearest] == position) & (position < nearest))
        other = nearest[one]
        together = np.stack([clusters.number[one], clusters.number[other]], axis=1)
        pairs.append(together)
        # Rounding must not order a merge before its parts.
        merged = np.arange(made, made + len(one))
        height[merged] = np.maximum(cost[one], height[together].max(axis=1))
        made += len(one)
        clusters.merge(one, other, merged)
        # Ward's criterion is reducible: a merged cluster is no nearer than its parts were, so only
        # those whose neighbour was merged look again.
        changed = np.zeros(len(clusters), dtype=np.bool_)
        changed[one] = changed[other] = True
        stale = changed | changed[nearest]
        left = np.ones(len(clusters), dtype=np.bool_)
        left[other] = False
        clusters = clusters.select(left)
        nearest = (np.cumsum(left) - 1)[nearest[left]]
        cost, stale = cost[left], stale[left]
    order = np.argsort(height[n : 2 * n - 1], kind="stable")
    number = np.arange(2 * n)
    number[n + order] = n + np.arange(len(order))
    return np.sort(number[np.concatenate(pairs)[order]], axis=1)


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clusters that are left: centroids, masses, smallest points and numbers."""

    centre: Floats
    mass: Floats
    first: NDArray[np.int64]
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.mass)

    def select(self, left: Mask) -> _Clusters:
        """Returns the clusters of a mask."""
        return _Clusters(self.centre[left], self.mass[left], self.first[left], self.number[left])

    def merge(self, one: Positions, other: Positions, number: Positions) -> None:
        """Turns each of ``one`` into its union with ``other``, under a new number."""
        mass, more = self.mass[one, None], self.mass[other, None]
        both = mass * self.centre[one] + more * self.centre[other]
        self.centre[one] = both / (mass + more)
        self.mass[one] += self.mass[other]
        self.first[one] = np.minimum(self.first[one], self.first[other])
        self.number[one] = number

    def nearest(self, rows: Positions) -> tuple[Positions, Floats]:
        """Returns the cheapest partner of some clusters, and the cost of each merge.

        Clusters are indexed by mass, in powers of two. In an index the cheapest partner is among
        the nearest until these are farther than the lightest member could be at the best cost.
        """
        from scipy.spatial import KDTree

        best = np.full(len(rows), -1)
        cost, tie = np.full(len(rows), np.inf), np.zeros(len(rows), dtype=np.uint64)
        power = np.frexp(self.mass)[1]
        for own in np.unique(power):
            members = np.flatnonzero(power == own)
            index = KDTree(self.centre[members])
            lightest = self.mass[members].min()
            open_, count = np.arange(len(rows)), min(_NEIGHBOURS, len(members))
            while len(open_):
                row = rows[open_]
                distance, near = index.query(self.centre[row], k=[*range(1, count + 1)])
                for column in members[near.T]:
                    price, key = self._cost(row, column), self._key(row, column)
                    cheaper = price < cost[open_]
                    cheaper |= np.isfinite(price) & (price == cost[open_]) & (key < tie[open_])
                    changed = open_[cheaper]
                    best[changed], cost[changed] = column[cheaper], price[cheaper]
                    tie[changed] = key[cheaper]
                if count == len(members):
                    break
                reach = cost[open_] * (1 / self.mass[row] + 1 / lightest)
                open_ = open_[distance[:, -1] <= np.sqrt(reach) * (1 + 1e-9)]
                count = min(4 * count, len(members))
        return best, cost

    def _cost(self, one: Positions, other: Positions) -> Floats:
        """Returns the cost of merging pairs; infinite for a cluster with itself."""
        squares = ((self.centre[one] - self.centre[other]) ** 2).sum(axis=1)
        cost = squares / (1 / self.mass[one] + 1 / self.mass[other])
        return np.where(one == other, np.inf, cost)

    def _key(self, one: Positions, other: Positions) -> NDArray[np.uint64]:
        """Returns a hash of unordered pairs, in which neighbours at equal distances are ordered.

        It is symmetric, so that the best pair of all is a pair of mutual neighbours, and without
        pattern, so that a row of equal distances is merged in few rounds.
        """
        mixed = self.first.astype(np.uint64) + np.uint64(1)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        key = mixed[one] ^ mixed[other]
        key *= np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(key ^ (key >> np.uint64(32)))


def _cluster_codes(count: int, taken: NDArray[np.str_]) -> NDArray[np.str_]:
    width = len(str(count))
    letters = "c"
    while True:
        codes = np.array(
            [f"{letters}{i:0{width}d}" for i in range(1, count + 1)], dtype=np.str_
        ).reshape(count)
        if not np.isin(codes, taken).any():
            return codes
        letters += "c"
