"""A first look at a file: its columns, what they are taken for, and where and when the trips are.

For the eyes of whoever holds the trips, on their own machine. Even so the shapes of values are shown and not the
values: ``Aaa 99`` says enough to tell a name from a code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.engines.duckdb import recognised
from flowveil.errors import FlowveilError
from flowveil.flows import SUM_COLUMNS
from flowveil.headers import plain_name
from flowveil.reading import Reading
from flowveil.reading.columns import PERSONS, TRIPS
from flowveil.reading.database import in_own_words, open_database
from flowveil.reading.sql import number_sql
from flowveil.reading.tables import Table, open_table
from flowveil.reading.tiling import tiling_of

#: Rows behind a picture of where the trips are, and its width and height in cells.
_ROWS = 300_000
_WIDE, _HIGH = 96, 64
_TIMES = re.compile(r"time|date|depart|arriv|start(ed)?at|end(ed)?at|pickup|dropoff", re.IGNORECASE)


def in_words(problem: object, task: Mapping[str, Any]) -> str:
    """What is wrong; a file that was sent is called what its owner calls it, not what it is kept as."""
    said = str(problem)
    for kept, name in task.get("called", {}).items():
        said = said.replace(kept, name)
    return said


def look(source: Path, given: dict[str, Any], zones: Any = None) -> dict[str, Any]:
    """What a file seems to hold.

    Args:
        source: the file.
        given: what is known of it already, by the names of the library.
        zones: a map whose codes the ends may be.

    Returns:
        ``columns`` with the shapes of their values, ``roles`` that were recognised, or the ``problem`` of recognising
        them, ``places`` as counts on a grid, ``hours`` as counts.
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
            roles, problem = _roles(table, reading)
            found: dict[str, Any] = {"columns": shown, "roles": roles, "problem": problem, "rows": table.n_rows}
            for end in ("origin", "destination"):
                if end in roles:
                    found[f"{end}_places"] = _places(con, table, roles[end].split(","))
            when = given.get("time") or next((str(c["name"]) for c in shown if c["maybe"] == "time"), None)
            found |= {"time": when, "hours": None if when is None else _hours(con, table, when)}
    return found


def _roles(table: Table, reading: Reading) -> tuple[dict[str, str], str | None]:
    """What columns are taken for; where that fails, what was named, and why."""
    try:
        columns = recognised(table, reading, tiling_of(reading))
    except FlowveilError as problem:
        return reading.columns.as_recorded(), str(problem)
    return columns.as_recorded(), None


def _maybe(name: str) -> str | None:
    """What a column may be meant for, by its name alone: for the order of menus."""
    plain = plain_name(name)
    added = ((column.name, column.usual) for column in SUM_COLUMNS.values())
    for role, known in (("person", PERSONS), *added, ("trips", TRIPS)):
        if plain in known:
            return role
    return "time" if _TIMES.search(name) and "zone" not in plain and "duration" not in plain else None


def _shapes(values: list[Any]) -> list[str]:
    """The three most frequent shapes of values: letters, digits and signs, none of them the value's own."""
    counted: dict[str, int] = {}
    for value in values[:500]:
        shape = "missing" if value is None or str(value).strip() == "" else _shape(str(value))
        counted[shape] = counted.get(shape, 0) + 1
    return sorted(counted, key=lambda shape: (-counted[shape], shape))[:3]


def _shape(text: str) -> str:
    text = re.sub(r"[^\W\d_]", lambda m: "A" if m[0].isupper() else "a", text[:60])
    text = re.sub(r"\d", "9", text)
    # Long runs say nothing more than that they are long.
    return re.sub(r"([Aa9])\1{7,}", lambda m: m[1] * 7 + "…", text)


def _places(con: Any, table: Table, pair: list[str]) -> dict[str, Any] | None:
    """How many trips begin, or end, in each cell of a grid over where most of them do."""
    names = list(table.names)
    relation = table.attach([names.index(name) for name in pair])
    lat, lon = (number_sql(f"CAST(c{i} AS VARCHAR)") for i in (0, 1))
    rows = con.execute(f"SELECT {lat} AS y, {lon} AS x FROM {relation} LIMIT {_ROWS}").fetchnumpy()
    y, x = (np.ma.filled(np.ma.asarray(rows[name], dtype=np.float64), np.nan) for name in ("y", "x"))
    known = np.isfinite(y) & np.isfinite(x)
    y, x = y[known], x[known]
    if len(y) == 0:
        return None
    west, east = _spread(x)
    south, north = _spread(y)
    counts, _, _ = np.histogram2d(y, x, bins=(_HIGH, _WIDE), range=((south, north), (west, east)))
    off = int(((np.abs(y) > 90) | (np.abs(x) > 180)).sum())
    return {
        "box": [west, south, east, north],
        "counts": counts[::-1].astype(int).ravel().tolist(),
        "wide": _WIDE,
        "rows": len(y),
        "off_the_earth": off,
    }


def _spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """Where all but a few of the values are, with some room."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = max(0.05 * (high - low), 1e-4)
    return float(low - room), float(high + room)


def _hours(con: Any, table: Table, column: str) -> list[int] | None:
    """Trips by the hour that stands in a column of times: a day with its rush hours in the wrong place shows."""
    names = list(table.names)
    if column not in names:
        return None
    relation = table.attach([names.index(column)])
    sql = f"SELECT hour(TRY_CAST(CAST(c0 AS VARCHAR) AS TIMESTAMP)) AS h FROM {relation} LIMIT {_ROWS}"
    counted = dict(con.execute(f"SELECT h, count(*) FROM ({sql}) WHERE h IS NOT NULL GROUP BY h").fetchall())
    return [int(counted.get(hour, 0)) for hour in range(24)] if counted else None
