"""Geometry: tiles around points, study areas, and boxes.

A box is a zone that is a rectangle in degrees, named `box_west_south_east_north`. It holds its west
and south edges, not its east and north ones. It contains a tile if it contains its centre. Its west
is larger than its east where it crosses the 180th meridian.
"""

from __future__ import annotations

import math
import re
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from .tree import OUTSIDE_CELL, Codes, ZoneMap, cells_inside

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
#: Edges are published in whole numbers of this part of a degree.
_UNITS_PER_DEGREE = 10_000_000
#: Pairs of a point and a box in one batch.
_AT_ONCE = 1 << 22


class UnreadableInputError(ValueError):
    """This reader does not know the input; the message says why.

    The flows of the engine serve instead.
    """


def tiles_at(lat: Any, lon: Any, zone_map: ZoneMap) -> Numbers:
    """Returns the number of the tile around each point, -1 for none.

    On a border, that with the smallest code.
    """
    if zone_map.outlines is None:
        raise UnreadableInputError("the ends are coordinates, and the map has no outlines")
    outlines = zone_map.outlines[zone_map.tiles]
    shapely.prepare(outlines)
    point, tile = shapely.STRtree(outlines).query(shapely.points(lon, lat))
    inside = shapely.intersects_xy(outlines[tile], lon[point], lat[point])
    found = np.full(len(lat), len(outlines), dtype=np.int64)
    np.minimum.at(found, point[inside], tile[inside])
    return np.where(found == len(outlines), -1, found)


def cells_in_area(cells: Codes, area: str) -> Mask:
    """Returns which H3 cells have their centres in a study area.

    Cells of an area contain their descendants.
    """
    parts = area.split(",")
    if not all(re.fullmatch("[0-9a-fA-F]{15}", part) for part in parts):
        lat, lon = (
            np.array([h3_int.cell_to_latlng(cell) for cell in cells.tolist()]).reshape(-1, 2).T
        )
        return points_in_area(lat, lon, area)
    return cells_inside(cells, np.array([int(part, 16) for part in parts], dtype=np.uint64))


def points_in_area(lat: Any, lon: Any, area: str) -> Mask:
    """Returns which points are in a study area.

    Degrees (west, south, east, north) or ``wkb:``, borders included.
    """
    if np.isnan(lat).any():
        raise UnreadableInputError("the centres of the zones are unknown")
    if area.startswith("wkb:"):
        outline = shapely.from_wkb(area.removeprefix("wkb:"))
        shapely.prepare(outline)
        return np.asarray(shapely.intersects_xy(outline, lon, lat), dtype=np.bool_)
    try:
        west, south, east, north = (float(part) for part in area.split(","))
    except ValueError:
        raise UnreadableInputError(
            "the study area is made of H3 cells, or of a form that is unknown here"
        ) from None
    across = (lon >= west) & (lon <= east) if west < east else (lon >= west) | (lon <= east)
    return np.asarray((lat >= south) & (lat <= north) & across, dtype=np.bool_)


def bounds_of(codes: pa.Array) -> Floats:
    """Returns west, south, east and north of each box, one row each.

    NaN where a code is not that of a box.
    """
    number = r"_(-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)"
    found = [re.fullmatch(f"box{number * 4}", code) for code in codes.to_pylist()]
    return np.array(
        [[math.nan] * 4 if box is None else [float(edge) for edge in box.groups()] for box in found]
    )


def count_off_grid(bounds: Floats, grid_lon: float, grid_lat: float) -> int:
    """Returns how many boxes have an edge off the lines of the declared grid.

    Ends of the map are lines too.
    """
    if not (0 < grid_lon < math.inf and 0 < grid_lat < math.inf):
        return len(bounds)
    step = np.maximum(1, np.rint(np.array([grid_lon, grid_lat] * 2) * _UNITS_PER_DEGREE)).astype(
        np.int64
    )
    edge = np.nan_to_num(bounds)
    units = np.rint(edge * _UNITS_PER_DEGREE).astype(np.int64)
    on_line = (units % step == 0) | (np.abs(edge) == [180, 90] * 2)
    off = np.isnan(bounds) | (units / _UNITS_PER_DEGREE != edge) | ~on_line
    return int(off.any(axis=1).sum())


def centers_of(tiles: Codes, zone_map: ZoneMap | None) -> Floats:
    """Returns longitude and latitude of each tile, one row each; NaN if it has no place."""
    if zone_map is not None:
        at = zone_map.nodes_of(tiles)
        lon, lat = zone_map.lon[at], zone_map.lat[at]
    else:
        found = [
            h3_int.cell_to_latlng(c) if c != OUTSIDE_CELL else (math.nan, math.nan)
            for c in tiles.tolist()
        ]
        lat, lon = np.array(found).reshape(-1, 2).T
    return np.stack((np.where(lon >= 180.0, lon - 360.0, lon), lat), axis=1)


def corners_of(a: Floats, b: Floats) -> tuple[Floats, Floats, Numbers]:
    """Returns lower and upper corners in (lon, lat, lon, lat), and their cells.

    Across 180 degrees a box is two.
    """
    both, cell = np.concatenate((a, b), axis=1), np.arange(len(a))
    for west, east in ((0, 2), (4, 6)):
        across = both[:, west] > both[:, east]
        beyond = both[across]
        both[across, east], beyond[:, west] = 180.0, -180.0
        both, cell = np.concatenate((both, beyond)), np.append(cell, cell[across])
    return both[:, [0, 1, 4, 5]], both[:, [2, 3, 6, 7]], cell


def pairs_inside(point: Any, low: Any, high: Any) -> tuple[Numbers, Numbers]:
    """Returns all pairs of a point and a box that holds it.

    Low <= point < high in all of its two or four dimensions.

    An R-tree finds them by the first two dimensions. In four, this is done once for each place with
    points.
    """
    known = np.flatnonzero(~np.isnan(point).any(axis=1))
    place, of_point = point[known], np.arange(len(known))
    if point.shape[1] > 2:
        place, of_point = np.unique(place[:, :2], axis=0, return_inverse=True)
    at, box = shapely.STRtree(shapely.box(*low[:, :2].T, *high[:, :2].T)).query(
        shapely.points(place[:, :2])
    )
    held = ((low[box, :2] <= place[at]) & (place[at] < high[box, :2])).all(axis=1)
    at, box = at[held], box[held]
    if point.shape[1] == 2:
        return known[at], box
    rows, boxes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    of_place = np.split(
        known[np.argsort(of_point, kind="stable")], np.cumsum(np.bincount(of_point))
    )
    for own, near in zip(
        of_place, np.split(box, np.searchsorted(at, np.arange(1, len(place)))), strict=False
    ):
        for some in np.array_split(own, 1 + len(own) * len(near) // _AT_ONCE):
            ends = ((point[some, axis, None], low[near, axis], high[near, axis]) for axis in (2, 3))
            row, inside = np.nonzero(
                np.logical_and(*((start <= end) & (end < stop) for end, start, stop in ends))
            )
            rows.append(some[row])
            boxes.append(near[inside])
    return np.concatenate(rows), np.concatenate(boxes)
