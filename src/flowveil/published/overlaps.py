"""How many outlines of a release overlap: none of H3 cells; on a map of the user's own, those that overlap there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.published.maps import ENDS, Geometries, geometries, zones_of

#: Outlines that have no more than this share of the smaller one in common only touch.
SHARE = 1e-6


def count_overlaps(flows: pa.Table, zones: pa.Table, slice_columns: Sequence[str] = ()) -> int:
    """Pairs of zones of one role, in one matrix, whose outlines overlap by more than a millionth of the smaller one.

    Args:
        flows, zones: the published tables.
        slice_columns: those of the flows that name a matrix; the zones of one matrix are compared with each other.
    """
    return sum(len(set(_pairs_of_end(flows, zones_of(zones, end), end, slice_columns))) for end in ENDS)


def _pairs_of_end(
    flows: pa.Table, zones: pa.Table, end: str, slice_columns: Sequence[str]
) -> Iterator[tuple[int, int]]:
    outlines = geometries(zones)
    column = f"{end}_zone"
    used = flows.select([*slice_columns, column]).group_by([*slice_columns, column]).aggregate([])
    number = pc.index_in(used[column], value_set=zones["zone"].combine_chunks()).to_numpy()
    matrix = np.zeros(len(used), dtype=np.int64)
    for name in slice_columns:
        values = used[name].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        matrix = np.unique(matrix * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    for one in np.unique(matrix):
        of_matrix = np.sort(number[matrix == one])
        placed = of_matrix[~(shapely.is_missing(outlines[of_matrix]) | shapely.is_empty(outlines[of_matrix]))]
        yield from ((int(placed[a]), int(placed[b])) for a, b in _overlapping(outlines[placed]))


def _overlapping(outlines: Geometries) -> list[tuple[int, int]]:
    # Where all edges match there is nothing to intersect; older versions of the library cannot know.
    if hasattr(shapely, "coverage_is_valid") and shapely.coverage_is_valid(outlines):
        return []
    first, second = shapely.STRtree(outlines).query(outlines, predicate="intersects")
    first, second = first[first < second], second[first < second]
    common = shapely.area(shapely.intersection(outlines[first], outlines[second]))
    area = shapely.area(outlines)
    over = common > SHARE * np.minimum(area[first], area[second])
    return list(zip(first[over].tolist(), second[over].tolist(), strict=True))
