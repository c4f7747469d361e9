"""The H3 cell of each of many points, vectorised in numpy, with exactly the results of the library
``h3``.

Points are projected onto the nearest face of an icosahedron and rounded to a hexagon; division by
seven gives its parents. A point is passed to ``h3`` wherever rounding could decide: near a border,
in the middle of a face, or below a pentagon (docs/decisions/0013-odkanon-in-closed-form.md).
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, repeat
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Numbers
from flowveil.zoning.h3 import MAX_RESOLUTION, PENTAGON_BASE_CELLS

#: Points in one batch: its columns fit into the cache of a core.
_BATCH_SIZE = 1 << 14
#: Fewer points are passed to h3.
_FEW = 5_000
#: Distance from the centre of a face, projected, that is one step between hexagons of resolution 0.
_STEP = 0.38196601125010500003
#: Rotation of the grids of odd resolutions against the even ones.
_TURN = 0.333473172251832115336090755351601070065900389
#: Points this close to a border, in steps between hexagons, are passed to h3. Rounding errors are
#: 1e-8 of a step at the finest resolution, and larger within a thousandth of the centre of a face
#: (arc cosine near 1).
_TOO_CLOSE = 1e-5
_MIDDLE_OF_FACE = 1 - 1e-6 / 2
#: The same for the border between two faces, as a difference of cosines.
_SAME_FACE = 1e-9
#: Digit of the step (p, q) to a neighbour, at 3p + q + 4; and the digit after a rotation by a
#: sixth.
_DIGITS = np.array([1, 3, 0, 5, 0, 2, 0, 4, 6])
_TURNED = np.array([0, 5, 3, 1, 6, 4, 2])
#: Unknown base cell and rotation.
_UNKNOWN = 127 << 3
_SEVENTH = 1 / 7
_SAMPLES = 20_000


def index_one_by_one(lat: Floats, lon: Floats, resolution: int) -> Cells64:
    """Returns the H3 cell of each point by ``h3``; the reference for `index_points`."""
    cells: Any = map(h3_int.latlng_to_cell, lat.tolist(), lon.tolist(), repeat(resolution))
    return np.fromiter(cells, dtype=np.uint64, count=len(lat))


def index_points(lat: Floats, lon: Floats, resolution: int) -> Cells64:
    """Returns the H3 cell of each point as `index_one_by_one`.

    H3.H3LatLngDomainError if one is missing or infinite.
    """
    if len(lat) < _FEW or not np.isfinite(lat.sum() + lon.sum()):
        return index_one_by_one(lat, lon, resolution)
    cells = np.empty(len(lat), dtype=np.uint64)
    for start in range(0, len(lat), _BATCH_SIZE):
        part = slice(start, start + _BATCH_SIZE)
        hexagon, steps, sure = _hexagons(lat[part], lon[part], resolution)
        base = _learnt()[hexagon]
        cells[part] = _joined(base, steps, resolution)
        unsure = np.flatnonzero(~sure | (base == _UNKNOWN))
        if len(unsure):
            cells[start + unsure] = index_one_by_one(
                lat[part][unsure], lon[part][unsure], resolution
            )
    return cells


def _hexagons(
    lat: Floats, lon: Floats, resolution: int
) -> tuple[Numbers, list[Numbers], NDArray[np.bool_]]:
    """Returns the coarsest hexagon of each point, the steps below it, finest first, and whether
    both are certain.
    """
    y, x = np.radians(lat), np.radians(lon)
    point = np.stack((np.cos(x) * np.cos(y), np.sin(x) * np.cos(y), np.sin(y)))
    # Trips are close together: few faces are candidates.
    centres = _icosahedron()[:, 0]
    middle = (point.min(axis=1) + point.max(axis=1)) / 2
    distance = np.linalg.norm(centres - middle, axis=1)
    faces = np.flatnonzero(
        distance <= distance.min() + np.linalg.norm(np.ptp(point, axis=1)) + _TOO_CLOSE
    )
    cosines = centres[faces] @ point
    nearest = cosines.max(axis=0)
    face = faces[np.argmax(cosines, axis=0)]
    sure = np.count_nonzero(cosines > nearest - _SAME_FACE, axis=0) == 1
    i, j = ((plane[:, face] * point).sum(axis=0) / nearest for plane in _planes(resolution))
    a, b, farthest = _rounded(i, j)
    sure &= (nearest < _MIDDLE_OF_FACE) & (farthest < 0.5 - _TOO_CLOSE)
    steps = []
    for r in range(resolution, 0, -1):
        # The parent is the nearest hexagon of a grid seven times as wide, rotated alternately;
        # never halfway.
        if r % 2:
            up_a, up_b = np.rint((3 * a - b) * _SEVENTH), np.rint((a + 2 * b) * _SEVENTH)
            p, q = a - 2 * up_a - up_b, b - 3 * up_b + up_a
        else:
            up_a, up_b = np.rint((2 * a + b) * _SEVENTH), np.rint((3 * b - a) * _SEVENTH)
            p, q = a - 3 * up_a + up_b, b - up_a - 2 * up_b
        steps.append((3 * p + q + 4).astype(np.int64))
        a, b = up_a, up_b
    # Coarsest hexagons are within two steps of the centre of a face.
    return face * 25 + (a * 5 + b + 12).astype(np.int64), steps, sure


def _rounded(i: Floats, j: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the hexagon around each point of the plane, and the distance from its centre.

    0.5 at the border.

    The axes are a third of a turn apart, so the neighbours of a hexagon are the steps of `_DIGITS`.
    After rounding each axis, a point may be outside that hexagon in two directions; it is then in
    the neighbour in the farther direction.
    """
    a, b = np.rint(i), np.rint(j)
    u, v = i - a - (j - b) / 2, j - b - (i - a) / 2
    farther = np.abs(u) > np.abs(v)
    a, b = a + np.rint(u) * farther, b + np.rint(v) * ~farther
    i, j = i - a, j - b
    return a, b, np.maximum.reduce([np.abs(i - j / 2), np.abs(j - i / 2), np.abs(i + j) / 2])


