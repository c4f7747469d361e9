"""A user's map refined into halves: parts between a zone and its children, by a rule on the map alone.

The children of a zone are ordered along the longer side of the extent of their points, from south to north or from west
to east, and cut in the middle; the first half is larger by one if their number is odd. Halves are cut again until
single children are left. The point of a zone is the mean of its tiles' centres, in integer ten-millionths of a degree,
so that rounding cannot change the parts.

Guarantees: the parts do not depend on the trips; every zone of the map is still a node; a part with one zone is that
zone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Hierarchy
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.naming import named_like
from flowveil.zoning.outside import has_outside, inside_of, with_outside

#: Separates the code of a zone from the number of a half.
MARK = "~"
_UNITS = 10_000_000
_CIRCLE = 360 * _UNITS

Whole = NDArray[np.int64]


def halved_map(tree: Hierarchy) -> Hierarchy:
    """Returns a map with parts between zones and their children.

    Args:
        tree: the whole map, with its geography, and without `MARK` in its codes.

    Returns:
        A hierarchy of the same kind over the same tiles, possibly in another order. Parts are called ``CODE~1``,
        ``CODE~2``, ``CODE~1~1``; their level is that of the zone.
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
    waiting = [(v, children[start[v] : start[v + 1]]) for v in np.flatnonzero(tree.n_children > 2).tolist()]
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
    halved = Hierarchy(
        parent=built.parent,
        code=built.code,
        base_level=int(levels[0]),
        geography=ZoneGeography.of(built, where.places.take(tile_at[built.leaf_node])),
        kind=tree.kind,
        levels=levels,
    )
    return named_like(halved, tree)


def _points(tree: Hierarchy, where: ZoneGeography) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns mean latitude and longitude of the tiles of each node, in units.

    Longitudes are relative to the tile with the first code, so that a map across 180 degrees is contiguous.
    """
    at = where.start[tree.leaf_node]
    lat = np.rint(where.places.lat[at] * _UNITS).astype(np.int64)
    lon = np.rint(where.places.lon[at] * _UNITS).astype(np.int64)
    first = int(lon[np.argmin(tree.code_rank[tree.leaf_node])])
    lon = (lon - first + _CIRCLE // 2) % _CIRCLE - _CIRCLE // 2
    size = tree.size.astype(np.float64)
    return tree.sum_over(lat) / size, tree.sum_over(lon) / size


def _halves(zones: Whole, lat: NDArray[np.float64], lon: NDArray[np.float64], code: list[str]) -> tuple[Whole, Whole]:
    """Returns two halves of the zones, along the longer side of the extent of their points."""
    y, x = lat[zones], lon[zones]
    south, north = float(y.min()), float(y.max())
    narrowing = math.cos(math.radians((south + north) / 2 / _UNITS))
    wide = float(x.max() - x.min()) * narrowing > north - south
    names = np.array([code[z] for z in zones.tolist()])
    order = zones[np.lexsort((names, y, x) if wide else (names, x, y))]
    middle = (len(order) + 1) // 2
    return order[:middle], order[middle:]
