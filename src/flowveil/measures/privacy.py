"""How well people are hidden: the k a release reaches in every unit, protected or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flowveil.release.release import Release


def privacy_measures(release: Release) -> dict[str, float | int | None]:
    """The smallest value over cells in each unit, and how many cells are under that unit's threshold.

    Units that are not protected are held against what k would ask of them, so that a reader sees what protecting
    trips does for people and for the population. None where the input does not know a unit.
    """
    cells, guarantee, flows = release.cells, release.guarantee, release.input
    people = cells.n_people()
    threshold = {"trips": float(guarantee.k), "people": float(guarantee.k), "population": 0.0}
    if flows.weight is not None:
        mean = float(np.sum(flows.weight)) / float(np.sum(flows.trips))
        threshold["population"] = guarantee.population or guarantee.k * mean
    out: dict[str, float | int | None] = {}
    for unit, values in (("trips", cells.trips), ("people", people), ("population", cells.weight)):
        out[f"k_{unit}"] = None if values is None else values.min().item()
        out[f"cells_under_k_{unit}"] = None if values is None else int(np.sum(values < threshold[unit]))
    return out
