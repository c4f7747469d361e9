"""The published cells that contain each flow, of disjoint cells, layers and boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Positions
from flowveil.release.boxes import BoxZones
from flowveil.zoning.covering import containing_cells, pairs_inside

if TYPE_CHECKING:
    from flowveil.publishing.release import NoisyRelease, Release


@dataclass(frozen=True, eq=False)
class Covering:
    """The published cells that cover each flow's pair of tiles, also of suppressed flows."""

    flow: Positions | None  # the flow of each row; None if row i is flow i
    cell: NDArray[Any]  # a cell that covers it, or -1

    def rebuild(self, each: Floats, n_flows: int) -> Floats:
        """Returns the sum of ``each`` over the cells that cover each flow."""
        if self.flow is None:
            rebuilt: Floats = np.append(each, 0.0)[self.cell]
            return rebuilt
        return np.bincount(self.flow, weights=each[self.cell], minlength=n_flows).astype(
            np.float64, copy=False
        )

    def flows_in_cell(self, n_cells: int) -> NDArray[np.int64]:
        """Returns the number of flows that each cell covers."""
        return np.bincount(self.cell[self.cell >= 0], minlength=n_cells)


def covering_cells(release: Release | NoisyRelease) -> Covering:
    """Returns the cells that cover each flow: at most one, except for boxes and layers."""
    if release.facets.is_noisy:
        # Flows outside the domain are in no cell.
        return Covering(None, release.cell_of_flow)
    plan, release = release.plan, cast("Release", release)
    origins, destinations = plan.origin_zones, plan.destination_zones
    if (
        plan.cells_may_overlap
        and isinstance(origins, BoxZones)
        and isinstance(destinations, BoxZones)
    ):
        return _covering_boxes(release, origins, destinations)
    if getattr(origins, "layer", None) is not None:
        return _covering_layers(release)
    covering = release.cell_of_flow.copy()
    outside = np.flatnonzero(covering < 0)
    covering[outside] = plan.cells_around(release.cells, outside)
    return Covering(None, covering)


def _covering_layers(release: Release) -> Covering:
    """Returns the cells of all layers that cover each flow; cells of one layer are disjoint."""
    flows, cells, plan = release.input, release.cells, release.plan
    origins: Any = plan.origin_zones
    destinations: Any = plan.destination_zones
    parents, points = nodes_of_flows(flows)
    rows_of_cells = [origins.nodes[cells.origin], destinations.nodes[cells.destination]]
    if plan.folded is not None:
        rows_of_cells += [node[cells.origin] for node in plan.folded.fold_nodes]
    n, layer = len(rows_of_cells), origins.layer[cells.origin]
    found: list[tuple[Any, Any]] = []
    for number in np.unique(layer).tolist():
        rows = np.flatnonzero(layer == number)
        cell = containing_cells(parents[:n], [nodes[rows] for nodes in rows_of_cells], points[:n])
        inside = np.flatnonzero(cell >= 0)
        found.append((inside, rows[cell[inside]]))
    return Covering(np.concatenate([f for f, _ in found]), np.concatenate([c for _, c in found]))


def nodes_of_flows(flows: Any) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Returns the parents of all nodes and the leaf node of each flow, by end."""
    return [tree.parent for tree, _ in flows.ends], [
        tree.leaf_node[leaf] for tree, leaf in flows.ends
    ]


def _covering_boxes(release: Release, origins: BoxZones, destinations: BoxZones) -> Covering:
    flows, a, b = release.input, release.cells.origin, release.cells.destination
    point = [axis[flows.origin] for axis in origins.squares]
    point += [axis[flows.destination] for axis in destinations.squares]
    low, high = box_bounds(origins, a, destinations, b)
    parts = list(pairs_inside(np.stack(point), low, high))
    return Covering(np.concatenate([f for f, _ in parts]), np.concatenate([c for _, c in parts]))


def box_bounds(
    origins: BoxZones, a: Ints, destinations: BoxZones, b: Ints
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the first square of cells of boxes in four axes, and the first beyond them."""
    low = np.stack([origins.x0[a], origins.y0[a], destinations.x0[b], destinations.y0[b]])
    return low, np.stack([origins.x1[a], origins.y1[a], destinations.x1[b], destinations.y1[b]]) + 1
