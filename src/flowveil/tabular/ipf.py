"""Synthetic records from noisy margins: iterative proportional fitting with differential privacy
(Raab 2022).

Only the noisy counts depend on the data; everything after them is post-processing
(docs/tabular/ipf.md). The guarantee: neighbouring tables differ by one record, which changes one
cell of each of M margins by 1. So discrete Laplace noise of scale M/ε on every cell, empty ones
included, is ε-differentially private. Discrete Gaussian noise of deviation σ is ρ-zCDP with ρ =
M/(2σ²). Not covered, and stated as public: variables, margins, categories, edges of bins, ε, and a
declared number of records. A person with several records is protected at ε times their number; one
record replaced is 2ε-private (2ρ-zCDP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import ParameterError
from flowveil.methods.discrete_noise import Bits, DiscreteGaussian, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import check_epsilon, gaussian_deviation, noise_scale, weakness
from flowveil.tabular.domains import code_variable
from flowveil.tabular.junction import JunctionModel, JunctionTree, Margin, build_junction_tree
from flowveil.tabular.records import as_table, check_columns

#: A table of the model may have this many cells; all tables together are held in memory.
MAX_CELLS = 10_000_000
#: Noise so large that counts mean nothing.
LARGEST_SCALE = 1e6
#: Largest standard deviation of an estimated number of records: noise alone must not fill the
#: memory.
LARGEST_SPREAD = 1e6
#: With a larger δ, a few records of a survey could be published unchanged within the guarantee.
LARGEST_DELTA = 1e-5
#: A gap at which a fit ends.
TOLERANCE = 1e-10
_DISTRIBUTIONS = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}


@dataclass(frozen=True)
class Mechanism:
    """Noise that satisfies (ε, δ)-differential privacy for one record added or removed.

    Δ is 0 with Laplace noise.

    One record changes M margins by M in total (L1, scales Laplace noise) and by √M in length (L2,
    scales Gaussian).
    """

    kind: str
    epsilon: float
    delta: float

    @classmethod
    def from_options(
        cls, noise: str, epsilon: float | None, delta: float | None
    ) -> Mechanism | None:
        """Return the mechanism of a request, None without ε.

        ParameterError if noise, ε and δ do not fit.
        """
        if noise not in _DISTRIBUTIONS:
            raise ParameterError(
                f"noise must be one of {', '.join(_DISTRIBUTIONS)}; found {noise!r}."
            )
        if epsilon is None:
            if noise != "laplace" or delta is not None:
                raise ParameterError("Without epsilon no noise is added: omit noise and delta.")
            return None
        check_epsilon(epsilon)
        if noise == "laplace":
            if delta is not None:
                raise ParameterError(
                    "Laplace noise needs no delta. Hint: noise='gaussian' (--noise gaussian)."
                )
        elif delta is None or isinstance(delta, bool) or not 0 < delta <= LARGEST_DELTA:
            raise ParameterError(
                f"Gaussian noise needs a delta above 0 and at most {LARGEST_DELTA:g}; found"
                f" {delta!r}. Hint: well below one over the number of records, such as 1e-6."
            )
        return cls(noise, float(epsilon), float(delta or 0.0))

    def scale(self, n_margins: int) -> float:
        """Scale of Laplace noise, standard deviation of Gaussian noise.

        Rounded up, so never less noise.
        """
        if self.kind == "laplace":
            return noise_scale(n_margins, self.epsilon)
        return gaussian_deviation(n_margins, self.epsilon, self.delta)

    def release(self, counts: Numbers, n_margins: int, bits: Bits) -> Numbers:
        """Add exact noise to the counts, drawn from a source of random bits."""
        scale = Fraction(self.scale(n_margins))
        sampler = DiscreteLaplace(scale) if self.kind == "laplace" else DiscreteGaussian(scale**2)
        return counts + sampler.draw(len(counts), bits)


@dataclass(frozen=True, eq=False)
class Synthesis:
    """Synthetic records, plain data about their guarantee, and the model.

    Everything here may be published.

    In the report ``private`` is False without ε and with the test seed, and ``n_cells`` is that of
    the full cross-tabulation. Noisy margins contradict each other, so with ε the ``gap`` of the
    `fit` stays above zero.
    """

    table: pa.Table
    report: dict[str, Any]
    fitted: JunctionModel = field(repr=False)


def _statement(report: Mapping[str, Any]) -> str:
    """Return one paragraph for the reader of the release."""
    epsilon, delta, noise = report["epsilon"], report["delta"], report["noise"]
    if epsilon is None:
        return (
            "Synthetic records drawn from a model of the original margins, without noise: NOT"
            " differentially private. Rare combinations of the original may show."
        )
    if not report["private"]:
        return "TEST RUN with predictable noise: NOT private, not for publication."
    weak = weakness(epsilon)
    public = " All categories were declared beforehand."
    if report["categories_read_from_the_data"]:
        read = ", ".join(report["categories_read_from_the_data"])
        public = (
            f" The categories of {read} were read from the data and are assumed to be public"
            " knowledge."
        )
    estimated = report["n_records_from"] == "noisy margins"
    count = (
        "estimated from the noisy margins" if estimated else "declared beforehand and not protected"
    )
    guarantee = f"({epsilon:g}, {delta:g})" if delta else f"{epsilon:g}"
    return (
        f"{guarantee}-differentially private for adding or removing one record: {noise['law']}"
        f" noise of {'standard deviation' if delta else 'scale'} {noise['scale']:g} on every cell"
        f" of {len(report['margins'])} margins. The number of records is"
        f" {count}.{public}{' ' + weak if weak else ''} Not protected: what is true of a population"
        " whether or not a person is in the data, and a person with several records beyond "
        + (
            "the composition of several such guarantees."
            if delta
            else "epsilon times their number."
        )
    )


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions:
    """Options of a synthesis.

    With ε, categories that are read from the data are assumed to be public. The number of records
    is estimated from the noisy margins unless it is declared; without ε it is that of the original.
    """

    variables: Sequence[str] | None = (
        None  # columns to synthesise; by default those of the margins, or all
    )
    margins: Sequence[Sequence[str]] | None = (
        None  # columns whose joint counts are kept; by default all pairs
    )
    prior_count: float = 0.0  # records spread evenly over the cells of each margin
    noise: str = "laplace"  # or ``gaussian`` for (ε, δ)
    delta: float | None = (
        None  # δ with Gaussian noise, at most 1e-5; well below one over the number of records
    )
    domains: Mapping[str, Sequence[Any]] | None = (
        None  # categories of columns; None among them allows missing values
    )
    bins: Mapping[str, Sequence[float]] | None = (
        None  # increasing edges; the last bin holds its upper edge
    )
    domains_from_data: bool = False  # read undeclared categories from the data
    n_records: int | None = None  # number of records to draw, declared public
    max_cells: int = MAX_CELLS  # cells of the largest table the fit may use
    max_cycles: int = 1_000  # largest number of rounds of the fit
    seed: int | None = (
        None  # without ε, for a repeatable synthesis; noise that can be repeated can be removed
    )
    unsafe_test_seed: int | None = (
        None  # seeds the noise, for tests; the result is marked as not private
    )

    def check(self, epsilon: float | None) -> None:
        """Raise ParameterError if an option is out of range, or does not fit ε."""
        if not (isfinite(self.prior_count) and self.prior_count >= 0):
            raise ParameterError(f"The prior count must be at least 0; found {self.prior_count!r}.")
        if self.n_records is not None and (isinstance(self.n_records, bool) or self.n_records < 1):
            raise ParameterError(
                f"The number of records must be at least 1; found {self.n_records!r}."
            )
        if epsilon is not None and self.seed is not None:
            raise ParameterError(
                "A seed is refused with epsilon: an attacker who knows it can subtract the noise."
                " Hint: omit it."
            )
        if epsilon is None and self.unsafe_test_seed is not None:
            raise ParameterError("Without epsilon no noise is added; use the ordinary seed.")


def synthesize_records(records: Any, *, epsilon: float | None, **options: Any) -> Synthesis:
    """Draw synthetic records from a model fitted to (noisy) margins.

    Args:
        records: a pyarrow, pandas or polars table.
        epsilon: the privacy budget, at most 20 (above 10 with a warning); None for a synthesis
            without privacy.
        **options: see `Options`.

    Raises:
        ParameterError: a parameter is out of range, or the margins need too large a table (the
            message says which).
        DataError: a column is absent or holds values outside its declared categories.
    """
    asked = SynthesisOptions(**options)
    mechanism = Mechanism.from_options(asked.noise, epsilon, asked.delta)
    asked.check(epsilon)
    table = as_table(records)
    named = _margins(table, asked)
    chosen = list(asked.variables or dict.fromkeys(name for margin in named for name in margin))
    from_data = asked.domains_from_data or epsilon is None
    declared = {"domains": asked.domains, "bins": asked.bins}
    coded = [code_variable(table, name, **declared, from_data=from_data) for name in chosen]
    wanted: list[Margin] = [tuple(sorted(chosen.index(name) for name in m)) for m in named]
    tree = build_junction_tree([len(values) for values, _ in coded], wanted)
    _refuse_large(tree, wanted, chosen, asked.max_cells)
    if mechanism is not None:
        _refuse_noise(tree.shape, wanted, mechanism, asked.n_records)
    generator = np.random.default_rng(asked.seed if epsilon is None else asked.unsafe_test_seed)
    counts = [_count(tree.shape, margin, [codes for _, codes in coded]) for margin in wanted]
    noisy = (
        counts
        if mechanism is None
        else _add_noise(counts, mechanism, random_bits(asked.unsafe_test_seed))
    )
    # With ε the original number of records is not used.
    n, source = (
        (table.num_rows, "original")
        if epsilon is None
        else (_estimated_total(noisy), "noisy margins")
    )
    if asked.n_records is not None:
        n, source = int(asked.n_records), "declared"
    model = JunctionModel(tree)
    targets = [
        _normalised(np.maximum(margin + asked.prior_count / margin.size, 0.0)) for margin in noisy
    ]
    # Noisy margins contradict each other. A hundredth of a record is far below the noise and the
    # spread of the sample.
    settled = TOLERANCE * 1e-2 if epsilon is None else 1e-2 / n
    gap, cycles, converged = fit(
        model, wanted, targets, settled=settled, max_cycles=asked.max_cycles
    )
    drawn = model.sample(n, generator)
    made = [values.take(pa.array(drawn[:, i])) for i, (values, _) in enumerate(coded)]
    known = {**(asked.domains or {}), **(asked.bins or {})}
    read = [name for name in chosen if mechanism is not None and known.get(name) is None]
    noise = mechanism and {
        "law": _DISTRIBUTIONS[mechanism.kind],
        "scale": mechanism.scale(len(named)),
    }
    report: dict[str, Any] = {
        "method": "ipf",
        "epsilon": None if epsilon is None else float(epsilon),
        "delta": mechanism and mechanism.delta,
        "private": epsilon is not None and asked.unsafe_test_seed is None,
        "margins": [list(m) for m in named],
        "noise": noise,
        "prior_count": float(asked.prior_count),
        "n_cells": prod(tree.shape),
        "n_records": n,
        "n_records_from": source,
        "categories_read_from_the_data": read,
        "fit": {"gap": gap, "cycles": cycles, "converged": converged},
    }
    return Synthesis(
        pa.table(made, names=chosen), {**report, "statement": _statement(report)}, model
    )


def _margins(table: pa.Table, asked: SynthesisOptions) -> list[tuple[str, ...]]:
    """Return the margins to keep, checked; by default all pairs of the chosen variables."""
    margins = None if asked.margins is None else [tuple(margin) for margin in asked.margins]
    named = (
        table.column_names
        if margins is None
        else dict.fromkeys(name for margin in margins for name in margin)
    )
    chosen = list(named if asked.variables is None else asked.variables)
    check_columns(table, chosen, "to synthesise")
    if not chosen:
        raise ParameterError("No variable is named; at least one is needed.")
    if len(set(chosen)) != len(chosen):
        raise ParameterError("A variable is named twice.")
    if margins is None:
        return list(combinations(chosen, 2)) if len(chosen) > 1 else [(chosen[0],)]
    for margin in margins:
        if not margin or len(set(margin)) != len(margin):
            raise ParameterError(
                f"The margin '{'*'.join(margin)}' is empty or names a variable twice."
            )
        strange = [name for name in margin if name not in chosen]
        if strange:
            raise ParameterError(
                f"The margin '{'*'.join(margin)}' names '{strange[0]}', which is not a variable."
            )
    if len({frozenset(margin) for margin in margins}) != len(margins):
        raise ParameterError("A margin is named twice; each costs its share of the privacy budget.")
    lonely = [name for name in chosen if not any(name in margin for margin in margins)]
    if lonely:
        raise ParameterError(
            f"Variables in no margin: {', '.join(lonely)}. Hint: add a margin, if only the variable"
            " alone, or leave the variable out."
        )
    return margins


def _refuse_large(
    tree: JunctionTree, margins: list[Margin], names: Sequence[str], max_cells: int
) -> None:
    """Raise if the margins need too large a table.

    The message names those that fit, small ones first. Uses no data.
    """
    if max(tree.cells()) <= max_cells:
        return
    kept: list[Margin] = []
    for margin in sorted(margins, key=lambda m: (prod(tree.shape[v] for v in m), m)):
        if max(build_junction_tree(tree.shape, [*kept, margin]).cells()) <= max_cells:
            kept.append(margin)
    dropped = [m for m in margins if m not in kept]
    # The shorter list is the one a reader can act on.
    verb, listed = (
        ("drop the margins", dropped) if len(dropped) <= max(len(kept), 10) else ("keep only", kept)
    )
    largest = tree.cliques[int(np.argmax(tree.cells()))]
    raise ParameterError(
        f"These margins tie together {', '.join(names[v] for v in largest)}, whose table has "
        f"{max(tree.cells()):,} cells; at most {max_cells:,} are allowed. "
        f"Hint: {verb} {', '.join('*'.join(names[v] for v in m) for m in listed)}."
    )


def _refuse_noise(
    shape: tuple[int, ...], margins: list[Margin], mechanism: Mechanism, n_records: int | None
) -> None:
    """Raise if the noise exceeds the counts or their number. Uses no data."""
    scale = mechanism.scale(len(margins))
    # Scales are rounded up by a bit: not a reason to refuse.
    if scale > LARGEST_SCALE * (1 + 1e-9):
        raise ParameterError(
            f"Noise of scale {scale:,.0f} for {len(margins)} margins exceeds the counts; at most "
            f"{LARGEST_SCALE:,.0f} is allowed. Hint: fewer margins or a larger epsilon."
        )
    if n_records is not None:
        return
    # The estimate's standard deviation: noisy totals of all margins, weighted as in
    # `_estimated_total`.
    deviation = scale * (sqrt(2) if mechanism.kind == "laplace" else 1.0)
    spread = deviation / sqrt(sum(1 / prod(shape[v] for v in m) for m in margins))
    if spread > LARGEST_SPREAD:
        raise ParameterError(
            f"The number of records would be estimated with a standard deviation of {spread:,.0f};"
            f" at most {LARGEST_SPREAD:,.0f} is allowed, because noise alone would decide how many"
            " are drawn. Hint: declare the number (--records), or use fewer margins, fewer"
            " categories or a larger epsilon."
        )


def _count(shape: tuple[int, ...], margin: Margin, codes: Sequence[Numbers]) -> Numbers:
    size = [shape[v] for v in margin]
    cell = np.ravel_multi_index([codes[v] for v in margin], size)
    return np.bincount(cell, minlength=prod(size)).reshape(size)


def _add_noise(counts: list[Numbers], mechanism: Mechanism, bits: Bits) -> list[Numbers]:
    """Return every cell of every margin with noise."""
    noisy = mechanism.release(np.concatenate([c.ravel() for c in counts]), len(counts), bits)
    parts = np.split(noisy, np.cumsum([c.size for c in counts])[:-1])
    return [part.reshape(c.shape) for part, c in zip(parts, counts, strict=True)]


def _estimated_total(noisy: Sequence[Numbers]) -> int:
    """Estimate the number of records from the noisy totals, weighted by inverse variance."""
    weight = np.array([1 / m.size for m in noisy])
    total = np.array([float(m.sum()) for m in noisy])
    return max(1, round(float(np.sum(weight * total) / np.sum(weight))))


def _normalised(table: Floats) -> Floats:
    """The distribution of a table; uniform if no cell is above zero, which noise may leave."""
    total = table.sum()
    return table / total if total > 0 else np.full(table.shape, 1.0 / table.size)


def fit(
    model: JunctionModel,
    margins: Sequence[Margin],
    targets: Sequence[Floats],
    *,
    settled: float,
    tolerance: float = TOLERANCE,
    max_cycles: int = 1_000,
) -> tuple[float, int, bool]:
    """Iterative proportional fitting: rescale to one margin after the other until nothing changes.

    Margins that agree are all met in the limit. Noisy ones contradict each other; then the rounds
    settle into a cycle, and the differences before each rescaling no longer change. Returns the gap
    (largest absolute difference between fitted and target probability), rounds, and whether it
    settled.
    """
    before: Any = np.inf
    converged = False
    cycles = 0
    while cycles < max_cycles and not converged:
        cycles += 1
        pairs = zip(margins, targets, strict=True)
        now = np.array(
            [float(np.max(np.abs(model.fit_margin(m, target) - target))) for m, target in pairs]
        )
        converged = bool(now.max() <= tolerance or np.max(np.abs(now - before)) <= settled)
        before = now
    for table in model.tables:
        # Cells that one margin forbids take probability with them when another is fitted last.
        table[...] = _normalised(table)
    gap = max(
        float(np.max(np.abs(model.margin(m) - target)))
        for m, target in zip(margins, targets, strict=True)
    )
    return gap, cycles, converged
