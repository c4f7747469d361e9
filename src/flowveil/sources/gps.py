"""GPS points to trips: who was where when, cut wherever the record pauses or the person stays, or as they are marked.

Two rules end a trip. A gap: no point for longer than ``gap``. A stay: ``dwell`` later the person is within
``dwell_radius`` of where she was. A trip is what lies between two ends, from its first point to its last. Points of
different persons never join up: every rule looks at points of the same person only.

Both rules are whole-column work: the gap rule one window function in SQL, out of core, the stay rule one search for the
point ``dwell`` later and one prefix sum over the stays that begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.headers import Header, plain_name
from flowveil.reading.database import fetch_table
from flowveil.sources.tables import opened

#: What the columns of points are usually called, without case and separators.
PERSONS = ("person", "personid", "id", "uid", "userid", "user", "taxiid", "deviceid", "participantid", "cabid")
TIMES = ("time", "timestamp", "datetime", "localdatetime", "utcdatetime", "date", "ts", "recordedat")
LATITUDES = ("lat", "latitude", "y")
LONGITUDES = ("lon", "lng", "long", "longitude", "x")

TRIPS = pa.schema(
    [
        ("person_id", pa.string()),
        ("start_time", pa.timestamp("us")),
        ("end_time", pa.timestamp("us")),
        ("start_lat", pa.float64()),
        ("start_lon", pa.float64()),
        ("end_lat", pa.float64()),
        ("end_lon", pa.float64()),
        ("points", pa.int64()),
    ]
)

_EARTH_M = 6_371_008.8
#: SQL: a point of somebody, at some time, somewhere on the earth.
_USABLE = (
    "person IS NOT NULL AND us IS NOT NULL AND lat BETWEEN -90 AND 90 AND lon BETWEEN -180 AND 180 "
    "AND NOT (lat = 0 AND lon = 0)"
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Trips made from a known data set.

    Attributes:
        trips: one row a trip, ready for `flowveil.read_trips`.
        left_out: rows, points or trips that were left out, by reason; counts only.
        notes: what else should be known about how the trips came about.
    """

    trips: pa.Table
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "left_out", {reason: n for reason, n in self.left_out.items() if n})


def prepare_gps(
    source: Any,
    *,
    person: str | None = None,
    time: str | None = None,
    lat: str | None = None,
    lon: str | None = None,
    gap: float = 180.0,
    dwell: float | None = 300.0,
    dwell_radius: float = 100.0,
    time_format: str | None = None,
    timezone: str | None = None,
    trip: str | None = None,
) -> Prepared:
    """Make trips from points.

    Args:
        source: a file or table of points, in any form `flowveil.read_trips` takes.
        person: column that says whose point it is; usual names are recognised.
        time: column of the time: timestamps, text, or Unix numbers.
        lat: column of the latitude.
        lon: column of the longitude.
        gap: seconds without a point after which a trip has ended.
        dwell: seconds within ``dwell_radius`` after which a trip has ended; None for gaps only.
        dwell_radius: metres.
        time_format: format of ``strptime`` for times that are not recognised; see `flowveil.reading.times`.
        timezone: local time for Unix times and times in UTC; without it their type is UTC.
        trip: column that says which trip of its person a point belongs to. Trips are then those that are marked, from
            their first point to their last, and no rule cuts them; points of no trip are left out.

    Returns:
        Trips with the columns of `TRIPS`, in the order of persons and times.

    Raises:
        ParameterError: a rule is out of its range, or the source is nothing that can be read.
        DataError: columns are missing, or no point can be used.
    """
    _check_rules(gap, dwell, dwell_radius)
    if trip is not None and (gap, dwell, dwell_radius) != (180.0, 300.0, 100.0):
        raise ParameterError("Trips that are marked (trip) are not cut: gap, dwell and dwell_radius do not apply.")
    with opened(source, time_format=time_format, timezone=timezone) as table:
        marked = {} if trip is None else {"trip": trip}
        columns = choose_columns(
            {"person": person, "time": time, "lat": lat, "lon": lon, **marked},
            {"person": PERSONS, "time": TIMES, "lat": LATITUDES, "lon": LONGITUDES},
            table.names,
            header=table.header,
        )
        table.select(
            {
                "person": table.text(columns["person"]),
                "us": table.microseconds(columns["time"]),
                "lat": table.number(columns["lat"]),
                "lon": table.number(columns["lon"]),
                **{role: table.text(columns[role]) for role in marked},
            }
        )
        if trip is not None:
            made = _as_marked(table.con)
        else:
            made = trips_of_points(table.con, gap=gap, dwell=dwell, dwell_radius=dwell_radius)
        return replace(made, trips=table.with_timezone(made.trips))


