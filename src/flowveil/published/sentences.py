"""A release in words, for readers who do not know the method.

What is and is not protected, and its headline.

The sentences are a function of the statement, the headline one of report.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flowveil.core.times import TIME_COLUMNS
from flowveil.core.unit_names import unit_words
from flowveil.core.values import value_columns
from flowveil.release.facets import Facets
from flowveil.release.statement import Statement

#: A smaller k, a larger ε: readers are warned.
WEAK_K = 5
WEAK_EPSILON = 10.0
#: How many times as large as their noise counts must be, on average, to be added up.
_LARGE = 3
#: Methods whose sums are as exact as their counts.
_CONSISTENT = ("topdown", "posterior")
#: What protecting a unit leaves open; not stated where people are protected.
CAVEATS = {
    "trips": (
        "Not protected: people. Trips were counted, not people: one person may have made several or"
        " all trips of a cell."
    ),
    "vehicles": (
        "Not protected: people. Vehicles were counted, not people: one person may have made trips"
        " of a cell in several vehicles."
    ),
    "population": (
        "Not protected: participants. The population of a cell is a sum of weights: a single"
        " participant with a large weight may account for all of it, and the published number of"
        " trips of a cell may be one."
    ),
}

#: How sentences about what was counted in place of people begin.
NOT_PEOPLE = ("Not protected: people", "Not protected: participants")

#: Without persons, a value that belongs to the person cannot be recognised.
_UNCHECKED_NUMBERS = (
    "Not checked: whether these values belong to trips or to persons. Without a person column, the"
    " numbers of two cells with nearly the same people may differ by the value of one person."
)


def sentences(statement: Statement, *, overlapping: int | None = None) -> list[str]:
    """Returns what is and is not protected: one or two sentences each, with a head before the
    colon.

    ``overlapping`` counts the pairs of outlines that overlap, where the zones of an end are
    disjoint.
    """
    lines = [] if statement.derived_from is None else [_of_derivation(statement)]
    lines += (
        _of_noise(statement) if statement.facets.is_noisy else _of_counts(statement, overlapping)
    )
    parameters = statement.parameters
    if parameters.get("person_case") == "keep" and parameters["columns"].get("person"):
        lines.append(
            "Not protected: one person in two spellings. Identifiers that differ in case only are"
            " different persons here (person_case is keep)."
        )
    return lines


def _of_derivation(statement: Statement) -> str:
    """What was computed, and from what."""
    how = statement.parameters.get("derive") or {}
    listed = {name: ", ".join(how[name]) for name in ("pick", "sum", "drop") if name in how}
    steps = {
        "pick": f"slices {listed.get('pick')}",
        "level": f"zones of level {how.get('level')}",
        "zones_of": "zones of another release",
        "sum": f"sums over {listed.get('sum')}",
        "within": "cells with both zones inside an area",
        "drop": f"without {listed.get('drop')}",
    }
    chosen = "; ".join(text for name, text in steps.items() if name in how)
    holds = f" It holds: {chosen}." if chosen else ""
    missing = (
        " Trips that the release suppresses are in no sum."
        if statement.suppression["rule"] == "sums"
        else ""
    )
    if "inside" in how:
        missing += (
            f" Cells of a wider {' or '.join(how['inside'])} than that are not in it: their trips"
            " are missing."
        )
    text = (
        "Derived: this table was computed from a published release alone and reveals nothing"
        " beyond it."
    )
    return f"{text}{holds}{missing}"


def _of_counts(statement: Statement, overlapping: int | None) -> list[str]:
    guarantee, parameters = statement.guarantee, statement.parameters
    cell = (
        "every published cell of every slice" if statement.slice_columns else "every published cell"
    )
    lines = [f"Protected: {cell} holds at least {guarantee_words(guarantee, parameters)}."]
    if guarantee["k"] is not None and guarantee["k"] < WEAK_K:
        lines.append(
            f"Weak: k = {guarantee['k']} is below {WEAK_K}: the smallest cells protect few."
        )
    lines += _of_thresholds(statement)
    lines += _of_rules(parameters)
    lines += _of_numbers(parameters) if parameters.get("between") else []
    if "people" in guarantee and unit_words("people", parameters) == "vehicles":
        lines.append(CAVEATS["vehicles"])
    if "people" not in guarantee:
        if parameters.get("columns", {}).get("person"):
            units = " ".join(f"--protect {unit}" for unit in guarantee["protect"])
            lines.append(
                f"Chosen: the input distinguishes persons, and the operator chose {units}."
            )
        lines += [_caveat(unit, parameters) for unit in guarantee["protect"] if unit in CAVEATS]
    if statement.revision_of:
        lines.append(
            "Revised: the trips of an earlier release were corrected. Cells marked as revised count"
            " the trips as they are now; the others keep their earlier value, because it did not"
            " change or the change is below the guarantee."
        )
    shares = statement.shares
    if shares is not None:
        outside = (
            ""
            if shares.outside is None
            else f" {percent(shares.outside)} lies outside the study area;"
        )
        lines.append(
            f"Incomplete: of the input, by {shares.basis}, {percent(shares.dropped)} could not be"
            f" read (dropped);{outside} {percent(shares.suppressed)} is in no published cell"
            f" (suppressed). Shares are rounded up to steps of {100 * shares.step:.3g} %."
        )
    lines += _of_places(statement, overlapping)
    if parameters.get("outside") == "keep":
        lines.append(
            "Kept: trips with one end outside the study area. That end is the zone 'outside',"
            " without a place."
        )
    lines += _of_slices() if statement.slice_columns else []
    if statement.timezone is not None:
        lines.append(f"Times: in the time zone {statement.timezone}.")
    lines.append(
        "Not protected: outside knowledge. A reader who knows all but one of the trips of a cell"
        " learns the last."
    )
    if statement.ledger is not None:
        n = statement.ledger["overlapping"]
        lines.append(
            f"Not protected: subtraction from earlier releases. {n:,} earlier"
            f" release{'s' * (n != 1)} of the operator's ledger may count the same trips, and the"
            " operator accepted it."
            if n
            else (
                "Checked: the operator's ledger holds no other exact release that may count the"
                f" same trips{' but those that this one revises' * bool(statement.revision_of)}."
            )
        )
    return [
        *lines,
        (
            "Not protected: other releases. Two releases of overlapping data, or a release and"
            " other published totals, can be subtracted from each other."
        ),
        "Not claimed: differential privacy. Counts are exact, no noise was added.",
    ]


def _caveat(unit: str, parameters: Mapping[str, Any]) -> str:
    """What protecting a unit leaves open, with the name of what was counted."""
    word = unit_words(unit, parameters)
    if word == unit:
        return CAVEATS[unit]
    return CAVEATS[unit].replace("Trips", word.capitalize()).replace("trips", word)


def _of_thresholds(statement: Statement) -> list[str]:
    """What a reader can prove about parts of a cell."""
    if statement.thresholds != "k":
        line = (
            "Protected: the parts of a cell. A pair of zones is a cell only if it has k plus a"
            " secret amount, so nothing can be proven about smaller zones inside a cell: neither"
            " that they have trips nor that they have fewer than k."
        )
        locations = statement.guarantee.get("locations")
        if locations is not None:
            line += (
                f" Except what l says: a zone of just {locations:,} locations has trips in each."
            )
        return [line]
    if statement.parameters.get("secret_thresholds") != "false":
        return []
    return [
        "Not protected: the parts of a cell. Thresholds are exactly k, so a reader who knows the"
        " method can bound the trips of smaller zones inside a cell, and sometimes compute them."
    ]


def _of_rules(parameters: Mapping[str, Any]) -> list[str]:
    """The rules that are applied after a method.

    Dominance, t-closeness, stricter thresholds around listed places.
    """
    lines, stricter = [], parameters.get("stricter")
    if parameters.get("dominance") is not None:
        lines.append(
            f"Protected: no person makes more than {parameters['dominance']:.0%} of the trips of a"
            " cell."
        )
    if parameters.get("t") is not None:
        lines.append(
            "Protected: the destinations of every origin zone, and the origins of every"
            " destination zone, differ from those of all published trips in at most"
            f" {parameters['t']:.0%} of its trips (t-closeness)."
        )
    if stricter is not None:
        highest = " and ".join(
            f"{name} = {stricter[name]:,}" for name in ("k", "l") if stricter[name] is not None
        )
        lines.append(
            f"Protected: stricter thresholds around {stricter['places']:,} listed places, which are"
            f" not named here: up to {highest}."
        )
    return lines


def _of_numbers(parameters: Mapping[str, Any]) -> list[str]:
    """Means, totals and medians."""
    share, p = parameters["value_share"], parameters["p_percent"]
    who = "person" if parameters["columns"].get("person") else "trip"
    who = "vehicle" if unit_words("people", parameters) == "vehicles" else who
    listed = ", ".join(value_columns(parameters["columns"]))
    return [
        (
            f"Numbers: {listed}, rounded to three significant digits, of values inside declared"
            f" bounds ({'; '.join(parameters['between'])}). A cell has no number if too few of its"
            f" trips have a value, or if one {who} would stand out."
        ),
        (
            f"Protected: no {who} has more than {share:.0%} of the total of a number, and the"
            f" second largest contributor cannot estimate the largest from above within {p:g} % (p"
            " % rule)."
        ),
        (
            "Not protected: that a number is missing. It says that too few values are known, or"
            " that one is large."
        ),
        *([] if parameters["columns"].get("person") else [_UNCHECKED_NUMBERS]),
    ]


def _of_places(statement: Statement, overlapping: int | None) -> list[str]:
    locations = statement.guarantee.get("locations")
    listed = (statement.parameters.get("l_places") or {}).get("places")
    if locations is not None:
        what = (
            "different tiles"
            if listed is None
            else f"of {listed:,} listed places, which are not named here"
        )
        lines = [
            f"Protected: the trips of every cell begin in at least {locations} {what}, and end in"
            " as many."
        ]
    else:
        lines = [
            "Not protected: what the trips of a cell have in common. If all of them end in the same"
            " place, a person known to be in the cell is known to go there."
        ]
    if statement.boxes is not None:
        lines += _of_boxes(statement.boxes)
    elif statement.facets.layers:
        which = "layer of its slice" if statement.facets.separates else "layer"
        lines.append(
            "Layers: every trip is counted in one cell. A cell of a later layer counts the trips"
            f" that are in no cell of an earlier {which}."
        )
    elif not statement.homogeneous:
        lines.append(
            "Zones are nested: areas of different cells may overlap; a trip is counted in one cell"
            " only."
        )
    elif overlapping:
        lines.append(
            f"Outlines overlap: {overlapping:,} pairs of zones, as on the map that was given. Every"
            " trip is counted in one zone."
        )
    if TIME_COLUMNS[0] in statement.fold_columns:
        lines.append(
            "Times are intervals of different lengths, and those of different cells may overlap; a"
            " trip is counted in one cell only. Their bounds are those of fixed trees of times; no"
            " bound is the time of a trip. Where times have dates, the widest intervals reach from"
            " the first to the last month that has trips, however few."
        )
    if statement.facets.folds and statement.parameters.get("fold"):
        named = " and ".join(name for name in statement.fold_columns if name not in TIME_COLUMNS)
        lines.append(
            f"Folded: a cell has a value or a group of values of {named}, on a tree that the"
            " publisher gave and report.json contains. Groups of different cells may overlap; a"
            " trip is counted in one cell only."
        )
    return lines


def _of_boxes(boxes: Mapping[str, Any]) -> list[str]:
    overlap = "Zones are boxes, and boxes overlap: a trip is counted in one cell only. "
    if boxes["disjoint"]:
        overlap += "No trip lies in both boxes of two cells, but the areas at one end may overlap."
    else:
        overlap += (
            "It may lie in the boxes of several cells, so cells must not be added up over an area."
        )
    grid = (
        f"{boxes['grid_lon']:g} degrees of longitude by {boxes['grid_lat']:g} degrees of latitude"
    )
    edges = (
        f"Not protected: the outermost trips of a cell. Edges lie on a grid of {grid}; some trip of"
        " the cell starts or ends in the outermost row of grid squares along each edge. Where a"
        " box is one square wide, that row is one square: it is disclosed that someone was there,"
        " not how many."
    )
    if boxes["finer_than_tiles"]:
        edges += (
            " This grid is finer than the tiles: edges may reveal in which tile a trip starts or"
            " ends."
        )
    return [overlap, edges]


def _of_slices() -> list[str]:
    """What the matrices of a release reveal together."""
    return [
        "Incomplete: slices that are not listed had no trips, or too few to be published.",
        "Protected: subtraction. The slices hold different trips, and no total is published.",
        "Not protected: persons across slices. The same person may be in several slices.",
    ]


# ---- noise ---------------------------------------------------------------------------------------


def _of_noise(statement: Statement) -> list[str]:
    promise, budget = statement.guarantee, statement.ledger
    epsilon, steps = promise["epsilon"], promise.get("steps")
    lines = [*_of_unit(promise), _odds(promise)]
    if epsilon > WEAK_EPSILON:
        lines.append(
            f"Weak: ε = {epsilon:g} is above {WEAK_EPSILON:g}: whether a unit is in the data may"
            f" change the probability of an outcome by a factor of {_probability_factor(epsilon)}."
        )
    lines += _of_noisy_slices(promise) if statement.slice_columns else []
    lines.append(_of_noisy_zones(promise))
    listed = (
        "A listed pair may have had no trips at all, and one that is not listed may have had some."
    )
    if promise["threshold"] is not None:
        listed = (
            f"Pairs are listed only where the noisy count is at least {promise['threshold']:,}."
        )
    how = ""
    if steps and steps[0]["of"] == "divisions":
        how = (
            "Pairs are as coarse or fine as noisy counts made them, and no two published pairs"
            " overlap. "
        )
    elif statement.method == "posterior":
        return [*lines, *_of_estimated_counts(promise), *_of_repetition(budget)]
    elif steps:
        how = (
            f"The budget was spent in {len(steps)} steps, coarse counts first, and finer counts"
            " were corrected to sum to the coarser ones, so errors of neighbouring pairs depend on"
            " each other. "
        )
        if not statement.homogeneous:
            how += (
                "Pairs whose trips are mostly in finer pairs with small counts are published"
                " undivided; finer pairs that are not listed were added to listed ones. "
            )
    most = "at most " if statement.derived_from is not None else ""
    lines += [
        (
            "Noisy: every count has random noise of standard deviation"
            f" {most}{rounded(promise['deviation'])}. {how}{listed}"
        ),
        _OF_MANY,
    ]
    return [*lines, *_of_repetition(budget)]


_OF_MANY = (
    "Not protected: what holds for many. Differential privacy protects single contributions, not"
    " patterns that the data show with or without them."
)


def _of_estimated_counts(promise: Mapping[str, Any]) -> list[str]:
    _, of_pairs, *of_slices = promise["steps"]
    again = "".join(
        " The pairs found were counted once more in each slice, with noise of standard deviation"
        f" {rounded(step['deviation'])}."
        for step in of_slices
    )
    return [
        (
            "Noisy: the count of every pair of districts got random noise of standard deviation"
            f" {rounded(of_pairs['deviation'])}, and so did trips by distance, with a smaller part"
            f" of ε.{again} The published counts are the most probable whole numbers given these"
            " noisy counts: estimates, whose errors depend on each other. The noisy counts"
            " themselves are not published. A listed pair may have had no trips at all, and one"
            " that is not listed may have had some."
        ),
        _OF_MANY,
    ]


def _of_repetition(budget: Mapping[str, Any] | None) -> list[str]:
    lines = []
    if budget is not None:
        allowed = (
            ""
            if budget["epsilon_total"] is None
            else f", of {budget['epsilon_total']:g} that are allowed"
        )
        lines.append(
            f"Added up: with {budget['releases']:,} earlier noisy"
            f" release{'s' * (budget['releases'] != 1)} of the same data set, ε sums to"
            f" {budget['epsilon']:g}{allowed}, and δ to {budget['delta']:g}."
        )
    return [
        *lines,
        (
            "Not protected: other releases. Each further release from the same people adds its ε"
            " and δ to these."
        ),
        (
            "Not recounted: this folder alone does not show which part of a count is noise. The"
            " operator can check with flowveil verify whether the counts can be noise of this"
            " distribution."
        ),
    ]


def _odds(promise: Mapping[str, Any]) -> str:
    """Returns what ε means for a reader's belief about one unit."""
    epsilon = min(promise["epsilon"], 700)
    highest = math.floor(1000 / (1 + math.exp(-epsilon)) + 1) / 10
    range_ = (
        f"to a probability between {100 - highest:.3g} and {highest:.3g} %"
        if highest < 100
        else "to near certainty"
    )
    one = "a certain trip" if promise["unit"] == "trip" else "a certain person"
    exception = ""
    if promise["delta"] > 0:
        exception = f", but for an exception of probability {promise['delta']:g}"
    return (
        f"In words: a reader who gives even odds that {one} is in the data can come, by this"
        f" release and whatever else is known, {range_}{exception}. Other odds change by a"
        f" factor of {_probability_factor(promise['epsilon'])} at most."
    )


