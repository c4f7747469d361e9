"""The units of a guarantee, as the recount counts them.

A list of its own on purpose: a mistake in `flowveil.guarantee.UNITS` must not pass because both sides read it. A test
says where the two differ. Locations are not in it: their tiles follow from the flows, and l asks for them, not k.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowveil.flows import Flows


@dataclass(frozen=True)
class Unit:
    """What is counted in a cell.

    Attributes:
        column: of a group of flows, what is counted in it. Where it adds up, flows have it under this name.
        short: in words, how a cell falls short of a threshold.
        members: row and member, one pair for each member of a flow, where members are counted once however many flows
            of a cell they are in; None where the input does not have them. Without it, values of flows add up.
        missing: in words, what the input does not have where the unit cannot be counted.
        weighed: whether it is a sum of weights: whole millionths, and k asks k times the mean weight of a trip.
    """

    column: str
    short: str
    members: Callable[[Flows], tuple[Any, Any] | None] | None = None
    missing: str = ""
    weighed: bool = False

    @property
    def recounted(self) -> str:
        """The column of a published cell that has what was counted, beside what is published."""
        return self.column if self.members else f"true_{self.column}"

    def known(self, flows: Flows) -> bool:
        """Whether the input has what is counted."""
        return getattr(flows, self.column) is not None


UNITS: dict[str, Unit] = {
    "trips": Unit("trips", "have fewer than {least} trips"),
    "people": Unit(
        "people",
        "have fewer than {least} people",
        members=lambda flows: None if flows.people is None else (flows.people.cell, flows.people.person),
        missing="people, but the input has no persons to count",
    ),
    "population": Unit(
        "weight",
        "have less than the population of the guarantee",
        missing="the population, but the input has no weights to count",
        weighed=True,
    ),
}
#: Columns of flows that add up beside the trips, in whole millionths.
SUMMED = tuple(unit.column for unit in UNITS.values() if unit.members is None and unit.column != "trips")
#: SQL: what adds up of a flow, and of a group of flows; ``total_weight`` is a macro of the database.
AMOUNTS = ", ".join(("trips", *SUMMED))
TOTALS = ", ".join(("sum(trips)::BIGINT AS trips", *(f"total_weight({name}) AS {name}" for name in SUMMED)))
#: The columns that a published table does not have, by unit: where boxes share flows, nobody can say them of a cell.
UNSHOWN = {name: unit.column for name, unit in UNITS.items() if unit.column not in ("trips", "weight")}
#: The units whose members are counted once: ``NAME_row`` (row, member) and ``NAME_flow`` (flow, member) list them.
COUNTED_ONCE = {name: unit.members for name, unit in UNITS.items() if unit.members is not None}


def counted_once(flows: Flows) -> Collection[str]:
    """Those of them that the input has."""
    return [name for name in COUNTED_ONCE if UNITS[name].known(flows)]
