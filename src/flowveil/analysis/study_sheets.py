"""The tables of a study: those of the papers, with the planner's error first, and tables of their own after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.analysis.pages.study import Boxes
from flowveil.analysis.runs import FAILED, INFEASIBLE, TIMED_OUT
from flowveil.analysis.sheets import Sheet
from flowveil.guarantee import UNITS

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

NOT_FOR_PUBLICATION = "not for publication"

#: Who is protected. The papers speak of participants where they count trips; a participant is a person here.
_PROTECTED = {"people": "the participants", "population": "the population"}
#: What measures are counted in.
BASES = {"trips": "trips", "weight": "the population"}

_NAMES = {
    "odkanon": "ODkAnon", "atg-dual": "ATG-Dual", "atg-soft": "ATG-Soft", "oigh": "OIGH", "mondrian": "Mondrian",
    "glove": "Glove", "glove-sk": "Glove-sk", "twincut": "TwinCut", "suppression": "Suppression", "laplace": "Laplace",
    "paircut": "PairCut", "curvecut": "CurveCut",
}  # fmt: skip

HEADS = {
    "area_error": "misplaced (%)",
    "trip_length_ratio": "trip length",
    "c_dm": "C_DM",
    "c_avg": "C_AVG",
    "mean_generalization_error": "G",
    "reconstruction_loss": "E",
    "distribution_distance": "D",
    "generalization_distance_m": "GDM (m)",
    "generalization_distance_median_m": "GDM median",
    "generalization_distance_std_m": "GDM std. dev.",
    "od_dimension": "OD dimension",
    "suppressed_share": "suppressed (%)",
    "seconds": "Time (s)",
}
#: Measures that tables show in percent.
SHARES = ("area_error", "density", "safe_od_pairs", "safe_trips", "suppressed_share")
#: Columns of a table that compares methods, where no paper says otherwise.
USUAL = (
    "area_error",
    "trip_length_ratio",
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


def protected(protect: str) -> str:
    """Who is protected, in words."""
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


def method_name(name: str) -> str:
    """A method as papers write it."""
    return _NAMES.get(name, name)


def rows_of(study: Study, **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have these values."""
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def value_of(row: dict[str, Any], name: str, *, time_limit: float) -> Any:
    """What a table shows of one measure of one run; a suppressed share above the method's limit is marked."""
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
    value = row.get(name)
    return entry(row, 100 * float(value) if value is not None and name in SHARES else value)


def entry(row: dict[str, Any], value: Any) -> Any:
    """A value, or why there is none."""
    if row["status"] in (TIMED_OUT, FAILED):
        return "N/A"
    if row["status"] == INFEASIBLE:
        return "none"
    return "-" if value is None else value


# ---- segments ----------------------------------------------------------------------------------------------------

#: Measures that can be compared between segments; less is better. G cannot: it counts the tiles of each segment.
_COARSENESS = ("area_error", "generalization_distance_m", "suppressed_share")
_COARSENESS_HEADS = ("misplaced (%)", "GDM (m)", "suppressed (%)")
#: Numbers of the data set, in the papers' order.
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


def segment_sheets(study: Study) -> list[Sheet]:
    """All tables; those of a paper first, with its numbers, and what it does not have after them as A1, A2, ..."""
    sheets = [sheet for sheet in _numbered(study) if sheet.rows]
    if study.preset is None:
        return [replace(sheet, label=str(number)) for number, sheet in enumerate(sheets, 1)]
    of_paper, others = [s for s in sheets if s.label], [s for s in sheets if not s.label]
    return [*of_paper, *(replace(sheet, label=f"A{number}") for number, sheet in enumerate(others, 1))]


def _numbered(study: Study) -> Iterator[Sheet]:
    """The data set, the cross-check, one table for each segmentation, protection and basis, then fairness."""
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
    """Table 3 of the report: what protecting one unit does for the others."""
    rows = []
    for protect in study.protections:
        for method in study.methods:
            for row in rows_of(study, by=None, method=method, protect="+".join(protect), basis="trips"):
                names = [f"{what}_{unit}" for unit in UNITS for what in ("k", "cells_under_k")]
                values = [entry(row, row.get(name)) for name in names]
                rows.append((protected(row["protect"]), method_name(method), *values))
    head = ("Protecting", "Method", *(name for unit in UNITS for name in (f"k {unit}", "short")))
    title = "k-anonymity reached in each unit on the whole data set, and the number of cells short of it"
    return Sheet(head, tuple(rows), title)


