"""What Spark moves between tasks: batches of grouped rows, and blocks of persons that stay on the
cluster.

A task groups its rows in DuckDB and packs each bucket as one value of bytes, because Spark's
grouping makes a Java object of every row (docs/decisions/0034-spark.md). All rows of a person are
in one bucket. Persons are numbered in the order of their names, so a batch that is recomputed is
the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Counts
from flowveil.core.errors import DataError
from flowveil.core.flows import Flows
from flowveil.core.remote_people import Counting, RemotePeople
from flowveil.reading.database import fetch_table, in_own_words, open_database
from flowveil.reading.engines.spark_session import context_of, on_the_cluster
from flowveil.reading.engines.staging import StreamingQuery

#: Contents of a batch: the counters of a task, rows, or the names of numbered persons.
ACCOUNT, ROWS, NAMES = 0, 1, 2
#: The columns of a table of batches, for Spark and for Arrow.
COLUMNS = "kind int, bucket int, rows bigint, part binary"
_BATCH = pa.schema(
    [("kind", pa.int32()), ("bucket", pa.int32()), ("rows", pa.int64()), ("part", pa.binary())]
)
#: Buckets per task: Spark distributes them at random, and more buckets balance the load.
BUCKETS = 8
#: Rows that a task groups at once, and upper bound for the rows of a batch; both must fit its
#: memory.
TOGETHER, MOST_ROWS = 1 << 19, 1 << 20
#: Rows of a block: few enough for the memory of a task, enough to make the overhead of a query
#: small.
BLOCK_ROWS = 2_000_000
#: If all answers exceed the first, they are added on the cluster until the second number is left.
MOST_BYTES, LAST_ANSWERS = 64_000_000, 4


def pack(kind: int, bucket: int, rows: int, part: bytes) -> pa.RecordBatch:
    """Returns a batch with one row."""
    return pa.RecordBatch.from_pydict(
        {"kind": [kind], "bucket": [bucket], "rows": [rows], "part": [part]}, _BATCH
    )


def unpack(part: Any) -> pa.Table:
    """Returns the rows of a batch, without a copy."""
    return pa.ipc.open_stream(part.as_buffer()).read_all()


def hash_of_a_word() -> str:
    """Returns a sample of the hash that chooses buckets.

    If machines differ, persons would be counted twice.
    """
    with open_database(1) as con:
        return str(
            con.execute(
                "SELECT hash('flowveil'), hash(CAST(17 AS UBIGINT), CAST(71 AS UBIGINT))"
            ).fetchall()
        )


@dataclass(frozen=True)
class Grouping:
    """The keys and sums of a grouping, sent to the workers.

    Persons are names, after the second grouping numbers.
    """

    slices: tuple[str, ...]
    person: bool
    amounts: tuple[str, ...]
    parts: int
    label: str

    @property
    def columns(self) -> list[str]:
        """The columns of rows, in order."""
        return [
            *self.slices,
            "origin",
            "destination",
            *(["person"] if self.person else []),
            *self.amounts,
        ]

    @property
    def _keys(self) -> str:
        return ", ".join(self.columns[: -len(self.amounts)])

    def _sums(self) -> str:
        # An overflow gives NULL here; the total, which tasks count separately, is then refused as
        # too large.
        return ", ".join(f"TRY_CAST(sum({name}) AS BIGINT) AS {name}" for name in self.amounts)

    def divided(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Groups rows and yields a batch for each bucket."""
        place = "hash(origin, destination)"
        place = (
            f"CASE WHEN person IS NULL THEN {place} ELSE hash(person) END" if self.person else place
        )
        bucket = f"CAST({place} % {self.parts * BUCKETS} AS INTEGER) AS bucket"
        with open_database(1) as con, in_own_words(self.label):
            for rows in gathered(tables, TOGETHER):
                con.register("gathered", rows)
                sql = (
                    f"SELECT {bucket}, {self._keys}, {self._sums()} FROM gathered GROUP BY ALL"
                    " ORDER BY bucket"
                )
                yield from _packed(fetch_table(con, sql), ROWS)
                con.unregister("gathered")

    def grouped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Groups complete buckets.

        Yields batches of rows, names of persons, and the unchanged counters of tasks.
        """
        sql = (
            f"CREATE TABLE grouped AS SELECT bucket, {self._keys}, {self._sums()} FROM arriving"
            " GROUP BY ALL"
        )
        with open_database(1) as con, in_own_words(self.label), ExitStack() as stack:
            arriving: StreamingQuery | None = None
            for batch in batches:
                for kind, bucket, rows, part in zip(*batch.columns, strict=True):
                    if kind.as_py() == ACCOUNT:
                        yield pack(ACCOUNT, bucket.as_py(), rows.as_py(), part.as_py())
                        continue
                    table = unpack(part)
                    table = table.append_column(
                        "bucket", pa.array(np.full(len(table), bucket.as_py(), np.int32))
                    )
                    if arriving is None:
                        arriving = StreamingQuery(con.cursor(), sql, table.schema)
                        stack.callback(arriving.close)
                    arriving.add(table)
            if arriving is not None:
                arriving.finish()
                yield from self._complete(con)

    def _complete(self, con: Any) -> Iterator[pa.RecordBatch]:
        if not self.person:
            yield from _packed(fetch_table(con, "SELECT * FROM grouped ORDER BY bucket"), ROWS)
            return
        con.execute(
            "CREATE TABLE names AS SELECT bucket, person, CAST(row_number() OVER (PARTITION BY"
            " bucket ORDER BY person) - 1 AS INTEGER) AS number FROM (SELECT DISTINCT bucket,"
            " person FROM grouped WHERE person IS NOT NULL)"
        )
        columns = ", ".join(
            (*self.slices, "origin", "destination", "number AS person", *self.amounts)
        )
        rows = (
            f"SELECT bucket, {columns} FROM grouped LEFT JOIN names USING (bucket, person) ORDER BY"
            " bucket"
        )
        yield from _packed(fetch_table(con, rows), ROWS)
        names = fetch_table(
            con, "SELECT bucket, person AS name, number FROM names ORDER BY bucket, number"
        )
        yield from _packed(names, NAMES)


def gathered(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yields tables concatenated to at least this many rows, to save statements."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _packed(table: pa.Table, kind: int) -> Iterator[pa.RecordBatch]:
    """Yields a table that is sorted by bucket as batches."""
    table = table.combine_chunks()
    bucket = table.column("bucket").to_numpy()
    rows = table.drop_columns(["bucket"])
    start = np.flatnonzero(np.diff(bucket, prepend=-1))
    for first, stop in pairwise([*start.tolist(), len(bucket)]):
        for at in range(first, stop, MOST_ROWS):
            part = rows.slice(at, min(MOST_ROWS, stop - at))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as stream:
                stream.write_table(part)
            yield pack(kind, int(bucket[first]), len(part), sink.getvalue().to_pybytes())


@dataclass(frozen=True, eq=False)
class Numbering:
    """Finds the number of the flow of a row; sent to the workers.

    Tiles and slices are in the order of their numbers.

    ``key`` has the slice and the tiles of each flow as one number, ascending.
    """

    origins: Cells64
    destinations: Cells64
    slices: tuple[tuple[str, ...], ...]
    key: NDArray[np.int64]

    @classmethod
    def from_flows(cls, flows: Flows, origins: Cells64, destinations: Cells64) -> Numbering:
        """Returns the numbering of flows whose tiles are numbered in the order of these."""
        empty = cls(origins, destinations, flows.slice_keys, np.zeros(0, np.int64))
        part = np.repeat(np.arange(len(flows.slices)), [len(part) for part in flows.slices])
        return replace(empty, key=empty._keys_of(part, flows.origin, flows.destination))

    def _keys_of(
        self, part: NDArray[Any], origin: NDArray[Any], destination: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Returns slice and tile numbers combined into one number."""
        key: NDArray[np.int64] = part.astype(np.int64) * len(self.origins) + origin
        key *= len(self.destinations)
        key += destination
        return key

    def _slice_of(self, rows: pa.Table) -> NDArray[np.int64]:
        """Returns the number of the slice of each row; -1 for an unknown key."""
        code, codes = np.zeros(len(rows), np.int64), np.zeros(len(self.slices), np.int64)
        for i in range(len(self.slices[0])):
            values = pa.array(sorted({key[i] for key in self.slices}))
            for total, column in (
                (code, rows.column(f"slice{i}")),
                (codes, pa.array([k[i] for k in self.slices])),
            ):
                total *= len(values) + 1
                total += pc.fill_null(pc.index_in(column, values), len(values)).to_numpy()
        order = np.argsort(codes)
        at = order[np.minimum(np.searchsorted(codes, code, sorter=order), len(order) - 1)]
        return np.where(codes[at] == code, at, -1)

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packs batches of grouped rows into blocks of complete buckets."""
        waiting: list[tuple[Any, Any]] = []
        last, seen = -1, set[int]()
        n_rows = n_persons = most = 0
        for batch in batches:
            for bucket, part in zip(
                batch.column("bucket").to_pylist(), batch.column("part"), strict=True
            ):
                if bucket != last:
                    # Persons of each bucket are numbered from 0.
                    n_persons, most = n_persons + most, 0
                    if n_rows >= BLOCK_ROWS:
                        yield _block(waiting)
                        waiting, n_rows, n_persons = [], 0, 0
                    if bucket in seen:
                        raise DataError(
                            "The cluster did not bring the rows of each person together."
                        )
                    last = bucket
                    seen.add(bucket)
                rows = unpack(part)
                rows = rows.filter(pc.is_valid(rows.column("person")))
                if len(rows):
                    person = rows.column("person").to_numpy()
                    most = max(most, int(person.max()) + 1)
                    waiting.append((self._flow_of(rows), person + n_persons))
                    n_rows += len(rows)
        if waiting:
            yield _block(waiting)

    def _flow_of(self, rows: pa.Table) -> NDArray[np.int64]:
        origin, destination = (
            np.searchsorted(tiles, rows.column(name).to_numpy())
            for tiles, name in ((self.origins, "origin"), (self.destinations, "destination"))
        )
        key = self._keys_of(self._slice_of(rows), origin, destination)
        flow = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        if np.any(self.key[flow] != key):
            raise DataError("The input changed while it was read.")
        return flow


def _block(rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    """Returns rows of flow and person as one block, sorted by flow."""
    flow, person = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.lexsort((person, flow))
    columns = [[column[order].astype(np.int32).tobytes()] for column in (flow, person)]
    return pa.RecordBatch.from_pydict(
        {"rows": [len(order)], "flow": columns[0], "person": columns[1]}, schema=_BLOCK
    )


_BLOCK = pa.schema([("rows", pa.int64()), ("flow", pa.binary()), ("person", pa.binary())])


class SparkBlocks:
    """Blocks of persons on a cluster; see `flowveil.core.remote_people.Blocks`.

    Released with this object.
    """

    def __init__(self, frame: Any, *, n_flows: int, label: str) -> None:
        self._frame = frame.persist()
        self._label = label
        self._release = weakref.finalize(self, _release, self._frame)
        self.n_flows = n_flows
        rows, blocks = (
            self._frame.agg({"rows": "sum", "flow": "count"})
            .select("sum(rows)", "count(flow)")
            .collect()[0]
        )
        self.n_rows, self._n_blocks = int(rows or 0), int(blocks)

    def summed(self, counting: Counting, asked: Any) -> Counts:
        """Counts in every block, on the cluster, and adds the answers."""
        with on_the_cluster(self._label), self._shared((counting, asked)) as shared:
            answers = self._frame.mapInArrow(partial(_answer_blocks, shared), "answer binary")
            none = np.zeros(0, np.int32)
            return self._added_up(answers, _answer(counting(none, none, asked), 0))

    @contextmanager
    def _shared(self, value: Any) -> Iterator[Any]:
        """Yields what has the value for every task.

        A broadcast, or with Spark Connect a part of the query.
        """
        context = context_of(self._frame.sparkSession)
        if context is None:
            yield SimpleNamespace(value=value)
            return
        if context._jsc is None:  # The session was stopped.
            raise DataError(
                f"{self._label}: the cluster, which holds the persons, was stopped. Nothing was"
                " written."
            )
        shared = context.broadcast(value)
        try:
            yield shared
        finally:
            shared.destroy()

    def _added_up(self, answers: Any, nothing: Counts) -> Counts:
        if self._n_blocks > LAST_ANSWERS and self._n_blocks * nothing.nbytes > MOST_BYTES:
            answers = answers.repartition(LAST_ANSWERS).mapInArrow(_added, "answer binary")
        total = nothing.copy()
        # All at once: an iterator over partitions would count one block after the other.
        for answer in answers.toArrow().column("answer"):
            total += np.frombuffer(answer.as_buffer(), np.int64)
        if total[-1] != self.n_rows:
            raise DataError(
                f"{self._label}: the cluster did not count every row once. Nothing was written."
            )
        return total[:-1]


def _release(frame: Any) -> None:
    # The session may have been stopped before.
    with suppress(Exception):
        frame.unpersist()


def _answer_blocks(shared: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answers a query for the blocks of a task."""
    counting, asked = shared.value
    for batch in batches:
        for flow, person in zip(batch.column("flow"), batch.column("person"), strict=True):
            columns = [np.frombuffer(column.as_buffer(), np.int32) for column in (flow, person)]
            yield _row_of(_answer(counting(*columns, asked), len(columns[0])))


