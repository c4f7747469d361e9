"""Stricter places: cells around a clinic, a shelter or a place of worship must reach a higher k or l.

The rule is not monotone: a merge can bring a listed place into a cell that was safe. Methods rely on monotonicity, so
it is applied to whole cells after planning, or layer by layer (`flowveil.release.post_rules`). A method of one layer
spends the whole limit on suppression where it can; if nothing is left for the places, it runs again with less.

A cell is around a place if one of its zones contains the place's tile on the map, whether or not a trip ends there:
otherwise a cell that is published below the higher threshold would reveal that none does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.release.plan import CellRule, Plan
from flowveil.release.zones import NodeZones
from flowveil.zoning.places import Places

Mask = NDArray[np.bool_]

#: Runs of the method that leave more of the limit; the last one suppresses nothing.
_TRIES = 3


def plan_stricter(
    decide: Callable[[float], Plan], flows: Flows, places: Places, guarantee: Guarantee, *, max_suppressed: float
) -> Plan:
    """Returns a plan whose cells around listed places reach the thresholds there.

    Args:
        decide: the method, as a function of the share that may be suppressed.
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
    raise too_much_suppressed(share, max_suppressed)


def _refuse_given_population(places: Places, guarantee: Guarantee) -> None:
    if guarantee.population_is_given and places.highest["k"] is not None:
        raise ParameterError(
            "A higher k around listed places cannot be combined with a population that is given as a number "
            "(k_population), which has nothing to do with k. Hint: leave --k-population out."
        )


def too_much_suppressed(share: float, allowed: float) -> InfeasibleError:
    """Returns the error for rules that suppress more than the limit; it says which share suffices."""
    needed = math.ceil(round(share * 100, 6)) / 100
    if needed >= 1:
        reason = "nothing would be left to publish. Hint: weaker rules, or larger zones."
    else:
        reason = f"{needed:.0%} would be needed. Hint: --max-suppressed {needed:g}, or weaker rules."
    return InfeasibleError(
        f"Cells that break a rule (stricter places, dominance) cannot be suppressed within the limit of {allowed:.0%}: "
        f"{reason}",
        best={"suppressed": needed},
    )


def without_short(flows: Flows, plan: Plan, places: Places, guarantee: Guarantee) -> Plan:
    """Returns the plan without the cells around listed places that are below the thresholds there.

    Numbers in the notes of the method are removed: they describe the cells before suppression.

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
    """Returns which cells of a plan contain a listed place and do not reach the threshold there."""
    assert isinstance(plan.origin_zones, NodeZones)
    assert isinstance(plan.destination_zones, NodeZones)
    nodes = plan.origin_zones.nodes[cells.origin], plan.destination_zones.nodes[cells.destination]
    return _Thresholds(flows, places, guarantee).below(cells, nodes)


def stricter_rule(flows: Flows, places: Places, guarantee: Guarantee) -> CellRule:
    """Returns the rule for cells that are planned in layers.

    Raises:
        ParameterError: the guarantee has a population that does not follow from k, or times are folded.
    """
    _refuse_given_population(places, guarantee)
    if flows.times is not None:
        raise ParameterError("Stricter places are not for folded times. Hint: omit --fold-time.")
    if places.highest["l"] is not None:
        flows = flows.with_tile_members()
    thresholds = _Thresholds(flows, places, guarantee)

    def is_below(rows: NDArray[np.int64], cell: NDArray[np.int64], nodes: Sequence[Ints]) -> Mask:
        n_cells = int(cell.max(initial=0)) + 1
        of_flow = np.full(len(flows), -1, dtype=np.int32)
        of_flow[rows] = cell
        cells = flows.merge(of_flow, np.zeros(len(flows), dtype=np.int32), n_cells, 1).cells
        of_cell = [np.zeros(n_cells, dtype=np.int32) for _ in nodes]
        for numbers, node in zip(of_cell, nodes, strict=True):
            numbers[cell[cell >= 0]] = node[cell >= 0]
        below = np.zeros(n_cells, dtype=np.bool_)
        below[cells.origin] = thresholds.below(cells, (of_cell[0][cells.origin], of_cell[1][cells.origin]))
        return below

    return is_below


class _Thresholds:
    """The thresholds around listed places, by node of each end."""

    def __init__(self, flows: Flows, places: Places, guarantee: Guarantee) -> None:
        self._flows, self._guarantee = flows, guarantee
        trees = (flows.origins, flows.destinations)
        self._of_nodes = {
            name: [places.thresholds_of_nodes(tree, flows.whole_map, name) for tree in trees] for name in ("k", "l")
        }

    def below(self, cells: Cells, nodes: tuple[Ints, Ints]) -> Mask:
        """Returns which cells are below a threshold, given the nodes of each cell."""
        below = np.zeros(len(cells), np.bool_)
        for name, (origins, destinations) in self._of_nodes.items():
            required = np.maximum(origins[nodes[0]], destinations[nodes[1]])
            for least in np.unique_values(required[required > 0]).tolist():
                here = required == least
                below[here] |= ~self._guarantee.raised(self._flows, **{name: least}).safe(cells)[here]
        return below
