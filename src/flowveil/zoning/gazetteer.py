"""Large cities and national grids: names of places, and which reference system puts points near
people.

Works offline. Knows the cities of GeoNames with 50,000 inhabitants or more.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats
from flowveil.core.errors import with_value

_RADIUS_KM = 6371.0088
#: Degrees are never larger; metres and feet of projected systems are.
LARGEST_DEGREES = 400.0
#: A place nearer to a city than this is inhabited.
INHABITED_KM = 100.0
#: No time zone is suggested for places farther from every city.
_FARTHEST_KM = 800.0
#: The largest city within this distance names a place; further out it is the nearest.
_NAMED_KM = 20.0
#: Points farther than this from other evidence of where they are (a map, a study area) are refuted.
_ELSEWHERE_KM = 500.0
#: Exchanged axes are proposed first only if they put the points this much nearer to a city.
_EXCHANGED_KM = 5.0
_MOST_PROPOSED = 5
#: National grids in metres, and zones of UTM that are national grids.
_GRIDS = (
    2056, 2100, 2154, 2157, 2180, 2193, 2326, 3003, 3004, 3006, 3035, 3057, 3067, 3301, 3346, 3347,
    3414, 3763, 3765, 3794, 3812, 3826, 3857, 3879, 5179, 5186, 5514, 5650, 6372, 6707, 6708, 6875,
    7791, 7792, 7856, 21781, 22185, 23700, 25829, 25830, 25831, 25832, 25833, 27700, 28992, 29902,
    31254, 31255, 31256, 31287, 31370, 31466, 31467, 31468, 31469, 31983, 32719,
    *range(2443, 2462),
)  # fmt: skip
#: State plane coordinates of the United States in feet (NAD83).
_STATE_PLANES = (
    *range(2222, 2290), 2899, *range(2965, 2967), *range(3417, 3421), *range(3424, 3438),
    3451, 3452, 3734, 3735,
)  # fmt: skip
#: Zones of UTM: they fit nearly everywhere, so they are proposed only with other evidence.
_UTM = (*range(32601, 32661), *range(32701, 32761))


@dataclass(frozen=True)
class Cities:
    """Name, country, time zone, place and inhabitants (in thousands) of each city."""

    name: list[str]
    country: list[str]
    timezone: list[str]
    lat: Floats
    lon: Floats
    thousands: Floats


@cache
def cities() -> Cities:
    """Returns the cities; made by ``tools/make_cities.py``."""
    content = json.loads(
        gzip.decompress((files("flowveil.zoning") / "cities.json.gz").read_bytes())
    )
    return Cities(
        name=content["city"],
        country=[content["countries"][i] for i in content["country"]],
        timezone=[content["names"][i] for i in content["zone"]],
        lat=np.array(content["lat"]) / 100,
        lon=np.array(content["lon"]) / 100,
        thousands=np.array(content["thousands"], dtype=np.float64),
    )


def kilometres(
    lat: Floats, lon: Floats, other_lat: Floats | float, other_lon: Floats | float
) -> Floats:
    """Returns distances on a sphere."""
    y, x, other_y, other_x = (np.radians(axis) for axis in (lat, lon, other_lat, other_lon))
    half = (
        np.sin((y - other_y) / 2) ** 2
        + np.cos(y) * np.cos(other_y) * np.sin((x - other_x) / 2) ** 2
    )
    distance: Floats = 2 * _RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return distance


def distance_to_city(lat: float, lon: float) -> float:
    """Returns the kilometres from a place to the nearest large city."""
    known = cities()
    return float(kilometres(known.lat, known.lon, lat, lon).min())


def name_of_place(lat: float, lon: float) -> str:
    """Returns the city that a place is in or near, with its country: ``Berlin, Germany``."""
    known = cities()
    distance = kilometres(known.lat, known.lon, lat, lon)
    nearby = np.flatnonzero(distance <= _NAMED_KM)
    at = int(nearby[np.argmax(known.thousands[nearby])]) if len(nearby) else int(distance.argmin())
    named = f"{known.name[at]}, {known.country[at]}"
    if distance[at] <= INHABITED_KM:
        return named
    return f"latitude {lat:.1f}, longitude {lon:.1f}, {distance[at]:,.0f} km from {named}"


def guess_timezone(lat: Floats, lon: Floats) -> str | None:
    """Returns the time zone of the large city nearest to the median of some points.

    None without one nearby.
    """
    is_known = np.isfinite(lat) & np.isfinite(lon) & (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
    if not is_known.any():
        return None
    known = cities()
    distance = kilometres(
        known.lat, known.lon, float(np.median(lat[is_known])), float(np.median(lon[is_known]))
    )
    nearest = int(np.argmin(distance))
    return known.timezone[nearest] if distance[nearest] <= _FARTHEST_KM else None


def weighted_median(values: Floats, weight: NDArray[Any]) -> float:
    """Returns the value that half of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(reached, reached[-1] / 2)]])


