"""Noisy counts of children made to fit their parents: whole numbers, none negative, which sum to the parent's.

Of all such numbers those are taken whose largest distance from the noisy counts is smallest, as InfTDA does
(Boninsegna and Silvestri 2025). That leaves a choice, and we make it so that the sum of squares is smallest as well:
one number t is taken off all children, and what falls below zero is zero. For real numbers this is the projection onto
the simplex, and it reaches the smallest largest distance:

- to bring the sum down to N, some child must lose at least the t with sum(max(0, y - t)) = N, for with less they keep
  more together; to bring it up, some child must gain as much; and a child at y < 0 must gain -y. The projection moves
  no child by more than the largest of these.

In whole numbers t is rounded up, and what is then missing to N is given one by one to the children that are above zero
at t - 1, the largest first and evenly among equals. The argument stays the same: with t - 1 taken off, or one less
added, the sum cannot be reached.

Everything here is a function of noisy numbers, and integers throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def fitted(noisy: Counts, family: Counts, total: Counts) -> Counts:
    """Fit noisy counts to the totals of their families.

    Args:
        noisy: the noisy counts.
        family: the family of each, ascending, without gaps.
        total: what each family must sum to; above 0.
    """
    order = np.lexsort((-noisy, family))
    y, f = noisy[order], family[order]
    start = np.searchsorted(f, np.arange(len(total)))
    place = np.arange(len(y)) - start[f]
    summed = np.cumsum(y)
    summed -= (summed[start] - y[start])[f]
    # With what is in excess spread over the largest so many, does the last of these stay above zero?
    above = y * (place + 1) > summed - total[f]
    n = np.add.reduceat(above.astype(np.int64), start)
    taken = -((total - summed[start + n - 1]) // n)
    out = np.maximum(0, y - taken[f])
    missing = total - np.add.reduceat(out, start)
    out += _one_more(y, f, start, missing)
    result = np.empty_like(out)
    result[order] = out
    return result


def _one_more(y: Counts, family: Counts, start: Counts, missing: Counts) -> Counts:
    """Who of a sorted family gets one more: the largest so many, evenly along those that equal the last of them."""
    place = np.arange(len(y)) - start[family]
    last = y[start + np.maximum(missing - 1, 0)][family]
    wanted = (missing > 0)[family]
    tied = wanted & (y == last)
    ahead = np.add.reduceat((wanted & (y > last)).astype(np.int64), start)
    n_tied = np.maximum(np.add.reduceat(tied.astype(np.int64), start), 1)
    left, among = (missing - ahead)[family], n_tied[family]
    turn = place - ahead[family]
    chosen = tied & ((turn + 1) * left // among > turn * left // among)
    more: Counts = (chosen | (wanted & (y > last))).astype(np.int64)
    return more
