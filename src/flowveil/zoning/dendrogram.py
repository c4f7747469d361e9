"""A hierarchy for zone maps without one: Ward's dendrogram of the tiles' centres.

As Matet et al. build the trees of taxi zones and base stations (L2 distance, Ward linkage). Ward's
criterion is reducible: mutual nearest neighbours may be merged at any time without changing the
result. So a nearest-neighbour chain finds all merges with only centroids and weights in memory, and
one pass over the clusters per link.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.geometry import on_earth
from flowveil.zoning.table import by_first


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
    Among equally near neighbours, the cluster whose first point has the smallest number is taken.
    """
    n = len(points)
    centre = np.array(points, dtype=np.float64).T
    centre -= centre.mean(axis=1, keepdims=True)  # smaller numbers round less
    lightness, cluster = 1.0 / np.asarray(weight, dtype=np.float64), np.arange(n)
    pairs = np.empty((max(n - 1, 0), 2), dtype=np.int64)
    height = np.zeros(2 * n, dtype=np.float64)
    chain: list[int] = []
    for merge in range(n - 1):
        if 2 * (n - merge) < len(cluster):
            left = cluster >= 0
            centre, lightness, cluster = centre[:, left], lightness[left], cluster[left]
            chain = (np.cumsum(left) - 1)[chain].tolist()
        if not chain:
            chain.append(int(np.argmax(cluster >= 0)))
        while True:
            tip = chain[-1]
            cost = sum((axis - axis[tip]) ** 2 for axis in centre) / (lightness + lightness[tip])
            cost[tip] = np.inf
            near = int(cost.argmin())
            # Ties go back along the chain; otherwise a ring of equal distances would loop forever.
            if len(chain) > 1 and cost[chain[-2]] <= cost[near]:
                break
            chain.append(near)
        price = float(cost[chain[-2]])
        one, other = sorted((chain.pop(), chain.pop()))
        pairs[merge] = cluster[[one, other]]
        # Rounding must not order a merge before its parts.
        height[n + merge] = max(price, *height[pairs[merge]].tolist())
        mass, more = 1.0 / lightness[one], 1.0 / lightness[other]
        centre[:, one] = (mass * centre[:, one] + more * centre[:, other]) / (mass + more)
        lightness[one], cluster[one] = 1.0 / (mass + more), n + merge
        # A merged cluster is infinitely far away.
        centre[:, other], cluster[other] = np.inf, -1
    order = np.argsort(height[n : 2 * n - 1], kind="stable")
    number = np.arange(2 * n)
    number[n + order] = n + np.arange(len(order))
    return np.sort(number[pairs[order]], axis=1)


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
