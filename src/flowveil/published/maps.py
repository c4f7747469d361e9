"""The maps of a page as plain data, made from published tables and nothing else.

What a page draws is a pure function of the rows of ``flows.parquet`` and ``zones.parquet``: whatever a reader digs out
of the page is in those files already. The same holds for the faint grid below the zones: it shows every
tile that a published zone could hold, observed or not, because the observed ones would reveal where
suppressed trips were.

Coordinates are Web Mercator in whole units of a frame around the zones, as differences along each ring: a
hexagon takes some forty characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.hierarchy import OUTSIDE, VIRTUAL_ROOT, Floats
from flowveil.published.basemap_context import context_of, nearest_places
from flowveil.zoning.h3 import MAX_RESOLUTION

#: A page holds at most this many flows and zones of an end: the largest. More would make it slow and large, and nobody
#: sees more; totals always count all.
MAX_FLOWS = 20_000
MAX_ZONES = 20_000
#: Points of all outlines together; finer outlines are simplified until they fit.
MAX_POINTS = 300_000
#: Tiles of the neutral grid; above, a coarser resolution is drawn.
MAX_GRID_TILES = 8_000
#: Units along the longer side of the frame: a few decimetres for a city.
FRAME_UNITS = 200_000

ENDS = ("origin", "destination")
BASES = ("trips", "weight")
_LARGEST_LATITUDE = 85.0

Geometries = NDArray[np.object_]


@dataclass(frozen=True)
class Frame:
    """Where units lie in the world: x grows eastwards, y southwards, both from the north-west corner.

    Attributes:
        west, north: the corner, in Web Mercator where the world is 0..1 in both directions.
        per_unit: world width of one unit.
        shifted: whether western longitudes count as 180 to 360, because the map lies across the 180th meridian.
    """

    west: float
    north: float
    per_unit: float
    shifted: bool = False

    @classmethod
    def around(cls, bounds: Floats) -> Frame:
        """The frame around boxes given as rows of west, south, east, north in degrees, none across 180 degrees."""
        shifted = lies_across(bounds)
        corners = np.concatenate((bounds[:, :2], bounds[:, 2:]))
        world = _mercator(corners, shifted=shifted)
        low, high = world.min(axis=0), world.max(axis=0)
        span = max(float((high - low).max()), 1e-9)
        return cls(west=float(low[0]), north=float(low[1]), per_unit=span / FRAME_UNITS, shifted=shifted)

    def units(self, lon_lat: Floats) -> Floats:
        """Points in degrees, as units of the frame (not yet rounded)."""
        return (_mercator(lon_lat, shifted=self.shifted) - [self.west, self.north]) / self.per_unit

    def to_dict(self) -> dict[str, float]:
        """Plain data for the page."""
        return {"west": self.west, "north": self.north, "perUnit": self.per_unit}


def lies_across(bounds: Floats) -> bool:
    """Whether boxes are closer together if western longitudes count as 180 to 360, and none would be torn by it."""
    west, east = bounds[:, 0], bounds[:, 2]
    # By more than rounding: west of Greenwich both are as wide, but for their last digit.
    saved = np.ptp(np.append(west, east)) - np.ptp(np.append(_eastward(west), _eastward(east)))
    return bool(saved > 1e-6 and not np.any((west < 0) & (east >= 0)))


def part_bounds(outlines: Geometries) -> Floats:
    """The box of each part of outlines: those across 180 degrees have parts on both sides of it."""
    return np.asarray(shapely.bounds(shapely.get_parts(outlines)), dtype=np.float64).reshape(-1, 4)


def shifted_eastward(zones: pa.Table) -> pa.Table:
    """Zones with longitudes from 0 to 360 where the map lies across 180 degrees; otherwise the same."""
    outlines = geometries(zones)
    if len(zones) == 0 or not lies_across(part_bounds(outlines)):
        return zones
    moved = shapely.transform(outlines, lambda xy: np.column_stack((_eastward(xy[:, 0]), xy[:, 1])))
    joined = shapely.to_wkb(np.array([None if s is None else shapely.union_all(shapely.get_parts(s)) for s in moved]))
    lon = _eastward(zones["lon"].to_numpy(zero_copy_only=False).astype(np.float64))
    for name, values in (("geometry", pa.array(joined.tolist(), pa.binary())), ("lon", pa.array(lon))):
        zones = zones.set_column(zones.schema.get_field_index(name), name, values)
    return zones


def _eastward(lon: Floats) -> Floats:
    return np.where(lon < 0, lon + 360, lon)


def _mercator(lon_lat: Floats, *, shifted: bool) -> Floats:
    lon = _eastward(lon_lat[:, 0]) if shifted else lon_lat[:, 0]
    lat = np.radians(np.clip(lon_lat[:, 1], -_LARGEST_LATITUDE, _LARGEST_LATITUDE))
    y = 0.5 - np.log(np.tan(lat) + 1 / np.cos(lat)) / (2 * np.pi)
    return np.column_stack((lon / 360 + 0.5, y))


# ---- zones and flows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A matrix with its zones.

    Attributes:
        flows, zones: its tables.
        homogeneous: whether zones of one end never overlap.
        level: the H3 resolution of its areas where they are a common zoning, over which the cells were spread.
        times: when each pair is published, where times fold; see `flowveil.published.times.times_of`.
    """

    flows: pa.Table
    zones: pa.Table
    homogeneous: bool = True
    level: int | None = None
    times: Mapping[str, Any] | None = None


