"""The slices of a release: their sum, and the zones of one of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.time_steps import TIME, Every


def overview(flows: pa.Table, columns: Sequence[str], every: str | None) -> pa.Table:
    """The matrix of all finest slices added up, cell by cell; of all slices where no finest one is published.

    A slice is one of the finest where it has a value in every slice column, and its time a label of the shortest step.

    Args:
        flows: the matrices of all slices.
        columns: the slice columns.
        every: the shortest step of time, if time is one of them.

    Returns:
        ``origin_zone``, ``destination_zone`` and the volumes, sorted by the zones.
    """
    finest = pa.array([True] * len(flows), pa.bool_())
    for name in columns:
        finest = pc.and_(finest, pc.is_valid(flows[name]))
    if every is not None and TIME in columns:
        long_enough = pc.equal(pc.utf8_length(flows[TIME]), Every.parse(every).label_length)
        finest = pc.and_(finest, pc.fill_null(long_enough, False))
    chosen = flows.filter(finest)
    dropped = {*columns, "layer"} & set(flows.column_names)
    table = (chosen if len(chosen) else flows).drop_columns(sorted(dropped))
    names = ["origin_zone", "destination_zone"]
    volumes = [name for name in table.column_names if name not in names]
    added = table.group_by(names, use_threads=False).aggregate([(name, "sum") for name in volumes])
    added = added.rename_columns([name.removesuffix("_sum") for name in added.column_names])
    return added.select([*names, *volumes]).sort_by([(name, "ascending") for name in names]).combine_chunks()


def zones_in(flows: pa.Table, zones: pa.Table) -> pa.Table:
    """The zones that occur in a matrix, each in the role that it has there.

    Args:
        flows: a matrix such as `overview` returns.
        zones: the zones of all slices; those of a total alone are not in it.
    """
    starts, ends = (
        pc.and_(pc.is_in(zones["zone"], value_set=flows[f"{end}_zone"]), pc.not_equal(zones["role"], other))
        for end, other in (("origin", "destination"), ("destination", "origin"))
    )
    roles = pc.if_else(pc.and_(starts, ends), "both", pc.if_else(starts, "origin", "destination"))
    there = zones.set_column(zones.column_names.index("role"), "role", roles)
    return there.filter(pc.or_(starts, ends))
