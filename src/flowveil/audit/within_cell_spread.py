"""How the trips of a cell are spread over its tiles, where the reconstruction loss is that of one cell alone.

A cell of a single pair of tiles loses nothing when it is spread evenly. If one published cell can cover more than one
pair, the loss times the volume, less what is suppressed, is its own: all spreads that give it are listed. Where they
agree, but for their order, and the smallest number of trips between two tiles is below the guarantee, that is
disclosed. Only cells of a few pairs and trips are looked at; a larger one may be disclosed without being found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from flowveil.audit.published import PublishedMatrix, PublishedRelease

#: Significant digits of the reconstruction loss.
DIGITS_OF_LOSS = 4
_MOST_PAIRS, _MOST_TRIPS = 4, 200


def disclosed_inside(release: PublishedRelease, matrix: PublishedMatrix, loss: float | None) -> int:
    """How many cells are spread over their tiles in one way only, with fewer trips than the guarantee in one pair."""
    if loss is None or matrix.total is None or release.noisy or not release.nodes:
        return 0
    tiles = [
        [_most(release, code, role) for code in codes]
        for role, codes in (("origin", release.origin_zones), ("destination", release.destination_zones))
    ]
    if any(n is None for end in tiles for n in end):
        return 0
    sizes = [np.array(end, dtype=np.int64) for end in tiles]
    pairs = sizes[0][matrix.origin] * sizes[1][matrix.destination]
    merged = np.flatnonzero(pairs > 1)
    if len(merged) != 1 or pairs[merged[0]] > _MOST_PAIRS or matrix.trips[merged[0]] > _MOST_TRIPS:
        return 0
    cell = int(merged[0])
    sides = int(sizes[0][matrix.origin[cell]]), int(sizes[1][matrix.destination[cell]])
    lost = matrix.total - int(matrix.trips.sum())
    half = 0.5 * 10.0 ** (math.floor(math.log10(loss)) - DIGITS_OF_LOSS + 1) if loss > 0 else 0.0
    low, high = ((loss + sign * half) * matrix.total - lost for sign in (-1, 1))
    spreads = {
        tuple(part for part in spread if part)
        for seen in {a * b for a in range(1, sides[0] + 1) for b in range(1, sides[1] + 1)}
        for spread in _spreads(int(matrix.trips[cell]), seen)
        if low - 1e-6 <= sum(abs(part - matrix.trips[cell] / seen) for part in spread) <= high + 1e-6
    }
    return int(len(spreads) == 1 and 0 < min(next(iter(spreads))) < release.k)


def _most(release: PublishedRelease, code: str, role: str) -> int | None:
    return release.tiles.get((code, role), release.tiles.get((code, "both")))


def _spreads(trips: int, pairs: int, least: int = 0) -> Iterator[tuple[int, ...]]:
    """All ways to spread trips over pairs of tiles, in rising order."""
    if pairs == 1:
        yield (trips,)
        return
    for first in range(least, trips // pairs + 1):
        for rest in _spreads(trips - first, pairs - 1, first):
            yield (first, *rest)
