"""Optimal prunings of a tree, shared by the optimising methods.

If a cut costs the sum over its nodes, one bottom-up pass finds the cheapest one (Matet et al.,
Algorithm 1): a node is split if its children together cost less. `best_cut` does this for one tree,
`PairTree` for the trees of all zones of the other end at once, with the penalty ``alpha + lambda *
sigma`` of a generalisation that may suppress.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints
from flowveil.core.flows import Cells, Flows, concat_cells
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy


def best_cut(tree: Hierarchy, penalty: Floats) -> Ints:
    """Returns the cut with the smallest sum of penalties, the coarser one on ties, narrowed along
    single children.
    """
    best = penalty.astype(np.float64)
    split = np.zeros(tree.n_nodes, dtype=np.bool_)
    for depth in range(tree.max_depth, 0, -1):
        nodes = tree.nodes_at_depth(depth)
        above = tree.parent[nodes]
        # Siblings are adjacent, so their sums are sums over runs.
        first = np.flatnonzero(np.r_[True, above[1:] != above[:-1]])
        together = np.add.reduceat(best[nodes], first)
        above = above[first]
        split[above] = together < best[above]
        best[above] = np.minimum(together, best[above])
    reached = np.zeros(tree.n_nodes, dtype=np.bool_)
    reached[0] = True
    for depth in range(1, tree.max_depth + 1):
        nodes = tree.nodes_at_depth(depth)
        above = tree.parent[nodes]
        reached[nodes] = reached[above] & split[above]
    return tree.narrowest[np.flatnonzero(reached & ~split)]


class Prunable(Protocol):
    """A problem that can be pruned at a price."""

    @property
    def lost(self) -> float:
        """Volume that no pruning can publish."""
        ...

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Returns the smallest ``cost + multiplier * suppressed``, and the suppressed volume."""
        ...


def dual_multiplier(pruned: Prunable, budget: float, *, near: float = 64.0) -> float | None:
    """Returns a multiplier whose best pruning solves the dual within the budget, or None if no
    pruning is within it.

    Specific Breakpoints Algorithm: the dual is concave and piecewise linear. The next point is
    where the tangents of the last point over budget and the last point within it intersect. If the
    function has no value above them there, the pruning of the right tangent is optimal and within
    the budget. The first guess ``near`` affects only the number of evaluations.
    """
    if pruned.lost > budget:
        return None
    left, right = _bracket(pruned, budget, near)
    if left is None:
        return right.at
    while True:
        if left.slope <= right.slope:
            return right.at
        crossing = (right.cost - right.slope * right.at - left.cost + left.slope * left.at) / (
            left.slope - right.slope
        )
        if not left.at < crossing < right.at:
            return right.at
        point = _Point(crossing, *pruned.evaluate(crossing))
        if point.slope == left.slope:
            # Both prunings tie here and rounding chose the left one; slightly above, the right one
            # is best.
            after = min(crossing * (1 + 1e-9), right.at)
            return after if pruned.evaluate(after)[1] == right.slope else right.at
        if point.slope == right.slope:
            return point.at
        if point.slope > budget:
            left = point
        else:
            right = point


class _Point(NamedTuple):
    """The dual at one multiplier: its value (without the budget term) and its slope, the suppressed
    volume.
    """

    at: float
    cost: float
    slope: float


def _bracket(pruned: Prunable, budget: float, near: float) -> tuple[_Point | None, _Point]:
    """Returns neighbours among 0, 1/4, 1, 4, ... times the first multiplier.

    Over the budget (or None), and within.
    """
    left, right = None, _Point(near, *pruned.evaluate(near))
    while right.slope > budget:
        left, right = right, _Point(right.at * 4, *pruned.evaluate(right.at * 4))
    for lower in () if left else (near / 4, 0.0):
        point = _Point(lower, *pruned.evaluate(lower))
        if point.slope > budget:
            return point, right
        right = point
    return left, right


@dataclass(frozen=True, eq=False)
class Layer:
    """The pairs (zone, node) at one depth of the node, sorted by zone, then node.

    From ``alpha`` on, the safe pairs.

    Of a pair below the threshold only the volume matters, which its parent stores in
    ``short_below``. ``up`` is the position of the containing pair one layer up, ``safe_up`` the
    same among safe pairs; ``alpha`` is the cost of publishing: volume times (tiles of the zone +
    tiles of the node).
    """

    node: Ints
    up: Ints
    safe: NDArray[np.bool_]
    alpha: Floats
    short_below: Floats
    is_leaf: NDArray[np.bool_]
    safe_up: Ints


