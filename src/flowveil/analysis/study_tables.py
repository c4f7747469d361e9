"""The tables of a study, the planner's error first: CSV, Parquet, Markdown, LaTeX and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from flowveil.analysis.areas import PLANNER
from flowveil.analysis.experiment import FAILED, INFEASIBLE, TIMED_OUT
from flowveil.analysis.pages.trade_offs import Boxes, Outcome, joint_part, ratios_part
from flowveil.analysis.tables import (
    HEADS,
    NOT_FOR_PUBLICATION,
    SHARES,
    Sheet,
    html_part,
    latex,
    markdown,
    measure_entry,
)
from flowveil.guarantee import UNITS
from flowveil.output import Content, write_files
from flowveil.published.document import page
from flowveil.published.spreadsheets import write_csv

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

WARNING = "exact measures reveal what releases suppress. This study is for the operator alone."

#: Names of protections. The papers say participants and count trips; here participants are people.
_PROTECTED = {"people": "the participants", "population": "the population"}
#: Names of the bases of measures.
_BASES = {"trips": "trips", "weight": "the population"}
_NAMES = {
    "odkanon": "ODkAnon", "atg-dual": "ATG-Dual", "atg-soft": "ATG-Soft", "oigh": "OIGH", "mondrian": "Mondrian",
    "glove": "Glove", "glove-sk": "Glove-sk", "twincut": "TwinCut", "suppression": "Suppression", "laplace": "Laplace",
    "paircut": "PairCut", "curvecut": "CurveCut", "layercut": "LayerCut",
}  # fmt: skip
#: What tables say of the authors' reading.
READING_NOTES = {
    "authors": (
        "Measures are read as the authors' program does: G and E count tiles of the published trips only, and C_DM "
        "counts rows (pairs of tiles) instead of trips.",
    )
}
#: Columns of a table that compares methods, without a preset.
_COLUMNS = (
    *PLANNER, "c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss", "generalization_distance_m",
    "generalization_distance_median_m", "generalization_distance_std_m", "od_dimension", "suppressed_share", "seconds",
)  # fmt: skip


def write_study(study: Study, folder: Path, *, published: Sheet | None = None) -> None:
    """Writes results.parquet, results.csv, tables.md, tables.tex and study.html.

    Args:
        study: the study.
        folder: where files are written.
        published: the table of a paper next to ours, if the study follows one.

    Raises:
        OutputError: a file cannot be written.
    """
    tidy = tidy_table(study)
    sheets = study_sheets(study, published)
    content: dict[str, Content] = {
        "results.parquet": lambda path: pa.parquet.write_table(tidy, path, compression="zstd"),
        "results.csv": lambda path: write_csv(tidy, path),
        "tables.md": to_markdown(sheets, study),
        "tables.tex": to_latex(sheets, study),
        "study.html": to_page(sheets, study),
    }
    write_files({folder / name: part for name, part in content.items()}, private=True)


def tidy_table(study: Study) -> pa.Table:
    """Returns one row for each run and basis, one column for each measure."""
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


def study_sheets(study: Study, published: Sheet | None) -> list[Sheet]:
    """Returns all tables, in order; the title of each says that it is private."""
    sheets = _segment_sheets(study) if study.every is None else _matrix_sheets(study)
    if published is not None and published.rows:
        sheets.append(replace(published, label="P"))
    return [replace(sheet, title=f"{sheet.title} ({NOT_FOR_PUBLICATION})") for sheet in sheets]


def to_markdown(sheets: Sequence[Sheet], study: Study) -> str:
    """Returns all tables in Markdown."""
    lines = ["# Study", "", *(f"- {note}" for note in _notes(study)), ""]
    for sheet in sheets:
        lines += [f"**Table {sheet.label}.** {sheet.title}.", "", markdown(sheet.without_repeats())]
    return "\n".join(lines)


def to_latex(sheets: Sequence[Sheet], study: Study) -> str:
    """Returns all tables in LaTeX, with the same numbers."""
    lines = [f"% {' '.join(note.split())}" for note in _notes(study)]
    for sheet in sheets:
        lines += [rf"\renewcommand{{\thetable}}{{{sheet.label}}}", latex(sheet.without_repeats())]
    return "\n".join(lines)


def to_page(sheets: Sequence[Sheet], study: Study) -> str:
    """Returns charts and all tables as one page."""
    limit, outcomes = study.settings.max_suppressed, _outcomes(study)
    parts = [joint_part(outcomes, max_suppressed=limit)] if any(outcomes.values()) else []
    plots = [] if study.every is None else _ratio_plots(study)
    if any(plot.values for plot in plots):
        parts.append(ratios_part(plots))
    shown = [sheet.without_repeats() for sheet in sheets]
    parts.append(html_part("tables", "Tables", shown, notes=list(_notes(study))))
    segments = f"segments by {', '.join(study.by)}" if study.by else "no segments"
    over = segments if study.every is None else f"steps of {study.every}"
    heading = "Study: methods, protections and segments" if study.every is None else "Study: methods and matrices"
    lead = f"{len(study.methods)} methods, k = {study.k}; {over}."
    return page(title="Study", heading=heading, lead=lead, parts=parts, internal=WARNING)


def _outcomes(study: Study) -> dict[str, list[Outcome]]:
    """Returns published share and error of each run on the whole data set, by protection."""
    groups: dict[str, list[Outcome]] = {}
    for row in study.rows:
        share, error = row.get("suppressed_share"), row.get("mean_generalization_error")
        if row["by"] is None and row["basis"] == "trips" and share is not None and error:
            title = f"k = {study.k}, protecting {protected(row['protect'])}"
            place = study.methods.index(row["method"])
            outcome = Outcome(method_name(row["method"]), place, 1 - float(share), float(error))
            groups.setdefault(title, []).append(outcome)
    return groups


def _notes(study: Study) -> Iterator[str]:
    yield f"{NOT_FOR_PUBLICATION.upper()}: {WARNING}"
    yield "'misplaced' is the share of all trips that a reader misses or misplaces between areas, in percent."
    yield from READING_NOTES.get(study.settings.reading, ())
    if study.preset is not None:
        yield f"Set-up and numbers of the tables: {study.preset.paper}. What that paper does not have is A1, A2, ..."
        if study.every is None:
            yield "Where it speaks of participants it counts trips, and so do these tables."
    limit = f"{study.settings.time_limit:,.0f} seconds"
    yield f"k = {study.k}; one run may take {limit}; N/A marks runs that took longer or failed."
    limits = [
        f"{method_name(name)} {share:.1%}" for name, share in study.settings.limits.items() if name in study.methods
    ]
    yield f"At most {study.settings.max_suppressed:.1%} may be suppressed" + (
        f"; {', '.join(limits)}." if limits else "."
    )
    yield "'none' marks runs in which nothing can be published, '-' measures that are not defined."
    failures = sorted({f"{method_name(row['method'])}: {row['reason']}" for row in study.rows if row.get("reason")})
    yield from (f"No result: {failure}" for failure in failures)
    if study.every is None and study.settings.trees == "own":
        yield "G counts tiles observed in the segment itself, as in the papers: segments cannot be compared by it."
    elif study.every is None:
        yield "G counts tiles observed in the whole data set, for every segment, so segments can be compared."


def protected(protect: str) -> str:
    """Returns the name of a protection."""
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


def method_name(name: str) -> str:
    """Returns the name of a method as papers write it."""
    return _NAMES.get(name, name)


def rows_of(study: Study, **wanted: Any) -> list[dict[str, Any]]:
    """Returns the rows that have these values."""
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def value_of(row: dict[str, Any], name: str, *, time_limit: float) -> Any:
    """Returns the entry of one measure of one run; a suppressed share above the method's limit is marked."""
    if name == "suppressed_share" and row.get(name) is not None and row.get("limit") is not None:
        share, limit = float(row[name]), float(row["limit"])
        if share > limit + 1e-9:
            return f"{100 * share:.1f} (above the limit of {100 * limit:g})"
    if name == "seconds":
        late = row["status"] == TIMED_OUT
        return f">{time_limit:,.1f}" if late else (row["seconds"] if row["seconds"] is not None else "-")
    if name == "od_dimension":
        ends = [row.get("n_origin_zones"), row.get("n_destination_zones")]
        return entry(row, None if None in ends else "×".join(f"{n:,}" for n in ends))
    return entry(row, measure_entry(name, row.get(name)))


