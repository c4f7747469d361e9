"""The discrete Gaussian law: exact draws, P(X = x) proportional to exp(-x² / (2 σ²)) over the whole numbers.

Drawn by rejection from the discrete Laplace law (Canonne, Kamath and Steinke 2020, algorithm 3): with t = floor(σ) + 1,
a draw y of scale t is kept with probability exp(-(abs(y) - σ² / t)² / (2 σ²)), and what is kept has the law above.
σ² is a fraction and t a whole number, so everything is known exactly. Keeping or not compares random bits with that
probability: in floating point where the two are far apart, by thousands of times more than rounding can move either;
and otherwise, as in `flowveil.methods.discrete_laplace`, with as many digits and bits as it takes. So no draw is
decided by rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowveil.methods.discrete_laplace import Bits, Counts, DiscreteLaplace, first_bits

#: Floating point decides where a word and a probability are further apart than this; both are off by 1e-13 at most.
_CLOSE = 1e-9
_TWO_64 = 2.0**64


@dataclass(frozen=True, eq=False)
class DiscreteGaussian:
    """The law P(X = x) proportional to exp(-x² / (2 variance)).

    Attributes:
        variance: σ², exact. Counts that one person changes by Δ, as the root of the sum of squares, hide that person
            with ρ = Δ² / (2 σ²) of zero-concentrated differential privacy.
    """

    variance: Fraction

    @cached_property
    def proposal(self) -> DiscreteLaplace:
        """The law that draws are taken from."""
        return DiscreteLaplace(Fraction(math.isqrt(math.floor(self.variance)) + 1))

    @property
    def standard_deviation(self) -> float:
        """Of the noise on one count: σ at most, and less where σ is so small that hardly any draw is not 0."""
        sigma = math.sqrt(self.variance)
        if sigma > 10:
            return sigma
        x = np.arange(1, 200, dtype=np.float64)
        p = np.exp(-(x**2) / (2 * float(self.variance)))
        return math.sqrt(2 * float(np.sum(x**2 * p)) / (1 + 2 * float(np.sum(p))))

    def draw(self, n: int, bits: Bits) -> Counts:
        """Independent draws."""
        out = np.empty(n, dtype=np.int64)
        missing = np.arange(n)
        while len(missing):
            y = self.proposal.draw(len(missing), bits)
            kept = self._keeps(y, bits)
            out[missing[kept]] = y[kept]
            missing = missing[~kept]
        return out

    def _keeps(self, y: Counts, bits: Bits) -> NDArray[np.bool_]:
        """Whether each proposal is kept."""
        variance, t = float(self.variance), float(self.proposal.scale)
        chance = np.exp(-((np.abs(y) - variance / t) ** 2) / (2 * variance))
        word = bits(len(y))
        share = word.astype(np.float64) / _TWO_64
        kept = share < chance
        for i in np.flatnonzero(np.abs(share - chance) <= _CLOSE).tolist():
            kept[i] = self._settle(int(word[i]), abs(int(y[i])), bits)
        return kept

    def _settle(self, word: int, size: int, bits: Bits) -> bool:
        """Whether the random number that begins with this word is below the chance of keeping a proposal."""
        exponent = (size - self.variance / self.proposal.scale) ** 2 / (2 * self.variance)

        def chance(digits: int) -> Decimal:
            with localcontext(prec=digits + 5):
                return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()

        if exponent == 0:
            return True
        length = 64
        while True:
            first = first_bits(chance, length)
            if word != first:
                return word < first
            word, length = word << 64 | int(bits(1)[0]), length + 64
