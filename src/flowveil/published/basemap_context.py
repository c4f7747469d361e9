"""Where an area is, without the internet: water, borders, rivers and towns from a small world in
the package.

The world is made by ``tools/make_world.py`` and changes with the version only, so what a page shows
of it follows from where the published zones lie. A page holds the part around its zones and no
more.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats

CREDIT = (
    "Places: GeoNames, CC BY 4.0. Airports: airportsdata, MIT. Coasts, borders and rivers: Natural"
    " Earth, public domain."
)
#: Towns that a page holds, the largest first, and corners of lines and of water.
MAX_TOWNS = 200
MAX_CORNERS = 8_000
#: How much of the area's width is shown around it, and at least, in degrees.
_AROUND, _LEAST = 0.6, 0.3
#: Towns farther away than this are no help, in kilometres.
_FARTHEST_KM = 150.0
_RADIUS_KM = 6371.0088
_DIRECTIONS = (
    "north",
    "north-east",
    "east",
    "south-east",
    "south",
    "south-west",
    "west",
    "north-west",
)
#: Zones whose nearest town is computed at once.
_BATCH = 512
#: A place names an area if at least this share of the people of all places in the area live there.
_NAMING_SHARE = 0.15
#: A wider area is named by its country, in degrees of latitude.
_WIDEST_TOWN = 2.0
_AREAS, _LINES = ("land", "lakes"), ("borders", "rivers")


def _load_shapes(arrays: Any, name: str) -> NDArray[np.object_]:
    """Returns the polygons of land and lakes, or the lines of borders and rivers."""
    lengths = arrays[f"{name}_corners"].astype(np.int64)
    ends = np.cumsum(lengths)
    # The first step of each ring is its place, so that sums must start again there.
    summed = np.cumsum(arrays[f"{name}_steps"].astype(np.int64), axis=1).T
    before = np.vstack((np.zeros((1, 2), np.int64), summed[ends[:-1] - 1]))
    corners, rings = (summed - np.repeat(before, lengths, axis=0)) / 1e5, np.append(0, ends)
    if name not in _AREAS:
        return np.asarray(
            shapely.from_ragged_array(shapely.GeometryType.LINESTRING, corners, (rings,)),
            dtype=object,
        )
    polygons = np.append(0, np.cumsum(arrays[f"{name}_rings"], dtype=np.int64))
    made = shapely.from_ragged_array(shapely.GeometryType.POLYGON, corners, (rings, polygons))
    return np.asarray(made, dtype=object)


def _inside(name: str, west: float, south: float, east: float, north: float) -> NDArray[np.object_]:
    """Returns the parts of shapes of the world in a box."""
    shapes = world().shapes[name]
    left, bottom, right, top = shapely.bounds(shapes).T
    near = (left <= east) & (right >= west) & (bottom <= north) & (top >= south)
    found = shapely.clip_by_rect(shapes[near], west, south, east, north)
    parts = shapely.get_parts(shapely.make_valid(found) if name in _AREAS else found)
    return np.asarray(parts[~shapely.is_empty(parts)], dtype=object)


@dataclass(frozen=True, eq=False)
class World:
    """The world of the package."""

    names: tuple[str, ...]  # places, the largest first
    lat: Floats
    lon: Floats
    population: Floats
    country: NDArray[np.int64]  # rows of ``countries``
    countries: tuple[str, ...]
    shapes: dict[str, NDArray[np.object_]]  # land, lakes, borders and rivers, by name


@cache
def world() -> World:
    """The world of this version."""
    with (
        (files("flowveil.published") / "world" / "world.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        return World(
            names=tuple(arrays["names"].tobytes().decode().split("\n")),
            lat=arrays["lat"] / 1000,
            lon=arrays["lon"] / 1000,
            population=arrays["population"].astype(np.float64),
            country=arrays["country"].astype(np.int64),
            countries=tuple(arrays["countries"].tobytes().decode().split("\n")),
            shapes={name: _load_shapes(arrays, name) for name in (*_AREAS, *_LINES)},
        )


@cache
def airports() -> list[tuple[str, float, float]]:
    """Airports with an IATA code: name, latitude and longitude."""
    packed = (files("flowveil.published") / "world" / "airports.csv.gz").read_bytes()
    rows = csv.DictReader(gzip.decompress(packed).decode("utf-8").splitlines())
    return [(row["name"], float(row["lat"]), float(row["lon"])) for row in rows]


@dataclass(frozen=True, eq=False)
class Context:
    """What lies around an area."""

    water: NDArray[np.object_]  # polygons of sea and lakes
    lines: dict[str, NDArray[np.object_]]  # borders and rivers, by name
    towns: NDArray[np.int64]  # rows of the world, the largest first


def context_of(bounds: Floats) -> Context:
    """Returns water, borders, rivers and towns around an area, given as west, south, east, north in
    degrees.
    """
    west, south, east, north = bounds.tolist()
    wide, high = max(_LEAST, _AROUND * (east - west)), max(_LEAST, _AROUND * (north - south))
    box = (west - wide, south - high, east + wide, north + high)
    here = world()
    land, lakes = (_inside(name, *box) for name in _AREAS)
    step = max(box[2] - box[0], box[3] - box[1]) / 4000
    if shapely.get_num_coordinates(land).sum() > 10 * MAX_CORNERS:
        land = shapely.simplify(land, step)
    sea = shapely.difference(shapely.box(*box), shapely.union_all(land))
    water = np.concatenate((shapely.get_parts(sea), lakes))
    inside = (here.lon > box[0]) & (here.lon < box[2]) & (here.lat > box[1]) & (here.lat < box[3])
    return Context(
        water=_thinned(water[shapely.get_type_id(water) == 3], step),
        lines={name: _thinned(_inside(name, *box), step) for name in _LINES},
        towns=np.flatnonzero(inside)[:MAX_TOWNS],
    )


def _thinned(parts: NDArray[np.object_], tolerance: float) -> NDArray[np.object_]:
    """Returns shapes with at most `MAX_CORNERS` corners together.

    Simplified, and if need be only the largest.
    """
    largest = tolerance * 40
    while shapely.get_num_coordinates(parts).sum() > MAX_CORNERS and tolerance < largest:
        parts, tolerance = shapely.simplify(parts, tolerance), tolerance * 2
    parts = parts[~shapely.is_empty(parts)]
    parts = parts[np.argsort(-shapely.length(parts), kind="stable")]
    return np.asarray(
        parts[np.cumsum(shapely.get_num_coordinates(parts)) <= MAX_CORNERS], dtype=object
    )


def area_name(lat: Floats, lon: Floats, volume: Floats) -> str | None:
    """Returns what the area of most trips is called.

    Its largest town with the country, or the country alone.

    Zones are given by their centres, NaN without a place, and the trips that start or end there.
    """
    known = ~(np.isnan(lat) | np.isnan(lon)) & (volume > 0)
    if not known.any():
        return None
    south, north = _central(lat[known], volume[known])
    west, east = _central(lon[known], volume[known])
    here = world()
    inside = (here.lat >= south) & (here.lat <= north) & (here.lon >= west) & (here.lon <= east)
    if not inside.any():
        # A small area may hold no town: its nearest one names it.
        gap = np.hypot(
            here.lat - (south + north) / 2,
            (here.lon - (west + east) / 2) * np.cos(np.radians(south)),
        )
        inside = (gap < 0.2) & (gap == gap.min())
    towns = np.flatnonzero(inside)
    if len(towns) == 0:
        return None
    country = here.countries[here.country[towns[0]]]
    people = here.population[towns]
    if north - south <= _WIDEST_TOWN and people[0] >= _NAMING_SHARE * people.sum():
        return f"{here.names[towns[0]]}, {country}" if country else here.names[towns[0]]
    return (
        country
        if country and (here.country[towns] == here.country[towns[0]]).mean() > 0.9
        else None
    )


def _central(values: Floats, volume: Floats) -> tuple[float, float]:
    """Returns the bounds of the middle 80 % of the volume."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(volume[order]) / volume.sum()
    low, high = (int(np.searchsorted(share, level)) for level in (0.1, 0.9))
    return float(values[order][low]), float(values[order][min(high, len(values) - 1)])


