"""A noisy release as plain data: what its report.json says, and how the page says it.

Only what follows from the published table and from the user's choices is told. Any other measure is a function of the
true counts: published beside the noisy ones it would tell about them without noise, and the promise would be void.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil import __version__
from flowveil.methods.epsilon import weakness

if TYPE_CHECKING:
    from flowveil.release.noisy import NoisyRelease

#: (key, name, what it means): the measures that only noisy releases have.
NOISE_MEASURES = (("published_trips", "Published trips", "The sum of all published counts, noise included."),)
#: Measures that are computed from the true counts.
FROM_TRUE_COUNTS = (
    "distribution_distance",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "reconstruction_loss",
    "suppressed_share",
)
#: Measures that mean nothing for noisy counts.
WITHOUT_MEANING = ("c_avg", "c_dm", "mean_generalization_error", "k_trips", "k_people", "k_population")
REASON = (
    "they are computed from the true counts, which the noise is there to hide: published without noise of their "
    "own they would void the promise of differential privacy"
)


def summarize_noise(release: NoisyRelease) -> dict[str, Any]:
    """The content of report.json for a noisy release; see `flowveil.report.summary.summarize`."""
    from flowveil.report.summary import published_parameters

    cells = release.cells
    measures: dict[str, int | None] = {
        "n_cells": len(cells),
        "n_origin_zones": len(np.unique_values(cells.origin)),
        "n_destination_zones": len(np.unique_values(cells.destination)),
        "published_trips": int(cells.trips.sum()),
        **dict.fromkeys((*FROM_TRUE_COUNTS, *WITHOUT_MEANING)),
    }
    return {
        "version": __version__,
        "method": release.method,
        "parameters": published_parameters(release.parameters),
        "guarantee": release.guarantee.to_dict(),
        "homogeneous": release.plan.homogeneous,
        "boxes": release.plan.boxes,
        "suppression": release.plan.suppression,
        "measures": {"trips": measures},
        "withheld": {"measures": {"trips": list(FROM_TRUE_COUNTS)}, "reason": REASON},
        "notes": {},
    }


def noise_statement(promise: Mapping[str, Any]) -> list[str]:
    """What is and is not protected, for readers who do not know the method."""
    weak = weakness(promise["epsilon"])
    return [
        *_about_the_unit(promise),
        *([weak] if weak else []),
        *_about_the_zones(promise),
        f"Noisy: every count has random noise of standard deviation {promise['deviation']:,.3g}. "
        + (
            "A pair that is listed may have had no trips at all, and one that is not listed may have had some."
            if promise["threshold"] is None
            else f"Pairs are listed only where the noisy count is at least {promise['threshold']:,}."
        ),
        "Not protected: what holds for many. Differential privacy hides each one, not what is true whether or not "
        "that one is in the data.",
        "Not protected: other releases. Each further release from the same people adds its ε and δ to these.",
        "Not recounted: noise cannot be told from the outside, so the check of this folder covers its form, not "
        "its counts.",
    ]


def _about_the_unit(promise: Mapping[str, Any]) -> list[str]:
    level = f"differential privacy with ε = {promise['epsilon']:g} and δ = {promise['delta']:g}"
    if promise["domain"]["zones_from_data"]:
        # Readers may stop after the first line, so what is promised must not be more than holds there.
        one = "a single trip" if promise["unit"] == "trip" else "any one person"
        level += f", but only as far as the list of zones, which comes from the data, does not depend on {one}"
    if promise["unit"] == "trip":
        return [
            f"Protected: single trips, by {level}. The unit is a trip, because the input does not tell persons apart.",
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
    return ["Protected: which pairs have trips. All pairs of a list that does not come from the data got noise."]


def is_noisy(report: Mapping[str, Any]) -> bool:
    """Whether differential privacy is promised, and no smallest cell."""
    # A report without a kind is recognised by what it promises.
    return bool(report["kind"] == "noisy" if "kind" in report else "epsilon" in report["guarantee"])


def promise_of_noise(guarantee: Mapping[str, Any]) -> str:
    """The promise in a few words, for a heading."""
    whom = "person" if guarantee["unit"] == "person" else "trip, not each person"
    given = " (not for the list of zones, which comes from the data)" if guarantee["domain"]["zones_from_data"] else ""
    return f"differential privacy, ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}, for each {whom}{given}"


def figures_of_noise(report: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """The numbers that matter most: name, value, what it is."""
    m, guarantee = report["measures"]["trips"], report["guarantee"]
    return [
        ("Published pairs", m["n_cells"], "pairs of zones with a noisy count"),
        ("Origin zones", m["n_origin_zones"], "areas where published trips start"),
        ("Destination zones", m["n_destination_zones"], "areas where published trips end"),
        ("Unit", guarantee["unit"], "whom the promise is about"),
        ("ε", guarantee["epsilon"], f"δ = {guarantee['delta']:g}; at most {guarantee['bound']:,} trips of each unit"),
        ("Noise", float(f"{guarantee['deviation']:.3g}"), "standard deviation of each count, in trips"),
    ]


def rows_of_noise(guarantee: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The promise as names and values, for a table."""
    domain = guarantee["domain"]
    rows = [
        ("Unit: whom the promise is about", guarantee["unit"]),
        ("ε", guarantee["epsilon"]),
        ("δ", guarantee["delta"]),
        ("Most trips counted of one unit", guarantee["bound"]),
        ("Mechanism", guarantee["mechanism"]),
        ("Standard deviation of the noise", guarantee["deviation"]),
        ("Pairs", domain["pairs"]),
        ("Level of the zones", domain["level"]),
    ]
    if guarantee["threshold"] is not None:
        rows.append(("Smallest published count", guarantee["threshold"]))
    if "region" in domain:
        rows.append(("Region", ", ".join(domain["region"])))
    return rows
