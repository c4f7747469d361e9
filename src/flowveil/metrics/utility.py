"""What is left of the matrix: discernibility, class size, generalisation error, reconstruction.

V is the total input volume; cells are the published ones, v their volume. All are O(flows): tile pairs without flows
are counted, never listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats, Ints
    from flowveil.plan import Release


def utility_measures(release: Release, basis: str) -> dict[str, float | int | None]:
    """The utility measures of DESIGN section 7 on one basis.

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


def covering_cells(release: Release) -> Ints:
    """The published cell that covers each flow's pair of tiles, counted in it or not; -1 where there is none.

    A suppressed flow inside a published cell reconstructs to that cell's share.
    """
    covering = release.cell_of_flow.copy()
    outside = np.flatnonzero(covering < 0)
    if len(outside) == 0:
        return covering
    width = np.int64(len(release.plan.destination_zones))
    cells, plan = release.cells, release.plan
    published = cells.origin.astype(np.int64) * width + cells.destination
    wanted = plan.origin_zone[outside].astype(np.int64) * width + plan.destination_zone[outside]
    at = np.minimum(np.searchsorted(published, wanted), len(published) - 1)
    covering[outside] = np.where(published[at] == wanted, at, -1)
    return covering


def _reconstruction(
    release: Release,
    basis: str,
    covering: Ints,
    pairs: Floats,
    *,
    scale: float,
    published: float | None = None,
) -> float | None:
    """Sum of |reconstructed - original| over all tile pairs.

    With ``published``, both sides are taken as shares of their own totals (distribution distance); without, the sum is
    divided by the input volume (reconstruction loss).
    """
    if scale == 0 or published == 0:
        return None
    original: NDArray[Any] = release.input.volume(basis) / scale
    spread = release.cells.volume(basis) / (scale if published is None else published)
    each = spread / pairs
    inside = covering >= 0
    at = covering[inside]
    flows_in_cell = np.bincount(at, minlength=len(pairs))
    on_flows = np.abs(each[at] - original[inside]).sum()
    on_empty_pairs = np.sum((pairs - flows_in_cell) * each)
    return float(on_flows + on_empty_pairs + original[~inside].sum())