def entry(row: dict[str, Any], value: Any) -> Any:
    """Returns a value, or why it is missing."""
    if row["status"] in (TIMED_OUT, FAILED):
        return "N/A"
    if row["status"] == INFEASIBLE:
        return "none"
    return "-" if value is None else value


# ---- segments ----------------------------------------------------------------------------------------------------

#: Measures that compare between segments; less is better. G does not: it counts the tiles of each segment.
_COARSENESS = ("area_error", "generalization_distance_m", "suppressed_share")
#: Numbers of the data set, in the order of the papers.
_DATA_SET = {
    "people": "participants with trips",
    "population": "represented population (sum over participants)",
    "weight": "sum of the weights of all trips",
    "trips": "trips",
    "od_pairs": "unique OD pairs",
    "origin_tiles": "origin tiles",
    "destination_tiles": "destination tiles",
    "tiles": "tiles",
}


def _segment_sheets(study: Study) -> list[Sheet]:
    """Returns all tables; those of a paper first, with its numbers, then others as A1, A2, ..."""
    sheets = [sheet for sheet in _numbered(study) if sheet.rows]
    if study.preset is None:
        return [replace(sheet, label=str(number)) for number, sheet in enumerate(sheets, 1)]
    of_paper, others = [s for s in sheets if s.label], [s for s in sheets if not s.label]
    return [*of_paper, *(replace(sheet, label=f"A{number}") for number, sheet in enumerate(others, 1))]


