"""Noise on margins: its distribution, its scale and the exact draws.

One record is in one cell of each of M margins. So one record changes all counts by M as a sum of absolute changes (L1),
which scales Laplace noise, and by the square root of M as a length (L2), which scales Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from flowveil.errors import ParameterError
from flowveil.methods.discrete_gaussian import DiscreteGaussian
from flowveil.methods.discrete_laplace import Bits, DiscreteLaplace
from flowveil.methods.epsilon import gaussian_deviation, noise_scale
from flowveil.tabular.records import Ints

#: With a larger δ, a few records of a survey could be published unchanged within the guarantee.
LARGEST_DELTA = 1e-5
DISTRIBUTIONS = ("laplace", "gaussian")


@dataclass(frozen=True)
class Mechanism:
    """Noise that satisfies (ε, δ)-differential privacy for one record added or removed.

    Attributes:
        kind: the distribution.
        epsilon, delta: the guarantee; δ is 0 with Laplace noise.
    """

    kind: Literal["laplace", "gaussian"]
    epsilon: float
    delta: float

    @classmethod
    def from_options(cls, noise: str, epsilon: float | None, delta: float | None) -> Mechanism | None:
        """Return the mechanism of a request; None without ε.

        Raises:
            ParameterError: the distribution is unknown, or δ is missing, out of range, or given without Gaussian noise.
        """
        if noise not in DISTRIBUTIONS:
            raise ParameterError(f"noise must be one of {', '.join(DISTRIBUTIONS)}; found {noise!r}.")
        if epsilon is None:
            if noise != "laplace" or delta is not None:
                raise ParameterError("Without epsilon no noise is added: omit noise and delta.")
            return None
        if noise == "laplace":
            if delta is not None:
                raise ParameterError("Laplace noise needs no delta. Hint: noise='gaussian' (--noise gaussian).")
            return cls("laplace", float(epsilon), 0.0)
        if delta is None or isinstance(delta, bool) or not 0 < delta <= LARGEST_DELTA:
            raise ParameterError(
                f"Gaussian noise needs a delta above 0 and at most {LARGEST_DELTA:g}; found {delta!r}. "
                "Hint: well below one over the number of records, such as 1e-6."
            )
        return cls("gaussian", float(epsilon), float(delta))

    @property
    def distribution(self) -> str:
        """Name of the distribution, for reports."""
        return "discrete Laplace" if self.kind == "laplace" else "discrete Gaussian"

    def scale(self, n_margins: int) -> float:
        """Scale of Laplace noise, standard deviation of Gaussian noise; rounded up, so never less noise."""
        if self.kind == "laplace":
            return noise_scale(n_margins, self.epsilon)
        return gaussian_deviation(n_margins, self.epsilon, self.delta)

    def deviation(self, n_margins: int) -> float:
        """Upper bound of the standard deviation of the noise on a count."""
        return self.scale(n_margins) * (math.sqrt(2) if self.kind == "laplace" else 1.0)

    def release(self, counts: Ints, n_margins: int, bits: Bits) -> Ints:
        """Add exact noise to the counts, drawn from a source of random bits."""
        scale = Fraction(self.scale(n_margins))
        sampler = DiscreteLaplace(scale) if self.kind == "laplace" else DiscreteGaussian(scale**2)
        return counts + sampler.draw(len(counts), bits)
