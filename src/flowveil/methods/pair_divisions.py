"""Divisions of the pair (root, root): what PairCut optimises over.

A cell is a pair of an origin node and a destination node. Starting with everything in one cell, a cell is published,
divided into the children of its origin node, divided into the children of its destination node, or suppressed; so the
cells of a division never intersect. Only safe pairs can be published, and every pair that holds a safe one is safe
too, so the safe pairs are all that is needed: with a price ``m`` on a suppressed unit of volume,

    saving(o, d) = max(m * v - cost,
                       sum over children c of o of saving(c, d),
                       sum over children c of d of saving(o, c),
                       0)

where pairs that are not safe save nothing. One pass from the deepest pairs up finds the largest saving, exactly; a
walk down from the root finds the cells. Pairs are numbered by the sum of their depths, so that both parents of a pair
are one level above it and every pass is a few whole-column steps a level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Ints
from flowveil.methods.safe_pairs import Level, safe_levels, sketch
from flowveil.methods.twin_trees import DEEPEST, Goal, Objective, PairCost

Positions = NDArray[np.int64]
Actions = NDArray[np.int8]
#: Called with pairs of one level and the sums over their children at each end; returns what each pair is worth.
Settle = Callable[[slice, Floats, Floats], Floats]

#: What is done with a pair.
SUPPRESS, PUBLISH, DIVIDE_ORIGIN, DIVIDE_DESTINATION = np.arange(4, dtype=np.int8)


@dataclass(frozen=True, eq=False)
class Division:
    """What is done with every pair, and what comes of it.

    Attributes:
        action: for each pair; only those of pairs that the walk reaches matter.
        published: the pairs that are cells.
        cost, suppressed: of the whole division.
    """

    action: Actions
    published: Positions
    cost: float
    suppressed: float


@dataclass(frozen=True, eq=False)
class PairTable:
    """The safe pairs, numbered by the sum of their depths, then by origin and destination node.

    Attributes:
        origin, destination: the nodes, of the full hierarchies.
        volume, cost: of each pair as a cell.
        up_origin, up_destination: the pair with the parent at that end; the number of pairs where there is none.
        level: the pairs of the i-th sum of depths are the slice ``level[i]:level[i + 1]``.
        found: which of the levels of the walk a pair was found in; ``start`` and ``stop``: its flows there.
        orders: the sorted flows of each level of the walk.
        objective: what is minimised.
        thinned: a tree was so deep that nodes were left out.
    """

    origin: Ints
    destination: Ints
    volume: Floats
    cost: Floats
    up_origin: Positions
    up_destination: Positions
    level: tuple[int, ...]
    found: Ints
    start: Positions
    stop: Positions
    orders: tuple[Positions, ...]
    objective: Objective
    thinned: bool

    @classmethod
    def of(cls, flows: Flows, guarantee: Guarantee, goal: Goal) -> PairTable | None:
        """Find the safe pairs; None where there is none."""
        sketches = [
            sketch(tree, tile, flows, guarantee, max_depth=DEEPEST)
            for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
        ]
        price = PairCost(flows, guarantee.basis, goal, *sketches)
        levels: list[Level] = []
        costs: list[Floats] = []
        for level in safe_levels(flows, guarantee, *sketches):
            levels.append(level)
            costs.append(price.cost(level))
        if not levels:
            return None
        origin = np.concatenate([level.origin for level in levels])
        destination = np.concatenate([level.destination for level in levels])
        tree_o, tree_d = sketches[0].tree, sketches[1].tree
        depth = tree_o.depth[origin].astype(np.int64) + tree_d.depth[destination]
        width = np.int64(tree_d.n_nodes)
        key = origin.astype(np.int64) * width + destination
        order = np.lexsort((key, depth))
        key, depth, origin, destination = key[order], depth[order], origin[order], destination[order]
        bounds = (0, *(np.flatnonzero(depth[1:] != depth[:-1]) + 1).tolist(), len(depth))
        above_o = np.where(origin > 0, tree_o.parent[origin].astype(np.int64) * width + destination, -1)
        above_d = np.where(destination > 0, origin.astype(np.int64) * width + tree_d.parent[destination], -1)
        total = float(np.sum(flows.volume(guarantee.basis)))
        return cls(
            origin=sketches[0].node[origin],
            destination=sketches[1].node[destination],
            volume=np.concatenate([level.volume for level in levels]).astype(np.float64)[order],
            cost=np.concatenate(costs)[order],
            up_origin=_find_above(key, above_o, bounds),
            up_destination=_find_above(key, above_d, bounds),
            level=bounds,
            found=np.repeat(np.arange(len(levels), dtype=np.int32), [len(level.origin) for level in levels])[order],
            start=np.concatenate([level.start for level in levels])[order],
            stop=np.concatenate([level.stop for level in levels])[order],
            orders=tuple(level.order for level in levels),
            objective=Objective.of(goal, total),
            thinned=any(s.thinned for s in sketches),
        )

    def __len__(self) -> int:
        return len(self.volume)

    @property
    def lost(self) -> float:
        """Volume that no division publishes."""
        return self.objective.total - float(self.volume[0])

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Smallest cost with this price on what is suppressed, and the volume suppressed; for `dual_multiplier`."""
        found = self.divide(multiplier)
        return found.cost + multiplier * found.suppressed, found.suppressed

    def divide(self, price: float) -> Division:
        """The division that saves most where every suppressed unit has this price; coarser on ties."""
        action = np.empty(len(self), dtype=np.int8)
        whole = price * self.volume - self.cost

        def settle(here: slice, along_o: Floats, along_d: Floats) -> Floats:
            finer = np.maximum(along_o, along_d)
            divided = np.where(along_o >= along_d, DIVIDE_ORIGIN, DIVIDE_DESTINATION)
            own = whole[here]
            action[here] = np.where(own >= np.maximum(finer, 0.0), PUBLISH, np.where(finer > 0.0, divided, SUPPRESS))
            return np.maximum(np.maximum(own, finer), 0.0)

        self._upwards(settle)
        return self.follow(action)

    def follow(self, action: Actions) -> Division:
        """Walk down from the root."""
        published = np.flatnonzero(self._reached(action, action) & (action == PUBLISH))
        volume = float(self.volume[published].sum())
        return Division(action, published, float(self.cost[published].sum()), self.objective.total - volume)

    def score(self, division: Division) -> float:
        """What is minimised."""
        return self.objective.score(division.cost, division.suppressed)

    def improve(self, base: Division, other: Division, room: float) -> Division:
        """Take over from another division what lowers the score of this one, as far as there is room to suppress.

        Where both walks come to a pair and go on differently, what lies below can be exchanged by itself. Exchanges
        are taken in the order of what they gain for a suppressed unit, larger ones first on ties.
        """
        common = self._reached(base.action, other.action)
        places = np.flatnonzero(common & (base.action != other.action))
        if len(places) == 0:
            return base
        cost, volume = (self._below(base.action, values) for values in (self.cost, self.volume))
        other_cost, other_volume = (self._below(other.action, values) for values in (self.cost, self.volume))
        gain, extra = (cost - other_cost)[places], (volume - other_volume)[places]
        worth = gain > self.objective.least_price(self.score(base)) * extra
        chosen = places[_fitting(gain, extra, np.flatnonzero(worth), room)]
        if len(chosen) == 0:
            return base
        replaced = np.zeros(len(self) + 1, dtype=np.bool_)
        replaced[chosen] = True
        for first, last in pairwise(self.level[1:]):
            here = slice(first, last)
            up_o, up_d = self.up_origin[here], self.up_destination[here]
            replaced[here] |= replaced[up_o] & (np.append(other.action, SUPPRESS)[up_o] == DIVIDE_ORIGIN)
            replaced[here] |= replaced[up_d] & (np.append(other.action, SUPPRESS)[up_d] == DIVIDE_DESTINATION)
        found = self.follow(np.where(replaced[:-1], other.action, base.action))
        return found if self.score(found) < self.score(base) else base

    def flows_of(self, pairs: Positions, n_flows: int) -> Positions:
        """For each flow, which of these pairs holds it, by its place; -1 where none does."""
        cell = np.full(n_flows, -1, dtype=np.int64)
        for level in np.unique_values(self.found[pairs]).tolist():
            own = np.flatnonzero(self.found[pairs] == level)
            start, stop = self.start[pairs[own]], self.stop[pairs[own]]
            length = stop - start
            end = np.cumsum(length)
            position = np.repeat(start - (end - length), length) + np.arange(end[-1])
            cell[self.orders[level][position]] = np.repeat(own, length)
        return cell

    def _upwards(self, settle: Settle) -> None:
        """Call ``settle(pairs, sum along origins, sum along destinations)`` from the deepest level up.

        It returns what each pair adds to the sums of the two pairs above it.
        """
        above_o: Floats = np.zeros(0)
        above_d: Floats = np.zeros(0)
        for number in range(len(self.level) - 2, -1, -1):
            first, last = self.level[number], self.level[number + 1]
            here = slice(first, last)
            if number == len(self.level) - 2:
                above_o = above_d = np.zeros(last - first)
            value = settle(here, above_o, above_d)
            if number:
                before = self.level[number - 1]
                size = first - before
                # One place more for pairs that have none above them at an end.
                above_o, above_d = (
                    np.bincount(np.minimum(up[here] - before, size), weights=value, minlength=size + 1)[:size].astype(
                        np.float64, copy=False
                    )
                    for up in (self.up_origin, self.up_destination)
                )

    def _below(self, action: Actions, values: Floats) -> Floats:
        """For each pair, the sum over the cells that these actions make of it."""
        sums = np.empty(len(self))

        def settle(here: slice, along_o: Floats, along_d: Floats) -> Floats:
            done = action[here]
            sums[here] = np.select(
                [done == PUBLISH, done == DIVIDE_ORIGIN, done == DIVIDE_DESTINATION], [values[here], along_o, along_d]
            )
            return sums[here]

        self._upwards(settle)
        return sums

    def _reached(self, one: Actions, other: Actions) -> NDArray[np.bool_]:
        """The pairs that two walks from the root both come to on the same way."""
        same = np.append(np.where(one == other, one, SUPPRESS), SUPPRESS)
        reached = np.zeros(len(self) + 1, dtype=np.bool_)
        reached[0] = True
        for first, last in pairwise(self.level[1:]):
            here = slice(first, last)
            up_o, up_d = self.up_origin[here], self.up_destination[here]
            reached[here] = (reached[up_o] & (same[up_o] == DIVIDE_ORIGIN)) | (
                reached[up_d] & (same[up_d] == DIVIDE_DESTINATION)
            )
        return reached[:-1]


