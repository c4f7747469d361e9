"""A statement over rows that are still arriving: DuckDB counts those that are there while the next ones are made.

The rows are never all in one place. DuckDB takes batch after batch into the groups that it makes, so what it holds
follows the groups and not the rows, and it puts on disk what outgrows its memory. The statement runs in a thread of its
own; whoever brings rows stays in the thread where it was, with its limits, its errors and its interrupts.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, Full, Queue
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

#: Batches that wait to be counted: enough that neither side waits for the other because one batch took longer.
_WAITING = 4
#: Seconds after which whoever brings rows looks whether the statement is still running.
_PATIENCE = 0.2


class Arriving:
    """One statement that reads a table while it is filled.

    Args:
        con: a connection of DuckDB that nobody else uses until the statement has ended.
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
        """It begins with the first rows: by then, whoever made this has seen to it that it is closed."""
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the statement, whether or not all rows have come."""
        if self._begun is None or not self._begun.done():
            self._given_up = True
            self._con.interrupt()
            # Once in any case: an interrupt may have come between its beginning and the note of it.
            self._offer(None)
            while self._begun is not None and not self._begun.done():
                self._offer(None)
        self._thread.shutdown()

    def add(self, rows: pa.Table) -> None:
        """Hand over some rows; waits where others wait already.

        Raises:
            duckdb.Error: the statement has failed.
            ArrowInvalid, ValueError: the rows have other columns than the table.
        """
        # Nobody else looks: DuckDB would take what is in the memory of other types for these.
        for batch in (rows if rows.schema.equals(self._schema) else rows.cast(self._schema)).to_batches():
            self._put(batch)

    def finish(self) -> None:
        """Wait until all rows are counted.

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
            self._waiting.put(batch, timeout=_PATIENCE)
        except Full:
            return False
        return True

    def _run(self, sql: str, schema: pa.Schema) -> None:
        self._con.register("arriving", pa.RecordBatchReader.from_batches(schema, self._batches()))
        try:
            self._con.execute(sql)
        finally:
            self._con.unregister("arriving")
            # Nobody reads what still waits, and whoever waits for room must not wait for ever.
            self._empty()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._waiting.get()) is not None:
            yield batch
        # An interrupt that comes before the statement begins is not heard; some of the rows must not pass for all.
        if self._given_up:
            raise RuntimeError("Rows have stopped coming.")

    def _empty(self) -> None:
        while True:
            try:
                self._waiting.get_nowait()
            except Empty:
                return
