"""Whether outlines are the unions of H3 cells that codes mean.

An outline that is the union of a zone's cells of one resolution has such a cell of the zone on one side of every edge,
a cell that is not of the zone on the other, and corners of the first at both ends. A valid polygon that is so all
around cannot be another one. Asked of the library h3, point by point: nothing is dissolved here, and nothing is shared
with what drew the outlines.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Coordinates are rounded to seven decimals, so corners may be off by half of the last.
_ROUNDED = 0.51e-7
_DECIMALS = 7
#: How far from the middle of an edge its two sides are looked at, as a share of its length.
_ASIDE = 0.05
#: Degrees from the equator.
_NEAR_POLE = 89.9
_RADIUS_KM = 6371.007180918475
#: Areas may differ in so much.
_SHARE = 1e-6
#: More cells are those of all the world: their outline may go around the globe.
_CELLS_OF_A_ZONE = 4


def finest_level(zones: Sequence[Sequence[int]]) -> int:
    """The resolution of the finest cell of any zone."""
    return max((h3_int.get_resolution(cell) for cells in zones for cell in cells), default=0)


def is_drawn(outline: Any, cells: Sequence[int], finest: int) -> bool:
    """Whether an outline is the union of the descendants of cells at a resolution, rounded."""
    if outline is None or outline.is_empty or outline.geom_type not in ("Polygon", "MultiPolygon"):
        return False
    if not shapely.is_valid(outline):
        return False
    points = shapely.get_coordinates(outline)
    if np.any(np.round(points, _DECIMALS) != points):
        return False
    if np.abs(points[:, 1]).min() > _NEAR_POLE:
        # Longitudes mean nothing there once they are rounded.
        return all(abs(h3_int.cell_to_latlng(cell)[0]) > _NEAR_POLE for cell in cells)
    level = h3_int.get_resolution(cells[0])
    at_edge = np.abs(points).max(axis=0)[0] >= 180
    if len(cells) <= _CELLS_OF_A_ZONE and not at_edge:
        parts = shapely.get_parts(outline).tolist()
        # Only everything may be in several pieces: base cells that are far from each other. None of them is missing.
        whole = outline.geom_type == "Polygon" or (level == 0 and 1 < len(parts) <= len(cells))
        centers = [h3_int.cell_to_latlng(cell) for cell in cells] if len(parts) > 1 else []
        if not whole or not all(_is_one_ring(part) for part in parts):
            return False
        if not all(shapely.contains_xy(outline, lon, lat) for lat, lon in centers):
            return False
    rings = shapely.get_rings(shapely.get_parts(outline))
    return all(_separates(shapely.get_coordinates(ring), set(cells), level, finest) for ring in rings)


def _is_one_ring(part: Any) -> bool:
    """Whether a polygon is one ring from its smallest corner, counterclockwise: anything else could carry a message."""
    ring = shapely.get_coordinates(part)[:-1]
    return not len(part.interiors) and np.lexsort(ring.T[::-1])[0] == 0 and bool(shapely.is_ccw(part.exterior))


def _separates(ring: Floats, cells: Set[int], level: int, finest: int) -> bool:
    """Whether every edge of a ring has the zone on one side only, with a corner of a cell of it at both ends."""
    on_frame = (np.abs(ring[:, 0]) == 180) | (np.abs(ring[:, 1]) == 90)
    at = _vectors(ring)
    edge = ~(on_frame[:-1] & on_frame[1:])
    start, stop = at[:-1][edge], at[1:][edge]
    length = np.linalg.norm(stop - start, axis=1)
    if np.any(length == 0):
        return False
    across = np.cross(start, stop - start)
    aside = across * (_ASIDE * length / np.linalg.norm(across, axis=1))[:, None]
    middle = (start + stop) / 2
    left, right = (
        np.array([h3_int.latlng_to_cell(lat, lon, finest) for lat, lon in _degrees(middle + s)], dtype=np.uint64)
        for s in (aside, -aside)
    )
    ends = np.stack((ring[:-1][edge], ring[1:][edge]), axis=1)
    framed = np.stack((on_frame[:-1][edge], on_frame[1:][edge]), axis=1)
    is_left, is_right = (_lie_in(side, cells, level) for side in (left, right))
    return bool(np.all(is_left != is_right)) and _at_corners(ends, framed, np.where(is_left, left, right))


def _lie_in(found: NDArray[np.uint64], cells: Set[int], level: int) -> NDArray[np.bool_]:
    """Whether each cell lies in one of some coarser cells, all of one level: a cell begins as those above it do.

    Behind the resolution there are seven bits for the base cell, then three for each level.
    """
    below = np.uint64(3 * (15 - level))
    begin = np.array([cell & (1 << 52) - 1 for cell in cells], dtype=np.uint64) >> below
    inside: NDArray[np.bool_] = np.isin((found & np.uint64((1 << 52) - 1)) >> below, begin)
    return inside


def _at_corners(ends: Floats, framed: NDArray[np.bool_], inside: NDArray[np.uint64]) -> bool:
    """Whether the ends of each edge are corners of the cell inside, or on the frame of the map."""
    cells, number = np.unique(inside, return_inverse=True)
    # A cell has up to ten corners; the first stands in for those it has not.
    bounds = [h3_int.cell_to_boundary(cell) for cell in cells.tolist()]
    corners = np.array([b + b[:1] * (10 - len(b)) for b in bounds])[number][:, :, ::-1]
    gap = np.abs(ends[:, :, None, :] - corners[:, None, :, :])
    gap[..., 0] = np.minimum(gap[..., 0], np.abs(360 - gap[..., 0]))
    near = (gap.max(axis=3) <= _ROUNDED).any(axis=2)
    return bool(np.all(near | framed))


def _vectors(points: Floats) -> Floats:
    lon, lat = np.radians(points).T
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _degrees(vectors: Floats) -> list[list[float]]:
    """Latitude and longitude."""
    x, y, z = vectors.T
    points: list[list[float]] = np.degrees(np.column_stack((np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)))).tolist()
    return points


def area_km2(outline: Any, cells: Sequence[int]) -> float:
    """The area of an outline on the sphere: of triangles of great circles, all with one corner in its middle.

    What may be larger than half of the globe is laid flat instead.
    """
    if len(cells) > _CELLS_OF_A_ZONE:
        flat = shapely.transform(outline, lambda p: np.column_stack((np.radians(p[:, 0]), np.sin(np.radians(p[:, 1])))))
        return float(flat.area) * _RADIUS_KM**2
    total = 0.0
    for part in shapely.get_parts(outline):
        for number, ring in enumerate([part.exterior, *part.interiors]):
            at = _vectors(shapely.get_coordinates(ring))
            middle = at[:-1].mean(axis=0)
            middle /= np.linalg.norm(middle)
            a, b = at[:-1], at[1:]
            # The volume of the three corners, from differences: they are as small as the zone is.
            volume = np.cross(a - middle, b - middle) @ middle
            excess = 2 * np.arctan2(volume, 1 + (a * b).sum(axis=1) + a @ middle + b @ middle)
            total += (-1 if number else 1) * abs(float(excess.sum()))
    return total * _RADIUS_KM**2


def area_tolerance(outline: Any) -> float:
    """How much of its area an outline may be off: loose where it is cut at the edge of the map, or around the globe."""
    at_edge = np.abs(shapely.get_coordinates(outline)).max(axis=0, initial=0)[0] >= 180
    return 1e-3 if at_edge else _SHARE
