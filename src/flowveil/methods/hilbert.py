"""The Hilbert curve in any number of dimensions: maps points to keys such that near points have near keys.

Skilling's transposition (Programming the Hilbert curve, 2004), vectorised: from the highest bit on, each dimension is
reflected or exchanged with the first, and the Gray code of the result is interleaved across the dimensions. Consecutive
points on the curve differ by one step in one dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

#: Bits of a key.
KEY_BITS = 64


def hilbert_keys(point: NDArray[np.integer[Any]], *, shift: NDArray[np.float64] | None = None) -> Keys:
    """Returns the position of each point on the curve.

    Args:
        point: integers, one row per dimension and one column per point. If the range needs more bits than a key has,
            neighbouring numbers share a key.
        shift: distance of the start of the curve below the lowest point in each dimension, as a share of the longest
            range; 0 by default.
    """
    dimensions, n = point.shape
    if n == 0:
        return np.zeros(0, dtype=np.uint64)
    shifted = point.astype(np.int64) - point.min(axis=1, keepdims=True)
    if shift is not None:
        shifted += np.floor(shift * (int(shifted.max()) + 1)).astype(np.int64)[:, None]
    needed = max(1, int(shifted.max()).bit_length())
    bits = min(needed, KEY_BITS // dimensions)
    axes = list((shifted >> (needed - bits)).astype(np.uint32))
    for bit in range(bits - 1, 0, -1):
        _turn(axes, np.uint32((1 << bit) - 1), bit)
    for axis, before in zip(axes[1:], axes, strict=False):
        axis ^= before
    flip = np.zeros(n, dtype=np.uint32)
    for bit in range(bits - 1, 0, -1):
        flip ^= (axes[-1] >> np.uint32(bit) & np.uint32(1)) * np.uint32((1 << bit) - 1)
    for axis in axes:
        axis ^= flip
    return _interleaved(axes, bits)


def _turn(axes: list[NDArray[np.uint32]], low: np.uint32, bit: int) -> None:
    """Undoes one rotation of the curve: reflects the first dimension if the bit is set, else exchanges with it."""
    first = axes[0]
    for axis in axes:
        is_set = (axis >> np.uint32(bit) & np.uint32(1)).astype(np.bool_)
        exchange = np.where(is_set, np.uint32(0), (first ^ axis) & low)
        first ^= np.where(is_set, low, exchange)
        if axis is not first:
            axis ^= exchange


def _interleaved(axes: list[NDArray[np.uint32]], bits: int) -> Keys:
    """Returns the interleaved bits of all dimensions, from the highest."""
    key = np.zeros(len(axes[0]), dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            key <<= np.uint64(1)
            key |= (axis >> np.uint32(bit) & np.uint32(1)).astype(np.uint64)
    return key
