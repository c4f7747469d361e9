"""Utility of a release: propensity scores, margins, and a classifier trained on it.

All measures compare an original with data that a reader of the release could have: synthetic records, or
records drawn from the published regions. They look at the original and are therefore for the data holder: no
ε covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import erfc, sqrt
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.tabular.mondrian import Anonymized
from flowveil.tabular.records import Attribute, Column, Floats, Ints, as_table, check_columns, encode

#: Half the width of a 95 % interval, in standard errors.
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Paired:
    """Two tables numbered alike.

    Attributes:
        columns: the variables, over the values of both tables; ``codes`` are those of the original.
        other: the codes of the other table, one array a variable.
    """

    columns: tuple[Column, ...]
    other: tuple[Ints, ...]


def pair_tables(
    original: Any,
    synthetic: Any,
    *,
    variables: Sequence[str],
    numeric: Sequence[str] = (),
    orders: Mapping[str, tuple[str, ...]] | None = None,
) -> Paired:
    """Number the values of two tables alike.

    Args:
        original: the original table.
        synthetic: the other one.
        variables: the columns to compare.
        numeric: those of them that are quantities; the others are categories, whatever their type.
        orders: declared categories of columns; by default those that occur in either table.
    """
    first, second = as_table(original), as_table(synthetic)
    check_columns(first, variables, "original")
    check_columns(second, variables, "synthetic")
    columns, other = [], []
    for name in variables:
        a, b = first.column(name), second.column(name)
        if a.type != b.type:
            a, b = a.cast(pa.string()), b.cast(pa.string())
        both = pa.table({name: pa.chunked_array([*a.chunks, *b.chunks], a.type)})
        kind = "numeric" if name in numeric else "ordered"
        column = encode(both, Attribute(name, kind, order=(orders or {}).get(name)))
        n = len(a)
        columns.append(Column(name, column.kind, column.codes[:n], column.labels, column.missing, column.position))
        other.append(column.codes[n:])
    return Paired(tuple(columns), tuple(other))


def pair_release(release: Anonymized, table: Any, *, seed: int = 0) -> Paired:
    """A k-anonymous release as records: each quasi-identifier drawn evenly from its published region.

    Args:
        release: the release.
        table: the original table, for the sensitive columns, which are published unchanged.
        seed: of the drawing.
    """
    generator = np.random.default_rng(seed)
    columns = [region.column for region in release.regions]
    other = [region.draw(release.class_of_record, generator) for region in release.regions]
    for name in release.sensitive:
        column = encode(as_table(table), Attribute(name))
        columns.append(column)
        other.append(column.codes)
    return Paired(tuple(columns), tuple(other))


def _cell_counts(pair: Paired, chosen: Sequence[int]) -> tuple[Ints, Ints]:
    """Records of each table in the cells that any of them has."""
    n = len(pair.columns[0].codes)
    key = np.zeros(n + len(pair.other[0]), dtype=np.int64)
    for i in chosen:
        value = np.concatenate((pair.columns[i].codes, pair.other[i]))
        # Renumbered after each variable: the product of many domains would overflow.
        key = _renumbered(key * pair.columns[i].n_values + value)
    cells = int(key.max()) + 1
    return np.bincount(key[:n], minlength=cells), np.bincount(key[n:], minlength=cells)


def _renumbered(key: Ints) -> Ints:
    ordered = np.sort(key)
    distinct = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]
    return np.searchsorted(distinct, key).astype(np.int64)


# ---- propensity --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Propensity:
    """How easily synthetic records are recognised among original ones.

    Attributes:
        pmse: mean squared difference between the propensity score and the share of synthetic records; 0 if
            they cannot be distinguished.
        standardized: pmse over what a correct model would give by chance; about 1 if the synthesis is right.
        degrees: free parameters of the propensity model, the intercept aside.
    """

    pmse: float
    standardized: float
    degrees: int


def _propensity(squared: float, degrees: int, n_original: int, n_synthetic: int) -> Propensity:
    total = n_original + n_synthetic
    share = n_synthetic / total
    expected = degrees * (1 - share) ** 2 * share / total
    pmse = squared / total
    return Propensity(pmse, pmse / expected if degrees else 0.0, degrees)


def propensity_by_table(pair: Paired, chosen: Sequence[int] | None = None) -> Propensity:
    """PMSE with the saturated model: the score of a record is the synthetic share of its cell.

    Args:
        pair: the two tables.
        chosen: positions of the variables that make a cell; all by default.
    """
    chosen = range(len(pair.columns)) if chosen is None else chosen
    y, s = _cell_counts(pair, list(chosen))
    share = s.sum() / (y.sum() + s.sum())
    squared = float(np.sum((y + s) * (s / (y + s) - share) ** 2))
    return _propensity(squared, len(y) - 1, int(y.sum()), int(s.sum()))


def propensity_by_pairs(pair: Paired) -> float:
    """Mean standardised pMSE over all two-way tables (one-way for a single variable)."""
    size = min(2, len(pair.columns))
    return float(
        np.mean(
            [propensity_by_table(pair, chosen).standardized for chosen in combinations(range(len(pair.columns)), size)]
        )
    )


# ---- margins -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarginDistance:
    """Total variation distance (0 to 1) between the two tables' margins of one size: mean and largest."""

    ways: int
    mean: float
    largest: float


