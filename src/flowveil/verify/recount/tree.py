"""Zones as a tree: which published zones hold a tile.

Zone codes of a release (docs/reference/files.md): an H3 cell in hexadecimal; a part of an H3 cell `CELL.digits`, the
children with these digits; a code of the operator's map; a half of a zone of that map `CODE~1~2`; `outside`; `all`.
Parents of H3 cells follow from the bits of the cell, parents on a map from its parent column, halves from the rules
below. Every tree reaches up to `all` or to the root of the map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Codes = NDArray[Any]

#: Code of everything outside a study area: as text, and as a number behind all H3 cells.
OUTSIDE, OUTSIDE_CELL = "outside", 0x78FFFFFFFFFFFFFF
ALL = "all"
#: Base cells of H3 that are pentagons: they have no child 1.
_PENTAGONS = (4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117)
#: Parts of an H3 cell by number: 0246 and 135 are the halves, the others halves of these. 35 replaces 135 and 3
#: replaces 13 in a pentagon; a part of one child is that child.
_PARTS = ("", "04", "26", "0246", "13", "135", "35")
_SMALL = np.array([1, 4, 2, 4, 1, 0, 2, 0], dtype=np.uint64)
_LARGE = np.array([3, 5, 3, 5, 3, 5, 3, 0], dtype=np.uint64)
#: Children in the order that keeps the parts together.
_PART_ORDER = np.array([0, 4, 2, 5, 1, 6, 3, 7], dtype=np.uint64)
_UNITS = 10_000_000


@dataclass(frozen=True, eq=False)
class ZoneMap:
    """The operator's map: all of its zones, seen or not.

    Attributes:
        code: unique text of each zone.
        parent: position of the zone around it; -1 for the root.
        lat, lon: centre of each tile in degrees; NaN for inner zones, and everywhere if the map has no places.
    """

    code: Codes
    parent: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes above some tiles.

    Attributes:
        up: int32 (steps, tiles): the ancestor of each tile after each number of steps; the root is its own ancestor.
        code: text of each node.
        position: position of each tile in an order in which the tiles of every node are contiguous.
        start, stop: the slice of that order which a node holds.
    """

    up: Ints
    code: Codes
    position: Ints
    start: Ints
    stop: Ints

    def lifted(self, steps: int, n_seen: int) -> Ints:
        """Returns the node of each tile after some steps, at most the smallest node around the first n_seen tiles."""
        place, chain = self.position[:n_seen], self.up[:, 0]
        root = chain[np.argmax((self.start[chain] <= place.min()) & (self.stop[chain] > place.max()))]
        height = np.argmax(self.up == root, axis=0)
        lifted: Ints = self.up[np.minimum(steps, height), np.arange(self.up.shape[1])]
        return lifted


def build_tree(tiles: Codes, zone_map: ZoneMap | None, *, halves: bool) -> Tree:
    """Returns the tree above tiles: H3 cells (uint64), or codes of a map (text).

    Args:
        tiles: distinct tiles.
        zone_map: the map; None for H3.
        halves: whether parts of zones stand between a zone and its children.

    Raises:
        ValueError: a tile is not on the map.
    """
    if zone_map is None:
        return _tree_of_cells(tiles, halves=halves)
    base = _without_halves(zone_map)
    return _tree_of_map(tiles, _with_halves(base) if halves else base)


def count_overlaps(slices: NDArray[Any], zone: NDArray[Any], tree: Tree) -> int:
    """Returns how many zones overlap others of the same slice."""
    pairs = np.unique(np.stack((slices, zone)), axis=1)
    wide = np.int64(int(tree.stop.max()) + 1)
    start, stop = pairs[0] * wide + tree.start[pairs[1]], pairs[0] * wide + tree.stop[pairs[1]]
    order = np.lexsort((-stop, start))
    return int(np.sum(start[order][1:] < np.maximum.accumulate(stop[order])[:-1]))


def zones_around(held: Any, tile: Ints, slices: Any, zone: Any, tree: Tree) -> NDArray[np.int64]:
    """Returns the zone of its slice around the tile of each row; -1 for none. Zones of a slice are disjoint."""
    known = np.unique(slices * len(tree.code) + zone)
    found = np.full(len(tile), -1, dtype=np.int64)
    rows = np.flatnonzero(held >= 0)
    for step in tree.up:
        node = step[tile[rows]]
        key = held[rows].astype(np.int64) * len(tree.code) + node
        at = np.searchsorted(known, key).clip(max=len(known) - 1)
        hit = known[at] == key
        found[rows[hit]] = node[hit]
        rows = rows[~hit]
    return found


# ---- H3 --------------------------------------------------------------------------------------------------------------


