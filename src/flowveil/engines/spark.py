"""The Spark engine: what is proportional to trips stays on the cluster, and the driver gets flows, persons if they fit.

Each task reads its part of the rows in Arrow batches and does with them what the DuckDB engine does, by the same code:
the same SQL in a DuckDB of its own turns text into numbers, times and persons, the same screening sorts rows out, the
same function indexes points. So the two engines cannot differ in what a value means, and the release is the same byte
by byte. Spark then groups rows by slice, pair of tiles and person. Only whole numbers are summed, so partitions leave
no trace. Names of persons stay on the cluster: there they become numbers, in the order of the names.

What a task counted about its rows (how many were left out and why, what is wrong with the table) travels as one more
row through the same grouping, and not through an accumulator: Spark repeats tasks that fail, and what a repeated task
counted must not count twice.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.engines.duckdb import BATCH_ROWS, Query, Staged, opening_of
from flowveil.engines.spark_blocks import Numbering, with_distant_people
from flowveil.engines.spark_session import chosen, on_the_cluster, session
from flowveil.engines.spark_tables import ROWS, FirstLines, SparkTable, is_dataframe, open_spark_table
from flowveil.errors import DataError, FlowveilError, option
from flowveil.flows import Intake
from flowveil.reading import Reading
from flowveil.reading.database import fetch_table, in_own_words, open_database
from flowveil.reading.limits import FLOW_READ, about, room_for
from flowveil.reading.persons import Nobody, known_persons, person_sql, placeholder_sql
from flowveil.reading.screening import Kept, Screening
from flowveil.reading.tiling import tiling_of
from flowveil.slices import SlicedFlows

#: Libraries that decide what a value means; a worker with other versions could read other flows.
_SAME = ("flowveil", "duckdb", "h3", "pyarrow")
_ACCOUNT = "account"
#: A number that Spark gives to a row: its partition, and below these bits its place there.
_PLACE_BITS = 33


def read(source: Any, reading: Reading, *, progress: Callable[[float], None] | None = None) -> SlicedFlows:
    """Read trips on a Spark cluster and group them into the flows of each slice; see `flowveil.engines.Engine`.

    Args:
        source: a Spark DataFrame, the name of a table, or files that Spark reads.
        reading: how to read it; columns that it does not name are recognised.
        progress: called with the share that is read, from 0 to 1.

    Raises:
        ParameterError: the source is nothing that Spark can read, no cluster answers, or flows do not fit the driver.
        DataError: the table cannot be used.
        MissingExtraError: there is no pyspark, or no Java.
    """
    tiling = tiling_of(reading)
    spark = source.sparkSession if is_dataframe(source) else session()
    with open_database(None) as con, on_the_cluster("the input"):
        table = open_spark_table(spark, source, opening_of(reading))
        with on_the_cluster(table.label), in_own_words(table.label):
            query = Query.understood(_Asking(con, table), table, reading, tiling)
            task = _Task(query, FirstLines(table) if table.in_text else None, table.label, _versions())
            with _grouped(table, task) as (accounts, rows):
                intake = _intake(task, accounts)
                if progress is not None:
                    progress(0.5)
                flows = _flows(con, rows, query, intake, table.label)
    if progress is not None:
        progress(1.0)
    return flows


def _versions() -> dict[str, str]:
    return {name: import_module(name).__version__ for name in _SAME}


# ---- on the workers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Task:
    """What a task does with its part of the rows; it travels to the workers."""

    query: Query
    first_lines: FirstLines | None
    label: str
    versions: dict[str, str]

    def schema(self) -> str:
        """The columns that come out, as Spark writes them."""
        columns = [f"{_ACCOUNT} binary", *(f"{name} string" for name in self.slices)]
        columns += ["origin bigint", "destination bigint"]
        columns += ["person string"] * bool(self.query.used.person)
        return ", ".join([*columns, *(f"{name} bigint" for name in ("trips", *self.query.used.added))])

    @property
    def slices(self) -> tuple[str, ...]:
        """What the slice columns are called."""
        return tuple(f"slice{i}" for i in range(len(self.query.used.slice_names())))

    @property
    def keys(self) -> tuple[str, ...]:
        """What distinguishes rows that are grouped."""
        return (*self.slices, "origin", "destination", *(("person",) if self.query.used.person else ()))

    @property
    def sql(self) -> str:
        """The query, with persons in place of their spellings, and beside them the words that stand for nobody."""
        if not self.query.used.person:
            return self.query.sql
        who = person_sql("person")
        return f"SELECT * REPLACE ({who} AS person), {placeholder_sql(who)} AS placeholder FROM ({self.query.sql})"

    def screened(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that can be used with the tiles of their ends; last, one row with what was counted on the way.

        What is wrong with the table as a whole goes the same way: an error that a task raises would be tried again.
        """
        screening = Screening(self.query.reading, self.query.tiling, times=self.query.times)
        nobody, refusal = Nobody(), None
        try:
            self._check_versions()
            for rows in _answers(batches, self.sql, self.first_lines, self.label):
                yield from self._kept(screening.pass_batch(self.query.columns_of(rows)), rows, nobody)
        except FlowveilError as error:
            refusal = error
        # With the number of the part, because accounts that are equal would be grouped into one.
        counted = {"tally": screening.tally(), "nobody": nobody.as_recorded(), "refusal": refusal}
        account = {"part": _part(), **counted}
        yield self._row_of(pickle.dumps(account))

    def _kept(self, kept: Kept, rows: pa.RecordBatch, nobody: Nobody) -> Iterator[pa.RecordBatch]:
        at = pa.array(kept.rows)
        columns: dict[str, Any] = {_ACCOUNT: pa.nulls(len(at), pa.binary())}
        columns |= {name: rows.column(name).take(at).cast(pa.string()) for name in self.slices}
        columns |= {"origin": kept.origin.view(np.int64), "destination": kept.destination.view(np.int64)}
        if self.query.used.person:
            placeholders = rows.column("placeholder").take(at)
            nobody.add(placeholders)
            case = self.query.reading.person_case
            columns["person"] = known_persons(rows.column("person").take(at), placeholders, case=case).cast(pa.string())
        columns |= {"trips": kept.trips, **kept.added}
        yield from pa.table(columns).combine_chunks().to_batches()

    def _row_of(self, account: bytes) -> pa.RecordBatch:
        columns = {name: pa.nulls(1, _ARROW[kind]) for name, kind in map(str.split, self.schema().split(", "))}
        return pa.RecordBatch.from_pydict({**columns, _ACCOUNT: pa.array([account], pa.binary())})

    def _check_versions(self) -> None:
        found = _versions()
        others = [name for name in _SAME if found[name] != self.versions[name]]
        if others:
            listed = ", ".join(f"{name} {found[name]} instead of {self.versions[name]}" for name in others)
            raise DataError(
                f"A worker of the cluster has other versions than the driver: {listed}. Hint: use one image."
            )


