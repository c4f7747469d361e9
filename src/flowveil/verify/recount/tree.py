"""Zones as a tree: which published zones hold a tile.

Zone codes of a release (docs/reference/files.md): an H3 cell in hexadecimal; a part of an H3 cell
`CELL.digits`, the children with these digits; a code of the operator's map; a half of a zone of
that map `CODE~1~2`; `outside`; `all`. Parents of H3 cells and of their parts follow from the bits
of the cell. A map lists its zones, and their halves, with their parents. Every tree reaches up to
`all` or to the root of the map.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Codes = NDArray[Any]

#: Code of everything outside a study area, as text and as a number behind all H3 cells; and of the
#: root.
OUTSIDE, OUTSIDE_CELL, ALL = "outside", 0x78FFFFFFFFFFFFFF, "all"
#: Base cells of H3 that are pentagons: they have no child 1.
_PENTAGONS = (4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117)
#: Parts of an H3 cell by number: 0246 and 135 are the halves, the others halves of these. 35
#: replaces 135 and 3 replaces 13 in a pentagon; a part of one child is that child.
_PARTS = ("", "04", "26", "0246", "13", "135", "35")
_SMALL = np.array([1, 4, 2, 4, 1, 0, 2, 0], dtype=np.uint64)
_LARGE = np.array([3, 5, 3, 5, 3, 5, 3, 0], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class ZoneMap:
    """The operator's map: all of its zones and their parts, seen or not."""

    code: Codes  # unique text of each zone
    parent: NDArray[np.int64]  # position of the zone around it; -1 for the root
    lat: NDArray[
        np.float64
    ]  # of the centre of each tile, in degrees; NaN for inner zones, and without places
    lon: NDArray[np.float64]
    outlines: Any = None  # polygon of each tile, in degrees; None without outlines

    @cached_property
    def tiles(self) -> NDArray[np.int64]:
        """Positions of the zones without children, by code."""
        tiles = np.setdiff1d(np.flatnonzero(self.code != OUTSIDE), self.parent)
        return np.take(tiles, np.argsort(self.code[tiles]))

    def nodes_of(self, codes: Codes) -> NDArray[np.int64]:
        """Returns the position of each code; raises KeyError if one is not on the map."""
        place = {code: at for at, code in enumerate(self.code.tolist())}
        return np.array([place[code] for code in codes.tolist()], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes above some tiles, with an order of the tiles in which those of every node are
    contiguous.
    """

    # (steps, tiles): the ancestor of each tile after each number of steps; the root is its own
    # ancestor
    up: Ints
    code: Codes  # text of each node
    position: Ints  # of each tile in the order
    start: Ints  # of each node: the slice of the order that it holds
    stop: Ints

    def lifted(self, steps: int, n_seen: int) -> Ints:
        """Returns the node of each tile after some steps, at most the smallest node around the
        first n_seen tiles.
        """
        place, chain = self.position[:n_seen], self.up[:, 0]
        root = chain[
            np.argmax((self.start[chain] <= place.min()) & (self.stop[chain] > place.max()))
        ]
        height = np.argmax(self.up == root, axis=0)
        return np.asarray(self.up[np.minimum(steps, height), np.arange(self.up.shape[1])])


def build_tree(tiles: Codes, zone_map: ZoneMap | None, *, halves: bool) -> Tree:
    """Returns the tree above distinct tiles: codes of a map, or H3 cells (uint64), with or without
    parts of cells.
    """
    return (
        _tree_of_cells(tiles, halves=halves) if zone_map is None else _tree_of_map(tiles, zone_map)
    )


def _intervals(slices: Any, zone: Any, tree: Tree) -> tuple[Any, Any, Any, np.int64]:
    """Returns start, stop and zone of the distinct zones of each slice, slice after slice, and the
    width of a slice.
    """
    pairs = np.unique(np.stack((slices, zone)), axis=1)
    wide = np.int64(int(tree.stop.max()) + 1)
    start, stop = pairs[0] * wide + tree.start[pairs[1]], pairs[0] * wide + tree.stop[pairs[1]]
    order = np.lexsort((-stop, start))
    return start[order], stop[order], pairs[1][order], wide


def count_overlaps(slices: Any, zone: Any, tree: Tree) -> int:
    """Returns how many zones overlap others of the same slice."""
    start, stop, _, _ = _intervals(slices, zone, tree)
    return int(np.sum(start[1:] < np.maximum.accumulate(stop)[:-1]))


def zones_around(held: Any, tile: Ints, slices: Any, zone: Any, tree: Tree) -> NDArray[np.int64]:
    """Returns the zone of its slice around the tile of each row; -1 for none.

    Zones of a slice are disjoint.
    """
    start, stop, zones, wide = _intervals(slices, zone, tree)
    target = held * wide + tree.position[tile]
    at = np.searchsorted(start, target, side="right") - 1
    return np.where((held >= 0) & (at >= 0) & (target < stop[at]), zones[at], -1)


def parent_cells(cells: Codes, resolution: int) -> Codes:
    """Returns ancestors of H3 cells: four bits of resolution, three for each digit, all set below
    the cell's own.
    """
    kept = cells & np.uint64(~(15 << 52) & 0xFFFFFFFFFFFFFFFF)
    return kept | np.uint64(resolution << 52) | np.uint64((1 << 3 * (15 - resolution)) - 1)


def cells_inside(cells: Codes, region: Codes) -> NDArray[np.bool_]:
    """Returns which H3 cells are cells of a region, or descendants of them."""
    inside = np.zeros(len(cells), dtype=np.bool_)
    for resolution in np.unique(resolution_of(region)).tolist():
        inside |= (resolution_of(cells) >= resolution) & np.isin(
            parent_cells(cells, resolution), region
        )
    return inside


def resolution_of(cells: Codes) -> NDArray[np.int64]:
    """Returns the resolution of each cell."""
    return (cells >> np.uint64(52) & np.uint64(15)).astype(np.int64)


def cell_texts(cells: Codes) -> Codes:
    """Returns cells in their usual hexadecimal form; 0 is `all`."""
    special = {0: ALL, OUTSIDE_CELL: OUTSIDE}
    return np.array([special.get(cell) or f"{cell:x}" for cell in cells.tolist()], dtype="<U24")


def _tree_of_cells(tiles: Codes, *, halves: bool) -> Tree:
    inside = tiles != np.uint64(OUTSIDE_CELL)
    finest = int(resolution_of(tiles[inside]).max(initial=0))
    # A node is a cell times eight plus the number of the part; `outside` is a tile like a cell.
    chain = [np.where(inside, tiles << np.uint64(3), np.uint64(8 | 7))]
    present = [np.ones(len(tiles), dtype=np.bool_)]
    for resolution in range(finest, 0, -1):
        parent = parent_cells(tiles, resolution - 1)
        digit = (tiles >> np.uint64(3 * (15 - resolution)) & np.uint64(7)).astype(np.int64)
        # Coarser tiles than the finest begin their chain further up.
        below = inside & (resolution_of(tiles) >= resolution)
        if halves:
            small, large = _parts_of(digit, parent, resolution)
            chain += [parent << np.uint64(3) | small, parent << np.uint64(3) | large]
            present += [below & (small > 0), below]
        chain.append(parent << np.uint64(3))
        present.append(below)
    chain.append(np.zeros(len(tiles), dtype=np.uint64))
    present.append(np.ones(len(tiles), dtype=np.bool_))
    nodes, up = _compressed(np.stack(chain), np.stack(present))
    part = (nodes & np.uint64(7)).astype(np.int64)
    code = cell_texts(nodes >> np.uint64(3))
    code[part == 7] = OUTSIDE
    if halves:
        code = np.char.add(code, np.array(["", *(f".{digits}" for digits in _PARTS[1:]), ""])[part])
    return _ordered(up, code)


def _parts_of(digit: Any, parent: Codes, resolution: int) -> tuple[Codes, Codes]:
    """Returns the numbers of the small and the large part of its parent around a child.

    0 for no part.
    """
    above = np.uint64(3 * (16 - resolution))
    central = (parent & np.uint64((1 << 45) - 1)) >> above == 0
    pentagon = central & np.isin(parent >> np.uint64(45) & np.uint64(127), _PENTAGONS)
    small, large = _SMALL[digit], _LARGE[digit]
    small = np.where(pentagon & (small == 4), np.uint64(0), small)
    return small, np.where(pentagon & (large == 5), np.uint64(6), large)


def _compressed(chain: Codes, present: NDArray[np.bool_]) -> tuple[Codes, Ints]:
    """Returns distinct nodes, and the chains without gaps.

    Shorter chains repeat their last node.
    """
    chain = np.take_along_axis(chain, np.argsort(~present, axis=0, kind="stable"), axis=0)
    height = present.sum(axis=0) - 1
    step = np.minimum(np.arange(int(height.max(initial=0)) + 1)[:, None], height)
    chain = np.take_along_axis(chain, step, axis=0)
    nodes, number = np.unique(chain, return_inverse=True)
    return nodes, number.reshape(chain.shape).astype(np.int32)


def _ordered(up: Ints, code: Codes) -> Tree:
    """Returns the tree of these chains, which end with the root."""
    n = up.shape[1]
    # Nodes from the root down: chains that begin alike become neighbours.
    height = np.argmax(up == up[-1], axis=0)
    down = np.take_along_axis(up, np.maximum(height - np.arange(len(up))[:, None], 0), axis=0)
    order = np.lexsort(down[::-1])
    position = np.empty(n, dtype=np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    start, stop = np.full(len(code), n, dtype=np.int32), np.zeros(len(code), dtype=np.int32)
    for nodes in up:
        np.minimum.at(start, nodes, position)
        np.maximum.at(stop, nodes, position + 1)
    return Tree(up, code, position, start, stop)


def _tree_of_map(tiles: Codes, zone_map: ZoneMap) -> Tree:
    node = zone_map.nodes_of(tiles)
    chain = [node]
    while np.any(zone_map.parent[node] >= 0):
        if len(chain) > len(zone_map.code):
            raise ValueError("zones of the map are their own parents")
        node = np.where(zone_map.parent[node] >= 0, zone_map.parent[node], node)
        chain.append(node)
    nodes, number = np.unique(np.stack(chain), return_inverse=True)
    return _ordered(number.reshape(len(chain), -1).astype(np.int32), zone_map.code[nodes])
