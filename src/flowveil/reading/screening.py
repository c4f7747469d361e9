"""Screening: decides which rows of a trip table are used, dropped or outside, and refuses tables
with errors.

Gaps (a missing end, a point off the earth) are usual in trip data: such rows are dropped and
counted, in rows and in trips, up to a share. Errors (text among numbers, a negative weight) mean
that the table is misread: one message reports all of them. Counts do not depend on the order of
rows. Examples are row numbers, never values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Mask
from flowveil.core.errors import DataError, option, switched_on, with_value
from flowveil.core.flows import (
    LARGEST_SUM,
    MILLION,
    ROUNDING_ALLOWED,
    SUM_COLUMNS,
    SumColumn,
    plain_amount,
    to_fixed_point,
)
from flowveil.core.read_summary import Days, ReadSummary
from flowveil.reading import Reading
from flowveil.reading.numbers import unclear_numbers
from flowveil.reading.plausibility import (
    axes_exchanged,
    degree_bins,
    misplaced,
    misplaced_by_crs,
)
from flowveil.reading.tiling import NO_TILE, H3Tiling, Inside, MapTiling, Tiling
from flowveil.reading.times import TimeForm
from flowveil.zoning.gazetteer import projected
from flowveil.zoning.h3 import MAX_RESOLUTION, resolution_of

#: Upper bound for the trips of a row; sums of whole numbers stay exact.
MAX_TRIPS = 2**53

NO_TRIPS = "no trips"
MISSING_END = "missing end"
OFF_EARTH = "off the earth"
AT_ZERO = "at 0,0"
UNKNOWN_TILE = "unknown tile"
MISSING_COUNT = "missing count"
MISSING_TIME = "missing time"
MISSING_ATTRIBUTE = "missing attribute"
OUTSIDE_ZONES = "outside every zone"
OUTSIDE_AREA = "outside the area"
#: Reasons in order of precedence: a row with several gaps is counted under the first.
REASONS = (
    NO_TRIPS,
    MISSING_END,
    OFF_EARTH,
    AT_ZERO,
    UNKNOWN_TILE,
    MISSING_COUNT,
    *(column.missing for column in SUM_COLUMNS.values()),
    MISSING_TIME,
    MISSING_ATTRIBUTE,
    OUTSIDE_ZONES,
    OUTSIDE_AREA,
)
#: Reasons that do not count as dropped: the row has no trips, or is outside the study area.
_NOT_DROPPED = (NO_TRIPS, OUTSIDE_AREA)
#: What happens to a row with trips.
_USED, _DROPPED, _OUTSIDE = "used", "dropped", "outside"
#: Fewer trips than this are 0 in millionths.
_LEAST_TRIPS = 0.5 / MILLION
#: Upper bound for the error of rounding fractions of trips to millionths, as a share of their sum.
_TRIPS_ROUNDING_ALLOWED = 1e-3

#: A number that differs more from whole millionths has more than six decimals.
_ROUNDED = 1e-8
_EXAMPLES = 5
#: An unknown code is listed if at least so many ends have it: it then names a place, not a person.
_FEWEST_ENDS = 10
#: Points off the earth that are kept to recognise their reference system; they are never shown.
_OFF_EARTH_KEPT = 200
#: If a larger share is dropped, the input is misread, and a larger limit is not suggested.
_MOST = 0.5


@dataclass(frozen=True, eq=False)
class Batch:
    """Columns of some rows. NaN is a missing number, `NO_TILE` a missing tile.

    Attributes:
        points: latitude and longitude of the origin, then of the destination; None if there are
            tiles.
        tiles: the two ends as numbers of the tiling; None if there are points.
        added: the columns of `flowveil.core.flows.SUM_COLUMNS`, by role.
        unknown_codes: the number of ends of each code that is not on the map.
        projected: ``points`` before they were converted to degrees; None if they are degrees.
        texts, commas: by number column, the rows with text that is no number, and whether a
            coordinate has a decimal comma.
        marks: how separators are used in columns of counts; see `flowveil.reading.numbers`.
        times: rows whose time cannot be read; `time_shapes` has their shapes.
        day: days since 1970; null without a time.
    """

    points: tuple[NDArray[np.float64], ...] | None = None
    tiles: tuple[Cells64, Cells64] | None = None
    trips: NDArray[np.float64] | None = None
    added: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    unknown_codes: Counter[str] = field(default_factory=Counter)
    texts: dict[str, Mask] = field(default_factory=dict)
    commas: bool = False
    marks: Counter[str] = field(default_factory=Counter)
    projected: tuple[NDArray[np.float64], ...] | None = None
    no_time: Mask | None = None
    no_attribute: Mask | None = None
    times: Mask | None = None
    time_shapes: list[str] = field(default_factory=list)
    day: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.points[0] if self.points is not None else self.tiles[0])  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class Kept:
    """The rows of a batch that are used: their positions, tiles, whole trips, and sums in whole
    millionths.

    ``fraction`` has the fraction beyond the whole trips, in millionths of a trip; None without a
    number of trips.
    """

    rows: NDArray[np.int64]
    origin: Cells64
    destination: Cells64
    trips: NDArray[np.int64]
    fraction: NDArray[np.int64] | None
    added: dict[str, NDArray[np.int64]]


@dataclass(eq=False)
class _Finding:
    """A number of rows, and the first of their row numbers, from 1."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, mask: Mask, offset: int) -> None:
        at = np.flatnonzero(mask)
        self.count += len(at)
        self.rows += (at[: _EXAMPLES - len(self.rows)] + offset + 1).tolist()

    def __str__(self) -> str:
        if not self.rows:
            return _counted(self.count)
        where = ", ".join(map(str, self.rows)) + (", ..." if self.count > len(self.rows) else "")
        return f"{_counted(self.count)} ({'row' if self.count == 1 else 'rows'} {where})"


