"""The top of a page: a release in one sentence, then what is protected and what is not, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.published.noise import is_noisy, rounded
from flowveil.published.places import distance_in_words, typical_radius_m
from flowveil.published.sentences import thresholds_in_words

#: Heads of sentences by where they stand; what is in neither list is about how to read the release.
_PROTECTED = ("Protected",)
#: How many times as large as their noise counts must be, on average, to be added up.
_LARGE = 3
_NOT_PROTECTED = ("Not protected", "Not claimed", "Weak", "Chosen")


def sentence(report: Mapping[str, Any], flows: pa.Table | None = None, zones: pa.Table | None = None) -> str:
    """The release in one sentence: how much, between what, behind how many, what is missing, how fine.

    Args:
        report: the data of report.json.
        flows, zones: the published tables; of slices, their sum. Without them, what they would say is left out.
    """
    m = report["measures"]["trips"]
    ends = f"{_count(m.get('n_origin_zones'), 'origin')} and {_count(m.get('n_destination_zones'), 'destination')}"
    said = [f"{_volume(report, flows)} between {ends}"]
    if is_noisy(report):
        said.append(
            f"every number has random noise of about ±{rounded(report['guarantee']['deviation'], 2)} ({_loss(report)})"
        )
    else:
        said += [f"every number covers at least {thresholds_in_words(report)}", left_out(report)]
    radius = None if flows is None or zones is None else typical_radius_m(flows, zones)
    if radius is not None:
        said.append(f"places are known to about {distance_in_words(radius)}")
    return "; ".join(said) + "."


def _volume(report: Mapping[str, Any], flows: pa.Table | None) -> str:
    """How much. The sum of noisy counts is rounded, and not given where it is mostly noise.

    Pairs without trips are listed too where their noise is above 0, and others are not: where the listed counts are
    hardly larger than the noise, their sum is that of such noise. Counts that were made to fit a total add up to it.
    """
    if flows is None:
        return "Trips"
    total = pc.sum(flows["trips"]).as_py() or 0
    if not is_noisy(report):
        return f"{total:,} trips"
    if report["method"] != "topdown" and total < _LARGE * report["guarantee"]["deviation"] * len(flows):
        return f"Noisy counts of {len(flows):,} pairs, whose sum is mostly noise,"
    return f"About {float(f'{total:.3g}'):,.0f} trips"


def _count(n: int | None, what: str) -> str:
    return f"{what}s" if n is None else f"{n:,} {what}{'' if n == 1 else 's'}"


def _loss(report: Mapping[str, Any]) -> str:
    return f"ε = {report['guarantee']['epsilon']:g}"


def left_out(report: Mapping[str, Any]) -> str:
    """What share of the trips is not published, in words; or that it is withheld."""
    share = report["measures"]["trips"].get("suppressed_share")
    if share is None:
        return "how many trips were left out is withheld"
    if share == 0:
        return "no trip was left out"
    if share < 0.001:
        return "fewer than one trip in a thousand was left out"
    if share > 0.4:
        return f"{share:.0%} of the trips were left out"
    return f"one trip in {_WORDS.get(round(1 / share), f'{round(1 / share):,}')} was left out"


_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}

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
