"""The tables of a study, the planner's error first, with published results of the papers next to ours."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import chain, groupby, product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from flowveil.analysis.areas import PLANNER
from flowveil.analysis.experiment import FAILED, INFEASIBLE, TIMED_OUT
from flowveil.analysis.pages.trade_offs import joint_part, marks_of
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
from flowveil.published.charts import Mark, box_chart
from flowveil.published.document import Figure, Part, fill, page
from flowveil.published.spreadsheets import write_csv

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

Row = dict[str, Any]
WARNING = "exact measures reveal what releases suppress. This study is for the operator alone."

#: Names of protections. The papers say participants and count trips; here participants are people.
_PROTECTED = {"people": "the participants", "population": "the population"}
#: What tables show where a run has no release.
_MISSING = {TIMED_OUT: "N/A", FAILED: "N/A", INFEASIBLE: "none"}
#: Names of the bases of measures.
_BASES = {"trips": "trips", "weight": "the population"}
_NAMES = {
    "odkanon": "ODkAnon", "atg-dual": "ATG-Dual", "atg-soft": "ATG-Soft", "oigh": "OIGH", "mondrian": "Mondrian",
    "glove": "Glove", "glove-sk": "Glove-sk", "twincut": "TwinCut", "suppression": "Suppression", "laplace": "Laplace",
    "paircut": "PairCut", "curvecut": "CurveCut", "layercut": "LayerCut", "cellkey": "Cell keys",
    "rounding": "Rounding",
}  # fmt: skip
#: Columns of a table that compares methods, without a preset.
_COLUMNS = (
    *PLANNER, "c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss", "generalization_distance_m",
    "generalization_distance_median_m", "generalization_distance_std_m", "od_dimension", "suppressed_share", "seconds",
)  # fmt: skip


def write_study(study: Study, folder: Path) -> None:
    """Writes results.parquet, results.csv, tables.md, tables.tex and study.html."""
    tidy, sheets = tidy_table(study), study_sheets(study)
    text, tex = ["# Study", "", *(f"- {note}" for note in _notes(study)), ""], [f"% {note}" for note in _notes(study)]
    for sheet in sheets:
        text += [f"**Table {sheet.label}.** {sheet.title}.", "", markdown(sheet.without_repeats())]
        tex += [rf"\renewcommand{{\thetable}}{{{sheet.label}}}", latex(sheet.without_repeats())]
    content: dict[str, Content] = {
        "results.parquet": lambda path: pa.parquet.write_table(tidy, path, compression="zstd"),
        "results.csv": lambda path: write_csv(tidy, path),
        "tables.md": "\n".join(text),
        "tables.tex": "\n".join(tex),
        "study.html": _page(sheets, study),
    }
    write_files({folder / name: part for name, part in content.items()}, private=True)


def tidy_table(study: Study) -> pa.Table:
    """Returns one row for each run and basis, one column for each measure."""
    first = dict.fromkeys(("by", "segment", "method", "protect", "basis", "status", "reason"), pa.string())
    first["seconds"] = pa.float64()
    columns = {"use": pa.array([NOT_FOR_PUBLICATION] * len(study.rows))}
    columns |= {name: pa.array([row.get(name) for row in study.rows], kind) for name, kind in first.items()}
    for name in sorted({name for row in study.rows for name in row} - set(first)):
        kind = pa.int64() if name.startswith(("n_", "cells_", "k_trips", "k_people")) else pa.float64()
        columns[name] = pa.array([row.get(name) for row in study.rows], kind)
    return pa.table(columns)


def study_sheets(study: Study) -> list[Sheet]:
    """Returns all tables, in order; the title of each says that it is private."""
    sheets = _segment_sheets(study) if study.every is None else _matrix_sheets(study)
    published = published_sheet(study)
    if published.rows:
        sheets.append(replace(published, label="P"))
    return [replace(sheet, title=f"{sheet.title} ({NOT_FOR_PUBLICATION})") for sheet in sheets]


def _page(sheets: Sequence[Sheet], study: Study) -> str:
    """Returns charts of the runs on the whole data set, by protection, and all tables as one page."""
    groups: dict[str, list[Mark]] = {}
    for row in rows_of(study, by=None, basis="trips"):
        marks = groups.setdefault(f"k = {study.k}, protecting {_protected(row['protect'])}", [])
        marks += marks_of(_named(row["method"]), row, study.methods.index(row["method"]))
    tables = html_part("tables", "Tables", [sheet.without_repeats() for sheet in sheets], notes=list(_notes(study)))
    charts = [joint_part(groups, max_suppressed=study.settings.max_suppressed)] if any(groups.values()) else []
    charts += [] if study.every is None else _ratio_part(study)
    segments = f"segments by {', '.join(study.by)}" if study.by else "no segments"
    over = segments if study.every is None else f"steps of {study.every}"
    heading = "Study: methods, protections and segments" if study.every is None else "Study: methods and matrices"
    lead = f"{len(study.methods)} methods, k = {study.k}; {over}."
    return page(title="Study", heading=heading, lead=lead, parts=[*charts, tables], internal=WARNING)


def _notes(study: Study) -> Iterator[str]:
    settings = study.settings
    yield f"{NOT_FOR_PUBLICATION.upper()}: {WARNING}"
    yield "'misplaced' is the share of all trips that a reader misses or misplaces between areas, in percent."
    if settings.reading == "authors":
        yield (
            "Measures are read as the authors' program does: G and E count tiles of the published trips only, and C_DM "
            "counts rows (pairs of tiles) instead of trips."
        )
    if study.preset is not None:
        yield f"Set-up and numbers of the tables: {study.preset.paper}. What that paper does not have is A1, A2, ..."
        if study.every is None:
            yield "Where it speaks of participants it counts trips, and so do these tables."
    limit = f"{settings.time_limit:,.0f} seconds"
    yield f"k = {study.k}; one run may take {limit}; N/A marks runs that took longer or failed."
    limits = [f"; {_named(name)} {share:.1%}" for name, share in settings.limits.items() if name in study.methods]
    yield f"At most {settings.max_suppressed:.1%} may be suppressed{''.join(limits)}."
    yield "'none' marks runs in which nothing can be published, '-' measures that are not defined."
    failures = sorted({f"{_named(row['method'])}: {row['reason']}" for row in study.rows if row.get("reason")})
    yield from (" ".join(f"No result: {failure}".split()) for failure in failures)
    if study.every is None and settings.trees == "own":
        yield "G counts tiles observed in the segment itself, as in the papers: segments cannot be compared by it."
    elif study.every is None:
        yield "G counts tiles observed in the whole data set, for every segment, so segments can be compared."


def _protected(protect: str) -> str:
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


def _named(method: str) -> str:
    """Returns the name of a method as papers write it."""
    return _NAMES.get(method, method)


#: Entries that say what a run is.
_LEAD: dict[str, Callable[[Row], Any]] = {
    "Protecting": lambda row: _protected(row["protect"]),
    "Data": lambda row: row["segment"] or "all",
    "Method": lambda row: _named(row["method"]),
}


def rows_of(study: Study, **wanted: Any) -> list[Row]:
    """Returns the rows that have these values."""
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def _grid(study: Study, by: str | None) -> Iterator[tuple[str, str, list[Row]]]:
    """Yields each protection and method, with its rows on trips."""
    for protect, method in product(study.protections, study.methods):
        yield protect, method, rows_of(study, by=by, method=method, protect=protect, basis="trips")


def _value_of(study: Study, row: Row, name: str) -> Any:
    """Returns the entry of one measure of one run; a suppressed share above the method's limit is marked."""
    if name == "suppressed_share" and row.get(name) is not None and row.get("limit") is not None:
        share, limit = float(row[name]), float(row["limit"])
        if share > limit + 1e-9:
            return f"{100 * share:.1f} (above the limit of {100 * limit:g})"
    if name == "seconds":
        late = row["status"] == TIMED_OUT
        return f">{study.settings.time_limit:,.1f}" if late else ("-" if row[name] is None else row[name])
    if row["status"] in _MISSING:
        return _MISSING[row["status"]]
    if name == "od_dimension":
        ends = [row.get("n_origin_zones"), row.get("n_destination_zones")]
        return "-" if None in ends else "×".join(f"{n:,}" for n in ends)
    return measure_entry(name, row.get(name))


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

    def label(kind: str) -> str:
        return (study.preset.label(kind) if study.preset is not None else None) or ""

    if study.data:
        rows = [(words, study.data[name]) for name, words in _DATA_SET.items() if name in study.data]
        yield Sheet(("", "value"), tuple(rows), "The data set", label=label("data"))
    if label("overview"):
        yield replace(_overview(study), label=label("overview"))
    else:
        yield replace(_cross_check(study), label=label("cross_check"))
        bases = [b for b in _BASES if rows_of(study, basis=b, status="done")]
        for by, protect, basis, number in _comparisons(study):
            if basis in bases:
                yield replace(_comparison(study, by, protect, basis), label=number)
    for by in study.by:
        yield _coarseness(study, by)
        yield _fairness(study, by)


