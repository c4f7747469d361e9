"""The form of what another version rendered: its words may differ, what it is made of may not.

Members, data sets, shapes and coordinates of text exports follow from the tables whatever the version; and no page of a
release fetches anything by itself. What is left is named in `NOT_READ`, and nowhere else.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.paths import read_json
from flowveil.verify.exports import csv_text
from flowveil.verify.geopackage import cut_at_date_line

#: What nobody compares in a release of another version, by file: its words, and how it writes and draws. `verify`
#: prints the lines of the files that a folder has; docs/threat-model.md has them all.
_TEXTS = "text exports"
NOT_READ: Mapping[str, str] = {
    "report.html": "words, numbers, pictures and scripts of the page; only that its policy lets it fetch nothing",
    "report.json": "words of 'statement', 'command' and the reasons for withholding",
    "kepler.json": "'config' and 'info': how the map is drawn",
    _TEXTS: "how rows are ordered and numbers are written, beyond a hundred-thousandth of a degree or square kilometre",
}

_COLLECTION, _FEATURE = {"type", "features", "metadata"}, {"type", "properties", "geometry"}
_KEPLER, _DATASET = {"datasets", "config", "info"}, {"version", "data"}
_DATA = {"id", "label", "color", "allData", "fields"}
_FIELD, _FIELD_WORDS = {"name", "type", "format", "analyzerType"}, {"", "integer", "real", "string", "geojson"}
#: Degrees, or square kilometres, by which places and areas may differ: exports round them.
_TOLERANCE = 1e-5
_PLACES = ("lat", "lon", "area_km2")
#: How a page begins, up to the policy that browsers hold it to. Nothing here, nor below, looks further than a tag: a
#: page may be long, and made to be looked at for ever.
_POLICY = re.compile(
    r"\s{0,9}<!doctype html>\s{0,9}<html[^<>]{0,99}>\s{0,9}<head>\s{0,9}"
    r"(?:<meta (?!http-equiv)[^<>]{0,199}>\s{0,9}){0,9}"
    r"<meta http-equiv=\"Content-Security-Policy\" content=\"([^\"<>]{1,999})\">",
    re.IGNORECASE,
)
#: What the policy of a page of a release allows: what the page itself holds, and pictures of its background map.
_INLINE = {"style-src": {"'unsafe-inline'", "'none'"}, "script-src": {"'unsafe-inline'", "'none'"}}
_CLOSED = ("default-src", "base-uri", "form-action")
_FETCHED = re.compile(
    r"<(?:script|link|iframe|frame|img|image|object|embed|audio|video|source|base|form)\b[^<>]{0,999}?"
    r"\b(?:src|href|data|action|srcset)\s{0,9}=\s{0,9}[\"']?\s{0,9}(?:https?:|//)"
    r"|http-equiv\s{0,9}=\s{0,9}[\"']?\s{0,9}refresh",
    re.IGNORECASE,
)

Places = Mapping[tuple[str, str], Any]


def check_structure(folder: Path, zones: Any, *, basemap: str | None) -> Iterator[str]:
    """Findings on the page and the text exports of another version.

    Args:
        folder: a release that holds in everything else.
        zones: its table of zones.
        basemap: the address of its background map.
    """
    page = (folder / "report.html").read_text(encoding="utf-8", errors="replace")
    if not _keeps_to_itself(page, basemap) or _FETCHED.search(page):
        yield "report.html: fetches something from elsewhere, or may"
    del page
    for name, problems in _CHECKS.items():
        if not (folder / name).is_file():
            continue
        try:
            yield from (f"{name}: {problem}" for problem in problems(folder / name, zones))
        except Exception:
            # Whatever a broken file makes a reader raise may quote its content.
            yield f"{name}: cannot be read"


def _keeps_to_itself(page: str, basemap: str | None) -> bool:
    """Whether a page begins with a policy by which browsers let it fetch nothing but pictures of its background map."""
    found = _POLICY.match(page)
    if found is None:
        return False
    pictures = {"'none'", "data:"} if basemap is None else {"https://" + basemap.split("/")[2]}
    allowed = {**{name: {"'none'"} for name in _CLOSED}, **_INLINE, "img-src": pictures}
    rules = [rule.split() for rule in found[1].split(";") if rule.strip()]
    names = [rule[0].lower() for rule in rules]
    return (
        len(names) == len(set(names))
        and set(_CLOSED) <= set(names) <= set(allowed)
        and all(set(rule[1:]) <= allowed[name] for name, rule in zip(names, rules, strict=True))
    )


def not_read(folder: Path) -> list[str]:
    """The lines of `NOT_READ` on the files that a folder has."""
    present = {path.name for path in folder.iterdir()}
    if any(name.endswith((".csv", ".geojson")) for name in present):
        present.add(_TEXTS)
    return [f"{name}: not read: {what}" for name, what in NOT_READ.items() if name in present]


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
    # Words that are not those of the report would be read by nobody who checks it.
    strange += content.get("metadata", {}) != read_json(path.with_name("report.json")).get("about", {})
    for feature in content["features"]:
        strange += len(set(feature) - _FEATURE) + len(set(feature["geometry"] or ()) - {"type", "coordinates"})
    return content["features"], strange


def _zones_geojson(path: Path, zones: Any) -> Iterator[str]:
    features, strange = _features(path)
    known = _known(zones)
    elsewhere = sum(
        not _as_known(known[f["properties"]["zone"], f["properties"]["role"]], f["properties"], f["geometry"])
        for f in features
    )
    yield from _said(strange, elsewhere)


def _known(zones: Any, *, csv: bool = False) -> dict[tuple[str, str], dict[str, Any]]:
    """The row of each zone, by code and role, codes as they stand in a CSV file or as they are."""
    return {((csv_text(row["zone"]) if csv else row["zone"]), row["role"]): row for row in zones.to_pylist()}


def _as_known(row: Mapping[str, Any], said: Mapping[str, Any], geometry: Any) -> bool:
    """Whether an export places a zone as its row does: centre and area as far as it has them, and the outline."""
    import shapely

    if not all(_near(_number(said[name]), _number(row[name])) for name in _PLACES if name in said):
        return False
    if isinstance(geometry, str):
        shape = shapely.from_wkt(geometry) if geometry else None
    else:
        shape = None if geometry is None else shapely.from_geojson(json.dumps(geometry))
    outline = None if row["geometry"] is None else shapely.from_wkb(row["geometry"])
    return shape is outline if shape is None or outline is None else _same_shape(shape, outline)


def _number(said: Any) -> float:
    return float("nan" if said is None or said == "" else said)


def _zones_csv(path: Path, zones: Any) -> Iterator[str]:
    known = _known(zones, csv=True)
    yield from _said(
        0, sum(not _as_known(known[row["zone"], row["role"]], row, row["geometry"]) for row in _rows(path))
    )


def _omx_zones(path: Path, zones: Any) -> Iterator[str]:  # noqa: ARG001  # every check gets the zones
    rows = _rows(path)
    yield from _said(sum(row["index"] != str(number) for number, row in enumerate(rows, 1)), 0)


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def _same_shape(one: Any, other: Any) -> bool:
    import shapely

    corners = [shapely.get_coordinates(shape, include_z=bool(shapely.has_z(shape))) for shape in (one, other)]
    return one.geom_type == other.geom_type and _near(*corners)


def _flows_geojson(path: Path, zones: Any) -> Iterator[str]:
    features, strange = _features(path)
    centres, elsewhere = _centres(zones), 0
    for feature in features:
        ends = [centres[end, feature["properties"][f"{end}_zone"]] for end in ("origin", "destination")]
        shape = feature["geometry"]
        if shape is not None and shape["coordinates"]:
            parts = cut_at_date_line(*ends)
            expected = ("LineString", parts[0]) if len(parts) == 1 else ("MultiLineString", parts)
            elsewhere += shape["type"] != expected[0] or not _near(shape["coordinates"], expected[1])
    yield from _said(strange, elsewhere)


def _kepler(path: Path, zones: Any) -> Iterator[str]:
    content, centres, elsewhere = read_json(path), _centres(zones), 0
    strange = len(set(content) - _KEPLER)
    if [entry["data"]["id"] for entry in content["datasets"]] != ["flows", "zones"]:
        yield "its data sets are not those of a release"
        return
    for entry in content["datasets"]:
        strange += len(set(entry) - _DATASET) + len(set(entry["data"]) - _DATA) + _strange_words(entry)
    flows, listed = (_kepler_rows(entry["data"]) for entry in content["datasets"])
    for row in flows:
        for end in ("origin", "destination"):
            elsewhere += not _near([row[f"{end}_lng"], row[f"{end}_lat"]], centres[end, row[f"{end}_zone"]])
    known = _known(zones)
    for row in listed:
        feature, shape = row["_geojson"], None
        if feature is not None:
            shape = feature["geometry"]
            strange += len(set(feature) - _FEATURE) + len(feature["properties"]) + (feature["type"] != "Feature")
            strange += len(set(shape) - {"type", "coordinates"})
        elsewhere += not _as_known(known[row["zone"], row["role"]], row, shape)
    yield from _said(strange, elsewhere)


def _kepler_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [field["name"] for field in data["fields"]]
    return [dict(zip(names, row, strict=True)) for row in data["allData"]]


def _strange_words(entry: Mapping[str, Any]) -> int:
    """Texts of a data set, beside its rows, that are none of kepler's own."""
    data = entry["data"]
    colour = [type(part) is int and 0 <= part <= 255 for part in data["color"]]
    strange: int = (entry["version"] != "v1") + (data["label"] != data["id"]) + (colour != [True] * 3)
    for field in data["fields"]:
        strange += len(set(field) - _FIELD)
        strange += sum(value not in _FIELD_WORDS for name, value in field.items() if name != "name")
    return strange


def _locations(path: Path, zones: Any) -> Iterator[str]:
    centres: dict[str, list[Any]] = {}
    for (_, zone), place in _centres(zones).items():
        centres.setdefault(csv_text(zone), []).append(place)
    rows = _rows(path)
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
    "zones.csv": _zones_csv,
    "omx_zones.csv": _omx_zones,
}
