"""A release as a reader has it: its published tables and what its report says, nothing else.

Guaranteed: nothing here reads trips or assumes what the folder does not say. Where the folder
leaves something open (whether an unlisted pair is below the threshold), the answer lets a reader
conclude less. Also decides, from what releases state, which of their matrices are of the same
trips, of a part of them, or of others.
"""

from __future__ import annotations

import hashlib
import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts
from flowveil.core.flows import group_pairs
from flowveil.release.facets import Facets
from flowveil.release.folder import ReleaseFolder, taken_at_its_word

if TYPE_CHECKING:
    import pyarrow as pa

#: The values of a slice in the order of the slice columns; None where a matrix holds all values.
Key = tuple[str | None, ...]
#: Methods that publish every pair of their zones that reaches the guarantee: what they do not list
#: is short.
_PUBLISH_ALL_SAFE = ("twincut", "odkanon", "oigh", "suppression")

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


@dataclass(frozen=True, eq=False)
class PublishedMatrix:
    """One published matrix: cells between zones, which are named by their text codes."""

    key: Key  # the slice that it is of; empty in a release without slices
    # the place of each cell's zones in `PublishedRelease.origin_zones` and `.destination_zones`
    origin: Counts
    destination: Counts
    trips: Counts  # what each cell holds
    weight: NDArray[np.float64] | None
    layer: Counts | None = None  # of each cell, where the release has layers


@dataclass(frozen=True, eq=False)
class PublishedRelease:
    """What a folder says."""

    name: str  # how the audit names it
    matrices: tuple[PublishedMatrix, ...]  # its matrices; one, unless it has slices
    slice_columns: tuple[str, ...]  # the columns that the keys of the matrices are values of
    origin_zones: tuple[str, ...]  # the codes of the zones of each end
    destination_zones: tuple[str, ...]
    h3_cells: Mapping[
        str, Sequence[str]
    ]  # the H3 cells of each zone by its code, where zones are made of them
    outlines: Mapping[str, bytes]  # the outline of each zone by its code, as WKB, where it has one
    k: int  # of the guarantee, in people or trips; 0 for noise
    thresholds: Mapping[str, float]  # the smallest value of a cell by unit, where it is a number
    homogeneous: bool  # the zones of each end are disjoint
    nodes: bool  # cells are pairs of nodes of a tree; not boxes, nor cells with folds
    noisy: bool  # counts carry noise, so that subtracting them gives nothing that is certain
    revised: bool  # some cells are of the trips as they were, some as they were corrected
    whole_cells: bool  # a published cell counts every trip between its zones
    # How many tiles each zone can hold, by code and role, where the folder says it.
    tiles: Mapping[tuple[str, str], int]
    # The most trips in a pair of listed zones that is not listed itself; None where that is not
    # known.
    most_unlisted: int | None
    # what must be equal for two releases to be of the same trips: the area, and which rows were
    # left out
    ground: str
    # First and last day of its trips: of the step that was read, else as the operator declared;
    # else None.
    period: tuple[date, date] | None
    report: Mapping[str, Any]  # the content of report.json
    manifest: str | None = None  # SHA-256 of its manifest.json; None for tables in memory

    def __repr__(self) -> str:
        return f"<PublishedRelease: {len(self.matrices)} matrices>"


def read_release(folder: str | Path) -> PublishedRelease:
    """Read a published folder. Its files are taken at their word; `flowveil verify` checks them."""
    release = ReleaseFolder(Path(folder))
    read = published_release(release.flows, release.zones, release.report, name=str(folder))
    has_manifest = (release.path / "manifest.json").exists()
    return replace(read, manifest=release.sha256("manifest.json") if has_manifest else None)


def published_release(
    flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], *, name: str = "release"
) -> PublishedRelease:
    """The same from tables in memory: those that would be written as flows.parquet and
    zones.parquet.
    """
    with taken_at_its_word(name):
        return _published(flows, zones, report, name)


