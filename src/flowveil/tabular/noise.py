"""The noise on margins: which law, how much of it, and who draws it.

One record is in one cell of each of M margins. So the vector of all counts changes by M in the sum of absolute changes,
which Laplace noise is scaled by, and by the square root of M in length, which Gaussian noise is scaled by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flowveil.errors import ParameterError
from flowveil.methods.epsilon import gaussian_deviation, noise_scale, opendp_gaussian, opendp_laplace
from flowveil.tabular.records import Ints

#: With a larger δ, a few records of a survey could be published as they are and the promise kept.
LARGEST_DELTA = 1e-5
LAWS = ("laplace", "gaussian")


@dataclass(frozen=True)
class Mechanism:
    """Noise that keeps a promise.

    Attributes:
        kind: the law.
        epsilon, delta: the promise; δ is 0 with Laplace noise.
    """

    kind: Literal["laplace", "gaussian"]
    epsilon: float
    delta: float

    @classmethod
    def of(cls, noise: str, epsilon: float | None, delta: float | None) -> Mechanism | None:
        """The mechanism that is asked for; None without ε.

        Raises:
            ParameterError: the law is not known, or δ is missing, out of range, or given where it has no meaning.
        """
        if noise not in LAWS:
            raise ParameterError(f"noise must be one of {', '.join(LAWS)}; found {noise!r}.")
        if epsilon is None:
            if noise != "laplace" or delta is not None:
                raise ParameterError("Without epsilon there is no noise: leave out noise and delta.")
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
    def law(self) -> str:
        """For reports."""
        return "discrete Laplace" if self.kind == "laplace" else "discrete Gaussian"

    def scale(self, n_margins: int) -> float:
        """The scale of Laplace noise, the standard deviation of Gaussian noise."""
        if self.kind == "laplace":
            return noise_scale(n_margins, self.epsilon)
        return gaussian_deviation(n_margins, self.epsilon, self.delta)

    def deviation(self, n_margins: int) -> float:
        """The standard deviation of the noise on a count, at the most."""
        return self.scale(n_margins) * (math.sqrt(2) if self.kind == "laplace" else 1.0)

    def release(self, counts: Ints, n_margins: int) -> Ints:
        """The counts with noise drawn by OpenDP."""
        if self.kind == "laplace":
            return opendp_laplace(counts, sensitivity=n_margins, epsilon=self.epsilon)
        return opendp_gaussian(counts, squared_sensitivity=n_margins, epsilon=self.epsilon, delta=self.delta)

    def predictable(self, counts: Ints, n_margins: int, generator: np.random.Generator) -> Ints:
        """The counts with noise that can be repeated: for tests, never private."""
        scale = self.scale(n_margins)
        if self.kind == "gaussian":
            return counts + np.rint(generator.normal(0.0, scale, len(counts))).astype(np.int64)
        p = -np.expm1(-1 / scale)
        return counts + generator.geometric(p, len(counts)) - generator.geometric(p, len(counts))