@dataclass(eq=False)
class _FixedPointSum:
    """The total of a column in millionths, and the error of rounding.

    Sums do not depend on the order of rows.
    """

    column: SumColumn
    total: int = 0
    off: float = 0.0
    #: Whether a number has more than six decimals, and whether one was rounded to 0.
    rounded: bool = False
    vanishing: bool = False

    def round_fixed_point(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns numbers as whole millionths; records the error."""
        whole = to_fixed_point(values)
        # In float: exact up to the limit; beyond it an integer could wrap around.
        self.total += int(whole.sum(dtype=np.float64))
        off = np.abs(values - whole / MILLION)
        self.off += float(off.sum())
        self.rounded |= bool(np.any(off > _ROUNDED))
        self.vanishing |= bool(np.any((whole == 0) & (values > 0)))
        return whole

    def __add__(self, other: _FixedPointSum) -> _FixedPointSum:
        rounded, vanishing = self.rounded or other.rounded, self.vanishing or other.vanishing
        return _FixedPointSum(
            self.column, self.total + other.total, self.off + other.off, rounded, vanishing
        )

    def problems(self) -> Iterator[str]:
        one, many = self.column.one, self.column.many
        if self.vanishing or self.off * MILLION > ROUNDING_ALLOWED * self.total:
            yield (
                f"{many} too fine to be counted in millionths; multiply them all by a common factor"
            )
        if self.total > LARGEST_SUM * MILLION:
            yield (
                f"a total {one} above {LARGEST_SUM:,}, too large to be counted in millionths;"
                f" divide all {many} by a common factor"
            )

    @property
    def note(self) -> str:
        many = self.column.many
        return (
            f"{many.capitalize()} have more than six decimals and are counted as the nearest"
            " millionths, so that sums are exact in any order; to keep more of them, multiply all"
            f" {many} by a common factor."
        )


#: The counters of a screening.
_COUNTED = (
    "rows",
    "_kept",
    "_left_out",
    "_amounts",
    "_rounding",
    "_has_fractions",
    "_errors",
    "_resolutions",
    "_on_earth_if_swapped",
    "_off_earth",
    "_bins",
    "_commas",
    "_marks",
    "_projected",
    "_sums",
    "_time_shapes",
    "_unknown_codes",
    "_days",
)


class Screening:
    """Screens batches in the order of the table, and reports once at the end."""

    def __init__(self, reading: Reading, tiling: Tiling, *, times: TimeForm | None = None) -> None:
        self._reading, self._tiling, self._times = reading, tiling, times
        self._time_shapes: Counter[str] = Counter()
        self._unknown_codes: Counter[str] = Counter()
        #: Rows that were screened; rows that are used.
        self.rows, self._kept = 0, 0
        self._left_out = dict.fromkeys(REASONS, 0)
        #: Trips and weight in millionths, by column and by use of the row.
        self._amounts: Counter[str] = Counter()
        self._rounding = 0.0
        self._has_fractions = False
        self._errors: dict[str, _Finding] = {}
        self._resolutions = np.zeros(MAX_RESOLUTION + 1, dtype=np.int64)
        self._on_earth_if_swapped = 0
        self._off_earth: list[tuple[float, float]] = []
        self._bins: Counter[int] = Counter()
        self._commas = False
        self._marks: Counter[str] = Counter()
        #: Some ends before they were converted to degrees; never shown.
        self._projected: list[tuple[float, float]] = []
        self._sums = {name: _FixedPointSum(column) for name, column in SUM_COLUMNS.items()}
        self._inside = Inside(reading.within, tiling)
        #: Whether unknown codes become the tile `outside`, like points in no zone.
        self._keeps_unknown = reading.outside == "keep" and isinstance(tiling, MapTiling)
        #: Days of used rows, with None if a used row has no time; a counter, so that parts can be
        #: added.
        self._days: Counter[int | None] = Counter()

    def pass_batch(self, batch: Batch) -> Kept:
        """Screens the next batch; returns the rows that are used."""
        self._commas |= batch.commas
        self._marks += batch.marks
        self._keep_projected(batch)
        unusable = np.zeros(len(batch), dtype=np.bool_)
        for column, text in batch.texts.items():
            self._find(f"text that is not a number in column {column!r}", text)
            unusable |= text
        if batch.times is not None:
            named = self._reading.columns.time
            what = (
                f"a time in column {named!r} in another form than the other rows, or an impossible"
                " date"
            )
            self._find(what, batch.times)
            self._time_shapes.update(batch.time_shapes)
            unusable |= batch.times
        unusable |= self._check_amounts(batch) | self._check_tiles(batch)
        gaps = self._gaps(batch)
        for reason in REASONS:
            if reason in gaps:
                self._drop(reason, batch, np.flatnonzero(gaps[reason] & ~unusable))
                unusable |= gaps[reason]
        rows = np.flatnonzero(~unusable)
        if batch.points is not None and self._reading.within is None:
            self._bins.update(degree_bins(batch.points, rows))
        rows, origin, destination = self._placed(batch, rows)
        trips, fraction = self._trips_of(batch, rows)
        added = {
            name: self._sums[name].round_fixed_point(values[rows])
            for name, values in batch.added.items()
        }
        self.rows += len(batch)
        self._kept += len(rows)
        self._count(_USED, batch, rows)
        if batch.day is not None:
            used = batch.day if len(rows) == len(batch) else batch.day.take(pa.array(rows))
            self._days.update(pc.unique(used).to_pylist())
        return Kept(
            rows=rows,
            origin=origin,
            destination=destination,
            trips=trips,
            fraction=fraction,
            added=added,
        )

    def _keep_projected(self, batch: Batch) -> None:
        """Keeps some ends in their reference system, to recognise another one."""
        for north, east in () if batch.projected is None else _pairs(batch.projected):
            room = max(0, 2 * _OFF_EARTH_KEPT - len(self._projected))
            some = np.flatnonzero(np.isfinite(north) & np.isfinite(east) & (north != 0))
            some = some[: min(room, _OFF_EARTH_KEPT)]
            self._projected += zip(north[some].tolist(), east[some].tolist(), strict=True)

    def _drop(self, reason: str, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Counts rows that are not used, with their trips and weight."""
        self._left_out[reason] += len(rows)
        if reason != NO_TRIPS:
            self._count(_OUTSIDE if reason == OUTSIDE_AREA else _DROPPED, batch, rows)

    def _count(self, fate: str, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Adds the trips and weight of rows to the totals.

        A missing or impossible number adds 0.
        """
        for name, values in {"trips": batch.trips, **batch.added}.items():
            if values is None:
                self._amounts[f"{name} {fate}"] += len(rows) * MILLION
                continue
            present = values[rows]
            present = present[(present >= 0) & (present <= MAX_TRIPS)]
            # Sums of whole doubles are exact up to 2**53, which no column may exceed.
            is_whole = not np.any(present != np.floor(present))
            amount = (
                int(np.sum(present)) * MILLION
                if is_whole
                else int(np.sum(np.rint(present * MILLION)))
            )
            self._amounts[f"{name} {fate}"] += amount

    def _trips_of(
        self, batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Returns whole trips of the rows, and fractions in millionths if the table has a number of
        trips.
        """
        if batch.trips is None:
            return np.ones(len(rows), np.int64), None
        trips = batch.trips[rows]
        whole = trips.astype(np.int64)
        fraction = np.zeros(len(rows), np.int64)
        fractional = whole != trips
        if fractional.any():
            self._has_fractions = True
            exact = to_fixed_point(trips[fractional])
            whole[fractional], fraction[fractional] = exact // MILLION, exact % MILLION
            self._rounding += float(np.sum(np.abs(trips[fractional] - exact / MILLION)))
        return whole, fraction

    def tally(self) -> dict[str, Any]:
        """Returns the counters, for `take`."""
        return {name: getattr(self, name) for name in _COUNTED}

    def take(self, tally: dict[str, Any]) -> None:
        """Adds the counters of another part of the table.

        Parts on a cluster have no order, so no row numbers.
        """
        for name, found in tally.items():
            mine = getattr(self, name)
            if name == "_errors":
                for what, finding in found.items():
                    mine.setdefault(what, _Finding()).count += finding.count
            elif isinstance(found, dict):
                for what, n in found.items():
                    mine[what] = mine[what] + n if what in mine else n
            else:
                setattr(self, name, mine or found if isinstance(found, bool) else mine + found)

    def finish(
        self, *, label: str, nobody: Counter[str], notes: tuple[str, ...] = ()
    ) -> ReadSummary:
        """Returns the summary of reading, after all batches.

        Refuses the table with one message on all problems.
        """
        resolutions = np.flatnonzero(self._resolutions)
        problems = [f"{what}: {found}" for what, found in self._errors.items()]
        if self._time_shapes:
            frequent = sorted(
                self._time_shapes, key=lambda shape: (-self._time_shapes[shape], shape)
            )
            shapes = ", ".join(f"'{shape}'" for shape in frequent[:_EXAMPLES])
            problems.append(f"times such as {shapes} (9 is a digit, A a letter)")
        if self._unknown_codes:
            problems.append(self._unknown_text())
        if self._times is not None and self._times.problem is not None:
            problems.append(
                f"the times in column {self._reading.columns.time!r} cannot be read:"
                f" {self._times.problem}"
            )
        if len(resolutions) > 1:
            shares = ", ".join(f"{r}: {self._resolutions[r]:,} ends" for r in resolutions)
            problems.append(f"several H3 resolutions, all tiles must have the same ({shares})")
        problems += [problem for column in self._sums.values() for problem in column.problems()]
        trips = self._amounts[f"trips {_USED}"] // MILLION
        if trips > (LARGEST_SUM if self._has_fractions else MAX_TRIPS):
            problems.append(f"{trips:.0e} trips in all, more than can be counted exactly")
        if self._rounding > _TRIPS_ROUNDING_ALLOWED * self._amounts[f"trips {_USED}"] / MILLION:
            problems.append("numbers of trips too small to be counted in millionths")
        unclear, _ = self._unclear_numbers()
        problems += unclear
        if problems:
            self._refuse(label, problems)
        counts = self._counts()
        self._refuse_misplaced_by_crs()
        self._refuse_too_many_gaps(label, counts)
        if (wrong := misplaced(self._bins, self._reading.columns)) is not None:
            raise DataError(wrong)
        # Cells that are coarser than the requested resolution keep theirs.
        as_read = replace(
            self._reading, resolution=min([*resolutions.tolist(), self._reading.resolution])
        )
        on_times = (self._times.note,) if self._times is not None and self._times.note else ()
        notes = (
            *on_times,
            *notes,
            *(column.note for column in self._sums.values() if column.rounded),
        )
        days, reading = None, self._reading
        if reading.columns.time is not None:
            found = frozenset(str(np.datetime64(day, "D")) for day in self._days if day is not None)
            days = Days(
                reading.columns.time,
                reading.timezone,
                reading.time_format,
                found,
                missing=None in self._days,
            )
        return replace(
            counts,
            nobody={word: n for word, n in sorted(nobody.items()) if n},
            notes=notes,
            days=days,
            **as_read.to_dict(),
        )

    def _unclear_numbers(self) -> tuple[list[str], list[str]]:
        return unclear_numbers(self._marks, decimal_comma=self._reading.decimal_comma)

    def _refuse_misplaced_by_crs(self) -> None:
        """Raises DataError if the reference system puts most trips where no one lives."""
        crs, used = self._reading.crs, self._reading.columns
        if crs is None or self._reading.within is not None or not self._projected:
            return
        wrong = misplaced_by_crs(self._projected, crs, used, near=self._near())
        if wrong is not None:
            raise DataError(wrong)

    def _near(self) -> tuple[float, float] | None:
        """Returns where the map or the study area is: evidence of where the trips are."""
        area, zones = self._reading.within, self._reading.zones
        if area is not None and area.bounds is not None:
            west, south, east, north = area.bounds
            return (south + north) / 2, (west + east) / 2
        if zones is None or zones.hierarchy.geography is None:
            return None
        lat, lon = zones.hierarchy.geography.centers(zones.hierarchy.leaf_node)
        return float(np.nanmedian(lat)), float(np.nanmedian(lon))

    def _counts(self) -> ReadSummary:
        """Returns the counters, without the settings."""
        weighted = bool(self._reading.columns.weight)

        def amount(column: str, *fates: str) -> float:
            return plain_amount(sum(self._amounts[f"{column} {fate}"] for fate in fates))

        every = (_USED, _DROPPED, _OUTSIDE)
        return ReadSummary(
            rows=self.rows,
            empty_rows=self._left_out[NO_TRIPS],
            dropped={
                reason: n
                for reason, n in self._left_out.items()
                if n and reason not in _NOT_DROPPED
            },
            dropped_trips=amount("trips", _DROPPED),
            dropped_weight=amount("weight", _DROPPED) if weighted else None,
            outside_rows=self._left_out[OUTSIDE_AREA],
            outside_trips=amount("trips", _OUTSIDE),
            outside_weight=amount("weight", _OUTSIDE) if weighted else None,
            input_trips=amount("trips", *every),
            input_weight=amount("weight", *every) if weighted else None,
        )

    def _unknown_text(self) -> str:
        """Returns the number of unknown codes.

        Frequent ones that are written like codes of the map are listed.
        """
        codes = [] if self._reading.zones is None else self._reading.zones.hierarchy.code.tolist()
        shapes = {_shape_of(code) for code in codes}
        often = sorted(
            c
            for c, n in self._unknown_codes.items()
            if n >= _FEWEST_ENDS and _shape_of(c) in shapes
        )
        listed = (
            f"; with {_FEWEST_ENDS} ends or more: {', '.join(often[:_EXAMPLES])}" if often else ""
        )
        n = len(self._unknown_codes)
        return f"not on the map: {n:,} different code{'s' if n > 1 else ''}{listed}"

    def _find(self, what: str, mask: Mask) -> None:
        if mask.any():
            self._errors.setdefault(what, _Finding()).add(mask, self.rows)

    def _check_amounts(self, batch: Batch) -> Mask:
        wrong: dict[str, Mask] = {}
        if batch.trips is not None:
            wrong["a negative number of trips"] = batch.trips < 0
            wrong["an infinite or impossibly large number of trips"] = batch.trips > MAX_TRIPS
        for name, values in batch.added.items():
            wrong |= SUM_COLUMNS[name].wrong(values)
        for what, mask in wrong.items():
            self._find(what, mask)
        return _any_of([np.zeros(len(batch), dtype=np.bool_), *wrong.values()])

    def _check_tiles(self, batch: Batch) -> Mask:
        if batch.tiles is None or self._reading.skip_unknown or self._keeps_unknown:
            return np.zeros(len(batch), dtype=np.bool_)
        unknown = self._unknown(batch.tiles)
        self._find(f"a tile that is not {self._tiling.noun}", unknown)
        self._unknown_codes += batch.unknown_codes
        return unknown

    def _unknown(self, tiles: tuple[Cells64, Cells64]) -> Mask:
        return _any_of([~self._tiling.is_tile(t) & (t != NO_TILE) for t in tiles])

    def _gaps(self, batch: Batch) -> dict[str, Mask]:
        gaps: dict[str, Mask] = {}
        if batch.trips is not None:
            gaps[NO_TRIPS] = (batch.trips >= 0) & (batch.trips < _LEAST_TRIPS)
            gaps[MISSING_COUNT] = np.isnan(batch.trips)
        gaps |= {
            SUM_COLUMNS[name].missing: np.isnan(values) for name, values in batch.added.items()
        }
        missing = {MISSING_TIME: batch.no_time, MISSING_ATTRIBUTE: batch.no_attribute}
        gaps |= {reason: gap for reason, gap in missing.items() if gap is not None}
        if batch.points is not None:
            lats, lons = batch.points[0::2], batch.points[1::2]
            gaps[MISSING_END] = _any_of([np.isnan(p) for p in batch.points])
            off = _any_of([np.abs(lat) > 90 for lat in lats] + [np.abs(lon) > 180 for lon in lons])
            off &= ~gaps[MISSING_END]
            gaps[OFF_EARTH] = off
            gaps[AT_ZERO] = _any_of(
                [(lat == 0) & (lon == 0) for lat, lon in zip(lats, lons, strict=True)]
            )
            if off.any():
                swapped = _any_of(
                    [np.abs(x[off]) > 90 for x in lons] + [np.abs(y[off]) > 180 for y in lats]
                )
                self._on_earth_if_swapped += int(np.count_nonzero(~swapped))
                some = np.flatnonzero(off)[: max(0, _OFF_EARTH_KEPT - len(self._off_earth))]
                for lat, lon in zip(lats, lons, strict=True):
                    self._off_earth += zip(lat[some].tolist(), lon[some].tolist(), strict=True)
        if batch.tiles is not None:
            gaps[MISSING_END] = _any_of([t == NO_TILE for t in batch.tiles])
            if self._reading.skip_unknown and not self._keeps_unknown:
                gaps[UNKNOWN_TILE] = self._unknown(batch.tiles)
        return gaps

    def _placed(
        self, batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Cells64, Cells64]:
        """Returns the rows inside the area and map, with the tiles of both ends (or ``outside``).

        Counts the others.
        """
        keeps = self._reading.outside == "keep"
        if batch.points is not None and not keeps:
            near = self._inside.near(batch.points, rows)
            self._drop(OUTSIDE_AREA, batch, np.setdiff1d(rows, near, assume_unique=True))
            rows = near
        ends = self._ends(batch, rows)
        inside = [tiles != NO_TILE for tiles in ends]
        off_map = np.zeros(len(rows), dtype=np.bool_) if keeps else ~(inside[0] & inside[1])
        for tiles, known in zip(ends, inside, strict=True):
            known[known] = self._inside.contains(tiles[known])
        if keeps:
            outside = np.uint64(self._tiling.outside)
            ends = [
                np.where(known, tiles, outside) for tiles, known in zip(ends, inside, strict=True)
            ]
        used = _any_of(inside) if keeps else inside[0] & inside[1]
        self._drop(OUTSIDE_ZONES, batch, rows[off_map])
        self._drop(OUTSIDE_AREA, batch, rows[~used & ~off_map])
        return rows[used], ends[0][used], ends[1][used]

    def _ends(self, batch: Batch, rows: NDArray[np.int64]) -> list[Cells64]:
        if batch.points is not None:
            points = (
                batch.points if len(rows) == len(batch) else tuple(p[rows] for p in batch.points)
            )
            return [self._tiling.tiles_at(*points[:2]), self._tiling.tiles_at(*points[2:])]
        lifted = []
        for tiles in batch.tiles:  # type: ignore[union-attr]  # one of points and tiles is there
            given = tiles[rows]
            if self._keeps_unknown:
                given = np.where(self._tiling.is_tile(given), given, np.uint64(NO_TILE))
            if isinstance(self._tiling, H3Tiling):
                self._resolutions += np.bincount(resolution_of(given), minlength=MAX_RESOLUTION + 1)
            lifted.append(self._tiling.lift(given))
        return lifted

    def _refuse(self, label: str, problems: list[str]) -> NoReturn:
        hints = []
        if self._commas:
            hints.append(f"{switched_on('decimal_comma')} reads numbers with a decimal comma.")
        hints += [hint for hint in self._unclear_numbers()[1] if hint not in hints]
        if any("a tile that is not" in p for p in problems):
            kept = f", or keep them as one zone 'outside' with {with_value('outside', 'keep')}"
            on_map = isinstance(self._tiling, MapTiling)
            unknown = self._errors[f"a tile that is not {self._tiling.noun}"].count
            hints.append(
                f"no tile is known: name the map that has these codes with {option('zones')}."
                if unknown >= self.rows
                else (
                    "drop rows with unknown tiles with"
                    f" {switched_on('skip_unknown')}{kept if on_map else ''}."
                )
            )
        if self._time_shapes:
            hints.append(
                "times need a date with a year of four digits from 1900 to 2100, all in one form;"
                " other forms are read with time_format (--time-format), such as '%m/%d/%y %H:%M'."
            )
        if self._left_out_text():
            problems = [*problems, f"rows to be dropped: {self._left_out_text()}"]
        lines = "".join(f"\n- {p}" for p in problems) + (
            f"\nHint: {' '.join(hints)}" if hints else ""
        )
        numbered = (
            ", row 1 being the first of the table"
            if any(f.rows for f in self._errors.values())
            else ""
        )
        name = label[:1].upper() + label[1:]
        raise DataError(f"{name} cannot be used. Found in {_counted(self.rows)}{numbered}:{lines}")

    def _refuse_too_many_gaps(self, label: str, counts: ReadSummary) -> None:
        """Raises DataError if more than ``max_dropped`` of the rows or their trips is dropped, or
        no trip is left.
        """
        if self.rows == 0:
            raise DataError(
                f"No trip is left in {label}: it has no rows. At least one row with both ends is"
                " needed."
            )
        if self._kept and counts.dropped_share <= self._reading.max_dropped:
            return
        rows = sum(counts.dropped.values())
        expected = counts.rows - counts.empty_rows
        found = f"{rows:,} of {expected:,} rows ({rows / max(expected, 1):.1%})"
        amounts = [("trips", counts.dropped_trips, counts.input_trips)]
        if counts.dropped_weight is not None:
            amounts.append(("weight", counts.dropped_weight, counts.input_weight or 0.0))
        shares = [f"{part / whole:.1%} of the {name}" for name, part, whole in amounts if whole]
        if self._reading.columns.trips or counts.dropped_weight is not None:
            found += f" with {' and '.join(shares)}"
        hint = " ".join(self._advice(counts))
        if not self._kept:
            raise DataError(
                f"No trip is left in {label}: all {_counted(self.rows)} are dropped or outside:"
                f" {self._left_out_text()}."
                f" {f'Hint: {hint}' if hint else 'At least one row with both ends is needed.'}"
            )
        raise DataError(
            f"Too many trips of {label} cannot be used: {found}; allowed are"
            f" {self._reading.max_dropped:.1%}. Dropped: {self._left_out_text()}. Hint: {hint}"
        )

    def _advice(self, counts: ReadSummary) -> Iterator[str]:
        """Yields hints if too much is dropped.

        Suggests a larger limit only if most of the trips are left.
        """
        rows = sum(counts.dropped.values())
        off, unknown = self._left_out[OFF_EARTH], self._left_out[UNKNOWN_TILE]
        outside = self._left_out[OUTSIDE_ZONES]
        if off and 2 * self._on_earth_if_swapped > off:
            yield (
                f"{self._on_earth_if_swapped:,} of the {off:,} rows off the earth would be on it"
                " with the axes exchanged: are latitude and longitude swapped?"
            )
        elif self._off_earth and (hint := self._other_system()):
            yield hint
        elif 2 * outside > rows or (2 * unknown > rows and counts.dropped_share > _MOST):
            yield (
                "is the map one of the same place? If it covers a part only, choose that part"
                f" ({option('within')})."
            )
        if unknown and isinstance(self._tiling, MapTiling):
            yield f"{with_value('outside', 'keep')} keeps unknown codes as one zone 'outside'."
        if self._kept and counts.dropped_share <= _MOST:
            yield f"give a larger {option('max_dropped')} if these trips may be missing."

    def _other_system(self) -> str | None:
        """Returns a hint on the reference system of points off the earth."""
        exchange = axes_exchanged(self._reading.columns)
        return projected(self._off_earth, near=self._near(), exchange=exchange)

    def _left_out_text(self) -> str:
        return ", ".join(f"{n:,} {reason}" for reason, n in self._left_out.items() if n)


def _shape_of(code: Any) -> str:
    """Returns a code with 9 for every digit and A for every letter."""
    return re.sub(r"[^\W\d_]", "A", re.sub(r"\d", "9", str(code)))


def _pairs(points: tuple[NDArray[np.float64], ...]) -> Iterator[tuple[Any, Any]]:
    """Yields both ends of four columns of coordinates."""
    yield points[0], points[1]
    yield points[2], points[3]


def _any_of(masks: list[Any]) -> Mask:
    return np.logical_or.reduce(masks)  # type: ignore[no-any-return]


def _counted(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"
