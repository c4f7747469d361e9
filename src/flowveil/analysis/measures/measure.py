"""The types of measures: a `Measure`, the `Subject` it is computed from, and `Slices` that are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from flowveil.guarantee import Guarantee
    from flowveil.hierarchy import Floats
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release

Value = float | int | None
Values = dict[str, Value]
T = TypeVar("T")

#: A measure of noisy counts is ``defined`` (compared with the true counts), ``void`` (None) or ``absent`` (not listed).
OfNoise = Literal["defined", "void", "absent"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A release counted on one basis.

    Attributes:
        release: with its input and its plan.
        basis: trips or weight.
    """

    release: Release | NoisyRelease
    basis: str
    _shared: dict[Any, Any] = field(default_factory=dict)

    @property
    def guarantee(self) -> Guarantee:
        """The thresholds of cells.

        Raises:
            TypeError: the counts are noisy and have no thresholds.
        """
        if self.release.kind == "noisy":
            raise TypeError("noisy counts have no threshold")
        return self.release.guarantee

    def share(self, work: Callable[[Subject], T]) -> T:
        """Returns the result of a function of the subject, computed once for all measures."""
        if work not in self._shared:
            self._shared[work] = work(self)
        result: T = self._shared[work]
        return result

    @cached_property
    def volume(self) -> Floats:
        """The volume of each published cell."""
        return self.release.cells.volume(self.basis).astype(np.float64)

    @cached_property
    def total(self) -> float:
        """The input volume."""
        return self.release.input.total(self.basis)

    @cached_property
    def published(self) -> float:
        """The published volume."""
        return self.release.cells.total(self.basis)

    @cached_property
    def sizes(self) -> tuple[Floats, Floats]:
        """The tiles in the origin zone and in the destination zone of each published cell."""
        cells, plan = self.release.cells, self.release.plan
        return (
            plan.origin_zones.size[cells.origin].astype(np.float64),
            plan.destination_zones.size[cells.destination].astype(np.float64),
        )

    @cached_property
    def places(self) -> Floats:
        """The number of tile pairs in each published cell, times its time steps if time is folded."""
        size_o, size_d = self.sizes
        timed = self.release.plan.timed
        return size_o * size_d if timed is None else size_o * size_d * timed.steps[self.release.cells.origin]


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices that are measured together, on one basis.

    Attributes:
        releases: the releases of the published slices.
        own: the measures of each.
        lost: the volume of each unpublished slice.
        class_size: the volume of a cell of k, by all trips.
    """

    releases: Sequence[Release | NoisyRelease]
    own: Sequence[Values]
    lost: Floats
    class_size: float
    basis: str

    @cached_property
    def whole(self) -> Floats:
        """The input volume of each published slice."""
        return np.array([r.input.total(self.basis) for r in self.releases])

    @cached_property
    def shown(self) -> Floats:
        """The published volume of each."""
        return np.array([r.cells.total(self.basis) for r in self.releases])

    @property
    def total(self) -> float:
        """The input volume of all slices, published or not."""
        return float(self.whole.sum() + self.lost.sum())

    def of(self, key: str) -> list[Value]:
        """Returns a measure of each slice."""
        return [own[key] for own in self.own]

    def mean(self, values: Sequence[Value]) -> float | None:
        """Returns the mean over the slices with a value, weighted by published volume."""
        known = [(float(v), w) for v, w in zip(values, self.shown, strict=True) if v is not None and w > 0]
        if not known:
            return None
        found, weights = zip(*known, strict=True)
        return float(np.average(found, weights=weights))


Combine = Callable[[Slices, str], Value]


def averaged(slices: Slices, key: str) -> float | None:
    """Combine by the mean over the published volume."""
    return slices.mean(slices.of(key))


def added(slices: Slices, key: str) -> int | None:
    """Combine by summing; None if one slice has no value."""
    values = slices.of(key)
    return None if None in values else int(sum(v for v in values if v is not None))


def smallest(slices: Slices, key: str) -> Value:
    """Combine by the smallest known value."""
    return min((v for v in slices.of(key) if v is not None), default=None)


def unknown(_: Slices, __: str) -> None:
    """Combine to None: the measure is not defined for several slices."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of a release.

    Attributes:
        key: its name in JSON.
        title, meaning: for pages.
        compute: returns the exact value, or None if it does not exist.
        combine: returns the value of several slices together; None if it is not listed for them.
        of_noise: see `OfNoise`.
        of_counts: whether it is listed for exact counts.
        of_times: whether it is listed only if time is folded.
    """

    key: str
    title: str
    meaning: str
    compute: Callable[[Subject], Value]
    combine: Combine | None
    of_noise: OfNoise = "absent"
    of_counts: bool = True
    of_times: bool = False
