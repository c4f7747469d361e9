"""Whole counts of pairs of districts in slices, such as hours, from noisy ones of these pairs.

The second step of a posterior down a tree, space first: the counts of all slices together are
already estimated (`flowveil.methods.posterior_counts`), and only pairs with trips were counted
again, slice by slice. The input is public, so the result is post-processing and costs no ε.

1. Each count is divided like all trips. The shares of slices are corrected by the noisy counts of
   the same origin, and of the same destination (`expected_parts`).
2. The distribution of true counts of each kind, and posterior means, are found as for pairs; with
   the means both steps are repeated.
3. The trips of each pair are given one by one to its most probable slices, so totals of pairs hold
   (`allocate_parts`).

Time is proportional to pairs and slices, and to trips and slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Floats, Ints
from flowveil.methods.posterior_counts import (
    CORRECTION,
    CountTails,
    Matrix,
    count_tails,
    kinds_of,
    laplace_variance,
    least_chance,
    posterior_means,
)
from flowveil.methods.topdown import fit_to_totals

#: Choices of a slice for a trip that are compared at once.
_BATCH_CHOICES = 1 << 22


@dataclass(frozen=True, eq=False)
class PairTotals:
    """The estimated trips of pairs of districts, at least 1, in all slices together."""

    origin: Ints
    destination: Ints
    trips: Counts

    @classmethod
    def from_table(cls, counts: Counts) -> PairTotals:
        """Returns the pairs of a full table that have trips."""
        origin, destination = np.nonzero(counts)
        return cls(
            origin.astype(np.int32), destination.astype(np.int32), counts[origin, destination]
        )


def estimate_parts(
    totals: PairTotals, noisy: Counts, *, epsilon: float, false_flows: float = 1.0
) -> Counts:
    """Returns whole counts of each pair and slice, which sum to the totals of the pairs.

    Args:
        totals: the pairs and their trips in all slices together.
        noisy: a row for each pair and a column for each slice, with discrete Laplace noise.
        epsilon: the inverse of the scale of that noise.
        false_flows: the largest expected share of listed counts that had no trips; larger where
            no slice of a pair is probable.
    """
    seen: NDArray[Any] = noisy
    for variance in (laplace_variance(epsilon), 0.0):
        expected = expected_parts(totals, seen, profile_of(noisy), variance=variance)
        tails = count_tails(noisy, kinds_of(expected), epsilon)
        seen = posterior_means(noisy, tails)
    return allocate_parts(totals, noisy, tails, least_chance(noisy, tails, false_flows))


def profile_of(noisy: Counts) -> Floats:
    """Returns the share of each slice in all trips."""
    of_slices = np.maximum(noisy.sum(axis=0), 1.0)
    shares: Floats = of_slices / of_slices.sum()
    return shares


def expected_parts(
    totals: PairTotals, seen: NDArray[Any], profile: Floats, *, variance: float
) -> Matrix:
    """Returns the expectation of each count. Each row sums to the trips of its pair."""
    model = totals.trips[:, None] * profile
    expected = model.copy()
    for end in (totals.origin, totals.destination):
        observed, hoped = (_sums_of_end(table, end) for table in (seen, model))
        number = np.bincount(end, minlength=len(hoped))[:, None]
        trust = hoped**2 / np.maximum(hoped**2 + hoped + number * variance, 1e-300)
        correction = 1 + trust * (observed / np.maximum(hoped, 1e-9) - 1)
        expected *= np.clip(correction, *CORRECTION)[end]
    expected *= (totals.trips / expected.sum(axis=1))[:, None]
    return expected.astype(np.float32)


def _sums_of_end(table: NDArray[Any], end: Ints) -> Floats:
    """Returns the sums of the rows of each district."""
    n = int(end.max(initial=-1)) + 1
    columns = [np.bincount(end, column, minlength=n) for column in table.T]
    return np.stack(columns, axis=1)


def allocate_parts(totals: PairTotals, noisy: Counts, tails: CountTails, least: float) -> Counts:
    """Returns the whole counts: the trips of each pair in its most probable slices.

    Slices whose P(count >= 1) is below ``least`` come last; of equally probable ones the first
    slice comes first. Large noisy counts are kept, and corrected where they do not fit the total.
    """
    counts = np.where(tails.small, 0, np.minimum(noisy, totals.trips[:, None]))
    left = np.maximum(totals.trips - counts.sum(axis=1), 0)
    tables = _stacked(tails)
    choices = np.minimum(left, tables.shape[2])[:, None] * tails.small
    for pairs in _batches(choices.sum(axis=1)):
        number = choices[pairs].ravel()
        cell = np.repeat(np.arange(len(number)), number)
        ordinal = np.arange(len(cell)) - np.repeat(np.cumsum(number) - number, number)
        kind, row = (
            table[pairs].ravel()[cell]
            for table in (tails.kind, np.clip(noisy - tails.lowest, 0, tables.shape[1] - 1))
        )
        # A chance below 0 keeps the order of slices that should not be listed.
        chance = tables[kind, row, ordinal] - (tables[kind, row, 0] < least)
        pair = cell // noisy.shape[1]
        order = np.lexsort((-chance, pair))
        first = np.searchsorted(pair, np.arange(pairs.stop - pairs.start))
        is_given = np.arange(len(order)) - first[pair] < left[pairs][pair]
        given = np.bincount(cell[order[is_given]], minlength=len(number))
        counts[pairs] += given.reshape(-1, noisy.shape[1])
    return _with_totals(counts, totals.trips)


def _stacked(tails: CountTails) -> Matrix:
    """Returns the tables of all kinds as one array."""
    if not tails.tails:
        return np.zeros((1, 1, 1), dtype=np.float32)
    shape = next(iter(tails.tails.values())).shape
    tables = np.zeros((max(tails.tails) + 1, *shape), dtype=np.float32)
    for kind, table in tails.tails.items():
        tables[kind] = table
    return tables


def _batches(n_choices: Counts) -> Iterator[slice]:
    """Yields the pairs in batches of a limited number of choices."""
    batch = np.cumsum(n_choices) // _BATCH_CHOICES
    edges = np.flatnonzero(np.diff(batch, prepend=-1, append=-1))
    yield from (slice(int(a), int(b)) for a, b in pairwise(edges))


def _with_totals(counts: Counts, totals: Counts) -> Counts:
    """Corrects rows whose large counts do not fit their total; no count of 0 becomes larger."""
    wrong = np.flatnonzero(counts.sum(axis=1) != totals)
    if len(wrong):
        row, column = np.nonzero(counts[wrong])
        counts[wrong[row], column] = fit_to_totals(counts[wrong[row], column], row, totals[wrong])
    return counts
