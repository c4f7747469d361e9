"""ATG against exhaustive search: the best pruning, the Lagrangian, the dual, the hard promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_odkanon import problems

from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.atg import atg_dual, atg_soft
from flowveil.methods.pruning import PairTree, best_cut, dual_multiplier
from reference import prunings as slow
from reference.trees import children
from samples.strategies import flow_tables, hierarchies

SEARCH = settings(max_examples=50, deadline=None)


def widest(tree: Hierarchy, nodes: np.ndarray) -> set[int]:
    """The top of each node's chain of single children: ties along chains are no difference."""
    out = set()
    for node in nodes.tolist():
        while tree.parent[node] >= 0 and tree.n_children[tree.parent[node]] == 1:
            node = int(tree.parent[node])
        out.add(node)
    return out


@SEARCH
@given(hierarchies(max_nodes=12), st.data())
def test_best_cut_is_algorithm_1_and_the_cheapest_of_all_cuts(tree, data):
    penalty = np.array(
        data.draw(st.lists(st.integers(0, 20), min_size=tree.n_nodes, max_size=tree.n_nodes))
    )
    # Along a chain the tiles are the same, so is any penalty that depends on tiles.
    penalty = penalty[tree.narrowest].astype(float)
    cut = best_cut(tree, penalty)
    tree.check_cut(cut)
    cost, nodes = slow.get_pruning(tree, lambda n: penalty[n])
    assert penalty[cut].sum() == cost == min(sum(penalty[list(c)]) for c in slow.all_cuts(tree))
    assert widest(tree, cut) == widest(tree, np.array(nodes))
    assert all(tree.n_children[n] != 1 for n in cut)


def pair_tree(flows: Flows, guarantee: Guarantee, cut: np.ndarray) -> PairTree:
    return PairTree.from_flows(
        flows,
        guarantee,
        zone=flows.origins.zone_of_tile(cut)[flows.origin],
        zone_size=flows.origins.size[cut],
        tile=flows.destination,
        tree=flows.destinations,
    )


@st.composite
def pruning_problems(draw):
    flows = draw(flow_tables(max_nodes=8, max_rows=12))
    units = ["trips"]
    units += ["population"] if flows.weight is not None and flows.weight.sum() > 0 else []
    units += ["people"] if flows.people is not None else []
    protect = draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    guarantee = Guarantee.resolve(
        flows, k=draw(st.integers(1, 8)), protect=protect, l=draw(st.sampled_from([None, 2]))
    )
    cuts = sorted(slow.all_cuts(flows.origins))
    cut = np.array(sorted(draw(st.sampled_from(cuts))), dtype=np.int32)
    return guarantee.prepare(flows), guarantee, cut


@SEARCH
@given(pruning_problems(), st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.5, 100.0]))
def test_the_lagrangian_is_exact(problem, multiplier):
    flows, guarantee, cut = problem
    want = [
        slow.evaluate(flows.destinations, slow.penalties(flows, guarantee, int(o)), multiplier)
        for o in cut
    ]
    cost, suppressed = pair_tree(flows, guarantee, cut).evaluate(multiplier)
    assert cost == pytest.approx(sum(c for c, _ in want))
    assert suppressed == pytest.approx(sum(s for _, s in want))
    best = min(a + multiplier * s for a, s in slow.frontier(flows, guarantee, cut.tolist()))
    assert cost == pytest.approx(best)


@SEARCH
@given(pruning_problems(), st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.99]))
def test_the_dual_is_solved_to_the_optimum(problem, share):
    flows, guarantee, cut = problem
    budget = share * float(flows.volume(guarantee.basis).sum())
    points = slow.frontier(flows, guarantee, cut.tolist())
    pairs = pair_tree(flows, guarantee, cut)
    multiplier = dual_multiplier(pairs, budget)
    if multiplier is None:
        assert min(s for _, s in points) > budget
        return
    node, kept = pairs.nodes(multiplier)
    v = flows.volume(guarantee.basis)
    suppressed = float(v[~kept].sum())
    assert suppressed <= budget
    size_o = flows.origins.size[cut][flows.origins.zone_of_tile(cut)[flows.origin]]
    error = float((v * (size_o + flows.destinations.size[node]))[kept].sum())
    # Feasible, so at least the best feasible; on the lower convex hull, so nothing under its
    # supporting line.
    feasible = [a for a, s in points if s <= budget]
    assert error >= min(feasible) - 1e-6
    dual = max(
        min(a + m * s for a, s in points) - m * budget
        for m in {0.0, multiplier}
        | {(a - c) / (t - s) for a, s in points for c, t in points if t > s and a > c}
    )
    assert min(a + multiplier * s for a, s in points) - multiplier * budget == pytest.approx(dual)
    assert error + multiplier * suppressed == pytest.approx(
        min(a + multiplier * s for a, s in points)
    )


