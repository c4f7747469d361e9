"""A family of releases as plain data: what its report.json says, overall and for each slice.

Slices withhold what would tell a suppressed value, each for itself; what is said of all together is withheld too where
the slices that are open would give away, by subtraction, those that are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil import __version__
from flowveil.disclosure.unlisted import n_unlisted_pairs, within_reach
from flowveil.flows import Cells
from flowveil.release.release import Release
from flowveil.release.sliced import n_people
from flowveil.report.summary import (
    AND,
    EVEN_INSIDE,
    FEW_COARSE,
    FEW_MERGED,
    FEWEST_MERGED,
    FEWEST_SUPPRESSED,
    TELL_INSIDE,
    TELL_SEEN,
    TELL_SUPPRESSED,
    _about_persons,
    _about_places,
    _published_guarantee,
    _published_measures,
    _reaches,
    _thresholds_in_words,
    as_one_cell,
    asked_k,
    cross_check,
    few_coarse_zones,
    few_merged_cells,
    is_even_inside,
    n_merged_cells,
    published_measures,
    published_parameters,
    reason_to_withhold,
    why_share_is_withheld,
    with_words,
)
from flowveil.slices import stacked

if TYPE_CHECKING:
    from flowveil.release.sliced import SlicedRelease

Measures = dict[str, float | int | None]

BESIDE_OTHERS = "other matrices of the same trips are published beside it, and could be subtracted from the total"
FROM_SUMS = "what single slices withhold, or slices that are not published hold, would follow from sums over all slices"
FROM_TOTAL = "what single slices withhold would follow from the total of all slices"
REASONS = (BESIDE_OTHERS, FROM_SUMS, FROM_TOTAL)


def summarize_family(
    family: SlicedRelease, *, formats: Sequence[str] = (), basemap: str | None = None
) -> dict[str, Any]:
    """The content of report.json for a family.

    Args:
        family: what is published.
        formats: exports that are written beside it; they are part of the command only.
        basemap: address of the tile server of the report's background map; the same.

    Returns:
        The keys of `flowveil.report.summary.summarize`, the measures being those of all finest slices together
        (of all matrices, where no finest slice can be published), and
        ``slice_columns``, ``slices`` (``slice``, ``measures``, ``withheld`` of each published slice),
        ``unpublished_slices`` (how many hold too little) and ``differencing``.
    """
    exact = [release.metrics() for release in family.releases]
    reasons = [reason_to_withhold(release) for release in family.releases]
    reason = _reason_overall(family, reasons)
    if reason == BESIDE_OTHERS:
        reasons = [own or reason for own in reasons]
    slices = []
    # Each slice would add an equation between the numbers of tiles seen in the same zones; see `few_coarse_zones`.
    few = any(few_coarse_zones([release]) for release in family.releases)
    few = few or few_coarse_zones(family.releases, errors=len(family))
    for (key, release), measures, own in zip(family, exact, reasons, strict=True):
        published, withheld = published_measures(release, measures, own, few_coarse=few)
        named = dict(zip(family.slice_columns, key, strict=True))
        slices.append({"slice": named, "measures": published, "withheld": withheld})
    overall = {basis: _published_measures(_overall(family, exact, basis)) for basis in exact[0]}
    first = family.releases[-1]
    secret = reason is not None or any(r is not None for r in reasons)
    absent = len(_finest(family)) < len(family.input)
    withheld = _withhold_overall(family, overall, exact, reason, parts_are_secret=secret or absent)
    if secret:
        _withhold_mean_weight(family, slices, overall)
    guarantee = _published_guarantee(first, withhold=secret)
    report = {
        "version": __version__,
        "kind": family.kind,
        "method": family.method,
        "parameters": published_parameters(family.parameters),
        "guarantee": guarantee,
        "homogeneous": all(r.plan.homogeneous for r in family.releases),
        "boxes": None,
        "suppression": family.releases[-1].plan.suppression.to_dict(),
        "measures": overall,
        "withheld": withheld,
        "notes": {},
        "slice_columns": list(family.slice_columns),
        "slices": slices,
        "unpublished_slices": family.n_unpublished,
        "differencing": {
            "comparisons": family.differencing.comparisons,
            "differences": family.differencing.differences,
            "short": family.differencing.short,
            "unchecked": family.differencing.unchecked,
        },
    }
    return with_words(report, formats=formats, basemap=basemap)


def _withhold_overall(
    family: SlicedRelease,
    overall: dict[str, Measures],
    exact: Sequence[dict[str, Measures]],
    reason: str | None,
    *,
    parts_are_secret: bool,
) -> dict[str, Any] | None:
    """Blank the measures of all slices that would tell what a slice withholds; which, and why."""
    hidden: dict[str, set[str]] = {basis: set() for basis in overall}
    reasons = [] if reason is None else [reason]
    if reason is not None:
        hidden = {basis: _hidden(family, basis) for basis in overall}
    elif parts_are_secret:
        # Sums of squares and of losses have a term for each slice: with the total they are solved for the terms.
        hidden = {basis: {"c_dm", "distribution_distance", "reconstruction_loss"} for basis in overall}
        reasons.append(FROM_SUMS)
    measured = [family.releases[i] for i in _measured(family)]
    few_merged = [n_merged_cells(release) for release in measured if few_merged_cells(release)]
    if few_merged and sum(few_merged) < FEWEST_MERGED:
        hidden = {basis: names | set(TELL_INSIDE) for basis, names in hidden.items()}
        reasons.append(FEW_MERGED)
    elif any(is_even_inside(family.releases[i], exact[i]["trips"]) for i in _measured(family)):
        hidden = {basis: names | set(TELL_INSIDE) for basis, names in hidden.items()}
        reasons.append(EVEN_INSIDE)
    if few_coarse_zones(measured):
        hidden = {basis: names | set(TELL_SEEN) for basis, names in hidden.items()}
        reasons.append(FEW_COARSE)
    for basis, names in hidden.items():
        overall[basis].update(dict.fromkeys(names))
    if not reasons:
        return None
    return {"measures": {b: sorted(n) for b, n in hidden.items()}, "reason": AND.join(reasons)}


def _withhold_mean_weight(
    family: SlicedRelease, slices: Sequence[Mapping[str, Any]], overall: Mapping[str, Measures]
) -> None:
    """Blank what is counted against the mean weight of all trips, in every slice: one of them would tell it for all."""
    for measures in [overall, *(part["measures"] for part in slices)]:
        for basis, values in measures.items():
            for name in _hidden(family, basis) - set(TELL_SUPPRESSED):
                values[name] = None


def _finest(family: SlicedRelease) -> dict[int, int]:
    """For each finest slice that is published, its number in the input and its place in the family."""
    place = {key: i for i, key in enumerate(family.keys)}
    return {m: place[key] for m, key in enumerate(family.input.keys) if key in place}


def _measured(family: SlicedRelease) -> list[int]:
    """The places of the releases that the measures of the whole family are of: the finest; all, where none is."""
    return list(_finest(family).values()) or list(range(len(family)))


def _reason_overall(family: SlicedRelease, reasons: list[str | None]) -> str | None:
    """Why the suppressed volume of all slices must not be told, or None where it may be.

    With it, what the slices that withhold theirs suppress, and all that unpublished slices hold, follows by
    subtraction: so that has to satisfy the guarantee like a cell, and, where persons are known, hold k of them like any
    slice. Where coarser matrices are published too, a suppressed volume is a further number to subtract the cells of
    other matrices from; then none is told, of any matrix, where anything is suppressed at all.
    """
    finest = _finest(family)
    if len(family) > len(finest):
        complete = len(finest) == len(family.input) and all((r.cell_of_flow >= 0).all() for r in family.releases)
        return None if complete else BESIDE_OTHERS
    parts: list[Cells] = []
    for m, flows in enumerate(family.input.slices):
        if m not in finest:
            parts.append(flows)
        elif reasons[finest[m]] is not None:
            parts.append(flows.select(family.releases[finest[m]].cell_of_flow < 0))
    if not parts:
        return None
    together = stacked(parts)
    enough = _reaches(family.guarantee, as_one_cell(together)) and n_people(together) >= family.guarantee.k
    if not enough or len(together) < FEWEST_SUPPRESSED or _is_within_reach(family, together, reasons):
        return FROM_TOTAL
    return None


def _is_within_reach(family: SlicedRelease, together: Cells, reasons: Sequence[str | None]) -> bool:
    """Whether what is hidden in slices is more than all but one of the pairs, or unpublished slices, can hold.

    A slice is not published where it holds less than one cell needs, though a method may have other reasons: if all
    of them hold more than that, nobody can be certain of any.
    """
    finest, cell = _finest(family), as_one_cell(together)
    absent = len(family.input) - len(finest)
    secret = [family.releases[i] for i in finest.values() if reasons[i] is not None]
    if not secret and within_reach(family.guarantee, cell, absent + 1):
        return False
    return within_reach(family.guarantee, cell, absent + sum(n_unlisted_pairs(release) for release in secret))


def _hidden(family: SlicedRelease, basis: str) -> set[str]:
    absolute = family.parameters.get("k_population") == family.guarantee.population
    hidden = set(TELL_SUPPRESSED)
    if family.guarantee.population is None or not absolute:
        hidden |= {"c_avg"} if basis == "weight" else set()
        hidden |= {"cells_under_k_population"} if family.guarantee.population is None else set()
    return hidden


def _overall(family: SlicedRelease, exact: list[dict[str, Measures]], basis: str) -> Measures:
    """The measures of all finest slices together; unpublished ones count as suppressed."""
    finest = _finest(family)
    releases = [family.releases[i] for i in _measured(family)]
    own = [exact[i][basis] for i in _measured(family)]
    whole = np.array([float(np.sum(r.input.volume(basis))) for r in releases])
    shown = np.array([float(np.sum(r.cells.volume(basis))) for r in releases])
    lost = np.array([float(np.sum(s.volume(basis))) for m, s in enumerate(family.input.slices) if m not in finest])
    total, published = float(whole.sum() + lost.sum()), float(shown.sum())
    n_cells = sum(len(r.cells) for r in releases)
    out: Measures = {
        "c_dm": sum(float(o["c_dm"] or 0) for o in own) + float(np.sum(lost**2)),
        "c_avg": published / n_cells / _class_size(family, basis) if published else None,
        "mean_generalization_error": _mean(own, "mean_generalization_error", shown),
        "reconstruction_loss": _loss(own, whole, float(lost.sum()), total),
        "distribution_distance": _mean(own, "distribution_distance", shown),
        "suppressed_share": 1 - published / total if total else 0.0,
        "n_origin_zones": _n_zones(releases, "origin"),
        "n_destination_zones": _n_zones(releases, "destination"),
        "n_cells": n_cells,
        **_distances(own, shown),
    }
    return {**out, **_reached(own)}


def cross_check_of_slices(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The k reached in each unit, and the cells short of it, in all matrices.

    A total may have few people in a cell where the slice that would have them is not published.
    """
    reached = _reached([part["measures"]["trips"] for part in report["slices"]])
    return cross_check(asked_k(report), report["guarantee"], {"trips": reached})


