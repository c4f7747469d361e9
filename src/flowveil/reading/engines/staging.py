"""Groups screened rows into flows, in DuckDB, which spills to disk.

Rows are grouped while they arrive, into one row for each flow and person. Names of persons stay in
a table of DuckDB; each spelling is normalised once. Numpy gets a row for each flow, and three
numbers for each pair of flow and person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from queue import Full, Queue
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.errors import DataError, option
from flowveil.core.flows import MILLION, Flows, People, separate_dimensions
from flowveil.core.read_summary import ReadSummary
from flowveil.core.slices import MOST_SLICES, Key, refuse_many_values
from flowveil.core.times import TIME
from flowveil.core.values import ONE, RecordValues
from flowveil.reading import Reading
from flowveil.reading.database import batches_of, fetch_table
from flowveil.reading.persons import known_persons, person_sql, placeholder_name, placeholder_sql
from flowveil.reading.screening import Kept
from flowveil.reading.tiling import Tiling
from flowveil.system.limits import FLOW_READ, PERSON_READ, about, is_limited, room_for

#: Rows in a batch: enough to make its overhead small, few enough for its columns to be small.
BATCH_ROWS = 1 << 17
#: The column of fractions of trips, in millionths.
FRACTION = "fraction"
#: Bytes of memory for a record whose values are kept, as measured with two columns.
VALUE_READ = 100
#: Batches in the queue: enough that one slow batch stops neither side.
_WAITING = 4
#: Seconds after which the producer checks that the statement is still running.
_TIMEOUT = 0.2


class StreamingQuery:
    """A statement of DuckDB that reads the table ``arriving`` once, while it is filled.

    Memory grows with the groups, not with the rows. The statement runs in a separate thread, on a
    separate connection; the producer stays in its thread, with its limits, errors and interrupts.
    """

    def __init__(self, con: Any, sql: str, schema: pa.Schema) -> None:
        self._con, self._sql, self._schema = con, sql, schema
        self._given_up = False
        self._waiting: Queue[pa.RecordBatch | None] = Queue(maxsize=_WAITING)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._begun: Future[None] | None = None

    @property
    def _statement(self) -> Future[None]:
        """Started lazily, so that `close` is guaranteed to run."""
        if self._begun is None:
            self._begun = self._thread.submit(self._run)
        return self._begun

    def close(self) -> None:
        """Ends the statement, whether or not all rows were added."""
        if self._begun is None or not self._begun.done():
            self._given_up = True
            self._con.interrupt()
            # Offered at least once: an interrupt may arrive before the start is recorded.
            self._offer(None)
            while self._begun is not None and not self._begun.done():
                self._offer(None)
        self._thread.shutdown()

    def add(self, rows: pa.Table) -> None:
        """Adds rows.

        Blocks while the queue is full, and raises the error of a statement that has failed.
        """
        # DuckDB does not check types and would misread the memory of others.
        for batch in (
            rows if rows.schema.equals(self._schema) else rows.cast(self._schema)
        ).to_batches():
            self._put(batch)

    def finish(self) -> None:
        """Waits until all rows are aggregated."""
        self._put(None)
        self._statement.result()

    def _put(self, batch: pa.RecordBatch | None) -> None:
        statement = self._statement
        while not self._offer(batch):
            if statement.done():
                statement.result()
                raise RuntimeError("A statement ended before its rows did.")

    def _offer(self, batch: pa.RecordBatch | None) -> bool:
        try:
            self._waiting.put(batch, timeout=_TIMEOUT)
        except Full:
            return False
        return True

    def _run(self) -> None:
        self._con.register(
            "arriving", pa.RecordBatchReader.from_batches(self._schema, self._batches())
        )
        try:
            self._con.execute(self._sql)
        finally:
            self._con.unregister("arriving")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._waiting.get()) is not None:
            yield batch
        # DuckDB ignores an interrupt before the statement starts; an incomplete result must not be
        # used.
        if self._given_up:
            raise RuntimeError("Rows have stopped coming.")


def kept_columns(kept: Kept, batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Any]:
    """Returns columns of the used rows of a batch.

    Tiles and sums as screened, others as they are in the batch.
    """
    ends: dict[str, Any] = {"origin": kept.origin, "destination": kept.destination}
    screened = ends | {"trips": kept.trips, FRACTION: kept.fraction, **kept.added}

    def column(name: str) -> Any:
        if name in screened:
            return screened[name]
        return (
            batch.column(name)
            if len(kept.rows) == len(batch)
            else batch.column(name).take(pa.array(kept.rows))
        )

    return {name: column(name) for name in names}


class Staged:
    """Rows in tables of DuckDB, with slices, ends, person, trips and other sums.

    The table ``grouped`` has a row for each flow and spelling of a person, ``spelled`` the number
    of the person of each spelling, ``names`` the name of each number. If rows were ``grouped``
    before, a row may be several trips, and persons are numbers in the order of their names, null if
    unknown.
    """

    def __init__(
        self, con: Any, reading: Reading, tiling: Tiling, *, grouped: bool = False
    ) -> None:
        used = reading.columns
        self._con, self._reading, self._tiling, self._numbered = con, reading, tiling, grouped
        #: Rows without a person, by placeholder.
        self.nobody: Counter[str] = Counter()
        self._has_person = bool(used.person)
        self._added = tuple(used.added)
        self._slice_names = (*used.by, *((TIME,) if reading.slice_time else ()))
        self._slices = tuple(f"slice{i}" for i in range(len(self._slice_names)))
        self._keys = (*self._slices, "origin", "destination")
        self._waiting: list[pa.Table] = []
        self._arriving: StreamingQuery | None = None
        #: The summed columns; rows of one trip each need no number of trips.
        counted = ("trips", FRACTION) if used.trips else ("trips",) if grouped else ()
        #: Records with their values, if cells publish numbers beyond counts.
        self._records: list[pa.Table] = []
        self._numbers, self._value_names = reading.numbers, used.value_names()
        self._amounts = (*counted, *self._added)
        #: Whether every spelling is a different person.
        self._as_persons = True
        con.execute("CREATE TABLE names (name VARCHAR, number INTEGER)")
        con.execute("CREATE TABLE spelled (spelling VARCHAR, number INTEGER, placeholder VARCHAR)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Stops grouping, whether or not all rows have arrived."""
        if self._arriving is not None:
            self._arriving.close()

    def add(self, kept: Kept, batch: pa.RecordBatch) -> None:
        """Adds the used rows of a batch, which has the persons and the slices."""
        who = ("person",) if self._has_person else ()
        if self._numbers is not None:
            trips = kept.trips * ONE if kept.fraction is None else kept.trips * ONE + kept.fraction
            values = (f"value{i}" for i in range(len(self._value_names)))
            columns = kept_columns(kept, batch, (*self._keys, *who, *values))
            self._records.append(pa.table(columns | {"weight": kept.added.get("weight", trips)}))
        self.take(pa.table(kept_columns(kept, batch, (*self._keys, *who, *self._amounts))))

    def take(self, rows: pa.Table) -> None:
        """Adds rows with the columns of this table."""
        self._waiting.append(rows)
        # Collected, because sources may have tiny batches.
        if sum(t.num_rows for t in self._waiting) >= BATCH_ROWS // 2:
            self._hand_over()

    def _hand_over(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting = []
        if self._arriving is None:
            self._arriving = StreamingQuery(self._con, self._grouping, rows.schema)
        self._arriving.add(rows)

    @property
    def _grouping(self) -> str:
        """The statement that groups rows."""
        keys = ", ".join((*self._keys, *(("person",) if self._has_person else ())))
        # Sums have 128 bits; counts of rows fit 64.
        trips = (
            "sum(trips) AS trips, count(*) AS rows"
            if "trips" in self._amounts
            else "count(*) AS trips"
        )
        added = "".join(f", sum({name}) AS {name}" for name in self._amounts if name != "trips")
        return (
            f"CREATE TABLE grouped AS SELECT {keys}, {trips}{added} FROM arriving GROUP BY {keys}"
        )

    def finish(self) -> None:
        """Groups the remaining rows, numbers persons, and counts rows without a person."""
        if self._waiting:
            self._hand_over()
        if self._arriving is None:
            return
        self._arriving.finish()
        if self._has_person and not self._numbered:
            self._as_persons = self._learn_names("rows" if "trips" in self._amounts else "trips")

    def _learn_names(self, rows: str) -> bool:
        """Numbers persons in the order of names, null for placeholders.

        Returns whether each is spelled one way.
        """
        self._read_spellings()
        self._con.execute(
            "INSERT INTO names SELECT name, row_number() OVER (ORDER BY name) - 1 FROM "
            "(SELECT DISTINCT name FROM fresh WHERE name IS NOT NULL)"
        )
        self._con.execute(
            "INSERT INTO spelled SELECT spelling, number, placeholder FROM fresh LEFT JOIN names"
            " USING (name)"
        )
        self._con.execute("DROP TABLE fresh")
        nobody = self._con.execute(
            f"SELECT placeholder, sum({rows}) FROM grouped JOIN (FROM spelled WHERE placeholder IS"
            " NOT NULL) ON spelling = person GROUP BY placeholder UNION ALL SELECT '',"
            f" coalesce(sum({rows}), 0) FROM grouped WHERE person IS NULL"
        )
        for word, n in nobody.fetchall():
            self.nobody[placeholder_name(word)] += int(n)
        return self._count("spelled") == self._count("names")

    def _read_spellings(self) -> None:
        """Fills the table ``fresh`` (spelling, name, placeholder) with the name of each
        spelling.
        """
        name_sql, into = person_sql("spelling"), self._con.cursor()
        into.execute("CREATE TABLE fresh (spelling VARCHAR, name VARCHAR, placeholder VARCHAR)")
        relation = self._con.sql(
            f"SELECT spelling, {name_sql} AS name, {placeholder_sql(name_sql)} AS word "
            "FROM (SELECT DISTINCT person AS spelling FROM grouped WHERE person IS NOT NULL)"
        )
        for batch in batches_of(relation, BATCH_ROWS):
            spelling, name, word = batch.columns
            name = known_persons(name, word, case=self._reading.person_case)
            into.register(
                "flowveil_names",
                pa.table([spelling, name, word], names=["spelling", "name", "word"]),
            )
            into.execute("INSERT INTO fresh SELECT * FROM flowveil_names")
            into.unregister("flowveil_names")

    def _count(self, table: str) -> int:
        return int(self._con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    def flows(self, intake: ReadSummary) -> Flows:
        """Returns the flows, with a separate dimension for each slice column.

        Integers are summed, so order has no effect.
        """
        grouped = self._grouped()
        if not self._reading.by_many:
            names = {
                name: s
                for name, s in zip(self._slice_names, self._slices, strict=True)
                if name != TIME
            }
            values = {
                name: pc.count_distinct(grouped.column(s)).as_py() for name, s in names.items()
            }
            refuse_many_values(values, rows=intake.used_rows)
        keys, start = self._numbered_slices(grouped)
        ends = (grouped.column("origin").to_numpy(), grouped.column("destination").to_numpy())
        origins, destinations = map(np.unique, ends)
        if self._reading.same_zones:
            origins = destinations = np.union1d(origins, destinations)
        origin = np.searchsorted(origins, ends[0]).astype(np.int32)
        destination = np.searchsorted(destinations, ends[1]).astype(np.int32)
        trips = grouped.column("trips").to_numpy()
        if self._has_fractions:
            trips = (trips * MILLION + grouped.column(FRACTION).to_numpy()) / MILLION
        added = {name: grouped.column(name).to_numpy() / MILLION for name in self._added}
        people = self._people() if self._has_person else None
        records = None
        if self._numbers is not None:
            records, note = self._record_values()
            intake = replace(intake, notes=(*intake.notes, *note))
        tree_o = self._tiling.hierarchy(origins)
        tree_d = tree_o if self._reading.same_zones else self._tiling.hierarchy(destinations)

        dimensions = separate_dimensions(self._slice_names, keys, self._reading.every)
        lengths = np.diff(start)
        leaves = tuple(
            np.repeat(one.leaves([key[n] for key in keys]), lengths)
            for n, one in enumerate(dimensions)
        )
        return Flows(
            origin,
            destination,
            trips,
            people=people,
            **added,
            origins=tree_o,
            destinations=tree_d,
            intake=intake,
            whole_map=self._tiling.whole_map,
            dimensions=dimensions,
            leaves=leaves,
            values=records,
        )

    @cached_property
    def _has_fractions(self) -> bool:
        """Whether a row has a fraction of a trip.

        Then trips are the doubles nearest to millionths, else int64.
        """
        found = f"SELECT coalesce(max({FRACTION}) > 0, false) FROM grouped"
        return FRACTION in self._amounts and bool(self._con.execute(found).fetchall()[0][0])

    def _grouped(self) -> pa.Table:
        """Returns the flows in order; numbers them in the table ``flows``."""
        self._make_room()
        added = "".join(f", CAST(sum({name}) AS DOUBLE) AS {name}" for name in self._added)
        if self._has_fractions:
            added += f", CAST(sum({FRACTION}) AS BIGINT) AS {FRACTION}"
        keys = ", ".join(self._keys)
        self._con.execute(
            f"CREATE TABLE flows AS SELECT *, CAST(row_number() OVER (ORDER BY {keys}) - 1 AS"
            f" INTEGER) AS cell FROM (SELECT {keys}, CAST(sum(trips) AS BIGINT) AS trips{added}"
            f" FROM grouped GROUP BY {keys})"
        )
        return fetch_table(self._con, "SELECT * EXCLUDE (cell) FROM flows ORDER BY cell")

    def _make_room(self) -> None:
        """Reserves memory for numpy if it is limited; DuckDB gets the rest and spills."""
        if not is_limited():
            return
        keys = ", ".join(self._keys)
        n_flows = self._count(f"(SELECT DISTINCT {keys} FROM grouped)")
        persons = self._count("grouped") if self._has_person else 0
        pairs = f" with {about(persons)} pairs of flow and person" if persons else ""
        left = room_for(
            n_flows * FLOW_READ + persons * PERSON_READ + sum(map(len, self._records)) * VALUE_READ,
            what=f"reading {about(n_flows)} flows{pairs}",
            hint=(
                f"use larger tiles ({option('resolution')}) or a smaller area ({option('within')})"
            ),
        )
        if left is not None:
            self._con.execute(f"SET memory_limit = '{left} bytes'")

    def _numbered_slices(self, grouped: pa.Table) -> tuple[tuple[Key, ...], NDArray[np.int64]]:
        """Returns the distinct slices in order, and where each begins in the grouped rows, with the
        end.
        """
        first = np.zeros(len(grouped), dtype=np.bool_)
        first[:1] = True
        for name in self._slices:
            column = grouped.column(name).combine_chunks()
            first[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(first)
        if len(at) > MOST_SLICES:
            raise DataError(
                f"There are {len(at):,} slices by {', '.join(self._slice_names)}; allowed are"
                f" {MOST_SLICES:,}. Hint: such a column is probably an identifier; use classes, or"
                " a longer --every."
            )
        columns = [grouped.column(name).take(pa.array(at)).to_pylist() for name in self._slices]
        keys = tuple(zip(*columns, strict=True)) if columns else ((),)
        return keys, np.append(at, len(grouped))

    def _record_values(self) -> tuple[RecordValues, list[str]]:
        """Returns the values of the records of each flow, in an order independent of the rows.

        And notes on them.
        """
        assert self._numbers is not None
        keys = " AND ".join(f"records.{key} = flows.{key}" for key in self._keys)
        number = "coalesce(number, -1)" if self._has_person else "0"
        joined = "LEFT JOIN spelled ON spelling = records.person" if self._has_person else ""
        values = "".join(f", value{i}" for i in range(len(self._value_names)))
        self._con.register("records", pa.concat_tables(self._records))
        rows = fetch_table(
            self._con,
            f"SELECT cell, CAST({number} AS INTEGER) AS person, records.weight{values} FROM records"
            f" JOIN flows ON {keys} {joined} ORDER BY ALL",
        )
        self._con.unregister("records")
        self._records = []
        found, notes = {}, []
        for i, name in enumerate(self._value_names):
            low, high = self._numbers.bounds[name]
            value = rows.column(f"value{i}").to_numpy()
            missing, inside = np.isnan(value), (value >= low) & (value <= high)
            outside, present = int(np.sum(~inside & ~missing)), max(int(np.sum(~missing)), 1)
            if outside > self._reading.max_dropped * present:
                raise DataError(
                    f"Too many values of column '{name}' are outside {option('between')}"
                    f" {name}={low:g},{high:g}: {outside:,} of {present:,}; allowed are"
                    f" {self._reading.max_dropped:.1%}. Hint: check the unit of the column, give"
                    f" wider bounds, or a larger {option('max_dropped')}."
                )
            notes.append(
                f"Values of '{name}': {int(missing.sum()):,} missing, {outside:,} outside their"
                " bounds. Their trips count; they have no part in any mean, total or median."
            )
            found[name] = np.where(inside, value, np.nan)
        person = rows.column("person").to_numpy() if self._has_person else None
        flow, weight = rows.column("cell").to_numpy(), rows.column("weight").to_numpy()
        records = RecordValues(self._numbers, flow, person, weight, found)
        records.refuse_values_of_persons()
        return records, notes

    def _people(self) -> People:
        """Returns the distinct people of each flow and their trips, numbered in the order of their
        names.
        """
        keys = " AND ".join(f"grouped.{key} = flows.{key}" for key in self._keys)
        trips, once = (
            ("grouped.trips", "")
            if self._as_persons
            else ("sum(grouped.trips)", "GROUP BY cell, number")
        )
        found = "grouped JOIN (FROM spelled WHERE number IS NOT NULL) ON spelling = person"
        if self._numbered:
            found = "(SELECT *, person AS number FROM grouped WHERE person IS NOT NULL) AS grouped"
        rows = fetch_table(
            self._con,
            f"SELECT cell, CAST(number AS INTEGER) AS number, CAST({trips} AS BIGINT) AS trips FROM"
            f" {found} JOIN flows ON {keys} {once} ORDER BY cell, number",
        )
        return People(
            cell=rows.column("cell").to_numpy(),
            person=rows.column("number").to_numpy(),
            trips=None if self._has_fractions else rows.column("trips").to_numpy(),
        )
