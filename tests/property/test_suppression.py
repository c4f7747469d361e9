"""Suppression publishes the safe flows, tile to tile, and nothing else."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.guarantee import Guarantee
from flowveil.methods.oigh import suppression
from reference.trees import is_safe
from samples.strategies import flow_tables


@settings(max_examples=30, deadline=None)
@given(flow_tables(), st.data())
def test_only_flows_that_are_safe_alone_are_kept(flows, data):
    units = ["trips"] if flows.people is None else ["trips", "people"]
    protect = data.draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    l = data.draw(st.sampled_from([None, None, 1, 2]))  # noqa: E741
    guarantee = Guarantee.resolve(flows, k=data.draw(st.integers(1, 8)), protect=protect, l=l)
    plan = suppression(
        guarantee.prepare(flows),
        guarantee,
        max_suppressed=data.draw(st.sampled_from([0.0, 0.1, 0.9])),
    )
    assert plan.kept.tolist() == [is_safe(flows, [f], guarantee) for f in range(len(flows))]
    assert np.array_equal(plan.origin_zone, flows.origin)
    assert np.array_equal(plan.destination_zone, flows.destination)
    assert plan.origin_zones.nodes.tolist() == flows.origins.leaf_node.tolist()
    assert plan.destination_zones.nodes.tolist() == flows.destinations.leaf_node.tolist()
