"""Trips in databases, and trips whose ends are geometries, are the flows of the same trips in a
file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import flowveil
from conftest import trip_table
from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from flowveil.request.database_address import database_address


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    return trip_table(200)


def same(one: flowveil.Flows, other: flowveil.Flows) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("origin", "destination", "trips", "weight")
    ) and np.array_equal(one.people.person, other.people.person)


def read(source: object, **more: object) -> flowveil.Flows:
    return flowveil.read_trips(source, resolution=8, weight="weight", **more)


def test_duckdb(trips, tmp_path):
    with duckdb.connect(str(tmp_path / "t.db")) as con:
        con.register("given", trips)
        con.execute("CREATE TABLE trips AS SELECT * FROM given")
    place = f"duckdb:{tmp_path / 't.db'}"
    assert same(read(f"{place}?table=trips"), read(trips))
    assert same(
        read(f"{place}?query=SELECT * FROM trips WHERE weight > 0 AND '=?&' <> ''"), read(trips)
    )
    with pytest.raises(DataError, match=r"table 'nothing' cannot be read from DuckDB"):
        read(f"{place}?table=nothing")
    with pytest.raises(DataError, match="query cannot be read"):
        read(f"{place}?query=SELECT * FROM read_text('/etc/passwd')")
    with pytest.raises(ParameterError, match=r"The DuckDB file .* does not exist"):
        read("duckdb:nowhere.db?table=trips")


def test_sqlite(trips, tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as con:
        con.execute(f"CREATE TABLE trips ({', '.join(trips.column_names)})")
        rows = list(zip(*trips.to_pydict().values(), strict=True))
        con.executemany(f"INSERT INTO trips VALUES ({', '.join('?' * trips.num_columns)})", rows)
    place = f"sqlite:{tmp_path / 't.db'}"
    assert same(read(f"{place}?table=trips"), read(trips))
    assert same(read(f"{place}?query=WITH t AS (SELECT * FROM trips) SELECT * FROM t"), read(trips))
    with pytest.raises(DataError, match="table 'nothing' cannot be read from SQLite"):
        read(f"{place}?table=nothing")


@pytest.mark.parametrize(
    "text", ["duckdb:f.db", "duckdb:?table=t", "sqlite:f.db?rows=t", "postgresql://?table=t"]
)
def test_an_incomplete_address_is_refused(text):
    with pytest.raises(ParameterError, match="needs a place and a table or a query"):
        database_address(text)


def test_an_address_never_holds_a_password():
    with pytest.raises(ParameterError, match="holds a password") as refused:
        read("postgresql://me:SECRET@host/db?table=trips")
    assert "SECRET" not in str(refused.value)
    with pytest.raises(ParameterError, match="must be a SELECT"):
        database_address("sqlite:f.db?query=DROP TABLE trips")
    assert database_address("s3://bucket/trips.parquet") is None
    assert (
        database_address("postgres://me@host/db?table=a.b").text
        == "postgresql://me@host/db?table=a.b"
    )


def test_damaged_sheets_and_archives_are_named(tmp_path):
    for name in ("t.xlsx", "t.zip"):
        (tmp_path / name).touch()
        with pytest.raises((DataError, ParameterError), match=name):
            read(tmp_path / name)


# ---- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres():
    """A separate server, reached through a socket in its folder.

    As another user where tests run as root.
    """
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL (initdb, pg_ctl) is not on this machine")
    pytest.importorskip("adbc_driver_postgresql")
    folder = Path(
        subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip()
    )
    as_user: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("PostgreSQL does not run as root, and setpriv is not on this machine")
        os.chown(folder, 65534, 65534)
        as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    run = {
        "check": True,
        "capture_output": True,
        "cwd": folder,
        "env": {**os.environ, "HOME": str(folder)},
    }
    (folder / "word").write_text("s3cr3t-pgx\n")
    os.chmod(folder / "word", 0o644)
    made = [
        "initdb",
        "-D",
        str(folder / "data"),
        "-U",
        "flow",
        "-A",
        "scram-sha-256",
        f"--pwfile={folder / 'word'}",
    ]
    try:
        subprocess.run([*as_user, *made, "--no-sync"], **run)
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        start = [
            "pg_ctl",
            "-D",
            str(folder / "data"),
            "-w",
            "-o",
            options,
            "-l",
            str(folder / "log"),
            "start",
        ]
        subprocess.run(
            [*as_user, *start], **{**run, "capture_output": False, "stdout": subprocess.DEVNULL}
        )
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"PostgreSQL cannot be started here (exit {problem.returncode})")
    yield f"postgresql://flow@/postgres?host={folder}", folder
    subprocess.run(
        [*as_user, "pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "stop"], **run
    )
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_postgresql(postgres, trips, monkeypatch, tmp_path):
    from adbc_driver_postgresql import dbapi

    place, folder = postgres
    monkeypatch.setenv("PGPASSWORD", "s3cr3t-pgx")
    with dbapi.connect(place) as con, con.cursor() as cursor:
        cursor.adbc_ingest("trips", trips, mode="create")
        cursor.execute(
            "ALTER TABLE trips ALTER COLUMN weight TYPE numeric USING weight::text::numeric"
        )
        con.commit()
    # Host and user come from the environment, like the password.
    monkeypatch.setenv("PGHOST", str(folder))
    monkeypatch.setenv("PGUSER", "flow")
    address = "postgresql:///postgres?table=public.trips"
    assert same(read(address), read(trips))
    assert same(read("postgresql:///postgres?query=SELECT * FROM trips"), read(trips))
    with pytest.raises(DataError, match="table 'nothing' cannot be read from PostgreSQL"):
        read("postgresql:///postgres?table=nothing")
    # A query cannot write: the transaction is for reading only.
    with pytest.raises(DataError):
        read(
            "postgresql:///postgres?query=WITH gone AS (DELETE FROM trips RETURNING *) SELECT *"
            " FROM gone"
        )
    monkeypatch.setenv("PGPASSWORD", "WRONG")
    with pytest.raises(DataError, match="cannot be opened") as refused:
        read(address)
    assert "WRONG" not in str(refused.value)
    # The usual password file serves as well, and nothing of it is in the release or the recipe.
    monkeypatch.delenv("PGPASSWORD")
    (tmp_path / "pgpass").write_text("*:*:*:*:s3cr3t-pgx\n")
    os.chmod(tmp_path / "pgpass", 0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    from flowveil.apps.cli import main

    words = [
        "--k",
        "5",
        "--resolution",
        "7",
        "--out",
        str(tmp_path / "r"),
        "--save-recipe",
        str(tmp_path / "r.toml"),
    ]
    main(["anonymize", address, *words, "--quiet"])
    main(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "again"), "--quiet"])
    written = [*(tmp_path / "r").iterdir(), tmp_path / "r.toml"]
    assert not any(b"s3cr3t-pgx" in path.read_bytes() for path in written)
    assert (tmp_path / "r" / "flows.parquet").read_bytes() == (
        tmp_path / "again" / "flows.parquet"
    ).read_bytes()


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(MissingExtraError, match=r"flowveil\[postgres\]"):
        read("postgresql://host/db?table=trips")


# ---- geometries ----------------------------------------------------------------------------------


@pytest.fixture
def points(trips):
    """A GeoDataFrame with a column of points for each end, in metres."""
    geopandas = pytest.importorskip("geopandas")
    frame = trips.to_pandas()
    made = {}
    for end in ("start", "end"):
        made[end] = geopandas.GeoSeries(
            geopandas.points_from_xy(frame.pop(f"{end}_lon"), frame.pop(f"{end}_lat")),
            crs="EPSG:4326",
        )
    return geopandas.GeoDataFrame(frame.assign(**made), geometry="start")


def near(one: flowveil.Flows, other: flowveil.Flows) -> bool:
    return np.array_equal(one.trips, other.trips) and np.array_equal(one.origin, other.origin)


def test_point_columns(points, trips):
    assert same(read(points), read(trips))
    renamed = points.rename(columns={"start": "home", "end": "work"}).set_geometry("home")
    assert same(read(renamed, origin="home", destination="work"), read(trips))
    moved = points.assign(
        start=points["start"].to_crs("EPSG:2154"), end=points["end"].to_crs("EPSG:2154")
    )
    assert near(read(moved), read(trips))


def test_geometries_with_both_ends(points, trips):
    import shapely

    pairs = np.stack(
        [shapely.get_coordinates(points[end].array) for end in ("start", "end")], axis=1
    )
    frame = points.drop(columns=["start", "end"])
    for made in (
        shapely.linestrings(pairs),
        np.array([shapely.MultiPoint(pair) for pair in pairs]),
    ):
        # As trackintel has trips: two points in one geometry.
        both = frame.assign(geom=points["start"].__class__(made, crs="EPSG:4326"))
        assert same(read(both), read(trips))
    wrong = np.array([shapely.MultiPoint(np.vstack([pair, pair + 1])) for pair in pairs])
    with pytest.raises(DataError, match="two points or a line"):
        read(frame.assign(geom=points["start"].__class__(wrong, crs="EPSG:4326")))


def test_trajectories_of_movingpandas(points, trips):
    kind = type("TrajectoryCollection", (), {"__module__": "movingpandas.trajectory_collection"})
    source = kind()
    source.trajectories = [
        SimpleNamespace(
            get_start_location=lambda row=row: row.start,
            get_end_location=lambda row=row: row.end,
            get_start_time=lambda: None,
            crs="EPSG:4326",
            obj_id=row.person_id,
        )
        for row in points.itertuples()
    ]
    assert near(flowveil.read_trips(source, resolution=8), flowveil.read_trips(trips, resolution=8))
