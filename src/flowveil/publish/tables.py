"""The two tables of a release: the matrix and its zones.

Both are pure functions of the release and sorted by their text codes, so the same release gives the same
bytes. Only zones that occur in a published cell are listed: a zone whose cells are all suppressed would tell
that somebody went there.
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
from flowveil.release.noisy import NoisyRelease

if TYPE_CHECKING:
    from flowveil.release.plan import Release, Zones
    from flowveil.release.sliced import Family

#: The columns that make a zone the same in both roles.
_ZONE_FIELDS = (
    ("level", pa.int32()),
    ("tiles", pa.int64()),
    ("area_km2", pa.float64()),
    ("lat", pa.float64()),
    ("lon", pa.float64()),
    ("geometry", pa.binary()),
)


#: Rows of noisy counts that are turned into text at a time.
_ROWS_AT_ONCE = 1 << 20


def flows_table(release: Release | NoisyRelease) -> pa.Table:
    """The published matrix, sorted by (origin_zone, destination_zone).

    Returns:
        ``origin_zone`` and ``destination_zone`` (text), ``trips`` (int64) and, where the input has weights,
        ``weight`` (float64).
    """
    if isinstance(release, NoisyRelease):
        return pa.concat_tables(noisy_flow_tables(release, rows=_ROWS_AT_ONCE))
    cells, plan = release.cells, release.plan
    origin, origin_rank = _codes_of(plan.origin_zones, cells.origin)
    destination, destination_rank = _codes_of(plan.destination_zones, cells.destination)
    order = np.lexsort((destination_rank, origin_rank))
    columns: dict[str, pa.Array] = {
        "origin_zone": origin.take(pa.array(order)),
        "destination_zone": destination.take(pa.array(order)),
        "trips": pa.array(cells.trips[order], type=pa.int64()),
    }
    if cells.weight is not None:
        columns["weight"] = pa.array(cells.weight[order], type=pa.float64())
    return pa.table(columns)


def noisy_flow_tables(release: NoisyRelease, *, rows: int) -> Iterator[pa.Table]:
    """The matrix of a noisy release, so many rows at a time: millions of codes are never text all at once.

    Its pairs stand in the order of publication already.
    """
    cells, plan = release.cells, release.plan
    ends = [
        (number, pa.array(zones.codes(np.arange(len(zones), dtype=np.int32)).tolist(), type=pa.string()))
        for number, zones in ((cells.origin, plan.origin_zones), (cells.destination, plan.destination_zones))
    ]
    for first in range(0, len(cells), rows):
        part = slice(first, first + rows)
        origin, destination = (codes.take(pa.array(number[part])) for number, codes in ends)
        trips = pa.array(cells.trips[part], type=pa.int64())
        yield pa.table({"origin_zone": origin, "destination_zone": destination, "trips": trips})


def zones_table(release: Release | NoisyRelease) -> pa.Table:
    """The zones that published cells use, sorted by zone then role; GeoParquet 1.1 where the map is known.

    ``tiles`` counts those that a zone could hold, seen or not; it is empty where that is not known. A zone used at both
    ends is one row of role ``both``.
    """
    plan, cells = release.plan, release.cells
    tiles_o, tiles_d = release.possible_tiles
    origin = _zone_rows(plan.origin_zones, cells.origin, tiles_o, "origin")
    destination = _zone_rows(plan.destination_zones, cells.destination, tiles_d, "destination")
    table = _join_roles(origin, destination).sort_by([("zone", "ascending"), ("role", "ascending")])
    return _with_geo_metadata(table)


def family_flows_table(family: Family) -> pa.Table:
    """The matrices of all slices in one table, sorted by slice, then origin and destination zone.

    Returns:
        The columns of `flows_table`, then one text column for each slice column; empty there means all values, so
        rows of a total come first.
    """
    tables = []
    for key, release in sorted(family, key=lambda pair: tuple((v is not None, v or "") for v in pair[0])):
        table = release.flows
        for name, value in zip(family.columns, key, strict=True):
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables).combine_chunks()


def family_zones_table(family: Family) -> pa.Table:
    """The zones that published cells of any slice use; see `zones_table`. Slices share trees, so zones agree."""
    origins, destinations = [], []
    for release in family.releases:
        plan, cells, (tiles_o, tiles_d) = release.plan, release.cells, release.possible_tiles
        origins.append(_zone_rows(plan.origin_zones, cells.origin, tiles_o, "origin"))
        destinations.append(_zone_rows(plan.destination_zones, cells.destination, tiles_d, "destination"))
    origin, destination = _distinct_zones(origins), _distinct_zones(destinations)
    table = _join_roles(origin, destination).sort_by([("zone", "ascending"), ("role", "ascending")])
    return _with_geo_metadata(table)


def _distinct_zones(tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables).combine_chunks()
    _, first = np.unique(rows["zone"].to_numpy(zero_copy_only=False).astype(np.str_), return_index=True)
    return rows.take(pa.array(first)).combine_chunks()


def _codes_of(zones: Zones, number: Ints) -> tuple[pa.Array, NDArray[np.int64]]:
    """The code of each cell's zone, and its rank in text order: few zones are sorted, not many cells."""
    used, position = np.unique(number, return_inverse=True)
    codes = zones.codes(used.astype(np.int32))
    _, rank = np.unique(codes, return_inverse=True)
    return pa.array(codes.tolist(), type=pa.string()).take(pa.array(position)), rank[position]


def _zone_rows(zones: Zones, number: Ints, tiles: NDArray[Any] | None, role: str) -> pa.Table:
    used = np.flatnonzero(np.bincount(number)).astype(np.int32)
    codes, first = np.unique(zones.codes(used), return_index=True)
    used = used[first]
    center, area, outline = zones.centers(used), zones.areas_km2(used), zones.polygons(used)
    lat, lon = (None, None) if center is None else center
    known: dict[str, Any] = {
        "level": zones.level[used],
        "tiles": None if tiles is None else tiles[used],
        "area_km2": area,
        "lat": lat,
        "lon": lon,
        # Little-endian and flat whatever the machine, for identical bytes.
        "geometry": None if outline is None else shapely.to_wkb(outline, output_dimension=2, byte_order=1),
    }
    columns = {
        "zone": pa.array(codes.tolist(), type=pa.string()),
        "role": pa.array([role] * len(used), pa.string()),
    }
    for name, kind in _ZONE_FIELDS:
        values = known[name]
        columns[name] = pa.nulls(len(used), kind) if values is None else pa.array(values, type=kind)
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
