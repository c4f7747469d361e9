"""Synthetic records from noisy margins: iterative proportional fitting with differential privacy (Raab 2022).

Count chosen margins, add discrete Laplace (or Gaussian) noise, fit a distribution to the noisy margins, draw records
from it. Only the noisy counts depend on the data.

The guarantee:

- Neighbouring tables differ by one record, added or removed, which changes one cell of each of M margins by 1. Discrete
  Laplace noise of scale M/ε on every cell, empty ones included, makes all noisy counts together ε-differentially
  private. Discrete Gaussian noise of standard deviation σ is ρ-zCDP with ρ = M/(2σ²), and so (ε, δ)-differentially
  private for ε = ρ + 2 √(ρ ln(1/δ)) (Bun and Steinke 2016).
- Prior count, clipping, fitting, the estimated number of records and the drawing are post-processing.
- Not covered: the variables, margins, categories, edges of bins, ε, and a declared number of records. They are taken
  as public, and the release states it.
- A person with several records is protected at ε times their number. For tables of one size, which differ by one
  record replaced, a release is 2ε-private (with Gaussian noise 2ρ-zCDP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isfinite, prod, sqrt
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from flowveil.errors import ParameterError
from flowveil.methods.discrete_laplace import Bits, random_bits
from flowveil.methods.epsilon import check_epsilon, weakness
from flowveil.tabular.domains import Domain, code_variables
from flowveil.tabular.junction import JunctionModel, JunctionTree, Margin, build_junction_tree
from flowveil.tabular.noise import Mechanism
from flowveil.tabular.records import Floats, Ints, as_table, check_columns

#: A table of the model may have this many cells; all tables together are held in memory.
MAX_CELLS = 10_000_000
#: Noise so large that counts mean nothing.
LARGEST_SCALE = 1e6
#: Largest standard deviation of an estimated number of records: noise alone must not fill the memory.
LARGEST_SPREAD = 1e6


@dataclass(frozen=True, eq=False)
class Synthesis:
    """Synthetic records and their guarantee. Everything here may be published.

    Attributes:
        table: the synthetic records.
        epsilon: the privacy budget; None for a synthesis without privacy.
        delta: δ of the guarantee; 0 with Laplace noise.
        law: distribution of the noise: ``discrete Laplace`` or ``discrete Gaussian``.
        private: whether ε holds. False without ε, and False with the test seed.
        margins: names of the variables of each margin.
        scale: scale of the Laplace noise, standard deviation of the Gaussian; 0 without privacy.
        prior_count: records spread evenly over the cells of each margin.
        n_cells: cells of the full cross-tabulation.
        n_records: records drawn.
        records_from: ``noisy margins``, ``declared`` or ``original``.
        assumed_public: variables whose categories were read from the data.
        gap: largest absolute difference between a probability of a fitted margin and of its (noisy) target.
            Noisy margins contradict each other, so with ε it stays above zero however long the fit runs.
        cycles: rounds over all margins.
        converged: whether the last round changed less than the tolerance.
        fitted: the fitted model.
    """

    table: pa.Table
    epsilon: float | None
    delta: float
    law: str
    private: bool
    margins: tuple[tuple[str, ...], ...]
    scale: float
    prior_count: float
    n_cells: int
    n_records: int
    records_from: str
    assumed_public: tuple[str, ...]
    gap: float
    cycles: int
    converged: bool
    fitted: JunctionModel = field(repr=False)

    def report(self) -> dict[str, Any]:
        """Plain data: parameters, fit, and the statement of what is and is not protected."""
        return {
            "method": "ipf",
            "epsilon": self.epsilon,
            "delta": None if self.epsilon is None else self.delta,
            "private": self.private,
            "margins": [list(m) for m in self.margins],
            "noise": {"law": self.law, "scale": self.scale} if self.epsilon is not None else None,
            "prior_count": self.prior_count,
            "n_cells": self.n_cells,
            "n_records": self.n_records,
            "n_records_from": self.records_from,
            "categories_read_from_the_data": list(self.assumed_public),
            "fit": {"gap": self.gap, "cycles": self.cycles, "converged": self.converged},
            "statement": self.statement(),
        }

    def statement(self) -> str:
        """One paragraph for the reader of the release."""
        if self.epsilon is None:
            return (
                "Synthetic records drawn from a model of the original margins, without noise: NOT "
                "differentially private. Rare combinations of the original may show."
            )
        if not self.private:
            return "TEST RUN with predictable noise: NOT private, not for publication."
        weak = weakness(self.epsilon)
        public = (
            f" The categories of {', '.join(self.assumed_public)} were read from the data and are assumed to "
            "be public knowledge."
            if self.assumed_public
            else " All categories were declared beforehand."
        )
        count = (
            "estimated from the noisy margins"
            if self.records_from == "noisy margins"
            else "declared beforehand and not protected"
        )
        return (
            f"{self._guarantee()}-differentially private for adding or removing one record: {self.law} noise of "
            f"{'standard deviation' if self.delta else 'scale'} {self.scale:g} on every cell of {len(self.margins)} "
            f"margins. The number of records is {count}.{public}{' ' + weak if weak else ''} Not protected: what is "
            "true of a population whether or not a person is in the data, and a person with several records beyond "
            + ("the composition of several such guarantees." if self.delta else "epsilon times their number.")
        )

    def _guarantee(self) -> str:
        return f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a synthesis.

    Attributes:
        variables: the columns to synthesise; by default those of the margins, or all columns. Others are dropped.
        margins: sets of columns whose joint counts are kept; by default all pairs.
        prior_count: records spread evenly over the cells of each margin.
        noise: ``laplace``, or ``gaussian`` for (ε, δ).
        delta: δ with Gaussian noise, at most 1e-5; well below one over the number of records.
        domains: the categories of columns, None among them if a value may be missing.
        bins: edges of the bins of numeric columns, increasing; the last bin holds its upper edge.
        domains_from_data: read undeclared categories from the data. With ε this is an assumption (those categories
            are public) that must be confirmed.
        n_records: number of records to draw, declared public. By default it is estimated from the noisy margins;
            without privacy, it is that of the original.
        max_cells: cells of the largest table the fit may use.
        tolerance: the fit ends when the gap is below. With ε it ends when no expected count changes by a hundredth of
            a record, because noisy margins contradict each other.
        max_cycles: largest number of rounds of the fit.
        seed: for a repeatable synthesis without privacy. Refused with ε: noise that can be repeated can be removed.
        unsafe_test_seed: seeds the noise, for tests; the result is marked as not private.
    """

    variables: Sequence[str] | None = None
    margins: Sequence[Sequence[str]] | None = None
    prior_count: float = 0.0
    noise: str = "laplace"
    delta: float | None = None
    domains: Mapping[str, Sequence[Any]] | None = None
    bins: Mapping[str, Sequence[float]] | None = None
    domains_from_data: bool = False
    n_records: int | None = None
    max_cells: int = MAX_CELLS
    tolerance: float = 1e-10
    max_cycles: int = 1_000
    seed: int | None = None
    unsafe_test_seed: int | None = None

    def check(self, epsilon: float | None) -> None:
        """Raise ParameterError if an option is out of range, or does not fit ε."""
        if epsilon is not None:
            check_epsilon(epsilon)
        if not (isfinite(self.prior_count) and self.prior_count >= 0):
            raise ParameterError(f"The prior count must be at least 0; found {self.prior_count!r}.")
        if self.n_records is not None and (isinstance(self.n_records, bool) or self.n_records < 1):
            raise ParameterError(f"The number of records must be at least 1; found {self.n_records!r}.")
        if epsilon is not None and self.seed is not None:
            raise ParameterError(
                "A seed is refused with epsilon: an attacker who knows it can subtract the noise. Hint: omit it."
            )
        if epsilon is None and self.unsafe_test_seed is not None:
            raise ParameterError("Without epsilon no noise is added; use the ordinary seed.")


