"""The parts of published cells, one by one.

What `flowveil.analysis.shadow_releases` counts in whole columns.
"""

from __future__ import annotations

from collections import Counter

import numpy as np


def short_parts(release, k):
    """Of each unit (end, zone.

    Or end, cell of nested zones) with several parts: how many are below k trips, if any.
    """
    flows, plan, cells = release.input, release.plan, release.cells
    found = {}
    for end, (zones, zone_of_cell, tile_of_flow) in enumerate(
        (
            (plan.origin_zones, cells.origin, flows.origin),
            (plan.destination_zones, cells.destination, flows.destination),
        )
    ):
        tree, held, parts = zones.hierarchy, Counter(), {}
        for flow, cell in enumerate(release.cell_of_flow):
            if cell < 0:
                continue
            node = zones.nodes[zone_of_cell[cell]]
            children = np.flatnonzero(tree.parent == node)
            while len(children) == 1:
                children = np.flatnonzero(tree.parent == children[0])
            tile = tile_of_flow[flow]
            part = next(
                (int(c) for c in children if tree.leaf_start[c] <= tile < tree.leaf_stop[c]),
                int(node),
            )
            unit = (end, int(node) if plan.homogeneous else int(cell))
            parts.setdefault(unit, set()).add(part)
            held[unit, int(cell), part] += int(flows.trips[flow])
        for (unit, _, _), trips in held.items():
            if len(parts[unit]) > 1 and trips < k:
                found[unit] = found.get(unit, 0) + 1
    return found
