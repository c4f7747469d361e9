"""Runs every attack on published releases.

With the trips, also says how much of the result is true. Internal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from flowveil.analysis.shadow_releases import Membership, Minimality, membership, minimality
from flowveil.core.errors import ParameterError
from flowveil.core.values import value_columns
from flowveil.published.document import PagePart, fill, page
from flowveil.release.folder import taken_at_its_word
from flowveil.request.keywords import ReadingKeywords
from flowveil.verify.audit.parts import Parts, bounded_parts
from flowveil.verify.audit.published import PublishedRelease, disjoint, read_release
from flowveil.verify.audit.single_release import (
    Dominance,
    Homogeneity,
    Linkage,
    dominance,
    homogeneity,
    linkage,
    sum_dominance,
)
from flowveil.verify.audit.subtraction import ReleaseGroups, confined_groups
from flowveil.verify.audit.trips import place_trips, read_trips_of, recounted, slices_of

if TYPE_CHECKING:
    from flowveil.core.flows import Flows

#: Figures that `fail_on` may limit: the share of each attack, of the worst release.
FIGURES = ("homogeneity", "dominance", "linkage", "membership", "minimality")


@dataclass(frozen=True)
class AuditOfOne:
    """What was found in one release."""

    name: str  # its folder
    homogeneity: (
        tuple[Homogeneity, Homogeneity] | None
    )  # of origins, and of destinations; None for noise
    dominance: Dominance | None = (
        None  # with the trips; None where they were not given, or persons are not known
    )
    linkage: tuple[Linkage, ...] = ()
    membership: Membership | None = None
    # What zones that were not divided say; None for boxes, folds, noise and slices.
    minimality: Minimality | None = None
    true_cells: bool | None = (
        None  # whether the cells hold the trips that they say; None without the trips
    )
    # Pairs of tiles that are proven to have trips; None where no rule of the method bounds them.
    parts: Parts | None = None
    noisy: bool = False  # whether it is of noisy counts, which are not attacked

    def figures(self) -> dict[str, float]:
        """Returns the share of each attack."""
        shares = {
            "homogeneity": (
                None if self.homogeneity is None else max(end.share for end in self.homogeneity)
            ),
            "dominance": None if self.dominance is None else self.dominance.share,
            "linkage": max((one.alone for one in self.linkage), default=None),
            "membership": None if self.membership is None else max(self.membership.advantage, 0.0),
            "minimality": None if self.minimality is None else self.minimality.share,
        }
        return {name: share for name, share in shares.items() if share is not None}

    def to_dict(self) -> dict[str, Any]:
        """Counts and shares."""
        names = ("dominance", "membership", "minimality", "parts")
        single = {name: getattr(self, name) for name in names}
        return {
            "release": self.name,
            "homogeneity": (
                None if self.homogeneity is None else [end.to_dict() for end in self.homogeneity]
            ),
            **{name: None if found is None else found.to_dict() for name, found in single.items()},
            "linkage": [one.to_dict() for one in self.linkage],
            "true_cells": self.true_cells,
            "attacked": not self.noisy,
        }


class Verdict(StrEnum):
    """Outcome of an audit."""

    DISCLOSED = "disclosed"
    CONFINED = "confined"
    CLEAN = "nothing found, everything compared"
    INCOMPLETE = "not everything compared"


#: What is printed, on pages and in the workbench. Only a complete comparison says that nothing was
#: found.
SENTENCES = {
    Verdict.DISCLOSED: "Something is disclosed",
    Verdict.CONFINED: "Trips of parts of published cells are proven, within bounds",
    Verdict.CLEAN: "Nothing below the guarantee was found, and everything was compared",
    Verdict.INCOMPLETE: "Not everything could be compared",
}


@dataclass(frozen=True)
class Audit:
    """What a reader of these releases can compute."""

    groups: ReleaseGroups  # what they confine together
    releases: tuple[AuditOfOne, ...]  # what each discloses alone
    fail_on: Mapping[str, float] = field(
        default_factory=dict
    )  # the largest share that is accepted of a figure
    checked: int = (
        0  # with the trips: how many groups were recounted, and how many lie within their bounds
    )
    true: int = 0

    def __repr__(self) -> str:
        return f"<Audit of {len(self.releases)} releases, {len(self.failures)} failures>"

    @property
    def failures(self) -> list[str]:
        """Returns the reasons why the audit fails; empty if it passes."""
        return [*self._disclosed, *self._confined]

    @property
    def _confined(self) -> list[str]:
        """What cells prove about their parts."""
        return [
            f"{one.name}: {one.parts.cells:,} cells prove trips, fewer than k, between"
            f" {one.parts.parts:,} pairs of tiles; of {one.parts.certain:,} the number, and the"
            f" bounds of {one.parts.close:,} leave at most three values. Hint: publish with secret"
            " thresholds."
            for one in self.releases
            if one.parts is not None and one.parts.parts
        ]

    @property
    def _disclosed(self) -> list[str]:
        """What is computed, and figures above their limit."""
        found = []
        if len(self.groups):
            found.append(
                f"Subtraction confines {len(self.groups):,} groups of trips below the guarantee; "
                f"{self.groups.single_trips:,} of them are exactly one trip."
            )
        for name, limit in sorted(self.fail_on.items()):
            shares = [one.figures()[name] for one in self.releases if name in one.figures()]
            if not shares:
                found.append(
                    f"{name.capitalize()} was to be at most {limit:g} and was not computed."
                )
            elif max(shares) > limit:
                found.append(f"{name.capitalize()} is {max(shares):.3g}, above {limit:g}.")
        return found

    @property
    def not_compared(self) -> list[str]:
        """Returns what was not compared, and why; empty if everything was."""
        names = [one.name for one in self.releases]
        found = [
            f"{' and '.join(names[i] for i in dict.fromkeys(places))}: {reason}."
            for places, reason in self.groups.unchecked
        ]
        noisy = (one.name for one in self.releases if one.noisy)
        found += [f"{name}: its counts carry noise, and were not attacked." for name in noisy]
        if self.groups.contradictions:
            found.append(
                f"In {self.groups.contradictions:,} areas the releases contradict each other: they"
                " do not count the same trips."
            )
        return found

    @property
    def verdict(self) -> Verdict:
        """Something disclosed; else parts confined; else not everything compared; else nothing."""
        if self._disclosed or any(one.parts and one.parts.certain for one in self.releases):
            return Verdict.DISCLOSED
        if self._confined:
            return Verdict.CONFINED
        return Verdict.INCOMPLETE if self.not_compared else Verdict.CLEAN

    @property
    def sentence(self) -> str:
        """The verdict for people, without a full stop."""
        return SENTENCES[self.verdict]

    def to_dict(self, *, show_cells: bool = False) -> dict[str, Any]:
        """The audit as plain data.

        ``show_cells`` also lists the groups with zones and bounds: they are the attack.
        """
        content: dict[str, Any] = {
            "internal": True,
            "verdict": self.verdict.value,
            "not_compared": self.not_compared,
            "confined": len(self.groups),
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
    **reading: Unpack[ReadingKeywords],
) -> Audit:
    """Attacks published releases as a reader would.

    ``against`` are their trips, which say how much of it is true.

    Args:
        fail_on: the largest accepted share by figure: homogeneity (zones that send 90 % to one
            zone), dominance (cells that are mostly one person's), linkage (persons alone with up to
            four known trips), membership (advantage), minimality (zones whose short parts are given
            away by their not being divided).
        shadows: runs of the method with the trips: pairs of runs for each person (membership), and
            zones to try (minimality); 0 skips both.
        **reading: how to read the trips, where it should differ from what a report says.

    Examples:
        >>> flowveil.audit_releases(["release"], against="trips.csv")
        <Audit of 1 releases, 0 failures>
    """
    limits = dict(fail_on or {})
    unknown = sorted(set(limits) - set(FIGURES))
    if unknown or not all(0 <= limit <= 1 for limit in limits.values()):
        raise ParameterError(
            f"What an audit may fail on is a share between 0 and 1 of {', '.join(FIGURES)}; found"
            f" {unknown or limits}."
        )
    if shadows < 0 or shadows == 1:
        raise ParameterError(
            f"shadows must be 0 or at least 2: half of them set a threshold; found {shadows}."
        )
    if not releases:
        raise ParameterError("No release to audit.")
    read = [r if isinstance(r, PublishedRelease) else read_release(r) for r in releases]
    with taken_at_its_word("', '".join(release.name for release in read)):
        flows = [_flows(release, against, reading) for release in read]
        ones = tuple(
            (
                _audit_slices(release, against, reading)
                if against is not None
                and release.slice_columns
                and release.nodes
                and not release.noisy
                else _audit_one(release, own, shadows, seed)
            )
            for release, own in zip(read, flows, strict=True)
        )
        groups = confined_groups(read)
        groups = replace(groups, unchecked=(*groups.unchecked, *_numbers_not_subtracted(read)))
        bounds = [bounded_parts(release) for release in read]
        ones = tuple(
            one if found is None else replace(one, parts=found[0])
            for one, found in zip(ones, bounds, strict=True)
        )
        return Audit(groups, ones, limits, *recounted(groups.groups, read, flows))


def _numbers_not_subtracted(
    releases: Sequence[PublishedRelease],
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yields pairs of releases that may have numbers of the same values."""
    named = [
        value_columns(one.report["parameters"].get("columns", {})).values() for one in releases
    ]
    for i, j in combinations(range(len(releases)), 2):
        common = {column for _, column in named[i]} & {column for _, column in named[j]}
        if common and not disjoint(releases[i], releases[j]):
            yield (i, j), "means, totals and medians were not subtracted from each other"


