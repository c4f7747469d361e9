"""The papers' measures of a noisy release, against the true counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flowveil.measures.spatial import spatial_measures

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats
    from flowveil.release.noisy import NoisyRelease

#: Measures of classes of k and of generalisation: noise makes no classes and generalises nothing.
WITHOUT_MEANING = (
    "c_dm",
    "c_avg",
    "mean_generalization_error",
    "k_trips",
    "cells_under_k_trips",
    "k_people",
    "cells_under_k_people",
    "k_population",
    "cells_under_k_population",
)


def noise_measures(release: NoisyRelease) -> dict[str, float | int | None]:
    """The measures that noise leaves a meaning, by trips; the others are None.

    The reconstruction loss and the distribution distance run over all pairs of tiles, those without trips included:
    there, all that is published is noise. ``suppressed_share`` is 1 - published / input, below 0 where noise adds
    more than is left out, as in Matet et al. (Table 3). V is the whole input, trips outside the region or beyond the
    bound included.
    """
    cells = release.cells
    total, published = float(release.input.trips.sum()), float(cells.trips.sum())
    return {
        **dict.fromkeys(WITHOUT_MEANING),
        "n_cells": len(cells),
        "n_origin_zones": len(np.unique_values(cells.origin)),
        "n_destination_zones": len(np.unique_values(cells.destination)),
        "published_trips": int(cells.trips.sum()),
        "reconstruction_loss": _distance(release, cells.trips / total, total),
        "distribution_distance": _distance(release, cells.trips / published, total),
        "suppressed_share": 1 - published / total,
        **spatial_measures(release, "trips"),
    }


def _distance(release: NoisyRelease, share: Floats, total: float) -> float:
    """Sum over all pairs of tiles of abs(reconstructed - original): published pairs spread evenly over tiles."""
    cells, plan = release.cells, release.plan
    pairs = plan.origin_zones.size[cells.origin].astype(np.float64) * plan.destination_zones.size[cells.destination]
    each = share / pairs
    inside = release.cell_of_flow >= 0
    at = release.cell_of_flow[inside]
    original = release.input.trips / total
    on_flows = np.abs(each[at] - original[inside]).sum()
    on_empty_pairs = np.sum((pairs - np.bincount(at, minlength=len(pairs))) * each)
    return float(on_flows + on_empty_pairs + original[~inside].sum())
