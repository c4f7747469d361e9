"""Whether a folder carries anything that no release has: entries, words and metadata where a raw value could hide.

The recount compares what a release has with the raw flows. This looks for what it should not have at all: whoever
hashes a changed folder anew could still leave a note in a corner that no table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flowveil.paths import parse_json, read_json
from flowveil.verify.parquet import read_layout

_MANIFEST = {"about", "format", "version", "sha256", "statement"}
#: What a Parquet file of a release says of itself: pyarrow's own schema, and that it is a GeoParquet.
_METADATA = {b"ARROW:schema", b"geo"}
_GEO = {"columns", "primary_column", "version"}
_GEOMETRY = {"encoding", "geometry_types"}


def check_carriers(place: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """Findings on entries of manifest.json, and on the metadata of both tables; the schema knows those of report.json.

    Args:
        place: the folder; its tables have passed the check of their layout.
        report: the content of report.json.
    """
    # It could be read for its hashes.
    manifest = read_json(place / "manifest.json")
    n = len(set(manifest) - _MANIFEST)
    if n:
        yield f"manifest.json has {n} entries that no release has"
    if manifest.get("statement", []) != report["statement"]:
        yield "manifest.json: its statement is not that of report.json"
    if manifest.get("about") != report["about"]:
        yield "manifest.json: what it is about is not what report.json says"
    if manifest.get("version") != report["version"] or manifest.get("format") != "flowveil release":
        yield "manifest.json: its version or format is not that of report.json"
    for name in ("flows.parquet", "zones.parquet"):
        yield from _strange_metadata(name, place / name)


def _strange_metadata(name: str, path: Path) -> Iterator[str]:
    entries = read_layout(path).metadata
    keys = [key for key, _ in entries]
    n = sum(key not in _METADATA for key in keys) + len(keys) - len(set(keys))
    n += sum(not _is_geo(value) for key, value in entries if key == b"geo")
    if n:
        yield f"{name}: has {n} entries in its metadata that no release has"


def _is_geo(value: bytes) -> bool:
    """Whether metadata says what a GeoParquet of a release says, and no more."""
    try:
        geo = parse_json(value)
        columns = geo["columns"]
        return set(geo) <= _GEO and set(columns) == {"geometry"} and set(columns["geometry"]) <= _GEOMETRY
    except (ValueError, KeyError, TypeError):
        return False