def _flows(release: PublishedRelease, against: Any, reading: Mapping[str, Any]) -> Flows | None:
    """The trips of a release.

    None without trips, or without cells of one matrix to place them in.
    """
    # The cells of a revision are of the trips at different times.
    placeable = (
        len(release.matrices) == 1 and release.nodes and not release.noisy and not release.revised
    )
    return read_trips_of(release, against, **reading) if against is not None and placeable else None


def _audit_slices(
    release: PublishedRelease, against: Any, reading: Mapping[str, Any]
) -> AuditOfOne:
    """One sliced release: dominance in all of its finest slices.

    Linkage and membership are of one matrix.
    """
    trips = [
        place_trips(release, flows, matrix)
        for matrix, flows in slices_of(release, against, **reading)
    ]
    persons = bool(trips) and all(one.has_persons for one in trips)
    found = sum_dominance([dominance(one) for one in trips]) if persons else None
    return AuditOfOne(
        release.name,
        homogeneity(release),
        dominance=found,
        true_cells=all(one.counted for one in trips),
    )


def _audit_one(
    release: PublishedRelease, flows: Flows | None, shadows: int, seed: int
) -> AuditOfOne:
    common = None if release.noisy else homogeneity(release)
    if flows is None:
        return AuditOfOne(release.name, common, minimality=minimality(release), noisy=release.noisy)
    trips = place_trips(release, flows)
    persons = trips.has_persons
    # A list of places is not in the folder, so the method cannot be run again, nor parts be
    # compared with it.
    listed = any(
        release.report["parameters"].get(name) is not None for name in ("stricter", "l_places")
    )
    shadows = 0 if listed else shadows
    return AuditOfOne(
        release.name,
        common,
        dominance=dominance(trips) if persons else None,
        linkage=tuple(linkage(release, trips, seed=seed)) if persons else (),
        membership=(
            membership(release, flows, shadows=shadows, seed=seed) if persons and shadows else None
        ),
        minimality=minimality(release, None if listed else flows, tries=shadows, seed=seed),
        true_cells=trips.counted,
    )


