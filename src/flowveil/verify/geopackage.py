"""The GeoPackage that the two tables of a release make, and what another file has that it has not.

The file is built here from the published tables, apart from the writer. A file to be compared is opened read-only, with
nothing in it trusted: its list of objects must be the expected one word for word before a table is read, so there is no
view, trigger, virtual table or index to run; an authorizer admits reading alone, and a clock ends what takes too long.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

#: Longer than any release takes; the file is at most a few times as large as the tables.
_SECONDS = 60.0
_STEPS_BETWEEN_LOOKS = 10_000
_LONGEST_VALUE = 1 << 28
_ABOUT = ("title", "source", "period", "licence", "contact")
_TYPES = {"string": "TEXT", "int32": "MEDIUMINT", "int64": "INTEGER", "double": "DOUBLE"}
_WGS84 = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],'
    'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST],'
    'AUTHORITY["EPSG","4326"]]'
)
_OF_THE_STANDARD = {
    "gpkg_spatial_ref_sys": "srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL, "
    "organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT",
    "gpkg_contents": "table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE, "
    "description TEXT DEFAULT '', last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')), "
    "min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER, "
    "CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id)",
    "gpkg_geometry_columns": "table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, "
    "srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL, "
    "CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name), CONSTRAINT uk_gc_table_name UNIQUE (table_name), "
    "CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name), "
    "CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id)",
}
_SYSTEMS = [
    ("Undefined Cartesian SRS", -1, "NONE", -1, "undefined", "undefined Cartesian coordinate reference system"),
    ("Undefined geographic SRS", 0, "NONE", 0, "undefined", "undefined geographic coordinate reference system"),
    ("WGS 84 geodetic", 4326, "EPSG", 4326, _WGS84, "longitude/latitude coordinates in decimal degrees on WGS 84"),
]


def expected_geopackage(flows: Any, zones: Any, about: Mapping[str, str]) -> bytes:
    """The bytes of the GeoPackage of two tables, and of what the report says that the release is about.

    SQLite lays the same rows out alike in every version.
    """
    lines = _lines(flows, zones)
    layers = (
        ("zones", "MULTIPOLYGON", _flat(zones).drop_columns(["geometry"]), _outlines(zones)),
        ("flows", _kind_of(lines), flows, lines),
    )
    said = ". ".join(f"{name.title()}: {about[name]}" for name in _ABOUT if name in about)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        base.execute("PRAGMA page_size = 4096")
        base.execute("PRAGMA encoding = 'UTF-8'")
        base.execute(f"PRAGMA application_id = {int.from_bytes(b'GPKG', 'big')}")
        base.execute("PRAGMA user_version = 10300")
        base.execute("BEGIN")
        for name, columns in _OF_THE_STANDARD.items():
            base.execute(f"CREATE TABLE {name} ({columns})")
        _insert(base, "gpkg_spatial_ref_sys", _SYSTEMS)
        for name, kind, table, shapes in layers:
            typed = ", ".join(f'"{_doubled(f.name)}" {_TYPES[str(f.type)]}' for f in table.schema)
            base.execute(f"CREATE TABLE {name} (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, geom {kind}, {typed})")
            time_of_none = "1970-01-01T00:00:00.000Z"
            _insert(base, "gpkg_contents", [(name, "features", name, said, time_of_none, *_extent(shapes), 4326)])
            _insert(base, "gpkg_geometry_columns", [(name, "geom", kind, 4326, 0, 0)])
            values = [table[column].to_pylist() for column in table.column_names]
            numbers = range(1, len(table) + 1)
            _insert(base, name, list(zip(numbers, map(_blob, shapes), *values, strict=True)))
        base.execute("COMMIT")
        return base.serialize()


def _flat(zones: Any) -> Any:
    """Zones whose lists of cells are texts, with blanks between: SQLite knows no lists."""
    import pyarrow as pa

    if "h3_cells" not in zones.column_names:
        return zones
    texts = pa.array([" ".join(cells) for cells in zones["h3_cells"].to_pylist()], pa.string())
    return zones.set_column(zones.schema.get_field_index("h3_cells"), "h3_cells", texts)


def _insert(base: sqlite3.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _doubled(name: str) -> str:
    return name.replace('"', '""')


def _outlines(zones: Any) -> list[Any]:
    import shapely

    shapes = shapely.from_wkb(np.array(zones["geometry"].to_pylist(), dtype=object))
    return [shapely.multipolygons([s]) if s is not None and s.geom_type == "Polygon" else s for s in shapes]


def _lines(flows: Any, zones: Any) -> list[Any]:
    import shapely

    center: dict[tuple[str, str], tuple[float, float]] = {}
    for zone, role, lon, lat in zip(*(zones[c].to_pylist() for c in ("zone", "role", "lon", "lat")), strict=True):
        for end in ("origin", "destination") if role == "both" else (role,):
            center[end, zone] = (lon, lat)
    ends = zip(flows["origin_zone"].to_pylist(), flows["destination_zone"].to_pylist(), strict=True)
    pairs = [(center["origin", o], center["destination", d]) for o, d in ends]
    drawn = [None if None in (*start, *stop) else cut_at_date_line(start, stop) for start, stop in pairs]
    if not any(parts is not None and len(parts) > 1 for parts in drawn):
        return [None if parts is None else shapely.LineString(parts[0]) for parts in drawn]
    return [None if parts is None else shapely.MultiLineString(parts) for parts in drawn]


def _kind_of(lines: list[Any]) -> str:
    return next((shape.geom_type.upper() for shape in lines if shape is not None), "LINESTRING")


def cut_at_date_line(start: Sequence[float], stop: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The straight line between two points, or its two parts on both sides of the 180th meridian."""
    (x, y), (to_x, to_y) = start, stop
    if abs(to_x - x) <= 180:
        return [[(x, y), (to_x, to_y)]]
    if 180 in (abs(x), abs(to_x)):
        return [[(-x if abs(x) == 180 else x, y), (-to_x if abs(to_x) == 180 else to_x, to_y)]]
    edge = 180.0 if x > 0 else -180.0
    at = y + (to_y - y) * (edge - x) / (to_x + 2 * edge - x)
    return [[(x, y), (edge, at)], [(-edge, at), (to_x, to_y)]]


