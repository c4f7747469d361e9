"""Zone trees as dictionaries, and Ward's clustering by trying every pair.

The reference for the builders.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from flowveil.core.hierarchy import Hierarchy

Tree = dict[str, str | None]


def as_dict(tree: Hierarchy) -> Tree:
    """Code to the parent's code; None for the root."""
    codes = [str(c) for c in tree.code]
    return {codes[v]: codes[p] if p >= 0 else None for v, p in enumerate(tree.parent.tolist())}


def topped(tree: Tree) -> Tree:
    """Walk down from the root while it has a single child; the rest hangs below that node."""
    (top,) = [c for c, p in tree.items() if p is None]
    while len(children := [c for c, p in tree.items() if p == top]) == 1:
        del tree[top]
        top = children[0]
        tree[top] = None
    return tree


def nested(rows: list[tuple[str, ...]], root: str = "all") -> Tree:
    tree: Tree = {root: None}
    for row in rows:
        above = root
        for code in row:
            tree[code] = above
            above = code
    return topped(tree)


def from_parents(rows: list[tuple[str, str]], root: str = "all") -> Tree:
    tree: Tree = {}
    for zone, parent in rows:
        if parent:
            tree.setdefault(parent, None)
        tree[zone] = parent or None
    tops = [c for c, p in tree.items() if p is None]
    if len(tops) > 1:
        for top in tops:
            tree[top] = root
        tree[root] = None
    return topped(tree)


def path_up(tree: Tree, code: str) -> list[str]:
    path = [code]
    while (above := tree[path[-1]]) is not None:
        path.append(above)
    return path


def merge_cost(
    points: np.ndarray, weight: np.ndarray, one: frozenset[int], other: frozenset[int]
) -> float:
    """Growth of the weighted sum of squares, from the definition."""

    def spread(members: list[int]) -> float:
        p, w = points[members], weight[members][:, None]
        return float((w * (p - (w * p).sum(axis=0) / w.sum()) ** 2).sum())

    return spread(sorted(one | other)) - spread(sorted(one)) - spread(sorted(other))


def cheapest_merge(points: np.ndarray, weight: np.ndarray, clusters: list[frozenset[int]]) -> float:
    return min(merge_cost(points, weight, a, b) for a, b in combinations(clusters, 2))
