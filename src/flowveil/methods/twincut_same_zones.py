"""TwinCut with the same zones at both ends.

One cut of one tree (docs/decisions/0015-halves.md).

A local search from ODkAnon's cut, which divides zones and unites siblings. All gaining moves are
applied together if that is a gain, else the better half, down to the best one. Never worse than
ODkAnon's cut and never over the budget.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.method import INFEASIBLE
from flowveil.methods.odkanon import Cuts, volume_budget_cuts
from flowveil.methods.twin_trees import Goal, Objective, metres_moved
from flowveil.methods.twincut import check_goal, search_deadline
from flowveil.release.plan import Plan

#: Work of the search at effort 1, in merged rows; some seconds.
WORK = 1e8
#: Fixed work of a merge.
OVERHEAD = 2000
#: Steps that halve or double the price until it brackets the budget, and bisection steps after
#: that.
BRACKETED, BISECTED = 40, 10
#: Gains below this share of the total are rounding errors.
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
    """Plans fine zones for both ends, tiles of one tree.

    Arguments as in `flowveil.methods.twincut.twincut`.
    """
    check_goal(objective)
    deadline = search_deadline(effort, time_limit)
    merged = volume_budget_cuts(flows, guarantee, max_suppressed=max_suppressed)
    table = CutTable(flows, guarantee, objective)
    budget = max_suppressed * table.objective.total
    start = table.evaluate(flows.origins.narrowest[merged.origin])
    if start.suppressed > budget or not start.published:
        raise InfeasibleError(INFEASIBLE)
    search = LocalSearch(table, budget, start, deadline=deadline, limit=table.work + effort * WORK)
    if effort > 0:
        search.run()
    cut = search.best.cut
    cuts = Cuts(flows.origins, flows.destinations, cut, cut)
    return cuts.plan(flows, guarantee, notes={"stopped_early": search.stopped_early})


class State(NamedTuple):
    """A cut, as nodes in order, with its cost, suppressed volume and score."""

    cut: Ints
    cost: float
    suppressed: float
    score: float
    published: bool

    def priced(self, price: float) -> float:
        """Returns the cost with a price on every suppressed unit."""
        return self.cost + price * self.suppressed


class Moves(NamedTuple):
    """Moves from a cut: each divides a node or unites its children, and changes cost and suppressed
    volume alone.
    """

    node: Ints
    divides: NDArray[np.bool_]
    cost: Floats
    suppressed: Floats

    def select(self, which: NDArray[np.int64]) -> Moves:
        """Returns some of the moves."""
        return Moves(
            self.node[which], self.divides[which], self.cost[which], self.suppressed[which]
        )


class CutTable:
    """The flows over one tree; evaluates cuts and moves.

    A node is always the deepest one with the same tiles, so that every division changes something.
    ``above`` is the node that each node is united into: the parent of the highest node with the
    same tiles.
    """

    def __init__(self, flows: Flows, guarantee: Guarantee, goal: Goal) -> None:
        self.flows, self.guarantee, self.goal, self.tree = flows, guarantee, goal, flows.origins
        self.work = 0.0
        self.volume = flows.volume(guarantee.basis).astype(np.float64)
        self.objective = Objective.from_goal(goal, float(np.sum(self.volume)))
        _, highest = np.unique(self.tree.narrowest, return_index=True)
        self.above = np.full(self.tree.n_nodes, -1, dtype=np.int32)
        self.above[self.tree.narrowest[highest]] = self.tree.parent[highest]

    def evaluate(self, cut: Ints) -> State:
        """Returns the state of a cut."""
        node = cut[self.tree.zone_of_tile(cut)]
        cells = self._cells(node, node)
        cost, suppressed = float(np.sum(cells.cost)), float(np.sum(cells.suppressed))
        return State(
            cut, cost, suppressed, self.objective.score(cost, suppressed), bool(cells.safe.any())
        )

    def moves(self, state: State) -> Moves:
        """Returns all possible moves from a cut, with their exact changes."""
        tree, cut = self.tree, state.cut
        above = self.above[cut]
        there = np.bincount(above[above >= 0], minlength=tree.n_nodes)
        whole = (above >= 0) & (there[above] == tree.n_children[above])
        columns = []
        for divides, node, movable in ((True, cut, ~tree.is_leaf[cut]), (False, above, whole)):
            nodes, number = np.unique(node[movable], return_inverse=True)
            group = np.full(len(cut), -1, dtype=np.int64)
            group[movable] = number
            divided = np.full(len(nodes), divides)
            changes = self._changes(cut, group, len(nodes), self.after(cut, nodes, divided))
            columns.append((nodes, divided, *changes))
        return Moves(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    def after(self, cut: Ints, nodes: Ints, divides: NDArray[np.bool_]) -> Ints:
        """Returns the cut with these nodes divided or united; no zone may be both."""
        tree, divided, united = self.tree, nodes[divides], nodes[~divides]
        gone = np.isin(cut, divided) | np.isin(self.above[cut], united)
        children = tree.narrowest[np.isin(tree.parent, divided)]
        return np.sort(np.concatenate((cut[~gone], children, united))).astype(np.int32)

    def _changes(
        self, cut: Ints, group: NDArray[np.int64], n: int, other: Ints
    ) -> tuple[Floats, Floats]:
        """Returns the changes of cost and suppression if each of n groups alone is replaced by its
        zones in ``other``.

        A cell between two groups counts for each of them as if the other stayed.
        """
        zone = self.tree.zone_of_tile(cut)
        now, then, of_tile = cut[zone], other[self.tree.zone_of_tile(other)], group[zone]
        o, d = of_tile[self.flows.origin], of_tile[self.flows.destination]
        inside = (o == d) & (o >= 0)
        cost, suppressed = np.zeros(n), np.zeros(n)
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
            # Groups consist of whole zones, so all rows of a cell have the same owner.
            whose = np.zeros(len(cells.safe), dtype=np.int64)
            whose[cells.row[rows]] = owner[rows]
            cost += sign * np.bincount(whose, weights=cells.cost, minlength=n)
            suppressed += sign * np.bincount(whose, weights=cells.suppressed, minlength=n)
        return cost, suppressed

    def _cells(self, node_o: Ints, node_d: Ints, rows: NDArray[np.bool_] | None = None) -> Counted:
        """Returns the cells of these rows, between the given nodes of the tiles of both ends."""
        flows, tree = self.flows, self.tree
        self.work += OVERHEAD + len(flows)
        o, d = node_o[flows.origin], node_d[flows.destination]
        merged = flows.merge(
            o if rows is None else np.where(rows, o, np.int32(-1)), d, tree.n_nodes, tree.n_nodes
        )
        cells, row = merged.cells, merged.row
        volume = cells.volume(self.guarantee.basis).astype(np.float64)
        safe = self.guarantee.safe(cells)
        size_o, size_d = (
            tree.size[cells.origin].astype(np.float64),
            tree.size[cells.destination].astype(np.float64),
        )
        if self.goal == "error":
            cost = volume * (size_o + size_d)
        elif self.goal == "cells":
            cost = np.full(len(cells), -1.0)
        else:
            within = row >= 0
            if self.goal == "metres":
                each = (
                    self.volume
                    * (self._metres(node_o)[flows.origin] + self._metres(node_d)[flows.destination])
                    / 2
                )
            else:
                share = volume / (size_o * size_d)
                each = np.abs(np.append(share, 0.0)[row] - self.volume)
            cost = np.bincount(row[within], weights=each[within], minlength=len(cells)).astype(
                np.float64
            )
            if self.goal == "reconstruction":
                cost += (size_o * size_d - np.bincount(row[within], minlength=len(cells))) * share
        return Counted(row, safe, np.where(safe, cost, 0.0), np.where(safe, 0.0, volume))

    def _metres(self, node: Ints) -> Floats:
        """Returns the distance from each tile's centre to that of its node."""
        where = self.tree.geography
        centers = None if where is None else where.centers(node)
        return metres_moved(self.tree, np.arange(self.tree.n_tiles, dtype=np.int32), centers)


