"""The DuckDB engine: one pass over the trips, out of core.

DuckDB scans the source on its own threads and turns text into numbers; the batches it hands over are screened
and indexed to tiles column by column while it reads on, and go back into DuckDB, which groups them. What
outgrows the memory limit goes to a private temporary folder that is removed whatever happens. DuckDB has an
H3 extension, but it cannot be had offline, and a user-defined function gets 2,048 rows a call where a batch
has a hundred thousand.

Messages of DuckDB quote the input, so none is let through: errors are told in flowveil's own words.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.engines.columns import ColumnMap, complete
from flowveil.engines.screening import WEIGHT_UNITS, Batch, Kept, Screening
from flowveil.engines.tables import Table, open_table
from flowveil.engines.tiling import NO_TILE, UNREADABLE_TILE, H3Tiling, MapTiling, Tiling, is_cell
from flowveil.errors import DataError, FlowveilError, ParameterError
from flowveil.flows import Flows, Intake, People
from flowveil.hierarchy import Floats, Ints
from flowveil.zoning.files import ZoneMap
from flowveil.zoning.h3 import MAX_RESOLUTION, Cells64

#: Rows in a batch: enough that the cost of a batch does not show, few enough that all its columns stay small.
BATCH_ROWS = 1 << 17
#: Kept rows are grouped when there are this many, or twice as many as the last grouping left: linear in
#: total, and never more on disk than that.
FOLD_ROWS = 1 << 24
#: DuckDB's own default is four fifths of the memory; the flows need room beside it.
MEMORY_SHARE = 0.6

#: How tables write that there is no value; compared without case and outer blanks.
_MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: A pattern, because DuckDB makes a join of a long list of texts, and a join loses the order of the rows.
_MISSING_PATTERN = "'(" + "|".join(re.escape(text) for text in _MISSING) + ")'"
#: How tables write that nobody is known.
_NOBODY = r"'-+|[?]+|unknown|missing|anonymous'"
#: Blanks of every script at either end, and characters without a shape anywhere.
_UNSEEN = r"^[\s\p{Z}\p{C}]+|[\s\p{Z}\p{C}]+$|\p{C}+"
_WHOLE_SQL = r"regexp_replace({}, '^(-?[0-9]+)\.0+$', '\1')"
_NUMBER_TYPE = re.compile(r"^U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)$|^FLOAT$|^DOUBLE$|^DECIMAL|^\"?NULL\"?$")
_FLOAT_TYPE = re.compile(r"^(FLOAT|DOUBLE)$")
_TEXT_TYPE = re.compile(r"^VARCHAR|^ENUM")
_INTERRUPTED = re.compile(r"\W*(INTERRUPT Error|(Query )?interrupted)", re.IGNORECASE)


def read(
    source: Any,
    *,
    columns: ColumnMap,
    resolution: int = 10,
    zones: ZoneMap | None = None,
    max_dropped: float = 0.05,
    skip_unknown: bool = False,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Flows:
    """Read trips and group them into flows; see `flowveil.trips.read_trips`.

    Args:
        source: files or a table in memory.
        columns: the columns the user named; the others are recognised.
        resolution: H3 resolution of the tiles; given tiles that are coarser keep their own.
        zones: the map whose zones are the tiles, instead of H3 cells.
        max_dropped: share of the rows that may be left out.
        skip_unknown: leave out rows with a tile that is not an H3 cell, instead of refusing them.
        threads: threads of DuckDB; all cores unless given. Has no effect on the result.
        progress: called now and then with the share that is read, from 0 to 1.

    Raises:
        ParameterError: an argument is out of its range, or the source is nothing that can be read.
        DataError: the table cannot be used; the message has all problems found.
    """
    _check(resolution, max_dropped, threads)
    tiling: Tiling = H3Tiling(resolution) if zones is None else MapTiling(zones)
    screening = Screening(tiling=tiling, max_dropped=max_dropped, skip_unknown=skip_unknown)
    with _database(threads) as con:
        with _in_own_words("The input"):
            table = open_table(con, source)
        with _in_own_words(table.label):
            used = complete(
                columns,
                table.names,
                holds_tiles=lambda name: _holds_tiles(con, table, name, tiling),
                points=tiling.takes_points,
            )
            _refuse_points(used, tiling)
            query = _Query.over(con, table, used, tiling)
            # The stream of batches holds its connection, so they are staged through another one.
            staged = _Staged(con.cursor(), used, tiling)
        for batch in _batches(con, query.sql, table.label):
            kept = screening.pass_batch(query.columns_of(batch))
            with _in_own_words(table.label):
                staged.add(kept, batch)
            if progress is not None and table.n_rows:
                progress(min(screening.rows / table.n_rows, 0.99))
        intake = screening.finish(label=table.label, columns=used.as_recorded())
        if zones is not None:
            intake = replace(intake, zones=zones.columns)
        with _in_own_words(table.label):
            flows = staged.flows(intake)
    if progress is not None:
        progress(1.0)
    return flows


def _check(resolution: int, max_dropped: float, threads: int | None) -> None:
    if isinstance(resolution, bool) or not isinstance(resolution, int | np.integer):
        raise ParameterError(f"The resolution must be a whole number from 0 to {MAX_RESOLUTION}.")
    if not 0 <= resolution <= MAX_RESOLUTION:
        raise ParameterError(f"The resolution is {resolution}; allowed are 0 to {MAX_RESOLUTION} (H3).")
    if not 0 <= max_dropped <= 1:
        raise ParameterError(f"max_dropped is {max_dropped}; it is a share, allowed are 0 to 1.")
    if threads is not None and threads < 1:
        raise ParameterError(f"threads is {threads}; at least 1 is needed.")


@contextmanager
def _database(threads: int | None) -> Iterator[Any]:
    """A private database in memory that spills to a private folder; both are gone afterwards in any case."""
    with ExitStack() as stack:
        # Closed before its folder is removed. Windows may hold a file a moment longer: nothing to fail for.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowveil-", ignore_cleanup_errors=True))
        config: dict[str, Any] = {"temp_directory": folder, "autoinstall_known_extensions": False}
        if threads is not None:
            config["threads"] = threads
        con = stack.enter_context(closing(duckdb.connect(":memory:", config=config)))
        limit = con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
        amount, unit = limit.split()
        con.execute(f"SET memory_limit = '{float(amount) * MEMORY_SHARE:.3f} {unit}'")
        yield con


@contextmanager
def _in_own_words(label: str) -> Iterator[None]:
    """Turn what DuckDB and Arrow raise into a DataError that quotes nothing from the input."""
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise DataError(
            f"{label} does not fit: memory and temporary disk space are used up. "
            "Hint: free some, or set TMPDIR to a folder with more space."
        ) from None
    except FlowveilError:
        raise
    except Exception as error:
        # Whatever library read the source: its message may quote a row.
        foreign = type(error).__module__.partition(".")[0] in ("polars", "pandas", "pyarrow", "_csv")
        if not (foreign or isinstance(error, duckdb.Error | pa.ArrowException | OSError | RuntimeError)):
            raise
        # Ctrl-C in the middle of a query comes out of DuckDB, or of Arrow's stream over it, as one of these.
        chain = (error.__cause__, error.__context__)
        if _INTERRUPTED.match(str(error)) or any(isinstance(e, KeyboardInterrupt) for e in chain):
            raise KeyboardInterrupt from None
        line = re.search(r"\bLine: (\d+)", str(error))
        where = f" Line {line[1]} is the first that cannot be read." if line else ""
        raise DataError(
            f"{label} cannot be read as a table.{where} Every line needs as many columns as the first, "
            "quotes that are closed, and text in UTF-8. Hint: is the file complete, and saved as UTF-8?"
        ) from None


def _refuse_points(used: ColumnMap, tiling: Tiling) -> None:
    if not used.has_tiles and not tiling.takes_points:
        raise ParameterError(
            "With a map of zones the ends must be codes of its zones; found coordinates. "
            "Hint: name the columns with origin_tile and destination_tile (--origin-tile, --destination-tile)."
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

    The column ``trouble`` has two bits for each number column that holds text: 1 for text that is no number,
    2 for a number with a decimal comma.
    """

    sql: str
    used: ColumnMap
    tiling: Tiling
    texts: tuple[str, ...]

    @classmethod
    def over(cls, con: Any, table: Table, used: ColumnMap, tiling: Tiling) -> _Query:
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
            select.append(f"{_person_sql(at[used.person], types[used.person])} AS person")
        texts = tuple(dict.fromkeys(name for name in numbers if _TEXT_TYPE.match(types[name])))
        if texts:
            bits = [f"({_trouble_sql(at[name])} << {2 * i})" for i, name in enumerate(texts)]
            select.append(f"CAST({' | '.join(bits)} AS INTEGER) AS trouble")
        return cls(sql=f"SELECT {', '.join(select)} FROM {relation}", used=used, tiling=tiling, texts=texts)

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
            texts=texts,
            commas=commas,
        )


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
    if problems:
        listed = "; ".join(problems)
        raise DataError(f"Columns have the wrong type: {listed}.")