@dataclass(frozen=True, eq=False)
class PairTree:
    """The trees of all zones of the other end, layer by layer from the root down.

    Contains only pairs with volume, so it is as sparse as the flows. An evaluation is a few passes
    over the safe pairs. ``lost`` is the volume of zones that are below the threshold even with the
    root; ``top_volume`` and ``top_size`` are volume and tiles of the other zones; ``depth_of_flow``
    and ``pair_of_flow`` are the layer of each flow's tile and the pair there.
    """

    layers: tuple[Layer, ...]
    lost: float
    top_volume: Floats
    top_size: Ints
    depth_of_flow: NDArray[np.int16]
    pair_of_flow: Ints

    @classmethod
    def from_flows(
        cls,
        flows: Flows,
        guarantee: Guarantee,
        *,
        zone: Ints,
        zone_size: Ints,
        tile: Ints,
        tree: Hierarchy,
    ) -> PairTree:
        """Lays out the pairs of the zones of each flow's fixed end with the nodes of a tree over
        the other end.
        """
        bottom = flows.merge(zone, tile, len(zone_size), tree.n_tiles)
        leaf = tree.leaf_node[bottom.cells.destination]
        tiles = bottom.cells.renamed(bottom.cells.origin, leaf)
        depth = tree.depth[leaf]
        pair = np.empty(len(leaf), dtype=np.int32)
        layers: list[Layer] = []
        carried: Cells | None = None
        safe, volume = np.zeros(0, np.bool_), np.zeros(0)
        for d in range(tree.max_depth, -1, -1):
            ending = depth == d
            rows = tiles if ending.all() else tiles.select(ending)
            if carried is not None:
                rows = concat_cells((carried, rows)) if len(rows) else carried
            merged = rows.merge(rows.origin, rows.destination, len(zone_size), tree.n_nodes)
            n_carried = 0 if carried is None else len(carried)
            pair[ending] = merged.row[n_carried:]
            cells, up, below, below_volume = merged.cells, merged.row[:n_carried], safe, volume
            safe, volume = guarantee.safe(cells), cells.volume(guarantee.basis).astype(np.float64)
            # `bincount` without rows returns integers.
            lost = np.bincount(
                up[~below], weights=below_volume[~below], minlength=len(cells)
            ).astype(np.float64)
            if layers:
                number = np.cumsum(safe, dtype=np.int32) - np.int32(1)
                layers[-1] = replace(layers[-1], up=up, safe_up=number[up[below]])
            node, nothing = cells.destination, np.zeros(0, np.int32)
            alpha = volume[safe] * (
                zone_size[cells.origin[safe]].astype(np.float64) + tree.size[node[safe]]
            )
            layers.append(
                Layer(node, nothing, safe, alpha, lost[safe], tree.is_leaf[node[safe]], nothing)
            )
            carried = cells.renamed(cells.origin, tree.lift(cells.destination))
        layers.reverse()
        return cls(
            layers=tuple(layers),
            lost=float(volume[~safe].sum()),
            top_volume=volume[safe],
            top_size=zone_size[merged.cells.origin[safe]],
            depth_of_flow=depth[bottom.row],
            pair_of_flow=pair[bottom.row],
        )

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Returns the smallest ``sum alpha + multiplier * suppressed`` over all prunings, and the
        suppressed volume.

        Of two equal prunings, the one that suppresses less is reported (the right derivative).
        """
        cost, suppressed, _ = self._solve(multiplier)
        return float(cost.sum()) + multiplier * self.lost, float(suppressed.sum()) + self.lost

    def sizes(self, multiplier: float) -> tuple[float, float]:
        """Returns the mean size of the zones and of their paired nodes, over the published
        volume.
        """
        cost, suppressed, _ = self._solve(multiplier)
        kept = self.top_volume - suppressed
        total = float(kept.sum())
        if total <= 0:
            return np.inf, 0.0
        zones = float((kept * self.top_size).sum())
        both = float((cost - multiplier * suppressed).sum())
        return zones / total, (both - zones) / total

    def nodes(self, multiplier: float) -> tuple[Ints, NDArray[np.bool_]]:
        """Returns the node of each flow in the best pruning at this multiplier, and whether it is
        published.
        """
        *_, splits = self._solve(multiplier)
        node = np.empty(len(self.pair_of_flow), dtype=np.int32)
        kept = np.empty(len(self.pair_of_flow), dtype=np.bool_)
        above_node: Ints | None = None
        above_open = above_safe = np.zeros(0, dtype=np.bool_)
        for d, (layer, split) in enumerate(zip(self.layers, splits, strict=True)):
            own, safe = layer.node, layer.safe
            still_open = np.zeros(len(own), dtype=np.bool_)
            still_open[safe] = split
            if above_node is not None:
                opened = above_open[layer.up]
                own = np.where(opened, own, above_node[layer.up])
                safe = np.where(opened, safe, above_safe[layer.up])
                still_open &= opened
            here = self.depth_of_flow == d
            at = self.pair_of_flow[here]
            node[here], kept[here] = own[at], safe[at]
            above_node, above_open, above_safe = own, still_open, safe
        return node, kept

    def _solve(self, multiplier: float) -> tuple[Floats, Floats, list[NDArray[np.bool_]]]:
        """Returns cost and suppressed volume of the safe pairs of the top layer, and which safe
        pairs are split.
        """
        splits: list[NDArray[np.bool_]] = []
        cost = suppressed = np.zeros(0)
        up = np.zeros(0, np.int32)
        for layer in reversed(self.layers):
            n, below = len(layer.alpha), layer.short_below
            divided = multiplier * below + np.bincount(up, weights=cost, minlength=n)
            gone = below + np.bincount(up, weights=suppressed, minlength=n)
            split = ~layer.is_leaf & (divided < layer.alpha)
            cost = np.where(split, divided, layer.alpha)
            suppressed = np.where(split, gone, 0.0)
            splits.append(split)
            up = layer.safe_up
        splits.reverse()
        return cost, suppressed, splits
