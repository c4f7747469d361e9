"""GeoPackage writer: layers, and a style of each for QGIS; nothing else.

Written with SQLite alone, without the spatial index, triggers, statistics and times that geographic
libraries add: these could hide what no table shows, and they change with the version of the
library. The rest is the minimum of the standard (OGC GeoPackage 1.3), and ``layer_styles``, the
table in which QGIS looks for styles.
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
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS'
    ' 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],'
    'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST],'
    'AUTHORITY["EPSG","4326"]]'
)
_SYSTEMS = (
    (
        "Undefined Cartesian SRS",
        -1,
        "NONE",
        -1,
        "undefined",
        "undefined Cartesian coordinate reference system",
    ),
    (
        "Undefined geographic SRS",
        0,
        "NONE",
        0,
        "undefined",
        "undefined geographic coordinate reference system",
    ),
    (
        "WGS 84 geodetic",
        4326,
        "EPSG",
        4326,
        _WGS84,
        "longitude/latitude coordinates in decimal degrees on WGS 84",
    ),
)
_TABLES = (
    (
        "CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY,"
        " organization TEXT NOT NULL, organization_coordsys_id INTEGER NOT NULL, definition TEXT"
        " NOT NULL, description TEXT)"
    ),
    (
        "CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL,"
        " identifier TEXT UNIQUE, description TEXT DEFAULT '', last_change DATETIME NOT NULL"
        " DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')), min_x DOUBLE, min_y DOUBLE, max_x DOUBLE,"
        " max_y DOUBLE, srs_id INTEGER, CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES"
        " gpkg_spatial_ref_sys(srs_id))"
    ),
    (
        "CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL,"
        " geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT"
        " NOT NULL, CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name), CONSTRAINT"
        " uk_gc_table_name UNIQUE (table_name), CONSTRAINT fk_gc_tn FOREIGN KEY (table_name)"
        " REFERENCES gpkg_contents(table_name), CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id)"
        " REFERENCES gpkg_spatial_ref_sys (srs_id))"
    ),
)
#: Where QGIS looks for the style of a layer.
_STYLES = (
    "CREATE TABLE layer_styles (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, f_table_catalog"
    " TEXT, f_table_schema TEXT, f_table_name TEXT, f_geometry_column TEXT, styleName TEXT,"
    " styleQML TEXT, styleSLD TEXT, useAsDefault BOOLEAN, description TEXT, owner TEXT, ui TEXT,"
    " update_time DATETIME)"
)
_QML = (
    "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'><qgis version=\"3.28\""
    ' styleCategories="Symbology"><renderer-v2 type="singleSymbol"><symbols><symbol name="0"'
    ' type="{symbol}" alpha="{alpha}"><layer class="{kind}" enabled="1" pass="0" locked="0"><Option'
    ' type="Map">{options}</Option>{data_defined}</layer></symbol></symbols></renderer-v2></qgis>'
)
_WIDTH_OF_FLOWS = (
    '<data_defined_properties><Option type="Map"><Option name="name" type="QString"'
    ' value=""/><Option name="properties" type="Map"><Option name="outlineWidth" type="Map"><Option'
    ' name="active" type="bool" value="true"/><Option name="expression" type="QString"'
    ' value="{expression}"/><Option name="type" type="int" value="3"/></Option></Option><Option'
    ' name="type" type="QString" value="collection"/></Option></data_defined_properties>'
)
#: 'GPKG' as a number, and version 1.3 of the standard.
_SETTINGS = (
    "page_size = 4096",
    "encoding = 'UTF-8'",
    "application_id = 1196444487",
    "user_version = 10300",
)
_KINDS = {
    "string": "TEXT",
    "int8": "TINYINT",
    "int32": "MEDIUMINT",
    "int64": "INTEGER",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
}


def write_geopackage(
    path: Path, layers: dict[str, tuple[pa.Table, Any, str]], *, description: str = ""
) -> None:
    """Writes layers into a new file: by name, columns, a shape for each row (lon, lat) and the kind
    of all shapes.
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
        _write_styles(base, layers)
        base.execute("COMMIT")
        path.write_bytes(base.serialize())