def _comparisons(study: Study) -> Iterator[tuple[str | None, str, str, str]]:
    """Yields attribute, protection, basis and number of each table that compares methods."""
    for (place, by), protect, basis in product(enumerate((None, *study.by)), study.protections, _BASES):
        number = study.preset and study.preset.label_of_comparison(place, protect, basis)
        yield by, protect, basis, number or ""


def _table(study: Study, rows: Iterable[Row], lead: Sequence[str], columns: Mapping[str, str], title: str) -> Sheet:
    """Returns a row for each run: what it is, by the names of `_LEAD` or an attribute, and its measures."""
    get = [_LEAD.get(name, itemgetter("segment")) for name in lead]
    values = ((*(of(row) for of in get), *(_value_of(study, row, name) for name in columns)) for row in rows)
    return Sheet((*lead, *columns.values()), tuple(values), title)


def _cross_check(study: Study) -> Sheet:
    """Returns Table 3 of the report: the k reached in each unit."""
    columns = {
        f"{what}_{unit}": head for unit in UNITS for what, head in (("k", f"k {unit}"), ("cells_under_k", "below"))
    }
    rows = (row for _, _, found in _grid(study, None) for row in found)
    title = "k-anonymity reached in each unit on the whole data set, and the number of cells below the threshold"
    return _table(study, rows, ("Protecting", "Method"), columns, title)


