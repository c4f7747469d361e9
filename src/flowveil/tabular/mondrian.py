"""Multidimensional Mondrian for records (LeFevre, DeWitt and Ramakrishnan 2006), strict and relaxed.

All partitions of one depth are cut together: one sort by (partition, value) for each quasi-identifier gives
the widths and the best cut of every partition, so the number of Python steps is depth times quasi-identifiers
and does not grow with the number of partitions. `tests/reference/tabular_mondrian.py` is the same algorithm
as a plain recursion; both return the same partitions.

The rules, in full:

- A partition is cut along the widest quasi-identifier that has an allowed cut (ties: the one named first). A
  cut is allowed if every part is safe: k records, and l and t where asked for.
- Strict. Numbers and ordered categories: between the two values that make the halves most equal (ties: the
  lower). Unordered categories: the same, values taken from the most to the least frequent in the partition,
  so any set of categories can end up on one side. Hierarchy: into the children of the lowest node that holds
  the partition. Records with equal quasi-identifiers always stay together, and the regions do not overlap.
- Relaxed. Flat quasi-identifiers: exactly in half (the first half gets the smaller number), records with the
  median value going to both sides. Hierarchy: as strict, but children that are not safe alone are pooled and
  stay at their parent; if the pool is not safe either, the smallest safe child joins it.
- Numbers are cut by the cells of a grid, never between two numbers of one cell (`flowveil.tabular.grid`).
- Missing values are values: a missing number or ordered category ranks above all others, a missing category
  is one more category. They are cut and published like any other value and match nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError, did_you_mean
from flowveil.tabular.grid import Grid, encode_on_grid
from flowveil.tabular.recode import Region, lowest_common_node, number_by_text, regions_of
from flowveil.tabular.records import (
    MISSING,
    Attribute,
    Column,
    Floats,
    Ints,
    as_attributes,
    as_table,
    check_roles,
    encode,
    published_as_is,
)
from flowveil.tabular.risk import recheck, recheck_ranges
from flowveil.tabular.safety import Safety, runs

#: How the quasi-identifier to cut is chosen: the widest, or the one with the most distinct values.
CHOICES = ("width", "distinct")

#: Name of the published column that holds the class of each record.
CLASS_COLUMN = "equivalence_class"


@dataclass(frozen=True, eq=False)
class Anonymized:
    """A k-anonymous table, and what only the data holder may see.

    Attributes:
        table: what may be published: the recoded quasi-identifiers, the sensitive and the kept columns as
            they were, and the class of each record. Sorted by class and content, so the order of the input is
            gone.
        class_of_record: for each input record its class. Not for publication.
        regions: what is published for each class, one entry a quasi-identifier. Relaxed cuts may publish two
            classes alike; the column `equivalence_class` separates them, and each is safe by itself.
        quasi_identifiers, sensitive, kept: names of the columns by role.
        k, l, t: what was asked for, and what an independent recount of `table` found to hold.
        strict: whether the regions are disjoint.
        grids: where the edges of published ranges may lie, for each numeric quasi-identifier.
    """

    table: pa.Table
    class_of_record: Ints
    regions: tuple[Region, ...]
    quasi_identifiers: tuple[str, ...]
    sensitive: tuple[str, ...]
    kept: tuple[str, ...]
    k: int
    l: int | None  # noqa: E741
    t: float | None
    strict: bool
    grids: Mapping[str, Grid] = field(default_factory=dict)

    @property
    def class_size(self) -> Ints:
        """Records of each class."""
        return np.bincount(self.class_of_record).astype(np.int64)

    def statement(self) -> str:
        """One paragraph for the reader of the release."""
        hidden = "" if self.l is None else f" and {self.l} distinct sensitive values"
        close = "" if self.t is None else f", its sensitive values within {self.t:g} of the whole table's"
        return (
            f"{self.k}-anonymous: every record shares its quasi-identifiers "
            f"({', '.join(self.quasi_identifiers)}) with a class of at least {self.k} "
            f"records{hidden}{close}. Not protected: whether a person is in the table, and what all or most "
            "records of a class have in common. Columns that are not named here as quasi-identifiers are "
            "published as they were. Two releases of the same people can be combined."
        )


def anonymize_records(
    records: Any,
    *,
    quasi_identifiers: Sequence[str | Attribute],
    direct_identifiers: Sequence[str],
    k: int,
    sensitive: Sequence[str | Attribute] = (),
    keep: Sequence[str] = (),
    allow_identifiers: Sequence[str] = (),
    l: int | None = None,  # noqa: E741
    t: float | None = None,
    strict: bool = False,
    choose: str = "width",
    missing_label: str = MISSING,
) -> Anonymized:
    """Make a table k-anonymous by Mondrian, and recount it before it is returned.

    Guaranteed: every combination of published quasi-identifiers has at least k records; with l, at least l distinct
    values of each sensitive column; with t, a distribution of each sensitive column within t of the whole table's.
    Every published value truly describes its record. The result does not depend on the order of the records.

    Args:
        records: a pyarrow, pandas or polars table.
        quasi_identifiers: names, or attributes that say the kind, order or hierarchy.
        direct_identifiers: columns to drop. No default: whoever has none says so with an empty list.
        k: fewest records of a class.
        sensitive: columns published as they are, and protected by l and t.
        keep: columns published as they are, and not protected.
        allow_identifiers: columns that may be published as they are although they single people out: those with
            more than one value for two records are refused otherwise.
        l: fewest distinct sensitive values of a class (a missing value is one value).
        t: largest distance of a class's sensitive distribution from the table's.
        strict: regions that do not overlap; else relaxed, which cuts finer.
        choose: ``width`` (LeFevre: the widest share of the whole range) or ``distinct`` (the most distinct
            values).
        missing_label: how missing values are published.

    Raises:
        ParameterError: a parameter is out of range, or a column has no role or two.
        DataError: a column is absent or holds values its order or hierarchy does not know.
        InfeasibleError: the whole table in one class would not be safe.
        GuaranteeError: the recount failed; nothing is returned.
    """
    table = as_table(records)
    asked, hidden = as_attributes(quasi_identifiers), as_attributes(sensitive)
    _check_request(table, asked, hidden, keep=keep, dropped=direct_identifiers, choose=choose)
    protected = tuple(encode(table, a, missing_label=missing_label) for a in hidden)
    # Before the grid, which needs a k that can be.
    safety = Safety(k=k, l=l, t=t, sensitive=protected)
    on_grid = [encode_on_grid(table, a, k=k, missing_label=missing_label) for a in asked]
    columns = tuple(column for column, _ in on_grid)
    grids = {column.name: grid for column, grid in on_grid if grid is not None}
    safety.check_feasible(table.num_rows)
    others = [encode(table, Attribute(name), missing_label=missing_label) for name in keep]
    _refuse_identifiers([*protected, *others, *(c for c in columns if c.kind == "unordered")], allow_identifiers)
    order = canonical_order(columns, protected, others)
    partition = partition_records(columns, safety, strict=strict, choose=choose, order=order)
    class_of = number_by_text(regions_of(columns, partition))[partition]
    regions = regions_of(columns, class_of)
    release = Anonymized(
        table=_published(table, protected, others, regions, class_of),
        class_of_record=class_of,
        regions=regions,
        quasi_identifiers=tuple(c.name for c in columns),
        sensitive=tuple(c.name for c in protected),
        kept=tuple(keep),
        k=int(k),
        l=l,
        t=t,
        strict=strict,
        grids=grids,
    )
    ordered = {a.name: a.order or c.has_order for a, c in zip(hidden, protected, strict=True)}
    _recheck(release, table, ordered, missing_label)
    return release


def _check_request(
    table: pa.Table,
    asked: Sequence[Attribute],
    hidden: Sequence[Attribute],
    *,
    keep: Sequence[str],
    dropped: Sequence[str],
    choose: str,
) -> None:
    """Raise where what is asked for cannot be done with any records, or with this table."""
    if choose not in CHOICES:
        raise ParameterError(
            f"Unknown choice '{choose}'; allowed: {', '.join(CHOICES)}." + did_you_mean(choose, CHOICES)
        )
    if not asked:
        raise ParameterError("No quasi-identifier is named; at least one is needed.")
    check_roles(
        table,
        quasi_identifiers=[a.name for a in asked],
        sensitive=[a.name for a in hidden],
        kept=keep,
        direct_identifiers=dropped,
    )
    if CLASS_COLUMN in table.column_names and CLASS_COLUMN not in dropped:
        raise DataError(f"The table has a column '{CLASS_COLUMN}', which the result needs. Hint: rename it.")
    if table.num_rows == 0:
        raise DataError("The table has no records.")


def _recheck(
    release: Anonymized, table: pa.Table, ordered: Mapping[str, bool | Sequence[str]], missing_label: str
) -> None:
    """Recount what would be published, and raise GuaranteeError unless it holds."""
    # By class: what holds for each class holds for classes published alike, taken together.
    recheck(
        release.table,
        quasi_identifiers=[*release.quasi_identifiers, CLASS_COLUMN],
        sensitive=ordered,
        k=release.k,
        l=release.l,
        t=release.t,
        n_records=table.num_rows,
    )
    for name, grid in release.grids.items():
        recheck_ranges(
            release.table[name],
            table[name],
            step=grid.step,
            public=(grid.lowest, grid.highest),
            k=release.k,
            missing_label=missing_label,
        )


def _refuse_identifiers(columns: Sequence[Column], allowed: Sequence[str]) -> None:
    """Refuse columns whose values would be published and single most people out, unless they are confirmed."""
    for column in columns:
        known = column.codes[column.codes != column.missing]
        distinct = int(np.count_nonzero(np.bincount(known)))
        if 2 * distinct > len(known) > 1 and column.name not in allowed:
            raise ParameterError(
                f"Column '{column.name}' has {distinct:,} different values in {len(known):,} records: whoever knows "
                "one of them finds the person, whatever k is. Hint: name it as a direct identifier to leave it out, "
                "make it coarser, or confirm that its values may be published (--allow-identifier, allow_identifiers)."
            )


def _published(
    table: pa.Table,
    sensitive: Sequence[Column],
    kept: Sequence[Column],
    regions: Sequence[Region],
    class_of: Ints,
) -> pa.Table:
    as_is = [*sensitive, *kept]
    order = np.lexsort([c.codes for c in reversed(as_is)] + [class_of])
    arrays: dict[str, Any] = {CLASS_COLUMN: pa.array(class_of[order], pa.int64())}
    for region in regions:
        arrays[region.column.name] = region.text.take(pa.array(class_of[order]))
    for column in as_is:
        arrays[column.name] = published_as_is(table, column.name).take(pa.array(order))
    names = [name for name in table.column_names if name in arrays]
    return pa.table([arrays[name] for name in (*names, CLASS_COLUMN)], names=[*names, CLASS_COLUMN])


def canonical_order(columns: Sequence[Column], sensitive: Sequence[Column] = (), others: Sequence[Column] = ()) -> Ints:
    """An order of the records that depends on their content only.

    Relaxed cuts part records that are equal in the quasi-identifiers, so the order among those decides who goes where.
    Sorting them by the sensitive value would put equal sensitive values together, the worst choice for privacy.
    Instead each sensitive value is spread evenly over the equal records.
    """
    n = len(columns[0].codes)
    keys = [c.codes for c in columns]
    tail = [c.codes for c in (*sensitive, *others)]
    by_value: Ints = np.lexsort([*reversed(tail), *reversed(keys)])
    if not sensitive:
        return by_value
    group = _numbered([c[by_value] for c in keys])
    value = _numbered([c[by_value] for c in (*keys, *(s.codes for s in sensitive))])
    start = np.flatnonzero(np.concatenate(([True], value[1:] != value[:-1])))
    count = np.diff(np.append(start, n))[value]
    spread = (2 * (np.arange(n) - start[value]) + 1) / (2 * count)
    by_spread: Ints = np.lexsort((np.arange(n), spread, group))
    return np.take(by_value, by_spread)


def _numbered(sorted_keys: Sequence[Ints]) -> Ints:
    """Number the runs of equal rows; the rows are sorted."""
    new = np.zeros(len(sorted_keys[0]), dtype=np.bool_)
    for key in sorted_keys:
        new[1:] |= key[1:] != key[:-1]
    return np.cumsum(new).astype(np.int64)


# ---- cutting -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Depth:
    """The partitions that may still be cut: their records, partition after partition, in canonical order."""

    records: Ints
    partition: Ints
    size: Ints

    @property
    def n_partitions(self) -> int:
        return len(self.size)

    @property
    def start(self) -> Ints:
        return np.cumsum(self.size) - self.size


@dataclass(frozen=True, eq=False)
class _Cut:
    """One candidate cut for each partition, along one quasi-identifier.

    ``part`` numbers the parts of each record's partition from 0; a partition with one part is not cut.
    """

    part: Ints
    n_parts: Ints
    width: Floats
    distinct: Ints


def partition_records(
    columns: Sequence[Column],
    safety: Safety,
    *,
    strict: bool,
    choose: str = "width",
    order: Ints | None = None,
) -> Ints:
    """The partition of each record; partitions are numbered in the order they are finished."""
    records = canonical_order(columns, safety.sensitive) if order is None else order
    n = len(records)
    final = np.empty(n, dtype=np.int64)
    finished = 0
    depth = _Depth(records, np.zeros(n, np.int64), np.array([n], np.int64))
    while depth.n_partitions:
        part, was_cut = _best_cuts(depth, columns, safety, strict=strict, choose=choose)
        done = ~was_cut[depth.partition]
        number = np.cumsum(~was_cut) - 1 + finished
        final[depth.records[done]] = number[depth.partition[done]]
        finished += int(np.sum(~was_cut))
        depth = _next_depth(depth, part, ~done)
    return final


def _next_depth(depth: _Depth, part: Ints, going_on: NDArray[np.bool_]) -> _Depth:
    records, partition, part = depth.records[going_on], depth.partition[going_on], part[going_on]
    if len(records) == 0:
        return _Depth(records, partition, np.zeros(0, np.int64))
    key = partition * (int(part.max()) + 1) + part
    # Stable: records stay in canonical order inside their new partition.
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = np.concatenate(([True], key[1:] != key[:-1]))
    numbered = np.cumsum(new) - 1
    return _Depth(records[order], numbered, np.bincount(numbered))


def _best_cuts(
    depth: _Depth, columns: Sequence[Column], safety: Safety, *, strict: bool, choose: str
) -> tuple[Ints, NDArray[np.bool_]]:
    """For each record the part it goes to, and for each partition whether it is cut at all."""
    best = np.zeros(depth.n_partitions)
    part = np.zeros(len(depth.records), dtype=np.int64)
    was_cut = np.zeros(depth.n_partitions, dtype=np.bool_)
    for column in columns:
        cut = _candidate(depth, column, safety, strict=strict)
        merit = cut.width if choose == "width" else cut.distinct.astype(np.float64)
        allowed = (cut.n_parts > 1) & (merit > best)
        if allowed.any():
            allowed &= _all_parts_safe(depth, cut, allowed, safety)
            best[allowed] = merit[allowed]
            was_cut |= allowed
            part = np.where(allowed[depth.partition], cut.part, part)
    return part, was_cut


def _all_parts_safe(depth: _Depth, cut: _Cut, wanted: NDArray[np.bool_], safety: Safety) -> NDArray[np.bool_]:
    first = np.cumsum(cut.n_parts) - cut.n_parts
    kept = wanted[depth.partition]
    group = (first[depth.partition] + cut.part)[kept]
    safe = safety.holds(group, int(cut.n_parts.sum()), depth.records[kept])
    return np.logical_and.reduceat(safe, first)


def _candidate(depth: _Depth, column: Column, safety: Safety, *, strict: bool) -> _Cut:
    code = column.codes[depth.records]
    key = depth.partition * column.n_values + code
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    count = np.diff(np.append(first, len(ordered)))
    run_partition, run_code = ordered[first] // column.n_values, ordered[first] % column.n_values
    distinct = np.bincount(run_partition, minlength=depth.n_partitions)
    bounds = np.cumsum(distinct) - distinct
    width = _widths(column, run_code, bounds, distinct)
    if column.kind == "hierarchy":
        part, n_parts = _children(depth, column, code, run_code[bounds], run_code[bounds + distinct - 1])
        if not strict:
            part, n_parts = _pool_unsafe(depth, part, n_parts, safety)
        return _Cut(part, n_parts, width, distinct)
    rank = np.arange(len(first))
    if column.kind == "unordered":
        # The order of the values is ours to choose: the most frequent first gives the most even cuts.
        by_frequency = np.lexsort((run_code, -count, run_partition))
        count = count[by_frequency]
        rank[by_frequency] = np.arange(len(first))
    n_parts = np.where(distinct > 1, 2, 1)
    part = np.empty(len(code), dtype=np.int64)
    if strict:
        right = _right_of_best_boundary(run_partition, count, bounds, distinct, depth.size)
        part[order] = np.repeat(right[rank], np.diff(np.append(first, len(ordered))))
    else:
        run_of = np.repeat(rank, np.diff(np.append(first, len(ordered))))
        if column.kind == "unordered":
            order = order[np.argsort(run_of, kind="stable")]
        place = np.arange(len(code)) - depth.start[depth.partition]
        part[order] = place >= (depth.size // 2)[depth.partition]
        part[(n_parts == 1)[depth.partition]] = 0
    return _Cut(part, n_parts, width, distinct)


def _widths(column: Column, run_code: Ints, bounds: Ints, distinct: Ints) -> Floats:
    """Width of each partition as a share of the whole: 0 for one value, 1 for everything."""
    whole = max(column.n_values - 1, 1)
    low, high = run_code[bounds], run_code[bounds + distinct - 1]
    if column.kind == "unordered":
        return np.asarray((distinct - 1) / whole, dtype=np.float64)
    if column.kind == "ordered":
        return np.asarray((high - low) / whole, dtype=np.float64)
    if column.tree is not None:
        below: Ints = column.tree.size[lowest_common_node(column.tree, low, high)].astype(np.int64)
        return np.asarray((below - 1) / whole, dtype=np.float64)
    assert column.position is not None
    # Halved, so that the difference of the two largest numbers of opposite sign is still a number.
    half = column.position / 2
    known = half[: column.n_values - (column.missing >= 0)]
    spread = float(known[-1] - known[0]) if len(known) else 0.0
    share = np.maximum((half[high] - half[low]) / (spread or 1.0), np.finfo(np.float64).tiny)
    # A missing value is as far from any number as two numbers can be.
    return np.where(distinct == 1, 0.0, np.where(high == column.missing, 1.0, share))


def _right_of_best_boundary(run_partition: Ints, count: Ints, bounds: Ints, distinct: Ints, size: Ints) -> Ints:
    """1 for the runs right of the boundary that makes the smaller side largest, 0 for the others."""
    running = np.cumsum(count)
    before = running[bounds] - count[bounds]
    left = running - before[run_partition]
    smaller = np.minimum(left, size[run_partition] - left)
    largest = np.maximum.reduceat(smaller, bounds)
    is_best = smaller == largest[run_partition]
    run = np.arange(len(count))
    best = np.minimum.reduceat(np.where(is_best, run, len(count)), bounds)
    right = (run > best[run_partition]).astype(np.int64)
    right[(distinct == 1)[run_partition]] = 0
    return right


# ---- hierarchies -------------------------------------------------------------------------------------------


def _children(depth: _Depth, column: Column, code: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Number the children of each partition's lowest common node that have records, in node order."""
    assert column.tree is not None
    tree = column.tree
    top = lowest_common_node(tree, low, high)[depth.partition]
    child = tree.leaf_node[code].astype(np.int64)
    above = (child != top) & (tree.parent[child] != top)
    while above.any():
        child[above] = tree.parent[child[above]]
        above &= tree.parent[child] != top
    run_partition, run_child, _ = runs(depth.partition, child, tree.n_nodes)
    n_parts = np.bincount(run_partition, minlength=depth.n_partitions)
    first = np.cumsum(n_parts) - n_parts
    position = np.searchsorted(run_partition * tree.n_nodes + run_child, depth.partition * tree.n_nodes + child)
    return position - first[depth.partition], n_parts


