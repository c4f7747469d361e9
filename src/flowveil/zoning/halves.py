"""Trees refined into halves: parts between a zone and its children, for H3 and for maps
(docs/zones.md).

H3 cells divide by child digits {0,4,6,2} and {3,1,5}; then {0,4}, {6,2} and {3,1}, {5}; then single
children. So every part is contiguous. Children of a user's zone are ordered along the longer side
of their extent and cut in the middle, until single ones are left; the first half is larger by one
if their number is odd. Points are integer ten-millionths of a degree, so that rounding cannot
change the parts. Guaranteed: the division does not depend on the trips.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Numbers
from flowveil.core.hierarchy import H3_PART_SHIFT, Hierarchy
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.h3 import (
    MAX_RESOLUTION,
    PART_BITS,
    H3Geography,
    children_in,
    is_pentagon,
    resolution_of,
)
from flowveil.zoning.naming import named_like
from flowveil.zoning.outside import has_outside, inside_of, with_outside
from flowveil.zoning.table import positions, without_chain_above

_SHIFT = np.uint64(H3_PART_SHIFT)
#: Numbers of the larger and smaller part with the child of each digit; 0 for no smaller part. In a
#: pentagon the second large part is that of 3 and 5, directly above the children.
_LARGE = np.array([1, 2, 1, 2, 1, 2, 1])
_SMALL = np.array([3, 5, 4, 5, 3, 0, 4])
_ODD, _ODD_OF_PENTAGON = 2, 6


def halved_h3(tree: Hierarchy, *, to_the_top: bool = False) -> Hierarchy:
    """Returns an H3 tree with parts between cells and their children.

    Kind ``halves``, tiles in another order.

    Its root is the smallest cell or part that contains all tiles, unless it reaches to the top. The
    level of a part is the resolution of its cell. The children of a virtual root stay base cells.
    """
    if has_outside(tree):
        return with_outside(halved_h3(inside_of(tree), to_the_top=True))
    cell = tree.code.astype(np.uint64)
    inner = np.flatnonzero((tree.parent >= 0) & (cell[np.maximum(tree.parent, 0)] != 0))
    above = cell[tree.parent[inner]]
    large, small = _parts_of_children(above, cell[inner])
    part_codes, parents = _parts(above, large, small)
    code = np.concatenate((cell, part_codes))
    parent_code = np.concatenate(
        (np.where(tree.parent < 0, 0, cell[np.maximum(tree.parent, 0)]), parents)
    )
    parent_code[inner] = np.where(small > 0, _part(above, small), _part(above, large))
    parent = positions(code, parent_code)
    parent[0] = -1
    built, _ = Hierarchy.from_parents(parent, code, base_level=tree.base_level, kind="halves")
    built = built if to_the_top else without_chain_above(built)
    codes = built.code
    level = np.where(codes == 0, -1, resolution_of(codes)).astype(np.int32)
    return replace(
        built, base_level=int(level[0]), geography=H3Geography.from_tree(built), levels=level
    )


def _parts_of_children(
    above: Cells64, child: Cells64
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the numbers of the larger and the smaller part of each child.

    0 for no smaller part.
    """
    place = (3 * (MAX_RESOLUTION - resolution_of(child))).astype(np.uint64)
    digit = (child >> place & np.uint64(7)).astype(np.int64)
    large, small = _LARGE[digit], _SMALL[digit]
    odd = is_pentagon(above) & (large == _ODD)
    return np.where(odd, _ODD_OF_PENTAGON, large), np.where(odd, 0, small)


def _part(cell: Cells64, number: NDArray[np.int64]) -> Cells64:
    return cell | number.astype(np.uint64) << _SHIFT


def _parts(
    above: Cells64, large: NDArray[np.int64], small: NDArray[np.int64]
) -> tuple[Cells64, Cells64]:
    """Returns the distinct parts with children, and the code of each one's parent."""
    halves = np.unique(_part(above, large))
    has_quarter = small > 0
    quarters, first = np.unique(_part(above, small)[has_quarter], return_index=True)
    parents = halves & ~PART_BITS, _part(above, large)[has_quarter][first]
    return np.concatenate((halves, quarters)), np.concatenate(parents)


