"""Numbers in a cell beyond counts: means, totals and medians of columns of the input.

A run that requests them keeps the values behind each flow, one row for each record, so memory grows
with the trips. A number is published in a cell that keeps the guarantee if all rules hold, and is
null otherwise: enough contributors, no dominant one, the p % rule, each counted from both public
bounds of the column; a separate rule for medians, and one for the differences of two columns. All
columns of a cell are counted over the records that have a value in every one of them. A column that
belongs to persons is refused. Section 13 of docs/reference/recount.md states the rules, and
docs/decisions/0043-numbers-in-cells.md has the reasons.

Sums are doubles. Comparisons have a relative tolerance, so that the order of a sum decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Mask
from flowveil.core.errors import DataError, ParameterError, option

#: Settings that name columns, with the prefix of the published column.
STATISTICS = {"mean": "mean", "total_of": "total", "median": "median"}
#: A weight of 1, in the unit of weights.
ONE = 1_000_000
SHARE, P_PERCENT = 0.5, 10.0
#: Of five contributors or more, knowing the rules does not determine a value up to this p.
HIGHEST_P = 30
#: A column belongs to persons if it is constant within this part of them.
NEARLY_EVERY = 0.9
_TOLERANCE = 1e-9
#: A sum below this part of its terms is 0.
_CANCELLED = 1e-12
_DIGITS = 3
#: Largest absolute value of a bound: sums of contributions stay far from the largest double.
_LARGEST = 1e15


def value_columns(columns: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns setting and input column of each published column, from input columns by role (text,
    or list).
    """
    found = {}
    for role, prefix in STATISTICS.items():
        listed = columns.get(role) or ()
        for column in listed.split(",") if isinstance(listed, str) else listed:
            found[f"{prefix}_{column.strip()}"] = (role, column)
    return found


@dataclass(frozen=True)
class Numbers:
    """The requested numbers: published columns, bounds of their input columns, and the thresholds
    of the rules.
    """

    columns: Mapping[str, tuple[str, str]]
    bounds: Mapping[str, tuple[float, float]]
    share: float = SHARE
    p_percent: float = P_PERCENT

    @property
    def fewest(self) -> int:
        """Fewest contributors, whatever k is: the share leaves each of the others twice an equal
        part of the total.
        """
        return 1 + math.ceil(2 / self.share)

    @classmethod
    def from_settings(
        cls,
        columns: Mapping[str, Sequence[str]],
        between: Sequence[str],
        *,
        share: float,
        p_percent: float,
    ) -> Numbers | None:
        """Checks a request.

        ``columns`` has input columns by setting, ``between`` texts such as ``minutes=0,180``.
        """
        bounds = dict(map(_parse_bounds, between))
        named = [column for listed in columns.values() for column in listed]
        for column in named:
            if named.count(column) > 1:
                raise ParameterError(
                    f"Column '{column}' can have one number: two of mean, total and median of the"
                    " same values determine more than each alone. Hint: choose one."
                )
            if not column or set(column) & set(",=\n\r"):
                raise ParameterError(
                    f"The name of a column with numbers has no comma and no '='; found '{column}'."
                )
            if column.strip() not in bounds:
                raise ParameterError(
                    f"Column '{column}' has no bounds; they are declared, never taken from the"
                    f" data. Hint: {option('between')} {column}=0,180."
                )
        if len(bounds) < len(between) or set(bounds) - {column.strip() for column in named}:
            raise ParameterError(
                f"{option('between')} gives the bounds of columns of {option('mean')},"
                f" {option('total_of')} or {option('median')}, each once."
            )
        if not (0 < share <= SHARE and 0 < p_percent <= HIGHEST_P):
            raise ParameterError(
                f"{option('value_share')} must be above 0 and at most {SHARE:g},"
                f" {option('p_percent')} above 0 and at most {HIGHEST_P}; found {share:g} and"
                f" {p_percent:g}."
            )
        # Names in a table may have outer blanks.
        of_columns = {column: bounds[column.strip()] for column in named}
        return cls(value_columns(columns), of_columns, share, p_percent) if named else None


def _parse_bounds(text: str) -> tuple[str, tuple[float, float]]:
    column, _, listed = text.rpartition("=")
    try:
        low, high = (float(part) for part in listed.split(","))
    except ValueError:
        low = high = math.nan
    if not (column.strip() and -_LARGEST <= low < high <= _LARGEST):
        raise ParameterError(
            f"{option('between')} must be COLUMN=LOW,HIGH with LOW below HIGH, from {-_LARGEST:g}"
            f" to {_LARGEST:g}; found '{text}'."
        )
    return column.strip(), (low, high)


