"""Names of zones: of the map or of a place in the zone.

They depend on the map alone, so reveal nothing of trips.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.geometry import directions
from flowveil.zoning.table import positions

#: Longer names are truncated.
LONGEST = 120


def names_of_zones(tree: Hierarchy, given: NDArray[np.str_]) -> NDArray[np.str_]:
    """Returns a name for every node of a map: the given one, or one such as "3 zones around
    Exchange Place".

    The place is the named tile nearest to the zone's centre. Without coordinates it is the first
    name in text order, with "with" instead of "around".
    """
    names = np.array([" ".join(name.split())[:LONGEST] for name in given.tolist()], dtype=np.str_)
    tile_name = names[tree.leaf_node]
    named = np.flatnonzero(tile_name != "").astype(np.int32)
    inner = np.flatnonzero((names == "") & (tree.size > 1))
    if not len(named) or not len(inner):
        return names
    best = _named_tile_in(tree, named, tile_name)
    word = "with" if tree.geography is None else "around"
    out = names.astype(object)
    for node in inner[best[inner] >= 0].tolist():
        out[node] = f"{int(tree.size[node]):,} zones {word} {tile_name[best[node]]}"
    return out.astype(np.str_)


def named_like(tree: Hierarchy, other: Hierarchy) -> Hierarchy:
    """Returns the tree with the names of another tree by code.

    New nodes are named after their tiles.
    """
    if other.names is None:
        return tree
    at = positions(other.code, tree.code)
    return replace(tree, names=names_of_zones(tree, np.where(at >= 0, other.names[at], "")))


def _named_tile_in(tree: Hierarchy, named: Ints, tile_name: NDArray[np.str_]) -> Ints:
    """Returns for each node the named tile that represents it, or -1.

    Processes one level at once.
    """
    best = np.full(tree.n_nodes, -1, dtype=np.int32)
    least = np.full(tree.n_nodes, np.inf)
    _, rank = np.unique(tile_name[named], return_inverse=True)
    at = tree.leaf_node[named]
    for _ in range(tree.max_depth):
        at = tree.lift(at)
        far = (
            rank.astype(np.float64)
            if tree.geography is None
            else _distance(tree, tree.leaf_node[named], at)
        )
        # Ties: first name, then first tile.
        order = np.lexsort((named, rank, far, at))
        first = order[np.append(True, at[order][1:] != at[order][:-1])]
        nearer = first[far[first] < least[at[first]]]
        least[at[nearer]], best[at[nearer]] = far[nearer], named[nearer]
    return best


def _distance(tree: Hierarchy, one: Ints, other: Ints) -> Floats:
    """Returns the distance between node centres as a chord of the unit sphere, rounded to 12
    digits.
    """
    assert tree.geography is not None
    start, end = (
        directions(*tree.geography.centers(nodes.astype(np.int32))) for nodes in (one, other)
    )
    far: Floats = np.round(np.sqrt(np.sum((start - end) ** 2, axis=0)), 12)
    return far