def enclosing_parts(code: int) -> list[int]:
    """Returns a cell or part and every part and cell that contains it, up to the base cell, nearest
    first.
    """
    number = code >> H3_PART_SHIFT & 7
    cell = code ^ number << H3_PART_SHIFT
    if number:
        # A part is inside the larger part of its first child.
        around = _parts_above(children_in(code)[0])
        return list(around[around.index(code) :])
    return [cell, *_parts_above(cell)]


@lru_cache(maxsize=1 << 17)
def _parts_above(cell: int) -> tuple[int, ...]:
    """Returns the parts and cells around a cell, itself not included.

    Neighbours share most of them.
    """
    resolution = h3_int.get_resolution(cell)
    if resolution == 0:
        return ()
    above = h3_int.cell_to_parent(cell, resolution - 1)
    found = _parts_of_children(np.array([above], np.uint64), np.array([cell], np.uint64))
    large, small = (int(part[0]) for part in found)
    parts = [above | part << H3_PART_SHIFT for part in (small, large) if part]
    return (*parts, above, *_parts_above(above))


# ---- maps ----------------------------------------------------------------------------------------

#: Separates the code of a zone from the number of a half.
MARK = "~"
_UNITS = 10_000_000
_CIRCLE = 360 * _UNITS


def halved_map(tree: Hierarchy) -> Hierarchy:
    """Returns a whole map with parts between zones and their children.

    Same kind, tiles possibly in another order.

    The map has a geography, and no `MARK` in its codes. Parts are called ``CODE~1``, ``CODE~2``,
    ``CODE~1~1``; their level is that of the zone.
    """
    if has_outside(tree):
        return with_outside(halved_map(inside_of(tree)))
    where = tree.geography
    assert isinstance(where, ZoneGeography)
    parent: list[int] = tree.parent.tolist()
    code: list[str] = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    level: list[int] = tree.level.tolist()
    lat, lon = _points(tree, where)
    children = np.argsort(tree.parent, kind="stable")
    start = np.searchsorted(tree.parent[children], np.arange(tree.n_nodes + 1))
    waiting = [
        (v, children[start[v] : start[v + 1]]) for v in np.flatnonzero(tree.n_children > 2).tolist()
    ]
    while waiting:
        above, zones = waiting.pop()
        for number, half in enumerate(_halves(zones, lat, lon, code), start=1):
            if len(half) == 1:
                parent[int(half[0])] = above
                continue
            parent.append(above)
            code.append(f"{code[above]}{MARK}{number}")
            level.append(level[above])
            waiting.append((len(parent) - 1, half))
    built, node = Hierarchy.from_parents(np.array(parent), np.array(code), kind=tree.kind)
    levels = np.empty(built.n_nodes, dtype=np.int32)
    levels[node] = level
    # Old tile at each position of the new order.
    tile_at = np.full(built.n_nodes, -1, dtype=np.int64)
    tile_at[node[tree.leaf_node]] = np.arange(tree.n_tiles)
    places = where.places.take(tile_at[built.leaf_node])
    geography = ZoneGeography(places, built.leaf_start, built.leaf_stop)
    return named_like(
        replace(built, base_level=int(levels[0]), geography=geography, levels=levels), tree
    )


def _points(
    tree: Hierarchy, where: ZoneGeography
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns mean latitude and longitude of each node's tiles, longitudes relative to the tile
    with the first code.
    """
    at = where.start[tree.leaf_node]
    lat = np.rint(where.places.lat[at] * _UNITS).astype(np.int64)
    lon = np.rint(where.places.lon[at] * _UNITS).astype(np.int64)
    first = int(lon[np.argmin(tree.code_rank[tree.leaf_node])])
    lon = (lon - first + _CIRCLE // 2) % _CIRCLE - _CIRCLE // 2
    size = tree.size.astype(np.float64)
    return tree.sum_over(lat) / size, tree.sum_over(lon) / size


def _halves(
    zones: Numbers, lat: NDArray[np.float64], lon: NDArray[np.float64], code: list[str]
) -> tuple[Numbers, Numbers]:
    """Returns two halves of the zones, along the longer side of the extent of their points."""
    y, x = lat[zones], lon[zones]
    south, north = float(y.min()), float(y.max())
    narrowing = math.cos(math.radians((south + north) / 2 / _UNITS))
    wide = float(x.max() - x.min()) * narrowing > north - south
    names = np.array([code[z] for z in zones.tolist()])
    order = zones[np.lexsort((names, y, x) if wide else (names, x, y))]
    middle = (len(order) + 1) // 2
    return order[:middle], order[middle:]
