"""Dimensions: further columns of the trips, each with a tree over its values.

Time, purpose and sex are dimensions. Every row of `flowveil.core.flows.Flows` has a leaf of each.
A dimension is used in one of two ways: ``separate``, one matrix for each value, planned group by
group; ``fold``, an end of a flow like its two places, along whose tree methods divide cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flowveil.core.arrays import Floats, Ints, Texts
from flowveil.core.errors import DataError
from flowveil.core.hierarchy import Hierarchy

#: The root of an attribute whose values are those of the trips.
EVERYTHING = "all"
#: Largest tree of an attribute that folds: it is published in report.json.
MOST_NODES = 1_000

Use = Literal["separate", "fold"]


@dataclass(frozen=True, eq=False, repr=False)
class Dimension:
    """A column of the trips, with the tree of its values.

    Attributes:
        name: of the column; ``time`` for the time.
        tree: above its values; the root is all of them.
        labels: the value of each leaf, in the order of the leaves.
        columns: the published columns where the dimension folds, with the text of each node.
        width: of each node: its hours, or for an attribute its steps above the lowest value.
        every: the step, if the dimension is the time; else None.
        use: ``separate`` or ``fold``.
        found: the values are those of the trips. A release states the published ones alone.
    """

    name: str
    tree: Hierarchy
    labels: Texts
    columns: Mapping[str, Texts]
    width: Floats
    every: str | None = None
    use: Use = "fold"
    found: bool = False

    @classmethod
    def from_tree(cls, name: str, tree: Hierarchy) -> Dimension:
        """Returns an attribute that folds along a tree whose leaves are its values."""
        if tree.n_nodes > MOST_NODES:
            raise DataError(
                f"The tree of '{name}' has {tree.n_nodes:,} values and groups; allowed are"
                f" {MOST_NODES:,}. Hint: it is published, so list classes that many people share."
            )
        return cls._over(name, tree, use="fold")

    @classmethod
    def from_found(cls, name: str, values: Sequence[str]) -> Dimension:
        """Returns an attribute that folds: its sorted, distinct values below one root."""
        if EVERYTHING in values:
            raise DataError(
                f"'{name}' has the value '{EVERYTHING}', which means all values here. Hint: rename"
                " it, or publish a matrix for each value (--separate)."
            )
        tree = Hierarchy(
            parent=np.array([-1, *[0] * len(values)], np.int32),
            code=np.array([EVERYTHING, *values]),
        )
        return replace(cls.from_tree(name, tree), found=True)

    @classmethod
    def from_values(
        cls, name: str, values: Sequence[str], *, every: str | None = None
    ) -> Dimension:
        """Returns a separate dimension of sorted, distinct values below one root."""
        # The code of the root is never published; it differs from every value.
        root = "*" * (1 + max((len(v) for v in values if set(v) == {"*"}), default=0))
        tree = Hierarchy(
            parent=np.array([-1, *[0] * len(values)], np.int32), code=np.array([root, *values])
        )
        return cls._over(name, tree, use="separate", every=every)

    @classmethod
    def _over(cls, name: str, tree: Hierarchy, *, use: Use, every: str | None = None) -> Dimension:
        codes = tree.code.astype(np.str_)
        steps = np.zeros(tree.n_nodes)
        # Children follow their parents.
        for node in range(tree.n_nodes - 1, 0, -1):
            steps[tree.parent[node]] = max(steps[tree.parent[node]], steps[node] + 1)
        return cls(name, tree, codes[tree.leaf_node], {name: codes}, steps, every, use)

    @property
    def parents(self) -> dict[str, str | None]:
        """The group of each value and group; None for the root.

        This is what a release states of the tree (`stated`).
        """
        codes = self.tree.code.tolist()
        return {
            code: None if up < 0 else codes[up]
            for code, up in zip(codes, self.tree.parent.tolist(), strict=True)
        }

    def stated(self, published: Ints) -> dict[str, str | None]:
        """Returns what a release of these nodes states of the tree.

        Of values of the trips, those that are published: others have too few trips.
        """
        if not self.found:
            return self.parents
        kept = {EVERYTHING, *self.tree.code[published].tolist()}
        return {code: up for code, up in self.parents.items() if code in kept}

    def leaves(self, labels: Sequence[str]) -> Ints:
        """Returns the leaf of each label.

        DataError, which quotes none, if one is no value: few people may have it.
        """
        number = {label: leaf for leaf, label in enumerate(self.labels.tolist())}
        unknown = set(labels) - number.keys()
        if unknown:
            raise DataError(
                f"The tree of '{self.name}' does not list {len(unknown):,} of the values in the"
                f" input, or has them as groups; its values are {len(number):,}. Hint: add a row"
                " for each value; spelling and case count."
            )
        return np.array([number[label] for label in labels], dtype=np.int32)

    def __repr__(self) -> str:
        # Never the values: few people may have one.
        return f"<Dimension {self.name}: {self.tree.n_tiles:,} values, {self.use}>"
