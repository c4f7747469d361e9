"""A release as plain data: what report.json and manifest.json say.

Everything here is published, so this is where a measure that would give away a suppressed value is withheld.
The reasoning, case by case, is in ``docs/threat-model.md``.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil import __version__
from flowveil.disclosure.unlisted import n_unlisted_pairs, within_reach

if TYPE_CHECKING:
    from flowveil.flows import Cells
    from flowveil.guarantee import Guarantee
    from flowveil.release.release import Release

#: What a manifest.json of ours says of itself; a folder without it is never overwritten.
FORMAT = "flowveil release"

#: Measures from which, together with the published cells, the suppressed volume can be computed.
TELL_SUPPRESSED = (
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "reconstruction_loss",
    "suppressed_share",
)

#: With fewer suppressed flows or cells than this, whoever knows one of them learns the other from the total.
FEWEST_SUPPRESSED = 3
REVEALS_VALUES = (
    "so little is suppressed, or so much for the few pairs of zones it can lie in, that the total would reveal "
    "single values"
)

#: With fewer cells than this that cover more than one pair of tiles, the losses are withheld; with fewer zones than
#: this that may hold more than one tile, the error.
FEWEST_MERGED = 10
EVEN_INSIDE = "cells are so even inside that the losses would tell what is inside them"
FEW_MERGED = "so few cells cover more than one pair of tiles that the losses would tell what is inside one"
FEW_COARSE = "so few zones may hold more than one tile that the error would reveal how many were seen in one"

#: Measures from which the number of tiles seen in a zone can be computed where there are few zones.
TELL_SEEN = ("floor_ratio", "mean_generalization_error")

#: Measures that tell how trips are spread over the tiles inside cells.
TELL_INSIDE = (
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "reconstruction_loss",
)

#: Said of a population threshold that has nothing to do with k.
GIVEN = "a threshold given as a number; it is not k times the mean weight of a trip"
#: Why measures of one matrix are withheld.
REASONS = (EVEN_INSIDE, FEW_COARSE, FEW_MERGED, REVEALS_VALUES)
#: Between two reasons for withholding; no reason has it inside.
AND = "; and "

#: Significant digits of measures that are computed from tiles, not from published cells. A median is the very
#: distance of one tile: exact, it would name that tile.
_DIGITS = {
    "mean_generalization_error": 4,
    "reconstruction_loss": 4,
    "distribution_distance": 4,
    "floor_generalization_error": 3,
    "floor_ratio": 3,
    "generalization_distance_m": 3,
    "generalization_distance_std_m": 3,
    "generalization_distance_median_m": 2,
}


def summarize(release: Any, *, formats: Sequence[str] = (), basemap: str | None = None) -> dict[str, Any]:
    """The content of report.json: plain, finite, and safe to publish.

    Args:
        release: what is published.
        formats: exports that are written beside it; they are part of the command only.
        basemap: address of the tile server of the report's background map.

    Returns:
        ``version``, ``method``, ``parameters``, ``guarantee``, ``homogeneous``, ``boxes`` (None, or their grid and
        whether a flow may lie in two), ``suppression``, ``measures`` (by basis), ``withheld`` (None, or which
        measures are withheld and why), ``notes``, ``basemap`` where there is one, and the `words`.
    """
    if release.kind == "noisy":
        from flowveil.report.noise import summarize_noise

        return with_words(summarize_noise(release), formats=formats, basemap=basemap)
    if release.kind == "sliced":
        from flowveil.report.family import summarize_family

        return summarize_family(release, formats=formats, basemap=basemap)
    reason = reason_to_withhold(release)
    measures, withheld = published_measures(release, release.metrics(), reason, few_coarse=few_coarse_zones([release]))
    guarantee = _published_guarantee(release, withhold=reason is not None)
    report = {
        "version": __version__,
        "kind": release.kind,
        "method": release.method,
        "parameters": published_parameters(release.parameters),
        "guarantee": guarantee,
        "homogeneous": release.plan.homogeneous,
        "boxes": release.plan.boxes and release.plan.boxes.to_dict(),
        "suppression": release.plan.suppression.to_dict(),
        "measures": measures,
        "withheld": withheld,
        "notes": _published_notes(release.plan.notes, withhold=reason is not None),
    }
    return with_words(report, formats=formats, basemap=basemap)


def with_words(report: Mapping[str, Any], *, formats: Sequence[str], basemap: str | None) -> dict[str, Any]:
    """The whole content of report.json, in JSON types only."""
    plain = {key: _plain(value) for key, value in report.items()}
    if basemap is not None:
        plain["basemap"] = basemap
    # In the order of the file, so that whoever reads it finds the same words.
    plain = json.loads(json_text(plain))
    return {**plain, **words(plain, formats)}


def words(report: Mapping[str, Any], formats: Sequence[str]) -> dict[str, Any]:
    """The entries of report.json that follow from the others: whoever checks a report writes them again.

    Args:
        report: the other entries.
        formats: exports that are written beside it, in the order of `flowveil.publish.exports.FORMATS`.

    Returns:
        ``statement``; ``command``, which makes the release again; and, but for noise, ``cross_check``.
    """
    from flowveil.report.family import cross_check_of_slices, statement_of_slices
    from flowveil.report.noise import noise_statement

    written = {"format": ",".join(formats), "basemap": report.get("basemap")}
    again = {"command": command(report["method"], report["parameters"], written)}
    if "epsilon" in report["guarantee"]:
        return {**again, "statement": noise_statement(report["guarantee"])}
    if "slices" in report:
        return {**again, "statement": statement_of_slices(report), "cross_check": cross_check_of_slices(report)}
    return {
        **again,
        "statement": statement(report),
        "cross_check": cross_check(asked_k(report), report["guarantee"], report["measures"]),
    }


def asked_k(report: Mapping[str, Any]) -> int:
    """The k that units are held against, also where nothing that is protected may be called k."""
    k = report["guarantee"]["k"]
    return int(report["parameters"]["k"] if k is None else k)


def command(method: str, parameters: Mapping[str, Any], written: Mapping[str, str | None]) -> str:
    """The command that makes this release again, for whoever holds the trips; the input's own name is not published.

    Made from the published parameters, so it tells nothing that they do not.
    """
    words = ["flowveil", "anonymize", "INPUT", "--method", method]
    for name in ("k", "k_population", "l", "max_suppressed", "resolution", "max_dropped"):
        if parameters.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(parameters[name])]
    protect = parameters.get("protect") or []
    for unit in [protect] if isinstance(protect, str) else protect:
        words += ["--protect", unit]
    if parameters.get("skip_unknown"):
        words.append("--skip-unknown")
    if parameters.get("person_case") == "keep":
        words += ["--person-case", "keep"]
    if parameters.get("partition_columns"):
        words += ["--partition-columns", ",".join(parameters["partition_columns"])]
    for role, column in _named(parameters, "columns"):
        words += [f"--{role.replace('_', '-')}", column]
    words += _slice_words(parameters.get("slices") or {})
    if parameters.get("zones"):
        words += ["--zones", "MAP"]
    for name, value in _named(parameters, "zones"):
        words += [f"--zones-{name}", _word(value)]
    for name, value in _named(parameters, "options"):
        if value is not None:
            words += ["--option", f"{name}={_word(value)}"]
    for name, text in written.items():
        if text:
            words += [f"--{name}", text]
    return " ".join(shlex.quote(word) for word in [*words, "--out", "DIR"])


def _slice_words(slices: Mapping[str, Any]) -> list[str]:
    """The options of a family of slices."""
    words = []
    for step in [slices.get("every"), *slices.get("also_every", ())]:
        words += ["--every", step] if step else []
    words += [f"--{name.replace('_', '-')}" for name in ("by_many", "total", "common_zones") if slices.get(name)]
    return words


def _named(parameters: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    values = parameters.get(name)
    return list(values.items()) if isinstance(values, Mapping) else []


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def published_measures(
    release: Release,
    exact: Mapping[str, Mapping[str, float | int | None]],
    reason: str | None,
    *,
    few_coarse: bool,
) -> tuple[dict[str, dict[str, float | int | None]], dict[str, Any] | None]:
    """The measures as they may be published, and which are withheld and why (None where none is).

    Args:
        release: the release.
        exact: its measures.
        reason: why the suppressed volume must not be told, if it must not.
        few_coarse: whether too few zones are published that may hold several tiles to tell the error.
    """
    measures = {basis: _published_measures(values) for basis, values in exact.items()}
    hidden: dict[str, set[str]] = {basis: set() for basis in measures}
    reasons = [] if reason is None else [reason]
    if reason is not None:
        hidden = {basis: set(_tell_suppressed(release, basis)) for basis in measures}
    inside = _reason_to_withhold_losses(release, exact["trips"])
    if inside is not None:
        hidden = {basis: names | set(TELL_INSIDE) for basis, names in hidden.items()}
        reasons.append(inside)
    if few_coarse:
        hidden = {basis: names | set(TELL_SEEN) for basis, names in hidden.items()}
        reasons.append(FEW_COARSE)
    for basis, names in hidden.items():
        measures[basis].update(dict.fromkeys(names))
    if not reasons:
        return measures, None
    return measures, {"measures": {b: sorted(n) for b, n in hidden.items()}, "reason": AND.join(reasons)}


def cross_check(
    k: int, guarantee: Mapping[str, Any], measures: Mapping[str, Mapping[str, float | int | None]]
) -> list[dict[str, Any]]:
    """Who is hidden, protected or not: for each unit the data knows, the k that is reached and the cells short of it.

    Protecting trips does not protect people or the population, nor the other way round; this is where it shows.
    """
    counted = measures["trips"]
    return [
        {
            "unit": unit,
            "protected": unit in guarantee["protect"],
            "threshold": guarantee.get(unit, None if unit == "population" else k),
            "k": counted[f"k_{unit}"],
            "cells_short": counted[f"cells_under_k_{unit}"],
        }
        for unit in ("trips", "people", "population")
        if counted.get(f"k_{unit}") is not None
    ]


def manifest(report: Mapping[str, Any], sha256: Mapping[str, str]) -> dict[str, Any]:
    """The content of manifest.json: the hash of every other file, and what is and is not protected."""
    return {
        "format": FORMAT,
        "version": report["version"],
        "sha256": dict(sha256),
        "statement": list(report["statement"]),
    }


def json_text(content: Mapping[str, Any]) -> str:
    """The text of report.json or manifest.json."""
    return json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def reason_to_withhold(release: Release) -> str | None:
    """Why the suppressed volume must not be told, or None where it may be.

    The total of what is suppressed is published like one more cell, so it must satisfy the guarantee like
    one; and it must not be the sum of one or two flows or cells, because whoever knows one would learn the other.
    Flows that were taken out of cells before these were counted are suppressed one by one, not cell by cell.
    Nor must it be so much that no pair it can lie in may be empty; see `flowveil.disclosure.unlisted`. That three cells
    are suppressed follows from telling it, so there must be a fourth pair. All reasons have the same words: which one
    holds would tell the rest.
    """
    suppressed = release.cell_of_flow < 0
    n_flows = int(suppressed.sum())
    if n_flows == 0:
        return None
    whole_cells = release.plan.suppression.rule == "short cells"
    fewest = _cells_among(release, suppressed) if whole_cells else n_flows
    together, n_pairs = as_one_cell(release.input.select(suppressed)), n_unlisted_pairs(release)
    too_little = min(n_flows, fewest) < FEWEST_SUPPRESSED or not _reaches(release.guarantee, together)
    if too_little or n_pairs <= FEWEST_SUPPRESSED or within_reach(release.guarantee, together, n_pairs):
        return REVEALS_VALUES
    return None


def n_merged_cells(release: Release) -> int:
    """How many published cells cover more than one pair of tiles: the terms that the losses are the sum of."""
    plan, cells = release.plan, release.cells
    pairs = plan.origin_zones.size[cells.origin].astype(np.int64) * plan.destination_zones.size[cells.destination]
    return int(np.count_nonzero(pairs > 1))


def coarse_zones(release: Release) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which origin zones and which destination zones may hold more than one tile: by the map, not by what was seen."""
    from flowveil.release.zones import NodeZones

    masks = []
    zones_of_ends = (release.plan.origin_zones, release.plan.destination_zones)
    for zones, possible in zip(zones_of_ends, release.possible_tiles, strict=True):
        if possible is not None:
            masks.append(possible > 1)
        elif isinstance(zones, NodeZones):
            masks.append(~zones.hierarchy.is_leaf[zones.nodes])
        else:
            masks.append(np.ones(len(zones), np.bool_))
    return masks[0], masks[1]


