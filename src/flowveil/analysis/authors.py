"""Measures as the program of the ODkAnon authors computes them, where they differ from the definitions here.

- G and E: over trees of the tiles of published trips. Suppressed trips between other tiles are missing in the sum of E.
- C_DM: by rows of the authors' table, which are pairs of tiles, instead of trips. Of weights it is as here.
- The population's threshold: from the mean weight of all trips, before a study area is cut out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowveil.analysis.measures.reconstruction import covering_cells
from flowveil.engines import read_trips
from flowveil.errors import DataError
from flowveil.hierarchy import Floats, Hierarchy
from flowveil.release.release import Release
from flowveil.release.zones import NodeZones


def authors_measures(release: Release, basis: str) -> dict[str, float]:
    """Returns the measures that differ; G and E only for cells of tree nodes that do not intersect.

    Args:
        release: of exact counts.
        basis: trips or weight.
    """
    measures: dict[str, float] = {}
    if basis == "trips":
        counted = release.cell_of_flow[release.cell_of_flow >= 0]
        rows, published = len(release.input), len(counted)
        measures["c_dm"] = float(np.sum(np.bincount(counted).astype(np.float64) ** 2) + rows * (rows - published))
    covering = covering_cells(release)
    plan, flows, cells = release.plan, release.input, release.cells
    if not isinstance(plan.origin_zones, NodeZones) or covering.flow is not None or not cells.total(basis):
        return measures
    kept = release.cell_of_flow >= 0
    seen_o, size_o = _published_tiles(flows.origins, flows.origin[kept], plan.origin_zones)
    assert isinstance(plan.destination_zones, NodeZones)
    seen_d, size_d = _published_tiles(flows.destinations, flows.destination[kept], plan.destination_zones)
    volume = cells.volume(basis).astype(np.float64)
    tiles_o, tiles_d = size_o[cells.origin], size_d[cells.destination]
    measures["mean_generalization_error"] = float(np.sum(volume * (tiles_o + tiles_d)) / volume.sum())
    in_trees = seen_o[flows.origin] & seen_d[flows.destination]
    cell, original = covering.cell[in_trees], flows.volume(basis)[in_trees].astype(np.float64)
    pairs = tiles_o * tiles_d
    each = volume / pairs
    empty = pairs - np.bincount(cell[cell >= 0], minlength=len(pairs))
    on_flows = np.abs(np.append(each, 0.0)[cell] - original).sum()
    measures["reconstruction_loss"] = float((on_flows + np.sum(empty * each)) / flows.total(basis))
    return measures


def _published_tiles(tree: Hierarchy, tiles: Any, zones: NodeZones) -> tuple[Any, Floats]:
    """Returns which tiles have published trips, and the number of these tiles in each zone."""
    seen = np.zeros(tree.n_tiles, dtype=np.bool_)
    seen[tiles] = True
    before = np.concatenate(([0], np.cumsum(seen)))
    nodes = zones.nodes
    return seen, (before[tree.leaf_stop[nodes]] - before[tree.leaf_start[nodes]]).astype(np.float64)


def authors_threshold(source: Any, k: int, reading: Mapping[str, Any]) -> float | None:
    """Returns k times the mean weight of all trips, also those outside the study area; None without weights.

    Args:
        source: the trips.
        k: the k.
        reading: arguments of `flowveil.read_trips`.
    """
    how = {name: value for name, value in reading.items() if name not in ("within", "outside", "every", "time")}
    if not reading.get("weight"):
        return None
    flows = read_trips(source, **how)
    if flows.weight is None or not flows.trips.sum():
        raise DataError("There are no trips with weights.")
    return float(k * flows.total("weight") / flows.trips.sum())
