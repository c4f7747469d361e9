"""OIGH by looking at every point of the lattice: short, obvious and slow."""

from __future__ import annotations

from collections import defaultdict

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from reference.trees import ancestors, children, is_safe, leaf_nodes, tiles_below, volume


def cuts(tree: Hierarchy) -> list[list[int]]:
    """For every level from the tiles to the root, the zone of every tile, going up level by
    level."""
    leaves = leaf_nodes(tree)
    kids = {v: children(tree, v) for v in range(tree.n_nodes)}
    inner = [v for v in kids if kids[v]]
    cardinal = {v: len(tiles_below(tree, v)) for v in inner}
    uniform = len({len(ancestors(tree, leaf)) for leaf in leaves}) == 1
    zones = set(leaves)
    sequence = [list(leaves)]
    while zones != {0}:
        if uniform:
            zones = {int(tree.parent[v]) for v in zones}
        else:
            available = [v for v in inner if v not in zones and set(kids[v]) <= zones]
            smallest = min(cardinal[v] for v in available)
            for v in available:
                if cardinal[v] == smallest:
                    zones = zones - set(kids[v]) | {v}
        sequence.append([next(v for v in ancestors(tree, leaf) if v in zones) for leaf in leaves])
    return sequence


def oigh(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1
) -> tuple[dict[int, tuple[int, int]], tuple[int, int]]:
    """Return {kept flow: (origin node, destination node)} and the two levels."""
    cuts_o, cuts_d = cuts(flows.origins), cuts(flows.destinations)
    allowed = max_suppressed * sum(volume(flows, f, guarantee) for f in range(len(flows)))
    top = (len(cuts_o) - 1, len(cuts_d) - 1)
    kept_at: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    best: list[tuple[int, float, int]] = []
    for i in range(len(cuts_o)):
        for j in range(len(cuts_d)):
            cells = defaultdict(list)
            for f in range(len(flows)):
                cells[cuts_o[i][flows.origin[f]], cuts_d[j][flows.destination[f]]].append(f)
            published = {
                cell: rows for cell, rows in cells.items() if is_safe(flows, rows, guarantee)
            }
            kept_at[i, j] = {f: cell for cell, rows in published.items() for f in rows}
            lost = sum(
                volume(flows, f, guarantee) for f in range(len(flows)) if f not in kept_at[i, j]
            )
            if lost <= allowed:
                whole = sum(volume(flows, f, guarantee) for f in kept_at[i, j])
                average = whole / len(published) if published else float("inf")
                best.append((i + j, average, i))
    if not best:
        return kept_at[top], top
    height, _, i = min(best)
    return kept_at[i, height - i], (i, height - i)
