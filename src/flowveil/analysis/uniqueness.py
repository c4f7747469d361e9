"""How many people are the only ones at a few places, and times, that somebody knows of them.

The question of de Montjoye et al. (2013), which the papers cite: of a person's places m are drawn, and the people who
were at all of them are counted. Where that is she alone, whoever knows these m of her knows all her trips in the raw
data. It says how much removing names from trips would hide, which is little; no release of flowveil has persons.

A place is a tile in which a trip begins or ends. Where times are known, it is a tile and the step of time of the trip.
Drawing all persons would be exact and slow; a thousand are drawn with a fixed seed, and the interval says what that
costs. Which persons are drawn depends on their places alone, not on their names or the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows

#: How many persons are drawn, and the most known places.
SAMPLE, MOST_KNOWN = 1_000, 4
_SEED = 20_260
#: Two-sided, 95 %.
_Z = 1.959963984540054
#: Odd numbers of 64 bits that mix well (splitmix64).
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True)
class Uniqueness:
    """How many people are unique given so many of their places. Internal; it names nobody.

    Attributes:
        known: places known of a person.
        timed: whether the step of time is known with each place.
        people: people with at least so many places, of whom the sample was drawn.
        sampled: people drawn.
        share: share of them who are the only ones at all of these places.
        low, high: 95 % interval of that share among all of these people (Wilson's).
    """

    known: int
    timed: bool
    people: int
    sampled: int
    share: float
    low: float
    high: float

    def line(self) -> str:
        """The share for people."""
        what = "place" if self.known == 1 else "places"
        times = " and times" if self.timed else ""
        return (
            f"  {self.known} known {what}{times}: {self.share:.1%} of the people are alone there (95 % interval "
            f"{self.low:.1%} to {self.high:.1%}; {self.sampled:,} drawn of {self.people:,} with so many)"
        )


@dataclass(frozen=True, eq=False)
class _Traces:
    """Who was where: distinct (person, place) rows, by person and by place."""

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
        """The persons in an order that follows from their places alone; whoever ties has the same places."""
        mixed = self.place.astype(np.uint64) + np.uint64(1)
        with np.errstate(over="ignore"):
            mixed *= np.uint64(_MIX[0])
            for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
            key = total[self.start[1:]] - total[self.start[:-1]]
        return np.argsort(key, kind="stable")

    def people_at(self, places: NDArray[np.int64]) -> int:
        """How many people were at all of these places."""
        visitors = [self.visitor[self.first[p] : self.first[p + 1]] for p in places.tolist()]
        return len(reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), sorted(visitors, key=len)))


def uniqueness(flows: Flows, *, most_known: int = MOST_KNOWN, sample: int = SAMPLE) -> tuple[Uniqueness, ...]:
    """The share of unique people for 1 to ``most_known`` known places; nothing where persons are not known.

    Args:
        flows: with persons; with times, the step of each trip is known with the place.
        most_known: the most places that are known.
        sample: how many persons are drawn for each number of places.
    """
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
        timed = flows.time is not None
        found.append(Uniqueness(known, timed, len(able), len(drawn), alone / len(drawn), low, high))
    return tuple(found)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share: sensible also at 0 and at 1, where the usual one has no width."""
    share, square = hits / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _places(flows: Flows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The place of both ends of every flow, by one numbering: the same tile is the same place at either end."""
    codes = [tree.code[tree.leaf_node] for tree in (flows.origins, flows.destinations)]
    _, number = np.unique(np.concatenate(codes), return_inverse=True)
    of_origin, of_destination = number[: len(codes[0])], number[len(codes[0]) :]
    ends = of_origin[flows.origin].astype(np.int64), of_destination[flows.destination].astype(np.int64)
    if flows.time is None:
        return ends
    n_steps = int(flows.time.max(initial=0)) + 1
    return ends[0] * n_steps + flows.time, ends[1] * n_steps + flows.time