def _numbered(study: Study) -> Iterator[Sheet]:
    """Yields the data set, the cross-check, a table for each segmentation, protection and basis, then fairness."""
    paper = study.preset

    def label(kind: str) -> str:
        return (paper.label(kind) if paper is not None else None) or ""

    if study.data:
        yield replace(_data_set(study), label=label("data"))
    if label("overview"):
        yield replace(_overview(study), label=label("overview"))
    else:
        yield replace(_cross_check(study), label=label("cross_check"))
        yield from _comparisons(study)
    for by in study.by:
        yield _coarseness(study, by)
        yield _fairness(study, by)


def _data_set(study: Study) -> Sheet:
    rows = [(words, study.data[name]) for name, words in _DATA_SET.items() if name in study.data]
    return Sheet(("", "value"), tuple(rows), "The data set")


def _cross_check(study: Study) -> Sheet:
    """Returns Table 3 of the report: the k reached in each unit."""
    rows = []
    for protect in study.protections:
        for method in study.methods:
            for row in rows_of(study, by=None, method=method, protect=protect, basis="trips"):
                names = [f"{what}_{unit}" for unit in UNITS for what in ("k", "cells_under_k")]
                values = [entry(row, row.get(name)) for name in names]
                rows.append((protected(row["protect"]), method_name(method), *values))
    head = ("Protecting", "Method", *(name for unit in UNITS for name in (f"k {unit}", "below")))
    title = "k-anonymity reached in each unit on the whole data set, and the number of cells below the threshold"
    return Sheet(head, tuple(rows), title)


def _overview(study: Study) -> Sheet:
    """Returns Table 2 of the abstract: the whole data set and every segment, for each protection."""
    columns = _columns(study)
    rows = []
    for protect in study.protections:
        for row in rows_of(study, protect=protect, basis="trips"):
            values = [value_of(row, name, time_limit=study.settings.time_limit) for name in columns]
            rows.append((protected(protect), row["segment"] or "all", method_name(row["method"]), *values))
    head = ("Protecting", "Data", "Method", *(HEADS[name] for name in columns))
    return Sheet(head, tuple(rows), "Result comparison by protection and segment, calculating metrics on trips")


def _columns(study: Study) -> tuple[str, ...]:
    """Returns the measures of tables: the planner's error first, then those of the paper, or all."""
    return _COLUMNS if study.preset is None else ("area_error", *study.preset.columns, "suppressed_share", "seconds")


def _comparisons(study: Study) -> Iterator[Sheet]:
    bases = [b for b in _BASES if any(row["basis"] == b and row["status"] == "done" for row in study.rows)]
    for place, by in enumerate((None, *study.by)):
        for protect in study.protections:
            for basis in bases:
                label = study.preset and study.preset.label_of_comparison(place, protect, basis)
                yield replace(_comparison(study, by, protect, basis), label=label or "")


def _comparison(study: Study, by: str | None, protect: str, basis: str) -> Sheet:
    # The papers time whole data sets only.
    columns = [name for name in _columns(study) if by is None or study.preset is None or name != "seconds"]
    rows = []
    for method in study.methods:
        for row in rows_of(study, by=by, method=method, protect=protect, basis=basis):
            values = [value_of(row, name, time_limit=study.settings.time_limit) for name in columns]
            rows.append((method_name(method), *(() if by is None else (row["segment"],)), *values))
    head = ("Method", *(() if by is None else (by,)), *(HEADS[name] for name in columns))
    what = "on the whole dataset" if by is None else f"segmenting on {by}"
    title = f"Result comparison {what}, protecting {protected(protect)}, calculating metrics on {_BASES[basis]}"
    return Sheet(head, tuple(rows), title)


