"""Two trees and the safe pairs between them: the search space of TwinCut.

Only safe pairs save anything. With a price (multiplier) ``m`` on every suppressed unit, a pair of cuts costs
``m * volume - sum over its safe pairs of (m * v - cost)``. The best cuts are those whose safe pairs save most. With one
cut fixed, the saving of a node of the other tree is a sum over the fixed zones, and one bottom-up pass finds the best
cut of that tree. The table of safe pairs is computed once; an evaluation reads only the rows of the fixed zones.

Measured by `python -m benchmarks methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.methods.safe_pairs import Level, Sketch, safe_levels, sketch

NO_PLACE = "Distances cannot be minimised: the zones have no place on the map. Hint: use objective='error'."

Goal = Literal["error", "metres", "reconstruction", "cells"]
Positions = NDArray[np.int64]

#: Deepest level that is kept; deeper trees are thinned to it.
DEEPEST = 48


@dataclass(frozen=True)
class Objective:
    """The objective: ``(cost of safe pairs + base * suppressed) / (published volume, or total volume)``.

    ``base`` is the cost of a suppressed unit; with ``mean`` the cost is divided by the published volume.
    """

    total: float
    base: float
    mean: bool

    @classmethod
    def from_goal(cls, goal: Goal, total: float) -> Objective:
        """Returns the objective for a goal."""
        return cls(total, base=float(goal == "reconstruction"), mean=goal in ("error", "metres"))

    def scores(self, cost: Any, suppressed: Any) -> Any:
        """Returns the value to minimise; of numbers or arrays."""
        if not self.mean:
            return (cost + self.base * suppressed) / self.total
        published = self.total - suppressed
        return np.where(published > 0, cost / np.where(published > 0, published, 1.0), np.inf)

    def score(self, cost: float, suppressed: float) -> float:
        """Returns the value to minimise."""
        return float(self.scores(cost, suppressed))

    def least_price(self, score: float) -> float:
        """Returns the price of a suppressed unit below which more suppression does not improve this score."""
        return score if self.mean else self.base

    def price_within(self, score: float, price: float, budget: float) -> float:
        """Returns an upper bound for the priced cost of any solution within the budget that beats this score."""
        return score * self.total + (price - self.least_price(score)) * budget


@dataclass(frozen=True, eq=False)
class TwinAxis:
    """One tree, reduced to the nodes that occur in a safe pair, with the safe pairs sorted by node.

    Attributes:
        full, sketch: the hierarchy, and the sketch that it was reduced to first.
        nodes: the remaining sketch nodes, in order. All other node numbers here are positions in this array.
        layers: for each depth below the root: nodes, their parents, start of each sibling group, parent of each group.
        first: the safe pairs of node n are the slice ``first[n]:first[n + 1]`` of other node, volume and cost.
    """

    full: Hierarchy
    sketch: Sketch
    nodes: Positions
    parent: Positions
    layers: tuple[tuple[Positions, Positions, Positions, Positions], ...]
    first: Positions
    other: Ints
    volume: NDArray[Any]
    cost: Floats

    @classmethod
    def from_pairs(
        cls, full: Hierarchy, reduced: Sketch, occurring: Any, ends: tuple[Ints, Ints], pairs: Sequence[NDArray[Any]]
    ) -> TwinAxis:
        """Lays out the pairs: ``ends`` are sketch node here and node number there, ``pairs`` volume and cost."""
        nodes, number = np.flatnonzero(occurring), np.cumsum(occurring, dtype=np.int32) - np.int32(1)
        own, other = number[ends[0]], ends[1]
        order = np.lexsort((other, own))
        parent = np.where(nodes > 0, number[np.maximum(reduced.tree.parent[nodes], 0)], -1).astype(np.int64)
        layers = []
        depth = reduced.tree.depth[nodes]
        for d in range(1, int(depth.max()) + 1):
            here = np.flatnonzero(depth == d)
            above = parent[here]
            group = np.flatnonzero(np.append(True, above[1:] != above[:-1]))
            layers.append((here, above, group, above[group]))
        first = np.concatenate(([0], np.cumsum(np.bincount(own, minlength=len(nodes)))))
        volume, cost = (column[order] for column in pairs)
        return cls(full, reduced, nodes, parent, tuple(layers), first, other[order], volume, cost)

    def __len__(self) -> int:
        return len(self.nodes)

    def rows(self, nodes: Positions) -> Positions:
        """Returns the positions of the safe pairs of these nodes."""
        length = self.first[nodes + 1] - self.first[nodes]
        rows = np.repeat(self.first[nodes] - (np.cumsum(length) - length), length)
        return rows + np.arange(len(rows))

    def best(self, saving: Floats) -> tuple[Positions, Floats, Floats]:
        """Returns the cut with the largest saving, and for each node the best saving and the saving if divided.

        The coarser cut wins ties.
        """
        best, divided = saving.copy(), np.full(len(self), -np.inf)
        for nodes, _, siblings, parents in reversed(self.layers):
            divided[parents] = np.add.reduceat(best[nodes], siblings)
            best[parents] = np.maximum(best[parents], divided[parents])
        return self.reached(divided > saving), best, divided

    def reached(self, split: NDArray[np.bool_]) -> Positions:
        """Returns the undivided nodes whose ancestors are all divided."""
        reached = np.zeros(len(self), dtype=np.bool_)
        reached[0] = True
        for nodes, above, _, _ in self.layers:
            reached[nodes] = (reached & split)[above]
        return np.flatnonzero(reached & ~split)

    def to_full(self, cut: Positions) -> Ints:
        """Returns the cut of the full hierarchy in which exactly the ancestors of these nodes are divided."""
        tree = self.sketch.tree
        whole = np.zeros(tree.n_nodes, dtype=np.bool_)
        whole[self.nodes[cut]] = True
        before = np.concatenate(([0], np.cumsum(whole)))
        divided = before[tree.stop] - before[1:] > 0
        zone = ~divided
        zone[1:] &= divided[tree.parent[1:]]
        return self.sketch.node[np.flatnonzero(zone)]

    def from_full(self, cut: Ints) -> Positions:
        """Returns the nodes of a cut of the full hierarchy that occur in a safe pair."""
        inside = np.zeros(self.full.n_nodes, dtype=np.bool_)
        inside[self.full.narrowest[cut]] = True
        return np.flatnonzero(inside[self.sketch.node[self.nodes]])


@dataclass(frozen=True, eq=False)
class TwinTrees:
    """Both trees, the safe pairs between them, and the objective.

    ``thinned`` is True if a tree was too deep and lost nodes; cuts that need those nodes are not found.
    """

    origins: TwinAxis
    destinations: TwinAxis
    objective: Objective
    thinned: bool = False

    @classmethod
    def from_flows(cls, flows: Flows, guarantee: Guarantee, goal: Goal = "error") -> TwinTrees | None:
        """Returns the trees with all safe pairs and their costs, or None if there are no safe pairs."""
        sketches = [
            sketch(tree, tile, flows, guarantee, max_depth=DEEPEST)
            for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
        ]
        price = PairCost(flows, guarantee.basis, goal, sketches)
        found = [
            (level.origin, level.destination, narrowed(level.volume), price.cost(level))
            for level in safe_levels(flows, guarantee, *sketches)
        ]
        if not found:
            return None
        # One column at a time, removed before the next is made: together they are most of the memory.
        columns = [list(column) for column in zip(*found, strict=True)]
        del found
        origin, destination, volume, cost = (np.concatenate(columns.pop(0)) for _ in range(4))
        occurring = [_occurring(s, nodes) for s, nodes in zip(sketches, (origin, destination), strict=True)]
        numbers = [(np.cumsum(occurs, dtype=np.int32) - np.int32(1)) for occurs in occurring]
        pairs = volume, cost
        ends = (origin, numbers[1][destination]), (destination, numbers[0][origin])
        trees = flows.origins, flows.destinations
        axes = [TwinAxis.from_pairs(*end, pairs) for end in zip(trees, sketches, occurring, ends, strict=True)]
        objective = Objective.from_goal(goal, float(np.sum(flows.volume(guarantee.basis))))
        return cls(axes[0], axes[1], objective, thinned=any(s.thinned for s in sketches))

    def axis(self, end: int) -> TwinAxis:
        """Returns the origin axis (0) or the destination axis (1)."""
        return self.destinations if end else self.origins

    def given(self, end: int, cut: Positions) -> Costs:
        """Returns cost and volume of the nodes of one tree, with the cut of the tree at ``end`` fixed."""
        fixed, free = self.axis(end), self.axis(1 - end)
        rows = fixed.rows(cut)
        other = fixed.other[rows]
        # `bincount` without rows returns integers.
        cost, volume = (
            np.bincount(other, weights=column[rows], minlength=len(free)).astype(np.float64)
            for column in (fixed.cost, fixed.volume)
        )
        return Costs(free, self.objective, cost, volume)


def _occurring(reduced: Sketch, nodes: Ints) -> NDArray[np.bool_]:
    """Returns which nodes of a sketch are kept: those of these pairs.

    If a divisible node occurs but none of its children does, its first child is added to represent them. Dividing the
    node then suppresses its volume.
    """
    tree = reduced.tree
    occurs = np.zeros(tree.n_nodes, dtype=np.bool_)
    occurs[nodes] = True
    below = np.bincount(tree.parent[1:][occurs[1:]], minlength=tree.n_nodes)
    occurs[np.flatnonzero(occurs & ~tree.is_leaf & (below == 0)) + 1] = True
    return occurs


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost and volume of the nodes of one tree, with the cut of the other tree fixed; a `Prunable` problem.

    ``halves`` is the cache of `at`, by price.
    """

    axis: TwinAxis
    objective: Objective
    cost: Floats
    volume: Floats
    halves: dict[float, Half] = field(default_factory=dict)

    @property
    def lost(self) -> float:
        """Volume that no cut publishes."""
        return self.objective.total - float(self.volume[0])

    def saving(self, price: float) -> Floats:
        """Returns the saving of each node as a zone, at this price of a suppressed unit."""
        return price * self.volume - self.cost

    def at(self, price: float) -> Half:
        """Returns the best cut at this price of a suppressed unit."""
        if price not in self.halves:
            cut, _, _ = self.axis.best(self.saving(price))
            self.halves[price] = Half(cut, *self.totals(cut), price)
        return self.halves[price]

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Returns the smallest priced cost at this price, and the suppressed volume."""
        half = self.at(multiplier)
        return half.cost + multiplier * half.suppressed, half.suppressed

    def totals(self, cut: Positions) -> tuple[float, float]:
        """Returns cost and suppressed volume of a cut."""
        return float(self.cost[cut].sum()), self.objective.total - float(self.volume[cut].sum())


class Half(NamedTuple):
    """The best cut of one tree at a price of a suppressed unit."""

    cut: Positions
    cost: float
    suppressed: float
    price: float


def narrowed(volume: NDArray[Any]) -> NDArray[Any]:
    """Returns counts as int32 if they fit, and as float64 otherwise: a nation has a hundred million pairs."""
    fits = volume.dtype.kind == "i" and int(volume.max(initial=0)) < 2**31
    return volume.astype(np.int32 if fits else np.float64)


class PairCost:
    """Computes the cost of safe pairs, level by level.

    If columns fold, the width of a pair's node (an hour, a step up) costs as many tiles as the fold's weight, and flows
    are spread over values as well as over tiles.
    """

    def __init__(
        self, flows: Flows, basis: str, goal: Goal, sketches: Sequence[Sketch], *, weights: Sequence[float] = ()
    ) -> None:
        self.goal, self.flows, self.sketches = goal, flows, sketches
        self.volume = flows.volume(basis).astype(np.float64)
        # Of each node of the folds: the values below, and the tiles that its width is worth.
        self.n_values = [own.size.astype(np.float64) for own in sketches[2:]]
        self.width_cost = [
            weight * fold.width[own.node]
            for weight, fold, own in zip(weights, flows.folds[: len(sketches) - 2], sketches[2:], strict=True)
        ]
        self.moved: dict[tuple[int, int], Floats] = {}

    def cost(self, level: Level) -> Floats:
        """Returns the cost of publishing each pair."""
        size_o = self.sketches[0].size[level.origin].astype(np.float64)
        size_d = self.sketches[1].size[level.destination].astype(np.float64)
        if self.goal == "cells":
            return np.full(len(size_o), -1.0)
        if self.goal == "error":
            size = size_o + size_d
            for width_cost, node in zip(self.width_cost, level.node[2:], strict=True):
                size += width_cost[node]
            return np.asarray(level.volume * size)
        if self.goal == "reconstruction":
            places = size_o * size_d
            for n_values, node in zip(self.n_values, level.node[2:], strict=True):
                places *= n_values[node]
            return self._scattered(level, places)
        return self._moved(level)

    def _scattered(self, level: Level, places: Floats) -> Floats:
        """Returns the distance of the flows of each pair from an even spread over its tile pairs."""
        row, pair = level.rows()
        each = level.volume / places
        apart = np.bincount(pair, weights=np.abs(self.volume[row] - each[pair]), minlength=len(places))
        return np.asarray(apart + (places - (level.stop - level.start)) * each)

    def _moved(self, level: Level) -> Floats:
        """Returns the metres between tiles and node centres, weighted by volume; the mean of both ends."""
        row, pair = level.rows()
        metres = np.zeros(len(row))
        ends = (self.flows.origin, level.origin), (self.flows.destination, level.destination)
        for end, (tile, node) in enumerate(ends):
            depth = int(self.sketches[end].tree.depth[node[0]])
            if (end, depth) not in self.moved:
                self.moved[end, depth] = self._metres_to_ancestor(end, depth)
            metres += self.moved[end, depth][tile[row]]
        return np.bincount(pair, weights=self.volume[row] * metres / 2, minlength=len(level.start)).astype(np.float64)

    def _metres_to_ancestor(self, end: int, depth: int) -> Floats:
        """Returns the distance of every tile to the centre of its ancestor at this depth; 0 for tiles above it."""
        full, reduced = (self.flows.destinations if end else self.flows.origins), self.sketches[end]
        tree = reduced.tree
        node = tree.leaf_node[reduced.leaf_of_tile]
        for _ in range(tree.max_depth - depth):
            node = np.where(tree.depth[node] > depth, tree.lift(node), node)
        centers = None if full.geography is None else full.geography.centers(reduced.node[node])
        metres = metres_moved(full, np.arange(full.n_tiles), centers)
        return np.where(tree.depth[node] == depth, metres, 0.0)


def metres_moved(tree: Hierarchy, tile: NDArray[Any], centers: tuple[Floats, Floats] | None) -> Floats:
    """Returns the geodesic distance (WGS 84) of each tile to its given centre.

    Raises:
        DataError: the tiles or the centres have no coordinates.
    """
    if tree.geography is None or centers is None:
        raise DataError(NO_PLACE)
    from pyproj import Geod

    # Many flows share a tile.
    used, at = np.unique(tile, return_inverse=True)
    lat, lon = tree.geography.centers(tree.leaf_node[used])
    _, _, metres = Geod(ellps="WGS84").inv(lon[at], lat[at], centers[1], centers[0])
    return np.asarray(metres, dtype=np.float64)
