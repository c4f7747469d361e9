"""New York City taxi trips (TLC trip records): zone ids since 2016, coordinates before.

With zone ids the trips are to be read together with the zone map (``--zones``); ids that are not on the map, such as
264 and 265 for unknown places, are dropped and counted. Files of all years are recognised by their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from flowveil.errors import DataError
from flowveil.headers import plain_name
from flowveil.reading.database import fetch_table
from flowveil.sources.gps import Prepared, choose_columns
from flowveil.sources.tables import Expression, OpenTable, opened

#: Ids of an unknown place or one outside the city, used if no zone table is given.
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
    """Makes trips from TLC trip records.

    Args:
        source: trip records of any year, in any form `flowveil.read_trips` takes.
        zones: the zone table (``LocationID``): ids that are not in it are dropped. Without it, 264 and 265 are.

    Returns:
        Trips with ``start_zone`` and ``end_zone`` (text), or ``start_lat``, ``start_lon``, ``end_lat``, ``end_lon``;
        ``start_time`` and, where known, ``end_time``. There are no persons: these files
        know neither drivers nor passengers.

    Raises:
        DataError: the columns are neither those of zones nor those of coordinates.
    """
    with opened(source) as table:
        keys = {plain_name(name) for name in table.names}
        if all(keys & set(known) for known in _ZONES.values()):
            return _zone_trips(table, zones)
        if all(keys & set(known) for known in _POINTS.values()):
            return _point_trips(table)
        raise DataError(
            "These are not TLC trip records: needed are PULocationID and DOLocationID, or pickup and dropoff latitude "
            f"and longitude. {table.header().described()}"
        )


def _select(table: OpenTable, ends: Mapping[str, tuple[str, ...]], read: Callable[[str], Expression]) -> str:
    """Reads the ends and the times of the trips into ``picked``; returns the columns to select from it."""
    wanted = {**ends, "start_time": _START}
    if {plain_name(name) for name in table.names} & set(_END):
        wanted["end_time"] = _END
    found = choose_columns(dict.fromkeys(wanted), wanted, table.names, header=table.header)
    times = [role for role in wanted if role not in ends]
    table.select({role: (read if role in ends else table.microseconds)(found[role]) for role in wanted})
    return ", ".join([*ends, *(f"make_timestamp({time}) AS {time}" for time in times)])


def _zone_trips(table: OpenTable, zones: Any) -> Prepared:
    selected = _select(table, _ZONES, table.text)
    con = table.con
    # Ids may come as 7, 7.0 or '7'.
    for name in _ZONES:
        con.execute(f"UPDATE picked SET {name} = regexp_replace({name}, '\\.0+$', '')")
    con.register("flowveil_known", pa.table({"zone": pa.array(_known_zones(zones), pa.string())}))
    known = f"{'IN' if zones is None else 'NOT IN'} (SELECT zone FROM flowveil_known)"
    return _prepared(
        con,
        selected,
        {
            "missing zones": "start_zone IS NULL OR end_zone IS NULL",
            "zones that are not on the map": f"start_zone {known} OR end_zone {known}",
        },
    )


def _known_zones(zones: Any) -> list[str]:
    """Returns the ids of the zone table; without one, the ids of unknown places."""
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
    selected = _select(table, _POINTS, table.number)
    return _prepared(
        table.con,
        selected,
        {
            "trips with a missing end": " OR ".join(f"{name} IS NULL" for name in _POINTS),
            "trips with an end at 0,0": "(start_lat = 0 AND start_lon = 0) OR (end_lat = 0 AND end_lon = 0)",
            "trips off the earth": "abs(start_lat) > 90 OR abs(end_lat) > 90 OR abs(start_lon) > 180 OR "
            "abs(end_lon) > 180",
        },
    )


def _prepared(con: Any, selected: str, gaps: Mapping[str, str]) -> Prepared:
    """Returns the trips without gaps; a row with several gaps is counted under the first."""
    reason = " ".join(f"WHEN {gap} THEN {i}" for i, gap in enumerate(gaps.values()))
    con.execute(f"CREATE TABLE judged AS SELECT *, CASE {reason} END AS gap FROM picked")
    counts = dict(con.execute("SELECT gap, count(*) FROM judged WHERE gap IS NOT NULL GROUP BY gap").fetchall())
    return Prepared(
        trips=fetch_table(con, f"SELECT {selected} FROM judged WHERE gap IS NULL ORDER BY ALL"),
        dropped={name: counts.get(i, 0) for i, name in enumerate(gaps)},
        notes=("There are no persons in these files, so people cannot be protected.",),
    )
