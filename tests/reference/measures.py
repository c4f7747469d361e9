"""The measures of section 7, over every pair of tiles."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
from pyproj import Geod

from flowveil.publishing.release import Release
from flowveil.release.plan import NodeZones
from flowveil.zoning.public_map import Rectangles


def measures(release: Release, basis: str, least: float = 0.0) -> dict[str, float]:
    """``least``: the papers' threshold of an equivalence class, in the unit of the basis."""
    flows, plan = release.input, release.plan
    value = flows.trips if basis == "trips" else flows.weight
    total = float(value.sum())
    raw = {
        (int(o), int(d)): float(v)
        for o, d, v in zip(flows.origin, flows.destination, value, strict=True)
    }

    # Tiles of each zone and volume of each published cell, straight from the plan.
    tiles_o, tiles_d = (
        tiles_of(flows.origins, plan.origin_zones),
        tiles_of(flows.destinations, plan.destination_zones),
    )
    cells: dict[tuple[int, int], float] = defaultdict(float)
    for f in np.flatnonzero(plan.kept):
        cells[int(plan.origin_zone[f]), int(plan.destination_zone[f])] += float(value[f])
    published = sum(cells.values())
    classes = {pair: v for pair, v in cells.items() if v >= least}
    in_classes = sum(classes.values())

    loss = distance = 0.0
    for o, d in product(range(flows.origins.n_tiles), range(flows.destinations.n_tiles)):
        covering = [c for c in cells if o in tiles_o[c[0]] and d in tiles_d[c[1]]]
        assert len(covering) <= 1 or plan.boxes is not None
        rebuilt = sum(cells[c] / (len(tiles_o[c[0]]) * len(tiles_d[c[1]])) for c in covering)
        loss += abs(rebuilt - raw.get((o, d), 0.0))
        distance += abs(rebuilt / published - raw.get((o, d), 0.0) / total) if published else 0.0
    return {
        "c_dm": sum(v * v for v in classes.values()) + total * (total - in_classes),
        "mean_generalization_error": (
            sum(v * (len(tiles_o[a]) + len(tiles_d[b])) for (a, b), v in classes.items())
            / in_classes
            if in_classes
            else None
        ),
        "reconstruction_loss": loss / total,
        "distribution_distance": distance,
        "suppressed_share": 1 - published / total,
        "n_cells": len(cells),
        "n_origin_zones": len({a for a, _ in cells}),
        "n_destination_zones": len({b for _, b in cells}),
        "mean_class": in_classes / len(classes) if in_classes else None,
    }


def tiles_of(tree, zones) -> dict[int, set[int]]:
    """The tiles below each node, or with their centre in each box.

    West and south edges belong to a box.
    """
    if isinstance(zones, NodeZones):
        return {z: set(tiles(tree, zones.nodes[z])) for z in range(len(zones))}
    lat, lon = tree.geography.centers(tree.leaf_node)
    lon = np.where(lon >= 180, lon - 360, lon)
    inside: dict[int, set[int]] = {}
    for z, outline in enumerate(
        Rectangles.from_codes(zones.codes(np.arange(len(zones))).tolist()).polygons()
    ):
        inside[z] = set()
        for part in getattr(outline, "geoms", [outline]):
            west, south, east, north = part.bounds
            here = (lon >= west) & (lon < east) & (lat >= south) & (lat < north)
            inside[z] |= set(np.flatnonzero(here).tolist())
    return inside


def tiles(tree, node: int) -> list[int]:
    return [t for t in range(tree.n_tiles) if tree.leaf_start[node] <= t < tree.leaf_stop[node]]


def distances(release: Release, basis: str) -> list[tuple[float, float]]:
    """(metres, volume) of both ends of every published flow."""
    flows, plan = release.input, release.plan
    value = flows.trips if basis == "trips" else flows.weight
    out = []
    for f in np.flatnonzero(plan.kept):
        for tree, tile, zones, zone in (
            (flows.origins, flows.origin[f], plan.origin_zones, plan.origin_zone[f]),
            (
                flows.destinations,
                flows.destination[f],
                plan.destination_zones,
                plan.destination_zone[f],
            ),
        ):
            (lat0,), (lon0,) = tree.geography.centers(np.array([tree.leaf_node[tile]]))
            (lat1,), (lon1,) = zones.centers(np.array([zone]))
            out.append((Geod(ellps="WGS84").inv(lon0, lat0, lon1, lat1)[2], float(value[f])))
    return out
