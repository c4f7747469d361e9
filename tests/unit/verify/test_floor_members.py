"""Members of large pairs in the recount of the floor: each counts once, however many of the flows have it."""

from itertools import pairwise

import numpy as np
import pytest
from benchmarks.fuzz_releases import small_flows

from flowveil import Guarantee, limits
from flowveil.verify import floor
from reference.twincut import smallest_safe_size


@pytest.mark.parametrize("people", [9, 10, 12, 5000])
def test_a_member_of_several_flows_of_a_pair_counts_once(people):
    rng = np.random.default_rng(people)
    n, k = 3000, 10
    length = rng.integers(1, 9, size=n)
    flow, member = np.repeat(np.arange(n), length), rng.integers(people, size=length.sum())
    # Some pairs have few people, however many flows.
    pair = rng.integers(8, size=n)
    member = np.where(pair[flow] < 3, member % 9, member)
    raw = {"s": np.zeros(n, dtype=np.int64), "trips": np.ones(n)}
    counts = floor._Counts(
        raw, {"people": k}, {"people": floor._by_flow(flow, member, n)}, np.argsort(pair, kind="stable")
    )
    edge = np.concatenate(([0], np.cumsum(np.bincount(pair, minlength=8))))
    expected = [len(set(member[pair[flow] == p].tolist())) >= k for p in range(8)]
    assert counts.are_safe(edge[:-1], edge[1:]).tolist() == expected


def test_middles_are_all_numbers_each_between_what_came_before():
    seen = {-1, 10}
    for middle, low, high in floor._middles(10):
        assert {low, high} <= seen
        assert not seen & set(range(low + 1, high))
        seen.add(middle)
    assert seen == set(range(-1, 11))


@pytest.mark.parametrize("n", [0, 1, 2, 23, 24])
def test_depths_of_one_generation_need_only_earlier_ones(n):
    seen = {-1, n}
    for generation in floor._generations(n):
        assert all({low, high} <= seen for _, low, high in generation)
        seen |= {middle for middle, _, _ in generation}
    assert seen == set(range(-1, n + 1))


@pytest.mark.parametrize("at_once", [1, 7, 1 << 18])
def test_blocks_of_members_change_no_count(at_once, monkeypatch):
    rng = np.random.default_rng(2)
    n = 400
    flow, member = np.repeat(np.arange(n), 3), rng.integers(50, size=3 * n)
    raw = {"s": np.zeros(n, dtype=np.int64), "trips": np.ones(n)}
    counts = floor._Counts(raw, {"people": 2}, {"people": floor._by_flow(flow, member, n)}, np.arange(n))
    edge = np.unique(rng.integers(n, size=30))
    monkeypatch.setattr(floor, "_AT_ONCE", at_once)
    expected = [len(set(member[3 * a : 3 * b].tolist())) for a, b in pairwise(edge.tolist())]
    assert counts._distinct("people", edge[:-1], edge[1:]).tolist() == expected
    assert counts._distinct("people", edge[:0], edge[:0]).tolist() == []


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_floor(threads):
    flows = small_flows(persons=True)
    raw = {"s": np.zeros(len(flows), np.int64), "o": flows.origin, "d": flows.destination, "trips": flows.trips}
    members = {"people": (flows.people.cell, flows.people.person)}
    with limits(threads=threads):
        found = floor.smallest_safe(flows, raw, {"people": 5}, members)
    guarantee = Guarantee(k=5, people=5)
    assert found.tolist() == [smallest_safe_size(flows, guarantee, f) for f in range(len(flows))]
    assert floor.is_affordable(flows, 10)
    assert not floor.is_affordable(flows, floor.MOST_WORK)
