"""A user's own map: zones from a file or a table in memory, with their codes, names and outlines.

CSV and Parquet (GeoParquet too) need nothing beyond flowveil; GeoJSON, shapefiles and GeoPackages
are read by pyogrio, from the extra ``zones``. Codes stay text from the first byte: a reader that
guesses numbers loses leading zeros.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import shapely
from numpy.typing import ArrayLike

from flowveil.core.arrays import Floats, Ints, Outlines, Texts, repr_of_sizes
from flowveil.core.errors import DataError, HierarchyError, MissingExtraError, ParameterError
from flowveil.core.headers import Header, listed
from flowveil.core.hierarchy import VIRTUAL_ROOT, Hierarchy
from flowveil.system.paths import named_path
from flowveil.zoning.columns import ZoneColumns, column_of_map
from flowveil.zoning.dendrogram import ward_hierarchy
from flowveil.zoning.gazetteer import projected, to_degrees
from flowveil.zoning.geometry import (
    POLYGONAL,
    TilePlaces,
    ZoneGeography,
    dissolve_rows,
    in_degrees,
    mean_points,
    places_from_outlines,
    refuse_places,
    zones_at,
)
from flowveil.zoning.grids import GridMap, parse_grid
from flowveil.zoning.map_limits import (
    MOST_BYTES,
    check_geopackage,
    check_outlines,
    check_shape,
    check_wkb,
    damaged,
    shapefile_in_zip,
    too_large,
)
from flowveil.zoning.naming import names_of_zones
from flowveil.zoning.table import (
    first_of_runs,
    nested_hierarchy,
    parent_hierarchy,
    positions,
    refuse_missing,
)

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
_PARQUET = (".parquet", ".geoparquet", ".pq")
#: A whole number as a program writes it that took it for a measurement.
_FLOAT_TEXT = r"^(-?[0-9]+)\.0+$"
_DRAWN = (".geojson", ".json", ".geojsonl", ".shp", ".zip", ".gpkg", ".fgb")
#: How such files begin. The reader goes by content, not by name, and knows forms that are no map
#: but say where else to read: another file of this machine, or an address.
_BEGINNINGS = {
    ".shp": b"\0\0\x27\x0a",
    ".zip": b"PK",
    ".gpkg": b"SQLite format 3\0",
    ".fgb": b"fgb",
}
_BLANKS = b"\xef\xbb\xbf\x1e \t\r\n"
#: A form of such a kind that is JSON, and the readers of all forms that are maps.
_ELSEWHERE = b"gdal_streamed_alg"
_READERS = frozenset(
    {"GeoJSON", "GeoJSONSeq", "TopoJSON", "ESRIJSON", "ESRI Shapefile", "GPKG", "FlatGeobuf"}
)


@dataclass(frozen=True, eq=False, repr=False)
class ZoneMap:
    """A hierarchy over a user's own tiles, with its names and its geography if known.

    Its kind is ``table`` or ``dendrogram``; ``columns`` says which column served as what.
    ``codes`` are those of the tiles, in any order: known before the tree is built, because the
    dendrogram of 100,000 tiles takes a minute.
    """

    __repr__ = repr_of_sizes

    tree: Hierarchy | Callable[[], Hierarchy]
    columns: dict[str, str]
    codes: frozenset[str] | None = None

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The tree over the tiles."""
        return self.tree if isinstance(self.tree, Hierarchy) else self.tree()

    @cached_property
    def known_codes(self) -> frozenset[str]:
        """The codes of the tiles; does not build the tree."""
        return frozenset(self.tile_codes.tolist()) if self.codes is None else self.codes

    @cached_property
    def code_length(self) -> int | None:
        """The length of all codes if they are digits and one begins with 0; None otherwise.

        Programs that take such codes for numbers lose their zeros.
        """
        lengths = {len(code) for code in self.known_codes}
        digits = len(lengths) == 1 and all(code.isdecimal() for code in self.known_codes)
        return lengths.pop() if digits and any(c[0] == "0" for c in self.known_codes) else None

    def share_known(self, codes: Sequence[str], *, padded: bool = False) -> float:
        """Returns the share of codes that are on the map, with zeros in front if ``padded``.

        Does not build the tree. 0 without codes.
        """
        width = self.code_length if padded else None
        if (padded and width is None) or not codes:
            return 0.0
        whole = (re.sub(_FLOAT_TEXT, r"\1", code.strip()) for code in codes)
        filled = [code if width is None else code.zfill(width) for code in whole]
        return sum(code in self.known_codes for code in filled) / len(codes)

    @cached_property
    def tile_codes(self) -> Texts:
        """The user's code of each tile, in leaf order."""
        return self.hierarchy.code[self.hierarchy.leaf_node]

    @cached_property
    def outlines(self) -> Outlines | None:
        """The outline of each tile, in leaf order; None if the map has no outlines."""
        where = self.hierarchy.geography
        if not isinstance(where, ZoneGeography) or where.places.drawn is None:
            return None
        return where.places.drawn[where.start[self.hierarchy.leaf_node]]

    def tiles_at(self, lat: Floats, lon: Floats) -> Ints:
        """Returns the tile of each point, `NOWHERE` outside all; only if the map has outlines."""
        assert self.outlines is not None
        return zones_at(self.outlines, self.tile_codes, lat, lon)

    def tiles_of(self, codes: ArrayLike, *, padded: bool = False) -> Ints:
        """Returns the tile number of each code in a column, -1 where the map has no such tile.

        If ``padded``, zeros are put in front of codes that are shorter than those of the map.
        Numbers are compared as they would be written. A text such as ``264.0`` that is not a code
        itself means ``264``. Each code is looked up alone, so a column may be split.
        """
        column: Any = codes.to_arrow() if hasattr(codes, "to_arrow") else codes
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            column = pa.array(column, from_pandas=True)
        texts = text_column(column, name="codes")
        if padded and self.code_length is not None:
            texts = pc.replace_substring_regex(texts, _FLOAT_TEXT, r"\1")
            texts = pc.utf8_lpad(texts, self.code_length, "0")
        known = pa.array(self.tile_codes, type=pa.string())
        found = pc.index_in(texts, value_set=known)
        if found.null_count:
            whole = pc.replace_substring_regex(texts, _FLOAT_TEXT, r"\1")
            found = pc.coalesce(found, pc.index_in(whole, value_set=known, skip_nulls=True))
        return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int32)


