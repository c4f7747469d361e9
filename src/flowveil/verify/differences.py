"""Recount what a family of published matrices reveals by subtraction; of the slices of a release.

For each cell of a coarser matrix: the raw trips that it counts, without those that published cells of finer matrices
inside it count as well. What is left is known to any reader, so it must be nothing, or safe. This is done for each kind
of finer matrices by itself (all days, all hours) and for all kinds at once. It shares no code with
`flowveil.release.subtraction`, which looks at unions of cells besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database
from flowveil.verify.members import members_in
from flowveil.verify.units import COUNTED_ONCE, SUMMED, TOTALS, UNITS, counted_once

if TYPE_CHECKING:
    from flowveil.flows import Flows


def check_differences(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """Hold the slices against what their own report says of subtraction.

    Args:
        db: with ``slice``, ``part``, ``rows``, persons, ``raw``, ``assigned``, ``zone_*`` and ``up_*``.
        claims: the report.
        flows: everything that was read.
    """
    kinds = _number_kinds(db, claims.slice_columns)
    if len(kinds) < 2:
        return
    hidden = db.one(
        "SELECT (SELECT count(*) FROM raw ANTI JOIN assigned USING (flow)) + "
        "(SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m))"
    )
    said = claims.report["differencing"]
    if (hidden or len(kinds) > 2) and not said["unchecked"]:
        yield (
            "report.json: matrices of the same trips overlap, and something is suppressed or there are more than two "
            "kinds, but it does not say that subtraction is unsettled"
        )
    _list_covered(db)
    tiles, once = claims.threshold("locations") is not None, counted_once(flows)
    each = [(kind,) for kind in kinds[1:]]
    chosen = [*each, *([tuple(kinds[1:])] if len(kinds) > 2 else [])]
    found = max(
        db.one(f"SELECT count(*) FROM ({_differences(db, kinds, tiles=tiles, once=once)}) WHERE NOT {claims.safe()}")
        for kinds in chosen
    )
    if found > said["short"]:
        yield (
            f"flows.parquet: {found} differences between its matrices are short of the guarantee, "
            f"and report.json says {said['short']}"
        )


def _differences(db: Database, kinds: Sequence[int], *, tiles: bool, once: Collection[str]) -> str:
    """SQL: what is left of each cell of a coarser matrix without the finer cells of these kinds, counted."""
    listed = ", ".join(map(str, kinds))
    remainder = (
        f"(SELECT c.* FROM place c SEMI JOIN (SELECT s FROM coarser WHERE kind IN ({listed})) USING (s) "
        f"ANTI JOIN (SELECT row, s FROM covered WHERE kind IN ({listed})) USING (row, s))"
    )
    ends = ", count(DISTINCT o) AS begin_tiles, count(DISTINCT d) AS end_tiles" if tiles else ""
    sums = f"SELECT s, a, b, {TOTALS}{ends} FROM {remainder} GROUP BY s, a, b"
    for unit in COUNTED_ONCE:
        column = UNITS[unit].column
        if unit not in once:
            sums = f"SELECT *, NULL::BIGINT AS {column} FROM ({sums})"
            continue
        counted = members_in(db, unit, "s, a, b", remainder)
        sums = f"SELECT g.*, coalesce(n, 0) AS {column} FROM ({sums}) g LEFT JOIN ({counted}) USING (s, a, b)"
    return sums


def _number_kinds(db: Database, columns: Sequence[str]) -> list[int]:
    """``kind`` (s, kind): slices of one kind hold different trips; the coarsest kind has the lowest number."""
    names = [f"c{i}" for i in range(len(columns))]
    empty = " + ".join(f"(c{i} IS NULL)::INTEGER" for i in range(len(columns))) or "0"
    step = f"length(c{columns.index('time')})" if "time" in columns else "0"
    db.create(
        "kind",
        f"SELECT s, dense_rank() OVER (ORDER BY {empty} DESC, coalesce({step}, 0)) AS kind "
        f"FROM (SELECT s, {', '.join(names) or '0'} FROM slice)",
    )
    return [kind for (kind,) in db.rows("SELECT DISTINCT kind FROM kind ORDER BY kind")]


def _list_covered(db: Database) -> None:
    """``covered``: which raw rows a coarser matrix (s) counts in a cell that holds the finer cell that counts it."""
    db.create(
        "place",
        f"SELECT r.row, p.s, x.a, x.b, r.o, r.d, {', '.join(f'r.{name}' for name in ('trips', *SUMMED))} FROM rows r "
        "JOIN part p USING (m) JOIN raw w ON w.s = p.s AND w.o = r.o AND w.d = r.d JOIN assigned x ON x.flow = w.flow",
    )
    db.create(
        "coarser",
        "SELECT c.s, f.s AS f, any_value(kf.kind) AS kind FROM part f JOIN part c USING (m) "
        "JOIN kind kf ON kf.s = f.s JOIN kind kc ON kc.s = c.s WHERE kc.kind < kf.kind GROUP BY c.s, f.s "
        "HAVING count(*) = (SELECT count(*) FROM part q WHERE q.s = f.s)",
    )
    for end in "od":
        db.create(
            f"nest_{end}",
            f"SELECT DISTINCT f.z AS f, c.z AS c FROM zone_{end} f "
            f"JOIN (SELECT node, any_value(tile) AS tile FROM up_{end} GROUP BY node) t ON f.node = t.node "
            f"JOIN up_{end} u ON u.tile = t.tile JOIN zone_{end} c ON c.node = u.node "
            "JOIN coarser x ON x.s = c.s AND x.f = f.s WHERE c.tiles >= f.tiles",
        )
    db.create(
        "covered",
        "SELECT c.row, c.s, x.kind FROM place c JOIN coarser x ON c.s = x.s "
        "JOIN place f ON f.row = c.row AND f.s = x.f JOIN nest_o o ON o.f = f.a AND o.c = c.a "
        "JOIN nest_d d ON d.f = f.b AND d.c = c.b",
    )
