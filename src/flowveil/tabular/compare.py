"""Mondrian and IPF on one table: the tables and figures of the medical thesis, on the caller's
data.

The sweep measures the cost of privacy: discernibility over k, replicated uniques and propensity
over ε and the prior count, and the accuracy of a classifier trained on each release. Everything is
computed from the original records and is private: neither k nor ε covers it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from flowveil.core.arrays import Floats
from flowveil.core.errors import ParameterError
from flowveil.published.spreadsheets import write_csv
from flowveil.system import output
from flowveil.system.output import Content
from flowveil.system.paths import named_path
from flowveil.tabular import utility
from flowveil.tabular.domains import ColumnKinds, code_variable, decide_kinds
from flowveil.tabular.ipf import Synthesis, synthesize_records
from flowveil.tabular.mondrian import Anonymized, anonymize_records
from flowveil.tabular.records import Attribute, as_attributes, as_table, check_roles, encode
from flowveil.tabular.risk import describe_classes, discernibility
from flowveil.tabular.utility import (
    Paired,
    Trained,
    effects,
    library,
    outcome_of,
    pair_tables,
    replicated_uniques,
)

T = TypeVar("T")

WARNING = (
    "Internal: these figures were computed from the original records. They are not protected and"
    " not for publication."
)


@dataclass(frozen=True, eq=False)
class SynthesisComparison:
    """Results of a sweep.

    The tables are, with those of the thesis: ``frequencies`` of the original's categories (24),
    ``strict`` and ``relaxed`` Mondrian over k (11, 13), ``uniques`` (12), ``synthesis`` over ε and
    prior count, means over repeated syntheses (14 to 18), ``prediction`` of a classifier trained on
    the original, a Mondrian and an IPF release, tested on the original and on its release (19), its
    ``coefficients`` (20, 22), ``published_values``: the model whose categories are those that
    Mondrian publishes (21), ``seconds`` (23); on request those of `utility.diagnose`.
    """

    tables: dict[str, pa.Table]
    parameters: dict[str, Any]  # settings of the sweep
    notes: tuple[
        str, ...
    ] = ()  # columns whose kind was decided by the data, or that the variants treat differently
    by_record: Mapping[str, Floats] | None = (
        None  # with diagnostics: Cook's distance and leverage of the records
    )

    def write(self, folder: str | Path) -> None:
        """Write tables, figures and parameters (CSV, PNG, JSON).

        The folder appears complete or not at all.
        """
        path = named_path(folder, what="the comparison")
        check_folder(path)
        about = {"warning": WARNING, "notes": list(self.notes), "parameters": self.parameters}
        tables = {f"{name}.csv": partial(write_csv, table) for name, table in self.tables.items()}
        text = json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        output.write_folder(path, {**tables, **figures(self), "comparison.json": text})


@dataclass(frozen=True)
class Roles:
    """Role of each column; see `anonymize_records`.

    The classifier predicts the sensitive column; its value ``positive`` (by default the first of
    two) is positive.
    """

    quasi_identifiers: Sequence[str | Attribute]
    sensitive: str
    direct_identifiers: Sequence[str]
    allow_identifiers: Sequence[str] = ()
    choose: str = "width"
    positive: str | None = None


@dataclass(frozen=True)
class CompareGrid:
    """Settings of the sweep; by default those of the thesis.

    The synthesis without privacy is added to ``epsilons``. Each pair of ε and prior count is the
    mean of ``repeats`` syntheses. The classifier is trained on the releases of ``classifier_k``,
    ``classifier_epsilon`` and ``classifier_prior``.
    """

    ks: Sequence[int] = (2, 5, 10, 15, 20)
    epsilons: Sequence[float] = (0.2, 0.5, 1.0, 2.0)
    priors: Sequence[float] = (0.0, 0.1, 0.5, 1.0)
    repeats: int = 15
    classifier_k: int = 10
    classifier_epsilon: float = 1.0
    classifier_prior: float = 0.1

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ParameterError(
                f"At least one synthesis is needed for each setting; found {self.repeats}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for comparison.json."""
        k, epsilon, prior = self.classifier_k, self.classifier_epsilon, self.classifier_prior
        classifier = {"k": k, "epsilon": epsilon, "prior_count": prior}
        tried = {
            "k": list(self.ks),
            "epsilon": list(self.epsilons),
            "prior_count": list(self.priors),
        }
        return {**tried, "repeats": self.repeats, "classifier": classifier}


