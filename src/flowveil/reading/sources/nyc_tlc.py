"""New York City taxi trips (TLC trip records): zone ids since 2016, coordinates before.

With zone ids the trips are to be read together with the zone map (``--zones``); ids that are not on
the map, such as 264 and 265 for unknown places, are dropped and counted. Files of all years are
recognised by their columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flowveil.core.errors import DataError
from flowveil.core.headers import plain_name
from flowveil.reading.database import fetch_table
from flowveil.reading.sources.tables import Prepared, SourceColumn, drop_rows, opened

#: Ids of an unknown place or one outside the city, used if no zone table is given.
NO_PLACE = ("264", "265")
_TIMES = {
    "start_time": (
        "tpeppickupdatetime",
        "lpeppickupdatetime",
        "pickupdatetime",
        "trippickupdatetime",
    ),
    "end_time": (
        "tpepdropoffdatetime",
        "lpepdropoffdatetime",
        "dropoffdatetime",
        "tripdropoffdatetime",
    ),
}
_ZONES = {"start_zone": ("pulocationid",), "end_zone": ("dolocationid",)}
_POINTS = {
    "start_lat": ("pickuplatitude", "startlat"),
    "start_lon": ("pickuplongitude", "startlon"),
    "end_lat": ("dropofflatitude", "endlat"),
    "end_lon": ("dropofflongitude", "endlon"),
}
_POINT_GAPS = {
    "trips with a missing end": " OR ".join(f"{name} IS NULL" for name in _POINTS),
    "trips with an end at 0,0": (
        "(start_lat = 0 AND start_lon = 0) OR (end_lat = 0 AND end_lon = 0)"
    ),
    "trips off the earth": (
        "abs(start_lat) > 90 OR abs(end_lat) > 90 OR abs(start_lon) > 180 OR abs(end_lon) > 180"
    ),
}


def prepare_nyc_tlc(source: Any, *, zones: Any = None) -> Prepared:
    """Makes trips from TLC trip records.

    DataError if the columns are neither those of zones nor those of coordinates.

    Args:
        source: trip records of any year, in any form `flowveil.read_trips` takes.
        zones: the zone table (``LocationID``): ids that are not in it are dropped. Without it, 264
            and 265 are.

    Returns trips with ``start_zone`` and ``end_zone`` (text), or ``start_lat``, ``start_lon``,
    ``end_lat``, ``end_lon``; ``start_time`` and, where known, ``end_time``. These files know
    neither drivers nor passengers.
    """
    with opened(source) as table:
        keys = {plain_name(name) for name in table.table.names}
        times = [
            name for name, usual in _TIMES.items() if name == "start_time" or keys & set(usual)
        ]
        ends = next(
            (
                ends
                for ends in (_ZONES, _POINTS)
                if all(keys & set(usual) for usual in ends.values())
            ),
            None,
        )
        if ends is None:
            raise DataError(
                "These are not TLC trip records: needed are PULocationID and DOLocationID, or"
                f" pickup and dropoff latitude and longitude. {table.header.described()}"
            )
        kind = "text" if ends is _ZONES else "number"
        columns = {name: SourceColumn(kind, name, usual) for name, usual in ends.items()}
        table.pick(**columns, **{name: SourceColumn("time", name, _TIMES[name]) for name in times})
        dropped = drop_rows(
            table.con, _zone_gaps(table.con, zones) if ends is _ZONES else _POINT_GAPS
        )
        selected = ", ".join([*ends, *(f"make_timestamp({time}) AS {time}" for time in times)])
        trips = fetch_table(table.con, f"SELECT {selected} FROM picked ORDER BY ALL")
    return Prepared(
        trips, dropped, ("There are no persons in these files, so people cannot be protected.",)
    )


def _zone_gaps(con: Any, zones: Any) -> dict[str, str]:
    # Ids may come as 7, 7.0 or '7'.
    for name in _ZONES:
        con.execute(f"UPDATE picked SET {name} = regexp_replace({name}, '\\.0+$', '')")
    known = list(NO_PLACE)
    if zones is not None:
        with opened(zones) as table:
            table.pick(zone=SourceColumn("text", "id", ("locationid", "zone", "id", "objectid")))
            rows = table.con.execute(
                "SELECT DISTINCT regexp_replace(zone, '\\.0+$', '') FROM picked"
            ).fetchall()
            known = [zone for (zone,) in rows if zone is not None and zone not in NO_PLACE]
    con.register("flowveil_known", pa.table({"zone": pa.array(known, pa.string())}))
    unknown = f"{'IN' if zones is None else 'NOT IN'} (SELECT zone FROM flowveil_known)"
    return {
        "missing zones": "start_zone IS NULL OR end_zone IS NULL",
        "zones that are not on the map": f"start_zone {unknown} OR end_zone {unknown}",
    }
