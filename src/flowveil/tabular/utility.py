"""Utility of a release: propensity scores, margins, replicated uniques, a classifier, and checks of
its assumptions.

All measures compare an original with data that a reader of the release could have: synthetic
records, or records drawn from the published regions. They look at the original and are therefore
for the data holder: no ε covers them.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from flowveil.tabular.mondrian import Anonymized
from flowveil.tabular.records import Attribute, Column, as_table, check_columns, encode
from flowveil.tabular.risk import number_rows

#: Folds of a cross-validation, and the seed of their assignment.
FOLDS, _SEED = 10, 0
#: Tables drawn for Fisher's test if a table is larger than two by two; p then has an error of half
#: a per cent.
DRAWS = 9_999


@dataclass(frozen=True, eq=False)
class Paired:
    """Two tables numbered alike: the variables with the codes of the original, and the codes of the
    other table.
    """

    columns: tuple[Column, ...]
    other: tuple[Numbers, ...]


def pair_tables(original: Any, synthetic: Any, *, variables: Sequence[str | Attribute]) -> Paired:
    """Number the values of these variables of two tables alike.

    Plain names are categories, whatever their type.
    """
    attributes = [a if isinstance(a, Attribute) else Attribute(a, "ordered") for a in variables]
    first, second = as_table(original), as_table(synthetic)
    check_columns(first, [attribute.name for attribute in attributes], "original")
    check_columns(second, [attribute.name for attribute in attributes], "synthetic")
    columns, other = [], []
    for attribute in attributes:
        a, b = first.column(attribute.name), second.column(attribute.name)
        if a.type != b.type:
            a, b = a.cast(pa.string()), b.cast(pa.string())
        column = encode(
            pa.table({attribute.name: pa.chunked_array([*a.chunks, *b.chunks], a.type)}), attribute
        )
        columns.append(replace(column, codes=column.codes[: len(a)]))
        other.append(column.codes[len(a) :])
    return Paired(tuple(columns), tuple(other))


def pair_release(release: Anonymized, table: Any, *, seed: int = 0) -> Paired:
    """A release as records: quasi-identifiers drawn evenly from their regions, sensitive columns
    from the original.
    """
    generator = np.random.default_rng(seed)
    columns = [region.column for region in release.regions]
    other = [region.draw(release.class_of_record, generator) for region in release.regions]
    for name in release.sensitive:
        columns.append(encode(as_table(table), Attribute(name)))
        other.append(columns[-1].codes)
    return Paired(tuple(columns), tuple(other))


def _cell_counts(pair: Paired, chosen: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Records of each table in the cells that any of them has."""
    n = len(pair.columns[0].codes)
    cell = number_rows([np.concatenate((pair.columns[i].codes, pair.other[i])) for i in chosen])
    cells = int(cell.max()) + 1
    return np.bincount(cell[:n], minlength=cells), np.bincount(cell[n:], minlength=cells)


def replicated_uniques(pair: Paired) -> dict[str, float]:
    """Count the combinations of all variables that are unique in both tables.

    Returns ``n_records`` of the original, the cells of the full cross-tabulation (``n_cells``), and
    in per cent ``empty_cells`` (the thesis's p0), ``unique`` records of the original (p1),
    replicated uniques of its records (``ru``) and of its unique records (``ru_of_unique``).
    """
    first, second = _cell_counts(pair, range(len(pair.columns)))
    n, alone, both = (
        int(first.sum()),
        int(np.sum(first == 1)),
        int(np.sum((first == 1) & (second == 1))),
    )
    cells = prod(len(np.unique_values(column.codes)) for column in pair.columns)
    return {
        "n_records": n,
        "n_cells": cells,
        "empty_cells": 100 * (1 - int(np.sum(first > 0)) / cells),
        "unique": 100 * alone / n,
        "ru": 100 * both / n,
        "ru_of_unique": 100 * both / alone if alone else 0.0,
    }