def _published(
    flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], name: str
) -> PublishedRelease:
    origins, origin = _coded(flows["origin_zone"])
    destinations, destination = _coded(flows["destination_zone"])
    statement = report["statement"]
    columns = tuple(statement.get("slice_columns", ()))
    codes = zones["zone"].to_pylist()
    cells = zones["h3_cells"].to_pylist() if "h3_cells" in zones.column_names else []
    outlines = zones["geometry"].to_pylist() if "geometry" in zones.column_names else []
    parameters, guarantee = report["parameters"], report["guarantee"]
    thresholds = {unit: guarantee.get(unit) for unit in ("trips", "people", "population")}
    facets = Facets.from_report(report)
    # A cell of one layer counts the trips that other layers leave.
    whole = statement["suppression"]["rule"] == "short cells" and not {"revised", "layer"} & set(
        flows.column_names
    )
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
        nodes=not facets.has_boxes and not facets.folds,
        noisy=facets.is_noisy,
        revised="revised" in flows.column_names,
        whole_cells=whole,
        tiles=_tiles(zones),
        most_unlisted=_most_unlisted(report) if whole else None,
        ground=repr(
            [parameters.get("within"), parameters.get("outside"), parameters.get("skip_unknown")]
        ),
        period=period_of(parameters.get("during"))
        or period_of((statement.get("about") or {}).get("period")),
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
    weight = (
        flows["weight"].to_numpy().astype(np.float64) if "weight" in flows.column_names else None
    )
    layer = flows["layer"].to_numpy().astype(np.int64) if "layer" in flows.column_names else None
    rows: dict[Key, Any] = {} if columns else {(): slice(None)}
    for row, key in enumerate(zip(*(flows[name].to_pylist() for name in columns), strict=True)):
        rows.setdefault(key, []).append(row)
    return tuple(
        PublishedMatrix(
            key,
            origin[at],
            destination[at],
            trips[at],
            *(None if one is None else one[at] for one in (weight, layer)),
        )
        for key, at in rows.items()
    )


def _most_unlisted(report: Mapping[str, Any]) -> int | None:
    """How many trips a pair of listed zones can hold that is not listed.

    K - 1, where trips alone decide.
    """
    guarantee, statement = report["guarantee"], report["statement"]
    decided_by_trips = (
        list(guarantee["protect"]) == ["trips"]
        and all(guarantee.get(name) is None for name in ("l", "locations"))
        and all(report["parameters"].get(name) is None for name in ("dominance", "stricter", "t"))
    )
    all_safe = (
        statement["homogeneous"]
        and not statement.get("zones_of")
        and report["method"] in _PUBLISH_ALL_SAFE
    )
    return int(guarantee["trips"]) - 1 if decided_by_trips and all_safe else None


def period_of(text: object) -> tuple[date, date] | None:
    """First and last day of a month, a day or an ISO interval of days (2024-01-01/2024-03-31).

    None for other text.
    """
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


def incomparable(a: PublishedRelease, b: PublishedRelease) -> str | None:
    """Why two releases cannot be compared; None if they can."""
    if a.noisy or b.noisy:
        return "counts of one carry noise"
    if not (a.nodes and b.nodes) and not (a.ground == b.ground and disjoint(a, b)):
        return "the cells of one are boxes, or have folds"
    if a.ground != b.ground:
        return "they are of different areas, or left out different rows"
    if (a.period is None) != (b.period is None):
        return "one of them gives no period"
    if (a.revised or b.revised) and not disjoint(a, b):
        return "one of them is a revision: its cells are of the trips at different times"
    if a.period and b.period and not (disjoint(a, b) or inside(a, b) or inside(b, a)):
        return "their periods overlap in part"
    return None


def disjoint(a: PublishedRelease, b: PublishedRelease) -> bool:
    """Whether the periods of two releases have no day in common, so that they share no trip."""
    return bool(a.period and b.period and (a.period[1] < b.period[0] or b.period[1] < a.period[0]))


def inside(part: PublishedRelease, whole: PublishedRelease) -> bool:
    """Whether the period of one release is inside the period of the other."""
    if part.period is None or whole.period is None:
        return False
    return whole.period[0] <= part.period[0] and part.period[1] <= whole.period[1]


def disjoint_parts(
    releases: Sequence[PublishedRelease], places: Sequence[int], i: int
) -> list[int]:
    """Of releases at some places, those of parts of the period of one, no two of which share a day.

    Gaps are allowed.

    Of periods that overlap the shorter is taken, because a reader can subtract more of them.
    """
    whole, chosen = releases[i], list[int]()
    candidates = sorted(
        (r.period[1] - r.period[0], r.period, j)
        for j, r in ((j, releases[j]) for j in places)
        if j != i
        and r.period
        and r.period != whole.period
        and inside(r, whole)
        and not incomparable(whole, r)
    )
    for _, _, j in candidates:
        if all(disjoint(releases[j], releases[other]) for other in chosen):
            chosen.append(j)
    return sorted(chosen)


