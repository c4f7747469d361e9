"""The vectorised posterior against the reference that looks at one pair after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.methods import posterior_counts, posterior_slices
from flowveil.methods.posterior_counts import (
    CountTails,
    Districts,
    allocate_trips,
    count_tails,
    estimate_counts,
    expected_counts,
    gravity_model,
    kinds_of,
    largest_count,
    largest_small,
    lowest_noisy,
)
from flowveil.methods.posterior_slices import (
    PairTotals,
    allocate_parts,
    estimate_parts,
    expected_parts,
)
from reference import posterior as reference

#: Number of districts, seed, most trips of a pair, and ε.
WORLDS = st.tuples(st.integers(2, 6), st.integers(0, 999), st.integers(0, 40))


def world(n: int, seed: int, most: int) -> tuple[np.ndarray, np.ndarray, Districts]:
    rng = np.random.default_rng(seed)
    districts = Districts.from_centers(rng.uniform(48, 48.3, n), rng.uniform(2, 2.4, n))
    true = rng.integers(0, most + 1, (n, n)) * (rng.random((n, n)) < 0.6)
    noisy = true + rng.geometric(0.5, (n, n)) - rng.geometric(0.5, (n, n))
    totals = np.bincount(districts.distance_class.ravel(), true.ravel()).astype(np.int64)
    return noisy, totals, districts


@settings(max_examples=30, deadline=None)
@given(WORLDS)
def test_the_expectation_is_that_of_the_reference_in_batches_of_any_size(given_):
    noisy, totals, districts = world(*given_)
    slow = reference.gravity_model(noisy, totals, districts.distance_class)
    wanted = reference.corrected(slow, noisy, districts.neighbours, 2.0)
    usual = posterior_counts._BATCH_PAIRS
    for batch in (usual, 2 * districts.n):
        posterior_counts._BATCH_PAIRS = batch
        try:
            fast = gravity_model(noisy, totals, districts)
            found = expected_counts(noisy, totals, districts, variance=2.0)
        finally:
            posterior_counts._BATCH_PAIRS = usual
        np.testing.assert_allclose(fast, slow, rtol=1e-4)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 4), st.integers(0, 99), st.sampled_from([1.0, 2.5]))
def test_the_distribution_of_true_counts_is_that_of_the_reference(n, seed, epsilon):
    noisy, _, _ = world(n, seed, 12)
    noisy[0, 0] = 10_000
    kind = np.random.default_rng(seed).integers(0, 2, noisy.shape).astype(np.int8)
    found = count_tails(noisy, kind, epsilon)
    assert not found.small[0, 0]
    for one, table in found.tails.items():
        values = noisy[(kind == one) & found.small].tolist()
        wanted = reference.count_tails(
            values, epsilon, low=found.lowest, most=largest_count(epsilon)
        )
        for value in values:
            row = table[max(value - found.lowest, 0)]
            np.testing.assert_allclose(row, wanted[value], rtol=1e-6, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(WORLDS, st.integers(0, 5))
def test_trips_go_to_the_most_probable_pairs_and_use_up_their_class(given_, granularity):
    """With few different probabilities, so that there are ties."""
    noisy, totals, districts = world(*given_)
    rng = np.random.default_rng(given_[1])
    kind = rng.integers(0, 3, noisy.shape).astype(np.int8)
    low, width, most = -5, 60, 50
    tables = {
        one: np.sort(np.round(rng.random((width, most)), granularity))[:, ::-1] for one in range(3)
    }
    tails = CountTails(kind, noisy <= 30, low, tables)
    expected = rng.integers(0, 3, noisy.shape).astype(np.float32)
    found = allocate_trips(noisy, tails, expected, districts.distance_class, totals)
    wanted = reference.allocate_trips(noisy, tails, expected, districts.distance_class, totals)
    np.testing.assert_array_equal(found, wanted)


@settings(max_examples=10, deadline=None)
@given(WORLDS, st.sampled_from([0.3, 1.0, 4.0]))
def test_counts_are_whole_and_sum_to_the_noisy_totals_of_distances(given_, epsilon):
    noisy, totals, districts = world(*given_)
    # The classes have hardly any noise, so their totals count, and not the sums of the pairs.
    how = {"epsilon": epsilon, "class_epsilon": 30.0}
    counts = estimate_counts(noisy, totals - 3, districts, **how)
    assert counts.dtype == np.int64
    assert counts.min() >= 0
    sums = np.bincount(districts.distance_class.ravel(), counts.ravel())
    np.testing.assert_array_equal(sums, np.maximum(totals - 3, 0))
    again = estimate_counts(noisy, totals - 3, districts, **how)
    np.testing.assert_array_equal(counts, again)
    assert np.all(kinds_of(np.full((2, 2), 1e30, np.float32)) == 51)


@settings(max_examples=3, deadline=None)
@given(st.integers(2, 4), st.integers(0, 999))
def test_all_steps_together_are_those_of_the_reference(n, seed):
    noisy, totals, districts = world(n, seed, 12)
    epsilon = 2.0
    found = estimate_counts(noisy, totals, districts, epsilon=epsilon, class_epsilon=30.0)
    ends = {"low": lowest_noisy(epsilon), "most": largest_count(epsilon)}
    wanted = reference.estimate_counts(
        noisy, totals, districts, epsilon, **ends, large=largest_small(epsilon)
    )
    np.testing.assert_array_equal(found, wanted)


#: Number of pairs and of slices, seed, and most trips of a pair.
PARTS = st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(0, 999), st.integers(1, 40))


def pairs_and_parts(n: int, n_slices: int, seed: int, most: int) -> tuple[PairTotals, np.ndarray]:
    """Estimated totals, and noisy counts of slices that do not sum to them."""
    rng = np.random.default_rng(seed)
    origin, destination = np.unravel_index(rng.choice(16, n, replace=False), (4, 4))
    noise = rng.geometric(0.5, (n, n_slices)) - rng.geometric(0.5, (n, n_slices))
    noisy = rng.integers(0, most, (n, n_slices)) + noise
    ends = (end.astype(np.int32) for end in (origin, destination))
    return PairTotals(*ends, rng.integers(1, most + 1, n)), noisy


@settings(max_examples=50, deadline=None)
@given(PARTS, st.integers(0, 5))
def test_slices_are_those_of_the_reference_in_batches_of_any_size(given_, granularity):
    totals, noisy = pairs_and_parts(*given_)
    rng = np.random.default_rng(given_[2])
    profile = rng.dirichlet(np.ones(noisy.shape[1]) * 3) + 1e-3
    lists = (totals.origin.tolist(), totals.destination.tolist(), totals.trips.tolist())
    np.testing.assert_allclose(
        expected_parts(totals, noisy, profile, variance=2.0),
        reference.expected_parts(lists, noisy, profile, 2.0),
        rtol=1e-4,
    )
    kind = rng.integers(0, 3, noisy.shape).astype(np.int8)
    low, most = -30, 50
    tables = {
        one: np.sort(np.round(rng.random((120, most)), granularity))[:, ::-1] for one in range(3)
    }
    tails = CountTails(kind, np.ones(noisy.shape, np.bool_), low, tables)
    wanted = reference.allocate_parts(totals.trips.tolist(), noisy, tails, 0.5)
    usual = posterior_slices._BATCH_CHOICES
    for batch in (usual, 7):
        posterior_slices._BATCH_CHOICES = batch
        try:
            found = allocate_parts(totals, noisy, tails, 0.5)
        finally:
            posterior_slices._BATCH_CHOICES = usual
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=20, deadline=None)
@given(PARTS, st.sampled_from([0.3, 1.0, 4.0]), st.sampled_from([1, 1000]))
def test_slices_are_whole_and_sum_to_the_trips_of_their_pair(given_, epsilon, times):
    """Also where counts are so large that they are kept, and then do not fit the total."""
    totals, noisy = pairs_and_parts(*given_)
    totals = replace(totals, trips=totals.trips * times)
    parts = estimate_parts(totals, noisy * times, epsilon=epsilon, false_flows=0.1)
    assert parts.dtype == np.int64
    assert parts.min() >= 0
    np.testing.assert_array_equal(parts.sum(axis=1), totals.trips)
