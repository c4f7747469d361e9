"""Tilings: H3 cells, or the zones of a user's map, as 64-bit numbers.

A tiling converts columns and points to numbers, knows which numbers are tiles, and builds the tree
over them. Missing and unreadable tiles have the numbers `NO_TILE` and `UNREADABLE_TILE`; the tile
``outside`` has the largest number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Mask
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.hierarchy import OUTSIDE_CELL, Hierarchy
from flowveil.reading import Reading
from flowveil.reading.areas import Area, Bounds
from flowveil.zoning.files import ZoneMap
from flowveil.zoning.geometry import NOWHERE
from flowveil.zoning.h3 import h3_hierarchy, is_cell, parent_of, resolution_of
from flowveil.zoning.outside import with_outside
from flowveil.zoning.points import index_points
from flowveil.zoning.restriction import restricted_tree

#: Numbers of a missing and of an unreadable tile; smaller than any H3 cell.
NO_TILE = 0
UNREADABLE_TILE = 1
_FIRST_OF_MAP = 2
_KILOMETRES_A_DEGREE = 111.0
_FARTHEST_NORTH = 80.0


@dataclass(frozen=True)
class H3Tiling:
    """H3 cells of one resolution; coarser cells of the input keep theirs."""

    resolution: int
    #: Completes the message "a tile that is not ...".
    noun: str = "an H3 cell"
    takes_points: bool = True
    outside: int = OUTSIDE_CELL
    whole_map: None = None

    def tile_numbers(self, column: pa.Array) -> Cells64:
        """Returns a column of the engine's query as numbers."""
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def is_tile(self, numbers: Cells64) -> Mask:
        """Returns which numbers are valid cells."""
        return is_cell(numbers)

    def tiles_at(self, lat: Floats, lon: Floats) -> Cells64:
        """Returns the cell of each point."""
        return index_points(lat, lon, self.resolution)

    def lift(self, numbers: Cells64) -> Cells64:
        """Returns the ancestors of cells that are finer than the resolution."""
        return np.where(
            resolution_of(numbers) > self.resolution, parent_of(numbers, self.resolution), numbers
        )

    def in_area(self, numbers: Cells64, area: Area) -> Mask:
        """Returns which cells have their centres in the area."""
        return area.holds_cells(numbers)

    def hierarchy(self, tiles: Cells64) -> Hierarchy:
        """Returns the smallest H3 tree whose leaves are these distinct cells, in increasing
        order.
        """
        if tiles[0] == np.uint64(self.outside):
            raise DataError(
                "All trips begin, or all end, outside the area. Hint: a larger area (--within)."
            )
        return h3_hierarchy(tiles)


@dataclass(frozen=True, eq=False)
class MapTiling:
    """Zones of a map, numbered in the order of its leaves."""

    zone_map: ZoneMap
    keeps_outside: bool = False
    pads_codes: bool = False
    noun: str = "on the map"

    @cached_property
    def whole_map(self) -> Hierarchy:
        """The tree over all tiles of the map, also those without trips.

        With `outside` if it is kept.
        """
        return (
            with_outside(self.zone_map.hierarchy) if self.keeps_outside else self.zone_map.hierarchy
        )

    @property
    def outside(self) -> int:
        """The number of everything outside the map: one above the last zone."""
        return self.zone_map.hierarchy.n_tiles + _FIRST_OF_MAP

    @property
    def takes_points(self) -> bool:
        """Whether the map has outlines."""
        return self.zone_map.outlines is not None

    def tiles_at(self, lat: Floats, lon: Floats) -> Cells64:
        """Returns the zone whose outline contains each point; only if `takes_points`."""
        zone = self.zone_map.tiles_at(lat, lon).astype(np.int64)
        return np.where(zone == NOWHERE, NO_TILE, zone + _FIRST_OF_MAP).astype(np.uint64)

    def tile_numbers(self, column: pa.Array) -> Cells64:
        """Looks every code up on the map."""
        tiles = self.zone_map.tiles_of(column, padded=self.pads_codes)
        numbers = tiles.astype(np.int64) + _FIRST_OF_MAP
        numbers[numbers < _FIRST_OF_MAP] = UNREADABLE_TILE
        if column.null_count:
            numbers[column.is_null().to_numpy(zero_copy_only=False)] = NO_TILE
        return numbers.astype(np.uint64)

    def is_tile(self, numbers: Cells64) -> Mask:
        """Returns which codes are on the map."""
        return numbers >= _FIRST_OF_MAP

    def lift(self, numbers: Cells64) -> Cells64:
        """Returns the tiles unchanged."""
        return numbers

    def in_area(self, numbers: Cells64, area: Area) -> Mask:
        """Returns which zones have their centres in the area."""
        tree = self.zone_map.hierarchy
        if tree.geography is None:
            raise ParameterError(
                "The map has no coordinates, so its zones cannot be compared with the area."
            )
        return area.holds(
            *tree.geography.centers(tree.leaf_node[numbers.astype(np.int64) - _FIRST_OF_MAP])
        )

    def hierarchy(self, tiles: Cells64) -> Hierarchy:
        """Returns the tree of the map over these tiles."""
        return restricted_tree(self.whole_map, tiles.astype(np.int64) - _FIRST_OF_MAP)


Tiling = H3Tiling | MapTiling


def tiling_of(reading: Reading) -> Tiling:
    """Returns the tiling of a reading."""
    if reading.zones is None:
        return H3Tiling(reading.resolution)
    return MapTiling(
        reading.zones, keeps_outside=reading.outside == "keep", pads_codes=reading.pad_codes
    )


class Inside:
    """Decides which tiles are in an area; caches each tile."""

    def __init__(self, area: Area | None, tiling: Tiling) -> None:
        self._area, self._tiling = area, tiling
        self._bounds = _bounds_of(area, tiling)
        self._known = np.zeros(0, dtype=np.uint64)
        self._inside = np.zeros(0, dtype=np.bool_)

    def near(self, points: tuple[Floats, ...], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows with both ends near the area; tiles of other points cannot be in it."""
        if self._bounds is None:
            return rows
        west, south, east, north = self._bounds
        for lat, lon in (points[:2], points[2:]):
            y, x = lat[rows], lon[rows]
            rows = rows[(y >= south) & (y <= north) & (x >= west) & (x <= east)]
        return rows

    def contains(self, tiles: Cells64) -> Mask:
        """Returns whether each tile is in the area; True for all without an area."""
        if self._area is None:
            return np.ones(len(tiles), dtype=np.bool_)
        new = np.setdiff1d(tiles, self._known)
        if len(new):
            at = np.searchsorted(self._known, new)
            self._inside = np.insert(self._inside, at, self._tiling.in_area(new, self._area))
            self._known = np.insert(self._known, at, new)
        return self._inside[np.searchsorted(self._known, tiles)]


def _bounds_of(area: Area | None, tiling: Tiling) -> Bounds | None:
    """Returns bounds of all points whose tiles may have their centres in the area.

    None for no bounds.

    The centre of an H3 cell is less than two mean edges of its resolution from any of its points.
    Near the poles and the 180th meridian there are no bounds.
    """
    if area is None or area.bounds is None or not isinstance(tiling, H3Tiling):
        return None
    west, south, east, north = area.bounds
    up = 2 * h3_int.average_hexagon_edge_length(tiling.resolution, unit="km") / _KILOMETRES_A_DEGREE
    if max(-south, north) + up > _FARTHEST_NORTH:
        return None
    aside = up / np.cos(np.radians(max(-south, north) + up))
    if west - aside < -180 or east + aside > 180:
        return None
    return west - aside, south - up, east + aside, north + up
