"""t-closeness (Li et al.

2007): the distance of an origin zone's destinations from all destinations, and the reverse.

A person known to start in a zone is known to have gone where its trips go. Two distances are
computed: total variation, the share of trips that would have to end elsewhere; and the earth
mover's distance in metres along the tree of the zones, from the centroid of all published ends in a
node to that in its parent: an upper bound of the distance along straight lines, from one pass over
the tree instead of a linear program for every zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowveil.analysis.measures import weighted_quantile
from flowveil.core.arrays import Floats, Ints
from flowveil.core.hierarchy import Hierarchy
from flowveil.release.facets import Facets
from flowveil.release.plan import NodeZones
from flowveil.release.post_rules import total_variation

_QUANTILES = {"median": 0.5, "upper_quartile": 0.75, "upper_decile": 0.9}


@dataclass(frozen=True, eq=False)
class Closeness:
    """The distances of the zones of one end."""

    zones: list[str]
    trips: Floats  # that start (or end) there
    total_variation: Floats  # from 0, the distribution of all trips, to 1
    metres: Floats | None  # None without a map

    def summary(self) -> dict[str, Any]:
        """Returns statistics over the zones, weighted by trips."""
        return {name: self._spread(getattr(self, name)) for name in ("total_variation", "metres")}

    def _spread(self, values: Floats | None) -> dict[str, float] | None:
        if values is None:
            return None
        quantiles = {
            name: weighted_quantile(values, self.trips, level) for name, level in _QUANTILES.items()
        }
        return {
            "mean": float(np.average(values, weights=self.trips)),
            **quantiles,
            "largest": float(values.max()),
        }


def closeness(release: Any) -> dict[str, Closeness] | None:
    """Returns the distances of origin zones and of destination zones.

    None if zones overlap, and for a revision.
    """
    # Slices have no plan.
    if release.facets != Facets() or release.revision is not None or not release.plan.homogeneous:
        return None
    plan, cells = release.plan, release.cells
    origin, destination = (
        (cells.origin, plan.origin_zones),
        (
            cells.destination,
            plan.destination_zones,
        ),
    )
    if not isinstance(origin[1], NodeZones) or not isinstance(destination[1], NodeZones):
        return None
    trips = cells.trips.astype(np.float64)
    return {
        "origin": _of_end(*origin, *destination, trips),
        "destination": _of_end(*destination, *origin, trips),
    }


def _of_end(
    own: Ints, zones: NodeZones, other: Ints, others: NodeZones, trips: Floats
) -> Closeness:
    used, at = np.unique(own, return_inverse=True)
    variation = total_variation(at, other, trips, len(used), len(others))
    codes = zones.codes(used.astype(np.int32)).tolist()
    return Closeness(
        codes, _sums(at, trips, len(used)), variation, _metres(at, other, trips, others)
    )


def _metres(own: Any, other: Ints, trips: Floats, zones: NodeZones) -> Floats | None:
    """Returns the cost of moving each zone's trips to the distribution of all, edge by edge.

    None without a map.
    """
    tree, node = zones.hierarchy, zones.nodes[other].astype(np.int64)
    total, share = _sums(own, trips), _sums(node, trips, tree.n_nodes) / trips.sum()
    length = _lengths(zones, share)
    if length is None:
        return None
    share = _upwards(tree, share)
    moved = np.full(len(total), float(np.sum(length * share)))
    for depth in range(tree.max_depth, 0, -1):
        here = tree.depth[node] == depth
        apart = np.abs(trips[here] / total[own[here]] - share[node[here]]) - share[node[here]]
        moved += _sums(own[here], length[node[here]] * apart, len(total))
        node = np.where(here, tree.parent[node], node)
        key, row = np.unique(own * tree.n_nodes + node, return_inverse=True)
        own, node, trips = key // tree.n_nodes, key % tree.n_nodes, _sums(row, trips)
    found: Floats = np.maximum(moved, 0.0)
    return found


def _lengths(zones: NodeZones, share: Floats) -> Floats | None:
    """Returns the metres between the centroid of the ends in each node and in its parent.

    None without a map.
    """
    from pyproj import Geod

    tree, at = zones.hierarchy, zones.nodes[share[zones.nodes] > 0]
    centers = None if tree.geography is None else tree.geography.centers(at)
    if centers is None or np.isnan(centers[0]).any():  # ends outside the area have no place
        return None
    lat, lon = np.radians(centers)
    point = np.zeros((tree.n_nodes, 3))
    point[at] = np.stack(
        [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1
    )
    x, y, z = _upwards(tree, point * share[:, None]).T
    lat, lon = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    below = np.flatnonzero((_upwards(tree, share) > 0) & (tree.parent >= 0))
    up, length = tree.parent[below], np.zeros(tree.n_nodes)
    _, _, length[below] = Geod(ellps="WGS84").inv(lon[below], lat[below], lon[up], lat[up])
    return length


def _sums(place: Any, values: Floats, n: int = 0) -> Floats:
    return np.asarray(np.bincount(place, weights=values, minlength=n), dtype=np.float64)


def _upwards(tree: Hierarchy, values: Floats) -> Floats:
    """Returns the sum over the subtree of each node."""
    before = np.concatenate((np.zeros_like(values[:1]), np.cumsum(values, axis=0)))
    return before[tree.stop] - before[:-1]
