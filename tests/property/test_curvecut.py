"""CurveCut's cuts are the best at every price; boxes are safe and within the limit.

The exchange pays.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from flowveil import anonymize, read_trips
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.methods.curvecut import (
    Curve,
    Pieces,
    Points,
    chosen_within,
    curvecut,
    exchanged,
    hilbert_keys,
    other_curve,
)
from flowveil.publishing.release import Release
from flowveil.release.boxes import Frame
from reference.curvecut import all_cuts, cost_and_left, sides
from reference.groups import is_safe
from samples.installed import needs
from samples.placed import placed_problems

needs("numba")

SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.6])
PRICES = st.sampled_from([0.0, 1e5, 4e5, 1e6, 1e9])


def curve_of(flows, guarantee, window=100) -> tuple[Frame, Curve]:
    frame = Frame.of(flows)
    order = np.argsort(hilbert_keys(frame.point), kind="stable")
    return frame, Curve.from_order(Points.from_flows(flows, guarantee, frame), order, window)


def cells_of(pieces: Pieces) -> list[tuple[tuple[int, ...], bool]]:
    stop = [*pieces.first[1:].tolist(), len(pieces.order)]
    runs = (
        tuple(pieces.order[a:b].tolist()) for a, b in zip(pieces.first.tolist(), stop, strict=True)
    )
    return list(zip(runs, pieces.published.tolist(), strict=True))


@pytest.mark.parametrize(("dimensions", "side"), [(2, 8), (3, 4), (4, 4)])
def test_the_curve_goes_through_every_square_one_step_at_a_time(dimensions, side):
    point = np.array(list(product(range(side), repeat=dimensions))).T
    keys = hilbert_keys(point)
    assert sorted(keys.tolist()) == list(range(side**dimensions))
    along = point[:, np.argsort(keys)]
    assert np.all(np.abs(np.diff(along, axis=1)).sum(axis=0) == 1)


def test_points_too_far_apart_for_a_key_share_one():
    far = np.array([[0, 1, 2**20], [0, 0, 0], [0, 0, 5], [0, 0, 0]])
    keys = hilbert_keys(far)
    assert keys[0] == keys[1] != keys[2]


@settings(max_examples=40, deadline=None)
@given(placed_problems(max_rows=9), PRICES)
def test_no_cut_is_better_at_a_price(problem, price):
    flows, guarantee = problem
    frame, curve = curve_of(flows, guarantee)
    found = curve.at(price)
    least = min(
        cost + price * left
        for cost, left in (
            cost_and_left(flows, guarantee, frame, cut)
            for cut in all_cuts(flows, guarantee, curve.order.tolist())
        )
    )
    cost, left = cost_and_left(flows, guarantee, frame, cells_of(found.pieces))
    assert (found.cost, found.left) == pytest.approx((cost, left), rel=1e-9, abs=1e-3)
    assert cost + price * left == pytest.approx(least, rel=1e-9, abs=1e-3)
    event(f"{min(int(found.pieces.published.sum()), 3)} boxes or more")


@settings(max_examples=40, deadline=None)
@given(placed_problems(max_rows=9), SHARES)
def test_no_cut_within_the_limit_is_below_the_bound_of_the_price(problem, share):
    """The dual bound of the price that was found holds for all cuts, and the pieces stay within the
    limit."""
    flows, guarantee = problem
    frame, curve = curve_of(flows, guarantee)
    if not is_safe(flows, guarantee, range(len(flows))):
        return
    budget = share * curve.total
    price, pieces = curve.within(budget)
    cost, left = cost_and_left(flows, guarantee, frame, cells_of(pieces))
    assert left <= budget
    at_price = curve.at(price)
    bound = at_price.cost + price * at_price.left - price * budget
    best = min(
        c
        for c, s in (
            cost_and_left(flows, guarantee, frame, x)
            for x in all_cuts(flows, guarantee, curve.order.tolist())
        )
        if s <= budget
    )
    assert bound <= best + 1e-6 * abs(best)
    assert at_price.cost >= cost - 1e-6 * abs(cost), "spending the rest never costs more"


@settings(max_examples=60, deadline=None)
@given(placed_problems(), SHARES, st.sampled_from([0.0, 1.0]), st.sampled_from([1, 4, 256]))
def test_boxes_are_safe_and_suppression_stays_within_its_limit(
    problem, max_suppressed, effort, window
):
    flows, guarantee = problem
    if not is_safe(flows, guarantee, range(len(flows))):
        with pytest.raises(InfeasibleError):
            curvecut(flows, guarantee, max_suppressed=max_suppressed, effort=effort, window=window)
        return
    plan = curvecut(flows, guarantee, max_suppressed=max_suppressed, effort=effort, window=window)
    Release.from_plan(flows, plan, guarantee, method="curvecut", parameters={})
    volume = flows.volume(guarantee.basis)
    assert volume[~plan.kept].sum() <= max_suppressed * volume.sum()
    cells = set(
        zip(
            plan.origin_zone[plan.kept].tolist(),
            plan.destination_zone[plan.kept].tolist(),
            strict=True,
        )
    )
    for o, d in cells:
        mine = np.flatnonzero(
            plan.kept & (plan.origin_zone == o) & (plan.destination_zone == d)
        ).tolist()
        assert is_safe(flows, guarantee, mine)


@settings(max_examples=50, deadline=None)
@given(placed_problems(), SHARES)
def test_the_exchange_never_makes_boxes_coarser_at_its_price(problem, share):
    flows, guarantee = problem
    if not is_safe(flows, guarantee, range(len(flows))):
        return
    frame, curve = curve_of(flows, guarantee)
    budget = share * curve.total
    price, pieces = curve.within(budget)
    for number in range(3):
        before = cost_and_left(flows, guarantee, frame, cells_of(pieces))
        none_aside = np.zeros(len(pieces.first), dtype=np.bool_)
        pieces = exchanged(curve.points, pieces, none_aside, price, budget - before[1], 100, number)
        after = cost_and_left(flows, guarantee, frame, cells_of(pieces))
        assert sorted(pieces.order.tolist()) == list(range(len(flows)))
        assert after[1] <= budget
        assert after[0] + price * after[1] <= (before[0] + price * before[1]) * (1 + 1e-9) + 1e-3
        for run, published in cells_of(pieces):
            assert is_safe(flows, guarantee, run) if published else len(run) == 1


def test_what_saves_most_for_what_it_leaves_out_is_taken_first():
    saved, more = np.array([5.0, 9.0, 4.0, -1.0, 2.0]), np.array([5.0, 3.0, 1.0, -1.0, -2.0])
    assert chosen_within(saved, more, 2.0).tolist() == [False, True, True, False, True]


def test_curves_of_rounds_differ():
    point = np.random.default_rng(0).integers(0, 30, (4, 200))
    orders = {
        tuple(np.argsort(other_curve(point, number), kind="stable").tolist())
        for number in range(32)
    }
    assert len(orders) == 32


@settings(max_examples=30, deadline=None)
@given(placed_problems(max_rows=12))
def test_sides_are_those_of_the_published_boxes(problem):
    flows, guarantee = problem
    frame, curve = curve_of(flows, guarantee)
    pieces = curve.at(1e6).pieces
    assert curve.points.sides(pieces).tolist() == [sides(frame, run) for run, _ in cells_of(pieces)]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"window": 0}, "at least 1"),
        ({"window": True}, "at least 1"),
        ({"effort": -1.0}, "0 or more"),
    ],
)
def test_options_out_of_range_are_refused(options, wrong):
    table = {"o_lat": [48.0], "o_lon": [2.0], "d_lat": [48.1], "d_lon": [2.1]}
    with pytest.raises(ParameterError, match=wrong):
        anonymize(read_trips(pa.table(table), resolution=8), "curvecut", k=3, **options)


@pytest.mark.real
@pytest.mark.parametrize(
    ("file", "resolution"),
    [("santiago_taxi/trips.parquet", 9), ("cabspotting_sf/trips.parquet", 10)],
)
def test_finer_than_glove_on_a_sample(shared_data, file, resolution):
    table = pq.read_table(shared_data / file)
    some = table.take(np.sort(np.random.default_rng(1).permutation(len(table))[:6000]))
    flows = read_trips(some, resolution=resolution)
    error = {
        method: (
            anonymize(flows, method, k=10, protect="trips").metrics()["trips"][
                "mean_generalization_error"
            ]
        )
        for method in ("curvecut", "glove")
    }
    assert error["curvecut"] <= error["glove"]
