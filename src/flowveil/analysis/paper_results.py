"""Table P: our results next to those that the papers publish, and why they differ.

Every reason is computed from the study and the published numbers: other data, another threshold,
another reading of a formula, or a published number that contradicts its own definition.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from flowveil.analysis.tables import HEADS, Sheet, measure_entry, method_name, protected_name
from flowveil.core.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

#: Our results: by number of the paper's table, segment and method.
Results = Mapping[tuple[str, str, str], Mapping[str, Any]]
#: The k of all published tables, in trips and in inhabitants (10 times their mean weight).
PAPER_K = {"trips": 10.0, "weight": 26_741.63}
#: A ratio nearer to 1 needs no reason.
_EQUAL = 0.01
#: The numbers of the data sets, by preset: table, and segment (the city).
_DATA_TABLES = {
    "odkanon-abstract": ("1", ""),
    "odkanon-report": ("2", ""),
    "odkanon-thesis": ("5.1", "paris"),
    "odkanon-turin": ("5.1", "turin"),
    "odkanon-porto": ("5.1", "porto"),
}
#: Pairs of tiles in the five cells of central Paris, by the authors' notebook.
_CENTRAL_PAIRS = 23_264
_SURVEY_PRESETS = ("odkanon-abstract", "odkanon-report", "odkanon-thesis")
_RATIO_MEASURES = ("reconstruction_loss", "mean_generalization_error", "c_dm", "c_avg")


class PublishedResults(NamedTuple):
    """One published number."""

    preset: str
    table: str
    segment: str
    method: str
    measure: str
    value: float
    is_bound: bool = False  # the paper says "more than": a run that was stopped


@cache
def published_results() -> tuple[PublishedResults, ...]:
    """Returns all published numbers."""
    text = files("flowveil.analysis").joinpath("published_results.csv").read_text("utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    return tuple(
        PublishedResults._make([*row[:5], float(row[5].lstrip(">")), row[5].startswith(">")])
        for row in rows
    )


@cache
def _by_row() -> dict[tuple[str, ...], dict[str, float]]:
    """Returns the numbers of each row of a published table, by measure."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    for entry in published_results():
        if not entry.is_bound:
            rows.setdefault(entry[:4], {})[entry.measure] = entry.value
    return rows


def published_data_sets() -> tuple[str, ...]:
    """Returns the data sets of Matet et al., which ``--published`` names."""
    return tuple(
        dict.fromkeys(
            entry.segment
            for entry in published_results()
            if (entry.preset, entry.table) == ("matet-2023", "2")
        )
    )


def find_data_set(name: str | None, data: Mapping[str, float]) -> str:
    """Returns the data set of Matet et al. that a study is compared with.

    By default the one with as many tiles; "", their mean, unless exactly one has.
    """
    sets = published_data_sets()
    if name is None:
        rows = _by_row()
        same = [
            one
            for one in sets
            if rows["matet-2023", "2", one, ""]["tiles"] == data.get("tiles", -1)
        ]
        return same[0] if len(same) == 1 else ""
    if name not in sets:
        raise ParameterError(
            f"Unknown published data set '{name}'; allowed: {', '.join(sets)}."
            + did_you_mean(name, sets)
        )
    return name