@dataclass(frozen=True, eq=False, repr=False)
class RecordValues:
    """The values behind flows: one row for each record, sorted by flow. Private: never written."""

    numbers: Numbers  # what is published of them
    flow: NDArray[np.int32]  # number of the flow
    person: NDArray[np.int32] | None  # -1 if unknown; None without persons
    weight: NDArray[np.int64]  # expansion factor, else number of trips, in millionths
    values: Mapping[str, Floats]  # by input column; NaN if a value is missing or outside the bounds

    def rows(self, first: int, stop: int) -> RecordValues:
        """Returns the rows of a range of flows, which are numbered from 0 then."""
        a, b = np.searchsorted(self.flow, (first, stop))
        return self._at(slice(a, b), self.flow[a:b] - np.int32(first))

    def renumber(self, place: NDArray[Any]) -> RecordValues:
        """Returns the same rows of flows that have other numbers."""
        flow = place[self.flow].astype(np.int32)
        order = np.argsort(flow, kind="stable")
        return self._at(order, flow[order])

    def _at(self, rows: Any, flow: NDArray[np.int32]) -> RecordValues:
        person = None if self.person is None else self.person[rows]
        values = {name: own[rows] for name, own in self.values.items()}
        return replace(self, flow=flow, person=person, weight=self.weight[rows], values=values)

    @cached_property
    def _contributor(self) -> NDArray[np.int64]:
        """A number from 1 for each contributor; 0 for all records without a known person."""
        if self.person is None:
            return np.arange(1, len(self.flow) + 1, dtype=np.int64)
        return self.person.astype(np.int64) + 1

    def of_cells(self, cell_of_flow: NDArray[Any], n_cells: int, *, k: int) -> dict[str, Floats]:
        """Returns the published columns of cells, given the cell of each flow (-1: none).

        NaN where one is refused.
        """
        of_row = cell_of_flow[self.flow]
        at = np.flatnonzero((of_row >= 0) & (self.weight > 0) & self._is_complete)
        cell, weight, contributor = of_row[at].astype(np.int64), self.weight[at], self._contributor
        contributor, found = contributor[at], {}
        for name, (role, column) in self.numbers.columns.items():
            value, bounds = self.values[column][at], self.numbers.bounds[column]
            allowed = self._allowed(role, cell, contributor, weight, value, bounds, n_cells, k)
            number = _STATISTIC[role](cell, weight, value, n_cells)
            if role == "median":
                allowed &= (number > bounds[0]) & (number < bounds[1])
            found[name] = np.where(allowed, round_significant(number), np.nan)
        _, pair, of_pair = _pairs(cell, contributor)
        linear = [
            (name, column)
            for name, (role, column) in self.numbers.columns.items()
            if role != "median"
        ]
        for (one, first), (other, second) in combinations(linear, 2):
            amount = weight * (self.values[second][at] - self.values[first][at])
            kept = self._keeps_rules(pair, of_pair, amount, n_cells)
            found[other][~kept & ~np.isnan(found[one])] = np.nan
        return found

    @property
    def _is_complete(self) -> Mask:
        """Which records have a value in every column: the others count for none."""
        complete: Mask = ~np.any(np.isnan(np.stack(list(self.values.values()))), axis=0)
        return complete

    def refuse_values_of_persons(self) -> None:
        """Raises DataError if a column is constant within nearly every person with several trips.

        Cells share no trip but share persons: the totals of two cells with nearly the same persons
        would differ by the value of one of them. Constant means within p % of the largest, as for
        the p % rule, from the lower bound; persons who contribute 0 do not count.
        """
        if self.person is None:
            return
        for column, values in self.values.items():
            low = self.numbers.bounds[column][0]
            at = np.flatnonzero((self.person >= 0) & (self.weight > 0) & ~np.isnan(values))
            who, place, n_trips = np.unique(
                self.person[at], return_inverse=True, return_counts=True
            )
            least, most = np.full(len(who), np.inf), np.zeros(len(who))
            np.minimum.at(least, place, values[at] - low)
            np.maximum.at(most, place, values[at] - low)
            several = (n_trips > 1) & (most > 0)
            constant = several & (least >= most * (1 - self.numbers.p_percent / 100))
            if several.any() and constant.sum() >= NEARLY_EVERY * several.sum():
                raise DataError(
                    f"Column '{column}' belongs to the person, not to the trip: it has the same"
                    " value in nearly all trips of a person. Two cells with nearly the same people"
                    " would reveal the value of one of them. Hint: leave it out, or make classes"
                    " of it and divide by them with --by."
                )

    def _keeps_rules(
        self, pair: Any, of_pair: NDArray[np.int64], amount: Floats, n_cells: int
    ) -> Mask:
        """Returns the cells that keep dominance and the p % rule, some amount of which is not 0.

        Amounts are summed by contributor; the sign of a sum does not matter.
        """
        made, size = (
            np.abs(np.bincount(pair, weights=own, minlength=len(of_pair)))
            for own in (amount, np.abs(amount))
        )
        made[made <= _CANCELLED * size] = 0.0  # an error of rounding
        total = np.bincount(of_pair, weights=made, minlength=n_cells)
        largest, second = _two_largest(of_pair, made, n_cells)
        allowed: Mask = (total > 0) & (largest <= self.numbers.share * total * (1 + _TOLERANCE))
        return allowed & (
            total - largest - second >= self.numbers.p_percent / 100 * largest * (1 - _TOLERANCE)
        )

    def _allowed(
        self,
        role: str,
        cell: NDArray[np.int64],
        contributor: NDArray[np.int64],
        weight: NDArray[np.int64],
        value: Floats,
        bounds: tuple[float, float],
        n_cells: int,
        k: int,
    ) -> Mask:
        """Returns the cells whose values keep all rules."""
        who, pair, of_pair = _pairs(cell, contributor)
        allowed: Mask = np.bincount(of_pair[who > 0], minlength=n_cells) >= max(
            k, self.numbers.fewest
        )
        if role == "median":
            held = np.bincount(pair, weights=weight, minlength=len(who)).astype(np.float64)
            allowed &= 2 * np.sum(_two_largest(of_pair, held, n_cells), axis=0) < np.bincount(
                cell, weights=weight, minlength=n_cells
            )
        for from_bound in (value - bounds[0], bounds[1] - value):
            allowed &= self._keeps_rules(pair, of_pair, weight * from_bound, n_cells)
        return allowed


