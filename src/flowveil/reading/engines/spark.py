"""The Spark engine: trips stay on the cluster, the driver gets flows, and persons as numbers if
they fit.

Each task processes its rows with the code of the DuckDB engine and only integers are summed, so
both engines give the same release, byte by byte (docs/spark.md). The counters of a task travel as
one more batch through the same grouping, not in an accumulator: Spark repeats failed tasks, and
their counters must not be added twice.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.errors import DataError, FlowveilError, option
from flowveil.core.flows import Flows
from flowveil.core.read_summary import ReadSummary
from flowveil.reading import Reading
from flowveil.reading.database import fetch_table, in_own_words, open_database
from flowveil.reading.engines.duckdb import BATCH_ROWS, Query, Staged
from flowveil.reading.engines.spark_batches import (
    ACCOUNT,
    COLUMNS,
    NAMES,
    ROWS,
    Grouping,
    Numbering,
    gathered,
    hash_of_a_word,
    pack,
    unpack,
    with_remote_people,
)
from flowveil.reading.engines.spark_session import chosen, context_of, on_the_cluster, session
from flowveil.reading.engines.spark_tables import ROWS as SOURCE
from flowveil.reading.engines.spark_tables import (
    FirstLines,
    SparkTable,
    is_dataframe,
    open_spark_table,
)
from flowveil.reading.engines.staging import FRACTION, kept_columns
from flowveil.reading.persons import known_persons, person_sql, placeholder_name, placeholder_sql
from flowveil.reading.screening import Kept, Screening
from flowveil.reading.tiling import tiling_of
from flowveil.request import support
from flowveil.system.limits import FLOW_READ, about, room_for

#: Libraries that interpret values; a worker with other versions could read other flows.
_SAME = ("flowveil", "duckdb", "h3", "pyarrow")


def read(
    source: Any, reading: Reading, *, progress: Callable[[float], None] | None = None
) -> Flows:
    """Reads a Spark DataFrame, table, or files that Spark reads, on a cluster.

    See `flowveil.reading.engines.Engine`.
    """
    asked = {
        "mean": reading.numbers,
        "source_format": reading.source_format,
        "column_names": reading.column_names or None,
    }
    support.check(support.asked_of({**asked, "engine": "spark"}), support.Expected())
    tiling = tiling_of(reading)
    spark = source.sparkSession if is_dataframe(source) else session()
    with open_database(None) as con, on_the_cluster("the input"):
        table = open_spark_table(con, spark, source, reading)
        with on_the_cluster(table.label), in_own_words(table.label):
            query = Query.from_table(_ClusterQueries(con, table), table, reading, tiling)
            first_lines = FirstLines(table) if table.in_text else None
            task = _Task(query, first_lines, table.label, _versions(), _parts(spark, table))
            with _grouped(
                table.selected.mapInArrow(task.screened, COLUMNS), task.grouping
            ) as batches:
                intake = _intake(task, batches)
                if progress is not None:
                    progress(0.5)
                flows = _flows(con, batches, task, intake)
    if progress is not None:
        progress(1.0)
    return flows


def _parts(spark: Any, table: SparkTable) -> int:
    """Returns the number of tasks that group rows.

    At most Spark's default, because every task starts a database.
    """
    most, context = int(spark.conf.get("spark.sql.shuffle.partitions")), context_of(spark)
    if context is None:
        return most
    here: int = max(table.selected.rdd.getNumPartitions(), context.defaultParallelism)
    return max(1, min(most, here))


def _versions() -> dict[str, str]:
    return {name: import_module(name).__version__ for name in _SAME} | {
        "the hash of DuckDB": hash_of_a_word()
    }


@dataclass(frozen=True, eq=False)
class _Task:
    """Screens and groups a part of the rows; sent to the workers."""

    query: Query
    first_lines: FirstLines | None
    label: str
    versions: dict[str, str]
    parts: int

    @property
    def grouping(self) -> Grouping:
        """The grouping of the rows."""
        used = self.query.used
        slices = tuple(f"slice{i}" for i in range(len(self.query.reading.slice_names)))
        amounts = ("trips", FRACTION) if used.trips else ("trips",)
        return Grouping(slices, bool(used.person), (*amounts, *used.added), self.parts, self.label)

    @property
    def sql(self) -> str:
        """The query, with persons instead of their spellings, and a column of placeholders."""
        if not self.query.used.person:
            return self.query.sql
        who = person_sql("person")
        return (
            f"SELECT * REPLACE ({who} AS person), {placeholder_sql(who)} AS placeholder FROM"
            f" ({self.query.sql})"
        )

    def screened(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the used rows with their tiles.

        Last, counters and errors, because a task that raises is repeated.
        """
        screening = Screening(self.query.reading, self.query.tiling, times=self.query.times)
        nobody, refusal = Counter[str](), None

        def kept() -> Iterator[pa.Table]:
            for rows in _answers(batches, self.sql, self.first_lines, self.label):
                yield self._kept(screening.pass_batch(self.query.columns_of(rows)), rows, nobody)

        try:
            self._check_versions()
            yield from self.grouping.divided(kept())
        except FlowveilError as error:
            refusal = error
        counted = {"tally": screening.tally(), "nobody": nobody, "refusal": refusal}
        yield pack(ACCOUNT, 0, 1, pickle.dumps(counted))

    def _kept(self, kept: Kept, rows: pa.RecordBatch, nobody: Counter[str]) -> pa.Table:
        columns = kept_columns(kept, rows, self.grouping.columns)
        if self.query.used.person:
            placeholders = rows.column("placeholder").take(pa.array(kept.rows))
            for entry in pc.value_counts(placeholders.drop_null()):
                nobody[placeholder_name(entry["values"].as_py())] += entry["counts"].as_py()
            columns["person"] = known_persons(
                columns["person"], placeholders, case=self.query.reading.person_case
            )
        return pa.table(columns)

    def _check_versions(self) -> None:
        found = _versions()
        others = [name for name in found if found[name] != self.versions[name]]
        if others:
            listed = ", ".join(
                f"{name} {found[name]} instead of {self.versions[name]}" for name in others
            )
            raise DataError(
                f"A worker of the cluster has other versions than the driver: {listed}. Hint: use"
                " one image."
            )


