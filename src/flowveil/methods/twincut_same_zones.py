"""TwinCut for both ends at once: one cut of one tree, whose zones are origins and destinations alike.

With two cuts, the best one for fixed zones at the other end is a pruning that can be solved exactly. With one cut both
ends change together, what a zone is worth depends on which other zones there are, and no such solution is known. So
this searches by local moves from ODkAnon's cut: divide a zone into the children of its node, or put the children of a
node together again. What each of all moves would change is counted exactly, in a few merges of the whole table for all
of them; those that gain are made together where that is a gain too, else the better half of them, down to the best
one. A price on every suppressed unit is moved until the budget is met from both sides, and single moves spend the rest.

Guaranteed: never worse than ODkAnon's cut of the same tree at the same budget; never over the budget; no single move
improves the result, unless the work or the time ran out first. A bound for two cuts (`homogeneous_floor`) holds here as
well, because one cut is two equal ones; nothing says how near to it one cut can come.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.methods.odkanon import Cuts, volume_budget_cuts
from flowveil.methods.twin_trees import Goal, Objective, metres_moved
from flowveil.methods.twincut import check_goal, plan_of_cuts
from flowveil.release.plan import Plan

#: Work of the search at effort 1, in rows merged: some seconds.
WORK = 1e8
#: What a merge costs beside its rows.
OVERHEAD = 2000
#: How often the price is halved or doubled until the budget lies between two prices, and then moved between these.
BRACKETED, BISECTED = 40, 10
#: Gains below this share of the whole are rounding.
ROUNDING = 1e-9


def twincut_same_zones(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    objective: Goal = "error",
    effort: float = 1.0,
    time_limit: float | None = None,
) -> Plan:
    """Plan fine zones for both ends that suppress at most a share of the volume.

    Args:
        flows: what to anonymise; both ends are tiles of one tree.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may be suppressed; never exceeded.
        objective: what is made small; see `flowveil.methods.twincut.twincut`.
        effort: how much work the search may do; 0 leaves it out.
        time_limit: seconds after which the best found so far is returned, and the notes say so; none by default, so
            that the result does not depend on the machine.
    """
    check_goal(objective)
    if not (np.isfinite(effort) and effort >= 0):
        raise ParameterError(f"effort must be 0 or more; found {effort!r}.")
    if time_limit is not None and not time_limit > 0:
        raise ParameterError(f"time_limit must be above 0; found {time_limit!r}.")
    deadline = np.inf if time_limit is None else time.monotonic() + time_limit
    merged = volume_budget_cuts(flows, guarantee, max_suppressed=max_suppressed)
    table = CutTable(flows, guarantee, objective)
    budget = max_suppressed * table.objective.total
    start = table.evaluate(flows.origins.narrowest[merged.origin])
    if start.suppressed > budget or not start.published:
        raise InfeasibleError(
            "No cell can be published within max_suppressed: even one cell of everything is short. "
            "Hint: lower k, or bring more data."
        )
    search = Search(table, budget, start, deadline=deadline, limit=table.work + effort * WORK)
    if effort > 0:
        search.run()
    cut = search.best.cut
    cuts = Cuts(flows.origins, flows.destinations, cut, cut)
    return plan_of_cuts(flows, guarantee, cuts, {"stopped_early": search.stopped_early})


@dataclass(frozen=True, eq=False)
class State:
    """A cut, as nodes in order, and what it comes to."""

    cut: Ints
    cost: float
    suppressed: float
    score: float
    published: bool

    def priced(self, price: float) -> float:
        """The cost with a price on every suppressed unit."""
        return self.cost + price * self.suppressed


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves from a cut, each with what it alone would change.

    Attributes:
        divided: which move divides the zone of this position in the cut; of the others, -1.
        united: the node that the others put together; -1 for those that divide.
        cost, suppressed: the changes.
    """

    divided: Ints
    united: Ints
    cost: Floats
    suppressed: Floats

    def select(self, which: NDArray[np.int64]) -> Moves:
        """Some of them."""
        return Moves(self.divided[which], self.united[which], self.cost[which], self.suppressed[which])

    def __len__(self) -> int:
        return len(self.divided)