def merged_values(parts: Iterable[Any], row: NDArray[Any]) -> Mapping[str, RecordValues | None]:
    """Returns the field ``values`` of tables that are concatenated and merged.

    None if one has none.
    """
    tables = list(parts)
    found: list[RecordValues | None] = [getattr(part, "values", None) for part in tables]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return {"values": None}
    start = np.cumsum([0, *(len(part) for part in tables[:-1])]).astype(np.int32)
    columns = {
        name: np.concatenate([one.values[name] for one in known]) for name in known[0].values
    }
    persons = [one.person for one in known if one.person is not None]
    together = replace(
        known[0],
        flow=np.concatenate([one.flow + first for one, first in zip(known, start, strict=True)]),
        person=np.concatenate(persons) if persons else None,
        weight=np.concatenate([one.weight for one in known]),
        values=columns,
    )
    return {"values": together.renumber(row)}


def _pairs(
    cell: NDArray[np.int64], contributor: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Any, NDArray[np.int64]]:
    """Returns the contributor of each distinct pair of cell and contributor, the pair of each row,
    and its cell.
    """
    size = int(contributor.max(initial=0)) + 1
    distinct, pair = np.unique(cell * size + contributor, return_inverse=True)
    return distinct % size, pair, distinct // size


def _two_largest(group: NDArray[np.int64], amount: Floats, n: int) -> tuple[Floats, Floats]:
    """Returns the largest and the second largest amount of each group; 0 where there is none."""
    order = np.lexsort((amount, group))
    found = np.zeros((2, n))
    stop = np.searchsorted(group[order], np.arange(n), side="right")
    size = np.bincount(group, minlength=n)
    for rank in (0, 1):
        there = size > rank
        found[rank, there] = amount[order[stop[there] - 1 - rank]]
    return found[0], found[1]


def _total(cell: NDArray[np.int64], weight: NDArray[np.int64], value: Floats, n: int) -> Floats:
    total, size = (
        np.bincount(cell, weights=weight * v, minlength=n) / ONE for v in (value, np.abs(value))
    )
    # Values that cancel out leave an error of rounding.
    return np.where(np.abs(total) > _CANCELLED * size, total, 0.0)


def _mean(cell: NDArray[np.int64], weight: NDArray[np.int64], value: Floats, n: int) -> Floats:
    weights = np.bincount(cell, weights=weight, minlength=n) / ONE
    found: Floats = np.divide(
        _total(cell, weight, value, n), weights, out=np.full(n, np.nan), where=weights > 0
    )
    return found


def _median(cell: NDArray[np.int64], weight: NDArray[np.int64], value: Floats, n: int) -> Floats:
    """Returns weighted medians: half of the weight is not above, half not below.

    The middle of two such values.
    """
    order = np.lexsort((value, cell))
    below = np.cumsum(weight[order])
    stop = np.searchsorted(cell[order], np.arange(n), side="right")
    ends = np.concatenate(([0], below))[stop]
    starts = np.concatenate(([0], ends[:-1]))
    found, there = np.full(n, np.nan), ends > starts
    middle = (starts + ends)[there]
    lower, upper = (np.searchsorted(2 * below, middle, side=side) for side in ("left", "right"))
    found[there] = (value[order[lower]] + value[order[upper]]) / 2
    return found


_STATISTIC = {"mean": _mean, "total_of": _total, "median": _median}


def round_significant(values: Floats) -> Floats:
    """Returns values rounded to three significant digits, half away from zero.

    The doubles nearest to decimals.
    """
    size = np.abs(values)
    known = np.isfinite(values) & (size > 0)
    digits = np.zeros(len(values), dtype=np.int64)
    digits[known] = _DIGITS - 1 - np.floor(np.log10(size[known])).astype(np.int64)
    up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    whole = np.floor(size * up / down + 0.5 + _TOLERANCE)
    return np.copysign(whole * down / up, values) + 0.0
