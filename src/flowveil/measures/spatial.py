"""How far trip ends moved: metres from the centre of the tile to the centre of the published zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import group_pairs

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats, Hierarchy, Ints
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release
    from flowveil.release.zones import Zones


def spatial_measures(release: Release | NoisyRelease, basis: str) -> dict[str, float | int | None]:
    """Volume-weighted mean, median and standard deviation of the distance, both ends of every published trip.

    None where the map is unknown. Distances are geodesic (WGS 84), taken once for each distinct (tile, zone) pair.
    """
    kept = release.cell_of_flow >= 0
    volume = release.input.volume(basis)[kept].astype(np.float64)
    flows, plan = release.input, release.plan
    ends = (
        _end(flows.origins, flows.origin[kept], plan.origin_zones, plan.origin_zone[kept], volume),
        _end(
            flows.destinations,
            flows.destination[kept],
            plan.destination_zones,
            plan.destination_zone[kept],
            volume,
        ),
    )
    known = [e for e in ends if e is not None]
    names = ("generalization_distance_m", "generalization_distance_median_m", "generalization_distance_std_m")
    if len(known) < len(ends):
        return dict.fromkeys(names)
    distance = np.concatenate([d for d, _ in known])
    weight = np.concatenate([w for _, w in known])
    if weight.sum() == 0:
        return dict.fromkeys(names)
    mean = float(np.average(distance, weights=weight))
    variance = float(np.average((distance - mean) ** 2, weights=weight))
    return dict(zip(names, (mean, weighted_median(distance, weight), variance**0.5), strict=True))


def weighted_median(values: Floats, weight: Floats) -> float:
    """The smallest value at which half of the weight is reached."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _end(
    tree: Hierarchy, tile: Ints, zones: Zones, zone: Ints, volume: NDArray[np.float64]
) -> tuple[Floats, Floats] | None:
    from pyproj import Geod

    pairs = group_pairs(tile, zone, tree.n_tiles, len(zones))
    used, position = np.unique(pairs.destination, return_inverse=True)
    zone_center = zones.centers(used.astype(np.int32))
    if zone_center is None or tree.geography is None:
        return None
    tile_lat, tile_lon = tree.geography.centers(tree.leaf_node[pairs.origin])
    lat, lon = zone_center
    _, _, metres = Geod(ellps="WGS84").inv(tile_lon, tile_lat, lon[position], lat[position])
    return np.asarray(metres, dtype=np.float64), pairs.sum(volume)
