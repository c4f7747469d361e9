"""One audit: every attack on published releases, and with the trips how much of it is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.audit.dominance import Dominance, dominance
from flowveil.audit.homogeneity import Homogeneity, homogeneity
from flowveil.audit.linkage import Linkage, linkage
from flowveil.audit.membership import Membership, membership
from flowveil.audit.published import PublishedRelease, read_release
from flowveil.audit.subtraction import Groups, confined_groups
from flowveil.audit.suppressed import Suppressed, suppressed_bounds
from flowveil.audit.trips import place_trips, read_trips_of, recounted
from flowveil.errors import ParameterError

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: What `fail_on` may name: the share that each attack comes to, the worst release counting.
FIGURES = ("homogeneity", "dominance", "linkage", "membership")


@dataclass(frozen=True)
class AuditOfOne:
    """What was found in one release.

    Attributes:
        name: its folder.
        suppressed: what is known of the suppressed trips.
        homogeneity: of origins, and of destinations; None for noise.
        dominance, linkage, membership: with the trips; None where they were not given, or persons are not known.
        true_cells: whether the cells hold the trips that they say; None without the trips.
    """

    name: str
    suppressed: Suppressed
    homogeneity: tuple[Homogeneity, Homogeneity] | None
    dominance: Dominance | None = None
    linkage: tuple[Linkage, ...] = ()
    membership: Membership | None = None
    true_cells: bool | None = None

    def figures(self) -> dict[str, float]:
        """The share that each attack comes to."""
        found = {}
        if self.homogeneity is not None:
            found["homogeneity"] = max(end.share for end in self.homogeneity)
        if self.dominance is not None:
            found["dominance"] = self.dominance.share
        if self.linkage:
            found["linkage"] = max(one.alone for one in self.linkage)
        if self.membership is not None:
            found["membership"] = max(self.membership.advantage, 0.0)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Counts and shares."""
        return {
            "release": self.name,
            "suppressed": self.suppressed.to_dict(),
            "homogeneity": None if self.homogeneity is None else [end.to_dict() for end in self.homogeneity],
            "dominance": None if self.dominance is None else self.dominance.to_dict(),
            "linkage": [one.to_dict() for one in self.linkage],
            "membership": None if self.membership is None else self.membership.to_dict(),
            "true_cells": self.true_cells,
        }


@dataclass(frozen=True)
class Audit:
    """What a reader of these releases can compute.

    Attributes:
        groups: what they confine together.
        releases: what each gives by itself.
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
        """Groups that are confined above 0 and below the guarantee, by subtraction or by bounds."""
        return len(self.groups) + sum(one.suppressed.confined for one in self.releases)

    @property
    def failures(self) -> list[str]:
        """Why the audit fails, in words; empty where it does not."""
        found = []
        if len(self.groups):
            found.append(
                f"Subtraction confines {len(self.groups):,} groups of trips below the guarantee; "
                f"{self.groups.single_trips:,} of them are exactly one trip."
            )
        short = sum(one.suppressed.confined for one in self.releases)
        if short:
            found.append(
                f"The suppressed trips of {short:,} matrices are known to be fewer than the guarantee asks for."
            )
        for name, limit in sorted(self.fail_on.items()):
            shares = [one.figures()[name] for one in self.releases if name in one.figures()]
            if not shares:
                found.append(f"{name.capitalize()} was to be at most {limit:g} and was not computed.")
            elif max(shares) > limit:
                found.append(f"{name.capitalize()} is {max(shares):.3g}, above {limit:g}.")
        return found

    def to_dict(self, *, show_cells: bool = False) -> dict[str, Any]:
        """The audit as plain data.

        Args:
            show_cells: also list the groups with their zones and bounds: they carry out the attack.
        """
        content: dict[str, Any] = {
            "internal": True,
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
            that are mostly one person's), linkage (persons alone with up to four known trips), membership (advantage).
        shadows: pairs of shadow releases a person for membership; 0 leaves it out.
        seed: of samples.
        **reading: how to read the trips, where it should differ from what a report says.

    Raises:
        ParameterError: no release, or a figure that is none.
    """
    limits = dict(fail_on or {})
    unknown = sorted(set(limits) - set(FIGURES))
    if unknown or not all(0 <= limit <= 1 for limit in limits.values()):
        raise ParameterError(
            f"What an audit may fail on is a share between 0 and 1 of {', '.join(FIGURES)}; found {unknown or limits}."
        )
    if not releases:
        raise ParameterError("There is no release to audit.")
    read = [r if isinstance(r, PublishedRelease) else read_release(r) for r in releases]
    flows = [_flows(release, against, reading) for release in read]
    ones = tuple(_audit_one(release, own, shadows, seed) for release, own in zip(read, flows, strict=True))
    groups = confined_groups(read)
    return Audit(groups, ones, limits, *recounted(groups.groups, read, flows))


def _flows(release: PublishedRelease, against: Any, reading: Mapping[str, Any]) -> Flows | None:
    """The trips of a release; None where there are none, or no cells of one matrix to place them in."""
    # Zones that were kept from other data may lie above everything that these trips have.
    kept = bool(release.report["parameters"].get("zones_of"))
    placeable = len(release.matrices) == 1 and release.nodes and not release.noisy and not kept
    return read_trips_of(release, against, **reading) if against is not None and placeable else None


def _audit_one(release: PublishedRelease, flows: Flows | None, shadows: int, seed: int) -> AuditOfOne:
    suppressed = suppressed_bounds(release)
    common = None if release.noisy else homogeneity(release)
    if flows is None:
        return AuditOfOne(release.name, suppressed, common)
    trips = place_trips(release, flows)
    persons = trips.person is not None
    return AuditOfOne(
        release.name,
        suppressed,
        common,
        dominance=dominance(trips) if persons else None,
        linkage=tuple(linkage(release, trips, seed=seed)) if persons else (),
        membership=membership(release, flows, shadows=shadows, seed=seed) if persons and shadows else None,
        true_cells=trips.counted,
    )
