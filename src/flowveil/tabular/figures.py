"""The trade-off plots: discernibility over k (Figures 2 and 3), propensity and uniques over ε (Figure 4).

With diagnostics also Cook's distance and leverage of the records (Figures 5 and 6).
"""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import MissingExtraError
from flowveil.output import Content

if TYPE_CHECKING:
    from flowveil.tabular.compare import Comparison


def figures(comparison: Comparison) -> dict[str, Content]:
    """The files ``strict.png``, ``relaxed.png`` and ``synthesis.png``; with diagnostics those of single records.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawing = _figure_class()
    drawn = {name: _discernibility(drawing, getattr(comparison, name), name) for name in ("strict", "relaxed")}
    drawn["synthesis"] = _synthesis(drawing, comparison.synthesis)
    checks = comparison.diagnostics
    if checks is not None:
        for name, title in (("cooks_distance", "Cook's distance"), ("leverage", "Leverage")):
            drawn[name] = _by_record(drawing, getattr(checks, name), checks.thresholds[name], title)
    return {f"{name}.png": partial(_save, figure) for name, figure in drawn.items()}


def _figure_class() -> Any:
    try:
        # The figure class alone: pyplot would look for a screen.
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise MissingExtraError(
            "Figures need matplotlib, which is not installed. Hint: pip install 'flowveil[tabular]'."
        ) from None


def _save(figure: Any, path: Path) -> None:
    # No date or version inside: the same numbers give the same bytes.
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _discernibility(figure_class: Any, table: Any, name: str) -> Any:
    figure = figure_class(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(table["k"].to_pylist(), table["c_dm"].to_pylist(), marker="o")
    axes.set_xticks(table["k"].to_pylist())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("k (more private to the right)")
    axes.set_ylabel("discernibility C_DM (more useful below)")
    axes.set_title(f"Mondrian, {name} partitioning")
    axes.grid(alpha=0.3)
    return figure


def _synthesis(figure_class: Any, table: Any) -> Any:
    rows = table.to_pylist()
    figure = figure_class(figsize=(7, 7), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    budgets = list(dict.fromkeys(row["epsilon"] for row in rows))
    # No privacy at all belongs at the far end of the axis, after the largest budget.
    budgets = [*(e for e in budgets if e is not None), *(e for e in budgets if e is None)]
    for prior in dict.fromkeys(row["prior_count"] for row in rows):
        of_prior = {row["epsilon"]: row for row in rows if row["prior_count"] == prior}
        shown = [e for e in budgets if e in of_prior]
        place = [budgets.index(e) for e in shown]
        for axes, key in ((upper, "s_pmse"), (lower, "ru_of_unique")):
            axes.plot(place, [of_prior[e][key] for e in shown], marker="o", label=f"prior count {prior:g}")
    upper.set_ylabel("standardised pMSE (more useful below)")
    upper.set_title("IPF synthesis")
    upper.legend()
    lower.set_ylabel("replicated uniques,\n% of the original's (more private below)")
    lower.set_xticks(range(len(budgets)), ["none" if e is None else f"{e:g}" for e in budgets])
    lower.set_xlabel("ε (less private to the right)")
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    return figure


def _by_record(figure_class: Any, values: Any, threshold: float, title: str) -> Any:
    figure = figure_class(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.vlines(range(len(values)), 0, values, linewidth=0.4)
    axes.axhline(threshold, color="tab:red", label=f"threshold {threshold:.2g}")
    axes.set_xlabel("record, in the order of the table")
    axes.set_ylabel(title)
    axes.set_title(f"{title} of the original's records")
    axes.legend()
    return figure