def _probability_factor(epsilon: float) -> str:
    """exp(ε) in three digits."""
    return f"{math.exp(min(epsilon, 700)):,.3g}"


def _of_noisy_slices(promise: Mapping[str, Any]) -> list[str]:
    whose = "every trip is in one of them"
    if promise["unit"] != "trip":
        whose = (
            f"the {promise['bound']:,} trips that are counted of a person are those in all of them"
            " together"
        )
    return [
        f"Slices: ε and δ are those of all matrices together, because {whose}. The slices"
        " were declared beforehand; a missing one has nothing left after noise."
    ]


def _of_unit(promise: Mapping[str, Any]) -> list[str]:
    level = f"differential privacy with ε = {promise['epsilon']:g} and δ = {promise['delta']:g}"
    if promise["domain"]["zones_from_data"]:
        # The first line must not claim more than holds.
        one = "a single trip" if promise["unit"] == "trip" else "any one person"
        level += (
            ", but only as far as the list of zones, which comes from the data, does not depend on"
            f" {one}"
        )
    if promise["unit"] == "trip":
        return [
            (f"Protected: single trips, by {level}. The unit is a trip, not a person."),
            (
                "Not protected: people. ε grows with each trip of a person: frequent travellers may"
                " show."
            ),
        ]
    over = "over the same zones " if promise["domain"]["zones_from_data"] else ""
    exception = (
        "."
        if promise["delta"] == 0
        else f", but for an exception of probability {promise['delta']:g}."
    )
    return [
        (
            f"Protected: people, by {level}. Whether any one person is in the data, with all trips"
            f" or none, changes the probability of any release {over}by a factor of"
            f" {_probability_factor(promise['epsilon'])} at most{exception}"
        ),
        (
            f"Bounded: of each person at most {promise['bound']:,} trips are counted; further ones,"
            " and trips of unknown persons, are not."
        ),
    ]