def margin_distance(pair: Paired, *, ways: int) -> MarginDistance:
    """Compare all margins of ``ways`` variables."""
    if not 1 <= ways <= len(pair.columns):
        raise ParameterError(f"Margins of {ways} variables cannot be compared; allowed are 1 to {len(pair.columns)}.")
    distances = []
    for chosen in combinations(range(len(pair.columns)), ways):
        y, s = _cell_counts(pair, chosen)
        distances.append(float(np.abs(y / y.sum() - s / s.sum()).sum() / 2))
    return MarginDistance(ways, float(np.mean(distances)), max(distances))


# ---- classifier --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Design:
    """Design matrix of a linear model: dummies against the first category, numbers standardised.

    A published region enters as the mean of what it covers, so one model speaks of original categories
    whatever it was trained on, and its coefficients stand side by side with the original's.
    """

    columns: tuple[Column, ...]
    terms: tuple[str, ...]

    @classmethod
    def from_columns(cls, columns: Sequence[Column]) -> Design:
        """Return the design of these columns."""
        terms = ["(intercept)"]
        for column in columns:
            terms += [column.name] if column.kind == "numeric" else [f"{column.name}={v}" for v in column.labels[1:]]
            if column.kind == "numeric" and column.missing >= 0:
                terms.append(f"{column.name}={column.labels[column.missing]}")
        return cls(tuple(columns), tuple(terms))

    def rows_of_codes(self, codes: Sequence[Ints]) -> Floats:
        """Return one row for each record."""
        return np.hstack(
            [np.ones((len(codes[0]), 1))] + [_values(c)[k] for c, k in zip(self.columns, codes, strict=True)]
        )

    def rows_of_release(self, release: Anonymized) -> Floats:
        """Return one row for each record of a k-anonymous release, in the order of the original."""
        parts = [
            (region.shares() @ _values(column, of=region.column))[release.class_of_record]
            for region, column in zip(release.regions, self.columns, strict=True)
        ]
        return np.hstack([np.ones((len(release.class_of_record), 1)), *parts])


def _values(column: Column, *, of: Column | None = None) -> Floats:
    """Contribution of each code to a row of the design; optionally of the codes of another form of the column."""
    codes = column if of is None else of
    if column.kind != "numeric":
        dummies = np.eye(column.n_values)[:, 1:]
        return dummies if of is None else dummies[[column.labels.index(label) for label in of.labels]]
    assert column.position is not None
    assert codes.position is not None
    known = np.arange(column.n_values) != column.missing
    mean, spread = float(column.position[known].mean()), float(column.position[known].std())
    missing = np.arange(codes.n_values) == codes.missing
    scaled = np.where(missing, 0.0, (codes.position - mean) / (spread or 1.0))
    return np.column_stack([scaled, missing]).astype(np.float64)[:, : 1 + (column.missing >= 0)]


def _grouped(rows: Floats, outcome: Floats) -> tuple[Floats, Floats, Floats, Ints]:
    """Distinct rows, their positive and negative outcomes, and the row of each record."""
    distinct, row = np.unique(rows, axis=0, return_inverse=True)
    row = row.reshape(-1).astype(np.int64)
    positive = np.bincount(row, weights=outcome, minlength=len(distinct))
    negative = np.bincount(row, weights=1.0 - outcome, minlength=len(distinct))
    return distinct, np.asarray(positive, np.float64), np.asarray(negative, np.float64), row


