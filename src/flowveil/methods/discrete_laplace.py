"""The discrete Laplace law: exact draws, and exact places of the draws above zero among millions of pairs.

P(X = x) is proportional to q**abs(x) with q = exp(-1 / scale). A floating-point sampler only comes near such a law,
and the difference can be read off the published numbers; so nothing here is rounded. Random words of 64 bits are
compared with probabilities worked out to as many digits as it takes, and in the one case in 2**64 where a word and
the first 64 bits of a probability agree, more bits are drawn. Comparing is one binary search for a whole array of
words.

Nearly all pairs of a matrix are empty, and of those only the draws above zero are published. So the places of these
draws are drawn instead of a draw for each pair: the gaps between them are geometric. That is the same law, and costs
what is published, not what there is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]
#: A source of random bits: how many words of 64 bits are wanted, and they come.
Bits = Callable[[int], Words]

#: Entries of a table of probabilities. Longer draws are whole tables and a rest: geometric waiting has no memory, so
#: the two are independent, and a draw costs two look-ups however large the scale.
_LONGEST_TABLE = 1 << 14
#: A table ends where so few draws (2**-40) pass it that going on costs nothing.
_TABLE_BITS = 40
#: Digits that are enough for nearly every probability; more are used where they are not.
_DIGITS = 60
#: Digits that rounding may spoil: powers up to the longest table lose five.
_SPOILT = 12


def system_bits(n: int) -> Words:
    """Words from the operating system's generator, which nobody can predict or repeat."""
    return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


def repeatable_bits(seed: int) -> Bits:
    """Words that whoever knows the seed can repeat: they hide nothing. For tests."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return lambda n: generator.integers(0, 1 << 64, size=n, dtype=np.uint64)


def bits_of(seed: int | None) -> Bits:
    """The source of a release's noise: the operating system, or, for tests, a seed."""
    return system_bits if seed is None else repeatable_bits(seed)


@dataclass(frozen=True, eq=False)
class Geometric:
    """How many steps something lasts that survives each step with the same probability s: P(G >= g) = s**g.

    Attributes:
        survival: s, to any number of digits.
        below: if given, the law is that of the G below it: P(G <= g | G < below).
    """

    survival: Callable[[int], Decimal]
    below: int | None = None

    @cached_property
    def failure(self) -> float:
        """1 - s, in floating point: for sizes of arrays, never for draws."""
        with localcontext(prec=_DIGITS):
            return float(1 - self.survival(_DIGITS))

    @cached_property
    def _table(self) -> Words:
        """The first 64 bits of P(G <= g), for g = 0, 1, ..."""
        rate = -math.log1p(-self.failure) if self.failure < 1 else math.inf
        steps = _TABLE_BITS * math.log(2) / max(rate, 1e-300)
        length = max(1, min(_LONGEST_TABLE, math.ceil(steps))) if self.below is None else self.below - 1
        out = []
        with localcontext(prec=_DIGITS):
            s, left, whole = self.survival(_DIGITS), Decimal(1), self._whole(_DIGITS)
            for g in range(length):
                left *= s
                first = _bits_of((1 - left) / whole, _DIGITS, 64)
                out.append(self._first_bits(g, 64) if first is None else first)
        return np.array(out, dtype=np.uint64)

    def _whole(self, digits: int) -> Decimal:
        """P(G < below)."""
        return Decimal(1) if self.below is None else 1 - self.survival(digits) ** self.below

    @cached_property
    def _parts(self) -> tuple[Geometric, Geometric] | None:
        """How many whole tables a draw lasts, and the rest; None where one table is enough."""
        if self.below is not None or len(self._table) < _LONGEST_TABLE:
            return None

        def whole_table(digits: int) -> Decimal:
            with localcontext(prec=digits + 10):
                return self.survival(digits + 10) ** _LONGEST_TABLE

        return Geometric(whole_table), Geometric(self.survival, below=_LONGEST_TABLE)

    def _first_bits(self, g: int, bits: int) -> int:
        """floor(2**bits * P(G <= g)), exactly."""
        return first_bits(lambda digits: (1 - self.survival(digits) ** (g + 1)) / self._whole(digits), bits)

    def draw(self, n: int, bits: Bits, *, limit: int | None = None) -> Counts:
        """Independent draws.

        Args:
            n: how many.
            bits: where randomness comes from.
            limit: draws that reach it may be given as any number from it on; all others are exact. Spares waiting for
                steps that nobody will look at.
        """
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
        """The draw whose first bits are those of P(G <= g): more bits decide on which side it falls."""
        length = 64
        while g < len(self._table):
            first = self._first_bits(g, length)
            if word < first:
                return g
            if word > first:
                g += 1
            else:
                word, length = word << 64 | int(bits(1)[0]), length + 64
        return g

    def failures(self, n: int, bits: Bits) -> Counts:
        """Which of n independent steps are not survived, in order: each with probability 1 - s."""
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


