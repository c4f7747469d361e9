"""Classes of records: the test whether each is safe, and their published values.

The recount of a finished release is in `flowveil.tabular.risk` and shares nothing with this module.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.hierarchy import Hierarchy
from flowveil.tabular.records import Column

#: Distances are sums of rounded quotients; a distance is within t up to this much.
T_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Safety:
    """Thresholds of a group of records, and the columns to test them on.

    The distance of distributions is, for numbers and ordered categories, the earth mover's distance
    over ranks, scaled to 0..1; for other categories half the sum of absolute differences (all
    categories equally far apart).
    """

    k: int  # fewest records of a group
    l: int | None = None  # noqa: E741  # fewest distinct values of each sensitive column in a group
    t: float | None = (
        None  # largest distance of a sensitive column's distribution in a group and in the table
    )
    sensitive: tuple[Column, ...] = ()
    # fewest equally frequent values with the entropy of a sensitive column in a group
    entropy_l: float | None = None
    # the most frequent value has fewer records than c times all but the l - 1 most frequent values
    recursive_c: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("l", self.l)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1
            ):
                raise ParameterError(
                    f"{name} must be a whole number of at least 1; found {value!r}."
                )
        if self.t is not None and not (np.isfinite(self.t) and 0 <= self.t <= 1):
            raise ParameterError(f"t must be between 0 and 1; found {self.t!r}.")
        for name, number, least in (
            ("entropy_l", self.entropy_l, 1),
            ("recursive_c", self.recursive_c, 0),
        ):
            if number is not None and not (np.isfinite(number) and number > least):
                raise ParameterError(f"{name} must be a number above {least}; found {number!r}.")
        if self.recursive_c is not None and (self.l is None or self.l < 2):
            raise ParameterError(
                "recursive_c needs l of at least 2: the number of most frequent values that are"
                " compared with the rest is l - 1."
            )
        if self.tests_values and not self.sensitive:
            raise ParameterError(
                "l, t, entropy_l and recursive_c protect sensitive columns, but none is named."
            )

    @property
    def tests_values(self) -> bool:
        """Whether sensitive values are tested, and not only numbers of records."""
        return any(
            value is not None for value in (self.l, self.t, self.entropy_l, self.recursive_c)
        )

    def check_feasible(self, n_records: int) -> None:
        """Raise InfeasibleError if not even the whole table in one class would be safe."""
        if n_records < self.k:
            problem = f"k = {self.k} cannot be met: the table has {n_records} records."
            raise InfeasibleError(
                f"{problem} Hint: lower k, or publish nothing.", best={"k": n_records}
            )
        for column in self.sensitive:
            present = int(np.count_nonzero(np.bincount(column.codes)))
            if self.l is not None and present < self.l:
                problem = (
                    f"l = {self.l} cannot be met: column '{column.name}' has {present} distinct"
                    " values."
                )
                raise InfeasibleError(f"{problem} Hint: lower l.", best={"l": present})
        whole = np.zeros(n_records, dtype=np.int64)
        if not self.holds(whole, 1, np.arange(n_records)).all():
            raise InfeasibleError(
                "The sensitive values of the whole table are less diverse than entropy_l or"
                " recursive_c asks for. Hint: a lower entropy_l, or a higher recursive_c."
            )

    def holds(self, group: Numbers, n_groups: int, records: Numbers) -> NDArray[np.bool_]:
        """Whether each group is safe; an empty group is not.

        Records are positions in the sensitive columns.
        """
        size = np.bincount(group, minlength=n_groups)
        safe = size >= self.k
        if not self.tests_values:
            return safe
        for column in self.sensitive:
            # Groups below a threshold are not tested further.
            kept = safe[group]
            run_group, run_code, run_count = runs(
                group[kept], column.codes[records[kept]], column.n_values
            )
            if self.l is not None:
                safe &= np.bincount(run_group, minlength=n_groups) >= self.l
            if self.entropy_l is not None:
                entropy = _entropies(run_group, run_count, size)
                safe &= entropy >= np.log(self.entropy_l) - T_TOLERANCE
            if self.recursive_c is not None:
                assert self.l is not None
                most, rest = _most_and_rest(run_group, run_count, n_groups, self.l)
                safe &= most < self.recursive_c * rest
            if self.t is not None:
                distance = _distances(column, run_group, run_code, run_count, size)
                safe &= distance <= self.t + T_TOLERANCE
        return safe


def runs(group: Numbers, code: Numbers, n_codes: int) -> tuple[Numbers, Numbers, Numbers]:
    """The distinct (group, code) pairs in order, and how many records each has."""
    key = np.sort(group * n_codes + code)
    first = (
        np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        if len(key)
        else np.zeros(0, np.int64)
    )
    count = np.diff(np.append(first, len(key)))
    return key[first] // n_codes, key[first] % n_codes, count


def _entropies(run_group: Numbers, run_count: Numbers, size: Numbers) -> Floats:
    """Entropy of the values of each group, in natural units."""
    share = run_count / size[run_group]
    entropy: Floats = np.zeros(len(size))
    np.add.at(entropy, run_group, -share * np.log(share))
    return entropy


def _most_and_rest(
    run_group: Numbers,
    run_count: Numbers,
    n_groups: int,
    l: int,  # noqa: E741
) -> tuple[Floats, Floats]:
    """Records of each group with the most frequent value, and with all but the l - 1 first."""
    order = np.lexsort((-run_count, run_group))
    group, count = run_group[order], run_count[order]
    place = np.arange(len(group)) - np.searchsorted(group, group)
    most: Floats = np.zeros(n_groups)
    most[group[place == 0]] = count[place == 0]
    rest: Floats = np.zeros(n_groups)
    np.add.at(rest, group[place >= l - 1], count[place >= l - 1])
    return most, rest


def _distances(
    column: Column, run_group: Numbers, run_code: Numbers, run_count: Numbers, size: Numbers
) -> Floats:
    """Distance of each group's distribution from the whole table's, from its runs alone."""
    total = np.bincount(column.codes, minlength=column.n_values)
    # Codes without records (categories of a declared order) do not enter the distance.
    rank = np.cumsum(total > 0) - 1
    total = total[total > 0]
    run_rank = rank[run_code]
    if column.has_order:
        return _earth_mover(total, run_group, run_rank, run_count, size)
    whole = (total / total.sum())[run_rank]
    # Values the group does not have contribute their whole share: 1 minus the shares of those it
    # has.
    difference = np.abs(run_count / size[run_group] - whole) - whole
    return (1 + np.bincount(run_group, weights=difference, minlength=len(size))) / 2


def _earth_mover(
    total: Numbers, run_group: Numbers, run_rank: Numbers, run_count: Numbers, size: Numbers
) -> Floats:
    """Mean absolute difference of the distribution functions over the ranks 0..m-2, by two prefix
    sums for each run.
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


