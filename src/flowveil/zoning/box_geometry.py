"""Rectangles between lines of longitude and latitude, in whole 10⁻⁷ degrees: codes, centres, areas, outlines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import Floats
from flowveil.zoning.public_map import ZonePlaces

#: Grid lines lie on multiples of this part of a degree (a centimetre): short to write, exact to read.
UNITS_PER_DEGREE = 10_000_000
FULL_TURN = 360 * UNITS_PER_DEGREE
_EQUATOR_M = 6_378_137.0
_ECCENTRICITY = 0.0818191908426215
_DEGREES = r"(-?[0-9]{1,3}(?:\.[0-9]{1,7})?)"
_CODE = re.compile(f"box_{_DEGREES}_{_DEGREES}_{_DEGREES}_{_DEGREES}")

Units = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Boxes by their edges in units; west is above east where a box crosses 180 degrees."""

    west: Units
    south: Units
    east: Units
    north: Units

    @classmethod
    def from_codes(cls, codes: Sequence[str]) -> Rectangles:
        """Reads the edges from codes ``box_west_south_east_north``.

        Raises:
            DataError: a code is not that of a box.
        """
        edges = np.zeros((len(codes), 4), dtype=np.int64)
        for row, code in enumerate(codes):
            found = _CODE.fullmatch(code)
            if found is None:
                raise DataError("A zone of a release of boxes has the code of no box.")
            edges[row] = [round(float(text) * UNITS_PER_DEGREE) for text in found.groups()]
        return cls(*edges.T)

    def codes(self) -> NDArray[np.str_]:
        """Returns ``box_west_south_east_north`` in degrees."""
        edges = (_degrees_text(units) for units in (self.west, self.south, self.east, self.north))
        text = [f"box_{w}_{s}_{e}_{n}" for w, s, e, n in zip(*edges, strict=True)]
        return np.array(text, dtype=np.str_).reshape(len(self.west))

    def centers(self) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of the middle of each box."""
        east = np.where(self.east < self.west, self.east + FULL_TURN, self.east)
        lon = (self.west + east) / (2 * UNITS_PER_DEGREE)
        return (self.south + self.north) / (2 * UNITS_PER_DEGREE), np.where(lon >= 180.0, lon - 360.0, lon)

    def areas_km2(self) -> Floats:
        """Returns the area of each box on the ellipsoid of WGS 84, exactly."""
        width = np.where(self.east < self.west, self.east + FULL_TURN, self.east) - self.west
        between = _area_below(self.north) - _area_below(self.south)
        return width / UNITS_PER_DEGREE / 360 * between

    def polygons(self) -> NDArray[np.object_]:
        """Returns the rectangles (longitude, latitude); two where a box crosses 180 degrees."""
        west, south, east, north = (u / UNITS_PER_DEGREE for u in (self.west, self.south, self.east, self.north))
        out = np.asarray(shapely.box(west, south, east, north), dtype=object)
        for i in np.flatnonzero(east < west).tolist():
            sides = [shapely.box(west[i], south[i], 180, north[i])]
            if east[i] > -180:
                sides.append(shapely.box(-180, south[i], east[i], north[i]))
            out[i] = sides[0] if len(sides) == 1 else shapely.multipolygons(sides)
        return out


@dataclass(frozen=True)
class BoxMap:
    """Boxes lie where their codes say."""

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Places of boxes: they have no level, no name, and their tiles are not counted."""
        boxes = Rectangles.from_codes(codes)
        lat, lon = boxes.centers()
        level = np.zeros(len(codes), dtype=np.int32)
        return ZonePlaces(level=level, lat=lat, lon=lon, area_km2=boxes.areas_km2(), polygons=boxes.polygons())


def _degrees_text(units: Units) -> list[str]:
    return [f"{u / UNITS_PER_DEGREE:.7f}".rstrip("0").rstrip(".") for u in units.tolist()]


def _area_below(lat_units: Units) -> Floats:
    """Returns the area of the ellipsoid between the equator and a parallel in km², negative in the south."""
    e = _ECCENTRICITY
    s = np.sin(np.radians(lat_units / UNITS_PER_DEGREE))
    half = s / (1 - (e * s) ** 2) + np.arctanh(e * s) / e
    area: Floats = np.pi * (_EQUATOR_M / 1000) ** 2 * (1 - e * e) * half
    return area
