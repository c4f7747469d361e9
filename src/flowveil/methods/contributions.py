"""Which trips of each person are counted, before any noise: at most as many as the bound, chosen by nobody else.

Shared by everything that adds noise to flows. What one person can change is bounded here, so the sensitivity of all
noisy methods rests on this file.
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
    """The trips of each flow that are counted, before any noise.

    Taking one person out of the flows changes their sum over any grouping of flows by ``bound`` at most, in the sum of
    absolute differences.

    Args:
        flows: the flows.
        inside: which of them lie in the domain.
        bound: most trips of one person; None where persons are not known, and every trip counts.
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
            "The flows do not say how many trips each person made, so nobody's trips can be bounded. "
            "Hint: read them with read_trips, or build them with Flows.from_pairs."
        )
    rows = inside[people.cell]
    trips = bounded_trips(people.person[rows], people.trips[rows], bound)
    return np.bincount(people.cell[rows], weights=trips, minlength=len(flows)).astype(np.int64)


def bounded_trips(person: Ints, trips: Counts, bound: int) -> Counts:
    """At most ``bound`` trips of each person, spread over the person's rows as the trips are.

    Of a person with n trips, n above the bound, in the order of the rows, every (n / bound)-th trip stays. Which ones
    depends on that person's trips alone, so adding or removing one person changes nobody else's: the counts change by
    the bound at most. Keeping the first ``bound`` trips in the order of the tiles would do as well, but would empty
    one side of the map.

    Args:
        person: the person of each row; the rows of one person stand in an order that does not depend on others.
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


def left_out(
    flows: Flows, inside: NDArray[np.bool_], trips: Counts, *, unit: Literal["person", "trip"]
) -> dict[str, int]:
    """The trips that are not counted, by reason. Exact: for the data holder alone."""
    outside = int(flows.trips[~inside].sum())
    known = int(flows.trips[inside].sum())
    if unit == "person" and flows.people is not None and flows.people.trips is not None:
        known = int(flows.people.trips[inside[flows.people.cell]].sum())
    return {
        "outside the region": outside,
        "of unknown persons": int(flows.trips[inside].sum()) - known,
        "beyond the bound": known - int(trips.sum()),
    }
