"""A release of noisy counts, and what it promises.

A `Release` shows exact counts of cells that are large enough. A `NoisyRelease` shows counts of all pairs, each with
noise that hides whether any one person, or trip, is in the data at all. It has the same surface, but nothing in it can
be recounted, and hardly any measure of it may be published: a measure that is computed from the true counts would
disclose something of them without noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.hierarchy import Ints
from flowveil.release.plan import Plan
from flowveil.release.release import Matrix, Publishable
from flowveil.slices import Key, SlicedFlows


@dataclass(frozen=True)
class NoiseStep:
    """One of several parts of a budget: what was counted with it, and the noise that this part pays for.

    Attributes:
        of: what was counted: ``all``, or the level of the zones.
        scale: of the noise; σ where its law is Gaussian.
        deviation: standard deviation of the noise.
        epsilon: the part of ε, where ε is what adds up.
        rho: the part of ρ, where that is.
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
        unit: whom the promise is about: ``person`` or ``trip``.
        epsilon: ε.
        delta: δ; 0 where the promise holds without exception.
        bound: most trips that one unit contributes; 1 for a trip.
        mechanism: how the noise was drawn, as text.
        scale: of the noise on the published counts: its law is P(X = x) proportional to exp(-abs(x) / scale),
            or, where ``rho`` is given, to exp(-x² / (2 scale²)).
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        named = {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in ("steps", "rho", "layers")}
        steps = {"steps": [step.to_dict() for step in self.steps]} if self.steps else {}
        rho = {} if self.rho is None else {"rho": self.rho}
        layers = {} if self.layers == 1 else {"layers": self.layers}
        return {**named, "domain": dict(self.domain), **steps, **rho, **layers}

    def in_words(self) -> str:
        """The promise in a few words: 'ε = 1, δ = 0 for each person with up to 20 trips'."""
        whom = f"each person with up to {self.bound:,} trips" if self.unit == "person" else "each single trip"
        return f"ε = {self.epsilon:g}, δ = {self.delta:g} for {whom}"


class NothingLeftError(InfeasibleError):
    """After noise no pair is left to publish. That is an outcome of the noise too, and has cost what it would have.

    Attributes:
        promise: what the release would have promised.
    """

    def __init__(self, promise: PrivacyLoss) -> None:
        least = "" if promise.threshold is None else f": none reaches the threshold of {promise.threshold:,}"
        super().__init__(
            f"No pair is left to publish after noise{least}. Hint: a coarser level, a larger epsilon, or a smaller "
            "bound. That nothing is left has cost ε like any outcome."
        )
        self.promise = promise


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts:
    """What a noisy method returns.

    Attributes:
        plan: the zones, and in which of them the flows lie; ``kept`` marks the flows inside the domain.
        cells: the pairs that are published with their noisy trips, at least 1, sorted; numbers of the plan's zones.
            There may be none.
        guarantee: what they promise.
        left_out: trips of the input that were not counted, by reason. Exact, so never published.
        zones_are_public: the zones' numbers of tiles owe nothing to the data.
        repeatable: the noise came from a seed and hides nothing.
    """

    plan: Plan
    cells: Cells
    guarantee: PrivacyLoss
    left_out: Mapping[str, int]
    zones_are_public: bool
    repeatable: bool


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRelease(Matrix):
    """Noisy counts that may be published.

    Made by `flowveil.anonymize` with a method that adds noise.

    Attributes:
        input: the flows that were counted. Internal: never written.
        counts: what the method returned.
        method: name of the method.
        parameters: what the user chose.
    """

    input: Flows
    counts: NoisyCounts
    method: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, flows: Flows, counts: NoisyCounts, *, method: str, parameters: Mapping[str, Any]) -> NoisyRelease:
        """Put together what a method returned and how it was called.

        Raises:
            NothingLeftError: no pair is left.
        """
        if len(counts.cells) == 0:
            raise NothingLeftError(counts.guarantee)
        return cls(flows, counts, method, MappingProxyType(dict(parameters)))

    @property
    def kind(self) -> Literal["noisy"]:
        """Noisy counts of one matrix."""
        return "noisy"

    @property
    def plan(self) -> Plan:
        """The zones, and in which of them the flows lie."""
        return self.counts.plan

    @property
    def cells(self) -> Cells:
        """The published pairs with their noisy trips."""
        return self.counts.cells

    @property
    def guarantee(self) -> PrivacyLoss:
        """What the release promises."""
        return self.counts.guarantee

    @property
    def left_out(self) -> Mapping[str, int]:
        """Trips that were not counted, by reason. For the data holder: exact, so never published."""
        return self.counts.left_out

    @cached_property
    def cell_of_flow(self) -> Ints:
        """Returns the published pair around each flow's pair of tiles; -1 for none."""
        plan, cells = self.plan, self.cells
        width = np.int64(len(plan.destination_zones))
        published = cells.origin.astype(np.int64) * width + cells.destination
        wanted = plan.origin_zone.astype(np.int64) * width + plan.destination_zone
        at = np.minimum(np.searchsorted(published, wanted), len(published) - 1)
        found = plan.kept & (published[at] == wanted)
        return np.where(found, at, -1).astype(np.int32)

    def check_publishable(self) -> None:
        """Refuse noise that can be repeated.

        Raises:
            ParameterError: the noise was drawn from a seed.
        """
        if self.counts.repeatable:
            raise ParameterError(
                "This release cannot be written: its noise was drawn from a seed (unsafe_seed_for_tests), and "
                "an attacker who guesses the seed can remove the noise. Hint: leave the option out; noise "
                "is then drawn from the operating system."
            )

    def __repr__(self) -> str:
        # Never anything exact: a repr ends up in logs and tracebacks.
        return f"<NoisyRelease {self.method}: {len(self.cells)} pairs, {self.guarantee.in_words()}>"


@dataclass(frozen=True, eq=False, repr=False)
class NoisySlices(Publishable):
    """Noisy counts of many slices.

    Made by `flowveil.anonymize_slices` with a method that adds noise.

    Attributes:
        input: the flows of all slices. Internal: never written.
        keys: the slices in which noise left something to publish, coarsest kinds first.
        releases: their noisy counts; the input of each is what was counted in it.
        guarantee: what all of them promise together.
        method: name of the method.
        parameters: what the user chose, the declared slices included.
    """

    input: SlicedFlows
    keys: tuple[Key, ...]
    releases: tuple[NoisyRelease, ...]
    guarantee: PrivacyLoss
    method: str
    parameters: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def kind(self) -> Literal["noisy"]:
        """Noisy counts."""
        return "noisy"

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return self.input.columns

    @property
    def parts(self) -> tuple[tuple[Key, NoisyRelease], ...]:
        """The matrices with their slices."""
        return tuple(zip(self.keys, self.releases, strict=True))

    def check_publishable(self) -> None:
        """Refuse noise that can be repeated."""
        for release in self.releases:
            release.check_publishable()

    def __repr__(self) -> str:
        return f"<NoisySlices {self.method}: {len(self)} slices, {self.guarantee.in_words()}>"
