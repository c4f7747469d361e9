"""The sum of the slices of a family, from its published table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.slices import TIME, Every


def overview(flows: pa.Table, report: Mapping[str, Any]) -> pa.Table:
    """The matrix of all finest slices added up, cell by cell; of all slices where no finest one is published.

    A slice is one of the finest where it has a value in every slice column, and its time a label of the shortest step.

    Args:
        flows: the matrices of all slices.
        report: the data of report.json.

    Returns:
        ``origin_zone``, ``destination_zone`` and the volumes, sorted by the zones.
    """
    columns = report["slice_columns"]
    finest = pa.array([True] * len(flows), pa.bool_())
    for name in columns:
        finest = pc.and_(finest, pc.is_valid(flows[name]))
    every = report["parameters"]["slices"].get("every")
    if every is not None and TIME in columns:
        long_enough = pc.equal(pc.utf8_length(flows[TIME]), Every.parse(every).label_length)
        finest = pc.and_(finest, pc.fill_null(long_enough, False))
    chosen = flows.filter(finest)
    table = (chosen if len(chosen) else flows).drop_columns(columns)
    names = ["origin_zone", "destination_zone"]
    volumes = [name for name in table.column_names if name not in names]
    added = table.group_by(names, use_threads=False).aggregate([(name, "sum") for name in volumes])
    added = added.rename_columns([name.removesuffix("_sum") for name in added.column_names])
    return added.select([*names, *volumes]).sort_by([(name, "ascending") for name in names]).combine_chunks()
