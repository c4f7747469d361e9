"""All partitions of a depth cut at once give the partitions of the recursion, and none can be cut
further."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.mondrian import _Cutter, mondrian
from flowveil.publishing.release import Release
from flowveil.release.boxes import Frame
from flowveil.release.plan import Plan
from reference.groups import box, is_safe
from reference.mondrian import mondrian as slow_mondrian
from reference.mondrian import proposed_cuts
from samples.placed import placed_problems, star

PARTITIONINGS = st.sampled_from(["strict", "relaxed"])


def partitions(flows: Flows, guarantee: Guarantee, partitioning: str) -> set[frozenset[int]]:
    cutter = _Cutter(flows, guarantee, Frame.of(flows), divide_ties=partitioning == "relaxed")
    group = cutter.run()
    return {frozenset(np.flatnonzero(group == g).tolist()) for g in range(int(group.max()) + 1)}


@settings(max_examples=50, deadline=None)
@given(placed_problems(), PARTITIONINGS)
def test_same_partitions_as_the_recursion(problem, partitioning):
    flows, guarantee = problem
    frame = Frame.of(flows)
    got = partitions(flows, guarantee, partitioning)
    event(f"{'one partition' if len(got) == 1 else 'several'}")
    assert got == slow_mondrian(flows, guarantee, frame, strict=partitioning == "strict")


@settings(max_examples=50, deadline=None)
@given(placed_problems(), PARTITIONINGS)
def test_every_partition_is_safe_and_no_cut_is_left(problem, partitioning):
    flows, guarantee = problem
    frame = Frame.of(flows)
    whole = is_safe(flows, guarantee, range(len(flows)))
    for group in partitions(flows, guarantee, partitioning):
        assert is_safe(flows, guarantee, group) == whole
        for left, right in proposed_cuts(
            flows, guarantee, frame, sorted(group), strict=partitioning == "strict"
        ):
            assert not (is_safe(flows, guarantee, left) and is_safe(flows, guarantee, right))


@settings(max_examples=50, deadline=None)
@given(placed_problems())
def test_with_trips_alone_not_even_a_cut_off_the_median_is_left(problem):
    flows, guarantee = problem
    guarantee = Guarantee.resolve(flows, k=guarantee.k, protect="trips")
    frame = Frame.of(flows)
    for group in partitions(flows, guarantee, "strict"):
        members = np.array(sorted(group))
        for axis in frame.point:
            for at in axis[members]:
                left = flows.trips[members[axis[members] <= at]].sum()
                assert min(left, flows.trips[members].sum() - left) < guarantee.k


@settings(max_examples=50, deadline=None)
@given(placed_problems(), PARTITIONINGS)
def test_the_plan_publishes_the_boxes_of_the_partitions(problem, partitioning):
    flows, guarantee = problem
    frame = Frame.of(flows)
    plan = mondrian(flows, guarantee, partitioning=partitioning)
    if not is_safe(flows, guarantee, range(len(flows))):
        assert not plan.kept.any()
        with pytest.raises(InfeasibleError):
            Release.from_plan(flows, plan, guarantee, method="mondrian", parameters={})
        return
    assert plan.kept.all()
    release = Release.from_plan(flows, plan, guarantee, method="mondrian", parameters={})
    want = {
        tuple(box(frame, group))
        for group in slow_mondrian(flows, guarantee, frame, strict=partitioning == "strict")
    }
    assert {bounds(plan, f) for f in range(len(flows))} == want
    assert len(release.cells) == len(want)


def bounds(plan: Plan, flow: int):
    o, d = plan.origin_zones, plan.destination_zones
    a, b = plan.origin_zone[flow], plan.destination_zone[flow]
    return (o.x0[a], o.x1[a]), (o.y0[a], o.y1[a]), (d.x0[b], d.x1[b]), (d.y0[b], d.y1[b])


@settings(max_examples=50, deadline=None)
@given(placed_problems())
def test_strict_boxes_share_no_flow(problem):
    flows, guarantee = problem
    frame = Frame.of(flows)
    plan = mondrian(flows, guarantee, partitioning="strict")
    assert plan.boxes.disjoint
    boxes = {bounds(plan, f) for f in range(len(flows))}
    for f in range(len(flows)):
        point = frame.point[:, f]
        assert (
            sum(all(a <= p <= b for p, (a, b) in zip(point, bx, strict=True)) for bx in boxes) == 1
        )


def test_relaxed_divides_flows_at_the_median():
    """Twenty flows on one line but for one: strict cannot cut next to the line, relaxed can."""
    tree = star(np.full(20, 48.0), np.r_[np.full(19, 2.0), 2.05])
    tiles = np.arange(20)
    flows = Flows.from_pairs(tiles, tiles, np.full(20, 3), origins=tree, destinations=tree)
    guarantee = Guarantee.resolve(flows, k=10)
    assert mondrian(flows, guarantee, partitioning="strict").notes["partitions"] == 1
    assert mondrian(flows, guarantee, partitioning="relaxed").notes["partitions"] > 1


def test_partitioning_is_one_of_two():
    tree = star(np.zeros(2), np.array([0.0, 1.0]))
    flows = Flows.from_pairs([0, 1], [0, 1], [20, 20], origins=tree, destinations=tree)
    with pytest.raises(ParameterError, match="'strict' or 'relaxed'"):
        mondrian(flows, Guarantee.resolve(flows, k=10), partitioning="loose")
