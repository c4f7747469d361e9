"""The public tree that noisy methods descend: the zones of a region or map and their ancestors, level by level.

The tree does not depend on the data: it contains zones without trips as well. Both ends have the same tree. On each
level every zone has one node, its ancestor there; a zone that ends early is repeated on all further levels. Every level
costs budget, so levels on which nothing divides are dropped. On the user's own maps with many levels, such as
dendrograms, levels on which little divides are dropped too.
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

#: On maps with more than MOST_STEPS levels, each kept level has at least LEAST_GROWTH times the nodes of the one above.
MOST_STEPS, LEAST_GROWTH = 5, 4


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes of one level, numbered from 0 in the order of their first zones.

    Attributes:
        name: name of the level in reports.
        node_of_zone: the node of each zone.
        parent: the parent of each node on the level above; empty on the first level.
        n_nodes: number of nodes.
    """

    name: str
    node_of_zone: Ints
    parent: Ints
    n_nodes: int

    def children(self) -> tuple[Ints, NDArray[np.int64]]:
        """Returns the nodes of this level ordered by parent, and the start of each parent's children."""
        order = np.argsort(self.parent, kind="stable").astype(np.int32)
        start = np.concatenate(([0], np.cumsum(np.bincount(self.parent))))
        return order, start


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels from a single node down to the zones, numbered as in the domain."""

    levels: tuple[Level, ...]

    @classmethod
    def from_domain(cls, domain: PairDomain) -> Levels:
        """Returns the levels over the zones of a public domain."""
        n_zones = len(domain.origins.zones)
        steps = [Level("all", np.zeros(n_zones, np.int32), np.zeros(0, np.int32), 1)]
        numbered = [(name, _numbered(ancestor)) for name, ancestor in named_levels(domain)]
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
    """Returns the zones of both ends, which must not come from the data.

    Raises:
        ParameterError: the zones would come from the data.
    """
    if region is not None and region.strip() == OBSERVED:
        raise ParameterError(
            f"{method} needs a public tree of zones, so region=observed (the zones of the data) is not allowed. "
            "Hint: name a region, or use laplace."
        )
    domain = pair_domain(flows, level, region, listed=True, method=method)
    if not domain.public:
        raise ParameterError(f"{method} needs zones from outside the data. Hint: give region, or --zones (zones=...).")
    return domain


def named_levels(domain: PairDomain) -> list[tuple[str, NDArray[np.uint64]]]:
    """Returns name and ancestor of each zone for every level, from the top of the region or map down to the zones."""
    zones, region = domain.origins.zones, domain.described.get("region")
    if isinstance(zones, H3Zones):
        return _steps_of_cells(zones.cells, region or [])
    if not isinstance(zones, NodeZones):  # pragma: no cover  # pair_domain makes no others
        raise TypeError(type(zones).__name__)
    return _steps_of_map(zones.hierarchy, zones.nodes, region)


def _steps_of_cells(cells: Cells64, region: list[str]) -> list[tuple[str, NDArray[np.uint64]]]:
    """Returns the levels from the coarsest region cell to the zones; no region cell is lifted above itself."""
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
    """Returns the levels from the root, or from the zones of the region, down; a zone that ends early is repeated."""
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
    """Returns the levels that are worth their budget, from the zones up."""
    kept = steps[-1:]
    for name, node in steps[-2::-1]:
        if (int(node.max()) + 1) * LEAST_GROWTH <= int(kept[-1][1].max()) + 1:
            kept.append((name, node))
    return kept[::-1]


def _numbered(ancestor: NDArray[np.uint64]) -> Ints:
    """Numbers the distinct nodes in order of first occurrence, so that zones keep their numbers."""
    _, first, inverse = np.unique(ancestor, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