def synthesize_records(records: Any, *, epsilon: float | None, **options: Any) -> Synthesis:
    """Draw synthetic records from a model fitted to (noisy) margins.

    Args:
        records: a pyarrow, pandas or polars table.
        epsilon: the privacy budget, at most 20 (above 10 with a warning); None for a synthesis without privacy.
        **options: see `Options`.

    Raises:
        ParameterError: a parameter is out of range, or the margins need too large a table (the message says which).
        DataError: a column is absent or holds values outside its declared categories.
    """
    asked = Options(**options)
    asked.check(epsilon)
    mechanism = Mechanism.from_options(asked.noise, epsilon, asked.delta)
    table = as_table(records)
    counted = _Margins.from_table(table, asked, from_data=asked.domains_from_data or epsilon is None)
    counted.refuse_large(asked.max_cells)
    _refuse_noise(counted.tree.shape, counted.wanted, mechanism, asked.n_records)
    generator = np.random.default_rng(asked.seed if epsilon is None else asked.unsafe_test_seed)
    noisy, scale = _add_noise(counted.counts(), mechanism, random_bits(asked.unsafe_test_seed))
    n, source = _records_to_draw(table.num_rows, noisy, epsilon, asked.n_records)
    model = JunctionModel(counted.tree)
    # A hundredth of a record is far below the noise and the spread of the sample.
    settled = asked.tolerance * 1e-2 if epsilon is None else 1e-2 / n
    targets = [_as_distribution(margin, asked.prior_count) for margin in noisy]
    gap, cycles, converged = fit(model, counted.wanted, targets, Rounds(asked.tolerance, settled, asked.max_cycles))
    return Synthesis(
        table=_decoded(counted.domains, model.sample(n, generator)),
        epsilon=None if epsilon is None else float(epsilon),
        delta=0.0 if mechanism is None else mechanism.delta,
        law="none" if mechanism is None else mechanism.distribution,
        private=epsilon is not None and asked.unsafe_test_seed is None,
        margins=counted.named,
        scale=scale,
        prior_count=float(asked.prior_count),
        n_cells=prod(counted.tree.shape),
        n_records=n,
        records_from=source,
        assumed_public=tuple(d.name for d in counted.domains if not d.declared) if epsilon is not None else (),
        gap=gap,
        cycles=cycles,
        converged=converged,
        fitted=model,
    )