def _overview(study: Study) -> Sheet:
    """Table 2 of the abstract: the whole data set and every segment, for each protection."""
    columns = _columns(study)
    rows = []
    for protect in map("+".join, study.protections):
        for row in rows_of(study, protect=protect, basis="trips"):
            values = [value_of(row, name, time_limit=study.time_limit) for name in columns]
            rows.append((protected(protect), row["segment"] or "all", method_name(row["method"]), *values))
    head = ("Protecting", "Data", "Method", *(HEADS[name] for name in columns))
    return Sheet(head, tuple(rows), "Result comparison by protection and segment, calculating metrics on trips")


def _columns(study: Study) -> tuple[str, ...]:
    """The planner's error, then the paper's measures and what was suppressed, or all."""
    return USUAL if study.preset is None else ("area_error", *study.preset.columns, "suppressed_share", "seconds")


def _comparisons(study: Study) -> Iterator[Sheet]:
    bases = [b for b in BASES if any(row["basis"] == b and row["status"] == "done" for row in study.rows)]
    for place, by in enumerate((None, *study.by)):
        for protect in map("+".join, study.protections):
            for basis in bases:
                label = study.preset and study.preset.label_of_comparison(place, protect, basis)
                yield replace(_comparison(study, by, protect, basis), label=label or "")


def _comparison(study: Study, by: str | None, protect: str, basis: str) -> Sheet:
    # The papers time whole data sets only.
    columns = [name for name in _columns(study) if by is None or study.preset is None or name != "seconds"]
    rows = []
    for method in study.methods:
        for row in rows_of(study, by=by, method=method, protect=protect, basis=basis):
            values = [value_of(row, name, time_limit=study.time_limit) for name in columns]
            rows.append((method_name(method), *(() if by is None else (row["segment"],)), *values))
    head = ("Method", *(() if by is None else (by,)), *(HEADS[name] for name in columns))
    what = "on the whole dataset" if by is None else f"segmenting on {by}"
    title = f"Result comparison {what}, protecting {protected(protect)}, calculating metrics on {BASES[basis]}"
    return Sheet(head, tuple(rows), title)


