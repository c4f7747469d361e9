"""How far somebody who knows a few trips of a person gets: among the raw trips, and among the published cells.

For sampled persons, m of their trips are known. The people who also have trips in the same places are those the person
may be: with tiles (raw) or with published cells. A known trip in no published cell says nothing of the release. Then a
further trip is guessed: from its origin zone, as the destination zone to which most published trips go, against the
destination zone that is largest of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.published import PublishedRelease
from flowveil.audit.trips import PlacedTrips
from flowveil.errors import ParameterError

Counts = NDArray[np.int64]
KNOWN_TRIPS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Linkage:
    """What m known trips give.

    Attributes:
        known: how many trips are known.
        persons: how many persons with so many trips, and one more, were sampled.
        raw_alone, alone: the share of them who are the only ones with these trips: by tiles, by published cells.
        raw_median, median: the median number of people who have these trips.
        below_k: the share of them whom fewer than k people, themselves included, match by published cells.
        guessed, from_margin: how often a further trip's destination zone is guessed: from its origin zone, from the
            margin alone.
    """

    known: int
    persons: int
    raw_alone: float
    alone: float
    raw_median: float
    median: float
    below_k: float
    guessed: float
    from_margin: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {name: round(value, 4) for name, value in vars(self).items()}


def linkage(release: PublishedRelease, trips: PlacedTrips, *, sample: int = 300, seed: int = 0) -> list[Linkage]:
    """Link sampled persons for 1 to 4 known trips.

    Raises:
        ParameterError: persons are not known.
    """
    if trips.flow is None or trips.person is None or trips.person_trips is None:
        raise ParameterError("Linkage needs persons: name their column with --person.")
    order = np.argsort(trips.person, kind="stable")
    person, flow = trips.person[order], trips.flow[order]
    by_flow, by_cell = _members(flow, person), _members(trips.cell[flow], person)
    start = np.searchsorted(person, np.arange(int(person.max(initial=0)) + 2))
    # Flows of a person are distinct: a trip made daily is one thing to know.
    n_flows = np.diff(start)
    guess = _Guess.of(release)
    found = []
    for known in KNOWN_TRIPS:
        random = np.random.default_rng([seed, known])
        candidates = np.flatnonzero(n_flows > known)
        chosen = random.permutation(candidates)[:sample]
        rows = [random.permutation(flow[start[p] : start[p + 1]])[: known + 1] for p in chosen]
        found.append(_linked(known, rows, trips, by_flow, by_cell, guess, release.k))
    return found


def _members(key: Counts, person: Counts) -> dict[int, Counts]:
    """The persons of each flow or cell, sorted."""
    order = np.lexsort((person, key))
    key, person = key[order], person[order]
    values, start = np.unique(key, return_index=True)
    return {int(v): np.unique(p) for v, p in zip(values, np.split(person, start[1:]), strict=True)}


def _linked(
    known: int,
    rows: list[Counts],
    trips: PlacedTrips,
    by_flow: dict[int, Counts],
    by_cell: dict[int, Counts],
    guess: _Guess,
    k: int,
) -> Linkage:
    everybody = 1 + int(trips.person.max(initial=0)) if trips.person is not None else 0
    raw, published, right, margin, guessable = [], [], 0, 0, 0
    for row in rows:
        raw.append(_common([by_flow[int(f)] for f in row[:known]], everybody))
        cells = [int(c) for c in trips.cell[row[:known]] if c >= 0]
        published.append(_common([by_cell[c] for c in cells], everybody))
        cell = int(trips.cell[row[known]])
        if cell >= 0:
            guessable += 1
            right += guess.destination[cell] == guess.best[guess.origin[cell]]
            margin += guess.destination[cell] == guess.largest
    n, of = max(len(rows), 1), max(guessable, 1)
    return Linkage(
        known=known,
        persons=len(rows),
        raw_alone=sum(size == 1 for size in raw) / n,
        alone=sum(size == 1 for size in published) / n,
        raw_median=float(np.median(raw)) if raw else 0.0,
        median=float(np.median(published)) if published else 0.0,
        below_k=sum(size < k for size in published) / n,
        guessed=float(right / of),
        from_margin=float(margin / of),
    )


def _common(sets: list[Counts], everybody: int) -> int:
    if not sets:
        return everybody
    common = sets[0]
    for other in sets[1:]:
        common = np.intersect1d(common, other, assume_unique=True)
    return len(common)


@dataclass(frozen=True, eq=False)
class _Guess:
    """For each origin zone the destination zone of most trips, and the largest destination zone of all."""

    origin: Counts
    destination: Counts
    best: Counts
    largest: int

    @classmethod
    def of(cls, release: PublishedRelease) -> _Guess:
        matrix = release.matrices[0]
        best = np.zeros(len(release.origin_zones), dtype=np.int64)
        order = np.lexsort((-matrix.destination, matrix.trips))
        best[matrix.origin[order]] = matrix.destination[order]
        largest = int(np.argmax(np.bincount(matrix.destination, weights=matrix.trips)))
        return cls(matrix.origin, matrix.destination, best, largest)
