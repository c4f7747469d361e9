"""The published cell that contains each flow, for disjoint cells of tree nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Hierarchy, Ints


@dataclass(frozen=True, eq=False)
class Tree:
    """One end of the flows in a tree.

    Attributes:
        parent: parent of each node; -1 at the root.
        depth: of each node.
        start: the finest nodes that contain flows.
        at: for each flow, the position of its node in `start`; -1 outside the tree.
    """

    parent: NDArray[Any]
    depth: NDArray[Any]
    start: NDArray[Any]
    at: NDArray[Any]

    @classmethod
    def from_hierarchy(cls, tree: Hierarchy, leaf: Ints) -> Tree:
        """Returns the tree of a hierarchy, with the leaf of each flow."""
        return cls(tree.parent, tree.depth, tree.leaf_node, leaf)

    @classmethod
    def from_parents(cls, parent: NDArray[Any], node: NDArray[Any]) -> Tree:
        """Returns the tree of a forest given by its parents, with the node of each flow; -1 outside."""
        depth = np.zeros(len(parent), dtype=np.int16)
        above = parent.copy()
        while (above >= 0).any():
            depth += above >= 0
            above = np.where(above >= 0, parent[above], -1)
        return cls(parent, depth, np.arange(len(parent)), node)

    def select(self, flows: NDArray[Any]) -> Tree:
        """Returns the same for some of the flows."""
        return replace(self, at=self.at[flows])

    def ancestors(self, depth: int) -> NDArray[np.int64]:
        """Returns the ancestor of a depth for each start node; -1 for less deep nodes."""
        node = self.start.astype(np.int64)
        while True:
            deeper = (node >= 0) & (self.depth[node] > depth)
            if not deeper.any():
                return np.where((node >= 0) & (self.depth[node] == depth), node, -1)
            node = np.where(deeper, self.parent[node], node)


def cells_around(trees: list[Tree], rows: list[NDArray[Any]]) -> Ints:
    """Returns the cell that contains each flow, -1 without one. Cells must be disjoint.

    Makes one look-up for each combination of depths among the cells, over the flows without a cell.

    Args:
        trees: of each end, and of the time if it is folded.
        rows: the node of each cell in each tree.
    """
    n_flows = len(trees[0].at)
    found = np.full(n_flows, -1, dtype=np.int32)
    if len(rows[0]) == 0:
        return found
    depths = np.stack([tree.depth[row] for tree, row in zip(trees, rows, strict=True)])
    inside = np.logical_and.reduce([tree.at >= 0 for tree in trees])
    left = np.flatnonzero(inside)
    known: list[dict[int, NDArray[Any]]] = [{} for _ in trees]
    for combination in np.unique(depths, axis=1).T.tolist():
        of_cells = np.flatnonzero(np.all(combination == depths.T, axis=1))
        key, wanted, near = np.zeros(len(of_cells), np.int64), np.zeros(len(left), np.int64), np.ones(len(left), bool)
        for tree, row, depth, cached in zip(trees, rows, combination, known, strict=True):
            if depth not in cached:
                cached[depth] = tree.ancestors(depth)
            node = cached[depth][tree.at[left]]
            # Zones are renumbered, so that keys stay small.
            zones, number = np.unique(row[of_cells], return_inverse=True)
            place = np.minimum(np.searchsorted(zones, node), len(zones) - 1)
            near &= zones[place] == node
            key, wanted = key * len(zones) + number, wanted * len(zones) + place
        order = np.argsort(key)
        rank = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
        hit = near & (key[order][rank] == wanted)
        found[left[hit]] = of_cells[order[rank[hit]]]
        left = left[~hit]
    return found
