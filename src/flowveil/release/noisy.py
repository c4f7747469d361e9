"""A release of noisy counts, and what it promises.

A `NoisyRelease` shows counts of all pairs, each with noise that hides whether any one person, or trip, is in the data.
It has the surface of a `Release`, but nothing in it can be recounted, and no measure computed from the true counts may
be published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.hierarchy import Ints
from flowveil.release.plan import Plan
from flowveil.release.release import Family, Matrix


@dataclass(frozen=True)
class NoiseStep:
    """One of several parts of a budget (of ε or of ρ, whichever adds up), and the noise that this part pays for.

    ``of`` says what was counted: ``all``, or the level of the zones. The scale of Gaussian noise is σ.
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

    Two inputs that differ in everything one person contributes (all trips of that person; or in a single trip, where
    persons are not known) give any set of possible releases with probabilities P and Q such that P <= exp(ε) Q + δ.

    Attributes:
        bound: most trips that one unit contributes; 1 for a trip.
        mechanism: how the noise was drawn, as text.
        scale: of the noise on the published counts: P(X = x) is proportional to exp(-abs(x) / scale), or, where ``rho``
            is given, to exp(-x² / (2 scale²)).
        deviation: standard deviation of the noise.
        threshold: smallest count that is published; None where pairs are listed whether they have trips or not.
        domain: which pairs could have been published, and where the list of zones comes from.
        steps: the parts of the budget, where it was spent in several; the last is that of the published counts.
        rho: ρ of zero-concentrated privacy, from which ε and δ follow, where the noise is Gaussian; else None.
        layers: of several matrices, how many of them each trip is in; ε and δ are as many times those of one, to which
            scale, steps and rho belong.
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
    layers: int = 1
    kind: ClassVar[Literal["noisy"]] = "noisy"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        unset: dict[str, Any] = {"steps": (), "rho": None, "layers": 1}
        stated = {name: value for name, value in vars(self).items() if unset.get(name, ...) != value}
        steps = {"steps": [step.to_dict() for step in self.steps]} if self.steps else {}
        return {**stated, "domain": dict(self.domain), **steps}

    def in_words(self) -> str:
        """The promise in a few words: 'ε = 1, δ = 0 for each person with up to 20 trips'."""
        whom = f"each person with up to {self.bound:,} trips" if self.unit == "person" else "each single trip"
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} for {whom}"


@dataclass(frozen=True)
class Perturbation:
    """What a release of perturbed counts states: how far a count may be off. No k and no ε is claimed.

    ``maximum`` and ``deviation`` bound the perturbation of a count, ``key`` is the fingerprint of the secret key (None
    for trials without one), ``domain`` says which pairs are listed, ``details`` what else of the method a reader needs.
    """

    mechanism: str
    maximum: int
    deviation: float
    key: str | None
    domain: Mapping[str, Any]
    details: Mapping[str, Any]
    kind: ClassVar[Literal["perturbed"]] = "perturbed"
    unit: ClassVar[Literal["trip"]] = "trip"

    @property
    def one_table(self) -> bool:
        """Whether further tables of the same trips reveal more: their counts are exact, or perturbed in another way."""
        return self.details.get("mode") == "controlled" or bool(self.details.get("small_only"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        named = {n: getattr(self, n) for n in ("unit", "mechanism", "maximum", "deviation", "key")}
        return {**named, "domain": dict(self.domain), **self.details}

    def in_words(self) -> str:
        """The statement in a few words."""
        return f"counts perturbed by at most {self.maximum:,}"


class NothingLeftError(InfeasibleError):
    """After noise no pair is left to publish. That outcome has cost what the release would have, its ``promise``."""

    def __init__(self, promise: PrivacyLoss) -> None:
        least = "" if promise.threshold is None else f": none reaches the threshold of {promise.threshold:,}"
        super().__init__(
            f"No pair is left to publish after noise{least}. Hint: a coarser level, a larger epsilon, or a smaller "
            "bound. That nothing is left has cost ε like any outcome."
        )
        self.promise = promise


def nothing_left(guarantee: PrivacyLoss | Perturbation) -> InfeasibleError:
    """Returns the error of a release without cells."""
    if isinstance(guarantee, PrivacyLoss):
        return NothingLeftError(guarantee)
    return InfeasibleError("No pair is left to publish: all counts became 0. Hint: a coarser level.")


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts:
    """What a noisy method returns.

    Attributes:
        plan: the zones, and in which of them the flows lie; ``kept`` marks the flows inside the domain.
        cells: the published pairs with their noisy trips, at least 1, sorted; there may be none.
        left_out: trips of the input that were not counted, by reason. Exact, so never published.
        repeatable: the noise came from a seed and hides nothing.
    """

    plan: Plan
    cells: Cells
    guarantee: PrivacyLoss | Perturbation
    left_out: Mapping[str, int]
    repeatable: bool


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRelease(NoisyCounts, Matrix):
    """Noisy counts that may be published, made by `flowveil.anonymize`; the input is internal and never written."""

    input: Flows
    method: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, flows: Flows, counts: NoisyCounts, *, method: str, parameters: Mapping[str, Any]) -> NoisyRelease:
        """Returns the release; raises NothingLeftError if no pair is left."""
        if len(counts.cells) == 0:
            raise nothing_left(counts.guarantee)
        return cls(**vars(counts), input=flows, method=method, parameters=MappingProxyType(dict(parameters)))

    @property
    def kind(self) -> Literal["noisy", "perturbed"]:
        """Noisy counts of one matrix, with an ε or without."""
        return self.guarantee.kind

    @cached_property
    def cell_of_flow(self) -> Ints:
        """Returns the published pair around each flow's pair of tiles; -1 for none."""
        return np.where(self.plan.kept, self.plan.cells_around(self.cells), -1).astype(np.int32)

    def check_publishable(self) -> None:
        """Raises ParameterError if the noise was drawn from a seed, or without a secret key."""
        if self.repeatable and self.kind == "perturbed":
            raise ParameterError("This release cannot be written: it was made without a secret key. Hint: key_file.")
        if self.repeatable:
            raise ParameterError(
                "This release cannot be written: its noise was drawn from a seed (unsafe_seed_for_tests), and "
                "an attacker who guesses the seed can remove the noise. Hint: leave the option out; noise "
                "is then drawn from the operating system."
            )

    def __repr__(self) -> str:
        # Never anything exact: a repr ends up in logs and tracebacks.
        return f"<NoisyRelease {self.method}: {len(self.cells)} pairs, {self.guarantee.in_words()}>"


@dataclass(frozen=True, eq=False, repr=False)
class NoisySlices(Family):
    """Noisy counts of many slices, made by `flowveil.anonymize_slices` with a method that adds noise.

    ``keys`` are the slices in which noise left something to publish; ``guarantee`` is what all promise together.
    """

    releases: tuple[NoisyRelease, ...]
    guarantee: PrivacyLoss | Perturbation

    @property
    def kind(self) -> Literal["noisy", "perturbed"]:
        """Noisy counts, with an ε or without."""
        return self.guarantee.kind

    def check_publishable(self) -> None:
        """Refuse noise that can be repeated."""
        for release in self.releases:
            release.check_publishable()

    def __repr__(self) -> str:
        return f"<NoisySlices {self.method}: {len(self)} slices, {self.guarantee.in_words()}>"
