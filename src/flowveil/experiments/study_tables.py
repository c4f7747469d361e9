"""The results of a study as files: tidy tables, and Markdown and LaTeX tables laid out like those of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from flowveil.experiments.tables import Sheet, latex, markdown, text_of
from flowveil.guarantee import UNITS
from flowveil.output import Content, write_files
from flowveil.publish.spreadsheets import write_csv
from flowveil.report.joint import Outcome
from flowveil.report.study import render_study

if TYPE_CHECKING:
    from flowveil.experiments.study import Study

#: Who is protected, in the papers' words where they have some.
_PROTECTED = {"trips": "the participants", "population": "the population"}
_BASES = {"trips": "participants", "weight": "population"}
_MEASURES = ("c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss")
#: How coarse a segment became; less is better for both.
_COARSENESS = ("mean_generalization_error", "generalization_distance_m")

_NAMES = {
    "odkanon": "ODkAnon", "atg-dual": "ATG-Dual", "atg-soft": "ATG-Soft", "oigh": "OIGH", "mondrian": "Mondrian",
    "glove": "Glove", "glove-sk": "Glove-sk", "twincut": "TwinCut", "suppression": "Suppression", "laplace": "Laplace",
    "paircut": "PairCut", "curvecut": "CurveCut",
}  # fmt: skip


def write_study(study: Study, folder: Path) -> None:
    """Write results.parquet, results.csv, tables.md, tables.tex and study.html.

    Raises:
        OutputError: a file cannot be written.
    """
    tidy = tidy_table(study)
    sheets = list(study_sheets(study))
    content: dict[str, Content] = {
        "results.parquet": lambda path: pa.parquet.write_table(tidy, path, compression="zstd"),
        "results.csv": lambda path: write_csv(_flat(tidy), path),
        "tables.md": to_markdown(sheets, study),
        "tables.tex": to_latex(sheets, study),
        "study.html": to_page(sheets, study),
    }
    write_files({folder / name: part for name, part in content.items()})


def tidy_table(study: Study) -> pa.Table:
    """One row for each run and basis, one column for each measure."""
    first = {
        "by": pa.string(), "segment": pa.string(), "method": pa.string(), "protect": pa.string(),
        "basis": pa.string(), "status": pa.string(), "seconds": pa.float64(), "withheld": pa.list_(pa.string()),
    }  # fmt: skip
    names = sorted({name for row in study.rows for name in row} - set(first))
    columns = {name: pa.array([row.get(name) for row in study.rows], kind) for name, kind in first.items()}
    for name in names:
        kind = pa.int64() if name.startswith(("n_", "cells_", "k_trips", "k_people")) else pa.float64()
        columns[name] = pa.array([row.get(name) for row in study.rows], kind)
    return pa.table(columns)


def _flat(table: pa.Table) -> pa.Table:
    joined = pa.array([" ".join(names) for names in table["withheld"].to_pylist()], pa.string())
    return table.set_column(table.schema.get_field_index("withheld"), "withheld", joined)


def study_sheets(study: Study) -> Iterator[Sheet]:
    """The cross-check, then for each segmentation, protection and basis one table, then fairness."""
    yield _cross_check(study)
    bases = [b for b in _BASES if any(row["basis"] == b and row["status"] == "done" for row in study.rows)]
    for by in (None, *study.by):
        for protect in study.protections:
            for basis in bases:
                yield _comparison(study, by, "+".join(protect), basis)
    for by in study.by:
        yield _coarseness(study, by)
        yield _fairness(study, by)


def _of(study: Study, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def _protected(protect: str) -> str:
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


def _cross_check(study: Study) -> Sheet:
    """Table 3 of the report: what protecting one unit does for the others."""
    rows = []
    for protect in study.protections:
        for method in study.methods:
            for row in _of(study, by=None, method=method, protect="+".join(protect), basis="trips"):
                names = [f"{what}_{unit}" for unit in UNITS for what in ("k", "cells_under_k")]
                values = [_entry(row, row.get(name), name) for name in names]
                rows.append((_protected(row["protect"]), _method(method), *values))
    head = ("Protecting", "Method", "k trips", "short", "k people", "short", "k population", "short")
    title = "k-anonymity reached in each unit on the whole data set, and the number of cells short of it"
    return Sheet(head, tuple(rows), title)


def _comparison(study: Study, by: str | None, protect: str, basis: str) -> Sheet:
    rows = []
    for method in study.methods:
        for row in _of(study, by=by, method=method, protect=protect, basis=basis):
            values = [_entry(row, row.get(name), name) for name in _MEASURES]
            where = [] if by is None else [row["segment"]]
            when = [_seconds(row, study.time_limit)] if by is None else []
            rows.append((_method(method), *where, *values, _suppressed(row), *when))
    head = ("Method", *(() if by is None else (by,)), "C_DM", "C_AVG", "G", "E", "suppressed (%)")
    head += ("Time (s)",) if by is None else ()
    what = "on the whole dataset" if by is None else f"segmenting on {by}"
    title = f"Result comparison {what}, protecting {_protected(protect)}, calculating metrics on the {_BASES[basis]}"
    return Sheet(head, tuple(rows), title)


def _coarseness(study: Study, by: str) -> Sheet:
    """How much coarser each segment becomes than everybody together."""
    rows: list[tuple[Any, ...]] = []
    for protect in map("+".join, study.protections):
        for method in study.methods:
            whole = next(iter(_of(study, by=None, method=method, protect=protect, basis="trips")), {})
            for row in _of(study, by=by, method=method, protect=protect, basis="trips"):
                values: list[Any] = []
                for measure in _COARSENESS:
                    own, of_all = row.get(measure), whole.get(measure)
                    values += [_entry(row, own, measure), own / of_all if own is not None and of_all else "-"]
                rows.append((_protected(protect), _method(method), row["segment"], *values, _suppressed(row)))
    head = ("Protecting", "Method", by, "G", "times the whole", "distance (m)", "times the whole", "suppressed (%)")
    title = (
        f"How much coarser each segment by {by} becomes than the whole dataset, calculating metrics on the participants"
    )
    return Sheet(head, tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """How much coarser the worst-served segment becomes than the best-served one."""
    rows: list[tuple[Any, ...]] = []
    for protect in study.protections:
        for method in study.methods:
            runs = _of(study, by=by, method=method, protect="+".join(protect), basis="trips")
            for measure in _COARSENESS:
                known = sorted((r[measure], r["segment"]) for r in runs if r.get(measure) is not None)
                if len(known) < 2:
                    continue
                (best, best_name), (worst, worst_name) = known[0], known[-1]
                ratio = worst / best if best else None
                name = "G" if measure == "mean_generalization_error" else "distance (m)"
                compared = f"{len(known)} of {len(runs)}"
                named = (_protected("+".join(protect)), _method(method), name, compared)
                rows.append((*named, best_name, best, worst_name, worst, ratio))
    head = ("Protecting", "Method", "Measure", "Segments", "Best served", "value", "Worst served", "value", "Ratio")
    title = f"Fairness between segments by {by}: how much coarser the worst-served segment becomes"
    return Sheet(head, tuple(rows), title)


def _method(name: str) -> str:
    return _NAMES.get(name, name)


def _entry(row: dict[str, Any], value: Any, name: str = "") -> Any:
    if row["status"] in ("timeout", "failed"):
        return "N/A"
    if row["status"] == "infeasible":
        return "none"
    if value is None:
        return "withheld" if name in row["withheld"] else "-"
    return value


def _suppressed(row: dict[str, Any]) -> Any:
    """What a run drops, in per cent: beside every measure of how fine it is."""
    share = row.get("suppressed_share")
    return _entry(row, None if share is None else 100 * float(share), "suppressed_share")


def _seconds(row: dict[str, Any], limit: float) -> Any:
    return f">{limit:,.1f}" if row["status"] == "timeout" else (row["seconds"] if row["seconds"] is not None else "-")


# ---- files -------------------------------------------------------------------------------------------------


def to_markdown(sheets: Sequence[Sheet], study: Study) -> str:
    """All tables as Markdown, numbered from 3 like those of the report."""
    lines = ["# Study", "", *(f"- {note}" for note in _notes(study)), ""]
    for number, sheet in enumerate(sheets, 3):
        lines += [f"**Table {number}.** {sheet.title}.", "", markdown(sheet.without_repeats())]
    return "\n".join(lines)


def to_latex(sheets: Sequence[Sheet], study: Study) -> str:
    """All tables as LaTeX, numbered the same way."""
    lines = [*(f"% {note}" for note in _notes(study)), r"\setcounter{table}{2}"]
    return "\n".join([*lines, *(latex(sheet.without_repeats()) for sheet in sheets)])


def to_page(sheets: Sequence[Sheet], study: Study) -> str:
    """Error against what is published, on the whole data set, then all tables, as one page."""
    groups: dict[str, list[Outcome]] = {}
    for row in study.rows:
        share, error = row.get("suppressed_share"), row.get("mean_generalization_error")
        if row["by"] is None and row["basis"] == "trips" and share is not None and error:
            title = f"k = {study.k}, protecting {_protected(row['protect'])}"
            place = study.methods.index(row["method"])
            groups.setdefault(title, []).append(Outcome(_method(row["method"]), place, 1 - float(share), float(error)))
    tables = []
    for sheet in sheets:
        right = [sheet.is_right(i) for i in range(len(sheet.head))]
        rows = [[text_of(value) for value in row] for row in sheet.without_repeats().rows]
        tables.append((sheet.title, sheet.head, rows, right))
    lead = f"{len(study.methods)} methods, k = {study.k}; segments by {', '.join(study.by) or 'nothing'}."
    return render_study(groups, tables, notes=list(_notes(study)), lead=lead, max_suppressed=study.max_suppressed)


def _notes(study: Study) -> Iterator[str]:
    yield f"k = {study.k}; one run may take {study.time_limit:,.0f} seconds; N/A marks runs that took longer or failed."
    yield "'none' marks runs in which nothing can be published, '-' measures that are not defined."
    yield "'withheld' marks measures that would reveal a suppressed value, alone or beside another method's."
    yield "G counts tiles observed in the whole data set, for every segment, so segments can be compared."
    for by, n in sorted(study.n_hidden.items()):
        yield f"{n} segments by {by} hold too little to be named; their trips are in no run."
