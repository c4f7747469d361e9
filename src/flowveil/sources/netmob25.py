"""The NetMob 2025 data set: one GNSS file a person, and a file of individuals with attributes and weights.

As in the ODkAnon report: only participants with a complete GNSS record are used, a trip has ended when there is no
point for three minutes, and every trip carries the weight of its person. Files are read by the names of their columns,
in any order and case; the person of a GNSS file is the file's name.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.engines.database import fetch_table, in_own_words, open_database
from flowveil.engines.slicing import microseconds_sql
from flowveil.errors import DataError, ParameterError
from flowveil.sources.gps import LATITUDES, LONGITUDES, Prepared, choose_columns, trips_of_points
from flowveil.sources.tables import opened

#: Seconds without a point after which a trip has ended.
GAP = 180.0

_INDIVIDUALS = {
    "id": ("id", "personid"),
    "recorded": ("gpsrecord", "gnssrecord"),
    "weight": ("weightindiv",),
    "sex": ("sex", "gender"),
    "age": ("age",),
    "profession": ("procat", "profession", "socioprofessionalcategory", "csp", "occupation"),
}
#: Time in one column, or else a date and a time of day; local before UTC, because slices are of local hours.
_TIMES = (
    ("localdatetime",), ("localdate", "localtime"), ("datetime",), ("timestamp",), ("utcdatetime",),
    ("utcdate", "utctime"), ("date", "time"), ("time",),
)  # fmt: skip
_YES = "('1', '1.0', 'true', 'yes', 'y', 'oui', 't')"


def prepare_netmob25(source: Any, *, individuals: Any = None, gap: float = GAP) -> Prepared:
    """Make trips from the data set.

    Args:
        source: the folder of the data set, or of its GNSS files.
        individuals: the file of individuals; by default the one file below the folder that has its columns.
        gap: seconds without a point after which a trip has ended.

    Returns:
        Trips with ``person_id``, ``sex``, ``age`` (in tens), ``profession``, ``weight``, ``start_time``, ``end_time``,
        ``start_lat``, ``start_lon``, ``end_lat``, ``end_lon``, ``points``.

    Raises:
        ParameterError: the source is no folder, or holds no individuals file.
        DataError: columns are missing, or no file belongs to a participant.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise ParameterError(
            f"'{folder.name}' is no folder. Hint: name the folder that the data set was unpacked into."
        )
    if gap <= 0:
        raise ParameterError(f"gap must be above 0; found {gap!r}.")
    tables = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".csv", ".txt"))
    people_file = Path(individuals) if individuals is not None else _find_individuals(tables)
    people, n_without = _individuals(people_file)
    ids = set(people.column("person").to_pylist())
    files = [p for p in tables if p.stem in ids and p.resolve() != people_file.resolve()]
    unknown = sum(1 for p in tables if p.stem not in ids and p.resolve() != people_file.resolve())
    if not files:
        raise DataError(
            f"None of {len(tables):,} files is the GNSS file of a participant with a record: they are named after the "
            "ID of the individuals file. Hint: name the folder that holds both."
        )
    with open_database(None) as con, in_own_words("the GNSS files"):
        _load_points(con, files)
        found = trips_of_points(con, gap=gap, dwell=None, dwell_radius=1.0)
        con.register("flowveil_people", people)
        con.register("flowveil_trips", found.trips)
        trips = fetch_table(
            con,
            "SELECT person_id, sex, age, profession, weight, start_time, end_time, start_lat, start_lon, end_lat, "
            "end_lon, points FROM flowveil_trips JOIN flowveil_people ON person_id = person "
            "ORDER BY person_id, start_time",
        )
    left_out = {
        **found.left_out,
        "participants without a complete record": n_without,
        "participants without a GNSS file": len(ids) - len(files),
        "files of no participant with a record": unknown,
    }
    return Prepared(trips=trips, left_out={reason: n for reason, n in left_out.items() if n})


def _find_individuals(tables: list[Path]) -> Path:
    wanted = {"id", "weightindiv"}
    found = [path for path in tables if wanted <= {_key(name) for name in _header(path)}]
    if len(found) != 1:
        raise ParameterError(
            f"{len(found)} files below the folder have the columns ID and WEIGHT_INDIV; exactly one is expected. "
            "Hint: name it with --individuals."
        )
    return found[0]


def _individuals(path: Path) -> tuple[pa.Table, int]:
    """The participants with a complete record, and how many have none."""
    with opened(path) as table:
        columns = choose_columns(dict.fromkeys(_INDIVIDUALS), _INDIVIDUALS, table.names)
        table.select(
            {
                "person": table.text(columns["id"]),
                "recorded": table.text(columns["recorded"]),
                "weight": table.number(columns["weight"]),
                "sex": table.text(columns["sex"]),
                "age": table.text(columns["age"]),
                "profession": table.text(columns["profession"]),
            }
        )
        con = table.con
        yes = f"lower(recorded) IN {_YES}"
        without, twice = con.execute(
            f"SELECT count(*) FILTER (NOT coalesce({yes}, false)), count(*) - count(DISTINCT person) FROM picked"
        ).fetchall()[0]
        if twice:
            raise DataError(f"{twice} individuals stand twice; every ID must be there once.")
        years = "TRY_CAST(age AS DOUBLE)"
        tens = f"CAST(10 * CAST(floor({years} / 10) AS INTEGER) AS VARCHAR)"
        last = f"CAST(10 * CAST(floor({years} / 10) AS INTEGER) + 9 AS VARCHAR)"
        group = f"CASE WHEN {years} IS NULL THEN age WHEN {years} >= 70 THEN '70+' ELSE {tens} || '-' || {last} END"
        people = fetch_table(
            con,
            f"SELECT person, weight, sex, {group} AS age, profession FROM picked WHERE {yes} AND person IS NOT NULL "
            "ORDER BY person",
        )
    return people, without


def _load_points(con: Any, files: list[Path]) -> None:
    """All GNSS files as the table ``picked`` (person, us, lat, lon)."""
    names = _header(files[0])
    place = choose_columns({"lat": None, "lon": None}, {"lat": LATITUDES, "lon": LONGITUDES}, names)
    by_key = {_key(name): name for name in reversed(names)}
    time = next((parts for parts in _TIMES if all(part in by_key for part in parts)), None)
    if time is None:
        raise DataError(
            "No column for the time of a point is recognised; usual names: LOCAL DATETIME, LOCAL DATE with LOCAL TIME, "
            f"UTC DATETIME. The first GNSS file has {', '.join(map(repr, names))}."
        )
    text = " || ' ' || ".join(_quoted(by_key[part]) for part in time)
    valid = (
        f" WHERE lower(coalesce({_quoted(by_key['valid'])}, '')) NOT IN ('no fix', '0', 'false')"
        if "valid" in by_key
        else ""
    )
    con.execute(
        f"CREATE TABLE located AS SELECT parse_filename(filename, true) AS person, {text} AS moment, "
        f"TRY_CAST({_quoted(place['lat'])} AS DOUBLE) AS lat, TRY_CAST({_quoted(place['lon'])} AS DOUBLE) AS lon "
        f"FROM read_csv(?, header = true, all_varchar = true, union_by_name = true, filename = true){valid}",
        [[str(path) for path in files]],
    )
    moment = microseconds_sql("moment", "VARCHAR", missing="''")
    con.execute(f"CREATE TABLE picked AS SELECT person, {moment} AS us, lat, lon FROM located")


def _header(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        line = file.readline()
    delimiter = max(",;\t|", key=line.count)
    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]


def _key(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