def _overview(study: Study) -> Sheet:
    """Returns Table 2 of the abstract: the whole data set and every segment, for each protection."""
    rows = (row for protect in study.protections for row in rows_of(study, protect=protect, basis="trips"))
    title = "Result comparison by protection and segment, calculating metrics on trips"
    return _table(study, rows, ("Protecting", "Data", "Method"), _columns(study), title)


def _columns(study: Study) -> dict[str, str]:
    """Returns the measures of tables with their heads: the planner's error first, then those of the paper, or all."""
    paper = study.preset
    names = _COLUMNS if paper is None else ("area_error", *paper.columns, "suppressed_share", "seconds")
    return {name: HEADS[name] for name in names}


def _comparison(study: Study, by: str | None, protect: str, basis: str) -> Sheet:
    columns = _columns(study)
    if by is not None and study.preset is not None:
        # The papers time whole data sets only.
        del columns["seconds"]
    found = (rows_of(study, by=by, method=method, protect=protect, basis=basis) for method in study.methods)
    what = "on the whole dataset" if by is None else f"segmenting on {by}"
    title = f"Result comparison {what}, protecting {_protected(protect)}, calculating metrics on {_BASES[basis]}"
    return _table(study, chain.from_iterable(found), ("Method", *([by] if by else [])), columns, title)


