"""Published values of partitions: ranges, sets of categories and terms of a hierarchy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.hierarchy import Hierarchy
from flowveil.tabular.records import Column, Floats, Ints
from flowveil.tabular.safety import runs

#: Characters that would make a range or a set ambiguous; labels that contain one are quoted.
_DELIMITERS = set('[]{},"')


@dataclass(frozen=True, eq=False)
class Region:
    """Published values of one quasi-identifier, one for each partition.

    Attributes:
        column: the quasi-identifier.
        text: the published value: the value itself if there is only one; ``[low, high)`` for numbers, edges on the
            column's grid, ``-inf`` or ``inf`` in the tails; ``[low, high]`` for ordered categories; both followed by
            `` or missing`` where values are missing; ``{a, b}`` for unordered categories and for sibling terms of a
            hierarchy.
        first: partition p covers the code intervals ``first[p]:first[p + 1]``.
        start, stop: the code intervals ``start:stop``.
    """

    column: Column
    text: Any
    first: Ints
    start: Ints
    stop: Ints

    @property
    def size(self) -> Ints:
        """Number of codes that each partition's published value covers."""
        running = np.append(0, np.cumsum(self.stop - self.start))
        covered: Ints = running[self.first[1:]] - running[self.first[:-1]]
        return covered

    def draw(self, partition: Ints, generator: np.random.Generator) -> Ints:
        """Draw for each record one of the codes its published value covers, uniformly."""
        running = np.append(0, np.cumsum(self.stop - self.start))
        position = running[self.first[partition]] + generator.integers(0, self.size[partition])
        interval = np.searchsorted(running, position, side="right") - 1
        code: Ints = self.start[interval] + position - running[interval]
        return code

    def shares(self) -> Floats:
        """Probability of each code (column) under `draw`, for each partition (row)."""
        length = self.stop - self.start
        before = np.cumsum(length) - length
        code = np.arange(length.sum()) - np.repeat(before - self.start, length)
        row = np.repeat(np.arange(len(self.first) - 1), self.size)
        share = np.zeros((len(self.first) - 1, self.column.n_values))
        share[row, code] = 1.0 / self.size[row]
        return share


def regions_of(columns: Sequence[Column], partition: Ints) -> tuple[Region, ...]:
    """Recode every quasi-identifier of every partition."""
    n_partitions = int(partition.max()) + 1
    return tuple(_region(column, partition, n_partitions) for column in columns)


def number_by_text(regions: Sequence[Region]) -> Ints:
    """Renumber partitions by their published text, ties by the old number."""
    ranks = []
    for region in regions:
        encoded = region.text.dictionary_encode()
        rank = np.empty(len(encoded.dictionary), dtype=np.int64)
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        ranks.append(rank[encoded.indices.to_numpy(zero_copy_only=False)])
    number = np.empty(len(ranks[0]), dtype=np.int64)
    number[np.lexsort(ranks[::-1])] = np.arange(len(number))
    return number


def covering_children(tree: Hierarchy, partition: Ints, code: Ints, n_partitions: int) -> Ints:
    """Map each leaf to the child, that contains it, of its partition's lowest common ancestor.

    A partition with one leaf has that leaf as its lowest common ancestor, and it is returned.

    Args:
        tree: the hierarchy.
        partition, code: partition and leaf of each record; every partition has at least one.
        n_partitions: number of partitions.
    """
    low = np.full(n_partitions, tree.n_tiles, dtype=np.int64)
    high = np.full(n_partitions, -1, dtype=np.int64)
    np.minimum.at(low, partition, code)
    np.maximum.at(high, partition, code)
    ancestor = tree.leaf_node[low].astype(np.int64)
    while (outside := tree.leaf_stop[ancestor] <= high).any():
        ancestor[outside] = tree.parent[ancestor[outside]]
    top = ancestor[partition]
    child: Ints = tree.leaf_node[code].astype(np.int64)
    below = (child != top) & (tree.parent[child] != top)
    while below.any():
        child[below] = tree.parent[child[below]]
        below &= tree.parent[child] != top
    return child


def _region(column: Column, partition: Ints, n_partitions: int) -> Region:
    if column.tree is not None:
        return _terms(column, column.tree, partition, n_partitions)
    run_partition, run_code, _ = runs(partition, column.codes, column.n_values)
    first = np.searchsorted(run_partition, np.arange(n_partitions + 1))
    if column.kind == "unordered":
        labels = [_quoted(label) for label in column.labels]
        return Region(column, _sets(first, run_code, labels, column.labels), first, run_code, run_code + 1)
    return _ranges(column, first, run_code)


def _terms(column: Column, tree: Hierarchy, partition: Ints, n_partitions: int) -> Region:
    """The children of the lowest common ancestor that have records, or the ancestor if all of them have."""
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
    return Region(column, text, first, tree.leaf_start[node].astype(np.int64), tree.leaf_stop[node].astype(np.int64))


def _sets(first: Ints, member: Ints, quoted: Sequence[str], bare: Sequence[str]) -> Any:
    """``{a, b}`` for each partition; the bare label where there is one member."""
    labels = pa.array(quoted, pa.string()).take(pa.array(member))
    lists = pa.ListArray.from_arrays(pa.array(first, pa.int32()), labels)
    sets = pc.binary_join_element_wise("{", pc.binary_join(lists, ", "), "}", "")
    alone = pa.array(bare, pa.string()).take(pa.array(member[first[:-1]]))
    return pc.if_else(pa.array(np.diff(first) == 1), alone, sets)


def _ranges(column: Column, first: Ints, run_code: Ints) -> Region:
    distinct = np.diff(first)
    low, high = run_code[first[:-1]], run_code[first[1:] - 1]
    or_missing = (high == column.missing) & (distinct > 1)
    # Missing values have the highest code; the range ends at the code below it.
    top = np.where(or_missing, run_code[np.maximum(first[1:] - 2, first[:-1])], high)
    bare = pa.array(column.labels, pa.string())
    labels = pa.array([_quoted(label) for label in column.labels], pa.string())
    opens = pc.binary_join_element_wise("[", labels, "") if column.opens is None else pa.array(column.opens)
    closes = pc.binary_join_element_wise(labels, "]", "") if column.closes is None else pa.array(column.closes)
    ranges = pc.binary_join_element_wise(opens.take(pa.array(low)), closes.take(pa.array(top)), ", ")
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
    return json.dumps(label, ensure_ascii=False) if _DELIMITERS & set(label) or label != label.strip() else label