# ---- report --------------------------------------------------------------------------------------

WARNING = (
    "this audit says what can be computed from releases, and how much of it is true. It is for the"
    " holder alone."
)

NAMES = ("audit.json", "audit.md", "audit.html")


def audit_files(audit: Audit, *, show_cells: bool = False) -> dict[str, str]:
    """The files of an audit by name: audit.json, audit.md and audit.html."""
    content = audit.to_dict(show_cells=show_cells)
    as_json = (
        json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    )
    return dict(
        zip(NAMES, (as_json, _markdown(audit, content), _page(audit, content)), strict=True)
    )


def audit_lines(audit: Audit) -> Iterator[str]:
    """What was found, in counts."""
    found = audit.groups
    if (
        sum(one.homogeneity is not None for one in audit.releases) > 1
        or found.compared
        or found.unchecked
    ):
        result = "no group is confined below the guarantee"
        if len(found):
            result = (
                f"{len(found):,} groups are confined below the guarantee, {found.single_cells:,} of"
                f" them single cells, {found.single_trips:,} single trips"
            )
        compared = (
            f"{found.compared:,} cells can be compared; {result}"
            if found.compared or len(found)
            else (
                "no cells can be compared"
                if found.unchecked
                else (
                    "no release counts trips that another counts too, unless it was derived from it"
                )
            )
        )
        yield f"Subtraction: {compared}."
    if found.solved or found.bounded:
        yield (
            f"Linear programs: {found.solved:,} groups of overlapping cells were solved exactly"
            f" (HiGHS), {found.bounded:,} only bounded."
        )
    if audit.checked:
        yield (
            f"With the trips: of {audit.checked:,} groups recounted, {audit.true:,} lie within"
            " their bounds."
        )
    for one in audit.releases:
        named = len(audit.releases) > 1
        yield from (
            f"{one.name}: {line}" if named else line[:1].upper() + line[1:]
            for line in _findings(one)
        )


