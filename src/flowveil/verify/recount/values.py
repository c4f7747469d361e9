"""Section 13 of the recount: means, totals and medians of columns of the input.

`mean_C`, `total_C` and `median_C` are of the values of column C of the trips that a cell counts, weighted by their
weight, or else by their number of trips, rounded to three significant digits. A value that is missing or outside
`between` does not count; its trip does. The weighted median has at most half of the weight above it and at most half
below; it is the middle of all such values.

A number is null unless all of this holds. At least k contributors, and at least 1 + 2 / `value_share`, have a value and
a weight above 0: persons, or rows where the input has no persons. Rows without a known person are one contributor
together, and do not count towards k. Let contributions be weight * (value - low), summed by contributor: their total is
above 0, the largest is at most `value_share` of it, and the total without the two largest is at least `p_percent` % of
the largest. The same holds for contributions weight * (high - value). For a median, the two largest weights of
contributors are together below half of all weights, and it lies between the bounds, not at one.

Numbers are published of matrices that share no trip: not of totals of slices, boxes, revisions and inexact counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import MILLION, Counts, FolderError, Release, Trips, number_columns
from .tree import Ints

Floats = NDArray[np.float64]
#: Relative error of a sum that does not count.
_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class ValueRows:
    """The values of single rows of the input."""

    row: Ints  # number of the row of `Trips` that counts it
    person: Ints | None  # -1 if unknown; None if the input has no persons
    weight: Counts  # millionths
    values: Mapping[str, Floats]  # by column; NaN if missing


def check_form(release: Release, n_families: int) -> None:
    """Raises FolderError if the release has numbers that a release of its kind does not have."""
    if not number_columns(release.parameters):
        return
    if release.kind in ("noisy", "perturbed", "boxed") or release.is_revision or n_families > 1:
        raise FolderError("flows.parquet: means, totals or medians are of matrices that share trips, or of this kind")
    share, p = float(release.parameters["value_share"]), float(release.parameters["p_percent"])
    columns = [column.strip() for _, column in number_columns(release.parameters).values()]
    bounds = _bounds(release)
    if not (0 < share <= 0.5 and 0 < p <= 30) or len(set(columns)) < len(columns) or set(bounds) != set(columns):
        raise FolderError("report.json: the rules of means, totals and medians cannot have these values")


def _bounds(release: Release) -> dict[str, tuple[float, float]]:
    found = {}
    for text in release.parameters.get("between", ()):
        column, _, listed = text.rpartition("=")
        low, high = listed.split(",")
        found[column.strip()] = (float(low), float(high))
    return found


def compare(release: Release, trips: Trips, cell: Ints) -> dict[str, Any]:
    """Returns cells with wrong numbers, by what is wrong; ``cell`` has the cell of each row of the trips."""
    stated, rows, problems = number_columns(release.parameters), trips.values, {}
    if stated and rows is None:
        raise FolderError("flows.parquet: has means, totals or medians, but the values of the input are not known")
    for name, (role, column) in stated.items():
        low, high = _bounds(release)[column.strip()]
        of_row, value = cell[rows.row], rows.values[column]
        kept = np.flatnonzero((of_row >= 0) & (rows.weight > 0) & (value >= low) & (value <= high))
        who = np.arange(len(value), dtype=np.int32) if rows.person is None else rows.person
        data = of_row[kept], who[kept], rows.weight[kept].astype(np.float64), value[kept]
        allowed = _is_allowed(release, *data, low=low, high=high, is_median=role == "median")
        number = _number(role, data[0], data[2], data[3], len(release))
        if role == "median":
            allowed &= ~(number <= low) & ~(number >= high)
        found = release.flows[name].to_numpy()
        shown = ~np.isnan(found)
        problems[f"cells have a {name} that its rules refuse"] = shown & ~allowed
        problems[f"cells lack a {name} that its rules allow"] = ~shown & allowed
        problems[f"cells have another {name} than the recount"] = shown & allowed & ~_is_rounded(found, number)
    return problems


def _runs(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Returns where runs of equal rows begin."""
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(np.concatenate((np.ones(min(1, len(columns[0])), dtype=np.bool_), changes)))


def _is_allowed(
    release: Release, cell: Ints, who: Ints, weight: Floats, value: Floats, *, low: float, high: float, is_median: bool
) -> NDArray[np.bool_]:
    n, parameters = len(release), release.parameters
    if len(cell) == 0:
        return np.zeros(n, dtype=np.bool_)
    order = np.lexsort((who, cell))
    cell, who, weight, value = cell[order], who[order], weight[order], value[order]
    first = _runs(cell, who)
    of_person, known = cell[first], who[first] >= 0
    share, k = float(parameters["value_share"]), int(parameters["k"])
    allowed = np.bincount(of_person[known], minlength=n) >= max(1 + math.ceil(2 / share), k)
    for amount in (weight * (value - low), weight * (high - value), *((weight,) if is_median else ())):
        made = np.add.reduceat(amount, first)
        order = np.lexsort((-made, of_person))
        top = _runs(of_person[order])
        ranked = np.append(made[order], 0.0)
        size = np.diff(np.append(top, len(made)))
        total, largest, second = np.zeros(n), np.zeros(n), np.zeros(n)
        at = of_person[order[top]]
        total[at], largest[at] = np.add.reduceat(made[order], top), ranked[top]
        second[at] = np.where(size > 1, ranked[top + 1], 0.0)
        if amount is weight:
            allowed &= largest + second < total / 2
            continue
        allowed &= (total > 0) & (largest - share * total <= _ERROR * total)
        allowed &= total - largest - second >= float(parameters["p_percent"]) / 100 * largest * (1 - _ERROR)
    return allowed


def _number(role: str, cell: Ints, weight: Floats, value: Floats, n: int) -> Floats:
    order = np.lexsort((value, cell))
    cell, weight, value = cell[order], weight[order], value[order]
    found, first = np.full(n, np.nan), _runs(cell)
    if len(cell) == 0:
        return found
    at, of_cell = cell[first], np.add.reduceat(weight, first)
    if role == "median":
        size = np.diff(np.append(first, len(cell)))
        below = np.cumsum(weight) - np.repeat(np.cumsum(of_cell) - of_cell, size)
        position, half = np.arange(len(cell)), np.repeat(of_cell, size) / 2
        ends = [np.minimum.reduceat(np.where(ok, position, len(cell)), first) for ok in (below >= half, below > half)]
        found[at] = (value[ends[0]] + value[ends[1]]) / 2
    else:
        total, size = np.add.reduceat(weight * value, first), np.add.reduceat(weight * np.abs(value), first)
        # Terms that cancel out leave an error of rounding.
        total[np.abs(total) <= 1e-12 * size] = 0
        found[at] = total / of_cell if role == "mean" else total / MILLION
    return found


def _is_rounded(shown: Floats, number: Floats) -> NDArray[np.bool_]:
    """Returns whether shown numbers have three digits and differ from others by at most half of the last."""
    three = np.array([float(f"{one:.3g}") for one in shown.tolist()])
    size = np.abs(number)
    unit = 10.0 ** (np.floor(np.log10(size, where=size > 0, out=np.full(len(size), -300.0))) - 2)
    found: NDArray[np.bool_] = (three == shown) & (np.abs(shown - number) <= unit / 2 + _ERROR * size)
    return found
