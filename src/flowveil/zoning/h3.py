"""The H3 hierarchy, built with bit operations on the 64-bit cells.

A cell holds its base cell and one base-7 digit for each resolution, most significant first; digits
below the resolution are 7. So the integer order of the cells of one resolution is depth-first
order, and a parent is a mask: the whole tree is built in a few passes over whole arrays, one for
each resolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Ints
from flowveil.core.errors import DataError
from flowveil.core.hierarchy import H3_PART_SHIFT, H3_PARTS, OUTSIDE_CELL, Hierarchy
from flowveil.zoning.outside import with_outside

MAX_RESOLUTION = 15
_RESOLUTION_SHIFT = np.uint64(52)
_RESOLUTION_MASK = np.uint64(0xF) << _RESOLUTION_SHIFT
_BASE_CELL_SHIFT = np.uint64(45)
_ALL_DIGITS = (np.uint64(1) << _BASE_CELL_SHIFT) - np.uint64(1)
PENTAGON_BASE_CELLS = np.array(
    sorted({h3_int.get_base_cell_number(c) for c in h3_int.get_pentagons(0)})
)
#: Code of the root above several base cells: no cell has it.
VIRTUAL_ROOT_CODE = 0

#: Bits of the number of a part, and the number of children of each part.
_PART_SHIFT = np.uint64(H3_PART_SHIFT)
PART_BITS = np.uint64(7) << _PART_SHIFT
_PART_CHILDREN = np.array([max(0, len(suffix) - 1) for suffix in H3_PARTS])


def is_h3(tree: Hierarchy) -> bool:
    """Returns whether the nodes of a tree are H3 cells, or parts of them."""
    return tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64


def resolution_of(cells: Cells64) -> NDArray[np.int64]:
    """Returns the resolution of each cell."""
    return ((cells & _RESOLUTION_MASK) >> _RESOLUTION_SHIFT).astype(np.int64)


def parent_of(cells: Cells64, resolution: int) -> Cells64:
    """Returns the ancestor of each cell at a resolution that is not finer than its own."""
    below = np.uint64((1 << 3 * (MAX_RESOLUTION - resolution)) - 1)
    return (cells & ~_RESOLUTION_MASK) | (np.uint64(resolution) << _RESOLUTION_SHIFT) | below


def n_descendants(codes: Cells64, resolution: int) -> NDArray[np.int64]:
    """Returns the number of cells of a resolution in each cell or part, with or without trips.

    A pentagon has one child that is a pentagon and five that are hexagons. A virtual root counts
    all cells on earth, because only the data decide which base cells are below it.
    """
    cells, part = codes & ~PART_BITS, ((codes & PART_BITS) >> _PART_SHIFT).astype(np.int64)
    hexagon = 7 ** np.maximum(resolution - resolution_of(cells), 0)
    whole = np.where(is_pentagon(cells), 1 + 5 * ((hexagon - 1) // 6), hexagon)
    # The centre child of a pentagon is a pentagon, so the parts with it have fewer cells.
    lacking = np.where(np.isin(part, (1, 3)) & is_pentagon(cells), 6 * (hexagon // 7) - whole, 0)
    below = np.where(part == 0, whole, _PART_CHILDREN[part] * (hexagon // 7) - lacking)
    below = np.where(codes == VIRTUAL_ROOT_CODE, 2 + 120 * 7**resolution, below)
    return np.where(codes == np.uint64(OUTSIDE_CELL), 1, below)


def is_pentagon(cells: Cells64) -> NDArray[np.bool_]:
    """Returns which cells are pentagons: those in the centre of a base cell that is one."""
    unused = (
        np.uint64(1) << (3 * (MAX_RESOLUTION - resolution_of(cells))).astype(np.uint64)
    ) - np.uint64(1)
    base = (cells >> _BASE_CELL_SHIFT & np.uint64(0x7F)).astype(np.int64)
    pentagon: NDArray[np.bool_] = np.isin(base, PENTAGON_BASE_CELLS) & (
        cells & _ALL_DIGITS == unused
    )
    return pentagon


def is_cell(cells: Cells64) -> NDArray[np.bool_]:
    """Returns whether each number is a valid H3 cell; asks ``h3`` once for each distinct number."""
    distinct, at = np.unique(cells, return_inverse=True)
    return np.array([h3_int.is_valid_cell(cell) for cell in distinct.tolist()], dtype=np.bool_)[at]


def h3_hierarchy(tiles: Cells64, *, to_the_top: bool = False) -> Hierarchy:
    """Returns the smallest H3 tree that holds these tiles.

    Distinct cells of one resolution, in increasing order.

    The root is the smallest cell that holds all tiles, or a virtual root above several base cells.
    Every resolution in between is there, also where a cell has a single child. If the last tile is
    `OUTSIDE_CELL`, or with ``to_the_top``, the tree reaches up to a virtual root.
    """
    tiles = np.asarray(tiles, dtype=np.uint64)
    if len(tiles) == 0:
        raise DataError("A hierarchy needs at least one tile.")
    if np.any(tiles[1:] <= tiles[:-1]):
        raise DataError("Tiles must be distinct and in increasing order.")
    if tiles[-1] == np.uint64(OUTSIDE_CELL):
        return with_outside(h3_hierarchy(tiles[:-1], to_the_top=True))
    finest = int(resolution_of(tiles[:1])[0])
    if np.any(resolution_of(tiles) != finest):
        raise DataError("Tiles have several H3 resolutions; all must have the same.")
    first, last = tiles[:1], tiles[-1:]
    shared = [r for r in range(finest + 1) if parent_of(first, r) == parent_of(last, r)]
    root = shared[-1] if shared and not to_the_top else -1
    # By level, coarsest first: the ancestor of each tile, and the first tile of each node.
    ancestors = [np.full(len(tiles), VIRTUAL_ROOT_CODE, np.uint64)] * (root < 0)
    ancestors += [parent_of(tiles, r) for r in range(max(root, 0), finest + 1)]
    heads = [np.flatnonzero(np.append(True, cells[1:] != cells[:-1])) for cells in ancestors]
    # Nodes by first tile, then by level: in depth-first order.
    order = np.argsort(np.concatenate(heads), kind="stable")
    node = np.empty(len(order), dtype=np.int32)
    node[order] = np.arange(len(order), dtype=np.int32)
    by_level = np.split(node, np.cumsum([len(head) for head in heads])[:-1])
    above = [
        nodes[np.searchsorted(head, below, side="right") - 1]
        for nodes, head, below in zip(by_level, heads, heads[1:], strict=False)
    ]
    parent = np.concatenate(([-1], *above))[order]
    code = np.concatenate([cells[head] for cells, head in zip(ancestors, heads, strict=True)])[
        order
    ]
    tree = Hierarchy(parent=parent.astype(np.int32), code=code, base_level=root, kind="h3")
    return replace(tree, geography=H3Geography.from_tree(tree))


def children_in(part: int) -> list[int]:
    """Returns the cells of a part in increasing order, or the cell itself."""
    number = part >> H3_PART_SHIFT & 7
    cell = part ^ number << H3_PART_SHIFT
    if number == 0:
        return [cell]
    finer = h3_int.get_resolution(cell) + 1
    place = 3 * (MAX_RESOLUTION - finer)
    digits = {int(d) for d in H3_PARTS[number][1:]}
    return sorted(c for c in h3_int.cell_to_children(cell, finer) if c >> place & 7 in digits)


#: A mean direction shorter than this has no centre: the points lie all around the globe.
_LEAST_DIRECTION = 1e-3


def _center(cells: list[int]) -> tuple[float, float]:
    """Returns latitude and longitude of the mean direction of cells.

    0, 0 if they lie all around the globe.
    """
    points = [h3_int.cell_to_latlng(cell) for cell in cells]
    if len(points) < 2:
        return points[0] if points else (np.nan, np.nan)
    a, b = np.radians(points).T
    x, y, z = (np.cos(a) * np.cos(b)).mean(), (np.cos(a) * np.sin(b)).mean(), np.sin(a).mean()
    if np.sqrt(x**2 + y**2 + z**2) < _LEAST_DIRECTION:
        return 0.0, 0.0
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))


@dataclass(frozen=True, eq=False)
class H3Geography:
    """Places of H3 cells and parts.

    A part consists of its children, a virtual root of ``base``, `outside` of none.
    """

    code: Cells64
    base: tuple[int, ...] = ()

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> H3Geography:
        """Returns the geography of an H3 tree."""
        return cls(tree.code, tuple(tree.code[tree.parent == 0].tolist()))

    def centers(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of each node's centre, in degrees.

        The mean direction of its cells.
        """
        # Nodes repeat: once per flow.
        used, at = np.unique(self.code[nodes], return_inverse=True)
        points = np.array([_center(self._cells(code)) for code in used.tolist()], dtype=np.float64)
        lat, lon = points.reshape(-1, 2)[at].T
        return lat, lon

    def areas_km2(self, nodes: Ints) -> Floats:
        """Returns the area of each node in square kilometres: the sum over its cells."""
        codes = self.code[nodes].tolist()
        return np.array(
            [sum(h3_int.cell_area(c, "km^2") for c in self._cells(code)) for code in codes],
            np.float64,
        )

    def polygons(self, nodes: Ints) -> NDArray[np.object_]:
        """Returns the outline of each node; split where it crosses the 180th meridian."""
        from flowveil.zoning.outlines import dissolved

        cells = [self._cells(code) for code in self.code[nodes].tolist()]
        finest = np.array([h3_int.get_resolution(made_of[0]) for made_of in cells])
        out = np.empty(len(nodes), dtype=object)
        for resolution in np.unique(finest).tolist():
            at = np.flatnonzero(finest == resolution)
            out[at] = dissolved([cells[i] for i in at.tolist()], resolution, decimals=12)[0]
        return out

    def h3_cells(self, nodes: Ints) -> list[list[str]]:
        """Returns the fewest and coarsest H3 cells that make up each node, in hexadecimal."""
        return [[f"{cell:x}" for cell in self._cells(code)] for code in self.code[nodes].tolist()]

    def _cells(self, code: int) -> list[int]:
        if code == VIRTUAL_ROOT_CODE:
            return list(self.base)
        return [] if code == OUTSIDE_CELL else children_in(code)


@dataclass(frozen=True, eq=False)
class H3Zones:
    """Distinct cells in increasing order as zones, independent of data.

    `size` counts tiles of a resolution.
    """

    cells: Cells64
    tile_resolution: int

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def size(self) -> NDArray[Any]:
        """Tiles in each zone: all there are, seen or not."""
        return n_descendants(self.cells, self.tile_resolution)

    @cached_property
    def level(self) -> Ints:
        """Resolution of each zone."""
        return resolution_of(self.cells).astype(np.int32)

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Cells in hexadecimal."""
        return np.array(
            [format(c, "x") for c in self.cells[zones].tolist()], dtype=np.str_
        ).reshape(len(zones))

    def centers(self, zones: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of the centres."""
        return H3Geography(self.cells).centers(zones)
