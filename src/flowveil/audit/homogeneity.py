"""What a cell gives away of whoever is known to be in a row or a column of the matrix.

k-anonymity hides who somebody in a cell is, not where she went: if nearly all published trips from a zone end in one
zone, whoever lives in the first goes to the second. Computed from the published cells alone, so anybody can do it;
suppressed trips are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.published import PublishedMatrix, PublishedRelease

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

    Over the cells of a zone, |a - b| - b; all b of the others sum to what is left of 1.
    """
    overall = np.bincount(other, weights=trips) / max(float(trips.sum()), 1.0)
    there = np.bincount(zone, weights=np.abs(share - overall[other]) - overall[other])
    distances: NDArray[np.float64] = np.maximum((there + 1.0) / 2, 0.0)
    return distances
