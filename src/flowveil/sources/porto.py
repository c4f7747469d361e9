"""The Porto taxi data set (ECML/PKDD 2015): one row a trip, its track as text.

A trip goes from the first to the last point of its POLYLINE. Tracks with no or one point have no
distinct origin and destination: they are dropped and counted.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flowveil.reading.database import fetch_table
from flowveil.sources.gps import Prepared, choose_columns
from flowveil.sources.tables import opened

#: Seconds between two points of a track.
SECONDS_PER_POINT = 15

_NUMBER = r"(-?[0-9]+\.?[0-9]*(?:[eE]-?[0-9]+)?)"


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
        names = ("TRIP_ID", "CALL_TYPE", "TAXI_ID", "TIMESTAMP", "MISSING_DATA", "POLYLINE")
        found = choose_columns(
            dict.fromkeys(names), {n: (n.casefold().replace("_", ""),) for n in names}, table.names, header=table.header
        )
        table.select(
            {
                "trip": table.text(found["TRIP_ID"]),
                "call_type": table.text(found["CALL_TYPE"]),
                "person": table.text(found["TAXI_ID"]),
                "us": table.microseconds(found["TIMESTAMP"]),
                "missing_data": table.text(found["MISSING_DATA"]),
                "line": table.text(found["POLYLINE"]),
            }
        )
        con = table.con
        con.execute(
            "CREATE TABLE tracks AS SELECT * REPLACE (regexp_replace(coalesce(line, '[]'), '\\s+', '', 'g') AS line) "
            "FROM picked"
        )
        points = "greatest(length(line) - length(replace(line, '[', '')) - 1, 0)"
        first = rf"'^\[\[{_NUMBER},{_NUMBER}\]'"
        last = rf"'\[{_NUMBER},{_NUMBER}\]\]$'"
        parts = {
            "start_lon": f"TRY_CAST(regexp_extract(line, {first}, 1) AS DOUBLE)",
            "start_lat": f"TRY_CAST(regexp_extract(line, {first}, 2) AS DOUBLE)",
            "end_lon": f"TRY_CAST(regexp_extract(line, {last}, 1) AS DOUBLE)",
            "end_lat": f"TRY_CAST(regexp_extract(line, {last}, 2) AS DOUBLE)",
        }
        ends = ", ".join(f"{sql} AS {name}" for name, sql in parts.items())
        con.execute(f"CREATE TABLE ended AS SELECT *, {points} AS points, {ends} FROM tracks")
        unreadable = "points > 1 AND (start_lat IS NULL OR start_lon IS NULL OR end_lat IS NULL OR end_lon IS NULL)"
        empty, single, strange = con.execute(
            "SELECT count(*) FILTER (points = 0), count(*) FILTER (points = 1), "
            f"count(*) FILTER ({unreadable}) FROM ended"
        ).fetchall()[0]
        step = SECONDS_PER_POINT * 1_000_000
        trips = fetch_table(
            con,
            "SELECT person AS person_id, make_timestamp(us) AS start_time, make_timestamp(us + (points - 1) * "
            f"{step}) AS end_time, start_lat, start_lon, end_lat, end_lon, points, call_type, missing_data "
            f"FROM ended WHERE points > 1 AND NOT ({unreadable}) ORDER BY person, us, trip",
        )
    dropped = {"empty tracks": empty, "tracks of one point": single, "tracks that cannot be read": strange}
    return Prepared(
        trips=trips.set_column(trips.schema.get_field_index("points"), "points", trips["points"].cast(pa.int64())),
        dropped=dropped,
        notes=("A person is a taxi: several drivers may share one, and passengers are not known.",),
    )
