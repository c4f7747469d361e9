"""Streaming aggregation: a DuckDB statement that reads rows while they are produced.

Memory grows with the groups, not with the rows, and DuckDB spills what does not fit. The statement runs in a separate
thread; the producer stays in its own thread, with its limits, errors and interrupts.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, Full, Queue
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

#: Batches in the queue: enough that one slow batch stops neither side.
_WAITING = 4
#: Seconds after which the producer checks that the statement is still running.
_TIMEOUT = 0.2


class StreamingQuery:
    """One statement that reads a table while it is filled.

    Args:
        con: a connection of DuckDB that is not used otherwise until the statement has ended.
        sql: the statement; it reads the table ``arriving`` once.
        schema: the columns of that table.
    """

    def __init__(self, con: Any, sql: str, schema: pa.Schema) -> None:
        self._con = con
        self._schema = schema
        self._given_up = False
        self._waiting: Queue[pa.RecordBatch | None] = Queue(maxsize=_WAITING)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._begin = partial(self._thread.submit, self._run, sql, schema)
        self._begun: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    @property
    def _statement(self) -> Future[None]:
        """Started lazily, so that `__exit__` is guaranteed to run."""
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

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
        """Adds rows; blocks while the queue is full.

        Raises:
            duckdb.Error: the statement has failed.
            ArrowInvalid, ValueError: the rows have other columns than the table.
        """
        # DuckDB does not check types and would misread the memory of others.
        for batch in (rows if rows.schema.equals(self._schema) else rows.cast(self._schema)).to_batches():
            self._put(batch)

    def finish(self) -> None:
        """Waits until all rows are aggregated.

        Raises:
            duckdb.Error: the statement has failed.
        """
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

    def _run(self, sql: str, schema: pa.Schema) -> None:
        self._con.register("arriving", pa.RecordBatchReader.from_batches(schema, self._batches()))
        try:
            self._con.execute(sql)
        finally:
            self._con.unregister("arriving")
            # The queue is no longer read; a blocked producer must not wait forever.
            self._empty()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._waiting.get()) is not None:
            yield batch
        # DuckDB ignores an interrupt before the statement starts; an incomplete result must not be used.
        if self._given_up:
            raise RuntimeError("Rows have stopped coming.")

    def _empty(self) -> None:
        while True:
            try:
                self._waiting.get_nowait()
            except Empty:
                return
