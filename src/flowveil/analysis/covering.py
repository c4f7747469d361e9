"""The published cells that contain each flow, of disjoint cells, layers and boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.release.boxes import BoxZones
from flowveil.zoning.covering import Places, pairs_inside

if TYPE_CHECKING:
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release


@dataclass(frozen=True, eq=False)
class Tree:
    """One end of the flows in a tree.

    Attributes:
        parent, depth: of each node; -1 is the parent of the root.
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
        trees: of each end: origin, destination and folds.
        rows: the node of each cell in each tree.
    """
    n_flows = len(trees[0].at)
    found = np.full(n_flows, -1, dtype=np.int32)
    if len(rows[0]) == 0:
        return found
    depths = np.stack([tree.depth[row] for tree, row in zip(trees, rows, strict=True)])
    left = np.flatnonzero(np.logical_and.reduce([tree.at >= 0 for tree in trees]))
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


@dataclass(frozen=True, eq=False)
class Covering:
    """The published cells that cover each flow's pair of tiles, also of suppressed flows.

    Attributes:
        flow: the flow of each row; None if row i is flow i.
        cell: a cell that covers it, or -1.
    """

    flow: Places | None
    cell: NDArray[Any]

    def rebuild(self, each: Floats, n_flows: int) -> Floats:
        """Returns the sum of ``each`` over the cells that cover each flow."""
        if self.flow is None:
            rebuilt: Floats = np.append(each, 0.0)[self.cell]
            return rebuilt
        return np.bincount(self.flow, weights=each[self.cell], minlength=n_flows).astype(np.float64, copy=False)

    def flows_in_cell(self, n_cells: int) -> NDArray[np.int64]:
        """Returns the number of flows that each cell covers."""
        return np.bincount(self.cell[self.cell >= 0], minlength=n_cells)


def covering_cells(release: Release | NoisyRelease) -> Covering:
    """Returns the cells that cover each flow: at most one, except for boxes and layers."""
    if release.kind == "noisy" or release.kind == "perturbed":  # narrows the type
        # Flows outside the domain are in no cell.
        return Covering(None, release.cell_of_flow)
    cells, plan = release.cells, release.plan
    origins, destinations = plan.origin_zones, plan.destination_zones
    if plan.cells_may_overlap and isinstance(origins, BoxZones) and isinstance(destinations, BoxZones):
        return _covering_boxes(release, origins, destinations)
    if getattr(origins, "layer", None) is not None:
        return _covering_layers(release)
    covering = release.cell_of_flow.copy()
    outside = np.flatnonzero(covering < 0)
    if len(outside):
        width = np.int64(len(plan.destination_zones))
        published = cells.origin.astype(np.int64) * width + cells.destination
        wanted = plan.origin_zone[outside].astype(np.int64) * width + plan.destination_zone[outside]
        at = np.minimum(np.searchsorted(published, wanted), len(published) - 1)
        covering[outside] = np.where(published[at] == wanted, at, -1)
    return Covering(None, covering)


def _covering_layers(release: Release) -> Covering:
    """Returns the cells of all layers that cover each flow; cells of one layer are disjoint."""
    flows, cells, plan = release.input, release.cells, release.plan
    origins: Any = plan.origin_zones
    destinations: Any = plan.destination_zones
    trees = trees_of(flows)
    rows_of_cells = [origins.nodes[cells.origin], destinations.nodes[cells.destination]]
    if plan.folded is not None:
        rows_of_cells += [node[cells.origin] for node in plan.folded.fold_nodes]
    layer = origins.layer[cells.origin]
    found: list[tuple[Any, Any]] = []
    for number in np.unique(layer).tolist():
        rows = np.flatnonzero(layer == number)
        cell = cells_around(trees[: len(rows_of_cells)], [nodes[rows] for nodes in rows_of_cells])
        inside = np.flatnonzero(cell >= 0)
        found.append((inside, rows[cell[inside]]))
    return Covering(np.concatenate([f for f, _ in found]), np.concatenate([c for _, c in found]))


def trees_of(flows: Any) -> list[Tree]:
    """Returns the trees of all ends."""
    return [Tree.from_hierarchy(tree, leaf) for tree, leaf in flows.ends]


def _covering_boxes(release: Release, origins: BoxZones, destinations: BoxZones) -> Covering:
    flows, a, b = release.input, release.cells.origin, release.cells.destination
    point = [axis[flows.origin] for axis in origins.squares]
    point += [axis[flows.destination] for axis in destinations.squares]
    low, high = box_bounds(origins, a, destinations, b)
    parts = list(pairs_inside(np.stack(point), low, high))
    return Covering(np.concatenate([f for f, _ in parts]), np.concatenate([c for _, c in parts]))


def box_bounds(origins: BoxZones, a: Ints, destinations: BoxZones, b: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the first square of cells of boxes in four axes, and the first beyond them."""
    low = np.stack([origins.x0[a], origins.y0[a], destinations.x0[b], destinations.y0[b]])
    return low, np.stack([origins.x1[a], origins.y1[a], destinations.x1[b], destinations.y1[b]]) + 1
