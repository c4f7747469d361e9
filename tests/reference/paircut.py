"""Divisions of (root, root) by exhaustive search."""

from __future__ import annotations

from functools import cache
from itertools import product

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy
from reference.trees import is_safe, tiles_below, volume


def all_divisions(flows: Flows, guarantee: Guarantee) -> set[tuple[float, float]]:
    """Cost and published volume of every division: of every way to publish, divide or suppress, pair after pair."""

    @cache
    def outcomes(o: int, d: int) -> frozenset[tuple[float, float]]:
        tiles_o, tiles_d = tiles_below(flows.origins, o), tiles_below(flows.destinations, d)
        rows = [f for f in range(len(flows)) if flows.origin[f] in tiles_o and flows.destination[f] in tiles_d]
        found = {(0.0, 0.0)}
        if not rows:
            return frozenset(found)
        v = sum(volume(flows, f, guarantee) for f in rows)
        if is_safe(flows, rows, guarantee):
            found.add((v * (len(tiles_o) + len(tiles_d)), v))
        for parts in ([(c, d) for c in children(flows.origins, o)], [(o, c) for c in children(flows.destinations, d)]):
            if parts:
                for choice in product(*(outcomes(*part) for part in parts)):
                    found.add((sum(c for c, _ in choice), sum(p for _, p in choice)))
        return frozenset(found)

    return set(outcomes(0, 0))


def children(tree: Hierarchy, node: int) -> list[int]:
    return [v for v in range(tree.n_nodes) if tree.parent[v] == node]
