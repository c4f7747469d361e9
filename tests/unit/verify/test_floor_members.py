"""Members of large pairs in the recount of the floor: a part of them may settle that a pair is safe, and no more."""

import numpy as np
import pytest

from flowveil.verify import floor


@pytest.mark.parametrize("people", [9, 10, 12, 5000])
def test_some_flows_of_a_pair_settle_only_what_all_of_them_do(people):
    rng = np.random.default_rng(people)
    n, k = 3000, 10
    length = rng.integers(1, 9, size=n)
    flow, member = np.repeat(np.arange(n), length), rng.integers(people, size=length.sum())
    # Some pairs have few people, however many flows.
    pair = rng.integers(8, size=n)
    member = np.where(pair[flow] < 3, member % 9, member)
    raw = {"s": np.zeros(n, dtype=np.int64), "trips": np.ones(n)}
    ends = (pair, np.zeros(n, dtype=np.int64))
    found = floor._safe(
        raw, ends, np.ones(n, dtype=np.bool_), {"people": floor._by_flow(flow, member, n)}, {"people": k}
    )
    expected = [len(set(member[pair[flow] == p].tolist())) >= k for p in range(8)]
    assert found.tolist() == [expected[p] for p in pair.tolist()]
