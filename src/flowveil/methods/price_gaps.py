"""The best cuts of one tree at many prices, each looked for only where the cuts at the prices around it differ.

A node divided into its best parts never publishes more than the node itself. So the higher the price of a suppressed
unit, the more is gained by leaving a node whole: what is whole at one price is whole at every higher one. Between two
prices whose best cuts are known, a node is undecided only if it is divided at the lower and whole at the higher. These
nodes are a forest that shrinks with every price that is looked at, and a search for a price looks at a dozen of them,
ever closer together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Trees of fewer nodes are looked at as a whole: growing a forest takes as long.
FEW_NODES = 20_000

#: Numbers that a forest keeps for each of its nodes.
_HELD = 8


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


@dataclass(frozen=True, eq=False)
class Families:
    """A tree whose nodes are numbered by depth: all but the root then stand family after family.

    Attributes:
        order: the node that each number means.
        first, count: the first child of each node, and how many it has.
    """

    order: Positions
    first: Positions
    count: Positions

    @cached_property
    def whole(self) -> Forest:
        """The whole tree, every node with children undecided; costs and volumes are put in by whoever knows them."""
        nothing = np.zeros(len(self.order))
        return self.grown(nothing, nothing, None)

    def grown(
        self, cost: Floats, volume: Floats, may_divide: Callable[[Positions, Positions, Positions], Mask] | None
    ) -> Forest:
        """A forest from the root down, ending where nothing is divided.

        Args:
            cost, volume: of each node.
            may_divide: says of nodes, from their children and where siblings begin, which may be divided; None for all.
        """
        nodes, place, up, edge = [self.order[:1]], np.zeros(1, np.int64), [np.full(1, -1)], [0, 1]
        opened: list[Mask] = []
        layers: list[Layer] = []
        while True:
            inner = np.flatnonzero(self.count[place])
            length = self.count[place[inner]]
            siblings = np.cumsum(length) - length
            place = np.repeat(self.first[place[inner]] - siblings, length)
            place += np.arange(len(place))
            below = self.order[place]
            if may_divide is not None and len(inner):
                divided = may_divide(nodes[-1][inner], below, siblings)
                kept = np.repeat(divided, length)
                place, below, inner, length = place[kept], below[kept], inner[divided], length[divided]
                siblings = np.cumsum(length) - length
            opened.append(np.zeros(len(nodes[-1]), dtype=np.bool_))
            opened[-1][inner] = True
            if not len(inner):
                break
            inner += edge[-2]
            nodes.append(below)
            up.append(np.repeat(inner, length))
            edge.append(edge[-1] + len(below))
            layers.append(Layer(slice(*edge[-2:]), up[-1], siblings, inner))
        node = np.concatenate(nodes)
        return Forest(
            node=node,
            edge=np.array(edge),
            up=np.concatenate(up),
            open=np.concatenate(opened),
            layers=tuple(layers),
            cost=cost[node],
            volume=volume[node],
            fixed=node[:0],
            fixed_cost=0.0,
            fixed_volume=0.0,
        )


class PriceGaps:
    """The best cuts of a tree at all prices that were asked for.

    Args:
        families: the tree.
        cost, volume: of each node.
        others: what of the cost each node shares with its parts, because it is volume times the tiles of a zone of the
            other end, and the most tiles of such a zone; None where nothing is known of what parts cost.
    """

    def __init__(
        self, families: Families, cost: Floats, volume: Floats, others: tuple[Floats, float] | None = None
    ) -> None:
        self._families = families
        self._cost, self._volume = cost, volume
        self._others = None if len(families.order) < FEW_NODES else others
        self._bands: list[tuple[float, _Band]] = []

    @property
    def held(self) -> int:
        """About how many numbers are kept of the forests that were looked at."""
        return sum(band.held for _, band in self._bands)

    def at(self, price: float) -> tuple[Forest, Mask]:
        """A forest, and which of its nodes are in the best cut at this price, beside those that are fixed."""
        for least, band in self._bands:
            if least <= price:
                return band.at(price)
        if self._others is None:
            whole = self._families.whole
            least = -np.inf
            forest = replace(whole, cost=self._cost[whole.node], volume=self._volume[whole.node])
        else:
            least = price
            forest = self._families.grown(self._cost, self._volume, partial(self._may_divide, price))
        self._bands.append((least, _Band(forest)))
        return self._bands[-1][1].at(price)

    def _may_divide(self, price: float, node: Positions, below: Positions, siblings: Positions) -> Mask:
        """Which of these nodes the best cut at this price or a higher one may divide; their children are given too.

        Parts of a node publish pairs of its children or parts of them, each at the tiles of the other end's zone and
        one more. Were all of these published, and what costs more than the price not, they would save no more than
        the sum below. Where the whole node saves more, by far more than rounding, it stays whole.
        """
        assert self._others is not None
        shared, widest = self._others
        volume, cost = self._volume[node], self._cost[node]
        price_of_parts = price - 1 + max(widest + 1 - price, 0.0)
        parts = np.add.reduceat(price_of_parts * self._volume[below] - shared[below], siblings)
        may_divide: Mask = (price * volume - cost) - parts <= 1e-9 * (price * volume + cost)
        return may_divide


class _Band:
    """The same for prices no lower than the one its forest was made for."""

    def __init__(self, forest: Forest) -> None:
        self._prices: list[float] = []
        self._gaps = [Gap(forest)]
        self.held = _HELD * len(forest.node)

    def at(self, price: float) -> tuple[Forest, Mask]:
        """A forest, and which of its nodes are in the best cut at this price, beside those that are fixed."""
        place = bisect_left(self._prices, price)
        known = place < len(self._prices) and self._prices[place] == price
        # The cut at the lower price of a gap divides everything that is undecided in it.
        gap = place + 1 if known else place
        forest = self._gaps[gap].laid_out()
        if forest is not self._gaps[gap].forest:
            self._gaps[gap] = Gap(forest)
            self.held += _HELD * len(forest.node) + len(forest.fixed)
        divided = forest.open if known else forest.divided(price)
        whole = forest.whole(divided)
        if not known:
            self._prices.insert(place, price)
            below = Gap(forest, forest.open & ~divided, whole & ~forest.open)
            above = Gap(forest, divided, whole & (forest.up < 0))
            self._gaps[place : place + 1] = [below, above]
        return forest, whole
