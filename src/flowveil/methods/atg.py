"""ATG-Dual and ATG-Soft: adaptive tree generalisation (Matet et al. 2023; docs/methods/atg.md).

First the origin cut whose zones emit volumes closest to ``v_target``, then a destination cut for
each origin zone. All origins share the suppression budget, so their trees are pruned together
(`PairTree`) under one multiplier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flowveil.core.arrays import Ints
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import MILLION, Flows, is_fixed_point
from flowveil.core.guarantee import Guarantee
from flowveil.methods.pruning import PairTree, best_cut, dual_multiplier
from flowveil.release.plan import Plan

#: Factor between the candidate values of v_target.
GRID = 2.0


def atg_dual(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    v_target: float | Literal["auto"] = "auto",
) -> Plan:
    """Plans by ATG-Dual: the finest generalisation whose suppressed volume stays within the budget.

    Args:
        max_suppressed: largest share of the volume that may be suppressed; never exceeded.
        v_target: target volume of origin zones; "auto" balances the mean sizes of origin and
            destination zones.
    """
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    chosen = _choose(
        flows, guarantee, v_target, lambda pairs, near: dual_multiplier(pairs, budget, near=near)
    )
    if chosen is None:
        raise InfeasibleError(
            "No origin zones keep the suppressed volume within max_suppressed: some zones are below"
            " the threshold. Hint: raise v_target or max_suppressed, or lower k."
        )
    return chosen.plan(flows)


def atg_soft(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,  # noqa: ARG001  # every method takes it; this one has no budget
    lambda_: float | None = None,
    v_target: float | Literal["auto"] = "auto",
) -> Plan:
    """Plans by ATG-Soft: a hard limit on zone sizes instead of on suppression.

    ``lambda_`` is the price of a suppressed trip, as a size: a kept cell has at most this many
    tiles at both ends together, unless it cannot be split; by default 10 % of the number of tiles.
    Whatever is cheaper than generalising at that price is suppressed; ``max_suppressed`` is not
    used. Other arguments as in `atg_dual`.
    """
    if lambda_ is not None and not (np.isfinite(lambda_) and lambda_ >= 0):
        raise ParameterError(f"lambda_ must be 0 or more; found {lambda_!r}.")
    most_tiles = max(flows.origins.n_tiles, flows.destinations.n_tiles)
    price = 0.1 * most_tiles if lambda_ is None else float(lambda_)
    chosen = _choose(flows, guarantee, v_target, lambda _pairs, _near: price)
    assert chosen is not None  # a fixed multiplier always has a solution
    return chosen.plan(flows)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Origin zones for one target volume, and the matching destination prunings."""

    target: float
    multiplier: float
    origin_cut: Ints
    pairs: PairTree
    imbalance: float
    unit: int = 1

    def plan(self, flows: Flows) -> Plan:
        node, kept = self.pairs.nodes(self.multiplier)
        origin = self.origin_cut[flows.origins.zone_of_tile(self.origin_cut)][flows.origin]
        notes = {"v_target": self.target / self.unit, "lambda": self.multiplier}
        return Plan.from_nodes(flows, (origin, flows.destinations.narrowest[node]), kept, notes)


def _choose(
    flows: Flows,
    guarantee: Guarantee,
    v_target: float | Literal["auto"],
    solve: Callable[[PairTree, float], float | None],
) -> _Candidate | None:
    """Returns the candidate for a given v_target, or for the one that balances both ends."""
    volume = flows.volume(guarantee.basis)
    # Users give and read targets in weights, not in fixed point.
    unit = MILLION if guarantee.basis != "trips" and is_fixed_point(volume) else 1
    emitted = np.bincount(flows.origin, weights=volume, minlength=flows.origins.n_tiles)
    per_node = flows.origins.sum_over(emitted)

    def candidate(target: float, near: float = 64.0) -> _Candidate | None:
        cut = best_cut(flows.origins, (per_node - target) ** 2)
        pairs = PairTree.from_flows(
            flows,
            guarantee,
            zone=flows.origins.zone_of_tile(cut)[flows.origin],
            zone_size=flows.origins.size[cut],
            tile=flows.destination,
            tree=flows.destinations,
        )
        multiplier = solve(pairs, near)
        if multiplier is None:
            return None
        size_o, size_d = pairs.sizes(multiplier)
        return _Candidate(target, multiplier, cut, pairs, size_o - size_d, unit)

    if v_target != "auto":
        if not (np.isfinite(v_target) and v_target > 0):
            raise ParameterError(f"v_target must be above 0 or 'auto'; found {v_target!r}.")
        return candidate(float(v_target) * unit)
    emitting = emitted[emitted > 0]
    # A target below the smallest tile splits every node, one above the total none.
    bounds = (float(emitting.min()) if len(emitting) else 1.0, float(per_node[0]))
    return _balanced(candidate, start=_first_guess(volume, guarantee, unit), bounds=bounds)


def _first_guess(volume: Ints, guarantee: Guarantee, unit: int) -> float:
    """Returns the target if every cell held k and both ends had equally many zones.

    The root of k times the total.
    """
    threshold = guarantee.population if guarantee.population is not None else float(guarantee.k)
    raw = np.sqrt(threshold * float(np.sum(volume))) / unit / GRID
    return unit * float(GRID ** np.round(np.log2(max(raw, 1.0)) / np.log2(GRID)))


def _balanced(
    candidate: Callable[[float, float], _Candidate | None],
    *,
    start: float,
    bounds: tuple[float, float],
) -> _Candidate | None:
    """Returns the better side of where the imbalance, which grows with the target, changes its sign
    on the grid.
    """
    best = here = candidate(start, 64.0)
    if here is not None and here.imbalance == 0:
        return here
    up = here is None or here.imbalance < 0
    target = start
    while (target <= bounds[1]) if up else (target >= bounds[0]):
        target = target * GRID if up else target / GRID
        there = candidate(
            target, best.multiplier if best is not None and best.multiplier > 0 else 64.0
        )
        if there is None:
            if not up:
                return best
            continue
        if best is None or abs(there.imbalance) < abs(best.imbalance):
            best = there
        if there.imbalance == 0 or (there.imbalance > 0) == up:
            return best
    return best
