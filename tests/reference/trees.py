"""Trees and cells as plain Python: the reference for the flat arrays."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy


@lru_cache(maxsize=10_000)
def children(tree: Hierarchy, node: int) -> list[int]:
    return [v for v in range(tree.n_nodes) if tree.parent[v] == node]


@lru_cache(maxsize=10_000)
def ancestors(tree: Hierarchy, node: int) -> list[int]:
    """The node itself, its parent, and so on to the root."""
    path = [node]
    while tree.parent[path[-1]] >= 0:
        path.append(int(tree.parent[path[-1]]))
    return path


@lru_cache(maxsize=10_000)
def tiles_below(tree: Hierarchy, node: int) -> set[int]:
    """Leaf numbers below a node, by walking up from every leaf."""
    leaves = [v for v in range(tree.n_nodes) if not children(tree, v)]
    return {number for number, leaf in enumerate(leaves) if node in ancestors(tree, leaf)}


@lru_cache(maxsize=10_000)
def leaf_nodes(tree: Hierarchy) -> list[int]:
    return [v for v in range(tree.n_nodes) if not children(tree, v)]


@lru_cache(maxsize=100)
def persons_by_flow(flows: Flows) -> dict[int, set[int]]:
    who: dict[int, set[int]] = defaultdict(set)
    if flows.people is not None:
        for cell, person in zip(
            flows.people.cell.tolist(), flows.people.person.tolist(), strict=True
        ):
            who[cell].add(person)
    return who


def is_safe(flows: Flows, rows: list[int], guarantee: Guarantee) -> bool:
    """Whether a cell made of these flows reaches every threshold."""
    who = persons_by_flow(flows)
    if guarantee.trips is not None and sum(int(flows.trips[f]) for f in rows) < guarantee.trips:
        return False
    if (
        guarantee.population is not None
        and sum(float(flows.weight[f]) for f in rows) < guarantee.population
    ):
        return False
    if (
        guarantee.people is not None
        and len(set().union(*(who[f] for f in rows))) < guarantee.people
    ):
        return False
    ends = {int(flows.origin[f]) for f in rows}, {int(flows.destination[f]) for f in rows}
    return not (guarantee.locations is not None and min(map(len, ends)) < guarantee.locations)


def volume(flows: Flows, row: int, guarantee: Guarantee) -> float:
    return float(flows.weight[row]) if guarantee.population is not None else int(flows.trips[row])
