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
from flowveil.verify.revision import releases_of

FORMAT = "flowveil series"
_FILES = {"index.json", "index.html", "totals.parquet", "map.parquet"}
_LABELS = {"month": re.compile(r"\d{4}-\d{2}"), "day": re.compile(r"\d{4}-\d{2}-\d{2}")}
_ENTRIES = {"format", "version", "every", "map_sha256", "steps"}
_OF_STEP = {"step", "revisions", "manifest_sha256", "cells", "trips"}
_MOST_REVISIONS = 10_000


def check_series(place: Path) -> list[str]:
    """One plain line for each way in which the files beside the steps contradict the steps; the steps are believed."""
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
        from flowveil.verify.rendering import check_series_page

        findings += check_series_page(place, index)
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
            for at, value in enumerate([*(row[name] for name in volumes), 1]):
                added[at] += value
    same = totals.column_names == ["origin_zone", "destination_zone", *volumes, "steps"] and not totals.schema.metadata
    rows = [tuple(row.values()) for row in totals.to_pylist()]
    same = same and [row[:2] for row in rows] == sorted(expected)
    if not same or any(not _close(row[2:], expected[row[0], row[1]]) for row in rows):
        yield "totals.parquet: is not the sum of what the steps publish"
    said = [(entry["cells"], entry["trips"]) for entry in index["steps"]]
    if said != [(len(flows), sum(flows["trips"].to_pylist())) for flows in steps]:
        yield "index.json: says other numbers of cells or trips than the steps publish"


def _table(path: Path) -> Any:
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return pq.read_table(io.BytesIO(file.read()))


def _close(said: Sequence[Any], expected: Sequence[float]) -> bool:
    return all(
        value is not None and abs(value - true) <= 1e-9 * max(1, abs(true))
        for value, true in zip(said, expected, strict=True)
    )