# ---- parameters --------------------------------------------------------------------------------------------


def _chosen_variables(
    table: pa.Table, variables: Sequence[str] | None, margins: Sequence[Sequence[str]] | None
) -> list[str]:
    if variables is not None:
        chosen = list(variables)
    elif margins is not None:
        chosen = list(dict.fromkeys(name for margin in margins for name in margin))
    else:
        chosen = list(table.column_names)
    check_columns(table, chosen, "to synthesise")
    if not chosen:
        raise ParameterError("No variable is named; at least one is needed.")
    if len(set(chosen)) != len(chosen):
        raise ParameterError("A variable is named twice.")
    return chosen


def _chosen_margins(chosen: Sequence[str], margins: Sequence[Sequence[str]] | None) -> list[tuple[str, ...]]:
    if margins is None:
        return list(combinations(chosen, 2)) if len(chosen) > 1 else [(chosen[0],)]
    named = [tuple(margin) for margin in margins]
    for margin in named:
        if not margin or len(set(margin)) != len(margin):
            raise ParameterError(f"The margin '{'*'.join(margin)}' is empty or names a variable twice.")
        strange = [name for name in margin if name not in chosen]
        if strange:
            raise ParameterError(f"The margin '{'*'.join(margin)}' names '{strange[0]}', which is not a variable.")
    if len({frozenset(margin) for margin in named}) != len(named):
        raise ParameterError("A margin is named twice; each costs its share of the privacy budget.")
    lonely = [name for name in chosen if not any(name in margin for margin in named)]
    if lonely:
        raise ParameterError(
            f"Variables in no margin: {', '.join(lonely)}. Hint: add a margin, if only the variable alone, "
            "or leave the variable out."
        )
    return named


