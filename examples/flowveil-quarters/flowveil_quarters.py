"""A method for flowveil in a separate package: both ends lifted by a fixed number of levels.

Installed, it is one method among the others: ``flowveil anonymize trips.csv --method quarters --option levels=2``.
"""

from __future__ import annotations

from flowveil import Flows, Guarantee, Hierarchy, Plan


def quarters(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1, levels: int = 2
) -> Plan:  # noqa: ARG001
    """Both ends a fixed number of levels above their tiles; cells that are short are suppressed.

    Args:
        flows: what is anonymised.
        guarantee: what every cell must satisfy.
        max_suppressed: not used; every method takes it.
        levels: how many levels to go up.
    """
    cuts = [_lifted(tree, levels) for tree in (flows.origins, flows.destinations)]
    zones = [
        tree.zone_of_tile(cut)
        for tree, cut in zip((flows.origins, flows.destinations), cuts, strict=True)
    ]
    merged = flows.merge(
        zones[0][flows.origin], zones[1][flows.destination], len(cuts[0]), len(cuts[1])
    )
    return Plan.from_cuts(flows, *cuts, guarantee.safe(merged.cells)[merged.row])


def _lifted(tree: Hierarchy, levels: int):  # noqa: ANN202
    """The nodes that are ``levels`` above the tiles: a cut, where all tiles are equally deep."""
    import numpy as np

    node = tree.leaf_node
    for _ in range(levels):
        node = tree.lift(node)
    return np.unique(node).astype(np.int32)
