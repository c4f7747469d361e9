"""Slow and obvious: cells of a published table grouped by the ancestors of their zones."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import h3


def ancestor(zone: str, level: int) -> str:
    """The H3 cell of a resolution that contains a cell, or a part of one (`CELL.digits`).

    Itself if it is coarser.
    """
    cell, _, part = zone.partition(".")
    if zone in ("all", "outside"):
        return zone
    resolution = h3.get_resolution(cell)
    is_finer = resolution > level or (resolution == level and part)
    return h3.cell_to_parent(cell, level) if is_finer else zone


def grouped(rows: list[dict], level: int, *, keep: tuple[str, ...] = ()) -> list[dict]:
    """Sums of trips and weights (exact, in millionths) by ancestors and kept columns, sorted."""
    sums: dict[tuple, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for row in rows:
        ends = (ancestor(row[f"{end}_zone"], level) for end in ("origin", "destination"))
        key = (*(row[name] for name in keep), *ends)
        for name in ("trips", "weight"):
            if name in row:
                sums[key][name] += Fraction(round(row[name] * 1_000_000), 1_000_000)
    ordered = sorted(sums, key=lambda key: [(part is not None, part or "") for part in key])
    return [
        {
            "origin_zone": key[-2],
            "destination_zone": key[-1],
            **{name: float(value) for name, value in sums[key].items()},
            **dict(zip(keep, key, strict=False)),
        }
        for key in ordered
    ]
