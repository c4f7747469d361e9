"""Outlines that a publisher brings for orientation: districts, roads, a shore.

They are published with the release, so only lines and names of the file are used. The published form (`written`) can be
read and written again without a difference, so a page with outlines follows from the files of its folder.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import shapely
from shapely.geometry import shape

from flowveil.errors import DataError
from flowveil.hierarchy import Floats
from flowveil.paths import named_path

#: The file in a release folder.
CONTEXT = "context.geojson"
#: Corners that a release holds, a metre apart; larger files are simplified.
MAX_CORNERS = 20_000
MAX_NAMES, LONGEST_NAME = 500, 80
#: More than a map of a country's municipalities has.
_MOST_BYTES = 200 << 20
_DECIMALS = 5
_LINES, _AREAS = {"LineString", "MultiLineString"}, {"Polygon", "MultiPolygon"}


@dataclass(frozen=True, eq=False)
class Outline:
    """What is drawn of one feature."""

    lines: tuple[Floats, ...]  # longitude and latitude of its lines
    name: str | None  # what it is called, if anything
    label: Sequence[float] | None  # longitude and latitude of the name


def read_own_lines(path: str | PathLike[str]) -> str:
    """Returns the outlines of a GeoJSON file in their published form.

    Raises DataError for a file that is not GeoJSON in degrees, or holds other shapes than lines and polygons, or too
    much.
    """
    place = named_path(path, what="the outlines")
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise DataError(f"The outlines of '{path}' are too large. Hint: simplify them first.")
        text = place.read_text("utf-8")
        content = json.loads(text)
    except OSError as problem:
        raise DataError(f"The outlines of '{path}' cannot be read: {problem.strerror}.") from problem
    except (ValueError, RecursionError) as problem:
        raise DataError(f"'{path}' is not GeoJSON: it cannot be read as JSON in UTF-8.") from problem
    try:
        # The published form is read without changes.
        return written(own_lines(text))
    except ValueError:
        pass
    outlines = [outline for feature in _features(content, path) if (outline := _outline(feature, path)) is not None]
    if not outlines:
        raise DataError(f"'{path}' holds no lines or polygons. Hint: a GeoJSON file of districts or roads.")
    if sum(outline.name is not None for outline in outlines) > MAX_NAMES:
        raise DataError(
            f"'{path}' names more than {MAX_NAMES} outlines, too many for a map. Hint: leave out the property 'name'."
        )
    return written(_thinned(outlines, path))


def written(outlines: Sequence[Outline]) -> str:
    """The text of context.geojson."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "MultiLineString", "coordinates": [line.tolist() for line in outline.lines]},
            "properties": {"name": outline.name, "label": None if outline.label is None else list(outline.label)},
        }
        for outline in outlines
    ]
    content = {"type": "FeatureCollection", "features": features}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def own_lines(text: str) -> tuple[Outline, ...]:
    """Returns the outlines of a context.geojson; raises ValueError if no release can have it."""
    outlines = []
    try:
        for feature in json.loads(text)["features"]:
            name, label = feature["properties"]["name"], feature["properties"]["label"]
            if not isinstance(name, str | None) or (name is None) != (label is None):
                raise ValueError("a name has a place")
            place = None if label is None else _rounded([np.array([label], dtype=np.float64)], least=1)[0][0].tolist()
            lines = _rounded([np.array(line, dtype=np.float64) for line in feature["geometry"]["coordinates"]])
            outlines.append(Outline(lines, name, place))
    except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as problem:
        raise ValueError("not the outlines of a release") from problem
    names = [outline.name for outline in outlines if outline.name is not None]
    if _n_corners(outlines) > MAX_CORNERS or len(names) > MAX_NAMES or any(_unfit(name) for name in names):
        raise ValueError("more than the outlines of a release")
    # Lines and labels that are not in their published form are written differently.
    if written(outlines) != text:
        raise ValueError("not written as a release writes it")
    return tuple(outlines)


