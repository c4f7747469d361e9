"""Whether a folder carries anything that no release has: entries, words and metadata where a raw value could hide.

The recount compares what a release has with the raw flows. This looks for what it should not have at all: whoever
hashes a changed folder anew could still leave a note in a corner that no table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flowveil.verify.files import parse_json, read_json
from flowveil.verify.parquet import read_layout

_MANIFEST = {"format", "version", "sha256", "statement"}
_MEASURES = {
    "c_avg",
    "c_dm",
    "cells_under_k_people",
    "cells_under_k_population",
    "cells_under_k_trips",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "k_people",
    "k_population",
    "k_trips",
    "mean_generalization_error",
    "n_cells",
    "n_destination_zones",
    "n_origin_zones",
    "reconstruction_loss",
    "suppressed_share",
}
_REPORT = {
    "basemap",
    "boxes",
    "command",
    "cross_check",
    "guarantee",
    "homogeneous",
    "kind",
    "measures",
    "method",
    "notes",
    "parameters",
    "statement",
    "suppression",
    "version",
    "withheld",
}
_OF_FAMILIES = {"differencing", "slice_columns", "slices", "unpublished_slices"}
#: The entries of what stands inside an entry. The others hold what a user or a method named.
_INSIDE = {
    "boxes": {"disjoint", "finer_than_tiles", "grid_lat", "grid_lon"},
    "differencing": {"comparisons", "differences", "short", "unchecked"},
    "guarantee": {"k", "locations", "people", "population", "protect", "trips"},
    "measures": {"trips", "weight"},
    "suppression": {"beta", "levels", "rule"},
    "withheld": {"measures", "reason"},
}
#: What a Parquet file of a release says of itself: pyarrow's own schema, and that it is a GeoParquet.
_METADATA = {b"ARROW:schema", b"geo"}
_GEO = {"columns", "primary_column", "version"}
_GEOMETRY = {"encoding", "geometry_types"}


def check_carriers(place: Path) -> Iterator[str]:
    """Findings on entries of report.json and manifest.json, and on the metadata of both tables.

    Args:
        place: the folder; its report is readable, and its tables have passed the check of their layout.
    """
    report = read_json(place / "report.json")
    yield from _strange("report.json", report, _REPORT | (_OF_FAMILIES if "slices" in report else set()))
    for name, allowed in _INSIDE.items():
        yield from _strange(f"report.json: '{name}'", report.get(name), allowed)
    for measures in [report.get("measures"), *(part.get("measures") for part in report.get("slices", ()))]:
        for values in (measures or {}).values():
            yield from _strange("report.json: measures", values, _MEASURES)
    for part in report.get("slices", ()):
        yield from _strange("report.json: a slice", part, {"measures", "slice", "withheld"})
        yield from _strange("report.json: a slice", part.get("slice"), set(report.get("slice_columns", ())))
    manifest = _manifest(place)
    yield from _strange("manifest.json", manifest, _MANIFEST)
    if manifest.get("statement", []) != report.get("statement", []):
        yield "manifest.json: its statement is not that of report.json"
    if manifest.get("version") != report.get("version") or manifest.get("format") != "flowveil release":
        yield "manifest.json: its version or format is not that of report.json"
    for name in ("flows.parquet", "zones.parquet"):
        yield from _strange_metadata(name, place / name)


def _manifest(place: Path) -> Mapping[str, Any]:
    try:
        found = read_json(place / "manifest.json")
    except (OSError, ValueError):
        # Said by the check of the manifest.
        return {}
    return found if isinstance(found, Mapping) else {}


def _strange(where: str, found: Any, allowed: set[str]) -> Iterator[str]:
    """Entries that nothing of a release has; counted, not quoted: their names may be the message."""
    n = len(set(found) - allowed) if isinstance(found, Mapping) else 0
    if n:
        yield f"{where} has {n} entries that no release has"


def _strange_metadata(name: str, path: Path) -> Iterator[str]:
    entries = read_layout(path).metadata
    keys = [key for key, _ in entries]
    n = sum(key not in _METADATA for key in keys) + len(keys) - len(set(keys))
    for key, value in entries:
        if key == b"geo":
            geo = parse_json(value)
            columns = geo.get("columns", {})
            n += len(set(geo) - _GEO) + len(set(columns) - {"geometry"})
            n += len(set(columns.get("geometry", {})) - _GEOMETRY)
    if n:
        yield f"{name}: has {n} entries in its metadata that no release has"
