"""The Porto taxi data set (ECML/PKDD 2015): one row a trip, its track as text.

A trip goes from the first to the last point of its POLYLINE. Tracks with no or one point have no
distinct origin and destination: they are dropped and counted.
"""

from __future__ import annotations

from typing import Any

from flowveil.reading.database import fetch_table
from flowveil.reading.sources.tables import Prepared, SourceColumn, drop_rows, opened

#: Seconds between two points of a track.
SECONDS_PER_POINT = 15
_NUMBER = r"(-?[0-9]+\.?[0-9]*(?:[eE]-?[0-9]+)?)"
_FIRST, _LAST = rf"'^\[\[{_NUMBER},{_NUMBER}\]'", rf"'\[{_NUMBER},{_NUMBER}\]\]$'"
_COLUMNS = {
    "trip": "TRIP_ID",
    "call_type": "CALL_TYPE",
    "person": "TAXI_ID",
    "us": "TIMESTAMP",
    "missing_data": "MISSING_DATA",
    "line": "POLYLINE",
}


def prepare_porto(source: Any) -> Prepared:
    """Makes trips from the Porto file; DataError if columns are missing.

    Args:
        source: ``train.csv`` or ``test.csv`` of the data set, zipped or not as
            `flowveil.read_trips` takes files.

    Returns trips with ``person_id`` (the taxi: its drivers are not known), ``start_time``,
    ``end_time`` (15 seconds a point; local time of Porto), ``start_lat``, ``start_lon``,
    ``end_lat``, ``end_lon``, ``points``, ``call_type``, and ``missing_data`` as in the file.
    """
    with opened(source, timezone="Europe/Lisbon") as table:
        table.pick(
            **{
                alias: SourceColumn(
                    "time" if alias == "us" else "text", name, (name.casefold().replace("_", ""),)
                )
                for alias, name in _COLUMNS.items()
            }
        )
        ends = ", ".join(
            f"TRY_CAST(regexp_extract(line, {point}, {axis}) AS DOUBLE) AS {name}"
            for name, point, axis in (
                ("start_lon", _FIRST, 1),
                ("start_lat", _FIRST, 2),
                ("end_lon", _LAST, 1),
                ("end_lat", _LAST, 2),
            )
        )
        points = "CAST(greatest(length(line) - length(replace(line, '[', '')) - 1, 0) AS BIGINT)"
        table.con.execute(
            f"CREATE OR REPLACE TABLE picked AS SELECT *, {points} AS points, {ends} FROM (SELECT *"
            " REPLACE (regexp_replace(coalesce(line, '[]'), '\\s+', '', 'g') AS line) FROM picked)"
        )
        dropped = drop_rows(
            table.con,
            {
                "empty tracks": "points = 0",
                "tracks of one point": "points = 1",
                "tracks that cannot be read": "start_lat + start_lon + end_lat + end_lon IS NULL",
            },
        )
        trips = fetch_table(
            table.con,
            "SELECT person AS person_id, make_timestamp(us) AS start_time, make_timestamp(us +"
            f" (points - 1) * {SECONDS_PER_POINT * 1_000_000}) AS end_time, start_lat, start_lon,"
            " end_lat, end_lon, points, call_type, missing_data FROM picked ORDER BY person, us,"
            " trip",
        )
    notes = ("A person is a taxi: several drivers may share one, and passengers are not known.",)
    return Prepared(trips, dropped, notes)
