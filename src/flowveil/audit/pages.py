"""The report of an audit for the data protection officer: Markdown and a page, both marked internal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowveil.audit.minimality import in_words
from flowveil.published.document import Part, fill, page

if TYPE_CHECKING:
    from flowveil.audit.auditing import Audit, AuditOfOne
    from flowveil.audit.single_release import Linkage

WARNING = "this audit says what can be computed from releases, and how much of it is true. It is for the holder alone."

_ATTACKED, _NOISY = "attacked as a reader would", "of noisy counts, not attacked"
NAMES = ("audit.json", "audit.md", "audit.html")


def audit_files(audit: Audit, *, show_cells: bool = False) -> dict[str, str]:
    """The files of an audit by name: audit.json, audit.md and audit.html."""
    content = audit.to_dict(show_cells=show_cells)
    as_json = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return dict(zip(NAMES, (as_json, _markdown(audit, content), _page(audit, content)), strict=True))


def audit_lines(audit: Audit) -> Iterator[str]:
    """What was found, in counts."""
    found = audit.groups
    if len(audit.releases) > 1 or found.compared:
        result = "no group is confined below the guarantee"
        if len(found):
            result = (
                f"{len(found):,} groups are confined below the guarantee, {found.single_cells:,} of them single cells, "
                f"{found.single_trips:,} single trips"
            )
        compared = (
            f"{found.compared:,} cells can be compared; {result}"
            if found.compared or len(found)
            else "no cells can be compared"
            if found.unchecked
            else "no release counts trips that another counts too, unless it was derived from it"
        )
        yield f"Subtraction: {compared}."
    if found.solved or found.bounded:
        yield (
            f"Linear programs: {found.solved:,} groups of overlapping cells were solved exactly (HiGHS), "
            f"{found.bounded:,} only bounded."
        )
    if audit.checked:
        yield f"With the trips: of {audit.checked:,} groups recounted, {audit.true:,} lie within their bounds."
    for one in audit.releases:
        yield from _lines_of_one(one, several=len(audit.releases) > 1)


def _lines_of_one(one: AuditOfOne, *, several: bool) -> Iterator[str]:
    lines = list(_findings(one))
    if one.linkage:
        lines += [_linkage_line(link) for link in one.linkage]
    if one.membership is not None:
        m = one.membership
        lines.append(
            f"membership: advantage {m.advantage:.2f} (95%: {m.low:.2f} to {m.high:.2f}) over {m.shadows} releases."
        )
    sentence = one.minimality and in_words(one.minimality.to_dict())
    if sentence:
        lines.append(f"minimality: {sentence}.")
    yield from (f"{one.name}: {line}" if several else line[:1].upper() + line[1:] for line in lines)


def _findings(one: AuditOfOne) -> Iterator[str]:
    if one.noisy:
        yield (
            "not attacked: its counts are noisy, so nothing certain follows from them. What it promises is ε, and with "
            "the trips flowveil verify says whether its counts can be that noise."
        )
    for end in one.homogeneity or ():
        verb = "send more than 90% of their trips to" if end.end == "origin" else "receive more than 90% from"
        yield (
            f"homogeneity: {end.above:,} of {end.zones:,} {end.end} zones {verb} one zone "
            f"(l = {end.l_distinct}, by entropy {end.l_entropy:.1f}; t = {end.t:.2f})."
        )
    if one.true_cells is not None:
        yield (
            "every cell has the trips that it states." if one.true_cells else "cells do NOT have the trips they state."
        )
    if one.dominance is not None:
        d = one.dominance
        yield (
            f"dominance: in {d.one:,} of {d.cells:,} cells one person makes more than half of the trips, in {d.two:,} "
            f"two make more than 80%; {d.p_percent:,} fail the p%-rule (15%), {d.n_k:,} the (2, 85%)-rule."
        )


def _linkage_line(link: Linkage) -> str:
    known = "1 known trip" if link.known == 1 else f"{link.known} known trips"
    return (
        f"linkage with {known}: {link.alone:.1%} of persons are alone in the release, "
        f"{link.raw_alone:.1%} in the trips; a further destination is guessed in {link.guessed:.1%} of cases, from "
        f"the margins in {link.from_margin:.1%}."
    )


def _markdown(audit: Audit, content: Mapping[str, Any]) -> str:
    lines = ["# Audit of published releases", "", f"**Internal, not for publication:** {WARNING}", ""]
    lines += [f"**{audit.sentence}.**", ""]
    if audit.not_compared:
        lines += ["## What was not compared", "", *(f"- {line}" for line in audit.not_compared), ""]
    lines += [*(f"- {line}" for line in audit.failures), "", "## What was computed", ""]
    lines += [f"- {line}" for line in audit_lines(audit)]
    if "groups" in content:
        lines += ["", "## Groups", "", "| kind | origin | destination | smallest | largest |", "|---|---|---|---|---|"]
        for group in content["groups"]:
            cells = [str(group[name]).replace("|", "\\|") for name in ("kind", "origin", "destination", "low", "high")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _lead(audit: Audit) -> str:
    """Which releases, and how many of them were attacked."""
    noisy = sum(one.noisy for one in audit.releases)
    attacked = len(audit.releases) - noisy
    parts = [f"{n:,} release{'s' if n > 1 else ''}, {how}" for n, how in ((attacked, _ATTACKED), (noisy, _NOISY)) if n]
    return "; ".join(parts) + "."


def _page(audit: Audit, content: Mapping[str, Any]) -> str:
    parts = []
    if audit.not_compared:
        parts.append(Part("not-compared", "What was not compared", fill("list.html", lines=audit.not_compared)))
    if audit.failures:
        parts.append(Part("verdict", "What is disclosed", fill("list.html", lines=audit.failures)))
    parts.append(Part("found", "What was computed", fill("list.html", lines=list(audit_lines(audit)))))
    if "groups" in content:
        rows = [
            (f"{g['origin']} to {g['destination']}", f"{g['kind']}: {g['low']:g} to {g['high']:g} {g['unit']}")
            for g in content["groups"]
        ]
        parts.append(Part("groups", "Groups", fill("pairs.html", rows=rows)))
    return page(
        title="Audit of published releases",
        heading=audit.sentence,
        lead=_lead(audit),
        parts=parts,
        internal=WARNING,
    )
