"""Suppression: tiles stay as they are, short cells are dropped. The baseline that needs no hierarchy.

Nothing is generalised, so what is published is exact; what is not may be most of the matrix, and which trips are
lost is not random: long ones, and those of thinly peopled places, go first.
"""

from __future__ import annotations

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.release.plan import Plan


def suppression(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:  # noqa: ARG001
    """Plan the release of the safe flows, tile to tile.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: accepted because every method has it, and ignored: there is nothing this method could do
            to stay within it. The measure ``suppressed_share`` says how much was lost.
    """
    tiles_o, tiles_d = flows.origins.leaf_node, flows.destinations.leaf_node
    return Plan.from_cuts(flows, tiles_o, tiles_d, guarantee.safe(flows))