def read_zones(
    source: Any,
    *,
    tile: str | None = None,
    parent: str | None = None,
    levels: str | Sequence[str] | None = None,
    lat: str | None = None,
    lon: str | None = None,
    name: str | None = None,
    root: str | None = None,
    crs: str | None = None,
    grid: str | None = None,
) -> ZoneMap:
    """Reads a map of zones and the hierarchy over them.

    The hierarchy comes from ``levels`` if given, else from a parent column, else it is Ward's
    dendrogram of the centres. Rows with the same tile are parts of one tile. Columns that are not
    named are recognised by usual names; an empty text means that the map has no such column.

    Args:
        source: path of a CSV, Parquet, GeoParquet, GeoJSON, shapefile or GeoPackage, or a pandas,
            polars, pyarrow or geopandas table; or a grid, ``GRID:SIZE:WEST,SOUTH,EAST,NORTH``, as
            in `flowveil.zoning.grids`.
        tile: column with the tiles' codes.
        parent: column with each zone's parent; see `parent_hierarchy`.
        levels: columns with nested codes from coarsest to finest; the last is the tile unless
            ``tile`` names another.
        lat: column with the latitude of each tile's centre. Where there are outlines it is used
            only if named, and then replaces their centroids; an empty text leaves outlines out too.
        lon: column with the longitude.
        name: column with what the zones are called.
        crs: reference system of ``lat`` (northing) and ``lon`` (easting), if they are no degrees.
        root: code of the root above several topmost zones: ``all`` by default for levels; for a
            parent column several are an error unless it is given.
        grid: the grid that a release states; ``source`` must be the same.

    Raises:
        DataError: the file cannot be read, a column is missing or ambiguous, a tile has no place,
            or a map has neither parents nor places. HierarchyError where the zones are not a tree.
        ParameterError: the arguments contradict each other.
        MissingExtraError: the format needs the extra ``zones``.

    Examples:
        >>> zones = flowveil.read_zones("map.csv")
        >>> flowveil.read_trips("counts.csv", zones=zones, trips="count")
        <Flows: 2 flows between 2 origin and 1 destination tiles>
    """
    cells = parse_grid(source)
    if cells is not None or grid is not None:
        return _map_of_grid(cells, (tile, parent, levels, lat, lon, name, root), grid)
    table, drawn, label = load_table(source)
    if lat == "":
        drawn = None
    declared = isinstance(source, str | os.PathLike) and os.fspath(source).casefold().endswith(
        _DRAWN
    )
    header = Header(
        table.column_names,
        declared,
        (column.slice(0, 1000).to_pylist() for column in table.columns),
    )
    named = {"tile": tile, "parent": parent, "lat": lat, "lon": lon, "name": name}
    columns = ZoneColumns.choose(header, drawn is not None, levels=levels, **named)
    if root is not None and not (columns.parent or columns.levels):
        raise ParameterError(
            "root is given, but the map has neither a parent column nor levels: a dendrogram has"
            " its own root."
        )
    if table.num_rows == 0:
        raise DataError(f"{label} has no rows; at least one zone is needed.")
    if not (columns.levels or columns.parent or columns.lat) and drawn is None:
        raise DataError(
            f"{label} has neither a parent column, nor coordinates, nor outlines, so no hierarchy"
            f" can be built. {header.described()} Hint: name the columns:"
            f" {column_of_map('parent')}, or {column_of_map('levels', 'COARSE,...,FINE')}, or"
            f" {column_of_map('lat')} {column_of_map('lon')}."
        )
    table, system = _located_in_degrees(table, columns, crs, label)
    tree, codes = _tree_of_map(table, drawn, columns, root)
    # So that the map is read the same again: also columns that are not to be recognised.
    declined = {role: "" for role, column in named.items() if column == "" and role != "tile"}
    declined |= {} if root is None else {"root": root}
    return ZoneMap(tree, {**columns.as_recorded(), **declined, **system}, codes)