def map_of_release(
    flows: pa.Table,
    zones: pa.Table,
    *,
    resolution: int | None = None,
    homogeneous: bool = True,
    boxes: bool = False,
    max_flows: int = MAX_FLOWS,
    max_zones: int = MAX_ZONES,
    frame: Frame | None = None,
) -> dict[str, Any]:
    """What the page needs to draw a release.

    Args:
        flows: the published matrix, see `flowveil.published.tables.flows_table`.
        zones: the published zones, see `flowveil.published.tables.zones_table`.
        resolution: H3 resolution of the tiles, for the neutral grid; None where tiles are not H3 cells.
        homogeneous: whether zones of one end never overlap.
        boxes: whether the zones are boxes instead of nodes of a tree.
        max_flows: most flows to hold; the largest are kept.
        max_zones: most zones of one end to hold; those with the most volume are kept.
        frame: that of other maps, where this one shall lie in it; zones may reach beyond it.

    Returns:
        Plain data: ``bases``, ``frame`` (None where no zone has a place), ``shapes``, ``layers`` by end, ``flows``,
        ``grid``, and how many flows and zones there are in all.
    """
    own = _hold(flows, zones, max_flows, max_zones)
    layers = {end: _columns_of(own.tables[end], own.totals[end]) for end in ENDS}
    frame, shapes = place_layers(layers, [geometries(own.tables[end]) for end in ENDS], frame=frame)
    return {
        "bases": own.bases,
        "homogeneous": homogeneous,
        "context": around(list(own.tables.values()), frame),
        "words": _pack_places(layers),
        "boxes": boxes,
        "frame": None if frame is None else frame.to_dict(),
        "shapes": shapes,
        "layers": layers,
        "flows": own.flows,
        "count": own.count,
        "grid": None if frame is None else (grid_below_boxes if boxes else neutral_grid)(zones, resolution, frame),
    }


def map_of_views(
    own: View,
    further: Sequence[View],
    zones: pa.Table,
    *,
    resolution: int | None,
    boxes: bool = False,
    max_flows: int,
    max_zones: int,
) -> dict[str, Any]:
    """The same for a page of several views, whose zones are rows of one table, ``areas``.

    Args:
        own: the view of the page itself: what `map_of_release` has.
        further: the others.
        zones: all published zones; those of the others are among them.
        resolution, boxes: as there.
        max_flows, max_zones: what each further view may hold.

    Returns:
        What `map_of_release` returns for the first, with ``areas``, and ``views``: for each of the others the numbers
        of its areas, their volumes, and its flows.
    """
    first = _hold(own.flows, own.zones, MAX_FLOWS, MAX_ZONES)
    held = [_hold(view.flows, view.zones, max_flows, max_zones) for view in further]
    drawn = pa.concat_arrays([pa.concat_arrays(h.tables[end]["zone"].chunks) for h in held for end in ENDS])
    codes, row = np.unique(zones["zone"].to_numpy(zero_copy_only=False).astype(np.str_), return_index=True)
    kept = pc.is_in(pa.array(codes.tolist(), pa.string()), value_set=drawn).to_numpy(zero_copy_only=False)
    areas = zones.take(pa.array(row[kept]))
    layers = {end: _columns_of(first.tables[end], first.totals[end]) for end in ENDS}
    layers["areas"] = _columns_of(areas, {})
    frame, shapes = place_layers(layers, [*(geometries(first.tables[end]) for end in ENDS), geometries(areas)])
    grid = None if frame is None else (grid_below_boxes if boxes else neutral_grid)(areas, resolution, frame)
    return {
        "bases": first.bases,
        "homogeneous": own.homogeneous,
        "estimated": own.level is not None,
        "context": around([*first.tables.values(), areas], frame),
        "words": _pack_places(layers),
        "boxes": boxes,
        "frame": None if frame is None else frame.to_dict(),
        "shapes": shapes,
        "areas": layers.pop("areas"),
        "layers": layers,
        "flows": first.flows,
        "count": first.count,
        "grid": grid,
        "views": {"list": [_view(view, h, areas) for view, h in zip(further, held, strict=True)]},
    }