# ---- reference systems ---------------------------------------------------------------------------


def to_degrees(crs: Any, north: Floats, east: Floats) -> tuple[Floats, Floats]:
    """Returns latitude and longitude of points in a reference system.

    Missing points stay missing, points at exactly 0,0 stay there (a placeholder, not a place), and
    points outside the system become infinite. Northing is what is named as the latitude, easting
    what is named as the longitude.
    """
    from pyproj import Transformer

    lon, lat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(east, north)
    missing, at_zero = np.isnan(north) | np.isnan(east), (north == 0) & (east == 0)
    lat, lon = (np.where(missing, np.nan, np.where(at_zero, 0.0, axis)) for axis in (lat, lon))
    return lat, lon


@dataclass(frozen=True, order=True)
class Proposal:
    """A reference system that puts points near people, and whether their axes are exchanged."""

    distance: float
    exchanged: bool
    code: str
    name: str
    lat: float
    lon: float

    def sentence(self, exchange: str = "") -> str:
        """Returns the option and where it puts the points; ``exchange`` exchanges the axes."""
        option = with_value("crs", self.code)
        option += f" {exchange}" if self.exchanged and exchange else ""
        name = f"{self.name}, axes exchanged" if self.exchanged else self.name
        return f"{option} ({name}) puts them in {name_of_place(self.lat, self.lon)}"


def proposals(
    points: Sequence[tuple[float, float]], *, near: tuple[float, float] | None = None
) -> list[Proposal]:
    """Returns the reference systems that explain points (northing, easting), the best first.

    Empty if the points may be degrees. A system explains them if it is used where it puts them,
    and if that is near a large city; with other evidence of where they are (``near``: latitude and
    longitude), if that is near.
    """
    from pyproj import CRS
    from pyproj.exceptions import CRSError, ProjError

    sample = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    sample = sample[np.isfinite(sample).all(axis=1)]
    if not len(sample) or np.abs(np.median(sample, axis=0)).max() <= LARGEST_DEGREES:
        return []
    middle, found = np.median(sample, axis=0), list[Proposal]()
    for code in (*_GRIDS, *_STATE_PLANES, *(() if near is None else _UTM)):
        with suppress(ProjError, CRSError):
            crs = CRS.from_epsg(code)
            for exchanged in (False, True):
                at = _in_area_of_use(crs, middle[::-1] if exchanged else middle)
                if at is None:
                    continue
                distance = distance_to_city(*at)
                if near is not None:
                    distance = float(kilometres(np.array([at[0]]), np.array([at[1]]), *near)[0])
                limit = INHABITED_KM if near is None else _ELSEWHERE_KM
                if distance < limit:
                    name = crs.name
                    worse = distance + (_EXCHANGED_KM if exchanged else 0.0)
                    found.append(Proposal(worse, exchanged, f"EPSG:{code}", name, *at))
    return sorted(found)[:_MOST_PROPOSED]


def _in_area_of_use(crs: Any, point: Floats) -> tuple[float, float] | None:
    """Returns latitude and longitude of a point (northing, easting) if the system is used there."""
    lat, lon = (float(axis[0]) for axis in to_degrees(crs, point[:1], point[1:]))
    area = crs.area_of_use
    # Comparisons with NaN and infinity are false.
    inside = area and area.west <= lon <= area.east and area.south <= lat <= area.north
    return (lat, lon) if inside else None


def projected(
    points: Sequence[tuple[float, float]],
    *,
    near: tuple[float, float] | None = None,
    exchange: str = "",
) -> str | None:
    """Returns a hint if points (northing, easting) are of a projected reference system, or None.

    ``exchange`` is how the axes of the columns are exchanged.
    """
    sample = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    middle = np.median(sample, axis=0) if len(sample) else np.zeros(2)
    if not (np.isfinite(middle).all() and np.abs(middle).max() > LARGEST_DEGREES):
        return None
    example = f"{with_value('crs', 'EPSG:32633')} is UTM 33 north, for example."
    found = "; ".join(one.sentence(exchange) for one in proposals(points, near=near))
    return (
        "these are not degrees but metres or feet of a projected reference system:"
        f" {f'{found}.' if found else example}"
    )