@dataclass(eq=False)
class CutTable:
    """The flows over one tree, and what cuts of it come to.

    Nodes are always the deepest of those that hold the same tiles, so that every division changes something.
    """

    flows: Flows
    guarantee: Guarantee
    goal: Goal
    work: float = 0.0

    @cached_property
    def tree(self) -> Hierarchy:
        """The one tree."""
        return self.flows.origins

    @cached_property
    def volume(self) -> Floats:
        """What each flow counts."""
        return self.flows.volume(self.guarantee.basis).astype(np.float64)

    @cached_property
    def objective(self) -> Objective:
        """What is made small."""
        return Objective.from_goal(self.goal, float(np.sum(self.volume)))

    @cached_property
    def above(self) -> Ints:
        """The node that each node would be put together into: the parent of the highest with the same tiles."""
        tree = self.tree
        _, highest = np.unique(tree.narrowest, return_index=True)
        out = np.full(tree.n_nodes, -1, dtype=np.int32)
        out[tree.narrowest[highest]] = tree.parent[highest]
        return out

    def evaluate(self, cut: Ints) -> State:
        """What a cut comes to."""
        node = cut[self.tree.zone_of_tile(cut)]
        cells = self._cells(node, node)
        cost, suppressed = float(np.sum(cells.cost)), float(np.sum(cells.suppressed))
        return State(cut, cost, suppressed, self.objective.score(cost, suppressed), bool(cells.safe.any()))

    def moves(self, state: State) -> Moves:
        """All moves from a cut that are possible, each with its exact change."""
        tree, cut = self.tree, state.cut
        zone = tree.zone_of_tile(cut)
        inner = ~tree.is_leaf[cut]
        finer = self.divide(cut, np.flatnonzero(inner))
        divided = self._changes(zone, cut, np.where(inner, np.arange(len(cut)), -1), finer)
        above = self.above[cut]
        there = np.bincount(above[above >= 0], minlength=tree.n_nodes)
        whole = (above >= 0) & (there[above] == tree.n_children[above])
        nodes, group = np.unique(above[whole], return_inverse=True)
        groups = np.full(len(cut), -1, dtype=np.int64)
        groups[whole] = group
        united = self._changes(zone, cut, groups, np.unique(np.where(whole, above, cut)))
        at = np.flatnonzero(inner)
        none = np.full(len(nodes), -1, dtype=np.int32)
        return Moves(
            np.concatenate((at.astype(np.int32), none)),
            np.concatenate((np.full(len(at), -1, np.int32), nodes.astype(np.int32))),
            np.concatenate((divided[0][at], united[0][: len(nodes)])),
            np.concatenate((divided[1][at], united[1][: len(nodes)])),
        )

    def divide(self, cut: Ints, zones: NDArray[np.int64]) -> Ints:
        """The cut with these of its zones divided into the children of their nodes."""
        tree = self.tree
        divided = np.zeros(tree.n_nodes, dtype=np.bool_)
        divided[cut[zones]] = True
        children = np.flatnonzero(divided[np.maximum(tree.parent, 0)] & (tree.parent >= 0))
        return np.sort(np.concatenate((np.delete(cut, zones), tree.narrowest[children]))).astype(np.int32)

    def apply(self, cut: Ints, moves: Moves) -> Ints:
        """The cut after these moves; none divides a zone that another puts together."""
        together = np.isin(self.above[cut], moves.united[moves.united >= 0])
        position = np.cumsum(~together) - 1
        kept = cut[~together]
        divided = self.divide(kept, position[moves.divided[moves.divided >= 0]])
        return np.sort(np.concatenate((divided, moves.united[moves.united >= 0]))).astype(np.int32)

    def _changes(self, zone: Ints, cut: Ints, group: NDArray[np.int64], other: Ints) -> tuple[Floats, Floats]:
        """By how much cost and suppression change for each group of zones, if it alone became what it is in ``other``.

        Cells with one end in the group get that end from ``other``; those with both ends in it get both. All groups at
        once: a cell between two groups is counted for each of them, as if the other stayed.
        """
        now, then = cut[zone], other[self.tree.zone_of_tile(other)]
        of_tile = group[zone]
        n = int(group.max(initial=-1)) + 1
        o, d = of_tile[self.flows.origin], of_tile[self.flows.destination]
        inside = (o == d) & (o >= 0)
        cost, suppressed = np.zeros(n + 1), np.zeros(n + 1)
        for sign, node_o, node_d, rows, owner in (
            (-1, now, now, o >= 0, o),
            (-1, now, now, (d >= 0) & ~inside, d),
            (1, then, now, (o >= 0) & ~inside, o),
            (1, now, then, (d >= 0) & ~inside, d),
            (1, then, then, inside, o),
        ):
            if not rows.any():
                continue
            cells = self._cells(node_o, node_d, rows)
            # All rows of a cell have the same owner: the group is made of whole zones.
            whose = np.zeros(len(cells.safe), dtype=np.int64)
            whose[cells.row[rows]] = owner[rows]
            cost += sign * np.bincount(whose, weights=cells.cost, minlength=n + 1)
            suppressed += sign * np.bincount(whose, weights=cells.suppressed, minlength=n + 1)
        return cost, suppressed

    def _cells(self, node_o: Ints, node_d: Ints, rows: NDArray[np.bool_] | None = None) -> Counted:
        """The cells of these rows between the nodes that the tiles of both ends are in."""
        flows, tree = self.flows, self.tree
        self.work += OVERHEAD + len(flows)
        o, d = node_o[flows.origin], node_d[flows.destination]
        merged = flows.merge(o if rows is None else np.where(rows, o, np.int32(-1)), d, tree.n_nodes, tree.n_nodes)
        cells, row = merged.cells, merged.row
        volume = cells.volume(self.guarantee.basis).astype(np.float64)
        safe = self.guarantee.safe(cells)
        size_o, size_d = tree.size[cells.origin].astype(np.float64), tree.size[cells.destination].astype(np.float64)
        if self.goal == "error":
            cost = volume * (size_o + size_d)
        elif self.goal == "cells":
            cost = np.full(len(cells), -1.0)
        else:
            within = row >= 0
            if self.goal == "metres":
                each = self.volume * (self._metres(node_o)[flows.origin] + self._metres(node_d)[flows.destination]) / 2
            else:
                share = volume / (size_o * size_d)
                each = np.abs(np.append(share, 0.0)[row] - self.volume)
            cost = np.bincount(row[within], weights=each[within], minlength=len(cells)).astype(np.float64)
            if self.goal == "reconstruction":
                cost += (size_o * size_d - np.bincount(row[within], minlength=len(cells))) * share
        return Counted(row, safe, np.where(safe, cost, 0.0), np.where(safe, 0.0, volume))

    def _metres(self, node: Ints) -> Floats:
        """From each tile's centre to that of the node it is in."""
        where = self.tree.geography
        centers = None if where is None else where.centers(node)
        return metres_moved(self.tree, np.arange(self.tree.n_tiles, dtype=np.int32), centers)


