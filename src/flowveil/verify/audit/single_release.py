"""Attacks on one release: homogeneity of zones, dominance of persons in cells, linkage by a few
known trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Positions
from flowveil.core.errors import DataError
from flowveil.release.post_rules import total_variation
from flowveil.verify.audit.published import PublishedMatrix, PublishedRelease
from flowveil.verify.audit.trips import Figures, PlacedTrips
from flowveil.verify.audit.zone_forest import Ground, ground_of

#: A zone whose trips go to one zone in a larger share than this is homogeneous; in tenths, so that
#: it is exact.
LARGE_TENTHS = 9
#: One person makes more than this share of a cell's trips; the two largest make more than that.
LARGEST, TWO_LARGEST = 0.5, 0.8
#: The p%-rule: the second largest can estimate the largest to within this share. The (n, k)-rule
#: for two persons.
P_PERCENT, K_SHARE = 0.15, 0.85
KNOWN_TRIPS = (1, 2, 3, 4)
#: Zone, zone at the other end, and trips.
Rows = tuple[Counts, Counts, Any]


@dataclass(frozen=True)
class Homogeneity(Figures):
    """How much one end says of the other, for the zones of one end that reach the guarantee."""

    end: str  # ``origin`` or ``destination``
    zones: int
    above: int  # how many send (or receive) more than 90 % of their trips to one zone
    l_distinct: int  # the smallest number of zones at the other end
    # the smallest effective number of zones at the other end: the exponential of the entropy
    l_entropy: float
    # the largest distance between a zone's shares and those of all: half the sum of absolute
    # differences
    t: float

    @property
    def share(self) -> float:
        """The share of the zones above 90 %."""
        return self.above / self.zones if self.zones else 0.0


def homogeneity(release: PublishedRelease) -> tuple[Homogeneity, Homogeneity] | None:
    """From origins to destinations, and the reverse; of a sliced release, of its largest matrix.

    None for layers whose zones cannot be placed.
    """
    matrix = max(release.matrices, key=lambda m: int(m.trips.sum()))
    rows: list[Rows] = [
        (matrix.origin, matrix.destination, matrix.trips),
        (matrix.destination, matrix.origin, matrix.trips),
    ]
    if matrix.layer is not None:
        try:
            ground = ground_of({0: release})
        except DataError:
            return None
        rows = [_of_all_layers(ground, ground.nodes[0, end], *own) for end, own in enumerate(rows)]
    return _of_end(*rows[0], "origin", release.k), _of_end(*rows[1], "destination", release.k)


def _of_all_layers(
    ground: Ground, nodes: Positions, zone: Counts, other: Counts, trips: Counts
) -> Rows:
    """Returns the trips of each zone in all cells around it or inside it.

    A cell around a zone counts for it in proportion to its share of the area: a zone with one cell
    may have more trips in cells of other layers.
    """
    number = np.full(len(ground.parent), -1, dtype=np.int64)
    number[nodes] = np.arange(len(nodes))
    pairs = [(np.arange(len(nodes)), np.arange(len(nodes)), np.ones(len(nodes)))]
    above = nodes.copy()
    while (above >= 0).any():
        above = np.where(above >= 0, ground.parent[above], -1)
        here = np.flatnonzero((above >= 0) & (number[above] >= 0))
        holder = number[above[here]]
        share = ground.size[nodes[here]] / ground.size[above[here]]
        # Of the trips around a zone its share, and all trips inside a zone.
        pairs += [(here, holder, share), (holder, here, np.ones(len(here)))]
    target, source, share = (np.concatenate(part) for part in zip(*pairs, strict=True))
    order = np.argsort(zone, kind="stable")
    first, stop = (np.searchsorted(zone[order], source, side=side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(source)), stop - first)
    within = np.arange(len(row)) - np.repeat(np.cumsum(stop - first) - (stop - first), stop - first)
    cell = order[first[row] + within]
    return target[row], other[cell], share[row] * np.maximum(trips[cell], 0)


def _of_end(zone: Counts, other: Counts, counted: Any, end: str, k: int) -> Homogeneity:
    trips = np.maximum(counted, 0).astype(np.float64)
    # Cells of several layers may have the same zone at the other end.
    size = int(other.max(initial=0)) + 1
    pair, place = np.unique(zone * size + other, return_inverse=True)
    trips, zone, other = np.bincount(place, weights=trips), pair // size, pair % size
    held = np.bincount(zone, weights=trips)
    usable = held >= max(k, 1)
    largest = np.zeros(len(held))
    np.maximum.at(largest, zone, trips)
    share = trips / np.maximum(held, 1)[zone]
    entropy = np.bincount(
        zone, weights=-share * np.log(np.where(share > 0, share, 1)), minlength=len(held)
    )
    distinct = np.bincount(zone, minlength=len(held))
    above = usable & (10 * largest > LARGE_TENTHS * held)
    distance = total_variation(zone, other, trips, len(held), int(other.max(initial=0)) + 1)
    some = bool(usable.any())
    return Homogeneity(
        end=end,
        zones=int(usable.sum()),
        above=int(above.sum()),
        l_distinct=int(distinct[usable].min()) if some else 0,
        l_entropy=float(np.exp(entropy[usable]).min()) if some else 0.0,
        t=float(distance[usable].max()) if some else 0.0,
    )


@dataclass(frozen=True)
class Dominance(Figures):
    """How many published cells are mostly one person's."""

    cells: int
    one: int  # cells in which the largest person makes more than half
    two: int  # cells in which the two largest make more than 80 %
    p_percent: (
        int  # cells in which the second largest person could estimate the largest to within 15 %
    )
    n_k: int  # cells in which the two largest make more than 85 %
    largest: float  # the largest share of one person in any cell

    @property
    def share(self) -> float:
        """The share of the cells in which one person makes more than half."""
        return self.one / self.cells if self.cells else 0.0


