"""The operator's private files: a map of zones, a study area, lists of places. CSV, Parquet, GeoParquet and GeoJSON."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from .inputs import Places
from .tree import ALL, OUTSIDE, OUTSIDE_CELL, Codes, ZoneMap, parent_cells, resolution_of

Mask = NDArray[np.bool_]


class UnreadableInputError(ValueError):
    """This reader does not know the input; the message says why. The flows of the engine serve instead."""


@dataclass(frozen=True, eq=False)
class DrawnMap:
    """A map of zones, with the outlines of its tiles if it has some.

    Attributes:
        zones: codes, parents and centres.
        tiles: codes of the zones without children, sorted.
        outlines: their polygons in degrees; None without outlines.
    """

    zones: ZoneMap
    tiles: Codes
    outlines: Any

    @property
    def has_centres(self) -> bool:
        """Whether the centre of every tile is known."""
        known = self.zones.code[~np.isnan(self.zones.lat)]
        return bool(np.isin(self.tiles, known).all())

    def tiles_at(self, lat: Any, lon: Any) -> NDArray[np.int64]:
        """Returns the number of the tile around each point, -1 for none; on a border, that with the smallest code."""
        if self.outlines is None:
            raise UnreadableInputError("the ends are coordinates, and the map has no outlines")
        shapely.prepare(self.outlines)
        point, zone = shapely.STRtree(self.outlines).query(shapely.points(lon, lat))
        inside = shapely.intersects_xy(self.outlines[zone], lon[point], lat[point])
        found = np.full(len(lat), len(self.tiles), dtype=np.int64)
        np.minimum.at(found, point[inside], zone[inside])
        return np.where(found == len(self.tiles), -1, found)


def read_table(path: str | Path) -> tuple[pa.Table, Any]:
    """Returns the columns of a file as text or numbers, and its geometry in degrees (None without).

    Raises:
        UnreadableInputError: the file has another format or reference system.
    """
    place = Path(path)
    name = place.name.casefold()
    try:
        if name.endswith((".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")):
            return _read_csv(place), None
        if name.endswith((".parquet", ".geoparquet", ".pq")):
            return _read_parquet(place)
        if name.endswith((".geojson", ".json")):
            return _read_geojson(place)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, shapely.errors.GEOSException):
        raise UnreadableInputError("a private file (map, area or list of places) cannot be read") from None
    raise UnreadableInputError("a private file (map, area or list of places) is not CSV, Parquet or GeoJSON")


def _read_csv(path: Path) -> pa.Table:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode("utf-8-sig")
    head = text.split("\n", 1)[0]
    rows = list(csv.reader(text.splitlines(keepends=True), delimiter=max(",;\t|", key=head.count)))
    names, body = rows[0], [row for row in rows[1:] if row]
    return pa.table({name: pa.array([row[i] for row in body], pa.string()) for i, name in enumerate(names)})


def _read_parquet(path: Path) -> tuple[pa.Table, Any]:
    table = pq.read_table(path, partitioning=None)
    geo = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    column = geo.get("primary_column")
    if column is None:
        return table, None
    about = geo["columns"][column]
    crs = about.get("crs", "OGC:CRS84")
    known = crs is not None and (crs == "OGC:CRS84" or str((crs.get("id") or {}).get("code")) in ("CRS84", "4326"))
    if str(about.get("encoding")).upper() != "WKB" or not known:
        raise UnreadableInputError("outlines are not WKB in WGS 84")
    outlines = shapely.force_2d(shapely.from_wkb(np.array(table[column].to_pylist(), dtype=object)))
    return table.select([name for name in table.column_names if name not in geo["columns"]]), outlines


def _read_geojson(path: Path) -> tuple[pa.Table, Any]:
    content = json.loads(path.read_text("utf-8"))
    if "crs" in content and not str(content["crs"]).endswith(("CRS84'}}", "4326'}}")):
        raise UnreadableInputError("GeoJSON in another reference system than WGS 84")
    features = content["features"] if content["type"] == "FeatureCollection" else [content]
    outlines = [
        None if f.get("geometry") is None else shapely.from_geojson(json.dumps(f["geometry"])) for f in features
    ]
    names = sorted({name for f in features for name in (f.get("properties") or {})})
    columns = {name: pa.array([_text((f.get("properties") or {}).get(name)) for f in features]) for name in names}
    return pa.table(columns), shapely.force_2d(np.array(outlines, dtype=object))


def _text(value: Any) -> str | None:
    return None if value is None else str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def texts_of(column: Any) -> Codes:
    """Returns a column of codes as text, empty where missing; whole numbers without a decimal point."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
    values = ["" if value is None else str(value) for value in column.to_pylist()]
    texts = np.array([value if value.strip() else "" for value in values], dtype=np.str_)
    if len(texts) and all(text.endswith(".0") and text[:-2].lstrip("-").isdigit() for text in texts.tolist()):
        texts = np.array([text[:-2] for text in texts.tolist()], dtype=np.str_)
    return texts


