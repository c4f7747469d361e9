"""The flows of one time step or one segment, independent of all other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.slices import SlicedFlows
from flowveil.zoning.files import restricted_tree
from flowveil.zoning.h3 import h3_hierarchy


def flows_during(sliced: SlicedFlows, label: str) -> Flows:
    """Returns the flows of a time step, independent of earlier and later steps.

    Args:
        sliced: flows sliced by time alone.
        label: label of the step.

    Raises:
        DataError: there are no trips in this step.
    """
    if (label,) not in sliced.keys:
        first, last = sliced.keys[0][0], sliced.keys[-1][0]
        raise DataError(f"There are no trips in {label}; the input has trips from {first} to {last}.")
    flows = over_own_tiles(sliced.slices[sliced.keys.index((label,))])
    return replace(flows, intake=replace(flows.intake, during=label))


def over_own_tiles(flows: Flows) -> Flows:
    """Returns the flows over the smallest trees that contain their tiles."""
    return _over_tiles_of([flows])[0]


def slices_over_own_tiles(sliced: SlicedFlows) -> SlicedFlows:
    """Returns the slices over the smallest trees that contain the tiles of all of them."""
    return replace(sliced, slices=tuple(_over_tiles_of(sliced.slices)))


def _over_tiles_of(parts: Sequence[Flows]) -> list[Flows]:
    """Returns flows with common trees over the smallest trees that contain the tiles of all."""
    first = parts[0]
    seen = [np.unique(np.concatenate([getattr(part, end) for part in parts])) for end in ("origin", "destination")]
    same = first.origins is first.destinations
    if same:
        seen = [np.union1d(*seen)] * 2
    origins = _over(first.origins, first.whole_map, seen[0])
    destinations = origins if same else _over(first.destinations, first.whole_map, seen[1])
    return [
        replace(
            part,
            # A smaller tree keeps the order of its tiles.
            origin=np.searchsorted(seen[0], part.origin).astype(np.int32),
            destination=np.searchsorted(seen[1], part.destination).astype(np.int32),
            origins=origins,
            destinations=destinations,
        )
        for part in parts
    ]


def _over(tree: Hierarchy, whole: Hierarchy | None, tiles: Ints) -> Hierarchy:
    if whole is None and tree.kind != "h3":
        return restricted_tree(tree, tiles)[0]
    codes = tree.code[tree.leaf_node[tiles]]
    if whole is None:
        return h3_hierarchy(codes)
    return restricted_tree(whole, np.flatnonzero(np.isin(whole.code[whole.leaf_node], codes)))[0]
