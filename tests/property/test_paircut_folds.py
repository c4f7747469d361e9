"""PairCut with folds as further trees, against exhaustive search over all divisions.

The hard promises of its cells.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_paircut import planned
from test_twincut import BUDGETS, total_of

from flowveil.core.dimensions import Dimension
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows, People
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import paircut, unfolded
from reference import paircut as slow
from samples.strategies import generators, hierarchies, weights_of

SEARCH = settings(max_examples=30, deadline=None)
WEIGHTS = st.sampled_from([0.0, 0.3, 1.0, 5.0])


def weights_of_folds(flows: Flows, weight: float) -> tuple[float, ...]:
    """An hour is worth the weight, a step up twice as much."""
    return tuple(weight if fold.every else 2 * weight for fold in flows.folds)


def weight_options(flows: Flows, weight: float) -> dict[str, float]:
    """The same as options of a method."""
    names = ("time_weight" if fold.every else "fold_weight" for fold in flows.folds)
    return dict(zip(names, weights_of_folds(flows, weight), strict=True))


def fold_of(name: str, tree: Hierarchy, width: np.ndarray, every: str | None = None) -> Dimension:
    """A fold whose texts are the codes of its tree."""
    return Dimension(name, tree, tree.code[tree.leaf_node], {name: tree.code}, width, every)


@st.composite
def folded_problems(draw, max_nodes: int = 4, max_rows: int = 10) -> tuple[Flows, Guarantee]:
    """Flows over tiny trees of places and of one or two folds, of which one may be time.

    A guarantee of any units.
    """
    names = draw(st.sampled_from([("time",), ("purpose",), ("purpose", "time")]))
    max_nodes -= len(names) - 1
    trees = [draw(hierarchies(max_nodes)) for _ in range(2 + len(names))]
    n, rng = draw(st.integers(1, max_rows)), draw(generators)
    ends = np.unique(
        np.stack([rng.integers(0, tree.n_tiles, n) for tree in trees], axis=1).astype(np.int32),
        axis=0,
    )
    n = len(ends)
    widths = [np.sort(rng.uniform(0, 9, tree.n_nodes))[::-1].copy() for tree in trees[2:]]
    every = ["hour" if name == "time" else None for name in names]
    person = rng.integers(0, 6, n).astype(np.int32) if draw(st.booleans()) else None
    flows = Flows(
        *(ends[:, end].copy() for end in (0, 1)),
        rng.integers(1, 7, n),
        weights_of(rng, n) if draw(st.booleans()) else None,
        None if person is None else People(np.arange(n, dtype=np.int32), person),
        origins=trees[0],
        destinations=trees[1],
        dimensions=tuple(map(fold_of, names, trees[2:], widths, every)),
        leaves=tuple(ends[:, end].copy() for end in range(2, len(trees))),
    )
    units = ["trips"] + (["people"] if person is not None else [])
    units += ["population"] if flows.weight is not None and flows.weight.sum() > 0 else []
    protect = draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    locations = draw(st.sampled_from([None, None, 2]))
    guarantee = Guarantee.resolve(flows, k=draw(st.integers(1, 6)), protect=protect, l=locations)
    return guarantee.prepare(flows), guarantee


@SEARCH
@given(folded_problems(), st.floats(0.1, 60.0), WEIGHTS)
def test_at_a_price_no_division_costs_less(problem, price, weight):
    flows, guarantee = problem
    weights = weights_of_folds(flows, weight)
    table, total = (
        PairTable.from_flows(flows, guarantee, "error", weights=weights),
        total_of(*problem),
    )
    points = slow.all_divisions(flows, guarantee, weights)
    found = price * total if table is None else table.evaluate(price)[0]
    least = min(cost + price * (total - published) for cost, published in points)
    assert found == pytest.approx(least, rel=1e-9, abs=1e-9)


@SEARCH
@given(folded_problems(), BUDGETS, WEIGHTS)
def test_at_a_limit_nothing_is_better_than_proven(problem, share, weight):
    flows, guarantee = problem
    plan = planned(
        "paircut", flows, guarantee, max_suppressed=share, **weight_options(flows, weight)
    )
    weights = weights_of_folds(flows, weight)
    points, total = slow.all_divisions(flows, guarantee, weights), total_of(*problem)
    means = [
        cost / shown
        for cost, shown in points
        if shown > 0 and total - shown <= share * total * (1 + 1e-9)
    ]
    if plan is None:
        assert not means or total == 0
        return
    kept, v = plan.kept, flows.volume(guarantee.basis)
    assume(v[kept].sum() > 0)
    size = (
        plan.origin_zones.size[plan.origin_zone]
        + plan.destination_zones.size[plan.destination_zone]
    )
    cost = size + sum(
        w * width[plan.origin_zone] for w, width in zip(weights, plan.widths, strict=True)
    )
    error, gap = float((v * cost)[kept].sum() / v[kept].sum()), plan.notes["proven_gap"]
    if gap is not None:
        assert min(means) * (1 + gap) >= error * (1 - 1e-9)
    assert error >= min(means) * (1 - 1e-9)
    assert float(v[~kept].sum()) <= share * total * (1 + 1e-9)


@SEARCH
@given(folded_problems(9, 20), BUDGETS)
def test_cells_do_not_intersect_and_hide_enough(problem, share):
    flows, guarantee = problem
    plan = planned("paircut", flows, guarantee, max_suppressed=share)
    assume(plan is not None and plan.kept.any())
    zones, zone = plan.folded, plan.origin_zone
    nodes = [zones.nodes[zone], plan.destination_zones.nodes[plan.destination_zone]]
    nodes += [node[zone] for node in zones.fold_nodes]
    cells = {tuple(int(node[f]) for node in nodes) for f in np.flatnonzero(plan.kept)}
    counted = np.zeros(len(flows), dtype=int)
    for cell in cells:
        inside = np.ones(len(flows), dtype=bool)
        for (tree, end), node in zip(flows.ends, cell, strict=True):
            inside &= (end >= tree.leaf_start[node]) & (end < tree.leaf_stop[node])
        counted += inside
        rows = np.flatnonzero(inside).tolist()
        assert slow.is_safe(flows, rows, guarantee)
        assert slow.may_be_named(flows, guarantee, cell[2:])
    assert np.array_equal(counted, plan.kept.astype(int)), (
        "a flow lies in two cells, or in one that does not count it"
    )


@pytest.mark.parametrize(
    ("options", "hours"),
    [
        # Both origins are even over their hours, and different from each other.
        ({"objective": "reconstruction"}, [2.0, 2.0, 2.0, 2.0]),
        # The first has enough in each hour.
        ({"objective": "cells"}, [1.0, 1.0, 2.0, 2.0]),
        ({"time_weight": 0.1}, [1.0, 1.0, 2.0, 2.0]),
        ({"time_weight": 10.0}, [1.0, 1.0, 1.0, 1.0]),
    ],
    ids=str,
)
def test_what_is_made_small_decides_on_the_times(options, hours):
    flows, guarantee = two_hours()
    plan = paircut(flows, guarantee, max_suppressed=0.0, **options)
    assert plan.folded.hours[plan.origin_zone].tolist() == hours


@pytest.mark.parametrize(
    "options", [{"objective": "metres"}, {"time_weight": -1.0}, {"time_weight": float("nan")}]
)
def test_what_cannot_be_weighed(options):
    with pytest.raises(ParameterError):
        paircut(*two_hours(), **options)


def test_a_weight_without_times():
    flows, guarantee = two_hours()
    with pytest.raises(ParameterError, match="--fold-time"):
        paircut(unfolded(flows)[0], guarantee, time_weight=1.0)
    with pytest.raises(ParameterError, match="Hint: add --fold,"):
        paircut(flows, guarantee, fold_weight=1.0)


def two_hours() -> tuple[Flows, Guarantee]:
    """Two origins in two hours.

    The second has enough only in both hours, or together with the first.
    """
    tree = Hierarchy(parent=np.array([-1, 0, 0]), code=np.array(["all", "a", "b"]))
    one = Hierarchy(parent=np.array([-1]), code=np.array(["c"]))
    flows = Flows(
        np.array([0, 0, 1, 1], np.int32),
        np.zeros(4, np.int32),
        np.array([5, 5, 2, 2]),
        origins=tree,
        destinations=one,
        dimensions=(fold_of("time", tree, np.array([2.0, 1.0, 1.0]), "hour"),),
        leaves=(np.array([0, 1, 0, 1], np.int32),),
    )
    return flows, Guarantee.resolve(flows, k=4, protect="trips")
