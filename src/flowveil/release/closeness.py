"""t-closeness of flows (Li et al. 2007): how far the trips of a zone are from all published trips.

The distance is the total variation: the share of a zone's trips that would have to end elsewhere for its destinations
to be distributed like those of all trips; likewise for the origins of a destination zone. All trips are the published
ones. So every reader can check the rule, and no suppressed trip takes part in it.

The rule is not monotone: merging zones changes the whole as well. So it is applied after planning, and suppresses whole
zones: all cells of the zone that is farthest, again and again, until none is farther than t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows, group_pairs
from flowveil.hierarchy import Floats
from flowveil.release.plan import Plan

#: Shares of the limit on suppression that the method itself gets, in the order in which they are tried.
SHARES_OF_METHOD = (1.0, 0.5, 0.25, 0.0)


def check_closeness(t: float | None) -> None:
    """Refuses a distance that is out of range.

    Raises:
        ParameterError: it is not above 0 and below 1.
    """
    if t is not None and not 0 < t < 1:
        raise ParameterError(f"t is a distance above 0 and below 1; found {t}. Hint: 0.8.")


def total_variation(own: NDArray[Any], other: NDArray[Any], trips: NDArray[Any], n_own: int, n_other: int) -> Floats:
    """Returns for each zone of one end the distance of its trips from all trips; 0 for a zone without trips.

    Products of counts are exact below 2**53, so that equal distances are equal numbers.

    Args:
        own, other: the zones of each cell at this end and at the other; no two cells have the same pair.
        trips: trips of each cell.
        n_own, n_other: number of zones of each end.
    """
    each = np.asarray(trips, dtype=np.float64)
    total = np.bincount(own, weights=each, minlength=n_own).astype(np.float64)
    whole = np.bincount(other, weights=each, minlength=n_other).astype(np.float64)
    n = float(each.sum())
    expected = whole[other] * total[own]
    # Over pairs without trips the differences sum to what is expected there.
    apart = np.bincount(own, weights=np.abs(each * n - expected) - expected, minlength=n_own) + n * total
    distance: Floats = np.divide(apart, 2 * n * total, out=np.zeros(n_own), where=total > 0)
    return np.clip(distance, 0.0, 1.0)


def plan_close(decide: Callable[[float], Plan], flows: Flows, t: float, *, max_suppressed: float, basis: str) -> Plan:
    """Returns a plan in which no zone is farther than ``t`` from all published trips.

    A method may spend the whole limit itself. So it gets all of it first, then a half, a quarter and nothing.

    Args:
        decide: the method and the other rules, as a function of the share that may be suppressed.
        flows: the flows.
        t: the largest distance.
        max_suppressed: the largest share of the volume that may be suppressed in all.
        basis: what the volume counts.

    Raises:
        ParameterError: zones overlap.
        InfeasibleError: more would be suppressed than may be.
    """
    plan = decide(max_suppressed)
    for share in SHARES_OF_METHOD[1:]:
        close = without_distant(flows, plan, t, max_suppressed=max_suppressed, basis=basis)
        if close is not None:
            return close
        try:
            plan = decide(share * max_suppressed)
        except InfeasibleError:
            break
    close = without_distant(flows, plan, t, max_suppressed=max_suppressed, basis=basis)
    if close is not None:
        return close
    raise InfeasibleError(
        f"Zones whose trips are farther than t = {t:g} from all trips cannot be suppressed within the limit of "
        f"{max_suppressed:.0%}. Hint: a larger --t or --max-suppressed, or a larger k for coarser zones."
    )


def without_distant(flows: Flows, plan: Plan, t: float, *, max_suppressed: float, basis: str) -> Plan | None:
    """Returns the plan without zones that are farther than ``t``; None if more would be suppressed than may be.

    Ties: origins first, then the zone that comes first.

    Raises:
        ParameterError: zones overlap, so that the destinations of two zones cannot be compared.
    """
    if not plan.homogeneous or plan.boxes is not None or flows.times is not None:
        raise refusal()
    sizes = len(plan.origin_zones), len(plan.destination_zones)
    cells = group_pairs(np.where(plan.kept, plan.origin_zone, np.int32(-1)), plan.destination_zone, *sizes)
    trips = cells.sum(flows.trips).astype(np.float64)
    volume = flows.volume(basis).astype(np.float64)
    limit, left = max_suppressed * volume.sum(), cells.sum(volume).astype(np.float64)
    is_shown = np.ones(len(trips), dtype=np.bool_)
    while is_shown.any() and volume.sum() - left[is_shown].sum() <= limit:
        origin, destination = cells.origin[is_shown], cells.destination[is_shown]
        distance = np.concatenate(
            (
                total_variation(origin, destination, trips[is_shown], *sizes),
                total_variation(destination, origin, trips[is_shown], *sizes[::-1]),
            )
        )
        farthest = int(np.argmax(distance))
        if distance[farthest] <= t:
            return replace(plan, kept=np.append(is_shown, False)[cells.row])
        is_shown &= cells.origin != farthest if farthest < sizes[0] else cells.destination != farthest - sizes[0]
    return None


def refusal() -> ParameterError:
    """Returns the error for a method whose zones overlap."""
    return ParameterError(
        "t-closeness (--t) needs one matrix of zones that do not overlap, so that the destinations of two zones can be "
        "compared: not layers, boxes or folded times. Hint: --method twincut, odkanon, oigh or suppression."
    )
