"""The tables of a study, the planner's error first, with published results of the papers next to
ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, product
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from flowveil.analysis.areas import PLANNER
from flowveil.analysis.experiment import FAILED, INFEASIBLE, TIMED_OUT
from flowveil.analysis.pages.trade_offs import joint_part, marks_of
from flowveil.analysis.paper_results import (
    Results,
    find_data_set,
    published_sheet,
    segment_key,
)
from flowveil.analysis.random_groups import random_label
from flowveil.analysis.tables import (
    HEADS,
    NOT_FOR_PUBLICATION,
    SHARES,
    Sheet,
    html_part,
    latex,
    markdown,
    measure_entry,
    method_name,
    protected_name,
)
from flowveil.core.guarantee import UNITS
from flowveil.published.charts import Mark, box_chart
from flowveil.published.document import Figure, PagePart, fill, page
from flowveil.published.spreadsheets import write_csv
from flowveil.system.output import Content, write_files

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

Row = dict[str, Any]
WARNING = "exact measures reveal what releases suppress. This study is for the operator alone."

#: What tables show where a run has no release.
_MISSING = {TIMED_OUT: "N/A", FAILED: "N/A", INFEASIBLE: "none"}
#: How the ODkAnon papers call the protections in one table of both.
_PAPER_WORDS = {"trips": "participants", "population": "population"}
#: Names of the bases of measures.
_BASES = {"trips": "trips", "weight": "the population"}
#: Columns of a table that compares methods, without a preset.
_COLUMNS = (
    *PLANNER,
    "c_dm",
    "c_avg",
    "mean_generalization_error",
    "reconstruction_loss",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "od_dimension",
    "suppressed_share",
    "seconds",
)


def write_study(study: Study, folder: Path) -> None:
    """Writes results.parquet, results.csv, tables.md, tables.tex and study.html."""
    tidy, sheets = tidy_table(study), study_sheets(study)
    text, tex = (
        ["# Study", "", *(f"- {note}" for note in _notes(study)), ""],
        [f"% {note}" for note in _notes(study)],
    )
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
    first = dict.fromkeys(
        ("by", "segment", "method", "protect", "basis", "status", "reason"), pa.string()
    )
    first["seconds"] = pa.float64()
    columns = {"use": pa.array([NOT_FOR_PUBLICATION] * len(study.rows))}
    columns |= {
        name: pa.array([row.get(name) for row in study.rows], kind) for name, kind in first.items()
    }
    for name in sorted({name for row in study.rows for name in row} - set(first)):
        kind = (
            pa.int64() if name.startswith(("n_", "cells_", "k_trips", "k_people")) else pa.float64()
        )
        columns[name] = pa.array([row.get(name) for row in study.rows], kind)
    return pa.table(columns)


def study_sheets(study: Study) -> list[Sheet]:
    """Returns all tables, in order; the title of each says that it is private."""
    sheets = _segment_sheets(study) if study.every is None else _matrix_sheets(study)
    published = published_sheet(study, _our_results(study))
    if published.rows:
        sheets.append(replace(published, label="P"))
    return [replace(sheet, title=f"{sheet.title} ({NOT_FOR_PUBLICATION})") for sheet in sheets]


def _page(sheets: Sequence[Sheet], study: Study) -> str:
    """Returns charts of the runs on the whole data set, by protection, and all tables as one
    page.
    """
    groups: dict[str, list[Mark]] = {}
    for row in rows_of(study, by=None, basis="trips"):
        marks = groups.setdefault(f"k = {study.k}, protecting {protected_name(row['protect'])}", [])
        marks += marks_of(method_name(row["method"]), row, study.methods.index(row["method"]))
    tables = html_part(
        "tables", "Tables", [sheet.without_repeats() for sheet in sheets], notes=list(_notes(study))
    )
    charts = (
        [joint_part(groups, max_suppressed=study.settings.max_suppressed)]
        if any(groups.values())
        else []
    )
    charts += [] if study.every is None else _ratio_part(study)
    segments = f"segments by {', '.join(study.by)}" if study.by else "no segments"
    over = segments if study.every is None else f"steps of {study.every}"
    heading = (
        "Study: methods, protections and segments"
        if study.every is None
        else "Study: methods and matrices"
    )
    lead = f"{len(study.methods)} methods, k = {study.k}; {over}."
    return page(
        title="Study", heading=heading, lead=lead, parts=[*charts, tables], internal=WARNING
    )


def _notes(study: Study) -> Iterator[str]:
    settings = study.settings
    yield f"{NOT_FOR_PUBLICATION.upper()}: {WARNING}"
    yield (
        "'misplaced' is the share of all trips that a reader misplaces between areas, 'missed' the"
        " share that the estimate lacks, in percent."
    )
    if settings.reading == "authors":
        yield (
            "Measures are read as the authors' program does: G and E of ODkAnon count tiles of the"
            " published trips only, and its penalty in C_DM counts pairs of tiles instead of trips."
        )
    if study.preset is not None:
        yield (
            f"Set-up and numbers of the tables: {study.preset.paper}. What that paper does not have"
            " is A1, A2, ..."
        )
        if study.every is None:
            yield "Where it speaks of participants it counts trips, and so do these tables."
    limit = f"{settings.time_limit:,.0f} seconds"
    yield f"k = {study.k}; one run may take {limit}; N/A marks runs that took longer or failed."
    limits = [
        f"; {method_name(name)} {share:.1%}"
        for name, share in settings.limits.items()
        if name in study.methods
    ]
    yield f"At most {settings.max_suppressed:.1%} may be suppressed{''.join(limits)}."
    yield "'none' marks runs in which nothing can be published, '-' measures that are not defined."
    failures = sorted(
        {
            f"{method_name(row['method'])}: {row['reason']}"
            for row in study.rows
            if row.get("reason")
        }
    )
    yield from (" ".join(f"No result: {failure}".split()) for failure in failures)
    if study.every is None and settings.trees == "own":
        yield (
            "G counts tiles observed in the segment itself, as in the papers: segments cannot be"
            " compared by it."
        )
    elif study.every is None:
        yield (
            "G counts tiles observed in the whole data set, for every segment, so segments can be"
            " compared."
        )


#: Entries that say what a run is.
_LEAD: dict[str, Callable[[Row], Any]] = {
    "Protecting": lambda row: protected_name(row["protect"]),
    "Data": lambda row: row["segment"] or "all",
    "Method": lambda row: method_name(row["method"]),
}


def rows_of(study: Study, **wanted: Any) -> list[Row]:
    """Returns the rows that have these values."""
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def _grid(study: Study, by: str | None) -> Iterator[tuple[str, str, list[Row]]]:
    """Yields each protection and method, with its rows on trips."""
    for protect, method in product(study.protections, study.methods):
        yield protect, method, rows_of(study, by=by, method=method, protect=protect, basis="trips")


def _value_of(study: Study, row: Row, name: str) -> Any:
    """Returns the entry of one measure of one run.

    A suppressed share above the method's limit is marked.
    """
    if name == "suppressed_share" and row.get(name) is not None and row.get("limit") is not None:
        # The limit is on the protected unit, or on pairs of tiles, whatever is measured here.
        limited, limit = row.get("limited_share"), float(row["limit"])
        if limited is not None and float(limited) > limit + 1e-9:
            return f"{100 * float(row[name]):.1f} (above the limit of {100 * limit:g})"
    if name == "seconds":
        late = row["status"] == TIMED_OUT
        return (
            f">{study.settings.time_limit:,.1f}"
            if late
            else ("-" if row[name] is None else row[name])
        )
    if row["status"] in _MISSING:
        return _MISSING[row["status"]]
    if name == "od_dimension":
        ends = [row.get("n_origin_zones"), row.get("n_destination_zones")]
        return "-" if None in ends else "×".join(f"{n:,}" for n in ends)
    return measure_entry(name, row.get(name))


#: Measures that compare between segments; less is better. G does not: it counts the tiles of each
#: segment.
_COARSENESS = ("misplaced", "generalization_distance_m", "suppressed_share")
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
    return [
        *of_paper,
        *(replace(sheet, label=f"A{number}") for number, sheet in enumerate(others, 1)),
    ]


def _numbered(study: Study) -> Iterator[Sheet]:
    """Yields the data set, the cross-check, a table for each segmentation, protection and basis,
    then fairness.
    """

    def label(kind: str) -> str:
        return (study.preset.label(kind) if study.preset is not None else None) or ""

    if study.data:
        rows = [
            (words, study.data[name]) for name, words in _DATA_SET.items() if name in study.data
        ]
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
    for (place, by), protect, basis in product(
        enumerate((None, *study.by)), study.protections, _BASES
    ):
        number = study.preset and study.preset.label_of_comparison(place, protect, basis)
        yield by, protect, basis, number or ""


def _table(
    study: Study, rows: Iterable[Row], lead: Sequence[str], columns: Mapping[str, str], title: str
) -> Sheet:
    """Returns a row for each run: what it is, by the names of `_LEAD` or an attribute, and its
    measures.
    """
    get = [_LEAD.get(name, itemgetter("segment")) for name in lead]
    values = (
        (*(of(row) for of in get), *(_value_of(study, row, name) for name in columns))
        for row in rows
    )
    return Sheet((*lead, *columns.values()), tuple(values), title)


def _cross_check(study: Study) -> Sheet:
    """Returns Table 3 of the report: the k reached in each unit."""
    columns = {
        f"{what}_{unit}": head
        for unit in UNITS
        for what, head in (("k", f"k {unit}"), ("cells_under_k", "below"))
    }
    rows = (row for _, _, found in _grid(study, None) for row in found)
    title = (
        "k-anonymity reached in each unit on the whole data set, and the number of cells below the"
        " threshold"
    )
    return _table(study, rows, ("Protecting", "Method"), columns, title)


def _overview(study: Study) -> Sheet:
    """Returns Table 2 of the abstract: the whole data set and every segment, for each
    protection.
    """
    rows = (
        row
        for protect in study.protections
        for row in rows_of(study, protect=protect, basis="trips")
    )
    title = "Result comparison by protection and segment, calculating metrics on trips"
    return _table(study, rows, ("Protecting", "Data", "Method"), _columns(study), title)


def _columns(study: Study) -> dict[str, str]:
    """Returns the measures of tables with their heads.

    The planner's error first, then those of the paper, or all.
    """
    paper = study.preset
    names = (
        _COLUMNS if paper is None else ("misplaced", *paper.columns, "suppressed_share", "seconds")
    )
    return {name: HEADS[name] for name in names}


def _comparison(study: Study, by: str | None, protect: str, basis: str) -> Sheet:
    columns = _columns(study)
    if by is not None and study.preset is not None:
        # The papers time whole data sets only.
        del columns["seconds"]
    found = (
        rows_of(study, by=by, method=method, protect=protect, basis=basis)
        for method in study.methods
    )
    what = "on the whole dataset" if by is None else f"segmenting on {by}"
    title = (
        f"Result comparison {what}, protecting {protected_name(protect)}, calculating metrics on"
        f" {_BASES[basis]}"
    )
    return _table(
        study, chain.from_iterable(found), ("Method", *([by] if by else [])), columns, title
    )


def _coarseness(study: Study, by: str) -> Sheet:
    """Returns the accuracy of each segment next to that of the whole data set."""
    rows: list[tuple[Any, ...]] = []
    for protect, method, runs in _grid(study, by):
        whole = next(
            iter(rows_of(study, by=None, method=method, protect=protect, basis="trips")), {}
        )
        for row in runs:
            values: list[Any] = []
            for measure in _COARSENESS:
                here, of_all = row.get(measure), whole.get(measure)
                values += [
                    _value_of(study, row, measure),
                    here / of_all if here is not None and of_all else "-",
                ]
            rows.append((protected_name(protect), method_name(method), row["segment"], *values))
    measured = (text for name in _COARSENESS for text in (HEADS[name], "times the whole"))
    title = (
        f"Accuracy of each segment by {by} next to the whole dataset, in measures that can be"
        " compared"
    )
    return Sheet(("Protecting", "Method", by, *measured), tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """Returns the ratio of the worst-served segment to the best-served one, with yardsticks.

    The ratio of the segments' lower bounds of G, and the ratio between random groups of the same
    sizes.
    """
    rows: list[tuple[Any, ...]] = []
    for protect, method, runs in _grid(study, by):
        splits = [
            rows_of(
                study,
                by=random_label(by, split),
                method=method,
                protect=protect,
                basis="trips",
            )
            for split in range(study.settings.random_groups)
        ]
        for measure in _COARSENESS:
            known = sorted(
                ((r[measure], r["segment"], r) for r in runs if r.get(measure) is not None),
                key=itemgetter(0, 1),
            )
            if len(known) < 2:
                continue
            served = [
                entry
                for value, name, _ in (known[0], known[-1])
                for entry in (name, measure_entry(measure, value))
            ]
            named = (
                protected_name(protect),
                method_name(method),
                HEADS[measure],
                f"{len(known)} of {len(runs)}",
            )
            ratio = worst_ratio(runs, measure)
            floor = _floor_ratio(study, known[0][2], known[-1][2])
            drawn = [r for r in (worst_ratio(one, measure) for one in splits) if r is not None]
            yardsticks: tuple[Any, ...] = ("-" if floor is None else floor,)
            if splits:
                median = float(np.median(drawn)) if drawn else "-"
                yardsticks += (median, _verdict(ratio, floor, drawn))
            rows.append((*named, *served, "-" if ratio is None else ratio, *yardsticks))
    head = [
        "Protecting",
        "Method",
        "Measure",
        "Segments",
        "Best served",
        "value",
        "Worst served",
        "value",
        "Ratio",
        "of lower bounds of G",
    ]
    if study.settings.random_groups:
        head += [f"of {study.settings.random_groups} random splits (median)", "the gap is"]
    title = f"Fairness between segments by {by}, in measures that can be compared (G cannot)"
    return Sheet(tuple(head), tuple(rows), title)


def worst_ratio(runs: Iterable[Row], measure: str) -> float | None:
    """Returns the largest value of a measure over the smallest; None if it is not defined."""
    known = [float(row[measure]) for row in runs if row.get(measure) is not None]
    return max(known) / min(known) if len(known) > 1 and min(known) > 0 else None


def _floor_ratio(study: Study, best: Row, worst: Row) -> float | None:
    """Returns the ratio of the lower bounds of G; only trees in common make them comparable."""
    name = "floor_generalization_error"
    if study.settings.trees != "common" or not best.get(name) or worst.get(name) is None:
        return None
    return float(worst[name]) / float(best[name])


#: A gap below this quantile of random splits is no larger than theirs.
_CHANCE = 0.95


def _verdict(ratio: float | None, floor: float | None, drawn: Sequence[float]) -> str:
    """Returns what the yardsticks say of a gap between segments."""
    if ratio is None or not drawn:
        return "-"
    if ratio <= float(np.quantile(drawn, _CHANCE)):
        return "the algorithm: it serves random groups as unequally"
    if floor is not None and floor >= ratio:
        return "the data: the lower bounds differ as much"
    return "larger than between random groups"


#: The method that ratios refer to.
_REFERENCE = "atg-dual"
#: Measures with a mean over matrices.
_MEASURES = (
    "misplaced",
    "mean_generalization_error",
    "reconstruction_loss",
    "distribution_distance",
    "seconds",
    "suppressed_share",
)
#: Measures of figure 12.
_RATIOS = {
    "misplaced": "Misplaced between areas",
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
    """Returns Tables 2, 3, 5 and 6 of the paper, then quartiles and ratios.

    Table 4 is Table 3 of larger data.
    """
    data = tuple(measure_entry(name, study.data[name]) for name in _DATA)
    sheets = [
        Sheet(tuple(_DATA.values()), (data,), f"The data set: matrices of {study.every}", label="2")
    ]
    for place, protect in enumerate(study.protections):
        more = "" if place == 0 else f", {place + 1}"
        made = {"3": _means, "5": _targets, "6": _detailed, "A1": _quartiles, "A2": _ratio_sheet}
        sheets += [
            replace(make(study, protect), label=f"{label}{more}") for label, make in made.items()
        ]
    return [sheet for sheet in sheets if sheet.rows]


def _values(study: Study, protect: str, method: str, measure: str) -> dict[str, float]:
    """Returns the known values of a measure, by time step."""
    basis = (
        "weight"
        if "population" in protect.split("+") and study.settings.methods[method].counts == "exact"
        else "trips"
    )
    rows = rows_of(study, method=method, protect=protect, basis=basis)
    return {row["segment"]: float(row[measure]) for row in rows if row.get(measure) is not None}


def matrix_means(study: Study, method: str, protect: str) -> dict[str, float]:
    """Returns the known means of a method over all matrices; ``seconds`` is the sum."""
    values = {
        measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES
    }
    means = {measure: float(np.mean(known)) for measure, known in values.items() if known}
    return means | ({"seconds": sum(values["seconds"])} if values["seconds"] else {})


def _means(study: Study, protect: str) -> Sheet:
    """Returns Table 3: means over all matrices, and the sum of times."""
    rows = []
    for method in study.methods:
        means = matrix_means(study, method, protect)
        values = [measure_entry(name, means.get(name)) for name in _MEASURES]
        rows.append((method_name(method), *values, len(_values(study, protect, method, "seconds"))))
    head = ("solver", HEADS["misplaced"], "G", "E", "D", "time (s)", "S (%)", "matrices")
    return Sheet(
        head,
        tuple(rows),
        f"Performance, means over matrices, protecting {protected_name(protect)}; time of all",
    )


def _detailed(study: Study, protect: str) -> Sheet:
    """Returns Table 6: the same means, with the time as hours, minutes and seconds."""
    rows = []
    for method, *values, time, suppressed, _ in _means(study, protect).rows:
        s = 0 if time == "-" else round(time)
        clock = time if time == "-" else f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}"
        rows.append((method, clock, *values, suppressed))
    return Sheet(
        ("solver", "time", HEADS["misplaced"], "G", "E", "D", "S (%)"),
        tuple(rows),
        "Detailed results",
    )


def _quantiles(values: Any, at: dict[float, str]) -> Any:
    return np.quantile(values, tuple(at)).tolist()


def _targets(study: Study, protect: str) -> Sheet:
    """Returns Table 5: quartiles of the v_target of matrices.

    The paper searched for one that suits all.
    """
    found = {
        method: list(_values(study, protect, method, "v_target").values())
        for method in study.methods
    }
    rows = [
        (method_name(method), study.k, *_quantiles(values, _QUARTILES))
        for method, values in found.items()
        if values
    ]
    title = f"v_target of the matrices, protecting {protected_name(protect)}"
    return Sheet(("solver", "k", *_QUARTILES.values()), tuple(rows), title)


def _quartiles(study: Study, protect: str) -> Sheet:
    rows = []
    for measure, method in product(_MEASURES, study.methods):
        values = np.array(list(_values(study, protect, method, measure).values()))
        if len(values):
            values = (100 if measure in SHARES else 1) * values
            numbers = (float(values.mean()), *_quantiles(values, _QUARTILES))
            rows.append((HEADS[measure], method_name(method), len(values), *numbers))
    head = ("measure", "solver", "matrices", "mean", *_QUARTILES.values())
    return Sheet(
        head,
        tuple(rows),
        f"Means and quartiles over matrices, protecting {protected_name(protect)}",
    )


def _ratio_part(study: Study) -> list[PagePart]:
    """Returns box plots of the ratios of every method to the reference (figure 12).

    Empty without ratios.
    """
    reference, figures = method_name(_reference(study)), []
    for title, rows in groupby(_ratio_sheet(study, study.protections[0]).rows, key=itemgetter(0)):
        chart = box_chart({row[1]: row[3:] for row in rows}, title=title, reference=reference)
        figures.append(
            Figure(title, f"Times that of {reference}; above the line is worse.", [("", chart)])
        )
    title = f"Against {reference}, matrix by matrix"
    return [PagePart("ratios", title, fill("charts.html", figures=figures))] if figures else []


def _reference(study: Study) -> str:
    return _REFERENCE if _REFERENCE in study.methods else study.methods[0]


def _ratio_sheet(study: Study, protect: str) -> Sheet:
    """Returns quartiles of the ratio of each method to the reference, on matrices where both values
    are above 0.
    """
    reference, rows = _reference(study), []
    for (measure, title), method in product(_RATIOS.items(), study.methods):
        base, values = (_values(study, protect, name, measure) for name in (reference, method))
        shared = [
            value / base[step]
            for step, value in values.items()
            if base.get(step, 0) > 0 and value > 0
        ]
        if method != reference and shared:
            rows.append(
                (title, method_name(method), len(shared), *_quantiles(shared, _ALL_QUARTILES))
            )
    title = (
        f"Ratio to {method_name(reference)}, matrix by matrix (figure 12), protecting"
        f" {protected_name(protect)}"
    )
    return Sheet(("measure", "solver", "matrices", *_ALL_QUARTILES.values()), tuple(rows), title)


def _our_results(study: Study) -> Results:
    """Returns our measures by the number of the paper's table, segment and method.

    Empty without a preset.
    """
    paper = study.preset
    if paper is None:
        return {}
    if study.every is not None:
        return _our_matrices(study)
    tables = [(by, p, basis, label) for by, p, basis, label in _comparisons(study) if label]
    for kind in ("overview", "cross_check"):
        bys = (None, *study.by) if kind == "overview" else (None,)
        if paper.label(kind) is not None:
            tables += [
                (by, protect, "trips", f"{paper.label(kind)} {word}")
                for by in bys
                for protect, word in _PAPER_WORDS.items()
            ]
    # The authors' notebook prints more digits than the papers.
    tables.append((None, "trips", "trips", "notebook"))
    results: dict[tuple[str, str, str], Mapping[str, Any]] = {
        (label, segment_key(row["segment"] or ""), row["method"]): row
        for by, protect, basis, label in tables
        for row in rows_of(study, by=by, protect=protect, basis=basis)
    }
    results["notebook", "", ""] = study.data
    results[paper.label("data") or "", segment_key(paper.city), ""] = study.data
    return results


def _our_matrices(study: Study) -> Results:
    """Returns our means over matrices, by the tables of Matet et al."""
    name, protect = find_data_set(study.settings.published, study.data), study.protections[0]
    results: dict[tuple[str, str, str], Mapping[str, Any]] = {("2", name, ""): study.data}
    for method in study.methods:
        own = {"protect": protect}
        means = matrix_means(study, method, protect)
        results["6" if name else "3", name, method] = {**means, **own}
        targets = list(_values(study, protect, method, "v_target").values())
        if targets:
            results[f"5 k={study.k}", name, method] = {"v_target": float(np.median(targets)), **own}
    return results