def derived_places(releases: Sequence[PublishedRelease]) -> set[int]:
    """Returns the places of releases that state to be derived from others of these.

    They reveal nothing more.
    """
    manifests = {release.manifest for release in releases if release.manifest is not None}
    steps = {release.report["parameters"].get("during"): release.manifest for release in releases}
    found = set()
    for i, release in enumerate(releases):
        source = release.report["statement"].get("derived_from")
        picked = (release.report["parameters"].get("derive") or {}).get("pick", ())
        of_steps = [steps.get(text.removeprefix("time=")) for text in picked]
        # A period of a series states the hash of the manifest hashes of its steps.
        joined = "\n".join(manifest for manifest in of_steps if manifest is not None)
        if source is not None and source in {
            *manifests,
            hashlib.sha256(joined.encode()).hexdigest(),
        }:
            found.add(i)
    return found


def fixed_values(release: PublishedRelease, matrix: PublishedMatrix) -> dict[str, str]:
    """The slice columns that a matrix has one value of; empty for a matrix of all trips."""
    return {c: v for c, v in zip(release.slice_columns, matrix.key, strict=False) if v is not None}


def with_values(release: PublishedRelease, whole: Mapping[str, str]) -> list[PublishedMatrix]:
    """Returns the matrices of trips with these values of slice columns; they share no trip."""
    return [
        matrix
        for matrix in release.matrices
        if fixed_values(release, matrix).items() >= whole.items()
    ]


def sums_over_slices(release: PublishedRelease) -> Iterator[PublishedMatrix]:
    """Matrices that are not published but follow.

    Sums over all values of one or several slice columns.

    Only cells that every slice publishes are in a sum: their trips are all trips of the cell, as
    far as the release has values of these columns.
    """
    columns = range(len(release.slice_columns))
    for n_kept in columns:
        for kept in combinations(columns, n_kept):
            by_key: dict[Key, list[PublishedMatrix]] = {}
            for matrix in release.matrices:
                key = tuple(v if n in kept else None for n, v in enumerate(matrix.key))
                by_key.setdefault(key, []).append(matrix)
            for key, slices in by_key.items():
                if len(slices) > 1:
                    yield _sum(key, slices)


def _sum(key: tuple[str | None, ...], slices: Sequence[PublishedMatrix]) -> PublishedMatrix:
    origin, destination, trips = map(
        np.concatenate, zip(*((m.origin, m.destination, m.trips) for m in slices), strict=True)
    )
    weights = [m.weight for m in slices if m.weight is not None]
    n_o, n_d = int(origin.max(initial=0)) + 1, int(destination.max(initial=0)) + 1
    pairs = group_pairs(origin.astype(np.int32), destination.astype(np.int32), n_o, n_d)
    complete = np.bincount(pairs.row, minlength=len(pairs.origin)) == len(slices)
    weight = pairs.sum(np.concatenate(weights))[complete] if len(weights) == len(slices) else None
    ends = pairs.origin[complete].astype(np.int64), pairs.destination[complete].astype(np.int64)
    return PublishedMatrix(key, *ends, pairs.sum(trips)[complete], weight)


#: Entries of a report that describe a release to people, and reveal nothing about trips.
_WORDS = (
    "about",
    "title",
    "source",
    "licence",
    "publisher",
    "contact",
    "issued",
    "modified",
    "base_url",
    "language",
    "command",
    "sentences",
    "version",
    "confirmed",
    "basemap",
)


def have_equal_tables(a: PublishedRelease, b: PublishedRelease) -> bool:
    """Whether two releases publish the same cells between the same zones."""
    return a.h3_cells == b.h3_cells and a.outlines == b.outlines and _table(a) == _table(b)


def differing_statements(a: PublishedRelease, b: PublishedRelease) -> list[str]:
    """Names of the entries in which the reports of two releases differ, but for words."""
    one, other = _entries(a.report), _entries(b.report)
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _entries(report: Mapping[str, Any]) -> dict[str, Any]:
    parts = {part: report.get(part) or {} for part in ("parameters", "guarantee", "statement")}
    return {
        f"{part}.{name}": v
        for part, entries in parts.items()
        for name, v in entries.items()
        if name not in _WORDS
    }


def _table(release: PublishedRelease) -> list[tuple[Any, ...]]:
    rows = []
    for m in release.matrices:
        weights = [None] * len(m.trips) if m.weight is None else m.weight.tolist()
        origins = [release.origin_zones[n] for n in m.origin.tolist()]
        destinations = [release.destination_zones[n] for n in m.destination.tolist()]
        keys = [tuple(sorted(fixed_values(release, m).items()))] * len(origins)
        rows += list(zip(keys, origins, destinations, m.trips.tolist(), weights, strict=True))
    return sorted(rows, key=repr)
