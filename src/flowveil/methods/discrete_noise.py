"""Discrete Laplace and Gaussian noise: exact draws, and exact positions of the positive draws among
millions of pairs.

Floating-point samplers only approximate these distributions, and the difference is visible in
published numbers. So random 64-bit words are compared with probabilities, and more bits are drawn
if a word equals the first 64 bits. Most pairs are empty, so the geometric gaps between positive
draws are sampled: the cost is proportional to what is published.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Words

#: Source of randomness: returns the given number of random 64-bit words.
Bits = Callable[[int], Words]
#: A probability, to any number of digits.
Probability = Callable[[int], Decimal]

#: Entries of a probability table. Longer draws are a number of whole tables plus an independent
#: remainder.
_LONGEST_TABLE = 1 << 14
#: A table ends where the probability of longer draws is 2**-40.
_TABLE_BITS = 40
#: Digits that suffice for nearly every probability.
_DIGITS = 60
#: Digits that rounding may affect: powers up to the longest table lose five.
_SPOILT = 12
#: Floating point accepts or rejects a Gaussian draw if word and probability differ by more than
#: this.
_CLOSE = 1e-9


def system_bits(n: int) -> Words:
    """Returns words from the operating system's secure generator."""
    return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


def repeatable_bits(seed: int) -> Bits:
    """Returns a repeatable generator without any protection. For tests."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return lambda n: generator.integers(0, 1 << 64, size=n, dtype=np.uint64)


def random_bits(seed: int | None) -> Bits:
    """Returns the generator for a release: the operating system's, or a seeded one for tests."""
    return system_bits if seed is None else repeatable_bits(seed)


@dataclass(frozen=True, eq=False)
class Geometric:
    """The number of steps survived with probability s each: P(G >= g) = s**g.

    If ``below`` is given, for G < below.
    """

    survival: Probability
    below: int | None = None

    @cached_property
    def failure(self) -> float:
        """1 - s in floating point; used for array sizes only."""
        with localcontext(prec=_DIGITS):
            return float(1 - self.survival(_DIGITS))

    @cached_property
    def _table(self) -> Words:
        """The first 64 bits of P(G <= g), for g = 0, 1, ..."""
        rate = -math.log1p(-self.failure) if self.failure < 1 else math.inf
        steps = _TABLE_BITS * math.log(2) / max(rate, 1e-300)
        length = (
            max(1, min(_LONGEST_TABLE, math.ceil(steps))) if self.below is None else self.below - 1
        )
        out = []
        with localcontext(prec=_DIGITS):
            s, left, whole = self.survival(_DIGITS), Decimal(1), self._whole(_DIGITS)
            for g in range(length):
                left *= s
                first = _bits_of((1 - left) / whole, _DIGITS, 64)
                out.append(first_bits(self._at_most(g), 64) if first is None else first)
        return np.array(out, dtype=np.uint64)

    def _whole(self, digits: int) -> Decimal:
        """Returns P(G < below)."""
        return Decimal(1) if self.below is None else 1 - self.survival(digits) ** self.below

    @cached_property
    def _parts(self) -> tuple[Geometric, Geometric] | None:
        """Distributions of the number of whole tables and of the remainder.

        None if one table suffices.
        """
        if self.below is not None or len(self._table) < _LONGEST_TABLE:
            return None

        def whole_table(digits: int) -> Decimal:
            with localcontext(prec=digits + 10):
                return self.survival(digits + 10) ** _LONGEST_TABLE

        return Geometric(whole_table), Geometric(self.survival, below=_LONGEST_TABLE)

    def _at_most(self, g: int) -> Probability:
        """Returns P(G <= g)."""
        return lambda digits: (1 - self.survival(digits) ** (g + 1)) / self._whole(digits)

    def draw(self, n: int, bits: Bits, *, limit: int | None = None) -> Counts:
        """Returns independent draws; those that reach ``limit`` may be any larger number."""
        if limit is None and self._parts is not None:
            tables, rest = self._parts
            return _LONGEST_TABLE * tables.draw(n, bits) + rest.draw(n, bits)
        table = self._table
        out = np.zeros(n, dtype=np.int64)
        lasting = np.arange(n)
        while len(lasting):
            word = bits(len(lasting))
            steps = np.searchsorted(table, word, side="left")
            tied = np.flatnonzero(table[np.minimum(steps, len(table) - 1)] == word)
            for i in tied.tolist():
                steps[i] = self._settle(int(word[i]), int(steps[i]), bits)
            out[lasting] += steps
            lasts = (steps == len(table)) & (self.below is None)
            if limit is not None:
                lasts &= out[lasting] < limit
            lasting = lasting[lasts]
        return out

    def _settle(self, word: int, g: int, bits: Bits) -> int:
        """Returns the draw whose first bits equal those of P(G <= g), by drawing more bits."""
        number = RandomNumber(word, bits)
        while g < len(self._table) and not number.is_below(self._at_most(g)):
            g += 1
        return g

    def failures(self, n: int, bits: Bits) -> Counts:
        """Returns which of n independent steps fail, in order; each with probability 1 - s."""
        parts, last = [], -1
        while True:
            expected = (n - 1 - last) * self.failure
            gap = self.draw(int(expected + 4 * math.sqrt(expected)) + 8, bits, limit=n)
            place = last + np.cumsum(gap + 1)
            if place[-1] >= n:
                parts.append(place[: np.searchsorted(place, n)])
                return np.concatenate(parts)
            parts.append(place)
            last = int(place[-1])


