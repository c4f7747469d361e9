"""Disclosure risk: recount of a k-anonymous table, and class sizes.

`recheck` reads the published text and counts again; it shares no code with the cutting, so an error
there is found here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.arrays import Numbers
from flowveil.core.errors import DataError, GuaranteeError
from flowveil.tabular.records import (
    MISSING,
    as_table,
    check_columns,
    named_array,
    plain_array,
    whole_numbers,
)

#: Distances are sums of rounded quotients; a distance is within t up to this much.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class ClassReport:
    """Measures of the classes of a table; `c_avg` is the mean class size over k.

    `l` is the fewest distinct values of a sensitive column in a class, `t` the largest distance of
    a class's sensitive distribution from the table's, `entropy_l` the smallest exp of an entropy;
    None without sensitive columns. `recursive_c` is the largest share of the most frequent value in
    the records of a class without its l - 1 most frequent values; None if no l was given.
    """

    n_records: int
    n_classes: int
    k: int
    l: int | None  # noqa: E741
    t: float | None
    mean: float
    c_dm: int
    c_avg: float
    entropy_l: float | None = None
    recursive_c: float | None = None


def discernibility(class_size: Numbers) -> int:
    """C_DM: the sum over classes of the squared number of records."""
    return int(np.sum(class_size * class_size))


def describe_classes(
    records: Any,
    *,
    quasi_identifiers: Sequence[str],
    sensitive: Mapping[str, bool | Sequence[str]] | None = None,
    k: int | None = None,
    l: int | None = None,  # noqa: E741
) -> ClassReport:
    """Group a table by its quasi-identifiers as they stand and measure the classes.

    A missing value equals a missing value and nothing else. ``sensitive`` says of each sensitive
    column whether its values are ordered (earth mover's distance) or not; a sequence gives the
    order itself. ``k`` is the requested one, for `c_avg`; by default the smallest class. ``l`` is
    for `recursive_c`.
    """
    table = as_table(records)
    check_columns(table, [*quasi_identifiers, *(sensitive or {})], "to be described")
    if table.num_rows == 0:
        raise DataError("The table has no records.")
    # Missing values are one value.
    keys = (
        named_array(table, name).dictionary_encode("encode").indices for name in quasi_identifiers
    )
    group = number_rows([key.to_numpy(zero_copy_only=False).astype(np.int64) for key in keys])
    size = np.bincount(group)
    measured = [
        _within_classes(group, size, named_array(table, name), ordered)
        for name, ordered in (sensitive or {}).items()
    ]
    mean = table.num_rows / len(size)
    return ClassReport(
        n_records=table.num_rows,
        n_classes=len(size),
        k=int(size.min()),
        l=min((fewest for fewest, *_ in measured), default=None),
        t=max((farthest for _, farthest, _ in measured), default=None),
        entropy_l=min(
            (_effective(counts) for *_, every in measured for counts in every), default=None
        ),
        recursive_c=None
        if l is None
        else max(
            (_top_ratio(counts, l) for *_, every in measured for counts in every), default=None
        ),
        mean=mean,
        c_dm=discernibility(size),
        c_avg=mean / (k or int(size.min())),
    )


def number_rows(columns: Sequence[Numbers]) -> Numbers:
    """Number the distinct rows of some columns of numbers from 0."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        # Renumbered after each column: the product of many domains would overflow.
        _, number = np.unique(number * (int(column.max()) + 1) + column, return_inverse=True)
    return number.reshape(-1)


def _effective(counts: Numbers) -> float:
    """Number of equally frequent values with the entropy of these."""
    share = counts / counts.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def _top_ratio(counts: Numbers, l: int) -> float:  # noqa: E741
    """The largest count over the sum of all but the l - 1 largest ones."""
    falling = np.sort(counts)[::-1]
    rest = int(falling[l - 1 :].sum())
    return float(falling[0] / rest) if rest else float("inf")


def _within_classes(
    group: Numbers, size: Numbers, column: Any, ordered: bool | Sequence[str]
) -> tuple[int, float, list[Numbers]]:
    """Fewest distinct values in a class, the largest distance of a class from the whole, and the
    records of each value of each class.
    """
    encoded = column.dictionary_encode("encode")
    values, n_values = encoded.dictionary, len(encoded.dictionary)
    rank = np.arange(n_values)
    if ordered:
        named = isinstance(ordered, bool)
        place = (
            values
            if named
            else pc.index_in(values.cast(pa.string()), value_set=pa.array(ordered, pa.string()))
        )
        # Missing values rank last.
        rank[pc.sort_indices(place).to_numpy()] = np.arange(n_values)
    code = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    pair, n = np.unique(group * n_values + code, return_counts=True)
    of_pair = pair // n_values
    whole = np.bincount(code, minlength=n_values) / len(code)
    farthest = 0.0
    # In blocks of classes: a dense table of at most about four million entries.
    block = max(1, 4_000_000 // n_values)
    for begin in range(0, len(size), block):
        here = (of_pair >= begin) & (of_pair < begin + block)
        dense = np.zeros((min(block, len(size) - begin), n_values))
        dense[of_pair[here] - begin, pair[here] % n_values] = n[here]
        difference = dense / size[begin : begin + block, None] - whole
        if ordered:
            moved = np.abs(np.cumsum(difference, axis=1)).sum(axis=1) / max(n_values - 1, 1)
        else:
            moved = np.abs(difference).sum(axis=1) / 2
        farthest = max(farthest, float(moved.max()))
    by_class = np.split(n, np.flatnonzero(np.diff(of_pair)) + 1)
    return int(np.bincount(of_pair).min()), farthest, by_class


def recheck(
    published: pa.Table,
    *,
    quasi_identifiers: Sequence[str],
    k: int,
    sensitive: Mapping[str, bool | Sequence[str]] | None = None,
    l: int | None = None,  # noqa: E741
    t: float | None = None,
    entropy_l: float | None = None,
    recursive_c: float | None = None,
    n_records: int | None = None,
) -> ClassReport:
    """Recount a published table and raise GuaranteeError unless the guarantee holds.

    Findings never name a record.
    """
    needs_values = any(value is not None for value in (l, t, entropy_l, recursive_c))
    report = describe_classes(
        published,
        quasi_identifiers=quasi_identifiers,
        sensitive=sensitive if needs_values else None,
        k=k,
        l=l,
    )
    findings = []
    if report.k < k:
        findings.append(f"a class has fewer than k = {k} records")
    if l is not None and (report.l is None or report.l < l):
        findings.append(f"a class has fewer than l = {l} distinct sensitive values")
    if t is not None and (report.t is None or report.t > t + _TOLERANCE):
        findings.append(f"a class is farther than t = {t} from the whole table")
    if entropy_l is not None and (report.entropy_l or 0) < entropy_l * (1 - _TOLERANCE):
        findings.append(f"a class is less diverse than {entropy_l:g} equally frequent values")
    if recursive_c is not None and not (report.recursive_c or 0) < recursive_c:
        findings.append(f"a class has a value in {recursive_c:g} times the rest or more")
    if n_records is not None and report.n_records != n_records:
        findings.append("the number of records has changed")
    _refuse("recount of the table", findings)
    return report


def _refuse(what: str, findings: Sequence[str]) -> None:
    if findings:
        raise GuaranteeError(
            f"The {what} failed: {'; '.join(findings)}. Nothing was written.",
            findings=list(findings),
        )


def recheck_ranges(published: Any, original: Any, grid: Any, *, k: int) -> None:
    """Read the published ranges of numbers again and raise GuaranteeError unless their edges are
    safe.

    Every edge is a multiple of the step of the `Grid` or an end that is public; a single value is
    published only where the step is as fine as the column; and unless an end is public, at least k
    records lie beyond the outermost edge on its side, counted from the original numbers.
    """
    step, public = grid.step, (grid.lowest, grid.highest)
    texts = {t.removesuffix(f" or {MISSING}") for t in pc.unique(published).to_pylist()} - {MISSING}
    kind = plain_array(original).type
    numbers = np.asarray(
        whole_numbers(plain_array(original).drop_null()).to_numpy(zero_copy_only=False)
    )
    edges: set[str] = set()
    findings = set()
    for text in texts:
        ends = re.fullmatch(r"[\[(](.+), (.+)[\])]", text)
        if ends is None and (pa.types.is_floating(kind) or step != 1):
            findings.add("a single number is published, though cells hold several")
        edges |= {text} if ends is None else set(ends.groups()) - {"-inf", "inf"}
    places = [place for place in sorted(_parsed(sorted(edges), kind)) if place not in public]
    for place in places:
        steps = Fraction(place) / step
        if abs(steps - round(steps)) * 10**9 > max(Fraction(1), abs(steps)):
            findings.add("an edge is not on the grid")
    if places and public[0] is None and int(np.sum(numbers < places[0])) < k:
        findings.add(f"fewer than k = {k} records lie below the lowest edge")
    if places and public[1] is None and int(np.sum(numbers >= places[-1])) < k:
        findings.add(f"fewer than k = {k} records lie at or above the highest edge")
    _refuse("recheck of published ranges", sorted(findings))


def _parsed(texts: Sequence[str], kind: Any) -> list[Any]:
    """Published edges as numbers of the column's unit."""
    if pa.types.is_duration(kind):
        return [int(text) for text in texts]
    if not pa.types.is_time(kind):
        return list(whole_numbers(pa.array(texts, pa.string()).cast(kind)).to_pylist())
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    parts = [[Fraction(part) for part in text.split(":")] for text in texts]
    return [
        int((hours * 3600 + minutes * 60 + seconds) * per_second)
        for hours, minutes, seconds in parts
    ]
