"""The small maps of private pages and of the workbench as plain data, and what all maps share.

The published page draws `flowveil.published.flow_map`. Coordinates are Web Mercator in whole units
of a frame around the zones, as differences along each ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Outlines
from flowveil.published.basemap_context import Context, context_of, world

#: A small map holds at most this many zones of an end: those with the most volume.
MAX_ZONES = 20_000
#: Points of all outlines together; finer outlines are simplified until they fit.
MAX_POINTS = 300_000
#: Units along the longer side of the frame: a few decimetres for a city.
FRAME_UNITS = 200_000

ENDS = ("origin", "destination")
BASES = ("trips", "weight")
_LARGEST_LATITUDE = 85.0


@dataclass(frozen=True)
class MapFrame:
    """The place of units in the world: x grows eastwards, y southwards, both from the north-west
    corner.
    """

    west: float  # the corner, in Web Mercator where the world is 0..1 in both directions
    north: float
    per_unit: float  # world width of one unit
    # Whether western longitudes count as 180 to 360, because the map lies across the 180th
    # meridian.
    shifted: bool = False

    @classmethod
    def around(cls, bounds: Floats) -> MapFrame:
        """The frame around boxes given as rows of west, south, east, north in degrees, none across
        180 degrees.
        """
        shifted = lies_across(bounds)
        corners = np.concatenate((bounds[:, :2], bounds[:, 2:]))
        world = _mercator(corners, shifted=shifted)
        low, high = world.min(axis=0), world.max(axis=0)
        span = max(float((high - low).max()), 1e-9)
        return cls(
            west=float(low[0]), north=float(low[1]), per_unit=span / FRAME_UNITS, shifted=shifted
        )

    @classmethod
    def around_places(cls, outlines: Outlines, points: Floats) -> MapFrame | None:
        """The frame around outlines and points (longitude, latitude).

        None if none of them has a place.
        """
        known = points[~np.isnan(points).any(axis=1)]
        bounds = np.concatenate(
            (part_bounds(outlines[is_drawn(outlines)]), np.hstack((known, known)))
        )
        return cls.around(bounds) if len(bounds) else None

    def units(self, lon_lat: Floats) -> Floats:
        """Points in degrees, as units of the frame (not yet rounded)."""
        return (_mercator(lon_lat, shifted=self.shifted) - [self.west, self.north]) / self.per_unit

    def whole_units(self, lon_lat: Floats) -> NDArray[np.int64]:
        """Points in degrees, as whole units of the frame."""
        return np.rint(self.units(lon_lat)).astype(np.int64)

    def to_dict(self) -> dict[str, float]:
        """Plain data for the page."""
        return {"west": self.west, "north": self.north, "perUnit": self.per_unit}


def lies_across(bounds: Floats) -> bool:
    """Whether boxes are closer together if western longitudes count as 180 to 360, and none would
    be torn by it.
    """
    west, east = bounds[:, 0], bounds[:, 2]
    # By more than rounding: west of Greenwich both are as wide, but for their last digit.
    saved = np.ptp(np.append(west, east)) - np.ptp(np.append(_eastward(west), _eastward(east)))
    return bool(saved > 1e-6 and not np.any((west < 0) & (east >= 0)))


def part_bounds(outlines: Outlines) -> Floats:
    """The box of each part of outlines: those across 180 degrees have parts on both sides of it."""
    return np.asarray(shapely.bounds(shapely.get_parts(outlines)), dtype=np.float64).reshape(-1, 4)


def shifted_eastward(zones: pa.Table) -> pa.Table:
    """Zones with longitudes from 0 to 360 where the map lies across 180 degrees.

    Otherwise the same.
    """
    outlines = geometries(zones)
    if len(zones) == 0 or not lies_across(part_bounds(outlines)):
        return zones
    moved = shapely.transform(outlines, lambda xy: np.column_stack((_eastward(xy[:, 0]), xy[:, 1])))
    joined = shapely.to_wkb(
        np.array([None if s is None else shapely.union_all(shapely.get_parts(s)) for s in moved])
    )
    lon = _eastward(zones["lon"].to_numpy(zero_copy_only=False).astype(np.float64))
    for name, values in (
        ("geometry", pa.array(joined.tolist(), pa.binary())),
        ("lon", pa.array(lon)),
    ):
        zones = zones.set_column(zones.schema.get_field_index(name), name, values)
    return zones


def _eastward(lon: Floats) -> Floats:
    return np.where(lon < 0, lon + 360, lon)


def _mercator(lon_lat: Floats, *, shifted: bool) -> Floats:
    lon = _eastward(lon_lat[:, 0]) if shifted else lon_lat[:, 0]
    lat = np.radians(np.clip(lon_lat[:, 1], -_LARGEST_LATITUDE, _LARGEST_LATITUDE))
    y = 0.5 - np.log(np.tan(lat) + 1 / np.cos(lat)) / (2 * np.pi)
    return np.column_stack((lon / 360 + 0.5, y))


def map_of_release(
    flows: pa.Table, zones: pa.Table, *, basis: str = "trips", frame: MapFrame | None = None
) -> dict[str, Any]:
    """Returns two layers of a small map: the zones of each end with their volume (``basis``) per
    km².

    A given frame is that of other maps; zones may reach beyond it. The result has ``frame`` (None
    if no zone has a place), ``context``, ``shapes`` and ``layers`` by end.
    """
    tables = [largest_zones(flows, zones, end, basis) for end in ENDS]
    layers = {
        end: zone_layer(flows, table, end, basis) for end, table in zip(ENDS, tables, strict=True)
    }
    frame, shapes = place_layers(layers, [geometries(table) for table in tables], frame=frame)
    drawn = None if frame is None else frame.to_dict()
    return {"context": around(tables, frame), "frame": drawn, "shapes": shapes, "layers": layers}


def largest_zones(
    flows: pa.Table, zones: pa.Table, end: str, basis: str, *, most: int = MAX_ZONES
) -> pa.Table:
    """Returns the zones of an end with the most volume: large areas first, below smaller ones."""
    listed = zones_of(zones, end)
    kept = np.sort(np.argsort(-volume_of(flows, listed, end, basis), kind="stable")[:most])
    area = np.nan_to_num(floats(listed, "area_km2")[kept])
    return listed.take(pa.array(kept[np.argsort(-area, kind="stable")]))


def zone_layer(flows: pa.Table, zones: pa.Table, end: str, basis: str) -> dict[str, Any]:
    """Returns codes, centres and volume per km² of zones of an end."""
    volume, area = volume_of(flows, zones, end, basis), floats(zones, "area_km2")
    density = np.divide(volume, area, out=np.zeros(len(area)), where=area > 0)
    places = {name: floats(zones, name) for name in ("lat", "lon")}
    values = [float(f"{v:.6g}") for v in density.tolist()]
    return {"code": zones["zone"].to_pylist(), **places, "values": values}


def floats(table: pa.Table, name: str) -> Floats:
    """A column of numbers; NaN for null."""
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)


def surroundings(
    zones: pa.Table, shapes: Outlines, frame: MapFrame
) -> tuple[Context, list[list[Any]]]:
    """Returns what lies around zones, and its towns as name, x and y in units of the frame, the
    largest first.
    """
    lon, lat = floats(zones, "lon"), floats(zones, "lat")
    corners = np.vstack((shapely.bounds(shapes), np.column_stack((lon, lat, lon, lat))))
    found, here = (
        context_of(np.append(np.nanmin(corners[:, :2], axis=0), np.nanmax(corners[:, 2:], axis=0))),
        world(),
    )
    units = frame.whole_units(
        np.column_stack((here.lon[found.towns], here.lat[found.towns]))
    ).tolist()
    return found, [[here.names[i], *xy] for i, xy in zip(found.towns.tolist(), units, strict=True)]


def around(tables: Sequence[pa.Table], frame: MapFrame | None) -> dict[str, Any] | None:
    """Returns coasts, borders and towns around the zones of these tables.

    None across the 180th meridian.
    """
    if frame is None or frame.shifted:
        return None
    zones = pa.concat_tables([table.select(["lat", "lon", "geometry"]) for table in tables])
    found, towns = surroundings(zones, geometries(zones), frame)
    lines = shapely.get_parts(
        np.concatenate((shapely.boundary(found.water), found.lines["borders"]))
    )
    units = [frame.whole_units(shapely.get_coordinates(line)) for line in lines]
    # The first point of a line, then differences.
    steps = [
        np.diff(line, axis=0, prepend=np.zeros((1, 2), dtype=np.int64)).ravel().tolist()
        for line in units
    ]
    return {"lines": steps, "towns": towns}


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
    return np.bincount(at[at >= 0], weights=weights[at >= 0], minlength=len(zones)).astype(
        np.float64
    )


def geometries(table: pa.Table) -> Outlines:
    """The outlines of zones."""
    return np.asarray(
        shapely.from_wkb(table["geometry"].to_numpy(zero_copy_only=False)), dtype=object
    )


def is_drawn(shapes: Outlines) -> NDArray[np.bool_]:
    """Which outlines have a place."""
    return ~np.asarray(shapely.is_missing(shapes) | shapely.is_empty(shapes), dtype=np.bool_)


def place_layers(
    layers: dict[str, Any], outlines: list[Outlines], *, frame: MapFrame | None = None
) -> tuple[MapFrame | None, list[list[list[int]]]]:
    """Replaces degrees by units and outlines by numbers of shapes, each held once.

    What has no place has no units.
    """
    whole = np.concatenate(outlines)
    has_shape = is_drawn(whole)
    points = [
        np.column_stack([np.array(layer.pop(n), float) for n in ("lon", "lat")])
        for layer in layers.values()
    ]
    own = MapFrame.around_places(whole, np.concatenate(points))
    frame = None if own is None else frame or own
    first, number = np.unique(
        shapely.to_wkb(whole[has_shape]), return_index=True, return_inverse=True
    )[1:]
    shape_of = np.full(len(whole), -1, dtype=np.int64)
    shape_of[has_shape] = number
    parts = np.split(shape_of, np.cumsum([len(center) for center in points])[:-1])
    for layer, center, part in zip(layers.values(), points, parts, strict=True):
        layer["x"], layer["y"] = units_of(center, frame)
        layer["shape"] = part.tolist()
    return frame, [] if frame is None else encode_shapes(whole[has_shape][first], frame)


def units_of(centers: Floats, frame: MapFrame | None) -> tuple[list[int | None], list[int | None]]:
    """Points in degrees, longitude first, as whole units of a frame.

    None where a point is not known.
    """
    known = ~np.isnan(centers).any(axis=1)
    units = np.full(centers.shape, None, dtype=object)
    if frame is not None:
        units[known] = frame.whole_units(centers[known])
    return units[:, 0].tolist(), units[:, 1].tolist()


@dataclass(frozen=True, eq=False)
class Rings:
    """Rings and lines of shapes in whole units of a frame, in the order of the shapes."""

    owner: NDArray[np.int64]  # the shape of each line
    corners: NDArray[
        np.int64
    ]  # how many corners each line has; the last of a ring, its first again, is not counted
    steps: NDArray[
        np.int64
    ]  # x and y of the first corner of each line, then differences from corner to corner
    line: NDArray[np.int64]  # the line of each step

    @classmethod
    def from_shapes(cls, shapes: Outlines, frame: MapFrame, most: int) -> Rings:
        """Outlines with more than that many points are simplified until they fit."""
        fitted = np.asarray(shapely.transform(shapes, frame.units), dtype=object)
        tolerance = 0.5
        while shapely.get_num_coordinates(fitted).sum() > most and tolerance < FRAME_UNITS / 50:
            fitted = shapely.simplify(fitted, tolerance, preserve_topology=True)
            tolerance *= 2
        parts, shape_of_part = shapely.get_parts(fitted, return_index=True)
        kind = shapely.get_type_id(parts)
        rings, part_of_ring = shapely.get_rings(parts[kind == 3], return_index=True)
        lines = np.concatenate((rings, parts[kind == 1]))
        owner = np.concatenate((shape_of_part[kind == 3][part_of_ring], shape_of_part[kind == 1]))
        order = np.argsort(owner, kind="stable")
        lines = lines[order]
        points, line = shapely.get_coordinates(lines, return_index=True)
        units = np.rint(points).astype(np.int64)
        first = np.ones(len(units), dtype=np.bool_)
        first[1:] = line[1:] != line[:-1]
        steps = np.diff(units, axis=0, prepend=units[:1])
        steps[first] = units[first]
        closed = np.asarray(shapely.get_type_id(lines) == 2, dtype=np.bool_)
        last = np.append(first[1:], True)
        kept = first | (steps.any(axis=1) & ~(last & closed[line]))
        return cls(
            owner[order], np.bincount(line[kept], minlength=len(lines)), steps[kept], line[kept]
        )


def encode_shapes(
    outlines: Outlines, frame: MapFrame, *, most: int = MAX_POINTS
) -> list[list[list[int]]]:
    """Outlines as lists of rings.

    A ring is x, y of its first point, then differences from point to point.
    """
    shapes: list[list[list[int]]] = [[] for _ in range(len(outlines))]
    rings = Rings.from_shapes(outlines, frame, most)
    numbers: list[int] = rings.steps.ravel().tolist()
    start = 0
    for stop, shape in zip(
        (2 * np.cumsum(rings.corners)).tolist(), rings.owner.tolist(), strict=True
    ):
        shapes[shape].append(numbers[start:stop])
        start = stop
    return shapes


def look(end: str, word: str, *, scale: str) -> dict[str, Any]:
    """How a layer that shows one value of every area is drawn and named."""
    title = word[:1].upper() + word[1:]
    return {
        "title": title,
        "label": f"{end}s",
        "word": word,
        "hue": end,
        "scale": scale,
        "fixed": True,
    }


def further_layer(
    data: dict[str, Any],
    *,
    code: list[str],
    lat: Floats,
    lon: Floats,
    outlines: Outlines,
    values: Floats,
) -> dict[str, Any]:
    """Areas that are not zones of the release, in the frame of its maps.

    Their shapes are added to the data.
    """
    frame = MapFrame(data["frame"]["west"], data["frame"]["north"], data["frame"]["perUnit"])
    has_shape = is_drawn(outlines)
    shape = np.full(len(outlines), -1, dtype=np.int64)
    shape[has_shape] = len(data["shapes"]) + np.arange(int(has_shape.sum()))
    data["shapes"] = data["shapes"] + encode_shapes(outlines[has_shape], frame)
    x, y = units_of(np.column_stack((lon, lat)), frame)
    shown = [float(f"{v:.6g}") for v in values.tolist()]
    return {"code": code, "x": x, "y": y, "shape": shape.tolist(), "values": shown}
