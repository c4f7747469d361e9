"""Tables of known data sets in DuckDB, and the trips that are made from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flowveil.core.errors import DataError
from flowveil.core.headers import Header, plain_name
from flowveil.reading.columns import SIGHTINGS, are_sightings
from flowveil.reading.database import in_own_words, open_database
from flowveil.reading.sql import number_sql, present_sql
from flowveil.reading.table import Table
from flowveil.reading.tables import open_table
from flowveil.reading.times import MICROSECONDS, check_time_options, decide


@dataclass(frozen=True, eq=False)
class Prepared:
    """Trips made from a known data set."""

    trips: pa.Table  # one row for each trip, ready for `flowveil.read_trips`
    dropped: Mapping[str, int] = field(
        default_factory=dict
    )  # rows, points or trips that cannot be used, by reason
    notes: tuple[str, ...] = ()  # properties of these trips that a user should know

    def __post_init__(self) -> None:
        object.__setattr__(self, "dropped", {reason: n for reason, n in self.dropped.items() if n})


@dataclass(frozen=True)
class SourceColumn:
    """A column to read: ``text``, a ``number``, or a ``time`` (microseconds since 1970).

    NULL if missing or malformed.

    It is the one that the user named for a role, or else one with a usual name.
    """

    kind: str
    role: str
    usual: Sequence[str] = ()
    named: str | None = None


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table in a private database."""

    con: Any
    table: Table
    time_format: str | None
    timezone: str | None
    _in_utc: list[str] = field(default_factory=list)

    @property
    def header(self) -> Header:
        """The names of the columns, for messages."""
        return Header(self.table.names, below=map(self.table.peek, range(len(self.table.names))))

    def pick(self, **wanted: SourceColumn) -> None:
        """Reads the wanted columns once, into the table ``picked`` of the database."""
        chosen = choose_columns(wanted.values(), self.header)
        used = list(dict.fromkeys(chosen.values()))
        relation = self.table.attach([self.table.names.index(name) for name in used])
        types = [
            str(row[1]) for row in self.con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        ]
        times = dict.fromkeys(
            chosen[column.role] for column in wanted.values() if column.kind == "time"
        )
        if times:
            relation = self.table.rereadable(relation)
        for name in times:
            relation = self._timed(relation, name, f"c{used.index(name)}", types[used.index(name)])
        parts = []
        for alias, column in wanted.items():
            at = f"c{used.index(chosen[column.role])}"
            sql = {
                "text": present_sql(f"trim(CAST({at} AS VARCHAR))"),
                "number": f"nullif({number_sql(f'CAST({at} AS VARCHAR)')}, CAST('nan' AS DOUBLE))",
                "time": f"us_{at}",
            }[column.kind]
            parts.append(f"{sql} AS {alias}")
        self.con.execute(f"CREATE TABLE picked AS SELECT {', '.join(parts)} FROM {relation}")

    def _timed(self, relation: str, name: str, at: str, kind: str) -> str:
        """Returns the same rows with an additional column of microseconds."""
        zone = self.table.timezones.get(self.table.names.index(name))
        how = {"time_format": self.time_format, "timezone": self.timezone, "column_zone": zone}
        form = decide(self.con, relation, at, kind, **how)
        form.refuse(name)
        if form.needs_timezone is not None:
            self._in_utc.append(name)
        return f"(SELECT * RENAME ({MICROSECONDS} AS us_{at}) FROM {form.over(relation)})"

    def with_timezone(self, trips: pa.Table) -> pa.Table:
        """Returns trips whose times have the type UTC if they are instants and no zone was named.

        Else local times.
        """
        if not self._in_utc:
            return trips
        utc = pa.timestamp("us", "UTC")
        return trips.cast(
            pa.schema(
                [(f.name, utc if pa.types.is_timestamp(f.type) else f.type) for f in trips.schema]
            )
        )


@contextmanager
def opened(
    source: Any, *, time_format: str | None = None, timezone: str | None = None
) -> Iterator[OpenTable]:
    """Opens a file or a table in memory.

    Errors of DuckDB are replaced by messages that quote no data.
    """
    check_time_options(time_format, timezone)
    with open_database(None) as con:
        table = open_table(con, source)
        with in_own_words(table.label):
            yield OpenTable(con, table, time_format, timezone)


def drop_rows(con: Any, reasons: Mapping[str, str], *, none_left: str = "") -> dict[str, int]:
    """Removes the rows of ``picked`` for which a reason holds, in SQL, and counts each under its
    first reason.

    Raises DataError with the text ``none_left``, where it is given, if no row stays.
    """
    cases = [f"WHEN {rule} THEN '{name}'" for name, rule in reasons.items()]
    reason = f"CASE {' '.join(cases)} END"
    counts = dict(
        con.execute(f"SELECT {reason} AS reason, count(*) FROM picked GROUP BY reason").fetchall()
    )
    if none_left and None not in counts:
        raise DataError(none_left.format(n=f"{sum(counts.values()):,}"))
    con.execute(f"DELETE FROM picked WHERE {reason} IS NOT NULL")
    return {name: counts.get(name, 0) for name in reasons}


def choose_columns(wanted: Iterable[SourceColumn], header: Header) -> dict[str, str]:
    """Returns the named or usual column of each role.

    DataError with all missing ones, never a first line of data.
    """
    names = header.names
    by_key = {plain_name(name): name for name in reversed(names)}
    chosen: dict[str, str] = {}
    problems = []
    for column in wanted:
        role, given = column.role, column.named
        found = (
            given
            if given in names
            else next((by_key[key] for key in column.usual if key in by_key), None)
        )
        if given and given not in names:
            problems.append(f"column '{given}' ({role}) is missing.{header.did_you_mean(given)}")
        elif found is None:
            problems.append(
                f"no column for the {role} is recognised; usual names:"
                f" {', '.join(column.usual[:4])}"
            )
        else:
            chosen[role] = found
    lacks_places = not {"lat", "lon"} & set(chosen)
    if problems and lacks_places and "antenna" not in chosen and are_sightings(names):
        raise DataError(SIGHTINGS)
    if problems:
        listed = "".join(f"\n- {p}" for p in problems)
        raise DataError(f"The table is not what is expected:{listed}\n{header.described()}")
    return chosen
