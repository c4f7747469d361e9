"""The public tree that noisy methods walk down: zones of a region or map, and everything above them, step by step.

The tree owes nothing to the data: it holds the zones where nobody was seen as well. Both ends have the same one. It is
kept as a levels: on each step every zone has one node, its ancestor there, and a zone that ends early stays itself on
all further steps. A step on which nothing divides is left out, because every step costs budget; and so are, on maps of
one's own with many steps, those on which little does: a dendrogram over a hundred zones has a dozen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.methods.pair_domain import OBSERVED, PairDomain, pair_domain
from flowveil.release.zones import NodeZones
from flowveil.zoning.h3 import Cells64, H3Zones, parent_of, resolution_of

#: On a map with more steps than this, each has at least so many times the nodes of the one before it that is kept.
MOST_STEPS, LEAST_GROWTH = 5, 4


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes of one step, numbered from 0 in the order of their first zones.

    Attributes:
        name: what the step is called in reports: the level of its nodes.
        node_of_zone: the node of each zone.
        parent: the node of the step before that holds each node; empty on the first step.
        n_nodes: how many there are.
    """

    name: str
    node_of_zone: Ints
    parent: Ints
    n_nodes: int

    def children(self) -> tuple[Ints, NDArray[np.int64]]:
        """The nodes of this step ordered by their parents, and where those of each parent begin."""
        order = np.argsort(self.parent, kind="stable").astype(np.int32)
        start = np.concatenate(([0], np.cumsum(np.bincount(self.parent))))
        return order, start


@dataclass(frozen=True, eq=False)
class Levels:
    """Steps from one node for everything down to the zones themselves, numbered as in the domain."""

    levels: tuple[Level, ...]

    @classmethod
    def from_domain(cls, domain: PairDomain) -> Levels:
        """The levels over the zones of a public domain."""
        n_zones = len(domain.origins.zones)
        steps = [Level("all", np.zeros(n_zones, np.int32), np.zeros(0, np.int32), 1)]
        numbered = [(name, _numbered(ancestor)) for name, ancestor in named_steps(domain)]
        if not isinstance(domain.origins.zones, H3Zones) and len(numbered) > MOST_STEPS:
            numbered = _growing(numbered)
        for name, node in numbered:
            n = int(node.max()) + 1
            if n == steps[-1].n_nodes:
                continue
            parent = np.empty(n, dtype=np.int32)
            parent[node] = steps[-1].node_of_zone
            steps.append(Level(name, node, parent, n))
        return cls(tuple(steps))


def public_domain(method: str, flows: Flows, level: int | None, region: str | None) -> PairDomain:
    """The zones of both ends, from outside the data.

    Raises:
        ParameterError: they would come from the data.
    """
    if region is not None and region.strip() == OBSERVED:
        raise ParameterError(
            f"{method} walks down a tree that everybody may know, so region=observed, the zones of the data, is not "
            "for it. Hint: name a region, or use laplace."
        )
    domain = pair_domain(flows, level, region, listed=True, method=method)
    if not domain.public:
        raise ParameterError(f"{method} needs zones from outside the data. Hint: give region, or --zones (zones=...).")
    return domain


def named_steps(domain: PairDomain) -> list[tuple[str, NDArray[np.uint64]]]:
    """What stands above each zone, from the top of the region or map down to the zone: cells, or nodes of the map."""
    zones, region = domain.origins.zones, domain.described.get("region")
    if isinstance(zones, H3Zones):
        return _steps_of_cells(zones.cells, region or [])
    if not isinstance(zones, NodeZones):  # pragma: no cover  # pair_domain makes no others
        raise TypeError(type(zones).__name__)
    return _steps_of_map(zones.hierarchy, zones.nodes, region)


def _steps_of_cells(cells: Cells64, region: list[str]) -> list[tuple[str, NDArray[np.uint64]]]:
    """From the coarsest cell of the region to the zones; a finer cell of the region is not lifted above itself."""
    places = np.array([int(name, 16) for name in region], dtype=np.uint64)
    finest = int(resolution_of(cells[:1])[0])
    top = np.full(len(cells), -1)
    steps = []
    for r in range(int(resolution_of(places).min()), finest + 1):
        top[(top < 0) & np.isin(parent_of(cells, r), places)] = r
    for r in range(int(top.min()), finest + 1):
        lifted = parent_of(cells, r)
        for later in range(r + 1, int(top.max()) + 1):
            lifted[top == later] = parent_of(cells[top == later], later)
        steps.append((str(r), lifted))
    return steps


def _steps_of_map(tree: Hierarchy, zones: Ints, region: list[str] | None) -> list[tuple[str, NDArray[np.uint64]]]:
    """From the root of the map, or the zones that the region names, down; a zone that ends early stays itself."""
    highest = np.zeros(len(zones), dtype=np.int64)
    if region is not None:
        codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32))
        highest[:] = tree.depth[zones]
        for node in np.flatnonzero(np.isin(codes, region)).tolist():
            below = (tree.leaf_start[zones] >= tree.leaf_start[node]) & (tree.leaf_stop[zones] <= tree.leaf_stop[node])
            highest[below] = np.minimum(highest[below], tree.depth[node])
    chains = [zones]
    while np.any(tree.depth[chains[-1]] > highest):
        depth = tree.depth[chains[-1]]
        lifts = (depth > highest) & (depth == depth[depth > highest].max())
        chains.append(np.where(lifts, tree.parent[chains[-1]], chains[-1]))
    return [(str(int(tree.level[nodes].max())), nodes.astype(np.uint64)) for nodes in reversed(chains)]


def _growing(steps: list[tuple[str, Ints]]) -> list[tuple[str, Ints]]:
    """The steps that are worth their budget, from the zones up: each divides the one above it far enough."""
    kept = steps[-1:]
    for name, node in steps[-2::-1]:
        if (int(node.max()) + 1) * LEAST_GROWTH <= int(kept[-1][1].max()) + 1:
            kept.append((name, node))
    return kept[::-1]


def _numbered(ancestor: NDArray[np.uint64]) -> Ints:
    """Numbers of the distinct nodes in the order in which they come first, so that zones keep their own numbers."""
    _, first, inverse = np.unique(ancestor, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
