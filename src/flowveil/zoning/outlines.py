"""Outlines of H3 zones that fit together: each is the union of its cells at one resolution, the
finest of a release.

Neighbours share corners to the last digit (docs/decisions/0028-maps.md). Only the
rim is computed: descendants with a neighbour outside. Edges that two of a zone's cells share
cancel, the others are linked into rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Numbers

#: Decimals of a coordinate in degrees: about a centimetre.
DECIMALS = 7
#: In degrees, a tenth of a millimetre: corners this near are one, computed from different cells.
_SAME_CORNER = 1e-9
#: Of the sphere that the areas of H3 cells are on.
_RADIUS_KM = 6371.007180918475
#: Fewer cells have no hole between them, and do not go around the globe.
_CELLS_AROUND_A_HOLE = 6

#: The finest resolution of H3; not imported, because `flowveil.zoning.h3` uses this module.
_FINEST = 15


def dissolved(
    zones: Sequence[Sequence[int]], finest: int, *, decimals: int = DECIMALS
) -> tuple[NDArray[np.object_], Floats]:
    """Returns the outline of each zone, the union of its cells at resolution ``finest``, and its
    area in km².

    Outlines are polygons (longitude, latitude), rounded, split at the 180th meridian and closed
    along a pole; areas are of the rounded outlines, on the sphere. No cell is finer than
    ``finest``. Outlines depend on all zones given together: what is to fit together is drawn in one
    call.
    """
    pieces = [
        [[c] for c in cells] if len(cells) >= _CELLS_AROUND_A_HOLE else [cells] for cells in zones
    ]
    shapes, areas = _without_holes(
        [piece for of_zone in pieces for piece in of_zone], finest, decimals
    )
    first = np.cumsum([0, *map(len, pieces)])
    outlines = np.empty(len(zones), dtype=object)
    outlines[:] = [
        shapes[a] if b - a == 1 else shapely.union_all(shapes[a:b])
        for a, b in pairwise(first.tolist())
    ]
    return outlines, np.add.reduceat(areas, first[:-1]) if len(zones) else np.zeros(0)


def _without_holes(
    zones: Sequence[Sequence[int]], finest: int, decimals: int
) -> tuple[NDArray[np.object_], Floats]:
    outlines, areas = np.empty(len(zones), dtype=object), np.zeros(len(zones))
    if not zones:
        return outlines, areas
    (zone, start, stop), corner = _edges(zones, finest)
    rounded = np.round(corner, decimals)
    # The date line has two names.
    rounded[rounded[:, 0] >= 180, 0] -= 360
    for first, ring in _rings(zone, start, stop):
        drawn = _unwrapped(rounded[ring])
        # Other rings lie between the rim and the rest of a zone.
        if _is_outer(drawn):
            at, outline = zone[first], _on_map(drawn)
            outlines[at] = outline if outlines[at] is None else shapely.union(outlines[at], outline)
            areas[at] += _area_km2(drawn)
    return outlines, areas


def _edges(
    zones: Sequence[Sequence[int]], finest: int
) -> tuple[tuple[Numbers, Numbers, Numbers], Floats]:
    """The edges of each zone's rim that only one of its cells has.

    The zone, and the numbers of their corners.
    """
    rims = [np.concatenate([_rim(cell, finest) for cell in cells]) for cells in zones]
    cells, cell_of = np.unique(np.concatenate(rims), return_inverse=True)
    bounds = [h3_int.cell_to_boundary(cell) for cell in cells.tolist()]
    length = np.array([len(b) for b in bounds])
    number, corner = _corners(np.array([point for b in bounds for point in b])[:, ::-1])
    following = np.arange(1, len(number) + 1)
    first = np.cumsum(length) - length
    following[first + length - 1] = first
    # Edges of cells, repeated for every zone that a cell is on the rim of.
    zone_of_cell = np.repeat(np.arange(len(zones)), [len(rim) for rim in rims])
    count = length[cell_of]
    zone = np.repeat(zone_of_cell, count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    at = np.repeat(first[cell_of], count) + within
    start, stop = number[at], number[following[at]]
    low, high = np.minimum(start, stop), np.maximum(start, stop)
    order = np.lexsort((high, low, zone))
    again = np.zeros(len(order), dtype=np.bool_)
    same = (np.diff(zone[order]) == 0) & (np.diff(low[order]) == 0) & (np.diff(high[order]) == 0)
    again[1:] |= same
    again[:-1] |= same
    # A corner that rounding made one of two leaves an edge of no length.
    kept = np.sort(order[~again & (low[order] < high[order])])
    kept = kept[np.lexsort((start[kept], zone[kept]))]
    return (zone[kept], start[kept], stop[kept]), corner


def _corners(points: Floats) -> tuple[Numbers, Floats]:
    """Numbers the points so that those within a tenth of a millimetre have one number, and one
    place.
    """
    points = points + np.where(points < [-180 + _SAME_CORNER, -90], 360, 0)
    classes = []
    for axis in points.T:
        order = np.argsort(axis, kind="stable")
        class_of = np.empty(len(axis), dtype=np.int64)
        class_of[order] = np.cumsum(np.diff(axis[order], prepend=axis[order[:1]]) > _SAME_CORNER)
        classes.append(class_of)
    key = classes[0] * (classes[1].max(initial=0) + 1) + classes[1]
    unique, number = np.unique(key, return_inverse=True)
    corner = np.full((len(unique), 2), np.inf)
    np.minimum.at(corner, number, points)
    return number.astype(np.int64), corner


def _rings(zone: Numbers, start: Numbers, stop: Numbers) -> list[tuple[int, Numbers]]:
    """The first edge and the corners of each ring, which begins at its smallest corner.

    Edges come sorted by start.
    """
    wide = int(start.max(initial=0)) + 1
    following = np.searchsorted(zone * wide + start, zone * wide + stop).tolist()
    seen = bytearray(len(following))
    rings = []
    for first in range(len(following)):
        if seen[first]:
            continue
        ring, at = [], first
        while not seen[at]:
            seen[at] = 1
            ring.append(at)
            at = following[at]
        rings.append((first, start[np.array(ring)]))
    return rings


# ---- the rim -------------------------------------------------------------------------------------


def _rim(cell: int, finest: int) -> NDArray[np.uint64]:
    """Returns the descendants of a cell at a resolution that have a neighbour outside it."""
    own = h3_int.get_resolution(cell)
    if h3_int.is_pentagon(cell):
        return np.array(_search_rim(cell, finest), dtype=np.uint64)
    below = (1 << 3 * (_FINEST - own)) - 1
    above = cell & ~below & ~(0xF << 52) | finest << 52
    return _digits_on_rim(own, finest) | np.uint64(above)


@lru_cache(maxsize=256)
def _digits_on_rim(own: int, finest: int) -> NDArray[np.uint64]:
    """The digits below a hexagon's own of the descendants on its rim.

    The same for every hexagon of a resolution.
    """
    # No pentagon is near at any resolution.
    hexagon = h3_int.latlng_to_cell(48.0, 10.0, own)
    below = (1 << 3 * (_FINEST - own)) - 1
    return np.array([cell & below for cell in _search_rim(hexagon, finest)], dtype=np.uint64)


def _search_rim(cell: int, finest: int) -> list[int]:
    """Descends level by level: neighbours of a cell's children are in that cell or its
    neighbours.
    """
    own, rim = h3_int.get_resolution(cell), [cell]
    for level in range(own + 1, finest + 1):
        children = [child for above in rim for child in h3_int.cell_to_children(above, level)]
        rim = [
            c
            for c in children
            if any(h3_int.cell_to_parent(n, own) != cell for n in h3_int.grid_disk(c, 1))
        ]
    return rim


# ---- rings on the globe --------------------------------------------------------------------------


def _unwrapped(ring: Floats) -> Floats:
    """A closed ring whose longitudes go on beyond 180 degrees instead of jumping.

    Around a pole, from nearest to it.
    """
    closed = np.concatenate((ring, ring[:1]))
    if np.abs(np.diff(closed[:, 0])).max() <= 180:
        return closed
    closed[:, 0] = np.unwrap(closed[:, 0], period=360)
    if _goes_around(closed) and np.argmax(np.abs(ring[:, 1])):
        return _unwrapped(np.roll(ring, -int(np.argmax(np.abs(ring[:, 1]))), axis=0))
    return closed


def _goes_around(ring: Floats) -> bool:
    """Returns whether a ring goes around a pole."""
    return bool(abs(ring[-1, 0] - ring[0, 0]) > 180)


def _is_outer(ring: Floats) -> bool:
    """Returns whether a ring has its cells inside: they are at its left."""
    if _goes_around(ring):
        return bool((ring[-1, 0] > ring[0, 0]) == (ring[0, 1] > 0))
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return bool(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) > 0)


def _area_km2(ring: Floats) -> float:
    """Returns the area inside a closed ring: the sum of what lies between each great circle and the
    equator.
    """
    lon, half = np.radians(ring[:, 0]), np.tan(np.radians(ring[:, 1]) / 2)
    # The tangent of half of the area between an arc and the equator.
    tangent = np.tan(np.diff(lon) / 2) * (half[:-1] + half[1:]) / (1 + half[:-1] * half[1:])
    below = abs(float(2 * np.arctan(tangent).sum()))
    return (2 * np.pi - below if _goes_around(ring) else below) * _RADIUS_KM**2


def _with_crossings(ring: Floats) -> Floats:
    """Returns the same ring with a corner wherever it crosses the 180th meridian.

    Edges are arcs of great circles.
    """
    west, east = ring[:-1], ring[1:]
    turn = np.floor((ring[:, 0] + 180) / 360)
    at = np.flatnonzero(turn[:-1] != turn[1:])
    lon = 360 * np.maximum(turn[:-1], turn[1:])[at] - 180
    (a, b), (c, d) = np.radians(west[at]).T, np.radians(east[at]).T
    lat = np.arctan(
        (np.tan(b) * np.sin(c - np.radians(lon)) + np.tan(d) * np.sin(np.radians(lon) - a))
        / np.sin(c - a)
    )
    crossing = np.round(np.column_stack((lon, np.degrees(lat))), DECIMALS)
    return np.insert(ring, at + 1, crossing, axis=0)


def _on_map(ring: Floats) -> Any:
    """Returns the polygon inside a ring, between -180 and 180 degrees."""
    if np.abs(ring[:, 0]).max() <= 180 and not _goes_around(ring):
        return shapely.polygons(ring)
    ring = _with_crossings(ring)
    if _goes_around(ring):
        pole = float(np.copysign(90, ring[0, 1]))
        ring = np.concatenate((ring, [[ring[-1, 0], pole], [ring[0, 0], pole], ring[0]]))
    whole = shapely.polygons(ring)
    if ring[:, 0].min() >= -180 and ring[:, 0].max() <= 180:
        return whole
    turned = []
    for turn in (-360.0, 0.0, 360.0):
        piece = shapely.intersection(whole, shapely.box(turn - 180, -90, turn + 180, 90))
        turned.append(
            shapely.transform(
                piece, lambda points, turn=turn: np.round(points - [turn, 0], DECIMALS)
            )
        )
    parts = [part for part in shapely.get_parts(np.array(turned)) if part.geom_type == "Polygon"]
    return shapely.union_all(np.array(parts, dtype=object))
