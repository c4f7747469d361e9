"""A comparison as files: a table in CSV, Markdown and LaTeX, and the page."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flowveil import output
from flowveil.experiments.tables import Sheet, latex, markdown
from flowveil.paths import named_path
from flowveil.publish.spreadsheets import write_csv
from flowveil.report.comparison import render_comparison

if TYPE_CHECKING:
    from flowveil.experiments.comparison import Comparison, Run

FILES = ("comparison.csv", "comparison.md", "comparison.tex", "comparison.html")
INTERNAL = "releases of the same data with different k can be subtracted from each other."

#: (key, head, decimals); the time is not a measure but stands beside them.
_COLUMNS = (
    ("n_cells", "cells", 0),
    ("n_origin_zones", "origin zones", 0),
    ("n_destination_zones", "destination zones", 0),
    ("mean_generalization_error", "error (tiles)", 1),
    ("mean_time_width_h", "width (h)", 2),
    ("generalization_distance_m", "moved (m)", 0),
    ("reconstruction_loss", "reconstruction loss", 3),
    ("distribution_distance", "distribution distance", 3),
    ("suppressed_share", "suppressed", 4),
    ("c_dm", "C_DM", 0),
    ("c_avg", "C_AVG", 2),
    ("k_people", "fewest people", 0),
)

_HEADS = ("method", "k", "protects", "seconds")


def _columns(comparison: Comparison) -> list[tuple[str, str, int]]:
    """The measures of these runs: widths of time are only known where time is folded."""
    folded = any(run.time_weight is not None for run in comparison.runs)
    return [column for column in _COLUMNS if folded or column[0] != "mean_time_width_h"]


def _heads(comparison: Comparison) -> tuple[str, ...]:
    return (*_HEADS, *(head for _, head, _ in _columns(comparison)))


def write_comparison(comparison: Comparison, directory: str | PathLike[str]) -> Path:
    """Write the tables and the page.

    Raises:
        OutputError: the folder holds anything else, or cannot be written.
    """
    folder = named_path(directory, what="the comparison")
    check_folder(folder)
    content = (to_csv(comparison), to_markdown(comparison), to_latex(comparison), to_html(comparison))
    output.write_folder(folder, dict(zip(FILES, content, strict=True)))
    return folder


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that holds anything but a comparison, before anything is run.

    Raises:
        OutputError: it is a file, it holds something else, or it cannot be written.
    """

    def refuse(folder: Path) -> str | None:
        strangers = set(os.listdir(folder)) - set(FILES)
        return f"holds {len(strangers)} entries that are not part of a comparison" if strangers else None

    output.check_folder(directory, refuse=refuse)


def to_table(comparison: Comparison) -> pa.Table:
    """One row a run; full digits; a measure that is withheld is empty and named in the last column but one."""
    runs = comparison.runs
    columns = {
        "method": [run.name for run in runs],
        "k": [run.k for run in runs],
        "protect": [run.protection for run in runs],
        "status": [run.status for run in runs],
        "seconds": [None if run.seconds is None else round(run.seconds, 3) for run in runs],
        "basis": [run.basis for run in runs],
        **{key: [run.measures.get(key) for run in runs] for key, _, _ in _columns(comparison)},
        "withheld": [" ".join(run.withheld) for run in runs],
        "reason": [run.reason for run in runs],
    }
    return pa.table(columns)


def to_csv(comparison: Comparison) -> str:
    """The same as text."""
    out = io.BytesIO()
    write_csv(to_table(comparison), out)
    return out.getvalue().decode("utf-8")


def to_markdown(comparison: Comparison) -> str:
    """The table in Markdown; runs without a result say why in the place of their time."""
    return f"Not for publication: {INTERNAL}\n\n{markdown(_sheet(comparison))}"


def to_latex(comparison: Comparison) -> str:
    """The table in LaTeX."""
    return f"% Not for publication: {INTERNAL}\n{latex(_sheet(comparison))}"


def to_html(comparison: Comparison) -> str:
    """The page."""
    return render_comparison(comparison, heads=_heads(comparison), rows=_sheet(comparison).rows, internal=INTERNAL)


def _sheet(comparison: Comparison) -> Sheet:
    heads, columns = _heads(comparison), _columns(comparison)
    right = frozenset(range(len(heads))) - {0, 2}
    return Sheet(heads, tuple(tuple(_entries(run, columns)) for run in comparison.runs), right=right)


def _entries(run: Run, columns: Sequence[tuple[str, str, int]]) -> list[str]:
    head = [run.name, str(run.k), run.protection]
    if run.seconds is None:
        return [*head, run.status, *("" for _ in columns)]
    return [*head, f"{run.seconds:.2f}", *(_entry(run, key, digits) for key, _, digits in columns)]


def _entry(run: Run, key: str, digits: int) -> str:
    value = run.measures.get(key)
    if value is None:
        return "withheld" if key in run.withheld else "–"
    if key == "suppressed_share":
        return f"{value:.2%}"
    # Nobody reads fifteen digits; the CSV has them.
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.3e}"
