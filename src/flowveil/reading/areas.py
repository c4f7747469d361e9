"""Study areas: sets of whole tiles.

A tile is in the area if its centre is. Two areas with nearly the same border differ in whole tiles
or not at all, so a border drawn through a tile cannot single out the trips on one side.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely

from flowveil.core.arrays import Cells64, Floats, Mask
from flowveil.core.errors import DataError, ParameterError
from flowveil.zoning.h3 import H3Geography, is_cell, parent_of, resolution_of
from flowveil.zoning.points import index_points

Bounds = tuple[float, float, float, float]

#: What a report records for an area from a file: neither its name nor its outline.
AREA = "AREA"
_ALLOWED = (
    "Allowed: west,south,east,north in degrees, H3 cells separated by commas, or a file with"
    " polygons (GeoJSON, GeoPackage, shapefile, GeoParquet)."
)
#: How the stored text of polygons begins.
_WKB = "wkb:"


@dataclass(frozen=True)
class Area:
    """A set of points: a box, H3 cells with all their descendants, or polygons in degrees.

    Exactly one is given.

    A box is west, south, east, north; it crosses the 180th meridian if west is larger than east.
    Cells are ascending.
    """

    box: Bounds | None = None
    cells: tuple[int, ...] = ()
    outline: Any = None

    def __post_init__(self) -> None:
        if self.box is None:
            return
        west, south, east, north = self.box
        if not (-90 <= south < north <= 90):
            raise ParameterError(
                "The area's south and north must be degrees from -90 to 90, south the smaller. "
                f"Hint: the order is west,south,east,north. {_ALLOWED}"
            )
        if not (abs(west) <= 180 and abs(east) <= 180 and west != east):
            raise ParameterError(
                f"The area's west and east must be different degrees from -180 to 180. {_ALLOWED}"
            )

    @property
    def text(self) -> str:
        """What a report records; except for `AREA`, the text defines the area."""
        if self.box is not None:
            return ",".join(f"{edge:.15g}" for edge in self.box)
        return ",".join(format(cell, "x") for cell in self.cells) if self.cells else AREA

    @property
    def stored(self) -> str:
        """Text from which `read_stored_area` makes the same area again; private."""
        if self.box is not None:
            return ",".join(repr(float(edge)) for edge in self.box)
        return self.text if self.cells else f"{_WKB}{shapely.to_wkb(self.outline, hex=True)}"

    @property
    def bounds(self) -> Bounds | None:
        """West, south, east and north; None for cells, or across the 180th meridian."""
        if self.cells or (self.box is not None and self.box[0] > self.box[2]):
            return None
        west, south, east, north = self.box or shapely.bounds(self.outline).tolist()
        return west, south, east, north

    def holds(self, lat: Floats, lon: Floats) -> Mask:
        """Returns which points are in the area or on its border."""
        if self.box is not None:
            west, south, east, north = self.box
            across = (lon >= west) & (lon <= east) if west < east else (lon >= west) | (lon <= east)
            return (lat >= south) & (lat <= north) & across
        if self.cells:
            cells = np.array(self.cells, np.uint64)
            resolutions = np.unique(resolution_of(cells)).tolist()
            inside: Mask = np.any(
                [np.isin(index_points(lat, lon, r), cells) for r in resolutions], axis=0
            )
            return inside
        shapely.prepare(self.outline)
        return np.asarray(shapely.intersects_xy(self.outline, lon, lat), dtype=np.bool_)

    def holds_cells(self, cells: Cells64) -> Mask:
        """Returns which H3 cells have centres in the area or descend from its cells.

        ParameterError if one is finer.
        """
        if not self.cells:
            return self.holds(*H3Geography(cells).centers(np.arange(len(cells), dtype=np.int32)))
        inside = np.zeros(len(cells), dtype=np.bool_)
        area = np.array(self.cells, np.uint64)
        for resolution in np.unique(resolution_of(area)).tolist():
            if len(cells) and resolution > int(resolution_of(cells).min()):
                raise ParameterError(
                    f"The area has H3 cells of resolution {resolution}, finer than the tiles. Hint:"
                    " use coarser cells, or a finer resolution (--resolution)."
                )
            inside |= np.isin(parent_of(cells, resolution), area)
        return inside


def parse_area(given: Any) -> Area | None:
    """Makes an area from four degrees, H3 cells, a file, or a table with polygons."""
    if given is None or isinstance(given, Area):
        return given
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        numbers = _numbers(parts)
        if numbers is not None and len(parts) > 1:
            if len(numbers) != 4:
                raise ParameterError(
                    f"The area has {len(numbers)} numbers; four are needed. {_ALLOWED}"
                )
            return Area(numbers)
        cells = _cells(parts)
        if cells is not None:
            return Area(cells=cells)
        if given.strip() == AREA and not Path(given).exists():
            raise ParameterError(
                "The area came from a file, which a report does not name. Hint: give it (--within)."
            )
        if not Path(given).expanduser().is_file():
            raise ParameterError(
                f"The area is neither degrees, nor H3 cells, nor a file. {_ALLOWED}"
            )
    elif isinstance(given, tuple | list) and len(given) == 4:
        numbers = _numbers([str(edge) for edge in given])
        if numbers is not None:
            return Area(numbers)  # type: ignore[arg-type]
    if (
        not isinstance(given, str | os.PathLike)
        and not hasattr(given, "geometry")
        and not hasattr(given, "schema")
    ):
        raise ParameterError(f"A {type(given).__name__} is not an area. {_ALLOWED}")
    from flowveil.zoning.files import read_outlines

    return Area(outline=shapely.union_all(read_outlines(given)))


def cells_within(area: Area, resolution: int, *, most: int) -> Cells64:
    """Returns the H3 cells of a resolution whose centres lie in the area, ascending.

    Raises ParameterError if there are clearly more than ``most``.
    """
    if area.cells:
        n = sum(
            h3_int.cell_to_children_size(cell, resolution) for cell in _coarse(area, resolution)
        )
        _refuse_many(n, resolution, most)
        lists = [h3_int.cell_to_children(cell, resolution) for cell in _coarse(area, resolution)]
    else:
        parts = _boxes(area.box) if area.box is not None else shapely.get_parts(area.outline)
        parts = [one for one in parts if shapely.area(one) > 0]
        # A degree is at most 111.2 km; cells differ in size by less than a factor of two.
        km2 = sum(_square_kilometres(one) for one in parts)
        _refuse_many(km2 / h3_int.average_hexagon_area(resolution) / 2, resolution, most)
        lists = [h3_int.h3shape_to_cells(h3_int.geo_to_h3shape(one), resolution) for one in parts]
    cells = np.unique(np.array([cell for one in lists for cell in one], dtype=np.uint64))
    return cells[area.holds_cells(cells)]


def _coarse(area: Area, resolution: int) -> list[int]:
    """Returns the cells of an area; raises ParameterError if one is finer than a resolution."""
    if area.cells and int(resolution_of(np.array(area.cells, np.uint64)).max()) > resolution:
        raise ParameterError(
            f"The area has H3 cells finer than resolution {resolution}. Hint: coarser cells, or"
            " finer districts."
        )
    return list(area.cells)


def _boxes(box: Bounds) -> list[Any]:
    """Returns a box as polygons between -180 and 180 degrees, none wider than 90."""
    west, south, east, north = box
    east += 360 * (east < west)
    edges = np.linspace(west, east, int((east - west) // 90) + 2)
    shifted = [(a - 360, b - 360) if a >= 180 else (a, b) for a, b in itertools.pairwise(edges)]
    parts = []
    for a, b in shifted:
        spans = [(a, b)] if b <= 180 else [(a, 180.0), (-180.0, b - 360)]
        parts += [shapely.box(low, south, high, north) for low, high in spans]
    return parts


def _square_kilometres(polygon: Any) -> float:
    """Returns an upper bound of the area of a polygon in degrees."""
    _, south, _, north = shapely.bounds(polygon)
    nearest = 0.0 if south <= 0 <= north else min(abs(south), abs(north))
    return float(shapely.area(polygon) * 111.2**2 * np.cos(np.radians(nearest)))


def _refuse_many(n: float, resolution: int, most: int) -> None:
    """Raises ParameterError if an area has too many cells."""
    if n > most:
        raise ParameterError(
            f"The area has about {n:,.0f} H3 cells of resolution {resolution}; at most {most:,} are"
            " allowed. Hint: a coarser level, or a smaller area."
        )


def read_stored_area(text: str) -> Area | None:
    """Returns the area whose `stored` text this is; None if it is no such text."""
    try:
        return (
            Area(outline=shapely.from_wkb(text.removeprefix(_WKB)))
            if text.startswith(_WKB)
            else parse_area(text)
        )
    except (ParameterError, DataError, shapely.GEOSException):
        return None


def _numbers(parts: list[str]) -> tuple[float, ...] | None:
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _cells(parts: list[str]) -> tuple[int, ...] | None:
    try:
        cells = np.array([int(part, 16) for part in parts], dtype=np.uint64)
    except (ValueError, OverflowError):
        return None
    return tuple(np.sort(cells).tolist()) if is_cell(cells).all() else None