@dataclass(eq=False)
class RandomNumber:
    """A uniform random number in [0, 1) that starts with a word.

    Further bits are drawn when they matter.
    """

    word: int
    bits: Bits
    length: int = 64

    def is_below(self, probability: Probability) -> bool:
        """Returns whether the number is below a probability."""
        while (first := first_bits(probability, self.length)) == self.word:
            self.word, self.length = self.word << 64 | int(self.bits(1)[0]), self.length + 64
        return self.word < first


def first_bits(probability: Probability, bits: int) -> int:
    """Returns floor(2**bits * probability), exactly."""
    digits = _DIGITS + bits // 2
    while True:
        with localcontext(prec=digits):
            first = _bits_of(probability(digits), digits, bits)
        if first is not None:
            return first
        digits *= 2


def _bits_of(probability: Decimal, digits: int, bits: int) -> int | None:
    """Returns floor(2**bits * probability), or None if the digits do not determine it."""
    # The largest rounding error is a power of ten, and the unit is an integer: both are exact.
    error, unit = Decimal(1).scaleb(_SPOILT - digits), Decimal(1 << bits)
    low, high = ((unit * (probability + e)).to_integral_value(ROUND_FLOOR) for e in (-error, error))
    return int(low) if low == high else None


@dataclass(frozen=True, eq=False)
class DiscreteLaplace:
    """The distribution P(X = x) = (1 - q) / (1 + q) * q**abs(x), q = exp(-1 / scale).

    A sum that one person changes by at most ``bound`` is protected with ε = bound / scale.
    """

    scale: Fraction

    def q(self, digits: int) -> Decimal:
        """Returns exp(-1 / scale) to a number of digits."""
        with localcontext(prec=digits + 5):
            return (-Decimal(self.scale.denominator) / Decimal(self.scale.numerator)).exp()

    @property
    def magnitude(self) -> Geometric:
        """Distribution of the distance of a positive draw from 1: P(G >= g) = q**g."""
        return _tables(self.scale)[0]

    @property
    def gap(self) -> Geometric:
        """Distribution of the number of consecutive draws that are not positive.

        Each with probability 1 / (1 + q).
        """
        return _tables(self.scale)[1]

    @property
    def positive_share(self) -> float:
        """P(X >= 1)."""
        return self.gap.failure

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one draw."""
        q = float(self.q(_DIGITS))
        return math.sqrt(2 * q) / max(-math.expm1(-1 / float(self.scale)), 1e-300)

    def draw(self, n: int, bits: Bits) -> Counts:
        """Returns independent draws, as differences of two geometric draws."""
        return self.magnitude.draw(n, bits) - self.magnitude.draw(n, bits)

    def positives(self, n: int, bits: Bits) -> tuple[Counts, Counts]:
        """Returns positions and values of the positive draws among n independent ones."""
        place = self.gap.failures(n, bits)
        return place, 1 + self.magnitude.draw(len(place), bits)

    def threshold(self, bound: int, delta: float) -> int:
        """Returns the smallest noisy count from which a pair may be published.

        A listed pair with trips of a single person reveals that person. At the threshold, the
        probability that any such pair of one person is listed, the sum of P(c + X >= threshold), is
        at most δ however the trips are distributed.

        For δ below 1/2 the threshold is above ``bound``, where P(c + X >= threshold) =
        q**(threshold - c) / (1 + q) is convex in c. So for a fixed number of pairs the worst case
        has one trip in all pairs but one. That sum is convex in the number of pairs, so the worst
        case overall is one pair with all trips, or one pair for each trip.
        """
        # The exact comparison corrects the floating-point estimate.
        log_target = math.log(delta) + math.log1p(float(self.q(_DIGITS)))
        scale = float(self.scale)
        guess = max(bound - scale * log_target, 1 + scale * (math.log(bound) - log_target))
        threshold = max(bound + 1, math.floor(guess) - 2)
        with localcontext(prec=_DIGITS):
            q = self.q(_DIGITS)
            # Rounding must not decide in favour of publishing.
            most = Decimal(delta) * (1 + q) / (1 + Decimal(10) ** (_SPOILT - _DIGITS))
            while max(q ** (threshold - bound), bound * q ** (threshold - 1)) > most:
                threshold += 1
        return threshold


@lru_cache(maxsize=64)
def _tables(scale: Fraction) -> tuple[Geometric, Geometric]:
    """Returns magnitude and gap.

    Cached, because the tables are expensive and noise on many slices shares them.
    """
    q = DiscreteLaplace(scale).q

    def none_positive(digits: int) -> Decimal:
        with localcontext(prec=digits + 5):
            return 1 / (1 + q(digits + 5))

    return Geometric(q), Geometric(none_positive)


@dataclass(frozen=True, eq=False)
class DiscreteGaussian:
    """The distribution P(X = x) proportional to exp(-x² / (2 variance)).

    Rejection sampling (Canonne, Kamath and Steinke 2020, algorithm 3): with t = floor(σ) + 1, a
    discrete Laplace draw y of scale t is accepted with probability exp(-(abs(y) - σ² / t)² / (2
    σ²)). For counts with L2 sensitivity Δ it gives ρ = Δ² / (2 σ²) of zero-concentrated privacy.
    """

    variance: Fraction

    @cached_property
    def proposal(self) -> DiscreteLaplace:
        """The proposal distribution."""
        return DiscreteLaplace(Fraction(math.isqrt(math.floor(self.variance)) + 1))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one draw: at most σ, and less if σ is small."""
        sigma = math.sqrt(self.variance)
        if sigma > 10:
            return sigma
        x = np.arange(1, 200, dtype=np.float64)
        p = np.exp(-(x**2) / (2 * float(self.variance)))
        return math.sqrt(2 * float(np.sum(x**2 * p)) / (1 + 2 * float(np.sum(p))))

    def draw(self, n: int, bits: Bits) -> Counts:
        """Returns independent draws."""
        out = np.empty(n, dtype=np.int64)
        missing = np.arange(n)
        while len(missing):
            y = self.proposal.draw(len(missing), bits)
            kept = self._keeps(y, bits)
            out[missing[kept]] = y[kept]
            missing = missing[~kept]
        return out

    def _keeps(self, y: Counts, bits: Bits) -> NDArray[np.bool_]:
        """Returns which proposals are accepted."""
        variance, t = float(self.variance), float(self.proposal.scale)
        chance = np.exp(-((np.abs(y) - variance / t) ** 2) / (2 * variance))
        word = bits(len(y))
        share = word.astype(np.float64) / 2.0**64
        kept = share < chance
        for i in np.flatnonzero(np.abs(share - chance) <= _CLOSE).tolist():
            kept[i] = self._accepts(abs(int(y[i])), int(word[i]), bits)
        return kept

    def _accepts(self, size: int, word: int, bits: Bits) -> bool:
        """Returns whether a proposal of this size is accepted by the random number that starts with
        this word.
        """
        exponent = (size - self.variance / self.proposal.scale) ** 2 / (2 * self.variance)

        def chance(digits: int) -> Decimal:
            with localcontext(prec=digits + 5):
                return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()

        return exponent == 0 or RandomNumber(word, bits).is_below(chance)
