"""Tables of known data sets in DuckDB: selected columns, usual marks of missing values replaced by NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flowveil.headers import Header
from flowveil.reading.database import in_own_words, open_database
from flowveil.reading.sql import MISSING_PATTERN, number_sql
from flowveil.reading.table import Table
from flowveil.reading.tables import open_table
from flowveil.reading.times import MICROSECONDS, check_time_options, decide

#: A column, and what makes SQL of its place and its type in the database.
Expression = tuple[str, Callable[[str, str], str]]


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table in a private database. Expressions made here may be selected into the table ``picked``."""

    con: Any
    table: Table
    time_format: str | None = None
    timezone: str | None = None
    _in_utc: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns."""
        return tuple(self.table.names)

    def header(self) -> Header:
        """Returns the names of its columns, for messages."""
        return self.table.header()

    def text(self, name: str) -> Expression:
        """Expression: the column as text, NULL where missing."""
        return name, _text

    def number(self, name: str) -> Expression:
        """Expression: the column as a number, NULL if it cannot be read as one."""
        return name, _number

    def microseconds(self, name: str) -> Expression:
        """Expression: the column as microseconds since 1970, NULL where the value has another form than the column."""
        return name, _time

    def select(self, wanted: Mapping[str, Expression]) -> None:
        """Reads the wanted columns once, into the table ``picked`` of the database."""
        used = list(dict.fromkeys(name for name, _ in wanted.values()))
        with in_own_words(self.table.label):
            relation = self.table.attach([self.names.index(name) for name in used])
            described = self.con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            kinds = {name: str(row[1]) for name, row in zip(used, described, strict=True)}
            at = {name: f"c{i}" for i, name in enumerate(used)}
            times = dict.fromkeys(name for name, sql in wanted.values() if sql is _time)
            if times:
                relation = self.table.rereadable(relation)
            for name in times:
                relation = self._timed(relation, name, at[name], kinds[name])
            parts = [f"{sql(at[name], kinds[name])} AS {alias}" for alias, (name, sql) in wanted.items()]
            self.con.execute(f"CREATE TABLE picked AS SELECT {', '.join(parts)} FROM {relation}")

    def with_timezone(self, trips: pa.Table) -> pa.Table:
        """Returns trips whose times have the type UTC if they are instants and no zone was named.

        Local times have a type without a zone. `flowveil.read_slices` requires the zone of times in UTC.
        """
        if not self._in_utc:
            return trips
        times = [
            pa.field(f.name, pa.timestamp("us", "UTC") if pa.types.is_timestamp(f.type) else f.type)
            for f in trips.schema
        ]
        return trips.cast(pa.schema(times))

    def _timed(self, relation: str, name: str, column: str, kind: str) -> str:
        """Returns the same rows with an additional column of microseconds.

        Raises:
            DataError: the column cannot be read as times.
        """
        zone = self.table.timezone_of(self.names.index(name))
        how = {"time_format": self.time_format, "timezone": self.timezone, "column_zone": zone}
        form = decide(self.con, relation, column, kind, **how)
        form.refuse(name)
        if form.needs_timezone is not None:
            self._in_utc.append(name)
        return f"(SELECT * RENAME ({MICROSECONDS} AS {_time(column, kind)}) FROM {form.over(relation)})"


@contextmanager
def opened(source: Any, *, time_format: str | None = None, timezone: str | None = None) -> Iterator[OpenTable]:
    """Open a file or a table in memory; errors of DuckDB are replaced by messages that quote no data.

    Args:
        source: a file or a table in memory.
        time_format, timezone: how times are read, if given; see `flowveil.reading.times`.
    """
    check_time_options(time_format, timezone)
    with open_database(None) as con:
        table = open_table(con, source)
        with in_own_words(table.label):
            yield OpenTable(con, table, time_format, timezone)


def _text(column: str, kind: str) -> str:
    del kind
    text = f"trim(CAST({column} AS VARCHAR))"
    return f"CASE WHEN regexp_full_match(lower({text}), {MISSING_PATTERN}) THEN NULL ELSE {text} END"


def _number(column: str, kind: str) -> str:
    del kind
    return f"nullif({number_sql(f'CAST({column} AS VARCHAR)')}, CAST('nan' AS DOUBLE))"


def _time(column: str, kind: str) -> str:
    del kind
    return f"us_{column}"
