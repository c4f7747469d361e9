"""The discrete Gaussian distribution: exact draws, P(X = x) proportional to exp(-x² / (2 σ²)) over the integers.

Rejection sampling from the discrete Laplace distribution (Canonne, Kamath and Steinke 2020, algorithm 3): with
t = floor(σ) + 1, a draw y of scale t is accepted with probability exp(-(abs(y) - σ² / t)² / (2 σ²)). σ² is a fraction
and t an integer. Acceptance compares random bits with that probability: in floating point if the two are far apart,
otherwise with as many digits and bits as needed, as in `flowveil.methods.discrete_laplace`. So rounding never decides.
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

#: Floating point decides if word and probability differ by more than this; both have errors of at most 1e-13.
_CLOSE = 1e-9
_TWO_64 = 2.0**64


@dataclass(frozen=True, eq=False)
class DiscreteGaussian:
    """The distribution P(X = x) proportional to exp(-x² / (2 variance)).

    Attributes:
        variance: σ², exact. For counts with L2 sensitivity Δ it gives ρ = Δ² / (2 σ²) of zero-concentrated privacy.
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
        share = word.astype(np.float64) / _TWO_64
        kept = share < chance
        for i in np.flatnonzero(np.abs(share - chance) <= _CLOSE).tolist():
            kept[i] = self._settle(int(word[i]), abs(int(y[i])), bits)
        return kept

    def _settle(self, word: int, size: int, bits: Bits) -> bool:
        """Returns whether the random number that starts with this word is below the acceptance probability."""
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
