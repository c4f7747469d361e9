"""Checks whether the places of trips are plausible, and guesses their time zone, from an offline list of large cities.

Detects swapped axes and coordinates that are not degrees. Points are counted on a grid of one degree: the check is
cheap, independent of the order of rows, and the counts of parts of a table can be added.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import with_value
from flowveil.hierarchy import Floats
from flowveil.reading.columns import ColumnMap

#: Latitudes and longitudes.
Point = tuple[Floats, Floats]
_RADIUS_KM = 6371.0088
#: Trips of a city, or of a country, are shorter than this on average, in kilometres.
_CONTINENT_KM = 2_000.0
#: With the right axes most trips are this short, and the ends of one side this close together.
_REGION_KM = 500.0
#: A place farther than the first from every city is at sea or in a desert; nearer than the second it is inhabited.
_REMOTE_KM, _INHABITED_KM = 300.0, 100.0
#: No time zone is suggested for places farther from every city.
_FARTHEST_KM = 800.0
#: Fewer rows are not checked.
_FEWEST_ROWS = 10
#: Rows of a batch that are checked.
_ROWS = 20_000
#: Degrees are never larger; metres and feet of projected systems are.
_LARGEST_DEGREES = 400.0
#: National grids that are suggested if the points are in their area and near a city.
_GRIDS = (
    2056, 2100, 2154, 2157, 2180, 2193, 2326, 3006, 3035, 3057, 3067, 3301, 3346, 3414, 3763, 3765, 3794, 3857, 3879,
    5179, 5514, 6372, 7856, 23700, 25829, 25830, 25831, 25832, 25833, 27700, 28992, 31256, 31370, 31983, 32719,
)  # fmt: skip
#: A study area confirms unusual places.
_AREA = "west,south,east,north"


def degree_bins(points: Sequence[Floats], rows: NDArray[np.int64]) -> dict[int, int]:
    """Counts rows by the degree cells of their origin and destination, packed into one number; of many, every n-th."""
    rows = rows[:: max(1, len(rows) // _ROWS)]
    key = np.zeros(len(rows), dtype=np.int64)
    for axis, size in zip(points, (90, 180, 90, 180), strict=True):
        key = key * 512 + np.floor(axis[rows] + size).astype(np.int64)
    values, counts = np.unique(key, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def misplaced(bins: Counter[int], used: ColumnMap) -> str | None:
    """Returns what is wrong with where most trips are, or None, from the counts of `degree_bins`."""
    if sum(bins.values()) < _FEWEST_ROWS:
        return None
    key, weight = np.array(list(bins)), np.array(list(bins.values()))
    shifts = ((27, 89.5), (18, 179.5), (9, 89.5), (0, 179.5))
    ends: list[Floats] = [(key >> bits & 511).astype(np.float64) - size for bits, size in shifts]
    origin, destination = (ends[0], ends[1]), (ends[2], ends[3])
    length = _median(kilometres(*origin, *destination), weight)
    if length > _CONTINENT_KM:
        return _misplaced_end(origin, destination, weight, used)
    lat, lon = (_median(axis, weight) for axis in origin)
    if _distance_to_city(lat, lon) > _REMOTE_KM and abs(lon) <= 90 and _distance_to_city(lon, lat) < _INHABITED_KM:
        exchanged = f"{_exchanged('origin', used)} and {_exchanged('destination', used)}"
        return (
            f"Most trips are around latitude {lat:.0f}, longitude {lon:.0f}, far from any town; with the axes "
            f"exchanged they would be near one: latitude and longitude are swapped. Hint: {exchanged}; if they are "
            f"really there, confirm it with {with_value('within', _AREA)}."
        )
    return None


def _misplaced_end(origin: Point, destination: Point, weight: NDArray[np.int64], used: ColumnMap) -> str | None:
    """Returns what is wrong if most trips are longer than a continent; None for flights between many places."""
    centers = [(_median(end[0], weight), _median(end[1], weight)) for end in (origin, destination)]
    sides = [("origin", origin, destination), ("destination", destination, origin)]
    if _distance_to_city(*centers[0]) < _distance_to_city(*centers[1]):
        sides.reverse()
    for name, end, other in sides:
        lat, lon = end[1], end[0]
        if np.all(np.abs(lat) <= 90) and _median(kilometres(lat, lon, *other), weight) < _REGION_KM:
            return (
                f"Most trips are longer than {_CONTINENT_KM:,.0f} km; with the axes of the {name} exchanged they would "
                f"be short: its latitude and longitude are swapped. Hint: {_exchanged(name, used)}."
            )
    spread = [
        _median(kilometres(*end, *(np.full(len(weight), axis) for axis in center)), weight)
        for end, center in zip((origin, destination), centers, strict=True)
    ]
    if max(spread) > _REGION_KM:
        return None
    places = [f"latitude {lat:.0f}, longitude {lon:.0f}" for lat, lon in centers]
    return (
        f"Most trips begin around {places[0]} and end around {places[1]}, more than a continent away. Hint: are the "
        f"columns of one end wrong, or has one lost its sign? If not, confirm the place of both with "
        f"{with_value('within', _AREA)}."
    )


def _exchanged(end: str, used: ColumnMap) -> str:
    named = getattr(used, end) or ("LAT", "LON")
    return with_value(end, f"{named[1]},{named[0]}")


def projected(off_earth: Sequence[tuple[float, float]]) -> str | None:
    """Returns a hint if points off the earth (latitude, longitude) are of a projected reference system, or None."""
    from pyproj import CRS
    from pyproj.exceptions import ProjError

    point = np.median(off_earth, axis=0)
    if not (np.isfinite(point).all() and np.abs(point).max() > _LARGEST_DEGREES):
        return None
    found = []
    for crs in map(CRS.from_epsg, _GRIDS):
        with suppress(ProjError):
            lat, lon = (float(axis[0]) for axis in to_degrees(crs, *point[:, None]))
            area = crs.area_of_use
            # Comparisons with NaN and infinity are false.
            if area and area.west <= lon <= area.east and area.south <= lat <= area.north:
                found.append((_distance_to_city(lat, lon), f"{with_value('crs', crs.to_string())} ({crs.name})?"))
    near = [hint for distance, hint in sorted(found) if distance < _INHABITED_KM][:5]
    example = f"{with_value('crs', 'EPSG:32633')} is UTM 33 north, for example."
    return f"these are not degrees but metres or feet of a projected reference system: {' '.join(near) or example}"


def to_degrees(crs: Any, north: Floats, east: Floats) -> tuple[Floats, Floats]:
    """Returns latitude and longitude of points in a reference system.

    Missing points stay missing, points at exactly 0,0 stay there (a placeholder, not a place), and points outside the
    system become infinite. Northing is what is named as the latitude, easting what is named as the longitude.
    """
    from pyproj import Transformer

    lon, lat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True).transform(east, north)
    missing, at_zero = np.isnan(north) | np.isnan(east), (north == 0) & (east == 0)
    lat, lon = (np.where(missing, np.nan, np.where(at_zero, 0.0, axis)) for axis in (lat, lon))
    return lat, lon


def _median(values: Floats, weight: NDArray[np.int64]) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(reached, (reached[-1] + 1) // 2)]])


@cache
def _cities() -> tuple[list[str], Floats, Floats]:
    """Returns zone, latitude and longitude of large cities, made by ``tools/make_timezones.py``."""
    content = json.loads(gzip.decompress((files("flowveil.reading") / "timezones.json.gz").read_bytes()))
    zones = [content["names"][zone] for zone in content["zone"]]
    return zones, np.array(content["lat"]) / 100, np.array(content["lon"]) / 100


def guess_timezone(lat: Floats, lon: Floats) -> str | None:
    """Returns the time zone of the large city nearest to the median of some points; None without one nearby."""
    known = np.isfinite(lat) & np.isfinite(lon) & (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
    if not known.any():
        return None
    zones, city_lat, city_lon = _cities()
    distance = kilometres(city_lat, city_lon, float(np.median(lat[known])), float(np.median(lon[known])))
    nearest = int(np.argmin(distance))
    return zones[nearest] if distance[nearest] <= _FARTHEST_KM else None


def _distance_to_city(lat: float, lon: float) -> float:
    """Returns the kilometres from a place to the nearest large city."""
    return float(kilometres(*_cities()[1:], lat, lon).min())


def kilometres(lat: Floats, lon: Floats, other_lat: Floats | float, other_lon: Floats | float) -> Floats:
    """Returns distances on a sphere."""
    y, x, other_y, other_x = (np.radians(axis) for axis in (lat, lon, other_lat, other_lon))
    half = np.sin((y - other_y) / 2) ** 2 + np.cos(y) * np.cos(other_y) * np.sin((x - other_x) / 2) ** 2
    distance: Floats = 2 * _RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return distance
