"""Outlines and places that a publisher brings: districts, roads, a shore, stations.

They are published with the release, so only lines and names of the file are used. The published
form (`written`) can be read and written again without a difference, so a page with outlines follows
from the files of its folder.
"""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import shapely
from shapely.geometry import shape

from flowveil.core.arrays import Floats
from flowveil.core.errors import DataError
from flowveil.system.paths import named_path

#: The file in a release folder.
CONTEXT = "context.geojson"
#: Corners that a release holds, a metre apart; larger files are simplified.
MAX_CORNERS = 20_000
MAX_NAMES, LONGEST_NAME = 500, 80
#: More than a map of a country's municipalities has.
_MOST_BYTES = 200 << 20
_DECIMALS = 5
_LINES, _AREAS = {"LineString", "MultiLineString"}, {"Polygon", "MultiPolygon"}
#: A place that the publisher names: it has a name and no line.
_PLACE = "Point"
#: The columns of a table of places.
_PLACE_COLUMNS = ("name", "lat", "lon")


@dataclass(frozen=True, eq=False)
class Outline:
    """What is drawn of one feature."""

    lines: tuple[Floats, ...]  # longitude and latitude of its lines; none of a place
    name: str | None  # what it is called, if anything
    label: list[float] | None  # longitude and latitude of the name


def read_own_lines(path: str | PathLike[str]) -> str:
    """Returns the outlines of a GeoJSON file in published form.

    DataError for other content, shapes or too much.
    """
    place = named_path(path, what="the outlines")
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise DataError(f"The outlines of '{path}' are too large. Hint: simplify them first.")
        is_table = place.suffix.lower() == ".csv"
        content = (
            _places(place.read_text("utf-8-sig"), path)
            if is_table
            else json.loads(place.read_text("utf-8"))
        )
        outlines = list(_outlines(content, path))
    except DataError:
        raise
    except OSError as problem:
        raise DataError(
            f"The outlines of '{path}' cannot be read: {problem.strerror}."
        ) from problem
    except Exception as problem:
        # Whatever a broken file makes the libraries raise.
        raise DataError(
            f"'{path}' is not GeoJSON or CSV that can be read. Hint: a file of districts or roads,"
            " or a table of places."
        ) from problem
    if not outlines:
        raise DataError(
            f"'{path}' holds no lines, polygons or named points. Hint: a GeoJSON file of"
            " districts or roads."
        )
    if sum(outline.name is not None for outline in outlines) > MAX_NAMES:
        raise DataError(
            f"'{path}' names more than {MAX_NAMES} outlines, too many for a map. Hint: leave out"
            " the property 'name'."
        )
    return written(_thinned(outlines, path))


def _places(text: str, path: object) -> dict[str, Any]:
    """Returns the rows of a table of places as named points of GeoJSON."""
    rows = csv.DictReader(text.splitlines())
    missing = [name for name in _PLACE_COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise DataError(
            f"'{path}' has no column {' and no '.join(missing)}. Hint: a table of places has the"
            f" columns {', '.join(_PLACE_COLUMNS)}; outlines are GeoJSON."
        )
    features = [
        {
            "type": "Feature",
            "geometry": {"type": _PLACE, "coordinates": [float(row["lon"]), float(row["lat"])]},
            "properties": {"name": row["name"]},
        }
        for row in rows
    ]
    return {"type": "FeatureCollection", "features": features}


def written(outlines: Sequence[Outline]) -> str:
    """The text of context.geojson."""
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "MultiLineString",
                "coordinates": [line.tolist() for line in outline.lines],
            },
            "properties": {"name": outline.name, "label": outline.label},
        }
        for outline in outlines
    ]
    content = {"type": "FeatureCollection", "features": features}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def own_lines(text: str) -> tuple[Outline, ...]:
    """Returns the outlines of a context.geojson; raises ValueError if no release can have it."""
    try:
        outlines = tuple(_outlines(json.loads(text), CONTEXT))
    except Exception as problem:
        # Whatever a broken file makes the libraries raise.
        raise ValueError("not the outlines of a release") from problem
    n_names = sum(outline.name is not None for outline in outlines)
    # What is not in its published form is written differently.
    if _n_corners(outlines) > MAX_CORNERS or n_names > MAX_NAMES or written(outlines) != text:
        raise ValueError("not written as a release writes it")
    return outlines


