"""Divisions of the pair (root, root), or of a triple with the root of times: what PairCut optimises over.

A cell is a pair of an origin node and a destination node. Starting with everything in one cell, a cell is published,
divided into the children of its origin node, divided into the children of its destination node, or suppressed; so the
cells of a division never intersect. Only safe pairs can be published, and every pair that holds a safe one is safe
too, so the safe pairs are all that is needed: with a price ``m`` on a suppressed unit of volume,

    saving(o, d) = max(m * v - cost,
                       sum over children c of o of saving(c, d),
                       sum over children c of d of saving(o, c),
                       0)

where pairs that are not safe save nothing. One pass from the deepest pairs up finds the largest saving, exactly; a
descent from the root finds the cells. Pairs are numbered by the sum of their depths, so that both parents of a pair
are one level above it and every pass is a few whole-column steps a level.

Where time is a third end a pair is a triple, and there is one more sum, over the children of its node of times.
Nothing here depends on how many ends there are: `ENDS` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.methods.safe_pairs import Level, safe_levels, sketch
from flowveil.methods.twin_trees import DEEPEST, Goal, Objective, PairCost

Positions = NDArray[np.int64]
Actions = NDArray[np.int8]
#: The same as int32 if they fit.
Places = NDArray[np.int32] | NDArray[np.int64]
#: Called with pairs of one level and the sums over their children at each end; returns what each is worth.
Settle = Callable[[slice, Sequence[Floats]], Floats]

#: The ends along which a pair can be divided.
ENDS = ("origin", "destination", "time")
#: Actions on a pair; from `DIVIDE` on: divide along the first end, the second, the third.
SUPPRESS, PUBLISH, DIVIDE = np.arange(3, dtype=np.int8)


@dataclass(frozen=True, eq=False)
class Division:
    """An action for every pair, and the result.

    Attributes:
        action: for each pair; only those of pairs that the descent reaches matter.
        published: the pairs that are cells.
        cost, suppressed: of the whole division.
    """

    action: Actions
    published: Positions
    cost: float
    suppressed: float


@dataclass(frozen=True, eq=False)
class PairTable:
    """The safe pairs, numbered by the sum of their depths, then by their depths, then by time, origin and destination.

    That is how the walk finds them, level by level, so nothing is sorted.

    Attributes:
        node: the nodes, of the full hierarchies, a row for each of the `ENDS` that there are.
        volume, cost: of each pair as a cell.
        up: for each end the place, among the pairs one level up, of the pair with the parent at that end; as many as
            there are pairs one level up for a pair without one.
        level: the pairs of the i-th sum of depths are the slice ``level[i]:level[i + 1]``.
        found: which of the levels of the walk a pair was found in; ``start`` and ``stop``: its flows there.
        orders: the sorted flows of each level of the walk.
        objective: what is minimised.
        thinned: a tree was so deep that nodes were left out.
        evaluated: priced cost and suppressed volume of the best division by price, as far as they were asked for.
    """

    node: tuple[Ints, ...]
    volume: Floats
    cost: Floats
    up: tuple[Places, ...]
    level: tuple[int, ...]
    found: Ints
    start: Places
    stop: Places
    orders: tuple[Places, ...]
    objective: Objective
    thinned: bool
    evaluated: dict[float, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, flows: Flows, guarantee: Guarantee, goal: Goal, *, time_weight: float = 0.0) -> PairTable | None:
        """Find the safe pairs, or triples where the flows have times; None without a safe pair."""
        ends = [(flows.origins, flows.origin), (flows.destinations, flows.destination)]
        if flows.times is not None and flows.time is not None:
            ends.append((flows.times.tree, flows.time))
        # Steps of time are no places: how many there are says nothing of the locations of a cell.
        asked = (guarantee, guarantee, replace(guarantee, locations=None))
        sketches = [
            sketch(tree, tile, flows, own, max_depth=DEEPEST) for (tree, tile), own in zip(ends, asked, strict=False)
        ]
        price = PairCost(flows, guarantee.basis, goal, sketches, time_weight=time_weight)
        levels: list[_Found] = []
        costs: list[Floats] = []
        order: tuple[Positions, Places] | None = None
        for level in safe_levels(flows, guarantee, *sketches):
            costs.append(price.cost(level))
            # All levels of an origin depth have one order.
            if order is None or order[0] is not level.order:
                order = level.order, _narrow(level.order, len(flows))
            levels.append(_Found.of(level, order[1], len(flows)))
        del order
        if not levels:
            return None
        trees = [s.tree for s in sketches]
        depths = [_depths(level, trees) for level in levels]
        rank = sorted(range(len(levels)), key=lambda i: (sum(depths[i]), depths[i]))
        levels, costs, depths = [levels[i] for i in rank], [costs[i] for i in rank], [depths[i] for i in rank]
        sums = np.array([sum(depth) for depth in depths])
        sizes = [len(level.origin) for level in levels]
        last = np.cumsum(sizes)
        up = _find_above(levels, depths, trees)
        orders = tuple(level.order for level in levels)
        # Column by column, each gone from the levels before the next is made: together they are most of the memory.
        columns: dict[str, list[Any]] = {name: [getattr(level, name) for level in levels] for name in _Found._fields}
        del levels
        volume = np.concatenate(columns.pop("volume")).astype(np.float64)
        start, stop = (np.concatenate(columns.pop(name)) for name in ("start", "stop"))
        node = [s.node[np.concatenate(columns.pop(end))] for s, end in zip(sketches, ENDS, strict=False)]
        total = float(np.sum(flows.volume(guarantee.basis)))
        return cls(
            node=tuple(node),
            volume=volume,
            cost=np.concatenate(costs),
            up=up,
            level=(0, *last[np.append(sums[1:] != sums[:-1], True)].tolist()),
            found=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            start=start,
            stop=stop,
            orders=orders,
            objective=Objective.from_goal(goal, total),
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
        if multiplier not in self.evaluated:
            self.divide(multiplier)
        return self.evaluated[multiplier]

    def divide(self, price: float) -> Division:
        """The division that saves most where every suppressed unit has this price; coarser on ties."""
        action = np.empty(len(self), dtype=np.int8)

        def settle(here: slice, along: Sequence[Floats]) -> Floats:
            # Whatever is better than what came before it: the first of those that tie stays.
            worth = price * self.volume[here]
            worth -= self.cost[here]
            done = action[here]
            np.greater_equal(worth, 0.0, out=done, casting="unsafe")
            np.maximum(worth, 0.0, out=worth)
            for end, finer in enumerate(along):
                np.copyto(done, DIVIDE + end, where=finer > worth)
                np.maximum(worth, finer, out=worth)
            return worth

        self._upwards(settle)
        found = self.follow(action)
        self.evaluated[price] = found.cost + price * found.suppressed, found.suppressed
        return found

    def follow(self, action: Actions) -> Division:
        """Descends from the root."""
        published = np.flatnonzero(self._reached(action, action) & (action == PUBLISH))
        volume = float(self.volume[published].sum())
        return Division(action, published, float(self.cost[published].sum()), self.objective.total - volume)

    def score(self, division: Division) -> float:
        """What is minimised."""
        return self.objective.score(division.cost, division.suppressed)

    def improve(self, base: Division, other: Division, room: float) -> Division:
        """Take over from another division what lowers the score of this one, as far as there is room to suppress.

        Where both descents reach a pair and differ there, the parts below it can be exchanged independently. Exchanges
        are taken in the order of what they gain for a suppressed unit, larger ones first on ties.
        """
        common = self._reached(base.action, other.action)
        places = np.flatnonzero(common & (base.action != other.action))
        if len(places) == 0:
            return base
        # One after the other: what is below every pair takes as much memory as a column of the table.
        gain, extra = (
            self._below(base.action, values)[places] - self._below(other.action, values)[places]
            for values in (self.cost, self.volume)
        )
        worth = gain > self.objective.least_price(self.score(base)) * extra
        chosen = places[_fitting(gain, extra, np.flatnonzero(worth), room)]
        if len(chosen) == 0:
            return base
        replaced = np.zeros(len(self), dtype=np.bool_)
        replaced[chosen] = True
        self._follow_down(other.action, replaced)
        found = self.follow(np.where(replaced, other.action, base.action))
        return found if self.score(found) < self.score(base) else base

    def flows_of(self, pairs: Positions, n_flows: int) -> Positions:
        """For each flow, which of these pairs holds it, by its place; -1 where none does."""
        cell = np.full(n_flows, -1, dtype=np.int64)
        for level in np.flatnonzero(np.bincount(self.found[pairs])).tolist():
            own = np.flatnonzero(self.found[pairs] == level)
            start, stop = self.start[pairs[own]], self.stop[pairs[own]]
            length = stop - start
            end = np.cumsum(length)
            position = np.repeat(start - (end - length), length) + np.arange(end[-1])
            cell[self.orders[level][position]] = np.repeat(own, length)
        return cell

    def _upwards(self, settle: Settle) -> None:
        """Call ``settle(pairs, sums along each end)`` from the deepest level up.

        It returns what each pair adds to the sums of the pairs above it.
        """
        along: Sequence[Floats] = [np.zeros(self.level[-1] - self.level[-2])] * len(self.up)
        for number in range(len(self.level) - 2, -1, -1):
            first, last = self.level[number], self.level[number + 1]
            here = slice(first, last)
            value = settle(here, along)
            if number:
                before = self.level[number - 1]
                size = first - before
                # One place more for pairs that have none above them at an end.
                sums = [np.bincount(up[here], weights=value, minlength=size + 1)[:size] for up in self.up]
                along = [np.asarray(column, dtype=np.float64) for column in sums]

    def _below(self, action: Actions, values: Floats) -> Floats:
        """Returns for each pair the sum of the values of the cells into which these actions divide it."""
        sums = np.empty(len(self))

        def settle(here: slice, along: Sequence[Floats]) -> Floats:
            done = action[here]
            divided = [done == DIVIDE + end for end in range(len(along))]
            sums[here] = np.select([done == PUBLISH, *divided], [values[here], *along])
            return sums[here]

        self._upwards(settle)
        return sums

    def _reached(self, one: Actions, other: Actions) -> NDArray[np.bool_]:
        """The pairs that both descents from the root reach on the same path."""
        reached = np.zeros(len(self), dtype=np.bool_)
        reached[0] = True
        self._follow_down(one if one is other else np.where(one == other, one, SUPPRESS), reached)
        return reached

    def _follow_down(self, action: Actions, marked: NDArray[np.bool_]) -> None:
        """Mark what these actions make of the marked pairs, down to the last."""
        for before, first, last in zip(self.level, self.level[1:], self.level[2:], strict=False):
            for end, up in enumerate(self.up):
                divided = marked[before:first] & (action[before:first] == DIVIDE + end)
                if divided.any():
                    # One place more for pairs that have none above them at an end.
                    marked[first:last] |= np.append(divided, False)[up[first:last]]


class _Found(NamedTuple):
    """What is kept of a level of the walk while the others are found; see `Level`."""

    origin: Ints
    destination: Ints
    time: Ints | None
    volume: NDArray[Any]
    start: Places
    stop: Places
    order: Places

    @classmethod
    def of(cls, level: Level, order: Places, n_flows: int) -> _Found:
        start, stop = _narrow(level.start, n_flows), _narrow(level.stop, n_flows)
        return cls(level.origin, level.destination, level.time, level.volume, start, stop, order)


def _narrow(places: Positions, n: int) -> Places:
    """Positions below n as int32 if they fit: they are most of the memory."""
    return places.astype(np.int32) if n < 2**31 - 1 else places


def _depths(level: _Found, trees: Sequence[Hierarchy]) -> tuple[int, ...]:
    """The depths of a level of the walk, one for each end."""
    return tuple(int(tree.depth[getattr(level, end)[0]]) for tree, end in zip(trees, ENDS, strict=False))


def _key(node: Sequence[Ints], trees: Sequence[Hierarchy]) -> Positions:
    """One number for each pair; those of a level of the walk are in this order."""
    key = np.zeros(len(node[0]), dtype=np.int64)
    for end in (2, 0, 1) if len(node) > 2 else (0, 1):
        key *= trees[end].n_nodes
        key += node[end]
    return key


def _find_above(
    levels: Sequence[_Found], depths: Sequence[tuple[int, ...]], trees: Sequence[Hierarchy]
) -> tuple[Places, ...]:
    """The place of each pair's upper pair at each end, among the pairs of the sum of depths before its own."""
    nodes = [[getattr(level, end) for end in ENDS[: len(trees)]] for level in levels]
    key = [_key(node, trees) for node in nodes]
    number = {depth: i for i, depth in enumerate(depths)}
    # Where each level begins among those of its sum of depths, and how many pairs that sum has.
    begin: dict[int, int] = {}
    size: dict[int, int] = {}
    for i, depth in enumerate(depths):
        begin[i] = size.get(sum(depth), 0)
        size[sum(depth)] = begin[i] + len(key[i])
    found: list[list[Any]] = [[] for _ in trees]
    most = max(size.values())
    for node, depth in zip(nodes, depths, strict=True):
        for end, tree in enumerate(trees):
            none = size.get(sum(depth) - 1, 0)
            upper = number.get((*depth[:end], depth[end] - 1, *depth[end + 1 :]))
            if upper is None:
                found[end].append(_narrow(np.full(len(node[end]), none), most))
                continue
            wanted = _key([*node[:end], tree.parent[node[end]], *node[end + 1 :]], trees)
            at = np.minimum(np.searchsorted(key[upper], wanted), len(key[upper]) - 1)
            # Sums of weights are rounded: a pair may seem safe inside one that does not. It is not reached from there.
            found[end].append(_narrow(np.where(key[upper][at] == wanted, at + begin[upper], none), most))
    del key
    return tuple(np.concatenate(found.pop(0)) for _ in trees)


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