def _joined(base: Numbers, steps: list[Numbers], resolution: int) -> Cells64:
    """Returns cells from base cells with rotations (`_learnt`) and steps."""
    digits, turns = _turned_digits(), (base & 7) * 9
    cells = ((base >> 3) << 45) | (
        1 << 59 | resolution << 52 | ((1 << 3 * (MAX_RESOLUTION - resolution)) - 1)
    )
    for at, step in enumerate(steps, start=MAX_RESOLUTION - resolution):
        cells |= digits[turns + step] << (3 * at)
    return cells.view(np.uint64)


@cache
def _turned_digits() -> Numbers:
    """Returns the digit of a step after a rotation, at ``9 * turns + step``."""
    tables = [_DIGITS]
    for _ in range(7):
        tables.append(_TURNED[tables[-1]])
    return np.concatenate(tables)


@cache
def _icosahedron() -> NDArray[np.float64]:
    """Returns for each face its centre, a direction to a corner, and the direction a quarter turn
    to the left.
    """
    lat, lon = np.radians([h3_int.cell_to_latlng(cell) for cell in h3_int.get_pentagons(0)]).T
    corners = np.column_stack((np.cos(lon) * np.cos(lat), np.sin(lon) * np.cos(lat), np.sin(lat)))
    faces = []
    for three in combinations(range(12), 3):
        if all(corners[p] @ corners[q] > 0 for p, q in combinations(three, 2)):
            centre = corners[list(three)].sum(axis=0)
            centre /= np.linalg.norm(centre)
            ahead = corners[three[0]] - (corners[three[0]] @ centre) * centre
            ahead /= np.linalg.norm(ahead)
            faces.append((centre, ahead, np.cross(centre, ahead)))
    return np.array(faces)


@cache
def _planes(resolution: int) -> NDArray[np.float64]:
    """Returns the two vectors that map points to steps along the hexagon axes.

    Three columns over the faces each.
    """
    _, ahead, left = _icosahedron().transpose(1, 2, 0)
    turn = _TURN if resolution % 2 else 0.0
    scale = np.sqrt(7.0) ** resolution / _STEP
    x = scale * (np.cos(turn) * ahead + np.sin(turn) * left)
    y = scale * (np.cos(turn) * left - np.sin(turn) * ahead)
    along_j = y / (np.sqrt(3) / 2)
    return np.stack([x + along_j / 2, along_j])


@cache
def _learnt() -> Numbers:
    """Returns for each coarsest hexagon of a face its base cell times eight plus its rotation in
    sixths.

    Derived from sample points: known if one rotation reproduces h3 for all of them. The others, and
    pentagons, are left to h3.
    """
    # Evenly spread over the globe, along a spiral of golden angles.
    number, fine = np.arange(_SAMPLES), 4
    lat = np.degrees(np.arcsin((2 * number + 1) / _SAMPLES - 1))
    lon = np.degrees(number * np.pi * (3 - np.sqrt(5))) % 360 - 180
    hexagon, steps, sure = _hexagons(lat, lon, fine)
    truth = index_one_by_one(lat, lon, fine)
    base = (truth.astype(np.int64) >> 45) & 0x7F
    right = [_joined(base * 8 + turns, steps, fine) == truth for turns in range(6)]
    learnt = np.full(20 * 25, _UNKNOWN, dtype=np.int64)
    for h in np.unique(hexagon[sure]):
        here = sure & (hexagon == h)
        turns = [t for t in range(6) if right[t][here].all()]
        if (
            len(turns) == 1
            and len(set(base[here])) == 1
            and base[here][0] not in PENTAGON_BASE_CELLS
        ):
            learnt[h] = base[here][0] * 8 + turns[0]
    return learnt
