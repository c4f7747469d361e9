"""The slices of a release: their sum, and the zones of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.times import TIME, Every

ENDS = ("origin_zone", "destination_zone")
SUMS = ("trips", "weight")
#: Fractions of trips and weights are published as multiples of a millionth.
_UNITS = 1_000_000


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
    finest = finest_rows(flows, columns, every)
    keys = ["origin_zone", "destination_zone"]
    return add_up(finest if len(finest) else flows, keys)[0]


def split_slices(flows: pa.Table, slice_columns: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yields the value of each slice column, and the rows of that slice, in the order of the table."""
    if not slice_columns:
        yield {}, flows
        return
    number = np.zeros(len(flows), dtype=np.int64)
    for name in slice_columns:
        values = flows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        number = np.unique(number * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    _, first = np.unique(number, return_index=True)
    order = np.argsort(number, kind="stable")
    start = np.searchsorted(number[order], np.arange(len(first) + 1))
    for slice_number in np.argsort(first).tolist():
        rows = flows.take(pa.array(order[start[slice_number] : start[slice_number + 1]]))
        yield {name: rows[name][0].as_py() for name in slice_columns}, rows


def finest_rows(flows: pa.Table, columns: Sequence[str], every: str | None) -> pa.Table:
    """Returns the rows of the finest slices: a value in every slice column, and a time of the shortest step.

    Matrices of all values and of longer steps hold the same trips again.
    """
    finest = pa.array([True] * len(flows), pa.bool_())
    for name in columns:
        finest = pc.and_(finest, pc.is_valid(flows[name]))
    if every is not None and TIME in columns:
        long_enough = pc.equal(pc.utf8_length(flows[TIME]), Every.parse(every).label_length)
        finest = pc.and_(finest, pc.fill_null(long_enough, False))
    return flows.filter(finest)


def add_up(cells: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, int]:
    """Returns one row for each combination of key columns, and the largest number of rows in one sum.

    Trips and weights are added exactly, whatever their order; other columns are left out.

    Args:
        cells: a published table.
        keys: columns that identify a row, in the order of sorting: slices or times first, then the zones.

    Returns:
        The zones, the volumes, then the other keys; rows sorted, matrices of all values first.
    """
    sums = [name for name in SUMS if name in cells.column_names]
    exact = pa.table({**{name: cells[name] for name in keys}, **{name: _to_whole(cells[name]) for name in sums}})
    grouped = exact.group_by(list(keys), use_threads=False).aggregate(
        [*((name, "sum") for name in sums), ([], "count_all")]
    )
    # Matrices of all values, whose slice is null, come first.
    ranks = {str(at): pc.if_else(pc.is_valid(grouped[name]), 1, 0) for at, name in enumerate(keys)}
    ranked = pa.table({**ranks, **{f"{at} value": grouped[name] for at, name in enumerate(keys)}})
    order = [(name, "ascending") for at in range(len(keys)) for name in (str(at), f"{at} value")]
    grouped = grouped.take(pc.sort_indices(ranked, sort_keys=order)).combine_chunks()
    columns = {name: grouped[name] for name in keys if name in ENDS}
    columns |= {name: _from_whole(grouped[f"{name}_sum"], cells[name].type) for name in sums}
    columns |= {name: grouped[name] for name in keys if name not in ENDS}
    return pa.table(columns).combine_chunks(), pc.max(grouped["count_all"]).as_py() or 0


def _to_whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns integers: counts, or weights in millionths, in which releases count them."""
    is_count = pa.types.is_integer(column.type)
    return column if is_count else pc.cast(pc.round(pc.multiply(column, float(_UNITS))), pa.int64())


def _from_whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if pa.types.is_integer(kind) else pc.divide(pc.cast(column, pa.float64()), float(_UNITS))


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