def trips_of_points(con: Any, *, gap: float, dwell: float | None, dwell_radius: float) -> Prepared:
    """Trips of the points in the table ``picked`` (person, us, lat, lon) of a database."""
    n, n_usable = _counted(con, _USABLE)
    # The same instant twice is one point: which of two places it was is decided by the numbers, not by row order.
    con.execute(
        "CREATE TABLE points AS SELECT person, us, min(lat) AS lat, arg_min(lon, (lat, lon)) AS lon "
        f"FROM picked WHERE {_USABLE} GROUP BY person, us"
    )
    step = round(gap * 1e6)
    if dwell is None:
        return _by_gaps(con, step, n, n_usable)
    points = fetch_table(con, "SELECT person, us, lat, lon FROM points ORDER BY person, us")
    person, names = _numbered(points.column("person"))
    us = points.column("us").to_numpy()
    lat, lon = points.column("lat").to_numpy(), points.column("lon").to_numpy()
    moving = ~stays(person, us, lat, lon, dwell=dwell, radius=dwell_radius)
    begins = np.ones(len(us), dtype=np.bool_)
    begins[1:] = (person[1:] != person[:-1]) | (us[1:] - us[:-1] > step)
    # The last point of a stay is where the next trip starts, its first point where the one before has ended: both
    # belong to their trips, the points between to none.
    stay = ~moving
    edge_out, edge_in = stay.copy(), stay.copy()
    edge_out[:-1] &= moving[1:] & ~begins[1:]
    edge_out[-1] = False
    edge_in[1:] &= moving[:-1] & ~begins[1:]
    edge_in[0] = False
    trips = _runs(moving, begins, edge_out, edge_in)
    return _prepared(trips, person, names, us, lat, lon, n=n, n_usable=n_usable)


def _counted(con: Any, usable: str) -> tuple[int, int]:
    """How many points there are in ``picked``, and how many can be used."""
    n, n_usable = con.execute(f"SELECT count(*), count(*) FILTER ({usable}) FROM picked").fetchall()[0]
    if n_usable == 0:
        raise DataError(
            f"No point can be used: of {n:,} points none has a person, a time and coordinates on the earth. "
            "Hint: name the columns with --person, --time, --lat and --lon."
        )
    return n, n_usable


def _as_marked(con: Any) -> Prepared:
    """Trips of the points in ``picked``, which has a column ``trip``: one for each person and mark.

    Of points at one instant, the numbers decide which is the first or the last, not the order of the rows.
    """
    usable = f"{_USABLE} AND trip IS NOT NULL"
    n, n_usable = _counted(con, usable)
    found = fetch_table(
        con,
        "SELECT person AS person_id, make_timestamp(min(us)) AS start_time, make_timestamp(max(us)) AS end_time, "
        "arg_min(lat, (us, lat, lon)) AS start_lat, arg_min(lon, (us, lat, lon)) AS start_lon, "
        "arg_max(lat, (us, lat, lon)) AS end_lat, arg_max(lon, (us, lat, lon)) AS end_lon, count(DISTINCT us) AS "
        f"points FROM picked WHERE {usable} GROUP BY person, trip ORDER BY person, start_time, end_time, trip",
    ).cast(TRIPS)
    several = found.column("points").to_numpy() > 1
    return Prepared(
        trips=found.filter(pa.array(several)),
        left_out={"points that cannot be used": n - n_usable, "trips of one point": int((~several).sum())},
    )


def _by_gaps(con: Any, step: int, n: int, n_usable: int) -> Prepared:
    found = fetch_table(
        con,
        f"WITH cut AS (SELECT *, coalesce(us - lag(us) OVER w > {step}, true) AS begins FROM points "
        "WINDOW w AS (PARTITION BY person ORDER BY us)), numbered AS (SELECT *, sum(begins::INT) OVER (PARTITION BY "
        "person ORDER BY us) AS trip FROM cut) SELECT person AS person_id, make_timestamp(min(us)) AS start_time, "
        "make_timestamp(max(us)) AS end_time, arg_min(lat, us) AS start_lat, arg_min(lon, us) AS start_lon, "
        "arg_max(lat, us) AS end_lat, arg_max(lon, us) AS end_lon, count(*) AS points FROM numbered "
        "GROUP BY person, trip ORDER BY person, start_time",
    ).cast(TRIPS)
    several = found.column("points").to_numpy() > 1
    return Prepared(
        trips=found.filter(pa.array(several)),
        left_out={"points that cannot be used": n - n_usable, "trips of one point": int((~several).sum())},
    )