@dataclass(frozen=True)
class Prediction:
    """How a classifier trained on a release does on original records it has not seen.

    Attributes:
        sensitivity: share of positive records found.
        specificity: share of negative records found.
        balanced_accuracy: mean of the two.
    """

    sensitivity: float
    specificity: float
    balanced_accuracy: float


@dataclass(frozen=True)
class Effect:
    """One coefficient; all None where the records do not determine it (a category without records).

    Attributes:
        term: what it is the effect of.
        estimate: on the logarithm of the odds.
        error: its standard error.
        z, p: estimate over error, and the two-sided probability of one as large if there were no effect (Wald's test).
        low, high: its 95 % interval.
    """

    term: str
    estimate: float | None = None
    error: float | None = None
    z: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None


def outcome_of(table: Any, name: str, positive: str | None = None) -> tuple[Floats, str]:
    """A column with two values as 0 and 1, and the value that is 1 (by default the first)."""
    column = encode(as_table(table), Attribute(name, "unordered"))
    if positive is None and column.n_values == 2:
        positive = column.labels[0]
    if positive is None:
        raise ParameterError(
            f"Column '{name}' has {column.n_values} values; a classifier needs two. Hint: name the positive one."
        )
    if positive not in column.labels:
        raise DataError(f"The positive value named for column '{name}' does not occur in it.")
    return (column.codes == column.labels.index(positive)).astype(np.float64), positive


def cross_validate(
    test_rows: Floats,
    test_outcome: Floats,
    train_rows: Floats,
    train_outcome: Floats,
    *,
    linked: bool,
    folds: int = 10,
    seed: int = 0,
) -> Prediction:
    """Train on all folds but one of a release, test on that fold of the original; over all folds.

    Args:
        test_rows: the original, as rows of a design.
        test_outcome: its outcomes.
        train_rows: what the classifier learns from.
        train_outcome: its outcomes.
        linked: whether the two tables hold the same people in the same order, so that the people tested on
            must be excluded from the training. Synthetic records belong to no person: another tenth of them is
            excluded each time.
        folds: how many.
        seed: of the assignment to folds.
    """
    generator = np.random.default_rng(seed)
    test_fold = generator.permutation(np.arange(len(test_rows)) % folds)
    train_fold = test_fold if linked else generator.permutation(np.arange(len(train_rows)) % folds)
    predicted = np.zeros(len(test_rows), dtype=np.bool_)
    for fold in range(folds):
        kept = train_fold != fold
        model = _fitted(train_rows[kept], train_outcome[kept])
        here = test_fold == fold
        predicted[here] = model.probability(test_rows[here]) > 0.5
    is_positive = test_outcome == 1
    sensitivity = float(predicted[is_positive].mean()) if is_positive.any() else float("nan")
    specificity = float((~predicted[~is_positive]).mean()) if (~is_positive).any() else float("nan")
    return Prediction(sensitivity, specificity, (sensitivity + specificity) / 2)


def _fitted(rows: Floats, outcome: Floats) -> Logit:
    x, positive, negative, _ = _grouped(rows, outcome)
    return fit_logit(x, positive, negative)


def effects(design: Design, rows: Floats, outcome: Floats) -> tuple[Effect, ...]:
    """Coefficients of the model on all rows, with standard errors, Wald's tests and 95 % intervals."""
    model = _fitted(rows, outcome)
    found = []
    for term, b, error in zip(design.terms, model.coefficients, model.errors, strict=True):
        if np.isnan(error):
            found.append(Effect(term))
        else:
            estimate, half = float(b), float(_NORMAL_95 * error)
            z = estimate / float(error)
            found.append(
                Effect(term, estimate, float(error), z, erfc(abs(z) / sqrt(2)), estimate - half, estimate + half)
            )
    return tuple(found)


# ---- logistic regression: iteratively reweighted least squares, without penalty -------------------------------

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
    """Returns which columns are linearly independent of the columns before them."""
    if len(rows) < rows.shape[1]:
        rows = np.vstack([rows, np.zeros((rows.shape[1] - len(rows), rows.shape[1]))])
    diagonal = np.abs(np.diag(np.linalg.qr(rows, mode="r")))
    return np.asarray(diagonal > 1e-9 * np.maximum(np.linalg.norm(rows, axis=0), 1e-300))


def _sigmoid(score: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(score, -_FARTHEST, _FARTHEST))), dtype=np.float64)


def _deviance(y: Floats, n: Floats, p: Floats) -> float:
    return float(-2 * np.sum(y * np.log(p) + (n - y) * np.log1p(-p)))
