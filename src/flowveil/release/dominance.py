"""The dominance rule of statistical offices: in no cell does one person make more than a share of the trips.

The rule is not monotone: merging a harmless cell with a dominated one may give a dominated one. Methods rely on
monotonicity, so it is applied to whole cells after planning, or layer by layer (`flowveil.release.post_rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.release.plan import CellRule, Plan

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]


def check_dominance(share: float | None) -> None:
    """Refuses a share that is out of range.

    Raises:
        ParameterError: it is not above 0 and below 1.
    """
    if share is not None and not 0 < share < 1:
        raise ParameterError(f"dominance is a share above 0 and below 1; found {share}. Hint: 0.5 is one half.")


def without_dominated(flows: Flows, plan: Plan, share: float, *, max_suppressed: float, basis: str) -> Plan:
    """Returns the plan without the cells in which one person makes more than ``share`` of the trips.

    Args:
        flows: as they were read, with the trips of each person.
        plan: what a method decided.
        share: the largest share that one person may have.
        max_suppressed: the largest share of the volume that may be suppressed in all.
        basis: what the volume counts.

    Raises:
        DataError: persons are not known.
        ParameterError: cells are not whole: they are boxes, or hopeless flows were taken out of them.
        InfeasibleError: more would be suppressed than may be.
    """
    if plan.boxes is not None or plan.suppression.rule != "short cells" or flows.times is not None:
        raise ParameterError(
            "Dominance is checked in cells that are whole pairs of zones: not in boxes, folded times, or cells without "
            "their hopeless flows. Hint: choose another method, or --option budget=volume."
        )
    n_d = len(plan.destination_zones)
    cell = np.unique(plan.origin_zone.astype(np.int64) * n_d + plan.destination_zone, return_inverse=True)[1]
    dominated = _dominated(flows, cell, share)
    kept = plan.kept & ~dominated[cell]
    volume = flows.volume(basis).astype(np.float64)
    if not kept.any() or volume[~kept].sum() > max_suppressed * volume.sum():
        raise InfeasibleError(
            f"Cells in which one person makes more than {share:.0%} of the trips cannot be suppressed within the limit "
            f"of {max_suppressed:.0%}. Hint: a larger --dominance or --max-suppressed, or fewer and larger zones."
        )
    return replace(plan, kept=kept)


def dominance_rule(flows: Flows, share: float) -> CellRule:
    """Returns the rule for cells that are planned in layers.

    Raises:
        DataError: persons are not known.
        ParameterError: times are folded.
    """
    _people_of(flows)
    if flows.times is not None:
        raise ParameterError("Dominance is not checked in folded times. Hint: omit --fold-time.")

    def is_dominated(rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> Mask:  # noqa: ARG001
        of_flow = np.full(len(flows), -1, dtype=np.int64)
        of_flow[rows] = cell
        return _dominated(flows, of_flow, share)

    return is_dominated


def _people_of(flows: Flows) -> Any:
    people = flows.people
    if people is None or people.trips is None:
        raise DataError("--dominance (dominance) needs persons. Hint: name their column with --person.")
    return people


def _dominated(flows: Flows, cell: Positions, share: float) -> Mask:
    """Returns which cells have a person with more than a share of their trips; flows may be in no cell (-1)."""
    people = _people_of(flows)
    n_cells, n_people = int(cell.max(initial=0)) + 1, int(people.person.max(initial=0)) + 1
    at = np.flatnonzero(cell[people.cell] >= 0)
    key, member = np.unique(cell[people.cell[at]] * n_people + people.person[at], return_inverse=True)
    largest = np.zeros(n_cells)
    np.maximum.at(largest, key // n_people, np.bincount(member, weights=people.trips[at]))
    inside = cell >= 0
    return largest > share * np.bincount(cell[inside], weights=flows.trips[inside], minlength=n_cells)
