"""The H3 hierarchy, built with bit operations on the 64-bit cells.

A cell holds its base cell and one base-7 digit for each resolution, most significant first; digits below the resolution
are 7. So the integer order of the cells of one resolution is depth-first order, and a parent is a mask: the whole tree
is built in a few passes over whole arrays, one for each resolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import OUTSIDE_CELL, Floats, Hierarchy, Ints
from flowveil.zoning.outside import with_outside

MAX_RESOLUTION = 15
_RESOLUTION_SHIFT = np.uint64(52)
_RESOLUTION_MASK = np.uint64(0xF) << _RESOLUTION_SHIFT
_BASE_CELL_SHIFT = np.uint64(45)
_ALL_DIGITS = (np.uint64(1) << _BASE_CELL_SHIFT) - np.uint64(1)
PENTAGON_BASE_CELLS = np.array(sorted({h3_int.get_base_cell_number(c) for c in h3_int.get_pentagons(0)}))
#: Code of the root above several base cells: no cell has it.
VIRTUAL_ROOT_CODE = 0

_N_BASE_CELLS = 122
_LOW_BITS = np.uint64(0o111111111111111)
#: For each resolution, the bits of the digits below it.
_UNUSED_DIGITS = np.array([(1 << 3 * (MAX_RESOLUTION - r)) - 1 for r in range(16)], dtype=np.uint64)

Cells64 = NDArray[np.uint64]


def resolution_of(cells: Cells64) -> NDArray[np.int64]:
    """Returns the resolution of each cell."""
    return ((cells & _RESOLUTION_MASK) >> _RESOLUTION_SHIFT).astype(np.int64)


def parent_of(cells: Cells64, resolution: int) -> Cells64:
    """Returns the ancestor of each cell at a resolution that is not finer than its own."""
    below = np.uint64((1 << 3 * (MAX_RESOLUTION - resolution)) - 1)
    return (cells & ~_RESOLUTION_MASK) | (np.uint64(resolution) << _RESOLUTION_SHIFT) | below


def n_descendants(cells: Cells64, resolution: int) -> NDArray[np.int64]:
    """How many cells of a resolution there are in each cell, seen or not; in a virtual root, all on earth.

    A pentagon has one child that is a pentagon and five that are hexagons. Which base cells stand below a virtual root
    is known from the data alone, so it counts them all.
    """
    own = resolution_of(cells)
    hexagon = 7 ** np.maximum(resolution - own, 0)
    pentagon = 1 + 5 * ((hexagon - 1) // 6)
    on_earth = 2 + 120 * 7**resolution
    below = np.where(cells == VIRTUAL_ROOT_CODE, on_earth, np.where(is_pentagon(cells), pentagon, hexagon))
    return np.where(cells == np.uint64(OUTSIDE_CELL), 1, below)


def is_pentagon(cells: Cells64) -> NDArray[np.bool_]:
    """Returns which cells are pentagons: those in the centre of a base cell that is one."""
    unused = (np.uint64(1) << (3 * (MAX_RESOLUTION - resolution_of(cells))).astype(np.uint64)) - np.uint64(1)
    base = (cells >> _BASE_CELL_SHIFT & np.uint64(0x7F)).astype(np.int64)
    pentagon: NDArray[np.bool_] = np.isin(base, PENTAGON_BASE_CELLS) & (cells & _ALL_DIGITS == unused)
    return pentagon


def is_cell(cells: Cells64) -> NDArray[np.bool_]:
    """Returns whether each number is a valid H3 cell; bit operations, equal to ``h3.is_valid_cell``.

    A cell has mode 1 and no reserved bits, a base cell below 122, digits 0 to 6 down to its resolution and 7 below.
    Below a pentagon, the first digit other than 0 must not be 1.
    """
    unused = _UNUSED_DIGITS[resolution_of(cells)]
    digits = cells & _ALL_DIGITS
    used = digits & ~unused
    sevens = used & (used >> np.uint64(1)) & (used >> np.uint64(2)) & _LOW_BITS
    base = ((cells >> np.uint64(45)) & np.uint64(0x7F)).astype(np.int64)
    mode_and_reserved = (cells >> np.uint64(56)).astype(np.int64)
    valid: NDArray[np.bool_] = (
        (mode_and_reserved == 0b00001000) & (base < _N_BASE_CELLS) & ((digits & unused) == unused) & (sevens == 0)
    )
    suspects = np.flatnonzero(valid & np.isin(base, PENTAGON_BASE_CELLS))
    if len(suspects):
        # The first digit other than 0 is 1 if the highest set bit is the lowest bit of that digit.
        _, exponent = np.frexp(used[suspects].astype(np.float64))
        valid[suspects[(exponent > 0) & ((exponent - 1) % 3 == 0)]] = False
    return valid


def h3_hierarchy(tiles: Cells64, *, to_the_top: bool = False) -> Hierarchy:
    """Returns the smallest H3 tree that holds these tiles.

    Args:
        tiles: distinct valid cells of one resolution, in increasing order; they become tiles 0, 1, ... The last may be
            `OUTSIDE_CELL`: the tree then reaches to the top.
        to_the_top: put everything above them into the tree, up to a virtual root, also where it has a single child.

    Returns:
        A hierarchy whose root is the smallest cell that holds all tiles, or a virtual root above several base cells.
        Every resolution in between is there, also where a cell has a single child.
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
    # The coarsest level at which a new node opens at each tile; tile 0 opens one at every level.
    opens = np.full(len(tiles), finest, dtype=np.int64)
    ancestor = {r: parent_of(tiles, r) for r in range(max(root, 0), finest + 1)}
    for r in range(finest - 1, max(root, -1), -1):
        opens[1:][ancestor[r][1:] != ancestor[r][:-1]] = r
    opens[0] = root
    count = finest - opens + 1
    first_node = np.cumsum(count) - count
    n_nodes = int(count.sum())
    parent = np.arange(-1, n_nodes - 1, dtype=np.int64)
    code = np.zeros(n_nodes, dtype=np.uint64)
    open_node = np.zeros(len(tiles), dtype=np.int64)
    for r in range(root, finest + 1):
        at = np.flatnonzero(opens <= r)
        node = first_node[at] + (r - opens[at])
        code[node] = ancestor[r][at] if r >= 0 else VIRTUAL_ROOT_CODE
        heads = opens[at] == r
        parent[node[heads]] = open_node[at[heads]]
        # From here on, `open_node` is the node of this level that holds each tile.
        open_node = np.repeat(node, np.diff(np.append(at, len(tiles))))
    parent[0] = -1
    tree = Hierarchy(parent=parent.astype(np.int32), code=code, base_level=root, kind="h3")
    object.__setattr__(tree, "geography", H3Geography(code=tree.code, parent=tree.parent))
    return tree


