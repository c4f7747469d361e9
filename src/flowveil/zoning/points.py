"""The H3 cell of each of many points, in whole columns of numpy, and equal to what the library ``h3`` says.

``h3`` takes one point a call. There are libraries that take columns, but they decide points on the border of two cells
differently, and cells must not depend on what is installed. So the projection is computed here, for whole columns, and
a point is handed to ``h3`` itself wherever rounding could decide: close to the border of two cells or of two faces, or
in the middle of a face; that is one point in ten thousand. So are points below the twelve pentagons.

How H3 finds a cell: the globe is an icosahedron; a point is projected from its centre onto the nearest of the 20 faces,
where hexagons lie in a plane, the finest first. The hexagon around the point is found by rounding, its parents by
dividing by seven, and each step is a digit of the cell. Which base cell a coarsest hexagon is, and how its digits are
turned, is learnt from ``h3`` once, from a few thousand points.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, repeat
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.zoning.h3 import MAX_RESOLUTION, PENTAGON_BASE_CELLS, Cells64

Column = NDArray[np.float64]
Whole = NDArray[np.int64]

#: Points at a time: what is computed in between stays in the cache of a core.
_AT_ONCE = 1 << 13
#: Fewer points are not worth learning for.
_FEW = 5_000
_RADIAN = np.pi / 180
_SEVENTH = 1 / 7
#: Distance from the centre of a face, projected, that is one step between hexagons of resolution 0.
_STEP = 0.38196601125010500003
#: By how much the grids of odd resolutions are turned against the even ones.
_TURN = 0.333473172251832115336090755351601070065900389
#: A point this close to a border, in steps between hexagons, is handed to h3. Rounding moves a point by 1e-8 of a step
#: at the finest resolution; within a thousandth of the centre of a face, where h3 takes an arc cosine near 1, by more.
_TOO_CLOSE = 1e-5
_MIDDLE_OF_FACE = 1 - 1e-6 / 2
#: The same for the border between two faces, as a difference of cosines.
_SAME_FACE = 1e-9
#: Digit of the step to each neighbour; and what turning by a sixth makes of a digit.
_DIGITS = {(0, 0): 0, (-1, -1): 1, (0, 1): 2, (-1, 0): 3, (1, 0): 4, (0, -1): 5, (1, 1): 6}
_TURNED = (0, 5, 3, 1, 6, 4, 2, 7)
#: No base cell, and no turn.
_UNKNOWN = 127 << 3


def index_one_by_one(lat: Column, lon: Column, resolution: int) -> Cells64:
    """The H3 cell of each point by ``h3`` itself; what `index_points` is held against."""
    cells: Any = map(h3_int.latlng_to_cell, lat.tolist(), lon.tolist(), repeat(resolution))
    return np.fromiter(cells, dtype=np.uint64, count=len(lat))


def index_points(lat: Column, lon: Column, resolution: int) -> Cells64:
    """The H3 cell of each point, as `index_one_by_one` gives it.

    Raises:
        h3.H3LatLngDomainError: a coordinate is missing or infinite.
    """
    if len(lat) < _FEW or not np.isfinite(lat.sum() + lon.sum()):
        return index_one_by_one(lat, lon, resolution)
    cells = np.empty(len(lat), dtype=np.uint64)
    learnt = _learnt()
    for start in range(0, len(lat), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        hexagon, steps, sure = _hexagons(lat[part], lon[part], resolution)
        base = learnt[hexagon]
        sure &= base != _UNKNOWN
        cells[part] = _joined(base, steps, resolution)
        unsure = np.flatnonzero(~sure)
        if len(unsure):
            cells[start + unsure] = index_one_by_one(lat[part][unsure], lon[part][unsure], resolution)
    return cells


def _hexagons(lat: Column, lon: Column, resolution: int) -> tuple[Whole, list[Whole], NDArray[np.bool_]]:
    """The coarsest hexagon of each point, the steps below it for each three resolutions, and whether both are sure."""
    y, x = lat * _RADIAN, lon * _RADIAN
    level = np.cos(y)
    points = (np.cos(x) * level, np.sin(x) * level, np.sin(y))
    face, nearness, sure = _faces(points)
    sure &= nearness < _MIDDLE_OF_FACE
    planes = _planes(resolution)
    along_i, along_j = planes[face[0]] if (face == face[0]).all() else planes[face].transpose(1, 2, 0)
    a, b, margin = _rounded(_dot(along_i, points) / nearness, _dot(along_j, points) / nearness)
    sure &= margin > _TOO_CLOSE
    a, b, steps = _parents(a, b, resolution)
    # Coarsest hexagons are at most two steps from the centre of a face.
    return face * 25 + (a * 5 + b + 12).astype(np.int64), steps, sure


def _parents(a: Column, b: Column, resolution: int) -> tuple[Column, Column, list[Whole]]:
    """The coarsest hexagon above each one; on the way down, the steps, three in a number, the finest first.

    The parent is the nearest hexagon of a grid seven times as wide, which is turned to one side and the other by turns.
    Whole numbers are kept as floating-point ones, which are exact here and faster: dividing by seven never ends halfway
    between two.
    """
    groups: list[Column] = []
    for r in range(resolution, 0, -1):
        if r % 2:
            up_a, up_b = np.rint((3 * a - b) * _SEVENTH), np.rint((a + 2 * b) * _SEVENTH)
            a -= 2 * up_a + up_b
            b -= 3 * up_b - up_a
        else:
            up_a, up_b = np.rint((2 * a + b) * _SEVENTH), np.rint((3 * b - a) * _SEVENTH)
            a -= 3 * up_a - up_b
            b -= up_a + 2 * up_b
        a *= 3
        a += b
        a += 4
        place = (MAX_RESOLUTION - r) % 3
        if place and groups:
            a *= 9**place
            groups[-1] += a
        else:
            groups.append(a * 9**place)
        a, b = up_a, up_b
    return a, b, [g.astype(np.int64) for g in groups]


def _dot(vector: Any, points: tuple[Column, ...]) -> Column:
    return vector[0] * points[0] + vector[1] * points[1] + vector[2] * points[2]  # type: ignore[no-any-return]


def _faces(points: tuple[Column, ...]) -> tuple[Whole, Column, NDArray[np.bool_]]:
    """The face nearest to each point, the cosine of the angle to its centre, and whether no other is as near."""
    centres = _icosahedron()[:, 0]
    # Trips are near to each other: few faces come into question, those about as near to the middle as any.
    middle = np.array([p.mean() for p in points]) if len(points[0]) else np.zeros(3)
    reach = np.sqrt(max(sum(float(((p - m) ** 2).max(initial=0)) for p, m in zip(points, middle, strict=True)), 0))
    distance = np.sqrt(((centres - middle) ** 2).sum(axis=1))
    near = np.flatnonzero(distance <= distance.min() + 2 * reach + _TOO_CLOSE)
    best = _dot(centres[near[0]], points)
    second = np.full(len(best), -1.0)
    face = np.full(len(best), near[0])
    for f in near[1:]:
        nearness = _dot(centres[f], points)
        closer = nearness > best
        second = np.maximum(second, np.minimum(best, nearness))
        face[closer] = f
        best = np.maximum(best, nearness)
    return face, best, best - second > _SAME_FACE


def _rounded(i: Column, j: Column) -> tuple[Column, Column, Column]:
    """The hexagon around each point of the plane, and how far inside its border the point is.

    The axes are a third of a turn apart, so the neighbours of a hexagon are the steps of `_DIGITS`.
    """
    a, b, c = np.rint(i), np.rint(j), np.rint(j - i)
    off_a, off_b, off_c = np.abs(i - a), np.abs(j - b), np.abs(j - i - c)
    # Three roundings of which two make a hexagon: the one that moved the point most is dropped.
    drop_a = (off_a > off_b) & (off_a > off_c)
    drop_b = ~drop_a & (off_b > off_c)
    a, b = np.where(drop_a, b - c, a), np.where(drop_b, a + c, b)
    x, y = i - a, j - b
    farthest = np.maximum(np.maximum(np.abs(x - y / 2), np.abs(y - x / 2)), np.abs(x + y) / 2)
    return a, b, 0.5 - farthest


def _joined(base: Whole, steps: list[Whole], resolution: int) -> Cells64:
    """Cells from base cells with their turns, as `_learnt` gives them, and steps, as `_parents` gives them."""
    unused = (1 << 3 * (MAX_RESOLUTION - resolution)) - 1
    cells = ((base >> 3) << 45) | ((1 << 59) | (resolution << 52))
    table, turns = _three_digits(), (base & 7) * 9**3
    for at, three in enumerate(steps, start=(MAX_RESOLUTION - resolution) // 3):
        three += turns
        cells |= table[three] << (9 * at)
    return (cells | unused).view(np.uint64)


@cache
def _three_digits() -> Whole:
    """The digits of three steps, turned by so many sixths, at ``turns * 729 + steps``."""
    digit = np.zeros(9, dtype=np.int64)
    for (a, b), known in _DIGITS.items():
        digit[3 * a + b + 4] = known
    turned = np.array(_TURNED)
    steps, tables = np.arange(9**3), []
    for _ in range(6):
        tables.append(digit[steps % 9] | digit[steps // 9 % 9] << 3 | digit[steps // 81] << 6)
        digit = turned[digit]
    return np.concatenate(tables)


@cache
def _icosahedron() -> NDArray[np.float64]:
    """Of each face: its centre, a direction from there to a corner, and the direction a quarter turn to the left."""
    corners = np.array([_vector(*h3_int.cell_to_latlng(cell)) for cell in h3_int.get_pentagons(0)])
    faces = []
    for three in combinations(range(12), 3):
        if all(corners[p] @ corners[q] > 0 for p, q in combinations(three, 2)):
            centre = corners[list(three)].sum(axis=0)
            centre /= np.linalg.norm(centre)
            ahead = corners[three[0]] - (corners[three[0]] @ centre) * centre
            ahead /= np.linalg.norm(ahead)
            faces.append((centre, ahead, np.cross(centre, ahead)))
    return np.array(faces)


def _vector(lat: float, lon: float) -> tuple[float, float, float]:
    y, x = np.radians(lat), np.radians(lon)
    return float(np.cos(x) * np.cos(y)), float(np.sin(x) * np.cos(y)), float(np.sin(y))


@cache
def _planes(resolution: int) -> NDArray[np.float64]:
    """Of each face: the two vectors by which points become steps along the axes of its hexagons."""
    _, ahead, left = _icosahedron().transpose(1, 0, 2)
    turn = _TURN if resolution % 2 else 0.0
    scale = np.sqrt(7.0) ** resolution / _STEP
    x = scale * (np.cos(turn) * ahead + np.sin(turn) * left)
    y = scale * (np.cos(turn) * left - np.sin(turn) * ahead)
    along_j = y / (np.sqrt(3) / 2)
    return np.stack([x + along_j / 2, along_j], axis=1)


@cache
def _learnt() -> Whole:
    """For each coarsest hexagon of a face: its base cell times eight, plus the sixths by which its digits are turned.

    Learnt from points of each one: where one turn makes all of them what h3 says, it is known. The others, and
    pentagons, where one direction is missing, are left to h3.
    """
    fine = 4
    lat, lon = _samples(fine)
    hexagon, steps, sure = _hexagons(lat, lon, fine)
    truth = index_one_by_one(lat, lon, fine)
    base = (truth.astype(np.int64) >> 45) & 0x7F
    right = [_joined(base * 8 + turns, [three.copy() for three in steps], fine) == truth for turns in range(6)]
    learnt = np.full(20 * 25, _UNKNOWN, dtype=np.int64)
    for h in np.unique(hexagon[sure]):
        of = sure & (hexagon == h)
        turns = [t for t in range(6) if right[t][of].all()]
        if len(turns) == 1 and len(set(base[of])) == 1 and base[of][0] not in PENTAGON_BASE_CELLS:
            learnt[h] = base[of][0] * 8 + turns[0]
    return learnt


def _samples(resolution: int) -> tuple[Column, Column]:
    """Some points of every coarsest hexagon on every face, also of those that reach into a face with little."""
    p, q = (grid.ravel() for grid in np.mgrid[0:240, 0:240])
    p, q = p[p + q < 240], q[p + q < 240]
    # Corners of a face are two steps from its centre: along the two axes, and against both.
    i, j = (2 * (p + r) / 240 - 2 for p, r in ((p, p + q + 0.1), (q, p + q - 0.1)))
    scale = 7.0 ** (resolution // 2)
    a, b, _ = _parents(*_rounded(i * scale, j * scale)[:2], resolution)
    number = a * 5 + b
    some = np.concatenate([np.resize(np.flatnonzero(number == m), 400)[::50] for m in set(number)])
    x, y = (i - j / 2)[some], (j * np.sqrt(3) / 2)[some]
    centre, ahead, left = _icosahedron().transpose(1, 0, 2)[:, :, None]
    points = (centre + _STEP * (x[None, :, None] * ahead + y[None, :, None] * left)).reshape(-1, 3)
    lat = np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
    return lat, np.degrees(np.arctan2(points[:, 1], points[:, 0]))
