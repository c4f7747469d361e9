"""Noisy counts, and what they guarantee.

`NoisyCounts` are counts of all pairs, each with noise that protects whether any one person, or
trip, is in the data. Nothing in them can be recounted, and no measure computed from the true counts
may be published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Cells
from flowveil.release.plan import Plan


@dataclass(frozen=True)
class NoiseStep:
    """One of several parts of a budget (of ε or of ρ, whichever adds up), and the noise that this
    part pays for.

    ``of`` says what was counted: ``all``, or the level of the zones. The scale of Gaussian noise is
    σ.
    """

    of: str
    scale: float
    deviation: float
    epsilon: float | None = None
    rho: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class PrivacyLoss:
    """What a noisy release promises: (ε, δ)-differential privacy of one person, or of one trip.

    Two inputs that differ in everything one person contributes (all trips of that person; or in a
    single trip, where persons are not known) give any set of possible releases with probabilities P
    and Q such that P <= exp(ε) Q + δ.

    Attributes:
        bound: most trips that one unit contributes; 1 for a trip.
        mechanism: how the noise was drawn, as text.
        scale: of the noise on the published counts: P(X = x) is proportional to exp(-abs(x) /
            scale), or, where ``rho`` is given, to exp(-x² / (2 scale²)).
        deviation: standard deviation of the noise.
        threshold: smallest count that is published; None where pairs are listed whether they have
            trips or not.
        domain: which pairs could have been published, and where the list of zones comes from.
        steps: the parts of the budget, where it was spent in several; the last is that of the
            published counts.
        rho: ρ of zero-concentrated privacy, from which ε and δ follow, where the noise is Gaussian;
            else None.
    """

    unit: Literal["person", "trip"]
    epsilon: float
    delta: float
    bound: int
    mechanism: str
    scale: float
    deviation: float
    threshold: int | None
    domain: Mapping[str, Any]
    steps: tuple[NoiseStep, ...] = ()
    rho: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        unset: dict[str, Any] = {"steps": (), "rho": None}
        stated = {
            name: value for name, value in vars(self).items() if unset.get(name, ...) != value
        }
        steps = {"steps": [step.to_dict() for step in self.steps]} if self.steps else {}
        return {**stated, "domain": dict(self.domain), **steps}

    def in_words(self) -> str:
        """The promise in a few words: 'ε = 1, δ = 0 for each person with up to 20 trips'."""
        whom = (
            f"each person with up to {self.bound:,} trips"
            if self.unit == "person"
            else "each single trip"
        )
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} for {whom}"


class NothingLeftError(InfeasibleError):
    """After noise no pair is left to publish.

    That outcome has cost what the release would have, its ``promise``.
    """

    def __init__(self, promise: PrivacyLoss) -> None:
        least = (
            ""
            if promise.threshold is None
            else f": none reaches the threshold of {promise.threshold:,}"
        )
        super().__init__(
            f"No pair is left to publish after noise{least}. Hint: a coarser level, a larger"
            " epsilon, or a smaller bound. That nothing is left has cost ε like any outcome."
        )
        self.promise = promise


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts:
    """What a noisy method returns.

    Attributes:
        plan: the zones, and in which of them the flows lie; ``kept`` marks the flows inside the
            domain.
        cells: the published pairs with their noisy trips, at least 1, sorted; there may be none.
        left_out: trips of the input that were not counted, by reason. Exact, so never published.
        repeatable: the noise came from a seed and hides nothing.
    """

    plan: Plan
    cells: Cells
    guarantee: PrivacyLoss
    left_out: Mapping[str, int]
    repeatable: bool
