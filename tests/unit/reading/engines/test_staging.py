"""A statement over rows that are still arriving.

All of them are counted, and it ends however they end.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowveil.reading.engines.staging import StreamingQuery

SCHEMA = pa.schema([("x", pa.int64())])
COUNT = "CREATE TABLE counted AS SELECT x % 3 AS rest, count(*) AS n FROM arriving GROUP BY rest"


def rows(values: range) -> pa.Table:
    return pa.table({"x": list(values)}, schema=SCHEMA)


def test_every_row_is_counted_once() -> None:
    con = duckdb.connect()
    with closing(StreamingQuery(con.cursor(), COUNT, SCHEMA)) as arriving:
        for start in range(0, 3000, 100):
            arriving.add(rows(range(start, start + 100)))
        arriving.finish()
    assert con.execute("SELECT * FROM counted ORDER BY rest").fetchall() == [
        (0, 1000),
        (1, 1000),
        (2, 1000),
    ]


def hand_over(con: Any, sql: str, n: int, *, then: type[BaseException] | None = None) -> None:
    with closing(StreamingQuery(con.cursor(), sql, SCHEMA)) as arriving:
        for start in range(0, n, 100):
            arriving.add(rows(range(start, start + 100)))
        if then is not None:
            raise then
        arriving.finish()


class Deaf:
    """A connection whose statement does not hear of an interrupt, as one that has not begun yet."""

    def __init__(self, con: Any) -> None:
        self._con = con

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "interrupt" else getattr(self._con, name)

    def cursor(self) -> Deaf:
        return Deaf(self._con.cursor())


@pytest.mark.parametrize("connected", [lambda con: con, Deaf])
def test_it_ends_where_rows_stop_coming(connected: Any) -> None:
    """The source of rows fails in the middle: no thread stays behind, and no partial count is
    returned."""
    con, before = duckdb.connect(), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        hand_over(connected(con), COUNT, 1000, then=KeyboardInterrupt)
    assert threading.active_count() == before
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]


def test_the_caller_that_sends_rows_gets_the_error_of_the_statement() -> None:
    """And not waited for for ever: it takes no more rows."""
    con, before = duckdb.connect(), threading.active_count()
    with pytest.raises(duckdb.Error):
        hand_over(
            con, COUNT.replace("count(*)", "sum(CASE WHEN x > 5 THEN error('x') ELSE 1 END)"), 10**6
        )
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.string(), pa.null()])
def test_rows_of_another_type_are_counted_as_what_they_say(kind: pa.DataType) -> None:
    """Not as what their memory looks like: DuckDB believes the schema that it was given."""
    con = duckdb.connect()
    other = pa.nulls(3) if pa.types.is_null(kind) else pa.array([3, 4, 5], pa.int64()).cast(kind)
    with closing(StreamingQuery(con.cursor(), COUNT, SCHEMA)) as arriving:
        arriving.add(rows(range(3)))
        arriving.add(pa.table({"x": other}))
        arriving.finish()
    found = con.execute("SELECT * FROM counted ORDER BY rest NULLS LAST").fetchall()
    assert found == (
        [(0, 1), (1, 1), (2, 1), (None, 3)] if pa.types.is_null(kind) else [(0, 2), (1, 2), (2, 2)]
    )


def test_rows_with_other_columns_are_refused() -> None:
    con, before = duckdb.connect(), threading.active_count()
    with (
        pytest.raises(ValueError, match="field names"),
        closing(StreamingQuery(con.cursor(), COUNT, SCHEMA)) as arriving,
    ):
        arriving.add(pa.table({"y": [1]}))
    assert threading.active_count() == before