def _coarseness(study: Study, by: str) -> Sheet:
    """Returns the accuracy of each segment next to that of the whole data set."""
    rows: list[tuple[Any, ...]] = []
    for protect, method, runs in _grid(study, by):
        whole = next(iter(rows_of(study, by=None, method=method, protect=protect, basis="trips")), {})
        for row in runs:
            values: list[Any] = []
            for measure in _COARSENESS:
                here, of_all = row.get(measure), whole.get(measure)
                values += [_value_of(study, row, measure), here / of_all if here is not None and of_all else "-"]
            rows.append((_protected(protect), _named(method), row["segment"], *values))
    measured = (text for name in _COARSENESS for text in (HEADS[name], "times the whole"))
    title = f"Accuracy of each segment by {by} next to the whole dataset, in measures that can be compared"
    return Sheet(("Protecting", "Method", by, *measured), tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """Returns the ratio of the worst-served segment to the best-served one."""
    rows: list[tuple[Any, ...]] = []
    for protect, method, runs in _grid(study, by):
        for measure in _COARSENESS:
            known = sorted((r[measure], r["segment"]) for r in runs if r.get(measure) is not None)
            if len(known) < 2:
                continue
            (best, _), (worst, _) = known[0], known[-1]
            served = [entry for value, name in (known[0], known[-1]) for entry in (name, measure_entry(measure, value))]
            named = (_protected(protect), _named(method), HEADS[measure], f"{len(known)} of {len(runs)}")
            rows.append((*named, *served, worst / best if best else None))
    head = ("Protecting", "Method", "Measure", "Segments", "Best served", "value", "Worst served", "value", "Ratio")
    title = f"Fairness between segments by {by}, in measures that can be compared (G cannot)"
    return Sheet(head, tuple(rows), title)


#: The method that ratios refer to.
_REFERENCE = "atg-dual"
#: Measures with a mean over matrices.
_MEASURES = (
    "area_error", "mean_generalization_error", "reconstruction_loss", "distribution_distance", "seconds",
    "suppressed_share",
)  # fmt: skip
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
_QUARTILES = {0.25: "first quartile", 0.5: "median", 0.75: "third quartile"}
_ALL_QUARTILES = {0.0: "smallest", **_QUARTILES, 1.0: "largest"}


def _matrix_sheets(study: Study) -> list[Sheet]:
    """Returns Tables 2, 3, 5 and 6 of the paper, then quartiles and ratios. Table 4 is Table 3 of larger data."""
    data = tuple(measure_entry(name, study.data[name]) for name in _DATA)
    sheets = [Sheet(tuple(_DATA.values()), (data,), f"The data set: matrices of {study.every}", label="2")]
    for place, protect in enumerate(study.protections):
        more = "" if place == 0 else f", {place + 1}"
        made = {"3": _means, "5": _targets, "6": _detailed, "A1": _quartiles, "A2": _ratio_sheet}
        sheets += [replace(make(study, protect), label=f"{label}{more}") for label, make in made.items()]
    return [sheet for sheet in sheets if sheet.rows]


def _values(study: Study, protect: str, method: str, measure: str) -> dict[str, float]:
    """Returns the known values of a measure, by time step."""
    basis = (
        "weight" if "population" in protect.split("+") and study.settings.methods[method].promises == "k" else "trips"
    )
    rows = rows_of(study, method=method, protect=protect, basis=basis)
    return {row["segment"]: float(row[measure]) for row in rows if row.get(measure) is not None}


def matrix_means(study: Study, method: str, protect: str) -> dict[str, float]:
    """Returns the known means of a method over all matrices; ``seconds`` is the sum."""
    values = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
    means = {measure: float(np.mean(known)) for measure, known in values.items() if known}
    return means | ({"seconds": sum(values["seconds"])} if values["seconds"] else {})


def _means(study: Study, protect: str) -> Sheet:
    """Returns Table 3: means over all matrices, and the sum of times."""
    rows = []
    for method in study.methods:
        means = matrix_means(study, method, protect)
        values = [measure_entry(name, means.get(name)) for name in _MEASURES]
        rows.append((_named(method), *values, len(_values(study, protect, method, "seconds"))))
    head = ("solver", HEADS["area_error"], "G", "E", "D", "time (s)", "S (%)", "matrices")
    return Sheet(head, tuple(rows), f"Performance, means over matrices, protecting {_protected(protect)}; time of all")


def _detailed(study: Study, protect: str) -> Sheet:
    """Returns Table 6: the same means, with the time as hours, minutes and seconds."""
    rows = []
    for method, *values, time, suppressed, _ in _means(study, protect).rows:
        s = 0 if time == "-" else round(time)
        clock = time if time == "-" else f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}"
        rows.append((method, clock, *values, suppressed))
    return Sheet(("solver", "time", HEADS["area_error"], "G", "E", "D", "S (%)"), tuple(rows), "Detailed results")