def _answer(counted: Counts, n_rows: int) -> Counts:
    """Returns the counts, followed by the number of rows."""
    return np.append(counted, n_rows).astype(np.int64)


def _row_of(answer: Counts) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": pa.array([answer.tobytes()], pa.binary())})


def _added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total: Any = None
    for batch in batches:
        for answer in batch.column("answer"):
            found = np.frombuffer(answer.as_buffer(), np.int64)
            total = found if total is None else total + found
    if total is not None:
        yield _row_of(total)


def with_remote_people(
    flows: Flows, grouped: Any, numbering: Numbering, *, n_rows: int, label: str
) -> Flows:
    """Returns flows with persons that stay on the cluster, from batches of grouped rows with
    persons.
    """
    # Every block answers every query, so their number is limited by rows and cores.
    context = context_of(grouped.sparkSession)
    n_blocks = max(-(-n_rows // BLOCK_ROWS), 1 if context is None else context.defaultParallelism)
    packed = grouped.coalesce(n_blocks).mapInArrow(
        numbering.packed, "rows bigint, flow binary, person binary"
    )
    blocks = SparkBlocks(packed, n_flows=len(numbering.key), label=label)
    row = np.arange(len(flows), dtype=np.int32)
    return replace(flows, people=RemotePeople(blocks, row, row))