def segment_key(text: str) -> str:
    """Returns a key by which spellings of segments agree.

    F or M, the decade of the lowest age, or the number of a category.
    """
    category = re.fullmatch(r"(?:cat\.? *)?(\d)", text.strip(), re.IGNORECASE)
    if category:
        return f"category {category[1]}"
    number = re.search(r"\d+", text)
    if number:
        return str(int(number[0]) // 10 * 10)
    first = text[:1].upper()
    return "F" if first == "W" else first


def published_sheet(study: Study, ours: Results) -> Sheet:
    """Returns every published number that the study has a result for."""
    rows = []
    for entry in published_results():
        table = _table_of(study, entry)
        method = _our_method(study, entry)
        segment = segment_key(entry.segment) if study.every is None else entry.segment
        own = ours.get((table, segment, method), {})
        value = own.get(entry.measure)
        if not table or value is None:
            continue
        # The papers' ATG-Soft limits suppression: it is compared with ATG-Dual.
        other = "" if method == entry.method else f" (published: {method_name(entry.method)})"
        ratio = float(value) / entry.value if entry.value and not entry.is_bound else None
        differs = ratio is None or abs(ratio - 1) > _EQUAL
        shown = measure_entry(entry.measure, entry.value)
        rows.append(
            (
                table.split()[0],
                protected_name(str(own.get("protect", ""))) or "-",
                (method_name(method) + other) if method else "-",
                entry.segment or "all",
                HEADS[entry.measure],
                measure_entry(entry.measure, value),
                f">{entry.value:,.0f}" if entry.is_bound else shown,
                "-" if ratio is None else ratio,
                "; ".join(_reasons(study, entry, own, ratio)) if differs else "",
            )
        )
    rows.sort(key=lambda row: [int(n) for n in re.findall(r"\d+", row[0])] or [99])
    head = (
        "Table",
        "Protecting",
        "Method",
        "Data",
        "Measure",
        "ours",
        "published",
        "ratio",
        "why they differ",
    )
    return Sheet(head, tuple(rows), "Our results next to the published ones")


def _our_method(study: Study, entry: PublishedResults) -> str:
    is_port = entry.preset.startswith("odkanon") and entry.method == "atg-soft"
    return "atg-dual" if is_port and "atg-dual" in study.methods else entry.method


def _table_of(study: Study, entry: PublishedResults) -> str:
    """Returns the number of the table of the study's paper that holds an entry, or "".

    The thesis repeats the segments of the report, two numbers further, and adds the distance moved.
    """
    preset = study.preset
    if preset is None:
        return ""
    if entry.preset == "odkanon-notebook":
        return entry.table if preset.name in _SURVEY_PRESETS else ""
    of_thesis = entry.preset == "odkanon-thesis" and preset.name in (
        "odkanon-turin",
        "odkanon-porto",
    )
    if entry.preset == preset.name or of_thesis:
        if entry.measure in ("od_pairs", "trips", "origin_tiles", "destination_tiles"):
            city = _DATA_TABLES.get(preset.name, ("", ""))[1]
            return entry.table if entry.segment == city or study.every is not None else ""
        return entry.table
    if preset.name == "odkanon-thesis" and entry.preset == "odkanon-report":
        return (
            f"5.{int(entry.table) + 2}" if entry.table.isdigit() and int(entry.table) >= 8 else ""
        )
    return ""


def impossible(entry: PublishedResults, basis: str) -> str:
    """Returns why a published number contradicts its own definition, or "".

    Rounding is allowed for: half a unit of the last printed digit, at most.
    """
    k = PAPER_K[basis]
    row = _by_row().get(entry[:4], {})
    if entry.measure == "c_dm" and entry.preset.startswith("odkanon"):
        c_avg = max(row.get("c_avg", 1.0) - 0.05, 1.0)
        least = (k * c_avg) ** 2
        if entry.value * 1.1 < least:
            mean = "" if c_avg == 1.0 else f" and mean class {c_avg:g} k"
            return f"impossible: with k = {k:,.0f}{mean} one class alone gives {least:,.0f}"
    if entry.measure == "c_avg" and entry.value < 0.95:
        return "impossible: no class is smaller than k"
    if entry.measure == "mean_generalization_error" and entry.value < 1.95:
        return "impossible: both ends have a tile"
    if entry.measure == "reconstruction_loss" and entry.method != "laplace":
        suppressed = row.get("suppressed_share")
        if entry.value > 2.005:
            return "impossible by its formula: without added trips E is at most 2"
        of_suppression = entry.method == "suppression" and suppressed is not None
        if of_suppression and abs(entry.value - float(suppressed or 0)) > 0.01:
            return f"impossible: E of suppression is the share suppressed, {suppressed:.2f}"
    return ""


def _reasons(
    study: Study, entry: PublishedResults, own: Mapping[str, Any], ratio: float | None
) -> Iterator[str]:
    basis = str(own.get("basis", "trips"))
    contradiction = impossible(entry, basis)
    if contradiction:
        yield contradiction
    if entry.method:
        yield from _other_data(study, entry)
    elif ratio is not None:
        yield "other data"
    if entry.measure == "seconds":
        yield "stopped in the paper" if entry.is_bound else "other machine and code"
        return
    if not entry.preset.startswith("odkanon") or not entry.method:
        return
    if entry.method == "atg-soft":
        yield (
            "the paper's ATG is a port with H3 resolutions for areas and a limit on suppression, as"
            " ATG-Dual has"
        )
        if entry.measure == "reconstruction_loss":
            yield "the program spreads over H3 cells without trips too"
    theirs, here = own.get(f"authors_{entry.measure}"), float(own[entry.measure])
    if theirs is not None and abs(float(theirs) - here) > _EQUAL * abs(here):
        shown = f"{float(theirs):.4g}" if entry.measure == "c_dm" else f"{float(theirs):,.2f}"
        yield f"the authors' formula gives {shown} for ours: --reading authors"
    threshold = _our_threshold(study)
    if threshold is None or not _needs_threshold(entry, own):
        return
    if abs(threshold / PAPER_K["weight"] - 1) > _EQUAL:
        yield (
            f"the population's threshold is {threshold:,.0f} here and {PAPER_K['weight']:,.0f} in"
            " the paper"
        )


def _needs_threshold(entry: PublishedResults, own: Mapping[str, Any]) -> bool:
    if "population" in str(own.get("protect", "")):
        return True
    counted = ("c_dm", "c_avg", "mean_generalization_error", "cells_under_k_population")
    is_population = own.get("basis") == "weight" or entry.measure.endswith("population")
    return is_population and entry.measure in counted


def _our_threshold(study: Study) -> float | None:
    if study.settings.k_population is not None:
        return float(study.settings.k_population)
    trips, weight = study.data.get("trips"), study.data.get("weight")
    return study.k * weight / trips if trips and weight else None


def _other_data(study: Study, entry: PublishedResults) -> Iterator[str]:
    """Yields the difference between the study's data and the paper's, with both numbers."""
    if study.every is not None:
        theirs = _by_row().get(("matet-2023", "2", entry.segment, ""))
        if theirs is None:
            yield "the published number is a mean over four data sets"
            return
        ours = study.data
        if ours["tiles"] != theirs["tiles"] or ours["matrices_run"] != theirs["matrices"]:
            yield (
                f"other matrices: {ours['matrices_run']:,.0f} of {ours['tiles']:,.0f} tiles here,"
                f" a sample of {theirs['matrices']:,.0f} of {theirs['tiles']:,.0f} in the paper"
            )
        return
    name = "" if study.preset is None else study.preset.name
    table, city = _DATA_TABLES.get(name, ("", ""))
    preset = name if name in _SURVEY_PRESETS else "odkanon-thesis"
    theirs = _by_row().get((preset, table, city, ""), {})
    trips, pairs = study.data.get("trips", 0), study.data.get("od_pairs", 0)
    if name in _SURVEY_PRESETS and pairs == _CENTRAL_PAIRS:
        return
    if trips != theirs.get("trips"):
        yield f"other data: {trips:,.0f} trips here, {theirs.get('trips', 0):,.0f} in the paper"
    elif name in _SURVEY_PRESETS and entry.method != "mondrian":
        yield "the program keeps the trips of central Paris: --within"