def _view(view: View, held: _Held, areas: pa.Table) -> dict[str, Any]:
    ends = {
        end: {
            "zone": pc.index_in(held.tables[end]["zone"], value_set=areas["zone"].combine_chunks()).to_pylist(),
            **{name: _numbers(values) for name, values in held.totals[end].items()},
        }
        for end in ENDS
    }
    return {**ends, "flows": held.flows, "count": held.count, "homogeneous": view.homogeneous}


@dataclass(frozen=True)
class _Held:
    """What a page holds of a matrix: zones of each end in drawing order, their totals, and the largest flows."""

    bases: list[str]
    tables: dict[str, pa.Table]
    totals: dict[str, dict[str, NDArray[Any]]]
    flows: dict[str, list[Any]]
    count: dict[str, int]


def _hold(flows: pa.Table, zones: pa.Table, max_flows: int, max_zones: int) -> _Held:
    bases = [b for b in BASES if b in flows.column_names]
    tables, places, totals, count = {}, {}, {}, {}
    for end in ENDS:
        table = zones_of(zones, end)
        at = zone_of_flow(flows, table, end)
        weights: dict[str, Floats] = {
            **{b: flows[b].to_numpy().astype(np.float64) for b in bases},
            "cells": np.ones(len(flows)),
        }
        total: dict[str, NDArray[Any]] = {
            name: np.bincount(at, weights=w, minlength=len(table)) for name, w in weights.items()
        }
        order = _drawing_order(table, total[bases[-1]], max_zones)
        count[end] = len(table)
        number = np.full(len(table), -1, dtype=np.int64)
        number[order] = np.arange(len(order))
        tables[end], places[end] = table.take(pa.array(order)), number[at]
        totals[end] = {name: values[order] for name, values in total.items()}
    return _Held(bases, tables, totals, _largest_flows(flows, places, bases, max_flows), {"flows": len(flows), **count})


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)


def around(tables: Sequence[pa.Table], frame: Frame | None) -> dict[str, Any] | None:
    """What lies around the zones of these tables, for orientation."""
    if frame is None:
        return None
    lat, lon = (np.concatenate([_floats(table, name) for table in tables]) for name in ("lat", "lon"))
    outlines = np.concatenate([geometries(table) for table in tables])
    corners = np.vstack((shapely.bounds(outlines), np.column_stack((lon, lat, lon, lat))))
    low, high = np.nanmin(corners, axis=0), np.nanmax(corners, axis=0)
    return context_of(np.array([low[0], low[1], high[2], high[3]]), frame)


def zones_of(zones: pa.Table, end: str) -> pa.Table:
    """The published zones of one end."""
    return zones.filter(pc.is_in(zones["role"], value_set=pa.array([end, "both"])))


def placed(zones: pa.Table) -> pa.Table:
    """The zones that have a place on the map: what lies outside the area has none."""
    return zones.filter(zones["lat"].is_valid())


def zone_of_flow(flows: pa.Table, zones: pa.Table, end: str) -> NDArray[np.int64]:
    """The number of the zone that each flow has at an end; -1 where it is not among these."""
    at = pc.index_in(flows[f"{end}_zone"], value_set=zones["zone"].combine_chunks())
    return np.asarray(at.fill_null(-1).to_numpy(), dtype=np.int64)


