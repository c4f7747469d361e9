"""The box of a set of flows, and whether it is safe, flow by flow."""

from __future__ import annotations

from collections.abc import Iterable

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.release.boxes import Frame


def box(frame: Frame, group: Iterable[int]) -> list[tuple[int, int]]:
    """Lowest and highest square of the flows in each dimension."""
    members = list(group)
    return [
        (min(int(axis[f]) for f in members), max(int(axis[f]) for f in members))
        for axis in frame.point
    ]


def is_safe(flows: Flows, guarantee: Guarantee, group: Iterable[int]) -> bool:
    members = set(group)
    if not members:
        return False
    if guarantee.trips is not None and sum(int(flows.trips[f]) for f in members) < guarantee.trips:
        return False
    if (
        guarantee.population is not None
        and sum(flows.weight[f] for f in members) < guarantee.population
    ):
        return False
    if guarantee.people is not None:
        rows = zip(flows.people.cell.tolist(), flows.people.person.tolist(), strict=True)
        if len({person for flow, person in rows if flow in members}) < guarantee.people:
            return False
    if guarantee.locations is not None:
        ends = {int(flows.origin[f]) for f in members}, {int(flows.destination[f]) for f in members}
        if min(map(len, ends)) < guarantee.locations:
            return False
    return True
