"""Everything that can be requested of flowveil, described once.

A `Request` is a tree of frozen dataclasses. Each field carries its meaning, allowed values,
default, example and tier. The command line, recipes, keyword arguments, the workbench's form,
report.json and the reference page are generated from these fields: a new option is one new field
here. Names are unique over all sections: the keyword argument in Python, the key in a recipe and,
with dashes, the flag.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from flowveil.core.errors import FLAGS, SET_ONLY, ParameterError, did_you_mean, option, with_value
from flowveil.core.named_rules import RULES
from flowveil.request.settings import (
    Call,
    Section,
    Setting,
    Tier,
    is_given,
    section_settings,
    setting,
    split,
)

COLUMN: dict[str, Any] = {"form": "column", "metavar": "COLUMN"}
PLACE: dict[str, Any] = {"form": "path"}
NO_TOTALS = (
    "Slices next to a total, or a longer step, reveal counts below the guarantee by subtraction;"
    " sums of published cells reveal nothing new. Hint: publish slices with --common-zones, then"
    " `flowveil derive RELEASE --sum COLUMN --out TOTAL` (`--sum hour` makes days of 1h steps)."
)
#: Settings of earlier versions, and what to do instead.
REMOVED = {
    "total": NO_TOTALS,
    "also_every": NO_TOTALS,
    "record_id": "It was for the methods cellkey and rounding, which were removed.",
}


@dataclass(frozen=True)
class InputSection(Section, key="input", heading="Input", call="reading"):
    """Trips and the columns that describe them."""

    input: str | None = setting(
        "Trips: a file (CSV, Parquet, OMX), a folder or pattern of files, or a database: "
        "duckdb:FILE?table=NAME, sqlite:FILE?query=SELECT ..., postgresql://host/db?table=NAME.",
        call="run", example="trips.parquet", metavar="INPUT", **PLACE,
    )  # fmt: skip
    source_format: str | None = setting(
        "Layout of the field, which says how the columns are called.",
        flag="--from",
        allowed="flowveil.reading.formats:format_names",
        example="mitma",
        recorded=True,
    )
    column_names: tuple[str, ...] = setting(
        "Names of the columns of a text file without a header line.",
        flag="--columns",
        example="origin,destination,trips",
        metavar="A,B,...",
        recorded=True,
        page=False,
    )
    origin: str | None = setting(
        "Columns of the origin; usual names are recognised.",
        tier="common", example="start_lat,start_lon", metavar="LAT,LON", form="column",
    )  # fmt: skip
    destination: str | None = setting(
        "Columns of the destination.",
        tier="common", example="end_lat,end_lon", metavar="LAT,LON", form="column",
    )  # fmt: skip
    origin_tile: str | None = setting(
        "Column of the origin's tile: an H3 cell or a code of --zones.",
        example="start_h3",
        **COLUMN,
    )
    destination_tile: str | None = setting(
        "Column of the destination's tile.", example="end_h3", **COLUMN
    )
    trips: str | None = setting(
        "Column of the number of trips of a row; fractions are allowed.",
        tier="common", default="a row is one trip", example="count", **COLUMN,
    )  # fmt: skip
    counted: str | None = setting(
        "What the trips are, for readers: workers, journeys, boardings.",
        default="trips", example="workers", metavar="WORD", recorded=True,
    )  # fmt: skip
    weight: str | None = setting(
        "Column of the expansion factor: trips or inhabitants that a row represents.",
        tier="common", example="w", **COLUMN,
    )  # fmt: skip
    max_dropped: float | None = setting(
        "Largest share of rows or trips that may be dropped because they cannot be read.",
        default=0.05, between=(0, 1), example="0.01", metavar="SHARE", recorded=True,
    )  # fmt: skip
    skip_unknown: bool = setting(
        "Drop rows whose tile is unknown, instead of refusing them.", tier="recipe", recorded=True
    )
    partition_columns: tuple[str, ...] = setting(
        "Columns taken from names of folders such as month=3/; other folder names are ignored.",
        tier="recipe", example="month", metavar="A,B,...", recorded=True, page=False,
    )  # fmt: skip
    matrix: tuple[str, ...] = setting(
        "Matrices of an OMX file.",
        default="all, each as a slice",
        example="car",
        metavar="A,B,...",
        recorded=True,
    )
    lookup: str | None = setting(
        "Lookup of an OMX file that has the codes of the zones.",
        tier="recipe",
        example="zone",
        recorded=True,
    )
    wide: bool = setting(
        "INPUT is a CSV matrix: a column for each destination.", tier="recipe", recorded=True
    )
    crs: str | None = setting(
        "Reference system of the coordinates: a code, or a PROJ or WKT text.",
        default="degrees (EPSG:4326)", example="EPSG:25832", recorded=True,
    )  # fmt: skip
    decimal_comma: bool = setting(
        "Numbers in text have a decimal comma.", tier="recipe", recorded=True
    )
    thousands: str | None = setting(
        "What separates thousands in numbers of text, such as 121,606; none: a point is a decimal"
        " point.",
        default="asked where it is not clear",
        allowed=("comma", "point", "space", "apostrophe", "none"),
        example="comma",
        recorded=True,
    )
    pad_codes: bool = setting(
        "Codes in the trips have lost leading zeros: fill them up to the length of the map's.",
        tier="recipe",
        recorded=True,
    )
    remote: bool = setting(
        "Allow INPUT to be an address: s3:// or https://.", tier="recipe", page=False
    )


@dataclass(frozen=True)
class PeopleSection(Section, key="people", heading="People", call="reading"):
    """Who travels."""

    person: str | None = setting(
        "Column of the person; usual names are recognised.", tier="common", example="id", **COLUMN
    )
    no_person: bool = setting("No column identifies persons.", tier="common")
    person_case: str | None = setting(
        "Count A7 and a7 as one person (fold) or as two (keep).",
        tier="recipe", default="fold", allowed=("fold", "keep"), example="keep", recorded=True,
    )  # fmt: skip


@dataclass(frozen=True)
class ZonesSection(Section, key="zones", heading="Zones", call="reading"):
    """Tiles and the study area."""

    resolution: int | None = setting(
        "H3 resolution of the tiles.",
        default=10,
        between=(0, 15),
        example="9",
        metavar="N",
        recorded=True,
    )
    zones: str | None = setting(
        "Map whose zones are the tiles (CSV, GeoJSON, Parquet, ...), or a grid:"
        " geohash:6:W,S,E,N, quadkey:15:..., s2:13:..., inspire:1km:....",
        tier="common", example="zones.csv", metavar="FILE", **PLACE,
    )  # fmt: skip
    zones_tile: str | None = setting(
        "The map's column of zone codes.", call="map", example="code", metavar="COLUMN"
    )
    zones_parent: str | None = setting(
        "The map's column of each zone's parent.", call="map", example="district", metavar="COLUMN"
    )
    zones_levels: tuple[str, ...] = setting(
        "The map's nested codes, coarsest to finest.",
        call="map",
        example="district,sector,zone",
        metavar="A,B,...",
    )
    zones_lat: str | None = setting(
        "The map's column of the latitude of each zone's centre.",
        tier="recipe", call="map", example="lat", metavar="COLUMN",
    )  # fmt: skip
    zones_lon: str | None = setting(
        "The map's column of the longitude.",
        tier="recipe",
        call="map",
        example="lon",
        metavar="COLUMN",
    )
    zones_name: str | None = setting(
        "The map's column of zone names.",
        tier="recipe",
        call="map",
        example="name",
        metavar="COLUMN",
    )
    zones_root: str | None = setting(
        "Code of a root above several topmost zones.",
        call="map",
        example="all",
        metavar="CODE",
    )
    zones_crs: str | None = setting(
        "Reference system of the coordinates of the map.",
        tier="recipe",
        call="map",
        default="degrees, or --crs",
        example="EPSG:25832",
    )
    within: str | None = setting(
        "Study area: west,south,east,north, H3 cells separated by commas, or a file with polygons.",
        example="2.2,48.7,2.5,49.0", metavar="AREA", form="area", recorded=True,
    )  # fmt: skip
    districts: str | None = setting(
        "Areas that readers care about: a level of the tree (the resolution, for H3).",
        call="run", default="H3 resolution 7, or the zones of the map",
        example="7", metavar="LEVEL|FILE",
    )  # fmt: skip
    outside: str | None = setting(
        "Trips with one end outside the area or map: drop them, or keep them with that end as "
        "one zone 'outside'. Trips with both ends outside are counted and not published.",
        default="drop",
        allowed=("drop", "keep"),
        example="keep",
        recorded=True,
    )
    same_zones: bool = setting("One set of zones for origins and destinations.", recorded=True)


@dataclass(frozen=True)
class SlicesSection(Section, key="slices", heading="Time and slices", call="reading"):
    """Several matrices, by time or by attributes."""

    time: str | None = setting(
        "Column of the time. Without --every, the --ledger alone uses its days.",
        tier="common", example="start_time", **COLUMN,
    )  # fmt: skip
    every: tuple[str, ...] = setting(
        "Publish times in steps of this: 15min, 1h, day, week, month, hour (of the day), weekday, "
        "weekday-hour.",
        tier="common",
        example="1h",
        metavar="STEP",
    )
    timezone: str | None = setting(
        "Local time for Unix times and times in UTC.",
        tier="common",
        default="the zone of the times",
        example="Europe/Oslo",
        metavar="NAME",
        recorded=True,
    )
    time_format: str | None = setting(
        "How times are written, as for strptime.",
        example="%d/%m/%y %H:%M",
        metavar="FORMAT",
        recorded=True,
    )
    during: str | None = setting(
        "Only the trips of this month or day, by --time.",
        example="2024-01", metavar="STEP", recorded=True,
    )  # fmt: skip
    by: tuple[str, ...] = setting(
        "Publish these attributes of trips.",
        example="sex,age",
        metavar="A,B,...",
        form="column",
    )
    by_many: bool = setting(
        "Allow --by with more than 50 values, or more than one value for 100 rows."
    )
    separate: bool = setting(
        "A matrix for each step and each value. Otherwise times and values are part of the cells "
        "of one release, where the method can do that.",
        call="slices",
        page=False,
    )
    fold_time: bool = setting(
        "The default: steps that are too small are merged, cell by cell, into one matrix.",
        call="slices",
    )
    fold: Mapping[str, Any] = setting(
        "Merge values of an attribute that are too small, cell by cell, along the tree in a file "
        "(repeatable).",
        call="slices",
        example="purpose=purposes.csv",
        metavar="NAME=FILE",
        **PLACE,
    )
    common_zones: bool = setting(
        "The same zones for all slices, so that `flowveil derive --sum` can add them up.",
        call="slices",
    )
    values: tuple[str, ...] = setting(
        "With noise: the values of a slice column, known without the data (repeatable).",
        tier="recipe",
        call="slices",
        example="sex=f,m",
        metavar="NAME=VALUE,...",
        page=False,
        commas=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.every) > 1:
            raise ParameterError(f"{option('every')} can be given once. {NO_TOTALS}")


@dataclass(frozen=True)
class NumbersSection(Section, key="numbers", heading="Numbers in a cell", call="reading"):
    """Numbers beyond counts: means, totals and medians of columns, where no contributor
    dominates.
    """

    mean: tuple[str, ...] = setting(
        "Also publish the mean of this column in each cell (repeatable).",
        example="minutes",
        page=False,
        **COLUMN,
    )
    total_of: tuple[str, ...] = setting(
        "Also publish the total of this column (repeatable).",
        example="kilometres",
        page=False,
        **COLUMN,
    )
    median: tuple[str, ...] = setting(
        "Also publish the median of this column (repeatable).", example="fare", page=False, **COLUMN
    )
    between: tuple[str, ...] = setting(
        "Smallest and largest possible value of such a column, known without the data "
        "(repeatable).",
        example="minutes=0,180",
        metavar="COLUMN=LOW,HIGH",
        recorded=True,
        page=False,
        commas=False,
    )
    value_share: float | None = setting(
        "Largest share of the total of a cell that one contributor may have.",
        tier="recipe",
        default=0.5,
        between=(0.05, 0.5),
        example="0.4",
        metavar="SHARE",
        recorded=True,
        page=False,
    )
    p_percent: float | None = setting(
        "p % rule: the second largest contributor cannot estimate the largest from above within "
        "this.",
        tier="recipe",
        default=10,
        between=(1, 30),
        example="15",
        metavar="PERCENT",
        recorded=True,
        page=False,
    )


@dataclass(frozen=True)
class ProtectionSection(Section, key="protection", heading="Protection", call="anonymize"):
    """What every published cell must satisfy."""

    rule: str | None = setting(
        "k and what is counted, as others publish: mds 10 trips, ine and flowkit 16 people, carpool"
        " 6 trips.",
        call="run", allowed="flowveil.core.named_rules:RULES", example="ine", page=False,
    )  # fmt: skip
    k: int | None = setting(
        "How many every cell must hide.",
        tier="common", default=10, between=(1, 10**9), example="20", metavar="N", recorded=True,
    )  # fmt: skip
    protect: tuple[str, ...] = setting(
        "What is counted (repeatable).",
        tier="common",
        default="people if a person column is known, else trips",
        allowed="flowveil.core.guarantee:UNITS",
        example="people",
        recorded=True,
    )
    max_suppressed: float | None = setting(
        "Share of the trips that may be suppressed.",
        tier="common",
        default="0.1; 0.01 with layercut",
        between=(0, 1),
        example="0.05",
        metavar="SHARE",
        recorded=True,
    )
    k_population: float | None = setting(
        "Absolute threshold of the population.",
        default="k times the mean weight of a trip",
        between=(0, 1e12),
        example="500",
        metavar="N",
        recorded=True,
    )
    l: int | None = setting(  # noqa: E741  # the papers' letter
        "Fewest tiles in which the trips of a cell begin, and end.",
        between=(1, 10**6), example="2", metavar="N", recorded=True,
    )  # fmt: skip
    l_places: str | None = setting(
        "Points of interest (tile, or lat and lon): --l counts those in these tiles instead of "
        "the tiles.",
        tier="recipe",
        example="places.csv",
        metavar="FILE",
        recorded=True,
        **PLACE,
    )
    dominance: float | None = setting(
        "Also suppress cells in which one person makes more than this share of the trips.",
        tier="recipe", between=(0.01, 0.99), example="0.5", metavar="SHARE", recorded=True,
    )  # fmt: skip
    t: float | None = setting(
        "t-closeness: suppress zones whose trips are distributed farther than this from all "
        "published trips.",
        tier="recipe",
        between=(0.01, 0.99),
        example="0.8",
        metavar="DISTANCE",
        recorded=True,
        page=False,
    )
    stricter: str | None = setting(
        "Places (tile, or lat and lon) around which cells must reach the k or l that the file "
        "gives them.",
        tier="recipe",
        example="clinics.csv",
        metavar="FILE",
        recorded=True,
        **PLACE,
    )
    secret_thresholds: str | None = setting(
        "Cells of layercut and paircut have k plus a secret amount; false for comparisons.",
        tier="recipe", default="true", allowed=("true", "false"), example="false", recorded=True,
    )  # fmt: skip
    key_file: str | None = setting(
        "Secret key of secret thresholds; `flowveil key FILE` writes one.",
        example="secret.key", metavar="FILE", **PLACE,
    )  # fmt: skip
    allow_small_k: bool = setting(
        "Confirm a k below 3, which is refused otherwise.", flag="--yes-k-below-3"
    )
    population_only: bool = setting(
        "Confirm that only the population is protected although persons are known."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule is None:
            return
        named = RULES[self.rule]
        for name, value in (("k", named.k), ("protect", (named.protect,))):
            given = getattr(self, name)
            if is_given(given) and given != value:
                raise ParameterError(
                    f"{with_value('rule', self.rule)} means {with_value('k', named.k)} and"
                    f" {with_value('protect', named.protect)}. Hint: leave out"
                    f" {option('rule')}, or {option(name)}."
                )
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class MethodSection(Section, key="method", heading="Method", call="anonymize"):
    """How the zones are chosen."""

    method: str | None = setting(
        "Method that chooses the zones; docs/methods compares them.",
        tier="common",
        default=("layercut; twincut for slices and --same-zones, odkanon for --common-zones"),
        example="twincut",
        metavar="NAME",
        allowed="flowveil.methods:method_names",
        recorded=True,
    )
    options: Mapping[str, Any] = setting(
        "Option of the method (repeatable).",
        flag="--option", example="effort=2", metavar="NAME=VALUE", recorded=True,
    )  # fmt: skip
    hierarchy: str | None = setting(
        "Tree above the tiles: not refined (h3), or refined in steps of two (halves).",
        default="what the method's page says",
        allowed="flowveil.zoning.restriction:HIERARCHIES",
        example="h3",
        recorded=True,
    )
    seed: int | None = setting(
        "Seed, for methods that draw random numbers.", example="0", metavar="N", page=False
    )
    zones_of: str | None = setting(
        "Publish over the zones of an earlier release: its folder, or a map that `flowveil "
        "freeze` wrote.",
        example="release-2023",
        metavar="EARLIER",
        **PLACE,
    )
    revision: tuple[str, ...] = setting(
        "Correct this earlier release of the same trips (repeatable: the first, then its "
        "revisions).",
        example="release-1",
        metavar="EARLIER",
        commas=False,
        **PLACE,
    )
    new_map_at: float | None = setting(
        "With --zones-of: advise a new map from this loss on.",
        tier="recipe",
        call="run",
        default=0.5,
        between=(0, None),
        example="0.2",
        metavar="SHARE",
        page=False,
    )


@dataclass(frozen=True)
class OutputSection(Section, key="output", heading="Output", call="write"):
    """What is written, and where."""

    out: str | None = setting(
        "Folder of the release; an earlier one is replaced.",
        tier="common", call="run", example="release", metavar="DIR", **PLACE,
    )  # fmt: skip
    formats: tuple[str, ...] = setting(
        "Exports in addition to Parquet.",
        tier="common",
        flag="--format",
        example="csv,geojson",
        metavar="A,B,...",
        allowed="flowveil.published.exports:format_names",
    )
    title: str | None = setting(
        "Title of the page and the files.",
        tier="common",
        default="made from the number of areas",
        example="Trips in Oslo",
        metavar="TEXT",
    )
    source: str | None = setting(
        "Where the trips come from, for readers.", example="Household survey 2024", metavar="TEXT"
    )
    period: str | None = setting(
        "First and last day of the trips.", example="2024-01-01/2024-03-31", metavar="DAY/DAY"
    )
    licence: str | None = setting(
        "Licence of the release.", tier="recipe", example="CC BY 4.0", metavar="TEXT"
    )
    publisher: str | None = setting(
        "Who publishes the release, for data portals.",
        tier="recipe",
        default="the contact",
        example="City of Oslo",
        metavar="TEXT",
    )
    issued: str | None = setting(
        "Day on which the release is published.",
        tier="recipe",
        example="2024-04-15",
        metavar="DAY",
    )
    modified: str | None = setting(
        "Day on which the release was last changed.",
        tier="recipe",
        example="2024-05-02",
        metavar="DAY",
    )
    base_url: str | None = setting(
        "Address of the folder that will hold the release, for absolute links in metadata.",
        default="addresses are relative",
        example="https://data.example.org/trips/",
        metavar="URL",
    )
    contact: str | None = setting(
        "Contact for readers' questions.", tier="recipe", example="data@example.org", metavar="TEXT"
    )
    language: str | None = setting(
        "Language of the page.",
        default="en",
        allowed=("en", "fr", "es", "de", "it", "pt"),
        example="fr",
        metavar="CODE",
    )
    ledger: str | None = setting(
        "Refuse a release that may share trips with an earlier one of this folder, and record "
        "this one.",
        example="ledger",
        metavar="DIR",
        **PLACE,
    )
    accept_differencing: bool = setting(
        "With --ledger: publish although the release may share trips with an earlier one; the "
        "statement says so.",
        page=False,
    )
    epsilon_total: float | None = setting(
        "With --ledger and noise: refuse to bring ε of all noisy releases above this. It can "
        "only be lowered.",
        tier="recipe",
        between=(0, None),
        example="2",
        metavar="X",
        page=False,
    )
    basemap: str | None = setting(
        "Let readers of report.html switch on a background map from a tile server.",
        tier="recipe",
        example="https://tile.example.org/{z}/{x}/{y}.png",
        metavar="URL",
        page=False,
    )
    context: str | None = setting(
        "Outlines or places for report.html (GeoJSON, or CSV with name, lat, lon); published.",
        tier="recipe", example="districts.geojson", metavar="FILE", **PLACE,
    )  # fmt: skip
    show_measures: bool = setting(
        "Print measures of the raw trips on standard error; without it only to a terminal.",
        call="run",
        page=False,
    )
    replace_stronger: bool = setting(
        "Confirm that an earlier release with a stronger guarantee may be replaced.",
        tier="recipe",
        page=False,
    )


@dataclass(frozen=True)
class ResourcesSection(Section, key="resources", heading="Resources", call="run"):
    """How it is computed; no effect on the result."""

    engine: str | None = setting(
        "Engine that reads the trips.",
        default="duckdb",
        allowed=("duckdb", "spark"),
        example="spark",
        page=False,
    )
    memory_limit: str | None = setting(
        "Most memory for the run.", example="4GB", metavar="SIZE", page=False
    )
    threads: int | None = setting(
        "Most threads.",
        tier="recipe",
        default="one for each core",
        between=(1, None),
        example="4",
        metavar="N",
        page=False,
    )
    temp_dir: str | None = setting(
        "Folder for tables that do not fit into memory.",
        tier="recipe",
        example="/scratch",
        metavar="DIR",
        **PLACE,
    )
    workers: int | None = setting(
        "Processes for slices.",
        tier="recipe",
        default="one for each core",
        between=(1, None),
        example="2",
        metavar="N",
        page=False,
    )
    resume: bool = setting(
        "Keep finished slices next to --out; a later run continues.", tier="recipe", page=False
    )
    spark_master: str | None = setting(
        "Spark cluster that reads, with the engine spark.",
        tier="recipe",
        default="what Spark's settings say",
        example="local[4]",
        metavar="URL",
        page=False,
    )
    driver_flows: int | None = setting(
        "Most rows of flows and persons on the driver of the Spark cluster; more stay on the "
        "cluster.",
        tier="recipe",
        default=20_000_000,
        between=(1, None),
        example="5000000",
        metavar="N",
        page=False,
    )


@dataclass(frozen=True)
class Derive(Section, key="derive", heading="Derive", call="derive"):
    """What `flowveil derive` computes from a published release.

    No part of a request or a recipe.
    """

    level: int | None = setting(
        "Level of the zones: an H3 resolution, or a level of the map. Coarser zones are kept.",
        between=(0, 1000), example="7", metavar="N",
    )  # fmt: skip
    sum: tuple[str, ...] = setting(
        "Add up the slices of this column, or a unit of time: hour, weekday, day, time "
        "(repeatable).",
        example="sex",
        metavar="COLUMN",
    )
    pick: tuple[str, ...] = setting(
        "Keep the slices with this value (repeatable).",
        example="sex=f",
        metavar="COLUMN=VALUE",
        commas=False,
    )
    drop: tuple[str, ...] = setting(
        "Leave out this column (repeatable).", example="weight", metavar="COLUMN"
    )


#: The sections in the order of help, recipes and the reference page.
SECTIONS: dict[str, type[Section]] = {
    one.key: one
    for one in (
        *(InputSection, PeopleSection, ZonesSection, SlicesSection, NumbersSection),
        *(ProtectionSection, MethodSection, OutputSection, ResourcesSection),
    )
}


def settings(
    *, call: Call | Collection[Call] | None = None, tier: Collection[Tier] | None = None
) -> list[Setting]:
    """All settings, or those of some calls or tiers."""
    calls = (call,) if isinstance(call, str) else call
    every = [one for section in SECTIONS.values() for one in section_settings(section)]
    return [
        one
        for one in every
        if (calls is None or one.call in calls) and (tier is None or one.tier in tier)
    ]


SET_ONLY.update({one.name: one.path for one in settings() if one.tier == "recipe"})
FLAGS.update({one.name: one.flag for one in settings()})


@cache
def find_setting(name: str) -> Setting:
    """The setting of that name: ``k``, ``protection.k`` or ``--k``."""
    for one in settings():
        if name in (one.name, one.path, one.flag, one.flag[2:]):
            return one
    names = {key for one in settings() for key in (one.name, one.path)}
    reason = REMOVED.get(name.removeprefix("--").rpartition(".")[2])
    raise ParameterError(
        f"There is no setting '{name}'. {reason}"
        if reason
        else f"There is no setting '{name}'.{did_you_mean(name, names)}"
    )


def refuse_unknown(
    given: Collection[str], *, call: Call | Collection[Call], but: Sequence[str] = ()
) -> None:
    """Raises TypeError for a keyword argument that no setting of the calls has, or that is one of
    ``but``.
    """
    known = [one.name for one in settings(call=call) if one.name not in but]
    for name in given:
        if name not in known:
            raise TypeError(
                f"Unknown argument {name!r}.{did_you_mean(name, known)} Known are"
                f" {', '.join(sorted(known))}."
            )


@dataclass(frozen=True)
class Request:
    """A complete request: what to read, how to protect it and what to write."""

    input: InputSection = field(default_factory=InputSection)
    people: PeopleSection = field(default_factory=PeopleSection)
    zones: ZonesSection = field(default_factory=ZonesSection)
    slices: SlicesSection = field(default_factory=SlicesSection)
    numbers: NumbersSection = field(default_factory=NumbersSection)
    protection: ProtectionSection = field(default_factory=ProtectionSection)
    method: MethodSection = field(default_factory=MethodSection)
    output: OutputSection = field(default_factory=OutputSection)
    resources: ResourcesSection = field(default_factory=ResourcesSection)

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Request:
        """From values by the names of the settings."""
        found: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        known = {one.name: one.section for one in settings()}
        for name, value in values.items():
            found[known.get(name) or find_setting(name).section][name] = value
        made: dict[str, Any] = {
            section: SECTIONS[section](**given) for section, given in found.items()
        }
        return cls(**made)

    @classmethod
    def from_sections(cls, content: Mapping[str, Any]) -> Request:
        """From sections of names and values, as a recipe has them."""
        flat: dict[str, Any] = {}
        for section, given in content.items():
            if section not in SECTIONS:
                raise ParameterError(
                    f"There is no section [{section}].{did_you_mean(section, SECTIONS)}"
                )
            if not isinstance(given, Mapping):
                raise ParameterError(f"[{section}] must be a section of names and values.")
            names = [one.name for one in section_settings(SECTIONS[section])]
            for name, value in given.items():
                if name in REMOVED:
                    raise ParameterError(f"There is no setting '{section}.{name}'. {REMOVED[name]}")
                if name not in names:
                    near = did_you_mean(name, names) or did_you_mean(
                        name, [one.path for one in settings()]
                    )
                    raise ParameterError(f"There is no setting '{section}.{name}'.{near}")
                flat[name] = value
        return cls.from_flat(flat)

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Request:
        """From the parameters of a report.json: reading and protection, without paths, which are
        not published.
        """
        parameters = report["parameters"]
        recorded = {one.name: parameters.get(one.name) for one in settings() if one.recorded}
        given = {name: value for name, value in recorded.items() if value is not None}
        for name in ("l_places", "stricter"):
            given.pop(name, None)
        names = {one.name for one in settings()}
        columns = {
            name: value for name, value in parameters.get("columns", {}).items() if name in names
        }
        slices = parameters.get("slices") or {}
        steps = [slices["every"]] if slices.get("every") else []
        options = {
            name: value
            for name, value in _mapping(parameters.get("options")).items()
            if value is not None
        }
        given |= {**columns, "every": steps, "method": report.get("method"), "options": options}
        given |= {
            name: True for name in ("by_many", "common_zones", "separate") if slices.get(name)
        }
        columns_of_map = dict(_mapping(parameters.get("zones")))
        given |= {"zones": columns_of_map.pop("grid", None)}
        given |= {f"zones_{name}": value for name, value in columns_of_map.items()}
        if parameters.get("fold"):
            given["fold"] = dict.fromkeys(fold_files(parameters), "TREE")
            given["by"] = [name for name in split(given["by"]) if name not in given["fold"]]
        given["values"] = [
            f"{name}={','.join(listed)}" for name, listed in (slices.get("values") or {}).items()
        ]
        given["values"] += [f"time={'/'.join(slices['period'])}"] if slices.get("period") else []
        for name in ("by", "zones_levels", "protect"):
            if isinstance(given.get(name), str):
                given[name] = split(given[name])
        return cls.from_flat({name: value for name, value in given.items() if is_given(value)})

    def __iter__(self) -> Iterator[tuple[Setting, Any]]:
        """Every setting with its value."""
        for name, section in SECTIONS.items():
            for one in section_settings(section):
                yield one, getattr(getattr(self, name), one.name)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that were given, by name."""
        return {one.name: value for one, value in self if is_given(value)}

    def arguments(self, *calls: Call) -> dict[str, Any]:
        """The given settings that a call takes, as keyword arguments."""
        return {one.name: value for one, value in self if one.call in calls and is_given(value)}

    def value(self, name: str) -> Any:
        """A setting's value, or its default if that is a value and not words."""
        one = find_setting(name)
        found = getattr(getattr(self, one.section), one.name)
        is_value = not isinstance(one.default, str) or one.default in one.allowed
        return (
            found
            if is_given(found)
            else one.default
            if is_value and one.default is not None
            else found
        )

    def with_values(self, **values: Any) -> Request:
        """The same with other values; None removes one."""
        return Request.from_flat({**self.given, **values})


