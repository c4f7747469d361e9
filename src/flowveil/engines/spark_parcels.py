"""Rows that are grouped on a cluster, by DuckDB in the tasks: what Spark moves between them are parcels of rows.

Spark's own grouping makes an object of Java of every row, hashes it, sorts it and writes it, which took five times as
long as all the rest of reading. So a task groups the rows it has, divides them into buckets, and puts what goes into
each bucket into a parcel: one value of bytes, in Arrow's form. Spark carries parcels to the task that has their bucket,
and that task groups them for good. All rows of a person are in one bucket, and so are all rows of a flow without a
person: what a bucket holds is complete, whoever made it.

A parcel is made again where a machine is lost, so nothing in it depends on the order in which rows came: persons are
numbered in the order of their names, each bucket from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.engines.streaming_query import StreamingQuery
from flowveil.reading.database import fetch_table, in_own_words, open_database

#: What is in a parcel: what a task counted on its way, rows, or the names behind the numbers of persons.
ACCOUNT, ROWS, NAMES = 0, 1, 2
#: The columns of a table of parcels, as Spark writes them and as Arrow does.
COLUMNS = "kind int, bucket int, rows bigint, part binary"
_PARCEL = pa.schema([("kind", pa.int32()), ("bucket", pa.int32()), ("rows", pa.int64()), ("part", pa.binary())])
#: Buckets for each task that groups them: Spark draws lots for who gets which, and with more of them all get as much.
BUCKETS = 8
#: Rows that a task groups before it makes parcels of them, and rows of a parcel at most: few enough for its memory.
TOGETHER, MOST_ROWS = 1 << 19, 1 << 20


def parcel(kind: int, bucket: int, rows: int, part: bytes) -> pa.RecordBatch:
    """One parcel as a batch of its own."""
    return pa.RecordBatch.from_pydict({"kind": [kind], "bucket": [bucket], "rows": [rows], "part": [part]}, _PARCEL)


def opened(part: Any) -> pa.Table:
    """The rows of a parcel, without a copy."""
    return pa.ipc.open_stream(part.as_buffer()).read_all()


def hash_of_a_word() -> str:
    """What the hash that chooses buckets makes of a word. Where two machines differ, persons would be counted twice."""
    with open_database(1) as con:
        return str(con.execute("SELECT hash('flowveil'), hash(CAST(17 AS UBIGINT), CAST(71 AS UBIGINT))").fetchall())


@dataclass(frozen=True)
class Grouping:
    """What rows are grouped by and what is added up; it travels to the workers.

    Attributes:
        slices: the columns that say which slice a row is in.
        person: whether rows have a person, by name or, in parcels that were grouped for good, by number.
        amounts: the columns that are added up.
        parts: how many tasks group them for good.
        label: how messages call the input.
    """

    slices: tuple[str, ...]
    person: bool
    amounts: tuple[str, ...]
    parts: int
    label: str

    @property
    def columns(self) -> list[str]:
        """The columns of rows, in their order."""
        return [*self.slices, "origin", "destination", *(["person"] if self.person else []), *self.amounts]

    @property
    def _keys(self) -> str:
        return ", ".join(self.columns[: -len(self.amounts)])

    def _sums(self) -> str:
        # An overflow gives NULL here; the total, which the tasks count apart, is then too large and refused.
        return ", ".join(f"TRY_CAST(sum({name}) AS BIGINT) AS {name}" for name in self.amounts)

    def divided(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Rows as parcels, one for each bucket and so many rows."""
        place = "hash(origin, destination)"
        place = f"CASE WHEN person IS NULL THEN {place} ELSE hash(person) END" if self.person else place
        bucket = f"CAST({place} % {self.parts * BUCKETS} AS INTEGER) AS bucket"
        with open_database(1) as con, in_own_words(self.label):
            for rows in gathered(tables, TOGETHER):
                con.register("gathered", rows)
                sql = f"SELECT {bucket}, {self._keys}, {self._sums()} FROM gathered GROUP BY ALL ORDER BY bucket"
                yield from _parcels(fetch_table(con, sql), ROWS)
                con.unregister("gathered")

    def grouped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The parcels of whole buckets as parcels of grouped rows, with names apart; accounts are passed on."""
        with open_database(1) as con, in_own_words(self.label):
            arriving: StreamingQuery | None = None
            sql = f"CREATE TABLE grouped AS SELECT bucket, {self._keys}, {self._sums()} FROM arriving GROUP BY ALL"
            try:
                for batch in batches:
                    for kind, bucket, rows, part in zip(*batch.columns, strict=True):
                        if kind.as_py() == ACCOUNT:
                            yield parcel(ACCOUNT, bucket.as_py(), rows.as_py(), part.as_py())
                            continue
                        table = opened(part)
                        table = table.append_column("bucket", pa.array(np.full(len(table), bucket.as_py(), np.int32)))
                        if arriving is None:
                            arriving = StreamingQuery(con.cursor(), sql, table.schema)
                        arriving.add(table)
                if arriving is not None:
                    arriving.finish()
            finally:
                if arriving is not None:
                    arriving.close()
            if arriving is not None:
                yield from self._complete(con)

    def _complete(self, con: Any) -> Iterator[pa.RecordBatch]:
        if not self.person:
            yield from _parcels(fetch_table(con, "SELECT * FROM grouped ORDER BY bucket"), ROWS)
            return
        con.execute(
            "CREATE TABLE names AS SELECT bucket, person, "
            "CAST(row_number() OVER (PARTITION BY bucket ORDER BY person) - 1 AS INTEGER) AS number "
            "FROM (SELECT DISTINCT bucket, person FROM grouped WHERE person IS NOT NULL)"
        )
        columns = ", ".join((*self.slices, "origin", "destination", "number AS person", *self.amounts))
        rows = f"SELECT bucket, {columns} FROM grouped LEFT JOIN names USING (bucket, person) ORDER BY bucket"
        yield from _parcels(fetch_table(con, rows), ROWS)
        names = fetch_table(con, "SELECT bucket, person AS name, number FROM names ORDER BY bucket, number")
        yield from _parcels(names, NAMES)


def gathered(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Tables put together: a statement costs the same for one row as for a thousand."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _parcels(table: pa.Table, kind: int) -> Iterator[pa.RecordBatch]:
    """A table that is sorted by bucket as parcels."""
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
            yield parcel(kind, int(bucket[first]), len(part), sink.getvalue().to_pybytes())
