"""Revisions: which cells may have a new value, and whether the others kept that of the earlier
release.

A reader can subtract the earlier value of a cell from the new one, so the difference from every
earlier release must be nothing or reach the guarantee. Section 12 of docs/reference/recount.md has
the rules.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .inputs import MILLION, Counts, FolderError, PersonRows, Release, Trips

NOT_COMPARED = (
    "Cells that are not revised were not compared with the earlier release: it was not given."
)
#: What a revision has in common with the releases that it revises.
_SAME = (
    "k",
    "protect",
    "k_population",
    "l",
    "resolution",
    "same_zones",
    "within",
    "outside",
    "during",
    "timezone",
    "hierarchy",
    "slices",
)
_RULES = ("dominance", "stricter", "l_places", "t")


def check(
    release: Release,
    trips: Trips,
    cell: Any,
    counted: Mapping[str, Counts],
    earlier: Sequence[Any],
    notes: list[str],
) -> Iterator[str]:
    """Yields findings on the marks and the kept values of a revision.

    ``trips`` are the corrected ones, ``cell`` the cell of each row, ``counted`` the units of each
    cell, ``earlier`` the folders of the releases that are revised, the oldest first. ``notes`` gets
    a line if these are not given.
    """
    if not release.has("revised") or release.is_noisy or release.has_boxes or release.is_folded:
        yield (
            "flows.parquet: does not say which cells are revised, or the release cannot be a"
            " revision"
        )
        return
    if any(release.parameters.get(name) is not None for name in _RULES):
        yield "report.json: a revision cannot have post rules"
    if "population" in release.least and release.parameters.get("k_population") is None:
        yield "report.json: a revision cannot have a threshold of k mean weights"
    weight = release.weight()
    below = release.trips() < release.least.get("trips", 0)
    below |= False if weight is None else weight < release.least.get("population", 0)
    if below.any():
        yield f"flows.parquet: {int(below.sum())} cells are below the guarantee"
    if earlier:
        yield from _compare(release, trips, cell, counted, _read(release, earlier))
    else:
        notes.append(NOT_COMPARED)


def _read(release: Release, folders: Sequence[Any]) -> list[pa.Table]:
    """Returns the tables of the earlier releases.

    Raises FolderError if the release does not revise them.
    """
    hashes, tables = list[str](), list[pa.Table]()
    for folder in map(Path, folders):
        try:
            content = (folder / "flows.parquet").read_bytes()
            report = json.loads((folder / "report.json").read_text("utf-8"))
            parameters, statement = report["parameters"], report["statement"]
            table = pq.read_table(io.BytesIO(content))
            fits = (
                all(parameters.get(name) == release.parameters.get(name) for name in _SAME)
                and not any(parameters.get(name) is not None for name in _RULES)
                and report["kind"] == release.kind
                and tuple(statement["slice_columns"]) == tuple(release.slice_columns)
                and statement["suppression"]["rule"] == "short cells"
                and list(statement.get("revision_of") or ()) == hashes
                and ("weight" in table.column_names) == release.has("weight")
            )
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            fits = False
        if not fits:
            raise FolderError(
                f"earlier release {len(hashes) + 1}: cannot be read, or cannot be revised by"
                " this one"
            )
        hashes.append(hashlib.sha256(content).hexdigest())
        tables.append(table)
    if hashes != list(release.statement["revision_of"]):
        raise FolderError("report.json: revises other releases than those that were given")
    return tables


def _compare(
    release: Release, trips: Trips, cell: Any, counted: Mapping[str, Counts], tables: list[pa.Table]
) -> Iterator[str]:
    least, now, weight = release.least, counted["trips"], release.weight()
    may = (now > 0) & np.logical_and.reduce(
        [counted[unit] >= threshold for unit, threshold in least.items()]
    )
    few = _most_trips_of_few(release, trips, cell)
    for table in tables:
        known, before, weight_before = _values(release, table)
        change = np.abs(now - before) >= max(1, least.get("trips", 1))
        if "population" in least:
            change &= np.abs(counted["population"] - weight_before) >= least["population"]
        for most in few:
            change &= most < now - before
        same = (now == before) & (counted.get("population", weight_before) == weight_before)
        may &= ~known | same | change
    # The last table is that of the latest release.
    may &= ~(known & same)
    revised = release.flows["revised"].to_numpy()
    kept = (
        known & (release.trips() == before) & (True if weight is None else weight == weight_before)
    )
    wrong = (
        "cells are revised although the change is below the guarantee, or not although it is not"
    )
    for problem, n in (
        ("cells of the earlier release are missing", tables[-1].num_rows - known.sum()),
        (wrong, np.sum(revised != may)),
        (
            "cells are not revised and have another value than in the earlier release",
            np.sum(~revised & ~kept),
        ),
    ):
        if n:
            yield f"flows.parquet: {int(n)} {problem}"


def _values(release: Release, table: pa.Table) -> tuple[Any, Counts, Counts]:
    """Returns for each cell of the revision whether the earlier table has it, its trips and its
    weight there.
    """
    columns = ["origin_zone", "destination_zone", *release.slice_columns]
    columns += ["layer"] if "layer" in table.column_names else []
    pairs = [
        pc.binary_join_element_wise(
            *(one[name].cast(pa.string()).fill_null("\x01") for name in columns), "\x00"
        ).combine_chunks()
        for one in (release.flows, table)
    ]
    at = pc.index_in(pairs[0], value_set=pairs[1])
    place = at.fill_null(0).to_numpy()
    weight = np.zeros(len(place), dtype=np.int64)
    if "weight" in table.column_names:
        weight = np.rint(table["weight"].to_numpy()[place] * MILLION).astype(np.int64)
    return at.is_valid().to_numpy(zero_copy_only=False), table["trips"].to_numpy()[place], weight


def _most_trips_of_few(release: Release, trips: Trips, cell: Any) -> list[Counts]:
    """Returns by unit the most trips of each cell that one member too few can have made.

    Unknown persons included.
    """
    found, n = [], len(release)
    rows = np.flatnonzero(cell >= 0)
    if "people" in release.least and isinstance(trips.persons, PersonRows):
        group, made = trips.persons.members(cell)
        all_trips = np.bincount(cell[rows], weights=trips.trips[rows], minlength=n)
        unknown = (all_trips - np.bincount(group, weights=made, minlength=n)).astype(np.int64)
        found.append(unknown + _largest(group, made, int(release.least["people"]) - 1, n))
    for tile in (trips.origin, trips.destination) if "locations" in release.least else ():
        size = int(tile.max()) + 1
        key, member = np.unique(
            cell[rows].astype(np.int64) * size + tile[rows], return_inverse=True
        )
        made = np.bincount(member, weights=trips.trips[rows]).astype(np.int64)
        found.append(_largest(key // size, made, int(release.least["locations"]) - 1, n))
    return found


def _largest(group: Any, made: Counts, number: int, n: int) -> Counts:
    """Returns the sum of the largest values of each group."""
    order = np.lexsort((-made, group))
    group, made = group[order], made[order]
    top = np.arange(len(group)) - np.searchsorted(group, group) < number
    return np.bincount(group[top], weights=made[top], minlength=n).astype(np.int64)