def parent_cells(cells: Codes, resolution: int) -> Codes:
    """Returns ancestors of H3 cells: four bits of resolution, three for each digit, all set below the cell's own."""
    kept = cells & np.uint64(~(15 << 52) & 0xFFFFFFFFFFFFFFFF)
    return kept | np.uint64(resolution << 52) | np.uint64((1 << 3 * (15 - resolution)) - 1)


def resolution_of(cells: Codes) -> NDArray[np.int64]:
    """Returns the resolution of each cell."""
    return (cells >> np.uint64(52) & np.uint64(15)).astype(np.int64)


def cell_texts(cells: Codes) -> Codes:
    """Returns cells in their usual hexadecimal form; 0 is `all`."""
    digits = np.frombuffer(cells.astype(">u8").tobytes().hex().encode(), dtype="S1").reshape(-1, 16)
    texts = np.ascontiguousarray(digits[:, 1:]).view("S15").ravel().astype("<U24")
    texts[cells == 0] = ALL
    texts[cells == np.uint64(OUTSIDE_CELL)] = OUTSIDE
    return texts


def _tree_of_cells(tiles: Codes, *, halves: bool) -> Tree:
    inside = tiles != np.uint64(OUTSIDE_CELL)
    finest = int(resolution_of(tiles[inside]).max(initial=0))
    # A node is a cell times eight plus the number of the part; `outside` is a tile like a cell.
    chain = [np.where(inside, tiles << np.uint64(3), np.uint64(8 | 7))]
    present = [np.ones(len(tiles), dtype=np.bool_)]
    key = tiles & np.uint64(~(15 << 52) & 0xFFFFFFFFFFFFFFFF)
    for resolution in range(finest, 0, -1):
        parent = parent_cells(tiles, resolution - 1)
        shift = np.uint64(3 * (15 - resolution))
        digit = (tiles >> shift & np.uint64(7)).astype(np.int64)
        # Coarser tiles than the finest begin their chain further up.
        below = inside & (resolution_of(tiles) >= resolution)
        if halves:
            small, large = _parts_of(digit, parent, resolution)
            chain += [parent << np.uint64(3) | small, parent << np.uint64(3) | large]
            present += [below & (small > 0), below]
            key = key & ~(np.uint64(7) << shift) | _PART_ORDER[digit] << shift
        chain.append(parent << np.uint64(3))
        present.append(below)
    chain.append(np.zeros(len(tiles), dtype=np.uint64))
    present.append(np.ones(len(tiles), dtype=np.bool_))
    nodes, up = _compressed(np.stack(chain), np.stack(present))
    part = (nodes & np.uint64(7)).astype(np.int64)
    code = cell_texts(nodes >> np.uint64(3))
    code[part == 7] = OUTSIDE
    if halves:
        suffix = np.array(["", *(f".{digits}" for digits in _PARTS[1:]), ""])[part]
        code = np.char.add(code, suffix)
    return _ordered(up, code, np.argsort(key, kind="stable"))


def _parts_of(digit: Any, parent: Codes, resolution: int) -> tuple[Codes, Codes]:
    """Returns the numbers of the small and the large part of its parent around a child; 0 for no part."""
    above = np.uint64(3 * (16 - resolution))
    central = (parent & np.uint64((1 << 45) - 1)) >> above == 0
    pentagon = central & np.isin(parent >> np.uint64(45) & np.uint64(127), _PENTAGONS)
    small, large = _SMALL[digit], _LARGE[digit]
    small = np.where(pentagon & (small == 4), np.uint64(0), small)
    return small, np.where(pentagon & (large == 5), np.uint64(6), large)


def _compressed(chain: Codes, present: NDArray[np.bool_]) -> tuple[Codes, Ints]:
    """Returns distinct nodes, and the chains without gaps; shorter chains repeat their last node."""
    if not present.all():
        chain = np.take_along_axis(chain, np.argsort(~present, axis=0, kind="stable"), axis=0)
        height = present.sum(axis=0) - 1
        beyond = np.arange(len(chain))[:, None] > height
        chain = np.where(beyond, chain[height, np.arange(chain.shape[1])], chain)
        chain = chain[: int(height.max(initial=0)) + 1]
    nodes, number = np.unique(chain, return_inverse=True)
    return nodes, number.reshape(chain.shape).astype(np.int32)


