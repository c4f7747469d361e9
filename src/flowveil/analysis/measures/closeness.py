"""How far the destinations of an origin zone are from those of everybody, and the other way round (t-closeness).

Whoever is known to start in a zone is known to have gone where its trips go. If that is where everybody goes, the zone
says little of her; if all its trips end in one place, it says where she was. Li et al. (2007) ask that no class be
farther than t from the whole. Two distances: total variation, the share of trips that would have to end elsewhere; and
the earth mover's, how far these would have to go, in metres.

The earth mover's distance is taken along the tree of the zones, as Li et al. do for hierarchies: an end moves from the
centre of its zone to the middle of all published ends in what the zone lies in, and so on up and down. It is never less
than the one along straight lines, and exact in one pass up the tree; straight lines would need a linear programme for
every zone. The middle of the ends and not of the area, because a cell of H3 that covers half a country may hold no
more than one edge of a city.

`flowveil.release.closeness` has the total variation, and suppresses zones by it on request (--t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.release.closeness import total_variation
from flowveil.release.zones import NodeZones

if TYPE_CHECKING:
    from flowveil.hierarchy import Floats, Hierarchy, Ints
    from flowveil.release.release import Release

ROLES = ("origin", "destination")
#: Of each distance, over the zones: the mean and quantiles, each zone with its trips as weight, and the largest.
_QUANTILES = {"median": 0.5, "upper_quartile": 0.75, "upper_decile": 0.9}
SPREAD = ("mean", *_QUANTILES, "largest")


@dataclass(frozen=True, eq=False)
class Closeness:
    """The distances of the zones of one end.

    Attributes:
        zones: their codes.
        trips: trips that start (or end) there.
        total_variation: 0 where they go where everybody goes, towards 1 where nobody else goes.
        metres: earth mover's distance along the tree; None where the map is unknown.
    """

    zones: list[str]
    trips: Floats
    total_variation: Floats
    metres: Floats | None

    def summary(self) -> dict[str, Any]:
        """The distribution over the zones."""
        return {
            "total_variation": _spread(self.total_variation, self.trips),
            "metres": None if self.metres is None else _spread(self.metres, self.trips),
        }


def closeness(release: Release, *, exact: bool = False) -> dict[str, Closeness] | None:
    """The distances of origin zones (of their destinations) and of destination zones (of their origins).

    Args:
        release: of one matrix. None is returned where its zones overlap: destinations of two zones cannot be compared
            then.
        exact: of all trips, the suppressed ones too. For the data holder: it discloses where suppressed trips go.
    """
    plan = release.plan
    origins, destinations = plan.origin_zones, plan.destination_zones
    if not plan.homogeneous or not isinstance(origins, NodeZones) or not isinstance(destinations, NodeZones):
        return None
    zones = origins, destinations
    cells = release.cells
    if exact:
        flows = release.input
        cells = flows.merge(plan.origin_zone, plan.destination_zone, len(zones[0]), len(zones[1])).cells
    ends = cells.origin, cells.destination
    trips = cells.trips.astype(np.float64)
    return {role: _of_end(ends[i], zones[i], ends[1 - i], zones[1 - i], trips) for i, role in enumerate(ROLES)}


def closeness_summary(release: Any) -> dict[str, Any] | None:
    """The distribution over the zones, by end; None where zones overlap, and for a revision, whose cells are mixed."""
    found = None if release.kind != "plain" or release.revision is not None else closeness(release)
    return None if found is None else {role: one.summary() for role, one in found.items()}


def _of_end(own: Ints, zones: NodeZones, other: Ints, others: NodeZones, trips: Floats) -> Closeness:
    used, at = np.unique(own, return_inverse=True)
    total = _sums(at, trips, len(used))
    variation = total_variation(at, other, trips, len(used), len(others))
    metres = _along_tree(at, others.nodes[other], trips, total, others)
    return Closeness(zones.codes(used.astype(np.int32)).tolist(), total, variation, metres)


def _along_tree(own: Any, node: Any, trips: Floats, total: Floats, zones: NodeZones) -> Floats | None:
    """For each zone of one end, what it costs to move its trips from its own nodes to those of all.

    Over every edge of the tree goes the difference of what lies below it. One level at a time, deepest first; below
    nodes that a zone has no trips in, the difference is the share of the whole.
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
    """The values added up at each place."""
    return np.asarray(np.bincount(place, weights=values, minlength=n), dtype=np.float64)


def _upwards(tree: Hierarchy, values: Floats) -> Floats:
    """Values of nodes, each with those of all nodes below it."""
    values = values.copy()
    for depth in range(tree.max_depth, 0, -1):
        nodes = tree.nodes_at_depth(depth)
        np.add.at(values, tree.parent[nodes], values[nodes])
    return values


def _lengths(zones: NodeZones, share: Floats) -> Floats | None:
    """From the middle of the ends in each node to that of its parent, in metres; None where the map is unknown.

    Args:
        zones: of the end.
        share: of each node that is a zone, the share of all ends that lie in it.
    """
    from pyproj import Geod

    tree = zones.hierarchy
    used = np.flatnonzero(share[zones.nodes] > 0).astype(np.int32)
    centers = zones.centers(used)
    # What lies outside the area has no place, so nobody knows how far it is.
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
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    found = {"mean": float(np.average(values, weights=weight))}
    for name, level in _QUANTILES.items():
        found[name] = float(values[order][np.searchsorted(reached, reached[-1] * level)])
    found["largest"] = float(values.max())
    return found
