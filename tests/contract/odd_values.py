"""Values that engines could read in two ways, and what they must be read as.

One table for all engines.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading import Reading
from flowveil.reading.engines import read_flows

A, B = "8a1fb46622dffff", "8a1fb4662607fff"
UTC = dt.UTC


def tiles(n: int, **columns: Any) -> pa.Table:
    """Returns n trips from one tile to another, with more columns."""
    return pa.table({"start_h3": [A] * n, "end_h3": [B] * n, **columns})


def points(*lat: Any, **columns: Any) -> pa.Table:
    """Trips that begin at these latitudes and end in one place."""
    n = len(lat)
    ends = {"end_lat": [48.86] * n, "end_lon": [2.36] * n}
    return pa.table({"start_lat": list(lat), "start_lon": [2.35] * n, **ends, **columns})


def outcome(source: Any, how: dict[str, Any], *, engine: str = "duckdb") -> Any:
    """Slices with their trips, weights and numbers of people, and the rows left out.

    Or what is wrong, without rows.
    """
    try:
        read = read_flows(
            source, Reading.from_arguments(**{"max_dropped": 1.0, **how}), engine=engine
        )
    except (DataError, ParameterError) as error:
        return (
            str(error)
            .partition("\n- ")[2]
            .partition(" (row")[0]
            .partition(", such as '9")[0]
            .partition("\n")[0]
            or str(error).partition(".")[0]
        )
    found = {}
    for key, flows in read.split():
        people = None if flows.people is None else flows.n_people().tolist()
        found[key] = (
            flows.trips.tolist(),
            None if flows.weight is None else flows.weight.tolist(),
            people,
        )
    return found, read.whole.intake.left_out, read.whole.intake.nobody


_SPELLINGS = [
    "P1",
    " p1",
    "P1 ",
    "\tP1",
    "P1\u00a0",
    "\ufeffP1",
    "P\u200b1",
    "P1\r",
    "\u3000P1",
    "Straße",
    "STRASSE",
]
_NOBODY = ["nan\t", "NULL\u00a0", "-", "?", "unknown", "", None, "-99", "0000", "0"]
_ZONED = [dt.datetime(2024, 3, 31, h, 30, tzinfo=UTC) for h in (0, 1, 22)]

ODD: dict[str, tuple[pa.Table, dict[str, Any], Any]] = {
    "persons with blanks, placeholders, and case": (
        tiles(21, person_id=_SPELLINGS + _NOBODY),
        {},
        (
            {(): ([21], None, [3])},
            {},
            {"-": 1, "-9": 1, "00": 1, "?": 1, "empty": 2, "nan": 1, "null": 1, "unknown": 1},
        ),
    ),
    "persons as numbers with gaps": (
        tiles(4, person_id=pa.array([1.0, 1.5, float("nan"), None])),
        {},
        ({(): ([4], None, [2])}, {}, {"empty": 2}),
    ),
    "persons as decimals, weights and counts of odd types": (
        tiles(
            3,
            person_id=pa.array([Decimal("1.00"), Decimal("1.50"), Decimal("1.00")]),
            w=pa.array([Decimal("0.1"), Decimal("0.2"), Decimal("0.3")]),
            count=pa.array([1, 2, 3], pa.int8()),
        ),
        {"weight": "w", "trips": "count"},
        ({(): ([6], [0.6], [2])}, {}, {}),
    ),
    "numbers in text, with blanks, gaps and exponents": (
        tiles(5, w=[" 1.5 ", "1e1", "", "nan", " NULL "]),
        {"weight": "w"},
        ({(): ([2], [11.5], None)}, {"missing weight": 3}, {}),
    ),
    "a decimal comma": (
        tiles(3, w=["1,5", "2", "1_000"]),
        {"weight": "w"},
        "text that is not a number in column 'w': 2 rows",
    ),
    "invalid points": (
        points(48.85, float("nan"), None, 91.0, float("inf"), 0.0),
        {"person": ""},
        ({(): ([1, 1], None, None)}, {"missing end": 2, "off the earth": 2}, {}),
    ),
    "tiles as numbers, as text and none": (
        pa.table({"start_h3": [int(A, 16)] * 3, "end_h3": [B, str(int(B, 16)), "x"]}),
        {"skip_unknown": True},
        ({(): ([2], None, None)}, {"unknown tile": 1}, {}),
    ),
    "instants across a change of clocks": (
        tiles(3, at=pa.array(_ZONED, pa.timestamp("us", "America/New_York"))),
        {"time": "at", "every": "1h", "timezone": "Europe/Paris"},
        (
            {
                (f"2024-{day}",): ([1], None, None)
                for day in ("03-31T01:00", "03-31T03:00", "04-01T00:00")
            },
            {},
            {},
        ),
    ),
    "times without a zone, in text of two forms": (
        tiles(3, at=["2024-01-05 10:00", "05/01/2024 10:00", "2024-01-05T11:00:00.5"]),
        {"time": "at", "every": "day"},
        "a time in column 'at' in another form than the other rows, or an impossible date: 1 row",
    ),
    "times that fit day-first and month-first": (
        tiles(2, at=["01/02/2024", "03/04/2024"]),
        {"time": "at", "every": "day"},
        (
            "the times in column 'at' cannot be read: day-first and month-first both fit every"
            " value. Say which with time_format (--time-format), such as '%d/%m/%Y %H:%M' or"
            " '%m/%d/%Y %I:%M:%S %p'"
        ),
    ),
    "Unix times in text, and attributes with gaps": (
        tiles(4, at=["1704067200", "1704070800", "", "1704067201"], sex=["f", " f ", "m", None]),
        {"time": "at", "every": "day", "timezone": "UTC", "by": "sex", "by_many": True},
        ({("f", "2024-01-01"): ([2], None, None)}, {"missing time": 1, "missing attribute": 1}, {}),
    ),
}