def _extent(shapes: list[Any]) -> list[float | None]:
    import shapely

    return [None if np.isnan(edge) else float(edge) for edge in shapely.total_bounds(np.array(shapes, dtype=object))]


def _blob(shape: Any) -> bytes | None:
    import shapely

    if shape is None:
        return None
    left, bottom, right, top = shape.bounds if not shape.is_empty else (np.nan,) * 4
    head = struct.pack("<2sBBi4d", b"GP", 0, 3, 4326, left, right, bottom, top)
    wkb: bytes = shapely.to_wkb(shape, output_dimension=2, byte_order=1)
    return head + wkb


# ---- another file ------------------------------------------------------------------------------------------------


def differences(path: Path, expected: bytes) -> Iterator[str]:
    """What a file has that the expected one has not, or the other way round; objects and rows, not bytes."""
    with closing(sqlite3.connect(":memory:")) as ours, closing(_closed_in(path)) as theirs:
        ours.deserialize(expected)
        listed = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
        objects = ours.execute(listed).fetchall()
        if theirs.execute(listed).fetchmany(len(objects) + 1) != objects:
            yield "has other tables, views, indexes or triggers than a release"
            return
        for name in [name for kind, name, _, _ in objects if kind == "table"]:
            rows = f"SELECT * FROM {name} ORDER BY rowid"
            wanted = ours.execute(rows).fetchall()
            if theirs.execute(rows).fetchmany(len(wanted) + 1) != wanted:
                what = name if name in ("flows", "zones") else "tables of the format"
                yield f"its {what} are not those of the release"


def _closed_in(path: Path) -> sqlite3.Connection:
    """A connection that can read plain tables and nothing else, for a limited time."""
    base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    deadline = time.monotonic() + _SECONDS
    base.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute("PRAGMA query_only = ON")
    base.execute("PRAGMA cell_size_check = ON")
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    admitted = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
    base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in admitted else sqlite3.SQLITE_DENY)
    return base
