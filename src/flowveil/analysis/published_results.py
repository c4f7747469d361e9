"""Published results of the papers, and a table that shows a study's results next to them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from flowveil.analysis.study_tables import matrix_means, method_name, rows_of
from flowveil.analysis.tables import HEADS, SHARES, Sheet

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

#: Trips of the papers' data sets, to recognise other data.
_TRIPS = {
    "odkanon-abstract": 81_291, "odkanon-report": 81_291, "odkanon-thesis": 81_289, "odkanon-turin": 873_234,
    "odkanon-porto": 1_674_160,
}  # fmt: skip
_REASONS = {
    "seconds": "other machine and code",
    "port": "the paper's ATG is a port with H3 resolutions for areas and a limit on suppression, as ATG-Dual has",
    "trees": "the authors build the trees after suppression (on equal zones G 517 for our 541, E 1.854 for 1.897): "
    "--reading authors",
    "rows": "the authors count rows, not trips: --reading authors",
    "threshold": "the authors' threshold is 26,742, from the mean weight before cutting Paris out: --reading authors",
}


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
    rows = list(csv.reader(text.splitlines()))[1:]
    return tuple(Published(p, table, data, method, name, float(value)) for p, table, data, method, name, value in rows)


def published_sheet(study: Study) -> Sheet:
    """Returns every published number that the study has a result for: ours, theirs, the ratio and the reason."""
    rows: list[tuple[Any, ...]] = []
    for entry, ours, protect in _pairs(study):
        scale = 100 if entry.measure in SHARES else 1
        ratio = ours / entry.value if entry.value else None
        reason = "; ".join(_reasons(study, entry, protect)) if ratio is None or abs(ratio - 1) > 0.01 else ""
        values = (scale * ours, scale * entry.value, "-" if ratio is None else ratio, reason)
        rows.append((entry.table, _names(study, entry), entry.segment or "all", HEADS[entry.measure], *values))
    head = ("Table", "Method", "Data", "Measure", "ours", "published", "ratio", "why they differ")
    return Sheet(head, tuple(rows), "Our results next to the published ones")


def _pairs(study: Study) -> Iterator[tuple[Published, float, str]]:
    """Published numbers with our value of the same measure, and the protection."""
    paper = study.preset
    if paper is None:
        return
    for entry in published_results():
        if study.every is not None:
            if (entry.preset, entry.table, entry.segment) == paper.published:
                ours = matrix_means(study, entry.method, study.protections[0]).get(entry.measure)
                if ours is not None:
                    yield entry, ours, "trips"
            continue
        table = _table_of(paper.name, entry)
        if table is None:
            continue
        for by, protect, basis, label in _tables(study):
            if label == table:
                ours = _ours(study, entry, by, protect, basis)
                if ours is not None:
                    yield entry._replace(table=table.split()[0]), ours, protect


def _table_of(preset: str, entry: Published) -> str | None:
    """Number of the table in the study; the thesis repeats the segments of the report, two numbers further."""
    thesis = ("odkanon-turin", "odkanon-porto")
    if entry.preset == preset or (entry.preset == "odkanon-thesis" and preset in thesis):
        return entry.table
    if preset == "odkanon-thesis" and entry.preset == "odkanon-report" and int(entry.table) >= 8:
        return f"5.{int(entry.table) + 2}"
    return None


def _tables(study: Study) -> Iterator[tuple[str | None, str, str, str]]:
    """Attribute, protection, basis and number of each table that compares methods."""
    assert study.preset is not None
    if study.preset.overview is not None:
        for by in (None, *study.by):
            for protect, words in (("trips", "participants"), ("population", "population")):
                yield by, protect, "trips", f"{study.preset.overview} {words}"
        return
    for place, by in enumerate((None, *study.by)):
        for protect in study.protections:
            for basis in ("trips", "weight"):
                label = study.preset.label_of_comparison(place, protect, basis)
                if label is not None:
                    yield by, protect, basis, label


def _counterpart(study: Study, entry: Published) -> str:
    """Returns our method for a published row. ATG-Soft of the ODkAnon papers limits suppression: it is ATG-Dual."""
    is_port = entry.preset != "matet-2023" and entry.method == "atg-soft" and "atg-dual" in study.methods
    return "atg-dual" if is_port else entry.method


def _names(study: Study, entry: Published) -> str:
    ours, theirs = method_name(_counterpart(study, entry)), method_name(entry.method)
    return ours if ours == theirs else f"{ours} (published: {theirs})"


def _ours(study: Study, entry: Published, by: str | None, protect: str, basis: str) -> float | None:
    if (by is None) != (entry.segment == ""):
        return None
    for row in rows_of(study, by=by, method=_counterpart(study, entry), protect=protect, basis=basis):
        if by is None or _segment_key(row["segment"]) == _segment_key(entry.segment):
            value = row.get(entry.measure)
            return None if value is None else float(value)
    return None


def _segment_key(text: str) -> str:
    """A key under which spellings of sex and age groups agree: F, M, or the decade of the lowest age."""
    number = re.search(r"\d+", text)
    if number:
        return str(int(number[0]) // 10 * 10)
    return "F" if text[:1].upper() in "FW" else text[:1].upper()


def _reasons(study: Study, entry: Published, protect: str) -> Iterator[str]:
    trips = study.data.get("trips")
    if study.every is not None or study.preset is None or trips != _TRIPS.get(study.preset.name):
        yield "other data"
    if entry.measure == "seconds":
        yield _REASONS["seconds"]
        return
    if entry.preset != "matet-2023" and entry.method.startswith("atg"):
        yield _REASONS["port"]
    if study.settings.reading != "authors":
        if entry.method == "odkanon" and entry.measure in ("mean_generalization_error", "reconstruction_loss"):
            yield _REASONS["trees"]
        if entry.measure == "c_dm":
            yield _REASONS["rows"]
    if "population" in protect and study.settings.k_population is None:
        yield _REASONS["threshold"]
