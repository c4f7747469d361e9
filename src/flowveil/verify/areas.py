"""Errors between areas, counted anew in SQL: how many trips are missing where they belong, level by level.

The area of a tile is the topmost node above it that is not coarser than the level. A cell is spread over pairs of areas
by how many of its tiles, seen in the input, lie in each. Of slices the finest are counted, each against its own
trips; one that is not published is missing everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.verify.claims import Claims
    from flowveil.verify.database import Database

_DIGITS = 2
_KILOMETRES = (6, 8)
_MOST_PAIRS = 5_000_000
_FEWEST = 10
_TOLERANCE = 1e-6


def check_areas(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """Compare what report.json says of errors between areas with the recount; withheld must be what has to be.

    Args:
        db: with ``rows``, ``finest``, ``up_*``, ``node_*``, ``member_*`` and ``held``.
        claims: the report.
        flows: everything that was read.
    """
    said = claims.report.get("between_areas")
    levels = _levels(flows) if db.one("SELECT count(*) FROM finest") else []
    counted = list(_counted(db, levels)) if levels else []
    if said and [entry["level"] for entry in said] != [one["level"] for one in counted]:
        yield "report.json: says what goes wrong between areas of other levels than the map has"
        return
    if said is None:
        if counted:
            yield "report.json: does not say what goes wrong between areas"
        return
    trips = claims.measures["trips"]
    closed = trips["suppressed_share"] is None or trips["reconstruction_loss"] is None
    for entry, one in zip(said, counted, strict=True):
        yield from _compared(entry, one, closed=closed, k=claims.k)


def _compared(entry: Any, one: dict[str, Any], *, closed: bool, k: float) -> Iterator[str]:
    where = f"report.json: what goes wrong between areas of level {entry['level']}"
    crossing, least = one["crossing"], max(one["crossing"], k)
    must = closed or 0 < crossing < _FEWEST or (crossing > 0 and one["misplaced"] < least * (1 - _TOLERANCE))
    may = must or (crossing > 0 and one["misplaced"] < least * (1 + _TOLERANCE))
    error = entry["error"]
    if error is None:
        if not may:
            yield f"{where} is withheld without a reason"
        return
    if must:
        yield f"{where} is published, though it would reveal how single cells are divided"
        return
    half = 0.5 * 10.0 ** (np.floor(np.log10(error)) - _DIGITS + 1) if error else 0.0
    if float(f"{error:.{_DIGITS}g}") != error or abs(error - one["error"]) > half + _TOLERANCE:
        yield f"{where} contradicts the recount"


def _levels(flows: Flows) -> list[int]:
    """Levels coarser than the tiles and finer than everything: the next two, and of H3 those of about 1 and 6 km."""
    tree = flows.origins
    inner = np.zeros(len(tree.parent), dtype=np.bool_)
    inner[tree.parent[1:]] = True
    finest, top = int(np.max(tree.level[~inner])), int(tree.level[0])
    if tree.kind == "dendrogram":
        return []
    wanted = {finest - 1, finest - 2}
    if (tree.kind == "halves" and flows.whole_map is None) or (tree.kind == "h3" and tree.code.dtype == np.uint64):
        wanted, top = wanted | set(_KILOMETRES), -1
    return sorted((level for level in wanted if top < level < finest), reverse=True)


def _counted(db: Database, levels: list[int]) -> Iterator[dict[str, Any]]:
    """What is counted at each level, but those at which too many pairs of areas would have to be."""
    # From one look at the nodes above each tile.
    of = ", ".join(f"arg_max(node, step) FILTER (level >= {level} OR step = 0) AS area_{level}" for level in levels)
    for end in "od":
        db.create(f"areas_{end}", f"SELECT tile, {of} FROM up_{end} JOIN node_{end} USING (node) GROUP BY tile")
        db.define(
            f"area_{end}",
            " UNION ALL ".join(
                f"SELECT {level} AS wide, tile, area_{level} AS area FROM areas_{end}" for level in levels
            ),
        )
        db.create(
            f"share_{end}",
            "SELECT wide, z, area, n / sum(n) OVER (PARTITION BY wide, z) AS share, "
            "count(*) OVER (PARTITION BY wide, z) AS areas FROM "
            f"(SELECT wide, z, area, count(*) AS n FROM member_{end} JOIN area_{end} USING (tile) GROUP BY ALL)",
        )
    cells = "SELECT s, a, b, trips FROM held SEMI JOIN finest USING (s)"
    spans = [f"(SELECT DISTINCT wide, z, areas FROM share_{end})" for end in "od"]
    crossed = db.rows(
        "SELECT wide, sum(x.areas * y.areas), count(*) FILTER (x.areas * y.areas > 1), sum(trips)::DOUBLE "
        f"FROM ({cells}) JOIN {spans[0]} x ON a = x.z JOIN {spans[1]} y USING (wide) WHERE b = y.z GROUP BY wide"
    )
    counted = {level: (crossing, shown) for level, pairs, crossing, shown in crossed if pairs <= _MOST_PAIRS}
    if not counted:
        return
    # Level by level, so that it is no part of what is joined and grouped.
    found = db.rows(" UNION ALL ".join(_missing(level, cells) for level in counted))
    for level, missing, total in sorted(found, reverse=True):
        crossing, shown = counted[level]
        gone = total - shown
        missing = max(missing, gone)
        yield {"level": level, "error": missing / total, "crossing": crossing, "misplaced": missing - gone}


def _missing(level: int, cells: str) -> str:
    """SQL: a level, the trips that are missing where they belong between its areas, and all trips."""
    spread = (
        f"SELECT s, x.area AS ao, y.area AS ad, sum(trips * x.share * y.share) AS v FROM ({cells}) "
        f"JOIN (SELECT * FROM share_o WHERE wide = {level}) x ON a = x.z "
        f"JOIN (SELECT * FROM share_d WHERE wide = {level}) y ON b = y.z GROUP BY ALL"
    )
    there = (
        f"SELECT m, s, x.area_{level} AS ao, y.area_{level} AS ad, sum(trips)::DOUBLE AS v FROM rows "
        "LEFT JOIN finest USING (m) JOIN areas_o x ON o = x.tile JOIN areas_d y ON d = y.tile GROUP BY ALL"
    )
    return (
        f"SELECT {level}, sum(greatest(t.v - coalesce(e.v, 0), 0)), sum(t.v) FROM "
        f"({there}) t LEFT JOIN ({spread}) e USING (s, ao, ad)"
    )
