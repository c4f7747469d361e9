"""Which features go together, and why the others do not: one table.

A feature is a setting that asks for something; it states what a release must be for it: its counts,
its zones and its dimensions. A method, and the slices of a request, say what the release will be.
The command line, recipes, Python and the documentation (docs/reference/combinations.md) use this
table; a contract test tries every pair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from flowveil.core.errors import ParameterError, option
from flowveil.request.request import find_setting
from flowveil.request.settings import is_given

Counts = Literal["exact", "noisy"]
ZonesOf = Literal["nodes", "boxes"]
Dimensions = Literal["none", "separate", "fold"]

_SINGLE: tuple[Dimensions, ...] = ("none",)
_SLICES: tuple[Dimensions, ...] = ("separate",)
_NO_FOLD: tuple[Dimensions, ...] = ("none", "separate")


@dataclass(frozen=True)
class Expected:
    """What the release of a request will be; None where a method does not decide it."""

    counts: Counts | None = "exact"
    zones: ZonesOf | None = "nodes"
    dimensions: Dimensions = "none"
    overlap: bool | None = False  # whether zones of one end may overlap
    whole_cells: bool = True  # whether cells are suppressed as a whole, never flows in them
    method: str | None = None  # for messages
    offers: frozenset[str] | None = None  # features that its method has, of those with `by_method`


@dataclass(frozen=True)
class Feature:
    """What a feature needs, and why: one row of the table."""

    name: str
    reason: str
    counts: tuple[Counts, ...] = ("exact",)
    zones: tuple[ZonesOf, ...] = ("nodes",)
    dimensions: tuple[Dimensions, ...] = ("none", "separate", "fold")
    overlap: bool = True  # whether zones may overlap
    whole_cells: bool = False  # whether cells must be suppressed as a whole
    by_method: bool = False  # whether a method must offer it
    without: tuple[str, ...] = ()  # features that it cannot be combined with
    needs: tuple[str, ...] = ()  # settings of which one must be given too
    hint: str = "leave one of them out"

    def obstacles(self, expected: Expected, others: Collection[str]) -> Iterator[str]:
        """Yields what stands in the way, in the words of the interface."""
        how = "" if expected.method is None else f" (method '{expected.method}')"
        if expected.counts is not None and expected.counts not in self.counts:
            yield f"noise{how}" if expected.counts == "noisy" else f"exact counts{how}"
        elif expected.zones is not None and expected.zones not in self.zones:
            yield f"boxes{how}"
        elif expected.overlap and not self.overlap:
            yield f"zones that overlap{how}"
        elif self.whole_cells and not expected.whole_cells:
            yield f"cells without their hopeless flows{how}"
        elif self.by_method and expected.offers is not None and self.name not in expected.offers:
            yield f"method '{expected.method}'"
        if expected.dimensions not in self.dimensions:
            yield _WORDS[expected.dimensions]
        yield from (called(name) for name in self.without if name in others)


_WORDS = {"none": "a single matrix", "separate": "slices", "fold": "folds"}
_NUMBERS = "a difference could reveal one person's value, or the numbers cannot be recounted"
_PLACES = "places are listed for one matrix whose zones are nodes of a tree"
_FIXED = "zones, slices and method stay those of the earlier release"
_FOLDS = "folds make one matrix of cells that have times or groups"
_ANY_COUNTS: tuple[Counts, ...] = ("exact", "noisy")
_ANY_ZONES: tuple[ZonesOf, ...] = ("nodes", "boxes")
#: Every feature that does not go with everything, in the order of the documentation.
FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        *(
            Feature(
                name,
                "noise guarantees ε and has no smallest cell",
                zones=_ANY_ZONES,
                hint="omit it and give epsilon, and bound if persons are known",
            )
            for name in (
                *("k", "max_suppressed", "k_population", "l"),
                *("allow_small_k", "population_only"),
            )
        ),
        Feature("seed", "noise that can be repeated can be removed", zones=_ANY_ZONES),
        Feature(
            "dominance",
            "trips of single persons are counted in whole pairs of zones of one matrix",
            dimensions=_SINGLE,
            whole_cells=True,
            hint="choose another method, or --option budget=volume",
        ),
        Feature("stricter", _PLACES, dimensions=_SINGLE),
        Feature(
            "l_places", _PLACES, dimensions=_SINGLE, without=("stricter", "revision"), needs=("l",)
        ),
        Feature(
            "t",
            "the destinations of an origin zone are compared on one map of disjoint zones",
            dimensions=_SINGLE,
            overlap=False,
        ),
        Feature(
            "key_file",
            "it is the key of secret thresholds",
            zones=_ANY_ZONES,
            by_method=True,
            without=("secret_thresholds",),
            hint="omit it",
        ),
        *(
            Feature(name, _NUMBERS, without=("revision", "accept_differencing", "engine"))
            for name in ("mean", "total_of", "median")
        ),
        *(
            Feature(name, "slices of boxes cannot be recounted together", counts=_ANY_COUNTS)
            for name in ("by", "every")
        ),
        Feature(
            "common_zones",
            "one map is planned for all slices, by odkanon or in layers by layercut",
            dimensions=_SLICES,
            by_method=True,
            without=("zones_of", "revision", "options"),
        ),
        Feature(
            "resume",
            "plans are kept for exact slices that are made from the trips",
            zones=_ANY_ZONES,
            dimensions=_SLICES,
            without=("revision",),
        ),
        Feature(
            "values",
            "other methods find the values in the data",
            counts=("noisy",),
            dimensions=_SLICES,
        ),
        Feature(
            "separate",
            "it makes a matrix for each value of --by and each step of --every",
            counts=_ANY_COUNTS,
            zones=_ANY_ZONES,
            dimensions=_SLICES,
        ),
        Feature("zones_of", _FIXED, dimensions=_NO_FOLD, without=("method", "options")),
        Feature(
            "revision",
            _FIXED,
            dimensions=_NO_FOLD,
            without=("method", "options", "dominance", "stricter", "t"),
        ),
        Feature(
            "during",
            "one step of time makes one matrix",
            counts=_ANY_COUNTS,
            zones=_ANY_ZONES,
            dimensions=_SINGLE,
            without=("by", "every", "common_zones", "separate", "fold_time", "fold", "resume"),
            needs=("time",),
        ),
        *(
            Feature(
                name,
                _FOLDS,
                by_method=True,
                without=("common_zones", "resume", "separate"),
                hint="leave one of them out; --method paircut and layercut fold",
            )
            for name in ("fold_time", "fold")
        ),
        *(
            Feature(
                name,
                "it is about the times of the trips",
                counts=_ANY_COUNTS,
                zones=_ANY_ZONES,
                needs=("time",),
            )
            for name in ("timezone", "time_format")
        ),
        Feature(
            "same_zones",
            "other methods plan each end alone",
            counts=_ANY_COUNTS,
            zones=_ANY_ZONES,
            by_method=True,
            hint="use twincut, odkanon, oigh or suppression",
        ),
        Feature(
            "outside",
            "the place of every end must be known",
            needs=("within", "zones"),
            hint="--outside drop, or a method that uses a hierarchy, such as twincut",
        ),
        Feature("hierarchy", "only exact counts of nodes use a tree", hint="omit it"),
        Feature(
            "districts",
            "a pair of districts is published whole, and rules on cells would leave parts out",
            counts=_ANY_COUNTS,
            by_method=True,
            without=("dominance", "stricter"),
            hint="leave one of them out; layercut and posterior have districts",
        ),
        *(
            Feature(
                name,
                "it is about the map",
                counts=_ANY_COUNTS,
                zones=_ANY_ZONES,
                needs=("zones",),
            )
            for name in (
                *("zones_tile", "zones_parent", "zones_levels", "zones_lat"),
                *("zones_lon", "zones_name", "zones_root", "zones_crs"),
            )
        ),
        Feature(
            "no_person",
            "persons are known or they are not",
            counts=_ANY_COUNTS,
            zones=_ANY_ZONES,
            without=("person",),
        ),
        *(
            Feature(
                name,
                "these layouts are read by DuckDB",
                counts=_ANY_COUNTS,
                zones=_ANY_ZONES,
                without=("engine",),
                hint="leave out the engine, or name the columns",
            )
            for name in ("source_format", "column_names")
        ),
        Feature(
            "accept_differencing",
            "it overrules a ledger",
            counts=_ANY_COUNTS,
            zones=_ANY_ZONES,
            needs=("ledger",),
        ),
        Feature(
            "epsilon_total",
            "a ledger adds up the ε of noisy releases",
            counts=("noisy",),
            zones=_ANY_ZONES,
            needs=("ledger",),
        ),
    )
}
#: Values that ask for nothing.
_PLAIN = {"engine": "duckdb", "hierarchy": "h3", "outside": "drop", "secret_thresholds": "true"}


def called(name: str) -> str:
    """Returns what a feature is called in the interface that is used."""
    if name == "engine":
        return "--engine spark"
    return option(name, flag=find_setting(name).flag)


def asked_of(given: Mapping[str, Any]) -> set[str]:
    """Returns the features that settings ask for, by the values that were given."""
    return {
        name
        for name, value in given.items()
        if is_given(value) and str(value).lower() != _PLAIN.get(name)
    }


def refusals(features: Collection[str], expected: Expected) -> Iterator[str]:
    """Yields a sentence for each combination that is refused."""
    for feature in FEATURES.values():
        if feature.name in features:
            for obstacle in feature.obstacles(expected, features):
                yield (
                    f"{called(feature.name)} cannot be combined with {obstacle}: {feature.reason}."
                    f" Hint: {feature.hint}."
                )


def check(features: Collection[str], expected: Expected) -> None:
    """Raises ParameterError for the first combination that is refused."""
    for refusal in refusals(features, expected):
        raise ParameterError(refusal)


def check_needs(features: Collection[str]) -> None:
    """Raises ParameterError for the first feature without a setting that it needs.

    ``features`` are all that are given of a request, or of a call.
    """
    for feature in FEATURES.values():
        if feature.name in features and feature.needs and not {*feature.needs} & {*features}:
            needed = " or ".join(map(called, feature.needs))
            raise ParameterError(
                f"{called(feature.name)} is given without {needed}: {feature.reason}."
            )


# ---- documentation -------------------------------------------------------------------------------


def table() -> str:
    """Returns the table as Markdown, for docs/reference/combinations.md.

    Features that need the same share a row.
    """
    rows = [
        "| setting | goes with counts | zones | dimensions | not with | needs | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for need, same in groupby(FEATURES.values(), key=lambda feature: replace(feature, name="")):
        zones = ", ".join(need.zones) + ("" if need.overlap else " that do not overlap")
        needs = " or ".join(f"`{name}`" for name in need.needs)
        cells = (
            ", ".join(f"`{feature.name}`" for feature in same),
            ", ".join(need.counts),
            zones,
            ", ".join(need.dimensions),
            ", ".join(
                [*(f"`{name}`" for name in need.without), *["other methods"] * need.by_method]
            ),
            needs,
            need.reason,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
