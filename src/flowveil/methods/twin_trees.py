"""Two trees and the safe pairs between them: the search space of TwinCut.

Only safe pairs save anything. With a price (multiplier) ``m`` on every suppressed unit, a pair of cuts costs
``m * volume - sum over its safe pairs of (m * v - cost)``. The best cuts are those whose safe pairs save most. With one
cut fixed, the saving of a node of the other tree is a sum over the fixed zones, and one bottom-up pass finds the best
cut of that tree. The table of safe pairs is computed once; an evaluation reads only the rows of the fixed zones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.methods.pair_tables import Part, by_origin, occurring, part_of
from flowveil.methods.safe_pairs import FLOWS_ALONE, Level, Sketch, at_a_time, safe_depths, sketch
from flowveil.workers import trim_memory

#: Latitudes and longitudes of the tiles, then of the nodes.
Places = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
NO_PLACE = "Distances cannot be minimised: the zones have no place on the map. Hint: use objective='error'."

Goal = Literal["error", "metres", "reconstruction", "cells"]
Positions = NDArray[np.int64]

#: Deepest level that is kept; deeper trees are thinned to it.
DEEPEST = 48

#: Safe pairs that are summed in one batch.
PAIRS_PER_BATCH = 1_000_000


@dataclass(frozen=True)
class Objective:
    """The objective: ``(cost of safe pairs + base * suppressed) / (published volume, or total volume)``.

    Attributes:
        goal: name of the cost.
        total: volume of the input.
        base: cost of a suppressed unit.
        mean: whether the cost is divided by the published volume instead of the total volume.
    """

    goal: Goal
    total: float
    base: float
    mean: bool

    @classmethod
    def from_goal(cls, goal: Goal, total: float) -> Objective:
        """Returns the objective for a goal."""
        return cls(goal=goal, total=total, base=float(goal == "reconstruction"), mean=goal in ("error", "metres"))

    def score(self, cost: float, suppressed: float) -> float:
        """Returns the value to minimise."""
        if not self.mean:
            return (cost + self.base * suppressed) / self.total
        published = self.total - suppressed
        return cost / published if published > 0 else np.inf

    def least_price(self, score: float) -> float:
        """Returns the price of a suppressed unit below which more suppression does not improve this score."""
        return score if self.mean else self.base

    def price_within(self, score: float, price: float, budget: float) -> float:
        """Returns an upper bound for the priced cost of any solution within the budget that beats this score."""
        if self.mean:
            return score * self.total + (price - score) * budget
        return score * self.total + (price - self.base) * budget


@dataclass(frozen=True, eq=False)
class TwinAxis:
    """One tree, reduced to the nodes that occur in a safe pair, with the safe pairs sorted by node.

    Attributes:
        full: the hierarchy.
        sketch: the sketch that the hierarchy was reduced to first.
        nodes: the remaining sketch nodes, in order. All other node numbers here are positions in this array.
        parent: parent of each node.
        layers: for each depth below the root: nodes, their parents, start of each sibling group, parent of each group.
        size: tiles below each node.
        first, other, volume: the safe pairs of node n are the slice ``first[n]:first[n + 1]`` of ``other`` and
            ``volume``, sorted by the node of the other tree.
        priced: cost of each pair, or None if it is the volume times the tiles of both ends.
    """

    full: Hierarchy
    sketch: Sketch
    nodes: Positions
    parent: Positions
    layers: tuple[tuple[Positions, Positions, Positions, Positions], ...]
    size: Floats
    first: Positions
    other: Ints
    volume: NDArray[Any]
    priced: Floats | None

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def length(self) -> Positions:
        """Number of safe pairs of each node."""
        return np.diff(self.first)

    def pairs(self, nodes: Positions) -> tuple[Positions, NDArray[Any], NDArray[Any] | None]:
        """Returns other end, volume and cost (if stored) of the safe pairs of these nodes."""
        start, length = self.first[nodes], self.length[nodes]
        rows = np.repeat(start - (np.cumsum(length) - length), length)
        rows += np.arange(len(rows))
        priced = None if self.priced is None else self.priced[rows]
        return self.other[rows].astype(np.int64), self.volume[rows], priced

    @cached_property
    def _by_depth(self) -> tuple[Positions, list[tuple[slice, slice, Positions, Positions, Positions]]]:
        """Nodes ordered by depth, and the layers in this numbering.

        For each layer: its slice, the slice of the layer above, start of each sibling group, parent of each group, and
        the position of each node's parent within the layer above.
        """
        order = np.concatenate([np.zeros(1, np.int64), *(nodes for nodes, *_ in self.layers)])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        layers, upper = [], slice(0, 1)
        for nodes, above, siblings, parents in self.layers:
            here = slice(upper.stop, upper.stop + len(nodes))
            layers.append((here, upper, siblings, place[parents], place[above] - upper.start))
            upper = here
        return order, layers

    def best(self, saving: Floats) -> tuple[Positions, Floats, Floats]:
        """Returns the cut with the largest saving, and for each node the best saving and the saving if divided.

        The coarser cut wins ties.
        """
        order, _ = self._by_depth
        split, value, together = self._divided(saving)
        best, divided = np.empty(len(self)), np.empty(len(self))
        best[order], divided[order] = value, together
        return self._reached(split), best, divided

    def best_cut(self, saving: Floats) -> Positions:
        """Returns the cut of `best` alone."""
        return self._reached(self._divided(saving)[0])

    def _divided(self, saving: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Returns which nodes are divided, their best savings and their savings if divided, ordered by depth."""
        order, layers = self._by_depth
        best = saving[order]
        divided = np.full(len(self), -np.inf)
        split = np.zeros(len(self), dtype=np.bool_)
        for here, _, siblings, parents, _ in reversed(layers):
            together = np.add.reduceat(best[here], siblings)
            whole = best[parents]
            divided[parents] = together
            finer = together > whole
            split[parents] = finer
            best[parents] = np.where(finer, together, whole)
        return split, best, divided

    def reached(self, split: NDArray[np.bool_]) -> Positions:
        """Returns the undivided nodes whose ancestors are all divided."""
        return self._reached(split[self._by_depth[0]])

    def _reached(self, split: NDArray[np.bool_]) -> Positions:
        order, layers = self._by_depth
        reached = np.zeros(len(self), dtype=np.bool_)
        reached[0] = True
        for here, upper, _, _, above in layers:
            reached[here] = (reached[upper] & split[upper])[above]
        return np.sort(order[reached & ~split])

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
        found = FoundPairs.from_flows(flows, guarantee, goal)
        return found.laid_out() if found.parts else None

    def cost(self) -> Floats:
        """Returns the cost of each safe pair, in the order of the origin axis."""
        axis = self.origins
        if axis.priced is not None:
            return axis.priced
        return axis.volume * (np.repeat(axis.size, np.diff(axis.first)) + self.destinations.size[axis.other])

    def axis(self, end: int) -> TwinAxis:
        """Returns the origin axis (0) or the destination axis (1)."""
        return self.destinations if end else self.origins

    def given(self, end: int, cut: Positions) -> Costs:
        """Returns cost and volume of the nodes of one tree, with the cut of the tree at ``end`` fixed."""
        fixed, free = self.axis(end), self.axis(1 - end)
        volume, cost = np.zeros(len(free)), np.zeros(len(free))
        # In batches: temporary arrays stay small compared with the tables.
        batch = np.cumsum(fixed.length[cut]) // PAIRS_PER_BATCH
        for nodes in np.split(cut, np.flatnonzero(np.diff(batch)) + 1):
            other, each, priced = fixed.pairs(nodes)
            if priced is None:
                priced = each * np.repeat(fixed.size[nodes], fixed.length[nodes])
            volume += np.bincount(other, weights=each, minlength=len(free))
            cost += np.bincount(other, weights=priced, minlength=len(free))
        if free.priced is None:
            cost += free.size * volume
        return Costs(free, self.objective, cost, volume, evaluated={}, halves={}, answered={})


