"""Which zone of a map a point lies in.

A tree of bounding boxes finds the zones that may hold a point, and prepared outlines decide: each zone is prepared
once, so a point costs the logarithm of the outline's vertices, not all of them. A join in a database would do the same,
but the extension it needs cannot be had offline.
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

#: What `Locator.zones_of` says of a point that lies in no zone.
NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Locator:
    """Finds points in zones. A point on a border, or in zones that overlap, is in the one with the smallest code.

    Attributes:
        outlines: polygons in degrees; a zone that crosses the 180th meridian may go beyond 180.
        codes: the code of each, by which ties are decided, so that the order of the file leaves no trace.
    """

    outlines: Outlines
    codes: NDArray[Any]

    def zones_of(self, lat: Floats, lon: Floats) -> Ints:
        """The number of the outline that holds each point, `NOWHERE` where none does.

        Each distinct point is looked for once: stations and addresses come again and again, and sorting points costs
        less than walking through the outlines in order saves.
        """
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
        """The place of each point's zone in the order of codes; the number of zones where there is none."""
        outlines, tree = self._prepared
        point, zone = tree.query(shapely.points(lon, lat))
        # Zone after zone: jumping from one prepared outline to another costs five times the test itself.
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
        """The outlines in the order of codes, and their tree."""
        outlines = self.outlines[self._order]
        shapely.prepare(outlines)
        return outlines, shapely.STRtree(outlines)

    @cached_property
    def _turns(self) -> tuple[float, ...]:
        """By how much longitudes are turned to reach outlines beyond the 180th meridian."""
        west, _, east, _ = shapely.total_bounds(self.outlines).tolist()
        return (*((360.0,) if east > 180 else ()), *((-360.0,) if west < -180 else ()))
