"""The DuckDB engine: one pass over the trips, out of core.

DuckDB scans the source on its own threads and turns text into numbers; the batches it hands over are screened
and indexed to tiles column by column while it reads on, and go back into DuckDB, which groups them. What
outgrows the memory limit goes to a private temporary folder that is removed whatever happens. DuckDB has an
H3 extension, but it cannot be had offline, and a user-defined function gets 2,048 rows a call where a batch
has a hundred thousand.

Messages of DuckDB quote the input, so none is let through: errors are reported in flowveil's own words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.flows import MILLION, Flows, Intake, People
from flowveil.reading import Reading
from flowveil.reading.candidates import hints
from flowveil.reading.columns import ColumnMap, complete
from flowveil.reading.database import fetch_table, in_own_words, open_database
from flowveil.reading.persons import Nobody, folded, person_sql, placeholder_sql
from flowveil.reading.screening import Batch, Kept, Screening
from flowveil.reading.slicing import attribute_sql, label_sql
from flowveil.reading.sql import MISSING_PATTERN, number_sql
from flowveil.reading.tables import Opening, Table, open_table
from flowveil.reading.tiling import NO_TILE, UNREADABLE_TILE, H3Tiling, MapTiling, Tiling, tiling_of
from flowveil.reading.times import MICROSECONDS, TimeForm, decide
from flowveil.slices import MOST_SLICES, TIME, SlicedFlows, refuse_many_values
from flowveil.zoning.cells import is_cell
from flowveil.zoning.h3 import Cells64

#: Rows in a batch: enough that the cost of a batch does not show, few enough that all its columns stay small.
BATCH_ROWS = 1 << 17
#: Kept rows are grouped when there are this many, or twice as many as the last grouping left: linear in
#: total, and never more on disk than that.
FOLD_ROWS = 1 << 24
_NUMBER_TYPE = re.compile(r"^U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)$|^FLOAT$|^DOUBLE$|^DECIMAL|^\"?NULL\"?$")
_FLOAT_TYPE = re.compile(r"^(FLOAT|DOUBLE)$")
_TEXT_TYPE = re.compile(r"^VARCHAR|^ENUM")
_TIME_TYPE = re.compile(r"^TIMESTAMP|^DATE$")


def read(
    source: Any, reading: Reading, *, progress: Callable[[float], None] | None = None, threads: int | None = None
) -> SlicedFlows:
    """Read trips once and group them into the flows of each slice; see `flowveil.engines.Engine`.

    Args:
        source: files or a table in memory.
        reading: how to read it; columns that it does not name are recognised.
        progress: called now and then with the share that is read, from 0 to 1.
        threads: threads of DuckDB; all cores unless given. Has no effect on the result.

    Raises:
        ParameterError: the source is nothing that can be read.
        DataError: the table cannot be used; the message has all problems found.
    """
    tiling = tiling_of(reading)
    with open_database(threads) as con:
        with in_own_words("The input"):
            table = open_table(con, source, opening=opening_of(reading))
            if table.form is not None:
                reading = table.form.read_as(reading)
        with in_own_words(table.label):
            columns = complete(
                reading.columns,
                table.names,
                holds_tiles=lambda name: _holds_tiles(con, table, name, tiling),
                cells=isinstance(tiling, H3Tiling),
                partitions=table.partitions,
                header=lambda: table.header(con),
            )
            _refuse_points(columns, tiling)
            notes = tuple(_hints(con, table, columns))
            reading = replace(reading, columns=columns)
            query = _Query.over(con, table, reading, tiling)
            # The stream of batches holds its connection, so they are staged through another one.
            staged = _Staged(con.cursor(), reading, tiling)
        screening = Screening(reading, tiling, times=query.times)
        for batch in _batches(con, query.sql, table.label):
            kept = screening.pass_batch(query.columns_of(batch))
            with in_own_words(table.label):
                staged.add(kept, batch)
            if progress is not None and table.n_rows:
                progress(min(screening.rows / table.n_rows, 0.99))
        intake = screening.finish(label=table.label, nobody=staged.nobody.as_recorded(), notes=notes)
        with in_own_words(table.label):
            flows = staged.sliced(intake)
    if progress is not None:
        progress(1.0)
    return flows


def _hints(con: Any, table: Table, used: ColumnMap) -> Iterator[str]:
    """What may have been forgotten."""
    names = [name for name in table.names if name not in table.partitions]

    def peek(name: str) -> list[Any]:
        # Columns that are not used need not be sound, and are then not looked at.
        try:
            with in_own_words(table.label):
                return table.peek(con, list(table.names).index(name))
        except DataError:
            return []

    return hints(used, names, peek=peek, header=lambda: table.header(con))


def opening_of(reading: Reading) -> Opening:
    """What a reading says about its source."""
    return Opening(reading.partition_columns, reading.remote, reading.matrix, reading.lookup, reading.wide)


def _refuse_points(used: ColumnMap, tiling: Tiling) -> None:
    if not used.has_tiles and not tiling.takes_points:
        raise ParameterError(
            "The ends are coordinates, and the map has no outlines to find them in. Hint: give a map with polygons "
            "(GeoJSON, GeoPackage, GeoParquet), or name columns with codes of its zones: origin_tile and "
            "destination_tile (--origin-tile, --destination-tile)."
        )


def _holds_tiles(con: Any, table: Table, name: str, tiling: Tiling) -> bool:
    """Whether most of a column's first values are tiles."""
    values = [v for v in table.peek(con, list(table.names).index(name)) if v is not None and v == v]
    if isinstance(tiling, MapTiling):
        numbers = tiling.tile_numbers(pa.array([str(v) for v in values], pa.string()))
        return len(numbers) > 0 and bool(tiling.is_tile(numbers).mean() > 0.5)
    texts = pa.table({"c0": pa.array([str(v) for v in values], pa.string())})
    con.register("flowveil_peeked", texts)
    rows = con.execute(f"SELECT {_tile_sql('c0', 'VARCHAR')} FROM flowveil_peeked").fetchall()
    con.unregister("flowveil_peeked")
    cells = np.array([row[0] for row in rows], dtype=np.uint64)
    known = cells[cells != NO_TILE]
    return len(known) > 0 and bool(is_cell(known).mean() > 0.5)


