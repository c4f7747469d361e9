"""Draws of the discrete Gaussian law against the law, and what ρ a promise of ε and δ allows."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from flowveil.methods.discrete_noise import DiscreteGaussian, system_bits
from flowveil.methods.epsilon import keeps, largest_rho
from reference.goodness import FALSE_ALARM, fit

VARIANCES = [Fraction(3, 10), Fraction(1), Fraction(73, 10), Fraction(90_000, 7)]


def law_of(variance: float) -> dict[int, float]:
    reach = int(12 * math.sqrt(variance)) + 4
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x**2) / (2 * variance))
    return dict(zip(x.tolist(), (p / p.sum()).tolist(), strict=True))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_draws_follow_the_distribution(variance):
    draws = DiscreteGaussian(variance).draw(40_000, system_bits)
    assert draws.dtype == np.int64
    assert fit(draws, law_of(float(variance))) > FALSE_ALARM
    assert np.std(draws) == pytest.approx(DiscreteGaussian(variance).standard_deviation, rel=0.03)


def test_a_wrong_law_is_found():
    draws = DiscreteGaussian(Fraction(4)).draw(40_000, system_bits)
    rounded = np.rint(np.random.default_rng(0).normal(0, 1, 40_000)).astype(int)
    assert fit(draws, law_of(5.0)) < FALSE_ALARM
    assert fit(rounded, law_of(1.0)) < FALSE_ALARM


def test_where_rounding_could_decide_more_bits_do():
    """A word that begins like the chance itself: the words after it decide, each side of it."""
    law = DiscreteGaussian(Fraction(9, 2))
    exponent = (2 - Fraction(9, 2) / 3) ** 2 / 9
    chance = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
    word = int(chance * 2**64)
    for after, kept in ((0, True), (2**64 - 1, False)):
        words = [after, word]
        assert law._keeps(
            np.array([2]), lambda n, w=words: np.array([w.pop()] * n, np.uint64)
        ).tolist() == [kept]
        assert words == []


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (5.0, 1e-3), (20.0, 0.01)]
)
def test_rho_keeps_the_promise_and_is_hardly_smaller_than_it_must_be(epsilon, delta):
    rho = largest_rho(epsilon, delta)
    # Better than the simple conversion, and never beyond what noise of one step, whose δ is known
    # exactly, allows.
    assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) > epsilon
    sigma = 1 / math.sqrt(2 * rho)
    exact = stats.norm.cdf(1 / (2 * sigma) - epsilon * sigma)
    exact -= math.exp(epsilon) * stats.norm.cdf(-1 / (2 * sigma) - epsilon * sigma)
    assert 0 < exact <= delta
    more = rho * (1 + Fraction(1, 10**5))
    assert not any(keeps(more, epsilon, delta, Fraction(a)) for a in np.geomspace(1.01, 1000, 300))


def test_one_rare_draw_does_not_reject_a_distribution():
    law = law_of(0.3)
    values = np.repeat(list(law), np.rint(40_000 * np.array(list(law.values()))).astype(int))
    assert fit(np.append(values, 3), law) > 0.5
