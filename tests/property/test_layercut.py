"""LayerCut against its slow reference, and the guarantees that a reader relies on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paircut_folds import folded_problems, weight_options, weights_of_folds
from test_twincut import BUDGETS, small_problems

from flowveil.core.errors import InfeasibleError
from flowveil.core.secret_thresholds import SecretThresholds
from flowveil.methods.district_layers import _Search, district_of_tiles
from flowveil.methods.layercut import layercut
from flowveil.publishing.release import Release
from reference import layercut as slow

SEARCH = settings(max_examples=60, deadline=None)
ANY = st.one_of(small_problems(7), folded_problems())
DISTRICTS = st.sampled_from([None, 0, 1, 2])


def planned(flows, guarantee, *, secret=False, **asked):
    """The flows and the guarantee as methods get them, and the plan, or None."""
    drawn = SecretThresholds.from_flows(flows) if secret else None
    flows, guarantee = guarantee.to_fixed_point(flows)
    try:
        return flows, guarantee, layercut(flows, guarantee, **asked, secret=drawn)
    except InfeasibleError:
        return flows, guarantee, None


def cells_of(plan) -> list[slow.Cell] | None:
    """The published cells, in order."""
    if plan is None:
        return None
    rows: dict[tuple[int, int], list[int]] = {}
    for f in np.flatnonzero(plan.kept).tolist():
        rows.setdefault((int(plan.origin_zone[f]), int(plan.destination_zone[f])), []).append(f)
    found = []
    for (origin, destination), own in rows.items():
        nodes = [plan.origin_zones.nodes[origin], plan.destination_zones.nodes[destination]]
        if plan.folded is not None:
            nodes += [node[origin] for node in plan.folded.fold_nodes]
        found.append(slow.Cell(int(plan.layer[origin]), tuple(map(int, nodes)), frozenset(own)))
    return ordered(found)


def ordered(cells):
    return None if cells is None else sorted(cells, key=lambda cell: (cell.layer, cell.nodes))


@SEARCH
@given(ANY, BUDGETS, st.booleans())
def test_the_cells_are_those_of_the_reference(problem, share, secret):
    flows, guarantee, plan = planned(
        *problem, max_suppressed=share, secret=secret, **weight_options(problem[0], 1.0)
    )
    amount = {}
    if secret:
        amount["amount"] = slow.amounts_of(flows, SecretThresholds.from_flows(problem[0]))
    want = slow.layercut(flows, guarantee, share, weights_of_folds(flows, 1.0), **amount)
    assert cells_of(plan) == ordered(want)


def rule_of(seed: int):
    """A rule that is not monotone, on the flows of a cell.

    Once for the reference, once as methods take it.
    """

    def breaks(rows) -> bool:
        return (sum(rows) * 7 + len(rows) + seed) % 3 == 0

    def cell_rule(rows, cell, nodes):
        members = [rows[cell == n].tolist() for n in range(int(cell.max(initial=0)) + 1)]
        assert all(len(node) == len(rows) for node in nodes)
        return np.array([breaks(own) for own in members])

    return breaks, cell_rule


@SEARCH
@given(ANY, st.integers(0, 2), BUDGETS)
def test_cells_that_break_a_rule_are_in_no_layer_and_their_flows_go_on(problem, seed, share):
    breaks, cell_rule = rule_of(seed)
    given_rule = {**weight_options(problem[0], 1.0), "cell_rule": cell_rule}
    flows, guarantee, plan = planned(*problem, max_suppressed=share, **given_rule)
    cells = cells_of(plan)
    assert cells == ordered(
        slow.layercut(flows, guarantee, share, weights_of_folds(flows, 1.0), breaks)
    )
    if cells is not None:
        assert not any(breaks(cell.rows) for cell in cells)
        # As a reader finds them.
        found = [slow.cell_of_flow(cells, flows, f) for f in range(len(flows))]
        assert [
            cell is not None and f in cell.rows for f, cell in enumerate(found)
        ] == plan.kept.tolist()
        assert [cell is None for cell in found] == (~plan.kept).tolist()


@SEARCH
@given(ANY, BUDGETS, st.booleans(), DISTRICTS)
def test_a_reader_finds_the_cell_of_every_flow_by_the_lowest_layer(
    problem, share, secret, districts
):
    flows, _, plan = planned(*problem, max_suppressed=share, secret=secret, districts=districts)
    if plan is None:
        return
    cells = cells_of(plan)
    for f in range(len(flows)):
        cell = slow.cell_of_flow(cells, flows, f)
        assert (cell is not None) == bool(plan.kept[f])
        assert cell is None or f in cell.rows
    layers = {cell.layer for cell in cells}
    assert layers == set(range(1, len(layers) + 1))


@SEARCH
@given(ANY, BUDGETS, st.booleans(), DISTRICTS)
def test_something_is_published_wherever_possible_and_every_cell_is_safe(
    problem, share, secret, districts
):
    asked = {"max_suppressed": share, "secret": secret, "districts": districts}
    flows, guarantee, plan = planned(*problem, **asked)
    volume = flows.volume(guarantee.basis)
    everything = slow.with_rest(flows, guarantee, 0.0, [], None)
    assert (plan is None) == (everything is None)
    if plan is None:
        return
    assert volume[~plan.kept].sum() <= share * volume.sum()
    # Every cell is recounted, and refused below the guarantee.
    Release.from_plan(problem[0], plan, problem[1], method="layercut", parameters={})


@SEARCH
@given(ANY, st.sampled_from([0, 1, 2]))
def test_a_pair_of_districts_with_a_cell_inside_is_complete(problem, level):
    flows, _, plan = planned(*problem, max_suppressed=0.3, secret=True, districts=level)
    if plan is None:
        return
    trees = flows.origins, flows.destinations
    own = [district_of_tiles(tree, level) for tree in trees]
    pair = list(zip(own[0][flows.origin], own[1][flows.destination], strict=True))
    nodes = plan.nodes[0][plan.origin_zone], plan.nodes[1][plan.destination_zone]
    inside = plan.kept.copy()
    for tree, node, district in zip(trees, nodes, np.array(pair).reshape(-1, 2).T, strict=True):
        inside &= (node >= district) & (node < tree.stop[district])
    complete = {pair[f] for f in np.flatnonzero(inside)}
    if len(flows.folds) == 0:
        assert all(inside[f] for f in range(len(flows)) if pair[f] in complete)


@SEARCH
@given(small_problems(7), BUDGETS)
def test_without_units_the_cells_are_those_of_one_ladder(problem, share):
    flows, guarantee, plan = planned(*problem, max_suppressed=share, secret=False)
    try:
        other = without_units(flows, guarantee, share)
    except InfeasibleError:
        other = None
    assert cells_of(other) == cells_of(plan)


def without_units(flows, guarantee, share):
    """The search of districts and dimensions, where there are none."""
    search = _Search.start(flows, guarantee, None, 0, wanted=False)
    search.plan_rest((), share * float(np.sum(flows.volume(guarantee.basis))))
    return search.to_plan()