#: Characters that would make a range or a set ambiguous; labels that contain one are quoted.
_DELIMITERS = set('[]{},"')


@dataclass(frozen=True, eq=False)
class Region:
    """Published values of one quasi-identifier, one for each partition.

    The text is the value itself if there is only one; ``[low, high)`` for numbers, edges on the
    column's grid, ``-inf`` or ``inf`` in the tails; ``[low, high]`` for ordered categories; both
    followed by `` or missing`` where values are missing; ``{a, b}`` for unordered categories and
    for sibling terms of a hierarchy.
    """

    column: Column
    text: Any
    first: (
        Numbers  # partition p covers the code intervals ``first[p]:first[p + 1]`` of ``start:stop``
    )
    start: Numbers
    stop: Numbers

    @property
    def size(self) -> Numbers:
        """Number of codes that each partition's published value covers."""
        return np.asarray(np.add.reduceat(self.stop - self.start, self.first[:-1]))

    @property
    def codes(self) -> Numbers:
        """The covered codes, partition by partition."""
        length = self.stop - self.start
        return np.asarray(
            np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - self.start, length)
        )

    def draw(self, partition: Numbers, generator: np.random.Generator) -> Numbers:
        """Draw for each record one of the codes its published value covers, uniformly."""
        before = (np.cumsum(self.size) - self.size)[partition]
        return np.take(self.codes, before + generator.integers(0, self.size[partition]))

    def shares(self) -> Floats:
        """Probability of each code (column) under `draw`, for each partition (row)."""
        row = np.repeat(np.arange(len(self.size)), self.size)
        share = np.zeros((len(self.size), self.column.n_values))
        share[row, self.codes] = 1.0 / self.size[row]
        return share


def regions_of(columns: Sequence[Column], partition: Numbers) -> tuple[Region, ...]:
    """Recode every quasi-identifier of every partition."""
    n_partitions = int(partition.max()) + 1
    return tuple(_region(column, partition, n_partitions) for column in columns)


def number_by_text(regions: Sequence[Region]) -> Numbers:
    """Renumber partitions by their published text, ties by the old number."""
    texts = pa.table(
        [region.text for region in regions], names=[str(i) for i in range(len(regions))]
    )
    texts = texts.append_column("number", pa.array(np.arange(texts.num_rows)))
    order = pc.sort_indices(texts, sort_keys=[(name, "ascending") for name in texts.column_names])
    number = np.empty(texts.num_rows, dtype=np.int64)
    number[order.to_numpy()] = np.arange(len(number))
    return number


