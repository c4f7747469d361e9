"""What is and is not protected, in sentences, for readers who do not know the method.

They follow from the other entries of report.json, so nobody can change what they say and keep the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowveil.disclosure import confirmation
from flowveil.disclosure.withholding import AND, BESIDE_OTHERS
from flowveil.guarantee import UNITS
from flowveil.methods.epsilon import weakness
from flowveil.published.noise import rounded

#: Said of a population threshold that has nothing to do with k.
GIVEN = "a threshold given as a number; it is not k times the mean weight of a trip"


def statement(report: Mapping[str, Any]) -> list[str]:
    """What is and is not protected, one sentence or two each."""
    said = _of_noise(report) if report["kind"] == "noisy" else _of_counts(report)
    return [*said, *_about_spelling(report["parameters"])]


def _of_counts(report: Mapping[str, Any]) -> list[str]:
    sliced = report["kind"] == "sliced"
    cell = "every published cell of every slice" if sliced else "every published cell"
    said = [f"Protected: {cell} holds at least {thresholds_in_words(report)}."]
    weak = confirmation.weakness(report["guarantee"]["k"])
    said += [weak] if weak else []
    share = report["parameters"].get("dominance")
    if share is not None:
        said.append(f"Protected: in no published cell one person makes more than {share:.0%} of the trips.")
    said += _about_listed_places(report["parameters"].get("stricter"))
    said += _about_persons(report)
    if "revision_of" in report["parameters"]:
        said.append(
            "Revised: the trips of an earlier release were corrected. Cells marked as revised count the trips as they "
            "are now; the others have their earlier value, because they did not change, or because the change by "
            "itself falls short of the guarantee. What is suppressed is withheld."
        )
    else:
        said += _about_suppressed_slices(report) if sliced else [_about_suppression(report)]
    said += _about_places(report)
    said += _about_outside(report["parameters"])
    if sliced:
        said += _about_differences(report)
        said.append(
            "Not protected: persons across slices. The same person may be in several slices; slices say nothing of "
            "who is in which."
        )
    return [
        *said,
        "Not protected: outside knowledge. Whoever knows all but one of the trips of a cell learns the last.",
        *_about_audit(report["parameters"].get("audit")),
        *_about_earlier(report["parameters"].get("ledger")),
        "Not protected: other releases. Two releases of overlapping data, or a release beside other published totals, "
        "can be subtracted from each other.",
        "Not claimed: differential privacy. Counts are exact, no noise was added.",
    ]


def _about_audit(found: Mapping[str, Any] | None) -> list[str]:
    """What the audits that were run when the release was written have found."""
    if found is None:
        return []
    origins, destinations = found["homogeneity"]
    return [
        "Checked: the measures give no suppressed trips below the guarantee. "
        f"Of {origins['zones']:,} origin zones {origins['above']:,} send more than 90 % of their published trips to "
        f"one; of {destinations['zones']:,} destination zones {destinations['above']:,} receive as much from one."
    ]


def _about_outside(parameters: Mapping[str, Any]) -> list[str]:
    """That trips across the border of the area are in the release, where they are."""
    if parameters.get("outside") != "keep":
        return []
    return [
        "Kept: trips with one end outside the study area. That end is one zone, 'outside', which lies nowhere: it has "
        "no outline and is not drawn, and distances do not count it."
    ]


def _about_listed_places(stricter: Mapping[str, int | None] | None) -> list[str]:
    """That more is asked around listed places, where it is."""
    if stricter is None:
        return []
    highest = " and ".join(f"{name} = {stricter[name]:,}" for name in ("k", "l") if stricter[name] is not None)
    places = f"{stricter['places']:,} listed place{'s' * (stricter['places'] != 1)}"
    return [
        f"Protected: more around {places}, which are not named here. A cell with such a place in one of its zones is "
        f"published only if it reaches the higher threshold set for the place, up to {highest}."
    ]


def _about_earlier(audit: Mapping[str, int] | None) -> list[str]:
    """What the audit against earlier releases of the same data set found, where there was one."""
    if audit is None:
        return []
    against = f"{audit['releases']:,} earlier release{'s' * (audit['releases'] != 1)} of the same data set"
    if not audit["groups"] and not audit["unchecked"]:
        return [f"Checked: subtraction against {against} gives no group below the guarantee."]
    return [
        f"Not protected: subtraction from earlier releases. Against {against}, {audit['groups']:,} groups below the "
        f"guarantee can be computed ({audit['single_trips']:,} of a single trip), and {audit['unchecked']:,} "
        "comparisons could not be made. Whoever made this release confirmed it."
    ]


def thresholds_in_words(report: Mapping[str, Any]) -> str:
    """The thresholds as published."""
    guarantee, parts = report["guarantee"], []
    for unit in UNITS.values():
        if unit.name not in guarantee:
            continue
        least = guarantee[unit.name]
        said = unit.if_withheld(guarantee["k"]) if least is None else unit.in_words(least)
        given = least is not None and report["parameters"].get(f"k_{unit.name}") is not None
        parts.append(f"{said} ({GIVEN})" if given else said)
    return " and ".join(parts)


def _about_persons(report: Mapping[str, Any]) -> list[str]:
    guarantee = report["guarantee"]
    protected = [unit for unit in UNITS.values() if unit.name in guarantee]
    persons = [guarantee[unit.name] for unit in protected if unit.counts_persons]
    if persons:
        return [f"Protected: at least {max(persons)} different people are behind every published cell."]
    chosen = []
    if report["parameters"].get("columns", {}).get("person"):
        # The default would have been people: whoever reads the release must see that it was not forgotten but decided.
        units = " ".join(f"--protect {unit.name}" for unit in protected)
        chosen = [f"Chosen: the input distinguishes persons, and whoever made this release chose {units} all the same."]
    return [*chosen, *(unit.caveat for unit in protected if unit.caveat)]


def _about_spelling(parameters: Mapping[str, Any]) -> list[str]:
    """That two spellings of one person would count as two people, where the data holder chose so."""
    if parameters.get("person_case") != "keep" or not parameters["columns"].get("person"):
        return []
    return [
        "Not protected: one person in two spellings. Upper and lower case are taken as different persons "
        "(--person-case keep): somebody who is spelled both A7 and a7 counts as two."
    ]


def _why_share_is_withheld(part: Mapping[str, Any]) -> str:
    """The reason for withholding the suppressed volume; reasons for withholding losses are named after it."""
    return str(part["withheld"]["reason"]).partition(AND)[0]


def _about_suppression(report: Mapping[str, Any]) -> str:
    share = report["measures"]["trips"]["suppressed_share"]
    if share == 0:
        return "Complete: nothing was suppressed; every flow of the input is counted in a published cell."
    if share is not None:
        return (
            "Incomplete: flows that could not be hidden, or only in zones far too large, were suppressed; "
            "the measures disclose their share."
        )
    reason = _why_share_is_withheld(report)
    return f"Withheld: something was suppressed, but how much is withheld, because {reason}."


def _about_suppressed_slices(report: Mapping[str, Any]) -> list[str]:
    slices = report["slices"]
    shares = [part["measures"]["trips"]["suppressed_share"] for part in slices]
    reasons = {_why_share_is_withheld(part) for part, share in zip(slices, shares, strict=True) if share is None}
    if all(share == 0 for share in shares):
        said = "Complete: nothing was suppressed in the published slices."
    elif any(shares) or reasons != {BESIDE_OTHERS}:
        said = "Incomplete: flows that could not be hidden were suppressed in some slices."
    else:
        said = f"Withheld: whether and how much was suppressed in the slices is withheld, because {BESIDE_OTHERS}."
    if report["unpublished_slices"] is None:
        return [said, "Incomplete: steps of time that are not listed had no trips, or too few to be published."]
    if not report["unpublished_slices"]:
        return [said]
    return [
        said,
        f"Incomplete: {report['unpublished_slices']} slices could not be published at all; they are not named, "
        "because their names would disclose that somebody is in them.",
    ]


def _about_places(report: Mapping[str, Any]) -> list[str]:
    said = []
    locations = report["guarantee"].get("locations")
    listed = (report["parameters"].get("l_places") or {}).get("places")
    if locations is not None and listed is not None:
        said.append(
            f"Protected: in the tiles in which the trips of every cell begin lie at least {locations} of {listed:,} "
            "listed places, which are not named here, and as many in those in which they end."
        )
    elif locations is not None:
        said.append(
            f"Protected: the trips of every cell begin in at least {locations} different tiles, and end in at least "
            f"{locations} different tiles."
        )
    else:
        said.append(
            "Not protected: what a cell has in common. If all trips of a cell end in the same place, or share "
            "anything else, whoever is known to be in the cell is known to share it."
        )
    if report["kind"] == "boxed":
        said += _about_boxes(report["boxes"])
    elif not report["homogeneous"]:
        said.append("Zones are nested: areas of different cells may overlap; a flow is counted in one cell only.")
    elif report["overlapping_outlines"]:
        said.append(
            f"Outlines overlap: {report['overlapping_outlines']:,} pairs of zones, as in the map that was given. Every "
            "trip is counted in one zone, but a place in an overlap is drawn in two."
        )
    if report["kind"] == "folded":
        said.append(
            "Times are intervals of different lengths, and those of different cells may overlap; a flow is counted in "
            "one cell only."
        )
        said.append(
            "Not protected: when many travel. Short intervals and small zones stand where trips are many. Their "
            "bounds are those of fixed trees of times and places; no bound is the time or the place of a trip."
        )
    return said


def _about_boxes(boxes: Mapping[str, Any]) -> list[str]:
    """That boxes overlap, and what their edges reveal."""
    overlap = "Zones are boxes, and boxes overlap: a trip is counted in one cell only. "
    if boxes["disjoint"]:
        overlap += "No trip lies in both boxes of two cells, but the areas at one end may overlap."
    else:
        overlap += "It may lie in the boxes of several, so cells must not be added up over an area."
    grid = f"{boxes['grid_lon']:g} degrees of longitude by {boxes['grid_lat']:g} degrees of latitude"
    edges = (
        f"Not protected: the outermost trips of a cell. Edges lie on a grid of {grid}; some trip of the cell "
        "starts or ends in the outermost row of grid squares along each edge. Where a box is one square wide, that row "
        "is a single square: that somebody was there is disclosed, not how many."
    )
    if boxes["finer_than_tiles"]:
        edges += " This grid is finer than the tiles: edges may reveal in which tile a trip starts or ends."
    return [overlap, edges]


def _about_differences(report: Mapping[str, Any]) -> list[str]:
    found = report["differencing"]
    if found["comparisons"] == 0:
        return ["Protected: subtraction. The slices hold different trips, and no total is published beside them."]
    if report["parameters"]["slices"]["common_zones"]:
        return [
            "Protected: subtraction. Matrices of several slices are sums of the published cells of these slices and "
            "reveal nothing more; what a slice suppresses is not in them."
        ]
    if found["short"]:
        return [
            f"Not protected: subtraction. {found['short']} of {found['differences']} differences between published "
            "matrices, which any reader can compute, are short of the guarantee; they were accepted."
        ]
    if found["unchecked"]:
        return [
            "Not protected: subtraction. Matrices of the same trips are published beside each other, and what their "
            "differences reveal could not be determined; that was accepted."
        ]
    return [
        f"Protected: subtraction. {found['differences']} differences between published matrices that any reader can "
        "compute were counted; none that is above zero is short of the guarantee."
    ]


# ---- noise --------------------------------------------------------------------------------------------------------


def _of_noise(report: Mapping[str, Any]) -> list[str]:
    """What noise protects, and what not."""
    promise = report["guarantee"]
    weak = weakness(promise["epsilon"])
    return [
        *_about_the_unit(promise),
        *([weak] if weak else []),
        *_about_noisy_slices(report),
        *_about_the_zones(promise),
        f"Noisy: every count has random noise of standard deviation {rounded(promise['deviation'])}. "
        + _about_the_steps(promise)
        + (
            "A pair that is listed may have had no trips at all, and one that is not listed may have had some."
            if promise["threshold"] is None
            else f"Pairs are listed only where the noisy count is at least {promise['threshold']:,}."
        ),
        "Not protected: what holds for many. Differential privacy hides single contributions, not what the data show "
        "with or without them.",
        *_about_the_sum(report["parameters"].get("ledger")),
        "Not protected: other releases. Each further release from the same people adds its ε and δ to these.",
        "Not recounted: from this folder alone nobody can see which part of a count is noise. Whoever holds the trips "
        "can check with flowveil verify whether the counts can be noise of this law.",
    ]


def _about_noisy_slices(report: Mapping[str, Any]) -> list[str]:
    """What several noisy matrices promise together."""
    if not report.get("slice_columns"):
        return []
    promise = report["guarantee"]
    whose = (
        "every trip is in one of them"
        if promise["unit"] == "trip"
        else f"the {promise['bound']:,} trips that are counted of a person are those in all of them together"
    )
    layers = promise.get("layers", 1)
    again = (
        ""
        if layers == 1
        else f" Matrices of all slices or of longer times hold the same trips again: {layers} layers of matrices with "
        f"ε = {promise['epsilon'] / layers:g} each come to {promise['epsilon']:g}."
    )
    return [
        f"Slices: ε and δ are those of all matrices together, because {whose}.{again} Which slices there are was "
        "declared beforehand; one that is missing has nothing left after noise."
    ]


def _about_the_sum(budget: Mapping[str, Any] | None) -> list[str]:
    """What this and the earlier noisy releases of a ledger come to."""
    if budget is None:
        return []
    most = "" if budget["epsilon_total"] is None else f", of {budget['epsilon_total']:g} that are allowed"
    return [
        f"Added up: with {budget['releases']:,} earlier noisy release{'s' * (budget['releases'] != 1)} of the same "
        f"data set, ε comes to {budget['epsilon']:g}{most}, and δ to {budget['delta']:g}."
    ]


def _about_the_steps(promise: Mapping[str, Any]) -> str:
    steps = promise.get("steps")
    if not steps:
        return ""
    if steps[0]["of"] == "divisions":
        return "Pairs are as coarse or fine as noisy counts made them, and no two published pairs overlap. "
    return (
        f"The budget was spent in {len(steps)} steps, coarse counts first, and finer counts were corrected to sum to "
        "the coarser ones, so errors of neighbouring pairs depend on each other. "
    )


def _about_the_unit(promise: Mapping[str, Any]) -> list[str]:
    level = f"differential privacy with ε = {promise['epsilon']:g} and δ = {promise['delta']:g}"
    if promise["domain"]["zones_from_data"]:
        # Readers may stop after the first line, so what is promised must not be more than holds there.
        one = "a single trip" if promise["unit"] == "trip" else "any one person"
        level += f", but only as far as the list of zones, which comes from the data, does not depend on {one}"
    if promise["unit"] == "trip":
        return [
            f"Protected: single trips, by {level}. The unit is a trip, because the input does not distinguish persons.",
            "Not protected: people. Somebody who makes n trips is hidden n times less: ε grows with each of that "
            "person's trips, and frequent travellers may show.",
        ]
    return [
        f"Protected: people, by {level}. The unit is a person: whether any one person is in the data, with all "
        f"trips or none, changes the probability of any release {_over_what(promise)}by a factor of "
        f"{_factor(promise['epsilon'])} at most"
        + ("." if promise["delta"] == 0 else f", but for an exception of probability {promise['delta']:g}."),
        f"Bounded: of each person at most {promise['bound']:,} trips are counted; further ones, and trips of unknown "
        "persons, are left out.",
    ]


def _over_what(promise: Mapping[str, Any]) -> str:
    return "over the same zones " if promise["domain"]["zones_from_data"] else ""


def _factor(epsilon: float) -> str:
    return f"{np.exp(epsilon):,.3g}"


def _about_the_zones(promise: Mapping[str, Any]) -> list[str]:
    if promise["domain"]["zones_from_data"]:
        return [
            "Not protected: the list of zones. It comes from the data: in each listed zone some trip starts or ends, "
            "and what is promised holds only as far as that list would be the same without the person or trip."
        ]
    if promise["threshold"] is not None:
        return ["Protected: which pairs have trips. Pairs with few trips are not published."]
    if "steps" in promise:
        return [
            "Protected: which pairs have trips. Zones come from outside the data, and which pairs of them were counted "
            "depends on noisy counts alone."
        ]
    return ["Protected: which pairs have trips. All pairs of a list that does not come from the data got noise."]
