"""ATG-Dual and ATG-Soft: adaptive tree generalisation (Matet et al. 2023).

Origins first: the cut whose zones emit volumes closest to ``v_target`` (best pruning). Then, for each origin zone, a
destination cut of its own that minimises the generalisation error while what is suppressed stays within a budget. The
budget is shared by all origins, so their trees are pruned as one (`PairTree`) under one multiplier: ATG-Dual finds it
with the Specific Breakpoints Algorithm (intersecting tangents of a concave, piecewise linear function), ATG-Soft takes
it as given. Areas are numbers of tiles.

Guaranteed: ATG-Dual never suppresses more than its budget, and its pruning is optimal for the multiplier it ends with.
ATG-Soft keeps no cell larger than its ``lambda`` that could still be split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import MILLION, Flows, is_fixed_point
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.methods.pruning import PairTree, best_cut, dual_multiplier
from flowveil.release.plan import Plan
from flowveil.release.zones import NodeZones

#: Steps of the grid on which v_target is looked for.
GRID = 2.0


def atg_dual(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    v_target: float | Literal["auto"] = "auto",
) -> Plan:
    """Plan by ATG-Dual: the finest generalisation whose suppressed volume stays within the budget.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may be suppressed; never exceeded.
        v_target: volume that origin zones aim at; "auto" picks it so that origin and destination zones are of
            the same mean size.
    """
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))

    def solve(pairs: PairTree, near: float) -> float | None:
        return dual_multiplier(pairs, budget, near=near)

    chosen = _choose(flows, guarantee, v_target, solve)
    if chosen is None:
        raise InfeasibleError(
            "No origin zones leave the suppressed volume within max_suppressed: some hold too little to hide in. "
            "Hint: raise v_target or max_suppressed, or lower k."
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
    """Plan by ATG-Soft: a hard limit on zone sizes instead of on suppression.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: not used; ATG-Soft suppresses whatever its lambda makes cheaper than generalising.
        lambda_: price of a suppressed trip, as a size: no kept cell has more than this many tiles at its two ends
            together, unless it cannot be split. Default: 10 % of the number of tiles.
        v_target: volume that origin zones aim at; "auto" picks it so that origin and destination zones are of
            the same mean size.
    """
    if lambda_ is not None and not (np.isfinite(lambda_) and lambda_ >= 0):
        raise ParameterError(f"lambda_ must be 0 or more; found {lambda_!r}.")
    price = 0.1 * _map_size(flows) if lambda_ is None else float(lambda_)
    chosen = _choose(flows, guarantee, v_target, lambda _pairs, _near: price)
    assert chosen is not None  # a fixed multiplier always has a solution
    return chosen.plan(flows)


def _map_size(flows: Flows) -> int:
    """Number of tiles of the map: of the larger of the two ends."""
    return max(flows.origins.n_tiles, flows.destinations.n_tiles)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Origin zones for one target of their volume, and the destination prunings that go with them."""

    target: float
    multiplier: float
    origin_cut: Ints
    pairs: PairTree
    imbalance: float
    unit: int = 1

    def plan(self, flows: Flows) -> Plan:
        node, kept = self.pairs.nodes(self.multiplier)
        used, zone = np.unique(flows.destinations.narrowest[node], return_inverse=True)
        return Plan(
            origin_zone=flows.origins.zone_of_tile(self.origin_cut)[flows.origin],
            destination_zone=zone.astype(np.int32),
            kept=kept,
            origin_zones=NodeZones(flows.origins, self.origin_cut),
            destination_zones=NodeZones(flows.destinations, used.astype(np.int32)),
            homogeneous=False,
            notes={"v_target": self.target / self.unit, "lambda": self.multiplier},
        )


def _choose(
    flows: Flows,
    guarantee: Guarantee,
    v_target: float | Literal["auto"],
    solve: Callable[[PairTree, float], float | None],
) -> _Candidate | None:
    """The candidate of a given v_target, or of the one that makes both ends equally coarse."""
    volume = flows.volume(guarantee.basis)
    # Users give and read targets in weights, whatever they are counted in here.
    unit = MILLION if guarantee.basis != "trips" and is_fixed_point(flows.volume(guarantee.basis)) else 1
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
    # With a target below the smallest tile every node is split, with one above the total none is.
    bounds = (float(emitting.min()) if len(emitting) else 1.0, float(per_node[0]))
    return _balanced(candidate, start=_first_guess(volume, guarantee, unit), bounds=bounds)


def _first_guess(volume: Ints, guarantee: Guarantee, unit: int) -> float:
    """If cells just held k and both ends had as many zones, a zone would emit the root of k times the total."""
    threshold = guarantee.population if guarantee.population is not None else float(guarantee.k)
    raw = np.sqrt(threshold * float(np.sum(volume))) / unit / GRID
    return unit * float(GRID ** np.round(np.log2(max(raw, 1.0)) / np.log2(GRID)))


def _balanced(
    candidate: Callable[[float, float], _Candidate | None], *, start: float, bounds: tuple[float, float]
) -> _Candidate | None:
    """Walk the grid from a first guess towards balance; coarser origins leave room for finer destinations.

    A larger target means larger origin zones, so the imbalance grows along the grid: it is enough to walk until its
    sign changes and take the better of the two sides. Targets whose origin zones are too small to hide in are passed
    over.
    """
    best = here = candidate(start, 64.0)
    if here is not None and here.imbalance == 0:
        return here
    up = here is None or here.imbalance < 0
    target = start
    while (target <= bounds[1]) if up else (target >= bounds[0]):
        target = target * GRID if up else target / GRID
        there = candidate(target, best.multiplier if best is not None and best.multiplier > 0 else 64.0)
        if there is None:
            if not up:
                return best
            continue
        if best is None or abs(there.imbalance) < abs(best.imbalance):
            best = there
        if there.imbalance == 0 or (there.imbalance > 0) == up:
            return best
    return best