def covering_children(
    tree: Hierarchy, partition: Numbers, code: Numbers, n_partitions: int
) -> Numbers:
    """Maps each leaf to the child that contains it of its partition's lowest common ancestor, or to
    itself if alone.
    """
    low = np.full(n_partitions, tree.n_tiles, dtype=np.int64)
    high = np.full(n_partitions, -1, dtype=np.int64)
    np.minimum.at(low, partition, code)
    np.maximum.at(high, partition, code)
    ancestor = tree.leaf_node[low].astype(np.int64)
    while (outside := tree.leaf_stop[ancestor] <= high).any():
        ancestor[outside] = tree.parent[ancestor[outside]]
    top = ancestor[partition]
    child: Numbers = tree.leaf_node[code].astype(np.int64)
    below = (child != top) & (tree.parent[child] != top)
    while below.any():
        child[below] = tree.parent[child[below]]
        below &= tree.parent[child] != top
    return child


def _region(column: Column, partition: Numbers, n_partitions: int) -> Region:
    if column.tree is not None:
        return _terms(column, column.tree, partition, n_partitions)
    run_partition, run_code, _ = runs(partition, column.codes, column.n_values)
    first = np.searchsorted(run_partition, np.arange(n_partitions + 1))
    if column.kind == "unordered":
        labels = [_quoted(label) for label in column.labels]
        return Region(
            column, _sets(first, run_code, labels, column.labels), first, run_code, run_code + 1
        )
    return _ranges(column, first, run_code)


def _terms(column: Column, tree: Hierarchy, partition: Numbers, n_partitions: int) -> Region:
    """The children of the lowest common ancestor that have records, or the ancestor if all of them
    have.
    """
    child = covering_children(tree, partition, column.codes, n_partitions)
    run_partition, node, _ = runs(partition, child, tree.n_nodes)
    first = np.searchsorted(run_partition, np.arange(n_partitions + 1))
    n_children = np.bincount(tree.parent[1:], minlength=tree.n_nodes)
    parent = tree.parent[node[first[:-1]]].astype(np.int64)
    complete = (np.diff(first) > 1) & (np.diff(first) == n_children[parent])
    # A complete set is published as its parent: its run of children shrinks to one node.
    kept = ~complete[run_partition] | (np.arange(len(node)) == first[run_partition])
    node = np.where(complete[run_partition], parent[run_partition], node)[kept]
    first = np.searchsorted(run_partition[kept], np.arange(n_partitions + 1))
    names = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    text = _sets(first, node, [_quoted(name) for name in names], names)
    return Region(
        column,
        text,
        first,
        tree.leaf_start[node].astype(np.int64),
        tree.leaf_stop[node].astype(np.int64),
    )


def _sets(first: Numbers, member: Numbers, quoted: Sequence[str], bare: Sequence[str]) -> Any:
    """``{a, b}`` for each partition; the bare label where there is one member."""
    labels = pa.array(quoted, pa.string()).take(pa.array(member))
    lists = pa.ListArray.from_arrays(pa.array(first, pa.int32()), labels)
    sets = pc.binary_join_element_wise("{", pc.binary_join(lists, ", "), "}", "")
    alone = pa.array(bare, pa.string()).take(pa.array(member[first[:-1]]))
    return pc.if_else(pa.array(np.diff(first) == 1), alone, sets)


def _ranges(column: Column, first: Numbers, run_code: Numbers) -> Region:
    distinct = np.diff(first)
    low, high = run_code[first[:-1]], run_code[first[1:] - 1]
    or_missing = (high == column.missing) & (distinct > 1)
    # Missing values have the highest code; the range ends at the code below it.
    top = np.where(or_missing, run_code[np.maximum(first[1:] - 2, first[:-1])], high)
    bare = pa.array(column.labels, pa.string())
    labels = pa.array([_quoted(label) for label in column.labels], pa.string())
    opens = (
        pc.binary_join_element_wise("[", labels, "")
        if column.opens is None
        else pa.array(column.opens)
    )
    closes = (
        pc.binary_join_element_wise(labels, "]", "")
        if column.closes is None
        else pa.array(column.closes)
    )
    ranges = pc.binary_join_element_wise(
        opens.take(pa.array(low)), closes.take(pa.array(top)), ", "
    )
    text = pc.if_else(pa.array(low == top), bare.take(pa.array(low)), ranges)
    if column.missing >= 0:
        tail = pc.if_else(pa.array(or_missing), f" or {column.labels[column.missing]}", "")
        text = pc.binary_join_element_wise(text, tail, "")
    # One interval for the range, a second one for the missing value where it is covered.
    n_intervals = 1 + or_missing
    begin = np.append(0, np.cumsum(n_intervals))
    start, stop = np.full(begin[-1], column.missing), np.full(begin[-1], column.missing + 1)
    start[begin[:-1]], stop[begin[:-1]] = low, top + 1
    return Region(column, text, begin, start, stop)


def _quoted(label: str) -> str:
    return (
        json.dumps(label, ensure_ascii=False)
        if _DELIMITERS & set(label) or label != label.strip()
        else label
    )
