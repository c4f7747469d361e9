"""A first look at a file: its columns, their recognised roles, and where and when trips take place.

For the operator only. Even so it shows shapes of values instead of values: ``Aaa 99`` is enough to
distinguish a name from a code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.errors import FlowveilError, ParameterError
from flowveil.core.flows import SUM_COLUMNS
from flowveil.core.headers import plain_name
from flowveil.reading import Reading
from flowveil.reading.columns import (
    PERSONS,
    TRIPS,
    ColumnMap,
    refuse_unnamed_counts,
    refuse_unnamed_persons,
    suggestions,
)
from flowveil.reading.database import in_own_words, open_database
from flowveil.reading.engines.duckdb import recognised, sampler
from flowveil.reading.sql import number_sql
from flowveil.reading.table import Table
from flowveil.reading.tables import open_table
from flowveil.reading.tiling import tiling_of
from flowveil.reading.times import MICROSECONDS, decide
from flowveil.zoning.gazetteer import guess_timezone, name_of_place

#: Rows behind a picture of where the trips are, and its width and height in cells.
_ROWS = 300_000
_WIDE, _HIGH = 96, 64
_TIMES = re.compile(r"time|date|depart|arriv|start(ed)?at|end(ed)?at|pickup|dropoff", re.IGNORECASE)


def with_upload_names(problem: object, task: Mapping[str, Any]) -> str:
    """Returns a message with the original names of uploaded files."""
    text = str(problem)
    for stored, name in task.get("upload_names", {}).items():
        text = text.replace(stored, name)
    return text


def inspect_input(source: Path | str, given: dict[str, Any], zones: Any = None) -> dict[str, Any]:
    """Inspects a file, given arguments of reading that are set already, and a map whose codes the
    ends may be.

    Returns ``columns`` with the shapes of their values, recognised ``roles`` or the ``problem`` of
    recognising them, columns that look like ``persons`` or ``vehicles``, ``counts`` if it must be
    asked what a row is, ``origin_places`` and ``destination_places`` as counts on a grid with the
    name of the ``place``, ``hours`` as counts.
    """
    reading = Reading.from_arguments(**given, zones=zones)
    with open_database(None) as con:
        with in_own_words("The input"):
            table = open_table(con, source, reading)
            if table.form is not None:
                reading = table.form.read_as(reading)
        with in_own_words(table.label):
            names = list(table.names)
            shown = [
                {"name": name, "shapes": _shapes(table.peek(at)), "maybe": _maybe(name)}
                for at, name in enumerate(names[:200])
            ]
            columns, problem = _columns(table, reading)
            roles = columns.as_recorded()
            found_columns = suggestions(
                columns,
                [name for name in names if name not in table.partitions],
                sample=sampler(table),
            )
            found: dict[str, Any] = {
                "columns": shown,
                "roles": roles,
                "problem": problem,
                "rows": table.n_rows,
                "persons": found_columns.persons,
                "vehicles": found_columns.vehicles,
                "asks_person": reading.ask_person and columns.person is None,
                "counts": _asked_counts(con, table, columns, found_columns.counts),
            }
            for end in ("origin", "destination"):
                if end in roles:
                    found[f"{end}_places"] = _places(con, table, roles[end].split(","))
            when = given.get("time") or next(
                (str(c["name"]) for c in shown if c["maybe"] == "time"), None
            )
            found |= {
                "time": when,
                "hours": None if when is None else _hours(con, table, when, given),
            }
    return found


def _columns(table: Table, reading: Reading) -> tuple[ColumnMap, str | None]:
    """Returns the recognised columns, and the problem of recognising them, if any."""
    columns = reading.columns
    try:
        columns = recognised(table, reading, tiling_of(reading))
        if reading.ask_person:
            names = [name for name in table.names if name not in table.partitions]
            refuse_unnamed_persons(columns, names, sample=sampler(table))
    except FlowveilError as problem:
        return columns, str(problem)
    return columns, None


def _asked_counts(
    con: Any, table: Table, columns: ColumnMap, counts: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the columns of numbers if a row may be a count: each pair of zones occurs once, or a
    column has the name of one. Empty if a row is a trip without doubt.
    """
    ends = (columns.origin_tile, columns.destination_tile)
    try:
        names = [name for name in table.names if name not in table.partitions]
        refuse_unnamed_counts(columns, names, sample=sampler(table))
    except FlowveilError:
        return counts or ("a column",)
    if not counts or None in ends or columns.trips is not None or columns.weight is not None:
        return ()
    relation = table.attach([table.names.index(str(name)) for name in ends])
    rows, pairs = con.execute(
        f"SELECT count(*), count(DISTINCT (c0, c1)) FROM (SELECT * FROM {relation} LIMIT {_ROWS})"
    ).fetchone()
    return counts if rows == pairs > 1 else ()


