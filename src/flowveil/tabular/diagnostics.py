"""Checks of what logistic regression assumes: are predictors associated, do single records decide.

Those of the medical thesis: Fisher's exact test and Cramér's V of every pair of variables (its Tables 25 and 26), the
generalised variance inflation factor of each model (Tables 27, 33 and 34), Cook's distance and leverage of the records
(Figures 5 and 6). scipy and statsmodels compute them where they have them; the generalised factor follows from the
covariance of statsmodels' fit. Everything is counted from the original records: internal.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.errors import MissingExtraError
from flowveil.tabular.records import Attribute, Column, Floats, encode
from flowveil.tabular.utility import Design, independent_columns

#: Tables drawn for Fisher's test where a table is larger than two by two; its p then has an error of half a per cent.
DRAWS = 9_999
_SEED = 0


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """The checks, as tables.

    Attributes:
        associations: of each pair of variables: p of Fisher's exact test, how it was found, and Cramér's V.
        inflation: of each model and variable: GVIF, its degrees of freedom, and GVIF^(1/(2 df)).
        influence: of Cook's distance and leverage: threshold, how many records are above it, the largest value.
        cooks_distance, leverage: of each record of the original, in its order.
    """

    associations: pa.Table
    inflation: pa.Table
    influence: pa.Table
    cooks_distance: Floats
    leverage: Floats

    def tables(self) -> dict[str, pa.Table]:
        """The tables by name."""
        return {name: getattr(self, name) for name in ("associations", "inflation", "influence")}

    @property
    def thresholds(self) -> dict[str, float]:
        """Above which a record is called influential, by the name of the measure."""
        return {row["measure"]: row["threshold"] for row in self.influence.to_pylist()}


@dataclass(frozen=True, eq=False)
class Trained:
    """What a model was trained on.

    Attributes:
        design: its columns.
        rows: one row a record, the intercept first.
        outcome: 0 or 1.
    """

    design: Design
    rows: Floats
    outcome: Floats


def diagnose(table: Any, variables: Sequence[str], models: Mapping[str, Trained]) -> Diagnostics:
    """Check the assumptions of models; the records are those of the model ``original``.

    Args:
        table: the original records, numbers in bins.
        variables: the predictors, and what is predicted.
        models: what each was trained on, by name.

    Raises:
        MissingExtraError: scipy or statsmodels is not installed.
    """
    _libraries()
    cooks, leverage = _influence(models["original"])
    n, p = models["original"].rows.shape
    limits = {"cooks_distance": 4 / max(n - (p - 1) - 2, 1), "leverage": 2 * float(np.mean(leverage))}
    influence = []
    for name, of in (("cooks_distance", cooks), ("leverage", leverage)):
        above = int(np.sum(of > limits[name]))
        influence.append({"measure": name, "threshold": limits[name], "above": above, "largest": float(of.max())})
    inflation = [row for name, model in models.items() for row in inflation_factors(name, model)]
    return Diagnostics(
        associations=_associations(table, variables),
        inflation=pa.Table.from_pylist(inflation),
        influence=pa.Table.from_pylist(influence),
        cooks_distance=cooks,
        leverage=leverage,
    )


def _libraries() -> tuple[Any, Any]:
    try:
        return importlib.import_module("scipy.stats"), importlib.import_module("statsmodels.api")
    except ImportError:
        raise MissingExtraError(
            "Diagnostics need scipy and statsmodels, which are not installed. Hint: pip install 'flowveil[tabular]'."
        ) from None


def _associations(table: Any, variables: Sequence[str]) -> pa.Table:
    columns = [encode(table, Attribute(name, "unordered")) for name in variables]
    return pa.Table.from_pylist([_association(a, b) for a, b in combinations(columns, 2)])


def _association(a: Column, b: Column) -> dict[str, Any]:
    """Fisher's exact test and Cramér's V of two variables."""
    stats, _ = _libraries()
    counts = np.zeros((a.n_values, b.n_values), dtype=np.int64)
    np.add.at(counts, (a.codes, b.codes), 1)
    counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    found: dict[str, Any] = {"variable_1": a.name, "variable_2": b.name, "fisher_p": None, "fisher": None}
    found["cramers_v"] = None
    if min(counts.shape) < 2:
        return found
    small = counts.shape == (2, 2)
    drawn = None if small else stats.MonteCarloMethod(n_resamples=DRAWS, rng=np.random.default_rng(_SEED))
    found["fisher_p"] = float(stats.fisher_exact(counts, method=drawn).pvalue)
    found["fisher"] = "exact" if small else f"{DRAWS} tables drawn"
    found["cramers_v"] = float(stats.contingency.association(counts, method="cramer"))
    return found


def _fit(model: Trained) -> tuple[Any, Any]:
    """The fit of statsmodels on the columns that are not combinations of others, and which these are."""
    _, api = _libraries()
    free = independent_columns(model.rows)
    with warnings.catch_warnings():
        # Separated data are no error: their coefficients grow, and their errors show it.
        warnings.simplefilter("ignore")
        return api.GLM(model.outcome, model.rows[:, free], family=api.families.Binomial()).fit(), free


def inflation_factors(name: str, model: Trained) -> list[dict[str, Any]]:
    """GVIF of each variable of a model (Fox and Monette 1992), from the covariance of its coefficients.

    det(R_own) det(R_others) / det(R), R the correlations of the coefficients without the intercept: as R's package car
    has it. For a variable with one coefficient it is the usual VIF.
    """
    fitted, free = _fit(model)
    covariance = np.asarray(fitted.cov_params())[1:, 1:]
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    owner = np.array(_owners(model.design))[free[1:]]
    rows = []
    for i, column in enumerate(model.design.columns):
        own = owner == i
        if not own.any():
            continue
        logs = [np.linalg.slogdet(correlation[np.ix_(m, m)])[1] for m in (own, ~own, np.ones(len(own), np.bool_))]
        gvif, df = float(np.exp(logs[0] + logs[1] - logs[2])), int(own.sum())
        scaled = float(gvif ** (1 / (2 * df)))
        rows.append({"trained_on": name, "variable": column.name, "gvif": gvif, "df": df, "gvif_scaled": scaled})
    return rows


def _owners(design: Design) -> list[int]:
    """The column that each term but the intercept belongs to."""
    owners = []
    for i, column in enumerate(design.columns):
        n = 1 + (column.missing >= 0) if column.kind == "numeric" else column.n_values - 1
        owners += [i] * n
    return owners


def _influence(model: Trained) -> tuple[Floats, Floats]:
    """Cook's distance and leverage of each record."""
    fitted, _ = _fit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        influence = fitted.get_influence(observed=False)
        distance, _ = influence.cooks_distance
        leverage = influence.hat_matrix_diag
    return np.asarray(distance, dtype=np.float64), np.asarray(leverage, dtype=np.float64)
