"""New York City taxi trips (TLC trip records): zone ids since 2016, coordinates before.

With zone ids the trips are to be read together with the zone map (``--zones``); ids that are not on the map, such as
264 and 265 for unknown places, are left out and counted. Files of all years are told apart by their columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from flowveil.errors import DataError
from flowveil.reading.database import fetch_table
from flowveil.sources.gps import Prepared, choose_columns
from flowveil.sources.tables import OpenTable, opened

#: Ids that stand for an unknown place or one outside the city, where no zone table is given.
NO_PLACE = ("264", "265")

_START = ("tpeppickupdatetime", "lpeppickupdatetime", "pickupdatetime", "trippickupdatetime")
_END = ("tpepdropoffdatetime", "lpepdropoffdatetime", "dropoffdatetime", "tripdropoffdatetime")
_ZONES = {"start_zone": ("pulocationid",), "end_zone": ("dolocationid",)}
_POINTS = {
    "start_lat": ("pickuplatitude", "startlat"),
    "start_lon": ("pickuplongitude", "startlon"),
    "end_lat": ("dropofflatitude", "endlat"),
    "end_lon": ("dropofflongitude", "endlon"),
}


def prepare_nyc_tlc(source: Any, *, zones: Any = None) -> Prepared:
    """Make trips from TLC trip records.

    Args:
        source: trip records of any year, in any form `flowveil.read_trips` takes.
        zones: the zone table (``LocationID``): ids that are not in it are left out. Without it, 264 and 265 are.

    Returns:
        Trips with ``start_zone`` and ``end_zone`` (text), or ``start_lat``, ``start_lon``, ``end_lat``, ``end_lon``;
        ``start_time`` and, where known, ``end_time``. There are no persons: neither drivers nor passengers are told
        apart in these files.

    Raises:
        DataError: the columns are neither those of zones nor those of coordinates.
    """
    with opened(source) as table:
        keys = {"".join(c for c in name.casefold() if c.isalnum()) for name in table.names}
        if all(any(key in keys for key in known) for known in _ZONES.values()):
            return _zone_trips(table, zones)
        if all(any(key in keys for key in known) for known in _POINTS.values()):
            return _point_trips(table)
        raise DataError(
            "These are no TLC trip records: needed are PULocationID and DOLocationID, or pickup and dropoff latitude "
            f"and longitude. {table.header().described()}"
        )


def _columns(table: OpenTable, known: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, str], bool]:
    keys = {"".join(c for c in name.casefold() if c.isalnum()) for name in table.names}
    wanted = {**known, "start_time": _START}
    has_end = any(key in keys for key in _END)
    if has_end:
        wanted["end_time"] = _END
    return choose_columns(dict.fromkeys(wanted), wanted, table.names, header=table.header), has_end


def _zone_trips(table: OpenTable, zones: Any) -> Prepared:
    found, has_end = _columns(table, _ZONES)
    times = {"start_us": table.microseconds(found["start_time"])}
    if has_end:
        times["end_us"] = table.microseconds(found["end_time"])
    ends = {name: table.text(found[name]) for name in _ZONES}
    table.select({**ends, **times})
    con = table.con
    # Ids may come as 7, 7.0 or '7'.
    for name in _ZONES:
        con.execute(f"UPDATE picked SET {name} = regexp_replace({name}, '\\.0+$', '')")
    con.register("flowveil_known", pa.table({"zone": pa.array(_known_zones(zones), pa.string())}))
    known = "SELECT zone FROM flowveil_known"
    if zones is None:
        bad = f"start_zone IN ({known}) OR end_zone IN ({known})"
    else:
        bad = f"start_zone NOT IN ({known}) OR end_zone NOT IN ({known})"
    missing = "start_zone IS NULL OR end_zone IS NULL"
    n_missing, n_bad = con.execute(
        f"SELECT count(*) FILTER ({missing}), count(*) FILTER (NOT ({missing}) AND ({bad})) FROM picked"
    ).fetchall()[0]
    until = ", make_timestamp(end_us) AS end_time" if has_end else ""
    trips = fetch_table(
        con,
        f"SELECT start_zone, end_zone, make_timestamp(start_us) AS start_time{until} FROM picked "
        f"WHERE NOT ({missing}) AND NOT ({bad}) ORDER BY ALL",
    )
    return _prepared(trips, {"missing zones": n_missing, "zones that are not on the map": n_bad})


def _known_zones(zones: Any) -> list[str]:
    """The ids of the zone table, or those that stand for no place where there is none."""
    if zones is None:
        return list(NO_PLACE)
    with opened(zones) as table:
        usual = {"id": ("locationid", "zone", "id", "objectid")}
        column = choose_columns({"id": None}, usual, table.names, header=table.header)["id"]
        table.select({"zone": table.text(column)})
        rows = table.con.execute(
            "SELECT DISTINCT regexp_replace(zone, '\\.0+$', '') FROM picked WHERE zone IS NOT NULL"
        )
        return [zone for (zone,) in rows.fetchall() if zone not in NO_PLACE]


def _point_trips(table: OpenTable) -> Prepared:
    found, has_end = _columns(table, _POINTS)
    times = {"start_us": table.microseconds(found["start_time"])}
    if has_end:
        times["end_us"] = table.microseconds(found["end_time"])
    table.select({**{name: table.number(found[name]) for name in _POINTS}, **times})
    con = table.con
    missing = " OR ".join(f"{name} IS NULL" for name in _POINTS)
    zero = "(start_lat = 0 AND start_lon = 0) OR (end_lat = 0 AND end_lon = 0)"
    off = "abs(start_lat) > 90 OR abs(end_lat) > 90 OR abs(start_lon) > 180 OR abs(end_lon) > 180"
    n_missing, n_zero, n_off = con.execute(
        f"SELECT count(*) FILTER ({missing}), count(*) FILTER (NOT ({missing}) AND ({zero})), "
        f"count(*) FILTER (NOT ({missing}) AND NOT ({zero}) AND ({off})) FROM picked"
    ).fetchall()[0]
    until = ", make_timestamp(end_us) AS end_time" if has_end else ""
    trips = fetch_table(
        con,
        f"SELECT start_lat, start_lon, end_lat, end_lon, make_timestamp(start_us) AS start_time{until} FROM picked "
        f"WHERE NOT ({missing}) AND NOT ({zero}) AND NOT ({off}) ORDER BY ALL",
    )
    return _prepared(
        trips, {"trips with a missing end": n_missing, "trips with an end at 0,0": n_zero, "trips off the earth": n_off}
    )


def _prepared(trips: pa.Table, left_out: dict[str, int]) -> Prepared:
    return Prepared(
        trips=trips,
        left_out={reason: n for reason, n in left_out.items() if n},
        notes=("There are no persons in these files, so people cannot be protected.",),
    )
