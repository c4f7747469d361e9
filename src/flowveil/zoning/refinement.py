"""Which tree stands over the tiles of flows: the one they were read with, or the same refined into halves.

`h3` is the tree as it is, that of H3 or of the user's own map; `halves` puts parts between its zones and their children
(`flowveil.zoning.halves`, `flowveil.zoning.map_halves`). The tiles stay the same; only their numbers change.
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
from flowveil.zoning.files import restricted_tree
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.halves import halved_h3
from flowveil.zoning.map_halves import MARK, halved_map
from flowveil.zoning.outside import inside_of

Refinement = Literal["h3", "halves"]
HIERARCHIES: tuple[Refinement, ...] = get_args(Refinement)
Read = TypeVar("Read", Flows, SlicedFlows)
#: Those of the origins and the destinations, and the whole map where there is one.
Trees = tuple[Hierarchy, Hierarchy, Hierarchy | None]


def check_hierarchy(name: str | None) -> None:
    """Raise ParameterError for a name that is none."""
    if name is not None and name not in HIERARCHIES:
        raise ParameterError(
            f"hierarchy must be one of {', '.join(HIERARCHIES)}; found {name!r}." + did_you_mean(str(name), HIERARCHIES)
        )


def refined(flows: Read, hierarchy: str | None, *, default: Refinement = "h3") -> tuple[Read, Refinement]:
    """The flows on the tree that was asked for, and which one that is.

    Args:
        flows: what `read_trips` or `read_slices` returns; or those of a release on halves, which stay where they are.
        hierarchy: what was asked for; None for the default.
        default: what to take where nothing was asked for. Halves by default are taken where the tree can be refined:
            otherwise it stays as it is.

    Raises:
        ParameterError: the name is none, or halves were asked for and the tree cannot be refined; the message says why.
    """
    check_hierarchy(hierarchy)
    if flows.origins.levels is not None:
        if hierarchy == "h3":
            raise ParameterError("These flows stand on halves already. Hint: pass the flows as they were read.")
        return flows, "halves"
    if (hierarchy or default) == "h3":
        return flows, "h3"
    obstacle = _obstacle(flows)
    if obstacle is None:
        return _moved(flows), "halves"
    if hierarchy is not None:
        raise ParameterError(f"hierarchy='halves' cannot be: {obstacle} Hint: leave it out.")
    return flows, "h3"


def _one(flows: Flows | SlicedFlows) -> Flows:
    return flows.slices[0] if isinstance(flows, SlicedFlows) else flows


def _obstacle(flows: Flows | SlicedFlows) -> str | None:
    """Why the trees cannot be refined; None where they can."""
    trees = (flows.origins, flows.destinations)
    whole = _one(flows).whole_map
    whole = None if whole is None else inside_of(whole)
    if all(tree.kind == "h3" and tree.code.dtype == np.uint64 for tree in trees):
        return None
    if any(tree.kind == "dendrogram" for tree in trees):
        return "the tree of these zones was made from their centres and has two branches everywhere already."
    if whole is None or whole.kind != "table" or not isinstance(whole.geography, ZoneGeography):
        return "parts of zones are made by where they lie, and these have no map with centres or outlines."
    marked = int(np.sum(np.char.find(whole.code.astype(np.str_), MARK) >= 0))
    if marked:
        return f"parts of zones are marked with '{MARK}', which {marked} codes of the map have already."
    return None


def _moved(flows: Any) -> Any:
    trees = _halved(flows)
    numbers = _numbers(flows.origins, trees[0]), _numbers(flows.destinations, trees[1])
    if isinstance(flows, Flows):
        return _renumbered(flows, trees, numbers)
    return replace(flows, slices=tuple(_renumbered(part, trees, numbers) for part in flows.slices))


def _halved(flows: Flows | SlicedFlows) -> Trees:
    """The trees refined; one tree for both ends where it was one before."""
    whole = _one(flows).whole_map
    whole = None if whole is None else halved_map(whole)
    origins = halved_h3(flows.origins) if whole is None else _restricted(whole, flows.origins)
    if flows.destinations is flows.origins:
        return origins, origins, whole
    return origins, halved_h3(flows.destinations) if whole is None else _restricted(whole, flows.destinations), whole


def _restricted(whole: Hierarchy, tree: Hierarchy) -> Hierarchy:
    tiles = np.flatnonzero(np.isin(whole.code[whole.leaf_node], tree.code[tree.leaf_node]))
    restricted, _ = restricted_tree(whole, tiles)
    return restricted


def _numbers(before: Hierarchy, after: Hierarchy) -> Ints:
    """For each tile of a tree, its number in another."""
    old, new = before.code[before.leaf_node], after.code[after.leaf_node]
    order = np.argsort(new)
    return order[np.searchsorted(new, old, sorter=order)].astype(np.int32)


def _by_ends(origin: Ints, destination: Ints) -> NDArray[np.int64]:
    """The order by origin, then destination."""
    width, places = int(destination.max(initial=0)).bit_length(), len(origin).bit_length()
    if int(origin.max(initial=0)).bit_length() + width + places > 63:
        return np.lexsort((destination, origin))
    # One number sorts much faster than two: the origin, the destination, and where they stood.
    key = origin.astype(np.int64)
    key <<= width
    key |= destination
    key <<= places
    key |= np.arange(len(key))
    key.sort()
    key &= (1 << places) - 1
    return key


def _renumbered(flows: Flows, trees: Trees, numbers: tuple[Ints, Ints]) -> Flows:
    """The same flows in the order of other tile numbers."""
    origin, destination = numbers[0][flows.origin], numbers[1][flows.destination]
    order = _by_ends(origin, destination)
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
        origins=trees[0],
        destinations=trees[1],
        whole_map=trees[2],
    )
    return moved if flows.tiles is None else moved.located()
