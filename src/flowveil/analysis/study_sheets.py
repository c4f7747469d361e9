"""The tables of a study of segments: those of the ODkAnon papers, then how unequally segments are served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowveil.analysis.sheets import Sheet
from flowveil.analysis.study_columns import (
    BASES,
    HEADS,
    USUAL,
    entry,
    method_name,
    protected,
    rows_of,
    value_of,
)
from flowveil.guarantee import UNITS

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

#: How coarse a segment became; less is better for both.
_COARSENESS = ("mean_generalization_error", "generalization_distance_m")
#: Numbers of the data set, in the papers' order.
_DATA = {
    "people": "participants with trips",
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
    rows = [(words, study.data[name]) for name, words in _DATA.items() if name in study.data]
    return Sheet(("", "value"), tuple(rows), "The data set")


def _cross_check(study: Study) -> Sheet:
    """Table 3 of the report: what protecting one unit does for the others."""
    rows = []
    for protect in study.protections:
        for method in study.methods:
            for row in rows_of(study, by=None, method=method, protect="+".join(protect), basis="trips"):
                names = [f"{what}_{unit}" for unit in UNITS for what in ("k", "cells_under_k")]
                values = [entry(row, row.get(name), name) for name in names]
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
    """The measures of a comparison: the paper's and what was suppressed, or all."""
    return USUAL if study.preset is None else (*study.preset.columns, "suppressed_share", "seconds")


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
    """How much coarser each segment becomes than everybody together."""
    rows: list[tuple[Any, ...]] = []
    for protect in map("+".join, study.protections):
        for method in study.methods:
            whole = next(iter(rows_of(study, by=None, method=method, protect=protect, basis="trips")), {})
            for row in rows_of(study, by=by, method=method, protect=protect, basis="trips"):
                values: list[Any] = []
                for measure in _COARSENESS:
                    own, of_all = row.get(measure), whole.get(measure)
                    values += [entry(row, own, measure), own / of_all if own is not None and of_all else "-"]
                gone = value_of(row, "suppressed_share", time_limit=study.time_limit)
                rows.append((protected(protect), method_name(method), row["segment"], *values, gone))
    head = ("Protecting", "Method", by, "G", "times the whole", "distance (m)", "times the whole", "suppressed (%)")
    title = f"How much coarser each segment by {by} becomes than the whole dataset, calculating metrics on trips"
    return Sheet(head, tuple(rows), title)


def _fairness(study: Study, by: str) -> Sheet:
    """How much coarser the worst-served segment becomes than the best-served one."""
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
                name = "G" if measure == "mean_generalization_error" else "distance (m)"
                compared = f"{len(known)} of {len(runs)}"
                named = (protected("+".join(protect)), method_name(method), name, compared)
                rows.append((*named, best_name, best, worst_name, worst, ratio))
    head = ("Protecting", "Method", "Measure", "Segments", "Best served", "value", "Worst served", "value", "Ratio")
    title = f"Fairness between segments by {by}: how much coarser the worst-served segment becomes"
    return Sheet(head, tuple(rows), title)