# ---- the map ---------------------------------------------------------------------------------------------------------


def read_map(path: str | Path, columns: Mapping[str, str], *, keep_outside: bool) -> DrawnMap:
    """Reads a map of zones, by the columns that the report names.

    Raises:
        UnreadableInputError: the hierarchy is a dendrogram, or the file has a form that is not read here.
    """
    table, drawn = read_table(path)
    if columns.get("lat") == "":
        drawn = None
    try:
        tile = texts_of(table[columns["tile"]])
        if columns.get("levels"):
            names = columns["levels"].split(",")
            code, parent = _from_levels([texts_of(table[name]) for name in names], names, columns.get("root"))
        elif columns.get("parent"):
            code, parent = _from_parents(tile, texts_of(table[columns["parent"]]), columns.get("root"))
        else:
            raise UnreadableInputError("the hierarchy of the map is a dendrogram")
        places = None
        if columns.get("lat"):
            places = [_numbers(table[columns[axis]]) for axis in ("lat", "lon")]
    except KeyError:
        raise UnreadableInputError("the map has other columns than the report names") from None
    inner = np.zeros(len(code), dtype=np.bool_)
    inner[parent[parent >= 0]] = True
    tiles = np.sort(code[~inner])
    lat, lon = np.full(len(code), np.nan), np.full(len(code), np.nan)
    number = {name: i for i, name in enumerate(code.tolist())}
    rows = [(number[name], row) for row, name in enumerate(tile.tolist()) if not inner[number[name]]]
    is_point = drawn is not None and np.all(shapely.get_type_id(drawn) == 0)
    if places is None and is_point:
        places = [shapely.get_y(drawn), shapely.get_x(drawn)]
    if places is not None and len(rows) == len(tiles):
        node, row = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        lat[node], lon[node] = places[0][row], places[1][row]
    outlines = None
    if drawn is not None and not is_point:
        if len(rows) != len(tiles):
            raise UnreadableInputError("tiles of the map have several outlines")
        outlines = np.empty(len(tiles), dtype=object)
        for number_of_tile, row_of_tile in rows:
            outlines[np.searchsorted(tiles, code[number_of_tile])] = drawn[row_of_tile]
        if not shapely.is_valid(outlines).all():
            raise UnreadableInputError("outlines of the map are not valid")
    zones = ZoneMap(code, parent, lat, lon)
    return DrawnMap(_with_outside(zones) if keep_outside else zones, tiles, outlines)


def _numbers(column: Any) -> NDArray[np.float64]:
    if pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, pc.replace_substring(column, ",", "."))
    found: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    return found


def _from_parents(tile: Codes, parent: Codes, root: str | None) -> tuple[Codes, NDArray[np.int64]]:
    code = np.unique(np.concatenate((tile, parent[parent != ""])))
    up = np.full(len(code), -1, dtype=np.int64)
    known = parent != ""
    up[np.searchsorted(code, tile[known])] = np.searchsorted(code, parent[known])
    return _with_root(code, up, root)


def _with_root(code: Codes, up: NDArray[np.int64], root: str | None) -> tuple[Codes, NDArray[np.int64]]:
    if np.sum(up < 0) > 1:
        if root is None:
            raise UnreadableInputError("the map has several roots")
        up = np.append(np.where(up < 0, len(code), up), -1)
        code = np.append(code, np.array([root]))
    return code, up


def _from_levels(columns: list[Codes], names: list[str], root: str | None) -> tuple[Codes, NDArray[np.int64]]:
    """Nested columns, coarsest first; codes of a level that a finer one has too are written ``level:code``."""
    taken = np.unique(columns[-1])
    named = [columns[-1]]
    for name, column in zip(reversed(names[:-1]), reversed(columns[:-1]), strict=True):
        own = column
        while len(np.intersect1d(own, taken)):
            own = np.char.add(f"{name}:", own)
        taken = np.union1d(taken, own)
        named.insert(0, own)
    code = taken
    up = np.full(len(code), -1, dtype=np.int64)
    for coarse, fine in pairwise(named):
        up[np.searchsorted(code, fine)] = np.searchsorted(code, coarse)
    top = root or ALL
    while top in code:
        top = f"root:{top}"
    return _with_root(code, up, top)


def _with_outside(zones: ZoneMap) -> ZoneMap:
    """Returns the map with `outside` next to its root, below `all`."""
    code, parent, n = zones.code, zones.parent, len(zones.code)
    root = int(np.flatnonzero(parent < 0)[0])
    if code[root] == ALL:
        code, parent = np.append(code, OUTSIDE), np.append(parent, root)
        more = 1
    else:
        code = np.append(code, [ALL, OUTSIDE])
        parent = np.append(np.where(parent < 0, n, parent), [-1, n])
        more = 2
    unknown = np.full(more, np.nan)
    return ZoneMap(code, parent, np.append(zones.lat, unknown), np.append(zones.lon, unknown))


