"""A hierarchy for zone maps that have none: Ward's dendrogram of the tiles' centres.

Matet et al. build the trees of taxi zones and of base stations so (L2 distance, Ward linkage). Ward's criterion
is reducible: a pair of mutual nearest neighbours may be merged at any time without changing the outcome. So a
chain of nearest neighbours finds all merges with nothing but the clusters' centroids and weights in memory, one
pass over the living clusters for each link. For 20,000 tiles that takes seconds and a few megabytes, where the
linkage of scipy holds the matrix of all distances (3 GB, several times as long).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import Floats, Hierarchy
from flowveil.zoning.geometry import on_earth, refuse_places
from flowveil.zoning.table import first_of_runs


def ward_hierarchy(codes: NDArray[np.str_], lat: Floats, lon: Floats) -> Hierarchy:
    """The Ward dendrogram of tile centres as a hierarchy.

    Distances are straight lines between points on the ellipsoid, in metres: they need no projection, know no edge of
    the map at 180 degrees, and differ from distances along the ground by less than a thousandth over 900 km.

    Tiles with the very same centre become the children of one node, whatever their number; every other inner node
    has two children.

    Args:
        codes: distinct text codes of the tiles, in any order.
        lat: latitude of each tile's centre in degrees.
        lon: longitude of each tile's centre in degrees.

    Returns:
        A hierarchy of kind ``dendrogram``. Inner nodes are called ``c1``, ``c2``, ... in the order of merging,
        cheapest first, padded with zeros to one width; where a tile is called so, another ``c`` is put in front
        until none is. The tree does not depend on the order of the tiles: ties are settled by code.

    Raises:
        DataError: there is no tile, there are duplicate codes, or a tile has no centre on the earth.
    """
    if len(codes) == 0:
        raise DataError("There is no tile to build a hierarchy from.")
    codes = np.asarray(codes, dtype=np.str_)
    order = np.argsort(codes, kind="stable")
    names = codes[order]
    if np.any(names[1:] == names[:-1]):
        raise DataError("Duplicate tiles: every tile needs a code of its own.")
    lat, lon = np.asarray(lat, dtype=np.float64)[order], np.asarray(lon, dtype=np.float64)[order]
    refuse_places(names, lat, lon)
    place_of_tile, points = _places(on_earth(lat, lon))
    tiles_at = np.bincount(place_of_tile, minlength=len(points))
    merges = ward_merges(points, tiles_at.astype(np.float64))

    # Items: the tiles, then a node for every shared place, then one for every merge.
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
    """Merge weighted points by Ward's criterion until one cluster is left.

    Args:
        points: one row of coordinates for each point.
        weight: how many unit points stand at each; positive.

    Returns:
        For merge i, in order of cost, the two clusters that become cluster ``n + i``; the points are clusters 0..n.
        Cost is the growth of the sum of squared distances to the centroids. Where several neighbours are equally near,
        the cluster whose first point has the smallest number is taken.
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
            # Equal costs must lead back, or a ring of equal distances would be walked for ever.
            if len(chain) > 1 and cost[chain[-2]] <= cost[near]:
                break
            chain.append(near)
        price = float(cost[chain[-2]])
        one, other = sorted((chain.pop(), chain.pop()))
        pairs[merge] = slots.cluster[[one, other]]
        # Rounding must not put a merge before the two it is made of.
        height[n + merge] = max(price, *height[pairs[merge]].tolist())
        slots.merge(one, other, n + merge)
    order = np.argsort(height[n : 2 * n - 1], kind="stable")
    number = np.arange(2 * n)
    number[n + order] = n + np.arange(len(order))
    return np.sort(number[pairs[order]], axis=1)


class _Slots:
    """The clusters of a moment, in the order of their first points. A slot that is gone lies infinitely far away."""

    def __init__(self, axes: Floats, lightness: Floats, cluster: NDArray[np.int64]) -> None:
        self.axes = axes
        self.lightness = lightness
        self.cluster = cluster
        self._cost, self._gap = np.empty_like(lightness), np.empty_like(lightness)

    def costs(self, tip: int) -> Floats:
        """What merging the tip with each slot costs; exactly what the other would say of the tip.

        The array is overwritten by the next call: allocating anew would take as long as computing.
        """
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
        """Put both into the first slot."""
        mass, more = 1.0 / self.lightness[one], 1.0 / self.lightness[other]
        self.axes[:, one] = (mass * self.axes[:, one] + more * self.axes[:, other]) / (mass + more)
        self.lightness[one] = 1.0 / (mass + more)
        self.cluster[one] = cluster
        self.axes[:, other], self.cluster[other] = np.inf, -1

    def living(self) -> tuple[_Slots, NDArray[np.int64]]:
        """The slots that are not gone, in the same order, and where each old slot is now."""
        lives = self.cluster >= 0
        slots = _Slots(np.ascontiguousarray(self.axes[:, lives]), self.lightness[lives], self.cluster[lives])
        return slots, np.cumsum(lives) - 1


def _places(points: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Number the distinct points by their first tile; return the number of each tile and the points."""
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
