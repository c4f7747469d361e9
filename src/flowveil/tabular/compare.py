"""Mondrian and IPF side by side on one table: the tables and figures of the thesis, on your data.

The sweep shows how much privacy costs here: discernibility over k, replicated uniques and propensity over ε
and the prior count, and what a classifier learns from each. It looks at the original throughout. It is for
whoever holds the data and must choose; nothing of it is covered by k or by ε, and none of it is for
publication.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil import output
from flowveil.errors import ParameterError
from flowveil.paths import named_path
from flowveil.published.spreadsheets import write_csv
from flowveil.tabular.diagnostics import Diagnostics, Trained, diagnose
from flowveil.tabular.domains import code_variables
from flowveil.tabular.ipf import Synthesis, synthesize_records
from flowveil.tabular.mondrian import Anonymized, anonymize_records
from flowveil.tabular.records import Attribute, as_attributes, as_table, check_roles, encode
from flowveil.tabular.risk import describe_classes, discernibility, replicated_uniques
from flowveil.tabular.utility import (
    Design,
    Effect,
    cross_validate,
    effects,
    margin_distance,
    outcome_of,
    pair_release,
    pair_tables,
    propensity_by_pairs,
)

#: What the thesis swept.
KS = (2, 5, 10, 15, 20)
EPSILONS = (0.2, 0.5, 1.0, 2.0)
PRIORS = (0.0, 0.1, 0.5, 1.0)
REPEATS = 15

WARNING = (
    "Internal: these figures were computed from the original records. They are not protected and not for publication."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of a sweep, as tables.

    Attributes:
        strict, relaxed: Mondrian over k (Tables 11 and 13): discernibility, classes, whether a recount finds
            k.
        uniques: how sparse the original is (Table 12).
        synthesis: IPF over ε (none first) and prior count (Tables 14 to 18), means over repeated syntheses.
        prediction: classifier on the original, on a Mondrian and on an IPF release (Table 19).
        coefficients: its coefficients with standard errors, z, p and 95 % intervals, side by side (Tables 20 to 22).
        seconds: time of one release each (Table 23).
        parameters: what was compared.
        diagnostics: checks of what the regression assumes (Tables 25 to 27, 33 and 34, Figures 5 and 6); None unless
            asked for.
    """

    strict: pa.Table
    relaxed: pa.Table
    uniques: pa.Table
    synthesis: pa.Table
    prediction: pa.Table
    coefficients: pa.Table
    seconds: pa.Table
    parameters: dict[str, Any]
    diagnostics: Diagnostics | None = None

    def tables(self) -> dict[str, pa.Table]:
        """The tables by name."""
        names = ("strict", "relaxed", "uniques", "synthesis", "prediction", "coefficients", "seconds")
        own = {name: getattr(self, name) for name in names}
        return own if self.diagnostics is None else {**own, **self.diagnostics.tables()}

    def write(self, folder: str | Path) -> None:
        """Write tables, figures and parameters (CSV, PNG, JSON) into a folder that appears whole or not."""
        from flowveil.tabular.figures import figures

        path = named_path(folder, what="the comparison")
        check_folder(path)
        about = json.dumps({"warning": WARNING, "parameters": self.parameters}, indent=2, sort_keys=True)
        tables = {f"{name}.csv": partial(write_csv, table) for name, table in self.tables().items()}
        output.write_folder(path, {**tables, **figures(self), "comparison.json": about + "\n"})


@dataclass(frozen=True)
class Roles:
    """What each column is.

    Attributes:
        quasi_identifiers: names, or attributes.
        sensitive: the sensitive column; what the classifier predicts.
        direct_identifiers: all other columns; they are left out.
        allow_identifiers, choose: see `anonymize_records`.
        positive: the value of the sensitive column that counts as positive; by default the first of two.
    """

    quasi_identifiers: Sequence[str | Attribute]
    sensitive: str
    direct_identifiers: Sequence[str]
    allow_identifiers: Sequence[str] = ()
    choose: str = "width"
    positive: str | None = None


