"""The guarantee of a noisy method: ε, δ, unit and bound, validated in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.methods.epsilon import check_epsilon, noise_scale

#: Largest δ: the probability with which a person's trips may be published unprotected.
LARGEST_DELTA = 0.01
#: Largest noise scale: beyond it counts are useless, and the sampler's tables do not cover it.
LARGEST_SCALE = 1e6


@dataclass(frozen=True)
class NoiseGuarantee:
    """Validated parameters.

    Attributes:
        unit: the protected unit: a person if persons are known, else a trip.
        epsilon, delta: ε and δ.
        bound: most trips that one unit contributes; 1 for a trip.
    """

    unit: Literal["person", "trip"]
    epsilon: float
    delta: float
    bound: int

    @classmethod
    def from_options(
        cls, method: str, flows: Flows, *, epsilon: float | None, delta: float, bound: int | None, seed: int | None
    ) -> NoiseGuarantee:
        """Validates the options of a method.

        Raises:
            ParameterError: an option is missing or out of range, or the bound does not fit the input.
        """
        if epsilon is None:
            raise ParameterError(
                f"{method} needs epsilon, the ε of differential privacy: how much one person may change the "
                "probability of any release. Hint: epsilon=1 is a common choice; smaller protects more."
            )
        epsilon = check_epsilon(epsilon)
        if not _is_number(delta) or not 0 <= delta <= LARGEST_DELTA:
            raise ParameterError(
                f"delta must be at least 0 and at most {LARGEST_DELTA}; found {delta!r}. With probability δ the trips "
                "of a person may simply be published. Hint: far less than one over the number of persons."
            )
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | np.integer) or bound < 1):
            raise ParameterError(f"bound must be a whole number of at least 1; found {bound!r}.")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ParameterError(f"unsafe_seed_for_tests must be a whole number of at least 0; found {seed!r}.")
        unit, most = _unit_and_bound(method, flows, bound)
        if most / epsilon > LARGEST_SCALE:
            raise ParameterError(
                f"Noise of scale bound / epsilon = {most / epsilon:,.0f} makes the counts useless; at most "
                f"{LARGEST_SCALE:,.0f} is allowed. Hint: a smaller bound or a larger epsilon."
            )
        return cls(unit, epsilon, float(delta), most)

    def scale(self) -> Fraction:
        """Returns the scale of discrete Laplace noise for the whole ε: exact, and at least bound / ε."""
        return Fraction(noise_scale(self.bound, self.epsilon))


def rounded_up(scale: Fraction) -> float:
    """Returns the scale as a float for reports, rounded up."""
    steps = float(scale)
    return steps if Fraction(steps) >= scale else math.nextafter(steps, math.inf)


def _unit_and_bound(method: str, flows: Flows, bound: int | None) -> tuple[Literal["person", "trip"], int]:
    if flows.people is None:
        if bound is not None:
            raise ParameterError(
                "bound is given, but the input has no person column, so the trips of a person cannot be bounded. "
                "Hint: name the column with --person (person=...), or omit bound; the unit is then a trip."
            )
        return "trip", 1
    if bound is None:
        raise ParameterError(
            f"{method} needs a bound if persons are known: most trips of one person that are counted. Do not derive "
            "it from the data. Hint: what is plausible in the time that the data covers, such as 4 trips a day."
        )
    return "person", int(bound)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
