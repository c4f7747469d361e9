"""The flows of one step of time by themselves: over trees of their own tiles, as if nothing else had been read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.slices import SlicedFlows
from flowveil.zoning.files import restricted_tree
from flowveil.zoning.h3 import h3_hierarchy


def flows_during(sliced: SlicedFlows, label: str) -> Flows:
    """The flows of a step. What is published of it owes nothing to what comes before or after.

    Args:
        sliced: flows cut by the time alone.
        label: of the step.

    Raises:
        DataError: there are no trips in this step.
    """
    if (label,) not in sliced.keys:
        first, last = sliced.keys[0][0], sliced.keys[-1][0]
        raise DataError(f"There are no trips in {label}; the input has trips from {first} to {last}.")
    flows = sliced.slices[sliced.keys.index((label,))]
    seen = [np.unique(ends) for ends in (flows.origin, flows.destination)]
    if flows.origins is flows.destinations:
        seen = [np.union1d(*seen)] * 2
    origins = _over(flows.origins, flows.whole_map, seen[0])
    same = flows.origins is flows.destinations
    return replace(
        flows,
        # A smaller tree keeps the order of its tiles.
        origin=np.searchsorted(seen[0], flows.origin).astype(np.int32),
        destination=np.searchsorted(seen[1], flows.destination).astype(np.int32),
        origins=origins,
        destinations=origins if same else _over(flows.destinations, flows.whole_map, seen[1]),
        intake=replace(flows.intake, during=label),
    )


def _over(tree: Hierarchy, whole: Hierarchy | None, tiles: Ints) -> Hierarchy:
    codes = tree.code[tree.leaf_node[tiles]]
    if whole is None:
        return h3_hierarchy(codes)
    return restricted_tree(whole, np.flatnonzero(np.isin(whole.code[whole.leaf_node], codes)))[0]
