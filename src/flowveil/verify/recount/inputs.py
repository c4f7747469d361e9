"""The two inputs of a recount: the raw trips as flat columns, and the folder of a release."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .tree import Codes, Ints, ZoneMap, cell_texts

Counts = NDArray[np.int64]
MILLION = 1_000_000


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Distinct (row, person) pairs in memory, and how many trips of the row the person made (None
    if unknown).
    """

    row: Ints
    person: Ints
    trips: Counts | None

    def count(self, group: Ints, n: int) -> Counts:
        """Returns the distinct persons of each of n groups.

        ``group`` has the group of each row, -1 for none.
        """
        key, _, bits = self._keys(group)
        return np.bincount(np.unique(key) >> bits, minlength=n)

    def members(self, group: Ints) -> tuple[NDArray[np.int64], Counts]:
        """Returns the group of each distinct (group, person) pair, and the trips of the pair (1 if
        unknown).
        """
        key, kept, bits = self._keys(group)
        made = np.ones(len(key), dtype=np.int64) if self.trips is None else self.trips[kept]
        distinct, pair = np.unique(key, return_inverse=True)
        return distinct >> bits, np.bincount(pair, weights=made, minlength=len(distinct)).astype(
            np.int64
        )

    def _keys(self, group: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        of_row = group[self.row]
        kept = np.flatnonzero(of_row >= 0)
        bits = int(self.person.max(initial=0)).bit_length()
        return (of_row[kept].astype(np.int64) << bits) | self.person[kept], kept, bits


@dataclass(frozen=True, eq=False)
class Places:
    """Listed places by tile: those with stricter thresholds k and l (0 for none), or those that l
    is counted by.
    """

    tile: Codes
    k: Counts
    l: Counts  # noqa: E741  # the letter of the papers


def texts_of(codes: Codes) -> Codes:
    """Returns codes of tiles as text."""
    return cell_texts(codes) if codes.dtype == np.uint64 else codes


def worth_of(tiles: Codes, listed: Places | None) -> Counts:
    """Returns the number of listed places in each tile; 1 if tiles are counted."""
    if listed is None:
        return np.ones(len(tiles), dtype=np.int64)
    places = Counter(listed.tile.tolist())
    return np.array([places[tile] for tile in texts_of(tiles).tolist()], dtype=np.int64)


def with_places(tiles: Codes, places: Places | None) -> Codes:
    """Returns tiles, followed by those of listed places that are not among them."""
    if places is None:
        return tiles
    is_h3 = tiles.dtype == np.uint64
    codes = (
        np.array([int(code, 16) for code in places.tile.tolist()], dtype=np.uint64)
        if is_h3
        else places.tile
    )
    return np.concatenate((tiles, np.setdiff1d(codes, tiles)))


@dataclass(frozen=True, eq=False)
class Trips:
    """Raw trips: one row for each (slice, origin tile, destination tile), or finer."""

    origin: Ints  # number of the tile in ``origins``
    destination: Ints  # number of the tile in ``destinations``
    trips: Counts  # at least 1
    weight: Counts | None  # whole millionths; None without weights
    # counts the distinct persons of groups of rows, as `PersonRows`; None if the input has none
    persons: Any
    origins: Codes  # codes of the tiles seen at this end, all different: H3 cells (uint64) or text
    destinations: Codes
    origin_map: ZoneMap | None = None  # the map that codes are taken from; None for H3
    destination_map: ZoneMap | None = None
    slice_columns: tuple[str, ...] = ()  # columns by which trips are cut, ``time`` last
    slices: Sequence[tuple[str, ...]] = (
        (),
    )  # values of each slice; one empty tuple if trips are not cut
    slice: Ints | None = None  # number of the slice of each row
    every: str | None = None  # step of time; None without time
    unit: int = (
        1  # what one trip is counted as: 1, or 1,000,000 if the input has fractions of trips
    )
    rows: int | None = None  # input rows that represent trips; None if unknown
    dropped: int = 0  # how many of them could not be read
    outside: int = 0  # how many have an end outside the study area
    #: Trips and weight of the dropped rows and of those outside, by basis; None if unknown.
    unread: Mapping[str, tuple[Fraction, Fraction]] | None = None
    rows_are_trips: bool = False  # whether every row is one trip
    stricter: Places | None = None  # places with stricter thresholds, if the operator gave the list
    l_places: Places | None = (
        None  # places that locations are counted by, if the operator gave the list
    )
    read_by: str = "recount"  # or ``engine``
    values: Any = None  # `values.ValueRows` if the release has means, totals or medians

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def ends(self) -> tuple[tuple[Codes, Ints, ZoneMap | None], ...]:
        """Codes of the tiles, number of the tile of each row, and the map, of each end."""
        there = (self.destinations, self.destination, self.destination_map)
        return (self.origins, self.origin, self.origin_map), there

    def unread_volume(self, basis: str) -> tuple[Fraction, Fraction] | None:
        """Returns the volume of the dropped rows and of those outside; None if unknown."""
        if self.unread is not None:
            return self.unread[basis]
        known = (self.rows_are_trips and basis == "trips") or not (self.dropped or self.outside)
        return (Fraction(self.dropped), Fraction(self.outside)) if known else None

    def of_slice(self) -> Any:
        """Returns the slice of each row."""
        return np.zeros(len(self), dtype=np.int32) if self.slice is None else self.slice

    def population(self, k: float) -> int | None:
        """Returns k times the mean weight of a trip in millionths, rounded up.

        None without weights.
        """
        n = Fraction(int(self.trips.sum()), self.unit)
        return (
            None
            if self.weight is None or n == 0
            else math.ceil(Fraction(k) * int(self.weight.sum()) / n)
        )


UNITS = ("trips", "people", "population")
SPAN = ("time_from", "time_to")
_KINDS = ("plain", "layered", "boxed", "folded", "sliced", "noisy")
_TEXT = (pa.string(), pa.large_string())
#: Columns of flows.parquet that are not slice columns, with the Arrow types they may have.
_COLUMNS = {
    "origin_zone": _TEXT,
    "destination_zone": _TEXT,
    "trips": (pa.int64(), pa.float64()),
    "weight": (pa.float64(),),
    "revised": (pa.bool_(),),
    "layer": (pa.int8(),),
}


def number_columns(parameters: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the columns of means, totals and medians, with what they are and the input column."""
    roles = (("mean", "mean"), ("total_of", "total"), ("median", "median"))
    named = [
        (role, prefix, ((parameters.get("columns") or {}).get(role) or "").split(","))
        for role, prefix in roles
    ]
    return {
        f"{prefix}_{column.strip()}": (role, column)
        for role, prefix, columns in named
        for column in columns
        if column
    }


class FolderError(ValueError):
    """The folder contradicts itself; the message is a finding."""


class Release:
    """A release folder: entries of report.json, flows.parquet, and the thresholds that hold for its
    cells.
    """

    def __init__(self, folder: Path, trips: Trips) -> None:
        report = json.loads((folder / "report.json").read_text("utf-8"))
        self.kind, self.method = str(report["kind"]), str(report["method"])
        self.parameters: Mapping[str, Any] = report["parameters"]
        self.statement: Mapping[str, Any] = report["statement"]
        self.guarantee: Mapping[str, Any] = report["guarantee"]
        if self.kind not in _KINDS:
            raise FolderError("report.json: releases of this kind cannot be recounted")
        self.is_plain, self.is_noisy = self.kind == "plain", self.kind == "noisy"
        self.has_boxes, self.is_folded = self.kind == "boxed", self.kind == "folded"
        # The columns that fold, with the parents of the values of each attribute; None for time.
        self.folds: dict[str, Mapping[str, str | None] | None] = {}
        # Of these, the attributes without a given tree: only published values are stated.
        self.found_values: tuple[str, ...] = ()
        if self.is_folded:
            trees = self.parameters.get("fold") or {}
            self.found_values = tuple((self.parameters.get("slices") or {}).get("by") or ())
            self.folds = {
                name: None if name == "time" else trees[name] for name in trips.slice_columns
            }
            if ("time" in self.folds) != (
                trips.every is not None
            ) or not trees.keys() <= self.folds.keys():
                raise FolderError(
                    "report.json: the folded columns are not those of the input as it was read"
                )
        # Empty if columns fold.
        self.slice_columns = (
            tuple(self.statement.get("slice_columns") or ()) if not self.is_folded else ()
        )
        if not self.is_folded and self.slice_columns != tuple(trips.slice_columns):
            raise FolderError(
                "report.json: its slice columns are not those of the input as it was read"
            )
        # Columns of flows.parquet that hold a node of each fold.
        self.fold_columns = [
            name for fold in self.folds for name in (SPAN if fold == "time" else (fold,))
        ]
        self.flows = pq.read_table(folder / "flows.parquet", partitioning=None)
        numbers = number_columns(self.parameters)
        _check_columns(self.flows, self.slice_columns, self.fold_columns, tuple(numbers))
        if bool(self.statement.get("layers")) != self.has("layer"):
            raise FolderError("report.json: does not say whether cells come in layers")
        zones = pq.read_table(folder / "zones.parquet", columns=["zone", "role"], partitioning=None)
        _check_listed(self.flows, zones, same_zones=self.parameters.get("same_zones") is True)
        # Threshold of each protected unit, and of locations; the population is in millionths.
        self.least = _thresholds(self.guarantee, trips)
        self.protected = tuple(unit for unit in UNITS if unit in self.least)
        self.k = int(self.guarantee.get("k") or self.parameters.get("k") or 1)
        # Whether cells may have the values of an earlier release.
        self.is_revision = bool(self.statement.get("revision_of"))
        self._unit = trips.unit

    def __len__(self) -> int:
        return int(self.flows.num_rows)

    def has(self, column: str) -> bool:
        """Returns whether flows.parquet has a column."""
        return column in self.flows.column_names

    def trips(self) -> Counts:
        """Returns the published trips; -1 where they are not a whole number of units."""
        return _whole(self.flows["trips"].to_numpy(), self._unit)

    def weight(self) -> Counts | None:
        """Returns the published weights in millionths, -1 for other fractions.

        None without weights.
        """
        return _whole(self.flows["weight"].to_numpy(), MILLION) if self.has("weight") else None


def _whole(values: NDArray[Any], unit: int) -> Counts:
    if unit == 1 and values.dtype == np.int64:
        return values
    whole = np.rint(
        np.nan_to_num(values, nan=-1.0, posinf=-1.0, neginf=-1.0).clip(-1.0, 2.0**33) * unit
    )
    return np.where(whole / unit == values, whole, -1).astype(np.int64)


def _check_columns(
    flows: pa.Table, slices: Sequence[str], folds: Sequence[str], numbers: Sequence[str]
) -> None:
    needed = {"origin_zone", "destination_zone", "trips", *slices, *folds, *numbers}
    found = set(flows.column_names)
    if not needed <= found <= needed | set(_COLUMNS) or len(found) < len(flows.column_names):
        raise FolderError("flows.parquet: has other columns than a release")
    types = {**_COLUMNS, **dict.fromkeys(numbers, (pa.float64(),))}
    if any(
        flows.schema.field(name).type not in types.get(name, _TEXT) for name in flows.column_names
    ):
        raise FolderError("flows.parquet: a column has the wrong type")
    if flows.num_rows == 0 or any(
        flows[n].null_count for n in flows.column_names if n not in (*slices, *numbers)
    ):
        raise FolderError("flows.parquet: has no rows, or values are missing")
    # A missing number is null and zero has no sign: other bits of the same value could carry
    # information.
    for name in (
        name for name in flows.column_names if pa.types.is_floating(flows.schema.field(name).type)
    ):
        values = flows[name].drop_null().to_numpy()
        if np.any(np.isnan(values) | (np.signbit(values) & (values == 0))):
            raise FolderError("flows.parquet: has NaN or a negative zero")
    if any(pc.min(flows[name]).as_py() < 1 for name in ("trips", "layer") if name in found):
        raise FolderError(
            "flows.parquet: cells have fewer than one trip, or layers are not numbered from 1"
        )


def _check_listed(flows: pa.Table, zones: pa.Table, *, same_zones: bool) -> None:
    """Section 1: zones.parquet lists the zones in use, by role.

    Every role is ``both`` if both ends share zones.
    """
    listed = list(zip(zones["zone"].to_pylist(), zones["role"].to_pylist(), strict=True))
    used = {
        role: set(pc.unique(flows[f"{role}_zone"]).to_pylist())
        for role in ("origin", "destination")
    }
    for role, own in used.items():
        named = {zone for zone, of in listed if of in (role, "both")}
        if len(set(listed)) < len(listed) or named != (
            set().union(*used.values()) if same_zones else own
        ):
            raise FolderError(
                f"zones.parquet: {role} zones are listed twice, or not used, or not listed"
            )


def _thresholds(guarantee: Mapping[str, Any], trips: Trips) -> dict[str, float]:
    scales = {"trips": trips.unit, "people": 1, "population": MILLION, "locations": 1}
    stated = {unit: guarantee[unit] for unit in scales if guarantee.get(unit) is not None}
    if any(isinstance(value, bool) or not 0 < value < math.inf for value in stated.values()):
        raise FolderError("report.json: a threshold of the guarantee is not a number above 0")
    least = {unit: value * scales[unit] for unit, value in stated.items()}
    if "population" in guarantee and "population" not in stated:
        population = trips.population(guarantee["k"])
        least["population"] = math.inf if population is None else population
    return least


def check_guarantee(release: Release, trips: Trips) -> Iterator[str]:
    """Section 5: the guarantee agrees with itself, with the parameters, and with what the input can
    count.
    """
    stated, given = release.guarantee, release.parameters
    units = given.get("protect") or ()
    units = {units} if isinstance(units, str) else set(units)
    if not release.protected:
        yield "report.json: the guarantee protects no unit"
    if not set(stated.get("protect", ())) == units == set(release.protected):
        yield (
            "report.json: the guarantee, its thresholds and the parameters protect different units"
        )
    if "people" in release.least and trips.persons is None:
        yield "report.json: the guarantee protects people, but the input has no persons to count"
    if "population" in release.least and trips.weight is None:
        yield (
            "report.json: the guarantee protects the population, but the input has no weights to"
            " count"
        )
        return
    k, population = max(stated.get("k") or 0, given.get("k") or 0), given.get("k_population")
    if release.protected == ("population",) and population is not None:
        if stated.get("k") is not None:
            yield "report.json: the guarantee calls k what is a population given as a number"
    elif (stated.get("k") or 0) < 1 or stated["k"] != given.get("k", stated["k"]):
        yield (
            "report.json: the guarantee has no k of at least 1, or another one than the parameters"
        )
    required = {"trips": k, "people": k, "locations": given.get("l") or 0}
    required["population"] = (
        population * MILLION if population is not None else trips.population(k) or 0
    )
    checked = {*release.least, *(("locations",) if given.get("l") is not None else ())}
    for unit in (*UNITS, "locations"):
        if unit in checked and release.least.get(unit, 0) < required[unit]:
            yield f"report.json: the guarantee in {unit} is weaker than the parameters require"
    if release.has("weight") != (trips.weight is not None):
        yield "flows.parquet: has weights, but the input has none, or the other way round"
    rule = release.statement["suppression"]
    if rule["rule"] not in ("short cells", "hopeless flows"):
        yield "report.json: the suppression rule is unknown"
    elif rule["rule"] == "hopeless flows" and (
        not 0 <= rule["beta"] < 1
        or rule["levels"] < 0
        or (release.parameters.get("slices") or {}).get("common_zones") is True
    ):
        yield "report.json: the suppression rule 'hopeless flows' cannot have these values"


def check_expected(release: Release, trips: Trips, expect: Mapping[str, Any]) -> Iterator[str]:
    """Compares the guarantee with the one that the reader requires."""
    k, named = expect.get("k"), tuple(expect.get("protect") or ())
    yield from (
        f"report.json: the release does not protect {unit}"
        for unit in named
        if unit not in release.least
    )
    if k is not None:
        given = expect.get("k_population")
        population = given * MILLION if given else trips.population(k) or math.inf
        claimed = [unit for unit in named or UNITS if unit in release.least]
        weak = [
            unit
            for unit in claimed
            if release.least[unit] < (population if unit == "population" else k)
        ]
        if weak and (named or weak == claimed):
            yield f"report.json: the release claims a k of less than {k} in {', '.join(weak)}"
    for unit, name, scale in (("population", "k_population", MILLION), ("locations", "l", 1)):
        least = expect.get(name)
        if least is not None and release.least.get(unit, 0) < least * scale:
            yield f"report.json: the release claims less than {least} in {unit}"
