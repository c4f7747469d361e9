"""Errors of an even spread of cells over their tiles. O(flows): empty pairs are counted, never listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.cell_lookup import Tree, cells_around
from flowveil.analysis.measures.measure import Measure, Slices, Subject, averaged
from flowveil.release.boxes import BoxZones
from flowveil.zoning.covering import Places, pairs_inside

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release


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
        rebuilt: Floats
        if self.flow is None:
            rebuilt = np.append(each, 0.0)[self.cell]
        else:
            rebuilt = np.bincount(self.flow, weights=each[self.cell], minlength=n_flows).astype(np.float64, copy=False)
        return rebuilt

    def flows_in_cell(self, n_cells: int) -> NDArray[np.int64]:
        """Returns the number of flows that each cell covers."""
        return np.bincount(self.cell[self.cell >= 0], minlength=n_cells)


def covering_cells(release: Release | NoisyRelease) -> Covering:
    """Returns the cells that cover each flow: at most one, except for boxes and layers."""
    if release.kind == "noisy":
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
    if len(outside) == 0:
        return Covering(None, covering)
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
    trees = [
        Tree.from_hierarchy(flows.origins, flows.origin),
        Tree.from_hierarchy(flows.destinations, flows.destination),
    ]
    rows_of_cells = [origins.nodes[cells.origin], destinations.nodes[cells.destination]]
    if plan.timed is not None and flows.times is not None and flows.time is not None:
        trees.append(Tree.from_hierarchy(flows.times.tree, flows.time))
        rows_of_cells.append(plan.timed.time[cells.origin])
    layer = origins.layer[cells.origin]
    found: list[tuple[Any, Any]] = []
    for number in np.unique(layer).tolist():
        rows = np.flatnonzero(layer == number)
        cell = cells_around(trees, [nodes[rows] for nodes in rows_of_cells])
        inside = np.flatnonzero(cell >= 0)
        found.append((inside, rows[cell[inside]]))
    return Covering(np.concatenate([f for f, _ in found]), np.concatenate([c for _, c in found]))


def _covering_boxes(release: Release, origins: BoxZones, destinations: BoxZones) -> Covering:
    flows, a, b = release.input, release.cells.origin, release.cells.destination
    point = [axis[flows.origin] for axis in origins.squares]
    point += [axis[flows.destination] for axis in destinations.squares]
    low = [origins.x0[a], origins.y0[a], destinations.x0[b], destinations.y0[b]]
    high = [origins.x1[a], origins.y1[a], destinations.x1[b], destinations.y1[b]]
    parts = list(pairs_inside(np.stack(point), np.stack(low), np.stack(high) + 1))
    return Covering(np.concatenate([f for f, _ in parts]), np.concatenate([c for _, c in parts]))


def _covered(subject: Subject) -> Covering:
    return covering_cells(subject.release)


def _distance(subject: Subject, scale: float) -> float | None:
    """Returns the sum of abs(reconstructed / scale - original / input volume) over all tile pairs.

    A pair in several cells gets a share of each.
    """
    if subject.total == 0 or scale == 0:
        return None
    release, covering = subject.release, subject.share(_covered)
    pairs = subject.places
    original: NDArray[Any] = release.input.volume(subject.basis) / subject.total
    each = release.cells.volume(subject.basis) / scale / pairs
    on_flows = np.abs(covering.rebuild(each, len(original)) - original).sum()
    on_empty_pairs = np.sum((pairs - covering.flows_in_cell(len(pairs))) * each)
    return float(on_flows + on_empty_pairs)


def _combined_loss(slices: Slices, key: str) -> float | None:
    losses = slices.of(key)
    if not slices.total or None in losses:
        return None
    inside = sum(float(loss or 0) * volume for loss, volume in zip(losses, slices.whole, strict=True))
    return float((inside + float(slices.lost.sum())) / slices.total)


MEASURES = (
    Measure(
        key="reconstruction_loss",
        title="Reconstruction loss",
        meaning="Difference between the input and the cells spread evenly over their tiles: "
        "0 is perfect, 2 is the worst.",
        compute=lambda subject: _distance(subject, subject.total),
        combine=_combined_loss,
        of_noise="defined",
    ),
    Measure(
        key="distribution_distance",
        title="Distribution distance",
        meaning="The same comparison of shares instead of volumes: 0 is perfect, 2 is the worst.",
        compute=lambda subject: _distance(subject, subject.published),
        combine=averaged,
        of_noise="defined",
    ),
)
