"""The DuckDB engine: one streaming pass over the trips.

DuckDB scans the source and converts text to numbers. Its batches are screened and indexed to tiles
while it reads on, and return to DuckDB, which groups them and spills to a private temporary folder.
Messages of DuckDB quote the input, so they are replaced by flowveil's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.errors import DataError, ParameterError, option, switched_on, with_value
from flowveil.core.flows import Flows
from flowveil.core.headers import plain_name
from flowveil.reading import Reading
from flowveil.reading.columns import (
    ColumnMap,
    complete,
    hints,
    refuse_grid_codes,
    refuse_unnamed_counts,
    refuse_unnamed_persons,
)
from flowveil.reading.database import batches_of, in_own_words, open_database
from flowveil.reading.engines.staging import BATCH_ROWS, Staged
from flowveil.reading.formats import chosen_format
from flowveil.reading.numbers import grouped_sql, mark_sql, trouble_sql
from flowveil.reading.persons import spelling_sql
from flowveil.reading.plausibility import Point
from flowveil.reading.screening import Batch, Kept, Screening
from flowveil.reading.sql import MISSING_PATTERN, attribute_sql, label_sql, number_sql, present_sql
from flowveil.reading.table import Table
from flowveil.reading.tables import open_table
from flowveil.reading.tiling import NO_TILE, UNREADABLE_TILE, H3Tiling, MapTiling, Tiling, tiling_of
from flowveil.reading.times import (
    FLOAT_TYPE,
    MICROSECONDS,
    NUMBER_TYPE,
    TEXT_TYPE,
    TimeForm,
    decide,
)
from flowveil.system import limits
from flowveil.system.workers import prefetch
from flowveil.zoning.files import ZoneMap
from flowveil.zoning.gazetteer import guess_timezone, to_degrees
from flowveil.zoning.h3 import H3Geography, is_cell

__all__ = ["BATCH_ROWS", "Query", "Staged", "read"]

#: Share of a column's values, or of the names of columns, that must be tiles.
_MOST = 0.5
#: SQL: the day of a time, counted from 1970.
_DAY_SQL = (
    f"CAST({MICROSECONDS} // 86_400_000_000 - ({MICROSECONDS} % 86_400_000_000 < 0)::INT AS"
    " INTEGER)"
)
_ENDS = ("origin", "destination")
#: Rows from whose places a time zone is guessed.
_SOME_ENDS = 1_000
_TIME_TYPE = re.compile(r"^TIMESTAMP|^DATE$|^TIME$")


def read(
    source: Any,
    reading: Reading,
    *,
    progress: Callable[[float], None] | None = None,
    threads: int | None = None,
) -> Flows:
    """Reads files or a table in memory once; see `flowveil.reading.engines.Engine`.

    Threads have no effect on the result.
    """
    tiling = tiling_of(reading)
    with open_database(threads) as con:
        with in_own_words("The input"):
            table = open_table(con, source, reading)
            reading = _read_as(table, reading)
        with in_own_words(table.label):
            query = Query.from_table(con, table, reading, tiling)
        screening = Screening(query.reading, tiling, times=query.times)

        def screened(batch: pa.RecordBatch) -> tuple[Kept, pa.RecordBatch]:
            return screening.pass_batch(query.columns_of(batch)), batch

        # A batch is screened while earlier ones are grouped, in order. The stream blocks its
        # connection, so rows are grouped through another one.
        pieces = (partial(screened, batch) for batch in _batches(con, query.sql, table.label))
        with (
            closing(prefetch(pieces, threads=min(2, limits.threads()), waiting=1)) as batches,
            Staged(con.cursor(), query.reading, tiling) as staged,
        ):
            for kept, batch in batches:
                with in_own_words(table.label):
                    staged.add(kept, batch)
                if progress is not None and table.n_rows:
                    progress(min(screening.rows / table.n_rows, 0.99))
            with in_own_words(table.label):
                staged.finish()
            intake = screening.finish(label=table.label, nobody=staged.nobody, notes=query.notes)
            with in_own_words(table.label):
                flows = staged.flows(intake)
    if progress is not None:
        progress(1.0)
    return flows


def _read_as(table: Table, reading: Reading) -> Reading:
    """Returns the reading with the columns of a matrix, or of a layout, unless others are named."""
    if table.form is not None:
        # The cells of a matrix are trips, whatever is said of the rows of tables.
        columns = replace(reading.columns, trips=reading.columns.trips or None)
        return table.form.read_as(replace(reading, columns=columns))
    layout = chosen_format(reading.source_format, table.names)
    if layout is None:
        return reading
    columns, given = reading.columns, dict(layout.given)
    if reading.thousands is None and not reading.decimal_comma:
        reading = replace(reading, thousands=given.pop("thousands", None))
    given.pop("thousands", None)
    counted = given.pop("counted", None)
    if reading.counted is None and columns.trips is None:
        reading = replace(reading, counted=counted)
    if columns.ends:
        given = {role: name for role, name in given.items() if not role.startswith(_ENDS)}
    if columns.weight:
        given.pop("trips", None)
    by_plain = {plain_name(name): name for name in reversed(list(table.names))}
    named = {
        role: ",".join(by_plain.get(plain_name(part), part) for part in name.split(","))
        for role, name in given.items()
        if getattr(columns, role) is None
    }
    found = ColumnMap.parse(**named)
    roles = {role: getattr(found, role) for role in named}
    return replace(reading, columns=replace(columns, **roles))


def sampler(table: Table) -> Callable[[str], list[Any]]:
    """Returns a cached function: values of a column, empty if it cannot be read (unused columns may
    be damaged).
    """

    @cache
    def sample(name: str) -> list[Any]:
        try:
            with in_own_words(table.label):
                return table.sample(list(table.names).index(name))
        except DataError:
            return []

    return sample


def recognised(table: Table, reading: Reading, tiling: Tiling) -> ColumnMap:
    """Returns the columns of a table by role, as named or recognised."""
    _refuse_wide(table, reading, tiling)
    return complete(
        reading.columns,
        table.names,
        holds_tiles=lambda name: _holds_tiles(table, name, tiling),
        cells=isinstance(tiling, H3Tiling),
        projected=reading.crs is not None,
        partitions=table.partitions,
        sample=sampler(table),
    )


def _refuse_wide(table: Table, reading: Reading, tiling: Tiling) -> None:
    """Raises DataError if the first line of a text file has the codes of a map: it is a matrix."""
    if (
        reading.columns.ends
        or table.form is not None
        or not (table.in_text and isinstance(tiling, MapTiling))
    ):
        return
    codes = [name.strip() for name in table.names[1:]]
    if len(codes) > 1 and tiling.zone_map.share_known(codes) > _MOST:
        raise DataError(
            f"{table.label} is a matrix: the names of its columns are codes of the map. Hint:"
            f" {switched_on('wide')} reads it."
        )


def _holds_tiles(table: Table, name: str, tiling: Tiling) -> bool:
    """Returns whether most of a column's first values are tiles."""
    values = [str(v) for v in table.peek(list(table.names).index(name)) if v is not None and v == v]
    if isinstance(tiling, MapTiling):
        zones = tiling.zone_map
        return max(zones.share_known(values), zones.share_known(values, padded=True)) > _MOST
    table.con.register("flowveil_peeked", pa.table({"c0": pa.array(values, pa.string())}))
    rows = table.con.execute(f"SELECT {_tile_sql('c0', 'VARCHAR')} FROM flowveil_peeked").fetchall()
    table.con.unregister("flowveil_peeked")
    numbers = np.array([row[0] for row in rows if row[0] != NO_TILE], dtype=np.uint64)
    return len(numbers) > 0 and bool(tiling.is_tile(numbers).mean() > _MOST)


