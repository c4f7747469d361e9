"""TwinCut: the finest homogeneous map within a budget of suppression.

One cut of the origins and one of the destinations, so zones do not overlap. With one cut fixed, the best other cut is a
pruning of one tree, solved exactly (`Costs.at`, `best_within`); TwinCut alternates the two from several starts until
nothing changes, once with the budget given to each pruning and once with one price on suppressed volume that both trees
share and that is swept over a path. A local search then decides nearly tied nodes otherwise, lets both trees answer,
and spends what is left of the budget exactly.

Guaranteed: never worse than ODkAnon's volume-budget cut at the same budget; never over the budget; no single tree
can be cut better while the other stays (up to `MOST_COMBINATIONS`, where the local search runs to its end). The same
input gives the same zones on every machine, unless the time limit is reached, which the notes say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows, People, group_pairs
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats
from flowveil.memory import give_back
from flowveil.methods.knapsack import best_within, flipped, near_ties
from flowveil.methods.odkanon import Cuts, volume_budget_cuts
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.safe_pairs import FLOWS_ALONE, at_a_time
from flowveil.methods.twin_trees import Costs, FoundPairs, Goal, Half, Positions, TwinTrees, metres_moved
from flowveil.reading.limits import threads
from flowveil.release.plan import Plan
from flowveil.remote_people import RemotePeople
from flowveil.workers import parallel_map

#: Work of the local search at effort 1, in rows and nodes visited: some five seconds.
WORK = 4e8

#: How much of it is done where weights are summed. Sums of weights are seldom equal, so there are more combinations to
#: keep at a node than with trips, and a unit of work takes longer.
SHARE_WITH_WEIGHTS = 0.65

#: What an evaluation costs beside its rows and nodes.
OVERHEAD = 4000.0

#: Kicks without a gain after which the local search has run to its end, at effort 1.
PATIENCE = 30

#: Nearly tied nodes that are combined when a changed cut is tried out.
PROBED = 40

#: Numbers of earlier evaluations that the search remembers: 128 MB.
MOST_REMEMBERED = 16_000_000

#: Steps of the path of prices, and how far it reaches from where it starts.
PATH = np.exp2(np.arange(-6, 7) / 4)

#: Logarithms of the prices, as multiples of the fair one, that the local search walks along.
WALK = np.arange(16) / 48


#: Starts that are alternated from at a time: each lane remembers something.
LANES = 2

#: A cut of one end, the other end's answer, and what they cost and suppress; the number of the end comes first.
Offer = tuple[int, Positions, Positions, float, float]

INFEASIBLE = (
    "No cell can be published within max_suppressed: even one cell of everything is short. "
    "Hint: lower k, or bring more data."
)


def twincut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    objective: Goal = "error",
    effort: float = 1.0,
    time_limit: float | None = None,
) -> Plan:
    """Plan the finest homogeneous zones that suppress at most a share of the volume.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may be suppressed; never exceeded.
        objective: what is made small: ``error`` (mean generalisation error: tiles of both zones of a trip),
            ``metres`` (mean distance from tile to zone centre), ``reconstruction`` (reconstruction loss), or
            ``cells`` (as many published cells as possible).
        effort: how much work the local search may do; 0 leaves it out.
        time_limit: seconds after which the best found so far is returned; none by default. Where it is reached, the
            notes say so and the result may differ between machines.
    """
    check_goal(objective)
    if not (np.isfinite(effort) and effort >= 0):
        raise ParameterError(f"effort must be 0 or more; found {effort!r}.")
    if time_limit is not None and not time_limit > 0:
        raise ParameterError(f"time_limit must be above 0; found {time_limit!r}.")
    started = time.monotonic()
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    start: list[Cuts] = []

    def note_start() -> None:
        start.append(volume_budget_cuts(flows, guarantee, max_suppressed=max_suppressed))

    pairs = FoundPairs.from_flows(flows, guarantee, objective, beside=note_start)
    if not pairs.parts:
        raise InfeasibleError(INFEASIBLE)
    trees, merged = pairs.laid_out(), start[0]
    if trees.given(0, np.zeros(1, np.int64)).lost > budget:
        raise InfeasibleError(INFEASIBLE)
    search = Search(trees, budget, deadline=np.inf if time_limit is None else started + time_limit)
    search.offer((trees.origins.from_full(merged.origin), trees.destinations.from_full(merged.destination)))
    search.alternate_from(list(starting_cuts(trees, merged)))
    if effort > 0:
        search.improve(effort, share=SHARE_WITH_WEIGHTS if guarantee.basis == "weight" else 1.0)
    origin, destination = search.best.cuts
    cuts = Cuts(
        flows.origins, flows.destinations, trees.origins.to_full(origin), trees.destinations.to_full(destination)
    )
    notes = {"stopped_early": search.stopped_early}
    goals: set[Goal] = {objective} if trees.thinned else {"error", objective}
    # The tables are the most of what is in memory, and done with.
    del search, trees, pairs
    if len(flows) >= FLOWS_ALONE:
        give_back()
    # ODkAnon's cut may use nodes that are not in the safe pairs, or that a thinned tree does not have.
    plan, other = parallel_map(
        (partial(plan_of_cuts, flows, guarantee, each, notes) for each in (cuts, merged)),
        threads=1 if isinstance(flows.people, RemotePeople) else at_a_time(len(flows)),
    )
    volume = flows.volume(guarantee.basis)
    if not other.kept.any() or float(np.sum(volume[~other.kept])) > budget:
        return plan
    better = all(score(flows, other, guarantee.basis, g) < score(flows, plan, guarantee.basis, g) for g in goals)
    return other if better else plan


def check_goal(goal: str) -> None:
    """Raise ParameterError for a goal that there is not."""
    if goal not in get_args(Goal):
        raise ParameterError(f"objective must be one of {', '.join(get_args(Goal))}; found {goal!r}.")


def score(flows: Flows, plan: Plan, basis: str, goal: Goal, *, time_weight: float = 0.0) -> float:
    """What a plan of whole cells comes to, counted anew from the flows and not by the search; smaller is better.

    Where cells have times, an hour of them counts as much as ``time_weight`` tiles, and they are spread over steps too.
    """
    kept = plan.kept
    volume = flows.volume(basis).astype(np.float64)
    published = float(np.sum(volume[kept]))
    if not published:
        return np.inf
    size_o, size_d = plan.origin_zones.size[plan.origin_zone], plan.destination_zones.size[plan.destination_zone]
    if goal == "error":
        hours = 0.0 if plan.timed is None else time_weight * plan.timed.hours[plan.origin_zone]
        return float(np.sum((volume * (size_o + size_d + hours))[kept])) / published
    if goal == "metres":
        metres = metres_moved(flows.origins, flows.origin, plan.origin_zones.centers(plan.origin_zone))
        metres += metres_moved(
            flows.destinations, flows.destination, plan.destination_zones.centers(plan.destination_zone)
        )
        return float(np.sum((volume * metres)[kept])) / 2 / published
    shown = np.where(kept, plan.origin_zone, np.int32(-1))
    cells = group_pairs(shown, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
    if goal == "cells":
        return -float(len(cells.origin))
    # Each pair of tiles of a cell gets an even share of it; flows that are not published get nothing.
    pairs = plan.origin_zones.size[cells.origin].astype(np.float64) * plan.destination_zones.size[cells.destination]
    if plan.timed is not None:
        pairs = pairs * plan.timed.steps[cells.origin]
    each = cells.sum(volume) / pairs
    on_flows = np.abs(np.append(each, 0.0)[cells.row] - volume).sum()
    on_empty_pairs = np.sum((pairs - np.bincount(cells.row[kept], minlength=len(each))) * each)
    return float(on_flows + on_empty_pairs) / float(np.sum(volume))


def plan_of_cuts(flows: Flows, guarantee: Guarantee, cuts: Cuts, notes: dict[str, Any]) -> Plan:
    """The plan that publishes all safe cells of these cuts."""
    return Plan.from_cuts(flows, cuts.origin, cuts.destination, _in_safe_cells(flows, guarantee, cuts), notes=notes)


def _in_safe_cells(flows: Flows, guarantee: Guarantee, cuts: Cuts) -> NDArray[np.bool_]:
    """Which flows lie in a safe cell of these cuts.

    Of how many people a cell has nothing is asked but whether they are enough. They are where one of its flows has
    enough, and are not where those of all its flows, added up, are too few: in cells between the two they are told
    apart.
    """
    people, least = flows.people, guarantee.people
    if least is None or type(people) is not People:
        table = cuts.merge(flows, flows.origin, flows.destination)
        return guarantee.safe(table.cells)[table.row]
    without = replace(flows.renamed(flows.origin, flows.destination), people=None)
    table = cuts.merge(without, flows.origin, flows.destination)
    each = people.count(len(flows))
    enough = np.zeros(len(table.cells), dtype=np.bool_)
    enough[table.row[each >= least]] = True
    between = ~enough & (np.bincount(table.row, weights=each, minlength=len(enough)) >= least)
    asked = np.flatnonzero(between[table.row][people.cell])
    told_apart = People(people.cell[asked], people.person[asked]).merge(table.row)
    enough |= told_apart.count(len(enough)) >= least
    # No cell has more people than trips.
    others = replace(guarantee, people=None, trips=max(guarantee.trips or 0, least))
    enough &= others.safe(table.cells)
    return enough[table.row]


def starting_cuts(trees: TwinTrees, merged: Cuts | None = None) -> Iterator[tuple[int, Positions]]:
    """Cuts to start from, each of one tree: ODkAnon's if given, uniform depths, zones of about the same volume."""
    if merged is not None:
        yield 0, trees.origins.from_full(merged.origin)
        yield 1, trees.destinations.from_full(merged.destination)
    axis = trees.origins
    for layer, *_ in axis.layers:
        yield 0, layer
    # With the whole of the other tree fixed, the volume of a node is all it publishes.
    volume = trees.given(1, np.zeros(1, np.int64)).volume
    for zones in (16, 64, 256, 1024):
        target = trees.objective.total / zones
        yield 0, axis.best_cut(-((volume - target) ** 2))