def _map_of_grid(given: GridMap | None, columns: Sequence[Any], stated: str | None) -> ZoneMap:
    """Returns the map of a grid, which has no columns."""
    if given is None or stated not in (None, given.text):
        raise DataError(f"The release is on the grid '{stated}'. Hint: leave the map out.")
    if any(column is not None for column in columns):
        raise ParameterError("A grid has no columns that could be named.")
    cells = given.cells()
    levels = [f"{given.grid}{number}" for number in range(len(cells.levels))]
    tree, codes = nested_hierarchy(cells.levels, levels=levels), cells.levels[-1]
    places = places_from_outlines(codes, cells.outlines)
    places = replace(places, lat=cells.lat, lon=cells.lon)
    return ZoneMap(_placed(tree, codes, places), {"grid": given.text}, frozenset(codes.tolist()))


def _located_in_degrees(
    table: pa.Table, columns: ZoneColumns, crs: str | None, label: str
) -> tuple[pa.Table, dict[str, str]]:
    """Returns the table with its coordinates in degrees, and the reference system they were in.

    DataError if they are no degrees and no system is known.
    """
    if not columns.lat:
        return table, {}
    north, east = (degrees_of(table[name], name) for name in (columns.lat, columns.lon))
    points = list(zip(north.tolist(), east.tolist(), strict=True))
    hint = projected(points, exchange="with the columns exchanged")
    if hint is None:
        return table, {}
    if crs is None:
        raise DataError(f"The places of {label} are not in degrees. Hint: {hint}")
    lat, lon = to_degrees(crs, north, east)
    for name, values in ((columns.lat, lat), (columns.lon, lon)):
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table, {"crs": crs}