def _quantiles(values: Any, at: dict[float, str]) -> Any:
    return np.quantile(values, tuple(at)).tolist()


def _targets(study: Study, protect: str) -> Sheet:
    """Returns Table 5: quartiles of the v_target of matrices; the paper searched for one that suits all."""
    found = {method: list(_values(study, protect, method, "v_target").values()) for method in study.methods}
    rows = [(_named(method), study.k, *_quantiles(values, _QUARTILES)) for method, values in found.items() if values]
    title = f"v_target of the matrices, protecting {_protected(protect)}"
    return Sheet(("solver", "k", *_QUARTILES.values()), tuple(rows), title)


def _quartiles(study: Study, protect: str) -> Sheet:
    rows = []
    for measure, method in product(_MEASURES, study.methods):
        values = np.array(list(_values(study, protect, method, measure).values()))
        if len(values):
            values = (100 if measure in SHARES else 1) * values
            numbers = (float(values.mean()), *_quantiles(values, _QUARTILES))
            rows.append((HEADS[measure], _named(method), len(values), *numbers))
    head = ("measure", "solver", "matrices", "mean", *_QUARTILES.values())
    return Sheet(head, tuple(rows), f"Means and quartiles over matrices, protecting {_protected(protect)}")


def _ratio_part(study: Study) -> list[Part]:
    """Returns box plots of the ratios of every method to the reference (figure 12); empty without ratios."""
    reference, figures = _named(_reference(study)), []
    for title, rows in groupby(_ratio_sheet(study, study.protections[0]).rows, key=itemgetter(0)):
        chart = box_chart({row[1]: row[3:] for row in rows}, title=title, reference=reference)
        figures.append(Figure(title, f"Times that of {reference}; above the line is worse.", [("", chart)]))
    title = f"Against {reference}, matrix by matrix"
    return [Part("ratios", title, fill("charts.html", figures=figures))] if figures else []


def _reference(study: Study) -> str:
    return _REFERENCE if _REFERENCE in study.methods else study.methods[0]


def _ratio_sheet(study: Study, protect: str) -> Sheet:
    """Returns quartiles of the ratio of each method to the reference, on matrices where both values are above 0."""
    reference, rows = _reference(study), []
    for (measure, title), method in product(_RATIOS.items(), study.methods):
        base, values = (_values(study, protect, name, measure) for name in (reference, method))
        shared = [value / base[step] for step, value in values.items() if base.get(step, 0) > 0 and value > 0]
        if method != reference and shared:
            rows.append((title, _named(method), len(shared), *_quantiles(shared, _ALL_QUARTILES)))
    title = f"Ratio to {_named(reference)}, matrix by matrix (figure 12), protecting {_protected(protect)}"
    return Sheet(("measure", "solver", "matrices", *_ALL_QUARTILES.values()), tuple(rows), title)


#: Trips of the papers' data sets, to recognise other data.
_TRIPS = {
    "odkanon-abstract": 81_291, "odkanon-report": 81_291, "odkanon-thesis": 81_289, "odkanon-turin": 873_234,
    "odkanon-porto": 1_674_160,
}  # fmt: skip


class Published(NamedTuple):
    """One published number."""

    preset: str
    table: str
    segment: str
    method: str
    measure: str
    value: float


@cache
def published_results() -> tuple[Published, ...]:
    """Returns all published numbers."""
    text = files("flowveil.analysis").joinpath("published_results.csv").read_text("utf-8")
    return tuple(Published._make([*row[:5], float(row[5])]) for row in list(csv.reader(text.splitlines()))[1:])


