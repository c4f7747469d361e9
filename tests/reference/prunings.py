"""Prunings by exhaustive search, and ATG as the paper writes it: recursion over Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from reference.trees import children, is_safe, leaf_nodes, tiles_below, volume


def all_cuts(tree: Hierarchy, node: int = 0) -> Iterator[tuple[int, ...]]:
    """Every cut of the subtree of a node."""
    yield (node,)
    below = children(tree, node)
    if below:
        for parts in product(*(list(all_cuts(tree, c)) for c in below)):
            yield tuple(n for part in parts for n in part)


def get_pruning(
    tree: Hierarchy, penalty: Callable[[int], float], node: int = 0
) -> tuple[float, list[int]]:
    """Algorithm 1 of Matet et al."""
    kept = penalty(node)
    below = children(tree, node)
    if below:
        parts = [get_pruning(tree, penalty, c) for c in below]
        split = sum(cost for cost, _ in parts)
        if split < kept:
            return split, [n for _, nodes in parts for n in nodes]
    return kept, [node]


def pair_rows(flows: Flows, origin_tiles: set[int], node: int) -> list[int]:
    below = tiles_below(flows.destinations, node)
    return [
        f
        for f in range(len(flows))
        if flows.origin[f] in origin_tiles and flows.destination[f] in below
    ]


def penalties(
    flows: Flows, guarantee: Guarantee, origin_node: int
) -> dict[int, tuple[float, float, bool]]:
    """(alpha, sigma, safe) of every destination node for one origin zone."""
    tiles = tiles_below(flows.origins, origin_node)
    out = {}
    for node in range(flows.destinations.n_nodes):
        rows = pair_rows(flows, tiles, node)
        v = sum(volume(flows, f, guarantee) for f in rows)
        size = len(tiles_below(flows.destinations, node))
        safe = bool(rows) and is_safe(flows, rows, guarantee)
        out[node] = ((len(tiles) + size) * v, 0.0, True) if safe else (0.0, v, False)
    return out


def evaluate(
    tree: Hierarchy, pairs: dict[int, tuple[float, float, bool]], multiplier: float, node: int = 0
) -> tuple[float, float]:
    """Algorithm 4, with the rule of appendix D that only safe nodes are split."""
    alpha, sigma, safe = pairs[node]
    kept = alpha + multiplier * sigma
    below = children(tree, node)
    if below and safe:
        parts = [evaluate(tree, pairs, multiplier, c) for c in below]
        split = sum(cost for cost, _ in parts)
        if split < kept:
            return split, sum(slope for _, slope in parts)
    return kept, sigma


def frontier(
    flows: Flows, guarantee: Guarantee, origin_nodes: list[int]
) -> list[tuple[float, float]]:
    """(error, suppressed) of every choice of one destination cut for each origin zone."""
    points = {(0.0, 0.0)}
    for o in origin_nodes:
        pairs = penalties(flows, guarantee, o)
        options = {
            (sum(pairs[n][0] for n in cut), sum(pairs[n][1] for n in cut))
            for cut in all_cuts(flows.destinations)
        }
        points = {(a + c, b + d) for a, b in points for c, d in options}
    return sorted(points)


def leaves(tree: Hierarchy) -> list[int]:
    return leaf_nodes(tree)
