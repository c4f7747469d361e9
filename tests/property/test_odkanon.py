"""The scheduled, bisected ODkAnon gives the zones of the step-by-step loop."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.odkanon import hopeless, odkanon
from reference.odkanon import odkanon as slow_odkanon
from reference.odkanon import prefilter
from samples.strategies import flow_tables

HUNDREDS = settings(max_examples=60, deadline=None)


@st.composite
def problems(draw) -> tuple[Flows, Guarantee]:
    flows = draw(flow_tables())
    units = ["trips"]
    if flows.weight is not None and flows.weight.sum() > 0:
        units.append("population")
    if flows.people is not None:
        units.append("people")
    protect = draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    l = draw(st.sampled_from([None, None, None, 1, 2]))  # noqa: E741
    guarantee = Guarantee.resolve(flows, k=draw(st.integers(1, 12)), protect=protect, l=l)
    return guarantee.prepare(flows), guarantee


def planned_nodes(
    flows: Flows, guarantee: Guarantee, **options
) -> tuple[dict[int, tuple[int, int]], int]:
    plan = odkanon(flows, guarantee, **options)
    origin = plan.origin_zones.nodes[plan.origin_zone]
    destination = plan.destination_zones.nodes[plan.destination_zone]
    kept = np.flatnonzero(plan.kept)
    return {int(f): (int(origin[f]), int(destination[f])) for f in kept}, plan.notes["steps"]


@HUNDREDS
@given(problems(), st.sampled_from([0.0, 0.1, 0.3]), st.integers(0, 3))
def test_same_zones_as_the_loop(problem, max_suppressed, levels):
    flows, guarantee = problem
    want, steps = slow_odkanon(flows, guarantee, max_suppressed=max_suppressed, levels=levels)
    got, taken = planned_nodes(flows, guarantee, max_suppressed=max_suppressed, levels=levels)
    event(f"stopped {'at once' if steps == 0 else 'later'}")
    assert got == want
    assert taken == steps


@HUNDREDS
@given(problems(), st.sampled_from([0.0, 0.1, 0.3]))
def test_same_zones_with_a_volume_budget(problem, max_suppressed):
    flows, guarantee = problem
    want, steps = slow_odkanon(flows, guarantee, max_suppressed=max_suppressed, budget="volume")
    got, taken = planned_nodes(flows, guarantee, max_suppressed=max_suppressed, budget="volume")
    assert got == want
    assert taken == steps


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from([0.0, 0.1, 0.5, 0.9]), st.integers(0, 4))
def test_same_flows_are_hopeless(problem, share, levels):
    flows, guarantee = problem
    got = set(np.flatnonzero(hopeless(flows, guarantee, levels=levels, share=share)).tolist())
    assert got == prefilter(flows, guarantee, levels, share)