def _pool_unsafe(depth: _Depth, part: Ints, n_parts: Ints, safety: Safety) -> tuple[Ints, Ints]:
    """Pool the unsafe parts of each partition; if the pool is unsafe, the smallest safe part joins it."""
    first = np.cumsum(n_parts) - n_parts
    group = first[depth.partition] + part
    n_groups = int(n_parts.sum())
    owner = np.repeat(np.arange(depth.n_partitions), n_parts)
    pooled = ~safety.holds(group, n_groups, depth.records)
    in_pool = pooled[group]
    pool_safe = safety.holds(depth.partition[in_pool], depth.n_partitions, depth.records[in_pool])
    short = np.logical_or.reduceat(pooled, first) & ~pool_safe
    size = np.where(pooled, np.iinfo(np.int64).max, np.bincount(group, minlength=n_groups))
    smallest = np.lexsort((np.arange(n_groups), size, owner))[first]
    joins = smallest[short & ~np.logical_and.reduceat(pooled, first)]
    pooled[joins] = True
    # The safe parts keep their order; the pool, if any, comes last.
    alone = np.cumsum(~pooled)
    rank = alone - 1 - (alone[first] - ~pooled[first])[owner]
    n_alone = np.add.reduceat((~pooled).astype(np.int64), first)
    has_pool = np.logical_or.reduceat(pooled, first)
    new_part = np.where(pooled, n_alone[owner], rank)
    return new_part[group], n_alone + has_pool