def _answers(
    batches: Iterable[pa.RecordBatch],
    sql: str,
    first_lines: FirstLines | None,
    label: str,
) -> Iterator[pa.RecordBatch]:
    """Yields the result of a query on each batch; batches are as large as those of DuckDB."""
    with open_database(1) as con, in_own_words(label):
        for rows in gathered((pa.Table.from_batches([batch]) for batch in batches), BATCH_ROWS):
            con.register(SOURCE, rows if first_lines is None else first_lines.without(rows, label))
            yield from fetch_table(con, sql).combine_chunks().to_batches()
            con.unregister(SOURCE)


@dataclass(frozen=True, eq=False)
class _ClusterQueries:
    """A database for `Query`: runs queries over the rows of the table on the cluster, others on the
    driver.

    Queries of `flowveil.reading.times` count rows by kind, which is added over the parts of a
    table, or find maxima.
    """

    con: Any
    table: SparkTable

    def __getattr__(self, name: str) -> Any:
        return getattr(self.con, name)

    def execute(self, sql: str) -> Any:
        """Runs a query."""
        if f"FROM {SOURCE}" not in sql or sql.startswith("DESCRIBE"):
            return self.con.execute(sql)
        first_lines = FirstLines(self.table) if self.table.in_text else None
        label = self.table.label

        def answered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts = (
                [c.to_pylist() for c in part.columns]
                for part in _answers(batches, sql, first_lines, label)
            )
            answers = [row for columns in parts for row in zip(*columns, strict=True)]
            yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(_merged(answers))]})

        found = self.table.selected.mapInArrow(answered, "answer binary").collect()
        rows = _merged([row for part in found for row in pickle.loads(part[0])])
        return SimpleNamespace(fetchall=lambda: rows)