def n_coarse_cells(release: Release) -> int:
    """How many published cells may cover more than one pair of tiles."""
    origins, destinations = coarse_zones(release)
    return int(np.count_nonzero(origins[release.cells.origin] | destinations[release.cells.destination]))


def few_coarse_zones(releases: Sequence[Release], *, errors: int = 1) -> bool:
    """Whether so few zones of a role may hold several tiles that mean generalisation errors would tell how many did.

    An error is one equation between the numbers of tiles seen in the zones; all else in it is published. So there must
    be ten unknown numbers for each equation. A role whose zones are all single tiles adds nothing to tell.

    Args:
        releases: what is published together.
        errors: how many errors are told of them.
    """
    for end, name in enumerate(("origin", "destination")):
        codes: set[str] = set()
        for release in releases:
            zones = (release.plan.origin_zones, release.plan.destination_zones)[end]
            used = np.unique_values(getattr(release.cells, name))
            codes.update(zones.codes(used[coarse_zones(release)[end][used]]).tolist())
        if 0 < len(codes) < FEWEST_MERGED * errors:
            return True
    return False


def is_even_inside(release: Release, exact: Mapping[str, float | int | None]) -> bool:
    """Whether spreading cells evenly misplaces so few trips that most of them must be even inside.

    Args:
        release: what is published.
        exact: its measures by trips.
    """
    total, published = int(release.input.trips.sum()), int(release.cells.trips.sum())
    misplaced = (exact["reconstruction_loss"] or 0.0) * total - (total - published)
    merged = n_merged_cells(release)
    return merged > 0 and misplaced < max(merged, release.guarantee.k)


