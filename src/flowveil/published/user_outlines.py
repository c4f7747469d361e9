"""Outlines that a publisher brings for orientation: districts, roads, a shore.

They are published with the release, so of the file that is brought only lines and names are taken: whatever else it
says of its districts stays behind. What is published has one form (`written`), from which it can be read and written
again without a difference; so a page with such outlines follows from the files of its folder like any other.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
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
    label: tuple[float, float] | None  # where the name stands


def read_own_lines(path: str | PathLike[str]) -> str:
    """Returns the outlines of a GeoJSON file in their published form.

    Raises:
        DataError: the file cannot be read, is not GeoJSON in degrees, holds other shapes than lines and polygons, or
            more than can be drawn.
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
    outlines = [outline for feature in _features(content, path) for outline in _outlines(feature, path)]
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
    """The outlines of a context.geojson that a release can have.

    Raises:
        ValueError: no release can have it.
    """
    try:
        content = json.loads(text)
        outlines = tuple(_outline_of(feature) for feature in content["features"])
    except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as problem:
        raise ValueError("not the outlines of a release") from problem
    names = [outline.name for outline in outlines if outline.name is not None]
    corners = sum(len(line) for outline in outlines for line in outline.lines)
    if corners > MAX_CORNERS or len(names) > MAX_NAMES or any(_unfit(name) for name in names):
        raise ValueError("more than the outlines of a release")
    if written(outlines) != text:
        raise ValueError("not written as a release writes it")
    return outlines


def _outline_of(feature: Mapping[str, Any]) -> Outline:
    lines = tuple(_rounded(np.array(line, dtype=np.float64)) for line in feature["geometry"]["coordinates"])
    name, label = feature["properties"]["name"], feature["properties"]["label"]
    point = None if label is None else _rounded(np.array([label, label], dtype=np.float64), least=1)
    if any(line is None for line in lines):
        raise ValueError("a line is not one in degrees")
    if (name is None) != (point is None) or (label is None) != (point is None) or not isinstance(name, str | None):
        raise ValueError("a name has a place")
    kept = tuple(line for line in lines if line is not None)
    return Outline(kept, name, None if point is None else (float(point[0, 0]), float(point[0, 1])))


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


def _outlines(feature: Mapping[str, Any], path: object) -> Iterator[Outline]:
    geometry = feature.get("geometry")
    if geometry is None:
        return
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in _LINES | _AREAS:
        raise DataError(f"'{path}' holds shapes that are neither lines nor polygons. Hint: leave them out of the file.")
    try:
        with np.errstate(invalid="ignore"):
            drawn = shapely.force_2d(shape(geometry))
    except Exception as problem:
        # Whatever a broken shape makes the library raise.
        raise DataError(f"'{path}' holds a shape that cannot be read.") from problem
    if drawn.is_empty:
        return
    borders = shapely.get_parts(drawn.boundary if kind in _AREAS else drawn)
    lines = [_rounded(shapely.get_coordinates(border)) for border in borders]
    if any(line is None and _outside(shapely.get_coordinates(b)) for line, b in zip(lines, borders, strict=True)):
        raise DataError(f"'{path}' is not in longitude and latitude. Hint: convert it to EPSG:4326 first.")
    kept = tuple(line for line in lines if line is not None)
    if kept:
        name = _name(feature.get("properties"), path)
        at = drawn.representative_point() if kind in _AREAS else drawn.interpolate(0.5, normalized=True)
        label = (round(at.x, _DECIMALS), round(at.y, _DECIMALS))
        yield Outline(kept, name, None if name is None else label)


def _name(properties: Any, path: object) -> str | None:
    given = properties.get("name") if isinstance(properties, dict) else None
    if given is None or not str(given).strip():
        return None
    name = str(given).strip()
    if _unfit(name):
        raise DataError(
            f"A name in '{path}' has more than {LONGEST_NAME} signs, or invisible signs. Hint: shorten it, or "
            "leave out the property 'name'."
        )
    return name


def _unfit(name: str) -> bool:
    unseen = any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for sign in name)
    return unseen or not 0 < len(name) <= LONGEST_NAME or name != name.strip()


def _outside(corners: Floats) -> bool:
    return not bool(np.all(np.isfinite(corners)) and np.all(np.abs(corners) <= (180.0, 90.0)))


def _rounded(corners: Floats, *, least: int = 2) -> Floats | None:
    """The corners of a line to a metre, none twice in a row; None where no line is left."""
    if corners.ndim != 2 or corners.shape[1] != 2 or _outside(corners):
        return None
    # Adding zero makes a negative zero one.
    corners = np.round(corners, _DECIMALS) + 0.0
    corners = corners[np.append(True, np.any(corners[1:] != corners[:-1], axis=1))]
    return corners if len(corners) >= least else None


def _thinned(outlines: Sequence[Outline], path: object) -> list[Outline]:
    """The same with fewer corners, as far as a release has room."""
    tolerance = 10.0**-_DECIMALS
    kept = list(outlines)
    while sum(len(line) for outline in kept for line in outline.lines) > MAX_CORNERS:
        tolerance *= 2
        if tolerance > 1:
            raise DataError(f"'{path}' has too many outlines for a map. Hint: leave some out.")
        thinner = []
        for outline in kept:
            drawn = shapely.simplify([shapely.linestrings(line) for line in outline.lines], tolerance)
            lines = (_rounded(shapely.get_coordinates(line)) for line in drawn)
            thinner.append(replace(outline, lines=tuple(line for line in lines if line is not None)))
        kept = [outline for outline in thinner if outline.lines]
    return kept