@dataclass(frozen=True)
class _Sweep:
    """Inputs of all parts.

    ``table`` is the original with ordered bins as values, ``binned`` as IPF counts it.
    """

    table: pa.Table
    binned: pa.Table
    kinds: ColumnKinds
    roles: Roles
    fit: Mapping[str, Any]
    report_progress: Callable[[str], None]

    @classmethod
    def from_request(
        cls, records: Any, roles: Roles, fit: Mapping[str, Any], progress: Any
    ) -> _Sweep:
        table, attributes = as_table(records), as_attributes(roles.quasi_identifiers)
        others = {"sensitive": [roles.sensitive], "direct_identifiers": roles.direct_identifiers}
        check_roles(table, quasi_identifiers=[a.name for a in attributes], **others)
        kinds = decide_kinds(table, attributes, domains=fit.get("domains"), bins=fit.get("bins"))
        declared = {"domains": kinds.domains, "bins": kinds.bins}
        names = [*(a.name for a in attributes), roles.sensitive]
        coded = [code_variable(kinds.table, name, **declared, from_data=True) for name in names]
        binned = pa.table([values.take(pa.array(codes)) for values, codes in coded], names=names)
        outcome_of(binned, roles.sensitive, roles.positive)
        return cls(
            kinds.table, binned, kinds, roles, {**fit, **declared}, progress or (lambda _: None)
        )

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.kinds.attributes]

    @property
    def variables(self) -> list[str]:
        return [*self.names, self.roles.sensitive]

    def mondrian(self, k: int, *, strict: bool) -> Anonymized:
        names = ("direct_identifiers", "allow_identifiers", "choose")
        chosen: dict[str, Any] = {name: getattr(self.roles, name) for name in names}
        chosen |= {"quasi_identifiers": self.kinds.attributes, "sensitive": [self.roles.sensitive]}
        return anonymize_records(self.table, k=k, strict=strict, **chosen)

    def synthesis(self, epsilon: float | None, prior: float) -> Synthesis:
        options = {
            name: v
            for name, v in self.fit.items()
            if epsilon is not None or name not in ("noise", "delta")
        }
        more = {"variables": self.variables, "domains_from_data": True, "prior_count": prior}
        return synthesize_records(self.table, epsilon=epsilon, **options, **more)


def compare_records(
    records: Any,
    roles: Roles,
    *,
    grid: CompareGrid | None = None,
    fit: Mapping[str, Any] | None = None,
    diagnostics: bool = False,
    progress: Callable[[str], None] | None = None,
) -> SynthesisComparison:
    """Sweeps both methods over their parameters and measures privacy and utility.

    Raises what the two methods raise.

    Args:
        records: a pyarrow, pandas or polars table.
        roles, grid: role of each column, settings of the sweep.
        fit: options of IPF: ``margins``, ``domains``, ``bins``, ``noise``, ``delta``; see
            `synthesize_records`. Undeclared categories are read from the data.
        diagnostics: also check the assumptions of the regression.
        progress: called with a line of text before each step.
    """
    grid, fit = grid or CompareGrid(), fit or {}
    sweep = _Sweep.from_request(records, roles, fit, progress)
    # Before the sweep, which takes minutes.
    library("statsmodels.api")
    uniques = replicated_uniques(pair_tables(sweep.binned, sweep.binned, variables=sweep.variables))
    rows = {
        "frequencies": _frequencies(sweep),
        "strict": [_mondrian_row(sweep, k, True) for k in grid.ks],
        "relaxed": [_mondrian_row(sweep, k, False) for k in grid.ks],
        "uniques": [
            {name: uniques[name] for name in ("n_records", "n_cells", "empty_cells", "unique")}
        ],
        "synthesis": [
            _synthesis_row(sweep, e, p, grid.repeats)
            for e in (None, *grid.epsilons)
            for p in grid.priors
        ],
    }
    more, models = _classifiers(sweep, grid)
    checks, by_record = (
        utility.diagnose(sweep.binned, sweep.variables, models) if diagnostics else ({}, None)
    )
    rows |= more | checks
    return SynthesisComparison(
        tables={name: pa.Table.from_pylist(of) for name, of in rows.items()},
        parameters={
            **grid.to_dict(),
            "quasi_identifiers": sweep.names,
            "kinds": {
                name: "numeric" if name in sweep.kinds.numeric else "categories"
                for name in sweep.names
            },
            "choose": roles.choose,
            "sensitive": roles.sensitive,
            "noise": fit.get("noise", "laplace"),
            "delta": fit.get("delta"),
        },
        notes=sweep.kinds.notes,
        by_record=by_record,
    )


def _frequencies(sweep: _Sweep) -> list[dict[str, Any]]:
    rows = []
    for name in sweep.variables:
        column = encode(sweep.binned, Attribute(name, "ordered"))
        count = np.bincount(column.codes, minlength=column.n_values)
        for label, n in zip(column.labels, count.tolist(), strict=True):
            percentage = 100 * n / sweep.binned.num_rows
            rows.append(
                {"variable": name, "level": label, "frequency": n, "percentage": percentage}
            )
    return rows


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    return make(), time.perf_counter() - begin