def propensity(pair: Paired, chosen: Sequence[int]) -> tuple[float, float]:
    """PMSE with the saturated model of some variables, and its standardised form.

    PMSE is the mean squared difference between the synthetic share of a record's cell and that of
    all records. It is standardised by what a correct model would give by chance, so it is about 1
    if the synthesis is right.
    """
    y, s = _cell_counts(pair, chosen)
    total = int(y.sum() + s.sum())
    share = s.sum() / total
    pmse = float(np.sum((y + s) * (s / (y + s) - share) ** 2)) / total
    expected = (len(y) - 1) * (1 - share) ** 2 * share / total
    return pmse, float(pmse / expected) if len(y) > 1 else 0.0


def propensity_by_pairs(pair: Paired) -> float:
    """Mean standardised pMSE over all two-way tables (one-way for a single variable)."""
    tables = combinations(range(len(pair.columns)), min(2, len(pair.columns)))
    return float(np.mean([propensity(pair, chosen)[1] for chosen in tables]))


def margin_distance(pair: Paired, *, ways: int) -> float:
    """Mean total variation distance (0 to 1) between the two tables' margins of ``ways``
    variables.
    """
    if not 1 <= ways <= len(pair.columns):
        raise ParameterError(
            f"Margins of {ways} variables cannot be compared; allowed are 1 to {len(pair.columns)}."
        )
    counts = [_cell_counts(pair, chosen) for chosen in combinations(range(len(pair.columns)), ways)]
    return float(np.mean([np.abs(y / y.sum() - s / s.sum()).sum() / 2 for y, s in counts]))


@dataclass(frozen=True, eq=False)
class Trained:
    """What a linear model was trained on: a row of the design for each record, and outcomes of 0 or
    1.

    The design has the intercept, dummies against the first category, and numbers standardised. A
    published region enters as the mean of what it covers, so coefficients can be compared with the
    original's.
    """

    columns: Sequence[Column]
    rows: Floats
    outcome: Floats

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of all columns, the intercept first."""
        terms = ["(intercept)"]
        for column in self.columns:
            first = 1
            if column.kind == "numeric":
                terms.append(column.name)
                first = column.missing if column.missing >= 0 else column.n_values
            terms += [f"{column.name}={label}" for label in column.labels[first:]]
        return tuple(terms)


def rows_of_codes(columns: Sequence[Column], codes: Sequence[Numbers]) -> Floats:
    """Return one row of the design for each record."""
    parts = [_values(column, column)[of] for column, of in zip(columns, codes, strict=True)]
    return np.hstack([np.ones((len(codes[0]), 1)), *parts])


def rows_of_release(columns: Sequence[Column], release: Anonymized) -> Floats:
    """Return one row of the design for each record of a k-anonymous release, in the order of the
    original.
    """
    parts = [
        (region.shares() @ _values(column, region.column))[release.class_of_record]
        for region, column in zip(release.regions, columns, strict=True)
    ]
    return np.hstack([np.ones((len(release.class_of_record), 1)), *parts])


def _values(column: Column, coded: Column) -> Floats:
    """Contribution of each code to a row of the design.

    The codes may be those of another form of the column.
    """
    if column.kind != "numeric":
        return np.eye(column.n_values)[:, 1:][
            [column.labels.index(label) for label in coded.labels]
        ]
    assert column.position is not None
    assert coded.position is not None
    known = np.arange(column.n_values) != column.missing
    mean, spread = float(column.position[known].mean()), float(column.position[known].std())
    missing = np.arange(coded.n_values) == coded.missing
    scaled = np.where(missing, 0.0, (coded.position - mean) / (spread or 1.0))
    return np.column_stack([scaled, missing]).astype(np.float64)[:, : 1 + (column.missing >= 0)]


def outcome_of(table: Any, name: str, positive: str | None = None) -> tuple[Floats, str]:
    """A column with two values as 0 and 1, and the value that is 1 (by default the first)."""
    column = encode(as_table(table), Attribute(name, "unordered"))
    if positive is None and column.n_values == 2:
        positive = column.labels[0]
    if positive is None:
        raise ParameterError(
            f"Column '{name}' has {column.n_values} values; a classifier needs two. Hint: name the"
            " positive one (--set positive=VALUE)."
        )
    if positive not in column.labels:
        raise DataError(f"The positive value named for column '{name}' does not occur in it.")
    return (column.codes == column.labels.index(positive)).astype(np.float64), positive


def library(name: str) -> Any:
    """Import a library of the extra; MissingExtraError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"The comparison needs {name.partition('.')[0]}, which is not installed. "
            "Hint: pip install 'flowveil[tabular]'."
        ) from None


