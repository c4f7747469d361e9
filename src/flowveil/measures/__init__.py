"""The measures of a release: how much was lost, how far things moved, how well people are hidden.

Every measure is computed on trips and, where there are weights, on weights too, whichever was protected.
"""

from __future__ import annotations

from typing import Any

from flowveil.measures.floor import floor_measures
from flowveil.measures.noise import noise_measures
from flowveil.measures.privacy import privacy_measures
from flowveil.measures.spatial import spatial_measures
from flowveil.measures.utility import utility_measures

Measures = dict[str, float | int | None]


def measure(release: Any) -> dict[str, Measures]:
    """All measures of one matrix by basis: "trips" and, where there are weights, "weight"."""
    if release.kind == "noisy":
        return {"trips": noise_measures(release)}
    privacy = privacy_measures(release)
    bases = ("trips",) if release.cells.weight is None else ("trips", "weight")
    measured: dict[str, Measures] = {}
    for basis in bases:
        utility = utility_measures(release, basis)
        floor = floor_measures(release, basis, utility["mean_generalization_error"])
        measured[basis] = {**utility, **floor, **spatial_measures(release, basis), **privacy}
    return measured
