"""Two trees and the safe pairs between them: what TwinCut optimises over.

Only safe pairs save anything. With a price (multiplier) ``m`` on every suppressed unit, a pair of cuts costs
``m * volume - sum over its safe pairs of (m * v - cost)``, so the best cuts are those whose safe pairs save most. With
one cut fixed, the saving of a node of the other tree is the sum over the fixed zones, and the best cut of that tree
is one pass from the leaves up. The table of safe pairs is computed once; an evaluation touches the rows of the fixed
zones only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.memory import give_back
from flowveil.methods.pair_tables import Part, by_origin, occurring, part_of
from flowveil.methods.price_gaps import Families, PriceGaps
from flowveil.methods.safe_pairs import FLOWS_ALONE, Level, Sketch, at_a_time, safe_depths, sketch
from flowveil.methods.smallest_sizes import KNOWN, SmallestSizes, is_affordable

#: Latitudes and longitudes of tiles, and of nodes.
Places = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
NO_PLACE = "Distances cannot be minimised: the zones have no place on the map. Hint: use objective='error'."

Goal = Literal["error", "metres", "reconstruction", "cells"]
Positions = NDArray[np.int64]

#: Depth to which very deep trees are thinned.
DEEPEST = 48

#: Pairs that are added up at once.
_AT_A_TIME = 1_000_000


@dataclass(frozen=True)
class Objective:
    """What is minimised: ``(cost of safe pairs + base * suppressed) / (published volume, or the whole)``.

    Attributes:
        goal: name of the cost.
        total: volume of the input.
        base: what a suppressed unit costs by itself.
        mean: whether the cost is divided by the published volume; else by the whole.
    """

    goal: Goal
    total: float
    base: float
    mean: bool

    @classmethod
    def from_goal(cls, goal: Goal, total: float) -> Objective:
        """The objective of that name."""
        return cls(goal=goal, total=total, base=float(goal == "reconstruction"), mean=goal in ("error", "metres"))

    def score(self, cost: float, suppressed: float) -> float:
        """The value to minimise."""
        if not self.mean:
            return (cost + self.base * suppressed) / self.total
        published = self.total - suppressed
        return cost / published if published > 0 else np.inf

    def least_price(self, score: float) -> float:
        """The price of a suppressed unit below which suppressing more would not improve this score."""
        return score if self.mean else self.base

    def price_within(self, score: float, price: float, budget: float) -> float:
        """What a solution better than this score costs at most, suppressed units priced, where the budget is kept."""
        if self.mean:
            return score * self.total + (price - score) * budget
        return score * self.total + (price - self.base) * budget


@dataclass(frozen=True, eq=False)
class TwinAxis:
    """One tree, reduced to nodes that occur in a safe pair, and the safe pairs sorted by its nodes.

    A node that occurs in none saves nothing, so it needs no place in the optimisation.

    Attributes:
        full: the hierarchy.
        sketch: the sketch it was reduced to first.
        nodes: the sketch nodes that are left, in order; the numbers used everywhere else here are positions in this.
        parent: the tree.
        layers: for each depth below the root: its nodes, their parents, where siblings begin, their parents once.
        size: tiles below each node.
        first, other, volume: the safe pairs of node n are the slice ``first[n]:first[n + 1]`` of the rest, sorted
            by the node of the other tree. A nation has a hundred million of them, so they are as small as they can be.
        priced: what each pair costs, where that is not its volume times the tiles of both ends.
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
        """How many safe pairs each node has."""
        return np.diff(self.first)

    def pairs(self, nodes: Positions) -> tuple[Positions, NDArray[Any], NDArray[Any] | None]:
        """Of the safe pairs of these nodes: the other end as a place in an array, volume, and price if it is kept."""
        start, length = self.first[nodes], self.length[nodes]
        rows = np.repeat(start - (np.cumsum(length) - length), length)
        rows += np.arange(len(rows))
        priced = None if self.priced is None else self.priced[rows]
        return self.other[rows].astype(np.int64), self.volume[rows], priced

    @cached_property
    def _by_depth(self) -> tuple[Positions, list[tuple[slice, slice, Positions, Positions, Positions]]]:
        """The nodes by depth, where those of a depth are a slice, and the layers in these numbers.

        Of each layer: its slice, that of the layer above, where siblings begin, their parents once, and the place of
        each node's parent in the layer above.
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

    @cached_property
    def families(self) -> Families:
        """The tree as prunings need it."""
        order, layers = self._by_depth
        above = np.concatenate([np.zeros(0, np.int64), *(up + upper.start for _, upper, _, _, up in layers)])
        count = np.bincount(above, minlength=len(order))
        return Families(order, np.cumsum(count) - count + 1, count)

    def best(self, saving: Floats) -> tuple[Positions, Floats, Floats]:
        """The cut with the largest saving, coarser on ties; each node's best saving, and its saving if divided."""
        order, _ = self._by_depth
        split, value, together = self._divided(saving)
        best, divided = np.empty(len(self)), np.empty(len(self))
        best[order], divided[order] = value, together
        return self._reached(split), best, divided

    def best_cut(self, saving: Floats) -> Positions:
        """The cut that `best` finds."""
        return self._reached(self._divided(saving)[0])

    def _divided(self, saving: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """By depth: which nodes are divided, their best savings, and their savings if divided."""
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
        """The nodes that stay whole and whose ancestors are all divided."""
        return self._reached(split[self._by_depth[0]])

    def _reached(self, split: NDArray[np.bool_]) -> Positions:
        order, layers = self._by_depth
        reached = np.zeros(len(self), dtype=np.bool_)
        reached[0] = True
        for here, upper, _, _, above in layers:
            reached[here] = (reached[upper] & split[upper])[above]
        return np.sort(order[reached & ~split])

    def to_full(self, cut: Positions) -> Ints:
        """The cut of the full hierarchy: everything above these nodes is divided, nothing else is."""
        tree = self.sketch.tree
        whole = np.zeros(tree.n_nodes, dtype=np.bool_)
        whole[self.nodes[cut]] = True
        before = np.concatenate(([0], np.cumsum(whole)))
        divided = before[tree.stop] - before[1:] > 0
        zone = ~divided
        zone[1:] &= divided[tree.parent[1:]]
        return self.sketch.node[np.flatnonzero(zone)]

    def from_full(self, cut: Ints) -> Positions:
        """The nodes of a cut of the full hierarchy that occur in safe pairs here; nodes that were left out are lost."""
        inside = np.zeros(self.full.n_nodes, dtype=np.bool_)
        inside[self.full.narrowest[cut]] = True
        return np.flatnonzero(inside[self.sketch.node[self.nodes]])


@dataclass(frozen=True, eq=False)
class TwinTrees:
    """Both trees, the safe pairs between them, and what is to be minimised.

    ``thinned`` where a tree was so deep that some of its nodes were left out: cuts that need them are not found.
    ``summed`` is the last cut of each end whose rows were summed, with what that came to.
    """

    origins: TwinAxis
    destinations: TwinAxis
    objective: Objective
    thinned: bool = False
    summed: dict[int, tuple[Positions, Floats, Floats]] = field(default_factory=dict)

    @classmethod
    def from_flows(cls, flows: Flows, guarantee: Guarantee, goal: Goal = "error") -> TwinTrees | None:
        """Find the safe pairs and what each costs; None where there is none."""
        found = FoundPairs.from_flows(flows, guarantee, goal)
        return found.laid_out() if found.parts else None

    def cost(self) -> Floats:
        """What each safe pair costs, in the order of the origins' axis."""
        axis = self.origins
        if axis.priced is not None:
            return axis.priced
        return axis.volume * (np.repeat(axis.size, np.diff(axis.first)) + self.destinations.size[axis.other])

    def axis(self, end: int) -> TwinAxis:
        """Origins (0) or destinations (1)."""
        return self.destinations if end else self.origins

    @cached_property
    def sums_exactly(self) -> bool:
        """Whether all that is summed is whole numbers that a double holds: in any order they come to the same."""
        axis = self.origins
        most = 4 * self.objective.total * (axis.size.max() + self.destinations.size.max())
        return bool(axis.priced is None and axis.volume.dtype.kind == "i" and most < 2**53)

    def given(self, end: int, cut: Positions) -> Costs:
        """What the nodes of the other tree cost and publish, with this cut of the tree of one end fixed."""
        free = self.axis(1 - end)
        volume, cost = self._sums(end, cut)
        others = None
        if free.priced is None:
            others = cost, float(self.axis(end).size[cut].max(initial=0.0))
            cost = cost + free.size * volume
        gaps = PriceGaps(free.families, cost, volume, others)
        return Costs(free, self.objective, cost, volume, gaps, evaluated={}, halves={}, answered={})

    def _sums(self, end: int, cut: Positions) -> tuple[Floats, Floats]:
        """Volume and cost of the nodes of the other tree, where cost has no price without their own tiles.

        The search changes a cut little by little, so what was summed for the last one is kept and only pairs of nodes
        that come or go are added or taken off. Where sums are the same in any order only: others are made anew, and at
        once.
        """
        fixed, n = self.axis(end), len(self.axis(1 - end))
        if not self.sums_exactly:
            return _added_up(fixed, cut, None, n)
        length, nodes, sign = fixed.length, cut, None
        last = self.summed.get(end)
        if last is not None:
            change = np.zeros(len(fixed), dtype=np.int8)
            change[cut] = 1
            change[last[0]] -= 1
            nodes = np.flatnonzero(change)
            sign = change[nodes]
            if length[nodes].sum() >= length[cut].sum():
                last, nodes, sign = None, cut, None
        # So many pairs at a time that what is worked out with them stays small beside the tables.
        upto = np.cumsum(length[nodes])
        edges = np.unique(np.searchsorted(upto, np.arange(_AT_A_TIME, int(upto[-1]) if len(upto) else 0, _AT_A_TIME)))
        sums = None if last is None else last[1:]
        for a, b in itertools.pairwise((0, *edges.tolist(), len(nodes))):
            more = _added_up(fixed, nodes[a:b], None if sign is None else sign[a:b], n)
            for one, before in zip(more, sums or (), strict=False):
                one += before
            sums = more
        assert sums is not None
        self.summed[end] = cut, *sums
        return sums


def _added_up(fixed: TwinAxis, nodes: Positions, sign: NDArray[np.int8] | None, n: int) -> tuple[Floats, Floats]:
    """Volume and cost of the pairs of these nodes by the node of the other end; taken off where the sign says so."""
    other, volume, priced = fixed.pairs(nodes)
    length = fixed.length[nodes]
    each = volume.astype(np.float64) if sign is None else volume * np.repeat(sign.astype(np.float64), length)
    # Without rows `bincount` forgets that weights are floats.
    held = np.bincount(other, weights=each, minlength=n).astype(np.float64, copy=False)
    if priced is None:
        each *= np.repeat(fixed.size[nodes], length)
        priced = each
    return held, np.bincount(other, weights=priced, minlength=n).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class FoundPairs:
    """The safe pairs as a walk over them finds them: by origin depth.

    Attributes:
        flows, sketches: what was walked over.
        objective: what is to be minimised.
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
        """Walk, and remember for the floor of the error what is told besides; other work may be done beside that."""
        origins, destinations = (
            sketch(tree, tile, flows, guarantee, max_depth=DEEPEST)
            for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
        )
        price = None if goal == "error" else PairCost(flows, guarantee.basis, goal, (origins, destinations))
        # Sums are in millionths here, and the floor is asked of the flows before.
        same = not origins.thinned and not destinations.thinned and not guarantee.of_columns
        affordable = same and is_affordable(flows, origins, destinations)
        told = SmallestSizes(flows, origins, destinations) if affordable else None

        def make(levels: list[Level]) -> tuple[Part, tuple[Positions, Positions] | None]:
            part = part_of(levels, None if price is None else [price.cost(level) for level in levels])
            return part, None if told is None else told.of(levels)

        parts = []
        for part, sizes in safe_depths(flows, guarantee, origins, destinations, make, beside=beside):
            parts.append(part)
            if told is not None and sizes is not None:
                told.note(*sizes)
        if told is not None:
            KNOWN.setdefault(flows, {})[guarantee] = told.finish()
        if len(flows) >= FLOWS_ALONE:
            give_back()
        total = float(np.sum(flows.volume(guarantee.basis)))
        return cls(flows, (origins, destinations), Objective.from_goal(goal, total), parts)

    def laid_out(self) -> TwinTrees:
        """Both trees with their tables; the parts are used up."""
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
    """The nodes that occur, and the number of each.

    Where a node that occurs can be divided but none of its children occurs, the first child stands for them all:
    dividing the node then suppresses all it holds.
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
    """What the nodes of one tree cost and publish, the other cut being fixed. One tree's half of the problem.

    The three-fold view (``evaluate``, ``lost``) is what `dual_multiplier` asks for.

    Attributes:
        axis: the tree.
        objective: what is minimised.
        cost, volume: of each node.
        gaps: the best cuts at all prices that were asked for.
        evaluated: priced cost and suppressed volume by price, as far as they were asked for.
        halves: best cuts by price, as far as somebody keeps them here.
        answered: what `best_within` found, by price, score to beat and number of choices, likewise.
    """

    axis: TwinAxis
    objective: Objective
    cost: Floats
    volume: Floats
    gaps: PriceGaps
    evaluated: dict[float, tuple[float, float]]
    halves: dict[float, Half]
    answered: dict[tuple[float, float, int | None], Any]

    @property
    def held(self) -> int:
        """About how many numbers are kept here."""
        return (4 + 2 * len(self.halves)) * len(self.axis) + self.gaps.held

    @property
    def lost(self) -> float:
        """Volume that no cut publishes: what even the root leaves short."""
        return self.objective.total - float(self.volume[0])

    def at(self, price: float) -> Half:
        """The best cut where every suppressed unit has this price."""
        forest, whole = self.gaps.at(price)
        cut = np.sort(np.concatenate((forest.fixed, forest.node[whole])))
        cost, suppressed = self.of(cut)
        return Half(self.axis, (self.cost, self.volume), cut=cut, cost=cost, suppressed=suppressed, price=price)

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Smallest cost with this price on what is suppressed, and the volume suppressed."""
        if multiplier not in self.evaluated:
            forest, whole = self.gaps.at(multiplier)
            cost = forest.fixed_cost + float(forest.cost[whole].sum())
            suppressed = self.objective.total - (forest.fixed_volume + float(forest.volume[whole].sum()))
            self.evaluated[multiplier] = cost + multiplier * suppressed, suppressed
        return self.evaluated[multiplier]

    def of(self, cut: Positions) -> tuple[float, float]:
        """Cost and suppressed volume of a cut."""
        return float(self.cost[cut].sum()), self.objective.total - float(self.volume[cut].sum())


@dataclass(frozen=True, eq=False)
class Half:
    """The best cut of one tree at a price.

    Attributes:
        axis: the tree.
        of_nodes: what its nodes cost and publish. Not the `Costs`, which knows this: a circle of the two would stay in
            memory until somebody looks for circles.
        cut: its nodes.
        cost, suppressed: what it costs, and the volume it leaves short.
        price: the price of a suppressed unit.
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
        """Largest saving of each node's subtree."""
        return self._savings[0]

    @property
    def divided(self) -> Floats:
        """Largest saving of each node's subtree if it is divided."""
        return self._savings[1]


class PairCost:
    """The cost of safe pairs, level by level.

    Where time is an end, an hour of a pair's time costs as much as ``time_weight`` tiles, and a flow is spread over the
    steps of its time as it is over tiles.
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
        """What publishing each pair costs."""
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
        """How far flows are from an even spread over the tile pairs of their pair, empty ones included."""
        row, pair = level.rows()
        each = level.volume / places
        apart = np.bincount(pair, weights=np.abs(self.volume[row] - each[pair]), minlength=len(places))
        filled = level.stop - level.start
        return apart + (places - filled) * each

    def _moved(self, level: Level) -> Floats:
        """Metres from the tiles to the centres of their nodes, by volume; the mean of both ends."""
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
    """Centres of all tiles and of all nodes. Once for all depths: those of parts of cells take their time.

    Raises:
        DataError: they have no place on the map.
    """
    if full.geography is None:
        raise DataError(NO_PLACE)
    return full.geography.centers(full.leaf_node), full.geography.centers(reduced.node)


def _metres_to_ancestor(places: Places, reduced: Sketch, depth: int) -> Floats:
    """Distance of every tile to the centre of the node of this depth that holds it; 0 for tiles that end above it."""
    tree = reduced.tree
    node = tree.leaf_node[reduced.leaf_of_tile]
    for _ in range(tree.max_depth - depth):
        node = np.where(tree.depth[node] > depth, tree.lift(node), node)
    tiles, (lat, lon) = places
    return np.where(tree.depth[node] == depth, _metres_between(tiles, (lat[node], lon[node])), 0.0)


def metres_moved(tree: Hierarchy, tile: NDArray[Any], centers: tuple[Floats, Floats] | None) -> Floats:
    """Geodesic distance (WGS 84) of each tile to a centre of its own.

    Raises:
        DataError: the tiles or the centres have no place on the map.
    """
    if tree.geography is None or centers is None:
        raise DataError(NO_PLACE)
    # A tile is the end of many flows, and has one centre.
    used, at = np.unique(tile, return_inverse=True)
    lat, lon = tree.geography.centers(tree.leaf_node[used])
    return _metres_between((lat[at], lon[at]), centers)


def _metres_between(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> Floats:
    from pyproj import Geod

    _, _, metres = Geod(ellps="WGS84").inv(one[1], one[0], other[1], other[0])
    return np.asarray(metres, dtype=np.float64)
