"""Transitions between antennas from phone records.

Matet et al. (2023) take every change of antenna for a trip, and so does this by default;
``handover`` and ``stay`` exclude changes that are no movement. Consecutive visits to the same
antenna are joined; trips go from each remaining visit of a person to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.database import fetch_table
from flowveil.reading.sources.gps import LATITUDES, LONGITUDES, PERSONS, TIMES
from flowveil.reading.sources.tables import Prepared, SourceColumn, drop_rows, opened

SUBSCRIBERS = (
    *PERSONS,
    "imsi",
    "imsihash",
    "msisdn",
    "subscriber",
    "subscriberid",
    "caller",
    "callerid",
)
ANTENNAS = (
    "antenna",
    "antennaid",
    "site",
    "siteid",
    "cell",
    "cellid",
    "tower",
    "towerid",
    "basestation",
    "basestationid",
    "bsid",
    "enodeb",
    "zone",
    "id",
)


def prepare_cdr(
    source: Any,
    *,
    person: str | None = None,
    time: str | None = None,
    antenna: str | None = None,
    antennas: Any = None,
    stay: float = 0.0,
    handover: float = 0.0,
    gap: float | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
) -> Prepared:
    """Makes trips from phone records.

    Args:
        source: a file or table of records, in any form `flowveil.read_trips` takes.
        person, time, antenna: columns; usual names are recognised. Times are timestamps, text, or
            Unix numbers.
        antennas: a table of antennas with their latitude and longitude; trips then have
            coordinates, and records of antennas that are not in it are dropped.
        stay: seconds from the first to the last record of a visit that is an end of a trip; 0 takes
            all.
        handover: seconds from the last record before a visit to the first after it, at one other
            antenna, within which it is not a movement; 0 keeps all.
        gap: seconds that a trip takes at most; longer ones are dropped. None keeps all.
        time_format: format of ``strptime`` for times that are not recognised; see
            `flowveil.reading.times`.
        timezone: local time for Unix times and times in UTC; without it their type is UTC.

    Returns:
        Trips with ``person_id``, ``start_time`` (the last record at the origin), ``end_time`` (the
        first at the destination), ``origin`` and ``destination``, in the order of persons and
        times; with antennas also ``start_lat``, ``start_lon``, ``end_lat`` and ``end_lon``.

    Raises:
        ParameterError: a rule is out of its range, or the source is nothing that can be read.
        DataError: columns are missing, no record can be used, or antennas have no place, or
            several.
    """
    for name, value in (
        ("stay", stay),
        ("handover", handover),
        ("gap", 1.0 if gap is None else gap),
    ):
        if not (np.isfinite(value) and value >= 0):
            raise ParameterError(f"{name} must be 0 or more; found {value!r}.")
    places = None if antennas is None else _places(antennas)
    with opened(source, time_format=time_format, timezone=timezone) as table:
        table.pick(
            person=SourceColumn("text", "person", SUBSCRIBERS, person),
            us=SourceColumn("time", "time", TIMES, time),
            antenna=SourceColumn("text", "antenna", ANTENNAS, antenna),
        )
        con = table.con
        dropped = _select(con, places)
        _join_visits(con)
        if handover:
            _keep_visits(
                con, f"NOT coalesce(before = after AND gone <= {round(handover * 1e6)}, false)"
            )
        if stay:
            _keep_visits(con, f"last - first >= {round(stay * 1e6)}")
        trips, slow = _transitions(con, gap, placed=places is not None)
        trips = table.with_timezone(trips)
    notes = (
        (
            "every change of antenna is a trip, as in Matet et al. (2023); --option stay=SECONDS"
            " and --option handover=SECONDS leave some out."
        ),
    )
    return Prepared(
        trips, {**dropped, "trips longer than the gap": slow}, () if stay or handover else notes
    )


def _select(con: Any, places: pa.Table | None) -> dict[str, int]:
    """Writes the visits of one record: at one instant a person is at one antenna, the first by its
    code.
    """
    reasons = {"records that cannot be used": "person IS NULL OR us IS NULL OR antenna IS NULL"}
    needed = "a person, a time and an antenna"
    if places is not None:
        con.register("flowveil_antennas", places)
        elsewhere = "antenna NOT IN (SELECT antenna FROM flowveil_antennas)"
        reasons["records of antennas that are not in the table"] = elsewhere
        needed += " that is in the table of antennas"
    none_left = (
        f"No record can be used: of {{n}} records none has {needed}. "
        "Hint: name the columns with --person, --time and --option antenna=COLUMN."
    )
    dropped = drop_rows(con, reasons, none_left=none_left)
    con.execute(
        "CREATE TABLE visits AS SELECT person, min(antenna) AS antenna, us AS first, us AS last"
        " FROM picked GROUP BY person, us"
    )
    return dropped


def _join_visits(con: Any) -> None:
    """Joins visits to the same antenna in a row."""
    con.execute(
        "CREATE OR REPLACE TABLE visits AS WITH marked AS (SELECT *, coalesce(antenna <>"
        " lag(antenna) OVER w, true) AS begins FROM visits WINDOW w AS (PARTITION BY person ORDER"
        " BY first)), numbered AS (SELECT *, sum(begins::INT) OVER (PARTITION BY person ORDER BY"
        " first) AS visit FROM marked) SELECT person, any_value(antenna) AS antenna, min(first) AS"
        " first, max(last) AS last FROM numbered GROUP BY person, visit"
    )


def _keep_visits(con: Any, rule: str) -> None:
    """Keeps the visits for which a rule holds, decided for all of them at once, and joins those
    left.

    It may use ``before`` and ``after``, the antennas of the neighbouring visits, and ``gone``, the
    time between these.
    """
    con.execute(
        "CREATE OR REPLACE TABLE visits AS WITH around AS (SELECT *, lag(antenna) OVER w AS"
        " before, lead(antenna) OVER w AS after, lead(first) OVER w - lag(last) OVER w AS gone"
        " FROM visits WINDOW w AS (PARTITION BY person ORDER BY first)) SELECT person, antenna,"
        f" first, last FROM around WHERE {rule}"
    )
    _join_visits(con)


def _transitions(con: Any, gap: float | None, *, placed: bool) -> tuple[pa.Table, int]:
    """From each visit to the next one of the same person.

    The number dropped because they take longer than the gap.
    """
    con.execute(
        "CREATE TABLE transitions AS SELECT * FROM (SELECT person, last AS us, lead(first) OVER w"
        " AS arrived, antenna, lead(antenna) OVER w AS next FROM visits WINDOW w AS (PARTITION BY"
        " person ORDER BY first)) WHERE next IS NOT NULL"
    )
    within = "true" if gap is None else f"arrived - us <= {round(gap * 1e6)}"
    slow = con.execute(f"SELECT count(*) FROM transitions WHERE NOT ({within})").fetchall()[0][0]
    ends, joined = "", ""
    if placed:
        ends = ", a.lat AS start_lat, a.lon AS start_lon, b.lat AS end_lat, b.lon AS end_lon"
        joined = (
            "JOIN flowveil_antennas a USING (antenna) JOIN flowveil_antennas b ON b.antenna = next"
        )
    trips = fetch_table(
        con,
        "SELECT person AS person_id, make_timestamp(us) AS start_time, make_timestamp(arrived) AS"
        f" end_time, antenna AS origin, next AS destination{ends} FROM transitions {joined} WHERE"
        f" {within} ORDER BY person, us",
    )
    return trips, int(slow)


def _places(antennas: Any) -> pa.Table:
    """Returns code, latitude and longitude of each antenna."""
    with opened(antennas) as table:
        table.pick(
            antenna=SourceColumn("text", "antenna", ANTENNAS),
            lat=SourceColumn("number", "lat", LATITUDES),
            lon=SourceColumn("number", "lon", LONGITUDES),
        )
        places = fetch_table(
            table.con, "SELECT DISTINCT antenna, lat, lon FROM picked WHERE antenna IS NOT NULL"
        )
        nowhere, several = table.con.execute(
            "SELECT count(*) FILTER (NOT coalesce(abs(lat) <= 90 AND abs(lon) <= 180, false)), "
            "count(*) - count(DISTINCT antenna) FROM places"
        ).fetchall()[0]
    if nowhere or several or not len(places):
        raise DataError(
            f"The table of antennas cannot be used: {nowhere} have no place on the earth, {several}"
            " have several. Every antenna needs one latitude and one longitude in degrees."
        )
    return places
