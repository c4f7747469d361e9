"""Which features go together, and why the others do not: one table.

A feature is a setting that asks for something; it states what a release must be for it: its counts,
its zones and its dimensions. A method, and the slices of a request, say what the release will be.
The command line, recipes, Python and the documentation (docs/reference/combinations.md) use this
table; a contract test tries every pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from flowveil.core.errors import ParameterError, option
from flowveil.request.request import find_setting

Counts = Literal["exact", "noisy"]
ZonesOf = Literal["nodes", "boxes"]
Dimensions = Literal["none", "separate", "fold"]

_SINGLE: tuple[Dimensions, ...] = ("none",)
_SLICES: tuple[Dimensions, ...] = ("separate",)
_NO_FOLD: tuple[Dimensions, ...] = ("none", "separate")


@dataclass(frozen=True)
class Facets:
    """What the release of a request will be; None where a method does not decide it."""

    counts: Counts | None = "exact"
    zones: ZonesOf | None = "nodes"
    dimensions: Dimensions = "none"
    overlap: bool | None = False  # whether zones of one end may overlap
    method: str | None = None  # for messages


@dataclass(frozen=True)
class Feature:
    """What a feature needs, and why: one row of the table."""

    name: str
    reason: str
    counts: tuple[Counts, ...] = ("exact",)
    zones: tuple[ZonesOf, ...] = ("nodes",)
    dimensions: tuple[Dimensions, ...] = ("none", "separate", "fold")
    overlap: bool = True  # whether zones may overlap
    without: tuple[str, ...] = ()  # features that it cannot be combined with

    def obstacles(self, facets: Facets, others: Collection[str]) -> Iterator[str]:
        """Yields what stands in the way, in the words of the interface."""
        how = "" if facets.method is None else f" (method '{facets.method}')"
        if facets.counts is not None and facets.counts not in self.counts:
            yield f"noise{how}" if facets.counts == "noisy" else f"exact counts{how}"
        elif facets.zones is not None and facets.zones not in self.zones:
            yield f"boxes{how}"
        elif facets.overlap and not self.overlap:
            yield f"zones that overlap{how}"
        if facets.dimensions not in self.dimensions:
            yield _WORDS[facets.dimensions]
        yield from (called(name) for name in self.without if name in others)


_WORDS = {"none": "a single matrix", "separate": "slices", "fold": "folds"}
_NUMBERS = "a difference could reveal one person's value, or the numbers cannot be recounted"
_PLACES = "places are listed for one matrix whose zones are nodes of a tree"
_FIXED = "zones and slices stay those of the earlier release"
#: Every feature that does not go with everything, in the order of the documentation.
FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(
            "dominance",
            "trips of single persons are counted in whole pairs of zones of one matrix",
            dimensions=_SINGLE,
        ),
        Feature("stricter", _PLACES, dimensions=_SINGLE),
        Feature("l_places", _PLACES, dimensions=_SINGLE, without=("stricter", "revision")),
        Feature(
            "t",
            "the destinations of an origin zone are compared on one map of disjoint zones",
            dimensions=_SINGLE,
            overlap=False,
        ),
        *(
            Feature(name, _NUMBERS, without=("revision", "accept_differencing", "engine"))
            for name in ("mean", "total_of", "median")
        ),
        *(
            Feature(name, "slices of boxes cannot be recounted together", counts=("exact", "noisy"))
            for name in ("by", "every")
        ),
        Feature(
            "common_zones",
            "one map is planned for all slices, which share no trip",
            dimensions=_SLICES,
            without=("zones_of", "revision"),
        ),
        Feature(
            "resume",
            "plans are kept for exact slices that are made from the trips",
            zones=("nodes", "boxes"),
            dimensions=_SLICES,
            without=("revision",),
        ),
        Feature(
            "values",
            "other methods find the values in the data",
            counts=("noisy",),
            dimensions=_SLICES,
        ),
        Feature("zones_of", _FIXED, dimensions=_NO_FOLD),
        Feature("revision", _FIXED, dimensions=_NO_FOLD),
        Feature(
            "during",
            "one step of time makes one matrix",
            counts=("exact", "noisy"),
            zones=("nodes", "boxes"),
            dimensions=_SINGLE,
            without=("by", "every", "common_zones", "fold_time", "fold", "resume"),
        ),
        Feature(
            "fold_time",
            "folds make one matrix of cells that have times or groups",
            without=("by", "common_zones", "resume"),
        ),
        Feature(
            "fold",
            "folds make one matrix of cells that have times or groups",
            without=("by", "common_zones", "resume"),
        ),
    )
}


def called(name: str) -> str:
    """Returns what a feature is called in the interface that is used."""
    if name == "engine":
        return "--engine spark"
    return option(name, flag=find_setting(name).flag)


def refusals(features: Collection[str], facets: Facets) -> Iterator[str]:
    """Yields a sentence for each combination that is refused."""
    for feature in FEATURES.values():
        if feature.name in features:
            for obstacle in feature.obstacles(facets, features):
                yield (
                    f"{called(feature.name)} cannot be combined with {obstacle}: {feature.reason}."
                )


def check(features: Collection[str], facets: Facets) -> None:
    """Raises ParameterError for the first combination that is refused."""
    for refusal in refusals(features, facets):
        raise ParameterError(f"{refusal} Hint: leave one of them out.")


#: Settings that mean nothing without another one.
NEEDS = {
    "every": "time",
    "timezone": "time",
    "time_format": "time",
    "fold_time": "every",
    "by_many": "by",
}


def unavailable(
    offered: Collection[str], features: Collection[str], facets: Facets, with_slices: Facets
) -> dict[str, str]:
    """Returns the offered settings that would be refused next to these features, each with the
    reason.

    ``with_slices`` are the facets that the release has with one more setting of slices.
    """
    found: dict[str, str] = {}
    for name in offered:
        needed = NEEDS.get(name)
        if needed is not None and needed not in features:
            found[name] = f"It needs {called(needed)}."
            continue
        others = {*features, name}
        changed = with_slices if name in ("by", "every") else facets
        if name == "fold_time":
            changed = replace(facets, dimensions="fold")
        refused = set(refusals(features, facets))
        for refusal in refusals(others, changed):
            if refusal not in refused:
                found[name] = refusal
                break
    return found


# ---- documentation -------------------------------------------------------------------------------


def table() -> str:
    """Returns the table as Markdown, for docs/reference/combinations.md."""
    rows = [
        "| setting | goes with counts | zones | dimensions | not with | why |",
        "|---|---|---|---|---|---|",
    ]
    for feature in FEATURES.values():
        zones = ", ".join(feature.zones) + ("" if feature.overlap else " that do not overlap")
        without = ", ".join(f"`{name}`" for name in feature.without)
        cells = (
            f"`{feature.name}`",
            ", ".join(feature.counts),
            zones,
            ", ".join(feature.dimensions),
            without,
            feature.reason,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
