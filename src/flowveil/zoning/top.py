"""Trees that reach to the top of their map, for zones that were chosen on other data.

The root of a tree is otherwise the smallest zone that contains the tiles of its data, and a zone of an earlier release
may be above it. A tree to the top has every zone that any data could have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowveil.hierarchy import Hierarchy
from flowveil.slices import SlicedFlows
from flowveil.zoning.files import restricted_tree
from flowveil.zoning.h3 import h3_hierarchy
from flowveil.zoning.halves import halved_h3


def to_the_top(flows: Any) -> Any:
    """Returns the flows or slices over trees that reach to the top of their map; tiles keep their numbers.

    A tree without a map stays unchanged.
    """
    one = flows.slices[0] if isinstance(flows, SlicedFlows) else flows
    origins = _reaching(one.origins, one.whole_map)
    # One tree for both ends stays one.
    same = one.destinations is one.origins
    destinations = origins if same else _reaching(one.destinations, one.whole_map)
    if isinstance(flows, SlicedFlows):
        moved = (replace(part, origins=origins, destinations=destinations) for part in flows.slices)
        return replace(flows, slices=tuple(moved))
    return replace(flows, origins=origins, destinations=destinations)


def tree_over(tiles: Any, hierarchy: str) -> Hierarchy:
    """Returns the tree to the top over H3 cells of one resolution: ``h3`` or ``halves``."""
    tree = h3_hierarchy(np.unique(tiles), to_the_top=True)
    return halved_h3(tree, to_the_top=True) if hierarchy == "halves" else tree


def _reaching(tree: Hierarchy, whole: Hierarchy | None) -> Hierarchy:
    tiles = tree.code[tree.leaf_node]
    if tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64:
        return tree_over(tiles, tree.kind)
    if whole is None:
        return tree
    return restricted_tree(whole, np.flatnonzero(np.isin(whole.code[whole.leaf_node], tiles)), to_the_top=True)[0]