@dataclass(frozen=True, eq=False)
class FoundPairs:
    """The safe pairs, grouped by origin depth.

    Attributes:
        flows, sketches: the flows and the reduced trees.
        objective: the objective.
        parts: the pairs of each origin depth.
    """

    flows: Flows
    sketches: tuple[Sketch, Sketch]
    objective: Objective
    parts: list[Part]

    @classmethod
    def from_flows(
        cls, flows: Flows, guarantee: Guarantee, goal: Goal, *, beside: Callable[[], None] | None = None
    ) -> FoundPairs:
        """Finds the safe pairs.

        Args:
            flows: the flows.
            guarantee: decides which pairs are safe.
            goal: the cost of a pair.
            beside: callback run concurrently with the single-threaded setup.
        """
        origins, destinations = (
            sketch(tree, tile, flows, guarantee, max_depth=DEEPEST)
            for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
        )
        price = None if goal == "error" else PairCost(flows, guarantee.basis, goal, (origins, destinations))

        def make(levels: list[Level]) -> Part:
            return part_of(levels, None if price is None else [price.cost(level) for level in levels])

        parts = list(safe_depths(flows, guarantee, origins, destinations, make, beside=beside))
        if len(flows) >= FLOWS_ALONE:
            trim_memory()
        total = float(np.sum(flows.volume(guarantee.basis)))
        return cls(flows, (origins, destinations), Objective.from_goal(goal, total), parts)

    def laid_out(self) -> TwinTrees:
        """Returns both trees with their tables. Consumes the parts."""
        flows, sketches = self.flows, self.sketches
        ends = [_occurring(s, nodes) for s, nodes in zip(sketches, occurring(self.parts, sketches), strict=True)]
        threads = at_a_time(len(flows))
        across = by_origin(self.parts, ends[0], ends[1], threads=threads)
        axes = [
            TwinAxis(
                full=full,
                sketch=reduced,
                nodes=nodes,
                parent=np.where(nodes > 0, number[np.maximum(reduced.tree.parent[nodes], 0)], -1),
                layers=_layers(reduced.tree, nodes, number),
                size=reduced.size[nodes].astype(np.float64),
                first=table.first,
                other=table.other,
                volume=table.volume,
                priced=table.priced,
            )
            for full, reduced, (nodes, number), table in (
                (flows.origins, sketches[0], ends[0], across),
                (flows.destinations, sketches[1], ends[1], across.turned(len(ends[1][0]), threads=threads)),
            )
        ]
        return TwinTrees(axes[0], axes[1], self.objective, thinned=any(s.thinned for s in sketches))


