"""A small survey with segments and times, one segment held by two people only."""

from __future__ import annotations

import pyarrow as pa

from conftest import trip_table


def survey(n: int = 900) -> pa.Table:
    table = trip_table(n)
    hour = [f"2024-03-0{4 + i % 2}T{7 + i % 4:02d}:10:00" for i in range(n)]
    # A third value that two people have, with more than k trips.
    person = table["person_id"].to_pylist()
    rare = sorted(set(person))[:2]
    sex = ["X" if p in rare else ("F" if i % 2 else "M") for i, p in enumerate(person)]
    return table.append_column("t", pa.array(hour)).append_column("sex", pa.array(sex))


def own_method(flows, guarantee, *, max_suppressed, flag: bool = False):  # noqa: ARG001
    """A method of one's own, in a module that other processes can import.

    Tiles, short cells suppressed.
    """
    from flowveil import Plan

    return Plan.from_cuts(
        flows, flows.origins.leaf_node, flows.destinations.leaf_node, guarantee.safe(flows)
    )
