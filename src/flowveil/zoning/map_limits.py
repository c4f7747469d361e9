"""Limits for maps from unknown sources: what is refused before a library spends memory or time on
it.

Each limit is far above what maps of zones need. Together they keep the reading of a hostile file
below 1 GB and 10 s.
"""

from __future__ import annotations

import re
import sqlite3
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from flowveil.core.errors import DataError

#: Upper bounds for the columns of a map, its rows, and the bytes of its content.
MOST_COLUMNS, MOST_ROWS, MOST_BYTES = 1_000, 2_000_000, 256 << 20
#: Upper bounds for the corners of all outlines together, and of one.
MOST_CORNERS, MOST_CORNERS_OF_ONE = 10_000_000, 1_000_000
#: Upper bounds for the self-crossings of one outline, and for the sum of their squares over a map:
#: repairing an outline takes time that grows with the square.
MOST_CROSSINGS, _MOST_SQUARED = 1_000, 3 * 1_000**2
#: Outlines with more corners are checked before their validity is, which may take time quadratic in
#: the corners.
_MANY_CORNERS = 2_000
#: Upper bound for pairs of edges with intersecting boxes, over all outlines that are checked.
_MOST_PAIRS = 20_000_000
#: Edges in one query.
_BATCH = 128
#: Geometry types of WKB that may be parsed. Collections are not: nested deeply, they exhaust the
#: stack of GEOS.
_WKB_TYPES = frozenset(range(1, 7))
#: Statements of a GeoPackage that execute nothing when its tables are read.
_HARMLESS = re.compile(
    r"CREATE\s+(TABLE\b|(UNIQUE\s+)?INDEX\b|TRIGGER\b|VIRTUAL\s+TABLE\b.*\bUSING\s+rtree\b)",
    re.IGNORECASE | re.DOTALL,
)
#: Seconds for the queries that measure a GeoPackage.
_SQL_SECONDS = 5.0
#: Files of a zipped map that are read; other files may be in the archive, but no other maps.
_SHAPEFILE = ".shp"
_OTHER_MAPS = (
    ".gpkg",
    ".sqlite",
    ".db",
    ".geojson",
    ".json",
    ".fgb",
    ".zip",
    ".vrt",
    ".gml",
    ".kml",
)


def check_geopackage(path: Path, label: str) -> None:
    """Raises DataError for a GeoPackage that is too large, or whose views or generated columns run
    its author's SQL.
    """
    try:
        with sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True
        ) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
            stop = time.monotonic() + _SQL_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > stop, 100_000)
            _check_content(database, label)
    except sqlite3.DataError:
        raise too_large(label) from None
    except sqlite3.Error as problem:
        if "interrupt" in str(problem):
            raise DataError(
                f"{label} takes too long to read: it has too many tables or values."
            ) from None
        raise damaged(label) from None