def cells_of_nodes(code: Cells64, parent: Ints, nodes: Ints) -> list[list[str]]:
    """Returns each node's own cell in hexadecimal; of a virtual root, the base cells below it."""
    base = [f"{c:x}" for c in code[parent == 0].tolist()]
    return [[f"{c:x}"] if c else base for c in code[nodes].tolist()]


#: A mean direction shorter than this has no centre: the points lie all around the globe.
_LEAST_DIRECTION = 1e-3


def mean_center(lat: Floats, lon: Floats) -> tuple[float, float]:
    """Returns latitude and longitude of the mean direction of points; 0, 0 where they lie all around the globe."""
    a, b = np.radians(lat), np.radians(lon)
    x, y, z = (np.cos(a) * np.cos(b)).mean(), (np.cos(a) * np.sin(b)).mean(), np.sin(a).mean()
    if np.sqrt(x**2 + y**2 + z**2) < _LEAST_DIRECTION:
        return 0.0, 0.0
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))


@dataclass(frozen=True, eq=False)
class H3Geography:
    """Where H3 nodes lie. A virtual root is the union of the base cells below it."""

    code: Cells64
    parent: Ints

    def centers(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of each node's centre, in degrees."""
        return self._each(nodes, _centers_of_cells, self._center_of_root)

    def areas_km2(self, nodes: Ints) -> Floats:
        """Returns the area of each node in square kilometres."""
        cells = self.code[nodes].tolist()
        out = [h3_int.cell_area(c, "km^2") if c else self.areas_km2(self._base_cells).sum() for c in cells]
        return np.array(out, dtype=np.float64)

    def polygons(self, nodes: Ints) -> NDArray[np.object_]:
        """Returns the outline of each node; split where it crosses the 180th meridian."""
        out = np.empty(len(nodes), dtype=object)
        for i, cell in enumerate(self.code[nodes].tolist()):
            out[i] = _outline(cell) if cell else shapely.union_all(self.polygons(self._base_cells))
        return out

    def h3_cells(self, nodes: Ints) -> list[list[str]]:
        """Returns the H3 cells that each node consists of: itself, or the base cells below a virtual root."""
        return cells_of_nodes(self.code, self.parent, nodes)

    @property
    def _base_cells(self) -> Ints:
        return np.flatnonzero(self.parent == 0).astype(np.int32)

    def _center_of_root(self) -> tuple[float, float]:
        return mean_center(*self.centers(self._base_cells))

    def _each(self, nodes: Ints, of_cells: Any, of_root: Any) -> tuple[Floats, Floats]:
        cells = self.code[nodes]
        lat, lon = np.empty(len(cells)), np.empty(len(cells))
        real = cells != VIRTUAL_ROOT_CODE
        # Nodes repeat: once per flow.
        used, at = np.unique(cells[real], return_inverse=True)
        found = of_cells(used)
        lat[real], lon[real] = found[0][at], found[1][at]
        if not real.all():
            lat[~real], lon[~real] = of_root()
        return lat, lon


@dataclass(frozen=True, eq=False)
class H3Zones:
    """Cells as zones, independent of data.

    Attributes:
        cells: distinct cells in increasing order.
        tile_resolution: resolution of the tiles that `size` counts.
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
        return np.array([format(c, "x") for c in self.cells[zones].tolist()], dtype=np.str_).reshape(len(zones))

    def centers(self, zones: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of the centres."""
        return self._geography.centers(zones)

    @cached_property
    def _geography(self) -> H3Geography:
        return H3Geography(code=self.cells, parent=np.full(len(self.cells), -1, dtype=np.int32))


def _centers_of_cells(cells: Cells64) -> tuple[Floats, Floats]:
    pairs = np.array([h3_int.cell_to_latlng(c) for c in cells.tolist()], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _outline(cell: int) -> Any:
    ring = np.array(h3_int.cell_to_boundary(cell), dtype=np.float64)[:, ::-1]
    resolution = h3_int.get_resolution(cell)
    for pole in (90.0, -90.0):
        if h3_int.latlng_to_cell(pole, 0.0, resolution) == cell:
            return _cap(ring, pole)
    if np.ptp(ring[:, 0]) <= 180:
        return shapely.polygons(ring)
    east = ring.copy()
    east[east[:, 0] < 0, 0] += 360
    whole = shapely.make_valid(shapely.polygons(east))
    parts = [
        shapely.intersection(whole, shapely.box(0, -90, 180, 90)),
        shapely.transform(shapely.intersection(whole, shapely.box(180, -90, 540, 90)), lambda xy: xy - [360.0, 0.0]),
    ]
    return shapely.union_all(parts)


def _cap(ring: NDArray[np.float64], pole: float) -> Any:
    """Returns the outline of a cell around a pole: from one end of the map to the other, closed along the pole."""
    around = ring[np.argsort(ring[:, 0])]
    first, last = around[0], around[-1]
    gap = first[0] + 360 - last[0]
    at_edge = last[1] + (first[1] - last[1]) * (180 - last[0]) / gap if gap else first[1]
    edge = [(180.0, at_edge), (180.0, pole), (-180.0, pole), (-180.0, at_edge)]
    return shapely.make_valid(shapely.polygons(np.concatenate((around, edge))))
