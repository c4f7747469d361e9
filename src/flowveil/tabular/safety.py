"""Thresholds of a group of records: k records, l distinct sensitive values, sensitive distribution within t.

Used while cutting, for all candidate groups of one depth at once. The recount of a finished release is in
`flowveil.tabular.risk` and shares nothing with this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.tabular.records import Column, Floats, Ints

#: Distances are sums of rounded quotients; a distance is within t up to this much.
T_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Safety:
    """Thresholds of a group of records, and the columns to test them on.

    Attributes:
        k: fewest records of a group.
        l: fewest distinct values of each sensitive column in a group, or None.
        t: largest distance between the distribution of a sensitive column in a group and in the whole table,
            or None. Numbers and ordered categories: earth mover's distance over ranks, scaled to 0..1; other
            categories: half the sum of absolute differences (all categories equally far apart).
        sensitive: the sensitive columns.
    """

    k: int
    l: int | None = None  # noqa: E741  # the literature's letter
    t: float | None = None
    sensitive: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("l", self.l)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
                raise ParameterError(f"{name} must be a whole number of at least 1; found {value!r}.")
        if self.t is not None and not (np.isfinite(self.t) and 0 <= self.t <= 1):
            raise ParameterError(f"t must be between 0 and 1; found {self.t!r}.")
        if (self.l is not None or self.t is not None) and not self.sensitive:
            raise ParameterError("l and t protect sensitive columns, but none is named.")

    def check_feasible(self, n_records: int) -> None:
        """Raise InfeasibleError if not even the whole table in one class would be safe."""
        if n_records < self.k:
            raise InfeasibleError(
                f"k = {self.k} cannot be met: the table has {n_records} records. Hint: lower k, or publish nothing.",
                best={"k": n_records},
            )
        for column in self.sensitive:
            present = int(np.count_nonzero(np.bincount(column.codes)))
            if self.l is not None and present < self.l:
                raise InfeasibleError(
                    f"l = {self.l} cannot be met: column '{column.name}' has {present} distinct values. Hint: lower l.",
                    best={"l": present},
                )

    def holds(self, group: Ints, n_groups: int, records: Ints) -> NDArray[np.bool_]:
        """Whether each group is safe; an empty group is not.

        Args:
            group: the group of each listed record.
            n_groups: number of groups.
            records: the listed records (positions in the sensitive columns).
        """
        size = np.bincount(group, minlength=n_groups)
        safe = size >= self.k
        if self.l is None and self.t is None:
            return safe
        for column in self.sensitive:
            # Groups below a threshold are not tested further.
            kept = safe[group]
            run_group, run_code, run_count = runs(group[kept], column.codes[records[kept]], column.n_values)
            if self.l is not None:
                safe &= np.bincount(run_group, minlength=n_groups) >= self.l
            if self.t is not None:
                distance = _distances(column, run_group, run_code, run_count, size)
                safe &= distance <= self.t + T_TOLERANCE
        return safe


def runs(group: Ints, code: Ints, n_codes: int) -> tuple[Ints, Ints, Ints]:
    """The distinct (group, code) pairs in order, and how many records each has."""
    key = np.sort(group * n_codes + code)
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))) if len(key) else np.zeros(0, np.int64)
    count = np.diff(np.append(first, len(key)))
    return key[first] // n_codes, key[first] % n_codes, count


def _distances(column: Column, run_group: Ints, run_code: Ints, run_count: Ints, size: Ints) -> Floats:
    """Distance of each group's distribution from the whole table's, from its runs alone."""
    total = np.bincount(column.codes, minlength=column.n_values)
    # Codes without records (categories of a declared order) do not enter the distance.
    rank = np.cumsum(total > 0) - 1
    total = total[total > 0]
    run_rank = rank[run_code]
    share = run_count / size[run_group]
    n_groups = len(size)
    if column.has_order:
        return _earth_mover(total, run_group, run_rank, run_count, size)
    whole = total / total.sum()
    # Values the group does not have contribute their whole share: 1 minus the shares of those it has.
    difference = np.abs(share - whole[run_rank]) - whole[run_rank]
    return (1 + np.bincount(run_group, weights=difference, minlength=n_groups)) / 2


def _earth_mover(total: Ints, run_group: Ints, run_rank: Ints, run_count: Ints, size: Ints) -> Floats:
    """Mean absolute difference of the two distribution functions over the ranks 0..m-2.

    Between two values of a group its distribution function is flat, and the table's is rising, so each flat
    piece splits at one point into a part above and a part below: two look-ups in prefix sums for each run,
    whatever the number of distinct values.
    """
    m = len(total)
    if m < 2:
        return np.zeros(len(size))
    whole = np.cumsum(total)[:-1] / total.sum()
    prefix = np.concatenate(([0.0], np.cumsum(whole)))
    last = np.append(run_group[1:] != run_group[:-1], True) if len(run_group) else np.zeros(0, bool)
    first = np.append(True, last[:-1]) if len(run_group) else last
    running = np.cumsum(run_count)
    before = np.maximum.accumulate(np.where(first, running - run_count, 0))
    level = (running - before) / size[run_group]
    begin = np.minimum(run_rank, m - 1)
    end = np.where(last, m - 1, np.append(run_rank[1:], 0))
    split = np.clip(np.searchsorted(whole, level), begin, end)
    area = level * (2 * split - begin - end) + prefix[begin] + prefix[end] - 2 * prefix[split]
    # Before a group's first value its distribution function is 0.
    area += np.where(first, prefix[begin], 0.0)
    return np.bincount(run_group, weights=area, minlength=len(size)) / (m - 1)
