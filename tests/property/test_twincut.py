"""TwinCut against exhaustive search, against ODkAnon, and its hard promises."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from benchmarks.homogeneous_floor import homogeneous_floor
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_odkanon import problems

from flowveil.analysis.measures import generalization_floor, smallest_safe_sizes
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import METHODS
from flowveil.methods.knapsack import best_within, flipped, near_ties
from flowveil.methods.odkanon import Cuts, odkanon
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.safe_pairs import AncestorDepth, safe_levels, sketch
from flowveil.methods.twin_trees import TwinTrees
from flowveil.methods.twincut import frontier, score, twincut
from flowveil.publishing.release import Release
from flowveil.release.plan import Plan
from reference import twincut as slow
from reference.prunings import all_cuts
from samples.strategies import flow_tables

SEARCH = settings(max_examples=40, deadline=None)
#: Where every example is a whole search, or a release and its measures.
WHOLE = settings(max_examples=20, deadline=None)
BUDGETS = st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.6])


@st.composite
def small_problems(draw, max_nodes: int = 8) -> tuple[Flows, Guarantee]:
    flows = draw(flow_tables(max_nodes=max_nodes, max_rows=14))
    units = ["trips"]
    units += ["people"] if flows.people is not None else []
    units += ["population"] if flows.weight is not None and flows.weight.sum() > 0 else []
    protect = draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    locations = draw(st.sampled_from([None, None, 2]))
    guarantee = Guarantee.resolve(flows, k=draw(st.integers(1, 9)), protect=protect, l=locations)
    return guarantee.prepare(flows), guarantee


def total_of(flows: Flows, guarantee: Guarantee) -> float:
    return float(flows.volume(guarantee.basis).sum())


def mean_error(flows: Flows, guarantee: Guarantee, plan: Plan) -> float:
    v = flows.volume(guarantee.basis)[plan.kept]
    size = (
        plan.origin_zones.size[plan.origin_zone]
        + plan.destination_zones.size[plan.destination_zone]
    )
    return float((v * size[plan.kept]).sum() / v.sum())


@SEARCH
@given(small_problems())
def test_safe_pairs_are_all_there_are(problem):
    flows, guarantee = problem
    reduced = [
        sketch(tree, tile, flows, guarantee)
        for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
    ]
    found = {}
    for level in safe_levels(flows, guarantee, *reduced):
        for o, d, v in zip(level.origin, level.destination, level.volume, strict=True):
            found[int(reduced[0].node[o]), int(reduced[1].node[d])] = float(v)
    want = {}
    for o in range(flows.origins.n_nodes):
        for d in range(flows.destinations.n_nodes):
            narrow = int(flows.origins.narrowest[o]), int(flows.destinations.narrowest[d])
            cost, _ = slow.cost_and_suppressed(flows, guarantee, (o,), (d,))
            if cost > 0:
                size = flows.origins.size[o] + flows.destinations.size[d]
                want[narrow] = pytest.approx(cost / float(size))
    assert {pair: v for pair, v in found.items() if v > 0} == want


@SEARCH
@given(small_problems(), st.sampled_from([1, 3, 1000]))
def test_both_tables_hold_all_safe_pairs(problem, batch):
    flows, guarantee = problem
    with patch("flowveil.methods.twin_trees.BATCH", batch):
        trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    want = {}
    for level in safe_levels(flows, guarantee, trees.origins.sketch, trees.destinations.sketch):
        for o, d, v in zip(
            level.origin.tolist(), level.destination.tolist(), level.volume.tolist(), strict=True
        ):
            want[o, d] = v
    for end in (0, 1):
        axis, other = trees.axis(end), trees.axis(1 - end)
        mine = axis.nodes[np.repeat(np.arange(len(axis)), np.diff(axis.first))].tolist()
        theirs = other.nodes[axis.other].tolist()
        assert list(zip(mine, theirs, strict=True)) == sorted(zip(mine, theirs, strict=True))
        pairs = zip(*((theirs, mine) if end else (mine, theirs)), strict=True)
        assert dict(zip(pairs, axis.volume.tolist(), strict=True)) == want


@SEARCH
@given(small_problems(), st.sampled_from([1, 3, 1000]), st.data())
def test_sums_after_other_cuts_equal_those_of_the_cut_alone(problem, batch, data):
    flows, guarantee = problem[1].to_fixed_point(problem[0])
    trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    ends = data.draw(st.lists(st.sampled_from([0, 1]), min_size=2, max_size=6))
    got, want = [], []
    for end in ends:
        fixed, free = trees.axis(end), trees.axis(1 - end)
        cut = fixed.from_full(
            np.array(data.draw(st.sampled_from(sorted(all_cuts(fixed.full)))), np.int32)
        )
        with patch("flowveil.methods.twin_trees.BATCH", batch):
            got.append(trees.given(end, cut))
        volume, cost = [0.0] * len(free), [0.0] * len(free)
        for node in cut.tolist():
            for pair in range(fixed.first[node], fixed.first[node + 1]):
                other = int(fixed.other[pair])
                volume[other] += float(fixed.volume[pair])
                cost[other] += float(fixed.volume[pair]) * float(
                    fixed.size[node] + free.size[other]
                )
        want.append((volume, cost))
    # Later cuts do not change the sums of earlier ones.
    assert [(costs.volume.tolist(), costs.cost.tolist()) for costs in got] == want


@SEARCH
@given(small_problems(), st.data())
def test_safe_pairs_know_what_cuts_suppress(problem, data):
    flows, guarantee = problem[1].to_fixed_point(problem[0])
    trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    cuts = [
        data.draw(st.sampled_from(sorted(all_cuts(tree))))
        for tree in (flows.origins, flows.destinations)
    ]
    _, want = slow.cost_and_suppressed(flows, guarantee, *cuts)
    origin, destination = (np.array(cut, np.int32) for cut in cuts)
    assert trees.suppressed(Cuts(flows.origins, flows.destinations, origin, destination)) == want


@SEARCH
@given(small_problems(), BUDGETS, st.floats(0.1, 500))
def test_the_first_guess_changes_no_multiplier_that_matters(problem, share, near):
    flows, guarantee = problem[1].to_fixed_point(problem[0])
    trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    budget = share * total_of(flows, guarantee)
    costs = trees.given(0, np.zeros(1, np.int64))
    found = dual_multiplier(costs, budget, near=near)
    assert (found is None) == (costs.lost > budget)
    if found is not None:
        assert costs.evaluate(found)[1] <= budget
        # The dual optimum is unique, whatever the multiplier that reaches it.
        value = [costs.evaluate(m)[0] - m * budget for m in (found, dual_multiplier(costs, budget))]
        assert value[0] == pytest.approx(value[1], rel=1e-9, abs=1e-6)


@SEARCH
@given(st.lists(st.integers(0, 5), max_size=150), st.data())
def test_ancestor_depth_is_that_of_the_lowest_common_ancestor(rises, data):
    # The next node is a child of the last one, or of one some steps above it.
    parent = [-1]
    for rise in rises:
        above = len(parent) - 1
        for _ in range(rise):
            above = max(parent[above], 0)
        parent.append(above)
    tree = Hierarchy(
        parent=np.array(parent, np.int32), code=np.arange(len(parent), dtype=np.uint64)
    )
    leaves = st.lists(st.integers(0, tree.n_tiles - 1), min_size=1, max_size=20)
    left = np.array(data.draw(leaves), np.int32)
    right = data.draw(st.permutations(left.tolist()))

    def way(leaf):
        node, nodes = int(tree.leaf_node[leaf]), []
        while node >= 0:
            nodes.append(node)
            node = int(tree.parent[node])
        return set(nodes)

    want = [
        tree.max_depth if a == b else len(way(a) & way(b)) - 1
        for a, b in zip(left, right, strict=True)
    ]
    assert AncestorDepth(tree).depth(left, np.array(right, np.int32)).tolist() == want


@SEARCH
@given(small_problems(), BUDGETS, st.data())
def test_one_tree_is_cut_as_well_as_exhaustive_search_does(problem, share, data):
    flows, guarantee = problem
    total = total_of(flows, guarantee)
    assume(total > 0)
    budget = share * total
    trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    fixed = data.draw(st.sampled_from(sorted(all_cuts(flows.origins))))
    points = [
        slow.cost_and_suppressed(flows, guarantee, fixed, cut)
        for cut in all_cuts(flows.destinations)
    ]
    want = slow.best_mean(points, total, budget)
    costs = trees.given(0, trees.origins.from_full(np.array(sorted(fixed), dtype=np.int32)))
    # A price above all sizes is one at which suppressing more never helps.
    half = costs.at(float(flows.origins.n_tiles + flows.destinations.n_tiles + 1))
    known = 1e6
    got = best_within(costs, half, budget, known)[0]
    assert (got is None) == (want is None)
    if got is not None:
        cut, cost, suppressed = got
        assert trees.objective.score(cost, suppressed) == pytest.approx(want)
        full = trees.destinations.to_full(cut)
        flows.destinations.check_cut(full)
        assert slow.cost_and_suppressed(
            flows, guarantee, fixed, tuple(full.tolist())
        ) == pytest.approx((cost, suppressed))


@SEARCH
@given(small_problems(), st.sampled_from([0.0, 2.0, 5.0, 20.0]), st.data())
def test_a_price_is_answered_with_the_best_cut_and_flips_lose_what_they_say(problem, price, data):
    flows, guarantee = problem
    trees = TwinTrees.from_flows(flows, guarantee)
    assume(trees is not None)
    fixed = data.draw(st.sampled_from(sorted(all_cuts(flows.origins))))
    costs = trees.given(0, trees.origins.from_full(np.array(sorted(fixed), dtype=np.int32)))
    half = costs.at(price)
    points = [
        slow.cost_and_suppressed(flows, guarantee, fixed, cut)
        for cut in all_cuts(flows.destinations)
    ]
    assert half.cost + price * half.suppressed == pytest.approx(
        min(c + price * s for c, s in points)
    )
    ties = near_ties(costs, price, np.inf)
    for node, loss in zip(*ties, strict=True):
        if not np.isfinite(loss):
            continue
        cost, suppressed = costs.totals(flipped(costs, price, np.array([node])))
        assert cost + price * suppressed == pytest.approx(
            half.cost + price * half.suppressed + loss
        )


@WHOLE
@given(small_problems(max_nodes=7), BUDGETS)
def test_never_below_the_best_map_and_never_over_the_budget(problem, share):
    flows, guarantee = problem
    total = total_of(flows, guarantee)
    assume(total > 0)
    points = [(cost, gone) for *_, cost, gone in slow.all_pairs_of_cuts(flows, guarantee)]
    want = slow.best_mean(points, total, share * total)
    try:
        plan = twincut(flows, guarantee, max_suppressed=share)
    except InfeasibleError:
        assert want is None
        return
    assert plan.homogeneous
    flows.origins.check_cut(plan.origin_zones.nodes)
    flows.destinations.check_cut(plan.destination_zones.nodes)
    assert flows.volume(guarantee.basis)[~plan.kept].sum() <= share * total
    # A cell is published whole or not at all: no flow of a published cell is among the suppressed.
    cells = set(zip(plan.origin_zone[plan.kept], plan.destination_zone[plan.kept], strict=True))
    assert cells.isdisjoint(
        zip(plan.origin_zone[~plan.kept], plan.destination_zone[~plan.kept], strict=True)
    )
    if want is not None and flows.volume(guarantee.basis)[plan.kept].sum() > 0:
        assert mean_error(flows, guarantee, plan) >= want * (1 - 1e-9)


@WHOLE
@given(problems(), BUDGETS, st.sampled_from([0.0, 1.0]))
def test_never_worse_than_odkanon_with_the_same_budget(problem, share, effort):
    flows, guarantee = problem
    assume(total_of(flows, guarantee) > 0)
    merged = odkanon(flows, guarantee, max_suppressed=share, budget="volume")
    v = flows.volume(guarantee.basis)
    assume(v[merged.kept].sum() > 0 and v[~merged.kept].sum() <= share * v.sum())
    plan = twincut(flows, guarantee, max_suppressed=share, effort=effort)
    assert mean_error(flows, guarantee, plan) <= mean_error(flows, guarantee, merged) * (1 + 1e-9)


#: What objectives make small, as measures of a release; "cells" is made large.
MEASURES = {
    "error": "mean_generalization_error",
    "reconstruction": "reconstruction_loss",
    "cells": "n_cells",
}


def measured(flows, guarantee, plan, objective):
    release = Release.from_plan(flows, plan, guarantee, method="m", parameters={})
    value = release.metrics()[guarantee.basis][MEASURES[objective]]
    return -value if objective == "cells" else value


@WHOLE
@given(problems(), BUDGETS, st.sampled_from(list(MEASURES)))
def test_other_objectives_are_no_worse_than_odkanon_either(problem, share, objective):
    flows, guarantee = problem
    assume(total_of(flows, guarantee) > 0)
    merged = odkanon(flows, guarantee, max_suppressed=share, budget="volume")
    v = flows.volume(guarantee.basis)
    assume(v[merged.kept].sum() > 0 and v[~merged.kept].sum() <= share * v.sum())
    plan = twincut(flows, guarantee, max_suppressed=share, objective=objective)
    ours, theirs = (measured(flows, guarantee, p, objective) for p in (plan, merged))
    assert ours <= theirs + 1e-9
    assert score(flows, plan, guarantee.basis, objective) == pytest.approx(ours)


@SEARCH
@given(small_problems(), BUDGETS)
def test_the_floor_is_exact(problem, share):
    flows, guarantee = problem
    want = [slow.smallest_safe_size(flows, guarantee, f) for f in range(len(flows))]
    assert smallest_safe_sizes(flows, guarantee).tolist() == want
    volume = flows.volume(guarantee.basis)
    left = float(volume.sum()) * (1 - share)
    mean = spent = 0.0
    for size, v in sorted(zip(want, volume.tolist(), strict=True)):
        part = min(v, left - spent)
        if part > 0:
            mean += size * part
            spent += part
    floor = generalization_floor(flows, guarantee, max_suppressed=share)
    if floor is None:
        assert spent == 0 or mean == np.inf
    else:
        assert floor == pytest.approx(mean / spent)


@WHOLE
@given(
    problems(), BUDGETS, st.sampled_from(["twincut", "odkanon", "atg-dual", "oigh", "suppression"])
)
def test_no_release_is_below_the_floor(problem, share, method):
    flows, guarantee = problem
    try:
        plan = METHODS[method].plan(flows, guarantee, max_suppressed=share)
        release = Release.from_plan(
            flows, plan, guarantee, method=method, parameters={"max_suppressed": share}
        )
    except InfeasibleError:
        assume(False)
    for measures in release.metrics().values():
        ratio = measures["floor_ratio"]
        assert ratio is None or ratio >= 1 - 1e-9


@WHOLE
@given(small_problems(max_nodes=7), BUDGETS)
def test_the_homogeneous_floor_is_below_every_map(problem, share):
    flows, guarantee = problem
    total = total_of(flows, guarantee)
    assume(total > 0)
    floor = homogeneous_floor(flows, guarantee, max_suppressed=share, iterations=60)
    points = [(cost, gone) for *_, cost, gone in slow.all_pairs_of_cuts(flows, guarantee)]
    best = slow.best_mean(points, total, share * total)
    if best is not None:
        assert floor is not None
        assert floor <= best * (1 + 1e-9)


@WHOLE
@given(small_problems(max_nodes=7))
def test_every_point_of_the_frontier_is_a_map_and_none_beats_another(problem):
    flows, guarantee = problem
    total = total_of(flows, guarantee)
    assume(total > 0)
    maps = [(cost, gone) for *_, cost, gone in slow.all_pairs_of_cuts(flows, guarantee)]
    real = {(gone / total, cost / (total - gone)) for cost, gone in maps if gone < total}
    points = frontier(flows, guarantee)
    assert bool(points) == bool(real)
    for point in points:
        assert any(
            point.suppressed_share == pytest.approx(share) and point.value == pytest.approx(error)
            for share, error in real
        )
    shares = [point.suppressed_share for point in points]
    values = [point.value for point in points]
    assert shares == sorted(set(shares))
    assert values == sorted(set(values), reverse=True)
