"""Finds which points are in which boxes, for overlapping boxes.

Points are sorted along a space-filling curve into a tree of blocks with bounds. All boxes descend this tree together:
(box, block) pairs with disjoint bounds are dropped, the others are replaced by their parts. Work is proportional to the
pairs found and their surroundings; memory is bounded. Used by measures and verification, not by methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

#: Points in a block, and blocks in a block of blocks.
BLOCK = 16
#: Pairs in one batch.
PAIRS_AT_ONCE = 1 << 21


def pairs_inside(point: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> Iterator[tuple[Places, Places]]:
    """Yields all pairs of a point and a box that contains it, in batches.

    Args:
        point: one row per dimension and one column per point.
        low, high: bounds of the boxes in the same form; a box contains low <= point < high.

    Yields:
        Numbers of points and of the boxes that contain them; every pair once.
    """
    if point.shape[1] == 0 or low.shape[1] == 0:
        return
    order = np.argsort(_along_curve(point), kind="stable")
    # Bounds of the points (level 0) and of the blocks above them.
    bounds = [(point[:, order], point[:, order])]
    while bounds[-1][0].shape[1] > BLOCK:
        first = np.arange(0, bounds[-1][0].shape[1], BLOCK)
        least, most = bounds[-1]
        bounds.append((np.minimum.reduceat(least, first, axis=1), np.maximum.reduceat(most, first, axis=1)))
    n_top = bounds[-1][0].shape[1]
    box = np.repeat(np.arange(low.shape[1]), n_top)
    waiting = [(len(bounds) - 1, box, np.tile(np.arange(n_top), low.shape[1]))]
    while waiting:
        level, box, block = waiting.pop()
        if len(box) > PAIRS_AT_ONCE:
            half = len(box) // 2
            waiting += [(level, box[half:], block[half:]), (level, box[:half], block[:half])]
            continue
        meet = np.ones(len(box), dtype=np.bool_)
        for least, most, start, end in zip(*bounds[level], low, high, strict=True):
            meet &= (least.take(block) < end.take(box)) & (most.take(block) >= start.take(box))
        at = np.flatnonzero(meet)
        if len(at) == 0:
            continue
        if level == 0:
            yield order.take(block.take(at)), box.take(at)
            continue
        part = (block.take(at)[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
        owner = np.repeat(box.take(at), BLOCK)
        real = np.flatnonzero(part < bounds[level - 1][0].shape[1])
        waiting.append((level - 1, owner.take(real), part.take(real)))


def _along_curve(point: NDArray[Any]) -> NDArray[np.uint64]:
    """Returns the position of each point on a Z-order curve of its ranks."""
    dimensions, n = point.shape
    bits = min(64 // dimensions, 16)
    key = np.zeros(n, dtype=np.uint64)
    for d, axis in enumerate(point):
        ordered = np.sort(axis)
        # Equal values have equal ranks.
        rank = (np.searchsorted(ordered, axis) * ((1 << bits) - 1) // max(n, 1)).astype(np.uint64)
        for b in range(bits):
            key |= (rank >> np.uint64(b) & np.uint64(1)) << np.uint64(b * dimensions + d)
    return key
