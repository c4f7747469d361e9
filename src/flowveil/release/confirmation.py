"""Guarantees that are refused unless the operator confirms them.

A confirmation is part of the statement, named like its option of the command line.
"""

from __future__ import annotations

import warnings

from flowveil.errors import ParameterError
from flowveil.flows import Cells
from flowveil.guarantee import UNITS, Guarantee

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
                f"k = {guarantee.k} protects almost no one; at least {SMALLEST_K} is needed. Hint: choose a larger k; "
                "or confirm it with --yes-k-below-3 (allow_small_k=True)."
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
        # Shown to the operator and never recorded: it reveals on which side of the number the mean lies.
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
    """Returns the warning for a small k; None for others."""
    if k is None or k >= WEAK_K:
        return None
    return f"Weak: k = {k} is below {WEAK_K}: in the smallest cells, few stand between a reader and the last one."
