"""Section 13 of docs/reference/recount.md: means, totals and medians of columns of the input."""

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


def check_form(release: Release) -> None:
    """Raises FolderError if the release has numbers that a release of its kind does not have."""
    if not number_columns(release.parameters):
        return
    if release.is_noisy or release.has_boxes or release.is_revision:
        raise FolderError(
            "flows.parquet: means, totals or medians are of matrices that share trips, or of this"
            " kind"
        )
    share, p = float(release.parameters["value_share"]), float(release.parameters["p_percent"])
    columns = [column.strip() for _, column in number_columns(release.parameters).values()]
    bounds = _bounds(release)
    if (
        not (0 < share <= 0.5 and 0 < p <= 30)
        or len(set(columns)) < len(columns)
        or set(bounds) != set(columns)
    ):
        raise FolderError(
            "report.json: the rules of means, totals and medians cannot have these values"
        )


def _bounds(release: Release) -> dict[str, tuple[float, float]]:
    found = {}
    for text in release.parameters.get("between", ()):
        column, _, listed = text.rpartition("=")
        low, high = listed.split(",")
        found[column.strip()] = (float(low), float(high))
    return found


def of_persons(release: Release, trips: Trips) -> list[str]:
    """Returns the columns with numbers that are constant within nearly every person with several
    trips.
    """
    rows = trips.values
    if rows is None or rows.person is None or not number_columns(release.parameters):
        return []
    p, found = float(release.parameters["p_percent"]), []
    for column, value in rows.values.items():
        low, high = _bounds(release)[column.strip()]
        kept = (rows.person >= 0) & (rows.weight > 0) & (value >= low) & (value <= high)
        order = np.lexsort((value[kept], rows.person[kept]))
        who, value = rows.person[kept][order], value[kept][order] - low
        first = np.flatnonzero(np.diff(who, prepend=-1))
        last = np.append(first[1:], len(who)) - 1
        several = (last > first) & (value[last] > 0)
        constant = several & (value[first] >= value[last] * (1 - p / 100))
        if several.any() and constant.sum() >= 0.9 * several.sum():
            found.append(column)
    return found


def compare(release: Release, trips: Trips, cell: Ints) -> dict[str, Any]:
    """Returns cells with wrong numbers, by what is wrong.

    ``cell`` has the cell of each row of the trips.
    """
    stated, rows, n = number_columns(release.parameters), trips.values, len(release)
    if not stated:
        return {}
    if rows is None:
        raise FolderError(
            "flows.parquet: has means, totals or medians, but the values of the input are not known"
        )
    bounds = _bounds(release)
    values = {column: rows.values[column] for _, column in stated.values()}
    for column, value in values.items():
        low, high = bounds[column.strip()]
        values[column] = np.where((value >= low) & (value <= high), value, np.nan)
    who = np.arange(len(rows.row), dtype=np.int32) if rows.person is None else rows.person
    weight, of_row = rows.weight.astype(np.float64), cell[rows.row]
    # A row without one of the values has a part in none of the numbers.
    at = np.flatnonzero((of_row >= 0) & (weight > 0) & ~np.isnan(sum(values.values())))
    of_row, who, weight = of_row[at], who[at], weight[at]
    allowed, numbers, linear = {}, {}, list[str]()
    for name, (role, column) in stated.items():
        (low, high), value = bounds[column.strip()], values[column][at]
        numbers[name] = _number(role, of_row, weight, value, n)
        allowed[name] = _is_allowed(release, of_row, who, weight, value, low=low, high=high)
        if role == "median":
            total, largest, second = _top_two(of_row, who, weight, n)
            allowed[name] &= (
                (largest + second < total / 2) & ~(numbers[name] <= low) & ~(numbers[name] >= high)
            )
            continue
        for earlier in linear:
            difference = weight * (value - values[stated[earlier][1]][at])
            kept = _keeps_rules(release, *_top_two(of_row, who, difference, n))
            allowed[name] &= ~allowed[earlier] | kept
        linear.append(name)
    problems = {}
    for name in stated:
        found = release.flows[name].to_numpy()
        shown = ~np.isnan(found)
        problems[f"cells have a {name} that its rules refuse"] = shown & ~allowed[name]
        problems[f"cells lack a {name} that its rules allow"] = ~shown & allowed[name]
        wrong = shown & allowed[name] & ~_is_rounded(found, numbers[name])
        problems[f"cells have another {name} than the recount"] = wrong
    return problems


