"""Hostile maps are refused with a reason, below 1 GB and 10 s each."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from flowveil.zoning import map_limits
from flowveil.zoning.map_limits import check_outlines

pyogrio = pytest.importorskip("pyogrio")

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
SQUARE = shapely.box(2, 48, 2.1, 48.1)


def geopackage(path: Path, *statements: str) -> None:
    """A sound map, to which statements of an attacker are applied."""
    outlines = shapely.to_wkb(np.array([SQUARE, shapely.box(2.1, 48, 2.2, 48.1)]))
    fields = [np.array(["a", "b"], dtype=object)]
    pyogrio.raw.write(
        path,
        outlines,
        fields,
        fields=["code"],
        geometry_type="Polygon",
        crs="EPSG:4326",
        driver="GPKG",
        layer="zones",
    )
    with sqlite3.connect(path) as database:
        for name in ("ST_IsEmpty", "ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
            database.create_function(name, 1, lambda _: 0.0)
        for statement in statements:
            database.execute(statement)
    database.close()


def endless_view(path: Path) -> None:
    geopackage(
        path,
        "ALTER TABLE zones RENAME TO old",
        f"CREATE VIEW zones AS {ENDLESS} SELECT i AS fid, geom, code FROM old, n",
    )


def hidden_view(path: Path) -> None:
    """The schema says that the view is a table."""
    endless_view(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET type = 'table' WHERE name = 'zones'")


def computed_column(path: Path) -> None:
    geopackage(path, "ALTER TABLE zones ADD COLUMN big BLOB AS (zeroblob(1000000000))")


def large_blobs(path: Path) -> None:
    """Five kilobytes of default, for rows that have no value."""
    filler = "x" * 5000
    geopackage(
        path,
        "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
        "INSERT INTO zones (fid, code) SELECT i, i FROM n",
        f"ALTER TABLE zones ADD COLUMN big TEXT DEFAULT '{filler}'",
    )


def in_a_zip(path: Path) -> None:
    inner = path.with_suffix(".gpkg")
    inner.unlink(missing_ok=True)
    endless_view(inner)
    with zipfile.ZipFile(path, "w") as packed:
        packed.write(inner, "map.shp")
    inner.unlink()


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("map.shp", b"\0\0\x27\x0a" + bytes(100))
        with packed.open("map.dbf", "w", force_zip64=True) as file:
            for _ in range(300):
                file.write(bytes(1 << 20))


def crossing_itself(path: Path) -> None:
    """About 170 kB that take gigabytes to repair."""
    corners = np.random.default_rng(0).random((10_500, 2)).round(6)
    outline = shapely.polygons(corners)
    path.write_text(
        '{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"code":"a"},"geometry":'
        f"{shapely.to_geojson(outline)}}}]}}",
        "utf-8",
    )


def nested(path: Path) -> None:
    """Collections in collections, which end GEOS."""
    wkb = struct.pack("<BII", 1, 7, 1) * 200_000 + struct.pack("<BIdd", 1, 1, 0.0, 0.0)
    geo = b'{"primary_column":"geometry","columns":{"geometry":{"encoding":"WKB"}}}'
    table = pa.table(
        {"code": ["a"], "geometry": pa.array([wkb], pa.binary())}
    ).replace_schema_metadata({"geo": geo})
    pq.write_table(table, path)


def many_columns(path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(2_000))
    path.write_text(names + "\n" + (",".join(["1"] * 2_000) + "\n") * 20_000, "utf-8")


def some_columns(path: Path) -> None:
    """As many as are allowed, over many rows: what the first line is must not be asked of all of
    them."""
    names = ",".join(f"c{i}" for i in range(999))
    path.write_text(names + "\n" + (",".join(["x"] * 999) + "\n") * 30_000, "utf-8")


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "endless.gpkg": (endless_view, "has views"),
    "hidden.gpkg": (hidden_view, "cannot be read"),
    "computed.gpkg": (computed_column, "computed columns"),
    "blobs.gpkg": (large_blobs, "more than 256 MB"),
    "packed.zip": (in_a_zip, "not what its name says"),
    "bomb.zip": (zip_bomb, "more than 256 MB"),
    "crossing.geojson": (crossing_itself, "cross themselves"),
    "nested.parquet": (nested, "neither polygons nor points"),
    "columns.csv": (many_columns, "2,000 columns; a map may have 1,000"),
    "wide.csv": (some_columns, ""),
}
READ = """
import json, sys, time
from pathlib import Path
from flowveil.core.errors import FlowveilError
from flowveil.zoning.files import read_zones
for path in sorted(Path(sys.argv[1]).iterdir()):
    began = time.process_time()
    try:
        read_zones(path)
    except FlowveilError as problem:
        message = str(problem)
    print(json.dumps([path.name, message, time.process_time() - began]), flush=True)
# Not ru_maxrss, which a process inherits from the one that starts it.
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures the memory of a process")
def test_hostile_maps_are_refused_quickly(tmp_path):
    """All in one process, because its start takes longer than reading them."""
    for name, (make, _) in HOSTILE.items():
        make(tmp_path / name)
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    *lines, memory = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0, done.stderr
    assert {name for name, _, _ in lines} == set(HOSTILE)
    for name, message, seconds in lines:
        assert HOSTILE[name][1] in message, (name, message)
        assert f"'{name}'" in message or not HOSTILE[name][1]
        assert seconds < 10, name
    assert memory * 1024 < 10**9


def test_sound_geopackages_are_read(tmp_path):
    from flowveil.zoning.files import read_zones

    geopackage(tmp_path / "map.gpkg")
    assert read_zones(tmp_path / "map.gpkg").tile_codes.tolist() == ["a", "b"]


def test_outlines_with_few_faults_pass(monkeypatch):
    """A bow tie, and a long coast that crosses itself once."""
    angle = np.linspace(0, 2 * np.pi, 5_000, endpoint=False)
    radius = 1 + 0.01 * np.random.default_rng(1).random(len(angle))
    coast = np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))
    coast[[10, 12]] = coast[[12, 10]]
    bow_tie = shapely.polygons([(0, 0), (1, 1), (1, 0), (0, 1)])
    check_outlines(
        np.array([bow_tie, shapely.polygons(coast), None, SQUARE], dtype=object), "The map"
    )
    monkeypatch.setattr(map_limits, "MOST_CORNERS_OF_ONE", 4_999)
    with pytest.raises(map_limits.DataError, match=r"5,0\d\d in one"):
        check_outlines(np.array([shapely.polygons(coast)], dtype=object), "The map")