def _of_noisy_zones(promise: Mapping[str, Any]) -> str:
    if promise["domain"]["zones_from_data"]:
        return (
            "Not protected: the list of zones. It comes from the data: in each listed zone some"
            " trip starts or ends."
        )
    if promise["threshold"] is not None:
        return "Protected: which pairs have trips. Pairs with few trips are not published."
    if "steps" in promise:
        return (
            "Protected: which pairs have trips. Zones come from outside the data, and the pairs"
            " that were counted depend on noisy counts alone."
        )
    return (
        "Protected: which pairs have trips. All pairs of a list that does not come from the data"
        " got noise."
    )


# ---- guarantees and figures ----------------------------------------------------------------------


def percent(share: float) -> str:
    """Returns a rounded-up share as text: "at most 3 %"."""
    return f"at most {math.ceil(share * 1000 - 1e-9) / 10:g} %"


def rounded(value: float, digits: int = 3) -> str:
    """Returns a number in few digits, written out: 2,150 and not 2.15e+03."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def guarantee_words(guarantee: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """Returns the thresholds of all units in words: "10 trips".

    K mean weights as the rule, a given number as such.
    """
    parts = [
        f"{guarantee[unit]:,} {unit_words(unit, parameters)}"
        for unit in ("trips", "people")
        if unit in guarantee
    ]
    least = guarantee.get("population")
    if least is not None:
        # Rounded down, so that the claim is never stronger than the guarantee.
        shown = f"{math.floor(least):,}" if least >= 10 else str(least)
        parts.append(f"a population of {shown} (given as a number, not derived from k)")
    elif "population" in guarantee:
        parts.append(f"a population of {guarantee['k']:,} times the mean weight of a trip")
    return " and ".join(parts)


def is_noisy(report: Mapping[str, Any]) -> bool:
    """Whether counts are noisy, and no smallest cell is promised."""
    return Facets.from_report(report).is_noisy


def promise_of_noise(guarantee: Mapping[str, Any]) -> str:
    """The promise in a few words, for a heading."""
    whom = "person" if guarantee["unit"] == "person" else "trip, not each person"
    given = (
        " (not for the list of zones, which comes from the data)"
        if guarantee["domain"]["zones_from_data"]
        else ""
    )
    return (
        f"differential privacy, ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}, for each"
        f" {whom}{given}"
    )


# ---- the top of a page ---------------------------------------------------------------------------


def sentence(report: Mapping[str, Any]) -> str:
    """Returns the release in one sentence: how much, between what, who is protected, how
    precise.
    """
    published, guarantee = report["published"], report["guarantee"]
    counts = {end: published[f"{end}_zones"] for end in ("origin", "destination")}
    ends = " and ".join(f"{n:,} {end}{'' if n == 1 else 's'}" for end, n in counts.items())
    total, n_cells = published["trips"], published["cells"]
    if not is_noisy(report):
        start, covers = (
            f"{total:,} {unit_words('trips', report['parameters'])}",
            f"every number covers at least {guarantee_words(guarantee, report['parameters'])}",
        )
    else:
        # A sum of noisy counts is rounded, and not given where it is mostly noise.
        counted = unit_words("trips", report.get("parameters", {}))
        start = f"About {float(f'{total:.3g}'):,.0f} {counted}"
        if (
            report["method"] not in _CONSISTENT
            and total < _LARGE * guarantee["deviation"] * n_cells
        ):
            start = f"Noisy counts of {n_cells:,} pairs, whose sum is mostly noise,"
        noise = rounded(guarantee["deviation"], 2)
        covers = f"every number has random noise of about ±{noise} (ε = {guarantee['epsilon']:g})"
        if report["method"] == "posterior":
            covers = (
                "every number is estimated from counts with random noise of about"
                f" ±{noise} (ε = {guarantee['epsilon']:g})"
            )
    both = published["both_ends_within_m"]["1000"]
    known = (
        ""
        if both is None
        else f"; both ends are known within 1 km for {both:.0%} of the trips".replace("%", " %")
    )
    return f"{start} between {ends}; {covers}{known}."


def missing(report: Mapping[str, Any]) -> str:
    """Returns what share of the input is not published, by reason."""
    shares = report["statement"]["shares"]
    reasons = [f"{percent(shares['suppressed'])} of the {shares['basis']} suppressed"]
    if shares["outside"] is not None:
        reasons.append(f"{percent(shares['outside'])} outside the study area")
    return ", ".join(
        [*reasons, f"{percent(shares['dropped'])} dropped because they could not be read"]
    )


Said = list[tuple[str, str]]


def sides(statement: Sequence[str]) -> tuple[Said, Said, Said]:
    """The sentences of a statement as (head, rest).

    What is protected, what is not, and how to read the rest.
    """
    protected: Said = []
    not_protected: Said = []
    rest: Said = []
    side = {"Protected": protected} | dict.fromkeys(
        ("Not protected", "Not claimed", "Weak", "Chosen"), not_protected
    )
    for line in statement:
        head, text = line.split(":", 1) if ":" in line else ("", line)
        # Below a heading that says so already, what it is about comes first.
        side.get(head, rest).append(
            ("" if head in ("Protected", "Not protected") else head, text.strip())
        )
    return protected, not_protected, rest