@dataclass(frozen=True, eq=False)
class NearestTowns:
    """The nearest town of each place."""

    words: list[str]  # "around Oakland", "north-east of Oakland", each once
    word: NDArray[np.int64]  # the row of ``words`` for each place; -1 if no town is near
    km: Floats  # the distance, to one decimal below 10; NaN where the place is around the town
    number: NDArray[
        np.int64
    ]  # 1, 2, ... among places that would share a name, the largest first; 0 for all others


def nearest_towns(lat: Floats, lon: Floats, area_km2: Floats) -> NearestTowns:
    """Returns the nearest town of each place, with its direction.

    A place is "around" a town that is close to it.

    A town in the middle of an area is around it; coordinates are NaN where unknown.
    """
    here, n = world(), len(lat)
    word, km = np.full(n, -1, dtype=np.int64), np.full(n, np.nan)
    nothing = NearestTowns([], word, km, np.zeros(n, dtype=np.int64))
    known = np.flatnonzero(~(np.isnan(lat) | np.isnan(lon)))
    if len(known) == 0:
        return nothing
    # Towns more than a degree and a half beyond the edges of the area are too far from all places.
    spare = 1.5 / max(float(np.cos(np.radians(np.abs(lat[known]).max()))), 0.05)
    near = (here.lat >= lat[known].min() - 1.5) & (here.lat <= lat[known].max() + 1.5)
    near &= (here.lon >= lon[known].min() - spare) & (here.lon <= lon[known].max() + spare)
    towns = np.flatnonzero(near)
    if len(towns) == 0:
        return nothing
    vectors, places = (
        np.column_stack((np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)))
        for a, b in (
            np.radians((here.lat[towns], here.lon[towns])),
            np.radians((lat[known], lon[known])),
        )
    )
    closest = np.empty(len(known), dtype=np.int64)
    for start in range(0, len(known), _BATCH):
        some = places[start : start + _BATCH]
        # Summed in a fixed order, for the same bytes on every machine; of equals the larger town,
        # which comes first.
        cosine = sum(np.multiply.outer(some[:, axis], vectors[:, axis]) for axis in range(3))
        closest[start : start + _BATCH] = np.argmax(cosine, axis=1)
    apart = places - vectors[closest]
    distance = _RADIUS_KM * np.sqrt((apart**2).sum(axis=1))
    town = towns[closest]
    with np.errstate(invalid="ignore"):
        around = (distance < 0.5) | (distance < np.sqrt(np.maximum(area_km2[known], 0) / np.pi) / 2)
    east = (lon[known] - here.lon[town] + 180) % 360 - 180
    angle = np.degrees(
        np.arctan2(east * np.cos(np.radians(lat[known])), lat[known] - here.lat[town])
    )
    turn = np.where(around, 8, np.rint(angle / 45).astype(np.int64) % 8)
    used, number = np.unique(town * 9 + turn, return_inverse=True)
    word[known] = np.where(distance > _FARTHEST_KM, -1, number)
    km[known] = np.where(around, np.nan, np.round(distance, 1))
    words = [
        (
            f"around {here.names[key // 9]}"
            if key % 9 == 8
            else f"{_DIRECTIONS[key % 9]} of {here.names[key // 9]}"
        )
        for key in used.tolist()
    ]
    return NearestTowns(words, word, km, _numbers_of_shared_names(word, km, area_km2))


def _numbers_of_shared_names(
    word: NDArray[np.int64], km: Floats, area_km2: Floats
) -> NDArray[np.int64]:
    """Returns 1, 2, ... for places that would share a name, the largest first; 0 for all others."""
    # As names are written: whole kilometres from 10 on.
    shown = np.where(km < 10, km, np.rint(km))
    name = np.unique(
        np.column_stack((word, np.nan_to_num(shown, nan=-1.0))), axis=0, return_inverse=True
    )[1].ravel()
    order, count = np.lexsort((-np.nan_to_num(area_km2), name)), np.bincount(name)
    number = np.empty(len(name), dtype=np.int64)
    number[order] = 1 + np.arange(len(name)) - (np.cumsum(count) - count)[name[order]]
    return np.where((count[name] > 1) & (word >= 0), number, 0)
