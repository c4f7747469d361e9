"""Whether outlines are the unions of H3 cells that codes mean.

An outline that is the union of a zone's cells of one resolution has such a cell of the zone on one
side of every edge, a cell that is not of the zone on the other, and corners of the first at both
ends. A valid polygon that is so all around cannot be another one. Asked of the library h3, point by
point: nothing is dissolved here, and nothing is shared with what drew the outlines. The edges of
all outlines are looked at together, and one between two zones once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Cells = NDArray[np.uint64]
Truths = NDArray[np.bool_]
#: The H3 cells that each zone consists of, all of one resolution.
Zones = Sequence[Sequence[int]]

#: Coordinates are rounded to seven decimals, so corners may be off by half of the last.
_ROUNDED = 0.51e-7
_DECIMALS = 7
#: How far from the middle of an edge its two sides are looked at, as a share of its length.
_ASIDE = 0.05
#: Degrees from the equator.
_NEAR_POLE = 89.9
_RADIUS_KM = 6371.007180918475
#: Tolerance of areas.
_SHARE = 1e-6
#: More cells are those of all the world: their outline may go around the globe.
_CELLS_OF_A_ZONE = 4
#: All of them are everything.
_BASE_CELLS = 122
#: Corners that a cell has at the most.
_CORNERS = 10


def finest_level(zones: Zones) -> int:
    """The resolution of the finest cell of any zone."""
    return max((h3_int.get_resolution(cell) for cells in zones for cell in cells), default=0)


def are_drawn(outlines: NDArray[np.object_], zones: Zones, finest: int) -> Truths:
    """Whether each outline is the union of the descendants of its zone's cells at a resolution,
    rounded."""
    kind = shapely.get_type_id(outlines)
    polygonal = (kind == shapely.GeometryType.POLYGON) | (kind == shapely.GeometryType.MULTIPOLYGON)
    drawn: Truths = polygonal & ~shapely.is_empty(outlines) & shapely.is_valid(outlines)
    points, of = shapely.get_coordinates(outlines, return_index=True)
    drawn[of[np.any(np.round(points, _DECIMALS) != points, axis=1)]] = False
    nearest, farthest = np.full(len(outlines), np.inf), np.zeros(len(outlines))
    np.minimum.at(nearest, of, np.abs(points[:, 1]))
    np.maximum.at(farthest, of, np.abs(points[:, 0]))
    polar = drawn & (nearest > _NEAR_POLE)
    for i in np.flatnonzero(polar).tolist():
        # Longitudes mean nothing there once they are rounded.
        drawn[i] = all(abs(h3_int.cell_to_latlng(cell)[0]) > _NEAR_POLE for cell in zones[i])
    n_cells = np.array([len(cells) for cells in zones], dtype=np.int64)
    tested = drawn & ~polar
    for check, asked in (
        (_are_plain, tested & (n_cells <= _CELLS_OF_A_ZONE) & (farthest < 180)),
        (lambda some, own: _separate(some, own, finest), tested),
    ):
        at = np.flatnonzero(asked & drawn)
        drawn[at] &= check(outlines[at], [zones[i] for i in at.tolist()])
    return drawn


def is_drawn(outline: Any, cells: Sequence[int], finest: int) -> bool:
    """The same of one outline."""
    alone = np.full(1, None, dtype=object)
    alone[0] = outline
    return bool(are_drawn(alone, [cells], finest)[0])


def _are_plain(outlines: NDArray[np.object_], zones: Zones) -> Truths:
    """Whether each outline is one ring, or several far from each other that hold all of its zone's
    cells.

    Only everything may be in several pieces: base cells that are far from each other. None of them
    is missing.
    """
    parts, of = shapely.get_parts(outlines, return_index=True)
    n_parts = np.bincount(of, minlength=len(outlines))
    plain: Truths = shapely.get_type_id(outlines) == shapely.GeometryType.POLYGON
    for i in np.flatnonzero(~plain).tolist():
        if h3_int.get_resolution(zones[i][0]) == 0 and 1 < n_parts[i] <= len(zones[i]):
            centers = [h3_int.cell_to_latlng(cell) for cell in zones[i]]
            plain[i] = all(shapely.contains_xy(outlines[i], lon, lat) for lat, lon in centers)
    plain[of[~_are_one_ring(parts)]] = False
    return plain


def _are_one_ring(parts: NDArray[np.object_]) -> Truths:
    """Whether each polygon is one ring from its smallest corner, counterclockwise.

    Else it could carry a message.
    """
    rings = shapely.get_exterior_ring(parts)
    points, of = shapely.get_coordinates(rings, return_index=True)
    first = points[np.searchsorted(of, of)]
    smaller = (points[:, 0] < first[:, 0]) | (
        (points[:, 0] == first[:, 0]) & (points[:, 1] < first[:, 1])
    )
    single: Truths = (shapely.get_num_interior_rings(parts) == 0) & shapely.is_ccw(rings)
    single[of[smaller]] = False
    return single


def _separate(outlines: NDArray[np.object_], zones: Zones, finest: int) -> Truths:
    """Whether every edge of each outline has its zone on one side only, with a corner of a cell of
    it at both ends."""
    rings, points, ring, of = _rings(outlines)
    on_frame = (np.abs(points[:, 0]) == 180) | (np.abs(points[:, 1]) == 90)
    edge = np.flatnonzero((ring[1:] == ring[:-1]) & ~(on_frame[1:] & on_frame[:-1]))
    separate = np.ones(len(outlines), dtype=np.bool_)
    # A ring along the frame of the map alone has nothing outside.
    framed = np.bincount(ring[edge], minlength=len(rings)) == 0
    separate[[i for i in of[framed].tolist() if len(zones[i]) != _BASE_CELLS]] = False
    left, right, sound = _sides(points, edge, finest)
    zone = of[ring[edge]]
    separate[zone[~sound]] = False
    zone, edge, left, right = zone[sound], edge[sound], left[sound], right[sound]
    is_left, is_right = (_lie_in(side, zone, zones) for side in (left, right))
    separate[zone[is_left == is_right]] = False
    inside = np.where(is_left, left, right)
    for end, near in zip(
        (edge, edge + 1), _at_corners((points[edge], points[edge + 1]), inside), strict=True
    ):
        separate[zone[~(near | on_frame[end])]] = False
    return separate


def _rings(outlines: NDArray[np.object_]) -> tuple[NDArray[np.object_], Floats, Numbers, Numbers]:
    """The rings of outlines, their points, the ring of each point, and the outline of each ring."""
    parts, of_part = shapely.get_parts(outlines, return_index=True)
    rings, of_ring = shapely.get_rings(parts, return_index=True)
    points, ring = shapely.get_coordinates(rings, return_index=True)
    return rings, points, ring, of_part[of_ring]


def _sides(points: Floats, edge: Numbers, finest: int) -> tuple[Cells, Cells, Truths]:
    """The cells on both sides of each edge, which begins at a point and ends at the next.

    And whether it has sides.

    Which side is left goes by the corners and not by the way: an edge that two zones share is
    looked at once.
    """
    corner, number = np.unique(
        np.ascontiguousarray(points).view(np.complex128).ravel(), return_inverse=True
    )
    low, high = (
        np.minimum(number[edge], number[edge + 1]),
        np.maximum(number[edge], number[edge + 1]),
    )
    distinct, which = np.unique(low * len(corner) + high, return_inverse=True)
    at = _vectors(np.column_stack((corner.real, corner.imag)))
    start, stop = at[distinct // max(len(corner), 1)], at[distinct % max(len(corner), 1)]
    length, across = np.linalg.norm(stop - start, axis=1), np.cross(start, stop - start)
    wide = np.linalg.norm(across, axis=1)
    sound = (length > 0) & (wide > 0)
    middle, aside = (
        (start + stop)[sound] / 2,
        across[sound] * (_ASIDE * length[sound] / wide[sound])[:, None],
    )
    left, right = np.zeros((2, len(distinct)), dtype=np.uint64)
    for side, places in ((left, middle + aside), (right, middle - aside)):
        side[sound] = [h3_int.latlng_to_cell(lat, lon, finest) for lat, lon in _degrees(places)]
    return left[which], right[which], sound[which]


def _lie_in(found: Cells, zone: Numbers, zones: Zones) -> Truths:
    """Whether each cell is in its zone, whose cells are coarser and of one level.

    A cell begins as those above it do.

    Behind the resolution there are seven bits for the base cell, then three for each level.
    """
    inside = np.zeros(len(found), dtype=np.bool_)
    n_cells = np.array([len(cells) for cells in zones], dtype=np.int64)
    for n in np.unique(n_cells).tolist():
        some = np.flatnonzero(n_cells == n)
        cells = np.array([zones[i] for i in some.tolist()], dtype=np.uint64).reshape(-1, n)
        below = np.uint64(3) * (np.uint64(15) - (cells[:, 0] >> np.uint64(52) & np.uint64(15)))
        place = np.full(len(zones), -1, dtype=np.int64)
        place[some] = np.arange(len(some))
        asked = np.flatnonzero(place[zone] >= 0)
        row = place[zone[asked]]
        begin, own = (c & np.uint64((1 << 52) - 1) for c in (found[asked], cells))
        for k in range(n):
            inside[asked] |= begin >> below[row] == (own[:, k] >> below)[row]
    return inside


def _at_corners(ends: tuple[Floats, Floats], cells: Cells) -> list[Truths]:
    """Whether the points at both ends of edges are corners of the cell at each edge, but for
    rounding."""
    distinct, number = np.unique(cells, return_inverse=True)
    # The first corner replaces those that a cell lacks.
    bounds = [h3_int.cell_to_boundary(cell) for cell in distinct.tolist()]
    corners = np.array([b + b[:1] * (_CORNERS - len(b)) for b in bounds]).reshape(-1, _CORNERS, 2)
    near = [np.zeros(len(cells), dtype=np.bool_) for _ in ends]
    # Hardly a cell has more than six.
    for k in range(max(map(len, bounds), default=0)):
        lat, lon = corners[number, k].T
        for points, found in zip(ends, near, strict=True):
            around = np.abs(points[:, 0] - lon)
            gap = np.maximum(np.minimum(around, np.abs(360 - around)), np.abs(points[:, 1] - lat))
            found |= gap <= _ROUNDED
    return near


def _vectors(points: Floats) -> Floats:
    lon, lat = np.radians(points).T
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _degrees(vectors: Floats) -> list[list[float]]:
    """Latitude and longitude."""
    x, y, z = vectors.T
    points: list[list[float]] = np.degrees(
        np.column_stack((np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)))
    ).tolist()
    return points


def areas_km2(outlines: NDArray[np.object_], zones: Zones) -> Floats:
    """The area of each outline on the sphere: of triangles of great circles, all with one corner in
    its ring's middle.

    What may be larger than half of the globe is laid flat instead.
    """
    rings, points, ring, of = _rings(outlines)
    at = _vectors(points)
    first = np.flatnonzero(np.append(True, ring[1:] != ring[:-1])[: len(ring)])
    last = np.append(first[1:], len(ring))[: len(first)] - 1
    # The last point of a ring is its first one again.
    middle = (np.add.reduceat(at, first) - at[last]) / (last - first)[:, None] if len(first) else at
    middle /= np.linalg.norm(middle, axis=1)[:, None]
    edge = np.flatnonzero(ring[1:] == ring[:-1])
    a, b, m = at[edge], at[edge + 1], middle[ring[edge]]
    # The volume of the three corners, from differences: they are as small as the zone is.
    volume = (np.cross(a - m, b - m) * m).sum(axis=1)
    excess = 2 * np.arctan2(
        volume, 1 + (a * b).sum(axis=1) + (a * m).sum(axis=1) + (b * m).sum(axis=1)
    )
    of_ring = np.abs(np.bincount(ring[edge], weights=excess, minlength=len(rings)))
    signed = np.where(_are_outer(outlines), of_ring, -of_ring)
    total: Floats = np.bincount(of, weights=signed, minlength=len(outlines)).astype(np.float64)
    for i in [i for i, cells in enumerate(zones) if len(cells) > _CELLS_OF_A_ZONE]:
        total[i] = shapely.area(shapely.transform(outlines[i], _laid_flat))
    return total * _RADIUS_KM**2


def _are_outer(outlines: NDArray[np.object_]) -> Truths:
    """Whether each ring is the outer one of its polygon, which is the first."""
    _, part = shapely.get_rings(shapely.get_parts(outlines), return_index=True)
    outer: Truths = np.append(True, part[1:] != part[:-1])[: len(part)]
    return outer


def _laid_flat(points: Floats) -> Floats:
    return np.column_stack((np.radians(points[:, 0]), np.sin(np.radians(points[:, 1]))))


def area_km2(outline: Any, cells: Sequence[int]) -> float:
    """The same of one outline."""
    alone = np.full(1, None, dtype=object)
    alone[0] = outline
    return float(areas_km2(alone, [cells])[0])


def area_tolerances(outlines: NDArray[np.object_]) -> Floats:
    """How much of its area each outline may be off.

    Loose where it is cut at the edge of the map, or goes around it.
    """
    points, of = shapely.get_coordinates(outlines, return_index=True)
    loose = np.full(len(outlines), _SHARE)
    loose[of[np.abs(points[:, 0]) >= 180]] = 1e-3
    return loose


def area_tolerance(outline: Any) -> float:
    """The same of one outline."""
    alone = np.full(1, None, dtype=object)
    alone[0] = outline
    return float(area_tolerances(alone)[0])