@dataclass(frozen=True)
class Grid:
    """What is tried.

    Attributes:
        ks: the k of Mondrian.
        epsilons: the ε of IPF; the synthesis without privacy is always added.
        priors: prior counts of IPF.
        repeats: syntheses for each pair of ε and prior count; results are their means.
        classifier_k: the k of the release the classifier learns from.
        classifier_epsilon, classifier_prior: ε and prior count of the synthesis it learns from.
    """

    ks: Sequence[int] = KS
    epsilons: Sequence[float] = EPSILONS
    priors: Sequence[float] = PRIORS
    repeats: int = REPEATS
    classifier_k: int = 10
    classifier_epsilon: float = 1.0
    classifier_prior: float = 0.1

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ParameterError(f"At least one synthesis is needed for each setting; found {self.repeats}.")

    @property
    def syntheses(self) -> list[tuple[float | None, float]]:
        """Every ε, none first, with every prior count."""
        return [(epsilon, prior) for epsilon in (None, *self.epsilons) for prior in self.priors]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for the written comparison."""
        return {
            "k": list(self.ks),
            "epsilon": list(self.epsilons),
            "prior_count": list(self.priors),
            "repeats": self.repeats,
            "classifier": {
                "k": self.classifier_k,
                "epsilon": self.classifier_epsilon,
                "prior_count": self.classifier_prior,
            },
        }


@dataclass(frozen=True)
class Margins:
    """How the margins of IPF are made; see `synthesize_records`. Undeclared categories are read from the data."""

    margins: Sequence[Sequence[str]] | None = None
    domains: Mapping[str, Sequence[Any]] | None = None
    bins: Mapping[str, Sequence[float]] | None = None
    noise: str = "laplace"
    delta: float | None = None


@dataclass(frozen=True)
class _Sweep:
    """The inputs all parts of the comparison share."""

    table: pa.Table
    binned: pa.Table
    attributes: tuple[Attribute, ...]
    roles: Roles
    fit: Margins
    say: Callable[[str], None]

    @classmethod
    def of(cls, records: Any, roles: Roles, fit: Margins, progress: Callable[[str], None] | None) -> _Sweep:
        table, attributes = as_table(records), as_attributes(roles.quasi_identifiers)
        names = [a.name for a in attributes]
        check_roles(
            table, quasi_identifiers=names, sensitive=[roles.sensitive], direct_identifiers=roles.direct_identifiers
        )
        binned = _binned(table, [*names, roles.sensitive], fit.domains, fit.bins)
        outcome_of(binned, roles.sensitive, roles.positive)
        return cls(table, binned, attributes, roles, fit, progress or (lambda _: None))

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.attributes]

    @property
    def variables(self) -> list[str]:
        return [*self.names, self.roles.sensitive]

    def mondrian(self, k: int, *, strict: bool) -> Anonymized:
        return anonymize_records(
            self.table,
            quasi_identifiers=self.attributes,
            sensitive=[self.roles.sensitive],
            direct_identifiers=self.roles.direct_identifiers,
            allow_identifiers=self.roles.allow_identifiers,
            k=k,
            strict=strict,
            choose=self.roles.choose,
        )

    def synthesis(self, epsilon: float | None, prior: float) -> Synthesis:
        given = {name: value for name, value in vars(self.fit).items() if epsilon is not None or name not in _NOISE}
        return synthesize_records(
            self.table,
            epsilon=epsilon,
            prior_count=prior,
            variables=self.variables,
            domains_from_data=True,
            **given,
        )


#: What a synthesis without privacy has none of.
_NOISE = ("noise", "delta")


def compare_records(
    records: Any,
    roles: Roles,
    *,
    grid: Grid | None = None,
    fit: Margins | None = None,
    diagnostics: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Sweep both methods over their parameters and measure privacy and utility.

    Args:
        records: a pyarrow, pandas or polars table.
        roles: what each column is.
        grid: what is tried; what the thesis swept by default.
        fit: how the margins of IPF are made.
        diagnostics: also check what the regression assumes.
        progress: called with a line of text before each step.

    Raises:
        ParameterError, DataError, InfeasibleError: as from the two methods.
    """
    grid, fit = grid or Grid(), fit or Margins()
    sweep = _Sweep.of(records, roles, fit, progress)
    return Comparison(
        strict=pa.Table.from_pylist([_mondrian_row(sweep, k, True) for k in grid.ks]),
        relaxed=pa.Table.from_pylist([_mondrian_row(sweep, k, False) for k in grid.ks]),
        uniques=_uniques(sweep),
        synthesis=pa.Table.from_pylist([_synthesis_row(sweep, e, p, grid.repeats) for e, p in grid.syntheses]),
        **_classifiers(sweep, grid, diagnostics=diagnostics),
        parameters={
            **grid.to_dict(),
            "quasi_identifiers": sweep.names,
            "sensitive": roles.sensitive,
            "noise": fit.noise,
            "delta": fit.delta,
        },
    )


def _binned(
    table: pa.Table, variables: Sequence[str], domains: Mapping[str, Any] | None, bins: Mapping[str, Any] | None
) -> pa.Table:
    """The original as IPF sees it: numbers in their bins."""
    coded = code_variables(table, variables, domains=domains, bins=bins, from_data=True)
    return pa.table([domain.values.take(pa.array(codes)) for domain, codes in coded], names=list(variables))


def _uniques(sweep: _Sweep) -> pa.Table:
    found = asdict(replicated_uniques(sweep.binned, sweep.binned, variables=sweep.variables))
    return pa.Table.from_pylist([{name: found[name] for name in ("n_records", "n_cells", "empty_cells", "unique")}])


