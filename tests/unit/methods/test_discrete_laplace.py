"""The sampler has the discrete Laplace law, not something near it.

Goodness-of-fit tests reject a right sampler once in ten thousand million runs: chance is what they
test.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from flowveil.methods.discrete_noise import (
    DiscreteLaplace,
    Geometric,
    first_bits,
    repeatable_bits,
    system_bits,
)
from reference.goodness import FALSE_ALARM, fit, laplace_law
from reference.laplace import chance
from reference.opendp_noise import opendp_laplace

scales = pytest.mark.parametrize("scale", [0.4, 1.0, 7.3, 20.0])


@scales
def test_opendp_draws_from_the_distribution(scale):
    values = opendp_laplace(np.full(20_000, 5), sensitivity=1, epsilon=1 / scale) - 5
    assert fit(values, laplace_law(scale)) > FALSE_ALARM


@scales
def test_the_exact_sampler_draws_from_the_distribution(scale):
    values = DiscreteLaplace(Fraction(scale)).draw(300_000, system_bits)
    assert fit(values, laplace_law(scale)) > FALSE_ALARM


def test_the_test_finds_samplers_that_only_come_near():
    """Rounded continuous noise, a scale that is 10 % off, and noise with a mean of zero but a wrong
    shape."""
    rng = np.random.default_rng(1)
    near = {
        1.0: np.rint(rng.laplace(scale=1.0, size=20_000)),
        7.3: DiscreteLaplace(Fraction(7.3 * 1.1)).draw(20_000, repeatable_bits(1)),
        20.0: np.rint(rng.normal(scale=28.3, size=20_000)),
    }
    for scale, values in near.items():
        assert fit(values.astype(int), laplace_law(scale)) < FALSE_ALARM


@scales
def test_positive_noise_of_empty_pairs_follows_the_distribution(scale):
    """Numbers, values, places and gaps of the draws above zero are those of a draw for each
    pair."""
    n = 600_000
    law = DiscreteLaplace(Fraction(scale))
    place, value = law.positives(n, system_bits)
    assert np.all(np.diff(place) > 0)
    assert 0 <= place[0] <= place[-1] < n
    # How many, and how large: the pairs that are not listed are the class of all draws up to zero.
    drawn = np.zeros(n, dtype=np.int64)
    drawn[place] = value
    above = {x: p for x, p in laplace_law(scale).items() if x >= 1}
    assert fit(drawn, above) > FALSE_ALARM
    # Where: blocks of pairs have independent binomial numbers.
    p, blocks = float(sum(above.values())), 200
    found = np.bincount(place // (n // blocks), minlength=blocks)
    each = n // blocks
    statistic = np.sum((found - each * p) ** 2) / (each * p * (1 - p))
    assert stats.chi2.sf(statistic, blocks) > FALSE_ALARM
    # One after the other: gaps are geometric, and values do not depend on them.
    gap = np.diff(place) - 1
    assert fit(gap, {g: (1 - p) ** g * p for g in range(60)}) > FALSE_ALARM
    short = value[1:][gap == 0]
    share = float(above[1] / p)
    z = (np.mean(short == 1) - share) / np.sqrt(share * (1 - share) / len(short))
    assert 2 * stats.norm.sf(abs(z)) > FALSE_ALARM


def test_a_draw_beyond_the_table_goes_on():
    """With a scale of twenty thousand the table ends before most large draws."""
    law = DiscreteLaplace(Fraction(20_000))
    assert len(law.magnitude._table) == 1 << 14
    value = law.magnitude.draw(50_000, system_bits)
    assert value.max() > 1 << 15
    edges = stats.geom.ppf(np.linspace(0.02, 0.98, 49), -np.expm1(-1 / 20_000), loc=-1)
    below = stats.geom.cdf(edges, -np.expm1(-1 / 20_000), loc=-1)
    expected = np.diff(np.concatenate(([0], below, [1]))) * len(value)
    found = np.bincount(np.searchsorted(edges, value, side="left"), minlength=50)
    assert stats.chisquare(found, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(1), Fraction(1000), Fraction(10**6)])
def test_a_draw_takes_a_few_words_whatever_the_scale(scale):
    """Time is random words: at most a look-up for whole tables and one for the rest, on either
    side."""
    words = 0

    def counted(n: int) -> np.ndarray:
        nonlocal words
        words += n
        return system_bits(n)

    law = DiscreteLaplace(scale)
    law.draw(10_000, counted)
    assert words <= 4 * 10_000 + 100


def test_the_tail_beyond_a_table_follows_its_distribution():
    rest = Geometric(lambda _: Decimal("0.9"), below=5)
    with localcontext(prec=80):
        whole = 1 - Decimal("0.9") ** 5
        expected = [int((1 - Decimal("0.9") ** (g + 1)) / whole * 2**64) for g in range(4)]
    assert [int(word) for word in rest._table] == expected
    drawn = rest.draw(50_000, system_bits)
    law = {g: float(Decimal("0.1") * Decimal("0.9") ** g / whole) for g in range(5)}
    assert fit(drawn, law) > FALSE_ALARM


def test_nothing_above_zero_where_epsilon_is_huge():
    place, value = DiscreteLaplace(Fraction(1, 50)).positives(10**6, system_bits)
    assert len(place) == len(value) == 0


@pytest.mark.parametrize(
    "scale", [Fraction(1), Fraction(20), Fraction(73, 10), Fraction(1, 30), Fraction(10**6)]
)
def test_tables_hold_the_first_64_bits_of_the_probabilities(scale):
    law = DiscreteLaplace(scale)
    with localcontext(prec=300):
        q = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        for geometric, s in ((law.magnitude, q), (law.gap, 1 / (1 + q))):
            table = geometric._table
            for g in {0, 1, len(table) // 3, len(table) - 1} & set(range(len(table))):
                assert int(table[g]) == int((1 - s ** (g + 1)) * 2**64)


class Scripted:
    """Words from a list; then from the system."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def __call__(self, n: int) -> np.ndarray:
        out = system_bits(n).copy()
        for i in range(min(n, len(self.words))):
            out[i] = self.words.pop(0)
        return out


