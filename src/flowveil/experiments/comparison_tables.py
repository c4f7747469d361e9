"""A comparison as files: a table in CSV, Markdown and LaTeX, and the page."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from flowveil.errors import OutputError
from flowveil.output import Draft, real_place, try_place
from flowveil.paths import named_path
from flowveil.publish.spreadsheets import encoded
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
    ("generalization_distance_m", "moved (m)", 0),
    ("reconstruction_loss", "reconstruction loss", 3),
    ("distribution_distance", "distribution distance", 3),
    ("suppressed_share", "suppressed", 4),
    ("c_dm", "C_DM", 0),
    ("c_avg", "C_AVG", 2),
    ("k_people", "fewest people", 0),
)


def write_comparison(comparison: Comparison, directory: str | PathLike[str]) -> Path:
    """Write the tables and the page.

    Raises:
        OutputError: the folder holds anything else, or cannot be written.
    """
    folder = named_path(directory, what="the comparison")
    check_folder(folder)
    content = {
        "comparison.csv": to_csv(comparison),
        "comparison.md": to_markdown(comparison),
        "comparison.tex": to_latex(comparison),
        "comparison.html": to_html(comparison),
    }
    try:
        with Draft(folder) as draft:
            draft.new.mkdir()
            for name, body in content.items():
                (draft.new / name).write_text(body, encoding="utf-8", newline="")
            draft.take_place()
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise OutputError(f"The comparison cannot be written into '{directory}': {reason}.") from problem
    return folder


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that holds anything but a comparison, before anything is run.

    Raises:
        OutputError: it is a file, it holds something else, or it cannot be written.
    """
    folder = real_place(directory)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed.")
    strangers = sorted(set(os.listdir(folder)) - set(FILES)) if folder.is_dir() else []
    if strangers:
        raise OutputError(
            f"'{directory}' holds {len(strangers)} entries that are not part of a comparison. Hint: name a new folder."
        )
    try_place(directory)


# ---- tables ------------------------------------------------------------------------------------------------------


def to_csv(comparison: Comparison) -> str:
    """One row a run; full digits; a measure that is withheld is empty and named in the last column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["method", "k", "protect", "status", "seconds", "basis", *(key for key, _, _ in _COLUMNS), "withheld", "reason"]
    )
    for run in comparison.runs:
        seconds = "" if run.seconds is None else f"{run.seconds:.3f}"
        values = ["" if run.measures.get(key) is None else run.measures[key] for key, _, _ in _COLUMNS]
        head = [run.method, run.k, run.protection, run.status, seconds, run.basis]
        row = [*head, *values, " ".join(run.withheld), run.reason or ""]
        writer.writerow([encoded(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()


def _rows(comparison: Comparison) -> Iterable[list[str]]:
    for run in comparison.runs:
        head = [run.method, str(run.k), run.protection]
        if run.seconds is None:
            yield [*head, run.status, *("" for _ in _COLUMNS)]
        else:
            yield [*head, f"{run.seconds:.2f}", *(_entry(run, key, digits) for key, _, digits in _COLUMNS)]


def _entry(run: Run, key: str, digits: int) -> str:
    value = run.measures.get(key)
    if value is None:
        return "withheld" if key in run.withheld else "–"
    if key == "suppressed_share":
        return f"{value:.2%}"
    # Nobody reads fifteen digits; the CSV has them.
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.3e}"


_HEADS = ("method", "k", "protects", "seconds", *(head for _, head, _ in _COLUMNS))


def to_markdown(comparison: Comparison) -> str:
    """The table in Markdown; runs without a result say why in the place of their time."""
    lines = [
        f"Not for publication: {INTERNAL}",
        "",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * 3 + "---:|" * (len(_HEADS) - 3),
    ]
    lines += ["| " + " | ".join(entries) + " |" for entries in _rows(comparison)]
    return "\n".join(lines) + "\n"


def to_latex(comparison: Comparison) -> str:
    """The table in LaTeX (booktabs)."""
    lines = [
        f"% Not for publication: {INTERNAL}",
        r"\begin{tabular}{lrl" + "r" * (len(_HEADS) - 3) + "}",
        r"\toprule",
        " & ".join(_latex(head) for head in _HEADS) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(_latex(entry) for entry in entries) + r" \\" for entries in _rows(comparison)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex(entry: str) -> str:
    for found, wanted in (
        ("\\", r"\textbackslash{}"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("&", r"\&"),
        ("–", "--"),
        ("#", r"\#"),
    ):
        entry = entry.replace(found, wanted)
    return entry


def to_html(comparison: Comparison) -> str:
    """The page."""
    return render_comparison(comparison, heads=_HEADS, rows=list(_rows(comparison)), internal=INTERNAL)
