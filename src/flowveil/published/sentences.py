"""What is and is not protected, in sentences for readers who do not know the method. A function of the statement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flowveil.release.statement import Statement

#: A smaller k, a larger ε: readers are warned.
WEAK_K = 5
WEAK_EPSILON = 10.0


def sentences(statement: Statement, *, overlapping: int | None = None) -> list[str]:
    """Returns what is and is not protected: one or two sentences each, with a head before the colon.

    Args:
        statement: of the release.
        overlapping: pairs of outlines that overlap, where the zones of an end are disjoint.
    """
    if statement.derived_from is not None:
        return [_of_derivation(statement), *_body(statement, overlapping)]
    return _body(statement, overlapping)


def _of_derivation(statement: Statement) -> str:
    """What was computed, and from what."""
    how = statement.parameters.get("derive") or {}
    steps = [f"slices {', '.join(how['pick'])}"] if "pick" in how else []
    steps += [f"zones of level {how['level']}"] if "level" in how else []
    steps += ["zones of another release"] if "zones_of" in how else []
    steps += [f"sums over {', '.join(how['sum'])}"] if "sum" in how else []
    steps += ["cells with both zones inside an area"] if "within" in how else []
    steps += [f"without {', '.join(how['drop'])}"] if "drop" in how else []
    chosen = f" It holds: {'; '.join(steps)}." if steps else ""
    missing = " Trips that the release suppresses are in no sum." if statement.suppression["rule"] == "sums" else ""
    return (
        "Derived: this table was computed from a published release alone and reveals nothing beyond it."
        + chosen
        + missing
    )


def _body(statement: Statement, overlapping: int | None) -> list[str]:
    lines = _of_noise(statement) if statement.kind == "noisy" else _of_counts(statement, overlapping)
    return [*lines, *_of_spelling(statement.parameters)]


def _of_counts(statement: Statement, overlapping: int | None) -> list[str]:
    guarantee, parameters = statement.guarantee, statement.parameters
    cell = "every published cell of every slice" if statement.slice_columns else "every published cell"
    lines = [f"Protected: {cell} holds at least {guarantee_words(guarantee)}."]
    if guarantee["k"] is not None and guarantee["k"] < WEAK_K:
        lines.append(f"Weak: k = {guarantee['k']} is below {WEAK_K}: the smallest cells protect few.")
    if parameters.get("dominance") is not None:
        lines.append(f"Protected: no person makes more than {parameters['dominance']:.0%} of the trips of a cell.")
    if parameters.get("t") is not None:
        lines.append(
            f"Protected: the destinations of every origin zone, and the origins of every destination zone, differ from "
            f"those of all published trips in at most {parameters['t']:.0%} of its trips (t-closeness)."
        )
    lines += _of_listed_places(parameters.get("stricter"))
    lines += _of_persons(statement)
    if statement.revision_of:
        lines.append(
            "Revised: the trips of an earlier release were corrected. Cells marked as revised count the trips as they "
            "are now; the others keep their earlier value, because it did not change or the change is below the "
            "guarantee."
        )
    lines += _of_missing(statement)
    lines += _of_places(statement, overlapping)
    if parameters.get("outside") == "keep":
        lines.append(
            "Kept: trips with one end outside the study area. That end is the zone 'outside', without a place."
        )
    if statement.slice_columns:
        lines += _of_slices(statement)
    if statement.timezone is not None:
        lines.append(f"Times: in the time zone {statement.timezone}.")
    return [
        *lines,
        "Not protected: outside knowledge. A reader who knows all but one of the trips of a cell learns the last.",
        *_of_ledger(statement),
        "Not protected: other releases. Two releases of overlapping data, or a release and other published totals, "
        "can be subtracted from each other.",
        "Not claimed: differential privacy. Counts are exact, no noise was added.",
    ]


def percent(share: float) -> str:
    """Returns a rounded-up share as text: "at most 3 %"."""
    return f"at most {math.ceil(share * 1000 - 1e-9) / 10:g} %"


def _of_missing(statement: Statement) -> list[str]:
    """What share of the input is not in the release, and why."""
    shares = statement.shares
    if shares is None:
        return []
    outside = "" if shares.outside is None else f" {percent(shares.outside)} lies outside the study area;"
    return [
        f"Incomplete: of the input, by {shares.basis}, {percent(shares.dropped)} could not be read (dropped);{outside} "
        f"{percent(shares.suppressed)} is in no published cell (suppressed). Shares are rounded up to steps of "
        f"{100 * shares.step:.3g} %."
    ]


def _of_listed_places(stricter: Mapping[str, int | None] | None) -> list[str]:
    if stricter is None:
        return []
    highest = " and ".join(f"{name} = {stricter[name]:,}" for name in ("k", "l") if stricter[name] is not None)
    return [
        f"Protected: stricter thresholds around {stricter['places']:,} listed places, which are not named here: up to "
        f"{highest}."
    ]


def _of_ledger(statement: Statement) -> list[str]:
    verdict = statement.ledger
    if verdict is None:
        return []
    overlapping = verdict["overlapping"]
    if not overlapping:
        return ["Checked: the operator's ledger holds no other exact release that may count the same trips."]
    return [
        f"Not protected: subtraction from earlier releases. {overlapping:,} earlier release{'s' * (overlapping != 1)} "
        "of the operator's ledger may count the same trips, and the operator accepted it."
    ]


def _of_persons(statement: Statement) -> list[str]:
    guarantee = statement.guarantee
    if "people" in guarantee:
        return []
    lines = []
    if statement.parameters.get("columns", {}).get("person"):
        units = " ".join(f"--protect {unit}" for unit in guarantee["protect"])
        lines.append(f"Chosen: the input distinguishes persons, and the operator chose {units}.")
    return [*lines, *(CAVEATS[unit] for unit in guarantee["protect"] if unit in CAVEATS)]


def _of_spelling(parameters: Mapping[str, Any]) -> list[str]:
    if parameters.get("person_case") != "keep" or not parameters["columns"].get("person"):
        return []
    return [
        "Not protected: one person in two spellings. Identifiers that differ in case only are different persons here "
        "(--person-case keep)."
    ]


def _of_places(statement: Statement, overlapping: int | None) -> list[str]:
    lines = []
    locations = statement.guarantee.get("locations")
    listed = (statement.parameters.get("l_places") or {}).get("places")
    if locations is not None:
        what = "different tiles" if listed is None else f"of {listed:,} listed places, which are not named here"
        lines.append(f"Protected: the trips of every cell begin in at least {locations} {what}, and end in as many.")
    else:
        lines.append(
            "Not protected: what the trips of a cell have in common. If all of them end in the same place, a person "
            "known to be in the cell is known to go there."
        )
    if statement.boxes is not None:
        lines += _of_boxes(statement.boxes)
    elif statement.kind == "layered":
        lines.append(
            "Layers: every trip is counted in one cell. A cell of a later layer counts the trips that are in no cell "
            "of an earlier layer."
        )
    elif not statement.homogeneous:
        lines.append("Zones are nested: areas of different cells may overlap; a trip is counted in one cell only.")
    elif overlapping:
        lines.append(
            f"Outlines overlap: {overlapping:,} pairs of zones, as on the map that was given. Every trip is counted in "
            "one zone."
        )
    if statement.kind == "folded":
        lines.append(
            "Times are intervals of different lengths, and those of different cells may overlap; a trip is counted in "
            "one cell only. Their bounds are those of fixed trees of times; no bound is the time of a trip."
        )
    return lines


def _of_boxes(boxes: Mapping[str, Any]) -> list[str]:
    overlap = "Zones are boxes, and boxes overlap: a trip is counted in one cell only. "
    if boxes["disjoint"]:
        overlap += "No trip lies in both boxes of two cells, but the areas at one end may overlap."
    else:
        overlap += "It may lie in the boxes of several cells, so cells must not be added up over an area."
    grid = f"{boxes['grid_lon']:g} degrees of longitude by {boxes['grid_lat']:g} degrees of latitude"
    edges = (
        f"Not protected: the outermost trips of a cell. Edges lie on a grid of {grid}; some trip of the cell starts or "
        "ends in the outermost row of grid squares along each edge. Where a box is one square wide, that row is one "
        "square: it is disclosed that someone was there, not how many."
    )
    if boxes["finer_than_tiles"]:
        edges += " This grid is finer than the tiles: edges may reveal in which tile a trip starts or ends."
    return [overlap, edges]


def _of_slices(statement: Statement) -> list[str]:
    """What the matrices of a release reveal together."""
    slices = statement.parameters.get("slices") or {}
    lines = ["Incomplete: slices that are not listed had no trips, or too few to be published."]
    if statement.differencing_accepted:
        lines.append(
            "Not protected: subtraction. Matrices of the same trips are published together; differences between them "
            "may be below the guarantee, and the operator accepted it."
        )
    elif slices.get("common_zones"):
        lines.append("Protected: subtraction. Matrices of several slices are sums of published cells.")
    elif slices.get("total") or slices.get("also_every"):
        lines.append("Protected: subtraction. No difference between published matrices is below the guarantee.")
    else:
        lines.append("Protected: subtraction. The slices hold different trips, and no total is published.")
    return [*lines, "Not protected: persons across slices. The same person may be in several slices."]


# ---- noise ---------------------------------------------------------------------------------------------------------


def _of_noise(statement: Statement) -> list[str]:
    promise = statement.guarantee
    listed = "A listed pair may have had no trips at all, and one that is not listed may have had some."
    if promise["threshold"] is not None:
        listed = f"Pairs are listed only where the noisy count is at least {promise['threshold']:,}."
    most = "at most " if statement.derived_from is not None else ""
    return [
        *_of_unit(promise),
        *_of_weak_noise(promise["epsilon"]),
        *_of_noisy_slices(statement),
        *_of_noisy_zones(promise),
        f"Noisy: every count has random noise of standard deviation {most}{rounded(promise['deviation'])}. "
        f"{_of_steps(promise)}{listed}",
        "Not protected: what holds for many. Differential privacy protects single contributions, not patterns that the "
        "data show with or without them.",
        *_of_budget(statement.ledger),
        "Not protected: other releases. Each further release from the same people adds its ε and δ to these.",
        "Not recounted: this folder alone does not show which part of a count is noise. The operator can check with "
        "flowveil verify whether the counts can be noise of this distribution.",
    ]


def _of_weak_noise(epsilon: float) -> list[str]:
    if epsilon <= WEAK_EPSILON:
        return []
    return [
        f"Weak: ε = {epsilon:g} is above {WEAK_EPSILON:g}: whether a unit is in the data may change the probability of "
        f"an outcome by a factor of {probability_factor(epsilon)}."
    ]


def probability_factor(epsilon: float) -> str:
    """Returns exp(ε) in three digits."""
    return f"{math.exp(min(epsilon, 700)):,.3g}"


def _of_noisy_slices(statement: Statement) -> list[str]:
    if not statement.slice_columns:
        return []
    promise = statement.guarantee
    whose = (
        "every trip is in one of them"
        if promise["unit"] == "trip"
        else f"the {promise['bound']:,} trips that are counted of a person are those in all of them together"
    )
    layers = promise.get("layers", 1)
    again = (
        ""
        if layers == 1
        else f" Matrices of all slices or of longer times hold the same trips again: {layers} layers with "
        f"ε = {promise['epsilon'] / layers:g} each sum to {promise['epsilon']:g}."
    )
    return [
        f"Slices: ε and δ are those of all matrices together, because {whose}.{again} The slices were declared "
        "beforehand; a missing one has nothing left after noise."
    ]


def _of_budget(budget: Mapping[str, Any] | None) -> list[str]:
    if budget is None:
        return []
    most = "" if budget["epsilon_total"] is None else f", of {budget['epsilon_total']:g} that are allowed"
    return [
        f"Added up: with {budget['releases']:,} earlier noisy release{'s' * (budget['releases'] != 1)} of the same "
        f"data set, ε sums to {budget['epsilon']:g}{most}, and δ to {budget['delta']:g}."
    ]


def _of_steps(promise: Mapping[str, Any]) -> str:
    steps = promise.get("steps")
    if not steps:
        return ""
    if steps[0]["of"] == "divisions":
        return "Pairs are as coarse or fine as noisy counts made them, and no two published pairs overlap. "
    return (
        f"The budget was spent in {len(steps)} steps, coarse counts first, and finer counts were corrected to sum to "
        "the coarser ones, so errors of neighbouring pairs depend on each other. "
    )


def _of_unit(promise: Mapping[str, Any]) -> list[str]:
    level = f"differential privacy with ε = {promise['epsilon']:g} and δ = {promise['delta']:g}"
    if promise["domain"]["zones_from_data"]:
        # The first line must not claim more than holds.
        one = "a single trip" if promise["unit"] == "trip" else "any one person"
        level += f", but only as far as the list of zones, which comes from the data, does not depend on {one}"
    if promise["unit"] == "trip":
        return [
            f"Protected: single trips, by {level}. The unit is a trip, because the input does not distinguish persons.",
            "Not protected: people. ε grows with each trip of a person: frequent travellers may show.",
        ]
    over = "over the same zones " if promise["domain"]["zones_from_data"] else ""
    exception = "." if promise["delta"] == 0 else f", but for an exception of probability {promise['delta']:g}."
    return [
        f"Protected: people, by {level}. Whether any one person is in the data, with all trips or none, changes the "
        f"probability of any release {over}by a factor of {probability_factor(promise['epsilon'])} at most{exception}",
        f"Bounded: of each person at most {promise['bound']:,} trips are counted; further ones, and trips of unknown "
        "persons, are not.",
    ]


def _of_noisy_zones(promise: Mapping[str, Any]) -> list[str]:
    if promise["domain"]["zones_from_data"]:
        return [
            "Not protected: the list of zones. It comes from the data: in each listed zone some trip starts or ends."
        ]
    if promise["threshold"] is not None:
        return ["Protected: which pairs have trips. Pairs with few trips are not published."]
    if "steps" in promise:
        return [
            "Protected: which pairs have trips. Zones come from outside the data, and the pairs that were counted "
            "depend on noisy counts alone."
        ]
    return ["Protected: which pairs have trips. All pairs of a list that does not come from the data got noise."]


# ---- units ---------------------------------------------------------------------------------------------------------


#: What protecting a unit leaves open; not stated where people are protected.
CAVEATS = {
    "trips": "Not protected: people. Trips were counted, not people: one person may have made several or all trips of "
    "a cell.",
    "population": "Not protected: participants. The population of a cell is a sum of weights: a single participant "
    "with a large weight may account for all of it, and the published number of trips of a cell may be one.",
}


def threshold_words(unit: str, guarantee: Mapping[str, Any]) -> str:
    """Returns a threshold in words: "10 trips"; k mean weights as the rule."""
    least = guarantee[unit]
    if unit == "population":
        if least is None:
            return f"a population of {guarantee['k']:,} times the mean weight of a trip"
        # Rounded down, so that the claim is never stronger than the guarantee.
        return f"a population of {math.floor(least):,}" if least >= 10 else f"a population of {least}"
    return f"{least:,} {unit}"


def guarantee_words(guarantee: Mapping[str, Any]) -> str:
    """Returns all thresholds of units in words; a population given as a number is marked as such."""
    parts = []
    for unit in ("trips", "people", "population"):
        if unit in guarantee:
            given = unit == "population" and guarantee[unit] is not None
            parts.append(
                threshold_words(unit, guarantee) + (" (given as a number, not derived from k)" if given else "")
            )
    return " and ".join(parts)


def is_noisy(report: Mapping[str, Any]) -> bool:
    """Whether differential privacy is promised, and no smallest cell."""
    return bool(report["kind"] == "noisy")


def promise_of_noise(guarantee: Mapping[str, Any]) -> str:
    """The promise in a few words, for a heading."""
    whom = "person" if guarantee["unit"] == "person" else "trip, not each person"
    given = " (not for the list of zones, which comes from the data)" if guarantee["domain"]["zones_from_data"] else ""
    return f"differential privacy, ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}, for each {whom}{given}"


def rounded(value: float, digits: int = 3) -> str:
    """A number in few digits, written out: 2,150 and not 2.15e+03."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"
