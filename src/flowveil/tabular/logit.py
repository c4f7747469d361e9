"""Logistic regression by iteratively reweighted least squares, with standard errors.

A few dozen dummy columns and some thousand rows: Newton's method on the distinct rows takes milliseconds. No
penalty, so that coefficients and their intervals mean what readers of such tables expect.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.tabular.records import Floats

#: Beyond this the logistic function is 0 or 1 in floating point; separated data would otherwise overflow.
_FARTHEST = 30.0


@dataclass(frozen=True, eq=False)
class Logit:
    """A fitted model.

    Attributes:
        coefficients: one for each column of the design; 0 for columns that are combinations of those before.
        errors: their standard errors; not a number for such columns.
        rank: number of independent columns.
        converged: False where the data are separated: an effect then grows without bound, and its error shows
            it.
    """

    coefficients: Floats
    errors: Floats
    rank: int
    converged: bool

    def probability(self, design: Floats) -> Floats:
        """Probability of a positive outcome for each row."""
        return _sigmoid(design @ self.coefficients)


def fit_logit(
    design: Floats,
    positive: Floats,
    negative: Floats,
    *,
    max_steps: int = 25,
    tolerance: float = 1e-8,
) -> Logit:
    """Maximum likelihood for counts of positive and negative outcomes.

    Args:
        design: one row for each distinct combination, the intercept's column included.
        positive: positive outcomes of each row.
        negative: negative outcomes of each row.
        max_steps: Newton steps at most (R's glm also allows 25).
        tolerance: relative change of the deviance at which to stop.
    """
    total = positive + negative
    used = total > 0
    free = independent_columns(design[used])
    x, y, n = design[used][:, free], positive[used], total[used]
    beta: Floats = np.zeros(x.shape[1])
    deviance, converged = np.inf, False
    factor = np.eye(x.shape[1])
    for _ in range(max_steps):
        score = x @ beta
        p = _sigmoid(score)
        weight = n * p * (1 - p)
        # By QR of the weighted rows, not by the normal equations: separated data make weights of 1e-13, and
        # squaring them would lose the very errors that show the separation.
        q, factor = np.linalg.qr(x * np.sqrt(weight)[:, None])
        working = np.sqrt(weight) * (score + (y - n * p) / weight)
        beta = np.asarray(np.linalg.solve(factor, q.T @ working), dtype=np.float64)
        now = _deviance(y, n, _sigmoid(x @ beta))
        converged = abs(deviance - now) <= tolerance * (abs(now) + 0.1)
        deviance = now
        if converged:
            break
    inverse = np.linalg.solve(factor, np.eye(len(factor)))
    coefficients, errors = np.zeros(design.shape[1]), np.full(design.shape[1], np.nan)
    coefficients[free] = beta
    errors[free] = np.sqrt(np.sum(inverse * inverse, axis=1))
    return Logit(coefficients, errors, len(beta), bool(converged))


def independent_columns(rows: Floats) -> NDArray[np.bool_]:
    """The columns that are not combinations of columns before them."""
    if len(rows) < rows.shape[1]:
        rows = np.vstack([rows, np.zeros((rows.shape[1] - len(rows), rows.shape[1]))])
    diagonal = np.abs(np.diag(np.linalg.qr(rows, mode="r")))
    return np.asarray(diagonal > 1e-9 * np.maximum(np.linalg.norm(rows, axis=0), 1e-300))


def _sigmoid(score: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(score, -_FARTHEST, _FARTHEST))), dtype=np.float64)


def _deviance(y: Floats, n: Floats, p: Floats) -> float:
    return float(-2 * np.sum(y * np.log(p) + (n - y) * np.log1p(-p)))