# ---- areas and places ------------------------------------------------------------------------------------------------


def cells_in_area(cells: Codes, area: str | Path) -> Mask:
    """Returns which H3 cells have their centres in a study area; cells of an area contain their descendants."""
    named = _as_cells(str(area))
    if named is not None:
        inside = np.zeros(len(cells), dtype=np.bool_)
        for resolution in np.unique(resolution_of(named)).tolist():
            inside |= np.isin(parent_cells(cells, resolution), named)
        return inside
    lat, lon = np.array([h3_int.cell_to_latlng(cell) for cell in cells.tolist()]).reshape(-1, 2).T
    return points_in_area(lat, lon, area)


def points_in_area(lat: Any, lon: Any, area: str | Path) -> Mask:
    """Returns which points are in a study area: degrees (west, south, east, north) or polygons, borders included."""
    try:
        west, south, east, north = (float(part) for part in str(area).split(","))
    except ValueError:
        if _as_cells(str(area)) is not None:
            raise UnreadableInputError("the study area is made of H3 cells, and the tiles are not") from None
        drawn = read_table(area)[1]
        if drawn is None or not np.isin(shapely.get_type_id(drawn), (3, 6)).all():
            raise UnreadableInputError("the study area has no polygons") from None
        outline = shapely.union_all(shapely.make_valid(drawn))
        shapely.prepare(outline)
        return np.asarray(shapely.intersects_xy(outline, lon, lat), dtype=np.bool_)
    if np.isnan(lat).any():
        raise UnreadableInputError("the centres of the zones are not known")
    across = (lon >= west) & (lon <= east) if west < east else (lon >= west) | (lon <= east)
    inside: Mask = (lat >= south) & (lat <= north) & across
    return inside


def _as_cells(text: str) -> Codes | None:
    try:
        cells = np.array([int(part, 16) for part in text.split(",")], dtype=np.uint64)
    except (ValueError, OverflowError):
        return None
    return cells if all(h3_int.is_valid_cell(cell) for cell in cells.tolist()) else None


def read_places(path: str | Path, *, resolution: int | None, of_map: DrawnMap | None, once: bool) -> Places:
    """Reads a list of places by tile: columns `tile`, or `lat` and `lon`; `k` and `l` are thresholds.

    Args:
        path: the list.
        resolution: of H3 tiles; None on a map.
        of_map: the map.
        once: whether places in one tile count as one, with the highest thresholds.
    """
    table, drawn = read_table(path)
    usual = {
        "tile": ("tile", "zone", "cell", "code", "h3"),
        "lat": ("lat", "latitude"),
        "lon": ("lon", "lng", "longitude"),
    }
    column = {}
    for role, names in {**usual, "k": ("k",), "l": ("l",)}.items():
        found = [n for n in table.column_names if "".join(c for c in n.casefold() if c.isalnum()) in names]
        if found:
            column[role] = table[found[0]]
    if "tile" in column:
        tile: Codes = texts_of(column["tile"])
        if of_map is None:
            cells = np.array([int(text, 16) for text in tile.tolist()], dtype=np.uint64)
            tile = np.where(resolution_of(cells) > (resolution or 0), parent_cells(cells, resolution or 0), cells)
    else:
        if drawn is not None:
            lat, lon = shapely.get_y(drawn), shapely.get_x(drawn)
        elif "lat" in column and "lon" in column:
            lat, lon = _numbers(column["lat"]), _numbers(column["lon"])
        else:
            raise UnreadableInputError("a list of places has neither tiles nor coordinates")
        if of_map is None:
            pairs = zip(lat.tolist(), lon.tolist(), strict=True)
            tile = np.array([h3_int.latlng_to_cell(y, x, resolution or 0) for y, x in pairs], dtype=np.uint64)
        else:
            number = of_map.tiles_at(lat, lon)
            if np.any(number < 0):
                raise UnreadableInputError("a listed place lies in no zone of the map")
            tile = of_map.tiles[number]
    if tile.dtype == np.uint64 and np.any(tile == np.uint64(OUTSIDE_CELL)):
        raise UnreadableInputError("a listed place is no tile")
    asked = [
        np.array([int(text or 0) for text in texts_of(column[name]).tolist()], dtype=np.int64)
        if name in column
        else np.zeros(len(tile), dtype=np.int64)
        for name in ("k", "l")
    ]
    if not once:
        return Places(tile, asked[0], asked[1])
    distinct, place = np.unique(tile, return_inverse=True)
    highest = [np.zeros(len(distinct), dtype=np.int64) for _ in asked]
    for most, values in zip(highest, asked, strict=True):
        np.maximum.at(most, place, values)
    return Places(distinct, highest[0], highest[1])
