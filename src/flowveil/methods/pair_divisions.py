"""Divisions of the pair (root, root), or of a tuple with the roots of folds.

What PairCut optimises over.

docs/methods/proofs.md has the recurrence: at a price on suppressed volume, one pass over the safe
pairs from the deepest up finds the largest saving, exactly; a descent from the root finds the
cells, which never intersect. Pairs are numbered by the sum of their depths, so all parents of a
pair are one level above it. A dimension that folds is one more end; nothing
here depends on the number of ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Int8s, Ints, Mask, Positions, Words
from flowveil.core.errors import option
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.secret_thresholds import LARGEST, SecretThresholds
from flowveil.methods.safe_pairs import Level, safe_levels, sketch
from flowveil.methods.twin_trees import DEEPEST, Goal, Objective, PairCost, narrowed
from flowveil.system.limits import room_for
from flowveil.zoning.public_map import tiles_of_nodes

#: Called with pairs of one level and the sums over their children at each end; returns what each is
#: worth.
Settle = Callable[[slice, Sequence[Floats]], Floats]

#: Bytes of a safe pair while a division is searched: for each end, and apart from its ends.
_PER_END, _PER_PAIR = 24, 82
#: Actions on a pair; from `DIVIDE` on: divide along the first end, the second, the third.
SUPPRESS, PUBLISH, DIVIDE = np.arange(3, dtype=np.int8)


@dataclass(frozen=True, eq=False)
class Division:
    """An action for every pair.

    Those of pairs that the descent reaches decide which pairs are published cells.
    """

    action: Int8s
    published: Positions
    cost: float
    suppressed: float


@dataclass(frozen=True, eq=False)
class PairTable:
    """The safe pairs, numbered by the sum of their depths, then by their depths, then by folds,
    origin and destination.

    The search finds them in that order, level by level, so nothing is sorted.

    Attributes:
        node: the nodes of the full hierarchies, one row for each end.
        up: for each end, the position of the pair with the parent at that end among the pairs one
            level up; the number of pairs there if it is missing.
        level: the pairs of the i-th sum of depths are the slice ``level[i]:level[i + 1]``.
        first: the pairs that were found together, at one depth of every end, are the slice
            ``first[i]:first[i + 1]``.
        start, stop, orders: the flows of such a pair are the slice ``start:stop`` of ``orders[i]``.
        thinned: a tree was too deep and lost nodes.
        excess: by how much each pair exceeds the guarantee (`Guarantee.excess`, at most `LARGEST`).
        depths: the depth at every end of the pairs that were found together.
        refused: pairs that must not be cells although they are safe; None for none.
        starts: the pairs that contain all others, where the descent starts; None for the first.
        evaluated: cache of `evaluate`, by price.
    """

    node: tuple[Ints, ...]
    volume: NDArray[Any]
    cost: Floats
    up: tuple[Ints, ...]
    level: tuple[int, ...]
    first: Positions
    start: Ints
    stop: Ints
    orders: tuple[Ints, ...]
    objective: Objective
    thinned: bool
    excess: NDArray[np.int8]
    depths: tuple[tuple[int, ...], ...] = ()
    refused: Mask | None = None
    starts: Mask | None = None
    evaluated: dict[float, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def from_flows(
        cls,
        flows: Flows,
        guarantee: Guarantee,
        goal: Goal,
        *,
        weights: Sequence[float] = (),
        on_map: bool = False,
        sizes: Sequence[Floats] | None = None,
        fixed_folds: bool = False,
    ) -> PairTable | None:
        """Finds the safe pairs, None without one; ParameterError if they do not fit.

        ``weights`` as in `PairCost`. ``on_map``: pairs and their sizes are those of the public
        map, whichever tiles have trips. ``sizes`` are those of the nodes of every end where another
        tree stands for the map. ``fixed_folds`` as in `safe_levels`.
        """
        # Values are not places: their number says nothing about the locations of a cell.
        rules = [guarantee, guarantee, *(replace(guarantee, locations=None) for _ in flows.folds)]
        tiles: list[Floats | None] = [None] * len(rules) if sizes is None else [*sizes]
        if on_map:
            places = (flows.origins, flows.destinations)
            tiles = [tiles_of_nodes(tree, flows.whole_map) for tree in places]
            # No node of times is the same as its only child with trips.
            depths = [fold.tree.depth.astype(np.float64) for fold in flows.folds]
            tiles += [depth.max() + 1 - depth for depth in depths]
        sketches = [
            sketch(tree, leaf, flows, rule, max_depth=DEEPEST, size=size)
            for (tree, leaf), rule, size in zip(flows.ends, rules, tiles, strict=True)
        ]
        price = PairCost(flows, guarantee.basis, goal, sketches, weights=weights)
        levels: list[tuple[tuple[int, ...], Level, Floats]] = []
        order, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
        needed, room = 0, _room(flows, 0)
        for level in safe_levels(flows, guarantee, *sketches, fixed_folds=fixed_folds):
            # Positions are most of the memory: int32, and one order for all levels of an origin
            # depth.
            if order is not level.order:
                order, narrow = level.order, level.order.astype(np.int32)
                needed += narrow.nbytes
            needed += len(level.start) * (_PER_END * len(sketches) + _PER_PAIR)
            if room is not None and needed > room:
                # Only counted on, for the message.
                levels.clear()
                continue
            cost = price.cost(level)
            start, stop = level.start.astype(np.int32), level.stop.astype(np.int32)
            level = replace(
                level, order=narrow, start=start, stop=stop, volume=narrowed(level.volume)
            )
            depth = tuple(
                int(s.tree.depth[node[0]]) for s, node in zip(sketches, level.node, strict=True)
            )
            levels.append((depth, level, cost))
        _room(flows, needed)
        if not levels:
            return None
        levels.sort(key=lambda found: (sum(found[0]), found[0]))
        level_depths = tuple(depth for depth, *_ in levels)
        sums = np.array([sum(depth) for depth in level_depths])
        lengths = [len(cost) for *_, cost in levels]
        up = _find_above(
            [(depth, level.node) for depth, level, _ in levels], [s.tree for s in sketches]
        )
        orders = tuple(level.order for _, level, _ in levels)
        # One column at a time, removed from the levels before the next is made: together they are
        # most of the memory.
        columns: dict[str, list[Any]] = {"cost": [cost for *_, cost in levels]}
        for name in ("volume", "start", "stop", "excess"):
            columns[name] = [getattr(level, name) for _, level, _ in levels]
        nodes = [[level.node[end] for _, level, _ in levels] for end in range(len(sketches))]
        del levels, level, cost
        volume, cost, start, stop, excess = (
            np.concatenate(columns.pop(name))
            for name in ("volume", "cost", "start", "stop", "excess")
        )
        return cls(
            node=tuple(s.node[np.concatenate(nodes.pop(0))] for s in sketches),
            volume=volume,
            cost=cost,
            up=up,
            level=(0, *np.cumsum(lengths)[np.append(sums[1:] != sums[:-1], True)].tolist()),
            first=np.concatenate(([0], np.cumsum(lengths))),
            start=start,
            stop=stop,
            orders=orders,
            objective=Objective.from_goal(goal, float(np.sum(flows.volume(guarantee.basis)))),
            thinned=any(s.thinned for s in sketches),
            excess=excess,
            depths=level_depths,
        )

    def __len__(self) -> int:
        return len(self.volume)

    @property
    def lost(self) -> float:
        """Volume that no division publishes."""
        return self.objective.total - float(self.volume[0])

    def refused_by(
        self, secret: SecretThresholds | None, words: Sequence[Words], step: int
    ) -> Mask:
        """Returns the pairs that are no cells in a step of the search.

        The pair of both roots, which counts the rest afterwards, and pairs below their secret
        thresholds. ``words`` are the `node_words` of each end.
        """
        refused = np.zeros(len(self), dtype=np.bool_)
        refused[0] = True
        if secret is not None:
            near = np.flatnonzero(self.excess < LARGEST)
            nodes = [word[node[near]] for word, node in zip(words, self.node, strict=True)]
            refused[near] |= self.excess[near] < secret.amounts(step, nodes)
        return refused

    def starts_at(self, depths: tuple[int, ...]) -> Mask:
        """Returns the pairs of these depths."""
        mask = np.zeros(len(self), dtype=np.bool_)
        for number, own in enumerate(self.depths):
            if own == depths:
                mask[self.first[number] : self.first[number + 1]] = True
        return mask

    def refuse(self, refused: Mask) -> PairTable:
        """Returns the table in which these pairs are no cells."""
        return replace(self, refused=refused, evaluated={})

    def evaluate(self, multiplier: float) -> tuple[float, float]:
        """Returns the smallest priced cost at this price, and the suppressed volume.

        For `dual_multiplier`.
        """
        if multiplier not in self.evaluated:
            self.divide(multiplier)
        return self.evaluated[multiplier]

    def divide(self, price: float) -> Division:
        """Returns the division that saves most at this price of a suppressed unit.

        The coarser one on ties.
        """
        action = np.empty(len(self), dtype=np.int8)

        def settle(here: slice, along: Sequence[Floats]) -> Floats:
            worth = price * self.volume[here]
            worth -= self.cost[here]
            if self.refused is not None:
                worth[self.refused[here]] = -1.0
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

    def follow(self, action: Int8s) -> Division:
        """Descends from the root."""
        published = np.flatnonzero(self._reached(action, action) & (action == PUBLISH))
        volume = float(self.volume[published].sum())
        return Division(
            action, published, float(self.cost[published].sum()), self.objective.total - volume
        )

    def score(self, division: Division) -> float:
        """Returns the value to minimise."""
        return self.objective.score(division.cost, division.suppressed)

    def improve(self, base: Division, other: Division, room: float) -> Division:
        """Takes over from another division what lowers the score of this one, while there is room
        to suppress.

        Where both descents reach a pair and differ there, the parts below it can be exchanged
        independently. Exchanges are taken by their gain for a suppressed unit, larger ones first on
        ties.
        """
        common = self._reached(base.action, other.action)
        places = np.flatnonzero(common & (base.action != other.action))
        if len(places) == 0:
            return base
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
        """Returns the position in ``pairs`` of the pair that contains each flow; -1 for none."""
        cell = np.full(n_flows, -1, dtype=np.int64)
        found = np.searchsorted(self.first, pairs, side="right") - 1
        for level in np.flatnonzero(np.bincount(found)).tolist():
            own = np.flatnonzero(found == level)
            start, stop = self.start[pairs[own]], self.stop[pairs[own]]
            length = stop - start
            end = np.cumsum(length)
            position = np.repeat(start - (end - length), length) + np.arange(end[-1])
            cell[self.orders[level][position]] = np.repeat(own, length)
        return cell

    def _upwards(self, settle: Settle) -> None:
        """Calls ``settle`` from the deepest level up.

        Its result is added to the sums of the pairs above.
        """
        along: Sequence[Floats] = [np.zeros(self.level[-1] - self.level[-2])] * len(self.up)
        for number in range(len(self.level) - 2, -1, -1):
            first, last = self.level[number], self.level[number + 1]
            here = slice(first, last)
            value = settle(here, along)
            if number:
                before = self.level[number - 1]
                size = first - before
                # One more position for pairs without an upper pair at an end.
                sums = [
                    np.bincount(up[here], weights=value, minlength=size + 1)[:size]
                    for up in self.up
                ]
                along = [np.asarray(column, dtype=np.float64) for column in sums]

    def _below(self, action: Int8s, values: NDArray[Any]) -> Floats:
        """Returns for each pair the sum of the values of the cells into which these actions divide
        it.
        """
        sums = np.empty(len(self))

        def settle(here: slice, along: Sequence[Floats]) -> Floats:
            done = action[here]
            divided = [done == DIVIDE + end for end in range(len(along))]
            sums[here] = np.select([done == PUBLISH, *divided], [values[here], *along])
            return sums[here]

        self._upwards(settle)
        return sums

    def _reached(self, one: Int8s, other: Int8s) -> NDArray[np.bool_]:
        """Returns the pairs that both descents from the root reach on the same path."""
        reached = np.zeros(len(self), dtype=np.bool_)
        if self.starts is None:
            reached[0] = True
        else:
            reached |= self.starts
        self._follow_down(one if one is other else np.where(one == other, one, SUPPRESS), reached)
        return reached

    def _follow_down(self, action: Int8s, marked: NDArray[np.bool_]) -> None:
        """Marks the pairs into which these actions divide the marked pairs."""
        for before, first, last in zip(self.level, self.level[1:], self.level[2:], strict=False):
            for end, up in enumerate(self.up):
                divided = marked[before:first] & (action[before:first] == DIVIDE + end)
                if divided.any():
                    # One more position for pairs without an upper pair at an end.
                    marked[first:last] |= np.append(divided, False)[up[first:last]]


def _room(flows: Flows, needed: int) -> int | None:
    """Returns the memory that is left, None without folds.

    Refuses folds whose safe pairs do not fit.
    """
    if not flows.folds:
        return None
    names = ", ".join(fold.name for fold in flows.folds)
    return room_for(
        needed,
        what=f"dividing cells by origin, destination and {names}",
        hint=(
            f"fold fewer columns or smaller trees, use larger tiles ({option('resolution')}) or a"
            " larger k"
        ),
        machine=True,
    )


def _key(node: Sequence[Ints], trees: Sequence[Hierarchy]) -> Positions:
    """Returns one number for each pair; those of a level are in this order."""
    key = np.zeros(len(node[0]), dtype=np.int64)
    for end in (*range(2, len(node)), 0, 1):
        key *= trees[end].n_nodes
        key += node[end]
    return key


def _find_above(
    levels: Sequence[tuple[tuple[int, ...], tuple[Ints, ...]]], trees: Sequence[Hierarchy]
) -> tuple[Ints, ...]:
    """Returns the position of each pair's upper pair at each end, among the pairs of the next
    smaller sum of depths.
    """
    # The start of each level among those of its sum of depths, and the number of pairs of that sum.
    begin: dict[tuple[int, ...], int] = {}
    size: dict[int, int] = {}
    for depth, node in levels:
        begin[depth] = size.get(sum(depth), 0)
        size[sum(depth)] = begin[depth] + len(node[0])
    found: list[list[Any]] = [[] for _ in trees]
    key: dict[tuple[int, ...], Positions] = {}
    before = -1
    for depth, node in levels:
        if sum(depth) != before:
            # Levels come by the sum of their depths: only keys of the sum above are needed.
            before = sum(depth)
            key = {above: _key(upper, trees) for above, upper in levels if sum(above) == before - 1}
        for end, tree in enumerate(trees):
            missing = size.get(sum(depth) - 1, 0)
            upper = (*depth[:end], depth[end] - 1, *depth[end + 1 :])
            if upper not in key:
                found[end].append(np.full(len(node[end]), missing, dtype=np.int32))
                continue
            wanted = _key([*node[:end], tree.parent[node[end]], *node[end + 1 :]], trees)
            at = np.minimum(np.searchsorted(key[upper], wanted), len(key[upper]) - 1)
            # Sums of weights are rounded: a pair may seem safe inside one that does not. It is not
            # reached from there.
            found[end].append(
                np.where(key[upper][at] == wanted, at + begin[upper], missing).astype(np.int32)
            )
    del key
    return tuple(np.concatenate(found.pop(0)) for _ in trees)


def _fitting(gain: Floats, extra: Floats, candidates: Positions, room: float) -> Positions:
    """Returns the exchanges to take: those that suppress no more, then the best for a unit while
    there is room.
    """
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