def _reached(own: Sequence[Measures]) -> Measures:
    out: Measures = {}
    for unit in ("trips", "people", "population"):
        known = [v for o in own if (v := o[f"k_{unit}"]) is not None]
        out[f"k_{unit}"] = min(known) if known else None
        short = [o[f"cells_under_k_{unit}"] for o in own]
        out[f"cells_under_k_{unit}"] = None if None in short else int(sum(s for s in short if s is not None))
    return out


def _class_size(family: SlicedRelease, basis: str) -> float:
    if basis == "trips":
        return family.guarantee.k
    if family.guarantee.population is not None:
        return family.guarantee.population
    whole = family.input.whole
    return family.guarantee.k * float(np.sum(whole.volume("weight"))) / float(np.sum(whole.trips))


def _mean(own: list[Measures], name: str, weight: Any) -> float | None:
    pairs = [(float(o[name] or 0), w) for o, w in zip(own, weight, strict=True) if o[name] is not None and w > 0]
    if not pairs:
        return None
    values, weights = zip(*pairs, strict=True)
    return float(np.average(values, weights=weights))


def _loss(own: list[Measures], whole: Any, lost: float, total: float) -> float | None:
    if not total or any(o["reconstruction_loss"] is None for o in own):
        return None
    inside = sum(float(o["reconstruction_loss"] or 0) * v for o, v in zip(own, whole, strict=True))
    return float((inside + lost) / total)


