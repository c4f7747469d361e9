"""Checks whether the places of trips are plausible, and says where they lie.

Detects swapped axes and coordinates that are not degrees. Points are counted on a grid of one
degree: the check is cheap, independent of the order of rows, and the counts of parts of a table can
be added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats
from flowveil.core.errors import with_value
from flowveil.core.flows import Flows
from flowveil.reading.columns import ColumnMap
from flowveil.zoning.gazetteer import (
    INHABITED_KM,
    distance_to_city,
    kilometres,
    name_of_place,
    projected,
    to_degrees,
    weighted_median,
)

#: Latitudes and longitudes.
Point = tuple[Floats, Floats]
#: Trips of a city, or of a country, are shorter than this on average, in kilometres.
_CONTINENT_KM = 2_000.0
#: With the right axes most trips are this short, and the ends of one side this close together.
_REGION_KM = 500.0
#: A place farther than this from every city is at sea or in a desert.
_REMOTE_KM = 300.0
#: Degrees around the area of a reference system in which it is used too.
_AROUND_USE = 6.0
#: Fewer rows are not checked.
_FEWEST_ROWS = 10
#: Rows of a batch that are checked.
_ROWS = 20_000
#: A study area confirms unusual places.
_AREA = "west,south,east,north"


def degree_bins(points: Sequence[Floats], rows: NDArray[np.int64]) -> dict[int, int]:
    """Counts rows by the degree cells of their origin and destination, packed into one number.

    Of many, every n-th.
    """
    rows = rows[:: max(1, len(rows) // _ROWS)]
    key = np.zeros(len(rows), dtype=np.int64)
    for axis, size in zip(points, (90, 180, 90, 180), strict=True):
        key = key * 512 + np.floor(axis[rows] + size).astype(np.int64)
    values, counts = np.unique(key, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def misplaced(bins: Counter[int], used: ColumnMap) -> str | None:
    """Returns what is wrong with where most trips are, or None, from the counts of
    `degree_bins`.
    """
    if sum(bins.values()) < _FEWEST_ROWS:
        return None
    key, weight = np.array(list(bins)), np.array(list(bins.values()))
    shifts = ((27, 89.5), (18, 179.5), (9, 89.5), (0, 179.5))
    ends: list[Floats] = [(key >> bits & 511).astype(np.float64) - size for bits, size in shifts]
    origin, destination = (ends[0], ends[1]), (ends[2], ends[3])
    length = weighted_median(kilometres(*origin, *destination), weight)
    if length > _CONTINENT_KM:
        return _misplaced_end(origin, destination, weight, used)
    lat, lon = (weighted_median(axis, weight) for axis in origin)
    if (
        distance_to_city(lat, lon) > _REMOTE_KM
        and abs(lon) <= 90
        and distance_to_city(lon, lat) < INHABITED_KM
    ):
        exchanged = axes_exchanged(used)
        return (
            f"Most trips are around latitude {lat:.0f}, longitude {lon:.0f}, far from any town;"
            " with the axes exchanged they would be near one: latitude and longitude are swapped."
            f" Hint: {exchanged}; if they are really there, confirm it with"
            f" {with_value('within', _AREA)}."
        )
    return None


def _misplaced_end(
    origin: Point, destination: Point, weight: NDArray[np.int64], used: ColumnMap
) -> str | None:
    """Returns what is wrong if most trips are longer than a continent.

    None for flights between many places.
    """
    centers = [
        (weighted_median(end[0], weight), weighted_median(end[1], weight))
        for end in (origin, destination)
    ]
    sides = [("origin", origin, destination), ("destination", destination, origin)]
    if distance_to_city(*centers[0]) < distance_to_city(*centers[1]):
        sides.reverse()
    for name, end, other in sides:
        lat, lon = end[1], end[0]
        if (
            np.all(np.abs(lat) <= 90)
            and weighted_median(kilometres(lat, lon, *other), weight) < _REGION_KM
        ):
            return (
                f"Most trips are longer than {_CONTINENT_KM:,.0f} km; with the axes of the {name}"
                " exchanged they would be short: its latitude and longitude are swapped. Hint:"
                f" {_exchanged(name, used)}."
            )
    spread = [
        weighted_median(kilometres(*end, *(np.full(len(weight), axis) for axis in center)), weight)
        for end, center in zip((origin, destination), centers, strict=True)
    ]
    if max(spread) > _REGION_KM:
        return None
    places = [f"latitude {lat:.0f}, longitude {lon:.0f}" for lat, lon in centers]
    return (
        f"Most trips begin around {places[0]} and end around {places[1]}, more than a continent"
        " away. Hint: are the columns of one end wrong, or has one lost its sign? If not, confirm"
        f" the place of both with {with_value('within', _AREA)}."
    )


def _exchanged(end: str, used: ColumnMap) -> str:
    named = getattr(used, end) or ("LAT", "LON")
    return with_value(end, f"{named[1]},{named[0]}")


def axes_exchanged(used: ColumnMap) -> str:
    """Returns how the axes of both ends are exchanged."""
    return f"{_exchanged('origin', used)} {_exchanged('destination', used)}"


def misplaced_by_crs(
    points: Sequence[tuple[float, float]],
    crs: str,
    used: ColumnMap,
    *,
    near: tuple[float, float] | None,
) -> str | None:
    """Returns what is wrong if a reference system puts points (northing, easting) where no one
    lives, or None.
    """
    if len(points) < _FEWEST_ROWS:
        return None
    middle = np.median(np.asarray(points, dtype=np.float64), axis=0)
    if _is_used_at(crs, middle):
        return None
    wrong = f"{crs} puts most trips where it is not used, at sea, in a desert, or off the earth."
    confirm = f"If they are really there, confirm it with {with_value('within', _AREA)}."
    if _is_used_at(crs, middle[::-1]):
        lat, lon = (float(axis[0]) for axis in to_degrees(crs, middle[1:], middle[:1]))
        return (
            f"{wrong} With the axes exchanged they are in {name_of_place(lat, lon)}: northing and"
            f" easting are swapped. Hint: {axes_exchanged(used)}. {confirm}"
        )
    hint = projected(points, near=near, exchange=axes_exchanged(used))
    return f"{wrong} Hint: {hint or 'leave the reference system out, these are degrees.'} {confirm}"


def _is_used_at(crs: str, point: Floats) -> bool:
    """Returns whether a system is used at a point (northing, easting), or near, and it is not
    remote.
    """
    from pyproj import CRS

    lat, lon = (float(axis[0]) for axis in to_degrees(crs, point[:1], point[1:]))
    if not (np.isfinite([lat, lon]).all() and abs(lat) <= 90 and abs(lon) <= 180):
        return False
    area = CRS.from_user_input(crs).area_of_use
    is_near = area is None or (
        area.west - _AROUND_USE <= lon <= area.east + _AROUND_USE
        and area.south - _AROUND_USE <= lat <= area.north + _AROUND_USE
    )
    return is_near and distance_to_city(lat, lon) <= _REMOTE_KM


def place_of(flows: Flows) -> str | None:
    """Returns a sentence on where trips begin; None if their tiles have no place."""
    tree = flows.origins
    if tree.geography is None:
        return None
    trips = np.bincount(flows.origin, weights=flows.trips, minlength=tree.n_tiles)
    lat, lon = tree.geography.centers(tree.leaf_node)
    placed = np.isfinite(lat) & np.isfinite(lon) & (trips > 0)
    if not placed.any():
        return None
    lat, lon, trips = lat[placed], lon[placed], trips[placed]
    middle = weighted_median(lat, trips), weighted_median(lon, trips)
    half = weighted_median(kilometres(lat, lon, *middle), trips)
    within = "1" if half < 1 else f"{half:.1f}" if half < 10 else f"{half:,.0f}"
    return f"Trips lie around {name_of_place(*middle)}; half of them within {within} km."