def volume_of(flows: pa.Table, zones: pa.Table, end: str, basis: str) -> Floats:
    """What starts, or ends, in each zone."""
    at, weights = zone_of_flow(flows, zones, end), flows[basis].to_numpy().astype(np.float64)
    return np.bincount(at[at >= 0], weights=weights[at >= 0], minlength=len(zones)).astype(np.float64)


def _drawing_order(table: pa.Table, volume: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Large areas first, so that smaller ones lie on top of them; codes break ties."""
    kept = np.arange(len(table))
    if len(table) > most:
        kept = np.sort(np.lexsort((kept, -volume))[:most])
    area = table["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)[kept]
    return kept[np.lexsort((kept, -np.nan_to_num(area)))]


def _columns_of(table: pa.Table, totals: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    def rounded(name: str, digits: int) -> list[float | None]:
        values = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        return [None if v != v else v for v in np.round(values, digits).tolist()]

    return {
        "code": table["zone"].to_pylist(),
        **({"name": table["name"].to_pylist()} if "name" in table.column_names else {}),
        "place": places_of(table),
        "level": table["level"].to_pylist(),
        "tiles": table["tiles"].to_pylist(),
        "area": [None if a is None else float(f"{a:.4g}") for a in table["area_km2"].to_pylist()],
        "lat": rounded("lat", 5),
        "lon": rounded("lon", 5),
        **{name: _numbers(values) for name, values in totals.items()},
    }


def places_of(table: pa.Table) -> list[str | None]:
    """What each zone is called by where it lies."""
    called = nearest_places(*(_floats(table, name) for name in ("lat", "lon", "area_km2")))
    placed_ones = zip(table["zone"].to_pylist(), table["lat"].is_valid().to_pylist(), called, strict=True)
    return ["outside the study area" if zone == OUTSIDE and not known else said for zone, known, said in placed_ones]


def _pack_places(layers: Mapping[str, dict[str, Any]]) -> list[str]:
    """Put two columns of numbers in the place of names, which are long and much the same.

    Returns:
        What is said, each once, as "north-east of Oakland"; ``where`` says which of them a zone has, ``far`` the
        kilometres in front of it. Either is None where there is none.
    """
    words: dict[str, int] = {}
    for layer in layers.values():
        layer["where"], layer["far"] = [], []
        for place in layer.pop("place"):
            distance, km, rest = (place or "").partition(" km ")
            layer["where"].append(None if place is None else words.setdefault(rest if km else place, len(words)))
            layer["far"].append(_plain(float(distance)) if km else None)
    return list(words)


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _numbers(values: NDArray[Any]) -> list[float | int]:
    """Whole numbers as such, others to two decimals."""
    rounded = np.round(values, 2)
    return [_plain(v) for v in rounded.tolist()]


def _largest_flows(
    flows: pa.Table, places: Mapping[str, NDArray[np.int64]], bases: list[str], most: int
) -> dict[str, list[Any]]:
    drawn = np.flatnonzero((places["origin"] >= 0) & (places["destination"] >= 0))
    volume = flows[bases[-1]].to_numpy()[drawn]
    # Rows are sorted by code, so the row number breaks ties.
    chosen = drawn[np.lexsort((drawn, -volume))[:most]]
    return {
        **{end: places[end][chosen].tolist() for end in ENDS},
        **{basis: _numbers(flows[basis].to_numpy()[chosen]) for basis in bases},
    }


def geometries(table: pa.Table) -> Geometries:
    """The outlines of zones."""
    return np.asarray(shapely.from_wkb(table["geometry"].to_numpy(zero_copy_only=False)), dtype=object)


def place_layers(
    layers: dict[str, Any], outlines: list[Geometries], *, frame: Frame | None = None
) -> tuple[Frame | None, list[list[list[int]]]]:
    """Give every layer the units of its centres, in place of degrees, and the numbers of its shapes.

    Outlines that layers share are held once. What has no place has no units.
    """
    whole = np.concatenate(outlines)
    has_shape = ~(shapely.is_missing(whole) | shapely.is_empty(whole))
    bounds = part_bounds(whole[has_shape])
    degrees = [[np.array(layer.pop(name), float) for name in ("lon", "lat")] for layer in layers.values()]
    points = [np.column_stack(lon_lat) for lon_lat in degrees]
    centers = np.concatenate(points)
    known = ~np.isnan(centers).any(axis=1)
    bounds = np.concatenate((bounds, np.hstack((centers[known], centers[known]))))
    if len(bounds) == 0:
        for layer, center in zip(layers.values(), points, strict=True):
            layer |= {"x": [None] * len(center), "y": [None] * len(center), "shape": [-1] * len(center)}
        return None, []
    frame = frame or Frame.around(bounds)
    keys = shapely.to_wkb(whole[has_shape])
    first, number = np.unique(keys, return_index=True, return_inverse=True)[1:]
    shapes = encode_shapes(whole[has_shape][first], frame)
    shape_of = np.full(len(whole), -1, dtype=np.int64)
    shape_of[has_shape] = number
    start = 0
    for layer, center in zip(layers.values(), points, strict=True):
        stop = start + len(center)
        layer["x"], layer["y"] = units_of(center, frame)
        layer["shape"] = shape_of[start:stop].tolist()
        start = stop
    return frame, shapes


def units_of(centers: Floats, frame: Frame) -> tuple[list[int | None], list[int | None]]:
    """Points in degrees, longitude first, as whole units of a frame; None where a point is not known."""
    known = ~np.isnan(centers).any(axis=1)
    units = np.full(centers.shape, None, dtype=object)
    units[known] = np.rint(frame.units(centers[known])).astype(np.int64)
    return units[:, 0].tolist(), units[:, 1].tolist()


def encode_shapes(outlines: Geometries, frame: Frame, *, most: int = MAX_POINTS) -> list[list[list[int]]]:
    """Outlines as lists of rings; a ring is x, y of its first point, then differences from point to point."""
    fitted = np.asarray(shapely.transform(outlines, frame.units), dtype=object)
    tolerance = 0.5
    while shapely.get_num_coordinates(fitted).sum() > most and tolerance < FRAME_UNITS / 50:
        fitted = shapely.simplify(fitted, tolerance, preserve_topology=True)
        tolerance *= 2
    parts, shape_of_part = shapely.get_parts(fitted, return_index=True)
    is_area = shapely.get_type_id(parts) == 3
    rings, part_of_ring = shapely.get_rings(parts[is_area], return_index=True)
    shapes: list[list[list[int]]] = [[] for _ in range(len(outlines))]
    if len(rings) == 0:
        return shapes
    points, ring_of_point = shapely.get_coordinates(rings, return_index=True)
    units = np.rint(points).astype(np.int64)
    step = np.diff(units, axis=0, prepend=units[:1])
    first = np.ones(len(units), dtype=np.bool_)
    first[1:] = ring_of_point[1:] != ring_of_point[:-1]
    step[first] = units[first]
    # The last point of a ring is its first again.
    last = np.append(first[1:], True)
    kept = ~last & (first | step.any(axis=1))
    numbers: list[int] = step[kept].ravel().tolist()
    stops = 2 * np.cumsum(np.bincount(ring_of_point[kept], minlength=len(rings)))
    start = 0
    for stop, shape in zip(stops.tolist(), shape_of_part[is_area][part_of_ring].tolist(), strict=True):
        shapes[shape].append(numbers[start:stop])
        start = stop
    return shapes


# ---- the neutral grid --------------------------------------------------------------------------------------------


def neutral_grid(zones: pa.Table, resolution: int | None, frame: Frame) -> dict[str, Any] | None:
    """Every H3 cell that a published zone could hold, observed or not.

    Drawn at the tiles' resolution, or at the finest one that is not too many; nothing inside zones that are as fine as
    that themselves.

    Returns:
        ``resolution`` and ``shapes``; None where the zones are not H3 cells or nothing lies below them.
    """
    import h3.api.basic_str as h3

    if resolution is None or "h3_cells" not in zones.column_names or VIRTUAL_ROOT in zones["zone"].to_pylist():
        return None
    codes = sorted({cell for cells in zones["h3_cells"].to_pylist() for cell in cells})
    if not codes:
        return None
    levels = list(map(h3.get_resolution, codes))
    for finest in range(min(resolution, MAX_RESOLUTION), min(levels), -1):
        coarser = [(code, level) for code, level in zip(codes, levels, strict=True) if level < finest]
        if coarser and sum(7 ** (finest - level) for _, level in coarser) <= MAX_GRID_TILES:
            return {"resolution": finest, "shapes": _grid(tuple(code for code, _ in coarser), finest, frame)}
    return None


@lru_cache(maxsize=2)
def _grid(zones: tuple[str, ...], resolution: int, frame: Frame) -> Sequence[Sequence[Sequence[int]]]:
    """The outlines of all cells inside these.

    Kept, for a page is made when a release is written and again when its draft is read back.
    """
    import h3.api.basic_str as h3

    cells = sorted({child for zone in zones for child in h3.cell_to_children(zone, resolution)})
    return encode_shapes(hexagons(cells), frame)


def grid_below_boxes(zones: pa.Table, resolution: int | None, frame: Frame) -> dict[str, Any] | None:
    """Every H3 cell that touches a published box, observed or not: a function of the boxes and the resolution alone.

    Drawn at the tiles' resolution, or at the finest one that is not too many.

    Returns:
        ``resolution``, ``shapes``, and ``within``: the outline of all boxes together, to cut the cells off at; None
        where the tiles are not H3 cells or no box has a place.
    """
    import h3.api.basic_str as h3

    outlines = geometries(zones)
    known = outlines[~(shapely.is_missing(outlines) | shapely.is_empty(outlines))]
    if resolution is None or len(known) == 0:
        return None
    covered = shapely.union_all(known)
    area = _area_km2(shapely.get_parts(covered))
    for finest in range(min(resolution, MAX_RESOLUTION), -1, -1):
        # Far too many are not even listed.
        if area / h3.average_hexagon_area(finest, unit="km^2") > 2 * MAX_GRID_TILES:
            continue
        cells = _cells_touching(covered, finest)
        if len(cells) <= MAX_GRID_TILES:
            (within,) = encode_shapes(np.array([covered], dtype=object), frame)
            return {"resolution": finest, "shapes": encode_shapes(hexagons(cells), frame), "within": within}
    return None


def _cells_touching(area: Any, resolution: int) -> list[str]:
    """The H3 cells that an area has a part of.

    The library lists those with their centre inside: ask it for a wider area, and drop what does not touch.
    """
    import h3.api.basic_str as h3

    _, south, _, north = shapely.bounds(area)
    narrowing = max(float(np.cos(np.radians(max(abs(south), abs(north))))), 0.01)
    # Cells differ in size by less than a factor of two.
    reach = 2 * h3.average_hexagon_edge_length(resolution, unit="km") / (111.0 * narrowing)
    world = shapely.box(-180, -90, 180, 90)
    wider = shapely.get_parts(shapely.intersection(shapely.buffer(area, reach, join_style="mitre"), world))
    rings = [[shapely.get_coordinates(ring)[:-1, ::-1].tolist() for ring in shapely.get_rings(x)] for x in wider]
    listed = {cell for part in rings for cell in h3.h3shape_to_cells(h3.LatLngPoly(*part), resolution)}
    cells = np.array(sorted(listed))
    shapely.prepare(area)
    touching: list[str] = cells[shapely.intersects(area, hexagons(cells.tolist()))].tolist()
    return touching


def _area_km2(outlines: Geometries) -> float:
    """Area on a sphere, near enough to see whether hexagons would be too many."""
    west, south, east, north = shapely.bounds(outlines).T
    height = np.sin(np.radians(north)) - np.sin(np.radians(south))
    around = 6371.0**2 * np.radians(east - west) * height
    # The share of its bounding box that an outline fills hardly depends on the projection.
    filled = shapely.area(outlines) / np.maximum((east - west) * (north - south), 1e-12)
    return float(np.sum(around * filled))


def hexagons(cells: list[str]) -> Geometries:
    """The outlines of H3 cells."""
    import h3.api.basic_str as h3

    rings = [h3.cell_to_boundary(cell) for cell in cells]
    points = np.array([point for ring in rings for point in ring]).reshape(-1, 2)[:, ::-1]
    ring_of_point = np.repeat(np.arange(len(rings)), [len(ring) for ring in rings])
    return np.asarray(shapely.polygons(shapely.linearrings(points, indices=ring_of_point)), dtype=object)