def _closeness(pair: Paired) -> dict[str, float]:
    return {
        "s_pmse": utility.propensity_by_pairs(pair),
        "two_way_distance": utility.margin_distance(pair, ways=min(2, len(pair.columns))),
    }


def _mondrian_row(sweep: _Sweep, k: int, strict: bool) -> dict[str, Any]:
    sweep.report_progress(f"Mondrian, {'strict' if strict else 'relaxed'}, k = {k}")
    release, seconds = _timed(lambda: sweep.mondrian(k, strict=strict))
    size = release.class_size
    alike = describe_classes(release.table, quasi_identifiers=sweep.names, k=k)
    return {
        "k": k,
        "c_dm": discernibility(size),
        "k_anonymous": bool(size.min() >= k and alike.k >= k),
        "classes": len(size),
        "smallest": int(size.min()),
        "mean": float(size.mean()),
        "largest": int(size.max()),
        "c_dm_published_alike": alike.c_dm,
        "ncp": release.information_loss(),
        **_closeness(utility.pair_release(release, sweep.table)),
        "seconds": seconds,
    }


def _synthesis_row(
    sweep: _Sweep, epsilon: float | None, prior: float, repeats: int
) -> dict[str, Any]:
    sweep.report_progress(
        f"IPF, epsilon = {'none' if epsilon is None else epsilon}, prior count = {prior}"
    )
    rows = []
    for _ in range(repeats):
        synthesis, seconds = _timed(lambda: sweep.synthesis(epsilon, prior))
        pair = pair_tables(sweep.binned, synthesis.table, variables=sweep.variables)
        uniques = replicated_uniques(pair)
        rows.append(
            {
                "ru": uniques["ru"],
                "ru_of_unique": uniques["ru_of_unique"],
                **_closeness(pair),
                "n_records": float(synthesis.report["n_records"]),
                "gap": synthesis.report["fit"]["gap"],
                "seconds": seconds,
            }
        )
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    spread = float(np.std([row["s_pmse"] for row in rows], ddof=1)) if repeats > 1 else 0.0
    return {
        "epsilon": epsilon,
        "prior_count": prior,
        "repeats": repeats,
        **means,
        "s_pmse_deviation": spread,
    }


def _classifiers(
    sweep: _Sweep, grid: CompareGrid
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Trained]]:
    """Train one model on the original, on a Mondrian and on an IPF release.

    Return rows of tables, and the models.
    """
    sweep.report_progress("classifier")
    release, mondrian = _timed(lambda: sweep.mondrian(grid.classifier_k, strict=False))
    synthesis, ipf = _timed(lambda: sweep.synthesis(grid.classifier_epsilon, grid.classifier_prior))
    trained = _train(sweep, release, synthesis)
    levels = _train_on_published_values(release, trained["original"].outcome)
    fitted = {name: effects(model) for name, model in trained.items()}
    coefficients = [
        {"term": term["term"]}
        | {
            f"{name}_{part}": v
            for name in fitted
            for part, v in fitted[name][i].items()
            if part != "term"
        }
        for i, term in enumerate(fitted["original"])
    ]
    tables = {
        "prediction": _predictions(trained, levels),
        "coefficients": coefficients,
        "published_values": effects(levels),
        "seconds": [{"method": "mondrian", "seconds": mondrian}, {"method": "ipf", "seconds": ipf}],
    }
    return tables, {**trained, "mondrian, published values": levels}


def _train(sweep: _Sweep, release: Anonymized, synthesis: Synthesis) -> dict[str, Trained]:
    """Return the rows of the original, of Mondrian and of IPF in one design, so that coefficients
    can be compared.
    """
    outcome, positive = outcome_of(sweep.binned, sweep.roles.sensitive, sweep.roles.positive)
    synthetic_outcome, _ = outcome_of(synthesis.table, sweep.roles.sensitive, positive)
    kinds = sweep.kinds
    kind_of = dict.fromkeys(sweep.names, "ordered") | dict.fromkeys(kinds.numeric, "numeric")
    variables = [Attribute(a.name, kind_of[a.name], a.order) for a in kinds.attributes]
    pair = pair_tables(
        kinds.numbers(sweep.table), kinds.numbers(synthesis.table), variables=variables
    )
    columns = pair.columns
    return {
        "original": Trained(
            columns, utility.rows_of_codes(columns, [c.codes for c in columns]), outcome
        ),
        "mondrian": Trained(columns, utility.rows_of_release(columns, release), outcome),
        "ipf": Trained(columns, utility.rows_of_codes(columns, pair.other), synthetic_outcome),
    }


