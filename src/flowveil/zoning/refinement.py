"""The tree over the tiles of flows: as read, or refined into halves.

`h3` is the unchanged tree, of H3 or of the user's map. `halves` adds parts between zones and their children
(`flowveil.zoning.halves`). The tiles stay the same; only their numbers change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError, did_you_mean
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.slices import SlicedFlows
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.halves import MARK, halved_h3, halved_map
from flowveil.zoning.outside import inside_of
from flowveil.zoning.restriction import both_trees, tree_of_tiles
from flowveil.zoning.table import positions

Refinement = Literal["h3", "halves"]
HIERARCHIES: tuple[Refinement, ...] = get_args(Refinement)
Read = TypeVar("Read", Flows, SlicedFlows)
#: Trees of origins and destinations, and the whole map if there is one.
Trees = tuple[Hierarchy, Hierarchy, Hierarchy | None]


def check_hierarchy(name: str | None) -> None:
    """Raises ParameterError for an unknown name."""
    if name is not None and name not in HIERARCHIES:
        raise ParameterError(
            f"hierarchy must be one of {', '.join(HIERARCHIES)}; found {name!r}." + did_you_mean(str(name), HIERARCHIES)
        )


def refined(flows: Read, hierarchy: str | None, *, default: Refinement = "h3") -> tuple[Read, Refinement]:
    """Returns the flows on the requested tree, and its name.

    Flows of a release on halves are returned unchanged. Halves by default apply only if the tree can be refined; if
    they are requested and it cannot, ParameterError is raised.
    """
    check_hierarchy(hierarchy)
    if flows.origins.levels is not None:
        if hierarchy == "h3":
            raise ParameterError("These flows are already on halves. Hint: pass the flows as they were read.")
        return flows, "halves"
    if (hierarchy or default) == "h3":
        return flows, "h3"
    obstacle = _obstacle(flows)
    if obstacle is None:
        return _moved(flows), "halves"
    if hierarchy is not None:
        raise ParameterError(f"hierarchy='halves' is not possible: {obstacle} Hint: omit it.")
    return flows, "h3"


def _one(flows: Flows | SlicedFlows) -> Flows:
    return flows.slices[0] if isinstance(flows, SlicedFlows) else flows


def _obstacle(flows: Flows | SlicedFlows) -> str | None:
    """Returns why the trees cannot be refined; None if they can."""
    trees = (flows.origins, flows.destinations)
    whole = _one(flows).whole_map
    whole = None if whole is None else inside_of(whole)
    if all(tree.kind == "h3" and tree.code.dtype == np.uint64 for tree in trees):
        return None
    if any(tree.kind == "dendrogram" for tree in trees):
        return "the tree of these zones was built from their centres and is binary already."
    if whole is None or whole.kind != "table" or not isinstance(whole.geography, ZoneGeography):
        return "parts of zones need coordinates, and these zones have no map with centres or outlines."
    marked = int(np.sum(np.char.find(whole.code.astype(np.str_), MARK) >= 0))
    if marked:
        return f"parts of zones are marked with '{MARK}', which {marked} codes of the map contain."
    return None


def _moved(flows: Any) -> Any:
    whole = _one(flows).whole_map
    whole = None if whole is None else halved_map(whole)

    def halved(tree: Hierarchy) -> Hierarchy:
        return halved_h3(tree) if whole is None else tree_of_tiles(whole, tree.code[tree.leaf_node])

    trees = (*both_trees(flows, halved), whole)
    numbers = _numbers(flows.origins, trees[0]), _numbers(flows.destinations, trees[1])
    if isinstance(flows, Flows):
        return _renumbered(flows, trees, numbers)
    return replace(flows, slices=tuple(_renumbered(part, trees, numbers) for part in flows.slices))


def _numbers(before: Hierarchy, after: Hierarchy) -> Ints:
    """Returns for each tile of a tree its number in another."""
    return positions(after.code[after.leaf_node], before.code[before.leaf_node]).astype(np.int32)


def _renumbered(flows: Flows, trees: Trees, numbers: tuple[Ints, Ints]) -> Flows:
    """Returns the same flows in the order of other tile numbers."""
    origin, destination = numbers[0][flows.origin], numbers[1][flows.destination]
    order = np.lexsort((destination, origin))
    place: NDArray[np.int32] = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    moved = replace(
        flows,
        origin=origin[order],
        destination=destination[order],
        trips=flows.trips[order],
        **flows.added(lambda values: values[order]),
        people=None if flows.people is None else flows.people.renumber(place),
        tiles=None,
        time=None if flows.time is None else flows.time[order],
        values=None if flows.values is None else flows.values.renumber(place),
        origins=trees[0],
        destinations=trees[1],
        whole_map=trees[2],
    )
    return moved if flows.tiles is None else moved.with_tile_members()