def has_columns(source: Any, names: Iterable[str]) -> bool:
    """Returns whether a map has columns; names may be lists with commas."""
    table, _, _ = load_table(source)
    wanted = {part.strip() for name in names for part in name.split(",")}
    return wanted <= set(table.column_names)


def read_outlines(source: Any) -> Outlines:
    """Returns the polygons of a file or table in degrees.

    DataError if unreadable or other geometries.
    """
    _, drawn, label = load_table(source)
    present = None if drawn is None else drawn[~shapely.is_missing(drawn)]
    if (
        present is None
        or len(present) == 0
        or not np.all(np.isin(shapely.get_type_id(present), POLYGONAL))
    ):
        raise DataError(f"{label} must hold polygons and nothing else to be an area.")
    valid: Outlines = shapely.make_valid(present)
    return valid


def _tree_of_map(
    table: pa.Table, drawn: Outlines | None, columns: ZoneColumns, root: str | None
) -> tuple[Hierarchy | Callable[[], Hierarchy], frozenset[str] | None]:
    """Returns the tree of a map whose columns are known, with its geography and names.

    A dendrogram is built when it is needed, and the codes of its tiles are returned.
    """
    texts = {c: _texts(table, c) for c in columns.textual()}
    tile_of_row = texts[columns.tile]
    refuse_missing([tile_of_row], [columns.tile])
    if columns.levels:
        tree = nested_hierarchy(
            [texts[c] for c in columns.levels], levels=columns.levels, root=root
        )
    elif columns.parent:
        tree = parent_hierarchy(tile_of_row, texts[columns.parent], root=root)
    else:
        tree = None
    if tree is None or drawn is not None or columns.lat:
        wanted = tile_of_row if tree is None else tree.code[tree.leaf_node]
        places, codes = _places(table, drawn, columns, tile_of_row, wanted)
        if tree is None:
            known = frozenset(codes.tolist())
            return partial(_dendrogram, codes, places, columns, texts), known
        tree = _placed(tree, codes, places)
    return _named(tree, columns, texts), None


def _dendrogram(
    codes: Texts, places: TilePlaces, columns: ZoneColumns, texts: Mapping[str, Texts]
) -> Hierarchy:
    tree = ward_hierarchy(codes, places.lat, places.lon)
    return _named(_placed(tree, codes, places), columns, texts)


def _placed(tree: Hierarchy, codes: Texts, places: TilePlaces) -> Hierarchy:
    in_leaf_order = places.take(positions(codes, tree.code[tree.leaf_node]))
    where = ZoneGeography(in_leaf_order, tree.leaf_start, tree.leaf_stop)
    return replace(tree, geography=where)


def _named(tree: Hierarchy, columns: ZoneColumns, texts: Mapping[str, Texts]) -> Hierarchy:
    if not columns.name:
        return tree
    names = _names_of_nodes(tree, texts[columns.tile], texts[columns.name])
    return replace(tree, names=names_of_zones(tree, names))


