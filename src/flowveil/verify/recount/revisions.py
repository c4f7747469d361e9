"""Revisions: which cells may have a new value, and whether the others kept that of the earlier release.

A reader can subtract the earlier value of a cell from the new one. So a cell is revised only if that difference, from
every earlier release that has the cell, is nothing or reaches the guarantee by itself; otherwise it keeps its value of
the latest earlier release. Earlier trips are not available, only what was published of them: the fewest persons and
tiles that can be behind a difference follow from the trips as they are now, because added trips are among these. A cell
whose value would not change counts as kept. In layers every earlier cell stays, so trips stay in their cells.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .table import Counts, PersonRows, Trips

if TYPE_CHECKING:
    from .recount import Counted
    from .release import Release

NOT_COMPARED = "Cells that are not revised were not compared with the earlier release: it was not given."
#: What a revision has in common with the releases that it revises.
_SAME = (
    "k", "protect", "k_population", "l", "resolution", "same_zones", "within", "outside", "during", "timezone",
    "hierarchy",
)  # fmt: skip
_RULES = ("dominance", "stricter", "l_places", "t")
_MILLION = 1_000_000


def check(
    release: Release, trips: Trips, cell: Any, counted: Counted, earlier: Sequence[Any], notes: list[str]
) -> Iterator[str]:
    """Findings on the marks and the kept values of a revision.

    Args:
        release: the revision.
        trips: the trips as they are now.
        cell: the cell of each row.
        counted: what the trips of each cell are now.
        earlier: folders of the releases that are revised, the oldest first.
        notes: gets a line if these are not given.
    """
    if "revised" not in release.flows.column_names or release.kind not in ("plain", "layered"):
        yield "flows.parquet: does not say which cells are revised, or the release cannot be a revision"
        return
    if any(release.parameters.get(name) is not None for name in _RULES):
        yield "report.json: a revision cannot have post rules"
    if "population" in release.least and release.parameters.get("k_population") is None:
        yield "report.json: a revision cannot have a threshold of k mean weights"
    weight = release.weight()
    below = release.numbers("trips") < release.least.get("trips", 0)
    if weight is not None:
        below |= weight < release.least.get("population", 0)
    if below.any():
        yield f"flows.parquet: {int(below.sum())} cells are below the guarantee"
    if not earlier:
        notes.append(NOT_COMPARED)
        return
    tables, problem = _read(release, [Path(folder) for folder in earlier])
    if problem is not None:
        yield problem
        return
    yield from _compare(release, trips, cell, counted, tables)


def _read(release: Release, folders: Sequence[Path]) -> tuple[list[pa.Table], str | None]:
    """The tables of the earlier releases, or why this one does not revise them."""
    hashes: list[str] = []
    tables: list[pa.Table] = []
    for folder in folders:
        try:
            content = (folder / "flows.parquet").read_bytes()
            report = json.loads((folder / "report.json").read_text("utf-8"))
            parameters, statement = report["parameters"], report["statement"]
            fits = (
                all(parameters.get(name) == release.parameters.get(name) for name in _SAME)
                and not any(parameters.get(name) is not None for name in _RULES)
                and report["kind"] == release.kind
                and (report["kind"] == "layered" or statement["homogeneous"])
                and statement["suppression"]["rule"] == "short cells"
                and list(statement.get("revision_of") or ()) == hashes
            )
            table = pq.read_table(io.BytesIO(content))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return [], f"earlier release {len(hashes) + 1}: cannot be read"
        if not fits or ("weight" in table.column_names) != ("weight" in release.flows.column_names):
            return [], f"earlier release {len(hashes) + 1}: is none that this one can revise"
        hashes.append(hashlib.sha256(content).hexdigest())
        tables.append(table)
    if hashes != list(release.statement["revision_of"]):
        return [], "report.json: revises other releases than those that were given"
    return tables, None


def _compare(release: Release, trips: Trips, cell: Any, counted: Counted, tables: list[pa.Table]) -> Iterator[str]:
    few = _most_trips_of_few(release, trips, cell, len(release))
    may = (counted.trips > 0) & counted.safe(release.least)
    was = [_values(release, table) for table in tables]
    for known, before, weight_before in was:
        more = counted.trips - before
        change = np.abs(more) >= max(1, release.least.get("trips", 1))
        if "population" in release.least and counted.weight is not None:
            change &= np.abs(counted.weight - weight_before) >= release.least["population"]
        for most in few:
            change &= most < more
        same = more == 0
        if counted.weight is not None:
            same &= counted.weight == weight_before
        may &= ~known | same | change
        latest = known & same
    may &= ~latest
    revised = release.numbers("revised")
    known, before, weight_before = was[-1]
    kept = known & (release.numbers("trips") == before)
    weight = release.weight()
    if weight is not None:
        kept &= weight == weight_before
    lost = tables[-1].num_rows - int(known.sum())
    for problem, n in {
        "cells of the earlier release are missing": lost,
        "cells are revised although the change is below the guarantee, or not although it is not": int(
            np.sum(revised != may)
        ),
        "cells are not revised and have another value than in the earlier release": int(np.sum(~revised & ~kept)),
    }.items():
        if n:
            yield f"flows.parquet: {n} {problem}"


def _values(release: Release, table: pa.Table) -> tuple[Any, Counts, Counts]:
    """For each cell of the revision: whether the earlier table has it, its trips and its weight there."""
    columns = ["origin_zone", "destination_zone", *(["layer"] if "layer" in table.column_names else [])]
    pairs = [
        pc.binary_join_element_wise(*(one[name].cast(pa.string()) for name in columns), "\x00").combine_chunks()
        for one in (release.flows, table)
    ]
    at = pc.index_in(pairs[0], value_set=pairs[1])
    known = at.is_valid().to_numpy(zero_copy_only=False)
    place = at.fill_null(0).to_numpy()
    weight = np.zeros(len(known), dtype=np.int64)
    if "weight" in table.column_names:
        weight = np.rint(table["weight"].to_numpy()[place] * _MILLION).astype(np.int64)
    return known, table["trips"].to_numpy()[place], weight


def _most_trips_of_few(release: Release, trips: Trips, cell: Any, n: int) -> list[Counts]:
    """For each unit whose members count once: the most trips of a cell that one member too few can have made.

    Trips of unknown persons may be anybody's, so they count as made by these few.
    """
    found = []
    held = np.bincount(cell[cell >= 0], weights=trips.trips[cell >= 0], minlength=n).astype(np.int64)
    if "people" in release.least and isinstance(trips.persons, PersonRows):
        group, made = trips.persons.members(cell)
        known = np.bincount(group, weights=made, minlength=n).astype(np.int64)
        found.append(held - known + _largest(group, made, int(release.least["people"]) - 1, n))
    if "locations" in release.least:
        for tile in (trips.origin, trips.destination):
            rows = np.flatnonzero(cell >= 0)
            key, member = np.unique(
                cell[rows].astype(np.int64) * (int(tile.max()) + 1) + tile[rows], return_inverse=True
            )
            made = np.bincount(member, weights=trips.trips[rows]).astype(np.int64)
            found.append(_largest(key // (int(tile.max()) + 1), made, int(release.least["locations"]) - 1, n))
    return found


def _largest(group: Any, made: Counts, number: int, n: int) -> Counts:
    """The sum of the largest values of each group."""
    order = np.lexsort((-made, group))
    group, made = group[order], made[order]
    top = np.arange(len(group)) - np.searchsorted(group, group) < number
    return np.bincount(group[top], weights=made[top], minlength=n).astype(np.int64)
