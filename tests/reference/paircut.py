"""Divisions of (root, root) by exhaustive search."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from reference.trees import is_safe, persons_by_flow, tiles_below, volume


def all_divisions(
    flows: Flows, guarantee: Guarantee, weights: tuple[float, ...] = ()
) -> set[tuple[float, float]]:
    """Cost and published volume of every division.

    Of every way to publish, divide or suppress, pair after pair.

    Where columns fold, each is one more end: its width costs some tiles, and only what k people
    share is named.
    """
    trees, ends = [tree for tree, _ in flows.ends], [leaf for _, leaf in flows.ends]

    @cache
    def outcomes(*nodes: int) -> frozenset[tuple[float, float]]:
        below = [tiles_below(tree, node) for tree, node in zip(trees, nodes, strict=True)]
        rows = [
            f
            for f in range(len(flows))
            if all(end[f] in tiles for end, tiles in zip(ends, below, strict=True))
        ]
        found = {(0.0, 0.0)}
        if not rows:
            return frozenset(found)
        v = sum(volume(flows, f, guarantee) for f in rows)
        if is_safe(flows, rows, guarantee) and may_be_named(flows, guarantee, nodes[2:]):
            found.add((v * (len(below[0]) + len(below[1]) + width(flows, nodes[2:], weights)), v))
        for end, tree in enumerate(trees):
            parts = [(*nodes[:end], c, *nodes[end + 1 :]) for c in children(tree, nodes[end])]
            if parts:
                for choice in product(*(outcomes(*part) for part in parts)):
                    found.add((sum(c for c, _ in choice), sum(p for _, p in choice)))
        return frozenset(found)

    return set(outcomes(*([0] * len(trees))))


def width(flows: Flows, nodes: tuple[int, ...], weights: tuple[float, ...]) -> float:
    """The tiles that the widths of these nodes of folds are worth."""
    return sum(
        w * float(fold.width[node])
        for w, fold, node in zip(weights, flows.folds, nodes, strict=True)
    )


def may_be_named(
    flows: Flows, guarantee: Guarantee, nodes: tuple[int, ...], rows: Iterable[int] | None = None
) -> bool:
    """Whether k people of these flows, or of all, have these nodes of folds together, where persons
    are known."""
    if flows.people is None or not nodes:
        return True
    inside = [tiles_below(fold.tree, node) for fold, node in zip(flows.folds, nodes, strict=True)]
    who = persons_by_flow(flows)
    considered = range(len(flows)) if rows is None else rows
    having = [
        f
        for f in considered
        if all(leaf[f] in own for leaf, own in zip(flows.leaves, inside, strict=True))
    ]
    return len(set().union(*(who[f] for f in having))) >= guarantee.k


def children(tree: Hierarchy, node: int) -> list[int]:
    return [v for v in range(tree.n_nodes) if tree.parent[v] == node]
