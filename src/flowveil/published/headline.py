"""The top of a page: a release in one sentence; what is missing, what is protected and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowveil.published.sentences import guarantee_words, is_noisy, percent, rounded

#: Heads of sentences by where they stand; what is in neither list is about how to read the release.
_PROTECTED = ("Protected",)
#: How many times as large as their noise counts must be, on average, to be added up.
_LARGE = 3
_NOT_PROTECTED = ("Not protected", "Not claimed", "Weak", "Chosen")


def sentence(report: Mapping[str, Any]) -> str:
    """Returns the release in one sentence: how much, between what, who is protected, how precise."""
    published = report["published"]
    ends = f"{_count(published['origin_zones'], 'origin')} and {_count(published['destination_zones'], 'destination')}"
    said = f"{_volume(report)} between {ends}"
    if is_noisy(report):
        noise = rounded(report["guarantee"]["deviation"], 2)
        said += f"; every number has random noise of about ±{noise} (ε = {report['guarantee']['epsilon']:g})"
    else:
        said += f"; every number covers at least {guarantee_words(report['guarantee'])}"
    both = published["both_ends_within_m"]["1000"]
    if both is not None:
        said += f"; both ends are known within 1 km for {both:.0%} of the trips".replace("%", " %")
    return said + "."


def _volume(report: Mapping[str, Any]) -> str:
    """Returns how much is published. A sum of noisy counts is rounded, and not given where it is mostly noise."""
    published = report["published"]
    if not is_noisy(report):
        return f"{published['trips']:,} trips"
    n, total = published["cells"], published["trips"]
    if report["method"] != "topdown" and total < _LARGE * report["guarantee"]["deviation"] * n:
        return f"Noisy counts of {n:,} pairs, whose sum is mostly noise,"
    return f"About {float(f'{total:.3g}'):,.0f} trips"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def missing(report: Mapping[str, Any]) -> str:
    """Returns what share of the input is not published, by reason."""
    shares = report["statement"]["shares"]
    reasons = [f"{percent(shares['suppressed'])} of the {shares['basis']} suppressed"]
    if shares["outside"] is not None:
        reasons.append(f"{percent(shares['outside'])} outside the study area")
    return ", ".join([*reasons, f"{percent(shares['dropped'])} dropped because they could not be read"])


Said = Sequence[tuple[str, str]]


def sides(statement: Sequence[str]) -> tuple[Said, Said, Said]:
    """The sentences of a statement as (head, rest): what is protected, what is not, and how to read the rest."""
    protected: list[tuple[str, str]] = []
    not_protected: list[tuple[str, str]] = []
    rest: list[tuple[str, str]] = []
    for line in statement:
        head, colon, text = line.partition(":")
        if not colon:
            rest.append(("", line))
        else:
            kept = protected if head in _PROTECTED else not_protected if head in _NOT_PROTECTED else rest
            # Below a heading that says so already, what it is about comes first.
            kept.append(("" if head in ("Protected", "Not protected") else head, text.strip()))
    return protected, not_protected, rest
