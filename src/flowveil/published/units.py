"""The units of a guarantee in the words of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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
