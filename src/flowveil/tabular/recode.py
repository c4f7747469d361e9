"""From partitions to what is published: ranges, sets and nodes of a hierarchy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.hierarchy import Hierarchy
from flowveil.tabular.records import Column, Floats, Ints
from flowveil.tabular.safety import runs

#: Characters that would make a range or a set ambiguous; labels that hold one are quoted.
_DELIMITERS = set('[]{},"')


@dataclass(frozen=True, eq=False)
class Region:
    """What is published of one quasi-identifier, for each partition (each class, in a release).

    Attributes:
        column: the quasi-identifier.
        text: the published value: the value itself if there is one only; ``[low, high)`` for numbers, the edges on
            the column's grid and ``-inf`` or ``inf`` in the tails; ``[low, high]`` for ordered categories; both
            followed by `` or missing`` where values are missing; ``{a, b}`` for unordered ones; the lowest common
            term for a hierarchy.
        start, codes: the codes of partition p's published value are ``codes[start[p]:start[p + 1]]``. For
            ranges and nodes, ``codes`` is the range of all codes and ``stop`` ends the slice, so nothing is
            written out.
        stop: see there.
        or_missing: whether the published value also covers the missing one, beside the slice.
    """

    column: Column
    text: Any
    start: Ints
    stop: Ints
    codes: Ints
    or_missing: NDArray[np.bool_]

    def draw(self, partition: Ints, generator: np.random.Generator) -> Ints:
        """Draw for each record one of the codes its published value covers, each as likely as the other."""
        length = (self.stop - self.start)[partition]
        drawn = generator.integers(0, length + self.or_missing[partition])
        code = self.codes[self.start[partition] + np.minimum(drawn, length - 1)]
        return np.where(drawn == length, self.column.missing, code)

    def shares(self) -> Floats:
        """For each partition (row) the probability of each code (column) under `draw`."""
        length = self.stop - self.start
        share = np.zeros((len(length), self.column.n_values))
        row = np.repeat(np.arange(len(length)), length)
        place = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - self.start, length)
        each = 1.0 / (length + self.or_missing)
        share[row, self.codes[place]] = each[row]
        share[self.or_missing, self.column.missing] = each[self.or_missing]
        return share


def regions_of(columns: Sequence[Column], partition: Ints) -> tuple[Region, ...]:
    """Recode every quasi-identifier of every partition."""
    n_partitions = int(partition.max()) + 1
    return tuple(_region(column, partition, n_partitions) for column in columns)


def number_by_text(regions: Sequence[Region]) -> Ints:
    """A new number for each partition: in the order of the published text, then of the old number."""
    ranks = []
    for region in regions:
        encoded = region.text.dictionary_encode()
        rank = np.empty(len(encoded.dictionary), dtype=np.int64)
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        ranks.append(rank[encoded.indices.to_numpy(zero_copy_only=False)])
    number = np.empty(len(ranks[0]), dtype=np.int64)
    number[np.lexsort(ranks[::-1])] = np.arange(len(number))
    return number


def lowest_common_node(tree: Hierarchy, low: Ints, high: Ints) -> Ints:
    """The lowest node that holds all leaves from ``low`` to ``high``."""
    node = tree.leaf_node[low].astype(np.int64)
    while (outside := tree.leaf_stop[node] <= high).any():
        node[outside] = tree.parent[node[outside]]
    return node


def _region(column: Column, partition: Ints, n_partitions: int) -> Region:
    run_partition, run_code, _ = runs(partition, column.codes, column.n_values)
    distinct = np.bincount(run_partition, minlength=n_partitions)
    stop = np.cumsum(distinct)
    start = stop - distinct
    low, high = run_code[start], run_code[stop - 1]
    never = np.zeros(n_partitions, dtype=np.bool_)
    every = np.arange(column.n_values)
    bare = pa.array(column.labels, pa.string())
    labels = pa.array([_quoted(label) for label in column.labels], pa.string())
    if column.tree is not None:
        node = lowest_common_node(column.tree, low, high)
        text = pa.array(column.tree.code_text(node.astype(np.int32)).tolist(), pa.string())
        begin, end = column.tree.leaf_start[node], column.tree.leaf_stop[node]
        return Region(column, text, begin.astype(np.int64), end.astype(np.int64), every, never)
    if column.kind == "unordered":
        lists = pa.ListArray.from_arrays(pa.array(np.append(start, stop[-1]), pa.int32()), labels.take(run_code))
        sets = pc.binary_join_element_wise("{", pc.binary_join(lists, ", "), "}", "")
        text = pc.if_else(pa.array(distinct == 1), bare.take(pa.array(low)), sets)
        return Region(column, text, start, stop, run_code, never)
    or_missing = (high == column.missing) & (distinct > 1)
    # Missing values have the highest code; the range ends at the code below it.
    top = np.where(or_missing, run_code[np.maximum(stop - 2, start)], high)
    opens = pc.binary_join_element_wise("[", labels, "") if column.opens is None else pa.array(column.opens)
    closes = pc.binary_join_element_wise(labels, "]", "") if column.closes is None else pa.array(column.closes)
    ranges = pc.binary_join_element_wise(opens.take(pa.array(low)), closes.take(pa.array(top)), ", ")
    text = pc.if_else(pa.array(low == top), bare.take(pa.array(low)), ranges)
    if column.missing >= 0:
        tail = pc.if_else(pa.array(or_missing), f" or {column.labels[column.missing]}", "")
        text = pc.binary_join_element_wise(text, tail, "")
    return Region(column, text, low, top + 1, every, or_missing)


def _quoted(label: str) -> str:
    return json.dumps(label, ensure_ascii=False) if _DELIMITERS & set(label) or label != label.strip() else label
