"""H3 cells as integers: validation, and the cell of a point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowveil.zoning.h3 import MAX_RESOLUTION, PENTAGON_BASE_CELLS, Cells64, resolution_of
from flowveil.zoning.points import index_points

__all__ = ["index_points", "is_cell"]

Mask = NDArray[np.bool_]

_N_BASE_CELLS = 122
_LOW_BITS = np.uint64(0o111111111111111)
#: For each resolution, the bits of the digits below it.
_UNUSED_DIGITS = np.array([(1 << 3 * (MAX_RESOLUTION - r)) - 1 for r in range(16)], dtype=np.uint64)
_ALL_DIGITS = np.uint64((1 << 45) - 1)


def is_cell(cells: Cells64) -> Mask:
    """Returns whether each number is a valid H3 cell; bit operations, equal to ``h3.is_valid_cell``.

    A cell has mode 1 and no reserved bits, a base cell below 122, digits 0 to 6 down to its resolution and 7 below.
    Below a pentagon, the first digit other than 0 must not be 1.
    """
    unused = _UNUSED_DIGITS[resolution_of(cells)]
    digits = cells & _ALL_DIGITS
    used = digits & ~unused
    sevens = used & (used >> np.uint64(1)) & (used >> np.uint64(2)) & _LOW_BITS
    base = ((cells >> np.uint64(45)) & np.uint64(0x7F)).astype(np.int64)
    mode_and_reserved = (cells >> np.uint64(56)).astype(np.int64)
    valid: Mask = (
        (mode_and_reserved == 0b00001000) & (base < _N_BASE_CELLS) & ((digits & unused) == unused) & (sevens == 0)
    )
    suspects = np.flatnonzero(valid & np.isin(base, PENTAGON_BASE_CELLS))
    if len(suspects):
        # The first digit other than 0 is 1 if the highest set bit is the lowest bit of that digit.
        _, exponent = np.frexp(used[suspects].astype(np.float64))
        valid[suspects[(exponent > 0) & ((exponent - 1) % 3 == 0)]] = False
    return valid