def _occurring(reduced: Sketch, occurs: NDArray[np.bool_]) -> tuple[Positions, Positions]:
    """Returns the nodes that occur, and the number of each.

    If a divisible node occurs but none of its children does, its first child is added to represent them. Dividing the
    node then suppresses its volume.
    """
    tree = reduced.tree
    below = np.bincount(tree.parent[1:][occurs[1:]], minlength=tree.n_nodes)
    barren = np.flatnonzero(occurs & ~tree.is_leaf & (below == 0))
    occurs[barren + 1] = True
    return np.flatnonzero(occurs), np.cumsum(occurs) - 1


def _layers(
    tree: Hierarchy, nodes: Positions, number: Positions
) -> tuple[tuple[Positions, Positions, Positions, Positions], ...]:
    layers = []
    depth = tree.depth[nodes]
    for d in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == d)
        above = number[tree.parent[nodes[here]]]
        first = np.flatnonzero(np.concatenate(([True], above[1:] != above[:-1])))
        layers.append((here, above, first, above[first]))
    return tuple(layers)


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost and volume of the nodes of one tree, with the cut of the other tree fixed.

    Satisfies `flowveil.methods.pruning.Prunable`.

    Attributes:
        axis: the tree.
        objective: the objective.
        cost, volume: of each node.
        evaluated: cache of `evaluate`, by price.
        halves: cache of best cuts, by price. Filled by the caller.
        answered: cache of `best_within`, by price, score to beat and number of choices. Filled by the caller.
    """

    axis: TwinAxis
    objective: Objective
    cost: Floats
    volume: Floats
    evaluated: dict[float, tuple[float, float]]
    halves: dict[float, Half]
    answered: dict[tuple[float, float, int | None], Any]

    @property
    def n_cached(self) -> int:
        """About how many numbers this holds."""
        return (4 + 2 * len(self.halves)) * len(self.axis)

    @property
    def lost(self) -> float:
        """Volume that no cut publishes: the part in which even the root is not safe."""
        return self.objective.total - float(self.volume[0])

    def at(self, price: float) -> Half:
        """Returns the best cut at this price of a suppressed unit."""
        cut = self.axis.best_cut(price * self.volume - self.cost)
        cost, suppressed = self.totals(cut)
        return Half(self.axis, (self.cost, self.volume), cut=cut, cost=cost, suppressed=suppressed, price=price)

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Returns the smallest priced cost at this price, and the suppressed volume."""
        if multiplier not in self.evaluated:
            cost, suppressed = self.totals(self.axis.best_cut(multiplier * self.volume - self.cost))
            self.evaluated[multiplier] = cost + multiplier * suppressed, suppressed
        return self.evaluated[multiplier]

    def totals(self, cut: Positions) -> tuple[float, float]:
        """Returns cost and suppressed volume of a cut."""
        return float(self.cost[cut].sum()), self.objective.total - float(self.volume[cut].sum())


@dataclass(frozen=True, eq=False)
class Half:
    """The best cut of one tree at a price.

    Attributes:
        axis: the tree.
        of_nodes: cost and volume of its nodes. Not the `Costs` itself, which would create a reference cycle.
        cut: the nodes of the cut.
        cost, suppressed: cost and suppressed volume of the cut.
        price: price of a suppressed unit.
    """

    axis: TwinAxis
    of_nodes: tuple[Floats, Floats]
    cut: Positions
    cost: float
    suppressed: float
    price: float

    @cached_property
    def _savings(self) -> tuple[Floats, Floats]:
        cost, volume = self.of_nodes
        _, best, divided = self.axis.best(self.price * volume - cost)
        return best, divided

    @property
    def best(self) -> Floats:
        """Largest saving in the subtree of each node."""
        return self._savings[0]

    @property
    def divided(self) -> Floats:
        """Largest saving in the subtree of each node if the node is divided."""
        return self._savings[1]


