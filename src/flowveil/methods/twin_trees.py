"""Two trees and the safe pairs between them: the search space of TwinCut.

With a price ``m`` on every suppressed unit, the best cuts are those whose safe pairs save most: the
sum of ``m * v - cost``. With one cut fixed, one bottom-up pass finds the best cut of the other
tree, and reads only the rows of the fixed zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Positions
from flowveil.core.errors import DataError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.odkanon import Cuts
from flowveil.methods.safe_pairs import Level, Sketch, safe_levels, sketch

NO_PLACE = (
    "Distances cannot be minimised: the zones have no place on the map. Hint: use"
    " objective='error'."
)

Goal = Literal["error", "metres", "reconstruction", "cells"]

#: Safe pairs: nodes of one tree, nodes of the other, volume, and the cost if it is stored.
Pairs = tuple[NDArray[Any], ...]

#: Deepest level that is kept; deeper trees are thinned to it.
DEEPEST = 48
#: Pairs that are summed or transposed at once: their temporary arrays stay small.
BATCH = 1_000_000


@dataclass(frozen=True)
class Objective:
    """The objective: ``(cost of safe pairs + base * suppressed) / (published volume, or total
    volume)``.

    ``base`` is the cost of a suppressed unit; with ``mean`` the cost is divided by the published
    volume.
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
        """Returns the price of a suppressed unit below which more suppression does not improve this
        score.
        """
        return score if self.mean else self.base

    def price_within(self, score: float, price: float, budget: float) -> float:
        """Returns an upper bound for the priced cost of any solution within the budget that beats
        this score.
        """
        return score * self.total + (price - self.least_price(score)) * budget


