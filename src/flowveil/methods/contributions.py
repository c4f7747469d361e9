"""Limits the counted trips of each person to the bound, before any noise.

All methods that add noise to flows use this; their sensitivity rests on this file.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.flows import Flows
from flowveil.hierarchy import Ints

Counts = NDArray[np.int64]


def counted_trips(flows: Flows, inside: NDArray[np.bool_], *, bound: int | None) -> Counts:
    """Returns the counted trips of each flow, before any noise.

    Removing one person changes the sums over any grouping of flows by at most ``bound`` in total (L1).

    Args:
        flows: the flows.
        inside: which flows are in the domain.
        bound: most trips of a person; None if persons are not known, and every trip counts.
    """
    if flows.trips.dtype != np.int64:
        raise DataError(
            "Noise is added to whole trips, and the input has fractions: modelled or expanded trips, of which no one "
            "can say what a single person contributes. Hint: use a method that protects by k."
        )
    if bound is None:
        return np.where(inside, flows.trips, 0)
    people = flows.people
    if people is None or people.trips is None:
        raise DataError(
            "The flows do not contain the trips of each person, so they cannot be bounded. "
            "Hint: read them with read_trips, or build them with Flows.from_pairs."
        )
    rows = inside[people.cell]
    trips = bounded_trips(people.person[rows], people.trips[rows], bound)
    return np.bincount(people.cell[rows], weights=trips, minlength=len(flows)).astype(np.int64)


def bounded_trips(person: Ints, trips: Counts, bound: int) -> Counts:
    """Returns at most ``bound`` trips of each person, spread over the person's rows in proportion to the trips.

    Of a person with n trips above the bound, every (n / bound)-th trip in row order is counted. The choice depends on
    that person's trips alone, so one person changes the counts by at most the bound.

    Args:
        person: the person of each row; the order of a person's rows must not depend on others.
        trips: trips of each row.
        bound: most trips of a person.
    """
    if len(person) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(person, kind="stable")
    each = trips[order]
    first = np.append(True, person[order][1:] != person[order][:-1])
    start = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    total = np.add.reduceat(each, start)
    if total.max() > np.iinfo(np.int32).max:
        raise DataError("A person has more than 2,147,483,647 trips. Hint: is this column really a person?")
    reached = np.cumsum(each) - (np.cumsum(each) - each)[start][number]
    n = total[number]
    most = np.int64(min(bound, np.iinfo(np.int32).max))
    spread = (reached * most + n // 2) // n - ((reached - each) * most + n // 2) // n
    out = np.empty(len(trips), dtype=np.int64)
    out[order] = np.where(n > most, spread, each)
    return out


def uncounted_trips(
    flows: Flows, inside: NDArray[np.bool_], trips: Counts, *, unit: Literal["person", "trip"]
) -> dict[str, int]:
    """Returns the trips that are not counted, by reason. Exact, so for the data holder only."""
    outside = int(flows.trips[~inside].sum())
    known = int(flows.trips[inside].sum())
    if unit == "person" and flows.people is not None and flows.people.trips is not None:
        known = int(flows.people.trips[inside[flows.people.cell]].sum())
    return {
        "outside the region": outside,
        "of unknown persons": int(flows.trips[inside].sum()) - known,
        "beyond the bound": known - int(trips.sum()),
    }