def text_column(column: pa.Array | pa.ChunkedArray, *, name: str) -> pa.Array | pa.ChunkedArray:
    """A column of codes as text; null if missing or blank.

    Whole numbers are written without a decimal point, also where a reader made them floats because
    some were missing; other numbers raise DataError.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        as_float = column.cast(pa.float64(), safe=False)
        as_float = pc.if_else(pc.is_nan(as_float), pa.scalar(None, pa.float64()), as_float)
        exact = pc.and_(pc.equal(pc.floor(as_float), as_float), pc.less(pc.abs(as_float), 2.0**53))
        if not pc.all(exact, min_count=0).as_py():
            raise DataError(
                f"Column '{name}' holds numbers that are not whole; codes must be text or whole"
                " numbers. Hint: write it as text."
            )
        column = as_float.cast(pa.int64())
    text = column if pa.types.is_string(column.type) else column.cast(pa.string())
    blank = pc.equal(pc.utf8_trim_whitespace(text), "")
    return pc.if_else(blank, pa.scalar(None, pa.string()), text)


def _names_of_nodes(tree: Hierarchy, codes: Texts, names: Texts) -> Texts:
    """Returns the name of each node that has a row; of several, the first in text order."""
    order = np.lexsort((names, codes))
    order = order[names[order] != ""]
    first = order[first_of_runs(codes[order])]
    if not len(first):
        return np.full(tree.n_nodes, "", dtype=np.str_)
    at = positions(codes[first], tree.code)
    return np.where(at >= 0, names[first][at], "")


def _places(
    table: pa.Table, drawn: Outlines | None, columns: ZoneColumns, tile_of_row: Texts, wanted: Texts
) -> tuple[TilePlaces, Texts]:
    """Returns the places of the wanted tiles, in code order, and their codes.

    Other rows are ignored.
    """
    rows = np.flatnonzero(np.isin(tile_of_row, wanted))
    codes, tile = np.unique(tile_of_row[rows], return_inverse=True)
    shapes = np.zeros(0, dtype=object) if drawn is None else drawn[rows]
    kinds = shapely.get_type_id(shapes)
    has_points = bool(np.all(kinds[kinds >= 0] == shapely.GeometryType.POINT))
    if columns.lat or has_points:
        lat, lon = np.full((2, len(rows)), np.nan)
        if columns.lat:
            lat, lon = (degrees_of(table[name], name)[rows] for name in (columns.lat, columns.lon))
        elif drawn is not None:
            lat, lon = shapely.get_y(shapes), shapely.get_x(shapes)
        centers = TilePlaces(*mean_points(lat, lon, tile, len(codes)))
        refuse_places(codes, centers.lat, centers.lon)
        if has_points:
            return centers, codes
    by_tile = np.argsort(tile, kind="stable")
    groups = np.split(np.arange(len(rows))[by_tile], first_of_runs(tile[by_tile])[1:])
    places = places_from_outlines(codes, dissolve_rows(shapes, groups))
    return (replace(places, lat=centers.lat, lon=centers.lon) if columns.lat else places), codes


# ---- trees of values -----------------------------------------------------------------------------


def read_tree(source: Any) -> Hierarchy:
    """Reads the tree along which the values of an attribute fold: its leaves are the values.

    Args:
        source: a file or table with the columns ``value`` and ``parent``, a row for each value or
            group, the parent empty at the top; or with a column for each level, coarsest first, the
            values last. Or a mapping from each value or group to its group.

    Returns:
        The tree. Several values or groups without a parent are joined under ``all``.

    Examples:
        >>> flowveil.read_tree({"bus": "transit", "metro": "transit", "walk": ""}).n_tiles
        3
    """
    if isinstance(source, Mapping):
        label, rows = (
            "The mapping",
            [(str(value), str(parent or "")) for value, parent in source.items()],
        )
    else:
        table, _, label = load_table(source, what="the tree of values")
        named = {
            name.strip().casefold(): np.char.strip(_texts(table, name))
            for name in table.column_names
        }
        if {"value", "parent"} <= named.keys():
            rows = list(zip(named["value"].tolist(), named["parent"].tolist(), strict=True))
        else:
            tree = _tree_of(nested_hierarchy, list(named.values()), levels=list(named), label=label)
            code = tree.code.tolist()
            rows = [
                (own, "" if up < 0 else code[up])
                for own, up in zip(code, tree.parent.tolist(), strict=True)
            ]
    known = {value for value, parent in rows if parent}
    tops = {text for row in rows for text in row if text} - known
    if len(tops) > 1:
        rows = [row for row in rows if row[1]] + [
            (top, VIRTUAL_ROOT) for top in sorted(tops) if top != VIRTUAL_ROOT
        ]
    values, parents = (
        np.array(column, dtype=np.str_) for column in zip(*rows or [("", "")], strict=True)
    )
    return _tree_of(parent_hierarchy, values, parents, label=label)


def _tree_of(build: Any, *columns: Any, label: str, **how: Any) -> Hierarchy:
    try:
        tree: Hierarchy = build(*columns, **how)
    except HierarchyError as problem:
        raise HierarchyError(f"{label} is not a tree of values and groups. {problem}") from None
    return tree


# ---- reading -------------------------------------------------------------------------------------


def load_table(source: Any, *, what: str = "the zones") -> tuple[pa.Table, Outlines | None, str]:
    """Returns the columns, the geometry in degrees if there is one, and what to call the source in
    messages.
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_file(named_path(source, what=what), what)
    label = "The table"
    if hasattr(source, "geometry") and hasattr(source, "crs") and hasattr(source, "drop"):
        outlines = np.asarray(source.geometry.array, dtype=object)
        rest = source.drop(columns=source.geometry.name)
        return pa.Table.from_pandas(rest), in_degrees(outlines, source.crs, label=label), label
    if hasattr(source, "to_arrow"):
        table = source.to_arrow()
    elif hasattr(source, "iloc"):
        table = pa.Table.from_pandas(source)
    else:
        try:
            table = pa.table(source)
        except (TypeError, ValueError, pa.ArrowException):
            raise ParameterError(
                f"{what.removeprefix('the ').capitalize()} must be a path or a pandas, polars,"
                f" pyarrow or geopandas table; found {type(source).__name__}."
            ) from None
    return _split_geoparquet(table, label)


