"""Other trees over the tiles of flows: over some of the tiles, up to the top of the map, or refined
into halves.

The root of a tree is otherwise the smallest zone that contains the tiles of its data, and a zone of
an earlier release may be above it. A tree to the top has every zone that any data could have. `h3`
is the tree as read, of H3 or of the user's map; `halves` adds parts between zones and their
children (`flowveil.zoning.halves`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowveil.core.arrays import Ints
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.request.request import find_setting
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.h3 import h3_hierarchy, is_h3
from flowveil.zoning.halves import MARK, halved_h3, halved_map
from flowveil.zoning.outside import has_outside, inside_of, with_outside
from flowveil.zoning.table import chain_above, positions

Refinement = Literal["h3", "halves"]
HIERARCHIES: tuple[Refinement, ...] = get_args(Refinement)
#: Trees of origins and destinations, and the whole map if there is one.
Trees = tuple[Hierarchy, Hierarchy, Hierarchy | None]


def restricted_tree(tree: Hierarchy, tiles: ArrayLike, *, to_the_top: bool = False) -> Hierarchy:
    """Returns the tree over some of its tiles, by number, in the same order.

    Its root is the smallest node that contains all of these tiles; to the top, the root of the map.
    What remains keeps its code, name, level, centre, area and outline: a zone is as large as on the
    map, whichever tiles were seen. The tile `outside` stays, with the top, if it is chosen.
    """
    chosen = np.asarray(tiles, dtype=np.int64).ravel()
    if len(chosen) == 0:
        raise DataError("The map cannot be restricted to no tiles.")
    if has_outside(tree):
        within = chosen[chosen != tree.n_tiles - 1]
        if len(within) == 0:
            raise DataError(
                "All trips begin, or all end, outside the area. Hint: a larger area (--within)."
            )
        stays = len(within) < len(chosen)
        smaller = restricted_tree(inside_of(tree), within, to_the_top=to_the_top or stays)
        return with_outside(smaller) if stays else smaller
    seen = np.zeros(tree.n_tiles, dtype=np.int64)
    seen[chosen] = 1
    remains = tree.sum_over(seen) > 0
    kept: Ints = np.flatnonzero(remains).astype(np.int32)
    parent = (np.cumsum(remains) - 1)[np.maximum(tree.parent[kept], 0)]
    skipped = 0 if to_the_top else chain_above(np.bincount(parent[1:], minlength=len(kept)))
    kept, parent = kept[skipped:], parent[skipped:] - skipped
    parent[0] = -1
    where = tree.geography
    return Hierarchy(
        parent=parent.astype(np.int32),
        code=tree.code[kept],
        base_level=int(tree.level[kept[0]]),
        geography=where.take(kept) if isinstance(where, ZoneGeography) else None,
        kind=tree.kind,
        levels=None if tree.levels is None else tree.levels[kept],
        names=None if tree.names is None else tree.names[kept],
    )


def tree_of_tiles(whole: Hierarchy, codes: NDArray[Any], *, to_the_top: bool = False) -> Hierarchy:
    """Returns the tree of a map over the tiles with these codes; see `restricted_tree`."""
    tiles = np.flatnonzero(np.isin(whole.code[whole.leaf_node], codes))
    return restricted_tree(whole, tiles, to_the_top=to_the_top)


def both_trees(flows: Any, make: Callable[[Hierarchy], Hierarchy]) -> tuple[Hierarchy, Hierarchy]:
    """Returns new trees of origins and destinations; one tree for both ends stays one."""
    origins = make(flows.origins)
    return origins, origins if flows.destinations is flows.origins else make(flows.destinations)


def to_the_top(flows: Flows) -> Flows:
    """Returns flows over trees up to the top of their map, if they have one.

    Tiles keep their numbers.
    """
    whole = flows.whole_map

    def reaching(tree: Hierarchy) -> Hierarchy:
        tiles = tree.code[tree.leaf_node]
        if is_h3(tree):
            return tree_over(tiles, tree.kind)
        return tree if whole is None else tree_of_tiles(whole, tiles, to_the_top=True)

    origins, destinations = both_trees(flows, reaching)
    return replace(flows, origins=origins, destinations=destinations)


def tree_over(tiles: Any, hierarchy: str) -> Hierarchy:
    """Returns the tree to the top over H3 cells of one resolution: ``h3`` or ``halves``."""
    tree = h3_hierarchy(np.unique(tiles), to_the_top=True)
    return halved_h3(tree, to_the_top=True) if hierarchy == "halves" else tree


def flows_during(flows: Flows, label: str) -> Flows:
    """Returns the flows of one time step, from flows sliced by time alone.

    DataError if it has no trips.
    """
    keys = flows.slice_keys
    if (label,) not in keys:
        first, last = keys[0][0], keys[-1][0]
        raise DataError(
            f"There are no trips in {label}; the input has trips from {first} to {last}."
        )
    step = over_own_tiles(flows.slices[keys.index((label,))])
    return replace(step, intake=replace(step.intake, during=label))


def over_own_tiles(flows: Flows) -> Flows:
    """Returns the flows over the smallest trees that contain their tiles."""
    seen = [np.unique(flows.origin), np.unique(flows.destination)]
    if flows.origins is flows.destinations:
        seen = [np.union1d(*seen)] * 2

    def smallest(tree: Hierarchy) -> Hierarchy:
        tiles = seen[0 if tree is flows.origins else 1]
        codes = tree.code[tree.leaf_node[tiles]]
        if flows.whole_map is not None:
            return tree_of_tiles(flows.whole_map, codes)
        return h3_hierarchy(codes) if tree.is_whole_h3 else restricted_tree(tree, tiles)

    origins, destinations = both_trees(flows, smallest)
    # A smaller tree keeps the order of its tiles.
    origin, destination = (
        np.searchsorted(tiles, end).astype(np.int32)
        for tiles, end in zip(seen, (flows.origin, flows.destination), strict=True)
    )
    return replace(
        flows, origin=origin, destination=destination, origins=origins, destinations=destinations
    )


# ---- refined into halves -------------------------------------------------------------------------


def refined(
    flows: Flows, hierarchy: str | None, *, default: Refinement = "h3"
) -> tuple[Flows, Refinement]:
    """Returns the flows on the requested tree, and its name.

    Flows of a release on halves are returned unchanged. Halves by default apply only if the tree
    can be refined; if they are requested and it cannot, ParameterError is raised.
    """
    find_setting("hierarchy").check(hierarchy)
    if flows.origins.levels is not None:
        if hierarchy == "h3":
            raise ParameterError(
                "These flows are already on halves. Hint: pass the flows as they were read."
            )
        return flows, "halves"
    if (hierarchy or default) == "h3":
        return flows, "h3"
    obstacle = _obstacle(flows)
    if obstacle is None:
        return _moved(flows), "halves"
    if hierarchy is not None:
        raise ParameterError(f"hierarchy='halves' is not possible: {obstacle} Hint: omit it.")
    return flows, "h3"


def _obstacle(flows: Flows) -> str | None:
    """Returns why the trees cannot be refined; None if they can."""
    trees = (flows.origins, flows.destinations)
    whole = None if flows.whole_map is None else inside_of(flows.whole_map)
    if all(tree.is_whole_h3 for tree in trees):
        return None
    if any(tree.is_dendrogram for tree in trees):
        return "the tree of these zones was built from their centres and is binary already."
    if whole is None or not whole.is_table or not isinstance(whole.geography, ZoneGeography):
        return (
            "parts of zones need coordinates, and these zones have no map with centres or outlines."
        )
    marked = int(np.sum(np.char.find(whole.code.astype(np.str_), MARK) >= 0))
    if marked:
        return f"parts of zones are marked with '{MARK}', which {marked} codes of the map contain."
    return None


def _moved(flows: Flows) -> Flows:
    whole = None if flows.whole_map is None else halved_map(flows.whole_map)

    def halved(tree: Hierarchy) -> Hierarchy:
        return halved_h3(tree) if whole is None else tree_of_tiles(whole, tree.code[tree.leaf_node])

    trees = (*both_trees(flows, halved), whole)
    numbers = _numbers(flows.origins, trees[0]), _numbers(flows.destinations, trees[1])
    return _renumbered(flows, trees, numbers)


def _numbers(before: Hierarchy, after: Hierarchy) -> Ints:
    """Returns for each tile of a tree its number in another."""
    return positions(after.code[after.leaf_node], before.code[before.leaf_node]).astype(np.int32)


def _renumbered(flows: Flows, trees: Trees, numbers: tuple[Ints, Ints]) -> Flows:
    """Returns the same flows in the order of other tile numbers."""
    origin, destination = numbers[0][flows.origin], numbers[1][flows.destination]
    slices = np.repeat(np.arange(len(flows.slices)), [len(part) for part in flows.slices])
    # The sort is stable, so rows of the same places stay in the order of what folds.
    order = np.lexsort((destination, origin, slices))
    moved = flows.reordered(
        order,
        origin=origin[order],
        destination=destination[order],
        tiles=None,
        origins=trees[0],
        destinations=trees[1],
        whole_map=trees[2],
    )
    return moved if flows.tiles is None else moved.with_tile_members()