def fold_files(parameters: Mapping[str, Any]) -> dict[str, Mapping[str, str | None]]:
    """Returns the stated trees that were given; others are the values below one root."""
    plain = (parameters.get("slices") or {}).get("by") or ()
    trees = parameters.get("fold") or {}
    return {name: parents for name, parents in trees.items() if name not in plain}


def _mapping(value: Any) -> Mapping[str, Any]:
    """Returns a mapping of a report; an empty one for a path, which is not published."""
    return value if isinstance(value, Mapping) else {}


def command_line(request: Request, *, program: Sequence[str] = ("flowveil", "anonymize")) -> str:
    """Returns the command line that makes the same request, quoted for a shell."""
    words = [*program, *([] if request.input.input is None else [request.input.input])]
    for one, value in request:
        if is_given(value) and one.name != "input":
            words += words_of(one, value)
    return " ".join(shlex.quote(word) for word in words)


def words_of(one: Setting, value: Any) -> list[str]:
    """Returns the words that give a setting on the command line."""
    if one.is_pairs:
        return [
            word for name, part in value.items() for word in (one.flag, f"{name}={_word(part)}")
        ]
    texts = list(value) if one.is_list and not one.commas else [_word(value)]
    if one.tier == "recipe":
        return [word for text in texts for word in ("--set", f"{one.path}={text}")]
    return [one.flag] if one.is_flag else [word for text in texts for word in (one.flag, text)]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
