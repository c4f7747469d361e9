"""The best cuts of one tree at many prices, each looked for only where the cuts at the prices around it differ.

A node divided into its best parts never publishes more than the node itself. So the higher the price of a suppressed
unit, the more is gained by leaving a node whole: what is whole at one price is whole at every higher one. Between two
prices whose best cuts are known, a node is undecided only if it is divided at the lower and whole at the higher. These
nodes are a forest that shrinks with every price that is looked at, and a search for a price looks at a dozen of them,
ever closer together.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Layer:
    """The nodes of one depth that have a parent in the forest.

    Attributes:
        children: they themselves, siblings together.
        above: the parent of each.
        first, parents: where siblings begin, and the parent of those that begin there.
    """

    children: slice | Positions
    above: Positions
    first: Positions
    parents: Positions


@dataclass(frozen=True, eq=False)
class Forest:
    """The nodes that are undecided between two prices, and their children.

    Attributes:
        node: the nodes, by depth.
        edge: where each depth begins, the end included.
        up: the parent of each; -1 where it is decided.
        open: whether each is undecided; the others are whole wherever they are reached.
        layers: from the top down.
        cost, volume: of each node.
        fixed: nodes of every cut between the prices that have nothing undecided above.
    """

    node: Positions
    edge: Positions
    up: Positions
    open: Mask
    layers: tuple[Layer, ...]
    cost: Floats
    volume: Floats
    fixed: Positions
    fixed_cost: float
    fixed_volume: float

    def divided(self, price: float) -> Mask:
        """The nodes that the best cut at this price divides, coarser on ties."""
        best = price * self.volume - self.cost
        split = np.zeros(len(best), dtype=np.bool_)
        for layer in reversed(self.layers):
            together = np.add.reduceat(best[layer.children], layer.first)
            whole = best[layer.parents]
            split[layer.parents] = together > whole
            best[layer.parents] = np.maximum(together, whole)
        for layer in self.layers:
            split[layer.children] &= split[layer.above]
        return split

    def whole(self, divided: Mask) -> Mask:
        """The nodes of the cut that divides these."""
        inside = ~divided
        below = self.up >= 0
        inside[below] &= divided[self.up[below]]
        return inside

    def narrowed(self, undecided: Mask, fixed: Mask) -> Forest:
        """The forest of fewer undecided nodes, where these more are in every cut."""
        child = self.up >= 0
        child[child] = undecided[self.up[child]]
        kept = np.flatnonzero(undecided | child)
        number = np.empty(len(self.node), dtype=np.int64)
        number[kept] = np.arange(len(kept))
        up = np.where(child[kept], number[self.up[kept]], -1)
        edge = np.searchsorted(kept, self.edge)
        more = self.node[fixed]
        return Forest(
            node=self.node[kept],
            edge=edge,
            up=up,
            open=undecided[kept],
            layers=_layers(edge, up),
            cost=self.cost[kept],
            volume=self.volume[kept],
            fixed=np.concatenate((self.fixed, more)),
            fixed_cost=self.fixed_cost + float(self.cost[fixed].sum()),
            fixed_volume=self.fixed_volume + float(self.volume[fixed].sum()),
        )


def _layers(edge: Positions, up: Positions) -> tuple[Layer, ...]:
    children = np.flatnonzero(up >= 0)
    above = up[children]
    # Siblings stand together, and those of one parent have one depth: all depths are laid out at once.
    first = np.flatnonzero(np.concatenate(([True] * min(len(above), 1), above[1:] != above[:-1])))
    parents = above[first]
    begins = np.searchsorted(children, edge)
    brothers = np.searchsorted(first, begins)
    return tuple(
        Layer(children[a:b], above[a:b], first[i:j] - a, parents[i:j])
        for a, b, i, j in zip(
            begins[:-1].tolist(), begins[1:].tolist(), brothers[:-1].tolist(), brothers[1:].tolist(), strict=True
        )
        if b > a
    )


@dataclass(frozen=True, eq=False)
class Gap:
    """What is undecided between two prices, not yet laid out: it is asked for in few of the gaps."""

    forest: Forest
    undecided: Mask | None = None
    fixed: Mask | None = None

    def laid_out(self) -> Forest:
        """The forest of what is undecided."""
        if self.undecided is None or self.fixed is None:
            return self.forest
        return self.forest.narrowed(self.undecided, self.fixed)


class PriceGaps:
    """The best cuts of a tree at all prices that were asked for.

    Args:
        whole: the whole tree: every node with children undecided.
    """

    def __init__(self, whole: Forest) -> None:
        self._prices: list[float] = []
        self._gaps = [Gap(whole)]

    def at(self, price: float) -> tuple[Forest, Mask]:
        """A forest, and which of its nodes are in the best cut at this price, beside those that are fixed."""
        place = bisect_left(self._prices, price)
        known = place < len(self._prices) and self._prices[place] == price
        # The cut at the lower price of a gap divides everything that is undecided in it.
        gap = place + 1 if known else place
        forest = self._gaps[gap].laid_out()
        self._gaps[gap] = Gap(forest)
        divided = forest.open if known else forest.divided(price)
        whole = forest.whole(divided)
        if not known:
            self._prices.insert(place, price)
            below = Gap(forest, forest.open & ~divided, whole & ~forest.open)
            above = Gap(forest, divided, whole & (forest.up < 0))
            self._gaps[place : place + 1] = [below, above]
        return forest, whole