def few_merged_cells(release: Release) -> bool:
    """Whether losses are the sum of so few terms that they would tell one; none at all tells that one tile was seen."""
    return n_coarse_cells(release) > 0 and n_merged_cells(release) < FEWEST_MERGED


def _reason_to_withhold_losses(release: Release, exact: Mapping[str, float | int | None]) -> str | None:
    """Why the losses must not be told, or None where they may be.

    A cell of a single pair of tiles loses nothing, so the losses are those of the cells that cover more pairs. With one
    such cell, the loss times the volume is how its trips are spread over its tiles. And where hardly a trip is
    misplaced by spreading cells evenly, most cells *are* even, so that the share of each pair of tiles is known.

    Args:
        release: what is published.
        exact: its measures by trips.
    """
    if few_merged_cells(release):
        return FEW_MERGED
    return EVEN_INSIDE if is_even_inside(release, exact) else None


def _tell_suppressed(release: Release, basis: str) -> list[str]:
    """The measures of one basis that are withheld.

    Beside those that count the suppressed volume: those taken against k times the mean weight of a trip,
    because that mean is over all trips, the suppressed ones included.
    """
    hidden = set(TELL_SUPPRESSED)
    if not _population_is_absolute(release):
        hidden |= {"c_avg"} if basis == "weight" else set()
        hidden |= {"cells_under_k_population"} if release.guarantee.population is None else set()
    return sorted(hidden)


