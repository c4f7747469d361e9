"""Runs every attack on published releases; with the trips, also says how much of the result is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.audit.minimality import Minimality, minimality
from flowveil.audit.published import PublishedRelease, read_release
from flowveil.audit.shadow_releases import Membership, membership
from flowveil.audit.single_release import (
    Dominance,
    Homogeneity,
    Linkage,
    dominance,
    homogeneity,
    linkage,
    sum_dominance,
)
from flowveil.audit.subtraction import Groups, confined_groups
from flowveil.audit.trips import place_trips, read_trips_of, recounted, slices_of
from flowveil.errors import ParameterError
from flowveil.release.folder import taken_at_its_word

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: Figures that `fail_on` may limit: the share of each attack, of the worst release.
FIGURES = ("homogeneity", "dominance", "linkage", "membership", "minimality")


@dataclass(frozen=True)
class AuditOfOne:
    """What was found in one release.

    Attributes:
        name: its folder.
        homogeneity: of origins, and of destinations; None for noise.
        dominance, linkage, membership: with the trips; None where they were not given, or persons are not known.
        minimality: what zones that were not divided say; None for boxes, folded times, noise and slices.
        true_cells: whether the cells hold the trips that they say; None without the trips.
        noisy: whether it is of noisy counts, which are not attacked.
    """

    name: str
    homogeneity: tuple[Homogeneity, Homogeneity] | None
    dominance: Dominance | None = None
    linkage: tuple[Linkage, ...] = ()
    membership: Membership | None = None
    minimality: Minimality | None = None
    true_cells: bool | None = None
    noisy: bool = False

    def figures(self) -> dict[str, float]:
        """Returns the share of each attack."""
        found = {}
        if self.homogeneity is not None:
            found["homogeneity"] = max(end.share for end in self.homogeneity)
        if self.dominance is not None:
            found["dominance"] = self.dominance.share
        if self.linkage:
            found["linkage"] = max(one.alone for one in self.linkage)
        if self.membership is not None:
            found["membership"] = max(self.membership.advantage, 0.0)
        if self.minimality is not None and self.minimality.share is not None:
            found["minimality"] = self.minimality.share
        return found

    def to_dict(self) -> dict[str, Any]:
        """Counts and shares."""
        return {
            "release": self.name,
            "homogeneity": None if self.homogeneity is None else [end.to_dict() for end in self.homogeneity],
            "dominance": None if self.dominance is None else self.dominance.to_dict(),
            "linkage": [one.to_dict() for one in self.linkage],
            "membership": None if self.membership is None else self.membership.to_dict(),
            "minimality": None if self.minimality is None else self.minimality.to_dict(),
            "true_cells": self.true_cells,
            "attacked": not self.noisy,
        }


class Verdict(StrEnum):
    """Outcome of an audit."""

    DISCLOSED = "disclosed"
    CLEAN = "nothing found, everything compared"
    INCOMPLETE = "not everything compared"


#: What is printed, on pages and in the workbench. Only a complete comparison says that nothing was found.
SENTENCES = {
    Verdict.DISCLOSED: "Something is disclosed",
    Verdict.CLEAN: "Nothing below the guarantee was found, and everything was compared",
    Verdict.INCOMPLETE: "Not everything could be compared",
}


@dataclass(frozen=True)
class Audit:
    """What a reader of these releases can compute.

    Attributes:
        groups: what they confine together.
        releases: what each discloses alone.
        fail_on: the largest share that is accepted of a figure.
        checked, true: with the trips: how many groups were recounted, and how many lie within their bounds.
    """

    groups: Groups
    releases: tuple[AuditOfOne, ...]
    fail_on: Mapping[str, float] = field(default_factory=dict)
    checked: int = 0
    true: int = 0

    @property
    def confined(self) -> int:
        """Groups that are confined above 0 and below the guarantee."""
        return len(self.groups)

    @property
    def failures(self) -> list[str]:
        """Returns the reasons why the audit fails; empty if it passes."""
        found = []
        if len(self.groups):
            found.append(
                f"Subtraction confines {len(self.groups):,} groups of trips below the guarantee; "
                f"{self.groups.single_trips:,} of them are exactly one trip."
            )
        for name, limit in sorted(self.fail_on.items()):
            shares = [one.figures()[name] for one in self.releases if name in one.figures()]
            if not shares:
                found.append(f"{name.capitalize()} was to be at most {limit:g} and was not computed.")
            elif max(shares) > limit:
                found.append(f"{name.capitalize()} is {max(shares):.3g}, above {limit:g}.")
        return found

    @property
    def not_compared(self) -> list[str]:
        """Returns what was not compared, and why; empty if everything was."""
        names = [one.name for one in self.releases]
        found = []
        for places, reason in self.groups.unchecked:
            found.append(f"{' and '.join(names[i] for i in dict.fromkeys(places))}: {reason}.")
        for one in self.releases:
            if one.noisy:
                found.append(f"{one.name}: its counts carry noise, and were not attacked.")
        if self.groups.contradictions:
            found.append(
                f"In {self.groups.contradictions:,} areas the releases contradict each other: they do not count the "
                "same trips."
            )
        return found

    @property
    def verdict(self) -> Verdict:
        """Something disclosed; else not everything compared; else nothing found."""
        if self.failures:
            return Verdict.DISCLOSED
        return Verdict.INCOMPLETE if self.not_compared else Verdict.CLEAN

    @property
    def sentence(self) -> str:
        """The verdict for people, without a full stop."""
        return SENTENCES[self.verdict]

    def to_dict(self, *, show_cells: bool = False) -> dict[str, Any]:
        """The audit as plain data.

        Args:
            show_cells: also list the groups with their zones and bounds: they carry out the attack.
        """
        content: dict[str, Any] = {
            "internal": True,
            "verdict": self.verdict.value,
            "not_compared": self.not_compared,
            "confined": self.confined,
            "failures": self.failures,
            "subtraction": {**self.groups.to_dict(), "recounted": self.checked, "true": self.true},
            "releases": [one.to_dict() for one in self.releases],
        }
        if show_cells:
            content["groups"] = [
                {name: list(v) if isinstance(v, tuple) else v for name, v in vars(group).items()}
                for group in self.groups.groups
            ]
        return content


def audit(
    releases: Sequence[str | Path | PublishedRelease],
    *,
    against: Any = None,
    fail_on: Mapping[str, float] | None = None,
    shadows: int = 0,
    seed: int = 0,
    **reading: Any,
) -> Audit:
    """Attack published releases as a reader would, and with the trips say how much of it is true.

    Args:
        releases: folders, or what `read_release` returns.
        against: the trips that the releases were made from; without them nothing is read but what is published.
        fail_on: the largest accepted share by figure: homogeneity (zones that send 90 % to one zone), dominance (cells
            that are mostly one person's), linkage (persons alone with up to four known trips), membership (advantage),
            minimality (zones whose short parts are given away by their not being divided).
        shadows: runs of the method with the trips: pairs of runs for each person (membership), and zones to try
            (minimality); 0 skips both.
        seed: of samples.
        **reading: how to read the trips, where it should differ from what a report says.

    Raises:
        ParameterError: no release, or an unknown figure.
    """
    limits = dict(fail_on or {})
    unknown = sorted(set(limits) - set(FIGURES))
    if unknown or not all(0 <= limit <= 1 for limit in limits.values()):
        raise ParameterError(
            f"What an audit may fail on is a share between 0 and 1 of {', '.join(FIGURES)}; found {unknown or limits}."
        )
    if shadows < 0 or shadows == 1:
        raise ParameterError(f"shadows must be 0 or at least 2: half of them set a threshold; found {shadows}.")
    if not releases:
        raise ParameterError("No release to audit.")
    read = [r if isinstance(r, PublishedRelease) else read_release(r) for r in releases]
    with taken_at_its_word("', '".join(release.name for release in read)):
        return _audit_all(read, against, limits, shadows, seed, reading)


def _audit_all(
    read: Sequence[PublishedRelease],
    against: Any,
    limits: Mapping[str, float],
    shadows: int,
    seed: int,
    reading: Mapping[str, Any],
) -> Audit:
    flows = [_flows(release, against, reading) for release in read]
    ones = tuple(
        _audit_slices(release, against, reading)
        if against is not None and release.slice_columns and release.nodes and not release.noisy
        else _audit_one(release, own, shadows, seed)
        for release, own in zip(read, flows, strict=True)
    )
    groups = confined_groups(read)
    return Audit(groups, ones, limits, *recounted(groups.groups, read, flows))


def _flows(release: PublishedRelease, against: Any, reading: Mapping[str, Any]) -> Flows | None:
    """Returns the trips of a release; None without trips, or without cells of one matrix to place them in."""
    # The cells of a revision are of the trips at different times.
    placeable = len(release.matrices) == 1 and release.nodes and not release.noisy and not release.revised
    return read_trips_of(release, against, **reading) if against is not None and placeable else None


def _audit_slices(release: PublishedRelease, against: Any, reading: Mapping[str, Any]) -> AuditOfOne:
    """One sliced release: dominance in all of its finest slices; linkage and membership are of one matrix."""
    trips = [place_trips(release, flows, matrix) for matrix, flows in slices_of(release, against, **reading)]
    persons = bool(trips) and all(one.person is not None for one in trips)
    return AuditOfOne(
        release.name,
        homogeneity(release),
        dominance=sum_dominance([dominance(one) for one in trips]) if persons else None,
        true_cells=all(one.counted for one in trips),
    )


def _audit_one(release: PublishedRelease, flows: Flows | None, shadows: int, seed: int) -> AuditOfOne:
    common = None if release.noisy else homogeneity(release)
    if flows is None:
        return AuditOfOne(release.name, common, minimality=minimality(release), noisy=release.noisy)
    trips = place_trips(release, flows)
    persons = trips.person is not None
    listed = any(release.report["parameters"].get(name) is not None for name in ("stricter", "l_places"))
    if listed:
        # The list of places is not in the folder, so the method cannot be run again, nor parts be compared with it.
        shadows = 0
    return AuditOfOne(
        release.name,
        common,
        dominance=dominance(trips) if persons else None,
        linkage=tuple(linkage(release, trips, seed=seed)) if persons else (),
        membership=membership(release, flows, shadows=shadows, seed=seed) if persons and shadows else None,
        minimality=minimality(release, None if listed else flows, tries=shadows, seed=seed),
        true_cells=trips.counted,
    )
