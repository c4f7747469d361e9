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


def figures_of_noise(report: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """The numbers that matter most: name, value, what it is."""
    published, guarantee = report["published"], report["guarantee"]
    return [
        ("Published pairs", published["cells"], "pairs of zones with a noisy count"),
        ("Origin zones", published["origin_zones"], "areas where published trips start"),
        ("Destination zones", published["destination_zones"], "areas where published trips end"),
        ("Unit", guarantee["unit"], "whom the promise is about"),
        ("ε", guarantee["epsilon"], f"δ = {guarantee['delta']:g}; at most {guarantee['bound']:,} trips of each unit"),
        ("Noise", float(f"{guarantee['deviation']:.3g}"), "standard deviation of each count, in trips"),
    ]


def rounded(value: float, digits: int = 3) -> str:
    """A number in few digits, written out: 2,150 and not 2.15e+03."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def _part(step: Mapping[str, Any]) -> str:
    return f"ε = {step['epsilon']:.3g}" if "epsilon" in step else f"ρ = {step['rho']:.3g}"


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
    rows += [
        (f"Step '{step['of']}'", f"{_part(step)}, standard deviation {rounded(step['deviation'])}")
        for step in guarantee.get("steps", ())
    ]
    if "rho" in guarantee:
        rows.append(("ρ of zero-concentrated privacy", guarantee["rho"]))
    if guarantee["threshold"] is not None:
        rows.append(("Smallest published count", guarantee["threshold"]))
    if "region" in domain:
        rows.append(("Region", ", ".join(domain["region"])))
    return rows
