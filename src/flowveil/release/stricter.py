"""Cells around listed places that hide less than is asked there are suppressed.

A clinic, a shelter, a place of worship: a cell that holds one must reach a higher k, or l, than the others. The rule is
not monotone, because a merge can bring a listed place into a cell that was safe; so methods cannot search with it. It
is applied once, after the method has decided, to whole cells, and what it takes out counts towards the limit on
suppression. Methods spend the whole limit where they can, so where nothing is left for the places, the method is asked
again to suppress less.

A cell holds a place where one of its zones does, on the map: not where one of its trips ends there. Otherwise a cell
that is published below the higher threshold would say that none of its trips did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.release.plan import Plan
from flowveil.release.zones import NodeZones
from flowveil.zoning.places import Places

Mask = NDArray[np.bool_]

#: How often a method is asked to leave more of the limit; the last time, to suppress nothing.
_TRIES = 3


def plan_stricter(
    decide: Callable[[float], Plan], flows: Flows, places: Places, guarantee: Guarantee, *, max_suppressed: float
) -> Plan:
    """A plan whose cells around listed places reach what is asked there.

    Args:
        decide: what the method decides within a share that it may suppress.
        flows: what is anonymised.
        places: the list, by the tiles of these flows.
        guarantee: what every cell must satisfy.
        max_suppressed: the largest share of the volume that may be suppressed in all.

    Raises:
        ParameterError: cells are not pairs of zones of a tree.
        InfeasibleError: more would be suppressed than may be; the message says which share suffices.
    """
    _refuse_given_population(places, guarantee)
    volume = flows.volume(guarantee.basis).astype(np.float64)
    allowed, share = max_suppressed, 1.0
    for left in range(_TRIES, -1, -1):
        try:
            decided = decide(allowed)
        except InfeasibleError:
            if left == _TRIES:
                raise
            break
        plan = without_short(flows, decided, places, guarantee)
        share = float(volume[~plan.kept].sum() / volume.sum())
        if share <= max_suppressed and plan.kept.any():
            return plan
        if allowed == 0:
            break
        own = float(volume[~decided.kept].sum() / volume.sum())
        # What the places took this time, they may take next time: the method gets the rest, or half of what it had.
        rest = max_suppressed - (share - own)
        allowed = 0.0 if left == 1 else max(0.0, min(rest, allowed / 2))
    raise _infeasible(share, max_suppressed)


def _refuse_given_population(places: Places, guarantee: Guarantee) -> None:
    if guarantee.population_is_given and places.highest["k"] is not None:
        raise ParameterError(
            "A higher k around listed places cannot be had beside a population that is given as a number "
            "(k_population), which has nothing to do with k. Hint: leave --k-population out."
        )


def _infeasible(share: float, allowed: float) -> InfeasibleError:
    needed = math.ceil(round(share * 100, 6)) / 100
    if needed >= 1:
        said = "nothing would be left to publish. Hint: lower thresholds around the places, or larger zones."
    else:
        said = f"{needed:.0%} would be needed. Hint: --max-suppressed {needed:g}, or lower thresholds in the list."
    return InfeasibleError(
        f"Cells around listed places that fall short cannot be suppressed within the limit of {allowed:.0%}: {said}",
        best={"suppressed": needed},
    )


def without_short(flows: Flows, plan: Plan, places: Places, guarantee: Guarantee) -> Plan:
    """The plan without the cells that hold a listed place and fall short of what is asked there.

    Numbers that the method notes of its run are left out: they are those of the cells before any were taken out.

    Raises:
        ParameterError: zones are boxes, or have times.
    """
    if plan.kind != "plain":
        raise ParameterError(
            "Higher thresholds around listed places are for one matrix whose zones are nodes of a tree: not for boxes, "
            "nor for folded times. Hint: choose another method."
        )
    if places.highest["l"] is not None:
        flows = flows.with_tile_members()
    origin = np.where(plan.kept, plan.origin_zone, np.int32(-1))
    merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
    short = falling_short(merged.cells, flows, plan, places, guarantee)
    kept = plan.kept & ~np.append(short, False)[merged.row]
    return replace(plan, kept=kept, stricter=places, notes=_without_numbers(plan))


def _without_numbers(plan: Plan) -> dict[str, object]:
    return {name: value for name, value in plan.notes.items() if isinstance(value, str | bool | None)}


def falling_short(cells: Cells, flows: Flows, plan: Plan, places: Places, guarantee: Guarantee) -> Mask:
    """Which cells of a plan hold a listed place and do not reach what is asked there."""
    short = np.zeros(len(cells), np.bool_)
    for name in ("k", "l"):
        asked = np.zeros(len(cells), np.int64)
        for zones, at in ((plan.origin_zones, cells.origin), (plan.destination_zones, cells.destination)):
            assert isinstance(zones, NodeZones)
            of_node = places.thresholds_of_nodes(zones.hierarchy, flows.whole_map, name)
            asked = np.maximum(asked, of_node[zones.nodes[at]])
        for least in np.unique_values(asked[asked > 0]).tolist():
            here = asked == least
            short[here] |= ~guarantee.raised(flows, **{name: least}).safe(cells)[here]
    return short