def _plain(kind: str) -> str:
    """The first word of a type: the rest may list values."""
    return re.split(r"\W", kind, maxsplit=1)[0]


def _number_sql(column: str, kind: str) -> str:
    cast = f"TRY_CAST(CAST({column} AS VARCHAR) AS DOUBLE)" if _TEXT_TYPE.match(kind) else f"CAST({column} AS DOUBLE)"
    return f"coalesce({cast}, CAST('nan' AS DOUBLE))"


def _trouble_sql(column: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    return (
        f"CASE WHEN {column} IS NULL OR TRY_CAST({text} AS DOUBLE) IS NOT NULL THEN 0 "
        f"WHEN regexp_full_match(lower(trim({text})), {_MISSING_PATTERN}) THEN 0 "
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
        f"CASE WHEN {column} IS NULL OR regexp_full_match({text}, {_MISSING_PATTERN}) THEN CAST({NO_TILE} AS UBIGINT) "
        f"ELSE coalesce(TRY_CAST(CASE WHEN length({text}) = 18 OR starts_with({text}, '0x') THEN {text} "
        f"ELSE '0x' || {text} END AS UBIGINT), CAST({UNREADABLE_TILE} AS UBIGINT)) END"
    )


def _code_sql(column: str, kind: str) -> str:
    """A zone's code as it stands, numbers as numbers: the map knows how they are written."""
    if not _TEXT_TYPE.match(kind):
        return column
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN regexp_full_match(lower(trim({text})), {_MISSING_PATTERN}) THEN NULL ELSE {text} END"


def _person_sql(column: str, kind: str) -> str:
    """A person as text; None where missing.

    Blanks of any kind around it, characters that nobody sees and the usual signs for a missing value are taken off, and
    whole numbers are written without a point: taking one person for two, or nobody for somebody, would count people
    who are not there. Upper and lower case stay apart: identifiers that differ in them alone are usual.
    """
    if _FLOAT_TYPE.match(kind):
        whole = _WHOLE_SQL.format(f"CAST({column} AS VARCHAR)")
        return f"CASE WHEN isnan({column}) THEN NULL ELSE {whole} END"
    if not _TEXT_TYPE.match(kind):
        return f"CAST({column} AS VARCHAR)"
    text = _WHOLE_SQL.format(f"regexp_replace(CAST({column} AS VARCHAR), '{_UNSEEN}', '', 'g')")
    nobody = f"regexp_full_match(lower({text}), {_MISSING_PATTERN}) OR regexp_full_match(lower({text}), {_NOBODY})"
    return f"CASE WHEN {nobody} THEN NULL ELSE {text} END"


def _batches(con: Any, sql: str, label: str) -> Iterator[pa.RecordBatch]:
    """The rows of a query in their order, streamed."""
    with _in_own_words(label):
        relation = con.sql(sql)
        # Older versions know another name only; newer ones know it too, but warn.
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        batches = iter(reader(BATCH_ROWS))
    while True:
        with _in_own_words(label):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _table(con: Any, sql: str) -> pa.Table:
    relation = con.sql(sql)
    fetch = getattr(relation, "to_arrow_table", None) or relation.fetch_arrow_table
    return fetch()


def _numpy(batch: Any, name: str) -> NDArray[Any]:
    return batch.column(name).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


# ---- from batches to flows ---------------------------------------------------------------------------------


class _Staged:
    """Rows on their way to flows: origin, destination, person, trips, weight, in a table of DuckDB.

    Whatever trips are to be told apart by is a key here; slices of time or attributes would be further keys.
    """

    def __init__(self, con: Any, used: ColumnMap, tiling: Tiling) -> None:
        self._con = con
        self._tiling = tiling
        self._has_person = bool(used.person)
        self._has_weight = bool(used.weight)
        self._keys = ("origin", "destination", *(("person",) if used.person else ()))
        self._rows = 0
        self._fold_at = FOLD_ROWS
        self._waiting: list[pa.Table] = []
        person = "person VARCHAR, " if used.person else ""
        weight = ", weight HUGEINT" if used.weight else ""
        con.execute(f"CREATE TABLE staged (origin UBIGINT, destination UBIGINT, {person}trips HUGEINT{weight})")

    def add(self, kept: Kept, batch: pa.RecordBatch) -> None:
        """Take the kept rows of a batch, which has the persons."""
        columns: dict[str, Any] = {"origin": kept.origin, "destination": kept.destination}
        if self._has_person:
            person = batch.column("person")
            columns["person"] = person if len(kept.rows) == len(batch) else person.take(pa.array(kept.rows))
        columns["trips"] = kept.trips
        if self._has_weight:
            columns["weight"] = kept.weight
        self._waiting.append(pa.table(columns))
        # A source may come in tiny batches, and a statement costs the same for one row as for a thousand.
        if sum(t.num_rows for t in self._waiting) >= BATCH_ROWS // 2:
            self._flush()

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

    def flows(self, intake: Intake) -> Flows:
        """Group all rows. Only whole numbers are summed, so the order of the rows leaves no trace."""
        self._flush()
        weight = ", CAST(sum(weight) AS DOUBLE) AS weight" if self._has_weight else ""
        grouped = _table(
            self._con,
            f"SELECT origin, destination, CAST(sum(trips) AS BIGINT) AS trips{weight} "
            "FROM staged GROUP BY origin, destination ORDER BY origin, destination",
        )
        origin, origins = _numbered(grouped.column("origin").to_numpy())
        destination, destinations = _numbered(grouped.column("destination").to_numpy())
        weights: Floats | None = None
        if self._has_weight:
            weights = grouped.column("weight").to_numpy() / WEIGHT_UNITS
        return Flows(
            origin,
            destination,
            grouped.column("trips").to_numpy().copy(),
            weights,
            self._people(origin, destination, origins, destinations) if self._has_person else None,
            origins=self._tiling.hierarchy(origins),
            destinations=self._tiling.hierarchy(destinations),
            intake=intake,
            trips_of_person=self._trips_of_person() if self._has_person else None,
        )

    def _trips_of_person(self) -> NDArray[np.int64]:
        """Trips of each person, numbered as in `_people`."""
        rows = _table(
            self._con,
            "SELECT CAST(sum(trips) AS BIGINT) AS trips FROM staged WHERE person IS NOT NULL "
            "GROUP BY person ORDER BY person",
        )
        trips: NDArray[np.int64] = rows.column("trips").to_numpy().copy()
        return trips

    def _people(self, origin: Ints, destination: Ints, origins: Cells64, destinations: Cells64) -> People:
        """Distinct people of each flow. Persons become numbers in the order of their names, which stay."""
        rows = _table(
            self._con,
            "WITH numbered AS (SELECT person, CAST(row_number() OVER (ORDER BY person) - 1 AS INTEGER) AS "
            "number FROM (SELECT DISTINCT person FROM staged WHERE person IS NOT NULL)) "
            "SELECT DISTINCT origin, destination, number FROM staged JOIN numbered USING (person) "
            "ORDER BY origin, destination, number",
        )
        # In order, so that the searches walk through memory instead of jumping.
        at_origin = np.searchsorted(origins, rows.column("origin").to_numpy())
        at_destination = np.searchsorted(destinations, rows.column("destination").to_numpy())
        flow_keys = origin.astype(np.int64) * len(destinations) + destination
        cell = np.searchsorted(flow_keys, at_origin * len(destinations) + at_destination)
        return People(cell=cell.astype(np.int32), person=rows.column("number").to_numpy().astype(np.int32))


def _numbered(cells: Cells64) -> tuple[Ints, Cells64]:
    """The position of each cell among the distinct ones, and these in order."""
    ordered = np.sort(cells)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    distinct = ordered[first]
    return np.searchsorted(distinct, cells).astype(np.int32), distinct