def _coarseness(study: Study, by: str) -> Sheet:
    """Accuracy of each segment next to that of the whole data set."""
    rows: list[tuple[Any, ...]] = []
    for protect in map("+".join, study.protections):
        for method in study.methods:
            whole = next(iter(rows_of(study, by=None, method=method, protect=protect, basis="trips")), {})
            for row in rows_of(study, by=by, method=method, protect=protect, basis="trips"):
                values: list[Any] = []
                for measure in _COARSENESS:
                    own, of_all = row.get(measure), whole.get(measure)
                    shown = value_of(row, measure, time_limit=study.time_limit)
                    values += [shown, own / of_all if own is not None and of_all else "-"]
                rows.append((protected(protect), method_name(method), row["segment"], *values))
    measured = (text for head in _COARSENESS_HEADS for text in (head, "times the whole"))
    head = ("Protecting", "Method", by, *measured)
    title = f"Accuracy of each segment by {by} next to the whole dataset, in measures that can be compared"
    return Sheet(head, tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """Ratio of the worst-served segment to the best-served one."""
    rows: list[tuple[Any, ...]] = []
    for protect in study.protections:
        for method in study.methods:
            runs = rows_of(study, by=by, method=method, protect="+".join(protect), basis="trips")
            for measure in _COARSENESS:
                known = sorted((r[measure], r["segment"]) for r in runs if r.get(measure) is not None)
                if len(known) < 2:
                    continue
                (best, best_name), (worst, worst_name) = known[0], known[-1]
                ratio = worst / best if best else None
                name = _COARSENESS_HEADS[_COARSENESS.index(measure)]
                compared = f"{len(known)} of {len(runs)}"
                if measure in SHARES:
                    best, worst = 100 * best, 100 * worst
                named = (protected("+".join(protect)), method_name(method), name, compared)
                rows.append((*named, best_name, best, worst_name, worst, ratio))
    head = ("Protecting", "Method", "Measure", "Segments", "Best served", "value", "Worst served", "value", "Ratio")
    title = f"Fairness between segments by {by}, in measures that can be compared (G cannot)"
    return Sheet(head, tuple(rows), title)


# ---- matrices ----------------------------------------------------------------------------------------------------

#: What every method is compared with.
REFERENCE = "atg-dual"
#: Measures that are averaged over matrices.
_MEASURES = (
    "area_error",
    "mean_generalization_error",
    "reconstruction_loss",
    "distribution_distance",
    "seconds",
    "suppressed_share",
)
#: Figure 12: measures whose ratio to the reference is drawn.
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
_ABSENT = "-"


def matrix_sheets(study: Study) -> list[Sheet]:
    """Tables 2, 3, 5 and 6 of the paper, then quartiles and ratios; Table 4 is Table 3 of larger data."""
    protections = ["+".join(protect) for protect in study.protections]
    sheets = [replace(_matrix_data(study), label="2")]
    for place, protect in enumerate(protections):
        more = "" if place == 0 else f", {place + 1}"
        sheets += [
            replace(_means(study, protect), label=f"3{more}"),
            replace(_targets(study, protect), label=f"5{more}"),
            replace(_detailed(study, protect), label=f"6{more}"),
            replace(_quartiles(study, protect), label=f"A1{more}"),
            replace(_ratio_sheet(study, protect), label=f"A2{more}"),
        ]
    return [sheet for sheet in sheets if sheet.rows]


def ratios(study: Study) -> list[Boxes]:
    """For each measure, how many times the reference's value every other method has, matrix by matrix."""
    protect = "+".join(study.protections[0])
    return [
        Boxes(title, _reference(study), [(method_name(m), v) for m, v in _ratios(study, protect, measure).items()])
        for measure, title in _RATIOS.items()
    ]


def _reference(study: Study) -> str:
    return method_name(REFERENCE if REFERENCE in study.methods else study.methods[0])


def _values(study: Study, protect: str, method: str, measure: str) -> dict[str, float]:
    """The values of a measure by step, of the runs that are done and have one."""
    basis = "weight" if "population" in protect.split("+") else "trips"
    rows = rows_of(study, method=method, protect=protect, basis="trips" if method == "laplace" else basis)
    return {row["segment"]: float(row[measure]) for row in rows if row.get(measure) is not None}


def _mean(values: Sequence[float] | Any, measure: str) -> Any:
    if len(values) == 0:
        return _ABSENT
    return float(np.mean(values)) * (100 if measure in SHARES else 1)


def matrix_means(study: Study, method: str) -> dict[str, float]:
    """Means of a method over all matrices; the time is that of all together."""
    if method not in study.methods:
        return {}
    protect = "+".join(study.protections[0])
    values = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
    means = {measure: float(np.mean(found)) for measure, found in values.items() if found}
    return means | ({"seconds": sum(values["seconds"])} if values["seconds"] else {})


def _matrix_data(study: Study) -> Sheet:
    values = [study.data[name] * (100 if name in SHARES else 1) for name in _DATA]
    return Sheet(tuple(_DATA.values()), (tuple(values),), f"The data set: matrices of {study.every}")


def _means(study: Study, protect: str) -> Sheet:
    """Table 3: means over all matrices, and the time of all together."""
    rows = []
    for method in study.methods:
        found = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
        total = sum(found["seconds"]) if found["seconds"] else _ABSENT
        means = [_mean(found[m], m) for m in _MEASURES[:4]]
        gone = _mean(found["suppressed_share"], "suppressed_share")
        rows.append((method_name(method), *means, total, gone, len(found["seconds"])))
    head = ("solver", HEADS["area_error"], "G", "E", "D", "time (s)", "S (%)", "matrices")
    return Sheet(head, tuple(rows), f"Performance, means over matrices, protecting {protected(protect)}; time of all")


def _targets(study: Study, protect: str) -> Sheet:
    """Table 5: the v_target of each matrix; the paper searched for one that suits all."""
    rows = []
    for method in study.methods:
        values = list(_values(study, protect, method, "v_target").values())
        if values:
            quartiles = [float(q) for q in np.quantile(values, (0.25, 0.5, 0.75))]
            rows.append((method_name(method), study.k, *quartiles))
    head = ("solver", "k", "first quartile", "median", "third quartile")
    return Sheet(head, tuple(rows), f"v_target of the matrices, protecting {protected(protect)}")


def _detailed(study: Study, protect: str) -> Sheet:
    """Table 6: the same means with the time as a clock shows it."""
    rows = []
    for method in study.methods:
        found = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
        means = [_mean(found[m], m) for m in (*_MEASURES[:4], "suppressed_share")]
        rows.append((method_name(method), _clock(sum(found["seconds"])) if found["seconds"] else _ABSENT, *means))
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
    """Each method's values over the reference's, on the matrices on which both have one above 0."""
    reference = REFERENCE if REFERENCE in study.methods else study.methods[0]
    base = _values(study, protect, reference, measure)
    found = {}
    for method in study.methods:
        own = _values(study, protect, method, measure)
        shared = [own[step] / base[step] for step in own if base.get(step, 0) > 0 and own[step] > 0]
        if method != reference and shared:
            found[method] = shared
    return found


def _ratio_sheet(study: Study, protect: str) -> Sheet:
    """The numbers of the box plots."""
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