def _coarseness(study: Study, by: str) -> Sheet:
    """Returns the accuracy of each segment next to that of the whole data set."""
    rows: list[tuple[Any, ...]] = []
    for protect in study.protections:
        for method in study.methods:
            whole = next(iter(rows_of(study, by=None, method=method, protect=protect, basis="trips")), {})
            for row in rows_of(study, by=by, method=method, protect=protect, basis="trips"):
                values: list[Any] = []
                for measure in _COARSENESS:
                    own, of_all = row.get(measure), whole.get(measure)
                    shown = value_of(row, measure, time_limit=study.settings.time_limit)
                    values += [shown, own / of_all if own is not None and of_all else "-"]
                rows.append((protected(protect), method_name(method), row["segment"], *values))
    measured = (text for name in _COARSENESS for text in (HEADS[name], "times the whole"))
    head = ("Protecting", "Method", by, *measured)
    title = f"Accuracy of each segment by {by} next to the whole dataset, in measures that can be compared"
    return Sheet(head, tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """Returns the ratio of the worst-served segment to the best-served one."""
    rows: list[tuple[Any, ...]] = []
    for protect in study.protections:
        for method in study.methods:
            runs = rows_of(study, by=by, method=method, protect=protect, basis="trips")
            for measure in _COARSENESS:
                known = sorted((r[measure], r["segment"]) for r in runs if r.get(measure) is not None)
                if len(known) < 2:
                    continue
                (best, best_name), (worst, worst_name) = known[0], known[-1]
                ratio = worst / best if best else None
                name = HEADS[measure]
                compared = f"{len(known)} of {len(runs)}"
                if measure in SHARES:
                    best, worst = 100 * best, 100 * worst
                named = (protected(protect), method_name(method), name, compared)
                rows.append((*named, best_name, best, worst_name, worst, ratio))
    head = ("Protecting", "Method", "Measure", "Segments", "Best served", "value", "Worst served", "value", "Ratio")
    title = f"Fairness between segments by {by}, in measures that can be compared (G cannot)"
    return Sheet(head, tuple(rows), title)


# ---- matrices ----------------------------------------------------------------------------------------------------

#: The method that ratios refer to.
_REFERENCE = "atg-dual"
#: Measures with a mean over matrices.
_MEASURES = (
    "area_error",
    "mean_generalization_error",
    "reconstruction_loss",
    "distribution_distance",
    "seconds",
    "suppressed_share",
)
#: Measures of figure 12.
_RATIOS = {
    "area_error": "Misplaced between areas",
    "mean_generalization_error": "Mean generalisation error G",
    "reconstruction_loss": "Reconstruction loss E",
    "distribution_distance": "Distribution distance D",
    "seconds": "Time",
}
_DATA = {
    "matrices": "#matrices",
    "matrices_run": "of them run",
    "tiles": "#tiles",
    "mean_od_pairs": "average #flows",
    "density": "density (%)",
    "mean_trips": "average volume",
    "safe_od_pairs": "anon. flows (%)",
    "safe_trips": "anon. vol. (%)",
}


def _matrix_sheets(study: Study) -> list[Sheet]:
    """Returns Tables 2, 3, 5 and 6 of the paper, then quartiles and ratios. Table 4 is Table 3 of larger data."""
    sheets = [replace(_matrix_data(study), label="2")]
    for place, protect in enumerate(study.protections):
        more = "" if place == 0 else f", {place + 1}"
        sheets += [
            replace(_means(study, protect), label=f"3{more}"),
            replace(_targets(study, protect), label=f"5{more}"),
            replace(_detailed(study, protect), label=f"6{more}"),
            replace(_quartiles(study, protect), label=f"A1{more}"),
            replace(_ratio_sheet(study, protect), label=f"A2{more}"),
        ]
    return [sheet for sheet in sheets if sheet.rows]


def _ratio_plots(study: Study) -> list[Boxes]:
    """Returns the ratios of every method to the reference, matrix by matrix, for each measure."""
    protect = study.protections[0]
    return [
        Boxes(title, _reference(study), [(method_name(m), v) for m, v in _ratios(study, protect, measure).items()])
        for measure, title in _RATIOS.items()
    ]


def _reference(study: Study) -> str:
    return method_name(_REFERENCE if _REFERENCE in study.methods else study.methods[0])


def _values(study: Study, protect: str, method: str, measure: str) -> dict[str, float]:
    """Returns the known values of a measure, by time step."""
    basis = "weight" if "population" in protect.split("+") else "trips"
    rows = rows_of(study, method=method, protect=protect, basis="trips" if method == "laplace" else basis)
    return {row["segment"]: float(row[measure]) for row in rows if row.get(measure) is not None}


def matrix_means(study: Study, method: str, protect: str) -> dict[str, float]:
    """Returns the known means of a method over all matrices; ``seconds`` is the sum."""
    if method not in study.methods:
        return {}
    values = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
    means = {measure: float(np.mean(known)) for measure, known in values.items() if known}
    return means | ({"seconds": sum(values["seconds"])} if values["seconds"] else {})


def _matrix_data(study: Study) -> Sheet:
    values = [study.data[name] * (100 if name in SHARES else 1) for name in _DATA]
    return Sheet(tuple(_DATA.values()), (tuple(values),), f"The data set: matrices of {study.every}")


def _means(study: Study, protect: str) -> Sheet:
    """Returns Table 3: means over all matrices, and the sum of times."""
    rows = []
    for method in study.methods:
        means = matrix_means(study, method, protect)
        values = [measure_entry(name, means.get(name)) for name in (*_MEASURES[:4], "seconds", "suppressed_share")]
        rows.append((method_name(method), *values, len(_values(study, protect, method, "seconds"))))
    head = ("solver", HEADS["area_error"], "G", "E", "D", "time (s)", "S (%)", "matrices")
    return Sheet(head, tuple(rows), f"Performance, means over matrices, protecting {protected(protect)}; time of all")


def _targets(study: Study, protect: str) -> Sheet:
    """Returns Table 5: quartiles of the v_target of matrices; the paper searched for one that suits all."""
    rows = []
    for method in study.methods:
        values = list(_values(study, protect, method, "v_target").values())
        if values:
            quartiles = [float(q) for q in np.quantile(values, (0.25, 0.5, 0.75))]
            rows.append((method_name(method), study.k, *quartiles))
    head = ("solver", "k", "first quartile", "median", "third quartile")
    return Sheet(head, tuple(rows), f"v_target of the matrices, protecting {protected(protect)}")


def _detailed(study: Study, protect: str) -> Sheet:
    """Returns Table 6: the same means, with the time as hours, minutes and seconds."""
    rows = []
    for method in study.methods:
        means = matrix_means(study, method, protect)
        clock = _clock(means["seconds"]) if "seconds" in means else "-"
        values = [measure_entry(name, means.get(name)) for name in (*_MEASURES[:4], "suppressed_share")]
        rows.append((method_name(method), clock, *values))
    return Sheet(("solver", "time", HEADS["area_error"], "G", "E", "D", "S (%)"), tuple(rows), "Detailed results")


def _quartiles(study: Study, protect: str) -> Sheet:
    rows = []
    for measure in _MEASURES:
        for method in study.methods:
            values = np.array(list(_values(study, protect, method, measure).values()))
            if len(values):
                scale = 100 if measure in SHARES else 1
                quartiles = [float(q) for q in scale * np.quantile(values, (0.25, 0.5, 0.75))]
                row = (method_name(method), len(values), float(scale * values.mean()), *quartiles)
                rows.append((HEADS[measure], *row))
    head = ("measure", "solver", "matrices", "mean", "first quartile", "median", "third quartile")
    return Sheet(head, tuple(rows), f"Means and quartiles over matrices, protecting {protected(protect)}")


def _ratios(study: Study, protect: str, measure: str) -> dict[str, list[float]]:
    """Returns ratios of each method to the reference, on matrices where both values are above 0."""
    reference = _REFERENCE if _REFERENCE in study.methods else study.methods[0]
    base = _values(study, protect, reference, measure)
    found = {}
    for method in study.methods:
        own = _values(study, protect, method, measure)
        shared = [own[step] / base[step] for step in own if base.get(step, 0) > 0 and own[step] > 0]
        if method != reference and shared:
            found[method] = shared
    return found


def _ratio_sheet(study: Study, protect: str) -> Sheet:
    """Returns the numbers of the box plots."""
    rows = []
    for measure, title in _RATIOS.items():
        for method, values in _ratios(study, protect, measure).items():
            quartiles = [float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))]
            rows.append((title, method_name(method), len(values), *quartiles))
    head = ("measure", "solver", "matrices", "smallest", "first quartile", "median", "third quartile", "largest")
    title = f"Ratio to {_reference(study)}, matrix by matrix (figure 12), protecting {protected(protect)}"
    return Sheet(head, tuple(rows), title)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