def _mondrian_row(sweep: _Sweep, k: int, strict: bool) -> dict[str, Any]:
    sweep.say(f"Mondrian, {'strict' if strict else 'relaxed'}, k = {k}")
    begin = time.perf_counter()
    release = sweep.mondrian(k, strict=strict)
    seconds = time.perf_counter() - begin
    size = release.class_size
    alike = describe_classes(release.table, quasi_identifiers=sweep.names, k=k)
    pair = pair_release(release, sweep.table)
    return {
        "k": k,
        "c_dm": discernibility(size),
        "k_anonymous": bool(size.min() >= k and alike.k >= k),
        "classes": len(size),
        "smallest": int(size.min()),
        "mean": float(size.mean()),
        "largest": int(size.max()),
        "c_dm_published_alike": alike.c_dm,
        "s_pmse": propensity_by_pairs(pair),
        "two_way_distance": margin_distance(pair, ways=min(2, len(pair.columns))).mean,
        "seconds": seconds,
    }


def _synthesis_row(sweep: _Sweep, epsilon: float | None, prior: float, repeats: int) -> dict[str, Any]:
    sweep.say(f"IPF, epsilon = {'none' if epsilon is None else epsilon}, prior count = {prior}")
    rows = []
    for _ in range(repeats):
        begin = time.perf_counter()
        made = sweep.synthesis(epsilon, prior)
        seconds = time.perf_counter() - begin
        pair = pair_tables(sweep.binned, made.table, variables=sweep.variables)
        uniques = replicated_uniques(sweep.binned, made.table, variables=sweep.variables, n_cells=made.n_cells)
        rows.append(
            {
                "ru": uniques.ru,
                "ru_of_unique": uniques.ru_of_unique,
                "s_pmse": propensity_by_pairs(pair),
                "two_way_distance": margin_distance(pair, ways=min(2, len(pair.columns))).mean,
                "n_records": float(made.n_records),
                "gap": made.gap,
                "seconds": seconds,
            }
        )
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    spread = float(np.std([row["s_pmse"] for row in rows], ddof=1)) if repeats > 1 else 0.0
    return {"epsilon": epsilon, "prior_count": prior, "repeats": repeats, **means, "s_pmse_deviation": spread}


def _classifiers(sweep: _Sweep, grid: Grid, *, diagnostics: bool) -> dict[str, Any]:
    """Train on the original, on a Mondrian and on an IPF release; test on the original."""
    sweep.say("classifier")
    begin = time.perf_counter()
    release = sweep.mondrian(grid.classifier_k, strict=False)
    between = time.perf_counter()
    made = sweep.synthesis(grid.classifier_epsilon, grid.classifier_prior)
    end = time.perf_counter()
    outcome, yes = outcome_of(sweep.binned, sweep.roles.sensitive, sweep.roles.positive)
    synthetic_outcome, _ = outcome_of(made.table, sweep.roles.sensitive, yes)

    columns = [encode(sweep.table, attribute) for attribute in sweep.attributes]
    design = Design.of(columns)
    rows = design.of_codes([c.codes for c in columns])
    coarse = design.of_release(release)
    # IPF may have put numbers into bins: then its model speaks of bins, and so does its test.
    pair = pair_tables(sweep.binned, made.table, variables=sweep.names)
    other = Design.of(pair.columns)
    binned_rows = other.of_codes([c.codes for c in pair.columns])
    synthetic = other.of_codes(pair.other)
    predictions = {
        "original": cross_validate(rows, outcome, rows, outcome, linked=True),
        "mondrian": cross_validate(rows, outcome, coarse, outcome, linked=True),
        "ipf": cross_validate(binned_rows, outcome, synthetic, synthetic_outcome, linked=False),
    }
    trained = {
        "original": Trained(design, rows, outcome),
        "mondrian": Trained(design, coarse, outcome),
        "ipf": Trained(other, synthetic, synthetic_outcome),
    }
    fitted = {name: effects(model.design, model.rows, model.outcome) for name, model in trained.items()}
    if diagnostics:
        sweep.say("diagnostics")
    seconds = {"mondrian": between - begin, "ipf": end - between}
    return {
        "prediction": pa.Table.from_pylist([{"trained_on": name, **asdict(p)} for name, p in predictions.items()]),
        "coefficients": _effect_table(fitted),
        "seconds": pa.Table.from_pylist([{"method": name, "seconds": value} for name, value in seconds.items()]),
        "diagnostics": diagnose(sweep.binned, sweep.variables, trained) if diagnostics else None,
    }


def _effect_table(fitted: Mapping[str, Sequence[Effect]]) -> pa.Table:
    terms = list(dict.fromkeys(effect.term for found in fitted.values() for effect in found))
    by_term = {name: {effect.term: effect for effect in found} for name, found in fitted.items()}
    rows = []
    for term in terms:
        row: dict[str, Any] = {"term": term}
        for name, found in by_term.items():
            effect = found.get(term)
            for part in ("estimate", "error", "z", "p", "low", "high"):
                row[f"{name}_{part}"] = None if effect is None else getattr(effect, part)
        rows.append(row)
    return pa.Table.from_pylist(rows)


def check_folder(folder: str | Path) -> None:
    """Raise before any work is done if a comparison cannot be written there.

    Raises:
        OutputError: it is a file, holds something else than a comparison, or cannot be written.
    """

    def refuse(target: Path) -> str | None:
        ours = (target / "comparison.json").is_file() or not any(target.iterdir())
        return None if ours else "holds something else than a comparison"

    output.check_folder(folder, refuse=refuse)
