"""Disclosure risk: recount of a k-anonymous table, class sizes, replicated uniques.

`recheck` reads the published text and counts again with DuckDB; it shares no code with the cutting, so an
error there is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.errors import DataError, GuaranteeError
from flowveil.reading.limits import silence
from flowveil.tabular.records import as_table, check_columns, plain_array

#: Distances are sums of rounded quotients; a distance is within t up to this much.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class ClassReport:
    """Measures of the classes of a table.

    Attributes:
        n_records, n_classes: their numbers.
        k: records of the smallest class.
        l: fewest distinct values of a sensitive column in a class, or None without sensitive columns.
        t: largest distance of a class's sensitive distribution from the table's, or None.
        largest: records of the largest class.
        mean: records of a class on average.
        c_dm: discernibility, the sum of the squared class sizes.
        c_avg: mean class size over the requested k (over the smallest class without one).
    """

    n_records: int
    n_classes: int
    k: int
    l: int | None  # noqa: E741
    t: float | None
    largest: int
    mean: float
    c_dm: int
    c_avg: float


def discernibility(class_size: NDArray[np.int64]) -> int:
    """C_DM: the sum over classes of the squared number of records."""
    size = np.asarray(class_size, dtype=np.int64)
    return int(np.sum(size * size))


def describe_classes(
    records: Any,
    *,
    quasi_identifiers: Sequence[str],
    sensitive: Mapping[str, bool | Sequence[str]] | None = None,
    k: int | None = None,
) -> ClassReport:
    """Group a table by its quasi-identifiers as they stand and measure the classes.

    Args:
        records: a table, published or not. A missing value equals a missing value and nothing else.
        quasi_identifiers: the columns that make a class.
        sensitive: for each sensitive column whether its values are ordered (earth mover's distance) or not; a
            sequence gives the order itself.
        k: the requested k, for `c_avg`.
    """
    table = as_table(records)
    check_columns(table, [*quasi_identifiers, *(sensitive or {})], "to be described")
    if table.num_rows == 0:
        raise DataError("The table has no records.")
    # Numbered names: a column of the input may be called what the queries below call something else.
    keys = [f"q{i}" for i in range(len(quasi_identifiers))]
    values = {name: f"s{i}" for i, name in enumerate(sensitive or {})}
    renamed = [_quoted(name) + f" as {key}" for name, key in zip(quasi_identifiers, keys, strict=True)]
    renamed += [_quoted(name) + f" as {value}" for name, value in values.items()]
    with _private_connection() as connection:
        connection.register("input", table)
        connection.execute(f"create temp view records as select {', '.join(renamed)} from input")
        connection.execute(
            f"create temp table classes as select row_number() over () - 1 as class, n, {', '.join(keys)} "
            f"from (select {', '.join(keys)}, count(*) as n from records group by {', '.join(keys)})"
        )
        size = connection.execute("select n from classes order by class").fetchnumpy()["n"].astype(np.int64)
        measured = [
            _sensitive_in_classes(connection, values[name], ordered, keys, size)
            for name, ordered in (sensitive or {}).items()
        ]
    smallest = int(size.min())
    return ClassReport(
        n_records=table.num_rows,
        n_classes=len(size),
        k=smallest,
        l=min((fewest for fewest, _ in measured), default=None),
        t=max((farthest for _, farthest in measured), default=None),
        largest=int(size.max()),
        mean=table.num_rows / len(size),
        c_dm=discernibility(size),
        c_avg=table.num_rows / len(size) / (k or smallest),
    )


@cache
def _database() -> Any:
    """Open one database for all counts: opening takes longer than counting a small table."""
    import duckdb

    return duckdb.connect()


@contextmanager
def _private_connection() -> Iterator[Any]:
    """Open a connection with private temporary tables."""
    connection = _database().cursor()
    silence(connection)
    try:
        yield connection
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sensitive_in_classes(
    connection: Any, value: str, ordered: bool | Sequence[str], keys: Sequence[str], size: NDArray[np.int64]
) -> tuple[int, float]:
    """Fewest distinct values in a class, and the largest distance of a class from the whole."""
    match = " and ".join(f"r.{key} is not distinct from c.{key}" for key in keys)
    rank = f"list_position(?, cast({value} as varchar))" if not isinstance(ordered, bool) else value
    # Missing values rank last and are one value.
    counts = connection.execute(
        f"with ranked as (select {value} as v, dense_rank() over (order by {rank} nulls last) - 1 as code "
        f"from (select distinct {value} from records)) "
        f"select c.class, k.code, count(*) as n from records r join classes c on {match} "
        f"join ranked k on r.{value} is not distinct from k.v group by c.class, k.code",
        [] if isinstance(ordered, bool) else [list(ordered)],
    ).fetchnumpy()
    group, code, n = (np.asarray(counts[c]).astype(np.int64) for c in ("class", "code", "n"))
    n_values = int(code.max()) + 1
    whole = np.bincount(code, weights=n, minlength=n_values) / size.sum()
    fewest = int(np.bincount(group, minlength=len(size)).min())
    farthest = 0.0
    # In blocks of classes: a dense table of at most about four million entries.
    block = max(1, 4_000_000 // n_values)
    for begin in range(0, len(size), block):
        here = (group >= begin) & (group < begin + block)
        dense = np.zeros((min(block, len(size) - begin), n_values))
        dense[group[here] - begin, code[here]] = n[here]
        difference = dense / size[begin : begin + block, None] - whole
        if ordered:
            moved = np.abs(np.cumsum(difference, axis=1)).sum(axis=1) / max(n_values - 1, 1)
        else:
            moved = np.abs(difference).sum(axis=1) / 2
        farthest = max(farthest, float(moved.max()))
    return fewest, farthest


def recheck(
    published: pa.Table,
    *,
    quasi_identifiers: Sequence[str],
    k: int,
    sensitive: Mapping[str, bool | Sequence[str]] | None = None,
    l: int | None = None,  # noqa: E741
    t: float | None = None,
    n_records: int | None = None,
) -> ClassReport:
    """Recount a published table and raise unless the guarantee holds.

    Raises:
        GuaranteeError: a class is too small, not diverse or too far, or records were lost. The findings name
            what falls short, never a record.
    """
    needs_values = l is not None or t is not None
    report = describe_classes(
        published, quasi_identifiers=quasi_identifiers, sensitive=sensitive if needs_values else None, k=k
    )
    findings = []
    if report.k < k:
        findings.append(f"a class has fewer than k = {k} records")
    if l is not None and (report.l is None or report.l < l):
        findings.append(f"a class has fewer than l = {l} distinct sensitive values")
    if t is not None and (report.t is None or report.t > t + _TOLERANCE):
        findings.append(f"a class is farther than t = {t} from the whole table")
    if n_records is not None and report.n_records != n_records:
        findings.append("the number of records has changed")
    if findings:
        raise GuaranteeError(
            f"The recount of the table failed: {'; '.join(findings)}. Nothing was written.", findings=findings
        )
    return report


# ---- edges of published ranges -----------------------------------------------------------------------------


def recheck_ranges(
    published: Any, original: Any, *, step: Fraction, public: tuple[Any, Any], k: int, missing_label: str
) -> None:
    """Read the published ranges of numbers again and raise unless their edges are safe.

    Every edge is a multiple of the step or an end that is public; a single value is published only where the step is
    as fine as the column; and unless an end is public, at least k records lie beyond the outermost edge on its side,
    counted from the original numbers.

    Args:
        published: the published column.
        original: the column it was made from.
        step: of the grid, in units of the column (for times: its own unit).
        public: the declared public ends, in the same units; None for an end that is not public.
        k: the threshold.
        missing_label: how missing values are published.

    Raises:
        GuaranteeError: an edge lies elsewhere, or a tail is too small.
    """
    texts = {t.removesuffix(f" or {missing_label}") for t in pc.unique(published).to_pylist()} - {missing_label}
    kind = plain_array(original).type
    numbers = _as_numbers(plain_array(original).drop_null())
    whole = not pa.types.is_floating(kind)
    edges: set[str] = set()
    findings = []
    for text in sorted(texts):
        found = re.fullmatch(r"([\[(])(.+), (.+)([\])])", text)
        if found is None and not (whole and step == 1):
            findings.append("a single number is published, though cells hold several")
        edges |= {text} if found is None else {found[2], found[3]} - {"-inf", "inf"}
    places = [place for place in sorted(_parsed(sorted(edges), kind)) if place not in public]
    for place in places:
        steps = Fraction(place) / step
        if abs(steps - round(steps)) * 10**9 > max(Fraction(1), abs(steps)):
            findings.append("an edge is not on the grid")
    if places and public[0] is None and int(np.sum(numbers < places[0])) < k:
        findings.append(f"fewer than k = {k} records lie below the lowest edge")
    if places and public[1] is None and int(np.sum(numbers >= places[-1])) < k:
        findings.append(f"fewer than k = {k} records lie at or above the highest edge")
    if findings:
        raise GuaranteeError(
            f"The recheck of published ranges failed: {'; '.join(sorted(set(findings)))}. Nothing was written.",
            findings=sorted(set(findings)),
        )


def _parsed(texts: Sequence[str], kind: Any) -> list[Any]:
    """Published edges as numbers of the column's unit."""
    if pa.types.is_duration(kind):
        return [int(text) for text in texts]
    if not pa.types.is_time(kind):
        return list(_as_numbers(pa.array(texts, pa.string()).cast(kind)).tolist())
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    parts = [[Fraction(part) for part in text.split(":")] for text in texts]
    return [int((hours * 3600 + minutes * 60 + seconds) * per_second) for hours, minutes, seconds in parts]


def _as_numbers(array: Any) -> NDArray[Any]:
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return np.asarray(array.to_numpy(zero_copy_only=False))


# ---- replicated uniques ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UniquesReport:
    """How many unique records of the original come back as unique records.

    Attributes:
        n_records: records of the original.
        n_cells: cells of the full cross-tabulation (product of the numbers of categories).
        empty_cells: per cent of those cells that are empty in the original (the thesis's p0).
        unique: records of the original with a unique combination, per cent of its records (p1).
        ru: replicated uniques: combinations that are unique in both tables, per cent of the original's
            records.
        ru_of_unique: the same as per cent of the original's unique records; 0 if it has none.
    """

    n_records: int
    n_cells: int
    empty_cells: float
    unique: float
    ru: float
    ru_of_unique: float


def replicated_uniques(
    original: Any, synthetic: Any, *, variables: Sequence[str], n_cells: int | None = None
) -> UniquesReport:
    """Count the combinations that are unique in both tables.

    Args:
        original: the original table.
        synthetic: the synthetic one.
        variables: the columns that make a combination.
        n_cells: cells of the full cross-tabulation, if its categories are declared; by default the product of
            the numbers of distinct values of the original.
    """
    first, second = as_table(original), as_table(synthetic)
    for table, role in ((first, "original"), (second, "synthetic")):
        check_columns(table, variables, role)
    keys = ", ".join(f"cast({_quoted(v)} as varchar) as v{i}" for i, v in enumerate(variables))
    names = ", ".join(f"v{i}" for i in range(len(variables)))
    with _private_connection() as connection:
        connection.register("original", first)
        connection.register("synthetic", second)
        for source in ("original", "synthetic"):
            connection.execute(
                f"create temp table cells_{source} as "
                f"select {names}, count(*) as n from (select {keys} from {source}) group by {names}"
            )
        match = " and ".join(f"a.v{i} is not distinct from b.v{i}" for i in range(len(variables)))
        used, alone = _row(connection, "select count(*), count(*) filter (where n = 1) from cells_original")
        (both,) = _row(
            connection,
            f"select count(*) from cells_original a join cells_synthetic b on {match} where a.n = 1 and b.n = 1",
        )
        if n_cells is None:
            distinct = ", ".join(f"count(distinct v{i}) + max((v{i} is null)::int)" for i in range(len(variables)))
            n_cells = prod(_row(connection, f"select {distinct} from cells_original"))
    n = first.num_rows
    return UniquesReport(
        n_records=n,
        n_cells=n_cells,
        empty_cells=100 * (1 - used / n_cells),
        unique=100 * alone / n,
        ru=100 * both / n,
        ru_of_unique=100 * both / alone if alone else 0.0,
    )


def _row(connection: Any, query: str) -> tuple[int, ...]:
    return tuple(int(value) for value in connection.execute(query).fetchone())
