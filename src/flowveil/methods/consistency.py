"""Corrects noisy counts of children to non-negative integers that sum to the count of their parent.

The correction minimises the largest distance from the noisy counts, as InfTDA does (Boninsegna and Silvestri 2025), and
among those solutions the sum of squares: it subtracts one number t from all children and clips at zero. For real
numbers this is the projection onto the simplex. It reaches the smallest largest distance:

- To lower the sum to N, some child must lose at least the t with sum(max(0, y - t)) = N. To raise it, some child must
  gain as much. A child at y < 0 must gain -y. The projection moves no child by more than the largest of these.

For integers, t is rounded up. The remainder is added one by one to children above zero at t - 1, the largest first and
evenly among equals. The same argument holds: with t - 1 the sum cannot be reached.

All inputs are noisy numbers; all arithmetic is in integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def fit_to_totals(noisy: Counts, family: Counts, total: Counts) -> Counts:
    """Corrects noisy counts to the totals of their families.

    Args:
        noisy: the noisy counts.
        family: the family of each, ascending, without gaps.
        total: required sum of each family; above 0.
    """
    order = np.lexsort((-noisy, family))
    y, f = noisy[order], family[order]
    start = np.searchsorted(f, np.arange(len(total)))
    place = np.arange(len(y)) - start[f]
    summed = np.cumsum(y)
    summed -= (summed[start] - y[start])[f]
    # If the excess is spread over the largest n children, does the n-th stay above zero?
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
    """Returns which children of a sorted family get one more: the largest, evenly spread among equals."""
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
