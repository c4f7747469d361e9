"""Whether the suppressed total would pin down what a pair of zones holds that is not listed.

A pair of zones that is not listed holds less than the guarantee asks of a cell: at most k - 1 trips. If c pairs are not
listed and S trips are suppressed, the others hold (c - 1)(k - 1) at most, so each holds S - (c - 1)(k - 1) at least.
Where that is above zero, the total says that somebody travelled between these two zones, and nearly how many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.guarantee import UNITS
from flowveil.release.zones import NodeZones

if TYPE_CHECKING:
    from flowveil.flows import Cells
    from flowveil.guarantee import Guarantee
    from flowveil.hierarchy import Hierarchy, Ints
    from flowveil.release.release import Release

Counts = NDArray[np.int64]


def within_reach(guarantee: Guarantee, together: Cells, n_pairs: int) -> bool:
    """Whether a total leaves no pair the choice to be empty: it is more than all other pairs can hold.

    Tried in each protected unit alone. Where several are protected, a pair may be short in one and hold more of the
    other, so that no reader could be certain; withholding is on the safe side then.

    Args:
        guarantee: the threshold of each unit, which no unlisted pair reaches.
        together: everything suppressed, as one cell.
        n_pairs: pairs it can lie in.
    """
    others = max(n_pairs - 1, 0)
    for unit in (UNITS[name] for name in guarantee.units):
        held = unit.value(together)
        most = unit.most_short(guarantee.asks(unit.name, together), guarantee.k)
        if held is not None and held[0] > others * most:
            return True
    return False


def n_unlisted_pairs(release: Release) -> int:
    """How many pairs suppressed trips can lie in, as far as somebody knows who knows where trips start and end.

    Pairs of the finest published zones, and of the zones beside them in which trips were seen, that no published cell
    covers. Where hopeless flows were taken out of published cells, each holds further pairs: flows are hopeless
    together, in pairs of nodes so many levels above the tiles. Cells that are boxes overlap and leave flows out
    anywhere: there, pairs of tiles count. Where time is folded, a pair is a triple: with the finest published
    intervals, and with steps beside them.
    """
    plan, cells, flows = release.plan, release.cells, release.input
    if not isinstance(plan.origin_zones, NodeZones) or not isinstance(plan.destination_zones, NodeZones):
        return len(np.unique_values(flows.origin)) * len(np.unique_values(flows.destination)) - len(cells)
    n_o, in_o = _finest(plan.origin_zones, cells.origin, flows.origins, flows.origin, plan.origin_zone)
    n_d, in_d = _finest(
        plan.destination_zones, cells.destination, flows.destinations, flows.destination, plan.destination_zone
    )
    n_t, in_t = 1, np.ones(1, np.int64)
    if plan.timed is not None and flows.time is not None:
        tree = plan.timed.times.tree
        n_t, in_t = _finest(NodeZones(tree, plan.timed.time), cells.origin, tree, flows.time, plan.origin_zone)
    pairs = n_o * n_d * n_t - int(np.sum(in_o * in_d * in_t))
    levels = plan.suppression.levels
    if levels is not None:
        lifted_o = _n_lifted(flows.origins, levels)[plan.origin_zones.nodes[cells.origin]]
        lifted_d = _n_lifted(flows.destinations, levels)[plan.destination_zones.nodes[cells.destination]]
        # One of them at least holds what is published.
        pairs += int(np.sum(lifted_o * lifted_d - 1))
    return pairs


def _finest(zones: NodeZones, used: Ints, tree: Hierarchy, tile: Ints, zone: Ints) -> tuple[int, Counts]:
    """How many zones of an end make up the pairs, and how many of them the zone of each published cell holds.

    Published zones that hold no other published zone, and zones beside them of which nothing is published.
    """
    nodes = np.unique(zones.nodes[used])
    following = np.append(nodes[1:], tree.n_nodes)
    finest = np.zeros(tree.n_nodes + 1, np.int64)
    finest[nodes[following >= tree.stop[nodes]]] = 1
    before = np.concatenate(([0], np.cumsum(finest)))
    edges = np.zeros(tree.n_tiles + 1, np.int64)
    np.add.at(edges, tree.leaf_start[nodes], 1)
    np.add.at(edges, tree.leaf_stop[nodes], -1)
    beside = (np.cumsum(edges) == 0)[tile]
    n_beside = min(len(np.unique_values(zones.nodes[zone[beside]])), len(np.unique_values(tile[beside])))
    own = zones.nodes[used]
    return int(finest.sum()) + n_beside, before[tree.stop[own]] - before[own]


def _n_lifted(tree: Hierarchy, levels: int) -> Counts:
    """For each node, how many different nodes its tiles become when they are lifted so many levels."""
    lifted: NDArray[Any] = tree.leaf_node
    for _ in range(min(levels, tree.max_depth)):
        lifted = tree.lift(lifted)
    first = np.zeros(tree.n_tiles, np.int64)
    first[np.unique(lifted, return_index=True)[1]] = 1
    counted: Counts = np.maximum(tree.sum_over(first), 1)
    return counted
