"""Which of two published guarantees is stronger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def weaker_in(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In what a release is weaker than the one it would replace, in words; empty where it is not.

    Args:
        earlier, now: the contents of their report.json.

    Returns:
        A unit that the earlier release protects is missing, or its threshold lower; ε or δ is higher, or hides trips
        where it hid persons; a k stands in place of an ε. Trips are not missing where as many people are protected:
        each of them made a trip.
    """
    old, new = earlier["guarantee"], now["guarantee"]
    if earlier["kind"] == "noisy":
        if now["kind"] != "noisy":
            return ["a k in place of an ε"]
        higher = [f"a higher {sign}" for sign, name in (("ε", "epsilon"), ("δ", "delta")) if new[name] > old[name]]
        return higher + (["trips in place of persons"] if (old["unit"], new["unit"]) == ("person", "trip") else [])
    return [] if now["kind"] == "noisy" else [*_weaker_thresholds(earlier, now), *_weaker_rules(earlier, now)]


def _weaker_rules(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The rules that are applied after a method: dominance, t-closeness, and higher thresholds around listed places."""
    old, new = earlier["parameters"], now["parameters"]
    if old.get("dominance") is not None and not (new.get("dominance") or 1) <= old["dominance"]:
        yield "cells that one person may dominate more"
    if old.get("t") is not None and not (new.get("t") or 1) <= old["t"]:
        yield "zones that may be farther from all trips (t)"
    places, there = old.get("stricter"), new.get("stricter") or {}
    if places is not None and any((there.get(name) or 0) < (value or 0) for name, value in places.items()):
        yield "lower thresholds around listed places, or fewer places"


def _weaker_thresholds(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for unit in ("trips", "people", "population", "locations"):
        if unit not in earlier["guarantee"]:
            continue
        if unit == "trips" and now["guarantee"].get("people", 0) >= earlier["guarantee"]["trips"]:
            continue
        if unit not in now["guarantee"]:
            yield f"{unit} not protected any more"
            continue
        old, new = (_threshold(report, unit) for report in (earlier, now))
        if old[0] != new[0] or new[1] is None or old[1] is None:
            # One is a number, the other a multiple of a mean weight that is withheld.
            yield f"a threshold of {unit} that cannot be compared"
        elif new[1] < old[1]:
            yield f"a lower threshold of {unit}"


def _threshold(report: Mapping[str, Any], unit: str) -> tuple[bool, float | None]:
    """Whether a threshold was given as a number, and its value.

    A population's that follows from k is compared by k: the mean weight differs a little from one input to the next.
    """
    if unit == "population" and report["guarantee"][unit] is None:
        return False, report["guarantee"]["k"]
    return True, report["guarantee"][unit]