def first_bits(probability: Callable[[int], Decimal], bits: int) -> int:
    """floor(2**bits * probability), exactly; the probability is given to any number of digits."""
    digits = _DIGITS + bits // 2
    while True:
        with localcontext(prec=digits):
            first = _bits_of(probability(digits), digits, bits)
        if first is not None:
            return first
        digits *= 2


def _bits_of(probability: Decimal, digits: int, bits: int) -> int | None:
    """floor(2**bits * probability), or None where the digits do not determine it."""
    error, unit = _error(digits), _unit(bits)
    low = (unit * (probability - error)).to_integral_value(ROUND_FLOOR)
    high = (unit * (probability + error)).to_integral_value(ROUND_FLOOR)
    return int(low) if low == high else None


@cache
def _error(digits: int) -> Decimal:
    """What rounding may have spoilt of a number of so many digits; a power of ten, so exact."""
    return Decimal(1).scaleb(_SPOILT - digits)


@cache
def _unit(bits: int) -> Decimal:
    """2**bits, exactly."""
    return Decimal(1 << bits)


@dataclass(frozen=True, eq=False)
class DiscreteLaplace:
    """The law P(X = x) = (1 - q) / (1 + q) * q**abs(x), q = exp(-1 / scale).

    Attributes:
        scale: exact. A sum that one person changes by at most ``bound`` hides that person with ε = bound / scale.
    """

    scale: Fraction

    def q(self, digits: int) -> Decimal:
        """exp(-1 / scale), to a number of digits."""
        with localcontext(prec=digits + 5):
            return (-Decimal(self.scale.denominator) / Decimal(self.scale.numerator)).exp()

    @cached_property
    def magnitude(self) -> Geometric:
        """How far a draw that is not zero lies beyond 1: P(G >= g) = q**g."""
        return _magnitude(self.scale)

    @cached_property
    def gap(self) -> Geometric:
        """How many pairs in a row draw no more than zero: each with probability 1 - P(X >= 1) = 1 / (1 + q)."""
        return _gap(self.scale)

    @property
    def positive_share(self) -> float:
        """P(X >= 1)."""
        return self.gap.failure

    @property
    def standard_deviation(self) -> float:
        """Of the noise on one count."""
        q = float(self.q(_DIGITS))
        return math.sqrt(2 * q) / max(-math.expm1(-1 / float(self.scale)), 1e-300)

    def draw(self, n: int, bits: Bits) -> Counts:
        """Independent draws: the difference of two geometric ones has this law."""
        return self.magnitude.draw(n, bits) - self.magnitude.draw(n, bits)

    def positives(self, n: int, bits: Bits) -> tuple[Counts, Counts]:
        """The draws above zero among n independent ones: their places in order, and their values."""
        place = self.gap.failures(n, bits)
        return place, 1 + self.magnitude.draw(len(place), bits)

    def threshold(self, bound: int, delta: float) -> int:
        """The smallest count from which a noisy pair may be published so that empty pairs stay out of sight.

        A pair in which only one person travels shows, by being listed, that this person exists. The threshold is the
        smallest whole number at which the chance that any such pair of one person is listed is at most δ, however
        the person's trips are spread: the sum of P(c + X >= threshold) over the pairs.

        With δ below a half the threshold is above ``bound``; there P(c + X >= threshold) = q**(threshold - c) / (1 +
        q) is convex in c, so for a given number of pairs the worst is one trip in all but one of them; and that sum
        is convex in the number of pairs, so the worst of all is one pair with everything or each trip in its own.
        """
        # Where the floating-point estimate is off by one, the exact comparison puts it right.
        log_target = math.log(delta) + math.log1p(float(self.q(_DIGITS)))
        scale = float(self.scale)
        guess = max(bound - scale * log_target, 1 + scale * (math.log(bound) - log_target))
        threshold = max(bound + 1, math.floor(guess) - 2)
        while not self._hides(threshold, bound, delta):
            threshold += 1
        return threshold

    def _hides(self, threshold: int, bound: int, delta: float) -> bool:
        with localcontext(prec=_DIGITS):
            q = self.q(_DIGITS)
            worst = max(q ** (threshold - bound), bound * q ** (threshold - 1)) / (1 + q)
            # Rounding may not decide in favour of publishing.
            return worst * (1 + Decimal(10) ** (_SPOILT - _DIGITS)) <= Decimal(delta)


# A table is worked out digit by digit and depends on the scale alone; noise on many slices asks for it every time.


@lru_cache(maxsize=64)
def _magnitude(scale: Fraction) -> Geometric:
    return Geometric(DiscreteLaplace(scale).q)


@lru_cache(maxsize=64)
def _gap(scale: Fraction) -> Geometric:
    q = DiscreteLaplace(scale).q

    def none_positive(digits: int) -> Decimal:
        with localcontext(prec=digits + 5):
            return 1 / (1 + q(digits + 5))

    return Geometric(none_positive)