def _cells_among(release: Release, flows: NDArray[np.bool_]) -> int:
    plan = release.plan
    pair = plan.origin_zone[flows].astype(np.int64) * len(plan.destination_zones) + plan.destination_zone[flows]
    return len(np.unique_values(pair))


def as_one_cell(rows: Cells) -> Cells:
    """These rows taken as one cell."""
    nowhere = np.zeros(len(rows), np.int32)
    return rows.merge(nowhere, nowhere, 1, 1).cells


def _reaches(guarantee: Guarantee, cell: Cells) -> bool:
    """Whether a cell reaches the thresholds of trips, people and population."""
    return bool(replace(guarantee, locations=None).safe(cell).all())


def _population_is_absolute(release: Release) -> bool:
    threshold = release.guarantee.population
    return threshold is not None and release.parameters.get("k_population") == threshold


def _published_guarantee(release: Release, *, withhold: bool) -> dict[str, Any]:
    """The thresholds; k times the mean weight is not told as a number where the suppressed volume is withheld.

    It would tell the mean weight of all trips, suppressed ones included, and so tie the suppressed weight to the
    suppressed trips.
    """
    named = release.guarantee.to_dict()
    if withhold and "population" in named and not _population_is_absolute(release):
        named["population"] = None
    return named


def _published_measures(values: Mapping[str, float | int | None]) -> dict[str, float | int | None]:
    return {name: _rounded(value, _DIGITS.get(name)) for name, value in values.items()}


def _rounded(value: float | int | None, digits: int | None) -> float | int | None:
    return value if value is None or digits is None else float(f"{value:.{digits}g}")


def _published_notes(notes: Mapping[str, Any], *, withhold: bool) -> dict[str, Any]:
    """A method's notes, without numbers where something is withheld: a method cannot know what they tell.

    Fractions are rounded to three digits: exact, a ratio of sums can be taken apart into the sums.
    """
    shown = {k: v for k, v in notes.items() if not withhold or v is None or isinstance(v, str | bool | np.bool_)}
    return {k: _rounded(float(v), 3) if isinstance(v, float | np.floating) else v for k, v in shown.items()}


def published_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters without any path of the machine that ran.

    Column names stay as they are, slashes and all: whoever verifies the release needs them to read the input.
    """
    return {name: value if name == "columns" else _without_paths(value) for name, value in parameters.items()}


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    is_path = isinstance(value, PathLike) or (isinstance(value, str) and ("/" in value or "\\" in value))
    return "(a path; not published)" if is_path else value


def _plain(value: Any) -> Any:
    """JSON types only; no NaN and no infinity."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(v) for v in ordered]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)


