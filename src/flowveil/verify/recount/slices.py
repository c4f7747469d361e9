"""Which slices, or combinations of folds, of a release hold each slice of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import FolderError, Release, Trips
from .tree import Ints


def find_slices(release: Release, trips: Trips) -> tuple[Ints, NDArray[np.int64], int]:
    """Returns the published slices, or combinations of folds, around each slice of the input.

    (-1 for none; those that overlap in separate rows), the number of each cell's, and how many.

    A release has slices of one detail, so that its cells share no trip: a total, or a longer step,
    next to its slices could be subtracted.
    """
    names = release.fold_columns or release.slice_columns
    if not names:
        return np.zeros((1, 1), dtype=np.int32), np.zeros(len(release), dtype=np.int64), 1
    listed = list(zip(*(release.flows[name].to_pylist() for name in names), strict=True))
    published = sorted(set(listed), key=str)
    number = {key: n for n, key in enumerate(published)}
    slice_of_cell = np.array([number[key] for key in listed], dtype=np.int64)
    if release.folds:
        container = _hold_folds(release, trips.slices, published)
    else:
        container = np.array([[number.get(key, -1) for key in trips.slices]], dtype=np.int32)
        unknown = len(published) - len(set(container.ravel().tolist()) - {-1})
        # Noise may fill declared slices without trips.
        if unknown and (not release.is_noisy or any(None in key for key in published)):
            raise FolderError(
                f"flows.parquet: {unknown} slices are not in the input; a total, or a longer step,"
                " may not be published next to slices"
            )
    return container, slice_of_cell, len(published)


def _hold_folds(release: Release, slices: Sequence[Any], published: Sequence[Any]) -> Ints:
    """Returns the published combinations of spans and groups around each slice.

    Those that overlap in separate rows.
    """
    above = {
        name: {
            value: _groups_above(value, _with_value(value, parents, name in release.found_values))
            for value in {key[column] for key in slices}
        }
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
            raise FolderError(
                "flows.parquet: spans of time or groups of values hold no trip of the input"
            )
        free = next((row for row in rows if np.all(row[inside] < 0)), None)
        if free is None:
            free = np.full(len(slices), -1, dtype=np.int32)
            rows.append(free)
        free[inside] = n
    return np.stack(rows)


def _with_value(
    value: str, parents: Mapping[str, str | None], is_found: bool
) -> Mapping[str, str | None]:
    """Returns the tree with a value of the input; without a given tree it is below the root."""
    if not is_found or value in parents:
        return parents
    roots = [node for node, up in parents.items() if up is None]
    return {**parents, value: roots[0] if roots else None}


def _groups_above(value: str, parents: Mapping[str, str | None]) -> list[str]:
    """Returns a value and the groups around it, on a tree of values."""
    if value not in parents or value in parents.values():
        raise FolderError(
            "report.json: the tree of a folded attribute does not list a value of the input"
        )
    found: list[str] = []
    node: str | None = value
    while node is not None:
        if node not in parents or node in found or list(parents.values()).count(None) != 1:
            raise FolderError("report.json: what a folded attribute states is no tree")
        found.append(node)
        node = parents[node]
    return found