@dataclass(frozen=True, eq=False)
class _Margins:
    """The margins that are kept, over the categories of their variables.

    Attributes:
        domains, codes: the categories of each variable, and the one of each record.
        named, wanted: the variables of each margin, by name and by place.
        tree: the tables of the model that keeps these margins.
    """

    domains: tuple[Domain, ...]
    codes: tuple[Ints, ...]
    named: tuple[tuple[str, ...], ...]
    wanted: list[Margin]
    tree: JunctionTree

    @classmethod
    def from_table(
        cls,
        table: pa.Table,
        asked: Options,
        *,
        from_data: bool,
    ) -> _Margins:
        chosen = _chosen_variables(table, asked.variables, asked.margins)
        named = _chosen_margins(chosen, asked.margins)
        coded = code_variables(table, chosen, domains=asked.domains, bins=asked.bins, from_data=from_data)
        wanted: list[Margin] = [tuple(sorted(chosen.index(name) for name in m)) for m in named]
        tree = build_junction_tree([domain.n_values for domain, _ in coded], wanted)
        return cls(tuple(d for d, _ in coded), tuple(codes for _, codes in coded), tuple(named), wanted, tree)

    def refuse_large(self, max_cells: int) -> None:
        """Raise if the margins need too large a table; the message names margins that fit."""
        if max(self.tree.cells()) > max_cells:
            _refuse_large(self.tree, self.wanted, [domain.name for domain in self.domains], max_cells)

    def counts(self) -> list[Ints]:
        """Return the number of records in each cell of each margin."""
        return [_count(self.tree.shape, margin, self.codes) for margin in self.wanted]


def _refuse_large(tree: JunctionTree, margins: list[Margin], names: Sequence[str], max_cells: int) -> NoReturn:
    kept = _margins_that_fit(tree.shape, margins, max_cells)
    dropped = [m for m in margins if m not in kept]
    # The shorter list is the one a reader can act on.
    verb, listed = ("drop the margins", dropped) if len(dropped) <= max(len(kept), 10) else ("keep only", kept)
    largest = tree.cliques[int(np.argmax(tree.cells()))]
    raise ParameterError(
        f"These margins tie together {', '.join(names[v] for v in largest)}, whose table has "
        f"{max(tree.cells()):,} cells; at most {max_cells:,} are allowed. "
        f"Hint: {verb} {', '.join('*'.join(names[v] for v in m) for m in listed)}."
    )


def _margins_that_fit(shape: tuple[int, ...], margins: list[Margin], max_cells: int) -> list[Margin]:
    """Select margins greedily, small ones first, whose tables stay within bounds. Uses no data."""
    kept: list[Margin] = []
    for margin in sorted(margins, key=lambda m: (prod(shape[v] for v in m), m)):
        if max(build_junction_tree(shape, [*kept, margin]).cells()) <= max_cells:
            kept.append(margin)
    return kept


def _refuse_noise(
    shape: tuple[int, ...], margins: list[Margin], mechanism: Mechanism | None, n_records: int | None
) -> None:
    """Raise if the noise exceeds the counts or their number. Uses no data."""
    if mechanism is None:
        return
    scale = mechanism.scale(len(margins))
    # Scales are rounded up by a bit: not a reason to refuse.
    if scale > LARGEST_SCALE * (1 + 1e-9):
        raise ParameterError(
            f"Noise of scale {scale:,.0f} for {len(margins)} margins exceeds the counts; at most "
            f"{LARGEST_SCALE:,.0f} is allowed. Hint: fewer margins or a larger epsilon."
        )
    if n_records is not None:
        return
    # The estimate's standard deviation: noisy totals of all margins, weighted as in `_estimated_total`.
    spread = mechanism.deviation(len(margins)) / sqrt(sum(1 / prod(shape[v] for v in m) for m in margins))
    if spread > LARGEST_SPREAD:
        raise ParameterError(
            f"The number of records would be estimated with a standard deviation of {spread:,.0f}; at most "
            f"{LARGEST_SPREAD:,.0f} is allowed, because noise alone would decide how many are drawn. Hint: declare the "
            "number (--records), or use fewer margins, fewer categories or a larger epsilon."
        )


