"""The two tables of a release: the matrix and its zones.

Both are pure functions of the release and sorted by their text codes, so the same release gives the same
bytes. Only zones that occur in a published cell are listed: a zone whose cells are all suppressed would
reveal that somebody went there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.hierarchy import Ints
from flowveil.times import TIME_COLUMNS
from flowveil.zoning.h3 import resolution_of
from flowveil.zoning.outlines import dissolved

if TYPE_CHECKING:
    from flowveil.release.release import Matrix, Publishable
    from flowveil.release.zones import Zones

#: The columns that make a zone the same in both roles.
_ZONE_FIELDS = (
    ("level", pa.int32()),
    ("tiles", pa.int64()),
    ("area_km2", pa.float64()),
    ("lat", pa.float64()),
    ("lon", pa.float64()),
    ("geometry", pa.binary()),
    ("name", pa.string()),
)
_H3_CELLS = ("h3_cells", pa.list_(pa.string()))
#: Rows that are turned into text at a time: of noise there are millions.
_ROWS_AT_ONCE = 1 << 20


def flows_table(release: Publishable) -> pa.Table:
    """The published matrices, sorted by slice, then (origin_zone, destination_zone).

    Returns:
        ``origin_zone`` and ``destination_zone`` (text), ``trips`` (int64), where the input has weights ``weight``
        (float64), in a revision ``revised`` (whether the value is a new one), and one text column for each slice
        column; empty there means all values, so rows of a total come first. Where time is folded, ``time_from`` and
        ``time_to`` stand there, and the rows are sorted by them first.
    """
    ordered = sorted(release.parts, key=lambda part: tuple((value is not None, value or "") for value in part[0]))
    tables = []
    for key, matrix in ordered:
        for table in _matrix_tables(matrix):
            for name, value in zip(release.slice_columns, key, strict=True):
                table = table.append_column(name, pa.array([value] * len(table), pa.string()))
            tables.append(table)
    joined = pa.concat_tables(tables)
    return joined.combine_chunks() if release.slice_columns else joined


def _matrix_tables(matrix: Matrix) -> Iterator[pa.Table]:
    """One matrix, so many rows at a time: millions of codes are never text all at once."""
    cells, plan = matrix.cells, matrix.plan
    origin, origin_rank = _codes_of(plan.origin_zones, cells.origin)
    destination, destination_rank = _codes_of(plan.destination_zones, cells.destination)
    order = _sorted_order(origin_rank[cells.origin], destination_rank[cells.destination])
    timed = plan.timed
    if timed is not None:
        ends = (origin_rank[cells.origin], destination_rank[cells.destination])
        order = np.lexsort((*ends[::-1], timed.stop[cells.origin], timed.start[cells.origin]))
    if plan.layer is not None:
        ends = (origin_rank[cells.origin], destination_rank[cells.destination])
        times = () if timed is None else (timed.stop[cells.origin], timed.start[cells.origin])
        order = np.lexsort((plan.layer[cells.origin], *ends[::-1], *times))
    for first in range(0, len(cells), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE) if order is None else order[first : first + _ROWS_AT_ONCE]
        columns: dict[str, pa.Array] = {
            "origin_zone": origin.take(pa.array(cells.origin[rows])),
            "destination_zone": destination.take(pa.array(cells.destination[rows])),
            "trips": pa.array(cells.trips[rows], type=pa.int64()),
        }
        if cells.weight is not None:
            columns["weight"] = pa.array(cells.weight[rows], type=pa.float64())
        revision = getattr(matrix, "revision", None)
        if revision is not None:
            columns["revised"] = pa.array(revision.revised[rows], type=pa.bool_())
        if plan.layer is not None:
            columns["layer"] = pa.array(plan.layer[cells.origin[rows]], type=pa.int8())
        if timed is not None:
            for name, texts in zip(TIME_COLUMNS, (timed.start, timed.stop), strict=True):
                columns[name] = pa.array(texts[cells.origin[rows]].tolist(), type=pa.string())
        yield pa.table(columns)


def _sorted_order(first: Ints, second: Ints) -> NDArray[np.int64] | None:
    """The order of pairs of ranks; None where they are sorted already, as noisy counts are."""
    step = np.sign(np.diff(first))
    if np.all((step > 0) | ((step == 0) & (second[1:] > second[:-1]))):
        return None
    return np.lexsort((second, first))


def zones_table(release: Publishable) -> pa.Table:
    """The zones that published cells use, sorted by zone then role; GeoParquet 1.1 where the map is known.

    ``tiles`` counts those that a zone could hold, seen or not; it is empty where that is not known. A zone used at both
    ends is one row of role ``both``; where both ends have the same zones each is, whichever end uses it. Slices share
    trees, so their zones agree. Where zones are made of H3 cells, the last column ``h3_cells`` lists those of each, as
    few and as coarse as there can be, and outlines and areas are those of `flowveil.zoning.outlines.dissolved`.
    """
    origins, destinations = [], []
    same = release.input.intake.same_zones
    for _, matrix in release.parts:
        plan, cells, (tiles_o, tiles_d) = matrix.plan, matrix.cells, matrix.possible_tiles
        origins.append(_zone_rows(plan.origin_zones, cells.origin, tiles_o, "origin"))
        destinations.append(_zone_rows(plan.destination_zones, cells.destination, tiles_d, "destination"))
    if same:
        table = _distinct_zones([*origins, *destinations])
        column = table.schema.get_field_index("role")
        table = table.set_column(column, "role", pa.array(["both"] * len(table), type=pa.string()))
    else:
        table = _join_roles(_distinct_zones(origins), _distinct_zones(destinations))
    if not _named(release):
        table = table.drop_columns(["name"])
    return _with_geo_metadata(_dissolve(table.sort_by([("zone", "ascending"), ("role", "ascending")])))


def _dissolve(table: pa.Table) -> pa.Table:
    """Give zones of H3 cells outlines and areas: all at once, at the finest resolution of any, so that they fit."""
    if _H3_CELLS[0] not in table.column_names:
        return table
    zones = [[int(cell, 16) for cell in cells] for cells in table[_H3_CELLS[0]].to_pylist()]
    finest = int(resolution_of(np.array([cell for cells in zones for cell in cells], dtype=np.uint64)).max(initial=0))
    # What lies outside the area is made of no cells, and is not drawn.
    drawn = [i for i, cells in enumerate(zones) if cells]
    outlines, area = np.full(len(zones), None, dtype=object), np.full(len(zones), np.nan)
    outlines[drawn], area[drawn] = dissolved([zones[i] for i in drawn], finest)
    for name, values in (("area_km2", area), ("geometry", _wkb(outlines))):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, type=table.schema.field(at).type, from_pandas=True))
    return table


def _wkb(outlines: NDArray[np.object_]) -> NDArray[np.object_]:
    """Little-endian and flat whatever the machine, for identical bytes."""
    wkb: NDArray[np.object_] = shapely.to_wkb(outlines, output_dimension=2, byte_order=1)
    return wkb


def _named(release: Publishable) -> bool:
    """Whether zones have names: the map does, and the zones are its own."""
    return any(matrix.plan.origin_zones.names(np.zeros(0, np.int32)) is not None for _, matrix in release.parts)


def lookup_table(release: Publishable) -> pa.Table | None:
    """Which tiles of the user's own map each published zone holds, seen or not: the map is public, the trips are not.

    Returns:
        ``zone``, ``role``, ``tile``, and ``tile_name`` where the map has names; sorted. None where there is no map, or
        the zones are not its own.
    """
    tree = getattr(release.input, "whole", release.input).whole_map
    if tree is None or any(part.kind == "boxed" for _, part in release.parts):
        return None
    zones = release.zones
    number = {code: node for node, code in enumerate(tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist())}
    node = np.array([number[code] for code in zones["zone"].to_pylist()], dtype=np.int64)
    length = tree.size[node].astype(np.int64)
    row = np.repeat(np.arange(len(node)), length)
    ahead = np.repeat(np.cumsum(length) - length, length)
    tile = tree.leaf_node[np.repeat(tree.leaf_start[node].astype(np.int64), length) + np.arange(len(row)) - ahead]
    columns = {
        "zone": zones["zone"].take(pa.array(row)),
        "role": zones["role"].take(pa.array(row)),
        "tile": pa.array(tree.code_text(tile).tolist(), pa.string()),
    }
    if tree.names is not None:
        columns["tile_name"] = _texts(tree.names[tile])
    return pa.table(columns).sort_by([(name, "ascending") for name in ("zone", "role", "tile")]).combine_chunks()


def _texts(names: NDArray[Any]) -> pa.Array:
    return pa.array([name or None for name in names.tolist()], pa.string())


def _distinct_zones(tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables).combine_chunks()
    _, first = np.unique(rows["zone"].to_numpy(zero_copy_only=False).astype(np.str_), return_index=True)
    return rows.take(pa.array(first)).combine_chunks()


def _codes_of(zones: Zones, number: Ints) -> tuple[pa.Array, Ints]:
    """The code of every zone that a cell uses, and its rank in text order: few zones are sorted, not many cells."""
    used = np.flatnonzero(np.bincount(number, minlength=len(zones))).astype(np.int32)
    codes = zones.codes(used)
    place = np.zeros(len(zones), np.int32)
    place[used] = np.arange(len(used))
    _, rank = np.unique(codes, return_inverse=True)
    return pa.array(codes.tolist(), type=pa.string()).take(pa.array(place)), rank.astype(np.int32)[place]


def _zone_rows(zones: Zones, number: Ints, tiles: NDArray[Any] | None, role: str) -> pa.Table:
    used = np.flatnonzero(np.bincount(number)).astype(np.int32)
    codes, first = np.unique(zones.codes(used), return_index=True)
    used = used[first]
    made_of = zones.h3_cells(used)
    # H3 cells of all ends and slices are drawn together.
    area, outline = (None, None) if made_of is not None else (zones.areas_km2(used), zones.polygons(used))
    center = zones.centers(used)
    lat, lon = (None, None) if center is None else center
    names = zones.names(used)
    known: dict[str, Any] = {
        "level": zones.level[used],
        "tiles": None if tiles is None else tiles[used],
        "area_km2": area,
        "lat": lat,
        "lon": lon,
        "geometry": None if outline is None else _wkb(outline),
        "name": None if names is None else [name or None for name in names.tolist()],
    }
    columns = {
        "zone": pa.array(codes.tolist(), type=pa.string()),
        "role": pa.array([role] * len(used), pa.string()),
    }
    for name, kind in _ZONE_FIELDS:
        values = known[name]
        columns[name] = pa.nulls(len(used), kind) if values is None else pa.array(values, type=kind, from_pandas=True)
    if made_of is not None:
        columns[_H3_CELLS[0]] = pa.array(made_of, type=_H3_CELLS[1])
    return pa.table(columns)


def _join_roles(origin: pa.Table, destination: pa.Table) -> pa.Table:
    twin_of_origin = pc.index_in(origin["zone"], value_set=destination["zone"])
    at_origin = np.flatnonzero(twin_of_origin.is_valid().to_numpy(zero_copy_only=False))
    at_destination = twin_of_origin.drop_null().to_numpy()
    one, other = origin.take(pa.array(at_origin)), destination.take(pa.array(at_destination))
    same = np.ones(len(at_origin), dtype=np.bool_)
    for name, _ in _ZONE_FIELDS:
        equal = pc.equal(one[name], other[name]).fill_null(False)
        both_null = pc.and_(one[name].is_null(), other[name].is_null())
        same &= pc.or_(equal, both_null).to_numpy()
    role = np.array(["origin"] * len(origin), dtype=object)
    role[at_origin[same]] = "both"
    left = np.ones(len(destination), dtype=np.bool_)
    left[at_destination[same]] = False
    column = origin.schema.get_field_index("role")
    origin = origin.set_column(column, "role", pa.array(role, type=pa.string()))
    return pa.concat_tables([origin, destination.filter(pa.array(left))])


def _with_geo_metadata(table: pa.Table) -> pa.Table:
    """Mark the table as GeoParquet 1.1; without any geometry it stays plain Parquet."""
    outlines = table["geometry"].drop_null()
    table = table.combine_chunks()
    if len(outlines) == 0:
        return table
    kinds = {g.geom_type for g in shapely.from_wkb(outlines.to_numpy(zero_copy_only=False))}
    geo = {
        "version": "1.1.0",
        "primary_column": "geometry",
        # No "crs": GeoParquet then means longitude and latitude on WGS 84 (OGC:CRS84).
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": sorted(kinds)}},
    }
    return table.replace_schema_metadata({"geo": json.dumps(geo, sort_keys=True)})