@dataclass(frozen=True, eq=False)
class Counted:
    """Cells: the cell of each flow, which are safe, what those cost, and the volume of the others."""

    row: Ints
    safe: NDArray[np.bool_]
    cost: Floats
    suppressed: Floats


@dataclass(eq=False)
class Search:
    """The best cut within the budget so far, and the way to better ones."""

    table: CutTable
    budget: float
    best: State
    deadline: float
    limit: float
    stopped_early: bool = False
    _price: float = field(init=False, default=0.0)

    def run(self) -> None:
        """Move the price until the budget lies between what two prices suppress, then between these; spend the rest."""
        state, objective = self.best, self.table.objective
        price = objective.base + 8 * abs(state.cost) / objective.total
        within: float | None = None
        beyond: float | None = None
        for _ in range(BRACKETED):
            state = self.descend(state, price)
            if state.suppressed <= self.budget:
                within = price
            else:
                beyond = price
            if self._ended() or (within is not None and beyond is not None):
                break
            price = price / 2 if beyond is None else price * 2
            if price <= max(objective.base, 1e-12):
                break
        for _ in range(BISECTED if within is not None and beyond is not None else 0):
            price = float(np.sqrt(within * beyond))  # type: ignore[operator]  # both are there
            state = self.descend(self.best, price)
            if state.suppressed <= self.budget:
                within = price
            else:
                beyond = price
        self.spend()

    def descend(self, state: State, price: float) -> State:
        """Make moves that gain at this price until there is none."""
        while not self._ended():
            moves = self.table.moves(state)
            gain = -(moves.cost + price * moves.suppressed)
            chosen = self._compatible(state, moves, gain, ROUNDING * abs(state.priced(price)))
            found = self._made(state, moves, chosen, price)
            if found is None:
                return state
            state = found
        return state

    def spend(self) -> None:
        """Make the single move that improves the score most within the budget, until there is none."""
        objective = self.table.objective
        while not self._ended():
            state, moves = self.best, self.table.moves(self.best)
            lost = state.suppressed + moves.suppressed
            scores = np.array(
                [objective.score(c, s) for c, s in zip((state.cost + moves.cost).tolist(), lost.tolist(), strict=True)]
            )
            scores[lost > self.budget] = np.inf
            if len(scores) == 0:
                return
            one = int(np.argmin(scores))
            found = self.table.evaluate(self.table.apply(state.cut, moves.select(np.array([one]))))
            if not self._offer(found):
                return

    def _compatible(self, state: State, moves: Moves, gain: Floats, least: float) -> NDArray[np.int64]:
        """The moves that gain, best first; of those that touch the same zones, the one that gains more."""
        above = self.table.above[state.cut]
        of_node = np.full(self.table.tree.n_nodes + 1, -np.inf)
        of_node[moves.united[moves.united >= 0]] = gain[moves.united >= 0]
        divides = moves.divided >= 0
        best_division = np.full(self.table.tree.n_nodes + 1, -np.inf)
        node = above[moves.divided]
        np.maximum.at(best_division, node[divides], gain[divides])
        wins = np.where(divides, gain >= of_node[node], gain > best_division[moves.united])
        # A division that loses to putting its siblings together is out even if another sibling's division wins.
        wins &= np.where(divides, best_division[node] >= of_node[node], True)
        chosen = np.flatnonzero(wins & (gain > least))
        return chosen[np.argsort(-gain[chosen], kind="stable")]

    def _made(self, state: State, moves: Moves, chosen: NDArray[np.int64], price: float) -> State | None:
        """The state after these moves together if that is a gain, else after the better half of them, and so on."""
        while len(chosen) and not self._ended():
            found = self.table.evaluate(self.table.apply(state.cut, moves.select(chosen)))
            self._offer(found)
            if found.priced(price) < state.priced(price) - ROUNDING * abs(state.priced(price)):
                return found
            chosen = chosen[: len(chosen) // 2]
        return None

    def _offer(self, found: State) -> bool:
        better = (
            found.suppressed <= self.budget
            and found.published
            and found.score < self.best.score - 1e-12 * abs(self.best.score)
        )
        if better:
            self.best = found
        return better

    def _ended(self) -> bool:
        if time.monotonic() > self.deadline:
            self.stopped_early = True
        return self.stopped_early or self.table.work >= self.limit