def _write_layer(
    base: sqlite3.Connection, name: str, table: pa.Table, shapes: Any, kind: str, description: str
) -> None:
    # Every layer has the columns fid and geom.
    names = [f"{n}_" if n.lower() in ("fid", "geom") else n for n in table.column_names]
    quoted = ['"' + n.replace('"', '""') + '"' for n in names]
    columns = [
        f"{n} {_KINDS[str(field.type)]}" for n, field in zip(quoted, table.schema, strict=True)
    ]
    base.execute(
        f"CREATE TABLE {name} (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, geom {kind},"
        f" {', '.join(columns)})"
    )
    bounds = [None if np.isnan(edge) else float(edge) for edge in shapely.total_bounds(shapes)]
    base.execute(
        "INSERT INTO gpkg_contents VALUES (?, 'features', ?, ?, ?, ?, ?, ?, ?, 4326)",
        (name, name, description, _NO_TIME, *bounds),
    )
    base.execute(
        "INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, 4326, 0, 0)", (name, kind)
    )
    rows = zip(
        _blobs(shapes), *(table[column].to_pylist() for column in table.column_names), strict=True
    )
    places = ", ".join("?" * (2 + len(columns)))
    base.executemany(
        f"INSERT INTO {name} VALUES ({places})",
        ((fid, *row) for fid, row in enumerate(rows, start=1)),
    )


def _write_styles(base: sqlite3.Connection, layers: dict[str, tuple[pa.Table, Any, str]]) -> None:
    """Writes a default style for each layer: thin outlines, and lines as wide as the root of their
    trips.
    """
    base.execute(_STYLES)
    base.execute(
        "INSERT INTO gpkg_contents VALUES ('layer_styles', 'attributes', 'layer_styles', '', ?, "
        "NULL, NULL, NULL, NULL, NULL)",
        (_NO_TIME,),
    )
    for number, (name, (table, _, kind)) in enumerate(layers.items(), start=1):
        qml = _style(table if "LINE" in kind else None)
        values = (number, "", "", name, "geom", name, qml, "", True, "", "", None, _NO_TIME)
        base.execute(f"INSERT INTO layer_styles VALUES ({', '.join('?' * len(values))})", values)


def _style(lines: pa.Table | None) -> str:
    """Returns the style of lines with these columns, or of outlines."""
    scaled = ""
    if lines is None:
        symbol, alpha, kind = "fill", "1", "SimpleFill"
        look = {"color": "127,176,223,60", "outline_color": "60,60,60,255", "outline_width": "0.1"}
        look |= {"outline_width_unit": "MM", "style": "solid"}
    else:
        symbol, alpha, kind = "line", "0.6", "SimpleLine"
        look = {"line_color": "31,95,191,255", "line_width": "0.3", "line_width_unit": "MM"}
        widest = (
            max(lines["trips"].to_pylist(), default=1) if "trips" in lines.column_names else None
        )
        if widest:
            width = f"0.1 + 2.4 * sqrt(max(&quot;trips&quot;, 0) / {float(widest)!r})"
            scaled = _WIDTH_OF_FLOWS.format(expression=width)
    options = "".join(
        f'<Option name="{name}" type="QString" value="{value}"/>' for name, value in look.items()
    )
    return _QML.format(symbol=symbol, alpha=alpha, kind=kind, options=options, data_defined=scaled)


def _blobs(shapes: Any) -> list[bytes | None]:
    """Each shape as the standard wants it: a header with the place in the world and the extent,
    then WKB.
    """
    edges = shapely.bounds(shapes)[:, [0, 2, 1, 3]].astype("<f8")
    wkb = shapely.to_wkb(shapes, output_dimension=2, byte_order=1)
    head = b"GP\x00\x03" + (4326).to_bytes(4, "little")
    return [
        None if content is None else head + edge.tobytes() + content
        for content, edge in zip(wkb, edges, strict=True)
    ]


def as_multi(shapes: Any) -> Any:
    """Returns polygons as multipolygons and lines as multilines; everything else unchanged."""
    multi = np.array(shapes, dtype=object)
    for kind, make in (
        (shapely.Polygon, shapely.MultiPolygon),
        (shapely.LineString, shapely.MultiLineString),
    ):
        for at in (at for at, shape in enumerate(multi) if isinstance(shape, kind)):
            multi[at] = make([multi[at]])
    return multi