def _refuse_other_codes(
    label: str,
    columns: ColumnMap,
    reading: Reading,
    zones: ZoneMap,
    sample: Callable[[str], list[Any]],
) -> None:
    """Raises DataError if no code of a sample is on the map, before its tree is built."""
    values = [str(value) for name in columns.ends for value in sample(name) if value is not None]
    codes = [value for value in values if value.strip()]
    if not codes or reading.pad_codes:
        return
    known, padded = zones.share_known(codes), zones.share_known(codes, padded=True)
    ends = " and ".join(map(repr, columns.ends))
    if padded - known > _MOST:
        raise DataError(
            f"The codes in columns {ends} have lost their leading zeros: those of the map have"
            f" {zones.code_length} digits. Hint: {switched_on('pad_codes')} fills them up."
        )
    if known == 0 and not reading.skip_unknown and reading.outside != "keep":
        raise DataError(
            f"No code in columns {ends} of {label} is on the map. Hint: name the map of these trips"
            f" with {option('zones')}, the column of its codes with"
            f" {option('tile', flag=option('zones_tile'))}, or other columns of the trips with"
            f" {option('origin_tile')} and {option('destination_tile')}."
        )


@dataclass(frozen=True, eq=False)
class Query:
    """A SELECT over the source: numbers as doubles, tiles as 64-bit numbers, persons as text.

    The column ``trouble`` has two bits for each number column of text: 1 for text that is not a
    number, 2 for a number with a decimal comma. The column ``marks`` has four bits for each column
    of counts in text: see `flowveil.reading.numbers.mark_sql`.
    """

    sql: str
    reading: Reading
    tiling: Tiling
    texts: tuple[str, ...]
    marked: tuple[str, ...] = ()
    times: TimeForm | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def from_table(cls, con: Any, table: Table, reading: Reading, tiling: Tiling) -> Query:
        """Returns the query over a table, after recognising its columns."""
        columns = recognised(table, reading, tiling)
        if not columns.has_tiles and not tiling.takes_points:
            raise ParameterError(
                "The ends are coordinates, and the map has no outlines to find them in. Hint: give"
                " a map with polygons (GeoJSON, GeoPackage, GeoParquet), or name columns with codes"
                " of its zones: origin_tile and destination_tile (--origin-tile,"
                " --destination-tile)."
            )
        names = [name for name in table.names if name not in table.partitions]
        sample = sampler(table)
        if isinstance(tiling, H3Tiling) and columns.has_tiles:
            refuse_grid_codes(columns.ends, sample, ends_named=bool(reading.columns.ends))
        if isinstance(tiling, MapTiling) and columns.has_tiles:
            _refuse_other_codes(table.label, columns, reading, tiling.zone_map, sample)
        refuse_unnamed_counts(columns, names, sample=sample)
        if reading.ask_person:
            refuse_unnamed_persons(columns, names, sample=sample)
        notes = tuple(hints(columns, names, sample=sample))
        return replace(
            cls._over(con, table, replace(reading, columns=columns), tiling), notes=notes
        )

    @property
    def used(self) -> ColumnMap:
        """The columns by role."""
        return self.reading.columns

    @classmethod
    def _over(cls, con: Any, table: Table, reading: Reading, tiling: Tiling) -> Query:
        used = reading.columns
        names = list(dict.fromkeys(used.names()))
        relation = table.attach([list(table.names).index(name) for name in names])
        described = con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        types = {name: str(row[1]) for name, row in zip(names, described, strict=True)}
        counted = used.added | ({"trips": used.trips} if used.trips else {})
        counted |= {f"value{i}": name for i, name in enumerate(used.value_names())}
        numbers = [*(() if used.has_tiles else used.ends), *counted.values()]
        _check_types(used, types, numbers, tiling)
        at = {name: f"c{i}" for i, name in enumerate(names)}
        comma, thousands = reading.decimal_comma, reading.thousands
        of_number: Callable[[str, str], str] = partial(_number_sql, comma=comma)
        of_count: Callable[[str, str], str] = partial(_number_sql, comma=comma, thousands=thousands)
        of_tile = _code_sql if isinstance(tiling, MapTiling) else _tile_sql
        of_end = of_tile if used.has_tiles else of_number
        select = [f"{of_end(at[name], types[name])} AS end{i}" for i, name in enumerate(used.ends)]
        select += [f"{of_count(at[name], types[name])} AS {role}" for role, name in counted.items()]
        if used.person:
            select.append(f"{spelling_sql(at[used.person], types[used.person])} AS person")
        for i, name in enumerate(used.by):
            select.append(f"{attribute_sql(at[name], types[name])} AS slice{i}")
        times: TimeForm | None = None
        if used.time:
            relation = table.rereadable(relation)
            if reading.every is not None:
                select.append(f"{label_sql(MICROSECONDS, reading.every)} AS slice{len(used.by)}")
            zone = table.timezones.get(list(table.names).index(used.time))
            how = {
                "time_format": reading.time_format,
                "timezone": reading.timezone,
                "column_zone": zone,
            }
            some_ends = f"SELECT {', '.join(select[:2])} FROM {relation} LIMIT {_SOME_ENDS}"
            times = decide(con, relation, at[used.time], types[used.time], **how)
            _refuse_unknown_hours(
                times, reading, lambda: _places(con.sql(some_ends).to_arrow_table(), tiling)
            )
            reading = replace(reading, timezone=times.timezone)
            relation = times.over(relation)
            select += [
                f"{times.state} AS time_state",
                f"{times.shape} AS time_shape",
                f"{_DAY_SQL} AS day",
            ]
        texts = tuple(dict.fromkeys(name for name in numbers if TEXT_TYPE.match(types[name])))
        if texts:
            grouping = dict.fromkeys(counted.values(), thousands)
            bits = [
                f"({trouble_sql(at[name], comma=comma, thousands=grouping.get(name))} << {2 * i})"
                for i, name in enumerate(texts)
            ]
            select.append(f"CAST({' | '.join(bits)} AS INTEGER) AS trouble")
        in_text = (name for name in counted.values() if TEXT_TYPE.match(types[name]))
        marked = tuple(dict.fromkeys(in_text)) if thousands is None else ()
        if marked:
            bits = [
                f"(CAST({mark_sql(at[name])} AS BIGINT) << {4 * i})"
                for i, name in enumerate(marked)
            ]
            select.append(f"{' | '.join(bits)} AS marks")
        return cls(
            sql=f"SELECT {', '.join(select)} FROM {relation}",
            reading=reading,
            tiling=tiling,
            texts=texts,
            marked=marked,
            times=times,
        )

    def columns_of(self, batch: pa.RecordBatch) -> Batch:
        """Returns the columns of a batch of this query, for screening."""
        columns = [batch.column(f"end{i}") for i in range(len(self.used.ends))]
        tiles = [self.tiling.tile_numbers(c) for c in columns] if self.used.has_tiles else None
        unknown: Counter[str] = Counter()
        for column, numbers in (
            zip(columns, tiles or (), strict=False) if isinstance(self.tiling, MapTiling) else ()
        ):
            strange = pa.array(~self.tiling.is_tile(numbers) & (numbers != NO_TILE))
            for entry in pc.value_counts(column.filter(strange)).to_pylist():
                unknown[str(entry["values"])] += entry["counts"]
        texts: dict[str, NDArray[np.bool_]] = {}
        commas = False
        if self.texts:
            trouble = _numpy(batch, "trouble")
            if trouble.any():
                of_column = [(trouble >> 2 * i) & 3 for i in range(len(self.texts))]
                texts = {name: bits > 0 for name, bits in zip(self.texts, of_column, strict=True)}
                commas = any(
                    bool((bits == 2).any())
                    for name, bits in zip(self.texts, of_column, strict=True)
                    if name not in self.marked
                )
        marks: Counter[str] = Counter()
        if self.marked:
            found = _numpy(batch, "marks")
            for i, name in enumerate(self.marked if found.any() else ()):
                times = np.bincount((found >> 4 * i) & 15)
                marks.update({f"{mark} {name}": int(n) for mark, n in enumerate(times) if mark})
        points = tuple(c.to_numpy(zero_copy_only=False) for c in columns) if tiles is None else None
        projected = None
        if points is not None and self.reading.crs is not None:
            projected = points
            points = (
                *to_degrees(self.reading.crs, *points[:2]),
                *to_degrees(self.reading.crs, *points[2:]),
            )
        missing = [batch.column(f"slice{i}").is_null() for i in range(len(self.used.by))]
        return Batch(
            points=points,
            tiles=None if tiles is None else (tiles[0], tiles[1]),
            trips=_numpy(batch, "trips") if self.used.trips else None,
            added={name: _numpy(batch, name) for name in self.used.added},
            unknown_codes=unknown,
            projected=projected,
            texts=texts,
            commas=commas,
            marks=+marks,
            no_attribute=(
                reduce(pc.or_, missing).to_numpy(zero_copy_only=False) if missing else None
            ),
            **self._times_of(batch),
        )

    def _times_of(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Returns the rows with a missing time and those with an unreadable one."""
        if not self.used.time:
            return {}
        state = _numpy(batch, "time_state")
        strange = state == 2
        shapes = batch.column("time_shape").take(pa.array(np.flatnonzero(strange))).to_pylist()
        found = {"times": strange, "time_shapes": shapes, "day": batch.column("day")}
        return found if self.reading.every is None else {"no_time": state == 1, **found}


def _refuse_unknown_hours(times: TimeForm, reading: Reading, places: Callable[[], Point]) -> None:
    """Raises ParameterError if slices need a date that times lack, or a local hour without a zone.

    Suggests one.
    """
    column = reading.columns.time
    if times.of_day and (reading.every is None or reading.every.name != "hour"):
        raise ParameterError(
            f"The times in column {column!r} have no date, so trips can only be sliced by the hour"
            f" of the day. Hint: {with_value('every', 'hour')}, or a column with dates."
        )
    if times.needs_timezone is not None and times.problem is None:
        zone = guess_timezone(*places())
        guess = (
            f"These trips are in {zone}: {with_value('timezone', zone)}?"
            if zone
            else "Name the local time zone:"
        )
        named = "" if zone else f" {with_value('timezone', 'Europe/Oslo')}, for example."
        raise ParameterError(
            f"The times in column {column!r} are {times.needs_timezone}, so the local hour of a"
            f" trip is not known. {guess}{named} {with_value('timezone', 'UTC')} shows them in UTC."
        )


def _places(ends: pa.Table, tiling: Tiling) -> Point:
    """Returns latitudes and longitudes of some ends, or of the map; empty if unknown."""
    if isinstance(tiling, MapTiling):
        tree = tiling.zone_map.hierarchy
        return (
            (np.zeros(0), np.zeros(0))
            if tree.geography is None
            else tree.geography.centers(tree.leaf_node)
        )
    first, second = (column.to_numpy() for column in ends.columns)
    if first.dtype == np.uint64:
        return H3Geography(first).centers(np.flatnonzero(is_cell(first)).astype(np.int32))
    return first, second


def _check_types(
    used: ColumnMap, types: dict[str, str], numbers: list[str], tiling: Tiling
) -> None:
    cells = used.ends if used.has_tiles and isinstance(tiling, H3Tiling) else ()
    times = (used.time,) if used.time else ()
    needed = {
        "numbers": numbers,
        "H3 cells": cells,
        "times (timestamps, dates, text, or Unix seconds)": times,
    }
    problems = [
        f"column {name!r} holds {_plain(types[name])} where {what} are needed"
        for what, names in needed.items()
        for name in dict.fromkeys(names)
        if not (NUMBER_TYPE.match(types[name]) or TEXT_TYPE.match(types[name]))
        and not (names is times and _TIME_TYPE.match(types[name]))
    ]
    problems += [
        f"column {name!r} holds floating-point numbers, which cannot hold an H3 cell exactly (a"
        " table with gaps often turns whole numbers into these; use text or a nullable integer)"
        for name in cells
        if FLOAT_TYPE.match(types[name])
    ]
    if problems:
        raise DataError(f"Columns have the wrong type: {'; '.join(problems)}.")


def _plain(kind: str) -> str:
    """Returns the first word of a type: the rest may list values."""
    return re.split(r"\W", kind, maxsplit=1)[0]


def _number_sql(
    column: str, kind: str, *, comma: bool = False, thousands: str | None = None
) -> str:
    cast = (
        number_sql(grouped_sql(column, comma=comma, thousands=thousands))
        if TEXT_TYPE.match(kind)
        else f"CAST({column} AS DOUBLE)"
    )
    return f"coalesce({cast}, CAST('nan' AS DOUBLE))"


def _tile_sql(column: str, kind: str) -> str:
    """Returns SQL: a tile as a 64-bit number.

    In text, cells have 18 decimal or 15 hexadecimal digits.
    """
    if not TEXT_TYPE.match(kind):
        return (
            f"coalesce(TRY_CAST({column} AS UBIGINT), CAST(CASE WHEN {column} IS NULL THEN"
            f" {NO_TILE} ELSE {UNREADABLE_TILE} END AS UBIGINT))"
        )
    text = f"lower(trim(CAST({column} AS VARCHAR)))"
    return (
        f"CASE WHEN {column} IS NULL OR regexp_full_match({text}, {MISSING_PATTERN}) THEN"
        f" CAST({NO_TILE} AS UBIGINT) ELSE coalesce(TRY_CAST(CASE WHEN length({text}) = 18 OR"
        f" starts_with({text}, '0x') THEN {text} ELSE '0x' || {text} END AS UBIGINT),"
        f" CAST({UNREADABLE_TILE} AS UBIGINT)) END"
    )


def _code_sql(column: str, kind: str) -> str:
    """Returns SQL: a zone's code, unchanged; NULL if missing."""
    return present_sql(f"CAST({column} AS VARCHAR)") if TEXT_TYPE.match(kind) else column


def _batches(con: Any, sql: str, label: str) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a query in their order."""
    with in_own_words(label):
        yield from batches_of(con.sql(sql), BATCH_ROWS)


def _numpy(batch: Any, name: str) -> NDArray[Any]:
    return batch.column(name).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
