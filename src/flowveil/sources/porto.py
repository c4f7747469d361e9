"""The Porto taxi data set (ECML/PKDD 2015): one row a trip, its track as text.

A trip goes from the first to the last point of its POLYLINE. Tracks with no or one point have no
distinct origin and destination: they are dropped and counted.
"""

from __future__ import annotations

from typing import Any

from flowveil.reading.database import fetch_table
from flowveil.sources.tables import Column, Prepared, opened

#: Seconds between two points of a track.
SECONDS_PER_POINT = 15
_NUMBER = r"(-?[0-9]+\.?[0-9]*(?:[eE]-?[0-9]+)?)"
_FIRST, _LAST = rf"'^\[\[{_NUMBER},{_NUMBER}\]'", rf"'\[{_NUMBER},{_NUMBER}\]\]$'"
_COLUMNS = {
    "trip": "TRIP_ID", "call_type": "CALL_TYPE", "person": "TAXI_ID", "us": "TIMESTAMP", "missing_data": "MISSING_DATA",
    "line": "POLYLINE",
}  # fmt: skip


def prepare_porto(source: Any) -> Prepared:
    """Makes trips from the Porto file.

    Args:
        source: ``train.csv`` or ``test.csv`` of the data set, zipped or not as `flowveil.read_trips` takes files.

    Returns:
        Trips with ``person_id`` (the taxi: its drivers are not known), ``start_time``, ``end_time`` (15 seconds a
        point; local time of Porto), ``start_lat``, ``start_lon``, ``end_lat``, ``end_lon``, ``points``,
        ``call_type``, and ``missing_data`` as in the file.

    Raises:
        DataError: columns are missing.
    """
    with opened(source, timezone="Europe/Lisbon") as table:
        table.pick(
            **{
                alias: Column("time" if alias == "us" else "text", name, (name.casefold().replace("_", ""),))
                for alias, name in _COLUMNS.items()
            }
        )
        con = table.con
        con.execute(
            "CREATE TABLE tracks AS SELECT * REPLACE (regexp_replace(coalesce(line, '[]'), '\\s+', '', 'g') AS line) "
            "FROM picked"
        )
        ends = ", ".join(
            f"TRY_CAST(regexp_extract(line, {point}, {axis}) AS DOUBLE) AS {name}"
            for name, point, axis in (
                ("start_lon", _FIRST, 1), ("start_lat", _FIRST, 2), ("end_lon", _LAST, 1), ("end_lat", _LAST, 2),
            )
        )  # fmt: skip
        points = "CAST(greatest(length(line) - length(replace(line, '[', '')) - 1, 0) AS BIGINT)"
        con.execute(f"CREATE TABLE ended AS SELECT *, {points} AS points, {ends} FROM tracks")
        unreadable = "points > 1 AND (start_lat IS NULL OR start_lon IS NULL OR end_lat IS NULL OR end_lon IS NULL)"
        empty, single, strange = con.execute(
            "SELECT count(*) FILTER (points = 0), count(*) FILTER (points = 1), "
            f"count(*) FILTER ({unreadable}) FROM ended"
        ).fetchall()[0]
        trips = fetch_table(
            con,
            "SELECT person AS person_id, make_timestamp(us) AS start_time, make_timestamp(us + (points - 1) * "
            f"{SECONDS_PER_POINT * 1_000_000}) AS end_time, start_lat, start_lon, end_lat, end_lon, points, call_type, "
            f"missing_data FROM ended WHERE points > 1 AND NOT ({unreadable}) ORDER BY person, us, trip",
        )
    return Prepared(
        trips,
        {"empty tracks": empty, "tracks of one point": single, "tracks that cannot be read": strange},
        ("A person is a taxi: several drivers may share one, and passengers are not known.",),
    )
