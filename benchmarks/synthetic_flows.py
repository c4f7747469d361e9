"""Flows for benchmarks: millions of pairs of tiles of the region without a trip being made
first."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Numbers
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.core.read_summary import ReadSummary
from flowveil.reading.sources.synthetic import (
    JOBS,
    KM_PER_LAT,
    KM_PER_LON,
    LAT0,
    LON0,
    PLACE_X,
    PLACE_Y,
    RESIDENTS,
    SPREAD,
    degrees,
    keep_inside,
)
from flowveil.zoning.h3 import MAX_RESOLUTION, h3_hierarchy

_TILE_RESOLUTION = 10
_AREA_RESOLUTION = 7
_TILES_OF_AREA = 7 ** (_TILE_RESOLUTION - _AREA_RESOLUTION)
#: Flows beyond this would not fit the 32-bit row numbers used everywhere.
MAX_FLOWS: Final = 1_000_000_000


@lru_cache(maxsize=1)
def _areas() -> tuple[Cells64, Floats, Floats]:
    """Returns the H3 cells of resolution 7 that cover the region, in order, and their centres in
    the plane."""
    east, north = np.meshgrid(np.arange(-70.0, 95.0, 0.9), np.arange(-85.0, 55.0, 0.9))
    points = np.stack([east.ravel(), north.ravel()])
    inside = points[:, np.all(keep_inside(points) == points, axis=0)]
    found = {
        h3_int.latlng_to_cell(*at, _AREA_RESOLUTION) for at in zip(*degrees(inside), strict=True)
    }
    cells = np.array(sorted(found), dtype=np.uint64)
    centre = np.array([h3_int.cell_to_latlng(cell) for cell in cells.tolist()])
    return cells, (centre[:, 1] - LON0) * KM_PER_LON, (centre[:, 0] - LAT0) * KM_PER_LAT


def _tiles_of_areas(areas: Cells64) -> Cells64:
    """All tiles of these cells, in order: every combination of the digits below (no pentagon is
    near)."""
    digit = np.arange(_TILES_OF_AREA, dtype=np.uint64)
    bits = np.zeros(_TILES_OF_AREA, dtype=np.uint64)
    free = np.uint64(0)
    for resolution in range(_AREA_RESOLUTION + 1, _TILE_RESOLUTION + 1):
        shift = np.uint64(3 * (MAX_RESOLUTION - resolution))
        power = np.uint64(7 ** (_TILE_RESOLUTION - resolution))
        bits |= ((digit // power) % np.uint64(7)) << shift
        free |= np.uint64(7) << shift
    finer = np.uint64(_TILE_RESOLUTION - _AREA_RESOLUTION) << np.uint64(52)
    return (((areas & ~free) + finer)[:, None] | bits).ravel()


@lru_cache(maxsize=1)
def _gravity() -> Floats:
    """Chance of each pair of areas: residents here, residents and jobs there, falling off with
    distance."""
    _, x, y = _areas()
    squared = (x[:, None] - PLACE_X) ** 2 + (y[:, None] - PLACE_Y) ** 2
    near = np.exp(-squared / (2 * (SPREAD + 0.8) ** 2)) / (SPREAD + 0.8) ** 2
    # Plain sums, not a matrix product: that may round differently with the number of threads.
    lives = (near * RESIDENTS).sum(axis=1) + 0.4
    goes = (near * (RESIDENTS / 2 + JOBS)).sum(axis=1) + 0.3
    distance = np.hypot(x[:, None] - x, y[:, None] - y)
    chance: Floats = (
        lives[:, None] * goes * (np.exp(-distance / 3.0) + 0.03 * np.exp(-distance / 12.0))
    )
    # Who goes comes back: both directions are as likely.
    chance += chance.T
    chance /= chance.sum()
    chance.flags.writeable = False
    return chance


def _draw_tiles(rng: np.random.Generator, area: Numbers) -> Numbers:
    """Returns one tile of each area, a few tiles of an area much likelier than the others (a power
    law)."""
    rank = (_TILES_OF_AREA * rng.random(len(area)) ** 2.5).astype(np.int64)
    # An affine map with a factor prime to 7 reorders the tiles of each area in its own way, without
    # a table.
    tile: Numbers = (
        area * _TILES_OF_AREA + (rank * (3 + 7 * (area % 40)) + area * 101) % _TILES_OF_AREA
    )
    return tile


def synthetic_flows(n_flows: int, *, seed: int = 0) -> Flows:
    """Draws flows over the H3 tiles of Île-de-France, for benchmarks: no trips are made first.

    The pairs follow a gravity model between areas of 5 km² and a power law among the tiles of an
    area. Most flows have one trip, few have many; weights vary by origin. Distinct pairs come from
    one sort of 64-bit keys, so ten million flows take seconds.

    Args:
        n_flows: how many distinct pairs of tiles, at least 1.
        seed: another seed gives other flows.

    Returns:
        Exactly ``n_flows`` flows, sorted, with trips and weights and no people, over the H3 trees
        of the tiles in use.

    Raises:
        ParameterError: an argument is out of range.
    """
    if not 1 <= n_flows <= MAX_FLOWS:
        raise ParameterError(f"n_flows is {n_flows}; 1 to {MAX_FLOWS:,} are allowed.")
    if seed < 0:
        raise ParameterError(f"seed is {seed}; it must be 0 or more.")
    rng = np.random.default_rng(seed)
    areas = _areas()[0]
    n_tiles = len(areas) * _TILES_OF_AREA
    key = np.zeros(0, dtype=np.int64)
    while len(key) < n_flows:
        missing = n_flows - len(key)
        key = np.concatenate([key, _draw_pairs(rng, missing + missing // 8 + 64, n_tiles)])
        key.sort()
        key = key[np.concatenate(([True], key[1:] != key[:-1]))]
    kept = np.ones(len(key), dtype=np.bool_)
    kept[rng.choice(len(key), len(key) - n_flows, replace=False, shuffle=False)] = False
    key = key[kept]
    origin, destination = (key // n_tiles).astype(np.int32), (key % n_tiles).astype(np.int32)
    del key, kept
    # A Pareto tail cut at ten thousand: nine flows in ten have one or two trips.
    trips = np.minimum((1.0 - rng.random(n_flows)) ** (-1 / 1.7), 10_000.0).astype(np.int64)
    # The region has the inhabitants it has: in a very large sample a trip represents fewer of them.
    mean_weight = 2_700.0 * min(1.0, 500_000 / n_flows)
    weight_of_tile = mean_weight * np.exp(0.6 * rng.standard_normal(n_tiles) - 0.18)
    weight = trips * weight_of_tile[origin]
    tiles = _tiles_of_areas(areas)
    origin, origin_tiles = _renumber(origin, tiles)
    destination, destination_tiles = _renumber(destination, tiles)
    return Flows(
        origin,
        destination,
        trips,
        weight,
        origins=h3_hierarchy(origin_tiles),
        destinations=h3_hierarchy(destination_tiles),
        intake=ReadSummary(rows=int(trips.sum()), resolution=_TILE_RESOLUTION),
    )


def _draw_pairs(rng: np.random.Generator, n: int, n_tiles: int) -> Numbers:
    """Keys of ``n`` pairs of tiles (origin times the number of tiles, plus destination), not yet
    distinct."""
    chance = _gravity()
    pair = np.repeat(np.arange(chance.size, dtype=np.int32), rng.multinomial(n, chance.ravel()))
    n_areas = len(chance)
    origin = _draw_tiles(rng, (pair // n_areas).astype(np.int64))
    destination = _draw_tiles(rng, (pair % n_areas).astype(np.int64))
    return origin * n_tiles + destination


def _renumber(tile: NDArray[np.int32], tiles: Cells64) -> tuple[NDArray[np.int32], Cells64]:
    """Numbers only the tiles in use, in the same order."""
    used = np.zeros(len(tiles), dtype=np.bool_)
    used[tile] = True
    return (np.cumsum(used, dtype=np.int32) - np.int32(1))[tile], tiles[used]