def fit_logit(rows: Floats, outcome: Floats) -> tuple[Any, NDArray[np.bool_]]:
    """Logistic regression by statsmodels on the columns that are not combinations of those before.

    Which these are.

    Fitted on distinct rows with their numbers of positive and negative outcomes, which are few
    where all variables are categories.
    """
    model = library("statsmodels.api")
    distinct, row = np.unique(rows, axis=0, return_inverse=True)
    counts = [
        np.bincount(row.reshape(-1), weights=one, minlength=len(distinct))
        for one in (outcome, 1 - outcome)
    ]
    filled = np.vstack([distinct, np.zeros((max(rows.shape[1] - len(distinct), 0), rows.shape[1]))])
    diagonal = np.abs(np.diag(np.linalg.qr(filled, mode="r")))
    free = np.asarray(diagonal > 1e-9 * np.maximum(np.linalg.norm(filled, axis=0), 1e-300))
    with warnings.catch_warnings():
        # Separated data are no error: their coefficients grow, and their errors show it.
        warnings.simplefilter("ignore")
        return (
            model.GLM(
                np.column_stack(counts), distinct[:, free], family=model.families.Binomial()
            ).fit(),
            free,
        )


def cross_validate(
    test_rows: Floats,
    test_outcome: Floats,
    train_rows: Floats,
    train_outcome: Floats,
    *,
    linked: bool,
) -> dict[str, float]:
    """Train on all folds but one of a release, test on that fold of the original; over all folds.

    Tables that are ``linked`` hold the same people in the same order, so the people tested on are
    excluded from the training. Synthetic records belong to no person: another tenth of them is
    excluded each time. Returns the shares of positive (sensitivity) and negative (specificity)
    records found, and their mean.
    """
    generator = np.random.default_rng(_SEED)
    test_fold = generator.permutation(np.arange(len(test_rows)) % FOLDS)
    train_fold = test_fold if linked else generator.permutation(np.arange(len(train_rows)) % FOLDS)
    predicted = np.zeros(len(test_rows), dtype=np.bool_)
    for fold in range(FOLDS):
        kept, here = train_fold != fold, test_fold == fold
        model, free = fit_logit(train_rows[kept], train_outcome[kept])
        # A positive score is a probability above a half.
        predicted[here] = test_rows[here][:, free] @ model.params > 0
    is_positive = test_outcome == 1
    sensitivity = float(predicted[is_positive].mean()) if is_positive.any() else float("nan")
    specificity = float((~predicted[~is_positive]).mean()) if (~is_positive).any() else float("nan")
    balanced = (sensitivity + specificity) / 2
    return {"sensitivity": sensitivity, "specificity": specificity, "balanced_accuracy": balanced}


def effects(trained: Trained) -> list[dict[str, Any]]:
    """Coefficients on log odds: estimate, standard error, Wald's z and p, 95 % interval.

    None if undetermined.
    """
    model, free = fit_logit(trained.rows, trained.outcome)
    found = np.full((len(free), 6), np.nan)
    found[free] = np.column_stack(
        [model.params, model.bse, model.tvalues, model.pvalues, model.conf_int()]
    )
    names = ("estimate", "error", "z", "p", "low", "high")
    return [
        {
            "term": term,
            **{name: None if np.isnan(v) else float(v) for name, v in zip(names, row, strict=True)},
        }
        for term, row in zip(trained.terms, found, strict=True)
    ]


