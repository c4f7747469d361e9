"""Recount what a family of published matrices tells by subtraction; a part of `flowveil.verify.release`.

For each cell of a coarser matrix: the raw trips that it counts, without those that published cells of finer matrices
inside it count as well. What is left is known to any reader, so it must be nothing, or safe. This is done for each kind
of finer matrices by itself (all days, all hours) and for all kinds at once. It shares no code with
`flowveil.disclosure.subtraction`, which looks at unions of cells besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Run = Callable[..., list[tuple[Any, ...]]]


def check_differences(
    db: Any,
    run: Run,
    *,
    columns: Sequence[str],
    safe: str,
    tiles: bool,
    people: bool,
    admitted: int,
    unsettled: bool,
) -> Iterator[str]:
    """Hold the family against its own claim on subtraction.

    Args:
        db: the database of the recount, with ``slice``, ``part``, ``rows``, ``persons``, ``raw``, ``assigned``,
            ``zone_*`` and ``up_*``.
        run: runs a query to its end.
        columns: the slice columns.
        safe: SQL that says whether a group with trips, weight, people, begin_tiles and end_tiles is safe.
        tiles: whether it asks for the tiles in which trips begin and end.
        people: whether persons are known.
        admitted: how many short differences the report admits.
        unsettled: whether the report admits that subtraction is not settled.
    """
    kinds = _number_kinds(db, run, columns)
    if len(kinds) < 2:
        return
    hidden = run(
        db,
        "SELECT (SELECT count(*) FROM raw ANTI JOIN assigned USING (flow)) + "
        "(SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m))",
    )[0][0]
    if (hidden or len(kinds) > 2) and not unsettled:
        yield (
            "report.json: matrices of the same trips overlap, and something is suppressed or there are more than two "
            "kinds, but it does not say that subtraction is unsettled"
        )
    found = 0
    _list_covered(db, run)
    for chosen in [*((kind,) for kind in kinds[1:]), *([tuple(kinds[1:])] if len(kinds) > 2 else [])]:
        listed = ", ".join(map(str, chosen))
        run(
            db,
            "CREATE OR REPLACE TABLE remainder AS SELECT c.* FROM place c SEMI JOIN "
            f"(SELECT s FROM coarser WHERE kind IN ({listed})) USING (s) "
            f"ANTI JOIN (SELECT row, s FROM covered WHERE kind IN ({listed})) USING (row, s)",
        )
        ends = ", count(DISTINCT o) AS begin_tiles, count(DISTINCT d) AS end_tiles" if tiles else ""
        sums = (
            f"SELECT s, a, b, sum(trips)::BIGINT AS trips, sum(weight) AS weight{ends} FROM remainder GROUP BY s, a, b"
        )
        persons = "SELECT DISTINCT s, a, b, person FROM remainder JOIN persons USING (row)"
        counted = f"SELECT *, NULL::BIGINT AS people FROM ({sums})"
        if people:
            counted = (
                f"SELECT * REPLACE (coalesce(people, 0) AS people) FROM ({sums}) LEFT JOIN "
                f"(SELECT s, a, b, count(*) AS people FROM ({persons}) GROUP BY s, a, b) USING (s, a, b)"
            )
        found = max(found, run(db, f"SELECT count(*) FROM ({counted}) WHERE NOT {safe}")[0][0])
    if found > admitted:
        yield (
            f"flows.parquet: {found} differences between its matrices are short of the guarantee, "
            f"and report.json says {admitted}"
        )


def _number_kinds(db: Any, run: Run, columns: Sequence[str]) -> list[int]:
    """``kind`` (s, kind): slices of one kind hold different trips; the coarsest kind has the lowest number."""
    names = [f"c{i}" for i in range(len(columns))]
    empty = " + ".join(f"(c{i} IS NULL)::INTEGER" for i in range(len(columns))) or "0"
    step = f"length(c{columns.index('time')})" if "time" in columns else "0"
    run(
        db,
        f"CREATE TABLE kind AS SELECT s, dense_rank() OVER (ORDER BY {empty} DESC, coalesce({step}, 0)) AS kind "
        f"FROM (SELECT s, {', '.join(names) or '0'} FROM slice)",
    )
    return [kind for (kind,) in run(db, "SELECT DISTINCT kind FROM kind ORDER BY kind")]


def _list_covered(db: Any, run: Run) -> None:
    """``covered``: which raw rows a coarser matrix (s) counts in a cell that holds the finer cell that counts it."""
    run(
        db,
        "CREATE TABLE place AS SELECT r.row, p.s, x.a, x.b, r.o, r.d, r.trips, r.weight FROM rows r "
        "JOIN part p USING (m) JOIN raw w ON w.s = p.s AND w.o = r.o AND w.d = r.d JOIN assigned x ON x.flow = w.flow",
    )
    run(
        db,
        "CREATE TABLE coarser AS SELECT c.s, f.s AS f, any_value(kf.kind) AS kind FROM part f JOIN part c USING (m) "
        "JOIN kind kf ON kf.s = f.s JOIN kind kc ON kc.s = c.s WHERE kc.kind < kf.kind GROUP BY c.s, f.s "
        "HAVING count(*) = (SELECT count(*) FROM part q WHERE q.s = f.s)",
    )
    for end in "od":
        run(
            db,
            f"CREATE TABLE nest_{end} AS SELECT DISTINCT f.z AS f, c.z AS c FROM zone_{end} f "
            f"JOIN (SELECT node, any_value(tile) AS tile FROM up_{end} GROUP BY node) t ON f.node = t.node "
            f"JOIN up_{end} u ON u.tile = t.tile JOIN zone_{end} c ON c.node = u.node "
            "JOIN coarser x ON x.s = c.s AND x.f = f.s WHERE c.tiles >= f.tiles",
        )
    run(
        db,
        "CREATE TABLE covered AS SELECT c.row, c.s, x.kind FROM place c JOIN coarser x ON c.s = x.s "
        "JOIN place f ON f.row = c.row AND f.s = x.f JOIN nest_o o ON o.f = f.a AND o.c = c.a "
        "JOIN nest_d d ON d.f = f.b AND d.c = c.b",
    )
