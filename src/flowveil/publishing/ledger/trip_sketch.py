"""A keyed sample of the pairs of tiles of a release, and whether two releases share trips by it.

Days and values of a file can be wrong: a corrected year, local time instead of UTC, another name of
the same value. Places are compared too, whatever days and values say. Stored are, for a sample of
pairs of tiles, an HMAC of the pair and its number of trips. The sample is the same function of a
pair in every release, so samples of two releases can be compared. Tiles of H3 are also sampled at
coarser resolutions, for releases with larger tiles.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats
from flowveil.zoning.h3 import parent_of

if TYPE_CHECKING:
    from flowveil.core.flows import Flows
    from flowveil.publishing.ledger.ledger_file import LedgerFile


#: Most pairs of tiles in a sample.
MOST_PAIRS = 1024
#: The coarsest resolution of H3 with a sample.
_COARSEST = 5
#: Two releases share trips if it is this part of the smaller one, beyond chance.
SHARED = 0.9
#: Largest probability that trips of two independent releases look like the same.
_CHANCE = 1e-6
#: How many standard deviations a number of shared trips is above chance.
_DEVIATIONS = 5


def trip_sketch(given: Flows, ledger: LedgerFile) -> dict[str, dict[str, list[int]]]:
    """Returns the sample of flows, by tiling: by HMAC of a pair of tiles, the
    level of the pair and its number of trips.

    Half of all pairs have level 0 or more, a quarter level 1 or more, and so on. A sample has all
    pairs from some level on, so that two samples have the same pairs from the higher one on.
    """
    ends, trips = [given.origin, given.destination], given.trips.astype(np.int64)
    codes = [tree.code_text(tree.leaf_node) for tree in (given.origins, given.destinations)]
    resolution = given.intake.resolution
    if resolution is None:
        return {"map": _sample(codes, ends, trips, ledger)}
    cells = [np.array(list(map(_cell, own.tolist())), dtype=np.uint64) for own in codes]
    return {
        f"h3 {level}": _sample([_coarser(own, level) for own in cells], ends, trips, ledger)
        for level in range(min(_COARSEST, resolution), resolution + 1)
    }


def shares_trips(
    new: Mapping[str, Mapping[str, list[int]]], earlier: Mapping[str, Mapping[str, list[int]]]
) -> bool:
    """Returns whether two releases share trips beyond chance, by their samples.

    They do if, on the finest tiles of both, their numbers are the same, or differ less than those
    of independent trips would, or if nearly all trips of one are in the other. Numbers of the same
    pair are compared with those that pairs of one release have in common by chance.
    """
    if list(new)[-1] == list(earlier)[-1]:
        tilings = list(new)[-1:]
    else:
        # Cells of H3 are not exactly unions of finer ones: the coarser, the more agree.
        tilings = [tiling for tiling in new if tiling in earlier]
    return any(_shares_trips(new[tiling], earlier[tiling]) for tiling in tilings)


def _shares_trips(one: Mapping[str, list[int]], other: Mapping[str, list[int]]) -> bool:
    lowest = max(min((level for level, _ in own.values()), default=0) for own in (one, other))
    pairs = [
        pair
        for pair in {**one, **other}
        if max(own[pair][0] for own in (one, other) if pair in own) >= lowest
    ]
    a, b = (np.array([own.get(pair, (0, 0))[1] for pair in pairs], float) for own in (one, other))
    if not (a.sum() and b.sum()):
        return False
    return bool(np.array_equal(a, b)) or _is_copy(a, b) or _is_contained(a, b)


def _is_copy(a: Floats, b: Floats) -> bool:
    """Whether numbers of trips differ too little for independent trips.

    Of the trips of a pair of tiles, the number in one of two releases is binomial then. So each of
    the squares below has expectation 1. Chernoff's bound limits the probability of their sum.
    """
    share = a.sum() / (a.sum() + b.sum())
    squares = (a * (1 - share) - b * share) ** 2 / ((a + b) * share * (1 - share))
    free = len(a) - 1
    ratio = float(squares.sum()) / max(free, 1)
    if ratio > 1 - SHARED:
        return False
    log_chance = free / 2 * (math.log(ratio) + 1 - ratio) if ratio > 0 else -math.inf
    return free > 0 and log_chance <= math.log(_CHANCE)


def _is_contained(a: Floats, b: Floats) -> bool:
    """Whether nearly all trips of one release are in the other, beyond chance.

    Two trips of one release have a pair of tiles in common as often as trips of two independent
    releases. A trip of both has one more.
    """
    by_chance = math.sqrt(float(np.sum(a * (a - 1))) * float(np.sum(b * (b - 1))))
    shared = float(np.sum(a * b)) - by_chance
    deviation = math.sqrt(float(np.sum(a * b * (a + b))))
    return shared >= SHARED * min(a.sum(), b.sum()) and shared >= _DEVIATIONS * deviation


def _sample(
    codes: list[NDArray[Any]], ends: list[NDArray[Any]], trips: NDArray[np.int64], book: LedgerFile
) -> dict[str, list[int]]:
    distinct = [np.unique(own, return_inverse=True) for own in codes]
    hashes = [np.array(list(map(_hash, own.tolist())), dtype=np.uint64) for own, _ in distinct]
    size = len(distinct[1][0])
    origin, destination = (
        place[end].astype(np.int64) for (_, place), end in zip(distinct, ends, strict=True)
    )
    pair, place = np.unique(origin * size + destination, return_inverse=True)
    counts = np.bincount(place, weights=trips).astype(np.int64)
    pair, counts = pair[counts > 0], counts[counts > 0]
    levels = _levels(hashes[0][pair // size], hashes[1][pair % size])
    lowest = 0
    while np.count_nonzero(levels >= lowest) > MOST_PAIRS:
        lowest += 1
    found = {}
    for at in np.flatnonzero(levels >= lowest).tolist():
        tiles = (distinct[0][0][pair[at] // size], distinct[1][0][pair[at] % size])
        key = book.keyed_hash("pair", *map(str, tiles))[:24]
        found[key] = [int(levels[at]), int(counts[at])]
    return dict(sorted(found.items()))


def _hash(code: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(code).encode(), digest_size=8).digest(), "little")


def _levels(origin: Cells64, destination: Cells64) -> NDArray[np.int64]:
    """Returns the number of trailing zeros of a hash of each pair (the finalizer of SplitMix64)."""
    mixed = origin + destination * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    lowest_bit = mixed & (~mixed + np.uint64(1))
    level: NDArray[np.int64] = np.log2(
        np.maximum(lowest_bit, np.uint64(1)).astype(np.float64)
    ).astype(np.int64)
    return level


def _cell(code: str) -> int:
    """The number of an H3 cell, of which a tile may be a part; 0 for a tile that is none."""
    try:
        return int(code.partition(".")[0], 16)
    except ValueError:
        return 0


def _coarser(cells: Cells64, resolution: int) -> Cells64:
    coarser: Cells64 = np.where(cells > 0, parent_of(cells, resolution), cells)
    return coarser