# ---- from the source to batches ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Query:
    """One SELECT over the source: numbers as doubles, tiles as 64-bit numbers, persons as text.

    The column ``trouble`` has two bits for each number column that holds text: 1 for text that is not a number,
    2 for a number with a decimal comma.
    """

    sql: str
    used: ColumnMap
    tiling: Tiling
    texts: tuple[str, ...]
    times: TimeForm | None = None

    @classmethod
    def over(cls, con: Any, table: Table, reading: Reading, tiling: Tiling) -> _Query:
        used = reading.columns
        names = list(dict.fromkeys(used.names()))
        relation = table.attach(con, [list(table.names).index(name) for name in names])
        described = con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        types = {name: str(row[1]) for name, row in zip(names, described, strict=True)}
        numbers = [*(() if used.has_tiles else used.ends), *filter(None, (used.weight, used.trips))]
        _check_types(used, types, numbers, tiling)
        at = {name: f"c{i}" for i, name in enumerate(names)}
        select = []
        for i, name in enumerate(used.ends):
            sql = _number_sql
            if used.has_tiles:
                sql = _code_sql if isinstance(tiling, MapTiling) else _tile_sql
            select.append(f"{sql(at[name], types[name])} AS end{i}")
        for role in ("trips", "weight"):
            name = getattr(used, role)
            if name:
                select.append(f"{_number_sql(at[name], types[name])} AS {role}")
        if used.person:
            person = person_sql(at[used.person], types[used.person])
            select.append(f"{person} AS person")
            select.append(f"{placeholder_sql(person)} AS placeholder")
        for i, name in enumerate(used.by):
            select.append(f"{attribute_sql(at[name], types[name], missing=MISSING_PATTERN)} AS slice{i}")
        times: TimeForm | None = None
        if used.time and reading.every is not None:
            relation = table.kept(con, relation)
            said = {"time_format": reading.time_format, "timezone": reading.timezone}
            times = decide(con, relation, at[used.time], types[used.time], **said)
            relation = times.over(relation)
            select.append(f"{label_sql(MICROSECONDS, reading.every)} AS slice{len(used.by)}")
            select += [f"{times.state} AS time_state", f"{times.shape} AS time_shape"]
        texts = tuple(dict.fromkeys(name for name in numbers if _TEXT_TYPE.match(types[name])))
        if texts:
            bits = [f"({_trouble_sql(at[name])} << {2 * i})" for i, name in enumerate(texts)]
            select.append(f"CAST({' | '.join(bits)} AS INTEGER) AS trouble")
        return cls(
            sql=f"SELECT {', '.join(select)} FROM {relation}", used=used, tiling=tiling, texts=texts, times=times
        )

    def columns_of(self, batch: pa.RecordBatch) -> Batch:
        """A batch of this query, ready to be screened."""
        columns = [batch.column(f"end{i}") for i in range(len(self.used.ends))]
        tiles = [self.tiling.tile_numbers(c) for c in columns] if self.used.has_tiles else None
        texts: dict[str, NDArray[np.bool_]] = {}
        commas = False
        if self.texts:
            trouble = _numpy(batch, "trouble")
            if trouble.any():
                of_column = [(trouble >> 2 * i) & 3 for i in range(len(self.texts))]
                texts = {name: bits > 0 for name, bits in zip(self.texts, of_column, strict=True)}
                commas = any(bool((bits == 2).any()) for bits in of_column)
        return Batch(
            points=tuple(c.to_numpy(zero_copy_only=False) for c in columns) if tiles is None else None,
            tiles=None if tiles is None else (tiles[0], tiles[1]),
            trips=_numpy(batch, "trips") if self.used.trips else None,
            weight=_numpy(batch, "weight") if self.used.weight else None,
            unknown_codes={} if tiles is None else self._unknown_codes(columns, tiles),
            texts=texts,
            commas=commas,
            no_attribute=self._no_attribute(batch) if self.used.by else None,
            **self._times_of(batch),
        )

    def _unknown_codes(self, columns: list[Any], tiles: list[Cells64]) -> dict[str, int]:
        """Codes of ends that are not on the map, and how many ends have each; H3 cells are not listed."""
        found: Counter[str] = Counter()
        if isinstance(self.tiling, MapTiling):
            for column, numbers in zip(columns, tiles, strict=True):
                strange = pa.array(~self.tiling.is_tile(numbers) & (numbers != NO_TILE))
                for entry in pc.value_counts(column.filter(strange)):
                    found[str(entry["values"].as_py())] += entry["counts"].as_py()
        return dict(found)

    def _no_attribute(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        missing = np.zeros(len(batch), dtype=np.bool_)
        for i in range(len(self.used.by)):
            missing |= batch.column(f"slice{i}").is_null().to_numpy(zero_copy_only=False)
        return missing

    def _times_of(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """The rows whose time is missing, and those whose time is none."""
        if not self.used.time:
            return {}
        state = _numpy(batch, "time_state")
        strange = state == 2
        shapes = batch.column("time_shape").take(pa.array(np.flatnonzero(strange))).to_pylist()
        return {"no_time": state == 1, "times": strange, "time_shapes": shapes}


def _check_types(used: ColumnMap, types: dict[str, str], numbers: list[str], tiling: Tiling) -> None:
    problems = [
        f"column {name!r} holds {_plain(types[name])} where numbers are needed"
        for name in dict.fromkeys(numbers)
        if not (_NUMBER_TYPE.match(types[name]) or _TEXT_TYPE.match(types[name]))
    ]
    if used.has_tiles and isinstance(tiling, H3Tiling):
        for name in used.ends:
            if _FLOAT_TYPE.match(types[name]):
                problems.append(
                    f"column {name!r} holds floating-point numbers, which cannot hold an H3 cell exactly (a "
                    "table with gaps often turns whole numbers into these; use text or a nullable integer)"
                )
            elif not (_NUMBER_TYPE.match(types[name]) or _TEXT_TYPE.match(types[name])):
                problems.append(f"column {name!r} holds {_plain(types[name])} where H3 cells are needed")
    if used.time and not any(kind.match(types[used.time]) for kind in (_TIME_TYPE, _NUMBER_TYPE, _TEXT_TYPE)):
        problems.append(
            f"column {used.time!r} holds {_plain(types[used.time])} where times are needed: timestamps, dates, text, "
            "or Unix seconds"
        )
    if problems:
        listed = "; ".join(problems)
        raise DataError(f"Columns have the wrong type: {listed}.")


def _plain(kind: str) -> str:
    """The first word of a type: the rest may list values."""
    return re.split(r"\W", kind, maxsplit=1)[0]


def _number_sql(column: str, kind: str) -> str:
    cast = number_sql(f"CAST({column} AS VARCHAR)") if _TEXT_TYPE.match(kind) else f"CAST({column} AS DOUBLE)"
    return f"coalesce({cast}, CAST('nan' AS DOUBLE))"


def _trouble_sql(column: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    return (
        f"CASE WHEN {column} IS NULL OR ({number_sql(text)}) IS NOT NULL THEN 0 "
        f"WHEN regexp_full_match(lower(trim({text})), {MISSING_PATTERN}) THEN 0 "
        f"WHEN regexp_full_match(trim({text}), '[+-]?[0-9]+,[0-9]+') THEN 2 ELSE 1 END"
    )


def _tile_sql(column: str, kind: str) -> str:
    """A tile as a 64-bit number. In text, cells have 18 decimal or 15 hexadecimal digits: no doubt which."""
    if not _TEXT_TYPE.match(kind):
        return (
            f"coalesce(TRY_CAST({column} AS UBIGINT), "
            f"CAST(CASE WHEN {column} IS NULL THEN {NO_TILE} ELSE {UNREADABLE_TILE} END AS UBIGINT))"
        )
    text = f"lower(trim(CAST({column} AS VARCHAR)))"
    return (
        f"CASE WHEN {column} IS NULL OR regexp_full_match({text}, {MISSING_PATTERN}) THEN CAST({NO_TILE} AS UBIGINT) "
        f"ELSE coalesce(TRY_CAST(CASE WHEN length({text}) = 18 OR starts_with({text}, '0x') THEN {text} "
        f"ELSE '0x' || {text} END AS UBIGINT), CAST({UNREADABLE_TILE} AS UBIGINT)) END"
    )


def _code_sql(column: str, kind: str) -> str:
    """A zone's code as it stands, numbers as numbers: the map knows how they are written."""
    if not _TEXT_TYPE.match(kind):
        return column
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN regexp_full_match(lower(trim({text})), {MISSING_PATTERN}) THEN NULL ELSE {text} END"


def _batches(con: Any, sql: str, label: str) -> Iterator[pa.RecordBatch]:
    """The rows of a query in their order, streamed."""
    with in_own_words(label):
        relation = con.sql(sql)
        # Older versions know another name only; newer ones know it too, but warn.
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        batches = iter(reader(BATCH_ROWS))
    while True:
        with in_own_words(label):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _numpy(batch: Any, name: str) -> NDArray[Any]:
    return batch.column(name).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


# ---- from batches to flows ---------------------------------------------------------------------------------


class _Staged:
    """Rows on their way to flows: slices, origin, destination, person, trips, weight, in a table of DuckDB.

    Whatever distinguishes trips is a key here.
    """

    def __init__(self, con: Any, reading: Reading, tiling: Tiling) -> None:
        used = reading.columns
        self.nobody = Nobody()
        self._reading = reading
        self._con = con
        self._tiling = tiling
        self._has_person = bool(used.person)
        self._has_weight = bool(used.weight)
        self._slice_names = (*used.by, *((TIME,) if used.time else ()))
        self._slices = tuple(f"slice{i}" for i in range(len(self._slice_names)))
        self._keys = (*self._slices, "origin", "destination", *(("person",) if used.person else ()))
        self._rows = 0
        self._fold_at = FOLD_ROWS
        self._waiting: list[pa.Table] = []
        person = "person VARCHAR, " if used.person else ""
        weight = ", weight HUGEINT" if used.weight else ""
        slices = "".join(f"{name} VARCHAR, " for name in self._slices)
        con.execute(f"CREATE TABLE staged ({slices}origin UBIGINT, destination UBIGINT, {person}trips HUGEINT{weight})")

    def add(self, kept: Kept, batch: pa.RecordBatch) -> None:
        """Take the kept rows of a batch, which has the persons and the slices."""

        def of_kept(name: str) -> Any:
            column = batch.column(name)
            return column if len(kept.rows) == len(batch) else column.take(pa.array(kept.rows))

        columns: dict[str, Any] = {name: of_kept(name) for name in self._slices}
        columns |= {"origin": kept.origin, "destination": kept.destination}
        if self._has_person:
            columns["person"] = self._persons(of_kept("person"), of_kept("placeholder"))
        columns["trips"] = kept.trips
        if self._has_weight:
            columns["weight"] = kept.weight
        self._waiting.append(pa.table(columns))
        # A source may come in tiny batches, and a statement costs the same for one row as for a thousand.
        if sum(t.num_rows for t in self._waiting) >= BATCH_ROWS // 2:
            self._flush()

    def _persons(self, persons: Any, placeholders: Any) -> Any:
        """The persons of kept rows; None where nobody is known, which is counted."""
        self.nobody.add(placeholders)
        known = pc.if_else(pc.is_null(placeholders), persons, pa.scalar(None, persons.type))
        return folded(known) if self._reading.person_case == "fold" else known

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting = []
        self._con.register("flowveil_rows", rows)
        self._con.execute("INSERT INTO staged SELECT * FROM flowveil_rows")
        self._con.unregister("flowveil_rows")
        self._rows += rows.num_rows
        if self._rows >= self._fold_at:
            self._fold()

    def _fold(self) -> None:
        keys = ", ".join(self._keys)
        weight = ", sum(weight) AS weight" if self._has_weight else ""
        self._con.execute(
            f"CREATE TABLE folded AS SELECT {keys}, sum(trips) AS trips{weight} FROM staged GROUP BY {keys}"
        )
        self._con.execute("DROP TABLE staged")
        self._con.execute("ALTER TABLE folded RENAME TO staged")
        self._rows = self._con.execute("SELECT count(*) FROM staged").fetchall()[0][0]
        self._fold_at = max(FOLD_ROWS, 2 * self._rows)

    def sliced(self, intake: Intake) -> SlicedFlows:
        """Group all rows; all slices number their tiles in the same two trees.

        Only whole numbers are summed, so the order of the rows leaves no trace.
        """
        grouped = self._grouped()
        if not self._reading.by_many:
            values = {name: pc.count_distinct(grouped.column(s)).as_py() for name, s in self._attributes()}
            refuse_many_values(values, rows=intake.rows - sum(intake.left_out.values()))
        keys, start = self._numbered_slices(grouped)
        ends = (grouped.column("origin").to_numpy(), grouped.column("destination").to_numpy())
        origins, destinations = map(_distinct, ends)
        if self._reading.same_zones:
            origins = destinations = np.union1d(origins, destinations)
        origin = np.searchsorted(origins, ends[0]).astype(np.int32)
        destination = np.searchsorted(destinations, ends[1]).astype(np.int32)
        trips = grouped.column("trips").to_numpy()
        weight = grouped.column("weight").to_numpy() / MILLION if self._has_weight else None
        people: People | None = None
        if self._has_person:
            number = np.repeat(np.arange(len(keys)), np.diff(start))
            people = self._people((number, origin, destination), (np.arange(len(keys)), origins, destinations), keys)
        tree_o = self._tiling.hierarchy(origins)
        tree_d = tree_o if self._reading.same_zones else self._tiling.hierarchy(destinations)
        slices = tuple(
            Flows(
                origin[a:b].copy(),
                destination[a:b].copy(),
                trips[a:b].copy(),
                None if weight is None else weight[a:b],
                None if people is None else people.rows(slice(*np.searchsorted(people.cell, (a, b))), first_cell=a),
                origins=tree_o,
                destinations=tree_d,
                intake=intake,
                whole_map=self._tiling.whole_map,
            )
            for a, b in pairwise(start.tolist())
        )
        return SlicedFlows(columns=self._slice_names, keys=keys, slices=slices, every=self._reading.every)

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """The slice columns but for the time: their names, and what they are called here."""
        return ((name, s) for name, s in zip(self._slice_names, self._slices, strict=True) if name != TIME)

    def _grouped(self) -> pa.Table:
        self._flush()
        weight = ", CAST(sum(weight) AS DOUBLE) AS weight" if self._has_weight else ""
        keys = ", ".join((*self._slices, "origin", "destination"))
        return fetch_table(
            self._con,
            f"SELECT {keys}, CAST(sum(trips) AS BIGINT) AS trips{weight} FROM staged GROUP BY {keys} ORDER BY {keys}",
        )

    def _numbered_slices(self, grouped: pa.Table) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.int64]]:
        """The distinct slices in their order, and where each begins in the grouped rows (the end included)."""
        first = np.zeros(len(grouped), dtype=np.bool_)
        first[:1] = True
        for name in self._slices:
            column = grouped.column(name).combine_chunks()
            first[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(first)
        if len(at) > MOST_SLICES:
            raise DataError(
                f"There are {len(at):,} slices by {', '.join(self._slice_names)}; allowed are {MOST_SLICES:,}. "
                "Hint: a column with so many values is rather an identifier; use classes, or a longer --every."
            )
        columns = [grouped.column(name).take(pa.array(at)).to_pylist() for name in self._slices]
        keys = tuple(zip(*columns, strict=True)) if columns else ((),)
        return keys, np.append(at, len(grouped))

    def _people(
        self, flows: tuple[NDArray[Any], ...], codes: tuple[NDArray[Any], ...], keys: Sequence[tuple[str, ...]]
    ) -> People:
        """Distinct people of each flow and their trips. Persons become numbers in the order of their names, which stay.

        Args:
            flows: the numbers that make a flow: of its slice, of its origin and of its destination.
            codes: what these numbers mean, in order: numbers of slices, tiles of the origins, of the destinations.
            keys: the slices.
        """
        number, joined = "0 AS slice", ""
        if self._slices:
            columns = {name: [key[i] for key in keys] for i, name in enumerate(self._slices)}
            self._con.register("flowveil_slices", pa.table({**columns, "slice": np.arange(len(keys))}))
            number, joined = "slice", f"JOIN flowveil_slices USING ({', '.join(self._slices)})"
        rows = fetch_table(
            self._con,
            "WITH numbered AS (SELECT person, CAST(row_number() OVER (ORDER BY person) - 1 AS INTEGER) AS "
            "number FROM (SELECT DISTINCT person FROM staged WHERE person IS NOT NULL)) "
            f"SELECT {number}, origin, destination, number, CAST(sum(trips) AS BIGINT) AS trips "
            f"FROM staged JOIN numbered USING (person) {joined} GROUP BY ALL ORDER BY ALL",
        )
        # In order, so that the searches walk through memory instead of jumping.
        flow_keys = np.zeros(len(flows[0]), dtype=np.int64)
        wanted = np.zeros(len(rows), dtype=np.int64)
        for name, number_of_flow, known in zip(("slice", "origin", "destination"), flows, codes, strict=True):
            flow_keys = flow_keys * len(known) + number_of_flow
            wanted = wanted * len(known) + np.searchsorted(known, rows.column(name).to_numpy())
        return People(
            cell=np.searchsorted(flow_keys, wanted).astype(np.int32),
            person=rows.column("number").to_numpy().astype(np.int32),
            trips=rows.column("trips").to_numpy().copy(),
        )


def _distinct(cells: Cells64) -> Cells64:
    """The distinct cells in order."""
    ordered = np.sort(cells)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