def sum_dominance(found: Sequence[Dominance]) -> Dominance:
    """The same over several matrices."""
    counts = {
        name: sum(getattr(one, name) for one in found)
        for name in ("cells", "one", "two", "p_percent", "n_k")
    }
    return Dominance(**counts, largest=max((one.largest for one in found), default=0.0))


def dominance(trips: PlacedTrips) -> Dominance:
    """Counts the cells that one or two persons dominate."""
    first, second = trips.people.largest(trips.cell, trips.n_cells)
    counted = trips.cell >= 0
    total = np.bincount(
        trips.cell[counted], weights=trips.flows.trips[counted], minlength=trips.n_cells
    )
    held = np.maximum(total, 1)
    return Dominance(
        cells=trips.n_cells,
        one=int(np.sum(first > LARGEST * held)),
        two=int(np.sum(first + second > TWO_LARGEST * held)),
        p_percent=int(np.sum((first > 0) & (total - first - second < P_PERCENT * first))),
        n_k=int(np.sum(first + second > K_SHARE * held)),
        largest=float((first / held).max(initial=0.0)),
    )


@dataclass(frozen=True)
class Linkage(Figures):
    """What m known trips give, for sampled persons who made more than these."""

    known: int  # how many trips are known
    persons: int
    raw_alone: float  # the share of them who are the only ones with these trips, by tiles
    alone: float  # the same by published cells
    raw_median: float  # the median number of people who have these trips, by tiles
    median: float  # the same by published cells
    # the share of them whom fewer than k people, themselves included, match by published cells
    below_k: float
    guessed: float  # how often a further trip's destination zone is guessed from its origin zone
    from_margin: float  # how often from the margin alone


def linkage(
    release: PublishedRelease, trips: PlacedTrips, *, sample: int = 300, seed: int = 0
) -> list[Linkage]:
    """Links sampled persons for 1 to 4 known trips."""
    order = np.argsort(trips.people.person, kind="stable")
    person, flow = (
        trips.people.person[order].astype(np.int64),
        trips.people.cell[order].astype(np.int64),
    )
    by_flow, by_cell = _members(flow, person), _members(trips.cell[flow], person)
    everybody = int(person.max(initial=0)) + 1
    start = np.searchsorted(person, np.arange(everybody + 1))
    right, marginal = _guesses(release.matrices[0], len(release.origin_zones))
    found = []
    for known in KNOWN_TRIPS:
        random = np.random.default_rng([seed, known])
        # Flows of a person are distinct: a trip made daily is one thing to know.
        chosen = random.permutation(np.flatnonzero(np.diff(start) > known))[:sample]
        rows = [random.permutation(flow[start[p] : start[p + 1]])[: known + 1] for p in chosen]
        raw = [_common([by_flow[int(f)] for f in row[:known]], everybody) for row in rows]
        cells = [trips.cell[row] for row in rows]
        published = [
            _common([by_cell[int(c)] for c in row[:known] if c >= 0], everybody) for row in cells
        ]
        further = np.array([row[known] for row in cells if row[known] >= 0], dtype=np.int64)
        n, of = max(len(rows), 1), max(len(further), 1)
        found.append(
            Linkage(
                known=known,
                persons=len(rows),
                raw_alone=raw.count(1) / n,
                alone=published.count(1) / n,
                raw_median=float(np.median(raw)) if raw else 0.0,
                median=float(np.median(published)) if published else 0.0,
                below_k=sum(size < release.k for size in published) / n,
                guessed=int(right[further].sum()) / of,
                from_margin=int(marginal[further].sum()) / of,
            )
        )
    return found


def _members(key: Counts, person: Counts) -> dict[int, Counts]:
    """The persons of each flow or cell, sorted."""
    order = np.lexsort((person, key))
    key, person = key[order], person[order]
    values, start = np.unique(key, return_index=True)
    return {int(v): np.unique(p) for v, p in zip(values, np.split(person, start[1:]), strict=True)}


def _common(sets: list[Counts], everybody: int) -> int:
    if not sets:
        return everybody
    common = sets[0]
    for other in sets[1:]:
        common = np.intersect1d(common, other, assume_unique=True)
    return len(common)


def _guesses(
    matrix: PublishedMatrix, n_origins: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which cells have the destination zone of most trips of their origin zone, and the largest one
    of all.
    """
    best = np.zeros(n_origins, dtype=np.int64)
    order = np.lexsort((-matrix.destination, matrix.trips))
    best[matrix.origin[order]] = matrix.destination[order]
    largest = int(np.argmax(np.bincount(matrix.destination, weights=matrix.trips)))
    return matrix.destination == best[matrix.origin], matrix.destination == largest
