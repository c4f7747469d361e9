"""The public tree over a domain as publishable nodes: what PrivTree divides.

Unlike `flowveil.methods.levels.Levels` it has no levels: the nodes of a pair may have different depths. It starts with
the cells of the region, the root of the map, or the named zones of the map; several of these are several trees. A node
with a single child is represented by that child.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Ints
from flowveil.methods.levels import named_levels
from flowveil.methods.pair_domain import PairDomain
from flowveil.release.zones import NodeZones, Zones
from flowveil.zoning.h3 import H3Zones

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PublicTree:
    """Nodes in the order of their codes.

    Attributes:
        zones: the nodes as publishable zones.
        parent: parent of each node; -1 at the top.
        first, stop: the slice of `order` with the domain zones below each node.
        order: the zones of the domain in tree order.
        node_of_zone: the node of each zone of the domain.
        tiles: possible tiles below each node.
    """

    zones: Zones
    parent: Ints
    first: Counts
    stop: Counts
    order: Ints
    node_of_zone: Ints
    tiles: Counts

    @classmethod
    def from_domain(cls, domain: PairDomain) -> PublicTree:
        """Returns the tree over the zones of a public domain."""
        chains = np.stack([codes for _, codes in named_levels(domain)])
        order = np.lexsort(chains[::-1]).astype(np.int32)
        chains = chains[:, order]
        kept, above = _nodes(chains)
        zones, rank = _as_zones(domain, kept)
        code = {int(c): i for i, c in enumerate(kept.tolist())}
        parent = np.full(len(kept), -1, dtype=np.int32)
        first, stop = np.empty(len(kept), np.int64), np.empty(len(kept), np.int64)
        for c, (up, low, high) in above.items():
            i = rank[code[c]]
            parent[i] = -1 if up is None else rank[code[up]]
            first[i], stop[i] = low, high
        node_of_zone = np.empty(len(order), dtype=np.int32)
        node_of_zone[order] = [rank[code[c]] for c in chains[-1].tolist()]
        size = np.concatenate(([0], np.cumsum(np.asarray(domain.origins.zones.size, np.int64)[order])))
        return cls(zones, parent, first, stop, order, node_of_zone, size[stop] - size[first])

    @cached_property
    def roots(self) -> Ints:
        """The nodes at the top."""
        return np.flatnonzero(self.parent < 0).astype(np.int32)

    @cached_property
    def n_children(self) -> Counts:
        """Number of children of each node; 0 for a zone of the domain."""
        return np.bincount(self.parent[self.parent >= 0], minlength=len(self.parent)).astype(np.int64)

    @cached_property
    def children(self) -> tuple[Ints, Counts]:
        """All nodes with a parent, by parent and then in tree order; and the start of each parent's children."""
        below = np.flatnonzero(self.parent >= 0)
        order = below[np.lexsort((self.first[below], self.parent[below]))].astype(np.int32)
        return order, np.concatenate(([0], np.cumsum(self.n_children)))

    @cached_property
    def place(self) -> Counts:
        """Position of each zone of the domain in tree order."""
        place = np.empty(len(self.order), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    def child_of(self, nodes: Ints, place: Counts) -> Counts:
        """Returns which child of each node, from 0, contains the zone at this position of the order."""
        order, start = self.children
        wide = len(self.order) + 1
        key = self.parent[order].astype(np.int64) * wide + self.first[order]
        return np.searchsorted(key, nodes.astype(np.int64) * wide + place, side="right") - 1 - start[nodes]


def _nodes(chains: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], dict[int, tuple[int | None, int, int]]]:
    """Returns the distinct areas, and for each its parent and its slice of the zones."""
    found: dict[tuple[int, int], int] = {}
    above: dict[int, tuple[int | None, int, int]] = {}
    for codes in chains[::-1]:
        edges = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
        for low, high in pairwise(edges):
            found.setdefault((low, high), int(codes[low]))
    open_areas: list[tuple[int, int, int]] = []
    for (low, high), code in sorted(found.items(), key=lambda item: (item[0][0], -item[0][1])):
        while open_areas and open_areas[-1][1] <= low:
            open_areas.pop()
        above[code] = (open_areas[-1][2] if open_areas else None, low, high)
        open_areas.append((low, high, code))
    return np.array(sorted(above), dtype=np.uint64), above


def _as_zones(domain: PairDomain, codes: NDArray[np.uint64]) -> tuple[Zones, NDArray[Any]]:
    """Returns the nodes as zones in the order of their published codes, and the rank of each."""
    zones = domain.origins.zones
    if isinstance(zones, H3Zones):
        return H3Zones(codes, zones.tile_resolution), np.arange(len(codes))
    assert isinstance(zones, NodeZones)
    nodes = codes.astype(np.int32)
    order = np.argsort(zones.hierarchy.code_text(nodes))
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[order] = np.arange(len(nodes))
    return NodeZones(zones.hierarchy, nodes[order]), rank
