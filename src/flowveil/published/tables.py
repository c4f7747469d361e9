"""zones.parquet and lookup.csv, from zone codes and the map alone.

Sums and zones of the slices of flows.parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.release.statement import Published
from flowveil.zoning.h3 import resolution_of
from flowveil.zoning.outlines import dissolved
from flowveil.zoning.public_map import PublicMap, TreeMap, ZonePlaces, zone_chains

ENDS = ("origin_zone", "destination_zone")
SUMS = ("trips", "weight")
#: Fractions of trips and weights are published as multiples of a millionth.
_UNITS = 1_000_000
#: Levels below a zone at which its outline is drawn where zones overlap: within 2 % of its width.
_LEVELS_BELOW = 2


def zones_table(published: Published) -> pa.Table:
    """Returns the zones that published cells use, sorted by zone.

    GeoParquet 1.1 where the map is known.

    ``tiles`` counts those that a zone could hold, seen or not. A zone used at both ends has role
    ``both``, and so has every zone where both ends have the same zones. Zones made of H3 cells list
    them, as few and as coarse as possible.
    """
    codes, roles = _codes_and_roles(published)
    places = published.map.places(codes)
    area, outlines = _drawn(places, fit=published.statement.homogeneous)
    # Little-endian and flat on every machine, for identical bytes.
    wkb = None if outlines is None else shapely.to_wkb(outlines, output_dimension=2, byte_order=1)
    columns: dict[str, Any] = {
        "zone": pa.array(codes, pa.string()),
        "role": pa.array(roles, pa.string()),
        "level": pa.array(places.level, pa.int32()),
        "tiles": _column(places.tiles, pa.int64(), len(codes)),
        "area_km2": _column(area, pa.float64(), len(codes)),
        "lat": _column(places.lat, pa.float64(), len(codes)),
        "lon": _column(places.lon, pa.float64(), len(codes)),
        "geometry": _column(wkb, pa.binary(), len(codes)),
    }
    if places.names is not None:
        columns["name"] = pa.array([name or None for name in places.names.tolist()], pa.string())
    if places.h3_cells is not None:
        columns["h3_cells"] = pa.array(places.h3_cells, pa.list_(pa.string()))
    return _with_geo_metadata(pa.table(columns))


def _codes_and_roles(published: Published) -> tuple[list[str], list[str]]:
    starts, ends = (set(pc.unique(published.cells[name]).to_pylist()) for name in ENDS)
    codes = sorted(starts | ends)
    if published.statement.parameters.get("same_zones"):
        return codes, ["both"] * len(codes)
    return codes, [
        "both" if c in starts and c in ends else "origin" if c in starts else "destination"
        for c in codes
    ]


def has_nested_zones(cells: pa.Table, by: Sequence[str], places: PublicMap) -> bool:
    """Returns whether, among rows with equal values in some columns, a zone of an end contains
    another one.
    """
    for end in ENDS:
        used = (
            cells.select([*by, end])
            .group_by([*by, end], use_threads=False)
            .aggregate([])
            .to_pylist()
        )
        codes = list({row[end]: None for row in used})
        chains = dict(zip(codes, zone_chains(places, codes), strict=True))
        listed = {tuple(row.values()) for row in used}
        for row in used:
            *group, code = (row[one] for one in (*by, end))
            if any((*group, above) in listed for above, _ in chains[code][1:]):
                return True
    return False


def _column(values: Any, kind: pa.DataType, length: int) -> pa.Array:
    return (
        pa.nulls(length, kind) if values is None else pa.array(values, type=kind, from_pandas=True)
    )


def _drawn(places: ZonePlaces, *, fit: bool) -> tuple[Any, Any]:
    """Returns areas and outlines."""
    if places.h3_cells is None:
        return places.area_km2, places.polygons
    cells = [[int(cell, 16) for cell in own] for own in places.h3_cells]
    own = np.array(
        [resolution_of(np.array(of, dtype=np.uint64)).max(initial=0) for of in cells],
        dtype=np.int64,
    )
    finest = own.max(initial=0)
    resolution = np.full(len(cells), finest) if fit else np.minimum(own + _LEVELS_BELOW, finest)
    # A zone without cells ("outside") has no place.
    placed = np.array([bool(of) for of in cells])
    outlines, area = np.full(len(cells), None, dtype=object), np.full(len(cells), np.nan)
    for level in np.unique(resolution[placed]).tolist():
        at = np.flatnonzero(placed & (resolution == level))
        outlines[at], area[at] = dissolved([cells[i] for i in at.tolist()], level)
    return area, outlines


def lookup_table(published: Published, zones: pa.Table) -> pa.Table | None:
    """Returns the tiles of the operator's map that each zone holds, seen or not.

    None without such a map.

    Columns: ``zone``, ``role``, ``tile``, and ``tile_name`` where the map has names; sorted.
    """
    if not isinstance(published.map, TreeMap):
        return None
    tree = published.map.tree
    node = published.map.nodes(zones["zone"].to_pylist()).astype(np.int64)
    row = np.repeat(np.arange(len(node)), tree.size[node])
    slices = zip(tree.leaf_start[node].tolist(), tree.leaf_stop[node].tolist(), strict=True)
    tile = np.concatenate([tree.leaf_node[start:stop] for start, stop in slices])
    columns = {
        "zone": zones["zone"].take(pa.array(row)),
        "role": zones["role"].take(pa.array(row)),
        "tile": pa.array(tree.code_text(tile).tolist(), pa.string()),
    }
    if tree.names is not None:
        columns["tile_name"] = pa.array(
            [name or None for name in tree.names[tile].tolist()], pa.string()
        )
    return (
        pa.table(columns)
        .sort_by([(name, "ascending") for name in ("zone", "role", "tile")])
        .combine_chunks()
    )


def _with_geo_metadata(table: pa.Table) -> pa.Table:
    """Marks the table as GeoParquet 1.1; on a map without outlines every geometry is null."""
    outlines = table["geometry"].drop_null().to_numpy(zero_copy_only=False)
    kinds = {g.geom_type for g in shapely.from_wkb(outlines)}
    bounds = shapely.bounds(shapely.from_wkb(table["geometry"].to_numpy(zero_copy_only=False)))
    # Bounds as single numbers, so that readers skip rows of other places (GeoParquet's covering).
    corners = ("xmin", "ymin", "xmax", "ymax")
    boxes = pa.StructArray.from_arrays(
        [pa.array(bounds[:, at], pa.float64(), from_pandas=True) for at in range(4)], corners
    )
    geometry: dict[str, Any] = {"encoding": "WKB", "geometry_types": sorted(kinds)}
    if len(outlines):
        table = table.append_column("bbox", boxes)
        ends = (np.nanmin(bounds[:, :2], axis=0), np.nanmax(bounds[:, 2:], axis=0))
        geometry["bbox"] = [value for end in ends for value in end.tolist()]
        geometry["covering"] = {"bbox": {corner: ["bbox", corner] for corner in corners}}
    # No "crs": GeoParquet then means longitude and latitude on WGS 84 (OGC:CRS84).
    columns = {"geometry": geometry}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": columns}
    return table.combine_chunks().replace_schema_metadata({"geo": json.dumps(geo, sort_keys=True)})


def overview(flows: pa.Table) -> pa.Table:
    """Returns the matrix of all slices added up, sorted by zones."""
    return add_up(flows, ENDS)[0]


def split_slices(
    flows: pa.Table, slice_columns: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yields the value of each slice column, and the rows of that slice, in the order of the
    table.
    """
    if not slice_columns:
        yield {}, flows
        return
    number = np.zeros(len(flows), dtype=np.int64)
    for name in slice_columns:
        values = (
            flows[name]
            .combine_chunks()
            .dictionary_encode(null_encoding="encode")
            .indices.to_numpy()
        )
        number = np.unique(number * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    _, first = np.unique(number, return_index=True)
    order = np.argsort(number, kind="stable")
    start = np.searchsorted(number[order], np.arange(len(first) + 1))
    for slice_number in np.argsort(first).tolist():
        rows = flows.take(pa.array(order[start[slice_number] : start[slice_number + 1]]))
        yield {name: rows[name][0].as_py() for name in slice_columns}, rows


def add_up(cells: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, int]:
    """Returns one row for each combination of key columns, and the largest number of rows in one
    sum.

    Trips and weights are added exactly, whatever their order; other columns are left out. The
    columns are the zones, the volumes, then the other keys; rows are sorted by the keys.
    """
    sums = [name for name in SUMS if name in cells.column_names]
    # Counts, or weights in millionths, in which releases count them.
    whole = {name: pa.types.is_integer(cells[name].type) for name in sums}
    units = {
        name: (
            cells[name]
            if whole[name]
            else pc.cast(pc.round(pc.multiply(cells[name], float(_UNITS))), pa.int64())
        )
        for name in sums
    }
    exact = pa.table({**{name: cells[name] for name in keys}, **units})
    grouped = exact.group_by(list(keys), use_threads=False).aggregate(
        [*((name, "sum") for name in sums), ([], "count_all")]
    )
    grouped = grouped.take(
        pc.sort_indices(grouped, sort_keys=[(name, "ascending") for name in keys])
    ).combine_chunks()
    columns = {name: grouped[name] for name in keys if name in ENDS}
    for name in sums:
        found = grouped[f"{name}_sum"]
        columns[name] = (
            found if whole[name] else pc.divide(pc.cast(found, pa.float64()), float(_UNITS))
        )
    columns |= {name: grouped[name] for name in keys if name not in ENDS}
    return pa.table(columns).combine_chunks(), pc.max(grouped["count_all"]).as_py() or 0
