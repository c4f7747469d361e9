"""Transitions between antennas from phone records.

Matet et al. (2023) take every change of antenna for a trip, without any processing, and so does this by default. Two
rules that others apply to such records can be asked for, because a change of antenna is not always a movement:

- ``handover``: a phone that hangs between two antennas goes to and fro. A visit between two visits to one other antenna
  is dropped if it takes no longer than this from the last record before it to the first one after it.
- ``stay``: passing an antenna does not end a trip. A visit counts if its first and last record are at least this far
  apart.

Consecutive visits to the same antenna are joined; trips go from each remaining visit of a person to the next.
All of it is window functions in SQL, out of core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.errors import DataError, ParameterError
from flowveil.reading.database import fetch_table
from flowveil.sources.gps import LATITUDES, LONGITUDES, PERSONS, TIMES, Prepared, choose_columns
from flowveil.sources.tables import OpenTable, opened

SUBSCRIBERS = (*PERSONS, "imsi", "imsihash", "msisdn", "subscriber", "subscriberid", "caller", "callerid")
ANTENNAS = (
    "antenna", "antennaid", "site", "siteid", "cell", "cellid", "tower", "towerid", "basestation", "basestationid",
    "bsid", "enodeb", "zone", "id",
)  # fmt: skip

#: The columns of the trips; coordinates follow where a table of antennas is given.
TRANSITIONS = pa.schema(
    [
        ("person_id", pa.string()),
        ("start_time", pa.timestamp("us")),
        ("end_time", pa.timestamp("us")),
        ("origin", pa.string()),
        ("destination", pa.string()),
    ]
)
_PLACES = ("start_lat", "start_lon", "end_lat", "end_lon")


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
        person: column that says whose record it is; usual names are recognised.
        time: column of the time: timestamps, text, or Unix numbers.
        antenna: column of the antenna.
        antennas: a table of antennas with their latitude and longitude; trips then have coordinates, and records of
            antennas that are not in it are dropped.
        stay: seconds that a visit takes at least to be an end of a trip; 0 takes all.
        handover: seconds within which going to another antenna and back is not a movement; 0 keeps all.
        gap: seconds that a trip takes at most; longer ones are dropped. None keeps all.
        time_format: format of ``strptime`` for times that are not recognised; see `flowveil.reading.times`.
        timezone: local time for Unix times and times in UTC; without it their type is UTC.

    Returns:
        Trips with the columns of `TRANSITIONS`, in the order of persons and times; ``start_time`` is the last record at
        the origin, ``end_time`` the first at the destination.

    Raises:
        ParameterError: a rule is out of its range, or the source is nothing that can be read.
        DataError: columns are missing, no record can be used, or antennas have no place, or several.
    """
    for name, value in (("stay", stay), ("handover", handover), ("gap", 1.0 if gap is None else gap)):
        if not (np.isfinite(value) and value >= 0):
            raise ParameterError(f"{name} must be 0 or more; found {value!r}.")
    places = None if antennas is None else _places(antennas)
    with opened(source, time_format=time_format, timezone=timezone) as table:
        counts = _select(table, {"person": person, "time": time, "antenna": antenna}, places)
        con = table.con
        con.execute("CREATE TABLE visits AS SELECT person, antenna, us AS first, us AS last FROM records")
        _join_visits(con)
        if handover:
            con.execute(_replaced(f"NOT coalesce(before = after AND gone <= {round(handover * 1e6)}, false)"))
            _join_visits(con)
        if stay:
            con.execute(_replaced(f"last - first >= {round(stay * 1e6)}"))
            _join_visits(con)
        trips, slow = _transitions(con, gap)
        trips = table.with_timezone(trips)
    if places is not None:
        trips = _placed(trips, places)
    dropped = {**counts, "trips longer than the gap": slow}
    return Prepared(trips=trips, dropped=dropped, notes=_notes(stay, handover))


def _select(
    table: OpenTable, wanted: Mapping[str, str | None], places: Mapping[str, tuple[float, float]] | None
) -> dict[str, int]:
    """Writes the usable records into ``records``: at one instant a person is at one antenna, the first by its code."""
    known = {"person": SUBSCRIBERS, "time": TIMES, "antenna": ANTENNAS}
    columns = choose_columns(wanted, known, table.names, header=table.header)
    table.select(
        {
            "person": table.text(columns["person"]),
            "us": table.microseconds(columns["time"]),
            "antenna": table.text(columns["antenna"]),
        }
    )
    con = table.con
    there = "true"
    if places is not None:
        con.register("flowveil_antennas", pa.table({"antenna": pa.array(list(places), pa.string())}))
        there = "antenna IN (SELECT antenna FROM flowveil_antennas)"
    whole = "person IS NOT NULL AND us IS NOT NULL AND antenna IS NOT NULL"
    n, n_whole = con.execute(f"SELECT count(*), count(*) FILTER ({whole}) FROM picked").fetchall()[0]
    n_there = con.execute(f"SELECT count(*) FROM picked WHERE {whole} AND {there}").fetchall()[0][0]
    if n_there == 0:
        raise DataError(
            f"No record can be used: of {n:,} records none has a person, a time and an antenna"
            f"{' that is in the table of antennas' if places else ''}. "
            "Hint: name the columns with --person, --time and --antenna."
        )
    con.execute(
        f"CREATE TABLE records AS SELECT person, us, min(antenna) AS antenna FROM picked WHERE {whole} AND {there} "
        "GROUP BY person, us"
    )
    return {
        "records that cannot be used": n - n_whole,
        "records of antennas that are not in the table": n_whole - n_there,
    }


