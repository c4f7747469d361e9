"""PairCut against exhaustive search over all divisions, and its hard promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_twincut import BUDGETS, mean_error, small_problems, total_of

from flowveil.analysis.measures import division_floor, generalization_floor
from flowveil.core.errors import InfeasibleError
from flowveil.methods import METHODS
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import frontier, paircut
from reference import paircut as slow

SEARCH = settings(max_examples=40, deadline=None)
CLASS = [
    ("odkanon", {"budget": "volume"}),
    ("atg-dual", {}),
    ("oigh", {}),
    ("twincut", {"effort": 0.0}),
]


def planned(method, flows, guarantee, **asked):
    try:
        return METHODS[method].plan(flows, guarantee, **asked)
    except InfeasibleError:
        return None


def lost_share(volume, plan) -> float:
    return float(volume[~plan.kept].sum() / volume.sum())


@SEARCH
@given(small_problems(6), st.floats(0.1, 60.0))
def test_at_a_price_no_division_costs_less(problem, price):
    flows, guarantee = problem
    table, total = PairTable.from_flows(flows, guarantee, "error"), total_of(*problem)
    least = min(
        cost + price * (total - published)
        for cost, published in slow.all_divisions(flows, guarantee)
    )
    found = price * total if table is None else table.evaluate(price)[0]
    assert found == pytest.approx(least, rel=1e-9, abs=1e-9)


@SEARCH
@given(small_problems(6), BUDGETS)
def test_at_a_limit_nothing_is_better_than_proven(problem, share):
    flows, guarantee = problem
    plan, total = planned("paircut", flows, guarantee, max_suppressed=share), total_of(*problem)
    points = slow.all_divisions(flows, guarantee)
    means = [
        cost / shown
        for cost, shown in points
        if shown > 0 and total - shown <= share * total * (1 + 1e-9)
    ]
    if plan is None:
        assert not means or total == 0
        return
    assume(flows.volume(guarantee.basis)[plan.kept].sum() > 0)
    error, gap = mean_error(flows, guarantee, plan), plan.notes["proven_gap"]
    if gap is not None:
        assert min(means) * (1 + gap) >= error * (1 - 1e-9)
    assert error >= min(means) * (1 - 1e-9)
    lost = float(flows.volume(guarantee.basis)[~plan.kept].sum())
    assert lost <= share * total * (1 + 1e-9)


@SEARCH
@given(small_problems(12), BUDGETS)
def test_never_worse_than_the_other_methods_of_the_class(problem, share):
    flows, guarantee = problem
    plan = planned("paircut", flows, guarantee, max_suppressed=share)
    volume = flows.volume(guarantee.basis)
    proven = division_floor(flows, guarantee, max_suppressed=share)
    for method, options in CLASS:
        other = planned(method, flows, guarantee, max_suppressed=share, **options)
        if (
            other is None
            or volume[other.kept].sum() == 0
            or volume[~other.kept].sum() > share * volume.sum()
        ):
            continue
        assert plan is not None, method
        assert mean_error(flows, guarantee, plan) <= mean_error(flows, guarantee, other) * (
            1 + 1e-9
        ), method
        assert proven is None or mean_error(flows, guarantee, other) >= proven * (1 - 1e-9), method
    if plan is not None and volume[plan.kept].sum() > 0:
        floor = generalization_floor(
            flows, guarantee, max_suppressed=max(share, lost_share(volume, plan))
        )
        assert floor is None or mean_error(flows, guarantee, plan) >= floor * (1 - 1e-9)


@SEARCH
@given(small_problems(12), BUDGETS)
def test_cells_do_not_intersect(problem, share):
    flows, guarantee = problem
    plan = planned("paircut", flows, guarantee, max_suppressed=share)
    assume(plan is not None)
    tree_o, tree_d = flows.origins, flows.destinations
    cells = {
        (int(o), int(d))
        for o, d in zip(plan.origin_zone[plan.kept], plan.destination_zone[plan.kept], strict=True)
    }
    boxes = []
    for o, d in cells:
        a, b = plan.origin_zones.nodes[o], plan.destination_zones.nodes[d]
        boxes.append(
            (tree_o.leaf_start[a], tree_o.leaf_stop[a], tree_d.leaf_start[b], tree_d.leaf_stop[b])
        )
    for i, (a, b, c, d) in enumerate(boxes):
        inside = (
            (flows.origin >= a)
            & (flows.origin < b)
            & (flows.destination >= c)
            & (flows.destination < d)
        )
        assert plan.kept[inside].all(), "a flow inside a published cell is suppressed"
        for e, f, g, h in boxes[:i]:
            assert min(b, f) <= max(a, e) or min(d, h) <= max(c, g)


@SEARCH
@given(small_problems(6))
def test_the_frontier_is_made_of_best_divisions(problem):
    flows, guarantee = problem
    total, points = total_of(*problem), slow.all_divisions(flows, guarantee)
    before = np.inf
    for point in frontier(flows, guarantee):
        assert point.value < before
        before = point.value
        lost = point.suppressed_share * total
        best = min(cost for cost, shown in points if total - shown <= lost * (1 + 1e-9) + 1e-9)
        assert point.value * (total - lost) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_an_unknown_objective_is_refused():
    from flowveil.core.errors import ParameterError

    with pytest.raises(ParameterError, match="objective must be one of"):
        paircut(None, None, objective="beauty")
