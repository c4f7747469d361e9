"""PairCut: the finest cells that do not intersect, within a budget of suppression.

A release is a division of (root, root): see `flowveil.methods.pair_divisions`. ATG, TwinCut, ODkAnon with a volume
budget and OIGH make special cases of it, in which all cells share one map, or all destinations of an origin zone do.
At a price on suppressed volume the best division is found exactly, and its value bounds every release of the class
from below. The price is searched until the budget is just kept; what is left of the budget is then spent on pairs that
are nearly tied at that price.

Guaranteed: never over the budget; never worse than ATG-Dual, ODkAnon's volume-budget cut, OIGH or TwinCut without its
local search at the same budget; never further from the best division than the proven gap in the notes says (a gap of
0.01: no division is finer by more than 1 %). The same input gives the same cells on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from flowveil.errors import FlowveilError, InfeasibleError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods.atg import atg_dual
from flowveil.methods.odkanon import volume_budget_cuts
from flowveil.methods.oigh import oigh
from flowveil.methods.pair_divisions import Division, PairTable
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.twin_trees import Goal
from flowveil.methods.twincut import FrontierPoint, check_goal, plan_of_cuts, score, twincut
from flowveil.release.plan import Plan
from flowveil.release.zones import NodeZones

#: Prices, as shares of the best one, whose divisions are tried when the rest of the budget is spent.
NEARBY = (1 - 1e-9, 0.999, 0.997, 0.99, 0.97, 0.93, 0.85, 0.7, 0.5)


def paircut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    objective: Goal = "error",
    spend: bool = True,
) -> Plan:
    """Plan the finest cells that do not intersect and suppress at most a share of the volume.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may be suppressed; never exceeded.
        objective: what is made small: ``error`` (mean generalisation error: tiles of both zones of a trip),
            ``metres`` (mean distance from tile to zone centre), ``reconstruction`` (reconstruction loss), or
            ``cells`` (as many published cells as possible).
        spend: whether the rest of the budget is spent on nearly tied pairs, and other methods of the class are
            compared at the end.
    """
    check_goal(objective)
    table = PairTable.of(flows, guarantee, objective)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    price = None if table is None else dual_multiplier(table, budget)
    if table is None or price is None:
        raise InfeasibleError(
            "No cell can be published within max_suppressed: even one cell of everything is short. "
            "Hint: lower k, or bring more data."
        )
    price, found = _worth(table, price)
    bound = proven_score(table, price, budget)
    if spend:
        for share in NEARBY:
            found = table.improve(found, table.divide(price * share), budget - found.suppressed)
    # Rounding may put the score a hair below its bound.
    gap = max(table.score(found) / bound - 1, 0.0) if bound > 0 else None
    plan = _plan(flows, table, found, {"proven_gap": gap})
    if spend and (gap is None or gap > 1e-12 or table.thinned):
        return _best_of_class(flows, guarantee, max_suppressed, objective, plan)
    return plan


def proven_score(table: PairTable, price: float, budget: float) -> float:
    """A score that no division within the budget is below, from the best division at a price.

    Every division costs at least L - price * suppressed, where L is the least of cost + price * suppressed. For a mean
    over the published volume P >= V - budget this is price - (price * V - L) / P, least at the smallest P.
    """
    goal = table.objective
    least = table.evaluate(price)[0]
    if not goal.mean:
        return (least - (price - goal.base) * budget) / goal.total
    published = goal.total - budget
    return price - (price * goal.total - least) / published if published > 0 else 0.0


def frontier(flows: Flows, guarantee: Guarantee, *, objective: Goal = "error") -> tuple[FrontierPoint, ...]:
    """How fine cells can be for every share that may be suppressed, from so high a price on that nothing need be.

    Every point is the best division at a price, so no division that suppresses as little is finer: the points are
    those of the lower convex hull. For the data holder: it is computed from all flows.
    """
    check_goal(objective)
    table = PairTable.of(flows, guarantee, objective)
    highest = None if table is None else dual_multiplier(table, table.lost)
    if table is None or highest is None or table.objective.total <= 0:
        return ()
    kept: list[FrontierPoint] = []
    best = np.inf
    for price in max(highest, 1.0) * np.exp2(-np.arange(0, np.log2(max(highest, 1.0)) + 4, 0.5)):
        found = table.divide(float(price))
        score = table.score(found)
        if score < best and found.suppressed < table.objective.total:
            best = score
            value = -score * table.objective.total if objective == "cells" else score
            kept.append(FrontierPoint(found.suppressed / table.objective.total, value, float(price)))
    return tuple(kept)


def _worth(table: PairTable, price: float) -> tuple[float, Division]:
    """A price at which suppressing more would not improve the score: the given one, or higher; and its division."""
    found = table.divide(price)
    for _ in range(50):
        least = table.objective.least_price(table.score(found))
        if not np.isfinite(least) or least <= price * (1 + 1e-12):
            break
        price = least
        found = table.divide(price)
    return price, found


def _plan(flows: Flows, table: PairTable, found: Division, notes: dict[str, Any]) -> Plan:
    cell = table.flows_of(found.published, len(flows))
    kept = cell >= 0
    ends = []
    for tree, tile, node in (
        (flows.origins, flows.origin, table.origin),
        (flows.destinations, flows.destination, table.destination),
    ):
        # A suppressed flow lies in no cell; its tiles stand for its zones.
        own = np.where(kept, node[found.published[np.maximum(cell, 0)]], tree.leaf_node[tile])
        used, zone = np.unique(own, return_inverse=True)
        ends.append((zone.astype(np.int32), NodeZones(tree, used.astype(np.int32))))
    (origin, origins), (destination, destinations) = ends
    return Plan(
        origin_zone=origin,
        destination_zone=destination,
        kept=kept,
        origin_zones=origins,
        destination_zones=destinations,
        homogeneous=False,
        notes=notes,
    )


def _best_of_class(flows: Flows, guarantee: Guarantee, max_suppressed: float, goal: Goal, plan: Plan) -> Plan:
    """The plan, or that of another method of the class where a budget left unspent let it be finer."""
    volume = flows.volume(guarantee.basis)
    budget = max_suppressed * float(np.sum(volume))
    best, least = plan, score(flows, plan, guarantee.basis, goal)
    for other in _others(flows, guarantee, max_suppressed):
        value = score(flows, other, guarantee.basis, goal)
        if value < least - 1e-12 * abs(least) and float(np.sum(volume[~other.kept])) <= budget:
            best, least = other, value
    return replace(best, homogeneous=False, notes=plan.notes)


def _others(flows: Flows, guarantee: Guarantee, max_suppressed: float) -> Iterator[Plan]:
    cuts = volume_budget_cuts(flows, guarantee, max_suppressed=max_suppressed)
    yield plan_of_cuts(flows, guarantee, cuts, {})
    for method, options in ((atg_dual, {}), (oigh, {}), (twincut, {"effort": 0.0})):
        try:
            yield method(flows, guarantee, max_suppressed=max_suppressed, **options)
        except FlowveilError:
            continue
