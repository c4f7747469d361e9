"""TwinCut: the finest homogeneous map within a suppression budget, one cut of the origins and one
of the destinations.

With one cut fixed, the best other cut is an exactly solvable pruning of one tree. TwinCut
alternates the two, then flips nearly tied nodes and spends the rest of the budget exactly
(docs/methods/twincut.md).

Guarantees: the result is never worse than ODkAnon's volume-budget cut, and never exceeds the
budget. The same input gives the same zones on every machine, unless the time limit is reached,
which the notes record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, get_args

import numpy as np

from flowveil.core.arrays import Positions
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows, group_pairs
from flowveil.core.guarantee import Guarantee
from flowveil.methods.knapsack import best_within, flipped, near_ties
from flowveil.methods.method import INFEASIBLE
from flowveil.methods.odkanon import Cuts, volume_budget_cuts
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.twin_trees import Costs, Goal, Half, TwinTrees, metres_moved
from flowveil.release.plan import Plan

#: Work of the local search at effort 1, in rows and nodes visited; about five seconds.
WORK = 4e8
#: Share of that work if weights are summed. Weights rarely tie, so nodes have more combinations and
#: work takes longer.
SHARE_WITH_WEIGHTS = 0.65
#: Fixed work of an evaluation.
OVERHEAD = 4000.0
#: Kicks without a gain after which the local search stops, at effort 1.
MOST_KICKS_WITHOUT_GAIN = 30
#: Nearly tied nodes that are combined when a changed cut is tested.
PROBED = 40
#: Factors of the path of prices, relative to its start.
PATH = np.exp2(np.arange(-6, 7) / 4)
#: Logarithms of the prices that the local search visits, relative to the fair price.
PRICE_STEPS = np.arange(16) / 48


def twincut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    objective: Goal = "error",
    effort: float = 1.0,
    time_limit: float | None = None,
) -> Plan:
    """Plans the finest homogeneous zones that suppress at most a share of the volume.

    Args:
        flows: the flows to anonymise.
        guarantee: thresholds that every cell must reach.
        max_suppressed: largest share of the volume that may be suppressed; never exceeded.
        objective: ``error`` (mean generalisation error: tiles of both zones of a trip), ``metres``
            (mean distance from tile to zone centre), ``reconstruction`` (reconstruction loss), or
            ``cells`` (number of published cells, maximised).
        effort: work of the local search; 0 skips it.
        time_limit: seconds after which the best solution so far is returned; no limit by default.
            If it is reached, the notes say so and the result may differ between machines.
    """
    check_goal(objective)
    deadline = search_deadline(effort, time_limit)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    trees = TwinTrees.from_flows(flows, guarantee, objective)
    if trees is None or trees.given(0, np.zeros(1, np.int64)).lost > budget:
        raise InfeasibleError(INFEASIBLE)
    # The safe pairs know what cuts suppress, unless nodes are missing or sums are rounded.
    known = (
        {}
        if trees.thinned or trees.origins.volume.dtype.kind == "f"
        else {"suppressed": trees.suppressed}
    )
    merged = volume_budget_cuts(flows, guarantee, max_suppressed=max_suppressed, **known)
    search = Search(trees, budget, deadline=deadline)
    search.offer(
        (trees.origins.from_full(merged.origin), trees.destinations.from_full(merged.destination))
    )
    search.alternate_from(list(starting_cuts(trees, merged)))
    if effort > 0:
        search.improve(effort, share=SHARE_WITH_WEIGHTS if guarantee.basis == "weight" else 1.0)
    origin, destination = search.best.cuts
    cuts = replace(
        merged,
        origin=trees.origins.to_full(origin),
        destination=trees.destinations.to_full(destination),
    )
    notes = {"stopped_early": search.stopped_early}
    goals: set[Goal] = {objective} if trees.thinned else {"error", objective}
    # The tables take most of the memory and are no longer needed.
    del search, trees, known
    # ODkAnon's cut may use nodes that are missing from the safe pairs or from a thinned tree.
    plan, other = (each.plan(flows, guarantee, notes=notes) for each in (cuts, merged))
    if not other.kept.any() or float(np.sum(flows.volume(guarantee.basis)[~other.kept])) > budget:
        return plan
    better = all(
        score(flows, other, guarantee.basis, g) < score(flows, plan, guarantee.basis, g)
        for g in goals
    )
    return other if better else plan


def check_goal(goal: str) -> None:
    """Raises ParameterError for an unknown goal."""
    if goal not in get_args(Goal):
        raise ParameterError(
            f"objective must be one of {', '.join(get_args(Goal))}; found {goal!r}."
        )


def search_deadline(effort: float, time_limit: float | None) -> float:
    """Returns the monotonic time at which a search must stop.

    Raises ParameterError for a wrong effort or limit.
    """
    if not (np.isfinite(effort) and effort >= 0):
        raise ParameterError(f"effort must be 0 or more; found {effort!r}.")
    if time_limit is not None and not time_limit > 0:
        raise ParameterError(f"time_limit must be above 0; found {time_limit!r}.")
    return np.inf if time_limit is None else time.monotonic() + time_limit


def score(
    flows: Flows, plan: Plan, basis: str, goal: Goal, *, weights: Sequence[float] = ()
) -> float:
    """Returns the objective of a plan, computed from the flows independently of the search.

    Smaller is better.

    If columns fold, the width of a cell's node counts as many tiles as the fold's weight, and cells
    are spread over values as well.
    """
    kept = plan.kept
    volume = flows.volume(basis).astype(np.float64)
    published = float(np.sum(volume[kept]))
    if not published:
        return np.inf
    size_o, size_d = (
        plan.origin_zones.size[plan.origin_zone],
        plan.destination_zones.size[plan.destination_zone],
    )
    if goal == "error":
        size = (size_o + size_d).astype(np.float64)
        for weight, width in zip(weights, plan.widths, strict=True):
            size += weight * width[plan.origin_zone]
        return float(np.sum((volume * size)[kept])) / published
    if goal == "metres":
        metres = metres_moved(
            flows.origins, flows.origin, plan.origin_zones.centers(plan.origin_zone)
        )
        metres += metres_moved(
            flows.destinations,
            flows.destination,
            plan.destination_zones.centers(plan.destination_zone),
        )
        return float(np.sum((volume * metres)[kept])) / 2 / published
    shown = np.where(kept, plan.origin_zone, np.int32(-1))
    cells = group_pairs(
        shown, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones)
    )
    if goal == "cells":
        return -float(len(cells.origin))
    # Each tile pair of a cell gets an even share of it; suppressed flows get nothing.
    pairs = (
        plan.origin_zones.size[cells.origin].astype(np.float64)
        * plan.destination_zones.size[cells.destination]
    )
    if plan.folded is not None:
        pairs = pairs * plan.folded.n_values[cells.origin]
    each = cells.sum(volume) / pairs
    on_flows = np.abs(np.append(each, 0.0)[cells.row] - volume).sum()
    on_empty_pairs = np.sum((pairs - np.bincount(cells.row[kept], minlength=len(each))) * each)
    return float(on_flows + on_empty_pairs) / float(np.sum(volume))


def starting_cuts(trees: TwinTrees, merged: Cuts | None = None) -> Iterator[tuple[int, Positions]]:
    """Yields cuts of one tree to start from: ODkAnon's (if given), uniform depths, and zones of
    about equal volume.
    """
    if merged is not None:
        yield 0, trees.origins.from_full(merged.origin)
        yield 1, trees.destinations.from_full(merged.destination)
    axis = trees.origins
    for layer, *_ in axis.layers:
        yield 0, layer
    # With the root of the other tree fixed, a node publishes its whole volume.
    volume = trees.given(1, np.zeros(1, np.int64)).volume
    for zones in (16, 64, 256, 1024):
        target = trees.objective.total / zones
        yield 0, axis.best(-((volume - target) ** 2))[0]


@dataclass(frozen=True)
class FrontierPoint:
    """One map of the frontier: its objective (for ``cells`` the number of cells) at a price of a
    suppressed unit.
    """

    suppressed_share: float
    value: float
    price: float


def frontier(
    flows: Flows,
    guarantee: Guarantee,
    *,
    objective: Goal = "error",
    up_to: float = 1.0,
    progress: Callable[[float], None] | None = None,
) -> tuple[FrontierPoint, ...]:
    """Returns how fine a homogeneous map can be for every suppressed share.

    The Pareto-optimal maps, finest last.

    Sweeps the price of a suppressed unit from very high to very low and prunes both trees in turn
    at each price. For the data holder only: it is computed from all flows.

    Prices at which more than ``up_to`` is suppressed, which take most of the time, are skipped.
    ``progress`` is called with the share of prices that are finished.
    """
    check_goal(objective)
    trees = TwinTrees.from_flows(flows, guarantee, objective)
    if trees is None or trees.objective.total <= 0:
        return ()
    search = Search(trees, trees.objective.total)
    *_, (_, finest) = starting_cuts(trees)
    found: dict[tuple[float, float], float] = {}
    # At this price, suppressing the smallest volume costs more than publishing everything as one
    # cell.
    volume = flows.volume(guarantee.basis)
    least = float(np.min(volume[volume > 0]))
    highest = (
        trees.objective.total / least * float(flows.origins.n_tiles + flows.destinations.n_tiles)
    )
    prices = highest * np.exp2(-np.arange(0, np.log2(highest) + 4, 0.5))
    last, tried = len(prices), 0
    for way, cut in ((1, np.zeros(1, np.int64)), (-1, finest)):
        for at, price in list(enumerate(prices))[:last][::way]:
            cut = search.converge(0, cut, float(price))
            least_suppressed = min((suppressed for suppressed, _ in search.points), default=0.0)
            for point in search.points:
                found.setdefault(point, float(price))
            search.points.clear()
            tried += 1
            if progress is not None:
                progress(min(1.0, tried / (2 * last)))
            if way == 1 and least_suppressed > up_to * trees.objective.total:
                last = at + 1
                break
    unit = -trees.objective.total if objective == "cells" else 1.0
    scored = [
        (s / trees.objective.total, trees.objective.score(c, s), price)
        for (s, c), price in found.items()
    ]
    kept: list[FrontierPoint] = []
    best = np.inf
    for share, score, price in sorted(scored):
        if score < best and share < 1:
            best = score
            kept.append(FrontierPoint(share, unit * score, price))
    return tuple(kept)


class Solution(NamedTuple):
    """A cut of each tree, and the score."""

    cuts: tuple[Positions, Positions]
    score: float


@dataclass(eq=False)
class Search:
    """The best solution so far, and the moves that improve it."""

    trees: TwinTrees
    budget: float
    deadline: float = np.inf
    best: Solution = field(init=False)
    price: float = 64.0
    work: float = 0.0
    stopped_early: bool = False
    points: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        root = np.zeros(1, np.int64)
        self.best = Solution(
            (root, root), self.trees.objective.score(*self._given(0, root).totals(root))
        )

    def _given(self, end: int, cut: Positions) -> Costs:
        """Returns the costs of the other tree with this cut fixed."""
        costs, axis = self.trees.given(end, cut), self.trees.axis(end)
        self.work += (
            OVERHEAD + float(np.sum(axis.first[cut + 1] - axis.first[cut])) + len(costs.axis)
        )
        return costs

    def _at(self, costs: Costs, price: float) -> Half:
        self.work += OVERHEAD + 8.0 * len(costs.axis)
        return costs.at(price)

    def _offer(
        self, end: int, fixed: Positions, free: Positions, cost: float, suppressed: float
    ) -> bool:
        """Keeps a solution if it is within the budget and better.

        ``fixed`` is the cut of this end.
        """
        self.points.append((suppressed, cost))
        score = self.trees.objective.score(cost, suppressed)
        better = suppressed <= self.budget and score < self.best.score - 1e-12 * abs(
            self.best.score
        )
        if better:
            self.best = Solution((free, fixed) if end else (fixed, free), score)
        return better

    def offer(self, cuts: tuple[Positions, Positions]) -> bool:
        """Keeps a pair of cuts if it is within the budget and better."""
        return self._offer(0, *cuts, *self._given(0, cuts[0]).totals(cuts[1]))

    def _ended(self, limit: float = np.inf) -> bool:
        """Returns whether the work limit or the deadline is reached."""
        self.stopped_early |= self.work < limit and time.monotonic() > self.deadline
        return self.stopped_early or self.work >= limit

    def alternate_from(self, starts: list[tuple[int, Positions]]) -> None:
        """Alternates from every start with the budget as constraint, then along a path of shared
        prices.
        """
        for end, cut in starts:
            if not self._ended():
                self._with_budget(end, cut)
        if self._ended():
            return
        center = self.fair_price()
        for path in (PATH[len(PATH) // 2 :], PATH[: len(PATH) // 2][::-1]):
            cut = self.best.cuts[0]
            for factor in path:
                if self._ended():
                    return
                cut = self.converge(0, cut, center * factor)
        self.price = self.fair_price()

    def _with_budget(self, end: int, cut: Positions) -> None:
        """Prunes the two trees in turn, each to the best point on its convex hull within the
        budget.
        """
        last = np.inf
        price = self.price
        while True:
            costs = self._given(end, cut)
            found = dual_multiplier(costs, self.budget, near=price)
            if found is None:
                return
            half = self._at(costs, self._worth(costs, found))
            price = max(found, 1e-3)
            self._offer(end, cut, *half[:3])
            score = self.trees.objective.score(half.cost, half.suppressed)
            if score >= last - 1e-12 * abs(last):
                return
            last, end, cut = score, 1 - end, half.cut

    def _worth(self, costs: Costs, price: float) -> float:
        """Returns the lowest price, at least the given one, at which more suppression does not
        improve the score.
        """
        for _ in range(50):
            half = self._at(costs, price)
            least = self.trees.objective.least_price(
                self.trees.objective.score(half.cost, half.suppressed)
            )
            if not np.isfinite(least) or least <= price * (1 + 1e-12):
                break
            price = least
        return price

    def fair_price(self) -> float:
        """Returns the price of a suppressed unit at the best solution.

        The geometric mean over the two trees.
        """
        prices = []
        for end in (0, 1):
            costs = self._given(end, self.best.cuts[end])
            found = dual_multiplier(costs, self.budget, near=self.price)
            prices.append(self._worth(costs, found if found is not None else self.price))
        return max(float(np.sqrt(prices[0] * prices[1])), 1e-3)

    def converge(self, end: int, cut: Positions, price: float) -> Positions:
        """Prunes the two trees in turn at one price until nothing improves.

        Returns the cut of this end.
        """
        last = np.inf
        while True:
            half = self._at(self._given(end, cut), price)
            self._offer(end, cut, *half[:3])
            back = self._at(self._given(1 - end, half.cut), price)
            self._offer(1 - end, half.cut, *back[:3])
            priced = back.cost + price * back.suppressed
            if priced >= last - 1e-9 * abs(last):
                return cut
            last, cut = priced, back.cut

    def improve(self, effort: float, *, share: float = 1.0) -> None:
        """Searches around the best solution until a share of the work limit is reached or nothing
        improves.

        First along prices around the fair one, then by kicks, then node by node; a gain starts
        over.
        """
        limit = self.work + effort * share * WORK
        n_nodes = len(self.trees.origins) + len(self.trees.destinations)
        most_kicks = int(np.ceil(effort * min(MOST_KICKS_WITHOUT_GAIN, n_nodes)))
        rng = np.random.default_rng(0)
        tried: set[tuple[int, bytes]] = set()
        self.polish()
        kicks = 0
        while not self._ended(limit):
            before = self.best.score
            self._sweep_prices(tried, limit)
            in_vain = 0
            while self.best.score == before and in_vain < most_kicks and not self._ended(limit):
                self._kick(rng, kicks)
                kicks, in_vain = kicks + 1, in_vain + 1
            if self.best.score == before:
                self._flip_each(limit)
            if self.best.score == before:
                return
            self.price = self.fair_price()

    def _sweep_prices(self, tried: set[tuple[int, bytes]], limit: float) -> None:
        """Alternates at prices rising, then falling from the fair one, and spends the budget
        exactly at each result.

        The hull has few points near the budget, but the exact pruning reaches a different
        neighbourhood from each of them.
        """
        for steps in (PRICE_STEPS, -PRICE_STEPS):
            for end in (0, 1):
                cut = self.best.cuts[end]
                center = self.price = self.fair_price()
                for factor in np.exp(steps):
                    if self._ended(limit):
                        return
                    cut = self.converge(end, cut, center * float(factor))
                    if (end, cut.tobytes()) in tried:
                        continue
                    tried.add((end, cut.tobytes()))
                    if self._exact(end, cut):
                        self.polish()

    def polish(self) -> None:
        """Cuts each tree optimally within the budget while the other stays, in turn, until neither
        improves.
        """
        settled = end = 0
        while settled < 2 and not self._ended():
            settled = 0 if self._exact(end, self.best.cuts[end]) else settled + 1
            end = 1 - end

    def _exact(self, end: int, cut: Positions, *, most_choices: int | None = None) -> bool:
        """Finds the best cut of the other tree within the budget.

        Returns whether it improves the best solution.
        """
        costs = self._given(end, cut)
        if costs.lost > self.budget:
            return False
        price = max(self.price, self.trees.objective.least_price(self.best.score))
        if not self._may_improve(self._at(costs, price)):
            return False
        found = dual_multiplier(costs, self.budget, near=self.price)
        if found is None:
            return False
        half = self._at(costs, self._worth(costs, max(found, 1e-9)))
        improved = self._offer(end, cut, *half[:3])
        if half.price < self.trees.objective.least_price(self.best.score):
            half = self._at(costs, self.trees.objective.least_price(self.best.score))
        if not self._may_improve(half):
            return improved
        best, (sets, seen) = best_within(
            costs, half, self.budget, self.best.score, most_choices=most_choices
        )
        self.work += 10 * OVERHEAD + 10.0 * len(costs.axis) + sets * OVERHEAD / 2 + seen * 10.0
        return (best is not None and self._offer(end, cut, *best)) or improved

    def _may_improve(self, half: Half) -> bool:
        """Returns whether any cut of this tree can beat the best solution, by the lower bound at
        this price.
        """
        most = self.trees.objective.price_within(self.best.score, half.price, self.budget)
        return half.cost + half.price * half.suppressed < most

    def _flip_each(self, limit: float) -> None:
        """Flips each nearly tied node of each tree and re-optimises the other tree, up to the first
        gain.
        """
        best = self.best
        for end in (0, 1):
            costs = self._given(end, best.cuts[end])
            half = self._at(costs, self.price)
            most = self.trees.objective.price_within(best.score, self.price, self.budget)
            slack = most - (half.cost + half.price * half.suppressed)
            nodes, loss = near_ties(costs, self.price, 3 * max(slack, 0.0))
            for node in nodes[np.argsort(loss, kind="stable")]:
                if self._ended(limit):
                    return
                if self._answer(1 - end, flipped(costs, self.price, np.array([node]))):
                    self.polish()
                    return

    def _answer(self, end: int, cut: Positions) -> bool:
        """Re-optimises the other tree after a changed cut, then this tree.

        Returns True on a gain.
        """
        before = self.best.score
        for _ in range(3):
            costs = self._given(end, cut)
            half = self._at(
                costs, max(self.price, self.trees.objective.least_price(self.best.score))
            )
            if self._may_improve(half):
                self._exact(end, cut, most_choices=PROBED)
            end, cut = 1 - end, half.cut
        return self.best.score < before

    def _kick(self, rng: np.random.Generator, rounds: int) -> None:
        """Flips several nearly tied nodes of both trees at a slightly different price, then
        alternates.
        """
        price = self.price * float(np.exp(rng.uniform(-0.25, 0.25)))
        end = rounds % 2
        cut = self.best.cuts[end]
        for _ in range(1 + rounds % 3):
            costs = self._given(end, cut)
            noise = 1 + (0.05, 0.1, 0.2)[rounds % 3] * rng.standard_normal(len(costs.axis))
            cut = costs.axis.best(costs.saving(price) * noise)[0]
            end = 1 - end
        before = self.best.score
        cut = self.converge(end, cut, price)
        self._answer(end, cut)
        if self.best.score < before:
            self.polish()