def _load_file(path: Path, what: str) -> tuple[pa.Table, Outlines | None, str]:
    label, low = f"'{path.name}'", path.name.casefold()
    if not path.is_file():
        raise DataError(f"The file {label} does not exist. Hint: check the path of {what}.")
    if low.endswith(_CSV):
        return _read_csv(path, label), None, label
    if low.endswith(_PARQUET):
        try:
            about = pa.parquet.read_metadata(path)
            check_shape(about.num_rows, about.num_columns, label)
            if (
                sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
                > MOST_BYTES
            ):
                raise too_large(label)
            table = pa.parquet.read_table(path, partitioning=None)
        except (pa.ArrowException, OSError):
            raise DataError(f"{label} is not a Parquet file that can be read.") from None
        return _split_geoparquet(table, label)
    if low.endswith(_DRAWN):
        return _read_drawn(path, label)
    raise DataError(
        f"The format of {label} is not known. Allowed are {', '.join((*_CSV, *_PARQUET, *_DRAWN))}."
    )


def _read_csv(path: Path, label: str) -> pa.Table:
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise too_large(label)
        header = content.split(b"\n", 1)[0]
        separators = {mark: header.count(mark.encode()) for mark in (",", ";", "\t", "|")}
        parse = pa.csv.ParseOptions(
            delimiter=max(separators, key=lambda m: separators[m]), newlines_in_values=True
        )
        check_shape(0, max(separators.values()) + 1, label)
        # Read once for the names, so that every column can be kept as text.
        names = pa.csv.open_csv(pa.BufferReader(content), parse_options=parse).schema.names
        convert = pa.csv.ConvertOptions(
            column_types={n: pa.string() for n in names}, strings_can_be_null=False
        )
        return pa.csv.read_csv(
            pa.BufferReader(content), parse_options=parse, convert_options=convert
        )
    except (pa.ArrowException, OSError):
        # The parser's own message quotes the line that it stumbled over.
        raise DataError(
            f"{label} cannot be read as a table. Hint: it must be text in UTF-8 with a header line"
            " and the same number of columns in each line."
        ) from None


def _split_geoparquet(table: pa.Table, label: str) -> tuple[pa.Table, Outlines | None, str]:
    geo = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    main = geo.get("primary_column")
    if main is None or main not in table.column_names:
        return table, None, label
    about = geo.get("columns", {}).get(main, {})
    if str(about.get("encoding", "")).upper() != "WKB":
        raise DataError(
            f"{label} stores its outlines as {about.get('encoding')!r}; WKB is needed. Hint: write"
            " it as WKB."
        )
    outlines = _from_wkb(table[main], label)
    # GeoParquet: a missing reference system means WGS 84; an explicit null means unknown.
    crs = about.get("crs", "OGC:CRS84")
    others = [c for c in table.column_names if c not in geo.get("columns", {})]
    return table.select(others), in_degrees(outlines, crs, label=label), label


