"""The results of a study as files: tidy tables, and Markdown, LaTeX and a page laid out like the papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from flowveil.analysis.pages.joint import Outcome
from flowveil.analysis.pages.study import Drawn, render_study
from flowveil.analysis.published_results import published_sheet
from flowveil.analysis.sheets import Sheet, latex, markdown, text_of
from flowveil.analysis.study_sheets import (
    NOT_FOR_PUBLICATION,
    matrix_sheets,
    method_name,
    protected,
    ratios,
    segment_sheets,
)
from flowveil.output import Content, write_files
from flowveil.published.spreadsheets import write_csv

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

WARNING = "exact measures reveal what releases suppress. This study is for the operator alone."


def write_study(study: Study, folder: Path) -> None:
    """Write results.parquet, results.csv, tables.md, tables.tex and study.html.

    Raises:
        OutputError: a file cannot be written.
    """
    tidy = tidy_table(study)
    sheets = study_sheets(study)
    content: dict[str, Content] = {
        "results.parquet": lambda path: pa.parquet.write_table(tidy, path, compression="zstd"),
        "results.csv": lambda path: write_csv(tidy, path),
        "tables.md": to_markdown(sheets, study),
        "tables.tex": to_latex(sheets, study),
        "study.html": to_page(sheets, study),
    }
    write_files({folder / name: part for name, part in content.items()}, private=True)


def tidy_table(study: Study) -> pa.Table:
    """One row for each run and basis, one column for each measure; each row says that it is private."""
    first = {
        "by": pa.string(), "segment": pa.string(), "method": pa.string(), "protect": pa.string(),
        "basis": pa.string(), "status": pa.string(), "reason": pa.string(), "seconds": pa.float64(),
    }  # fmt: skip
    names = sorted({name for row in study.rows for name in row} - set(first))
    columns = {"use": pa.array([NOT_FOR_PUBLICATION] * len(study.rows))}
    columns |= {name: pa.array([row.get(name) for row in study.rows], kind) for name, kind in first.items()}
    for name in names:
        kind = pa.int64() if name.startswith(("n_", "cells_", "k_trips", "k_people")) else pa.float64()
        columns[name] = pa.array([row.get(name) for row in study.rows], kind)
    return pa.table(columns)


def study_sheets(study: Study) -> list[Sheet]:
    """All tables, in order; the title of each says that it is private."""
    sheets = segment_sheets(study) if study.every is None else matrix_sheets(study)
    compared = published_sheet(study)
    if compared.rows:
        sheets.append(replace(compared, label="P"))
    return [replace(sheet, title=f"{sheet.title} ({NOT_FOR_PUBLICATION})") for sheet in sheets]


def to_markdown(sheets: Sequence[Sheet], study: Study) -> str:
    """All tables as Markdown."""
    lines = ["# Study", "", *(f"- {note}" for note in _notes(study)), ""]
    for sheet in sheets:
        lines += [f"**Table {sheet.label}.** {sheet.title}.", "", markdown(sheet.without_repeats())]
    return "\n".join(lines)


def to_latex(sheets: Sequence[Sheet], study: Study) -> str:
    """All tables as LaTeX, numbered the same way."""
    lines = [f"% {note}" for note in _notes(study)]
    for sheet in sheets:
        lines += [rf"\renewcommand{{\thetable}}{{{sheet.label}}}", latex(sheet.without_repeats())]
    return "\n".join(lines)


def to_page(sheets: Sequence[Sheet], study: Study) -> str:
    """Charts, then all tables, as one page."""
    tables = []
    for sheet in sheets:
        right = [sheet.is_right(i) for i in range(len(sheet.head))]
        rows = [[text_of(value) for value in row] for row in sheet.without_repeats().rows]
        tables.append((sheet.label, sheet.title, sheet.head, rows, right))
    segments = f"segments by {', '.join(study.by)}" if study.by else "no segments"
    over = segments if study.every is None else f"steps of {study.every}"
    drawn = Drawn(
        groups=_outcomes(study),
        ratios=None if study.every is None else ratios(study),
        max_suppressed=study.setting.max_suppressed,
    )
    return render_study(
        drawn,
        tables,
        notes=list(_notes(study)),
        lead=f"{len(study.methods)} methods, k = {study.k}; {over}.",
        internal=WARNING,
    )


def _outcomes(study: Study) -> dict[str, list[Outcome]]:
    """Error against what is published, on the whole data set, by what is protected."""
    groups: dict[str, list[Outcome]] = {}
    for row in study.rows:
        share, error = row.get("suppressed_share"), row.get("mean_generalization_error")
        if row["by"] is None and row["basis"] == "trips" and share is not None and error:
            title = f"k = {study.k}, protecting {protected(row['protect'])}"
            place = study.methods.index(row["method"])
            found = Outcome(method_name(row["method"]), place, 1 - float(share), float(error))
            groups.setdefault(title, []).append(found)
    return groups


def _notes(study: Study) -> Iterator[str]:
    yield f"{NOT_FOR_PUBLICATION.upper()}: {WARNING}"
    yield "'misplaced' is the share of all trips that a reader misses or misplaces between areas, in percent."
    if study.preset is not None:
        yield f"Set-up and numbers of the tables: {study.preset.paper}. What that paper does not have is A1, A2, ..."
        if study.every is None:
            yield "Where it speaks of participants it counts trips, and so do these tables."
    yield f"k = {study.k}; one run may take {study.time_limit:,.0f} seconds; N/A marks runs that took longer or failed."
    limits = [
        f"{method_name(name)} {share:.1%}" for name, share in study.setting.limits.items() if name in study.methods
    ]
    yield f"At most {study.setting.max_suppressed:.1%} may be suppressed" + (
        f"; {', '.join(limits)}." if limits else "."
    )
    yield "'none' marks runs in which nothing can be published, '-' measures that are not defined."
    failures = sorted({f"{method_name(row['method'])}: {row['reason']}" for row in study.rows if row.get("reason")})
    yield from (f"No result: {failure}" for failure in failures)
    if study.every is None and study.setting.trees == "own":
        yield "G counts tiles observed in the segment itself, as in the papers: segments cannot be compared by it."
    elif study.every is None:
        yield "G counts tiles observed in the whole data set, for every segment, so segments can be compared."
