"""Sums of weights and other amounts in integer millionths, which do not depend on the order of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import LARGEST_SUM, MILLION, ROUNDING_ALLOWED, SumColumn, to_fixed_point

#: A number that differs more from whole millionths has more than six decimals.
_ROUNDED = 1e-8


@dataclass(eq=False)
class FixedPointSum:
    """The total of a column in millionths, and the error of rounding.

    Attributes:
        column: the summed column.
        total: sum of the rounded numbers.
        off: sum of the rounding errors.
        rounded: whether a number has more than six decimals.
        vanishing: whether a number was rounded to 0.
    """

    column: SumColumn
    total: int = 0
    off: float = 0.0
    rounded: bool = False
    vanishing: bool = False

    def round_fixed_point(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns numbers as whole millionths, whose sums are the same in any order; records the error."""
        whole = to_fixed_point(values)
        # In float: exact up to the limit; beyond it an integer could wrap around.
        self.total += int(whole.sum(dtype=np.float64))
        off = np.abs(values - whole / MILLION)
        self.off += float(off.sum())
        self.rounded |= bool(np.any(off > _ROUNDED))
        self.vanishing |= bool(np.any((whole == 0) & (values > 0)))
        return whole

    def __add__(self, other: FixedPointSum) -> FixedPointSum:
        rounded, vanishing = self.rounded or other.rounded, self.vanishing or other.vanishing
        return FixedPointSum(self.column, self.total + other.total, self.off + other.off, rounded, vanishing)

    def problems(self) -> Iterator[str]:
        """Yields why the column cannot be summed in millionths."""
        one, many = self.column.one, self.column.many
        if self.vanishing or self.off * MILLION > ROUNDING_ALLOWED * self.total:
            yield f"{many} too fine to be counted in millionths; multiply them all by a common factor"
        if self.total > LARGEST_SUM * MILLION:
            yield (
                f"a total {one} above {LARGEST_SUM:,}, too large to be counted in millionths; divide all {many} by a "
                "common factor"
            )

    @property
    def note(self) -> str:
        """The note on rounded numbers."""
        many = self.column.many
        return (
            f"{many.capitalize()} have more than six decimals and are counted as the nearest millionths, so that sums "
            f"are exact in any order; to keep more of them, multiply all {many} by a common factor."
        )
