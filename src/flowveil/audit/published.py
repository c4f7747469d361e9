"""A release as a reader has it: its published tables and what its report says, nothing else.

Guaranteed: nothing here reads trips, and nothing is assumed that the folder does not say. Where the folder leaves
something open (whether an unlisted pair is below the threshold, whether a cell counts all of its trips), the answer is
the one that lets a reader conclude less.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.release.folder import ReleaseFolder, taken_at_its_word

if TYPE_CHECKING:
    import pyarrow as pa

Counts = NDArray[np.int64]
#: The values of a slice in the order of the slice columns; None where a matrix holds all values.
Key = tuple[str | None, ...]
#: Methods that publish every pair of their zones that reaches the guarantee: what they do not list is short.
_PUBLISH_ALL_SAFE = ("twincut", "odkanon", "oigh", "suppression")

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


@dataclass(frozen=True, eq=False)
class PublishedMatrix:
    """One published matrix: cells between zones, which are named by their text codes.

    Attributes:
        key: the slice that it is of; empty in a release without slices.
        origin, destination: the place of each cell's zones in `PublishedRelease.origin_zones` and
            `.destination_zones`.
        trips, weight: what each cell holds.
    """

    key: Key
    origin: Counts
    destination: Counts
    trips: Counts
    weight: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class PublishedRelease:
    """What a folder says.

    Attributes:
        name: how the audit names it.
        matrices: its matrices; one, unless it has slices.
        slice_columns: the columns that the keys of the matrices are values of.
        origin_zones, destination_zones: the codes of the zones of each end.
        h3_cells: the H3 cells of each zone by its code, where zones are made of them.
        outlines: the outline of each zone by its code, as WKB, where it has one.
        k: of the guarantee, in people or trips; 0 for noise.
        thresholds: the smallest value of a cell by unit, where it is a number.
        homogeneous: the zones of each end are disjoint.
        nodes: cells are pairs of nodes of a tree; not boxes, nor cells with folded times.
        noisy: counts carry noise, so that subtracting them gives nothing that is certain.
        revised: some cells are of the trips as they were, some as they were corrected.
        whole_cells: a published cell counts every trip between its zones.
        tiles: how many tiles each zone can hold, by code and role, where the folder says it.
        most_unlisted: the most trips in a pair of listed zones that is not listed itself; None where that is not known.
        ground: what must be equal for two releases to be of the same trips: the area, and which rows were left out.
        period: first and last day of its trips: of the step that was read, else as the operator declared; else None.
        report: the content of report.json.
        manifest: SHA-256 of its manifest.json; None for tables in memory.
    """

    name: str
    matrices: tuple[PublishedMatrix, ...]
    slice_columns: tuple[str, ...]
    origin_zones: tuple[str, ...]
    destination_zones: tuple[str, ...]
    h3_cells: Mapping[str, Sequence[str]]
    outlines: Mapping[str, bytes]
    k: int
    thresholds: Mapping[str, float]
    homogeneous: bool
    nodes: bool
    noisy: bool
    revised: bool
    whole_cells: bool
    tiles: Mapping[tuple[str, str], int]
    most_unlisted: int | None
    ground: str
    period: tuple[date, date] | None
    report: Mapping[str, Any]
    manifest: str | None = None


def read_release(folder: str | Path) -> PublishedRelease:
    """Read a published folder. Its files are taken at their word; `flowveil verify` checks them.

    Raises:
        ParameterError: it holds no release that can be read.
    """
    release = ReleaseFolder(Path(folder))
    read = published_release(release.flows, release.zones, release.report, name=str(folder))
    try:
        return replace(read, manifest=release.sha256("manifest.json"))
    except OSError:
        return read


def published_release(
    flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], *, name: str = "release"
) -> PublishedRelease:
    """The same from tables in memory: those that would be written as flows.parquet and zones.parquet."""
    with taken_at_its_word(name):
        return _published(flows, zones, report, name)


def _published(flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], name: str) -> PublishedRelease:
    origins, origin = _coded(flows["origin_zone"])
    destinations, destination = _coded(flows["destination_zone"])
    statement = report["statement"]
    columns = tuple(statement.get("slice_columns", ()))
    codes = zones["zone"].to_pylist()
    cells = zones["h3_cells"].to_pylist() if "h3_cells" in zones.column_names else []
    outlines = zones["geometry"].to_pylist() if "geometry" in zones.column_names else []
    parameters, guarantee = report["parameters"], report["guarantee"]
    thresholds = {unit: guarantee.get(unit) for unit in ("trips", "people", "population")}
    kind = report["kind"]
    # A cell of one layer counts the trips that other layers leave.
    whole = statement["suppression"]["rule"] == "short cells" and not {"revised", "layer"} & set(flows.column_names)
    return PublishedRelease(
        name=name,
        matrices=_matrices(flows, origin, destination, columns),
        slice_columns=columns,
        origin_zones=origins,
        destination_zones=destinations,
        h3_cells={code: made_of for code, made_of in zip(codes, cells, strict=False) if made_of},
        outlines={code: outline for code, outline in zip(codes, outlines, strict=False) if outline},
        k=int(guarantee.get("k") or 0),
        thresholds={unit: float(v) for unit, v in thresholds.items() if isinstance(v, int | float)},
        homogeneous=bool(statement["homogeneous"]),
        nodes=statement.get("boxes") is None and kind != "folded",
        noisy=kind == "noisy",
        revised="revised" in flows.column_names,
        whole_cells=whole,
        tiles=_tiles(zones),
        most_unlisted=_most_unlisted(report) if whole else None,
        ground=repr([parameters.get("within"), parameters.get("outside"), parameters.get("skip_unknown")]),
        period=period_of(parameters.get("during")) or period_of((statement.get("about") or {}).get("period")),
        report=report,
    )


def _tiles(zones: pa.Table) -> dict[tuple[str, str], int]:
    if not {"tiles", "role"} <= set(zones.column_names):
        return {}
    rows = zip(*(zones[name].to_pylist() for name in ("zone", "role", "tiles")), strict=True)
    return {(zone, role): n for zone, role, n in rows if n is not None}


def _coded(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Counts]:
    codes, number = np.unique(np.asarray(column.to_pylist(), dtype=np.str_), return_inverse=True)
    return tuple(codes.tolist()), number.astype(np.int64)


def _matrices(
    flows: pa.Table, origin: Counts, destination: Counts, columns: Sequence[str]
) -> tuple[PublishedMatrix, ...]:
    trips = flows["trips"].to_numpy().astype(np.int64)
    weight = flows["weight"].to_numpy().astype(np.float64) if "weight" in flows.column_names else None
    if not columns:
        return (PublishedMatrix((), origin, destination, trips, weight),)
    keys = list(zip(*(flows[name].to_pylist() for name in columns), strict=True))
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    found = []
    for key, listed in rows.items():
        at = np.array(listed)
        own = None if weight is None else weight[at]
        found.append(PublishedMatrix(key, origin[at], destination[at], trips[at], own))
    return tuple(found)


def _most_unlisted(report: Mapping[str, Any]) -> int | None:
    """How many trips a pair of listed zones can hold that is not listed: k - 1, where trips alone decide."""
    guarantee, parameters = report["guarantee"], report["parameters"]
    decided_by_trips = list(guarantee["protect"]) == ["trips"] and guarantee.get("l") is None
    if not decided_by_trips or guarantee.get("locations") is not None:
        return None
    if any(parameters.get(name) is not None for name in ("dominance", "stricter", "t")):
        return None
    if (
        report["statement"].get("zones_of")
        or not report["statement"]["homogeneous"]
        or report["method"] not in _PUBLISH_ALL_SAFE
    ):
        return None
    return int(guarantee["trips"]) - 1


def period_of(text: object) -> tuple[date, date] | None:
    """First and last day of a month, a day or an ISO interval of days (2024-01-01/2024-03-31); None for other text."""
    if not isinstance(text, str):
        return None
    if _MONTH.fullmatch(text):
        year, month = int(text[:4]), int(text[5:])
        return date(year, month, 1), date(year, month, monthrange(year, month)[1])
    try:
        days = [date.fromisoformat(part.strip()) for part in text.split("/")]
    except ValueError:
        return None
    return (days[0], days[-1]) if len(days) <= 2 and days[0] <= days[-1] else None