def _merged(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Merges the answers of parts: sums of counts by kind, the largest first; or maxima."""
    if any(isinstance(key, str) for key, *_ in rows):
        counts: Counter[Any] = Counter()
        for key, n in rows:
            counts[key] += n
        return sorted(
            counts.items(), key=lambda found: (-found[1], found[0] is None, found[0] or "")
        )
    if len({len(row) for row in rows}) > 1:
        raise ValueError("answers of one query must have one form")
    present = [[n for n in column if n is not None] for column in zip(*rows, strict=True)]
    return [tuple(max(column, default=None) for column in present)] if rows else []


@contextmanager
def _grouped(divided: Any, grouping: Grouping) -> Iterator[Any]:
    """Groups divided rows by slice, tiles and person.

    Yields batches, kept on the cluster for the block.
    """
    batches = (
        divided.repartition(grouping.parts, "bucket")
        .mapInArrow(grouping.grouped, COLUMNS)
        .persist()
    )
    try:
        yield batches
    finally:
        batches.unpersist()


def _intake(task: _Task, batches: Any) -> ReadSummary:
    """Returns the summary of reading."""
    accounts = [
        pickle.loads(row[0]) for row in batches.where(f"kind = {ACCOUNT}").select("part").collect()
    ]
    screening = Screening(task.query.reading, task.query.tiling, times=task.query.times)
    nobody: Counter[str] = Counter()
    refusals = sorted((account["refusal"] for account in accounts if account["refusal"]), key=str)
    if refusals:
        raise refusals[0]
    for account in accounts:
        screening.take(account["tally"])
        nobody.update(account["nobody"])
    return screening.finish(label=task.label, nobody=nobody, notes=task.query.notes)


def _flows(con: Any, batches: Any, task: _Task, intake: ReadSummary) -> Flows:
    """Returns flows on the driver, with persons as numbers if they fit, else with persons that stay
    on the cluster.
    """
    query, with_persons = task.query, bool(task.query.used.person)
    _check_whole(batches)
    rows = batches.where(f"kind = {ROWS}")
    n_rows = _count(rows)
    if n_rows <= chosen().driver_flows:
        intake = replace(
            intake, notes=(*intake.notes, _ALL_FIT.format(limit=option("driver_flows")))
        )
        tables = _with_ranks(rows, batches) if with_persons else _contents(rows)
        return _staged(con, tables, query.reading, task, intake)
    note = (_PERSONS_STAY if with_persons else _NO_PERSONS).format(limit=option("driver_flows"))
    intake = replace(intake, notes=(*intake.notes, note))
    nameless = replace(query.reading, columns=replace(query.used, person=None))
    grouping = replace(task.grouping, person=False)

    def divided(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return grouping.divided(unpack(part) for batch in batches for part in batch.column("part"))

    with _grouped(rows.mapInArrow(divided, COLUMNS), grouping) as flows:
        found = _count(flows)
        room_for(
            found * FLOW_READ,
            what=f"taking {about(found)} flows to the driver",
            hint=f"use coarser tiles ({option('resolution')}) or an area ({option('within')})",
            machine=True,
        )
        collected = list(_contents(flows))
    ends = [
        np.unique(np.concatenate([np.unique(table.column(end).to_numpy()) for table in collected]))
        for end in ("origin", "destination")
    ]
    if nameless.same_zones:
        ends = [np.union1d(*ends)] * 2
    without = _staged(con, collected, nameless, task, intake)
    if not with_persons:
        return without
    numbering = Numbering.from_flows(without, *ends)
    return with_remote_people(without, rows, numbering, n_rows=n_rows, label=task.label)


def _check_whole(batches: Any) -> None:
    """Raises DataError if a bucket was grouped by two tasks: its persons would be counted twice."""
    from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

    found = (
        batches.where(f"kind <> {ACCOUNT}")
        .select("bucket", F.spark_partition_id())
        .distinct()
        .collect()
    )
    if len({bucket for bucket, _ in found}) < len(found):
        raise DataError(
            "The cluster did not bring the rows of each person together. Nothing was written."
        )


def _count(batches: Any) -> int:
    return int(batches.agg({"rows": "sum"}).collect()[0][0] or 0)


def _contents(batches: Any) -> Iterator[pa.Table]:
    """Yields the contents of batches, on the driver."""
    return map(unpack, batches.select("part").toArrow().column("part"))


#: Notes on where persons are counted; they never contain the number of rows.
_ALL_FIT = "Spark: all flows, with numbers for persons, fit the driver ({limit})."
_PERSONS_STAY = (
    "Spark: persons stay on the cluster and are counted there, because flows times their persons"
    " exceed the limit of the driver ({limit}); flows are on the driver."
)
_NO_PERSONS = (
    "Spark: flows are on the driver, although they exceed its limit ({limit}): without persons,"
    " nothing can be counted on the cluster instead."
)


def _staged(
    con: Any, tables: Iterable[pa.Table], reading: Reading, task: _Task, intake: ReadSummary
) -> Flows:
    """Returns the flows of collected rows; persons are numbers."""
    grouping = replace(task.grouping, person=bool(reading.columns.person))
    with Staged(con, reading, task.query.tiling, grouped=True) as staged:
        for table in tables:
            staged.take(table.select(grouping.columns))
        staged.finish()
        return staged.flows(intake)


def _with_ranks(rows: Any, batches: Any) -> Iterator[pa.Table]:
    """Yields the rows with persons as numbers in the order of names, which Spark sorts and the
    driver does not get.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

    names = (
        batches.where(f"kind = {NAMES}")
        .mapInArrow(_unpacked, "bucket int, number int, name string")
        .orderBy("name")
    )
    # Increases from partition to partition, and within each.
    placed = names.withColumn("place", F.monotonically_increasing_id()).drop("name").toArrow()
    bucket, number, place = (
        placed.column(name).to_numpy() for name in ("bucket", "number", "place")
    )
    order = np.argsort(place, kind="stable")
    start = np.concatenate(
        ([0], np.cumsum(np.bincount(bucket, minlength=int(bucket.max(initial=-1)) + 1)))
    )
    # One more, for buckets without persons.
    rank = np.full(len(order) + 1, -1, np.int32)
    rank[start[bucket[order]] + number[order]] = np.arange(len(order), dtype=np.int32)
    for batch in rows.select("bucket", "part").toArrow().to_batches():
        for of, part in zip(batch.column("bucket").to_pylist(), batch.column("part"), strict=True):
            table = unpack(part)
            person = table.column("person")
            numbers = rank[start[min(of, len(start) - 1)] + person.fill_null(0).to_numpy()]
            known = pa.array(numbers, mask=person.is_null().to_numpy())
            yield table.set_column(table.schema.get_field_index("person"), "person", known)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the names in batches as rows."""
    for batch in batches:
        for bucket, part in zip(
            batch.column("bucket").to_pylist(), batch.column("part"), strict=True
        ):
            names = unpack(part).combine_chunks()
            of = pa.array(np.full(len(names), bucket, np.int32))
            columns = {"bucket": of, "number": names.column("number"), "name": names.column("name")}
            yield from pa.table(columns).to_batches()