def stays(
    person: NDArray[Any],
    us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    *,
    dwell: float,
    radius: float,
) -> NDArray[np.bool_]:
    """Which points belong to a stay, for points sorted by person and time.

    A point begins a stay when the first point of the same person at least ``dwell`` later is within the radius of it;
    all points from the one to the other are in it.
    """
    n = len(us)
    if n == 0:
        return np.zeros(0, dtype=np.bool_)
    reached = _first_at_least(person, us, us + np.int64(round(dwell * 1e6)))
    known = reached < n
    known[known] = person[reached[known]] == person[known]
    at = np.flatnonzero(known)
    close = _metres(lat[at], lon[at], lat[reached[at]], lon[reached[at]]) <= radius
    edges = np.zeros(n + 1, dtype=np.int64)
    np.add.at(edges, at[close], 1)
    np.add.at(edges, reached[at[close]] + 1, -1)
    inside: NDArray[np.bool_] = np.cumsum(edges[:-1]) > 0
    return inside


def _first_at_least(person: NDArray[Any], us: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each point, the first point not before a wanted time, counting persons one after the other.

    Points and wanted times are sorted together: how many points stand before a wanted time is where it would be
    inserted. A single number made of person and time would be faster to search and overflow with many persons.
    """
    n = len(us)
    is_point = np.repeat(np.array([True, False]), n)
    order = np.lexsort((is_point, np.concatenate((us, wanted)), np.concatenate((person, person))))
    before = np.cumsum(is_point[order])
    reached = np.zeros(n, dtype=np.int64)
    asked = ~is_point[order]
    reached[order[asked] - n] = before[asked]
    return reached


def _metres(
    lat0: NDArray[np.float64], lon0: NDArray[np.float64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distance on a sphere; a stay is so small that the flat formula is exact to centimetres."""
    turn = (lon - lon0 + 180.0) % 360.0 - 180.0
    x = np.radians(turn) * np.cos(np.radians(lat0))
    distance: NDArray[np.float64] = _EARTH_M * np.hypot(x, np.radians(lat - lat0))
    return distance


def _runs(
    moving: NDArray[np.bool_],
    begins: NDArray[np.bool_],
    edge_out: NDArray[np.bool_],
    edge_in: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last point of each run of moving points, the bordering points of stays included."""
    first = moving.copy()
    first[1:] &= ~moving[:-1] | begins[1:]
    last = moving.copy()
    last[:-1] &= ~moving[1:] | begins[1:]
    start, stop = np.flatnonzero(first), np.flatnonzero(last)
    start = start - ((start > 0) & edge_out[np.maximum(start - 1, 0)] & ~begins[start])
    after = np.minimum(stop + 1, len(moving) - 1)
    stop = stop + ((stop + 1 < len(moving)) & edge_in[after])
    return start, stop


def _prepared(
    trips: tuple[NDArray[np.int64], NDArray[np.int64]],
    person: NDArray[Any],
    names: pa.Array,
    us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    *,
    n: int,
    n_usable: int,
) -> Prepared:
    start, stop = trips
    several = stop > start
    a, b = start[several], stop[several]
    if np.any(person[a] != person[b]):
        raise DataError("A trip would join two persons. This is a defect; nothing was prepared.")
    columns = [
        names.take(pa.array(person[a])),
        pa.array(us[a], pa.timestamp("us")),
        pa.array(us[b], pa.timestamp("us")),
        lat[a],
        lon[a],
        lat[b],
        lon[b],
        b - a + 1,
    ]
    return Prepared(
        trips=pa.Table.from_arrays([pa.array(c) for c in columns], names=TRIPS.names).cast(TRIPS),
        left_out={"points that cannot be used": n - n_usable, "trips of one point": int((~several).sum())},
    )


def _numbered(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], pa.Array]:
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.cast(pa.string())


def _check_rules(gap: float, dwell: float | None, dwell_radius: float) -> None:
    for name, value in (("gap", gap), ("dwell", dwell), ("dwell_radius", dwell_radius)):
        if value is not None and not (np.isfinite(value) and value > 0):
            raise ParameterError(f"{name} must be above 0; found {value!r}.")


def choose_columns(
    wanted: Mapping[str, str | None],
    known: Mapping[str, Sequence[str]],
    names: Sequence[str],
    *,
    header: Callable[[], Header],
) -> dict[str, str]:
    """The columns that were named, and for the other roles those with a usual name.

    Raises:
        DataError: columns are missing; all are reported at once. Nothing of a first line of data is repeated.
    """
    by_key: dict[str, str] = {}
    for name in reversed(names):
        by_key[plain_name(name)] = name
    chosen: dict[str, str] = {}
    problems = []
    for role, given in wanted.items():
        if given:
            if given in names:
                chosen[role] = given
            else:
                problems.append(f"column '{given}' ({role}) is missing.{header().did_you_mean(given)}")
            continue
        found = next((by_key[key] for key in known[role] if key in by_key), None)
        if found is None:
            problems.append(f"no column for the {role} is recognised; usual names: {', '.join(known[role][:4])}")
        else:
            chosen[role] = found
    if problems:
        listed = "".join(f"\n- {p}" for p in problems)
        raise DataError(f"The table is not what is expected:{listed}\n{header().described()}")
    return chosen
