"""Families of cells that share no trip: one matrix, slices of one detail, or all combinations of folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import FolderError, Release, Trips
from .tree import Ints


@dataclass(frozen=True, eq=False)
class Family:
    """Cells of one matrix, or of slices of one detail: they share no trip."""

    cells: NDArray[np.int64]
    #: (rows, slices): the published slices, or combinations of folds, that hold each slice of the input; -1 for none.
    container: Ints
    #: Which slice columns have a value, and the length of the time label: finer slices have more.
    detail: tuple[int, ...]


def find_families(release: Release, trips: Trips) -> tuple[list[Family], NDArray[np.int64], int]:
    """Returns the families, the number of the slice or combination of folds of each cell, and how many there are."""
    names = release.fold_columns or release.slice_columns
    if not names:
        whole = Family(np.arange(len(release)), np.zeros((1, 1), dtype=np.int32), (1,))
        return [whole], np.zeros(len(release), dtype=np.int64), 1
    listed = list(zip(*(release.flows[name].to_pylist() for name in names), strict=True))
    published = sorted(set(listed), key=str)
    number = {key: n for n, key in enumerate(published)}
    slice_of_cell = np.array([number[key] for key in listed], dtype=np.int64)
    if release.folds:
        container = _hold_folds(release, trips.slices, published)
        return [Family(np.arange(len(release)), container, (1,))], slice_of_cell, len(published)
    return _by_detail(release, trips.slices, published, slice_of_cell), slice_of_cell, len(published)


def _by_detail(
    release: Release, slices: Sequence[Any], published: Sequence[Any], slice_of_cell: NDArray[np.int64]
) -> list[Family]:
    """Returns a family for each detail of the published slices."""
    names = release.slice_columns
    # A label of a longer step of time is a prefix of those within it.
    lengths = [tuple(len(v or "") if c == "time" else int(v is not None) for v, c in zip(key, names, strict=True))
               for key in published]  # fmt: skip
    families, used = [], 0
    for detail in sorted(set(lengths)):
        own = {key: n for n, key in enumerate(published) if lengths[n] == detail}
        container = np.array([[own.get(key, -1) for key in _around(slices, detail, names)]], dtype=np.int32)
        used += len(set(container.ravel().tolist()) - {-1})
        cells = np.flatnonzero(np.isin(slice_of_cell, list(own.values())))
        families.append(Family(cells, container, detail))
    # Noise may fill declared slices without trips.
    if used < len(published) and release.kind != "noisy":
        raise FolderError(f"flows.parquet: {len(published) - used} slices are not in the input")
    return families


def slices_around(release: Release, trips: Trips, family: Family) -> Any:
    """Returns the number of the matrix of a family that holds each slice of the input, published or not."""
    names, slices = release.slice_columns, trips.slices
    keys = _around(slices, family.detail, names) if names else [() for _ in slices]
    number = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys])


def _around(slices: Sequence[Any], detail: Sequence[int], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns the slice of this detail around each slice of the input: labels of longer steps are prefixes."""
    return [
        tuple((v[:n] if c == "time" else v) if n else None for v, n, c in zip(key, detail, names, strict=True))
        for key in slices
    ]


def _hold_folds(release: Release, slices: Sequence[Any], published: Sequence[Any]) -> Ints:
    """Returns the published combinations of spans and groups around each slice; those that overlap in separate rows."""
    above = {
        name: {value: _groups_above(value, parents) for value in {key[column] for key in slices}}
        for column, (name, parents) in enumerate(release.folds.items())
        if parents is not None
    }
    rows: list[Ints] = []
    for n, nodes in enumerate(published):
        node = iter(nodes)
        inside = np.ones(len(slices), dtype=np.bool_)
        for column, name in enumerate(release.folds):
            if name == "time":
                start, stop = next(node), next(node)
                inside &= [start <= key[column] < stop for key in slices]
            else:
                group = next(node)
                inside &= [group in above[name][key[column]] for key in slices]
        if not inside.any():
            raise FolderError("flows.parquet: spans of time or groups of values hold no trip of the input")
        free = next((row for row in rows if np.all(row[inside] < 0)), None)
        if free is None:
            free = np.full(len(slices), -1, dtype=np.int32)
            rows.append(free)
        free[inside] = n
    return np.stack(rows)


def _groups_above(value: str, parents: Mapping[str, str | None]) -> list[str]:
    """Returns a value and the groups around it, on a tree of values."""
    if value not in parents or value in parents.values():
        raise FolderError("report.json: the tree of a folded attribute does not list a value of the input")
    found: list[str] = []
    node: str | None = value
    while node is not None:
        if node not in parents or node in found or list(parents.values()).count(None) != 1:
            raise FolderError("report.json: what a folded attribute states is no tree")
        found.append(node)
        node = parents[node]
    return found
