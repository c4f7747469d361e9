"""Divisions of (root, root) by exhaustive search."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy
from reference.trees import is_safe, persons_by_flow, tiles_below, volume


def all_divisions(flows: Flows, guarantee: Guarantee, time_weight: float = 0.0) -> set[tuple[float, float]]:
    """Cost and published volume of every division: of every way to publish, divide or suppress, pair after pair.

    Where the flows have times, time is a third end: an hour costs some tiles, and only times of k people are named.
    """
    trees = [flows.origins, flows.destinations]
    ends = [flows.origin, flows.destination]
    if flows.times is not None:
        trees, ends = [*trees, flows.times.tree], [*ends, flows.time]

    @cache
    def outcomes(*nodes: int) -> frozenset[tuple[float, float]]:
        below = [tiles_below(tree, node) for tree, node in zip(trees, nodes, strict=True)]
        rows = [f for f in range(len(flows)) if all(end[f] in tiles for end, tiles in zip(ends, below, strict=True))]
        found = {(0.0, 0.0)}
        if not rows:
            return frozenset(found)
        v = sum(volume(flows, f, guarantee) for f in rows)
        if is_safe(flows, rows, guarantee) and may_be_named(flows, guarantee, nodes[2:]):
            hours = sum(float(flows.times.hours[node]) for node in nodes[2:])
            found.add((v * (len(below[0]) + len(below[1]) + time_weight * hours), v))
        for end, tree in enumerate(trees):
            parts = [(*nodes[:end], c, *nodes[end + 1 :]) for c in children(tree, nodes[end])]
            if parts:
                for choice in product(*(outcomes(*part) for part in parts)):
                    found.add((sum(c for c, _ in choice), sum(p for _, p in choice)))
        return frozenset(found)

    return set(outcomes(*([0] * len(trees))))


def may_be_named(flows: Flows, guarantee: Guarantee, times: tuple[int, ...], rows: Iterable[int] | None = None) -> bool:
    """Whether k people of these flows, or of all, travelled in these times, where persons are known."""
    if flows.people is None or not times:
        return True
    inside = tiles_below(flows.times.tree, times[0])
    who = persons_by_flow(flows)
    considered = range(len(flows)) if rows is None else rows
    return len(set().union(*(who[f] for f in considered if flows.time[f] in inside))) >= guarantee.k


def children(tree: Hierarchy, node: int) -> list[int]:
    return [v for v in range(tree.n_nodes) if tree.parent[v] == node]
