"""Whether zones that are said not to overlap have outlines that do not, but for those of a user's own map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.verify.database import Database

#: Outlines may overlap in so much of the smaller one.
_SHARE = 1e-6


def check_overlaps(db: Database, zones: Any, report: Mapping[str, Any], *, in_cells: bool) -> Iterator[str]:
    """Count the pairs of outlines of one role, in one matrix, that overlap.

    Args:
        db: has ``published_rows``.
        zones: the rows of zones.parquet, with outlines that can be read.
        report: the content of report.json.
        in_cells: whether zones are made of H3 cells, none of which overlap; a user's own map may have outlines that do.
    """
    claimed = report["overlapping_outlines"]
    if not report["homogeneous"]:
        if claimed is not None:
            yield "report.json: counts overlapping outlines, and says that zones may overlap"
        return
    n = 0
    for role in ("origin", "destination"):
        pairs = _pairs(db, zones, role, report.get("slice_columns", ()))
        if pairs and in_cells:
            yield f"zones.parquet: {len(pairs)} pairs of {role} zones overlap, but report.json says that they do not"
        n += len(pairs)
    if n != claimed:
        yield f"report.json: says that {claimed} pairs of outlines overlap, but {n} do"


def _pairs(db: Database, zones: Any, role: str, slice_columns: Sequence[str]) -> set[tuple[str, str]]:
    rows = [row for row in zones.select(["zone", "role", "geometry"]).to_pylist() if row["role"] in (role, "both")]
    outline = {row["zone"]: shapely.from_wkb(row["geometry"]) for row in rows if row["geometry"] is not None}
    slices = ", ".join(f"c{i}" for i in range(len(slice_columns)))
    by = f" GROUP BY {slices}" if slices else ""
    pairs: set[tuple[str, str]] = set()
    for (codes,) in db.rows(f"SELECT list(DISTINCT {role}_zone) FROM published_rows{by}"):
        placed = sorted(code for code in codes or () if code in outline)
        found = _overlapping(np.array([outline[code] for code in placed], dtype=object))
        pairs |= {(placed[a], placed[b]) for a, b in found}
    return pairs


def _overlapping(outlines: NDArray[Any]) -> set[tuple[int, int]]:
    """Pairs of outlines that have more than a millionth of the smaller one in common."""
    if hasattr(shapely, "coverage_is_valid") and shapely.coverage_is_valid(outlines):
        return set()
    first, second = shapely.STRtree(outlines).query(outlines, predicate="intersects")
    first, second = first[first < second], second[first < second]
    meeting = shapely.relate_pattern(outlines[first], outlines[second], "T********")
    first, second = first[meeting], second[meeting]
    common = shapely.area(shapely.intersection(outlines[first], outlines[second]))
    smaller = np.minimum(shapely.area(outlines[first]), shapely.area(outlines[second]))
    over = common > _SHARE * smaller
    return set(zip(first[over].tolist(), second[over].tolist(), strict=True))
