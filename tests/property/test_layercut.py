"""LayerCut against its slow reference, and the promises that a reader relies on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paircut_folds import folded_problems, weight_options, weights_of_folds
from test_twincut import BUDGETS, small_problems

from flowveil.errors import InfeasibleError
from flowveil.methods.layercut import layercut
from flowveil.methods.paircut import paircut
from flowveil.release.release import Release
from reference import layercut as slow

SEARCH = settings(max_examples=60, deadline=None)
ANY = st.one_of(small_problems(7), folded_problems())


def planned(flows, guarantee, **asked):
    """The flows and the guarantee as methods get them, and the plan, or None."""
    flows, guarantee = guarantee.to_fixed_point(flows)
    try:
        return flows, guarantee, layercut(flows, guarantee, **asked)
    except InfeasibleError:
        return flows, guarantee, None


def cells_of(flows, plan) -> list[slow.Cell]:
    """The published cells with the tiles of their zones."""
    rows: dict[tuple[int, int], list[int]] = {}
    for f in np.flatnonzero(plan.kept).tolist():
        rows.setdefault((int(plan.origin_zone[f]), int(plan.destination_zone[f])), []).append(f)
    found = []
    for (origin, destination), own in rows.items():
        zones = [(plan.origin_zones.hierarchy, plan.origin_zones.nodes[origin])]
        zones.append((plan.destination_zones.hierarchy, plan.destination_zones.nodes[destination]))
        if plan.folded is not None:
            nodes = (node[origin] for node in plan.folded.fold_nodes)
            zones += [(fold.tree, node) for fold, node in zip(flows.folds, nodes, strict=True)]
        tiles = tuple(frozenset(range(tree.leaf_start[node], tree.leaf_stop[node])) for tree, node in zones)
        found.append(slow.Cell(int(plan.layer[origin]), tiles, frozenset(own)))
    return found


@SEARCH
@given(ANY)
def test_the_ladder_is_that_of_the_reference(problem):
    flows, guarantee, plan = planned(*problem, max_suppressed=0.999999, **weight_options(problem[0], 1.0))
    want = slow.layers(flows, guarantee, weights_of_folds(flows, 1.0))
    shown = sum(slow.volume(flows, f, guarantee) for cell in want for f in cell.rows)
    if shown > 1e-6 * float(flows.volume(guarantee.basis).sum()):
        assert plan is not None
        assert sorted(map(repr, map(ordered, cells_of(flows, plan)))) == sorted(map(repr, map(ordered, want)))


def ordered(cell: slow.Cell):
    return cell.layer, [sorted(tiles) for tiles in cell.tiles], sorted(cell.rows)


def rule_of(seed: int):
    """A rule that is not monotone, on the flows of a cell: once for the reference, once as methods take it."""

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
    flows, guarantee, plan = planned(*problem, max_suppressed=0.999999, **given_rule)
    want = slow.layers(flows, guarantee, weights_of_folds(flows, 1.0), breaks)
    shown = sum(slow.volume(flows, f, guarantee) for cell in want for f in cell.rows)
    if shown > 1e-6 * float(flows.volume(guarantee.basis).sum()):
        assert plan is not None
        assert sorted(map(repr, map(ordered, cells_of(flows, plan)))) == sorted(map(repr, map(ordered, want)))
    # Within a limit, and as a reader finds them.
    flows, guarantee, plan = planned(*problem, max_suppressed=share, **given_rule)
    if plan is not None:
        cells = cells_of(flows, plan)
        assert not any(breaks(cell.rows) for cell in cells)
        found = [slow.cell_of_flow(cells, flows, f) for f in range(len(flows))]
        assert [cell is not None and f in cell.rows for f, cell in enumerate(found)] == plan.kept.tolist()
        assert [cell is None for cell in found] == (~plan.kept).tolist()


@SEARCH
@given(ANY, BUDGETS)
def test_a_reader_finds_the_cell_of_every_flow_by_the_lowest_layer(problem, share):
    flows, _, plan = planned(*problem, max_suppressed=share)
    if plan is None:
        return
    cells = cells_of(flows, plan)
    for f in range(len(flows)):
        cell = slow.cell_of_flow(cells, flows, f)
        assert (cell is not None) == bool(plan.kept[f])
        assert cell is None or f in cell.rows
    layers = {cell.layer for cell in cells}
    assert layers == set(range(1, len(layers) + 1))


@SEARCH
@given(ANY, BUDGETS)
def test_the_limit_is_kept_wherever_paircut_keeps_it_and_every_cell_is_safe(problem, share):
    flows, guarantee, plan = planned(*problem, max_suppressed=share)
    volume = flows.volume(guarantee.basis)
    if plan is None:
        try:
            other = paircut(flows, guarantee, max_suppressed=share, spend=False)
        except InfeasibleError:
            return
        assert volume[~other.kept].sum() > share * volume.sum()
        return
    assert volume[~plan.kept].sum() <= share * volume.sum()
    # Every cell is recounted, and refused below the guarantee.
    Release.from_plan(problem[0], plan, problem[1], method="layercut", parameters={})
    again = layercut(flows, guarantee, max_suppressed=share)
    assert all(np.array_equal(*pair) for pair in zip(vars_of(plan), vars_of(again), strict=True))


def vars_of(plan):
    return plan.origin_zone, plan.destination_zone, plan.kept, plan.origin_zones.nodes, plan.layer
