"""How the page says what a noisy release promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