def _outlines(content: Mapping[str, Any], path: object) -> Iterator[Outline]:
    """Yields the lines and names of GeoJSON.

    That of a release has the places of names, which stay as they are.
    """
    kind, system = content.get("type"), json.dumps(content.get("crs"))
    single = content if kind == "Feature" else {"geometry": content}
    is_foreign = content.get("crs") is not None and "CRS84" not in system and "4326" not in system
    for feature in content["features"] if kind == "FeatureCollection" else [single]:
        if feature.get("geometry") is None:
            continue
        with np.errstate(invalid="ignore"):
            drawn = shapely.force_2d(shape(feature["geometry"]))
        if drawn.geom_type not in _LINES | _AREAS | {_PLACE}:
            raise DataError(
                f"'{path}' holds shapes that are neither lines, polygons nor points. Hint: leave"
                " them out."
            )
        if is_foreign or not _in_degrees(shapely.get_coordinates(drawn)):
            raise DataError(
                f"'{path}' is not in longitude and latitude. Hint: convert it to EPSG:4326 first."
            )
        is_area, is_place = drawn.geom_type in _AREAS, drawn.geom_type == _PLACE
        borders = [] if is_place else shapely.get_parts(drawn.boundary if is_area else drawn)
        lines = _rounded(shapely.get_coordinates(border) for border in borders)
        properties = feature.get("properties") or {}
        given = properties.get("name")
        name = None if given is None else str(given).strip() or None
        if name is not None and _unfit(name):
            raise DataError(
                f"A name in '{path}' has more than {LONGEST_NAME} signs, or invisible signs. Hint:"
                " shorten it, or leave out the property 'name'."
            )
        # A place in its published form has no line.
        is_place = is_place or (drawn.is_empty and properties.get("label") is not None)
        if lines or (is_place and name is not None):
            middle = drawn
            if not is_place:
                middle = (
                    drawn.representative_point()
                    if is_area
                    else drawn.interpolate(0.5, normalized=True)
                )
            yield Outline(
                lines, name, None if name is None else _label(properties.get("label"), middle)
            )


def _label(given: Any, middle: shapely.Point) -> list[float]:
    """Returns the place of a name: the one that is given, if it is one, else the middle of its
    outline.
    """
    is_pair = (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(axis, int | float) for axis in given)
    )
    is_place = is_pair and _in_degrees(np.array([given], dtype=np.float64))
    # Adding zero makes a negative zero one.
    if not is_place and middle.is_empty:
        raise ValueError("a name without a place")
    return [
        round(float(axis), _DECIMALS) + 0.0
        for axis in (given if is_place else (middle.x, middle.y))
    ]


def _unfit(name: str) -> bool:
    unseen = any(
        unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for sign in name
    )
    return unseen or not 0 < len(name) <= LONGEST_NAME or name != name.strip()


def _n_corners(outlines: Sequence[Outline]) -> int:
    return sum(len(line) for outline in outlines for line in outline.lines)


def _in_degrees(corners: Floats) -> bool:
    return bool(np.all(np.isfinite(corners)) and np.all(np.abs(corners) <= (180.0, 90.0)))


def _rounded(lines: Iterable[Floats]) -> tuple[Floats, ...]:
    """Returns lines in degrees with their corners to a metre, none twice in a row.

    Others are left out.
    """
    kept = []
    for line in lines:
        if line.ndim == 2 and line.shape[1] == 2 and _in_degrees(line):
            # Adding zero makes a negative zero one.
            corners = np.round(line, _DECIMALS) + 0.0
            corners = corners[np.append(True, np.any(corners[1:] != corners[:-1], axis=1))]
            kept += [corners] if len(corners) > 1 else []
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
            drawn = shapely.simplify(
                [shapely.linestrings(line) for line in outline.lines], tolerance
            )
            kept[at] = replace(
                outline, lines=_rounded(shapely.get_coordinates(line) for line in drawn)
            )
        kept = [
            outline
            for outline, before in zip(kept, outlines, strict=True)
            if outline.lines or not before.lines
        ]
        outlines = list(kept)
    return kept
