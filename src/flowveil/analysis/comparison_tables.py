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
from flowveil.analysis.pages.comparison import render_comparison
from flowveil.analysis.sheets import Sheet, latex, markdown
from flowveil.paths import named_path
from flowveil.private_files import make_private_folder, refuse_inside_release, write_private_files
from flowveil.published.spreadsheets import write_csv

if TYPE_CHECKING:
    from flowveil.analysis.comparison import Comparison, Run

FILES = ("comparison.csv", "comparison.md", "comparison.tex", "comparison.html")
INTERNAL = "measures are exact and computed from raw trips, and releases with different k can be subtracted."

#: (key, head, decimals); shares are shown in percent.
_COLUMNS = (
    ("area_error", "misplaced between areas", 1),
    ("trip_length_ratio", "trip length", 3),
    ("n_cells", "cells", 0),
    ("n_origin_zones", "origin zones", 0),
    ("n_destination_zones", "destination zones", 0),
    ("mean_generalization_error", "error (tiles)", 1),
    ("mean_time_width_h", "width (h)", 2),
    ("generalization_distance_m", "moved (m)", 0),
    ("generalization_distance_median_m", "median (m)", 0),
    ("generalization_distance_std_m", "std. dev. (m)", 0),
    ("reconstruction_loss", "reconstruction loss", 3),
    ("distribution_distance", "distribution distance", 3),
    ("suppressed_share", "suppressed", 2),
    ("c_dm", "C_DM", 0),
    ("c_avg", "C_AVG", 2),
    ("k_people", "fewest people", 0),
)

_SHARES = ("area_error", "suppressed_share")
_HEADS = ("method", "k", "protects", "seconds")
#: What is left for a reader: (beginning of the key, head, as a share of what).
_USEFUL = (
    ("flow_error", "error of flows"),
    ("marginal_error", "error of marginals"),
    ("largest_found", "largest flows found"),
)


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
    write_private_files(make_private_folder(folder), dict(zip(FILES, content, strict=True)))
    return folder


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that holds anything but a comparison, before anything is run.

    Raises:
        OutputError: it is a file, it holds something else, it lies inside a release, or it cannot be written.
    """

    def refuse(folder: Path) -> str | None:
        strangers = set(os.listdir(folder)) - set(FILES)
        return f"holds {len(strangers)} entries that are not part of a comparison" if strangers else None

    refuse_inside_release(directory)
    output.check_folder(directory, refuse=refuse)


def to_table(comparison: Comparison) -> pa.Table:
    """One row a run, with all digits."""
    runs = (*comparison.runs, *comparison.noisy)
    useful = [key for key, _ in _useful_columns(comparison)]
    columns = {
        "method": [run.name for run in runs],
        "k": pa.array([run.k for run in runs], pa.int64()),
        **({"epsilon": [run.epsilon for run in runs]} if comparison.noisy else {}),
        "protect": [run.protection for run in runs],
        "status": [run.status for run in runs],
        "seconds": [None if run.seconds is None else round(run.seconds, 3) for run in runs],
        "basis": [run.basis for run in runs],
        **{key: [run.measures.get(key) for run in runs] for key, _, _ in _columns(comparison)},
        **{key: [run.useful.get(key) for run in runs] for key in useful},
        "reason": [run.reason for run in runs],
        "use": ["not for publication"] * len(runs),
    }
    return pa.table(columns)


def to_csv(comparison: Comparison) -> str:
    """The same as text."""
    out = io.BytesIO()
    write_csv(to_table(comparison), out)
    return out.getvalue().decode("utf-8")


def to_markdown(comparison: Comparison) -> str:
    """The table in Markdown; runs without a result say why in the place of their time."""
    sheets = [sheet for sheet in (_sheet(comparison), useful_sheet(comparison)) if sheet.rows]
    return "\n\n".join((f"Not for publication: {INTERNAL}", *map(markdown, sheets)))


def to_latex(comparison: Comparison) -> str:
    """The table in LaTeX."""
    sheets = [sheet for sheet in (_sheet(comparison), useful_sheet(comparison)) if sheet.rows]
    return "\n".join((f"% Not for publication: {INTERNAL}", *map(latex, sheets)))


def to_html(comparison: Comparison) -> str:
    """The page."""
    sheets = (_sheet(comparison), useful_sheet(comparison))
    return render_comparison(comparison, sheets=sheets, internal=INTERNAL)


def _sheet(comparison: Comparison) -> Sheet:
    heads, columns = _heads(comparison), _columns(comparison)
    right = frozenset(range(len(heads))) - {0, 2}
    return Sheet(heads, tuple(tuple(_entries(run, columns)) for run in comparison.runs), right=right)


def _useful_columns(comparison: Comparison) -> list[tuple[str, str]]:
    """Key and head of what is left for a reader, for each size of the areas that could be compared."""
    known = dict.fromkeys(key for run in (*comparison.runs, *comparison.noisy) for key in run.useful)
    sizes = list(dict.fromkeys(key.rpartition("_")[2] for key in known))
    return [
        (f"{key}_{size}", f"{head}, {size.removesuffix('km')} km")
        for key, head in _USEFUL
        for size in sizes
        if f"{key}_{size}" in known
    ]


def useful_sheet(comparison: Comparison) -> Sheet:
    """What a reader gets of the flows between areas, of methods that merge and of methods that add noise."""
    columns = _useful_columns(comparison)
    rows = [
        (
            run.name,
            run.promise,
            *("" if run.useful.get(key) is None else f"{run.useful[key]:.1%}" for key, _ in columns),
        )
        for run in (*comparison.runs, *comparison.noisy)
        if run.useful or run.epsilon is not None
    ]
    heads = ("method", "promise", *(head for _, head in columns))
    return Sheet(heads, tuple(rows), right=frozenset(range(2, len(heads))))


def _entries(run: Run, columns: Sequence[tuple[str, str, int]]) -> list[str]:
    head = [run.name, str(run.k), run.protection]
    if run.seconds is None:
        return [*head, run.status, *("" for _ in columns)]
    return [*head, f"{run.seconds:.2f}", *(_entry(run, key, digits) for key, _, digits in columns)]


def _entry(run: Run, key: str, digits: int) -> str:
    value = run.measures.get(key)
    if value is None:
        return "–"
    if key in _SHARES:
        return f"{value:.{digits}%}"
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.3e}"