def _find_above(key: Positions, above: Positions, bounds: tuple[int, ...]) -> Positions:
    """The place of each pair's upper pair, one level up; the number of pairs where there is none."""
    place = np.full(len(key), len(key), dtype=np.int64)
    for number in range(1, len(bounds) - 1):
        before, first, last = bounds[number - 1 : number + 2]
        wanted = above[first:last]
        at = np.minimum(np.searchsorted(key[before:first], wanted), first - before - 1) + before
        # Sums of weights are rounded: a pair may seem safe inside one that does not. It is then not reached from there.
        place[first:last] = np.where(key[at] == wanted, at, len(key))
    return place


def _fitting(gain: Floats, extra: Floats, candidates: Positions, room: float) -> Positions:
    """Which exchanges are taken: those that suppress nothing more, then the best for a unit while there is room."""
    free = extra[candidates] <= 0
    taken = [candidates[free]]
    room -= float(extra[candidates[free]].sum())
    left = candidates[~free]
    left = left[np.lexsort((left, -extra[left], -gain[left] / extra[left]))]
    while len(left := left[extra[left] <= room]):
        fits = int(np.searchsorted(np.cumsum(extra[left]), room, side="right"))
        taken.append(left[:fits])
        room -= float(extra[left[:fits]].sum())
        left = left[fits:]
    return np.concatenate(taken)
