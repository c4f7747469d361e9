"""A certified lower bound on ε from frequencies of events on neighbouring inputs (Clopper and
Pearson's intervals).

A mechanism with (ε, δ) satisfies P(E | x) <= exp(ε) P(E | y) + δ for every event E and neighbouring
inputs x and y. With probability 1 - `FALSE_ALARM`, the bound is not above the ε of the mechanism: a
right one fails a test less than once in 10^10 runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy import stats

from reference.goodness import FALSE_ALARM


def certified_epsilon(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], delta: float = 0.0
) -> tuple[float, str]:
    """Returns the largest bound over all events and both directions, and the event that gives it.

    Args:
        one, other: for each event, in which independent runs it occurred, on either input.
        delta: δ of the mechanism.
    """
    level = FALSE_ALARM / (4 * len(one))
    best = (0.0, "none")
    for name in one:
        for x, y in ((one[name], other[name]), (other[name], one[name])):
            a, b, n = int(x.sum()), int(y.sum()), len(x)
            least = stats.beta.ppf(level, a, n - a + 1) if a else 0.0
            most = stats.beta.isf(level, b + 1, n - b) if b < n else 1.0
            if least > delta:
                best = max(best, (math.log((least - delta) / most), name))
    return best