def test_ties_are_settled_with_more_bits():
    law = DiscreteLaplace(Fraction(3))
    geometric: Geometric = law.magnitude
    first = [int(t) for t in geometric._table]
    more = first_bits(geometric._at_most(4), 128) - (first[4] << 64)
    assert 0 < more < 2**64 - 1
    assert geometric.draw(1, Scripted(first[4] - 1))[0] == 4
    assert geometric.draw(1, Scripted(first[4] + 1))[0] == 5
    assert geometric.draw(1, Scripted(first[4], more - 1))[0] == 4
    assert geometric.draw(1, Scripted(first[4], more + 1))[0] == 5
    assert geometric.draw(1, Scripted(first[4], more, 0))[0] == 4
    assert geometric.draw(1, Scripted(first[4], more, 2**64 - 1))[0] == 5


def test_a_seed_repeats_and_the_system_does_not():
    law = DiscreteLaplace(Fraction(20))
    one, two = (law.draw(1000, repeatable_bits(5)) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(law.draw(1000, system_bits), law.draw(1000, system_bits))


def test_deviation_and_share():
    for scale in (0.3, 1.0, 20.0):
        law = DiscreteLaplace(Fraction(scale))
        # What lies beyond a hundred times the scale adds less than a double can hold.
        reach = range(-int(100 * scale) - 10, int(100 * scale) + 11)
        variance = sum(x * x * chance(x, scale) for x in reach)
        assert law.standard_deviation == pytest.approx(variance**0.5, rel=1e-9)
        assert law.positive_share == pytest.approx(
            sum(chance(x, scale) for x in reach if x > 0), rel=1e-9
        )
