"""The NetMob 2025 data set: one GNSS file for each person, and a file of individuals with
attributes and weights.

As in the ODkAnon report: participants with a complete GNSS record, a trip ends after three minutes
without a point, and every trip carries the weight of its person. Columns are found by name, in any
order and case; a GNSS file has the name of its person. Gaps are measured in UTC, so that the change
of the clocks neither joins nor cuts trips.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.errors import DataError, ParameterError
from flowveil.core.headers import Header, plain_name
from flowveil.reading.database import fetch_table, in_own_words, open_database
from flowveil.reading.sources.gps import LATITUDES, LONGITUDES, Rules, trips_of_points
from flowveil.reading.sources.tables import Prepared, SourceColumn, choose_columns, opened
from flowveil.reading.sql import csv_sql, literal_path, number_sql
from flowveil.reading.times import MICROSECONDS, decide
from flowveil.system.paths import named_path

_INDIVIDUALS = {
    role: SourceColumn("number" if role == "weight" else "text", role, usual)
    for role, usual in (
        ("id", ("id", "personid")),
        ("recorded", ("gpsrecord", "gnssrecord")),
        ("weight", ("weightindiv",)),
        ("sex", ("sex", "gender")),
        ("age", ("age",)),
        ("profession", ("procat", "profession", "socioprofessionalcategory", "csp", "occupation")),
    )
}
#: What the weights distinguish in addition to sex, age and profession, by usual names.
_PROFILE = {
    "department": ("department", "departement", "dep", "codedep", "departmentofresidence"),
    "cars": ("cars", "nbcar", "nbcars", "numberofcars", "carshousehold"),
    "household": ("household", "householdsize", "nbpershouse", "nbpershousehold", "sizehousehold"),
    "diploma": ("diploma", "diplome", "highestdiploma"),
}
#: The age groups of the weights, by first and last age.
_WEIGHT_AGES = ((16, 25), (26, 45), (46, 65), (66, 80))
#: Columns of the time, in UTC and local: one column, or a date and a time of day. UTC is preferred.
_UTC_TIMES = (("utcdatetime",), ("utcdate", "utctime"))
_LOCAL_TIMES = (
    ("localdatetime",),
    ("localdate", "localtime"),
    ("datetime",),
    ("timestamp",),
    ("date", "time"),
    ("time",),
)
#: The zone of the survey: published times are local.
_ZONE = "Europe/Paris"
_YES = "('1', '1.0', 'true', 'yes', 'y', 'oui', 't')"


def prepare_netmob25(
    source: Any, *, individuals: Any = None, gap: float = Rules.gap, keep_one_point: bool = False
) -> Prepared:
    """Makes trips from the data set.

    Args:
        source: the folder of the data set, or of its GNSS files.
        individuals: the file of individuals; by default the one file below the folder that has its
            columns.
        gap: seconds without a point after which a trip has ended.
        keep_one_point: keep trips of a single point, which end where they start; by default they
            are dropped.

    Returns:
        Trips with ``person_id``, ``sex``, ``age`` (in tens), ``age_group`` (as the weights have
        it), ``profession``, ``department``, ``cars``, ``household`` and ``diploma`` where the file
        of individuals has them, ``weight``,
        ``start_time``, ``end_time`` (local), ``start_lat``, ``start_lon``, ``end_lat``,
        ``end_lon``, ``points``.

    Raises:
        ParameterError: the source is not a folder, or holds no individuals file.
        DataError: columns are missing, no file belongs to a participant, or no GNSS file can be
            read.
    """
    folder = named_path(source, what="the data set")
    if not folder.is_dir():
        raise ParameterError(
            f"'{folder.name}' is not a folder. Hint: name the folder that the data set was unpacked"
            " into."
        )
    rules = Rules(gap=gap, dwell=None)
    tables = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".csv", ".txt"))
    named = None if individuals is None else named_path(individuals, what="the individuals")
    people_file = named or _find_individuals(tables)
    people, n_without = _individuals(people_file)
    ids = set(people.column("person").to_pylist())
    others = [p for p in tables if p.resolve() != people_file.resolve()]
    files = [p for p in others if p.stem in ids]
    if not files:
        raise DataError(
            f"None of {len(tables):,} files is the GNSS file of a participant with a record: they"
            " are named after the ID of the individuals file. Hint: name the folder that holds"
            " both."
        )
    with open_database(None) as con, in_own_words("the GNSS files"):
        unread = _load_points(con, files)
        prepared = trips_of_points(con, rules, keep_one_point=keep_one_point)
        located = {
            person for (person,) in con.execute("SELECT DISTINCT person FROM points").fetchall()
        }
        trips = _join_people(con, prepared.trips, people)
    recorded = {p.stem for p in files}
    dropped = {
        **prepared.dropped,
        "participants without a complete record": n_without,
        "participants without a GNSS file": len(ids) - len(recorded),
        "GNSS files that cannot be read": len(unread),
        "participants without a point that can be used": len(
            recorded - located - {p.stem for p in unread}
        ),
        "files of no participant with a record": len(others) - len(files),
    }
    return Prepared(trips, dropped, (*prepared.notes, *_notes(people, trips)))


def _join_people(con: Any, trips: pa.Table, people: pa.Table) -> pa.Table:
    """Adds the attributes of persons to their trips; times in UTC become local."""
    con.register("flowveil_people", people)
    con.register("flowveil_trips", trips)
    local = ", ".join(
        f"CASE WHEN utc THEN timezone('{_ZONE}', timezone('UTC', {name})) ELSE {name} END AS {name}"
        for name in ("start_time", "end_time")
    )
    attributes = [name for name in people.column_names if name not in ("person", "weight")]
    return fetch_table(
        con,
        f"SELECT person_id, {', '.join(attributes)}, weight, {local}, start_lat, start_lon,"
        " end_lat, end_lon, points FROM flowveil_trips JOIN flowveil_people ON person_id = person"
        " JOIN (SELECT person, bool_or(utc) AS utc FROM located GROUP BY person) USING (person)"
        " ORDER BY person_id, flowveil_trips.start_time",
    )


def _notes(people: pa.Table, trips: pa.Table) -> tuple[str, ...]:
    """Returns the represented population as the papers define it.

    The sum of weights over persons, not over trips.
    """
    travelling = pc.is_in(people["person"], value_set=pc.unique(trips["person_id"]))
    n, total = (
        pc.sum(travelling).as_py() or 0,
        pc.sum(people["weight"].filter(travelling)).as_py() or 0.0,
    )
    return (f"{n:,} participants with trips represent {total:,.0f} people (sum of their weights).",)


def _find_individuals(tables: list[Path]) -> Path:
    wanted = {"id", "weightindiv"}
    found = [
        path for path in tables if wanted <= {plain_name(name) for name in _first_line(path)[1]}
    ]
    if len(found) != 1:
        raise ParameterError(
            f"{len(found)} files below the folder have the columns ID and WEIGHT_INDIV; exactly one"
            " is expected. Hint: name it with --individuals."
        )
    return found[0]


def _individuals(path: Path) -> tuple[pa.Table, int]:
    """Returns the participants with a complete record, and the number of those without one."""
    with opened(path) as table:
        present = {plain_name(name) for name in table.header.names}
        profile = {
            role: SourceColumn("text", role, usual)
            for role, usual in _PROFILE.items()
            if present & set(usual)
        }
        table.pick(**_INDIVIDUALS, **profile)
        con = table.con
        yes = f"lower(recorded) IN {_YES}"
        without, twice = con.execute(
            f"SELECT count(*) FILTER (NOT coalesce({yes}, false)), count(*) - count(DISTINCT id)"
            " FROM picked"
        ).fetchall()[0]
        if twice:
            raise DataError(
                f"{twice} rows are duplicates of an individual; every ID must be there once."
            )
        years = "TRY_CAST(age AS DOUBLE)"
        tens = f"10 * CAST(floor({years} / 10) AS INTEGER)"
        group = (
            f"WHEN {years} IS NULL THEN age WHEN {years} >= 70 THEN '70+' ELSE ({tens}) || '-' ||"
            f" ({tens} + 9)"
        )
        groups = " ".join(
            f"WHEN {years} >= {first} AND {years} < {last + 1} THEN '{first}-{last}'"
            for first, last in _WEIGHT_AGES
        )
        more = "".join(f", {role}" for role in profile)
        people = fetch_table(
            con,
            f"SELECT id AS person, weight, sex, CASE {group} END AS age, CASE {groups} END AS"
            f" age_group, profession{more} FROM picked WHERE {yes} AND id IS NOT NULL ORDER BY id",
        )
    return people, without


def _load_points(con: Any, files: list[Path]) -> list[Path]:
    """Reads all GNSS files into the table ``picked`` (person, us, lat, lon).

    Returns those that cannot be read.

    Files with the same header are read together and with fixed options: guessing per file would
    read a damaged one as a table of one column. Files are named after their persons, so messages
    may count them, not name them.
    """
    by_header: dict[tuple[str, tuple[str, ...]], list[Path]] = {}
    for path in files:
        delimiter, names = _first_line(path)
        by_header.setdefault((delimiter, tuple(names)), []).append(path)
    con.execute(
        "CREATE TABLE located (person VARCHAR, moment VARCHAR, utc BOOLEAN, lat DOUBLE, lon DOUBLE)"
    )
    unread: list[Path] = []
    first_problem: DataError | None = None
    for header, group in by_header.items():
        try:
            sql = _points_sql(*header)
        except DataError as problem:
            first_problem = first_problem or problem
            unread += group
            continue
        unread += _insert(con, sql, group)
    if len(unread) == len(files):
        raise first_problem or DataError(
            f"None of {len(files):,} GNSS files can be read as a table. Every line needs as many"
            " columns as the first, quotes that are closed, and text in UTF-8. Hint: are the files"
            " complete, and saved as UTF-8?"
        )
    times = decide(con, "located", "moment", "VARCHAR")
    times.refuse("moment")
    con.execute(
        f"CREATE TABLE picked AS SELECT person, {MICROSECONDS} AS us, lat, lon FROM"
        f" {times.over('located')}"
    )
    return unread


def _points_sql(delimiter: str, names: Sequence[str]) -> str:
    """Returns a query for the points of files with this header; their paths are its parameter."""
    header = Header(names)
    place = choose_columns(
        (SourceColumn("number", "lat", LATITUDES), SourceColumn("number", "lon", LONGITUDES)),
        header,
    )
    at = {plain_name(name): f"c{i}" for i, name in reversed(list(enumerate(names)))}
    time = next(
        (parts for parts in (*_UTC_TIMES, *_LOCAL_TIMES) if all(part in at for part in parts)), None
    )
    if time is None:
        raise DataError(
            "No column for the time of a point is recognised; usual names: UTC DATETIME, UTC DATE"
            f" with UTC TIME, LOCAL DATETIME. {header.described()}"
        )
    moment = " || ' ' || ".join(at[part] for part in time)
    lat, lon = (number_sql(at[plain_name(place[role])]) for role in ("lat", "lon"))
    files = csv_sql("?", delimiter=delimiter, columns=len(names), more=", filename = true")
    return (
        f"SELECT parse_filename(filename, true) AS person, {moment} AS moment, {time in _UTC_TIMES}"
        f" AS utc, {lat} AS lat, {lon} AS lon FROM {files} WHERE"
        f" lower(coalesce({at.get('valid', 'NULL')}, '')) NOT IN ('no fix', '0', 'false')"
    )


def _insert(con: Any, sql: str, files: list[Path]) -> list[Path]:
    """Adds the points of these files to ``located``, by halves if that fails.

    Returns the files that cannot be read.
    """
    try:
        con.execute(f"INSERT INTO located {sql}", [[literal_path(path) for path in files]])
    except duckdb.InvalidInputException:
        if len(files) == 1:
            return files
        half = len(files) // 2
        return _insert(con, sql, files[:half]) + _insert(con, sql, files[half:])
    return []


def _first_line(path: Path) -> tuple[str, list[str]]:
    """Returns the delimiter of a file, and the names in its first line."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline()
    delimiter = max(",;\t|", key=line.count)
    return delimiter, [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