def published_sheet(study: Study) -> Sheet:
    """Returns every published number that the study has a result for: ours, theirs, the ratio and the reason."""
    ours, rows = _our_results(study), []
    for entry in published_results():
        # ATG-Soft of the ODkAnon papers limits suppression: it is ATG-Dual.
        is_port = entry.preset != "matet-2023" and entry.method == "atg-soft" and "atg-dual" in study.methods
        method = "atg-dual" if is_port else entry.method
        segment = _segment_key(entry.segment) if study.every is None else entry.segment
        table = _table_of(study, entry)
        own = ours.get((table, segment, method), {})
        value = own.get(entry.measure)
        if value is not None:
            name = _named(method) + (f" (published: {_named(entry.method)})" if is_port else "")
            values = (measure_entry(entry.measure, one) for one in (float(value), entry.value))
            what = (table.split()[0], name, entry.segment or "all", HEADS[entry.measure])
            ratio = value / entry.value if entry.value else None
            differs = ratio is None or abs(ratio - 1) > 0.01
            reason = "; ".join(_reasons(study, entry, own.get("protect", ""))) if differs else ""
            rows.append((*what, *values, "-" if ratio is None else ratio, reason))
    head = ("Table", "Method", "Data", "Measure", "ours", "published", "ratio", "why they differ")
    return Sheet(head, tuple(rows), "Our results next to the published ones")


def _our_results(study: Study) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Returns our measures by the number of the paper's table, segment and method; empty without a preset."""
    paper = study.preset
    if paper is None:
        return {}
    if paper.published is not None:
        _, table, data = paper.published
        return {(table, data, method): matrix_means(study, method, study.protections[0]) for method in study.methods}
    tables = list(_comparisons(study))
    if paper.overview is not None:
        words = {"trips": "participants", "population": "population"}
        tables = [(by, p, "trips", f"{paper.overview} {words[p]}") for by in (None, *study.by) for p in words]
    return {
        (label, _segment_key(row["segment"] or ""), row["method"]): row
        for by, protect, basis, label in tables
        for row in rows_of(study, by=by, protect=protect, basis=basis)
        if label
    }


def _table_of(study: Study, entry: Published) -> str:
    """Returns the number of a table, or "". The thesis repeats the segments of the report, two numbers further."""
    if study.preset is None:
        return ""
    preset, published = study.preset.name, study.preset.published
    of_thesis = entry.preset == "odkanon-thesis" and preset in ("odkanon-turin", "odkanon-porto")
    if entry.preset == (preset if published is None else published[0]) or of_thesis:
        return entry.table
    if preset == "odkanon-thesis" and entry.preset == "odkanon-report" and int(entry.table) >= 8:
        return f"5.{int(entry.table) + 2}"
    return ""


def _segment_key(text: str) -> str:
    """Returns a key by which spellings of sex and age groups agree: F, M, or the decade of the lowest age."""
    number = re.search(r"\d+", text)
    if number:
        return str(int(number[0]) // 10 * 10)
    first = text[:1].upper()
    return "F" if first == "W" else first


def _reasons(study: Study, entry: Published, protect: str) -> Iterator[str]:
    trips = study.data.get("trips")
    if study.every is not None or study.preset is None or trips != _TRIPS.get(study.preset.name):
        yield "other data"
    if entry.measure == "seconds":
        yield "other machine and code"
        return
    if entry.preset != "matet-2023" and entry.method.startswith("atg"):
        yield "the paper's ATG is a port with H3 resolutions for areas and a limit on suppression, as ATG-Dual has"
    if study.settings.reading != "authors":
        if entry.method == "odkanon" and entry.measure in ("mean_generalization_error", "reconstruction_loss"):
            yield (
                "the authors build the trees after suppression (on equal zones G 517 for our 541, E 1.854 for 1.897): "
                "--reading authors"
            )
        if entry.measure == "c_dm":
            yield "the authors count rows, not trips: --reading authors"
    if "population" in protect and study.settings.k_population is None:
        yield "the authors' threshold is 26,742, from the mean weight before cutting Paris out: --reading authors"
