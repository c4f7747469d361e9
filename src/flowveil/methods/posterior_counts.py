"""Whole counts of pairs of districts from their noisy counts: an empirical Bayes estimate.

The input is public: noisy counts, noisy totals of distance classes, centres of districts, and the
distribution of the noise. So the result is post-processing and costs no ε.

1. A gravity model is fitted to the noisy margins and distance classes, and corrected by the noisy
   counts of neighbouring pairs and of the reverse pair (`expected_counts`).
2. Pairs of similar expectation form a kind. The distribution of true counts of each kind is found
   by expectation maximisation, and from it P(count >= j | noisy count) (`count_tails`).
3. Steps 1 and 2 are repeated with the posterior means in place of the noisy counts: they have less
   noise, so margins and neighbours say more (`posterior_means`).
4. The trips of each distance class are given one by one to the pairs and counts j with the largest
   probability (`allocate_trips`). Among all tables with these totals it minimises the expected sum
   of absolute errors, because each trip given lowers it by 2 P(count >= j) - 1.

Time and memory are proportional to the number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Floats, Int8s, Ints, Mask

Matrix = NDArray[np.float32]

#: Iterations of the gravity model and of expectation maximisation. The latter stops before it
#: converges: more iterations fit the noise.
_GRAVITY_ROUNDS, _EM_ROUNDS = 12, 60
#: Most neighbours of a district, and how much farther than the nearest one they may be.
_NEIGHBOURS, _NEIGHBOURHOOD = 6, 1.5
#: Distance classes, and kinds of pairs, for each doubling of the distance or expectation.
_CLASSES_PER_DOUBLING, _KINDS_PER_DOUBLING = 2, 3
#: The smallest and largest logarithm (base 2) of an expectation that has a separate kind.
_LOWEST_EXPECTATION, _HIGHEST_EXPECTATION = -13, 4
#: The range of the correction by neighbours.
CORRECTION = (0.05, 20.0)
#: Pairs in one batch.
_BATCH_PAIRS = 1 << 21
_EARTH_KM = 6371.0


@dataclass(frozen=True, eq=False)
class Districts:
    """The public geometry of districts: the distance class of every pair, and the neighbours.

    ``neighbours`` has a row for each district, filled up with -1.
    """

    distance_class: Int8s
    neighbours: Ints

    @property
    def n(self) -> int:
        """Number of districts."""
        return len(self.distance_class)

    @property
    def n_classes(self) -> int:
        """Number of distance classes, whether pairs are in them or not."""
        return int(self.distance_class.max(initial=0)) + 1

    @classmethod
    def from_centers(cls, lat: Floats, lon: Floats) -> Districts:
        """Returns classes and neighbours from centres in degrees.

        Class 0 has the pairs of a district with itself. The others depend on the distance divided
        by the median distance of a district from its nearest neighbour.
        """
        n = len(lat)
        if n == 1:
            return cls(np.zeros((1, 1), np.int8), np.full((1, 1), -1, np.int32))
        towards = _directions(lat, lon)
        nearest = np.empty((n, min(_NEIGHBOURS, n - 1)), dtype=np.int32)
        nearest_km = np.empty(nearest.shape)
        for rows in _blocks(n, n):
            km = _kilometres(towards, rows)
            km[np.arange(len(km)), np.arange(n)[rows]] = np.inf
            # Distances within a metre count as equal; then the number of the district decides.
            order = np.argsort(np.round(km, 3), axis=1, kind="stable")[:, : nearest.shape[1]]
            nearest[rows], nearest_km[rows] = order, np.take_along_axis(km, order, axis=1)
        spacing = max(float(np.median(nearest_km[:, 0])), 1e-3)
        near = nearest_km <= _NEIGHBOURHOOD * np.maximum(nearest_km[:, :1], 1e-3)
        classes = np.empty((n, n), dtype=np.int8)
        for rows in _blocks(n, n):
            times = np.maximum(_kilometres(towards, rows) / spacing, 2 ** (-0.25))
            number = np.floor(_CLASSES_PER_DOUBLING * np.log2(times) + 1.5)
            classes[rows] = np.maximum(number, 1)
        np.fill_diagonal(classes, 0)
        return cls(classes, np.where(near, nearest, -1).astype(np.int32))


def _directions(lat: Floats, lon: Floats) -> Floats:
    """Returns unit vectors from the centre of the earth."""
    p, q = np.radians(lat), np.radians(lon)
    return np.stack((np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)), axis=1)


def _kilometres(towards: Floats, rows: slice) -> Floats:
    """Returns the distances of some districts from all."""
    chord = np.zeros((len(towards[rows]), len(towards)))
    for axis in towards.T:
        chord += (axis[rows, None] - axis) ** 2
    km: Floats = 2 * _EARTH_KM * np.arcsin(np.minimum(np.sqrt(chord) / 2, 1))
    return km


def _blocks(n: int, width: int) -> Iterator[slice]:
    """Yields the rows of an n x width table in batches."""
    step = max(1, _BATCH_PAIRS // width)
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def laplace_variance(epsilon: float) -> float:
    """Returns the variance of discrete Laplace noise of scale 1 / ε."""
    q = math.exp(-epsilon)
    return max(2 * q / (1 - q) ** 2, 1e-300)


def estimate_counts(
    noisy: Counts,
    class_totals: Counts,
    districts: Districts,
    *,
    epsilon: float,
    class_epsilon: float,
    false_flows: float = 1.0,
) -> Counts:
    """Returns whole counts of all pairs.

    Args:
        noisy: counts of all pairs with discrete Laplace noise.
        class_totals: noisy counts of the distance classes.
        districts: the public geometry.
        epsilon: the inverse of the scale of the noise on the pairs.
        class_epsilon: the inverse of the scale of the noise on the classes.
        false_flows: the largest expected share of listed pairs that had no trips.
    """
    variance, class_variance = laplace_variance(epsilon), laplace_variance(class_epsilon)
    totals = combined_totals(noisy, class_totals, districts, class_variance / variance)
    expected = expected_counts(noisy, totals, districts, variance=variance)
    tails = count_tails(noisy, kinds_of(expected), epsilon)
    means = posterior_means(noisy, tails)
    expected = expected_counts(means, totals, districts, variance=0.0)
    tails = count_tails(noisy, kinds_of(expected), epsilon)
    least = least_chance(noisy, tails, false_flows)
    return allocate_trips(
        noisy, tails, expected, districts.distance_class, totals, least_chance=least
    )


def combined_totals(
    noisy: Counts, class_totals: Counts, districts: Districts, variance_ratio: float
) -> Counts:
    """Returns the totals of the classes: the best mean of their noisy counts and of the sums of
    their noisy pairs, which are more exact where the pairs are few.
    """
    group = districts.distance_class.ravel()
    n_pairs = np.maximum(np.bincount(group, minlength=districts.n_classes), 1)
    sums = np.zeros(districts.n_classes)
    for rows in _blocks(districts.n, districts.n):
        block = districts.distance_class[rows].ravel()
        sums += np.bincount(block, noisy[rows].ravel(), minlength=districts.n_classes)
    weight = n_pairs / (n_pairs + variance_ratio)
    combined = weight * class_totals + (1 - weight) * sums
    return np.maximum(np.rint(combined), 0).astype(np.int64)


# ---- step 1 --------------------------------------------------------------------------------------


def expected_counts(
    noisy: NDArray[Any], class_totals: Counts, districts: Districts, *, variance: float
) -> Matrix:
    """Returns the expectation of each count: a gravity model, corrected by neighbouring pairs.

    ``variance`` is that of the noise on the counts; 0 for posterior means.
    """
    model = gravity_model(noisy, class_totals, districts)
    expected = np.empty_like(model)
    n_neighbours = np.sum(districts.neighbours >= 0, axis=1).astype(np.float32)
    for rows in _blocks(districts.n, districts.n):
        seen = _sum_around(noisy, districts, rows)
        hoped = _sum_around(model, districts, rows)
        number = n_neighbours[rows, None] + n_neighbours + 1
        trust = hoped**2 / (hoped**2 + hoped + number * np.float32(variance))
        correction = 1 + trust * (seen / np.maximum(hoped, 1e-9) - 1)
        expected[rows] = model[rows] * np.clip(correction, *CORRECTION)
    return expected


def gravity_model(noisy: NDArray[Any], class_totals: Counts, districts: Districts) -> Matrix:
    """Returns the product of factors of origin, destination and distance class with these sums."""
    n, n_classes = districts.n, districts.n_classes
    starts, ends = (np.maximum(noisy.sum(axis=axis), 1.0) for axis in (1, 0))
    totals = np.maximum(class_totals, 1.0)
    origin, destination, by_class = np.ones(n), np.ones(n), np.ones(n_classes)
    for _ in range(_GRAVITY_ROUNDS):
        mass = np.zeros(n_classes)
        for rows in _blocks(n, n):
            weight = origin[rows, None] * destination
            mass += np.bincount(
                districts.distance_class[rows].ravel(), weight.ravel(), minlength=n_classes
            )
        by_class = totals / np.maximum(mass, 1e-300)
        reached = np.zeros(n)
        for rows in _blocks(n, n):
            factor = by_class[districts.distance_class[rows]]
            origin[rows] = starts[rows] / np.maximum(factor @ destination, 1e-300)
            reached += origin[rows] @ factor
        destination = ends / np.maximum(reached, 1e-300)
    model = np.empty((n, n), dtype=np.float32)
    for rows in _blocks(n, n):
        model[rows] = origin[rows, None] * by_class[districts.distance_class[rows]] * destination
    return model


def _sum_around(table: NDArray[Any], districts: Districts, rows: slice) -> Matrix:
    """Returns of each pair the sum over pairs with a neighbouring end, and the reverse pair."""
    total = table[:, rows].T.astype(np.float32)
    own = table[rows]
    for neighbour in districts.neighbours.T:
        from_ = neighbour[rows]
        total += np.where((from_ >= 0)[:, None], table[from_], 0)
        total += np.where(neighbour >= 0, own[:, neighbour], 0)
    return total


# ---- step 2 --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CountTails:
    """P(count >= j | kind, noisy count) for j = 1, 2, ...; of pairs that are not large.

    Attributes:
        kind: of each pair.
        small: whether the noisy count is at most `largest_small`; larger ones are kept as they are.
        lowest: the noisy count of the first row of the tables; lower ones are treated like it.
        tails: by kind, noisy count and j.
    """

    kind: Int8s
    small: Mask
    lowest: int
    tails: dict[int, Floats]


def largest_count(epsilon: float) -> int:
    """Returns the largest true count that is considered."""
    return int(60 + 40 / epsilon)


def largest_small(epsilon: float) -> int:
    """Returns the largest noisy count that is estimated; its noise is far below the rest."""
    return int(largest_count(epsilon) - 20 / min(epsilon, 1.0))


def lowest_noisy(epsilon: float) -> int:
    """Returns the lowest noisy count with a row in the tables."""
    return -int(12 / epsilon) - 3


def kinds_of(expected: Matrix) -> Int8s:
    """Returns the kind of each pair: its expectation, rounded on a logarithmic scale."""
    low, high = (_KINDS_PER_DOUBLING * end for end in (_LOWEST_EXPECTATION, _HIGHEST_EXPECTATION))
    kind = np.empty(expected.shape, dtype=np.int8)
    for rows in _blocks(*expected.shape):
        logs = np.log2(np.maximum(expected[rows], 2.0**_LOWEST_EXPECTATION))
        kind[rows] = np.clip(np.floor(_KINDS_PER_DOUBLING * logs), low, high) - low
    return kind


def count_tails(noisy: Counts, kind: Int8s, epsilon: float) -> CountTails:
    """Returns the tables of step 2."""
    low, most = lowest_noisy(epsilon), largest_count(epsilon)
    small = noisy <= largest_small(epsilon)
    likelihood = noise_likelihood(epsilon)
    width = len(likelihood)
    seen = np.zeros((int(kind.max(initial=0)) + 1) * width)
    for rows in _blocks(*noisy.shape):
        key = kind[rows].astype(np.int64) * width + np.clip(noisy[rows], low, most) - low
        seen += np.bincount(key[small[rows]], minlength=len(seen))
    histogram = seen.reshape(-1, width)
    kinds = np.flatnonzero(histogram.sum(axis=1) > 0)
    prior = fit_prior(histogram[kinds], likelihood)
    tails = {}
    for one, row in zip(kinds.tolist(), prior, strict=True):
        posterior = likelihood * row
        posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
        tails[one] = posterior[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    return CountTails(kind, small, low, tails)


def posterior_means(noisy: Counts, tails: CountTails) -> Matrix:
    """Returns the mean of each count given its noisy count: the sum of its tail probabilities."""
    n_kinds = max(tails.tails, default=0) + 1
    n_rows = len(next(iter(tails.tails.values()), np.zeros(1)))
    table = np.zeros((n_kinds, n_rows), dtype=np.float32)
    for kind, of_kind in tails.tails.items():
        table[kind] = of_kind.sum(axis=1)
    means = np.empty(noisy.shape, dtype=np.float32)
    for rows in _blocks(*noisy.shape):
        row = np.clip(noisy[rows] - tails.lowest, 0, n_rows - 1)
        small = tails.small[rows]
        means[rows] = np.where(small, table[tails.kind[rows] * small, row], noisy[rows])
    return means


def noise_likelihood(epsilon: float) -> Floats:
    """Returns P(noisy count | true count), a row for each noisy count."""
    q = math.exp(-epsilon)
    noisy = np.arange(lowest_noisy(epsilon), largest_count(epsilon) + 1)
    true = np.arange(largest_count(epsilon) + 1)
    likelihood: Floats = (1 - q) / (1 + q) * q ** np.abs(noisy[:, None] - true)
    return likelihood


def fit_prior(histogram: Floats, likelihood: Floats) -> Floats:
    """Returns for each kind the distribution of true counts that explains its noisy counts.

    The histogram has a row for each kind. Expectation maximisation, from a flat start with three
    times the weight on 0.
    """
    n_values = likelihood.shape[1]
    start = np.where(np.arange(n_values) == 0, 3.0, 1.0) / (n_values + 2)
    prior = np.tile(start, (len(histogram), 1))
    share = histogram / histogram.sum(axis=1, keepdims=True)
    for _ in range(_EM_ROUNDS):
        prior *= (share / np.maximum(prior @ likelihood.T, 1e-300)) @ likelihood
    return prior


# ---- step 4 --------------------------------------------------------------------------------------


def least_chance(noisy: Counts, tails: CountTails, false_flows: float) -> float:
    """Returns the smallest P(count >= 1) of listed pairs, so that the expected share of those
    without trips is at most ``false_flows`` if all such pairs are listed.
    """
    n_large = int(np.sum(~tails.small))
    chances, sizes = [np.ones(1)], [np.array([n_large])]
    for kind, table in tails.tails.items():
        row = np.maximum(noisy[tails.small & (tails.kind == kind)] - tails.lowest, 0)
        chances.append(table[:, 0])
        sizes.append(np.bincount(row, minlength=len(table)))
    chance, size = np.concatenate(chances), np.concatenate(sizes)
    chance, size = chance[size > 0], size[size > 0]
    order = np.argsort(-chance, kind="stable")
    chance, size = chance[order], size[order]
    allowed = np.cumsum(size * (1 - chance)) <= false_flows * np.cumsum(size)
    return float(chance[allowed].min(initial=1.0))


def allocate_trips(
    noisy: Counts,
    tails: CountTails,
    expected: Matrix,
    distance_class: Int8s,
    totals: Counts,
    *,
    least_chance: float = 0.0,
) -> Counts:
    """Returns the whole counts: the trips of each class on the most probable pairs and counts.

    Of equally probable ones the smaller kind, noisy count and j come first, then the larger
    expectation, then the order of pairs. Large noisy counts are kept and use up their class first.
    """
    counts = np.where(tails.small, 0, noisy).ravel()
    small, kind, group = tails.small.ravel(), tails.kind.ravel(), distance_class.ravel()
    values, expectation = noisy.ravel(), expected.ravel()
    left = totals - np.array([counts[group == c].sum() for c in range(len(totals))], np.int64)
    width = 1 << 20
    for one in np.flatnonzero(left > 0).tolist():
        pairs = np.flatnonzero(small & (group == one))
        if len(pairs) == 0:
            continue
        row = np.maximum(values[pairs] - tails.lowest, 0)
        keys, key, size = np.unique(
            kind[pairs].astype(np.int64) * width + row, return_inverse=True, return_counts=True
        )
        table = np.array([tails.tails[k // width][k % width] for k in keys.tolist()])
        may_be_listed = table[:, 0] >= least_chance
        table, size = table[may_be_listed], size[may_be_listed]
        pairs = pairs[may_be_listed[key]]
        key = (np.cumsum(may_be_listed) - 1)[key[may_be_listed[key]]]
        if len(pairs) == 0:
            continue
        order = np.argsort(-table, axis=None, kind="stable")
        number = np.repeat(size, table.shape[1])[order]
        given = np.cumsum(number) <= left[one]
        n_given = int(given.sum())
        whole = np.zeros(table.size, dtype=np.int64)
        whole[order[:n_given]] = 1
        trips = whole.reshape(table.shape).sum(axis=1)[key]
        if n_given < len(order):
            rest = int(left[one] - number[:n_given].sum())
            members = np.flatnonzero(key == order[n_given] // table.shape[1])
            first = np.lexsort((pairs[members], -expectation[pairs[members]]))[:rest]
            trips[members[first]] += 1
        counts[pairs] = trips
    return counts.reshape(noisy.shape)