def _part() -> int:
    """Which part of the table the task reads that runs here."""
    from pyspark import TaskContext

    here = TaskContext.get()
    return -1 if here is None else here.partitionId()


_ARROW = {"binary": pa.binary(), "string": pa.string(), "bigint": pa.int64()}


def _answers(
    batches: Iterable[pa.RecordBatch], sql: str, first_lines: FirstLines | None, label: str
) -> Iterator[pa.RecordBatch]:
    """What a query answers on each batch, batches as large as those of DuckDB."""
    with open_database(1) as con, in_own_words(label):
        for rows in _gathered(batches):
            con.register(ROWS, rows if first_lines is None else first_lines.without(rows, label))
            yield from fetch_table(con, sql).combine_chunks().to_batches()
            con.unregister(ROWS)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together: Spark makes small ones, and a query costs the same for one row as for a thousand."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


# ---- on the driver -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Asking:
    """A database for `Query`: what is asked of the rows of the table is answered by the cluster, the rest here.

    The questions (see `flowveil.reading.times`) are how many rows there are of each kind, which add up over the parts
    of a table, and how large numbers are at most.
    """

    con: Any
    table: SparkTable

    def __getattr__(self, name: str) -> Any:
        return getattr(self.con, name)

    def execute(self, sql: str) -> Any:
        """The answer to a query; one over the rows of the table takes part after part."""
        if f"FROM {ROWS}" not in sql or sql.startswith("DESCRIBE"):
            return self.con.execute(sql)
        first_lines = FirstLines(self.table) if self.table.in_text else None
        label = self.table.label

        def answered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            answers = [row for rows in _answers(batches, sql, first_lines, label) for row in _rows_of(rows)]
            yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(_merged(answers))]})

        found = self.table.selected.mapInArrow(answered, "answer binary").collect()
        return _Answer(_merged([row for part in found for row in pickle.loads(part[0])]))


