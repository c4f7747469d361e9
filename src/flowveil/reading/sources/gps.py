"""Trips from GPS points: cut at gaps and stays, or taken from a column that marks trips or occupied
vehicles.

Two rules end a trip. A gap: no point for longer than ``gap``. A stay: a point at least ``dwell``
later is within ``dwell_radius``. A trip goes from its first to its last point between two ends.
Both rules compare points of one person only, so points of different persons are never joined. Taxis
move all day: their trips need an occupied flag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.core.arrays import Floats
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.headers import plain_name
from flowveil.reading.database import fetch_table
from flowveil.reading.sources.tables import Prepared, SourceColumn, drop_rows, opened

#: Usual names of the columns, without case and separators.
PERSONS = (
    "person",
    "personid",
    "id",
    "uid",
    "userid",
    "user",
    "taxiid",
    "deviceid",
    "participantid",
    "cabid",
)
TIMES = (
    "time",
    "timestamp",
    "datetime",
    "localdatetime",
    "utcdatetime",
    "date",
    "ts",
    "recordedat",
)
LATITUDES = ("lat", "latitude", "y")
LONGITUDES = ("lon", "lng", "long", "longitude", "x")

#: The columns of the trips.
TRIPS = pa.schema(
    [("person_id", pa.string())]
    + [(name, pa.timestamp("us")) for name in ("start_time", "end_time")]
    + [(name, pa.float64()) for name in ("start_lat", "start_lon", "end_lat", "end_lon")]
    + [("points", pa.int64())]
)
#: Usual names of a flag that is set while a taxi has passengers, and its values.
OCCUPIED = ("occupied", "occupancy", "hired", "isoccupied", "passengeronboard")
_YES, _NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
#: If half of the trips take longer, in hours, points were not cut into trips.
_ALL_DAY_HOURS = 6.0
_EARTH_M = 6_371_008.8
#: SQL: the point has a person, a time and valid coordinates.
_USABLE = (
    "person IS NOT NULL AND us IS NOT NULL AND lat BETWEEN -90 AND 90 AND lon BETWEEN -180 AND 180 "
    "AND NOT (lat = 0 AND lon = 0)"
)
_NO_POINT = (
    "No point can be used: of {n} points none has a person, a time and coordinates on the earth. "
    "Hint: name the columns with --person, --time, --option lat=COLUMN and --option lon=COLUMN."
)


@dataclass(frozen=True)
class Rules:
    """How points are cut into trips.

    Or the column that marks trips, from their first to their last point.

    Points without a mark are dropped. Usual names of the column ``occupied`` are recognised; an
    empty text ignores it.
    """

    gap: float = 180.0  # seconds without a point after which a trip has ended
    dwell: float | None = (
        300.0  # seconds within ``dwell_radius`` after which a trip has ended; None for gaps only
    )
    dwell_radius: float = 100.0  # metres
    trip: str | None = None  # column that marks the trip of each point
    occupied: str | None = (
        None  # column that is 1 while a taxi has passengers; a trip is a run of such points
    )

    def __post_init__(self) -> None:
        for name in ("gap", "dwell", "dwell_radius"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value) and value > 0):
                raise ParameterError(f"{name} must be above 0; found {value!r}.")
        is_cut = (self.gap, self.dwell, self.dwell_radius) != (180.0, 300.0, 100.0)
        if (self.trip and self.occupied) or (is_cut and (self.trip or self.occupied)):
            raise ParameterError(
                "Trips that are marked (trip or occupied) are not cut: give one of the two, without"
                " gap, dwell and dwell_radius."
            )


def prepare_gps(
    source: Any,
    *,
    person: str | None = None,
    time: str | None = None,
    lat: str | None = None,
    lon: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    **rules: Any,
) -> Prepared:
    """Makes trips from points.

    Args:
        source: a file or table of points, in any form `flowveil.read_trips` takes.
        person, lat, lon: columns of the person and the place; usual names are recognised.
        time: column of the time: timestamps, text, or Unix numbers.
        time_format: format of ``strptime`` for times that are not recognised; see
            `flowveil.reading.times`.
        timezone: local time for Unix times and times in UTC; without it their type is UTC.
        **rules: see `Rules`.

    Returns:
        Trips with the columns of `TRIPS`, in the order of persons and times.

    Raises:
        ParameterError: a rule is out of range, or the source cannot be read.
        DataError: columns are missing, no point can be used, or trips take all day.
    """
    cut = Rules(**rules)
    with opened(source, time_format=time_format, timezone=timezone) as table:
        flag = cut.occupied
        if flag is None and cut == Rules():
            flag = next((name for name in table.table.names if plain_name(name) in OCCUPIED), None)
        marked = {role: name for role, name in (("trip", cut.trip), ("occupied", flag)) if name}
        table.pick(
            person=SourceColumn("text", "person", PERSONS, person),
            us=SourceColumn("time", "time", TIMES, time),
            lat=SourceColumn("number", "lat", LATITUDES, lat),
            lon=SourceColumn("number", "lon", LONGITUDES, lon),
            **{role: SourceColumn("text", role, named=name) for role, name in marked.items()},
        )
        if flag:
            _mark_occupied(table.con, flag)
        made = trips_of_points(table.con, cut, marked=bool(marked))
        if not marked:
            _refuse_all_day(made.trips)
        notes = (
            (*made.notes, f"Trips are runs of points with '{flag}' set.") if flag else made.notes
        )
        return replace(made, trips=table.with_timezone(made.trips), notes=notes)


def _mark_occupied(con: Any, flag: str) -> None:
    """Adds the column ``trip`` to ``picked``: a number for each run of occupied points, NULL for
    others.
    """
    other = con.execute(
        "SELECT count(*) FROM picked WHERE occupied IS NOT NULL AND lower(occupied) NOT IN"
        f" {(*_YES, *_NO)}"
    ).fetchall()[0][0]
    if other:
        raise DataError(
            f"{other:,} values in column '{flag}' are neither 0 nor 1. Hint: name a flag with"
            " --option occupied=COLUMN, or --option occupied= to ignore it."
        )
    con.execute(
        "CREATE OR REPLACE TABLE picked AS WITH flagged AS (SELECT *, coalesce(lower(occupied) IN"
        f" {_YES}, false) AS taken FROM picked), runs AS (SELECT *, sum(CASE WHEN taken THEN 0 ELSE"
        " 1 END) OVER (PARTITION BY person ORDER BY us, taken, lat, lon ROWS UNBOUNDED PRECEDING)"
        " AS run FROM flagged) SELECT * EXCLUDE (taken, run), CASE WHEN taken THEN run END AS trip"
        " FROM runs"
    )


def _refuse_all_day(trips: pa.Table) -> None:
    """Raises DataError if half of the trips take more than `_ALL_DAY_HOURS`.

    The points were not cut.
    """
    start, end = (
        trips.column(name).cast(pa.int64()).to_numpy() for name in ("start_time", "end_time")
    )
    if len(start) and float(np.median(end - start)) > _ALL_DAY_HOURS * 3600e6:
        raise DataError(
            f"Half of the trips take more than {_ALL_DAY_HOURS:.0f} hours, so these are vehicles"
            " that move all day. Hint: name a column that is 1 while there are passengers"
            " (--option occupied=COLUMN) or that marks trips (--option trip=COLUMN), or cut at"
            " shorter stops (--option dwell=60)."
        )


def trips_of_points(
    con: Any, rules: Rules, *, marked: bool = False, keep_one_point: bool = False
) -> Prepared:
    """Returns the trips of the points in the table ``picked`` (person, us, lat, lon.

    If marked, trip) of a database.
    """
    usable = f"{_USABLE} AND trip IS NOT NULL" if marked else _USABLE
    dropped = drop_rows(
        con, {"points that cannot be used": f"({usable}) IS NOT TRUE"}, none_left=_NO_POINT
    )
    if marked:
        trips = _ends_of_trips(con)
    else:
        # Of two points at the same instant the smaller coordinates count, whatever the order of the
        # rows.
        con.execute(
            "CREATE TABLE points AS SELECT person, us, min(lat) AS lat, arg_min(lon, (lat, lon)) AS"
            " lon FROM picked GROUP BY person, us"
        )
        trips = _cut_at_gaps_and_stays(con, rules)
    trips = trips.cast(TRIPS)
    several = trips.column("points").to_numpy() > 1
    n_single = int((~several).sum())
    if keep_one_point:
        notes = (
            f"{n_single:,} of {len(several):,} trips have one point: they end where they start.",
        )
        return Prepared(trips, dropped, notes if n_single else ())
    return Prepared(trips.filter(pa.array(several)), {**dropped, "trips of one point": n_single})


def _ends_of_trips(con: Any) -> pa.Table:
    """Returns the trips of the points in ``picked``, one for each person and mark.

    Of points at one instant, the coordinates decide which is the first or the last, not the order
    of the rows.
    """
    return fetch_table(
        con,
        "SELECT person AS person_id, make_timestamp(min(us)) AS start_time, make_timestamp(max(us))"
        " AS end_time, arg_min(lat, (us, lat, lon)) AS start_lat, arg_min(lon, (us, lat, lon)) AS"
        " start_lon, arg_max(lat, (us, lat, lon)) AS end_lat, arg_max(lon, (us, lat, lon)) AS"
        " end_lon, count(DISTINCT us) AS points FROM picked GROUP BY person, trip ORDER BY person,"
        " start_time, end_time, trip",
    )


def _cut_at_gaps_and_stays(con: Any, rules: Rules) -> pa.Table:
    points = fetch_table(
        con,
        "SELECT person, us, lat, lon, dense_rank() OVER (ORDER BY person) AS number FROM points"
        " ORDER BY person, us",
    )
    number, us, lat, lon = (
        points.column(name).to_numpy() for name in ("number", "us", "lat", "lon")
    )
    stay = np.zeros(len(us), dtype=np.bool_)
    if rules.dwell is not None:
        stay = stays(number, us, lat, lon, dwell=rules.dwell, radius=rules.dwell_radius)
    begins = np.ones(len(us), dtype=np.bool_)
    begins[1:] = (number[1:] != number[:-1]) | (us[1:] - us[:-1] > round(rules.gap * 1e6))
    a, b = _moving_runs(stay, begins)
    if np.any(number[a] != number[b]):
        raise DataError("A trip would join two persons. This is a defect; nothing was prepared.")
    times = (pa.array(us[at], pa.timestamp("us")) for at in (a, b))
    others = (pa.array(values) for values in (lat[a], lon[a], lat[b], lon[b], b - a + 1))
    persons = points.column("person").take(pa.array(a))
    return pa.Table.from_arrays([persons, *times, *others], names=TRIPS.names)


def stays(
    person: NDArray[Any],
    us: NDArray[np.int64],
    lat: Floats,
    lon: Floats,
    *,
    dwell: float,
    radius: float,
) -> NDArray[np.bool_]:
    """Returns which points belong to a stay, for points sorted by person and time.

    A point begins a stay when the first point of the same person at least ``dwell`` later is within
    the radius of it; all points from the one to the other belong to it.
    """
    n, wanted = len(us), us + np.int64(round(dwell * 1e6))
    # Points and wanted times are sorted together: the number of points before a wanted time is its
    # position.
    is_point = np.repeat(np.array([True, False]), n)
    order = np.lexsort((is_point, np.concatenate((us, wanted)), np.concatenate((person, person))))
    is_wanted = ~is_point[order]
    reached = np.zeros(n, dtype=np.int64)
    reached[order[is_wanted] - n] = np.cumsum(is_point[order])[is_wanted]
    known = reached < n
    known[known] = person[reached[known]] == person[known]
    at = np.flatnonzero(known)
    to = reached[at]
    # Distance by the flat formula, which is exact to centimetres within a stay.
    east = np.radians((lon[to] - lon[at] + 180.0) % 360.0 - 180.0) * np.cos(np.radians(lat[at]))
    close = _EARTH_M * np.hypot(east, np.radians(lat[to] - lat[at])) <= radius
    edges = np.zeros(n + 1, dtype=np.int64)
    np.add.at(edges, at[close], 1)
    np.add.at(edges, to[close] + 1, -1)
    inside: NDArray[np.bool_] = np.cumsum(edges[:-1]) > 0
    return inside


def _moving_runs(
    stay: NDArray[np.bool_], begins: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the first and last point of each run outside stays, with the end and start of the
    stays around it.

    ``begins`` marks points after a gap or of another person.
    """
    moving = ~stay
    first, last = moving.copy(), moving.copy()
    first[1:] &= stay[:-1] | begins[1:]
    last[:-1] &= stay[1:] | begins[1:]
    start, stop = np.flatnonzero(first), np.flatnonzero(last)
    # A run starts after a stay or a gap, so the point before it is moving only across a gap.
    start = start - ((start > 0) & stay[np.maximum(start - 1, 0)] & ~begins[start])
    after = np.minimum(stop + 1, len(stay) - 1)
    stop = stop + ((stop + 1 < len(stay)) & stay[after] & ~begins[after])
    return start, stop
