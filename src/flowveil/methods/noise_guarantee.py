"""What a noisy method promises for its flows: ε, δ, the unit and the bound, checked once for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.methods.epsilon import check_epsilon, noise_scale

#: With this chance or more that a person's trips are simply published, nothing would be promised.
LARGEST_DELTA = 0.01
#: Noise so large that counts mean nothing; also what the sampler's tables are made for.
LARGEST_SCALE = 1e6


@dataclass(frozen=True)
class NoiseGuarantee:
    """The parameters, checked.

    Attributes:
        unit: whom the promise is about: a person where persons are known, else a trip.
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
        """Check what a user asked of a method.

        Raises:
            ParameterError: something is missing or out of its range, or the bound does not fit the input.
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
                f"Noise of scale bound / epsilon = {most / epsilon:,.0f} leaves nothing of the counts; at most "
                f"{LARGEST_SCALE:,.0f} is allowed. Hint: a smaller bound or a larger epsilon."
            )
        return cls(unit, epsilon, float(delta), most)

    def scale(self) -> Fraction:
        """The scale of discrete Laplace noise for the whole ε: exact, and at least bound / ε."""
        return Fraction(noise_scale(self.bound, self.epsilon))


def rounded_up(scale: Fraction) -> float:
    """A scale as reports say it: never less than it is."""
    said = float(scale)
    return said if Fraction(said) >= scale else math.nextafter(said, math.inf)


def _unit_and_bound(method: str, flows: Flows, bound: int | None) -> tuple[Literal["person", "trip"], int]:
    if flows.people is None:
        if bound is not None:
            raise ParameterError(
                "bound is given, but the input has no person column: who made which trip is not known, so nobody's "
                "trips can be bounded. Hint: name the column with --person (person=...), or leave the bound out; the "
                "unit is then a trip."
            )
        return "trip", 1
    if bound is None:
        raise ParameterError(
            f"{method} needs a bound where persons are known: the most trips of one person that are counted. It must "
            "not be read off the data. Hint: what a person plausibly makes in the time the data covers, such as 4 "
            "trips a day."
        )
    return "person", int(bound)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
