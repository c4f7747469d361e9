"""The H3 cell of each of many points, vectorised in numpy, with exactly the results of the library ``h3``.

``h3`` takes one point per call. Vectorised libraries decide points on cell borders differently, and cells must not
depend on what is installed. So the projection is computed here, and a point is passed to ``h3`` wherever rounding could
decide: close to the border of two cells or faces, in the middle of a face, or below a pentagon; about one point in ten
thousand.

How H3 finds a cell: the globe is an icosahedron. A point is projected onto the nearest of the 20 faces, which has
planar hexagonal grids. Rounding finds the finest hexagon, division by seven its parents; each step is a digit of the
cell. The base cell and the rotation of digits of the coarsest hexagons are derived from ``h3`` once, from a few
thousand points.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, repeat
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.zoning.h3 import MAX_RESOLUTION, PENTAGON_BASE_CELLS, Cells64

Column = NDArray[np.float64]
Whole = NDArray[np.int64]

#: Points in one batch: fits into the cache of a core, and long enough for threads to run in parallel.
_BATCH_SIZE = 1 << 15
#: Fewer points are passed to h3.
_FEW = 5_000
_RADIAN = np.pi / 180
_SEVENTH = 1 / 7
#: Distance from the centre of a face, projected, that is one step between hexagons of resolution 0.
_STEP = 0.38196601125010500003
#: Rotation of the grids of odd resolutions against the even ones.
_TURN = 0.333473172251832115336090755351601070065900389
#: Points this close to a border, in steps between hexagons, are passed to h3. Rounding errors are 1e-8 of a step at the
#: finest resolution, and larger within a thousandth of the centre of a face (arc cosine near 1).
_TOO_CLOSE = 1e-5
_MIDDLE_OF_FACE = 1 - 1e-6 / 2
#: The same for the border between two faces, as a difference of cosines.
_SAME_FACE = 1e-9
#: Digit of the step to each neighbour; and the digit after a rotation by a sixth.
_DIGITS = {(0, 0): 0, (-1, -1): 1, (0, 1): 2, (-1, 0): 3, (1, 0): 4, (0, -1): 5, (1, 1): 6}
_TURNED = (0, 5, 3, 1, 6, 4, 2, 7)
#: Code of three zero steps, each of which is 4 of 9.
_NO_STEPS = 4 * (1 + 9 + 81)
#: From this resolution on, steps are float32: they are below 50,000 there.
_HALF_SIZE = 10
#: Unknown base cell and rotation.
_UNKNOWN = 127 << 3


def index_one_by_one(lat: Column, lon: Column, resolution: int) -> Cells64:
    """Returns the H3 cell of each point by ``h3``; the reference for `index_points`."""
    cells: Any = map(h3_int.latlng_to_cell, lat.tolist(), lon.tolist(), repeat(resolution))
    return np.fromiter(cells, dtype=np.uint64, count=len(lat))


def index_points(lat: Column, lon: Column, resolution: int) -> Cells64:
    """Returns the H3 cell of each point, equal to `index_one_by_one`.

    Raises:
        h3.H3LatLngDomainError: a coordinate is missing or infinite.
    """
    if len(lat) < _FEW or not np.isfinite(lat.sum() + lon.sum()):
        return index_one_by_one(lat, lon, resolution)
    cells = np.empty(len(lat), dtype=np.uint64)
    learnt, work = _learnt(), _WorkArrays(min(len(lat), _BATCH_SIZE))
    for start in range(0, len(lat), _BATCH_SIZE):
        part = slice(start, start + _BATCH_SIZE)
        hexagon, steps, sure = _hexagons(lat[part], lon[part], resolution, work)
        base = learnt[hexagon]
        sure &= base != _UNKNOWN
        cells[part] = _joined(base, steps, resolution)
        unsure = np.flatnonzero(~sure)
        if len(unsure):
            cells[start + unsure] = index_one_by_one(lat[part][unsure], lon[part][unsure], resolution)
    return cells


class _WorkArrays:
    """Reusable work arrays; allocating them for every step would cost as much as the step."""

    def __init__(self, points: int) -> None:
        self._wide = np.empty((9, points))
        self._narrow = np.empty((5, points), dtype=np.float32)

    def wide(self, points: int) -> list[Column]:
        """Returns nine columns of float64."""
        return list(self._wide[:, :points])

    def narrow(self, points: int) -> list[Any]:
        """Returns five columns of float32, exact for integers below 2^24."""
        return list(self._narrow[:, :points])


def _hexagons(
    lat: Column, lon: Column, resolution: int, work: _WorkArrays
) -> tuple[Whole, list[Whole], NDArray[np.bool_]]:
    """Returns the coarsest hexagon of each point, the steps below it in threes, and whether both are certain."""
    x, y, z, level, near, i, j, spare, last = work.wide(len(lat))
    np.multiply(lat, _RADIAN, out=z)
    np.multiply(lon, _RADIAN, out=y)
    np.cos(z, out=level)
    np.sin(z, out=z)
    np.cos(y, out=x)
    np.sin(y, out=y)
    x *= level
    y *= level
    face, nearness, sure = _faces((x, y, z), near, spare)
    sure &= nearness < _MIDDLE_OF_FACE
    for along, plane in zip((i, j), _planes(resolution), strict=True):
        _dot([part.take(face) for part in plane], (x, y, z), along, spare)
        along /= nearness
    a, b, farthest = _rounded(i, j, (x, y, z, level, spare, last))
    sure &= farthest < 0.5 - _TOO_CLOSE
    a, b, steps = _parents(a, b, resolution, work)
    # Coarsest hexagons are within two steps of the centre of a face.
    return face * 25 + (a * 5 + b + 12).astype(np.int64), steps, sure


def _parents(a: Column, b: Column, resolution: int, work: _WorkArrays) -> tuple[Any, Any, list[Whole]]:
    """Returns the coarsest hexagon above each one, and the steps, three in a number, finest first.

    The parent is the nearest hexagon of a grid seven times as wide, rotated alternately. Integers are stored as floats,
    which is exact here and faster; float32 from `_HALF_SIZE` on. Dividing by seven is never halfway between two
    integers.
    """
    groups: list[Any] = []
    up_a, up_b, spare = (np.empty_like(a) for _ in range(3)) if resolution > _HALF_SIZE else (a, b, a)
    for r in range(resolution, 0, -1):
        if r == min(resolution, _HALF_SIZE):
            half_a, half_b, up_a, up_b, spare = work.narrow(len(a))
            half_a[:], half_b[:] = a, b
            a, b = half_a, half_b
        to_left = r % 2 == 1
        # (3a - b) / 7 and (a + 2b) / 7, or (2a + b) / 7 and (3b - a) / 7.
        np.multiply(a, 3 if to_left else 2, out=up_a)
        np.multiply(b, 2 if to_left else 3, out=up_b)
        if to_left:
            up_a -= b
            up_b += a
        else:
            up_a += b
            up_b -= a
        for up in (up_a, up_b):
            up *= up.dtype.type(_SEVENTH)
            np.rint(up, out=up)
        # The remainder is a step (p, q), stored as 3p + q: p = a - 2A - B, q = b - 3B + A, or p = a - 3A + B,
        # q = b - A - 2B, where (A, B) is the parent.
        a *= 3
        a += b
        a -= np.multiply(up_a, 5 if to_left else 10, out=spare)
        a += np.multiply(up_b, -6, out=spare) if to_left else up_b
        place = (MAX_RESOLUTION - r) % 3
        if place:
            a *= 9**place
        if place and groups:
            groups[-1] += a
        else:
            groups.append(a + _NO_STEPS)
        a, b, up_a, up_b = up_a, up_b, a, b
    return a, b, [g.astype(np.int64) for g in groups]


def _dot(vector: Any, points: tuple[Column, ...], into: Column, spare: Column) -> Column:
    np.multiply(points[0], vector[0], out=into)
    into += np.multiply(points[1], vector[1], out=spare)
    into += np.multiply(points[2], vector[2], out=spare)
    return into


def _faces(points: tuple[Column, ...], near: Column, spare: Column) -> tuple[Any, Column, NDArray[np.bool_]]:
    """Returns the face nearest to each point, the cosine of the angle to its centre, and whether it is unambiguous.

    The face is a single number if it is the same for all points.
    """
    centres = _icosahedron()[:, 0]
    # Trips are close together: few faces are candidates.
    ends = np.array([(p.min(initial=1), p.max(initial=-1)) for p in points])
    middle, reach = ends.mean(axis=1), np.linalg.norm(ends[:, 1] - ends[:, 0]) / 2
    distance = np.sqrt(((centres - middle) ** 2).sum(axis=1))
    faces = np.flatnonzero(distance <= distance.min() + 2 * reach + _TOO_CLOSE)
    best = _dot(centres[faces[0]], points, near, spare)
    if len(faces) == 1:
        return faces[0], best, np.ones(len(best), dtype=np.bool_)
    second = np.full(len(best), -1.0)
    face = np.full(len(best), faces[0])
    nearness = np.empty_like(best)
    for f in faces[1:]:
        _dot(centres[f], points, nearness, spare)
        closer = nearness > best
        second = np.maximum(second, np.minimum(best, nearness))
        face[closer] = f
        np.maximum(best, nearness, out=best)
    return face, best, best - second > _SAME_FACE


def _rounded(i: Column, j: Column, spare: Sequence[Column]) -> tuple[Column, Column, Column]:
    """Returns the hexagon around each point of the plane, and the distance from its centre: 0.5 at the border.

    The axes are a third of a turn apart, so the neighbours of a hexagon are the steps of `_DIGITS`. After rounding each
    axis, a point may be outside that hexagon in two directions; it is then in the neighbour in the farther direction.
    Changes ``i`` and ``j``.
    """
    a, b, u, v, off_u, off_v = spare
    i -= np.rint(i, out=a)
    j -= np.rint(j, out=b)
    _across(i, j, u, v)
    farther = np.abs(u, out=off_u) > np.abs(v, out=off_v)
    for at, rest, across, this in ((a, i, u, farther), (b, j, v, ~farther)):
        np.rint(across, out=across)
        across *= this
        at += across
        rest -= across
    _across(i, j, u, v)
    farthest = np.maximum(np.abs(u, out=u), np.abs(v, out=v), out=u)
    i += j
    i *= 0.5
    return a, b, np.maximum(farthest, np.abs(i, out=i), out=farthest)


def _across(i: Column, j: Column, u: Column, v: Column) -> None:
    """Writes the distances of points from the centre along the two axes into ``u`` and ``v``."""
    for along, other, into in ((i, j, u), (j, i, v)):
        np.multiply(other, -0.5, out=into)
        into += along


def _joined(base: Whole, steps: list[Whole], resolution: int) -> Cells64:
    """Returns cells from base cells with rotations (`_learnt`) and steps (`_parents`)."""
    unused = (1 << 3 * (MAX_RESOLUTION - resolution)) - 1
    cells = ((base >> 3) << 45) | ((1 << 59) | (resolution << 52))
    table, turns = _three_digits(), (base & 7) * 9**3
    for at, three in enumerate(steps, start=(MAX_RESOLUTION - resolution) // 3):
        three += turns
        cells |= table[three] << (9 * at)
    return (cells | unused).view(np.uint64)


@cache
def _three_digits() -> Whole:
    """Returns the digits of three steps after a rotation, at ``turns * 729 + steps``."""
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
    """Returns for each face its centre, a direction to a corner, and the direction a quarter turn to the left."""
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
    """Returns the two vectors that map points to steps along the hexagon axes: three columns over the faces each."""
    _, ahead, left = _icosahedron().transpose(1, 0, 2)
    turn = _TURN if resolution % 2 else 0.0
    scale = np.sqrt(7.0) ** resolution / _STEP
    x = scale * (np.cos(turn) * ahead + np.sin(turn) * left)
    y = scale * (np.cos(turn) * left - np.sin(turn) * ahead)
    along_j = y / (np.sqrt(3) / 2)
    return np.ascontiguousarray(np.stack([x + along_j / 2, along_j]).transpose(0, 2, 1))


@cache
def _learnt() -> Whole:
    """Returns for each coarsest hexagon of a face its base cell times eight plus its rotation in sixths.

    Derived from sample points: known if one rotation reproduces h3 for all of them. The others, and pentagons, are left
    to h3.
    """
    fine = 4
    lat, lon = _samples(fine)
    hexagon, steps, sure = _hexagons(lat, lon, fine, _WorkArrays(len(lat)))
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
    """Returns points of every coarsest hexagon on every face, including hexagons that only touch a face."""
    p, q = (grid.ravel() for grid in np.mgrid[0:240, 0:240])
    p, q = p[p + q < 240], q[p + q < 240]
    # Corners of a face are two steps from its centre: along the two axes, and against both.
    i, j = (2 * (p + r) / 240 - 2 for p, r in ((p, p + q + 0.1), (q, p + q - 0.1)))
    scale = 7.0 ** (resolution // 2)
    work = _WorkArrays(len(i))
    a, b, _ = _parents(*_rounded(i * scale, j * scale, work.wide(len(i))[:6])[:2], resolution, work)
    number = a * 5 + b
    some = np.concatenate([np.resize(np.flatnonzero(number == m), 400)[::50] for m in set(number)])
    x, y = (i - j / 2)[some], (j * np.sqrt(3) / 2)[some]
    centre, ahead, left = _icosahedron().transpose(1, 0, 2)[:, :, None]
    points = (centre + _STEP * (x[None, :, None] * ahead + y[None, :, None] * left)).reshape(-1, 3)
    lat = np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
    return lat, np.degrees(np.arctan2(points[:, 1], points[:, 0]))
