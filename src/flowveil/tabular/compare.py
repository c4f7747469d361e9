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
from flowveil.publish.spreadsheets import write_csv
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
        coefficients: its coefficients with 95 % intervals, side by side (Tables 20 to 22).
        seconds: time of one release each (Table 23).
        parameters: what was compared.
    """

    strict: pa.Table
    relaxed: pa.Table
    uniques: pa.Table
    synthesis: pa.Table
    prediction: pa.Table
    coefficients: pa.Table
    seconds: pa.Table
    parameters: dict[str, Any]

    def tables(self) -> dict[str, pa.Table]:
        """The tables by name."""
        names = ("strict", "relaxed", "uniques", "synthesis", "prediction", "coefficients", "seconds")
        return {name: getattr(self, name) for name in names}

    def write(self, folder: str | Path) -> None:
        """Write tables, figures and parameters (CSV, PNG, JSON) into a folder that appears whole or not."""
        from flowveil.tabular.figures import figures

        path = named_path(folder, what="the comparison")
        check_folder(path)
        about = json.dumps({"warning": WARNING, "parameters": self.parameters}, indent=2, sort_keys=True)
        tables = {f"{name}.csv": partial(write_csv, table) for name, table in self.tables().items()}
        output.write_folder(path, {**tables, **figures(self), "comparison.json": about + "\n"})


@dataclass(frozen=True)
class _Sweep:
    """The inputs all parts of the comparison share."""

    table: pa.Table
    binned: pa.Table
    attributes: tuple[Attribute, ...]
    sensitive: str
    dropped: tuple[str, ...]
    allowed: tuple[str, ...]
    choose: str
    ipf: dict[str, Any]
    say: Callable[[str], None]

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.attributes]

    @property
    def variables(self) -> list[str]:
        return [*self.names, self.sensitive]

    def mondrian(self, k: int, *, strict: bool) -> Anonymized:
        return anonymize_records(
            self.table,
            quasi_identifiers=self.attributes,
            sensitive=[self.sensitive],
            direct_identifiers=self.dropped,
            allow_identifiers=self.allowed,
            k=k,
            strict=strict,
            choose=self.choose,
        )

    def synthesis(self, epsilon: float | None, prior: float) -> Synthesis:
        return synthesize_records(self.table, epsilon=epsilon, prior_count=prior, variables=self.variables, **self.ipf)


def compare_records(
    records: Any,
    *,
    quasi_identifiers: Sequence[str | Attribute],
    sensitive: str,
    direct_identifiers: Sequence[str],
    allow_identifiers: Sequence[str] = (),
    ks: Sequence[int] = KS,
    epsilons: Sequence[float] = EPSILONS,
    priors: Sequence[float] = PRIORS,
    repeats: int = REPEATS,
    chosen_k: int = 10,
    chosen_epsilon: float = 1.0,
    chosen_prior: float = 0.1,
    positive: str | None = None,
    choose: str = "width",
    margins: Sequence[Sequence[str]] | None = None,
    domains: Mapping[str, Sequence[Any]] | None = None,
    bins: Mapping[str, Sequence[float]] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Sweep both methods over their parameters and measure privacy and utility.

    Args:
        records: a pyarrow, pandas or polars table.
        quasi_identifiers: names or attributes.
        sensitive: the sensitive column; what the classifier predicts.
        direct_identifiers: all other columns; they are left out.
        allow_identifiers: see `anonymize_records`.
        ks: the k of Mondrian.
        epsilons: the ε of IPF; the synthesis without privacy is always added.
        priors: prior counts of IPF.
        repeats: syntheses for each pair of ε and prior count; results are their means.
        chosen_k: the k of the release the classifier learns from.
        chosen_epsilon: the ε of the other one.
        chosen_prior: and its prior count.
        positive: the value of the sensitive column that counts as positive; by default the first of two.
        choose: see `anonymize_records`.
        margins: see `synthesize_records`.
        domains: see there; undeclared categories are read from the data.
        bins: see there.
        progress: called with a line of text before each step.

    Raises:
        ParameterError, DataError, InfeasibleError: as from the two methods.
    """
    if repeats < 1:
        raise ParameterError(f"At least one synthesis is needed for each setting; found {repeats}.")
    table, attributes = as_table(records), as_attributes(quasi_identifiers)
    names, dropped = [a.name for a in attributes], tuple(direct_identifiers)
    check_roles(table, quasi_identifiers=names, sensitive=[sensitive], direct_identifiers=dropped)
    sweep = _Sweep(
        table=table,
        binned=_binned(table, [*names, sensitive], domains, bins),
        attributes=attributes,
        sensitive=sensitive,
        dropped=dropped,
        allowed=tuple(allow_identifiers),
        choose=choose,
        ipf={"margins": margins, "domains": domains, "bins": bins, "domains_from_data": True},
        say=progress or (lambda _: None),
    )
    outcome_of(sweep.binned, sensitive, positive)
    grid = [(e, p) for e in (None, *epsilons) for p in priors]
    return Comparison(
        strict=pa.Table.from_pylist([_mondrian_row(sweep, k, True) for k in ks]),
        relaxed=pa.Table.from_pylist([_mondrian_row(sweep, k, False) for k in ks]),
        uniques=_uniques(sweep),
        synthesis=pa.Table.from_pylist([_synthesis_row(sweep, e, p, repeats) for e, p in grid]),
        **_classifiers(sweep, chosen_k, chosen_epsilon, chosen_prior, positive),
        parameters={
            "k": list(ks),
            "epsilon": list(epsilons),
            "prior_count": list(priors),
            "repeats": repeats,
            "classifier": {"k": chosen_k, "epsilon": chosen_epsilon, "prior_count": chosen_prior},
            "quasi_identifiers": names,
            "sensitive": sensitive,
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


def _classifiers(sweep: _Sweep, k: int, epsilon: float, prior: float, positive: str | None) -> dict[str, pa.Table]:
    """Train on the original, on a Mondrian and on an IPF release; test on the original."""
    sweep.say("classifier")
    begin = time.perf_counter()
    release = sweep.mondrian(k, strict=False)
    between = time.perf_counter()
    made = sweep.synthesis(epsilon, prior)
    end = time.perf_counter()
    outcome, yes = outcome_of(sweep.binned, sweep.sensitive, positive)
    synthetic_outcome, _ = outcome_of(made.table, sweep.sensitive, yes)

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
    fitted = {
        "original": effects(design, rows, outcome),
        "mondrian": effects(design, coarse, outcome),
        "ipf": effects(other, synthetic, synthetic_outcome),
    }
    seconds = {"mondrian": between - begin, "ipf": end - between}
    return {
        "prediction": pa.Table.from_pylist([{"trained_on": name, **asdict(p)} for name, p in predictions.items()]),
        "coefficients": _effect_table(fitted),
        "seconds": pa.Table.from_pylist([{"method": name, "seconds": value} for name, value in seconds.items()]),
    }


def _effect_table(fitted: Mapping[str, Sequence[Effect]]) -> pa.Table:
    terms = list(dict.fromkeys(effect.term for found in fitted.values() for effect in found))
    by_term = {name: {effect.term: effect for effect in found} for name, found in fitted.items()}
    rows = []
    for term in terms:
        row: dict[str, Any] = {"term": term}
        for name, found in by_term.items():
            effect = found.get(term)
            for part in ("estimate", "low", "high"):
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
