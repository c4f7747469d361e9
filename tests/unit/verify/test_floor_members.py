"""Members of large pairs in the recount of the floor: each counts once, however many of the flows have it."""

import numpy as np
import pytest

from flowveil.verify import floor


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