def _train_on_published_values(release: Anonymized, outcome: Floats) -> Trained:
    """Return the thesis's reading of Mondrian.

    Every published value is a category, generalised ones first.
    """
    columns = []
    for region in release.regions:
        texts = sorted(set(region.text.to_pylist()), key=lambda text: (text[0] not in "[({", text))
        values = region.text.take(pa.array(release.class_of_record))
        attribute = Attribute(region.column.name, order=tuple(texts))
        columns.append(
            encode(pa.table({region.column.name: values}), attribute, missing_label="\0")
        )
    return Trained(columns, utility.rows_of_codes(columns, [c.codes for c in columns]), outcome)


def _predictions(trained: Mapping[str, Trained], levels: Trained) -> list[dict[str, Any]]:
    """Test every model on the original.

    And, as the thesis does, on the release it was trained on.
    """
    original = trained["original"]
    tests = [
        (name, "original", original, model, model.outcome is original.outcome)
        for name, model in trained.items()
    ]
    tests += [
        ("mondrian", "its release", levels, levels, True),
        ("ipf", "its release", *(trained["ipf"],) * 2, True),
    ]
    rows = []
    for name, tested_on, test, model, linked in tests:
        result = utility.cross_validate(
            test.rows, test.outcome, model.rows, model.outcome, linked=linked
        )
        rows.append({"trained_on": name, "tested_on": tested_on, **result})
    return rows


def check_folder(folder: str | Path) -> None:
    """Raise OutputError before any work is done if a comparison cannot be written there."""
    output.check_private_folder(folder, "a comparison", lambda names: "comparison.json" in names)


def figures(comparison: SynthesisComparison) -> dict[str, Content]:
    """Return ``strict.png``, ``relaxed.png`` and ``synthesis.png``.

    With diagnostics those of single records.
    """
    # The figure class alone: pyplot would look for a screen.
    drawing = partial(library("matplotlib.figure").Figure, layout="constrained")
    drawn = {name: drawing(figsize=(6, 4)) for name in ("strict", "relaxed")}
    for name, figure in drawn.items():
        axes, k = figure.add_subplot(), comparison.tables[name]["k"].to_pylist()
        axes.plot(k, comparison.tables[name]["c_dm"].to_pylist(), marker="o")
        axes.set(
            xlabel="k (more private to the right)", ylabel="discernibility C_DM (more useful below)"
        )
        axes.set(xticks=k, ylim=(0, None), title=f"Mondrian, {name} partitioning")
        axes.grid(alpha=0.3)
    drawn["synthesis"] = drawing(figsize=(7, 7))
    _draw_synthesis(drawn["synthesis"], comparison.tables["synthesis"].to_pylist())
    for name, values in (comparison.by_record or {}).items():
        rows = comparison.tables["influence"].to_pylist()
        limit = next(row["threshold"] for row in rows if row["measure"] == name)
        drawn[name] = drawing(figsize=(7, 4))
        axes, title = (
            drawn[name].add_subplot(),
            {"leverage": "Leverage"}.get(name, "Cook's distance"),
        )
        axes.vlines(range(len(values)), 0, values, linewidth=0.4)
        axes.axhline(limit, color="tab:red", label=f"threshold {limit:.2g}")
        axes.set(
            xlabel="record, in the order of the table",
            ylabel=title,
            title=f"{title} of the original's records",
        )
        axes.legend()
    # No date or version inside: the same numbers give the same bytes.
    how: dict[str, Any] = {"format": "png", "dpi": 150, "metadata": {"Software": None}}
    return {f"{name}.png": partial(figure.savefig, **how) for name, figure in drawn.items()}


def _draw_synthesis(figure: Any, rows: list[dict[str, Any]]) -> None:
    upper, lower = figure.subplots(2, 1, sharex=True)
    # No privacy at all belongs at the far end of the axis, after the largest budget.
    budgets = sorted(
        dict.fromkeys(row["epsilon"] for row in rows), key=lambda epsilon: epsilon is None
    )
    for prior in dict.fromkeys(row["prior_count"] for row in rows):
        by_budget = {row["epsilon"]: row for row in rows if row["prior_count"] == prior}
        for axes, key in ((upper, "s_pmse"), (lower, "ru_of_unique")):
            axes.plot(
                [by_budget[e][key] for e in budgets], marker="o", label=f"prior count {prior:g}"
            )
    upper.set(ylabel="standardised pMSE (more useful below)", title="IPF synthesis")
    upper.legend()
    lower.set_xticks(range(len(budgets)), ["none" if e is None else f"{e:g}" for e in budgets])
    about = "replicated uniques,\n% of the original's (more private below)"
    lower.set(xlabel="ε (less private to the right)", ylabel=about)
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