def _findings(one: AuditOfOne) -> Iterator[str]:
    if one.noisy:
        yield (
            "not attacked: its counts are noisy, so nothing certain follows from them. What it"
            " promises is ε, and with the trips flowveil verify says whether its counts can be that"
            " noise."
        )
    for end in one.homogeneity or ():
        verb = (
            "send more than 90% of their trips to"
            if end.end == "origin"
            else "receive more than 90% from"
        )
        yield (
            f"homogeneity: {end.above:,} of {end.zones:,} {end.end} zones {verb} one zone "
            f"(l = {end.l_distinct}, by entropy {end.l_entropy:.1f}; t = {end.t:.2f})."
        )
    if one.true_cells is not None:
        yield (
            "every cell has the trips that it states."
            if one.true_cells
            else "cells do NOT have the trips they state."
        )
    if one.dominance is not None:
        d = one.dominance
        yield (
            f"dominance: in {d.one:,} of {d.cells:,} cells one person makes more than half of the"
            f" trips, in {d.two:,} two make more than 80%; {d.p_percent:,} fail the p%-rule (15%),"
            f" {d.n_k:,} the (2, 85%)-rule."
        )
    for link in one.linkage:
        known = "1 known trip" if link.known == 1 else f"{link.known} known trips"
        yield (
            f"linkage with {known}: {link.alone:.1%} of persons are alone in the release,"
            f" {link.raw_alone:.1%} in the trips; a further destination is guessed in"
            f" {link.guessed:.1%} of cases, from the margins in {link.from_margin:.1%}."
        )
    if one.membership is not None:
        m = one.membership
        yield (
            f"membership: advantage {m.advantage:.2f} (95%: {m.low:.2f} to {m.high:.2f}) over"
            f" {m.shadows} releases."
        )
    sentence = one.minimality and one.minimality.in_words()
    if sentence:
        yield f"minimality: {sentence}."


def _sections(audit: Audit) -> list[tuple[str, str, list[str]]]:
    """Anchor, title and lines of each section.

    What was not compared and what is disclosed only where something is.
    """
    optional = [
        ("not-compared", "What was not compared", audit.not_compared),
        ("verdict", "What is disclosed", audit.failures),
    ]
    return [
        *(section for section in optional if section[2]),
        ("found", "What was computed", list(audit_lines(audit))),
    ]


def _markdown(audit: Audit, content: Mapping[str, Any]) -> str:
    lines = [
        "# Audit of published releases",
        "",
        f"**Internal, not for publication:** {WARNING}",
        "",
    ]
    lines += [f"**{audit.sentence}.**"]
    for _, title, findings in _sections(audit):
        lines += ["", f"## {title}", "", *(f"- {line}" for line in findings)]
    if "groups" in content:
        lines += [
            "",
            "## Groups",
            "",
            "| kind | origin | destination | smallest | largest |",
            "|---|---|---|---|---|",
        ]
        for group in content["groups"]:
            cells = [
                str(group[name]).replace("|", "\\|")
                for name in ("kind", "origin", "destination", "low", "high")
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _page(audit: Audit, content: Mapping[str, Any]) -> str:
    parts = [
        PagePart(name, title, fill("list.html", lines=lines))
        for name, title, lines in _sections(audit)
    ]
    if "groups" in content:
        rows = [
            (
                f"{g['origin']} to {g['destination']}",
                f"{g['kind']}: {g['low']:g} to {g['high']:g} {g['unit']}",
            )
            for g in content["groups"]
        ]
        parts.append(PagePart("groups", "Groups", fill("pairs.html", rows=rows)))
    noisy = sum(one.noisy for one in audit.releases)
    kinds = (
        (len(audit.releases) - noisy, "attacked as a reader would"),
        (noisy, "of noisy counts, not attacked"),
    )
    lead = "; ".join(f"{n:,} release{'s' if n > 1 else ''}, {how}" for n, how in kinds if n) + "."
    return page(
        title="Audit of published releases",
        heading=audit.sentence,
        lead=lead,
        parts=parts,
        internal=WARNING,
    )
