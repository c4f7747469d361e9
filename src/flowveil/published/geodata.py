"""FlatGeobuf and PMTiles: geodata for maps on the web, written by GDAL's drivers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from flowveil.core.errors import MissingExtraError

#: Drivers of GDAL by format.
_DRIVERS = {"fgb": "FlatGeobuf", "pmtiles": "PMTiles"}
#: Zoom levels of tiles: a country fits the smallest, a block of houses the largest.
_ZOOM = {"MINZOOM": "0", "MAXZOOM": "12"}


def check_gdal(name: str) -> Any:
    """Returns pyogrio; raises MissingExtraError where it, or a format's driver, is missing."""
    try:
        pyogrio = import_module("pyogrio")
        if "w" in pyogrio.list_drivers().get(_DRIVERS[name], ""):
            return pyogrio
    except ImportError:
        pass
    raise MissingExtraError(
        f"The format '{name}' needs pyogrio with GDAL's driver {_DRIVERS[name]}. Hint: pip install"
        " 'flowveil[zones]'."
    )


def write_flatgeobuf(path: Path, table: pa.Table, shapes: Any, kind: str) -> None:
    """Writes a layer with a spatial index."""
    _write(path, "fgb", path.stem, table, shapes, kind)


def write_pmtiles(path: Path, table: pa.Table, shapes: Any, kind: str) -> None:
    """Writes a layer as vector tiles in one file: GDAL makes one layer a file."""
    _write(path, "pmtiles", path.stem, table, shapes, kind, **_ZOOM)


def _write(
    path: Path, name: str, layer: str, table: pa.Table, shapes: Any, kind: str, **options: Any
) -> None:
    # Shapes without a place cannot be drawn.
    placed = np.flatnonzero(~shapely.is_missing(shapes))
    rows = table.take(pa.array(placed))
    fields = {column: rows[column] for column in rows.column_names}
    kinds = {"LINESTRING": "LineString", "MULTILINESTRING": "MultiLineString"}
    check_gdal(name).raw.write(
        str(path),
        geometry=shapely.to_wkb(shapes[placed]),
        field_data=[_values(column) for column in fields.values()],
        fields=np.array(list(fields), dtype=object),
        field_mask=[column.is_null().to_numpy() for column in fields.values()],
        geometry_type=kinds.get(kind, "MultiPolygon"),
        crs="EPSG:4326",
        driver=_DRIVERS[name],
        layer=layer,
        **options,
    )


def _values(column: pa.ChunkedArray) -> Any:
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    empty = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return empty.to_numpy()