class PairCost:
    """Computes the cost of safe pairs, level by level.

    If time is an end, an hour of a pair costs as much as ``time_weight`` tiles, and flows are spread over time steps as
    well as over tiles.
    """

    def __init__(
        self,
        flows: Flows,
        basis: str,
        goal: Goal,
        sketches: Sequence[Sketch],
        *,
        time_weight: float = 0.0,
    ) -> None:
        self.goal = goal
        self.flows = flows
        self.volume = flows.volume(basis).astype(np.float64)
        self.sketches = sketches
        self.steps: Floats = np.ones(1)
        self.time_cost: Floats = np.zeros(1)
        if len(sketches) > 2 and flows.times is not None:
            self.steps = sketches[2].size.astype(np.float64)
            self.time_cost = time_weight * flows.times.hours[sketches[2].node]
        self.moved: dict[tuple[int, int], Floats] = {}
        self.places: dict[int, Places] = {}

    def cost(self, level: Level) -> Floats:
        """Returns the cost of publishing each pair."""
        size_o = self.sketches[0].size[level.origin].astype(np.float64)
        size_d = self.sketches[1].size[level.destination].astype(np.float64)
        if self.goal == "cells":
            return np.full(len(size_o), -1.0)
        if self.goal == "error":
            wide = 0.0 if level.time is None else self.time_cost[level.time]
            cost: Floats = level.volume * (size_o + size_d + wide)
            return cost
        if self.goal == "reconstruction":
            steps = 1.0 if level.time is None else self.steps[level.time]
            return self._scattered(level, size_o * size_d * steps)
        return self._moved(level)

    def _scattered(self, level: Level, places: Floats) -> Floats:
        """Returns the distance of the flows of each pair from an even spread over its tile pairs."""
        row, pair = level.rows()
        each = level.volume / places
        apart = np.bincount(pair, weights=np.abs(self.volume[row] - each[pair]), minlength=len(places))
        filled = level.stop - level.start
        return apart + (places - filled) * each

    def _moved(self, level: Level) -> Floats:
        """Returns the metres between tiles and node centres, weighted by volume; the mean of both ends."""
        row, pair = level.rows()
        metres = np.zeros(len(row))
        ends = (
            (self.flows.origins, self.flows.origin, level.origin),
            (self.flows.destinations, self.flows.destination, level.destination),
        )
        for end, (full, tile, node) in enumerate(ends):
            reduced = self.sketches[end]
            depth = int(reduced.tree.depth[node[0]])
            if (end, depth) not in self.moved:
                if end not in self.places:
                    self.places[end] = _places(full, reduced)
                self.moved[end, depth] = _metres_to_ancestor(self.places[end], reduced, depth)
            metres += self.moved[end, depth][tile[row]]
        moved = np.bincount(pair, weights=self.volume[row] * metres / 2, minlength=len(level.start))
        return moved.astype(np.float64)


def _places(full: Hierarchy, reduced: Sketch) -> Places:
    """Returns the centres of all tiles and of all nodes.

    Raises:
        DataError: the hierarchy has no geography.
    """
    if full.geography is None:
        raise DataError(NO_PLACE)
    return full.geography.centers(full.leaf_node), full.geography.centers(reduced.node)


def _metres_to_ancestor(places: Places, reduced: Sketch, depth: int) -> Floats:
    """Returns the distance of every tile to the centre of its ancestor at this depth; 0 for tiles above that depth."""
    tree = reduced.tree
    node = tree.leaf_node[reduced.leaf_of_tile]
    for _ in range(tree.max_depth - depth):
        node = np.where(tree.depth[node] > depth, tree.lift(node), node)
    tiles, (lat, lon) = places
    return np.where(tree.depth[node] == depth, _metres_between(tiles, (lat[node], lon[node])), 0.0)


def metres_moved(tree: Hierarchy, tile: NDArray[Any], centers: tuple[Floats, Floats] | None) -> Floats:
    """Returns the geodesic distance (WGS 84) of each tile to its given centre.

    Raises:
        DataError: the tiles or the centres have no coordinates.
    """
    if tree.geography is None or centers is None:
        raise DataError(NO_PLACE)
    # Many flows share a tile.
    used, at = np.unique(tile, return_inverse=True)
    lat, lon = tree.geography.centers(tree.leaf_node[used])
    return _metres_between((lat[at], lon[at]), centers)


def _metres_between(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> Floats:
    from pyproj import Geod

    _, _, metres = Geod(ellps="WGS84").inv(one[1], one[0], other[1], other[0])
    return np.asarray(metres, dtype=np.float64)
