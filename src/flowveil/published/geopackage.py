"""A GeoPackage of the release: the layers ``zones`` and ``flows``, and nothing beside them.

Written with SQLite alone, without the spatial index, triggers, statistics and times that geographic libraries add: each
of them is one more place where something could stand that no table shows, and all of them change with the version of
the library. What is left is the least that the standard asks for (OGC GeoPackage 1.3), so that a reader can
compare all of it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

#: Written because the standard insists on a time.
_NO_TIME = "1970-01-01T00:00:00.000Z"
_WGS84 = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],'
    'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST],'
    'AUTHORITY["EPSG","4326"]]'
)
_SYSTEMS = (
    ("Undefined Cartesian SRS", -1, "NONE", -1, "undefined", "undefined Cartesian coordinate reference system"),
    ("Undefined geographic SRS", 0, "NONE", 0, "undefined", "undefined geographic coordinate reference system"),
    ("WGS 84 geodetic", 4326, "EPSG", 4326, _WGS84, "longitude/latitude coordinates in decimal degrees on WGS 84"),
)
_TABLES = (
    "CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, "
    "organization TEXT NOT NULL, organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, "
    "description TEXT)",
    "CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, "
    "identifier TEXT UNIQUE, description TEXT DEFAULT '', "
    "last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')), "
    "min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER, "
    "CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id))",
    "CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL, "
    "geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL, "
    "CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name), CONSTRAINT uk_gc_table_name UNIQUE (table_name), "
    "CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name), "
    "CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id))",
)
#: 'GPKG' as a number, and version 1.3 of the standard.
_SETTINGS = ("page_size = 4096", "encoding = 'UTF-8'", "application_id = 1196444487", "user_version = 10300")
_KINDS = {"string": "TEXT", "int8": "TINYINT", "int32": "MEDIUMINT", "int64": "INTEGER", "double": "DOUBLE"}


def write_geopackage(path: Path, layers: dict[str, tuple[pa.Table, Any, str]], *, description: str = "") -> None:
    """Write layers into a new file.

    Args:
        path: the file.
        layers: by name, the columns, a shape for each row (longitude, latitude) and the kind of all shapes.
        description: of every layer.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        # Before the first table: these are part of the header.
        for setting in _SETTINGS:
            base.execute(f"PRAGMA {setting}")
        base.execute("BEGIN")
        for statement in _TABLES:
            base.execute(statement)
        base.executemany("INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, ?)", _SYSTEMS)
        for name, (table, shapes, kind) in layers.items():
            _write_layer(base, name, table, shapes, kind, description)
        base.execute("COMMIT")
        path.write_bytes(base.serialize())


def _write_layer(
    base: sqlite3.Connection, name: str, table: pa.Table, shapes: Any, kind: str, description: str
) -> None:
    columns = [f"{_quoted(field.name)} {_KINDS[str(field.type)]}" for field in table.schema]
    base.execute(
        f"CREATE TABLE {name} (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, geom {kind}, {', '.join(columns)})"
    )
    bounds = [None if np.isnan(edge) else float(edge) for edge in shapely.total_bounds(shapes)]
    base.execute(
        "INSERT INTO gpkg_contents VALUES (?, 'features', ?, ?, ?, ?, ?, ?, ?, 4326)",
        (name, name, description, _NO_TIME, *bounds),
    )
    base.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, 4326, 0, 0)", (name, kind))
    rows = zip(_blobs(shapes), *(table[column].to_pylist() for column in table.column_names), strict=True)
    places = ", ".join("?" * (2 + len(columns)))
    base.executemany(f"INSERT INTO {name} VALUES ({places})", ((fid, *row) for fid, row in enumerate(rows, start=1)))


def _blobs(shapes: Any) -> list[bytes | None]:
    """Each shape as the standard wants it: a header with the place in the world and the extent, then WKB."""
    edges = shapely.bounds(shapes)[:, [0, 2, 1, 3]].astype("<f8")
    wkb = shapely.to_wkb(shapes, output_dimension=2, byte_order=1)
    head = b"GP\x00\x03" + (4326).to_bytes(4, "little")
    return [
        None if content is None else head + edge.tobytes() + content for content, edge in zip(wkb, edges, strict=True)
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