def _check_content(database: sqlite3.Connection, label: str) -> None:
    runs_code = (
        ", which run code of the file. They are not read. Hint: save the layer as a plain table in"
        " a new GeoPackage."
    )
    for (statement,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
        # The statement decides, not the column `type`, which a file can set to anything.
        if not isinstance(statement, str) or not _HARMLESS.match(statement.lstrip()):
            raise DataError(f"{label} has views or virtual tables{runs_code}")
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    total = 0
    for (table,) in tables:
        quoted = _quoted(table)
        columns = database.execute(f"PRAGMA table_xinfo({quoted})").fetchall()
        if any(hidden in (2, 3) for *_, hidden in columns):
            raise DataError(f"{label} has computed columns{runs_code}")
        check_shape(0, len(columns), label)
        # Names with a keyword of rtree tables cannot be measured, and hold numbers only.
        if table.startswith(("rtree_", "sqlite_", "gpkg_")) or not columns:
            continue
        lengths = " + ".join(f"coalesce(length({_quoted(column[1])}), 0)" for column in columns)
        rows, size = database.execute(f"SELECT count(*), total({lengths}) FROM {quoted}").fetchone()
        check_shape(rows, 0, label)
        total += size
        if total > MOST_BYTES:
            raise too_large(label)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def shapefile_in_zip(path: Path, label: str) -> str:
    """Returns the name of the only shapefile in an archive.

    Raises DataError for other archives, and for large ones.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            entries = packed.infolist()
            found = [entry for entry in entries if entry.filename.casefold().endswith(_SHAPEFILE)]
            others = [entry for entry in entries if entry.filename.casefold().endswith(_OTHER_MAPS)]
            if len(found) != 1 or others:
                raise DataError(
                    f"{label} must hold one shapefile and no other map; found {len(found)}"
                    f" shapefiles and {len(others)} other maps. Hint: unpack it, and give the map"
                    " itself."
                )
            if sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise too_large(label)
            with packed.open(found[0]) as file:
                if file.read(4) != b"\0\0\x27\x0a":
                    raise damaged(label)
            return found[0].filename
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError):
        raise damaged(label) from None


def check_shape(rows: int, columns: int, label: str) -> None:
    """Raises DataError for a table with too many rows or columns."""
    if columns > MOST_COLUMNS:
        raise DataError(
            f"{label} has {columns:,} columns; a map may have {MOST_COLUMNS:,}. "
            "Hint: keep the columns with codes, names, parents and places."
        )
    if rows > MOST_ROWS:
        raise DataError(
            f"{label} has {rows:,} rows; a map may have {MOST_ROWS:,}. Hint: keep the zones of your"
            " area."
        )


def damaged(label: str) -> DataError:
    """Returns the error for a file that cannot be read.

    The messages of libraries may quote its content.
    """
    return DataError(f"{label} cannot be read: it is damaged, or not what its name says.")


def too_large(label: str) -> DataError:
    """Returns the error for content beyond `MOST_BYTES`."""
    return DataError(
        f"{label} holds more than {MOST_BYTES >> 20} MB; that is the limit for a map. "
        "Hint: simplify the outlines, and keep the zones of your area."
    )


def check_wkb(column: pa.ChunkedArray, label: str) -> None:
    """Raises DataError for geometries that are too large to parse, and for collections."""
    if column.nbytes > MOST_BYTES:
        raise too_large(label)
    for value in column.to_pylist():
        if value is None or len(value) < 5:
            continue
        kind = int.from_bytes(value[1:5], "little" if value[0] == 1 else "big")
        # With a reference system or a third dimension: high bits (EWKB) or thousands (ISO).
        if (kind & 0x0FFFFFFF) % 1000 not in _WKB_TYPES:
            raise DataError(
                f"{label} holds geometries that are neither polygons nor points. "
                "Hint: split collections into their parts, and keep the polygons."
            )


def check_outlines(outlines: NDArray[np.object_], label: str) -> None:
    """Raises DataError for outlines with too many corners or self-crossings."""
    corners = shapely.get_num_coordinates(outlines)
    if int(corners.sum()) > MOST_CORNERS or int(corners.max(initial=0)) > MOST_CORNERS_OF_ONE:
        raise DataError(
            f"{label} has outlines of {int(corners.sum()):,} corners, up to {int(corners.max()):,}"
            f" in one; allowed are {MOST_CORNERS:,}, and {MOST_CORNERS_OF_ONE:,} in one. Hint:"
            " simplify the outlines."
        )
    pairs = 0
    for i in np.flatnonzero(corners > _MANY_CORNERS).tolist():
        pairs += _pairs_of_edges(outlines[i], None, _MOST_PAIRS - pairs, label)
    squared = 0
    for i in np.flatnonzero(~shapely.is_valid(outlines) & ~shapely.is_missing(outlines)).tolist():
        squared += (_pairs_of_edges(outlines[i], "crosses", 2 * MOST_CROSSINGS, label) // 2) ** 2
        if squared > _MOST_SQUARED:
            raise _tangled(label)


def _pairs_of_edges(outline: Any, predicate: str | None, most: int, label: str) -> int:
    """Returns the number of ordered pairs of edges that meet a predicate, by default of boxes.

    Refuses too many.
    """
    points, ring = shapely.get_coordinates(
        shapely.get_rings(shapely.get_parts(outline)), return_index=True
    )
    same = ring[1:] == ring[:-1]
    edges = shapely.linestrings(np.stack((points[:-1][same], points[1:][same]), axis=1))
    tree, found = shapely.STRtree(edges), 0
    for start in range(0, len(edges), _BATCH):
        found += tree.query(edges[start : start + _BATCH], predicate=predicate).shape[1]
        if found > most:
            raise _tangled(label)
    return found


def _tangled(label: str) -> DataError:
    return DataError(
        f"{label} has outlines that cross themselves more than {MOST_CROSSINGS:,} times, or are too"
        " tangled to check. Hint: repair them first, for example with 'Fix geometries' in QGIS."
    )