def _features(content: Any, path: object) -> Iterator[Mapping[str, Any]]:
    if not isinstance(content, dict):
        raise DataError(f"'{path}' is not GeoJSON. Hint: a file of districts or roads in longitude and latitude.")
    system = json.dumps(content.get("crs"))
    if content.get("crs") is not None and "CRS84" not in system and "4326" not in system:
        raise DataError(f"'{path}' is not in longitude and latitude. Hint: convert it to EPSG:4326 first.")
    kind = content.get("type")
    if kind == "FeatureCollection" and isinstance(content.get("features"), list):
        yield from (feature for feature in content["features"] if isinstance(feature, dict))
    elif kind == "Feature":
        yield content
    else:
        yield {"type": "Feature", "geometry": content, "properties": None}


def _outline(feature: Mapping[str, Any], path: object) -> Outline | None:
    geometry = feature.get("geometry")
    if geometry is None:
        return None
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in _LINES | _AREAS:
        raise DataError(f"'{path}' holds shapes that are neither lines nor polygons. Hint: leave them out of the file.")
    try:
        with np.errstate(invalid="ignore"):
            drawn = shapely.force_2d(shape(geometry))
    except Exception as problem:
        # Whatever a broken shape makes the library raise.
        raise DataError(f"'{path}' holds a shape that cannot be read.") from problem
    if not _in_degrees(shapely.get_coordinates(drawn)):
        raise DataError(f"'{path}' is not in longitude and latitude. Hint: convert it to EPSG:4326 first.")
    borders = shapely.get_parts(drawn.boundary if kind in _AREAS else drawn)
    lines = _rounded([shapely.get_coordinates(border) for border in borders])
    if not lines:
        return None
    properties = feature.get("properties")
    given = properties.get("name") if isinstance(properties, dict) else None
    name = None if given is None else str(given).strip() or None
    if name is None:
        return Outline(lines, None, None)
    if _unfit(name):
        raise DataError(
            f"A name in '{path}' has more than {LONGEST_NAME} signs, or invisible signs. Hint: shorten it, or "
            "leave out the property 'name'."
        )
    at = drawn.representative_point() if kind in _AREAS else drawn.interpolate(0.5, normalized=True)
    return Outline(lines, name, (round(at.x, _DECIMALS), round(at.y, _DECIMALS)))


def _unfit(name: str) -> bool:
    unseen = any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for sign in name)
    return unseen or not 0 < len(name) <= LONGEST_NAME or name != name.strip()


def _n_corners(outlines: Sequence[Outline]) -> int:
    return sum(len(line) for outline in outlines for line in outline.lines)


def _in_degrees(corners: Floats) -> bool:
    return bool(np.all(np.isfinite(corners)) and np.all(np.abs(corners) <= (180.0, 90.0)))


def _rounded(lines: Iterable[Floats], *, least: int = 2) -> tuple[Floats, ...]:
    """Returns lines in degrees with their corners to a metre, none twice in a row; others are left out."""
    kept = []
    for line in lines:
        if line.ndim == 2 and line.shape[1] == 2 and _in_degrees(line):
            # Adding zero makes a negative zero one.
            corners = np.round(line, _DECIMALS) + 0.0
            corners = corners[np.append(True, np.any(corners[1:] != corners[:-1], axis=1))]
            kept += [corners] if len(corners) >= least else []
    return tuple(kept)


def _thinned(outlines: Sequence[Outline], path: object) -> list[Outline]:
    """Returns the same with at most `MAX_CORNERS` corners."""
    tolerance = 10.0**-_DECIMALS
    kept = list(outlines)
    while _n_corners(kept) > MAX_CORNERS:
        tolerance *= 2
        if tolerance > 1:
            raise DataError(f"'{path}' has too many outlines for a map. Hint: leave some out.")
        for at, outline in enumerate(kept):
            drawn = shapely.simplify([shapely.linestrings(line) for line in outline.lines], tolerance)
            kept[at] = replace(outline, lines=_rounded(shapely.get_coordinates(line) for line in drawn))
        kept = [outline for outline in kept if outline.lines]
    return kept
