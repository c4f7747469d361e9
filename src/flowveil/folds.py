"""Folds: a column of the trips as a tree of its values, so that a cell holds a node of it instead of one value.

Hours fold into parts of the day (`flowveil.times.fold_times`), values of an attribute into groups on a tree that the
operator gives. A fold is an end of a flow like its two places, and methods divide cells along it in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import Floats, Hierarchy, Ints

#: Largest tree of an attribute: it is published in report.json.
MOST_NODES = 1_000


@dataclass(frozen=True, eq=False)
class Fold:
    """A folded column."""

    name: str  # of the slice column
    tree: Hierarchy  # above its values
    labels: NDArray[np.str_]  # value of each leaf, as slices write it
    columns: Mapping[str, NDArray[np.str_]]  # the published columns, with the text of each node
    width: Floats  # of each node: its hours, or for an attribute its steps above the lowest value
    every: str | None = None  # the step, if the column is the time

    @classmethod
    def from_tree(cls, name: str, tree: Hierarchy) -> Fold:
        """Returns an attribute that folds along a tree whose leaves are its values."""
        if tree.n_nodes > MOST_NODES:
            raise DataError(
                f"The tree of '{name}' has {tree.n_nodes:,} values and groups; allowed are {MOST_NODES:,}. "
                "Hint: it is published, so list classes that many people share."
            )
        codes = tree.code.astype(np.str_)
        steps = np.zeros(tree.n_nodes)
        # Children follow their parents.
        for node in range(tree.n_nodes - 1, 0, -1):
            steps[tree.parent[node]] = max(steps[tree.parent[node]], steps[node] + 1)
        return cls(name, tree, codes[tree.leaf_node], {name: codes}, steps)

    @property
    def parents(self) -> dict[str, str | None]:
        """The group of each value and group; None for the root. This is what a release states of the tree."""
        codes = self.tree.code.tolist()
        return {code: None if up < 0 else codes[up] for code, up in zip(codes, self.tree.parent.tolist(), strict=True)}

    def leaves(self, labels: Sequence[str]) -> Ints:
        """Returns the leaf of each label; DataError, which quotes none, if one is no value: few people may have it."""
        number = {label: leaf for leaf, label in enumerate(self.labels.tolist())}
        unknown = set(labels) - number.keys()
        if unknown:
            raise DataError(
                f"The tree of '{self.name}' does not list {len(unknown):,} of the values in the input, or has them as "
                f"groups; its values are {len(number):,}. Hint: add a row for each value; spelling and case count."
            )
        return np.array([number[label] for label in labels], dtype=np.int32)
