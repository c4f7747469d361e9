"""What the report of one release says of the cells that it does not publish.

The published cells sum to P. Whatever gives the volume V of all trips gives V - P, the suppressed trips: a group like
any other. These measures give it: the suppressed share; c_dm, because the sum of squares is known from the cells; and,
where every zone is a single tile, the reconstruction loss, which then is the suppressed share to its published digits.
What all slices suppress, less what single slices disclose, is what the others do. And the mean weight of all trips
ties the suppressed weight to the suppressed trips: whoever learns one has the other.

Where trips alone decide what is short, each of the c pairs of listed zones that is not listed holds k - 1 at most. If
no trip begins or ends outside the listed zones, a suppressed volume above (c - 1)(k - 1) leaves none of them empty.
That condition is not in the folder, so such pairs are counted apart and do not make an audit fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowveil.audit.published import PublishedMatrix, PublishedRelease, total_of
from flowveil.audit.within_cell_spread import DIGITS_OF_LOSS, disclosed_inside


@dataclass(frozen=True)
class Suppressed:
    """What is known of the suppressed trips of all matrices of a release.

    Attributes:
        confined: matrices whose suppressed trips are above 0 and below the guarantee, certainly; and one more where
            that holds for the slices together that do not disclose theirs.
        tied: matrices whose suppressed weight follows from the suppressed trips, and the reverse.
        inside: cells whose trips are known by pairs of tiles, some of them below the guarantee.
        known: matrices whose suppressed trips are known, exactly or between two bounds.
        filled: pairs of listed zones that hold between 1 and k - 1 trips if every trip lies in listed zones.
        bounds: smallest and largest number of suppressed trips of each matrix; None where nothing is known.
    """

    confined: int
    known: int
    filled: int
    bounds: tuple[tuple[int, int] | None, ...]
    tied: int = 0
    inside: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The counts alone."""
        return {
            "confined": self.confined,
            "known": self.known,
            "filled_pairs": self.filled,
            "tied": self.tied,
            "inside": self.inside,
        }


def suppressed_bounds(release: PublishedRelease) -> Suppressed:
    """Bound what each matrix of a release suppresses."""
    bounds = tuple(_bounds(release, matrix) for matrix in release.matrices)
    together = _left_of_all(release, bounds)
    confined = sum(b is not None and b[0] > 0 and b[1] < release.k for b in (*bounds, together))
    known = sum(b is not None for b in bounds)
    filled = sum(_filled(release, m, b) for m, b in zip(release.matrices, bounds, strict=True) if b is not None)
    inside = sum(
        disclosed_inside(release, matrix, _measures(release, matrix).get("reconstruction_loss"))
        for matrix in release.matrices
    )
    tied = 0 if release.noisy else sum(_is_tied(release, matrix) for matrix in release.matrices)
    return Suppressed(confined, known, filled, bounds, tied, inside)


def _left_of_all(release: PublishedRelease, bounds: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """What the slices suppress that do not disclose theirs, from the total of all, where no slice holds another."""
    kinds = {tuple(value is None for value in matrix.key) for matrix in release.matrices}
    several_steps = (release.report["parameters"].get("slices") or {}).get("also_every")
    if release.noisy or not release.slice_columns or kinds != {(False,) * len(release.slice_columns)} or several_steps:
        return None
    trips = np.concatenate([matrix.trips for matrix in release.matrices])
    total = total_of((release.report.get("measures") or {}).get("trips", {}), trips, squares=False)
    if total is None:
        return None
    # Slices that are not published at all are in it as well.
    known = [b for b in bounds if b is not None]
    left = total - int(trips.sum())
    return left - sum(b[1] for b in known), left - sum(b[0] for b in known)


def _bounds(release: PublishedRelease, matrix: PublishedMatrix) -> tuple[int, int] | None:
    if release.noisy:
        return None
    shown = int(matrix.trips.sum())
    if matrix.total is not None:
        return matrix.total - shown, matrix.total - shown
    loss = _measures(release, matrix).get("reconstruction_loss")
    if loss is None or not release.single_tiles or not 0 <= loss < 1:
        return None
    half = 0.5 * 10.0 ** (math.floor(math.log10(loss)) - DIGITS_OF_LOSS + 1) if loss > 0 else 0.0
    low, high = (shown / (1 - max(loss + sign * half, 0.0)) - shown for sign in (-1, 1))
    return math.ceil(low - 1e-6), math.floor(high + 1e-6)


def _is_tied(release: PublishedRelease, matrix: PublishedMatrix) -> bool:
    """Whether the mean weight of all trips is published and is not that of the published ones, whose total is withheld.

    k mean weights, rounded up to a millionth, are the threshold of the population, and what the average cell by weight
    is held against. With them, the suppressed trips, whatever their number, have one weight only.
    """
    average = None if matrix.weight is None else _measures(release, matrix, "weight").get("c_avg")
    given = release.report["parameters"].get("k_population") is not None
    if matrix.weight is None or matrix.total is not None or given or not release.k:
        return False
    shown, weight = int(matrix.trips.sum()), float(np.sum(np.rint(matrix.weight * 1e6)))
    known = [release.thresholds.get("population"), average and weight / 1e6 / len(matrix.trips) / average]
    asked = next((value for value in known if value), None)
    # Rounding up adds less than a millionth to k mean weights.
    return asked is not None and not -1e-3 <= asked * 1e6 / release.k * shown - weight <= shown / release.k + 1e-3


def _measures(release: PublishedRelease, matrix: PublishedMatrix, basis: str = "trips") -> dict[str, Any]:
    if not matrix.key:
        return dict((release.report.get("measures") or {}).get(basis, {}))
    wanted = dict(zip(release.slice_columns, matrix.key, strict=True))
    found = [part["measures"]["trips"] for part in release.report.get("slices") or () if part["slice"] == wanted]
    return dict(found[0]) if found else {}


def _filled(release: PublishedRelease, matrix: PublishedMatrix, bounds: tuple[int, int]) -> int:
    if release.most_unlisted is None:
        return 0
    pairs = len(np.unique(matrix.origin)) * len(np.unique(matrix.destination))
    unlisted = pairs - len(matrix.trips)
    return unlisted if unlisted and bounds[0] > (unlisted - 1) * release.most_unlisted else 0