@dataclass(frozen=True, eq=False)
class TwinAxis:
    """One tree, reduced to the nodes that occur in a safe pair, with the safe pairs sorted by node
    and other node.

    Attributes:
        full, sketch: the hierarchy, and the sketch that it was reduced to first.
        nodes: the remaining sketch nodes, in order. All other node numbers here are positions in
            this array.
        layers: for each depth below the root: nodes, their parents, start of each sibling group,
            parent of each group.
        size: the tiles of each node.
        first: the safe pairs of node n are the slice ``first[n]:first[n + 1]`` of other node,
            volume and cost.
        cost: empty if the cost of a pair is its volume times the tiles of both ends, and sums of
            costs are exact.
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
    cost: Floats

    @classmethod
    def from_pairs(
        cls,
        full: Hierarchy,
        reduced: Sketch,
        occurring: NDArray[np.bool_],
        length: Positions,
        pairs: Iterable[Pairs],
    ) -> TwinAxis:
        """Lays out batches of pairs, for each node in the order of the other nodes.

        ``length``: pairs of each node.
        """
        nodes, number = np.flatnonzero(occurring), np.cumsum(occurring) - 1
        parent = np.where(nodes > 0, number[np.maximum(reduced.tree.parent[nodes], 0)], -1)
        layers = []
        depth = reduced.tree.depth[nodes]
        for d in range(1, int(depth.max()) + 1):
            here = np.flatnonzero(depth == d)
            above = parent[here]
            group = np.flatnonzero(np.append(True, above[1:] != above[:-1]))
            layers.append((here, above, group, above[group]))
        first = np.concatenate(([0], np.cumsum(length)))
        columns: list[NDArray[Any]] = []
        free = first[:-1].copy()
        for own, *values in pairs:
            columns = columns or [np.empty(first[-1], column.dtype) for column in values]
            # One key sorts faster than two. Pairs are distinct, so the sort need not be stable.
            order = np.argsort(own.astype(np.int64) * (int(values[0].max()) + 1) + values[0])
            held = np.bincount(own, minlength=len(nodes))
            place = np.repeat(free - (np.cumsum(held) - held), held) + np.arange(len(own))
            free += held
            for into, column in zip(columns, values, strict=True):
                into[place] = column[order]
        other, volume, cost = (*columns, np.zeros(0))[:3]
        size = reduced.size[nodes].astype(np.float64)
        return cls(full, reduced, nodes, parent, tuple(layers), size, first, other, volume, cost)

    def __len__(self) -> int:
        return len(self.nodes)

    def rows(self, nodes: Positions) -> Positions:
        """Returns the positions of the safe pairs of these nodes."""
        length = self.length[nodes]
        rows = np.repeat(self.first[nodes] - (np.cumsum(length) - length), length)
        rows += np.arange(len(rows))
        return rows

    @cached_property
    def length(self) -> Positions:
        """The number of safe pairs of each node."""
        return np.diff(self.first)

    def transposed(self) -> Iterator[Pairs]:
        """Yields the safe pairs in batches: other node, node, volume, and cost if it is stored."""
        for nodes in _batches(self.length):
            pairs = slice(self.first[nodes[0]], self.first[nodes[-1] + 1])
            stored = (self.cost[pairs],) if len(self.cost) else ()
            yield (
                self.other[pairs],
                np.repeat(nodes.astype(np.int32), self.length[nodes]),
                self.volume[pairs],
                *stored,
            )

    def best(self, saving: Floats) -> tuple[Positions, Floats, Floats]:
        """Returns the coarsest cut with the largest saving, and for each node its best saving and
        that if divided.
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
        """Returns the cut of the full hierarchy in which exactly the ancestors of these nodes are
        divided.
        """
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

    ``thinned`` is True if a tree was too deep and lost nodes; cuts that need those nodes are not
    found. ``summed`` is the last cut of each end and its sums (`_sums`).
    """

    origins: TwinAxis
    destinations: TwinAxis
    objective: Objective
    thinned: bool = False
    summed: dict[int, tuple[Positions, Floats]] = field(default_factory=dict)

    @classmethod
    def from_flows(
        cls, flows: Flows, guarantee: Guarantee, goal: Goal = "error"
    ) -> TwinTrees | None:
        """Returns the trees with all safe pairs and their costs, or None if there are no safe
        pairs.
        """
        sketches = [
            sketch(tree, tile, flows, guarantee, max_depth=DEEPEST)
            for tree, tile in (
                (flows.origins, flows.origin),
                (flows.destinations, flows.destination),
            )
        ]
        volume = flows.volume(guarantee.basis)
        total = float(np.sum(volume))
        narrow = volume.dtype.kind == "i" and total < 2**31
        # Sums of integers below 2**53 are exact in any order. A difference of sums has up to four
        # terms.
        exact = (
            goal == "error" and narrow and 4 * total * sum(int(s.size[0]) for s in sketches) < 2**53
        )
        price = None if exact else PairCost(flows, guarantee.basis, goal, sketches)
        found: list[Pairs] = []
        length = [np.zeros(s.tree.n_nodes, np.int64) for s in sketches]
        depth = sketches[0].tree.depth
        for _, levels in groupby(
            safe_levels(flows, guarantee, *sketches), lambda level: depth[level.origin[0]]
        ):
            rows = [
                (lv.origin, lv.destination, lv.volume, *([price.cost(lv)] if price else []))
                for lv in levels
            ]
            origin, destination, volume, *cost = map(np.concatenate, zip(*rows, strict=True))
            found.append(
                (origin, destination, volume.astype(np.int32 if narrow else np.float64), *cost)
            )
            for held, nodes in zip(length, (origin, destination), strict=True):
                held += np.bincount(nodes, minlength=len(held))
        if not found:
            return None
        kept = [_occurring(s, held > 0) for s, held in zip(sketches, length, strict=True)]
        number = [np.cumsum(occurs, dtype=np.int32) - np.int32(1) for occurs in kept]
        # A batch is released as soon as it is laid out: together they are most of the memory.
        batches = (
            (number[0][o], number[1][d], *rest)
            for o, d, *rest in (found.pop() for _ in range(len(found)))
        )
        origins = TwinAxis.from_pairs(
            flows.origins, sketches[0], kept[0], length[0][kept[0]], batches
        )
        turned = origins.transposed()
        destinations = TwinAxis.from_pairs(
            flows.destinations, sketches[1], kept[1], length[1][kept[1]], turned
        )
        return cls(
            origins,
            destinations,
            Objective.from_goal(goal, total),
            thinned=any(s.thinned for s in sketches),
        )

    def axis(self, end: int) -> TwinAxis:
        """Returns the origin axis (0) or the destination axis (1)."""
        return self.destinations if end else self.origins

    def given(self, end: int, cut: Positions) -> Costs:
        """Returns cost and volume of the nodes of one tree, with the cut of the tree at ``end``
        fixed.
        """
        fixed, free = self.axis(end), self.axis(1 - end)
        if len(fixed.cost) == 0:
            volume, cost = self._sums(end, cut)
            return Costs(free, self.objective, cost + free.size * volume, volume)
        rows = fixed.rows(cut)
        other = fixed.other[rows]
        # `bincount` without rows returns integers.
        cost, volume = (
            np.bincount(other, weights=column[rows], minlength=len(free)).astype(np.float64)
            for column in (fixed.cost, fixed.volume)
        )
        return Costs(free, self.objective, cost, volume)

    def suppressed(self, cuts: Cuts) -> float:
        """Returns the volume that cuts of the full hierarchies suppress.

        An upper bound if a tree is thinned.
        """
        origin, destination = (
            self.origins.from_full(cuts.origin),
            self.destinations.from_full(cuts.destination),
        )
        return self.given(0, origin).totals(destination)[1]

    def _sums(self, end: int, cut: Positions) -> Floats:
        """Returns for each node of the other tree the volume of its pairs, and the volume times the
        tiles at this end.

        Only pairs of nodes that differ from the last cut are read; sums are exact, so the result
        does not depend on it.
        """
        fixed, n_free = self.axis(end), len(self.axis(1 - end))
        last, sums = self.summed.get(end, (cut[:0], np.zeros((2, n_free))))
        change = np.zeros(len(fixed))
        change[cut] = 1.0
        change[last] -= 1.0
        nodes, sums = np.flatnonzero(change), sums.copy()
        for batch in _batches(fixed.length[nodes]):
            here = nodes[batch]
            rows, length = fixed.rows(here), fixed.length[here]
            other, volume = fixed.other[rows], fixed.volume[rows] * np.repeat(change[here], length)
            sums[0] += np.bincount(other, weights=volume, minlength=n_free)
            sums[1] += np.bincount(
                other, weights=volume * np.repeat(fixed.size[here], length), minlength=n_free
            )
        self.summed[end] = cut, sums
        return sums


def _batches(length: Positions) -> Iterator[Positions]:
    """Yields ranges of nodes with about `BATCH` pairs each, from the number of pairs of each
    node.
    """
    edges = np.searchsorted(np.cumsum(length), np.arange(BATCH, length.sum(), BATCH))
    for start, stop in pairwise(np.unique((0, *edges, len(length)))):
        yield np.arange(start, stop)


def _occurring(reduced: Sketch, in_pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the nodes in safe pairs.

    A divisible one without such a child keeps its first child to represent them.
    """
    tree, occurs = reduced.tree, in_pairs.copy()
    below = np.bincount(tree.parent[1:][occurs[1:]], minlength=tree.n_nodes)
    occurs[np.flatnonzero(occurs & ~tree.is_leaf & (below == 0)) + 1] = True
    return occurs


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost and volume of one tree's nodes, the other cut fixed: a `Prunable`.

    ``halves`` caches `at` by price.
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
    """Returns counts as int32 if they fit, and as float64 otherwise.

    A nation has a hundred million pairs.
    """
    fits = volume.dtype.kind == "i" and int(volume.max(initial=0)) < 2**31
    return volume.astype(np.int32 if fits else np.float64)