def statement(report: Mapping[str, Any]) -> list[str]:
    """What is and is not protected, one sentence or two each, for readers who do not know the method.

    It follows from the other entries of report.json, so nobody can change what it says and keep the rest.
    """
    guarantee = report["guarantee"]
    said = [f"Protected: every published cell holds at least {_thresholds_in_words(report)}."]
    said += _about_persons(guarantee)
    said.append(_about_suppression(report))
    said += _about_places(report)
    said += [
        "Not protected: outside knowledge. Whoever knows all but one of the trips of a cell learns the last.",
        "Not protected: other releases. Two releases of overlapping data, or a release beside other "
        "published totals, can be subtracted from each other.",
        "Not claimed: differential privacy. Counts are exact, no noise was added.",
    ]
    return said


def _thresholds_in_words(report: Mapping[str, Any]) -> str:
    """The thresholds as published; a population is rounded down, never up: no more is claimed than holds."""
    published = report["guarantee"]
    parts = [f"{published[unit]:,} {unit}" for unit in ("trips", "people") if unit in published]
    if "population" in published and published["population"] is None:
        parts.append(f"a population of {published['k']:,} times the mean weight of a trip")
    elif "population" in published:
        least = published["population"]
        said = f"a population of {math.floor(least):,}" if least >= 10 else f"a population of {least}"
        parts.append(f"{said} ({GIVEN})" if report["parameters"].get("k_population") is not None else said)
    return " and ".join(parts)


def _about_persons(guarantee: Mapping[str, Any]) -> list[str]:
    if "people" in guarantee:
        return [f"Protected: at least {guarantee['people']} different people are behind every published cell."]
    said = []
    if "trips" in guarantee:
        said.append(
            "Not protected: people. Trips were counted, not people: one person may be behind several trips, "
            "and all trips of a cell may be those of one person."
        )
    if "population" in guarantee:
        said.append(
            "Not protected: participants. The population of a cell is a sum of weights; a single participant "
            "with a large weight may stand for all of it, and the number of trips of a cell, which is published, may "
            "be one. Protect trips or people as well where that matters."
        )
    return said


def why_share_is_withheld(report: Mapping[str, Any]) -> str:
    """The reason for withholding the suppressed volume; reasons for withholding losses are named after it."""
    return str(report["withheld"]["reason"]).partition(AND)[0]


def _about_suppression(report: Mapping[str, Any]) -> str:
    share = report["measures"]["trips"]["suppressed_share"]
    if share == 0:
        return "Complete: nothing was suppressed; every flow of the input is counted in a published cell."
    if share is not None:
        return (
            "Incomplete: flows that could not be hidden, or only in zones far too large, were suppressed; "
            "the measures tell their share."
        )
    reason = why_share_is_withheld(report)
    return f"Withheld: something was suppressed, but how much is withheld, because {reason}."


def _about_places(report: Mapping[str, Any]) -> list[str]:
    said = []
    locations = report["guarantee"].get("locations")
    if locations is not None:
        said.append(
            f"Protected: the trips of every cell begin in at least {locations} different tiles, and end in at least "
            f"{locations} different tiles."
        )
    else:
        said.append(
            "Not protected: what a cell has in common. If all trips of a cell end in the same place, or share "
            "anything else, whoever is known to be in the cell is known to share it."
        )
    if report["boxes"] is not None:
        said += _about_boxes(report["boxes"])
    elif not report["homogeneous"]:
        said.append("Zones are nested: areas of different cells may overlap; a flow is counted in one cell only.")
    return said


def _about_boxes(boxes: Mapping[str, Any]) -> list[str]:
    """That boxes overlap, and what their edges tell."""
    overlap = "Zones are boxes, and boxes overlap: a trip is counted in one cell only. "
    if boxes["disjoint"]:
        overlap += "No trip lies in both boxes of two cells, but the areas at one end may overlap."
    else:
        overlap += "It may lie in the boxes of several, so cells must not be added up over an area."
    grid = f"{boxes['grid_lon']:g} degrees of longitude by {boxes['grid_lat']:g} degrees of latitude"
    edges = (
        f"Not protected: the outermost trips of a cell. Edges lie on a grid of {grid}; some trip of the cell "
        "starts or ends in the outermost row of grid squares along each edge. Where a box is one square wide, that row "
        "is a single square: that somebody was there is told, not how many."
    )
    if boxes["finer_than_tiles"]:
        edges += " This grid is finer than the tiles: edges may tell in which tile a trip starts or ends."
    return [overlap, edges]
