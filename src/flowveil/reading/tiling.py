"""What the tiles are: H3 cells, or the zones of a user's own map.

The engine groups trips by 64-bit numbers, whatever they mean. A tiling says how a column becomes such numbers, which of
them are tiles, and which tree stands over those that were seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.hierarchy import OUTSIDE_CELL, Hierarchy
from flowveil.reading import Reading
from flowveil.reading.areas import Area, Bounds
from flowveil.zoning.cells import index_points, is_cell
from flowveil.zoning.files import ZoneMap, restricted_tree
from flowveil.zoning.h3 import MAX_RESOLUTION, Cells64, h3_hierarchy, parent_of, resolution_of
from flowveil.zoning.locating import NOWHERE
from flowveil.zoning.outside import with_outside

Mask = NDArray[np.bool_]

#: Stand-ins for a tile that is missing and for one that cannot be a tile; no H3 cell is that small.
NO_TILE = 0
UNREADABLE_TILE = 1
_FIRST_OF_MAP = 2
_KILOMETRES_A_DEGREE = 111.0
_FARTHEST_NORTH = 80.0


class Tiling(Protocol):
    """How columns become tiles."""

    @property
    def noun(self) -> str:
        """What a tile is, to complete the message "a tile that is not ..."."""
        ...

    @property
    def takes_points(self) -> bool:
        """Whether points can be turned into tiles."""
        ...

    @property
    def outside(self) -> int:
        """The number of the tile that stands for everything outside a study area: larger than all others."""
        ...

    def tile_numbers(self, column: pa.Array) -> Cells64:
        """A column of the engine's query as numbers; `NO_TILE` and `UNREADABLE_TILE` where there is no tile."""
        ...

    def is_tile(self, numbers: Cells64) -> Mask:
        """Which numbers are tiles."""
        ...

    def tiles_at(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> Cells64:
        """The tile of each point on the earth; `NO_TILE` where none holds it. Only where points are taken."""
        ...

    def lift(self, numbers: Cells64) -> Cells64:
        """The tiles to count by, where those given are finer."""
        ...

    def in_area(self, numbers: Cells64, area: Area) -> Mask:
        """Which tiles have their centres in an area."""
        ...

    def resolutions(self, numbers: Cells64) -> NDArray[np.int64]:
        """How many tiles there are of each H3 resolution; none for a map."""
        ...

    def hierarchy(self, tiles: Cells64) -> Hierarchy:
        """The tree over distinct tiles in increasing order; they become its leaves 0, 1, ..."""
        ...

    @property
    def whole_map(self) -> Hierarchy | None:
        """The tree over all tiles there are, seen or not; None where they cannot be listed."""
        ...


@dataclass(frozen=True)
class H3Tiling:
    """Tiles are H3 cells of one resolution; given cells may be coarser, and stay so."""

    resolution: int
    noun: str = "an H3 cell"
    takes_points: bool = True
    outside: int = OUTSIDE_CELL

    def tile_numbers(self, column: pa.Array) -> Cells64:
        """The query made them numbers already."""
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def is_tile(self, numbers: Cells64) -> Mask:
        """Valid cells."""
        return is_cell(numbers)

    def tiles_at(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> Cells64:
        """The cell of each point: H3 covers the earth."""
        return index_points(lat, lon, self.resolution)

    def lift(self, numbers: Cells64) -> Cells64:
        """Cells finer than the resolution become their ancestors."""
        return np.where(resolution_of(numbers) > self.resolution, parent_of(numbers, self.resolution), numbers)

    def in_area(self, numbers: Cells64, area: Area) -> Mask:
        """By the cells themselves."""
        return area.holds_cells(numbers)

    def resolutions(self, numbers: Cells64) -> NDArray[np.int64]:
        """Counted as given, before anything is lifted."""
        return np.bincount(resolution_of(numbers), minlength=MAX_RESOLUTION + 1)

    def hierarchy(self, tiles: Cells64) -> Hierarchy:
        """The smallest H3 tree that holds the cells."""
        if tiles[0] == np.uint64(self.outside):
            raise DataError("All trips begin, or all end, outside the area. Hint: a larger area (--within).")
        return h3_hierarchy(tiles)

    @property
    def whole_map(self) -> None:
        """H3 covers the earth."""
        return None


@dataclass(frozen=True, eq=False)
class MapTiling:
    """Tiles are the zones of a map, numbered in the order of its leaves."""

    zone_map: ZoneMap
    noun: str = "on the map"
    keeps_outside: bool = False

    @cached_property
    def _tree(self) -> Hierarchy:
        """The map, with a tile for everything outside the area where that is kept."""
        return with_outside(self.zone_map.hierarchy) if self.keeps_outside else self.zone_map.hierarchy

    @property
    def outside(self) -> int:
        """Behind the last zone of the map."""
        return self.zone_map.hierarchy.n_tiles + _FIRST_OF_MAP

    @property
    def takes_points(self) -> bool:
        """Where the map has outlines, points can be found in them."""
        return self.zone_map.locator is not None

    def tiles_at(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> Cells64:
        """The zone whose outline holds each point."""
        if self.zone_map.locator is None:
            raise ParameterError("The map has no outlines, so points cannot be found on it.")
        zone = self.zone_map.locator.zones_of(lat, lon).astype(np.int64)
        return np.where(zone == NOWHERE, NO_TILE, zone + _FIRST_OF_MAP).astype(np.uint64)

    def tile_numbers(self, column: pa.Array) -> Cells64:
        """Look every code up on the map."""
        numbers = self.zone_map.tiles_of(column).astype(np.int64) + _FIRST_OF_MAP
        numbers[numbers < _FIRST_OF_MAP] = UNREADABLE_TILE
        if column.null_count:
            numbers[column.is_null().to_numpy(zero_copy_only=False)] = NO_TILE
        return numbers.astype(np.uint64)

    def is_tile(self, numbers: Cells64) -> Mask:
        """Everything that was found."""
        return numbers >= _FIRST_OF_MAP

    def lift(self, numbers: Cells64) -> Cells64:
        """Tiles of a map are what they are."""
        return numbers

    def in_area(self, numbers: Cells64, area: Area) -> Mask:
        """By the centres of the zones on the map."""
        tree = self.zone_map.hierarchy
        if tree.geography is None:
            raise ParameterError("The map has no places, so none of its zones can be said to lie in the area.")
        return area.holds(*tree.geography.centers(tree.leaf_node[numbers.astype(np.int64) - _FIRST_OF_MAP]))

    def resolutions(self, numbers: Cells64) -> NDArray[np.int64]:  # noqa: ARG002
        """A map has none."""
        return np.zeros(MAX_RESOLUTION + 1, dtype=np.int64)

    def hierarchy(self, tiles: Cells64) -> Hierarchy:
        """The map's own tree over the tiles that were seen."""
        return restricted_tree(self._tree, tiles.astype(np.int64) - _FIRST_OF_MAP)[0]

    @property
    def whole_map(self) -> Hierarchy:
        """The map as it was given, with `outside` where that is kept."""
        return self._tree


def tiling_of(reading: Reading) -> Tiling:
    """What the tiles are, as a reading says."""
    if reading.zones is None:
        return H3Tiling(reading.resolution)
    return MapTiling(reading.zones, keeps_outside=reading.outside == "keep")


class Inside:
    """Which tiles lie in an area; each tile is asked about once."""

    def __init__(self, area: Area | None, tiling: Tiling) -> None:
        self._area, self._tiling = area, tiling
        self._bounds = _bounds_of(area, tiling)
        self._known = np.zeros(0, dtype=np.uint64)
        self._inside = np.zeros(0, dtype=np.bool_)

    def near(self, points: tuple[NDArray[np.float64], ...], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows with both ends near the area: tiles of the others cannot lie in it, and need not be found.

        Args:
            points: latitude and longitude of the origin, then of the destination.
            rows: which of them are asked about.
        """
        if self._bounds is None:
            return rows
        west, south, east, north = self._bounds
        for lat, lon in (points[:2], points[2:]):
            y, x = lat[rows], lon[rows]
            rows = rows[(y >= south) & (y <= north) & (x >= west) & (x <= east)]
        return rows

    def of(self, tiles: Cells64) -> Mask:
        """Whether each tile lies in the area; all do where there is none."""
        if self._area is None:
            return np.ones(len(tiles), dtype=np.bool_)
        new = np.setdiff1d(tiles, self._known)
        if len(new):
            known = np.concatenate((self._known, new))
            inside = np.concatenate((self._inside, self._tiling.in_area(new, self._area)))
            order = np.argsort(known)
            self._known, self._inside = known[order], inside[order]
        return self._inside[np.searchsorted(self._known, tiles)]


def _bounds_of(area: Area | None, tiling: Tiling) -> Bounds | None:
    """Bounds within which a point may be in a tile whose centre is in the area; None where all may be.

    The centre of an H3 cell is less than two mean edges of its resolution from any of its points. Towards the poles and
    the 180th meridian, where degrees mean little, nothing is ruled out.
    """
    bounds = area.bounds if area is not None and isinstance(tiling, H3Tiling) else None
    if bounds is None or not isinstance(tiling, H3Tiling):
        return None
    west, south, east, north = bounds
    up = 2 * h3_int.average_hexagon_edge_length(tiling.resolution, unit="km") / _KILOMETRES_A_DEGREE
    if max(-south, north) + up > _FARTHEST_NORTH:
        return None
    aside = up / np.cos(np.radians(max(-south, north) + up))
    if west - aside < -180 or east + aside > 180:
        return None
    return west - aside, south - up, east + aside, north + up
