"""Where an area is, without the internet: coasts, borders and towns from a small world in the package.

The world is made by ``tools/make_world.py`` and changes with the version only, so what a page shows of it follows from
where the published zones lie. A page holds the part in view and no more.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.hierarchy import Floats

if TYPE_CHECKING:
    from flowveil.published.maps import Frame
    from flowveil.published.user_outlines import Outline

#: Towns that a map names, the largest first, and corners of lines that a page holds.
MAX_TOWNS = 40
MAX_CORNERS = 8_000
#: How much of the area's width is shown around it, and at least, in degrees.
_AROUND, _LEAST = 0.6, 0.3
#: Towns farther away than this are no help, in kilometres.
_FARTHEST_KM = 150.0
_RADIUS_KM = 6371.0088
_DIRECTIONS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
#: Zones whose nearest town is looked for at a time.
_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class World:
    """The world as it is shipped.

    Attributes:
        credit: whom to thank, on every page that shows it.
        names, lat, lon: towns, the largest first.
        lines: coasts and borders, longitude and latitude.
    """

    credit: str
    names: tuple[str, ...]
    lat: Floats
    lon: Floats
    lines: NDArray[np.object_]


@cache
def world() -> World:
    """The world of this version."""
    packed = (files("flowveil.published") / "world" / "world.json.gz").read_bytes()
    content = json.loads(gzip.decompress(packed))
    scale, shift = np.array(content["scale"]), np.array(content["translate"])
    lines = [shapely.linestrings(np.cumsum(arc, axis=0) * scale + shift) for arc in content["arcs"] if len(arc) > 1]
    return World(
        credit=content["credit"],
        names=tuple(content["names"]),
        lat=np.array(content["lat"]) / 1000,
        lon=np.array(content["lon"]) / 1000,
        lines=np.array(lines, dtype=object),
    )


def context_of(bounds: Floats, frame: Frame) -> dict[str, Any] | None:
    """Coasts, borders and towns around an area, in units of a frame; None across the 180th meridian.

    Args:
        bounds: west, south, east, north of the zones, in degrees.
        frame: of the map.

    Returns:
        ``lines`` (each x, y of its first point, then differences), ``towns`` (name, x, y; the largest first) and
        ``credit``.
    """
    if frame.shifted:
        return None
    west, south, east, north = bounds.tolist()
    wide, high = max(_LEAST, _AROUND * (east - west)), max(_LEAST, _AROUND * (north - south))
    west, south, east, north = west - wide, south - high, east + wide, north + high
    here = world()
    cut = shapely.clip_by_rect(here.lines, west, south, east, north)
    parts = shapely.get_parts(cut[~shapely.is_empty(cut)])
    tolerance = max(east - west, north - south) / 4000
    largest = max(east - west, north - south) / 100
    while shapely.get_num_coordinates(parts).sum() > MAX_CORNERS and tolerance < largest:
        parts, tolerance = shapely.simplify(parts, tolerance), tolerance * 2
    # A line keeps two corners however coarse it is: of too many lines the longest stay.
    parts = parts[np.argsort(-shapely.length(parts), kind="stable")]
    parts = parts[np.cumsum(shapely.get_num_coordinates(parts)) <= MAX_CORNERS]
    lines = [_steps(shapely.get_coordinates(part), frame) for part in parts]
    seen = (here.lon > west) & (here.lon < east) & (here.lat > south) & (here.lat < north)
    at = np.flatnonzero(seen)[:MAX_TOWNS]
    units = np.rint(frame.units(np.column_stack((here.lon[at], here.lat[at])))).astype(np.int64)
    towns = [[here.names[i], x, y] for i, (x, y) in zip(at.tolist(), units.tolist(), strict=True)]
    return {"lines": lines, "towns": towns, "credit": here.credit}


def own_context(own: Sequence[Outline], frame: Frame) -> dict[str, Any]:
    """The publisher's outlines, whole (``own_lines``), and their names, those of the largest first (``own_names``)."""
    names = []
    for outline in own:
        if outline.name is not None and outline.label is not None:
            corners = np.vstack(outline.lines)
            x, y = np.rint(frame.units(np.array([outline.label])))[0].astype(np.int64).tolist()
            names.append((-float(np.ptp(corners, axis=0).max()), outline.name, x, y))
    return {
        "own_lines": [_steps(line, frame) for outline in own for line in outline.lines],
        "own_names": [[name, x, y] for _, name, x, y in sorted(names)],
    }


