"""Study areas: sets of whole tiles.

A tile is in the area if its centre is. Two areas with nearly the same border differ in whole tiles or not at all, so a
border drawn through a tile cannot single out the trips on one side.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.hierarchy import Floats
from flowveil.zoning.h3 import Cells64, is_cell, parent_of, resolution_of
from flowveil.zoning.points import index_points

Mask = NDArray[np.bool_]

#: What a report records for an area from a file: neither its name nor its outline.
AREA = "AREA"
#: Whether a trip with one end outside is kept.
OUTSIDE = ("drop", "keep")
_ALLOWED = (
    "Allowed: west,south,east,north in degrees, H3 cells separated by commas, or a file with polygons "
    "(GeoJSON, GeoPackage, shapefile, GeoParquet)."
)


#: How the stored text of polygons begins.
_WKB = "wkb:"

Bounds = tuple[float, float, float, float]


class Area(Protocol):
    """A set of points."""

    @property
    def text(self) -> str:
        """What a report records; except for `AREA`, the text defines the area."""
        ...

    @property
    def stored(self) -> str:
        """Text from which `read_stored_area` makes the same area again; private."""
        ...

    @property
    def bounds(self) -> Bounds | None:
        """West, south, east and north; None if unknown, or across the 180th meridian."""
        ...

    def holds(self, lat: Floats, lon: Floats) -> Mask:
        """Returns which points are in the area or on its border."""
        ...

    def holds_cells(self, cells: Cells64) -> Mask:
        """Returns which H3 cells have their centres in the area."""
        ...


@dataclass(frozen=True)
class Box:
    """From west to east and from south to north; crosses the 180th meridian if west is larger than east."""

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        if not (-90 <= self.south < self.north <= 90):
            raise ParameterError(
                "The area's south and north must be degrees from -90 to 90, south the smaller. "
                f"Hint: the order is west,south,east,north. {_ALLOWED}"
            )
        if not (abs(self.west) <= 180 and abs(self.east) <= 180 and self.west != self.east):
            raise ParameterError(f"The area's west and east must be different degrees from -180 to 180. {_ALLOWED}")

    @property
    def text(self) -> str:
        """The four numbers."""
        return ",".join(f"{edge:.15g}" for edge in (self.west, self.south, self.east, self.north))

    @property
    def stored(self) -> str:
        """The four numbers to the last digit."""
        return ",".join(repr(float(edge)) for edge in (self.west, self.south, self.east, self.north))

    @property
    def bounds(self) -> Bounds | None:
        """The four edges."""
        return (self.west, self.south, self.east, self.north) if self.west < self.east else None

    def holds(self, lat: Floats, lon: Floats) -> Mask:
        """Returns which points are between the four edges."""
        between = (lon >= self.west, lon <= self.east)
        across = np.logical_and(*between) if self.west < self.east else np.logical_or(*between)
        inside: Mask = (lat >= self.south) & (lat <= self.north) & across
        return inside

    def holds_cells(self, cells: Cells64) -> Mask:
        """Returns which cells have their centres between the four edges."""
        return self.holds(*centers_of(cells))


@dataclass(frozen=True, eq=False)
class CellArea:
    """H3 cells of any resolutions, and all their descendants."""

    cells: Cells64

    @property
    def text(self) -> str:
        """The cells in hexadecimal form, sorted."""
        return ",".join(format(c, "x") for c in np.sort(self.cells).tolist())

    @property
    def stored(self) -> str:
        """The same."""
        return self.text

    @property
    def bounds(self) -> None:
        """None: not needed, cells are compared with cells."""
        return None

    def holds(self, lat: Floats, lon: Floats) -> Mask:
        """Returns which points are in one of the cells."""
        inside = np.zeros(len(lat), dtype=np.bool_)
        for resolution in np.unique(resolution_of(self.cells)).tolist():
            inside |= np.isin(index_points(lat, lon, resolution), self.cells)
        return inside

    def holds_cells(self, cells: Cells64) -> Mask:
        """Returns which cells are in the area, or descendants of one that is.

        Raises:
            ParameterError: a cell of the area is finer than the tiles.
        """
        inside = np.zeros(len(cells), dtype=np.bool_)
        for resolution in np.unique(resolution_of(self.cells)).tolist():
            if len(cells) and resolution > int(resolution_of(cells).min()):
                raise ParameterError(
                    f"The area has H3 cells of resolution {resolution}, finer than the tiles. Hint: use coarser cells, "
                    "or a finer resolution (--resolution)."
                )
            inside |= np.isin(parent_of(cells, resolution), self.cells)
        return inside


@dataclass(frozen=True, eq=False)
class DrawnArea:
    """Polygons of a file, in degrees."""

    outline: Any

    @property
    def text(self) -> str:
        """A placeholder: the file is not published."""
        return AREA

    @property
    def stored(self) -> str:
        """The outline as WKB in hexadecimal digits."""
        return f"{_WKB}{shapely.to_wkb(self.outline, hex=True)}"

    @property
    def bounds(self) -> Bounds:
        """The bounds of all polygons."""
        west, south, east, north = shapely.bounds(self.outline).tolist()
        return west, south, east, north

    def holds(self, lat: Floats, lon: Floats) -> Mask:
        """Returns which points are in one of the polygons."""
        shapely.prepare(self.outline)
        inside: Mask = np.asarray(shapely.intersects_xy(self.outline, lon, lat), dtype=np.bool_)
        return inside

    def holds_cells(self, cells: Cells64) -> Mask:
        """Returns which cells have their centres in one of the polygons."""
        return self.holds(*centers_of(cells))


def centers_of(cells: Cells64) -> tuple[Floats, Floats]:
    """Returns latitude and longitude of the centres of H3 cells."""
    from flowveil.zoning.h3 import H3Geography

    none = np.full(len(cells), -1, dtype=np.int32)
    return H3Geography(code=cells, parent=none).centers(np.arange(len(cells), dtype=np.int32))


def parse_area(given: Any) -> Area | None:
    """Makes an area from four degrees, H3 cells, a file, or a table with polygons.

    Raises:
        ParameterError: the argument has another form.
        DataError: the file holds no polygons.
    """
    if given is None or isinstance(given, Box | CellArea | DrawnArea):
        return given
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        numbers = _numbers(parts)
        if numbers is not None and len(parts) > 1:
            if len(numbers) != 4:
                raise ParameterError(f"The area has {len(numbers)} numbers; four are needed. {_ALLOWED}")
            return Box(*numbers)
        cells = _cells(parts)
        if cells is not None:
            return CellArea(cells)
        if given.strip() == AREA and not Path(given).exists():
            raise ParameterError("The area came from a file, which a report does not name. Hint: give it (--within).")
        if not Path(given).expanduser().is_file():
            raise ParameterError(f"The area is neither degrees, nor H3 cells, nor a file. {_ALLOWED}")
    elif isinstance(given, tuple | list) and len(given) == 4:
        numbers = _numbers([str(edge) for edge in given])
        if numbers is not None:
            return Box(*numbers)
    return _drawn(given)


def read_stored_area(text: str) -> Area | None:
    """Returns the area whose `stored` text this is; None if it is no such text."""
    try:
        return DrawnArea(shapely.from_wkb(text.removeprefix(_WKB))) if text.startswith(_WKB) else parse_area(text)
    except (ParameterError, DataError, shapely.GEOSException):
        return None


def _numbers(parts: list[str]) -> list[float] | None:
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _cells(parts: list[str]) -> Cells64 | None:
    try:
        cells = np.array([int(part, 16) for part in parts], dtype=np.uint64)
    except (ValueError, OverflowError):
        return None
    return cells if is_cell(cells).all() else None


def _drawn(source: Any) -> DrawnArea:
    from flowveil.zoning.files import read_outlines

    if not isinstance(source, str | os.PathLike) and not hasattr(source, "geometry") and not hasattr(source, "schema"):
        raise ParameterError(f"A {type(source).__name__} is not an area. {_ALLOWED}")
    return DrawnArea(shapely.union_all(read_outlines(source)))