def _join_visits(con: Any) -> None:
    """Visits to the same antenna in a row become one."""
    con.execute(
        "CREATE TABLE joined AS WITH marked AS (SELECT *, coalesce(antenna <> lag(antenna) OVER w, true) AS begins "
        "FROM visits WINDOW w AS (PARTITION BY person ORDER BY first)), numbered AS (SELECT *, sum(begins::INT) OVER "
        "(PARTITION BY person ORDER BY first) AS visit FROM marked) SELECT person, any_value(antenna) AS antenna, "
        "min(first) AS first, max(last) AS last FROM numbered GROUP BY person, visit"
    )
    con.execute("DROP TABLE visits")
    con.execute("ALTER TABLE joined RENAME TO visits")


def _replaced(kept: str) -> str:
    """Returns SQL that keeps only the visits for which a rule holds, decided for all of them at once.

    The rule may use ``before`` and ``after``, the antennas of the neighbouring visits, and ``gone``, the time between
    these.
    """
    return (
        "CREATE OR REPLACE TABLE visits AS WITH around AS (SELECT *, lag(antenna) OVER w AS before, lead(antenna) OVER "
        "w AS after, lead(first) OVER w - lag(last) OVER w AS gone FROM visits WINDOW w AS (PARTITION BY person ORDER "
        f"BY first)) SELECT person, antenna, first, last FROM around WHERE {kept}"
    )


def _transitions(con: Any, gap: float | None) -> tuple[pa.Table, int]:
    """From each visit to the next one of the same person; the number dropped because they take longer than the gap."""
    con.execute(
        "CREATE TABLE transitions AS SELECT * FROM (SELECT person, last AS us, lead(first) OVER w AS arrived, antenna, "
        "lead(antenna) OVER w AS next FROM visits WINDOW w AS (PARTITION BY person ORDER BY first)) "
        "WHERE next IS NOT NULL"
    )
    within = "true" if gap is None else f"arrived - us <= {round(gap * 1e6)}"
    slow = con.execute(f"SELECT count(*) FROM transitions WHERE NOT ({within})").fetchall()[0][0]
    trips = fetch_table(
        con,
        "SELECT person AS person_id, make_timestamp(us) AS start_time, make_timestamp(arrived) AS end_time, "
        f"antenna AS origin, next AS destination FROM transitions WHERE {within} ORDER BY person, us",
    )
    return trips.cast(TRANSITIONS), int(slow)


def _places(antennas: Any) -> dict[str, tuple[float, float]]:
    """Returns latitude and longitude of each antenna."""
    with opened(antennas) as table:
        columns = choose_columns(
            {"antenna": None, "lat": None, "lon": None},
            {"antenna": ANTENNAS, "lat": LATITUDES, "lon": LONGITUDES},
            table.names,
            header=table.header,
        )
        table.select(
            {
                "antenna": table.text(columns["antenna"]),
                "lat": table.number(columns["lat"]),
                "lon": table.number(columns["lon"]),
            }
        )
        rows = table.con.execute("SELECT DISTINCT antenna, lat, lon FROM picked WHERE antenna IS NOT NULL").fetchall()
    nowhere = sum(lat is None or lon is None or abs(lat) > 90 or abs(lon) > 180 for _, lat, lon in rows)
    places = {code: (lat, lon) for code, lat, lon in sorted(rows, key=lambda row: row[0])}
    if nowhere or len(places) < len(rows) or not rows:
        raise DataError(
            f"The table of antennas cannot be used: {nowhere} have no place on the earth, "
            f"{len(rows) - len(places)} have several. Every antenna needs one latitude and one longitude in degrees."
        )
    return places


def _placed(trips: pa.Table, places: Mapping[str, tuple[float, float]]) -> pa.Table:
    """Returns the trips with the places of both antennas."""
    ends = []
    for end in ("origin", "destination"):
        number = trips.column(end).combine_chunks().dictionary_encode()
        number = number.combine_chunks() if isinstance(number, pa.ChunkedArray) else number
        place = np.array([places[code] for code in number.dictionary.to_pylist()], dtype=np.float64).reshape(-1, 2)
        ends += list(place[number.indices.to_numpy(zero_copy_only=False).astype(np.int64)].T)
    for name, values in zip(_PLACES, ends, strict=True):
        trips = trips.append_column(name, pa.array(values, pa.float64()))
    return trips


def _notes(stay: float, handover: float) -> tuple[str, ...]:
    if stay or handover:
        return ()
    return ("every change of antenna is a trip, as in Matet et al. (2023); --stay and --handover leave some out.",)
