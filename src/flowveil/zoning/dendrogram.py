"""A hierarchy for zone maps without one: Ward's dendrogram of the tiles' centres.

As Matet et al. build the trees of taxi zones and base stations (L2 distance, Ward linkage). Ward's criterion is
reducible: mutual nearest neighbours may be merged at any time without changing the result. So a nearest-neighbour chain
finds all merges with only centroids and weights in memory, and one pass over the clusters per link.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import Floats, Hierarchy
from flowveil.zoning.geometry import on_earth, refuse_places
from flowveil.zoning.table import first_of_runs


def ward_hierarchy(codes: NDArray[np.str_], lat: Floats, lon: Floats) -> Hierarchy:
    """Returns the Ward dendrogram of tile centres as a hierarchy.

    Distances are straight lines between points on the ellipsoid, in metres. They need no projection, have no seam at
    180 degrees, and differ from surface distances by less than a thousandth over 900 km.

    Tiles with the same centre become children of one node; every other inner node has two children.

    Args:
        codes: distinct text codes of the tiles, in any order.
        lat: latitude of each tile's centre in degrees.
        lon: longitude of each tile's centre in degrees.

    Returns:
        A hierarchy of kind ``dendrogram``. Inner nodes are called ``c1``, ``c2``, ... in order of merging, cheapest
        first, padded with zeros; if a tile has such a name, another ``c`` is prepended. The tree does not depend on the
        order of the tiles: ties are decided by code.

    Raises:
        DataError: there are no tiles, codes are duplicated, or a tile has no valid centre.
    """
    if len(codes) == 0:
        raise DataError("A hierarchy needs at least one tile.")
    codes = np.asarray(codes, dtype=np.str_)
    order = np.argsort(codes, kind="stable")
    names = codes[order]
    if np.any(names[1:] == names[:-1]):
        raise DataError("Duplicate tiles: every tile needs a distinct code.")
    lat, lon = np.asarray(lat, dtype=np.float64)[order], np.asarray(lon, dtype=np.float64)[order]
    refuse_places(names, lat, lon)
    place_of_tile, points = _places(on_earth(lat, lon))
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
    """Merges weighted points by Ward's criterion until one cluster is left.

    Args:
        points: one row of coordinates for each point.
        weight: number of unit points at each; positive.

    Returns:
        For merge i, in order of cost, the two clusters that become cluster ``n + i``; the points are clusters 0..n.
        Cost is the growth of the sum of squared distances to the centroids. Among equally near neighbours, the cluster
        whose first point has the smallest number is taken.
    """
    n = len(points)
    axes = np.array(np.asarray(points, dtype=np.float64).T, order="C")
    axes -= axes.mean(axis=1, keepdims=True)  # smaller numbers round less
    slots = _Slots(axes, 1.0 / np.asarray(weight, dtype=np.float64), np.arange(n))
    pairs = np.empty((max(n - 1, 0), 2), dtype=np.int64)
    height = np.zeros(2 * n, dtype=np.float64)
    chain: list[int] = []
    for merge in range(n - 1):
        if 2 * (n - merge) < len(slots.cluster):
            slots, new_slot = slots.living()
            chain = new_slot[chain].tolist()
        if not chain:
            chain.append(int(np.argmax(slots.cluster >= 0)))
        while True:
            cost = slots.costs(chain[-1])
            near = int(cost.argmin())
            # Ties go back along the chain; otherwise a ring of equal distances would loop forever.
            if len(chain) > 1 and cost[chain[-2]] <= cost[near]:
                break
            chain.append(near)
        price = float(cost[chain[-2]])
        one, other = sorted((chain.pop(), chain.pop()))
        pairs[merge] = slots.cluster[[one, other]]
        # Rounding must not order a merge before its parts.
        height[n + merge] = max(price, *height[pairs[merge]].tolist())
        slots.merge(one, other, n + merge)
    order = np.argsort(height[n : 2 * n - 1], kind="stable")
    number = np.arange(2 * n)
    number[n + order] = n + np.arange(len(order))
    return np.sort(number[pairs[order]], axis=1)


class _Slots:
    """The current clusters, in the order of their first points. A removed slot is infinitely far away."""

    def __init__(self, axes: Floats, lightness: Floats, cluster: NDArray[np.int64]) -> None:
        self.axes = axes
        self.lightness = lightness
        self.cluster = cluster
        self._cost, self._gap = np.empty_like(lightness), np.empty_like(lightness)

    def costs(self, tip: int) -> Floats:
        """Returns the cost of merging the tip with each slot. Symmetric. The array is overwritten by the next call."""
        cost, gap = self._cost, self._gap
        for i, axis in enumerate(self.axes):
            square = gap if i else cost
            np.subtract(axis, axis[tip], out=square)
            np.multiply(square, square, out=square)
            if i:
                np.add(cost, gap, out=cost)
        np.add(self.lightness, self.lightness[tip], out=gap)
        np.divide(cost, gap, out=cost)
        cost[tip] = np.inf
        return cost

    def merge(self, one: int, other: int, cluster: int) -> None:
        """Merges both into the first slot."""
        mass, more = 1.0 / self.lightness[one], 1.0 / self.lightness[other]
        self.axes[:, one] = (mass * self.axes[:, one] + more * self.axes[:, other]) / (mass + more)
        self.lightness[one] = 1.0 / (mass + more)
        self.cluster[one] = cluster
        self.axes[:, other], self.cluster[other] = np.inf, -1

    def living(self) -> tuple[_Slots, NDArray[np.int64]]:
        """Returns the remaining slots in the same order, and the new position of each old slot."""
        lives = self.cluster >= 0
        slots = _Slots(np.ascontiguousarray(self.axes[:, lives]), self.lightness[lives], self.cluster[lives])
        return slots, np.cumsum(lives) - 1


def _places(points: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Numbers the distinct points by their first tile; returns the number of each tile, and the points."""
    order = np.lexsort((*points.T[::-1],))
    ordered = points[order]
    opens = np.concatenate(([True], np.any(ordered[1:] != ordered[:-1], axis=1)))
    run = np.cumsum(opens) - 1
    first = np.minimum.reduceat(order, np.flatnonzero(opens))
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    place = np.empty(len(points), dtype=np.int64)
    place[order] = rank[run]
    return place, points[np.sort(first)]


def _cluster_codes(count: int, taken: NDArray[np.str_]) -> NDArray[np.str_]:
    width = len(str(count))
    letters = "c"
    while True:
        codes = np.array([f"{letters}{i:0{width}d}" for i in range(1, count + 1)], dtype=np.str_).reshape(count)
        together = np.sort(np.concatenate((taken, codes)))
        if len(first_of_runs(together)) == len(together):
            return codes
        letters += "c"
