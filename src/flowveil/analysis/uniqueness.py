"""Uniqueness of people in the raw trips, given a few known places (de Montjoye et al. 2013).

Of a person's places (tiles, with times also time steps) m are drawn, and the people who were at all
of them are counted. It shows that removing names does not protect. The sample of persons has a
fixed seed and depends on their places only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Ints
from flowveil.core.flows import Flows

#: Size of the sample, and largest number of known places.
SAMPLE, MOST_KNOWN = 1_000, 4
_SEED = 20_260
#: Two-sided, 95 %.
_Z = 1.959963984540054


@dataclass(frozen=True)
class Uniqueness:
    """Share of people who are unique given a number of their places, with or without times.

    Private; without names.
    """

    known: int  # how many places
    timed: bool
    people: int  # with at least this number of places
    sampled: int  # drawn from these
    share: float
    low: float  # the 95 % interval of the share among all of them (Wilson)
    high: float

    def line(self) -> str:
        """Returns one line of text."""
        what = "place" if self.known == 1 else "places"
        times = " and times" if self.timed else ""
        return (
            f"  {self.known} known {what}{times}: {self.share:.1%} of the people are alone there"
            f" (95 % interval {self.low:.1%} to {self.high:.1%}; {self.sampled:,} drawn of"
            f" {self.people:,})"
        )


def uniqueness(
    flows: Flows, *, most_known: int = MOST_KNOWN, sample: int = SAMPLE
) -> tuple[Uniqueness, ...]:
    """Returns the share of unique people for 1 to ``most_known`` known places.

    Empty without persons.
    """
    if flows.people is None or len(flows.people.person) == 0:
        return ()
    # Distinct (person, place) rows, indexed by person and by place.
    rows = [
        np.tile(flows.people.person, 2),
        np.concatenate([place[flows.people.cell] for place in _places(flows)]),
    ]
    person, place = np.unique(np.stack(rows).astype(np.int64), axis=1)
    start = np.searchsorted(person, np.arange(int(person.max()) + 2))
    by_place = np.lexsort((person, place))
    visitor, first = (
        person[by_place],
        np.searchsorted(place[by_place], np.arange(int(place.max()) + 2)),
    )
    # An order of persons that depends on their places only. Sums wrap around, so that differences
    # stay exact.
    numbers = np.random.default_rng(_SEED).integers(1 << 62, size=len(first), dtype=np.uint64)
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(numbers[place], dtype=np.uint64)))
    order, n_places = (
        np.argsort(total[start[1:]] - total[start[:-1]], kind="stable"),
        np.diff(start),
    )

    def people_at(places: NDArray[np.int64]) -> int:
        visitors = [visitor[first[p] : first[p + 1]] for p in places.tolist()]
        return len(
            reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), sorted(visitors, key=len))
        )

    shares = []
    for known in range(1, most_known + 1):
        able = order[n_places[order] >= known]
        if len(able) == 0:
            break
        rng = np.random.default_rng([_SEED, known])
        drawn = able[np.sort(rng.permutation(len(able))[:sample])].tolist()
        chosen = (
            rng.choice(place[start[who] : start[who + 1]], known, replace=False) for who in drawn
        )
        alone, n = sum(people_at(places) == 1 for places in chosen), len(drawn)
        shares.append(
            Uniqueness(known, _steps(flows) is not None, len(able), n, alone / n, *wilson(alone, n))
        )
    return tuple(shares)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share, which also holds at 0 and at 1."""
    share, square = hits / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _places(flows: Flows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the place of both ends of every flow; a tile has the same number at either end."""
    codes = [tree.code[tree.leaf_node] for tree in (flows.origins, flows.destinations)]
    of_origin, of_destination = np.split(
        np.unique(np.concatenate(codes), return_inverse=True)[1], [len(codes[0])]
    )
    steps = _steps(flows)
    time, n_steps = (0, 1) if steps is None else (steps, int(steps.max(initial=0)) + 1)
    return (
        of_origin[flows.origin] * n_steps + time,
        of_destination[flows.destination] * n_steps + time,
    )


def _steps(flows: Flows) -> Ints | None:
    """Returns the step of time of each flow; None if time is not folded."""
    both = zip(flows.folds, flows.leaves, strict=True)
    return next((leaf for fold, leaf in both if fold.every is not None), None)