def _distances(own: list[Measures], weight: Any) -> Measures:
    """Mean and standard deviation combine over slices; a median does not."""
    mean = _mean(own, "generalization_distance_m", weight)
    out: Measures = {
        "generalization_distance_m": mean,
        "generalization_distance_median_m": None,
        "generalization_distance_std_m": None,
    }
    if mean is not None:
        squares: list[Measures] = []
        for o in own:
            one, spread = o["generalization_distance_m"], o["generalization_distance_std_m"]
            squares.append({"square": None if one is None or spread is None else one**2 + spread**2})
        second = _mean(squares, "square", weight)
        out["generalization_distance_std_m"] = None if second is None else float(max(second - mean**2, 0.0) ** 0.5)
    return out


def _n_zones(releases: list[Release], end: str) -> int:
    codes: set[str] = set()
    for release in releases:
        number = getattr(release.cells, end)
        used = np.flatnonzero(np.bincount(number)).astype(np.int32)
        codes.update(getattr(release.plan, f"{end}_zones").codes(used).tolist())
    return len(codes)


def statement_of_slices(report: Mapping[str, Any]) -> list[str]:
    """What is and is not protected in a family; like `flowveil.report.summary.statement`, from the other entries."""
    thresholds = _thresholds_in_words(report)
    said = [f"Protected: every published cell of every slice holds at least {thresholds}."]
    said += _about_persons(report["guarantee"])
    said.append(_about_suppression(report["slices"]))
    if report["unpublished_slices"]:
        said.append(
            f"Incomplete: {report['unpublished_slices']} slices could not be published at all; they are not named, "
            "because that somebody is in them could tell something."
        )
    said += _about_places(report)
    said += _about_differences(report)
    said += [
        "Not protected: persons across slices. The same person may be in several slices; slices say nothing of who "
        "is in which.",
        "Not protected: outside knowledge. Whoever knows all but one of the trips of a cell learns the last.",
        "Not protected: other releases. Two releases of overlapping data, or a release beside other published totals, "
        "can be subtracted from each other.",
        "Not claimed: differential privacy. Counts are exact, no noise was added.",
    ]
    return said


