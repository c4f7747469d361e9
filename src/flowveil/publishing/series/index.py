"""The files next to the steps of a series: index.json, totals.parquet, the page and dcat.jsonld.

All are functions of what the steps publish, and of nothing else: totals are sums of published
cells, so they disclose nothing that the steps do not. `check_index` compares them with the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil import __version__
from flowveil.core.errors import FlowveilError
from flowveil.published.catalogue import dcat_series, json_text
from flowveil.published.folder import MANIFEST
from flowveil.published.html import render_series
from flowveil.published.tables import ENDS, SUMS, add_up
from flowveil.publishing.series.derived import DERIVED, check_derived, days_of
from flowveil.release.folder import ReleaseFolder
from flowveil.release.zone_map import FrozenMap
from flowveil.system.output import Content, write_files
from flowveil.zoning.files import ZoneMap

FORMAT = "flowveil series"
INDEX, PAGE, TOTALS, MAP = "index.json", "index.html", "totals.parquet", "map.parquet"
#: Metadata for data portals, where a publisher or a contact is declared.
METADATA = "dcat.jsonld"


def write_index(
    place: Path, steps: Sequence[str], *, every: str, map_sha256: str
) -> dict[str, Any]:
    """Writes index.json, totals.parquet and the page of the published steps together.

    Returns the first's content.
    """
    files, index = index_files(place, steps, every=every, map_sha256=map_sha256)
    write_files({place / name: content for name, content in files.items()})
    return index


def index_files(
    place: Path, steps: Sequence[str], *, every: str, map_sha256: str
) -> tuple[dict[str, Content], dict[str, Any]]:
    """Returns the files that are computed from the steps, and the content of index.json."""
    folders = {
        step: ReleaseFolder(newest) for step, newest in newest_releases(place, steps).items()
    }
    tables = {step: (folder.flows, folder.zones) for step, folder in folders.items()}
    index = {
        "format": FORMAT,
        "version": __version__,
        "every": every,
        "map_sha256": map_sha256,
        "steps": [
            {
                "step": step,
                "revisions": len(releases_of(place, step)) - 1,
                # The manifest has the hashes of all files.
                "manifest_sha256": folder.sha256(MANIFEST),
                "cells": len(folder.flows),
                "trips": sum(folder.flows["trips"].to_pylist()),
            }
            for step, folder in folders.items()
        ],
    }
    totals = totals_of([flows for flows, _ in tables.values()])
    files: dict[str, Content] = {
        INDEX: json.dumps(index, sort_keys=True, indent=2, ensure_ascii=False) + "\n",
        TOTALS: lambda path: pq.write_table(totals, path, compression="zstd", version="2.6"),
        PAGE: render_series(index, tables),
    }
    metadata = dcat_series(
        {folder.path.name: folder.report for folder in folders.values()},
        list(tables.values())[-1][1],
        every=every,
        period=(str(days_of(steps[0])[0]), str(days_of(steps[-1])[1])),
    )
    if metadata is not None:
        files[METADATA] = json_text(metadata)
    return files, index


def check_index(place: Path, zones: ZoneMap | None = None) -> list[str]:
    """Returns one line for each file of a series that its steps do not produce.

    The steps are not checked.
    """
    index = read_index(place)
    if index is None:
        return ["index.json: missing, not readable, or not that of a series"]
    try:
        steps = [str(entry["step"]) for entry in index["steps"]]
        frozen = FrozenMap.read(place / MAP)
        folders = {path.name for step in steps for path in releases_of(place, step)}
        if frozen.sha256 != index["map_sha256"]:
            return ["map.parquet: is not the map of index.json"]
        files, _ = index_files(place, steps, every=str(index["every"]), map_sha256=frozen.sha256)
        strange = {path.name for path in place.iterdir()} - folders - {*files, MAP, DERIVED}
        if strange:
            return [f"{len(strange)} entries are not part of the series"]
        newest = newest_releases(place, steps)
        findings = [
            line
            for step, folder in newest.items()
            for line in _check_step(step, folder, frozen.sha256)
        ]
        findings += check_derived(place, newest, zones)
    except (OSError, KeyError, TypeError, ValueError, FlowveilError, pa.ArrowException):
        return ["the series cannot be made again from its steps"]
    with TemporaryDirectory(prefix="flowveil-series-") as made:
        write_files({Path(made) / name: content for name, content in files.items()})
        frozen.write(Path(made) / MAP)
        for name in (*files, MAP):
            if (Path(made) / name).read_bytes() != (place / name).read_bytes():
                findings.append(f"{name}: is not what the steps produce")
    return findings


def _check_step(step: str, newest: Path, map_sha256: str) -> Iterator[str]:
    statement = ReleaseFolder(newest).statement
    if statement.parameters.get("during") != step:
        yield f"{step}: the release is not of this step"
    if (statement.zones_of or FrozenMap.read(newest).sha256) != map_sha256:
        yield f"{step}: its zones are not those of the map"


def releases_of(place: Path, step: str) -> list[Path]:
    """The folders of a step: the first release, then its revisions."""
    found = [place / step]
    while (revised := place / f"{step}-r{len(found)}").is_dir():
        found.append(revised)
    return found


def newest_releases(place: Path, steps: Sequence[str]) -> dict[str, Path]:
    """The folder of the newest release of each step."""
    return {step: releases_of(place, step)[-1] for step in steps}


def totals_of(steps: Sequence[pa.Table]) -> pa.Table:
    """The cells of all steps added up, sorted; ``steps`` says in how many a cell is published."""
    volumes = [name for name in steps[0].column_names if name in SUMS]
    stacked = pa.concat_tables([table.select([*ENDS, *volumes]) for table in steps])
    counted = stacked.group_by(list(ENDS), use_threads=False).aggregate([("trips", "count")])
    in_order = counted.sort_by([(name, "ascending") for name in ENDS])
    return add_up(stacked, ENDS)[0].append_column("steps", in_order["trips_count"]).combine_chunks()


def read_index(place: Path) -> Mapping[str, Any] | None:
    """Returns the content of index.json; None if it is missing."""
    try:
        content = json.loads((place / INDEX).read_text(encoding="utf-8"))
        return content if content.get("format") == FORMAT else None
    except (OSError, ValueError, AttributeError):
        return None