def _read_drawn(path: Path, label: str) -> tuple[pa.Table, Outlines | None, str]:
    try:
        import pyogrio
    except ImportError:
        raise MissingExtraError(
            f"Reading {label} needs pyogrio. Hint: pip install 'flowveil[zones]'; CSV and"
            " GeoParquet need nothing more."
        ) from None
    name = path.name.casefold()
    if not _is_drawn(path):
        raise damaged(label)
    place: Path | str = path
    if path.stat().st_size > 2 * MOST_BYTES:
        raise too_large(label)
    if name.endswith(".gpkg"):
        check_geopackage(path, label)
    elif name.endswith(".zip"):
        place = f"/vsizip/{{{path.absolute()}}}/{shapefile_in_zip(path, label)}"
    try:
        layers = [str(layer) for layer in pyogrio.list_layers(place)[:, 0]]
        if len(layers) > 1:
            raise DataError(
                f"{label} has {len(layers)} layers: {listed(layers)}; which one holds the zones is"
                " not known. Hint: save that layer in a separate file."
            )
        if layers:
            info = pyogrio.read_info(place)
            if info["driver"] not in _READERS:
                raise damaged(label)
            check_shape(max(info["features"], 0), len(info["fields"]), label)
        about, table = pyogrio.read_arrow(place)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, pa.ArrowException):
        # The reader's own message may quote what it stumbled over.
        raise damaged(label) from None
    main = about["geometry_name"] or "wkb_geometry"
    if main not in table.column_names:
        return table, None, label
    outlines = _from_wkb(table[main], label)
    return table.drop_columns([main]), in_degrees(outlines, about["crs"], label=label), label


def _is_drawn(path: Path) -> bool:
    """Returns whether a file begins as its name says, and does not refer to another file."""
    beginning = next(
        (text for end, text in _BEGINNINGS.items() if path.name.casefold().endswith(end)), None
    )
    with open(path, "rb") as file:
        if beginning is not None:
            return file.read(len(beginning)) == beginning
        content = file.read()
    return content.lstrip(_BLANKS)[:1] in (b"{", b"[") and _ELSEWHERE not in content


def _from_wkb(column: pa.ChunkedArray, label: str) -> Outlines:
    if hasattr(column.type, "storage_type"):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], type=column.type.storage_type
        )
    check_wkb(column, label)
    try:
        outlines = np.asarray(
            shapely.from_wkb(np.array(column.to_pylist(), dtype=object)), dtype=object
        )
    except shapely.errors.GEOSException:
        raise DataError(f"{label} holds outlines that are not well-formed WKB.") from None
    check_outlines(outlines, label)
    return outlines


# ---- columns -------------------------------------------------------------------------------------


def _texts(table: pa.Table, column: str) -> Texts:
    text = text_column(table[column], name=column)
    # A column of floats that were codes before some program read and wrote it.
    if pc.all(pc.match_substring_regex(text, _FLOAT_TEXT)).as_py():
        text = pc.replace_substring_regex(text, _FLOAT_TEXT, r"\1")
    text = text.fill_null("")
    return np.array(text.to_pylist(), dtype=np.str_).reshape(len(text))


def degrees_of(column: Any, name: str) -> Floats:
    """Returns a column of numbers, also as text; NaN if missing."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # A decimal comma, as spreadsheets write it in half of Europe.
        column = pc.replace_substring(pc.utf8_trim_whitespace(column), ",", ".")
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    try:
        return np.asarray(
            column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64
        )
    except pa.ArrowException:
        raise DataError(
            f"Column '{name}' holds something that is not a number; degrees are needed."
        ) from None
