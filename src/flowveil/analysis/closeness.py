"""t-closeness: the distance of an origin zone's destinations from all destinations, and the reverse.

A person known to start in a zone is known to have gone where its trips go. Li et al. (2007) require that no class is
farther than t from the whole. Two distances are computed: total variation (`flowveil.release.post_rules`, which also
suppresses zones by it on request), the share of trips that would have to end elsewhere; and the earth mover's
distance in metres along the tree of the zones: from the centre of a zone to the centroid of all published ends in its
parent, and so on. It is an upper bound of the distance along straight lines, and needs one pass over the tree instead
of a linear program for every zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.analysis.measures import weighted_quantile
from flowveil.release.plan import NodeZones
from flowveil.release.post_rules import total_variation

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats, Hierarchy, Ints
    from flowveil.release.release import Release

ROLES = ("origin", "destination")
#: Statistics over the zones, weighted by trips.
_QUANTILES = {"median": 0.5, "upper_quartile": 0.75, "upper_decile": 0.9}


@dataclass(frozen=True, eq=False)
class Closeness:
    """The distances of the zones of one end."""

    zones: list[str]
    trips: Floats  # that start (or end) there
    total_variation: Floats  # from 0, the distribution of all trips, to 1
    metres: Floats | None  # None without a map


def closeness(release: Release) -> dict[str, Closeness] | None:
    """Returns the distances of origin zones and of destination zones; None if the zones of the release overlap."""
    plan, cells = release.plan, release.cells
    origins, destinations = plan.origin_zones, plan.destination_zones
    if not plan.homogeneous or not isinstance(origins, NodeZones) or not isinstance(destinations, NodeZones):
        return None
    zones, ends, trips = (origins, destinations), (cells.origin, cells.destination), cells.trips.astype(np.float64)
    return {role: _of_end(ends[i], zones[i], ends[1 - i], zones[1 - i], trips) for i, role in enumerate(ROLES)}


def closeness_summary(release: Any) -> dict[str, Any] | None:
    """Returns statistics over the zones, by end; None if zones overlap, and for a revision."""
    found = None if release.kind != "plain" or release.revision is not None else closeness(release)
    return found and {
        role: {
            "total_variation": _spread(one.total_variation, one.trips),
            "metres": None if one.metres is None else _spread(one.metres, one.trips),
        }
        for role, one in found.items()
    }


def _of_end(own: Ints, zones: NodeZones, other: Ints, others: NodeZones, trips: Floats) -> Closeness:
    used, at = np.unique(own, return_inverse=True)
    total = _sums(at, trips, len(used))
    variation = total_variation(at, other, trips, len(used), len(others))
    metres = _along_tree(at, others.nodes[other], trips, total, others)
    return Closeness(zones.codes(used.astype(np.int32)).tolist(), total, variation, metres)


def _along_tree(own: Any, node: Any, trips: Floats, total: Floats, zones: NodeZones) -> Floats | None:
    """Returns the cost of moving each zone's distribution of trips to that of all trips.

    Every edge of the tree carries the difference of the shares below it. Levels are processed from the deepest up;
    below nodes without trips of the zone, the difference is the share of the whole.
    """
    tree = zones.hierarchy
    share = _sums(node, trips, tree.n_nodes) / trips.sum()
    length = _lengths(zones, share)
    if length is None:
        return None
    share = _upwards(tree, share)
    moved = np.full(len(total), float(np.sum(length * share)))
    own, node = own.astype(np.int64), node.astype(np.int64)
    for depth in range(tree.max_depth, 0, -1):
        here = tree.depth[node] == depth
        apart = np.abs(trips[here] / total[own[here]] - share[node[here]]) - share[node[here]]
        moved += _sums(own[here], length[node[here]] * apart, len(total))
        node = np.where(here, tree.parent[node], node)
        key, row = np.unique(own * tree.n_nodes + node, return_inverse=True)
        own, node, trips = key // tree.n_nodes, key % tree.n_nodes, _sums(row, trips, len(key))
    found: Floats = np.maximum(moved, 0.0)
    return found


def _sums(place: Any, values: Floats, n: int) -> Floats:
    """Returns the sum of values by number."""
    return np.asarray(np.bincount(place, weights=values, minlength=n), dtype=np.float64)


def _upwards(tree: Hierarchy, values: Floats) -> Floats:
    """Returns the sum over the subtree of each node."""
    before = np.concatenate((np.zeros_like(values[:1]), np.cumsum(values, axis=0)))
    return before[tree.stop] - before[:-1]


def _lengths(zones: NodeZones, share: Floats) -> Floats | None:
    """Returns the metres between the centroid of the ends in each node and in its parent; None without a map."""
    from pyproj import Geod

    tree = zones.hierarchy
    used = np.flatnonzero(share[zones.nodes] > 0).astype(np.int32)
    centers = zones.centers(used)
    # Ends outside the area have no place.
    if centers is None or np.isnan(centers[0]).any():
        return None
    lat, lon = np.radians(centers[0]), np.radians(centers[1])
    point = np.zeros((tree.n_nodes, 3))
    at = zones.nodes[used]
    point[at] = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    x, y, z = _upwards(tree, point * share[:, None]).T
    lat, lon = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    below = np.flatnonzero((_upwards(tree, share) > 0) & (tree.parent >= 0))
    up, length = tree.parent[below], np.zeros(tree.n_nodes)
    _, _, length[below] = Geod(ellps="WGS84").inv(lon[below], lat[below], lon[up], lat[up])
    return length


def _spread(values: Floats, weight: Floats) -> dict[str, float]:
    quantiles = {name: weighted_quantile(values, weight, level) for name, level in _QUANTILES.items()}
    return {"mean": float(np.average(values, weights=weight)), **quantiles, "largest": float(values.max())}
