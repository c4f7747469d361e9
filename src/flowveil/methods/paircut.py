"""PairCut: fine cells that do not intersect, within a budget of suppression, with a proven gap.

A release is a division of (root, root), see `flowveil.methods.pair_divisions`. The price on
suppressed volume is searched until the budget is just kept; the rest of the budget is spent on
pairs that are nearly tied at that price (docs/methods/paircut.md).

Guarantees: never over the budget; never worse than ATG-Dual, ODkAnon's volume-budget cut, OIGH or
TwinCut without its local search at the same budget; never further from the best division than the
proven gap in the notes. The same input gives the same cells on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flowveil.core.arrays import Ints
from flowveil.core.dimensions import Dimension
from flowveil.core.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.secret_thresholds import SecretThresholds, node_words
from flowveil.methods.atg import atg_dual
from flowveil.methods.odkanon import volume_budget_cuts
from flowveil.methods.oigh import oigh
from flowveil.methods.pair_divisions import PUBLISH, Division, PairTable
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.twin_trees import Goal
from flowveil.methods.twincut import FrontierPoint, check_goal, score, twincut
from flowveil.release.plan import Plan
from flowveil.zoning.h3 import is_h3, resolution_of
from flowveil.zoning.public_map import tiles_of_nodes

#: Prices, as shares of the best one, whose divisions are tried when the rest of the budget is
#: spent.
NEARBY = (1 - 1e-9, 0.999, 0.997, 0.99, 0.97, 0.93, 0.85, 0.7, 0.5)
#: The first price of a public ladder: below it lie only cells of one tile at each end. No sum of
#: tiles equals a price, so every published cell is worth more than nothing.
FIRST_PRICE = 2.6
#: From one price to the next with secret thresholds.
SECRET_RATIO = 2**0.25
NOTHING_SAFE = (
    "No cell can be published within max_suppressed: even one cell of everything is below the"
    " guarantee. Hint: lower k, or bring more data."
)


def paircut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    objective: Goal = "error",
    spend: bool = True,
    time_weight: float | None = None,
    fold_weight: float | None = None,
    secret: SecretThresholds | None = None,
) -> Plan:
    """Plans fine cells that do not intersect and suppress at most a share of the volume.

    Args:
        max_suppressed: largest share of the volume that may be suppressed; never exceeded.
        objective: what is minimised, as in `flowveil.methods.twincut.twincut`.
        spend: whether to spend the rest of the budget on nearly tied pairs, and to compare other
            methods of the class.
        time_weight: if time is folded, the tiles that an hour is worth: a lower one gives finer
            places and wider times. The default follows from the size of the tiles; times then are
            near two hours.
        fold_weight: if attributes fold, the tiles that a step up their trees is worth; the same
            default.
        secret: draws what a cell must have above k; None for thresholds of exactly k. Not an
            option of users.
    """
    check_goal(objective)
    given = {"time_weight": time_weight, "fold_weight": fold_weight}
    weights = fold_weights(flows, objective, given)
    if secret is not None:
        return _paircut_in_secret(flows, guarantee, max_suppressed, objective, weights, secret)
    table = PairTable.from_flows(flows, guarantee, objective, weights=weights)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    price = None if table is None else dual_multiplier(table, budget)
    if table is None or price is None:
        raise InfeasibleError(NOTHING_SAFE)
    price, found = settle_price(table, price)
    bound = proven_score(table, price, budget)
    if spend:
        for share in NEARBY:
            found = table.improve(found, table.divide(price * share), budget - found.suppressed)
    # Rounding may put the score a hair below its bound.
    gap = max(table.score(found) / bound - 1, 0.0) if bound > 0 else None
    plan = _plan(flows, table, found, {"proven_gap": gap, **weight_notes(flows, weights)})
    others = spend and (gap is None or gap > 1e-12 or table.thinned)
    # Frees the memory of the table before other methods run.
    del table, found
    if others:
        if flows.folds:
            return _or_unfolded(flows, guarantee, max_suppressed, objective, weights, plan)
        return _best_of_class(flows, guarantee, max_suppressed, objective, plan)
    return plan


def _paircut_in_secret(
    flows: Flows,
    guarantee: Guarantee,
    max_suppressed: float,
    objective: Goal,
    weights: Sequence[float],
    secret: SecretThresholds,
) -> Plan:
    """Returns the division at the first price of a public ladder that keeps the budget.

    Every price has separate thresholds. Without such a price one cell counts everything.
    """
    if objective != "error":
        raise ParameterError(
            f"objective={objective} weighs where the trips of a cell begin and end, or how many"
            " cells there are, so a cell could reveal its parts. Hint: objective=error, or --set"
            " protection.secret_thresholds=false."
        )
    table = PairTable.from_flows(flows, guarantee, objective, weights=weights, on_map=True)
    if table is None:
        raise InfeasibleError(NOTHING_SAFE)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    words = [node_words(tree) for tree, _ in flows.ends]
    notes: dict[str, Any] = {"proven_gap": None, **weight_notes(flows, weights)}
    for step, price in enumerate(prices(flows, weights, first=FIRST_PRICE, ratio=SECRET_RATIO)):
        allowed = table.refuse(table.refused_by(secret, words, step))
        found = allowed.divide(price)
        if found.suppressed <= budget:
            bound = proven_score(allowed, price, budget)
            notes["proven_gap"] = max(table.score(found) / bound - 1, 0.0) if bound > 0 else None
            break
    else:
        # The pair of both roots is the first.
        action = np.full(len(table), PUBLISH)
        found = table.follow(action)
        if found.suppressed > budget:
            raise InfeasibleError(NOTHING_SAFE)
    return replace(_plan(flows, table, found, notes), secret_thresholds=True)


def prices(
    flows: Flows, weights: Sequence[float], *, first: float, ratio: float
) -> Iterator[float]:
    """Yields a public ladder of prices, up to the first at which a cell of everything is worth
    four times its cost.
    """
    most = 4.0 * sum(
        float(tiles_of_nodes(tree, flows.whole_map)[0])
        for tree in (flows.origins, flows.destinations)
    )
    for fold, weight in zip(flows.folds, weights, strict=True):
        most += 4.0 * weight * float(fold.width[0])
    price = first
    while price < most:
        yield price
        price *= ratio
    yield price


def fold_weights(
    flows: Flows, objective: Goal, given: Mapping[str, float | None]
) -> tuple[float, ...]:
    """Returns the tiles that each fold's width is worth, an hour or a step up.

    ``given`` has the options of users.
    """
    needed = [_weight_option(fold) for fold in flows.folds]
    for name, value in given.items():
        if value is not None and name not in needed:
            what, flag = (
                ("times", "--fold-time") if name == "time_weight" else ("attributes", "--fold")
            )
            raise ParameterError(
                f"{name} is for {what} that fold. Hint: add {flag}, or leave it out."
            )
        if value is not None and not 0 <= value < np.inf:
            raise ParameterError(f"{name} must be a number of tiles from 0 on; found {value}.")
    if needed and objective == "metres":
        raise ParameterError(
            "Metres cannot be weighed against hours or groups; with --fold-time and --fold the"
            " objective is error, reconstruction or cells."
        )
    usual = usual_weight(flows) if objective == "error" else 0.0
    chosen = [given.get(name) for name in needed]
    return tuple(usual if value is None else float(value) for value in chosen)


def _weight_option(fold: Dimension) -> str:
    """Returns the option with the weight of a fold."""
    return "fold_weight" if fold.every is None else "time_weight"


def weight_notes(flows: Flows, weights: Sequence[float]) -> dict[str, float]:
    """Returns the weights by option, for the notes of a plan."""
    return {_weight_option(fold): weight for fold, weight in zip(flows.folds, weights, strict=True)}


def usual_weight(flows: Flows) -> float:
    """Returns the default worth of an hour or step in tiles, a power of two.

    It follows from the map alone, so that it reveals nothing: an eighth of the tiles in an H3 cell
    of resolution 7, or a quarter of the square root of the tiles of another map.
    """
    tree = flows.origins
    if is_h3(tree):
        finer = int(resolution_of(tree.code[tree.leaf_node[:1]])[0]) - 7
        worth = 7.0**finer / 8
    else:
        worth = float(np.sqrt(tiles_of_nodes(tree, flows.whole_map)[0])) / 4
    return float(max(2.0 ** np.rint(np.log2(worth)), 1.0))


def proven_score(table: PairTable, price: float, budget: float) -> float:
    """Returns a score that no division within the budget is below, from the best division at a
    price.

    Every division costs at least L - price * suppressed, where L is the least of cost + price *
    suppressed. For a mean over the published volume P >= V - budget this is price - (price * V - L)
    / P, least at the smallest P.
    """
    goal = table.objective
    least = table.evaluate(price)[0]
    if not goal.mean:
        return (least - (price - goal.base) * budget) / goal.total
    published = goal.total - budget
    return price - (price * goal.total - least) / published if published > 0 else 0.0


def frontier(
    flows: Flows,
    guarantee: Guarantee,
    *,
    objective: Goal = "error",
    up_to: float = 1.0,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[FrontierPoint, ...]:
    """Returns how fine cells can be for every suppressed share.

    The points of the lower convex hull.

    Every point is the best division at a price, so no division that suppresses as little is finer.
    For the data holder only: it is computed from all flows. Arguments as in
    `flowveil.methods.twincut.frontier`.
    """
    check_goal(objective)
    table = PairTable.from_flows(flows, guarantee, objective)
    highest = None if table is None else dual_multiplier(table, table.lost)
    if table is None or highest is None or table.objective.total <= 0:
        return ()
    kept: list[FrontierPoint] = []
    best, total = np.inf, table.objective.total
    prices = max(highest, 1.0) * np.exp2(-np.arange(0, np.log2(max(highest, 1.0)) + 4, 0.5))
    for at, price in enumerate(prices.tolist()):
        progress(at / len(prices))
        found = table.divide(price)
        if found.suppressed > up_to * total:
            break
        if table.score(found) < best and found.suppressed < total:
            best = table.score(found)
            kept.append(
                FrontierPoint(
                    found.suppressed / total, -best * total if objective == "cells" else best, price
                )
            )
    return tuple(kept)


def settle_price(table: PairTable, price: float) -> tuple[float, Division]:
    """Returns a price, at least the given one, at which more suppression does not improve the
    score; its division.
    """
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
    pair = found.published[np.maximum(cell, 0)]
    # A suppressed flow has no cell; its tiles replace its zones.
    own = [
        np.where(cell >= 0, node[pair], tree.leaf_node[tile])
        for (tree, tile), node in zip(flows.ends, table.node, strict=True)
    ]
    return Plan.from_nodes(flows, own, cell >= 0, notes)


def _or_unfolded(
    flows: Flows,
    guarantee: Guarantee,
    max_suppressed: float,
    goal: Goal,
    weights: Sequence[float],
    plan: Plan,
) -> Plan:
    """Returns the plan, or that of everything at once if that is better."""
    whole, row = unfolded(flows)
    coarse = paircut(whole, guarantee, max_suppressed=max_suppressed, objective=goal)
    kept = coarse.kept[row]
    zones = coarse.origin_zone, coarse.destination_zone
    nodes = [own[zone[row]] for own, zone in zip(coarse.nodes, zones, strict=True)]
    nodes += [np.zeros(len(flows), np.int32) for _ in flows.folds]
    own = [
        np.where(kept, node, tree.leaf_node[tile])
        for (tree, tile), node in zip(flows.ends, nodes, strict=True)
    ]
    other = Plan.from_nodes(flows, own, kept, plan.notes)
    found = [score(flows, p, guarantee.basis, goal, weights=weights) for p in (plan, other)]
    return other if found[1] < found[0] - 1e-12 * abs(found[0]) else plan


def unfolded(flows: Flows) -> tuple[Flows, Ints]:
    """Returns the flows without their folds, and the new position of each."""
    merged = flows.merge(
        flows.origin, flows.destination, flows.origins.n_tiles, flows.destinations.n_tiles
    )
    kept = {
        name: getattr(flows, name) for name in ("origins", "destinations", "intake", "whole_map")
    }
    whole = Flows.of_cells(merged.cells, **kept)
    return whole, merged.row


def _best_of_class(
    flows: Flows, guarantee: Guarantee, max_suppressed: float, goal: Goal, plan: Plan
) -> Plan:
    """Returns the plan, or that of another method of the class if that is finer."""
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
    yield cuts.plan(flows, guarantee)
    for method, options in ((atg_dual, {}), (oigh, {}), (twincut, {"effort": 0.0})):
        try:
            yield method(flows, guarantee, max_suppressed=max_suppressed, **options)
        except FlowveilError:
            continue