class Counted(NamedTuple):
    """Cells: the cell of each flow, which cells are safe, the cost of safe cells and the volume of
    the others.
    """

    row: Ints
    safe: NDArray[np.bool_]
    cost: Floats
    suppressed: Floats


@dataclass(eq=False)
class LocalSearch:
    """The best cut within the budget so far, and the search for better ones."""

    table: CutTable
    budget: float
    best: State
    deadline: float
    limit: float
    stopped_early: bool = False

    def run(self) -> None:
        """Moves the price until the budget is bracketed, bisects, and spends the rest of the
        budget.
        """
        state, objective = self.best, self.table.objective
        price = objective.base + 8 * abs(state.cost) / objective.total
        within = beyond = 0.0
        for _ in range(BRACKETED):
            state = self.descend(state, price)
            within, beyond = (price, beyond) if state.suppressed <= self.budget else (within, price)
            if self._ended() or (within and beyond):
                break
            price = price * 2 if beyond else price / 2
            if price <= max(objective.base, 1e-12):
                break
        for _ in range(BISECTED if within and beyond else 0):
            price = float(np.sqrt(within * beyond))
            state = self.descend(self.best, price)
            within, beyond = (price, beyond) if state.suppressed <= self.budget else (within, price)
        self.spend()

    def descend(self, state: State, price: float) -> State:
        """Applies moves that gain at this price until no move gains."""
        while not self._ended():
            moves = self.table.moves(state)
            gain = -(moves.cost + price * moves.suppressed)
            chosen = self._compatible(moves, gain, ROUNDING * abs(state.priced(price)))
            found = self._made(state, moves, chosen, price)
            if found is None:
                return state
            state = found
        return state

    def spend(self) -> None:
        """Applies the single move that improves the score most within the budget, until no move
        does.
        """
        objective = self.table.objective
        while not self._ended():
            state, moves = self.best, self.table.moves(self.best)
            lost = state.suppressed + moves.suppressed
            scores = np.where(
                lost > self.budget, np.inf, objective.scores(state.cost + moves.cost, lost)
            )
            if len(scores) == 0:
                return
            best_move = moves.select(np.array([np.argmin(scores)]))
            if not self._offer(self.table.evaluate(self.table.after(state.cut, *best_move[:2]))):
                return

    def _compatible(self, moves: Moves, gain: Floats, least: float) -> NDArray[np.int64]:
        """Returns the moves that gain, best first.

        Of moves on the same zones, the one that gains more.
        """
        divides = moves.divides
        whole = np.where(divides, self.table.above[moves.node], moves.node)
        of_uniting, of_division = np.full((2, self.table.tree.n_nodes + 1), -np.inf)
        of_uniting[whole[~divides]] = gain[~divides]
        np.maximum.at(of_division, whole[divides], gain[divides])
        wins = np.where(divides, gain >= of_uniting[whole], gain > of_division[whole])
        chosen = np.flatnonzero(wins & (gain > least))
        return chosen[np.argsort(-gain[chosen], kind="stable")]

    def _made(
        self, state: State, moves: Moves, chosen: NDArray[np.int64], price: float
    ) -> State | None:
        """Returns the state after these moves if it is a gain, else after the better half of them,
        and so on.
        """
        while len(chosen) and not self._ended():
            found = self.table.evaluate(self.table.after(state.cut, *moves.select(chosen)[:2]))
            self._offer(found)
            if found.priced(price) < state.priced(price) - ROUNDING * abs(state.priced(price)):
                return found
            chosen = chosen[: len(chosen) // 2]
        return None

    def _offer(self, found: State) -> bool:
        least_gain = 1e-12 * abs(self.best.score)
        better = (
            found.suppressed <= self.budget
            and found.published
            and found.score < self.best.score - least_gain
        )
        self.best = found if better else self.best
        return better

    def _ended(self) -> bool:
        self.stopped_early |= time.monotonic() > self.deadline
        return self.stopped_early or self.table.work >= self.limit