def _ordered(up: Ints, code: Codes, order: NDArray[np.int64]) -> Tree:
    """Returns the tree of these chains; the order keeps the tiles of every node together."""
    n = up.shape[1]
    position = np.empty(n, dtype=np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    start, stop = np.full(len(code), n, dtype=np.int32), np.zeros(len(code), dtype=np.int32)
    for nodes in up:
        np.minimum.at(start, nodes, position)
        np.maximum.at(stop, nodes, position + 1)
    return Tree(up, code, position, start, stop)


# ---- a map -----------------------------------------------------------------------------------------------------------


def _tree_of_map(tiles: Codes, zone_map: ZoneMap) -> Tree:
    by_code = np.argsort(zone_map.code, kind="stable")
    node = by_code[np.searchsorted(zone_map.code[by_code], tiles).clip(max=len(by_code) - 1)]
    if np.any(zone_map.code[node] != tiles):
        raise ValueError("a tile is not on the map")
    chain = [node]
    while np.any(zone_map.parent[node] >= 0):
        if len(chain) > len(zone_map.code):
            raise ValueError("zones of the map are their own parents")
        node = np.where(zone_map.parent[node] >= 0, zone_map.parent[node], node)
        chain.append(node)
    nodes, number = np.unique(np.stack(chain), return_inverse=True)
    up = number.reshape(len(chain), -1).astype(np.int32)
    # Nodes from the root down: chains that begin alike become neighbours.
    height = np.argmax(up == up[-1], axis=0)
    down = np.take_along_axis(up, np.maximum(height - np.arange(len(up))[:, None], 0), axis=0)
    return _ordered(up, zone_map.code[nodes], np.lexsort(down[::-1]))


def _without_halves(zone_map: ZoneMap) -> ZoneMap:
    """Returns the map without parts of zones, which are derived again where a release has them."""
    is_part, parent = np.char.find(zone_map.code.astype(np.str_), "~") >= 0, zone_map.parent.copy()
    while np.any(below := is_part[parent] & (parent >= 0)):
        parent[below] = zone_map.parent[parent[below]]
    parent = np.where(parent < 0, -1, (np.cumsum(~is_part) - 1)[parent])
    kept = ~is_part
    return ZoneMap(zone_map.code[kept], parent[kept], zone_map.lat[kept], zone_map.lon[kept])


def _with_halves(zone_map: ZoneMap) -> ZoneMap:
    """Returns the map with its zones divided: the children of a zone along the longer side of what their points span.

    Points are means of tile centres in whole ten-millionths of a degree, longitudes counted from the tile whose code
    comes first. The first half is the larger one by one; halves are divided again until single children are left.
    `outside` and the root above it are not divided.
    """
    code, parent = zone_map.code.tolist(), zone_map.parent.tolist()
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        if code[node] != OUTSIDE:
            children.setdefault(above, []).append(node)
    points = _points(zone_map, children)
    waiting = [(zone, below) for zone, below in children.items() if zone >= 0 and len(below) > 2]
    while waiting:
        zone, below = waiting.pop()
        for number, half in enumerate(_halves(below, points, code), start=1):
            if len(half) == 1:
                parent[half[0]] = zone
                continue
            parent.append(zone)
            code.append(f"{code[zone]}~{number}")
            waiting.append((len(parent) - 1, half))
    unknown = np.full(len(code) - len(zone_map.code), np.nan)
    lat, lon = np.concatenate((zone_map.lat, unknown)), np.concatenate((zone_map.lon, unknown))
    return ZoneMap(np.array(code), np.array(parent), lat, lon)


def _points(zone_map: ZoneMap, children: dict[int, list[int]]) -> dict[int, tuple[float, float]]:
    """Returns the mean of the tile centres of each zone."""
    order = list(children[-1])
    for node in order:
        order.extend(children.get(node, ()))
    first = min((node for node in order if node not in children), key=lambda node: str(zone_map.code[node]))
    half, start = 180 * _UNITS, round(float(zone_map.lon[first]) * _UNITS)
    sums: dict[int, tuple[int, int, int]] = {}
    for node in reversed(order):
        if node in children:
            y, x, n = (sum(values) for values in zip(*(sums[child] for child in children[node]), strict=True))
        else:
            y, lon = round(float(zone_map.lat[node]) * _UNITS), round(float(zone_map.lon[node]) * _UNITS)
            x, n = (lon - start + half) % (2 * half) - half, 1
        sums[node] = (y, x, n)
    return {node: (y / n, x / n) for node, (y, x, n) in sums.items()}


def _halves(zones: list[int], points: dict[int, tuple[float, float]], code: list[str]) -> tuple[list[int], list[int]]:
    lat, lon = [points[zone][0] for zone in zones], [points[zone][1] for zone in zones]
    narrowing = math.cos(math.radians((min(lat) + max(lat)) / 2 / _UNITS))
    wide = (max(lon) - min(lon)) * narrowing > max(lat) - min(lat)
    ordered = sorted(zones, key=lambda zone: (*(points[zone][::-1] if wide else points[zone]), code[zone]))
    middle = (len(ordered) + 1) // 2
    return ordered[:middle], ordered[middle:]
