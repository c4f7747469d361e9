"""Uniqueness of people in the raw trips, given a few known places (de Montjoye et al. 2013).

Of a person's places m are drawn, and the people who were at all of them are counted. If the person is the only one, an
attacker who knows these m places finds all trips of the person. It shows that removing names does not protect.

A place is a tile in which a trip begins or ends; with times, a tile and the time step of the trip. A sample of persons
is drawn with a fixed seed; it depends on their places only, not on their names or the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.hierarchy import Ints

#: Size of the sample, and largest number of known places.
SAMPLE, MOST_KNOWN = 1_000, 4
_SEED = 20_260
#: Two-sided, 95 %.
_Z = 1.959963984540054


@dataclass(frozen=True)
class Uniqueness:
    """Share of people who are unique given a number of their places, with or without times. Private; without names.

    The sample is drawn from the people with at least this number of places; ``low`` and ``high`` are the 95 % interval
    of the share among all of them (Wilson).
    """

    known: int
    timed: bool
    people: int
    sampled: int
    share: float
    low: float
    high: float

    def line(self) -> str:
        """Returns one line of text."""
        what = "place" if self.known == 1 else "places"
        times = " and times" if self.timed else ""
        return (
            f"  {self.known} known {what}{times}: {self.share:.1%} of the people are alone there (95 % interval "
            f"{self.low:.1%} to {self.high:.1%}; {self.sampled:,} drawn of {self.people:,})"
        )


@dataclass(frozen=True, eq=False)
class _Traces:
    """Distinct (person, place) rows, indexed by person and by place."""

    place: NDArray[np.int64]
    start: NDArray[np.int64]
    visitor: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, flows: Flows) -> _Traces:
        assert flows.people is not None
        cell, person = flows.people.cell, flows.people.person.astype(np.int64)
        place = np.concatenate(_places(flows))
        at = np.concatenate((place[: len(flows)][cell], place[len(flows) :][cell]))
        rows = np.unique(np.stack((np.concatenate((person, person)), at)), axis=1)
        n_people, n_places = int(rows[0].max()) + 1, int(place.max()) + 1
        by_place = np.lexsort((rows[0], rows[1]))
        return cls(
            place=rows[1],
            start=np.searchsorted(rows[0], np.arange(n_people + 1)),
            visitor=rows[0][by_place],
            first=np.searchsorted(rows[1][by_place], np.arange(n_places + 1)),
        )

    def in_order(self) -> NDArray[np.int64]:
        """Returns the persons in an order that depends on their places only; ties have the same places."""
        numbers = np.random.default_rng(_SEED).integers(1 << 62, size=len(self.first), dtype=np.uint64)
        total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(numbers[self.place], dtype=np.uint64)))
        # Sums wrap around, so that differences of them are those of the places of a person.
        return np.argsort(total[self.start[1:]] - total[self.start[:-1]], kind="stable")

    def people_at(self, places: NDArray[np.int64]) -> int:
        """Returns the number of people who were at all of these places."""
        visitors = [self.visitor[self.first[p] : self.first[p + 1]] for p in places.tolist()]
        return len(reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), sorted(visitors, key=len)))


def uniqueness(flows: Flows, *, most_known: int = MOST_KNOWN, sample: int = SAMPLE) -> tuple[Uniqueness, ...]:
    """Returns the share of unique people for 1 to ``most_known`` known places; empty without persons."""
    if flows.people is None or len(flows.people.person) == 0:
        return ()
    traces, found = _Traces.of(flows), []
    order, n_places = traces.in_order(), np.diff(traces.start)
    for known in range(1, most_known + 1):
        able = order[n_places[order] >= known]
        if len(able) == 0:
            break
        rng = np.random.default_rng([_SEED, known])
        drawn = rng.permutation(len(able))[:sample]
        alone = 0
        for person in able[np.sort(drawn)].tolist():
            own = traces.place[traces.start[person] : traces.start[person + 1]]
            alone += traces.people_at(rng.choice(own, known, replace=False)) == 1
        low, high = wilson(alone, len(drawn))
        timed = _steps(flows) is not None
        found.append(Uniqueness(known, timed, len(able), len(drawn), alone / len(drawn), low, high))
    return tuple(found)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share, which also holds at 0 and at 1."""
    share, square = hits / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _places(flows: Flows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the place of both ends of every flow; a tile has the same number at either end."""
    codes = [tree.code[tree.leaf_node] for tree in (flows.origins, flows.destinations)]
    _, number = np.unique(np.concatenate(codes), return_inverse=True)
    of_origin, of_destination = number[: len(codes[0])], number[len(codes[0]) :]
    ends = of_origin[flows.origin].astype(np.int64), of_destination[flows.destination].astype(np.int64)
    steps = _steps(flows)
    if steps is None:
        return ends
    n_steps = int(steps.max(initial=0)) + 1
    return ends[0] * n_steps + steps, ends[1] * n_steps + steps


def _steps(flows: Flows) -> Ints | None:
    """Returns the step of time of each flow; None if time is not folded."""
    both = zip(flows.folds, flows.leaves, strict=True)
    return next((leaf for fold, leaf in both if fold.every is not None), None)
