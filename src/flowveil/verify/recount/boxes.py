"""Boxes: zones that are rectangles in degrees, named `box_west_south_east_north`.

A box holds its west and south edges, not its east and north ones. It contains a tile if it contains its centre. The
west of a box is larger than its east where it crosses the 180th meridian.
"""

from __future__ import annotations

from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .tree import OUTSIDE_CELL, Codes, ZoneMap

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
#: Edges are published in whole numbers of this part of a degree.
_UNITS_PER_DEGREE = 10_000_000
#: Pairs of a point and a box that are compared in one step.
_AT_ONCE = 1 << 18


def bounds_of(codes: pa.Array) -> Floats:
    """Returns west, south, east and north of each box, one row each; NaN where a code is not that of a box."""
    bounds = np.full((len(codes), 4), np.nan)
    number = r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?"
    named = pc.match_substring_regex(codes, f"^box(_{number}){{4}}$").to_numpy(zero_copy_only=False)
    parts = pc.list_flatten(pc.split_pattern(codes.filter(pa.array(named)), "_"))
    texts = np.array(parts.to_pylist(), dtype=np.str_).reshape(-1, 5)
    bounds[named] = texts[:, 1:].astype(np.float64)
    return bounds


def count_off_grid(bounds: Floats, grid_lon: float, grid_lat: float) -> int:
    """Returns how many boxes have an edge off the lines of the declared grid; ends of the map are lines too."""
    off = np.isnan(bounds).any(axis=1) | (not (grid_lon > 0 and grid_lat > 0))
    for column, grid, end in ((0, grid_lon, 180), (1, grid_lat, 90), (2, grid_lon, 180), (3, grid_lat, 90)):
        step = max(1, round(grid * _UNITS_PER_DEGREE))
        edge = np.nan_to_num(bounds[:, column])
        units = np.rint(edge * _UNITS_PER_DEGREE).astype(np.int64)
        # East of 180 degrees a map goes on counting.
        on_line = (units % step == 0) | ((units + 360 * _UNITS_PER_DEGREE) % step == 0)
        off |= (units / _UNITS_PER_DEGREE != edge) | ~(on_line | (np.abs(edge) == end))
    return int(off.sum())


def centers_of(tiles: Codes, zone_map: ZoneMap | None) -> Floats:
    """Returns longitude and latitude of each tile, one row each; NaN if it has no place."""
    if zone_map is not None:
        order = np.argsort(zone_map.code, kind="stable")
        at = order[np.searchsorted(zone_map.code[order], tiles)]
        lon, lat = zone_map.lon[at], zone_map.lat[at]
    else:
        known = tiles != np.uint64(OUTSIDE_CELL)
        lat, lon = np.full(len(tiles), np.nan), np.full(len(tiles), np.nan)
        found = np.array([h3_int.cell_to_latlng(cell) for cell in tiles[known].tolist()]).reshape(-1, 2)
        lat[known], lon[known] = found.T
    return np.stack((np.where(lon >= 180.0, lon - 360.0, lon), lat), axis=1)


def pairs_inside(origin: Floats, destination: Floats, a: Floats, b: Floats) -> tuple[Numbers, Numbers]:
    """Returns all pairs of a flow and a cell that holds both of its ends.

    Flows are divided in halves by their coordinates, and boxes go on only to halves that they meet, so the work is that
    of the pairs found and their neighbourhood.

    Args:
        origin, destination: centre of the tile of each flow.
        a, b: bounds of the origin and of the destination box of each cell.
    """
    point = np.concatenate((origin, destination), axis=1)
    low, high, cell = _four_dimensional(a, b)
    rows, cells = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    waiting = [(np.flatnonzero(~np.isnan(point).any(axis=1)), np.arange(len(low)))]
    while waiting:
        flow, box = waiting.pop()
        if len(flow) == 0 or len(box) == 0:
            continue
        first, last = point[flow].min(axis=0), point[flow].max(axis=0)
        box = box[((low[box] <= last) & (high[box] > first)).all(axis=1)]
        if len(flow) * len(box) <= _AT_ONCE or np.all(first == last):
            inside = ((low[box] <= point[flow][:, None]) & (high[box] > point[flow][:, None])).all(axis=2)
            at, which = np.nonzero(inside)
            rows.append(flow[at])
            cells.append(cell[box[which]])
            continue
        # Along the side with the most distinct positions: the median divides the flows best.
        side = int(np.argmax([len(np.unique(point[flow, axis])) for axis in range(4)]))
        values = np.unique(point[flow, side])
        upper = point[flow, side] >= values[len(values) // 2]
        waiting += [(flow[upper], box), (flow[~upper], box)]
    return np.concatenate(rows), np.concatenate(cells)


def _four_dimensional(a: Floats, b: Floats) -> tuple[Any, Any, Any]:
    """Returns lower and upper corners in (lon, lat, lon, lat), and the cell; boxes across 180 degrees are two."""
    parts = []
    for first in _unwrapped(a):
        for second in _unwrapped(b):
            known = ~(np.isnan(first).any(axis=1) | np.isnan(second).any(axis=1))
            parts.append((np.concatenate((first, second), axis=1)[known], np.flatnonzero(known)))
    corners = np.concatenate([corner for corner, _ in parts])
    return corners[:, [0, 1, 4, 5]], corners[:, [2, 3, 6, 7]], np.concatenate([number for _, number in parts])


def _unwrapped(bounds: Floats) -> list[Floats]:
    """Returns the part of each box up to its east or to 180 degrees, and the part beyond; NaN if missing."""
    across = bounds[:, 0] > bounds[:, 2]
    west, east = bounds.copy(), np.where(across[:, None], bounds, np.nan)
    west[across, 2] = 180.0
    east[:, 0] = np.where(across, -180.0, np.nan)
    return [west, east] if across.any() else [west]
