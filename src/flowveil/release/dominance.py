"""Cells that are mostly one person's are suppressed, where that is asked for.

The rule of statistics offices: a cell may be published only if no person makes more than a share of its trips. It is
not monotone, because merging a harmless cell with a dominated one may make a dominated one; so methods cannot search
with it. It is applied once, after the method has decided, to whole cells; what it takes out counts towards the limit on
suppression.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowveil.errors import DataError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.release.plan import Plan


def check_dominance(share: float | None) -> None:
    """Refuse a share that is none.

    Raises:
        ParameterError: it is not above 0 and below 1.
    """
    if share is not None and not 0 < share < 1:
        raise ParameterError(f"dominance is a share above 0 and below 1; found {share}. Hint: 0.5 is one half.")


def without_dominated(flows: Flows, plan: Plan, share: float, *, max_suppressed: float, basis: str) -> Plan:
    """The plan without the cells in which one person makes more than ``share`` of the trips.

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
    people = flows.people
    if people is None or people.trips is None:
        raise DataError("--dominance (dominance) needs persons. Hint: name their column with --person.")
    if plan.boxes is not None or plan.suppression.rule != "short cells" or flows.times is not None:
        raise ParameterError(
            "Dominance is checked in cells that are whole pairs of zones: not in boxes, folded times, or cells without "
            "their hopeless flows. Hint: choose another method, or --option budget=volume."
        )
    n_d = len(plan.destination_zones)
    cell = np.unique(plan.origin_zone.astype(np.int64) * n_d + plan.destination_zone, return_inverse=True)[1]
    n_people = int(people.person.max(initial=0)) + 1
    key, at = np.unique(cell[people.cell] * n_people + people.person, return_inverse=True)
    largest = np.zeros(int(cell.max(initial=0)) + 1)
    np.maximum.at(largest, key // n_people, np.bincount(at, weights=people.trips))
    dominated = largest > share * np.bincount(cell, weights=flows.trips, minlength=len(largest))
    kept = plan.kept & ~dominated[cell]
    volume = flows.volume(basis).astype(np.float64)
    if not kept.any() or volume[~kept].sum() > max_suppressed * volume.sum():
        raise InfeasibleError(
            f"Cells in which one person makes more than {share:.0%} of the trips cannot be suppressed within the limit "
            f"of {max_suppressed:.0%}. Hint: a larger --dominance or --max-suppressed, or fewer and larger zones."
        )
    return replace(plan, kept=kept)
