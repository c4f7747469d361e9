"""Guesses the time zone of a place, offline: that of the nearest large city."""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats

#: Farther from every city, in kilometres, no zone is suggested.
_FARTHEST_KM = 800.0
_RADIUS_KM = 6371.0088


@cache
def _cities() -> tuple[tuple[str, ...], NDArray[np.int64], Floats, Floats]:
    """Names of zones; zone, latitude and longitude of each city. Made by ``tools/make_timezones.py``."""
    packed = (files("flowveil.reading") / "timezones.json.gz").read_bytes()
    content = json.loads(gzip.decompress(packed))
    lat, lon = (np.array(content[axis]) / 100 for axis in ("lat", "lon"))
    return tuple(content["names"]), np.array(content["zone"]), lat, lon


def guess_timezone(lat: Floats, lon: Floats) -> str | None:
    """Returns the time zone of the city nearest to the median of some points; None if there is no city near.

    A suggestion for messages, never used without the user's consent: near a border it may name the neighbour's zone.
    """
    known = np.isfinite(lat) & np.isfinite(lon) & (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
    if not known.any():
        return None
    names, zone, city_lat, city_lon = _cities()
    distance = kilometres(city_lat, city_lon, float(np.median(lat[known])), float(np.median(lon[known])))
    nearest = int(np.argmin(distance))
    return names[int(zone[nearest])] if distance[nearest] <= _FARTHEST_KM else None


def distance_to_city(lat: float, lon: float) -> float:
    """Returns the kilometres from a place to the nearest large city."""
    _, _, city_lat, city_lon = _cities()
    return float(np.min(kilometres(city_lat, city_lon, lat, lon)))


def kilometres(lat: Floats, lon: Floats, other_lat: Floats | float, other_lon: Floats | float) -> Floats:
    """Returns distances on a sphere."""
    y, x, other_y, other_x = (np.radians(axis) for axis in (lat, lon, other_lat, other_lon))
    half = np.sin((y - other_y) / 2) ** 2 + np.cos(y) * np.cos(other_y) * np.sin((x - other_x) / 2) ** 2
    distance: Floats = 2 * _RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return distance