def _maybe(name: str) -> str | None:
    """Returns the role that the name of a column suggests; None if it suggests none."""
    plain = plain_name(name)
    added = ((column.name, column.usual) for column in SUM_COLUMNS.values())
    for role, known in (("person", PERSONS), *added, ("trips", TRIPS)):
        if plain in known:
            return role
    return (
        "time" if _TIMES.search(name) and "zone" not in plain and "duration" not in plain else None
    )


def _shapes(values: list[Any]) -> list[str]:
    """Returns the three most frequent shapes of values, with letters and digits replaced."""
    texts = ("" if value is None else str(value) for value in values[:500])
    counted = Counter(_shape(text) if text.strip() else "missing" for text in texts)
    return sorted(counted, key=lambda shape: (-counted[shape], shape))[:3]


def _shape(text: str) -> str:
    text = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", text[:60])
    text = re.sub(r"\d", "9", text)
    # Long runs are shortened.
    return re.sub(r"([Aa9])\1{7,}", lambda m: m[1] * 7 + "…", text)


def _places(con: Any, table: Table, pair: list[str]) -> dict[str, Any] | None:
    """Returns the number of trip ends in each cell of a grid around most of them."""
    relation = table.attach([table.names.index(name) for name in pair])
    lat, lon = (number_sql(f"CAST(c{i} AS VARCHAR)") for i in (0, 1))
    rows = con.execute(f"SELECT {lat} AS y, {lon} AS x FROM {relation} LIMIT {_ROWS}").fetchnumpy()
    y, x = (
        np.ma.filled(np.ma.asarray(rows[name], dtype=np.float64), np.nan) for name in ("y", "x")
    )
    known = np.isfinite(y) & np.isfinite(x)
    return grid(y[known], x[known], np.ones(int(known.sum()), np.int64))


def grid(
    lat: NDArray[np.float64], lon: NDArray[np.float64], trips: NDArray[np.int64]
) -> dict[str, Any] | None:
    """Returns the number of trips in each cell of a grid around most of the places, and the name of
    the place; None without places.
    """
    if len(lat) == 0:
        return None
    west, east = _spread(lon)
    south, north = _spread(lat)
    box = ((south, north), (west, east))
    counts, _, _ = np.histogram2d(lat, lon, bins=(_HIGH, _WIDE), range=box, weights=trips)
    off = (np.abs(lat) > 90) | (np.abs(lon) > 180)
    on = ~off
    middle = (float(np.median(lat[on])), float(np.median(lon[on]))) if on.any() else None
    return {
        "box": [west, south, east, north],
        "counts": counts[::-1].astype(int).ravel().tolist(),
        "wide": _WIDE,
        "off_the_earth": int(off.sum()),
        "place": None if middle is None else name_of_place(*middle),
        "timezone": None if middle is None else guess_timezone(lat[on], lon[on]),
    }


def _spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the range of the central 99 % of the values, with a margin."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = max(0.05 * (high - low), 1e-4)
    return float(low - room), float(high + room)


def _hours(con: Any, table: Table, column: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns trips by the hour of a column, so that a wrong time zone shows.

    None if it has no times.
    """
    if column not in table.names:
        return None
    at = table.names.index(column)
    rows = f"(SELECT * FROM {table.attach([at])} LIMIT {_ROWS})"
    kind = con.execute(f"SELECT any_value(typeof(c0)) FROM {rows}").fetchone()[0] or "VARCHAR"
    how = {name: given.get(name) for name in ("time_format", "timezone")}
    try:
        form = decide(con, rows, "c0", kind, **how, column_zone=table.timezones.get(at))
    except ParameterError:
        form = decide(con, rows, "c0", kind, column_zone=table.timezones.get(at))
    if form.problem is not None:
        return None
    hour = f"({MICROSECONDS} // 3600000000) % 24"
    query = (
        f"SELECT {hour} AS h, count(*) FROM {form.over(rows)} WHERE {MICROSECONDS} IS NOT NULL"
        " GROUP BY h"
    )
    counted = dict(con.execute(query).fetchall())
    counts = [int(counted.get(number, 0)) for number in range(24)]
    return (
        {"counts": counts, "zone": form.timezone, "needs_timezone": form.needs_timezone}
        if counted
        else None
    )
