"""How well draws fit a law: chi-square tests that reject a right sampler once in ten thousand
million runs."""

from __future__ import annotations

import numpy as np
from scipy import stats

from reference.laplace import chance

#: How often a test of real noise may fail a right sampler: every run draws again, so seldom enough
#: for all of them together never to be seen.
FALSE_ALARM = 1e-10


def fit(values: np.ndarray, probability: dict[int, float]) -> float:
    """p-value of a chi-square test.

    What is outside the dictionary is one more class, rare classes are joined.
    """
    n = len(values)
    classes = [(int(np.sum(values == x)), n * p) for x, p in probability.items()]
    classes.append((n - sum(o for o, _ in classes), n * (1 - sum(probability.values()))))
    rare = [c for c in classes if c[1] < 10]
    classes = [c for c in classes if c[1] >= 10]
    if rare:
        together = sum(o for o, _ in rare), sum(e for _, e in rare)
        if together[1] < 10:
            # Too rare even together: one such draw would outweigh all else. It joins the rarest of
            # the others.
            rarest = min(classes, key=lambda c: c[1])
            classes.remove(rarest)
            together = together[0] + rarest[0], together[1] + rarest[1]
        classes.append(together)
    statistic = sum((o - e) ** 2 / e for o, e in classes if e > 0)
    assert len(classes) > 2
    return float(stats.chi2.sf(statistic, len(classes) - 1))


def laplace_law(scale: float) -> dict[int, float]:
    reach = int(scale * 12) + 4
    return {x: chance(x, scale) for x in range(-reach, reach + 1)}
