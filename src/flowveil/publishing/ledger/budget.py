"""The privacy budget of a data set: sums of ε and δ of its noisy releases, and their upper bound.

The same people are in all releases of a ledger, so their ε add up, and their δ. A total is chosen
once, is stored with the first release that is made under it, and can only be lowered. ε of persons
and of trips cannot be added: under a total all noisy releases have the same unit. A run in which
noise leaves nothing to publish is recorded like a release. Sums are exact, over the decimal numbers
that users write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flowveil.core.errors import InfeasibleError, OutputError, ParameterError, option
from flowveil.release.noisy import PrivacyLoss

#: The entry of a line of the ledger that says what a noisy release has cost.
SPENT, TOTAL = "spent", "epsilon_total"


@dataclass(frozen=True)
class Budget:
    """The sums of ε and δ over the noisy releases of a ledger, a new one included."""

    releases: int  # how many earlier ones there are
    epsilon: Decimal
    delta: Decimal
    total: Decimal | None  # upper bound of ε; None if not set

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        total = None if self.total is None else float(self.total)
        sums = {"epsilon": float(self.epsilon), "delta": float(self.delta)}
        return {"releases": self.releases, **sums, "epsilon_total": total}


def budget_with(entries: Sequence[Mapping[str, Any]], promise: PrivacyLoss, total: Any) -> Budget:
    """Returns the sums over the lines of a ledger and a new release.

    Without a requested total, under the ledger's.

    Raises ParameterError if the total would be raised, InfeasibleError if the new release would
    exceed it.
    """
    is_number = isinstance(total, int | float) and not isinstance(total, bool)
    if total is not None and not (is_number and 0 < total < math.inf):
        raise ParameterError(f"The total of ε must be a number above 0; found {total!r}.")
    asked = None if total is None else _decimal(total)
    spent = [cost for entry in entries if (cost := _cost(entry)) is not None]
    stored = min(
        (_decimal(entry[TOTAL]) for entry in entries if entry.get(TOTAL) is not None), default=None
    )
    if asked is not None and stored is not None and asked > stored:
        raise ParameterError(
            f"The total of ε of this ledger is {stored}; it can be lowered and not raised to"
            f" {asked}. Hint: leave {option('epsilon_total')} out."
        )
    limit = stored if asked is None else asked
    epsilon = sum((cost["epsilon"] for cost in spent), _decimal(promise.epsilon))
    delta = sum((cost["delta"] for cost in spent), _decimal(promise.delta))
    if limit is not None and any(cost["unit"] != promise.unit for cost in spent):
        raise InfeasibleError(
            "The ledger has noisy releases whose unit is a person and such whose unit is a trip;"
            " their ε cannot be added, so no total can be kept. Nothing was written. Hint: name the"
            " person column in all of them, or use a ledger for each unit and know that both are"
            " about the same people."
        )
    if limit is not None and epsilon > limit:
        raise InfeasibleError(
            f"With ε = {_decimal(promise.epsilon)} the noisy releases of this ledger would sum to"
            f" {epsilon}, and the total is {limit};"
            f" {max(limit - epsilon + _decimal(promise.epsilon), Decimal(0))} is left. Nothing was"
            " written. Hint: a smaller epsilon, or none of these people any more."
        )
    return Budget(len(spent), epsilon, delta, limit)


def cost_of(promise: PrivacyLoss, total: Decimal | None) -> dict[str, Any]:
    """The entries of a line of the ledger that say what a release has cost, and under which
    total.
    """
    cost = {"unit": promise.unit, "epsilon": promise.epsilon, "delta": promise.delta}
    return {SPENT: cost, TOTAL: None if total is None else float(total)}


def _cost(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the ε and δ that a release has cost.

    None for one without noise, and for a withdrawal.
    """
    if "withdraws" in entry:
        return None
    try:
        # Lines of earlier versions have the promise in the report alone.
        loss = entry.get(SPENT) or (
            entry["report"]["guarantee"] if entry["report"]["kind"] == "noisy" else None
        )
        if loss is None:
            return None
        cost = {
            "unit": loss["unit"],
            "epsilon": _decimal(loss["epsilon"]),
            "delta": _decimal(loss["delta"]),
        }
        if (
            cost["unit"] not in ("person", "trip")
            or not cost["epsilon"] > 0
            or not cost["delta"] >= 0
        ):
            raise ValueError
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise OutputError(
            "A release of the ledger does not say what it has cost. Hint: put back an earlier copy"
            " of ledger.jsonl."
        ) from None
    return cost


def _decimal(value: float) -> Decimal:
    """Returns the decimal number that the user wrote: 0.1 and 0.2 sum to 0.3."""
    return Decimal(repr(float(value))).normalize() + 0