def _steps(corners: Floats, frame: Frame) -> list[int]:
    """A line as its first point and differences, in units of a frame."""
    units = np.rint(frame.units(corners)).astype(np.int64)
    steps: list[int] = np.diff(units, axis=0, prepend=np.zeros((1, 2), dtype=np.int64)).ravel().tolist()
    return steps


def nearest_places(lat: Floats, lon: Floats, area_km2: Floats) -> list[str | None]:
    """Returns distinct names: "around Oakland", or "2.1 km north-east of Oakland"; None without a town or if shared."""
    here = world()
    said: list[str | None] = [None] * len(lat)
    precise = list(said)
    known = np.flatnonzero(~(np.isnan(lat) | np.isnan(lon)))
    if len(known) == 0:
        return said
    # Towns beyond the edges of the area by a degree and a half can be the nearest of none that is near enough.
    spare = 1.5 / max(float(np.cos(np.radians(np.abs(lat[known]).max()))), 0.05)
    near = (here.lat >= lat[known].min() - 1.5) & (here.lat <= lat[known].max() + 1.5)
    near &= (here.lon >= lon[known].min() - spare) & (here.lon <= lon[known].max() + spare)
    towns = np.flatnonzero(near)
    if len(towns) == 0:
        return said
    town = _vectors(here.lat[towns], here.lon[towns])
    for start in range(0, len(known), _AT_ONCE):
        some = known[start : start + _AT_ONCE]
        # The largest scalar product is the smallest angle; of equals the larger town, which stands first.
        closest = np.argmax(_vectors(lat[some], lon[some]) @ town.T, axis=1)
        names = _relative_to_town(lat[some], lon[some], area_km2[some], towns[closest])
        for i, (short, exact) in zip(some.tolist(), names, strict=True):
            said[i], precise[i] = short, exact
    # Places that share a name get a more precise one; those that still share it get none.
    shared = Counter(said)
    said = [exact if shared[short] > 1 else short for short, exact in zip(said, precise, strict=True)]
    shared = Counter(said)
    return [None if shared[name] > 1 else name for name in said]


def _relative_to_town(
    lat: Floats, lon: Floats, area_km2: Floats, town: NDArray[np.int64]
) -> Iterator[tuple[str | None, str | None]]:
    """Yields a short and a precise name of each place, relative to its nearest town."""
    here = world()
    apart = _vectors(lat, lon) - _vectors(here.lat[town], here.lon[town])
    # As the norm of one vector is computed, to the last digit: its square root is taken of a scalar product.
    distance = _RADIUS_KM * np.array([np.linalg.norm(one) for one in apart])
    with np.errstate(invalid="ignore"):
        around = (distance < 0.5) | ((area_km2 > 0) & (distance < np.sqrt(area_km2 / np.pi) / 2))
    east = (lon - here.lon[town] + 180) % 360 - 180
    angle = np.degrees(np.arctan2(east * np.cos(np.radians(lat)), lat - here.lat[town]))
    for far, is_around, turn, name in zip(
        distance.tolist(), around.tolist(), angle.tolist(), [here.names[i] for i in town.tolist()], strict=True
    ):
        direction = f"km {_DIRECTIONS[round(turn / 45) % 8]} of {name}"
        if far > _FARTHEST_KM:
            yield None, None
        elif is_around:
            yield f"around {name}", f"{far:.2f} {direction}"
        else:
            km = f"{far:.1f}" if round(far, 1) < 10 else f"{far:.0f}"
            yield f"{km} {direction}", f"{far:.2f} {direction}"


def _vectors(lat: Floats, lon: Floats) -> Floats:
    a, b = np.radians(lat), np.radians(lon)
    return np.column_stack((np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)))
