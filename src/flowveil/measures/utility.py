"""What is left of the matrix: discernibility, class size, generalisation error, reconstruction.

V is the total input volume; cells are the published ones, v their volume. All are O(flows): tile pairs without flows
are counted, never listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.release.boxes import BoxZones
from flowveil.zoning.covering import Places, pairs_inside

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats
    from flowveil.release.release import Release


def utility_measures(release: Release, basis: str) -> dict[str, float | int | None]:
    """The utility measures on one basis.

    Returns:
        c_dm, c_avg, mean_generalization_error, reconstruction_loss, distribution_distance, suppressed_share,
        n_origin_zones, n_destination_zones, n_cells.
    """
    cells, plan = release.cells, release.plan
    volume = cells.volume(basis).astype(np.float64)
    total = float(np.sum(release.input.volume(basis)))
    published = float(volume.sum())
    size_o = plan.origin_zones.size[cells.origin].astype(np.float64)
    size_d = plan.destination_zones.size[cells.destination].astype(np.float64)
    covering = covering_cells(release)
    return {
        "c_dm": float(np.sum(volume**2) + total * (total - published)),
        "c_avg": published / len(cells) / _class_size(release, basis) if published else None,
        "mean_generalization_error": float(np.sum(volume * (size_o + size_d)) / published) if published else None,
        "reconstruction_loss": _reconstruction(release, basis, covering, size_o * size_d, scale=total),
        "distribution_distance": _reconstruction(
            release, basis, covering, size_o * size_d, scale=total, published=published
        ),
        "suppressed_share": _share(total - published, total),
        "n_origin_zones": len(np.unique_values(cells.origin)),
        "n_destination_zones": len(np.unique_values(cells.destination)),
        "n_cells": len(cells),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _class_size(release: Release, basis: str) -> float:
    """The k of this basis: the smallest class the guarantee would allow if it protected this basis."""
    if basis == "trips":
        return release.guarantee.k
    if release.guarantee.population is not None:
        return release.guarantee.population
    flows = release.input
    return release.guarantee.k * float(np.sum(flows.volume("weight"))) / float(np.sum(flows.trips))


@dataclass(frozen=True, eq=False)
class Covering:
    """Which published cells cover each flow's pair of tiles, whether the flow is counted in them or not.

    A suppressed flow inside a published cell reconstructs to that cell's share.

    Attributes:
        flow: the flow of each row, or None where row i is flow i.
        cell: a cell that covers it, or -1.
    """

    flow: Places | None
    cell: NDArray[Any]

    def rebuild(self, each: Floats, n_flows: int) -> Floats:
        """What each flow's pair gets, where a cell gives ``each`` to every pair it covers."""
        rebuilt: Floats
        if self.flow is None:
            rebuilt = np.append(each, 0.0)[self.cell]
        else:
            rebuilt = np.bincount(self.flow, weights=each[self.cell], minlength=n_flows).astype(np.float64, copy=False)
        return rebuilt

    def flows_in_cell(self, n_cells: int) -> NDArray[np.int64]:
        """How many flows each cell covers."""
        return np.bincount(self.cell[self.cell >= 0], minlength=n_cells)


def covering_cells(release: Release) -> Covering:
    """Where the pairs of the flows lie in the published cells: in at most one, unless cells are boxes."""
    cells, plan = release.cells, release.plan
    origins, destinations = plan.origin_zones, plan.destination_zones
    may_overlap = plan.cells_may_overlap
    if may_overlap and isinstance(origins, BoxZones) and isinstance(destinations, BoxZones):
        return _covering_boxes(release, origins, destinations)
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


def _covering_boxes(release: Release, origins: BoxZones, destinations: BoxZones) -> Covering:
    flows, a, b = release.input, release.cells.origin, release.cells.destination
    point = [axis[flows.origin] for axis in origins.squares]
    point += [axis[flows.destination] for axis in destinations.squares]
    low = [origins.x0[a], origins.y0[a], destinations.x0[b], destinations.y0[b]]
    high = [origins.x1[a], origins.y1[a], destinations.x1[b], destinations.y1[b]]
    parts = list(pairs_inside(np.stack(point), np.stack(low), np.stack(high) + 1))
    return Covering(np.concatenate([f for f, _ in parts]), np.concatenate([c for _, c in parts]))


def _reconstruction(
    release: Release,
    basis: str,
    covering: Covering,
    pairs: Floats,
    *,
    scale: float,
    published: float | None = None,
) -> float | None:
    """Sum of |reconstructed - original| over all tile pairs.

    With ``published``, both sides are taken as shares of their own totals (distribution distance); without, the sum is
    divided by the input volume (reconstruction loss). A pair in several boxes gets a share of each.
    """
    if scale == 0 or published == 0:
        return None
    original: NDArray[Any] = release.input.volume(basis) / scale
    each = release.cells.volume(basis) / (scale if published is None else published) / pairs
    on_flows = np.abs(covering.rebuild(each, len(original)) - original).sum()
    on_empty_pairs = np.sum((pairs - covering.flows_in_cell(len(pairs))) * each)
    return float(on_flows + on_empty_pairs)
