"""Cells in which one person, or two, make most of the trips: the rules of statistics offices, on the holder's trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowveil.audit.trips import PlacedTrips
from flowveil.errors import ParameterError

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


def together(found: Sequence[Dominance]) -> Dominance:
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