def diagnose(
    table: Any, variables: Sequence[str], models: Mapping[str, Trained]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Floats]]:
    """Check what logistic regression assumes, as the medical thesis does.

    One of the models is called ``original``.

    Returns the rows of ``associations`` of the variables of a table (Tables 25, 26), ``inflation``
    of each model (27, 33, 34) and ``influence``; and Cook's distance and leverage of the original's
    records (Figures 5, 6).
    """
    original, model = models["original"], library("statsmodels.api")
    free = fit_logit(original.rows, original.outcome)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.GLM(
            original.outcome, original.rows[:, free], family=model.families.Binomial()
        ).fit()
        found = fitted.get_influence(observed=False)
        by_record = {"cooks_distance": found.cooks_distance[0], "leverage": found.hat_matrix_diag}
    n, p = original.rows.shape
    limits = {
        "cooks_distance": 4 / max(n - (p - 1) - 2, 1),
        "leverage": 2 * float(np.mean(by_record["leverage"])),
    }
    columns = [encode(table, Attribute(name, "unordered")) for name in variables]
    tables = {
        "associations": [_association(a, b) for a, b in combinations(columns, 2)],
        "inflation": [
            row for name, trained in models.items() for row in inflation_factors(name, trained)
        ],
        "influence": [
            {
                "measure": name,
                "threshold": limits[name],
                "above": int(np.sum(values > limits[name])),
            }
            | {"largest": float(values.max())}
            for name, values in by_record.items()
        ],
    }
    return tables, by_record


def _association(a: Column, b: Column) -> dict[str, Any]:
    """Fisher's exact test and Cramér's V of two variables."""
    stats = library("scipy.stats")
    counts = stats.contingency.crosstab(a.codes, b.codes).count
    row: dict[str, Any] = {"variable_1": a.name, "variable_2": b.name}
    if min(counts.shape) < 2:
        return row | {"fisher_p": None, "fisher": None, "cramers_v": None}
    small = counts.shape == (2, 2)
    drawn = (
        None
        if small
        else stats.MonteCarloMethod(n_resamples=DRAWS, rng=np.random.default_rng(_SEED))
    )
    return row | {
        "fisher_p": float(stats.fisher_exact(counts, method=drawn).pvalue),
        "fisher": "exact" if small else f"{DRAWS} tables drawn",
        "cramers_v": float(stats.contingency.association(counts, method="cramer")),
    }


def inflation_factors(name: str, model: Trained) -> list[dict[str, Any]]:
    """Generalised variance inflation factor of each variable of a model (Fox and Monette 1992.

    R's package car).

    det(R_own) det(R_others) / det(R), R the correlations of the coefficients without the intercept.
    It is the usual factor for a variable with one coefficient.
    """
    fitted, free = fit_logit(model.rows, model.outcome)
    covariance = np.asarray(fitted.cov_params())[1:, 1:]
    scale = np.sqrt(np.diag(covariance))
    n_terms = [_values(column, column).shape[1] for column in model.columns]
    owner, rows = np.repeat(np.arange(len(n_terms)), n_terms)[free[1:]], []
    for i, column in enumerate(model.columns):
        own = owner == i
        if own.any():
            parts = [np.ix_(part, part) for part in (own, ~own, own | ~own)]
            one, others, whole = (
                np.linalg.slogdet((covariance / np.outer(scale, scale))[part])[1] for part in parts
            )
            gvif, df = float(np.exp(one + others - whole)), int(own.sum())
            row = {"trained_on": name, "variable": column.name, "gvif": gvif, "df": df}
            rows.append(row | {"gvif_scaled": float(gvif ** (1 / (2 * df)))})
    return rows
