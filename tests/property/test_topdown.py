"""The correction of children against a search through all corrections."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.methods.topdown import children_above_floor, fit_to_totals

FAMILY = st.tuples(st.lists(st.integers(-5, 6), min_size=1, max_size=4), st.integers(1, 7))


def smallest_largest_error(noisy: list[int], total: int) -> int:
    """By trying all non-negative whole numbers with that sum."""
    tried = (x for x in product(range(total + 1), repeat=len(noisy)) if sum(x) == total)
    return min(max(abs(a - b) for a, b in zip(x, noisy, strict=True)) for x in tried)


@settings(max_examples=30, deadline=None)
@given(st.lists(FAMILY, min_size=1, max_size=3))
def test_children_fit_and_the_largest_error_is_the_smallest_there_is(families):
    noisy = np.concatenate([np.array(f[0]) for f in families])
    family = np.repeat(np.arange(len(families)), [len(f[0]) for f in families])
    total = np.array([f[1] for f in families])
    fit = fit_to_totals(noisy, family, total)
    assert fit.dtype == np.int64
    for i, (given_, wanted) in enumerate(families):
        mine = fit[family == i].tolist()
        assert sum(mine) == wanted
        assert min(mine) >= 0
        error = max(abs(a - b) for a, b in zip(mine, given_, strict=True))
        assert error == smallest_largest_error(given_, wanted)


def test_the_remainder_goes_first_to_the_largest_and_evenly_to_equals():
    even = fit_to_totals(np.zeros(9, np.int64), np.zeros(9, np.int64), np.array([3]))
    assert even.tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert fit_to_totals(
        np.array([5, 1, 1, 7]), np.zeros(4, np.int64), np.array([11])
    ).tolist() == [4, 0, 0, 7]


def test_large_counts_stay_exact():
    noisy = np.array([3_000_000_000_001, 1_999_999_999_999, -4])
    fitted = fit_to_totals(noisy, np.zeros(3, np.int64), np.array([5_000_000_000_000]))
    assert fitted.tolist() == [*noisy[:2].tolist(), 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(FAMILY, min_size=1, max_size=4), st.integers(2, 5))
def test_a_pair_is_divided_if_its_children_above_the_floor_have_more_than_half(families, floor):
    noisy = np.concatenate([np.array(f[0]) for f in families])
    family = np.repeat(np.arange(len(families)), [len(f[0]) for f in families])
    total = np.array([f[1] for f in families])
    fit = fit_to_totals(noisy, family, total)
    kept, divided = children_above_floor(fit, family, total, floor)
    for i, whole in enumerate(total.tolist()):
        children = fit[family == i].tolist()
        large = [child for child in children if child >= floor]
        assert divided[i] == (2 * sum(large) > whole)
        assert kept[family == i].tolist() == [divided[i] and c >= floor for c in children]