def _about_suppression(slices: Sequence[Mapping[str, Any]]) -> str:
    shares = [part["measures"]["trips"]["suppressed_share"] for part in slices]
    if all(share == 0 for share in shares):
        return "Complete: nothing was suppressed in the published slices."
    reasons = {why_share_is_withheld(part) for part, share in zip(slices, shares, strict=True) if share is None}
    if any(shares) or reasons != {BESIDE_OTHERS}:
        return "Incomplete: flows that could not be hidden were suppressed in some slices."
    return f"Withheld: whether and how much was suppressed in the slices is withheld, because {BESIDE_OTHERS}."


def _about_differences(report: Mapping[str, Any]) -> list[str]:
    found = report["differencing"]
    if found["comparisons"] == 0:
        return ["Protected: subtraction. The slices hold different trips, and no total is published beside them."]
    if report["parameters"]["slices"]["common_zones"]:
        return [
            "Protected: subtraction. Matrices of several slices are sums of the published cells of these slices and "
            "tell nothing more; what a slice suppresses is not in them."
        ]
    if found["short"]:
        return [
            f"Not protected: subtraction. {found['short']} of {found['differences']} differences between published "
            "matrices, which any reader can compute, are short of the guarantee; they were accepted."
        ]
    if found["unchecked"]:
        return [
            "Not protected: subtraction. Matrices of the same trips are published beside each other, and what their "
            "differences tell could not be settled; that was accepted."
        ]
    return [
        f"Protected: subtraction. {found['differences']} differences between published matrices that any reader can "
        "compute were counted; none that is above zero is short of the guarantee."
    ]