class PairCost:
    """Computes the cost of safe pairs, level by level.

    If columns fold, the width of a pair's node (an hour, a step up) costs as many tiles as the
    fold's weight, and flows are spread over values as well as over tiles.
    """

    def __init__(
        self,
        flows: Flows,
        basis: str,
        goal: Goal,
        sketches: Sequence[Sketch],
        *,
        weights: Sequence[float] = (),
    ) -> None:
        self.goal, self.flows, self.sketches = goal, flows, sketches
        self.volume = flows.volume(basis).astype(np.float64)
        # Of each node of the folds: the values below, and the tiles that its width is worth.
        self.n_values = [own.size.astype(np.float64) for own in sketches[2:]]
        self.width_cost = [
            weight * fold.width[own.node]
            for weight, fold, own in zip(
                weights, flows.folds[: len(sketches) - 2], sketches[2:], strict=True
            )
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
        """Returns the distance of the flows of each pair from an even spread over its tile
        pairs.
        """
        row, pair = level.rows()
        each = level.volume / places
        apart = np.bincount(
            pair, weights=np.abs(self.volume[row] - each[pair]), minlength=len(places)
        )
        return np.asarray(apart + (places - (level.stop - level.start)) * each)

    def _moved(self, level: Level) -> Floats:
        """Returns the metres between tiles and node centres, weighted by volume.

        The mean of both ends.
        """
        row, pair = level.rows()
        metres = np.zeros(len(row))
        ends = (self.flows.origin, level.origin), (self.flows.destination, level.destination)
        for end, (tile, node) in enumerate(ends):
            depth = int(self.sketches[end].tree.depth[node[0]])
            if (end, depth) not in self.moved:
                self.moved[end, depth] = self._metres_to_ancestor(end, depth)
            metres += self.moved[end, depth][tile[row]]
        return np.bincount(
            pair, weights=self.volume[row] * metres / 2, minlength=len(level.start)
        ).astype(np.float64)

    def _metres_to_ancestor(self, end: int, depth: int) -> Floats:
        """Returns the distance of every tile to the centre of its ancestor at this depth.

        0 for tiles above it.
        """
        full, reduced = (self.flows.destinations if end else self.flows.origins), self.sketches[end]
        tree = reduced.tree
        node = tree.leaf_node[reduced.leaf_of_tile]
        for _ in range(tree.max_depth - depth):
            node = np.where(tree.depth[node] > depth, tree.lift(node), node)
        centers = None if full.geography is None else full.geography.centers(reduced.node[node])
        metres = metres_moved(full, np.arange(full.n_tiles), centers)
        return np.where(tree.depth[node] == depth, metres, 0.0)


def metres_moved(
    tree: Hierarchy, tile: NDArray[Any], centers: tuple[Floats, Floats] | None
) -> Floats:
    """Returns the geodesic distance of each tile to its given centre.

    DataError if coordinates are missing.
    """
    if tree.geography is None or centers is None:
        raise DataError(NO_PLACE)
    from pyproj import Geod

    # Many flows share a tile.
    used, at = np.unique(tile, return_inverse=True)
    lat, lon = tree.geography.centers(tree.leaf_node[used])
    _, _, metres = Geod(ellps="WGS84").inv(lon[at], lat[at], centers[1], centers[0])
    return np.asarray(metres, dtype=np.float64)
