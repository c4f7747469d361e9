"""Suppression: unchanged tiles, cells below the threshold suppressed. The baseline without a hierarchy.

Published cells are exact, but most of the matrix may be suppressed. The suppressed trips are not random: long trips and
trips in sparsely populated places are suppressed first.
"""

from __future__ import annotations

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.release.plan import Plan


def suppression(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:  # noqa: ARG001
    """Plans the release of the safe flows, tile to tile.

    Args:
        flows: the flows to anonymise.
        guarantee: thresholds that every cell must reach.
        max_suppressed: ignored; this method cannot limit suppression. The measure ``suppressed_share`` reports it.
    """
    tiles_o, tiles_d = flows.origins.leaf_node, flows.destinations.leaf_node
    return Plan.from_cuts(flows, tiles_o, tiles_d, guarantee.safe(flows))
