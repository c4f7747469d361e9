"""What the report of one release says of the cells that it does not publish.

The published cells sum to P. Whatever gives the volume V of all trips gives V - P, the suppressed trips: a group like
any other. These measures give it: the suppressed share; c_dm, because the sum of squares is known from the cells; and,
where every zone is a single tile, the reconstruction loss, which then is the suppressed share to its published digits.

Where trips alone decide what is short, each of the c pairs of listed zones that is not listed holds k - 1 at most. If
no trip begins or ends outside the listed zones, a suppressed volume above (c - 1)(k - 1) leaves none of them empty.
That condition is not in the folder, so such pairs are counted apart and do not make an audit fail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowveil.audit.published import PublishedMatrix, PublishedRelease

#: Significant digits of the reconstruction loss.
_DIGITS_OF_LOSS = 4


@dataclass(frozen=True)
class Suppressed:
    """What is known of the suppressed trips of all matrices of a release.

    Attributes:
        confined: matrices whose suppressed trips are above 0 and below the guarantee, certainly.
        known: matrices whose suppressed trips are known, exactly or between two bounds.
        filled: pairs of listed zones that hold between 1 and k - 1 trips if every trip lies in listed zones.
        bounds: smallest and largest number of suppressed trips of each matrix; None where nothing is known.
    """

    confined: int
    known: int
    filled: int
    bounds: tuple[tuple[int, int] | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The counts alone."""
        return {"confined": self.confined, "known": self.known, "filled_pairs": self.filled}


def suppressed_bounds(release: PublishedRelease) -> Suppressed:
    """Bound what each matrix of a release suppresses."""
    bounds = tuple(_bounds(release, matrix) for matrix in release.matrices)
    confined = sum(b is not None and b[0] > 0 and b[1] < release.k for b in bounds)
    known = sum(b is not None for b in bounds)
    filled = sum(_filled(release, m, b) for m, b in zip(release.matrices, bounds, strict=True) if b is not None)
    return Suppressed(confined, known, filled, bounds)


def _bounds(release: PublishedRelease, matrix: PublishedMatrix) -> tuple[int, int] | None:
    if release.noisy:
        return None
    shown = int(matrix.trips.sum())
    if matrix.total is not None:
        return matrix.total - shown, matrix.total - shown
    loss = _measures(release, matrix).get("reconstruction_loss")
    if loss is None or not release.single_tiles or not 0 <= loss < 1:
        return None
    half = 0.5 * 10.0 ** (math.floor(math.log10(loss)) - _DIGITS_OF_LOSS + 1) if loss > 0 else 0.0
    low, high = (shown / (1 - max(loss + sign * half, 0.0)) - shown for sign in (-1, 1))
    return math.ceil(low - 1e-6), math.floor(high + 1e-6)


def _measures(release: PublishedRelease, matrix: PublishedMatrix) -> dict[str, Any]:
    if not matrix.key:
        return dict(release.report["measures"]["trips"])
    wanted = dict(zip(release.slice_columns, matrix.key, strict=True))
    found = [part["measures"]["trips"] for part in release.report["slices"] if part["slice"] == wanted]
    return dict(found[0]) if found else {}


def _filled(release: PublishedRelease, matrix: PublishedMatrix, bounds: tuple[int, int]) -> int:
    if release.most_unlisted is None:
        return 0
    pairs = len(np.unique(matrix.origin)) * len(np.unique(matrix.destination))
    unlisted = pairs - len(matrix.trips)
    return unlisted if unlisted and bounds[0] > (unlisted - 1) * release.most_unlisted else 0
