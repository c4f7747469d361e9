"""What stands beside the steps of a series, held against the steps: index.json, the totals, the map and the page.

Each step is a release and is recounted as one; here is what only the series says. Totals are added up anew, one cell at
a time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowveil.paths import open_regular
from flowveil.verify.frozen import map_hash
from flowveil.verify.parquet import UNREAD, our_writer, read_layout
from flowveil.verify.revision import releases_of

FORMAT = "flowveil series"
_FILES = {"index.json", "index.html", "totals.parquet", "map.parquet"}
_LABELS = {"month": re.compile(r"\d{4}-\d{2}"), "day": re.compile(r"\d{4}-\d{2}-\d{2}")}
_ENTRIES = {"format", "version", "every", "map_sha256", "steps"}
_OF_STEP = {"step", "revisions", "manifest_sha256", "cells", "trips"}
_MOST_REVISIONS = 10_000
#: What the columns of the two tables hold; those of the map are followed by its metadata.
_KINDS = {
    "totals.parquet": {
        "origin_zone": "text",
        "destination_zone": "text",
        "trips": "count",
        "weight": "sum",
        "steps": "count",
    },
    "map.parquet": {
        "zone": "text",
        "role": "text",
        "level": "level",
        "h3_cells": "texts",
        "tiles": "texts",
        "destinations": "texts",
    },
}


def check_series(place: Path, unread: list[str] | None = None) -> list[str]:
    """One plain line for each way in which the files beside the steps contradict the steps; the steps are believed.

    Args:
        place: the folder of the series.
        unread: gets a line for what cannot be compared, because another version of something wrote it.
    """
    lines: list[str] = [] if unread is None else unread
    index = _index(place)
    if index is None:
        return ["index.json: missing, not readable, or not that of a series"]
    labels = {name for entry in index["steps"] for name in releases_of(entry)}
    there = set(os.listdir(place))
    findings = [f"{n} entries are none of the series" for n in [len(there - _FILES - labels)] if n]
    findings += [f"{name}: missing" for name in sorted((_FILES | labels) - there)]
    if findings:
        return findings
    if map_hash(place / "map.parquet") != index["map_sha256"]:
        return ["map.parquet: is not the map that index.json says"]
    findings = [finding for entry in index["steps"] for finding in _check_step(place, entry, index["map_sha256"])]
    if not findings:
        findings += _check_totals(place, index)
    if not findings:
        findings += [finding for name in _KINDS for finding in _check_writing(place / name, lines)]
    if not findings:
        from flowveil.verify.rendering import check_series_page

        findings += check_series_page(place, index, lines)
    return findings


def check_labels(place: Path, labels: Sequence[str]) -> list[str]:
    """Whether the steps are steps of the input. Others may hold too little; how many do is not published."""
    index = _index(place)
    assert index is not None
    published = {entry["step"] for entry in index["steps"]}
    strange = len(published - set(labels))
    return [f"index.json: {strange} steps have no trip in the input"] if strange else []


def steps_in(place: Path) -> tuple[str, list[list[str]], Path]:
    """Of a series that `check_series` found sound: its step of time, the releases of each step, and its map."""
    index = _index(place)
    assert index is not None
    return index["every"], [releases_of(entry) for entry in index["steps"]], place / "map.parquet"


def _index(place: Path) -> Mapping[str, Any] | None:
    try:
        with open_regular(place / "index.json") as file:
            index = json.load(file)
        form = _LABELS[index["every"]]
        steps = index["steps"]
        fits = (
            index["format"] == FORMAT
            and set(index) == _ENTRIES
            and isinstance(index["version"], str)
            and re.fullmatch(r"[0-9a-f]{64}", index["map_sha256"])
            and len(steps) > 0
            and [s["step"] for s in steps] == sorted({s["step"] for s in steps})
            and all(set(s) == _OF_STEP and form.fullmatch(s["step"]) for s in steps)
            and all(type(s[name]) is int for s in steps for name in ("cells", "trips", "revisions"))
            and all(0 <= s["revisions"] <= _MOST_REVISIONS for s in steps)
        )
        return index if fits else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _check_step(place: Path, entry: Mapping[str, Any], map_sha256: str) -> Iterator[str]:
    folder = place / releases_of(entry)[-1]
    try:
        with open_regular(folder / "manifest.json") as file:
            manifest = file.read()
        with open_regular(folder / "report.json") as file:
            parameters = json.load(file)["parameters"]
    except (OSError, ValueError, KeyError, TypeError):
        yield f"{entry['step']}: holds no release"
        return
    if hashlib.sha256(manifest).hexdigest() != entry["manifest_sha256"]:
        yield f"{entry['step']}: is not the release that index.json says"
    if parameters.get("during") != entry["step"]:
        yield f"{entry['step']}: the release is not of this step"
    if parameters.get("zones_of", map_hash(folder)) != map_sha256:
        yield f"{entry['step']}: its zones are not those of the map"


def _check_totals(place: Path, index: Mapping[str, Any]) -> Iterator[str]:
    import pyarrow as pa

    try:
        steps = [_table(place / releases_of(entry)[-1] / "flows.parquet") for entry in index["steps"]]
        totals = _table(place / "totals.parquet")
    except (OSError, pa.ArrowException):
        yield "totals.parquet: it, or the flows of a step, cannot be read"
        return
    volumes = [name for name in ("trips", "weight") if name in steps[0].column_names]
    expected: dict[tuple[str, str], list[float]] = {}
    for flows in steps:
        for row in flows.to_pylist():
            added = expected.setdefault((row["origin_zone"], row["destination_zone"]), [0] * (len(volumes) + 1))
            for at, name in enumerate(volumes):
                # Weights are whole millionths: sums of these are exact, sums of doubles are not.
                added[at] += row[name] if name == "trips" else round(row[name] * 1_000_000)
            added[-1] += 1
    for added in expected.values() if "weight" in volumes else ():
        added[1] /= 1_000_000
    same = totals.column_names == ["origin_zone", "destination_zone", *volumes, "steps"] and not totals.schema.metadata
    rows = [tuple(row.values()) for row in totals.to_pylist()]
    same = same and [row[:2] for row in rows] == sorted(expected)
    if not same or any(list(row[2:]) != expected[row[0], row[1]] for row in rows):
        yield "totals.parquet: is not the sum of what the steps publish"
    said = [(entry["cells"], entry["trips"]) for entry in index["steps"]]
    if said != [(len(flows), sum(flows["trips"].to_pylist())) for flows in steps]:
        yield "index.json: says other numbers of cells or trips than the steps publish"


def _table(path: Path) -> Any:
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return pq.read_table(io.BytesIO(file.read()))


def _check_writing(path: Path, unread: list[str]) -> Iterator[str]:
    """Whether a table is, to the last byte, what its rows make: there is no other place for a message in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        layout = read_layout(path)
        found = _table(path)
        plain = _plain(found, _KINDS[path.name])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        yield f"{path.name}: cannot be read, or holds more than its rows"
        return
    if layout.written_by != our_writer():
        if not found.schema.equals(plain.schema, check_metadata=True):
            yield f"{path.name}: its columns carry notes that no series has"
        unread.append(f"{path.name}: not compared: {UNREAD} (another version of the library wrote it)")
        return
    made = io.BytesIO()
    pq.write_table(plain, made, compression="zstd", version="2.6")
    with open_regular(path) as file:
        if file.read() != made.getvalue():
            yield f"{path.name}: is not what {layout.written_by} writes for its rows"


def _plain(found: Any, kinds: Mapping[str, str]) -> Any:
    """The rows of a table as a series writes them, with the one entry of metadata that a map has."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    known = {"text": pa.string(), "texts": texts, "count": pa.int64(), "sum": pa.float64(), "level": pa.int32()}
    said = (found.schema.metadata or {}).get(b"flowveil")
    metadata = None if said is None else {b"flowveil": json.dumps(json.loads(said), sort_keys=True).encode()}
    schema = pa.schema([(name, known[kinds[name]]) for name in found.column_names], metadata=metadata)
    return pa.table({name: found[name].to_pylist() for name in found.column_names}, schema=schema)