@dataclass(frozen=True)
class FrontierPoint:
    """One map of the frontier: what it suppresses and how fine it is.

    Attributes:
        suppressed_share: share of the volume that is suppressed.
        value: the objective; for ``cells`` the number of published cells.
        price: the price of a suppressed unit at which it was found.
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
    """How fine a homogeneous map can be for every share that may be suppressed, in one run.

    The price of a suppressed unit that both trees share is swept from so high that nothing is suppressed that need not
    be, to so low that most is; at each price the two trees are pruned in turn. Of all maps met on the way those are
    kept that no other beats in both respects, finest last. For the data holder: it is computed from all flows.

    Args:
        flows, guarantee: what is to be published.
        objective: what is made small.
        up_to: prices at which a larger share is suppressed are not looked at. What suppresses most is also most of the
            work: the cuts are finest there.
        progress: called with the share of the prices that are done.
    """
    check_goal(objective)
    trees = TwinTrees.from_flows(flows, guarantee, objective)
    if trees is None or trees.objective.total <= 0:
        return ()
    search = Search(trees, trees.objective.total)
    starts = [cut for _, cut in starting_cuts(trees)]
    found: dict[tuple[float, float], float] = {}
    # So high that suppressing the least of all volumes costs more than everything in one cell.
    volume = flows.volume(guarantee.basis)
    least = float(np.min(volume[volume > 0]))
    highest = trees.objective.total / least * float(flows.origins.n_tiles + flows.destinations.n_tiles)
    prices = highest * np.exp2(-np.arange(0, np.log2(highest) + 4, 0.5))
    last, tried = len(prices), 0
    for way, cut in ((1, np.zeros(1, np.int64)), *((-1, start) for start in starts[-1:])):
        for at, price in list(enumerate(prices))[:last][::way]:
            _, cut = search.converge(0, cut, float(price))
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
    sign = -1.0 if objective == "cells" else 1.0
    scored = [(s / trees.objective.total, trees.objective.score(c, s), price) for (s, c), price in found.items()]
    kept: list[FrontierPoint] = []
    best = np.inf
    for share, score, price in sorted(scored):
        if score < best and share < 1:
            best = score
            value = score * trees.objective.total if objective == "cells" else score
            kept.append(FrontierPoint(share, sign * value, price))
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class Solution:
    """A cut of each tree, what it costs and suppresses, and its score."""

    cuts: tuple[Positions, Positions]
    cost: float
    suppressed: float
    score: float


@dataclass(eq=False)
class Search:
    """The best solution so far, and the ways to a better one."""

    trees: TwinTrees
    budget: float
    deadline: float = np.inf
    best: Solution = field(init=False)
    price: float = 64.0
    likely: float = 0.0
    work: float = 0.0
    stopped_early: bool = False
    keep_points: bool = True
    points: list[tuple[float, float]] = field(default_factory=list)
    known: dict[tuple[int, bytes], Costs] = field(default_factory=dict)
    remembered: int = 0
    most_remembered: int = MOST_REMEMBERED
    offered: list[Offer] | None = None

    def __post_init__(self) -> None:
        roots = (np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.best = self._solution(roots, *self._given(0, roots[0]).of(roots[1]))

    # ---- evaluating ------------------------------------------------------------------------------------------

    def _given(self, end: int, cut: Positions) -> Costs:
        """What the other tree costs with this cut fixed. The search comes back to few cuts again and again."""
        key = end, cut.tobytes()
        costs = self.known.get(key)
        if costs is None:
            self._make_room(4 * len(self.trees.axis(1 - end)))
            costs = self.trees.given(end, cut)
        else:
            del self.known[key]
        self.known[key] = costs
        axis = self.trees.axis(end)
        # Work is what the search would do without memory, so that remembering changes no result.
        self.work += OVERHEAD + float(np.sum(axis.first[cut + 1] - axis.first[cut])) + len(costs.axis)
        return costs

    def _at(self, costs: Costs, price: float) -> Half:
        self.work += OVERHEAD + 8.0 * len(costs.axis)
        half = costs.halves.get(price)
        if half is None:
            self._make_room(2 * len(costs.axis))
            half = costs.halves[price] = costs.at(price)
        return half

    def _make_room(self, numbers: int) -> None:
        """Forget what was asked for longest ago where so many more numbers would be too many to remember.

        Where sums are rounded, what was looked at before may show in the last digit: all is forgotten at once there,
        at the same moments as ever.
        """
        if self.trees.sums_exactly:
            held = numbers + sum(costs.held for costs in self.known.values())
            # The cut that is looked at and the one before it are asked for again at once.
            while held > self.most_remembered and len(self.known) > 2:
                held -= self.known.pop(next(iter(self.known))).held
            return
        self.remembered += numbers
        if self.remembered > MOST_REMEMBERED:
            self.forget()
            self.remembered = numbers

    def forget(self) -> None:
        """Forget all evaluations."""
        self.known.clear()
        self.remembered = 0

    def _solution(self, cuts: tuple[Positions, Positions], cost: float, suppressed: float) -> Solution:
        return Solution(cuts, cost, suppressed, self.trees.objective.score(cost, suppressed))

    def _offer(self, end: int, fixed: Positions, free: Positions, cost: float, suppressed: float) -> bool:
        """Keep a solution if it is within the budget and better; ``fixed`` is the cut of this end."""
        if self.offered is not None:
            self.offered.append((end, fixed, free, cost, suppressed))
        if self.keep_points:
            self.points.append((suppressed, cost))
        if suppressed > self.budget:
            return False
        found = self._solution((free, fixed) if end else (fixed, free), cost, suppressed)
        better = found.score < self.best.score - 1e-12 * abs(self.best.score)
        if better:
            self.best = found
        return better

    def offer(self, cuts: tuple[Positions, Positions]) -> bool:
        """Keep a pair of cuts if it is within the budget and better."""
        return self._offer(0, *cuts, *self._given(0, cuts[0]).of(cuts[1]))

    def _out_of_time(self) -> bool:
        if time.monotonic() > self.deadline:
            self.stopped_early = True
        return self.stopped_early

    # ---- alternating -----------------------------------------------------------------------------------------

    def alternate_from(self, starts: list[tuple[int, Positions]]) -> None:
        """Alternate from every start with the budget given to each pruning, then along a path of shared prices."""
        if self.trees.sums_exactly:
            self._in_lanes(starts)
        else:
            for end, cut in starts:
                if not self._out_of_time():
                    self._with_budget(end, cut)
        if self._out_of_time():
            return
        center = self._fair_price()
        for path in (PATH[len(PATH) // 2 :], PATH[: len(PATH) // 2][::-1]):
            cut = self.best.cuts[0]
            for factor in path:
                if self._out_of_time():
                    return
                _, cut = self.converge(0, cut, center * factor)
        self.price = self._fair_price()

    def _in_lanes(self, starts: list[tuple[int, Positions]]) -> None:
        """Alternate from every start with the budget given to each pruning, in two lanes side by side.

        Starts seldom meet, so a lane does without what the other remembers; what they find is offered in the order of
        the starts. There are two lanes however many threads there are, so that no lane depends on that. Only where sums
        are the same in any order: what is remembered shows in no digit then.
        """
        # A good guess of the price saves the others the largest prunings.
        for end, cut in starts[:1]:
            self._with_budget(end, cut)
        rest = starts[1:]
        lanes = [rest[first::LANES] for first in range(LANES)]
        found: list[list[list[Offer]]] = []
        for lane, offered in parallel_map(
            (partial(self._apart, lane) for lane in lanes), threads=min(threads(), LANES)
        ):
            self.work += lane.work
            self.stopped_early |= lane.stopped_early
            found.append(offered)
        for at in range(len(rest)):
            for offer in found[at % LANES][at // LANES]:
                self._offer(*offer)

    def _apart(self, starts: list[tuple[int, Positions]]) -> tuple[Search, list[list[Offer]]]:
        """The same search from some starts, with a memory of its own, and what it would offer from each of them."""
        one = copy(self)
        one.trees = replace(self.trees, summed={})
        one.known, one.remembered, one.points, one.work = {}, 0, [], 0.0
        one.most_remembered = MOST_REMEMBERED // LANES
        offered: list[list[Offer]] = []
        for end, cut in starts:
            offered.append([])
            one.offered = offered[-1]
            if not one._out_of_time():
                one._with_budget(end, cut)
        one.forget()
        return one, offered

    def _with_budget(self, end: int, cut: Positions) -> None:
        """Prune the two trees in turn, each to the best on its convex hull within the budget."""
        last = np.inf
        price = self.price
        while True:
            costs = self._given(end, cut)
            found = dual_multiplier(costs, self.budget, near=price, likely=self.likely)
            if found is None:
                return
            self.likely = found
            half = self._at(costs, self._worth(costs, found))
            price = max(found, 1e-3)
            self._offer(end, cut, half.cut, half.cost, half.suppressed)
            score = self.trees.objective.score(half.cost, half.suppressed)
            if score >= last - 1e-12 * abs(last):
                return
            last, end, cut = score, 1 - end, half.cut

    def _worth(self, costs: Costs, price: float) -> float:
        """A price at which suppressing more would not improve the score: the given one, or higher."""
        for _ in range(50):
            half = self._at(costs, price)
            least = self.trees.objective.least_price(self.trees.objective.score(half.cost, half.suppressed))
            if not np.isfinite(least) or least <= price * (1 + 1e-12):
                break
            price = least
        return price

    def _fair_price(self) -> float:
        """The price of a suppressed unit at the best solution: between what the two trees would pay."""
        prices = []
        for end in (0, 1):
            costs = self._given(end, self.best.cuts[end])
            found = dual_multiplier(costs, self.budget, near=self.price)
            prices.append(self._worth(costs, found if found is not None else self.price))
        return max(float(np.sqrt(prices[0] * prices[1])), 1e-3)

    def converge(self, end: int, cut: Positions, price: float) -> tuple[float, Positions]:
        """Prune the two trees in turn at one shared price until nothing is gained; the priced cost and this cut."""
        last = np.inf
        while True:
            halves: list[Half] = []
            for side in (end, 1 - end):
                costs = self._given(side, cut if side == end else halves[0].cut)
                half = self._at(costs, price)
                self._offer(side, cut if side == end else halves[0].cut, half.cut, half.cost, half.suppressed)
                halves.append(half)
            priced = halves[1].cost + price * halves[1].suppressed
            if priced >= last - 1e-9 * abs(last):
                return last, cut
            last, cut = priced, halves[1].cut

    def tightest_price(self) -> float:
        """The price at which no known solution promises less at the budget.

        At each price the cheapest known solution is a line over suppression; how high it stands at the budget is what a
        proof at this price could come to at best.
        """
        points = self._known_points()
        prices = self._fair_price() * np.exp2(np.arange(-48, 49) / 24)
        priced = points[None, :, 1] + prices[:, None] * (points[None, :, 0] - self.budget)
        return float(prices[int(np.argmax(priced.min(axis=1)))])

    def cheapest_at(self, price: float) -> tuple[float, float]:
        """Cost and suppression of the known solution that is cheapest at this price."""
        points = self._known_points()
        suppressed, cost = points[int(np.argmin(points[:, 1] + price * points[:, 0]))]
        return float(cost), float(suppressed)

    def _known_points(self) -> Floats:
        return np.array(sorted(set(self.points)))

    # ---- local search ----------------------------------------------------------------------------------------

    def improve(self, effort: float, *, share: float = 1.0) -> None:
        """Search around the best solution until the counted work is done or nothing has been gained for long.

        First along the prices around the fair one, then by kicks, then node by node; a gain starts over. Only work is
        counted, never time, so every machine does the same.

        Args:
            effort: how much is tried before giving up, and how much work is done.
            share: the share of that work that is done.
        """
        limit = self.work + effort * share * WORK
        self.keep_points = False
        patience = int(np.ceil(effort * min(PATIENCE, len(self.trees.origins) + len(self.trees.destinations))))
        rng = np.random.default_rng(0)
        tried: set[tuple[int, bytes]] = set()
        self.polish()
        kicks = 0
        while not self._ended(limit):
            before = self.best.score
            self._walk_prices(tried, limit)
            in_vain = 0
            while self.best.score == before and in_vain < patience and not self._ended(limit):
                self._kick(rng, kicks)
                kicks, in_vain = kicks + 1, in_vain + 1
            if self.best.score == before:
                self._flip_each(limit)
            if self.best.score == before:
                return
            self.price = self._fair_price()

    def _ended(self, limit: float) -> bool:
        return self.work >= limit or self._out_of_time()

    def _walk_prices(self, tried: set[tuple[int, bytes]], limit: float) -> None:
        """Alternate at prices rising, then falling from the fair one, and spend the budget exactly where that ends.

        The hull has few points near the budget, but from each of them the exact pruning reaches another neighbourhood.
        """
        for steps in (WALK, -WALK):
            for end in (0, 1):
                cut = self.best.cuts[end]
                center = self.price = self._fair_price()
                for factor in np.exp(steps):
                    if self._ended(limit):
                        return
                    _, cut = self.converge(end, cut, center * float(factor))
                    if (end, cut.tobytes()) in tried:
                        continue
                    tried.add((end, cut.tobytes()))
                    if self._exact(end, cut):
                        self.polish()

    def polish(self) -> bool:
        """Cut each tree as well as the budget allows while the other stays, in turn, until both are at their best."""
        improved = False
        settled = 0
        end = 0
        while settled < 2 and not self._out_of_time():
            better = self._exact(end, self.best.cuts[end])
            settled = 0 if better else settled + 1
            improved |= better
            end = 1 - end
        return improved

    def _exact(self, end: int, cut: Positions, *, most_choices: int | None = None) -> bool:
        """The best cut of the other tree within the budget, if it improves on the best solution."""
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
        improved = self._offer(end, cut, half.cut, half.cost, half.suppressed)
        if half.price < self.trees.objective.least_price(self.best.score):
            half = self._at(costs, self.trees.objective.least_price(self.best.score))
        if not self._may_improve(half):
            return improved
        question = half.price, self.best.score, most_choices
        within = costs.answered.get(question)
        if within is None:
            within = best_within(costs, half, self.budget, self.best.score, most_choices=most_choices)
            costs.answered[question] = within
        self.work += 10 * OVERHEAD + 10.0 * len(costs.axis) + within.work[0] * OVERHEAD / 2 + within.work[1] * 10.0
        return (within.found is not None and self._offer(end, cut, *within.found)) or improved

    def _may_improve(self, half: Half) -> bool:
        """Whether any cut of this tree could beat the best solution: what it costs at this price says so."""
        most = self.trees.objective.price_within(self.best.score, half.price, self.budget)
        return half.cost + half.price * half.suppressed < most

    def _flip_each(self, limit: float) -> bool:
        """Decide each nearly tied node of each tree otherwise, and let the other tree answer; True on a gain."""
        best = self.best
        for end in (0, 1):
            costs = self._given(end, best.cuts[end])
            half = self._at(costs, self.price)
            most = self.trees.objective.price_within(best.score, self.price, self.budget)
            slack = most - (half.cost + half.price * half.suppressed)
            ties = near_ties(costs, half, 3 * max(slack, 0.0))
            for node in ties.nodes[np.argsort(ties.loss, kind="stable")]:
                if self._ended(limit):
                    return False
                if self._answer(1 - end, flipped(costs, half, np.array([node]))):
                    self.polish()
                    return True
        return False

    def _answer(self, end: int, cut: Positions) -> bool:
        """Let the other tree answer a changed cut, then this tree again; True if that improves on the best."""
        before = self.best.score
        for _ in range(3):
            costs = self._given(end, cut)
            half = self._at(costs, max(self.price, self.trees.objective.least_price(self.best.score)))
            if self._may_improve(half):
                self._exact(end, cut, most_choices=PROBED)
            end, cut = 1 - end, half.cut
        return self.best.score < before

    def _kick(self, rng: np.random.Generator, rounds: int) -> bool:
        """Decide several nearly tied nodes of both trees otherwise at a slightly different price, then alternate."""
        price = self.price * float(np.exp(rng.uniform(-0.25, 0.25)))
        end = rounds % 2
        cut = self.best.cuts[end]
        for _ in range(1 + rounds % 3):
            costs = self._given(end, cut)
            noise = 1 + (0.05, 0.1, 0.2)[rounds % 3] * rng.standard_normal(len(costs.axis))
            cut = costs.axis.best_cut((price * costs.volume - costs.cost) * noise)
            end = 1 - end
        before = self.best.score
        _, cut = self.converge(end, cut, price)
        self._answer(end, cut)
        if self.best.score < before:
            self.polish()
            return True
        return False
