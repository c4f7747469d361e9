"""The form of what another version rendered: its words may differ, what it is made of may not.

Members, data sets, shapes and coordinates of text exports follow from the tables whatever the version; and no page of a
release fetches anything by itself.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.verify.files import read_json

_COLLECTION, _FEATURE = {"type", "features"}, {"type", "properties", "geometry"}
_KEPLER, _DATASET = {"datasets", "config", "info"}, {"version", "data"}
_DATA = {"id", "label", "color", "allData", "fields"}
#: Degrees by which places may differ: exports round them.
_TOLERANCE = 1e-5
_FETCHED = re.compile(
    r"<(script|link|iframe|frame|img|image|object|embed|audio|video|source|base|form)\b[^>]*?"
    r"(src|href|data|action|srcset)\s*=\s*[\"']?\s*(https?:|//)|<meta[^>]*http-equiv\s*=\s*[\"']?refresh",
    re.IGNORECASE,
)

Places = Mapping[tuple[str, str], Any]


def check_structure(folder: Path, zones: Any) -> Iterator[str]:
    """Findings on the page and the text exports of another version.

    Args:
        folder: a release that holds in everything else.
        zones: its table of zones.
    """
    if _FETCHED.search((folder / "report.html").read_text(encoding="utf-8", errors="replace")):
        yield "report.html: fetches something from elsewhere"
    for name, problems in _CHECKS.items():
        if not (folder / name).is_file():
            continue
        try:
            yield from (f"{name}: {problem}" for problem in problems(folder / name, zones))
        except Exception:
            # Whatever a broken file makes a reader raise may quote its content.
            yield f"{name}: cannot be read"


def _centres(zones: Any) -> Places:
    """Longitude and latitude by end and code."""
    found = {}
    for row in zones.select(["zone", "role", "lon", "lat"]).to_pylist():
        for end in ("origin", "destination"):
            if row["role"] in (end, "both"):
                found[end, row["zone"]] = (row["lon"], row["lat"])
    return found


def _near(one: Any, other: Any) -> bool:
    a, b = (np.asarray(values, dtype=np.float64) for values in (one, other))
    return a.shape == b.shape and bool(np.all((np.abs(a - b) <= _TOLERANCE) | (np.isnan(a) & np.isnan(b))))


def _features(path: Path) -> tuple[list[Any], int]:
    """The features of a file, and how many members it has that no release has."""
    content = read_json(path)
    strange = len(set(content) - _COLLECTION)
    for feature in content["features"]:
        strange += len(set(feature) - _FEATURE) + len(set(feature["geometry"] or ()) - {"type", "coordinates"})
    return content["features"], strange


def _zones_geojson(path: Path, zones: Any) -> Iterator[str]:
    import shapely

    features, strange = _features(path)
    outlines = {(row["zone"], row["role"]): row["geometry"] for row in zones.to_pylist()}
    elsewhere = 0
    for feature in features:
        said = feature["geometry"] and shapely.from_geojson(json.dumps(feature["geometry"]))
        known = outlines[feature["properties"]["zone"], feature["properties"]["role"]]
        shape = None if known is None else shapely.from_wkb(known)
        same = said is shape if said is None or shape is None else _same_shape(said, shape)
        elsewhere += not same
    yield from _said(strange, elsewhere)


def _same_shape(one: Any, other: Any) -> bool:
    import shapely

    return one.geom_type == other.geom_type and _near(shapely.get_coordinates(one), shapely.get_coordinates(other))


def _flows_geojson(path: Path, zones: Any) -> Iterator[str]:
    features, strange = _features(path)
    centres, elsewhere = _centres(zones), 0
    for feature in features:
        ends = [centres[end, feature["properties"][f"{end}_zone"]] for end in ("origin", "destination")]
        shape = feature["geometry"]
        if shape is not None and shape["coordinates"]:
            elsewhere += shape["type"] != "LineString" or not _near(shape["coordinates"], ends)
    yield from _said(strange, elsewhere)


def _kepler(path: Path, zones: Any) -> Iterator[str]:
    content, centres, elsewhere = read_json(path), _centres(zones), 0
    strange = len(set(content) - _KEPLER)
    if [entry["data"]["id"] for entry in content["datasets"]] != ["flows", "zones"]:
        yield "its data sets are not those of a release"
        return
    for entry in content["datasets"]:
        strange += len(set(entry) - _DATASET) + len(set(entry["data"]) - _DATA)
    data = content["datasets"][0]["data"]
    at = {field["name"]: i for i, field in enumerate(data["fields"])}
    for row in data["allData"]:
        for end in ("origin", "destination"):
            place = [row[at[f"{end}_lng"]], row[at[f"{end}_lat"]]]
            elsewhere += not _near(place, centres[end, row[at[f"{end}_zone"]]])
    yield from _said(strange, elsewhere)


def _locations(path: Path, zones: Any) -> Iterator[str]:
    from flowveil.verify.exports import csv_text

    centres: dict[str, list[Any]] = {}
    for (_, zone), place in _centres(zones).items():
        centres.setdefault(csv_text(zone), []).append(place)
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    places = [([float(row["lon"] or "nan"), float(row["lat"] or "nan")], row["id"]) for row in rows]
    yield from _said(
        sum(row["name"] != row["id"] for row in rows),
        sum(not any(_near(place, known) for known in centres[zone]) for place, zone in places),
    )


def _said(strange: int, elsewhere: int) -> Iterator[str]:
    if strange:
        yield f"has {strange} members or names that no release has"
    if elsewhere:
        yield f"{elsewhere} of its shapes or places are not those of the zones"


_CHECKS: Mapping[str, Callable[[Path, Any], Iterator[str]]] = {
    "zones.geojson": _zones_geojson,
    "flows.geojson": _flows_geojson,
    "kepler.json": _kepler,
    "flowmap_locations.csv": _locations,
}
