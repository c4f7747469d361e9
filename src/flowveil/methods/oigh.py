"""OIGH: one level for all origins, one for all destinations (as adapted by Matet et al.

2023 for ragged trees).

A release is a point (origin level, destination level) of a small lattice. OIGH takes the lowest
point, by the sum of both levels, at which cells below the threshold hold at most the allowed
volume. Going up never moves volume into such cells, so one descent along the staircase of good
points finds it. The baseline `suppression`, tiles alone, is here too.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from flowveil.core.arrays import Ints
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.odkanon import Cuts
from flowveil.release.plan import Plan


def oigh(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plans homogeneous zones with one level per axis.

    Among the points of the lowest height, takes the one with the smallest average class (published
    volume over published cells), and on ties the one with the finest origins. The top of the
    lattice if no point is good.

    Args:
        max_suppressed: largest share of the volume in cells below the threshold, which are
            suppressed. 0 as in the ODkAnon papers; 0.1 as in Matet et al.
    """
    lattice = Lattice(flows, guarantee, max_suppressed)
    top_o, top_d = lattice.origins.top, lattice.destinations.top
    height, found = top_o + top_d, [(np.inf, top_o, top_d)]
    up_d = top_d
    for up_o in range(top_o + 1):
        up_d = min(up_d, height - up_o)
        while up_d >= 0 and (average := lattice.average(up_o, up_d)) is not None:
            if up_o + up_d < height:
                height, found = up_o + up_d, []
            found.append((average, up_o, up_d))
            up_d -= 1
        up_d += 1
    return lattice.plan(*min(found)[1:])


def one_level(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plans the lowest common level with little enough volume below the threshold.

    Arguments as in `oigh`.
    """
    lattice = Lattice(flows, guarantee, max_suppressed)
    up = bisect_left(
        range(lattice.origins.top),
        True,
        key=lambda level: lattice.average(level, level) is not None,
    )
    return lattice.plan(up, up)


def suppression(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:  # noqa: ARG001
    """Plans the release of the safe flows, tile to tile: the baseline without a hierarchy.

    Published cells are exact, but most of the matrix may be suppressed: long trips, and trips in
    sparsely populated places first. ``max_suppressed`` is ignored: this method cannot limit
    suppression.
    """
    tiles_o, tiles_d = flows.origins.leaf_node, flows.destinations.leaf_node
    return Plan.from_cuts(flows, tiles_o, tiles_d, guarantee.safe(flows))


@dataclass(frozen=True, eq=False)
class AxisLevels:
    """The cuts of one axis, from the tiles (0 levels up) to the root (``top`` levels up).

    ``rank`` is the level at which the children of each node are merged; 0 for a tile. A cut is then
    one comparison.
    """

    hierarchy: Hierarchy
    rank: Ints

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> AxisLevels:
        """Numbers the levels of a tree.

        If all tiles are equally deep (H3), a level is a horizontal cut. Otherwise one level up
        merges, of the nodes whose children are all zones, those with the fewest tiles (Matet et
        al.): the level of a node is the dense rank of (tiles, height above the lowest node with the
        same tiles).
        """
        if np.all(tree.depth[tree.leaf_node] == tree.max_depth):
            return cls(tree, (tree.max_depth - tree.depth.astype(np.int32)).astype(np.int32))
        # In pre-order an only child follows its parent.
        height = tree.narrowest - np.arange(tree.n_nodes)
        inner = np.flatnonzero(~tree.is_leaf)
        rank = np.zeros(tree.n_nodes, dtype=np.int32)
        sizes = np.stack((tree.size[inner], height[inner]))
        rank[inner] = np.unique(sizes, axis=1, return_inverse=True)[1].ravel() + 1
        return cls(tree, rank)

    @property
    def top(self) -> int:
        """Number of levels above the tiles."""
        return int(self.rank[0])

    def cut(self, up: int) -> Ints:
        """Returns the zones at this level."""
        return self.hierarchy.cut_from_merged(self.rank <= up)


class Lattice:
    """All pairs of levels."""

    def __init__(self, flows: Flows, guarantee: Guarantee, max_suppressed: float) -> None:
        self.flows, self.guarantee = flows, guarantee
        self.origins, self.destinations = (
            AxisLevels.from_tree(tree) for tree in (flows.origins, flows.destinations)
        )
        self.allowed = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))

    def average(self, up_o: int, up_d: int) -> float | None:
        """Returns published volume over published cells.

        None if cells below the threshold hold more than allowed.
        """
        cells = self.cuts(up_o, up_d).merge(self.flows).cells
        safe, volume = self.guarantee.safe(cells), cells.volume(self.guarantee.basis)
        if float(np.sum(volume[~safe])) > self.allowed:
            return None
        return float(np.sum(volume[safe])) / int(np.count_nonzero(safe)) if safe.any() else np.inf

    def plan(self, up_o: int, up_d: int) -> Plan:
        """Returns the plan of the safe cells at these levels."""
        notes = {"origin_levels_up": up_o, "destination_levels_up": up_d}
        return self.cuts(up_o, up_d).plan(self.flows, self.guarantee, notes=notes)

    def cuts(self, up_o: int, up_d: int) -> Cuts:
        """Returns the zones at these levels."""
        trees = self.flows.origins, self.flows.destinations
        return Cuts(*trees, self.origins.cut(up_o), self.destinations.cut(up_d))
