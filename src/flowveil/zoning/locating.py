"""Finds the zone of a map that contains a point.

An R-tree of bounding boxes finds candidate zones, and prepared outlines decide. Each zone is prepared once, so that a
point costs the logarithm of the outline's vertices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.hierarchy import Floats, Ints
from flowveil.zoning.geometry import Outlines

#: Result of `Locator.zones_of` for a point outside all zones.
NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Locator:
    """Finds points in zones. A point on a border, or in overlapping zones, is in the zone with the smallest code.

    Attributes:
        outlines: polygons in degrees; a zone across the 180th meridian may extend beyond 180.
        codes: the code of each, which decides ties independently of the order of the file.
    """

    outlines: Outlines
    codes: NDArray[Any]

    def zones_of(self, lat: Floats, lon: Floats) -> Ints:
        """Returns the number of the outline that contains each point, or `NOWHERE`. Searches distinct points once."""
        points, place = np.unique(lon + 1j * lat, return_inverse=True)
        return self._zones_of(points.imag, points.real)[place]

    def _zones_of(self, lat: Floats, lon: Floats) -> Ints:
        rank = self._ranks(lat, lon)
        beyond = np.flatnonzero(rank == len(self.outlines)) if self._turns else np.zeros(0, np.int64)
        for turn in self._turns:
            rank[beyond] = np.minimum(rank[beyond], self._ranks(lat[beyond], lon[beyond] + turn))
        found: Ints = np.append(self._order, NOWHERE)[rank].astype(np.int32)
        return found

    def _ranks(self, lat: Floats, lon: Floats) -> NDArray[np.int64]:
        """Returns the rank by code of each point's zone; the number of zones if the point is in none."""
        outlines, tree = self._prepared
        point, zone = tree.query(shapely.points(lon, lat))
        # Sorted by zone: switching between prepared outlines is slow.
        by_zone = np.argsort(zone, kind="stable")
        point, zone = point[by_zone], zone[by_zone]
        inside = shapely.intersects_xy(outlines[zone], lon[point], lat[point])
        rank = np.full(len(lat), len(outlines), dtype=np.int64)
        np.minimum.at(rank, point[inside], zone[inside])
        return rank

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def _prepared(self) -> tuple[Outlines, Any]:
        """The outlines in the order of codes, and their R-tree."""
        outlines = self.outlines[self._order]
        shapely.prepare(outlines)
        return outlines, shapely.STRtree(outlines)

    @cached_property
    def _turns(self) -> tuple[float, ...]:
        """Offsets of longitudes that reach outlines beyond the 180th meridian."""
        west, _, east, _ = shapely.total_bounds(self.outlines).tolist()
        return (*((360.0,) if east > 180 else ()), *((-360.0,) if west < -180 else ()))