def _top_two(cell: Ints, who: Ints, amount: Floats, n: int) -> tuple[Any, Any, Any]:
    """Returns the total of each cell, and what the two largest contributors have of it.

    The amounts of a contributor are summed first, and count without sign.
    """
    size = int(who.max(initial=0)) + 2
    pair, at = np.unique(cell.astype(np.int64) * size + who + 1, return_inverse=True)
    made, gross = (
        np.abs(np.bincount(at, weights=own, minlength=len(pair)))
        for own in (amount, np.abs(amount))
    )
    made[made <= 1e-12 * gross] = 0  # an error of rounding
    order = np.lexsort((-made, pair // size))
    of_cell, made = (pair // size)[order], made[order]
    rank = np.arange(len(pair)) - np.searchsorted(of_cell, of_cell)
    total, largest, second = (
        np.bincount(of_cell[own], weights=made[own], minlength=n)
        for own in (rank >= 0, rank == 0, rank == 1)
    )
    return total, largest, second


def _keeps_rules(
    release: Release, total: Floats, largest: Floats, second: Floats
) -> NDArray[np.bool_]:
    share, p = float(release.parameters["value_share"]), float(release.parameters["p_percent"])
    allowed: NDArray[np.bool_] = (total > 0) & (largest - share * total <= _ERROR * total)
    return allowed & (total - largest - second >= p / 100 * largest * (1 - _ERROR))


def _is_allowed(
    release: Release,
    cell: Ints,
    who: Ints,
    weight: Floats,
    value: Floats,
    *,
    low: float,
    high: float,
) -> NDArray[np.bool_]:
    n, fewest = len(release), 1 + math.ceil(2 / float(release.parameters["value_share"]))
    size, known = int(who.max(initial=0)) + 1, who >= 0
    persons = np.unique(cell[known].astype(np.int64) * size + who[known]) // size
    allowed = np.bincount(persons, minlength=n) >= max(fewest, int(release.parameters["k"]))
    for amount in (weight * (value - low), weight * (high - value)):
        allowed &= _keeps_rules(release, *_top_two(cell, who, amount, n))
    return allowed


def _number(role: str, cell: Ints, weight: Floats, value: Floats, n: int) -> Floats:
    held = np.bincount(cell, weights=weight, minlength=n)
    if role != "median":
        total, size = (
            np.bincount(cell, weights=weight * v, minlength=n) for v in (value, np.abs(value))
        )
        # Terms that cancel out leave an error of rounding.
        total[np.abs(total) <= 1e-12 * size] = 0
        return np.where(
            held > 0,
            total / np.where(held > 0, held, 1) if role == "mean" else total / MILLION,
            np.nan,
        )
    order = np.lexsort((value, cell))
    cell, weight, value = cell[order], weight[order], np.append(value[order], np.nan)
    below, half = np.cumsum(weight) - (np.cumsum(held) - held)[cell], held[cell] / 2
    ends = np.full((2, n), len(cell))
    for end, reached in zip(ends, (below >= half, below > half), strict=True):
        np.minimum.at(end, cell[reached], np.flatnonzero(reached))
    found: Floats = (value[ends[0]] + value[ends[1]]) / 2
    return found


def _is_rounded(shown: Floats, number: Floats) -> NDArray[np.bool_]:
    """Returns whether shown numbers have three digits and differ from others by at most half of the
    last.
    """
    three = np.array([float(f"{one:.3g}") for one in shown.tolist()])
    size = np.abs(number)
    unit = 10.0 ** (np.floor(np.log10(size, where=size > 0, out=np.full(len(size), -300.0))) - 2)
    found: NDArray[np.bool_] = (three == shown) & (
        np.abs(shown - number) <= unit / 2 + _ERROR * size
    )
    return found