def test_a_tie_that_rounding_hides_is_still_the_optimum():
    # Leaving everything whole costs 9 tiles a unit; dividing the root loses 4.2 and publishes the
    # rest in 5 tiles.
    origins, _ = Hierarchy.from_parents([-1, 0, 0, 0], np.array(["R", "a", "b", "c"]))
    destinations, _ = Hierarchy.from_parents(
        [-1, 0, 0, 2, 2, 0, 0, 0], np.array(["R", "a", "b", "b1", "b2", "c", "d", "e"])
    )
    weight = np.array([4.17134099, 0.51232325, 0.51232325])
    flows = Flows.from_pairs(
        np.array([0, 0, 1]),
        np.arange(3),
        np.array([5, 1, 1]),
        origins=origins,
        destinations=destinations,
        weight=weight,
    )
    guarantee = Guarantee.resolve(flows, k=1, protect=["trips", "population"], l=2)
    pairs = pair_tree(guarantee.prepare(flows), guarantee, np.zeros(1, np.int32))
    found = dual_multiplier(pairs, 0.05 * weight.sum())
    assert found == pytest.approx((9 * weight.sum() - 5 * weight[1:].sum()) / weight[0])


@settings(max_examples=50, deadline=None)
@given(problems(), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from(["auto", 1.0, 4.0, 100.0]))
def test_dual_never_exceeds_its_budget(problem, max_suppressed, v_target):
    flows, guarantee = problem
    try:
        plan = atg_dual(flows, guarantee, max_suppressed=max_suppressed, v_target=v_target)
    except InfeasibleError:
        assume(False)
    volume = flows.volume(guarantee.basis)
    assert volume[~plan.kept].sum() <= max_suppressed * volume.sum()


@settings(max_examples=50, deadline=None)
@given(problems(), st.sampled_from([0.0, 1.0, 2.0, 5.0, None]))
def test_soft_keeps_nothing_larger_than_lambda_that_can_be_split(problem, lambda_):
    flows, guarantee = problem
    plan = atg_soft(flows, guarantee, lambda_=lambda_)
    limit = plan.notes["lambda"]
    size = (
        plan.origin_zones.size[plan.origin_zone]
        + plan.destination_zones.size[plan.destination_zone]
    )
    node = plan.destination_zones.nodes[plan.destination_zone]
    for f in np.flatnonzero(plan.kept & (size > limit)):
        assert not children(flows.destinations, int(node[f]))


def flows_of(pairs: list[tuple[int, int, int]]) -> Flows:
    tree, _ = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2], np.array(list("rabcdef")))
    o, d, t = zip(*pairs, strict=True)
    return Flows.from_pairs(np.array(o), np.array(d), np.array(t), origins=tree, destinations=tree)


def test_no_suppression_is_needed():
    flows = flows_of([(o, d, 20) for o in range(4) for d in range(4)])
    plan = atg_dual(flows, Guarantee.resolve(flows, k=10), max_suppressed=0.1, v_target=80)
    assert plan.notes["lambda"] == 0
    assert plan.kept.all()
    assert np.all(plan.destination_zones.size[plan.destination_zone] == 1)


def test_everything_would_have_to_be_suppressed():
    flows = flows_of([(0, 0, 1), (1, 1, 1)])
    with pytest.raises(InfeasibleError):
        atg_dual(flows, Guarantee.resolve(flows, k=10))


def test_all_volume_is_in_one_flow():
    flows = flows_of([(2, 3, 1000)])
    plan = atg_dual(flows, Guarantee.resolve(flows, k=10), max_suppressed=0.0)
    assert plan.kept.all()
    assert plan.destination_zones.size[plan.destination_zone].tolist() == [1]
