"""Distances moved: metres from the centre of the tile to the centre of the published zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.measures.measure import Measure, Slices, Subject, averaged, unknown
from flowveil.flows import group_pairs

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats, Hierarchy, Ints
    from flowveil.release.zones import Zones


def _moved(subject: Subject) -> tuple[Floats, Floats] | None:
    """Returns the distances of published trip ends, and the volume of each; None without a map.

    Distances are geodesic (WGS 84), computed once for each distinct (tile, zone) pair.
    """
    release = subject.release
    kept = release.cell_of_flow >= 0
    volume = release.input.volume(subject.basis)[kept].astype(np.float64)
    flows, plan = release.input, release.plan
    origins = _end(flows.origins, flows.origin[kept], plan.origin_zones, plan.origin_zone[kept], volume)
    destinations = _end(
        flows.destinations, flows.destination[kept], plan.destination_zones, plan.destination_zone[kept], volume
    )
    if origins is None or destinations is None:
        return None
    distance, weight = (np.concatenate(pair) for pair in zip(origins, destinations, strict=True))
    return None if weight.sum() == 0 else (distance, weight)


def _mean(subject: Subject) -> float | None:
    moved = subject.share(_moved)
    return None if moved is None else float(np.average(moved[0], weights=moved[1]))


def _median(subject: Subject) -> float | None:
    moved = subject.share(_moved)
    return None if moved is None else weighted_median(*moved)


def _spread(subject: Subject) -> float | None:
    moved, mean = subject.share(_moved), subject.share(_mean)
    if moved is None or mean is None:
        return None
    variance = float(np.average((moved[0] - mean) ** 2, weights=moved[1]))
    return float(variance**0.5)


def _combined_spread(slices: Slices, key: str) -> float | None:
    means = slices.of("generalization_distance_m")
    mean = slices.mean(means)
    squares = [None if m is None or s is None else m**2 + s**2 for m, s in zip(means, slices.of(key), strict=True)]
    second = slices.mean(squares)
    return None if mean is None or second is None else float(max(second - mean**2, 0.0) ** 0.5)


MEASURES = (
    Measure(
        key="generalization_distance_m",
        title="Distance moved (GDM), mean (m)",
        meaning="Mean distance of the ends of published trips from the centre of their input tile to the centre of "
        "their zone. The size of tiles is not counted, nor are ends outside the area.",
        compute=lambda subject: subject.share(_mean),
        combine=averaged,
        of_noise="defined",
    ),
    Measure(
        key="generalization_distance_median_m",
        title="Distance moved (GDM), median (m)",
        meaning="Half of the ends moved less than this.",
        compute=_median,
        combine=unknown,
        of_noise="defined",
    ),
    Measure(
        key="generalization_distance_std_m",
        title="Distance moved (GDM), standard deviation (m)",
        meaning="Standard deviation of the distance moved.",
        compute=_spread,
        combine=_combined_spread,
        of_noise="defined",
    ),
)


def weighted_median(values: Floats, weight: Floats) -> float:
    """Returns the smallest value at which half of the weight is reached."""
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
    # Ends outside the area have no place and are not counted.
    metres = np.asarray(metres, dtype=np.float64)
    placed = ~np.isnan(metres)
    return metres[placed], pairs.sum(volume)[placed]
