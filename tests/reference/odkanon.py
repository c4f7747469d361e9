"""ODkAnon as published, merge by merge: short, obvious and slow."""

from __future__ import annotations

from collections import defaultdict

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from reference.trees import ancestors, children, is_safe, leaf_nodes, tiles_below, volume


def prefilter(flows: Flows, guarantee: Guarantee, levels: int, beta: float) -> set[int]:
    """The rows that are suppressed before anything is merged."""
    leaf_o, leaf_d = leaf_nodes(flows.origins), leaf_nodes(flows.destinations)

    def lifted(tree: Hierarchy, node: int, level: int) -> int:
        path = ancestors(tree, node)
        return path[min(level, len(path) - 1)]

    valid: set[int] = set()
    for level in range(levels + 1):
        groups = defaultdict(list)
        for f in range(len(flows)):
            a = lifted(flows.origins, leaf_o[flows.origin[f]], level)
            b = lifted(flows.destinations, leaf_d[flows.destination[f]], level)
            groups[a, b].append(f)
        for rows in groups.values():
            if is_safe(flows, rows, guarantee):
                valid.update(rows)
    problematic = [f for f in range(len(flows)) if f not in valid]
    limit = int(len(flows) * beta)
    if len(problematic) > limit:
        problematic.sort(
            key=lambda f: (
                volume(flows, f, guarantee),
                flows.origins.code[leaf_o[flows.origin[f]]],
                flows.destinations.code[leaf_d[flows.destination[f]]],
            )
        )
        problematic = problematic[:limit]
    return set(problematic)


class Axis:
    def __init__(self, tree: Hierarchy, tile_volume: dict[int, float]) -> None:
        self.tree = tree
        leaves = leaf_nodes(tree)
        self.zones = {leaves[t] for t in tile_volume}
        below = {v: tiles_below(tree, v) & set(tile_volume) for v in range(tree.n_nodes)}
        self.total = {v: sum(tile_volume[t] for t in tiles) for v, tiles in below.items()}
        # The tree of the remaining tiles: nodes with none are gone, the root is the smallest node
        # with all.
        holding_all = [v for v in below if below[v] == set(tile_volume)]
        root = max(holding_all, key=lambda v: tree.depth[v])
        self.inner = [v for v in range(root, tree.stop[root]) if below[v] and children(tree, v)]
        self.present = {v: [c for c in children(tree, v) if below[c]] for v in self.inner}

    def best(self) -> int | None:
        """The eligible group with the fewest trips; ties: deeper, then smaller code."""
        eligible = [v for v in self.inner if all(c in self.zones for c in self.present[v])]
        if not eligible:
            return None
        return min(eligible, key=lambda v: (self.total[v], -self.tree.depth[v], self.tree.code[v]))

    def merge(self, node: int) -> None:
        self.zones -= set(self.present[node])
        self.zones.add(node)

    def zone_of(self, tile: int) -> int:
        leaf = leaf_nodes(self.tree)[tile]
        return next(v for v in ancestors(self.tree, leaf) if v in self.zones)


def odkanon(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    levels: int = 3,
    budget: str = "rows",
) -> tuple[dict[int, tuple[int, int]], int]:
    """Return {kept flow: (origin node, destination node)} and the number of steps."""
    rows = list(range(len(flows)))
    allowed = 0.0
    if budget == "rows":
        gone = prefilter(flows, guarantee, levels, max_suppressed)
        rows = [f for f in rows if f not in gone]
    else:
        allowed = max_suppressed * sum(volume(flows, f, guarantee) for f in rows)
    axes = []
    for tree, tiles in ((flows.origins, flows.origin), (flows.destinations, flows.destination)):
        totals: dict[int, float] = defaultdict(float)
        for f in rows:
            totals[int(tiles[f])] += volume(flows, f, guarantee)
        axes.append(Axis(tree, totals))
    origins, destinations = axes
    start = len(origins.zones) / len(destinations.zones)
    step = 0
    while True:
        cells = defaultdict(list)
        for f in rows:
            cells[
                origins.zone_of(flows.origin[f]), destinations.zone_of(flows.destination[f])
            ].append(f)
        short = {cell: fs for cell, fs in cells.items() if not is_safe(flows, fs, guarantee)}
        if not short:
            break
        if (
            budget == "volume"
            and sum(volume(flows, f, guarantee) for fs in short.values() for f in fs) <= allowed
        ):
            break
        ratio = len(origins.zones) / len(destinations.zones)
        if ratio > start * 1.03:
            order = (origins, destinations)
        elif ratio < start * 0.97:
            order = (destinations, origins)
        else:
            order = (origins, destinations) if step % 2 == 0 else (destinations, origins)
        for axis in order:
            group = axis.best()
            if group is not None:
                axis.merge(group)
                break
        else:
            break
        step += 1
    kept = {f: cell for cell, fs in cells.items() if cell not in short for f in fs}
    return kept, step