# ---- counts and noise --------------------------------------------------------------------------------------


def _count(shape: tuple[int, ...], margin: Margin, codes: Sequence[Ints]) -> Ints:
    size = [shape[v] for v in margin]
    cell = np.zeros(len(codes[0]), dtype=np.int64)
    for v in margin:
        cell = cell * shape[v] + codes[v]
    return np.bincount(cell, minlength=prod(size)).astype(np.int64).reshape(size)


def _add_noise(counts: list[Ints], mechanism: Mechanism | None, bits: Bits) -> tuple[list[Ints], float]:
    """Return every cell of every margin with noise, and the scale of the noise; unchanged without a mechanism."""
    if mechanism is None:
        return counts, 0.0
    noisy = mechanism.release(np.concatenate([c.ravel() for c in counts]), len(counts), bits)
    parts = np.split(noisy, np.cumsum([c.size for c in counts])[:-1])
    return [part.reshape(c.shape) for part, c in zip(parts, counts, strict=True)], mechanism.scale(len(counts))


def _records_to_draw(
    n_original: int, noisy: Sequence[Ints], epsilon: float | None, declared: int | None
) -> tuple[int, str]:
    """Return the number of records to draw, and its source; with ε never the original number."""
    if declared is not None:
        return int(declared), "declared"
    return (n_original, "original") if epsilon is None else (_estimated_total(noisy), "noisy margins")


def _estimated_total(noisy: Sequence[Ints]) -> int:
    """Estimate the number of records from the noisy totals, weighted by inverse variance."""
    weight = np.array([1 / m.size for m in noisy])
    total = np.array([float(m.sum()) for m in noisy])
    return max(1, round(float(np.sum(weight * total) / np.sum(weight))))


def _as_distribution(noisy: Ints, prior_count: float) -> Floats:
    raised = np.maximum(noisy + prior_count / noisy.size, 0.0)
    total = raised.sum()
    # If noise leaves no cell above zero, the distribution is uniform.
    return raised / total if total > 0 else np.full(noisy.shape, 1.0 / noisy.size)


# ---- fitting -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Stopping rule of a fit: a gap of ``tolerance``, differences that change by less than ``settled``, or the last."""

    tolerance: float
    settled: float
    max_cycles: int


def fit(
    model: JunctionModel,
    margins: Sequence[Margin],
    targets: Sequence[Floats],
    rounds: Rounds,
) -> tuple[float, int, bool]:
    """Iterative proportional fitting: rescale to one margin after the other until nothing changes.

    Margins that agree are all met in the limit. Noisy ones contradict each other; then the rounds settle into
    a cycle, which is noticed by the differences before each rescaling no longer changing.

    Returns:
        The gap (largest absolute difference between fitted and target probability), rounds, and whether it
        settled.
    """
    before: Floats | None = None
    converged = False
    cycles = 0
    while cycles < rounds.max_cycles and not converged:
        cycles += 1
        seen = []
        for margin, target in zip(margins, targets, strict=True):
            seen.append(float(np.max(np.abs(model.fit_margin(margin, target) - target))))
        now = np.array(seen)
        converged = bool(now.max() <= rounds.tolerance)
        if before is not None:
            converged |= bool(np.max(np.abs(now - before)) <= rounds.settled)
        before = now
    for table in model.tables:
        # Cells that one margin forbids take probability with them when another is fitted last.
        total = float(table.sum())
        if total > 0:
            table /= total
        else:
            table[...] = 1.0 / table.size
    gap = max(
        float(np.max(np.abs(model.margin(margin) - target))) for margin, target in zip(margins, targets, strict=True)
    )
    return gap, cycles, converged


def _decoded(domains: Sequence[Domain], drawn: Ints) -> pa.Table:
    arrays = [domain.values.take(pa.array(drawn[:, i])) for i, domain in enumerate(domains)]
    return pa.table(arrays, names=[domain.name for domain in domains])