def _rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _merged(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Answers of parts as one: counts of each kind added up, the largest first; or the largest of each number."""
    if any(isinstance(key, str) for key, *_ in rows):
        counts: Counter[Any] = Counter()
        for key, n in rows:
            counts[key] += n
        return sorted(counts.items(), key=lambda found: (-found[1], found[0] is None, found[0] or ""))
    if len({len(row) for row in rows}) > 1:
        raise ValueError("answers of one query have one form")
    present = [[n for n in column if n is not None] for column in zip(*rows, strict=True)]
    return [tuple(max(column, default=None) for column in present)] if rows else []


@dataclass(frozen=True)
class _Answer:
    rows: list[tuple[Any, ...]]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.rows


@contextmanager
def _grouped(table: SparkTable, task: _Task) -> Iterator[tuple[list[Any], Any]]:
    """What the tasks counted, and the rows grouped by slice, tiles and person, kept on the cluster for the block."""
    from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

    screened = table.selected.mapInArrow(task.screened, task.schema())
    # An overflow gives NULL here; the total, which the tasks count apart, is then too large and refused.
    sums = [F.try_sum(name).alias(name) for name in ("trips", *task.query.used.added)]
    grouped = screened.groupBy(_ACCOUNT, *task.keys).agg(*sums).persist()
    try:
        accounts = [pickle.loads(row[0]) for row in grouped.where(f"{_ACCOUNT} IS NOT NULL").select(_ACCOUNT).collect()]
        yield accounts, grouped.where(f"{_ACCOUNT} IS NULL").drop(_ACCOUNT)
    finally:
        grouped.unpersist()


def _intake(task: _Task, accounts: list[dict[str, Any]]) -> Any:
    """What reading came to.

    Raises:
        DataError: with everything that was found in all parts of the table.
    """
    screening = Screening(task.query.reading, task.query.tiling, times=task.query.times)
    nobody: Counter[str] = Counter()
    refusals = sorted((account["refusal"] for account in accounts if account["refusal"]), key=str)
    if refusals:
        raise refusals[0]
    for account in accounts:
        screening.take(account["tally"])
        nobody.update(account["nobody"])
    return screening.finish(label=task.label, nobody=dict(sorted(nobody.items())), notes=task.query.notes)


def _flows(con: Any, rows: Any, query: Query, intake: Intake, label: str) -> SlicedFlows:
    """Flows on the driver, with their persons as numbers where they fit, else with persons that stay on the cluster.

    Flows come in any case: the safe pairs, which a driver cannot decide without, are more.

    Raises:
        ParameterError: the memory of the driver does not suffice for them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    most, found, with_persons = chosen().driver_flows, rows.count(), bool(query.used.person)
    if found <= most:
        intake = replace(intake, notes=(*intake.notes, _ALL_FIT))
        with _numbered(rows) if with_persons else _as_they_are(rows) as collected:
            table = collected.toArrow()
        return _staged(con, table, query, intake)
    intake = replace(intake, notes=(*intake.notes, _PERSONS_STAY if with_persons else _NO_PERSONS))
    amounts = ("trips", *query.used.added)
    sums = [F.sum(name).cast("bigint").alias(name) for name in amounts]
    keys = [name for name in rows.columns if name not in ("person", *amounts)]
    flows = rows.groupBy(*keys).agg(*sums).persist() if with_persons else rows
    try:
        found_flows = flows.count() if with_persons else found
        room_for(
            found_flows * FLOW_READ,
            what=f"taking {about(found_flows)} flows to the driver",
            hint=f"use coarser tiles ({option('resolution')}) or an area ({option('within')})",
            machine=True,
        )
        table = flows.toArrow()
    finally:
        flows.unpersist()
    nameless = replace(query, reading=replace(query.reading, columns=replace(query.used, person=None)))
    ends = [np.unique(table.column(name).to_numpy().view(np.uint64)) for name in ("origin", "destination")]
    if query.reading.same_zones:
        ends = [np.union1d(*ends)] * 2
    without = _staged(con, table, nameless, intake)
    if not with_persons:
        return without
    return with_distant_people(without, rows, Numbering.of(without, *ends), n_rows=found, label=label)


#: Which way was taken and why, for whoever reads; never how many rows.
_ALL_FIT = "Spark: all flows, with numbers for persons, are on the driver, because it takes so many (--driver-flows)."
_PERSONS_STAY = (
    "Spark: persons stay on the cluster and are counted there, because flows times their persons are more than the "
    "driver takes (--driver-flows); flows are on the driver."
)
_NO_PERSONS = (
    "Spark: flows are on the driver, although they are more than it takes at once (--driver-flows): no person is known "
    "who could be counted on the cluster instead."
)


def _staged(con: Any, table: pa.Table, query: Query, intake: Intake) -> SlicedFlows:
    """The flows of collected rows, persons as numbers where there are some."""
    columns = {name: table.column(name) for name in table.column_names}
    if query.used.person:
        number = columns["person"]
        # In text, because the table on the driver has persons as text; of one length, so that they keep their order.
        columns["person"] = pc.utf8_lpad(number.cast(pa.string()), 10, "0")
        columns["placeholder"] = pc.if_else(pc.is_null(number), "", pa.scalar(None, pa.string()))
    kept = Kept(
        rows=np.arange(len(table)),
        origin=columns["origin"].to_numpy().view(np.uint64),
        destination=columns["destination"].to_numpy().view(np.uint64),
        trips=columns["trips"].to_numpy(),
        added={name: columns[name].to_numpy() for name in query.used.added},
    )
    with Staged(con, query.reading, query.tiling, grouped=True) as staged:
        staged.add(kept, pa.table(columns))
        staged.finish()
        return staged.sliced(intake)


@contextmanager
def _as_they_are(rows: Any) -> Iterator[Any]:
    yield rows


@contextmanager
def _numbered(rows: Any) -> Iterator[Any]:
    """The rows with persons as numbers 0, 1, ... in the order of their names.

    A number is a person's place in a sorted partition, and how many stand in the partitions before it: nothing is
    gathered in one place but how many persons each partition has.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = rows.where("person IS NOT NULL").select("person").distinct().orderBy("person")
    # Kept, because Spark chooses the bounds of partitions anew whenever it sorts anew.
    placed = names.withColumn("place", F.monotonically_increasing_id()).persist()
    try:
        partition = F.shiftright("place", _PLACE_BITS)
        sizes = sorted(tuple(row) for row in placed.groupBy(partition.alias("partition")).count().collect())
        before = np.cumsum([0, *(n for _, n in sizes)]).tolist()
        starts = [F.lit(value) for (number, _), start in zip(sizes, before, strict=False) for value in (number, start)]
        first = F.element_at(F.create_map(*starts), partition) if starts else F.lit(0)
        number = first + F.col("place").bitwiseAND((1 << _PLACE_BITS) - 1)
        numbered = placed.select(F.col("person").alias("name"), number.alias("number"))
        joined = rows.join(numbered, rows["person"] == numbered["name"], "left")
        yield joined.drop("name", "person").withColumnRenamed("number", "person")
    finally:
        placed.unpersist()
