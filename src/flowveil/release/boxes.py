"""Boxes as zones: rectangles between grid lines of longitude and latitude.

The edge of the tightest rectangle around some trips is the coordinate of one trip. So edges are on
the lines of a declared grid, and nothing finer than a square of it enters a method or a release.
Grid lines are whole numbers of 10⁻⁷ degrees, so a box contains a tile here exactly if it does so in
published degrees: west <= longitude < east.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import h3
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, repr_of_sizes
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.h3 import resolution_of
from flowveil.zoning.public_map import FULL_TURN, UNITS_PER_DEGREE, Rectangles

_POLE = 90 * UNITS_PER_DEGREE
_EQUATOR_M = 6_378_137.0
_METRES_PER_DEGREE = np.pi * _EQUATOR_M / 180

#: Dimensions of a flow: longitude and latitude of its origin, then of its destination.
DIMENSIONS = 4


@dataclass(frozen=True)
class Grid:
    """The lines of box edges."""

    lon_units: int  # width and height of a square in 10⁻⁷ degrees
    lat_units: int
    # Whether the map is cut at Greenwich instead of at 180 degrees, because it lies across the
    # latter; western columns then follow the eastern ones. The lines stay the same: others would
    # reveal how far trips spread.
    across: bool = False

    def squares(self, lat: Floats, lon: Floats) -> tuple[Ints, Ints]:
        """Column and row of the square that holds each point."""
        east = np.where(lon >= 180.0, lon - 360.0, lon)
        x = np.floor(east * UNITS_PER_DEGREE / self.lon_units).astype(np.int64)
        y = np.floor(lat * UNITS_PER_DEGREE / self.lat_units).astype(np.int64)
        # The quotient is rounded; the published edges decide.
        x -= east < x * self.lon_units / UNITS_PER_DEGREE
        x += east >= (x + 1) * self.lon_units / UNITS_PER_DEGREE
        y -= lat < y * self.lat_units / UNITS_PER_DEGREE
        y += lat >= (y + 1) * self.lat_units / UNITS_PER_DEGREE
        return self.in_order(x).astype(np.int32), y.astype(np.int32)

    def in_order(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns columns that are counted from Greenwich, negative to the west, in the order of
        the map.
        """
        return np.where(self.across & (x < 0), x + 2 * self.eastern, x)

    @property
    def eastern(self) -> int:
        """Columns between Greenwich and 180 degrees, and as many to the west.

        The last one may be narrower.
        """
        return -(-FULL_TURN // 2 // self.lon_units)

    @property
    def degrees(self) -> tuple[float, float]:
        """Width and height of a square in degrees."""
        return self.lon_units / UNITS_PER_DEGREE, self.lat_units / UNITS_PER_DEGREE


@dataclass(frozen=True, repr=False)
class Boxes:
    """Properties of zones that are boxes."""

    __repr__ = repr_of_sizes

    grid_lon: float  # width and height in degrees of the grid of their edges
    grid_lat: float
    disjoint: bool  # no flow is in two cells
    finer_than_tiles: (
        bool  # the grid is finer than the tiles, so that an edge may reveal in which tile a flow is
    )


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """Positions of the flows in the grid."""

    __repr__ = repr_of_sizes

    grid: Grid
    origin_squares: tuple[Ints, Ints]  # column and row of every tile of each end
    destination_squares: tuple[Ints, Ints]
    point: Ints  # int32, one row for each of the four dimensions and one column for each flow
    # Width of a square in each dimension, in whole centimetres, so that equal lengths are equal
    # numbers.
    step_cm: NDArray[np.int64]
    # A square is clearly smaller than a tile, so that an edge may reveal in which tile a flow is.
    finer_than_tiles: bool

    @classmethod
    def of(cls, flows: Flows, *, grid_m: float | None = None) -> Frame:
        """Lays a grid over the tiles of these flows, ``grid_m`` metres wide.

        By default as wide as the median tile.
        """
        if grid_m is not None and not 1 <= grid_m <= 1e7:
            raise ParameterError(
                f"grid_m must be at least 1 metre and at most 10,000 km; found {grid_m!r}."
            )
        (lat_o, lon_o), (lat_d, lon_d) = _centers(flows.origins), _centers(flows.destinations)
        lat, lon = np.concatenate((lat_o, lat_d)), np.concatenate((lon_o, lon_d))
        tile_m, latitude = _tile_width_and_latitude(flows, lat)
        narrowing = max(float(np.cos(np.radians(latitude))), 0.01)
        width = tile_m if grid_m is None else float(grid_m)
        across = np.ptp(np.where(lon < 0, lon + 360, lon)) < np.ptp(lon)
        grid = Grid(
            lon_units=_round_units(width / (_METRES_PER_DEGREE * narrowing)),
            lat_units=_round_units(width / _METRES_PER_DEGREE),
            across=bool(across),
        )
        squares_o, squares_d = grid.squares(lat_o, lon_o), grid.squares(lat_d, lon_d)
        unit_cm = 100 * _METRES_PER_DEGREE / UNITS_PER_DEGREE
        x_cm = max(1, round(grid.lon_units * unit_cm * narrowing))
        y_cm = max(1, round(grid.lat_units * unit_cm))
        return cls(
            grid=grid,
            origin_squares=squares_o,
            destination_squares=squares_d,
            point=np.stack(
                [axis[flows.origin] for axis in squares_o]
                + [axis[flows.destination] for axis in squares_d]
            ),
            step_cm=np.array([x_cm, y_cm, x_cm, y_cm], dtype=np.int64),
            finer_than_tiles=width < 0.9 * tile_m,
        )


def _centers(tree: Hierarchy) -> tuple[Floats, Floats]:
    if tree.geography is None:
        raise DataError(
            "Boxes need to know where the tiles lie, and this map has no coordinates. Hint: give"
            " zones with outlines or centroids, or choose a method that works on the hierarchy"
            " alone."
        )
    return tree.geography.centers(tree.leaf_node)


def _tile_width_and_latitude(flows: Flows, lat: Floats) -> tuple[float, float]:
    """Returns the side of a square of the area of a tile, in metres, and a latitude of the map.

    The grid is published, so both are those of the whole map. For H3, the area is the mean at that
    resolution, and the latitude the median of the tiles with trips, rounded to 5 degrees;
    docs/threat-model.md says what that reveals.
    """
    tree = flows.origins
    if tree.code.dtype == np.uint64:
        resolution = int(resolution_of(tree.code[tree.leaf_node[:1]])[0])
        area = float(h3.average_hexagon_area(resolution, unit="m^2"))
        return float(np.sqrt(area)), 5.0 * round(float(np.nanmedian(lat)) / 5.0)
    maps = [
        one
        for one in ([flows.whole_map] if flows.whole_map else [tree, flows.destinations])
        if one.geography
    ]
    areas = np.concatenate([one.geography.areas_km2(one.leaf_node) for one in maps])  # type: ignore[union-attr]
    lats = np.concatenate([one.geography.centers(one.leaf_node)[0] for one in maps])  # type: ignore[union-attr]
    return 1000.0 * float(np.sqrt(np.nanmedian(areas))), float(np.nanmedian(lats))


def _round_units(degrees: float) -> int:
    """Degrees in units, to two significant digits."""
    return max(10, round(float(f"{degrees * UNITS_PER_DEGREE:.2g}")))


@dataclass(frozen=True, eq=False, repr=False)
class Hulls:
    """The smallest 4-D box of squares around each group.

    ``low`` and ``high`` belong to it, one row a dimension.
    """

    __repr__ = repr_of_sizes

    low: Ints
    high: Ints

    @classmethod
    def around(cls, point: Ints, group: Ints) -> Hulls:
        """The hulls of groups that are numbered from 0 without gaps."""
        order = np.argsort(group, kind="stable")
        first = np.flatnonzero(np.diff(group[order], prepend=-1))
        return cls.of_slices(point, order, first)

    @classmethod
    def of_slices(cls, point: Ints, order: NDArray[Any], first: NDArray[np.int64]) -> Hulls:
        """The hulls of consecutive slices of an order.

        Each begins at one of ``first`` and none is empty.
        """
        low = [np.minimum.reduceat(axis[order], first) for axis in point]
        high = [np.maximum.reduceat(axis[order], first) for axis in point]
        return cls(low=np.stack(low), high=np.stack(high))


@dataclass(frozen=True, eq=False, repr=False)
class TileIndex:
    """Counts tiles in rectangles of squares: a wavelet matrix, so a query costs a look-up for each
    bit of n.
    """

    __repr__ = repr_of_sizes

    x: Ints  # columns of the tiles, sorted
    y: Ints  # rows of the tiles, sorted
    # For each bit of the row's rank, from the highest, how many of the first i tiles have it unset.
    zeros: tuple[Ints, ...]

    @classmethod
    def of(cls, x: Ints, y: Ints) -> TileIndex:
        """Index tiles by their squares."""
        by_y = np.argsort(y, kind="stable")
        rank = np.empty(len(y), dtype=np.int64)
        rank[by_y] = np.arange(len(y))
        by_x = np.argsort(x, kind="stable")
        value, zeros = rank[by_x], []
        for bit in reversed(range(len(x).bit_length())):
            unset = value >> bit & 1 == 0
            zeros.append(np.concatenate(([0], np.cumsum(unset))).astype(np.int32))
            value = np.concatenate((value[unset], value[~unset]))
        return cls(x=x[by_x], y=y[by_y], zeros=tuple(zeros))

    def count(self, x0: Ints, y0: Ints, x1: Ints, y1: Ints) -> Ints:
        """Tiles with x0 <= x <= x1 and y0 <= y <= y1, for each rectangle."""
        start = np.searchsorted(self.x, x0, side="left").astype(np.int32)
        stop = np.searchsorted(self.x, x1, side="right").astype(np.int32)
        above = np.searchsorted(self.y, y1, side="right").astype(np.int32)
        below = np.searchsorted(self.y, y0, side="left").astype(np.int32)
        return self._below(start, stop, above) - self._below(start, stop, below)

    def _below(self, start: Ints, stop: Ints, rank: Ints) -> Ints:
        """How many of the tiles start to stop have a lower rank."""
        count = np.zeros(len(rank), dtype=np.int32)
        for level, zeros in enumerate(self.zeros):
            one = rank >> (len(self.zeros) - 1 - level) & 1 == 1
            from_zero, to_zero = zeros[start], zeros[stop]
            count += np.where(one, to_zero - from_zero, 0)
            start = np.where(one, zeros[-1] + start - from_zero, from_zero)
            stop = np.where(one, zeros[-1] + stop - to_zero, to_zero)
        return count


@dataclass(frozen=True, eq=False, repr=False)
class BoxZones:
    """Zones that are rectangles of grid squares; distinct, in the order of their bounds."""

    __repr__ = repr_of_sizes

    grid: Grid
    squares: tuple[Ints, Ints]  # column and row of every tile of this end
    x0: Ints  # first and last column and row; both belong to the box
    y0: Ints
    x1: Ints
    y1: Ints

    @classmethod
    def of(
        cls, grid: Grid, squares: tuple[Ints, Ints], x0: Ints, y0: Ints, x1: Ints, y1: Ints
    ) -> tuple[BoxZones, Ints]:
        """The distinct boxes among these, and the number of each."""
        order = np.lexsort((y1, x1, y0, x0))
        rows = np.stack((x0, y0, x1, y1))[:, order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.cumsum(first, dtype=np.int32) - np.int32(1)
        return cls(grid, squares, *rows[:, first]), number

    def __len__(self) -> int:
        return len(self.x0)

    @cached_property
    def size(self) -> Ints:
        """Tiles of this end with their centre in each box."""
        return TileIndex.of(*self.squares).count(self.x0, self.y0, self.x1, self.y1)

    @cached_property
    def level(self) -> Ints:
        """0: boxes are in no hierarchy."""
        return np.zeros(len(self), dtype=np.int32)

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """``box_west_south_east_north`` in degrees.

        West is above east where the box crosses 180 degrees.
        """
        return self._rectangles(zones).codes()

    def centers(self, zones: Ints) -> tuple[Floats, Floats]:
        """Latitude and longitude of the middle of each box."""
        return self._rectangles(zones).centers()

    def _rectangles(self, zones: Ints) -> Rectangles:
        """Returns the bounds as published."""
        turn, half = 2 * self.grid.eastern, FULL_TURN // 2
        x0, x1 = (x[zones].astype(np.int64) for x in (self.x0, self.x1))
        if self.grid.across:
            x0, x1 = (np.where(x >= self.grid.eastern, x - turn, x) for x in (x0, x1))
        west = np.maximum(x0 * self.grid.lon_units, -half)
        east = np.minimum((x1 + 1) * self.grid.lon_units, half)
        south = self.y0[zones].astype(np.int64) * self.grid.lat_units
        north = (self.y1[zones].astype(np.int64) + 1) * self.grid.lat_units
        return Rectangles(west, np.maximum(south, -_POLE), east, np.minimum(north, _POLE))
