"""Attacks on one release: homogeneity of zones, dominance of persons in cells, linkage by a few known trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.published import PublishedMatrix, PublishedRelease
from flowveil.audit.trips import PlacedTrips
from flowveil.errors import ParameterError

Counts = NDArray[np.int64]


# ---- homogeneity -----------------------------------------------------------------------------------------------------

#: A zone whose trips go to one zone in a larger share than this is homogeneous; in tenths, so that it is exact.
LARGE_TENTHS = 9


@dataclass(frozen=True)
class Homogeneity:
    """How much one end says of the other, for the zones of one end that reach the guarantee.

    Attributes:
        end: ``origin`` or ``destination``.
        zones: how many zones there are.
        above: how many send (or receive) more than 90 % of their trips to one zone.
        trips_above: the share of the published trips in these zones.
        l_distinct: the smallest number of zones at the other end.
        l_entropy: the smallest effective number of zones at the other end: the exponential of the entropy.
        t: the largest distance between a zone's shares and those of all: half the sum of absolute differences.
    """

    end: str
    zones: int
    above: int
    trips_above: float
    l_distinct: int
    l_entropy: float
    t: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {**vars(self), "l_entropy": round(self.l_entropy, 4), "t": round(self.t, 4)}

    @property
    def share(self) -> float:
        """The share of the zones above 90 %."""
        return self.above / self.zones if self.zones else 0.0


def homogeneity(release: PublishedRelease) -> tuple[Homogeneity, Homogeneity]:
    """From origins to destinations, and the reverse; of a sliced release, of its largest matrix."""
    matrix = max(release.matrices, key=lambda m: int(m.trips.sum()))
    return _of_end(matrix, "origin", release.k), _of_end(matrix, "destination", release.k)


def _of_end(matrix: PublishedMatrix, end: str, k: int) -> Homogeneity:
    zone, other = (matrix.origin, matrix.destination) if end == "origin" else (matrix.destination, matrix.origin)
    trips = np.maximum(matrix.trips, 0).astype(np.float64)
    held = np.bincount(zone, weights=trips)
    usable = held >= max(k, 1)
    largest = np.zeros(len(held))
    np.maximum.at(largest, zone, trips)
    share = trips / np.maximum(held, 1)[zone]
    entropy = np.bincount(zone, weights=-share * np.log(np.where(share > 0, share, 1)), minlength=len(held))
    distinct = np.bincount(zone, minlength=len(held))
    above = usable & (10 * largest > LARGE_TENTHS * held)
    some = bool(usable.any())
    return Homogeneity(
        end=end,
        zones=int(usable.sum()),
        above=int(above.sum()),
        trips_above=float(held[above].sum() / max(held.sum(), 1)),
        l_distinct=int(distinct[usable].min()) if some else 0,
        l_entropy=float(np.exp(entropy[usable]).min()) if some else 0.0,
        t=float(_distances(zone, other, share, trips)[usable].max()) if some else 0.0,
    )


def _distances(
    zone: NDArray[np.int64], other: NDArray[np.int64], share: NDArray[np.float64], trips: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Half the sum of absolute differences between each zone's shares and those of all zones together.

    Over the cells of a zone, |a - b| - b; all b of the others sum to the rest of 1.
    """
    overall = np.bincount(other, weights=trips) / max(float(trips.sum()), 1.0)
    there = np.bincount(zone, weights=np.abs(share - overall[other]) - overall[other])
    distances: NDArray[np.float64] = np.maximum((there + 1.0) / 2, 0.0)
    return distances


# ---- dominance -------------------------------------------------------------------------------------------------------

#: One person makes more than this share of a cell's trips; the two largest make more than that.
LARGEST, TWO_LARGEST = 0.5, 0.8
#: The p%-rule: the second largest can estimate the largest to within this share. The (n, k)-rule: n largest, k share.
P_PERCENT, N_LARGEST, K_SHARE = 0.15, 2, 0.85


@dataclass(frozen=True)
class Dominance:
    """How many published cells are mostly one person's.

    Attributes:
        cells: published cells.
        one, two: cells in which the largest person makes more than half, the two largest more than 80 %.
        p_percent: cells in which the second largest person could estimate the largest to within 15 %.
        n_k: cells in which the two largest make more than 85 %.
        largest: the largest share of one person in any cell.
    """

    cells: int
    one: int
    two: int
    p_percent: int
    n_k: int
    largest: float

    @property
    def share(self) -> float:
        """The share of the cells in which one person makes more than half."""
        return self.one / self.cells if self.cells else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {**vars(self), "largest": round(self.largest, 4)}


def sum_dominance(found: Sequence[Dominance]) -> Dominance:
    """The same over several matrices."""
    return Dominance(
        cells=sum(one.cells for one in found),
        one=sum(one.one for one in found),
        two=sum(one.two for one in found),
        p_percent=sum(one.p_percent for one in found),
        n_k=sum(one.n_k for one in found),
        largest=max((one.largest for one in found), default=0.0),
    )


def dominance(trips: PlacedTrips) -> Dominance:
    """Count the cells that one or two persons dominate.

    Raises:
        ParameterError: persons are not known.
    """
    if trips.flow is None or trips.person is None or trips.person_trips is None:
        raise ParameterError("Dominance needs persons: name their column with --person.")
    cell = trips.cell[trips.flow]
    inside = cell >= 0
    n_people = int(trips.person.max(initial=0)) + 1
    key, place = np.unique(cell[inside] * n_people + trips.person[inside], return_inverse=True)
    made = np.bincount(place, weights=trips.person_trips[inside])
    of_cell = key // n_people
    order = np.lexsort((-made, of_cell))
    made, of_cell = made[order], of_cell[order]
    start = np.searchsorted(of_cell, np.arange(trips.n_cells + 1))
    total = np.bincount(trips.cell[trips.cell >= 0], weights=trips.trips[trips.cell >= 0], minlength=trips.n_cells)
    padded = np.append(made, [0.0, 0.0])
    first = np.where(start[1:] > start[:-1], padded[start[:-1]], 0)
    second = np.where(start[1:] > start[:-1] + 1, padded[start[:-1] + 1], 0)
    held = np.maximum(total, 1)
    return Dominance(
        cells=trips.n_cells,
        one=int(np.sum(first > LARGEST * held)),
        two=int(np.sum(first + second > TWO_LARGEST * held)),
        p_percent=int(np.sum((first > 0) & (total - first - second < P_PERCENT * first))),
        n_k=int(np.sum(first + second > K_SHARE * held)),
        largest=float((first / held).max(initial=0.0)),
    )


# ---- linkage ---------------------------------------------------------------------------------------------------------

KNOWN_TRIPS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Linkage:
    """What m known trips give.

    Attributes:
        known: how many trips are known.
        persons: number of sampled persons who made more than the known trips.
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
