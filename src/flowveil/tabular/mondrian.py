"""Multidimensional Mondrian for records (LeFevre, DeWitt and Ramakrishnan 2006), strict and
relaxed.

All partitions of one depth are cut together, with one sort for each quasi-identifier;
docs/tabular/mondrian.md has the kinds of cuts, and `tests/reference/tabular_mondrian.py` the same
algorithm as a plain recursion. A cut is allowed if both halves are safe: k records, and l and t if
requested. Ties: the quasi-identifier named first, and the lower boundary. A missing number or
ordered category ranks above all others; a missing category is one more category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.arrays import Floats, Mask, Numbers
from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.tabular import records as rows
from flowveil.tabular.classes import (
    Region,
    Safety,
    covering_children,
    number_by_text,
    regions_of,
    runs,
)
from flowveil.tabular.grid import Grid, encode_on_grid
from flowveil.tabular.records import Attribute, Column, encode
from flowveil.tabular.risk import ClassReport, recheck, recheck_ranges

#: Name of the published column that holds the class of each record.
CLASS_COLUMN = "equivalence_class"


@dataclass(frozen=True, eq=False)
class Anonymized:
    """A k-anonymous table, and private details for the data holder.

    The table may be published: the recoded quasi-identifiers, the sensitive and the kept columns
    unchanged, and the class of each record, sorted by class and content. Relaxed cuts may publish
    two classes alike; the column `equivalence_class` separates them, and each alone is safe. An
    independent recount of the table has confirmed k, l and t; `classes` has its measures.
    """

    table: pa.Table
    class_of_record: Numbers  # of the input. Private
    regions: tuple[Region, ...]  # published values of each class, one entry per quasi-identifier
    options: MondrianOptions
    k: int
    grids: Mapping[
        str, Grid
    ]  # permitted edges of published ranges, for each numeric quasi-identifier
    classes: ClassReport

    @property
    def sensitive(self) -> tuple[str, ...]:
        """Names of the sensitive columns."""
        return tuple(a.name for a in rows.as_attributes(self.options.sensitive))

    @property
    def quasi_identifiers(self) -> list[str]:
        """Names of the quasi-identifiers."""
        return [region.column.name for region in self.regions]

    @property
    def class_size(self) -> Numbers:
        """Records of each class."""
        return np.bincount(self.class_of_record)

    def information_loss(self) -> float:
        """Return the normalised certainty penalty (Xu et al.

        2006), the mean over records and quasi-identifiers.

        A published value costs 0 if it is exact, otherwise the share of the column's values that it
        covers; a range costs its width as a share of the column's range, counted in cells.
        """
        losses = []
        for region in self.regions:
            covered, n = region.size, region.column.n_values
            of_range, of_set = (
                (covered - 1) / max(n - 1, 1),
                np.where(covered > 1, covered / n, 0.0),
            )
            loss = of_range if region.column.has_order else of_set
            losses.append(float(np.average(loss, weights=self.class_size)))
        return float(np.mean(losses))

    def report(self) -> dict[str, Any]:
        """Plain data: parameters, measures, and the statement of what is and is not protected."""
        thresholds = {"k": self.k, **self.options.thresholds()}
        return {
            "method": "mondrian",
            "partitioning": "strict" if self.options.strict else "relaxed",
            "guarantee": {name: value for name, value in thresholds.items() if value is not None},
            "quasi_identifiers": self.quasi_identifiers,
            "grids": {name: grid.to_dict() for name, grid in self.grids.items()},
            "sensitive": list(self.sensitive),
            "kept": list(self.options.keep),
            "measures": {
                "records": self.classes.n_records,
                "classes": self.classes.n_classes,
                "smallest_class": self.classes.k,
                "mean_class": self.classes.mean,
                "c_dm": self.classes.c_dm,
                "c_avg": self.classes.c_avg,
                "ncp": self.information_loss(),
            },
            "statement": self._statement(),
        }

    def _statement(self) -> str:
        l, t = self.options.l or 0, self.options.t  # noqa: E741
        hidden = "" if not l else f" and {l} distinct sensitive values"
        close = "" if t is None else f", its sensitive values within {t:g} of the whole table's"
        if self.options.entropy_l is not None:
            hidden += f", as diverse as {self.options.entropy_l:g} equally frequent ones"
        if self.options.recursive_c is not None:
            close += (
                ", and its most frequent sensitive value in fewer records than"
                f" {self.options.recursive_c:g} times those without its {l - 1} most frequent ones"
            )
        return (
            f"{self.k}-anonymous: every record shares its quasi-identifiers"
            f" ({', '.join(self.quasi_identifiers)}) with a class of at least {self.k}"
            f" records{hidden}{close}. Not protected: whether a person is in the table, and what"
            " all or most records of a class have in common. Columns that are not named here as"
            " quasi-identifiers are published unchanged. Two releases of the same people can be"
            " combined."
        )


@dataclass(frozen=True, kw_only=True)
class MondrianOptions:
    """Options of `anonymize_records`."""

    sensitive: Sequence[
        str | Attribute
    ] = ()  # columns published unchanged and protected by l and t
    keep: Sequence[str] = ()  # columns published unchanged and not protected
    allow_identifiers: Sequence[
        str
    ] = ()  # may be published unchanged although most of their values are unique
    # fewest distinct sensitive values of a class; a missing value is one
    l: int | None = None  # noqa: E741
    t: float | None = None  # largest distance of a class's sensitive distribution from the table's
    # entropy l-diversity: exp of the entropy of each sensitive column in a class is at least this
    entropy_l: float | None = None
    # recursive (c, l)-diversity: a class's most frequent sensitive value has fewer records than c
    # times all but its l - 1 most frequent values
    recursive_c: float | None = None
    strict: bool = False  # disjoint regions; else relaxed, which cuts finer
    # cut the widest share of the whole range (LeFevre); or ``distinct``: the most values
    choose: str = "width"
    # a class whose first choice has no allowed cut is final; else the next choice is tried
    stop_at_first: bool = False

    def thresholds(self) -> dict[str, Any]:
        """The thresholds on sensitive values, by name; None for those that are not requested."""
        names = ("l", "t", "entropy_l", "recursive_c")
        return {name: getattr(self, name) for name in names}


def anonymize_records(
    records: Any,
    *,
    quasi_identifiers: Sequence[str | Attribute],
    direct_identifiers: Sequence[str],
    k: int,
    **options: Any,
) -> Anonymized:
    """Make a table k-anonymous by Mondrian; it is recounted before it is returned.

    Guaranteed: every combination of published quasi-identifiers has at least k records; with l, at
    least l distinct values of each sensitive column; with entropy_l and recursive_c, values of
    such diversity (Machanavajjhala et al. 2007); with t, a distribution of each sensitive
    column within t of the whole table's. Every published value is true of its record. The result
    does not depend on the order of the records.

    Args:
        records: a pyarrow, pandas or polars table.
        quasi_identifiers: names, or attributes that say the kind, order or hierarchy.
        direct_identifiers: columns to drop. No default: an empty list confirms that there are no
            such columns.
        k: fewest records of a class.
        **options: see `Options`.

    Raises:
        ParameterError: a parameter is out of range, or a column has no role or two.
        DataError: a column is absent or holds values its order or hierarchy does not know.
        InfeasibleError: the whole table in one class would not be safe.
        GuaranteeError: the recount failed; nothing is returned.
    """
    table, asked = rows.as_table(records), MondrianOptions(**options)
    keys, hidden = rows.as_attributes(quasi_identifiers), rows.as_attributes(asked.sensitive)
    _check_request(table, keys, hidden, direct_identifiers, asked)
    protected = tuple(encode(table, a) for a in hidden)
    # Before the grid, which needs a valid k.
    thresholds = asked.thresholds()
    safety = Safety(k=k, sensitive=protected, **thresholds)
    on_grid = [encode_on_grid(table, a, k=k) for a in keys]
    columns = tuple(column for column, _ in on_grid)
    safety.check_feasible(table.num_rows)
    others = [encode(table, Attribute(name)) for name in asked.keep]
    _refuse_identifiers(
        [*protected, *others, *(c for c in columns if c.kind == "unordered")],
        asked.allow_identifiers,
    )
    order = canonical_order(columns, protected, others)
    partition = partition_records(
        columns,
        safety,
        strict=asked.strict,
        choose=asked.choose,
        stop_at_first=asked.stop_at_first,
        order=order,
    )
    class_of = number_by_text(regions_of(columns, partition))[partition]
    regions = regions_of(columns, class_of)
    published = _published(table, protected, others, regions, class_of)
    grids = {column.name: grid for column, grid in on_grid if grid is not None}
    for name, grid in grids.items():
        recheck_ranges(published[name], table[name], grid, k=k)
    classes = recheck(
        published,
        # By class: the guarantee of each class also holds for the union of classes published alike.
        quasi_identifiers=[*(a.name for a in keys), CLASS_COLUMN],
        sensitive={a.name: a.order or c.has_order for a, c in zip(hidden, protected, strict=True)},
        **{"k": k, "n_records": table.num_rows, **thresholds},
    )
    return Anonymized(published, class_of, regions, asked, int(k), grids, classes)


def _check_request(
    table: pa.Table,
    keys: Sequence[Attribute],
    hidden: Sequence[Attribute],
    dropped: Sequence[str],
    asked: MondrianOptions,
) -> None:
    """Raise if the request is invalid, or does not fit this table."""
    choices = ("width", "distinct")
    if asked.choose not in choices:
        hint = did_you_mean(asked.choose, choices)
        raise ParameterError(
            f"Unknown choice '{asked.choose}'; allowed: {', '.join(choices)}.{hint}"
        )
    if not keys:
        raise ParameterError("No quasi-identifier is named; at least one is needed.")
    rows.check_roles(
        table,
        quasi_identifiers=[a.name for a in keys],
        sensitive=[a.name for a in hidden],
        kept=asked.keep,
        direct_identifiers=dropped,
    )
    if CLASS_COLUMN in table.column_names and CLASS_COLUMN not in dropped:
        raise DataError(
            f"The table has a column '{CLASS_COLUMN}', which the result needs. Hint: rename it."
        )
    if table.num_rows == 0:
        raise DataError("The table has no records.")


def _refuse_identifiers(columns: Sequence[Column], allowed: Sequence[str]) -> None:
    """Refuse columns whose published values identify most people, unless they are confirmed."""
    for column in columns:
        known = column.codes[column.codes != column.missing]
        distinct = int(np.count_nonzero(np.bincount(known)))
        if 2 * distinct > len(known) > 1 and column.name not in allowed:
            raise ParameterError(
                f"Column '{column.name}' has {distinct:,} different values in {len(known):,}"
                " records: an attacker who knows one of them finds the person, whatever k is."
                " Hint: name it as a direct identifier, make it coarser, or confirm that its"
                " values may be published (--allow-identifier, allow_identifiers)."
            )


def _published(
    table: pa.Table,
    sensitive: Sequence[Column],
    kept: Sequence[Column],
    regions: Sequence[Region],
    class_of: Numbers,
) -> pa.Table:
    as_is = [*sensitive, *kept]
    order = np.lexsort([c.codes for c in reversed(as_is)] + [class_of])
    arrays: dict[str, Any] = {CLASS_COLUMN: pa.array(class_of[order], pa.int64())}
    for region in regions:
        arrays[region.column.name] = region.text.take(pa.array(class_of[order]))
    for column in as_is:
        arrays[column.name] = rows.published_as_is(table, column.name).take(pa.array(order))
    names = [name for name in table.column_names if name in arrays]
    return pa.table([arrays[name] for name in (*names, CLASS_COLUMN)], names=[*names, CLASS_COLUMN])


def canonical_order(
    columns: Sequence[Column], sensitive: Sequence[Column] = (), others: Sequence[Column] = ()
) -> Numbers:
    """Return an order of the records that depends on their content only.

    Relaxed cuts part records that are equal in the quasi-identifiers, so the order among those
    decides who goes where. Sorting them by the sensitive value would put equal sensitive values
    together, the worst choice for privacy. Instead each sensitive value is spread evenly over the
    equal records.
    """
    n = len(columns[0].codes)
    keys = [c.codes for c in columns]
    tail = [c.codes for c in (*sensitive, *others)]
    by_value: Numbers = np.lexsort([*reversed(tail), *reversed(keys)])
    if not sensitive:
        return by_value
    group = _numbered([c[by_value] for c in keys])
    value = _numbered([c[by_value] for c in (*keys, *(s.codes for s in sensitive))])
    count = np.bincount(value)
    start, count = np.cumsum(count) - count, count[value]
    spread = (2 * (np.arange(n) - start[value]) + 1) / (2 * count)
    by_spread: Numbers = np.lexsort((np.arange(n), spread, group))
    return np.take(by_value, by_spread)


def _numbered(sorted_keys: Sequence[Numbers]) -> Numbers:
    """Number the runs of equal rows; the rows are sorted."""
    new = np.zeros(len(sorted_keys[0]), dtype=np.bool_)
    for key in sorted_keys:
        new[1:] |= key[1:] != key[:-1]
    return np.cumsum(new).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Level:
    """The partitions of one depth that may still be cut.

    Their records in canonical order, partition by partition.
    """

    records: Numbers
    partition: Numbers

    @cached_property
    def size(self) -> Numbers:
        return np.bincount(self.partition)


def partition_records(
    columns: Sequence[Column],
    safety: Safety,
    *,
    strict: bool,
    choose: str = "width",
    stop_at_first: bool = False,
    order: Numbers | None = None,
) -> Numbers:
    """Return the partition of each record.

    Partitions are numbered in the order they are finished.
    """
    records = canonical_order(columns, safety.sensitive) if order is None else order
    final = np.empty(len(records), dtype=np.int64)
    finished = 0
    level = _Level(records, np.zeros(len(records), np.int64))
    while len(level.size):
        right, was_cut = _best_cuts(
            level, columns, safety, strict=strict, choose=choose, stop_at_first=stop_at_first
        )
        cut = was_cut[level.partition]
        number = np.cumsum(~was_cut) - 1 + finished
        final[level.records[~cut]] = number[level.partition[~cut]]
        finished += int(np.sum(~was_cut))
        half = 2 * level.partition[cut] + right[cut]
        # Stable: records stay in canonical order inside their new partition.
        order = np.argsort(half, kind="stable")
        level = _Level(level.records[cut][order], _numbered([half[order]]))
    return final


def _best_cuts(
    level: _Level,
    columns: Sequence[Column],
    safety: Safety,
    *,
    strict: bool,
    choose: str,
    stop_at_first: bool,
) -> tuple[Mask, Mask]:
    """Return for each record whether it goes to the second half, and for each partition whether it
    is cut.
    """
    best = np.zeros(len(level.size))
    right = np.zeros(len(level.records), dtype=np.bool_)
    was_cut = np.zeros(len(level.size), dtype=np.bool_)
    for column in columns:
        goes_right, possible, merit = _candidate(level, column, strict=strict, choose=choose)
        better = possible & (merit > best)
        if better.any():
            kept = better[level.partition]
            half = (2 * level.partition + goes_right)[kept]
            safe = safety.holds(half, 2 * len(level.size), level.records[kept])
            allowed = better & safe.reshape(-1, 2).all(axis=1)
            chosen = better if stop_at_first else allowed
            best[chosen] = merit[chosen]
            was_cut[chosen] = allowed[chosen]
            right = np.where(allowed[level.partition], goes_right, right)
    return right, was_cut


def _candidate(
    level: _Level, column: Column, *, strict: bool, choose: str
) -> tuple[Mask, Mask, Floats]:
    """Returns a cut of each partition along a column.

    Who goes to the second half, whether it can be cut, its width.
    """
    value, n_values = column.codes[level.records], column.n_values
    distinct = np.bincount(runs(level.partition, value, n_values)[0], minlength=len(level.size))
    if column.tree is not None:
        value = covering_children(column.tree, level.partition, value, len(level.size))
        n_values = column.tree.n_nodes
    order = np.argsort(level.partition * n_values + value, kind="stable")
    run_partition, run_value, count = runs(level.partition, value, n_values)
    n_runs = np.bincount(run_partition, minlength=len(level.size))
    bounds = np.cumsum(n_runs) - n_runs
    merit = (
        distinct.astype(float)
        if choose == "distinct"
        else _widths(column, run_value, bounds, n_runs)
    )
    rank = np.arange(len(count))
    if not column.has_order:
        # Without an order of the values, taking the most frequent first gives the most even cuts.
        rank[np.lexsort((run_value, -count, run_partition))] = np.arange(len(count))
    by_rank = np.empty_like(count)
    by_rank[rank] = count
    possible = n_runs > 1
    right = np.empty(len(value), dtype=np.bool_)
    if strict or column.tree is not None:
        right[order] = np.repeat(
            _right_of_best_boundary(run_partition, by_rank, bounds, level.size)[rank], count
        )
    else:
        order = order[np.argsort(np.repeat(rank, count), kind="stable")]
        position = np.arange(len(value)) - (np.cumsum(level.size) - level.size)[level.partition]
        right[order] = position >= (level.size // 2)[level.partition]
    return right & possible[level.partition], possible, merit


def _widths(column: Column, run_value: Numbers, bounds: Numbers, n_runs: Numbers) -> Floats:
    """Width of each partition as a share of the column's range: 0 for one value, 1 for all."""
    whole = max(column.n_values - 1, 1)
    low, high = run_value[bounds], run_value[bounds + n_runs - 1]
    if column.tree is not None:
        covered = np.add.reduceat(column.tree.size[run_value].astype(np.int64), bounds)
        return np.asarray((covered - 1) / whole, dtype=np.float64)
    if column.kind == "unordered":
        return np.asarray((n_runs - 1) / whole, dtype=np.float64)
    if column.kind == "ordered":
        return np.asarray((high - low) / whole, dtype=np.float64)
    assert column.position is not None
    # Halved, so that the difference of the two largest numbers of opposite sign is finite.
    half = column.position / 2
    known = half[: column.n_values - (column.missing >= 0)]
    spread = float(known[-1] - known[0]) if len(known) else 0.0
    share = np.maximum((half[high] - half[low]) / (spread or 1.0), np.finfo(np.float64).tiny)
    # A missing value is as far from any number as two numbers can be.
    return np.where(n_runs == 1, 0.0, np.where(high == column.missing, 1.0, share))


def _right_of_best_boundary(
    run_partition: Numbers, count: Numbers, bounds: Numbers, size: Numbers
) -> Mask:
    """Return the runs right of the boundary that makes the smaller half largest (ties.

    The first boundary).
    """
    running = np.cumsum(count)
    before = running[bounds] - count[bounds]
    left = running - before[run_partition]
    smaller = np.minimum(left, size[run_partition] - left)
    largest = np.maximum.reduceat(smaller, bounds)
    run = np.arange(len(count))
    best = np.minimum.reduceat(np.where(smaller == largest[run_partition], run, len(count)), bounds)
    return np.asarray(run > best[run_partition])
