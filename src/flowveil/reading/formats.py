"""Layouts of the field: how the columns of files that many offices have are called.

A format is a small table: the names that it is recognised by, the columns for each role, and the
SQL of columns that the file does not have. ``--from NAME`` takes it; a file that looks like one is
answered with its name. What the user names wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowveil.core.errors import DataError, option, with_value
from flowveil.core.headers import plain_name


@dataclass(frozen=True)
class TableFormat:
    """A layout of the field.

    Attributes:
        about: what it is, for messages and the documentation.
        names: the columns that it is recognised by.
        given: arguments of reading; those that the user gives win.
        time: the column of the time, for slices.
        derived: SQL of further columns over others, which are in braces.
        zones: how the columns of its usual map are called, as `flowveil.read_zones` takes them.
        instead: what to do, if the layout holds no trips.
    """

    about: str
    names: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    time: str | None = None
    derived: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""

    def matches(self, names: Sequence[str]) -> bool:
        """Returns whether a table has the columns that the format is recognised by."""
        return {plain_name(name) for name in self.names} <= {plain_name(name) for name in names}


def _day_and_hour(day: str, hour: str) -> str:
    """Returns SQL of a moment as text, from a day (20240131 or ISO) and an hour or a time of day,
    also of 24:00 and later.
    """
    date, clock = f"trim(CAST({day} AS VARCHAR))", f"trim(CAST({hour} AS VARCHAR))"
    iso = (
        f"CASE WHEN regexp_full_match({date}, '[0-9]{{8}}') THEN substr({date}, 1, 4) || '-' ||"
        f" substr({date}, 5, 2) || '-' || substr({date}, 7, 2) ELSE {date} END"
    )
    start = f"TRY_CAST({iso} AS TIMESTAMP)"
    form = "'^([0-9]{1,2})(?:[.]0+)?(?::([0-9]{2}))?(?::([0-9]{2})([.][0-9]+)?)?$'"
    hours, minutes, seconds = (
        f"coalesce(TRY_CAST(nullif(regexp_extract({clock}, {form}, {part}), '') AS INTEGER), 0)"
        for part in (1, 2, 3)
    )
    whole = f"{start} + to_seconds(({hours}) * 3600 + ({minutes}) * 60 + {seconds})"
    bare = f"CASE WHEN contains({clock}, ':') THEN {clock} ELSE {clock} || ':00' END"
    is_clock = f"regexp_full_match({clock}, '[0-9]{{1,2}}([.]0+)?(:[0-9]{{2}}){{0,2}}([.][0-9]+)?')"
    return (
        f"CASE WHEN {day} IS NULL OR {hour} IS NULL THEN NULL WHEN {start} IS NOT NULL AND"
        f" {is_clock} THEN strftime({whole}, '%Y-%m-%d %H:%M:%S') ELSE {date} || ' ' || {bare} END"
    )


_ROUTE = "{{route.features}}[{end}]['geometry']['coordinates'][{axis}]"


def _route(end: int) -> dict[str, str]:
    side = "start" if end == 1 else "end"
    axes = {"lat": 2, "lng": 1}
    return {f"{side}_{name}": _ROUTE.format(end=end, axis=axis) for name, axis in axes.items()}


#: The formats, by name. Several layouts of one source are tried in their order.
FORMATS: dict[str, tuple[TableFormat, ...]] = {
    "mds": (
        TableFormat(
            "Mobility Data Specification 2.0, /trips",
            ("start_location.lat", "end_location.lat", "start_time"),
            {
                "origin": "start_location.lat,start_location.lng",
                "destination": "end_location.lat,end_location.lng",
                "person": "",
            },
            time="start_time",
        ),
        TableFormat(
            "Mobility Data Specification 1.x, /trips",
            ("route.features", "start_time"),
            {"origin": "start_lat,start_lng", "destination": "end_lat,end_lng", "person": ""},
            time="start_time",
            derived={**_route(1), **_route(-1)},
        ),
    ),
    "mitma": (
        TableFormat(
            "mobility of the Spanish ministry of transport (MITMA), viajes",
            ("fecha", "periodo", "origen", "destino", "viajes"),
            {
                "origin_tile": "origen",
                "destination_tile": "destino",
                "trips": "viajes",
                "person": "",
                "thousands": "none",
            },
            time="moment",
            derived={"moment": _day_and_hour("{fecha}", "{periodo}")},
        ),
    ),
    "ine": (
        TableFormat(
            "mobility of the Spanish statistical office (INE), flujos",
            ("CELDA_ORIGEN", "CELDA_DESTINO", "FLUJO"),
            {
                "origin_tile": "CELDA_ORIGEN",
                "destination_tile": "CELDA_DESTINO",
                "trips": "FLUJO",
                "person": "",
            },
        ),
    ),
    "lodes": (
        TableFormat(
            "LEHD Origin-Destination Employment Statistics (LODES), od",
            ("w_geocode", "h_geocode", "S000"),
            {
                "origin_tile": "h_geocode",
                "destination_tile": "w_geocode",
                "trips": "S000",
                "counted": "jobs",
                "person": "",
            },
            zones={"levels": "st,cty,trct,bgrp,tabblk2020"},
        ),
    ),
    "gtfs-ride": (
        TableFormat(
            "GTFS-ride, rider_trip.txt",
            ("rider_id", "boarding_stop_id", "alighting_stop_id"),
            {
                "origin_tile": "boarding_stop_id",
                "destination_tile": "alighting_stop_id",
                "person": "rider_id",
            },
            time="moment",
            derived={"moment": _day_and_hour("{service_date}", "{boarding_time}")},
            zones={"tile": "stop_id", "lat": "stop_lat", "lon": "stop_lon", "name": "stop_name"},
        ),
        TableFormat(
            "GTFS-ride, board_alight.txt",
            ("stop_id", "boardings", "alightings"),
            instead="it counts boardings and alightings, not trips: rider_trip.txt has trips.",
        ),
    ),
    "matsim": (
        TableFormat(
            "MATSim, output_trips.csv",
            ("person", "start_x", "start_y", "end_x", "end_y", "dep_time"),
            {
                "origin": "start_y,start_x",
                "destination": "end_y,end_x",
                "person": "person",
            },
            time="dep_time",
        ),
    ),
    "tides": (
        TableFormat(
            "TIDES, fare_transactions",
            ("transaction_id", "service_date", "event_timestamp"),
            instead=(
                "it holds transactions of one place each, not trips. `flowveil prepare cdr INPUT"
                " --person COLUMN --time event_timestamp --antennas STOPS --out trips.parquet`"
                " makes trips of what one card did."
            ),
        ),
        TableFormat(
            "TIDES, passenger_events",
            ("passenger_event_id", "event_type", "trip_stop_sequence"),
            instead="it counts boardings and alightings, not trips.",
        ),
    ),
    "trackintel": (
        TableFormat(
            "trackintel, trips or triplegs",
            ("user_id", "started_at", "finished_at", "geom"),
            {
                "origin": "start_lat,start_lon",
                "destination": "end_lat,end_lon",
                "person": "user_id",
            },
            time="started_at",
        ),
    ),
    "scikit-mobility": (
        TableFormat(
            "scikit-mobility, FlowDataFrame",
            ("origin", "destination", "flow"),
            {"origin_tile": "origin", "destination_tile": "destination", "trips": "flow"},
        ),
        TableFormat(
            "scikit-mobility, TrajDataFrame",
            ("uid", "datetime", "lat", "lng"),
            instead=(
                "it holds points, not trips. `flowveil prepare gps INPUT --person uid --time"
                " datetime --out trips.parquet` makes trips of them."
            ),
        ),
    ),
    "odwp01ew": (
        TableFormat(
            "census of England and Wales 2021, ODWP01EW",
            (
                "Middle layer Super Output Areas code",
                "MSOA of workplace code",
                "Count",
            ),
            {
                "origin_tile": "Middle layer Super Output Areas code",
                "destination_tile": "MSOA of workplace code",
                "trips": "Count",
                "counted": "workers",
                "person": "",
            },
        ),
        TableFormat(
            "census of England and Wales 2021, ODWP01EW by local authority",
            ("Lower tier local authorities code", "LTLA of workplace code", "Count"),
            {
                "origin_tile": "Lower tier local authorities code",
                "destination_tile": "LTLA of workplace code",
                "trips": "Count",
                "counted": "workers",
                "person": "",
            },
        ),
    ),
    "carpool": (
        TableFormat(
            "French register of carpooling (RPC), open data",
            ("journey_id", "start_lat", "start_lon", "end_lat", "end_lon", "start_datetime"),
            {
                "origin": "start_lat,start_lon",
                "destination": "end_lat,end_lon",
                "person": "",
            },
            time="start_datetime",
        ),
        TableFormat(
            "French register of carpooling (RPC), open data to 2023",
            ("journey_id", "journey_start_lat", "journey_start_lon", "journey_end_lat"),
            {
                "origin": "journey_start_lat,journey_start_lon",
                "destination": "journey_end_lat,journey_end_lon",
                "person": "",
            },
            time="start_datetime",
            derived={"start_datetime": "{journey_start_datetime}"},
        ),
    ),
    "flowkit": (
        TableFormat(
            "FlowKit, flows",
            ("pcod_from", "pcod_to", "value"),
            {
                "origin_tile": "pcod_from",
                "destination_tile": "pcod_to",
                "trips": "value",
                "person": "",
            },
        ),
        TableFormat(
            "FlowKit, flows of FlowAPI",
            ("origin", "destination", "trips"),
            {
                "origin_tile": "origin",
                "destination_tile": "destination",
                "trips": "trips",
                "person": "",
            },
        ),
    ),
    "multimno": (
        TableFormat(
            "multimno, internal migration",
            ("previous_zone", "new_zone", "migration"),
            {
                "origin_tile": "previous_zone",
                "destination_tile": "new_zone",
                "trips": "migration",
                "person": "",
            },
        ),
    ),
}


def format_names() -> tuple[str, ...]:
    """Returns the names of the formats."""
    return tuple(FORMATS)


def time_and_zones(name: str | None) -> tuple[str | None, Mapping[str, str]]:
    """Returns the column of the time of a format, and the columns of its usual map."""
    if name not in FORMATS:
        return None, {}
    layouts = FORMATS[name]
    times = (one.time for one in layouts if one.time is not None)
    return next(times, None), next((one.zones for one in layouts if one.zones), {})


def chosen_format(name: str | None, names: Sequence[str]) -> TableFormat | None:
    """Returns the layout of a format that a table has; None without a format.

    DataError if the table has none of them, or holds no trips.
    """
    if name is None:
        return None
    found = next((one for one in FORMATS[name] if one.matches(names)), None)
    if found is None:
        wanted = "; or ".join(", ".join(one.names) for one in FORMATS[name] if not one.instead)
        raise DataError(
            f"The table does not have the layout '{name}', which has the columns {wanted}. Hint:"
            f" leave out {option('source_format')}, and name the columns."
        )
    if found.instead:
        raise DataError(f"The table is {found.about}: {found.instead}")
    return found


def refuse_known_layout(names: Sequence[str]) -> None:
    """Raises DataError if a table whose ends are not recognised has a layout of the field."""
    for name, layouts in FORMATS.items():
        for one in layouts:
            if one.matches(names):
                if one.instead:
                    raise DataError(f"The table is {one.about}: {one.instead}")
                raise DataError(
                    f"The table looks like {one.about}. Hint:"
                    f" {with_value('source_format', name)} reads it."
                )


def time_of_two_columns(text: str | None, names: Sequence[str]) -> str | None:
    """Returns SQL of a moment for ``DAY,HOUR``, two columns of a table; None for one column."""
    if text is None or text in names:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not set(parts) <= set(names):
        return None
    return _day_and_hour(*(f"{{{part}}}" for part in parts))
