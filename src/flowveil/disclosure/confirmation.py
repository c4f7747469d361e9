"""What is refused unless it is confirmed: guarantees that hide too few, and releases weaker than those they replace.

A confirmation that was needed becomes a parameter of the release, named like the option of the command line that gives
it, so that readers see it and the command that makes the release again has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from flowveil.errors import ParameterError
from flowveil.flows import Cells
from flowveil.guarantee import ALL_UNITS, UNITS, Guarantee

#: A smaller k is refused: of two in a cell, each knows the other.
SMALLEST_K = 3
#: A smaller k is warned of.
WEAK_K = 5
#: The confirmations, as parameters and the command line name them.
SMALL_K, POPULATION_ONLY, DIFFERENCING = "yes-k-below-3", "population-only", "accept-differencing"
CONFIRMATIONS = (SMALL_K, POPULATION_ONLY, DIFFERENCING)


class SmallKWarning(UserWarning):
    """The k asked for hides little."""


def confirmed(guarantee: Guarantee, flows: Cells, *, allow_small_k: bool, population_only: bool) -> list[str]:
    """The confirmations that this guarantee needs for these flows; warns of a small k.

    Raises:
        ParameterError: one is needed and was not given.
    """
    needed = []
    if guarantee.k < SMALLEST_K:
        if not allow_small_k:
            raise ParameterError(
                f"k = {guarantee.k} hides next to nobody; at least {SMALLEST_K} is needed. Hint: choose a larger k; if "
                "you mean it, confirm it with --yes-k-below-3 (allow_small_k=True)."
            )
        needed.append(SMALL_K)
    if guarantee.units == ("population",) and flows.people is not None:
        if not population_only:
            raise ParameterError(
                "The population alone does not suffice where persons are known: a cell may be one participant with a "
                "large weight. Hint: protect people as well (--protect population --protect people); if you mean it, "
                "confirm it with --population-only (population_only=True)."
            )
        needed.append(POPULATION_ONLY)
    usual = UNITS["population"].threshold(flows, guarantee.k) if guarantee.population_is_given else 0.0
    if (guarantee.population or 0.0) < usual:
        # Said to whoever makes the release and never recorded: it reveals on which side of the number the mean lies.
        warnings.warn(
            f"Weak: the population's threshold (--k-population) is below {guarantee.k} times the mean weight of a "
            f"trip: cells may hold fewer than {guarantee.k} trips.",
            SmallKWarning,
            stacklevel=4,
        )
    weak = weakness(guarantee.claimed_k)
    if weak:
        warnings.warn(weak, SmallKWarning, stacklevel=4)
    return needed


def weakness(k: int | None) -> str | None:
    """What is to be said of a small k; None for others."""
    if k is None or k >= WEAK_K:
        return None
    return f"Weak: k = {k} is below {WEAK_K}: in the smallest cells, few stand between a reader and the last one."


# ---- releases that replace others --------------------------------------------------------------------------------


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
    """The rules that are applied after a method: dominance, and higher thresholds around listed places."""
    old, new = earlier["parameters"], now["parameters"]
    if old.get("dominance") is not None and not (new.get("dominance") or 1) <= old["dominance"]:
        yield "cells that one person may dominate more"
    places, there = old.get("stricter"), new.get("stricter") or {}
    if places is not None and any((there.get(name) or 0) < (value or 0) for name, value in places.items()):
        yield "lower thresholds around listed places, or fewer places"


def _weaker_thresholds(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for unit in ALL_UNITS:
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
    if unit == "population" and report["parameters"].get("k_population") is None:
        return False, report["guarantee"]["k"]
    return True, report["guarantee"][unit]
