"""Whether a suppressed total would reveal single values, so that it must be withheld; and whether it may be.

Written anew from the tables of the recount, sharing nothing with what decides to withhold. A total is like one more
cell: it must be safe, and not the sum of one or two flows or cells. Nor may it be too much: a pair of zones that is not
listed is short, so if c pairs can hold what is suppressed, a total above (c - 1)(k - 1) leaves none of them empty.

Of zones of which nothing is published the files say nothing. So a total *must* be withheld where every number of such
zones demands it, and *may* be withheld where the smallest does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowveil.verify.cells import group
from flowveil.verify.claims import Claims
from flowveil.verify.database import Database, literal
from flowveil.verify.members import members_in
from flowveil.verify.units import AMOUNTS, COUNTED_ONCE, SUMMED, TOTALS, UNITS, UNSHOWN, counted_once

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: Below this many flows or cells, a total would reveal single values; with so many pairs, that as many cells are
#: suppressed would reveal that none is empty.
_FEWEST = 3
_TOLERANCE = 1e-9


def check_listed(report: Mapping[str, Any]) -> Iterator[str]:
    """A suppressed share that is not stated must be listed as withheld: of the release, and of each slice."""
    for part in (report, *report.get("slices", ())):
        listed = {} if part["withheld"] is None else part["withheld"]["measures"]
        for basis, measures in part["measures"].items():
            if measures["suppressed_share"] is None and "suppressed_share" not in listed.get(basis, ()):
                yield f"report.json: suppressed_share by {basis} is withheld without a reason"


def list_suppressed(db: Database, claims: Claims, flows: Flows) -> None:
    """``suppressed``: the flows in no published cell; ``together`` (s, trips, weight, people): they as one cell.

    Where boxes share flows, which are suppressed, or whose, cannot be known: only what all of them come to.
    """
    if claims.overlapping:
        weight = "0" if flows.weight is None else "weight"
        total = "SELECT sum(trips) AS trips, sum({}) AS weight FROM {}"
        unknown = ", ".join(f"NULL::DOUBLE AS {column}" for column in UNSHOWN.values())
        db.create(
            "together",
            f"SELECT 0 AS s, r.trips - p.trips AS trips, r.weight - p.weight AS weight, {unknown} "
            f"FROM ({total.format('weight', 'raw')}) r, ({total.format(weight, 'published')}) p",
        )
        return
    db.create("suppressed", f"SELECT flow, s, 0 AS a, 0 AS b, {AMOUNTS}, o, d FROM raw ANTI JOIN assigned USING (flow)")
    group(db, "together", "suppressed", once=counted_once(flows))


def count_pairs(db: Database, claims: Claims) -> None:
    """``unlisted`` (s, most, least): how many pairs suppressed trips can lie in.

    Pairs of the finest published zones, and of zones beside them in which trips were seen, without those that a
    published cell covers. Zones beside are as many as their tiles at the most, and one at the least. Where hopeless
    flows were taken out, a published cell holds all pairs of nodes its tiles are lifted to but one. For boxes, pairs of
    tiles.
    """
    if claims.kind == "boxed":
        pairs = "count(DISTINCT o) * count(DISTINCT d) - (SELECT count(*) FROM published)"
        db.create("unlisted", f"SELECT s, {pairs} AS most, {pairs} AS least FROM raw GROUP BY s")
        return
    for end in "od":
        db.create(
            f"finest_{end}",
            "SELECT s, node, any_value(tile) AS tile FROM (SELECT *, "
            "row_number() OVER (PARTITION BY s, tile ORDER BY tiles, level DESC) AS place "
            f"FROM (SELECT DISTINCT m.s, tile, node, tiles, level FROM member_{end} m JOIN zone_{end} USING (z))) "
            "GROUP BY s, node, tiles HAVING count(*) FILTER (place = 1) = tiles",
        )
        db.define(
            f"holds_{end}",
            f"SELECT m.z, count(*) AS n FROM member_{end} m "
            f"JOIN finest_{end} f ON m.s = f.s AND m.tile = f.tile GROUP BY m.z",
        )
        beside = (
            f"SELECT DISTINCT raw.s, raw.{end} FROM raw ANTI JOIN member_{end} m ON raw.s = m.s AND raw.{end} = m.tile"
        )
        db.define(
            f"ends_{end}",
            f"SELECT s, n + coalesce(more, 0) AS most, n + least(coalesce(more, 0), 1) AS least "
            f"FROM (SELECT s, count(*) AS n FROM finest_{end} GROUP BY s) "
            f"LEFT JOIN (SELECT s, count(*) AS more FROM ({beside}) GROUP BY s) USING (s)",
        )
    times, held = "(SELECT 1 AS most, 1 AS least)", "(SELECT 0 AS i, 1 AS n)"
    if claims.kind == "folded":
        # Triples with the finest intervals, and with steps beside all intervals.
        finest = "SELECT count(*) AS finest FROM finest_t"
        times = f"(SELECT finest + n AS most, finest + least(n, 1) AS least FROM ({finest}), beside_t)"
        held = "holds_t"
    covered = (
        "SELECT s, sum(a.n * b.n * t.n) AS n FROM cells JOIN zone_o z ON z.z = a "
        f"JOIN holds_o a ON a.z = cells.a JOIN holds_d b ON b.z = cells.b JOIN {held} t ON z.i = t.i GROUP BY s"
    )
    db.create(
        "unlisted",
        "SELECT s, o.most * d.most * t.most - coalesce(c.n, 0) + coalesce(i.n, 0) AS most, "
        "o.least * d.least * t.least - coalesce(c.n, 0) + coalesce(i.n, 0) AS least "
        f"FROM ends_o o JOIN ends_d d USING (s) CROSS JOIN {times} t "
        f"LEFT JOIN ({covered}) c USING (s) LEFT JOIN ({_pairs_inside(claims.levels)}) i USING (s)",
    )


def _pairs_inside(levels: int | None) -> str:
    """SQL: pairs in which hopeless flows may lie inside published cells (s, n)."""
    if levels is None:
        return "SELECT 0 AS s, 0 AS n WHERE false"
    lifts = (
        f"(SELECT z, count(DISTINCT node) AS n FROM member_{end} "
        f"JOIN (SELECT * FROM up_{end} WHERE step = least({levels}, top)) USING (tile) GROUP BY z)"
        for end in "od"
    )
    a, b = lifts
    return (
        f"SELECT s, sum(a.n * b.n - 1) AS n FROM cells JOIN zone_o z ON z.z = a JOIN {a} a ON a.z = cells.a "
        f"JOIN {b} b ON b.z = cells.b GROUP BY s"
    )


def withholding(db: Database, claims: Claims) -> tuple[set[int], set[int]]:
    """The slices in which the total of what is suppressed must be withheld, and those in which it may be.

    It must where it would reveal single values whatever is not known, and may as far as the files show. The cells that
    are suppressed are at least the known ones, one for each known zone with an end that is not known, and one where
    neither is. Where zones overlap, none is known.
    """
    little = _too_little(db, claims)
    tests = [
        f"trips > 0 AND ({pairs} <= {_FEWEST} OR {_reaches_all(claims, pairs, sign)})"
        for pairs, sign in (("most", -1), ("least", 1))
    ]
    filled = db.rows(f"SELECT s, {', '.join(tests)} FROM together JOIN unlisted USING (s)")
    must, may = little | {s for s, most, _ in filled if most}, little | {s for s, _, least in filled if least}
    if claims.overlapping:
        may |= db.numbers("SELECT s FROM together WHERE trips > 0")
    elif claims.levels is None:
        # Cells can be counted only where the zones of both ends are published.
        for s, known, cells in db.rows(_SUPPRESSED_CELLS):
            must |= {s} if claims.homogeneous and known and cells < _FEWEST else set()
            may |= {s} if not claims.homogeneous or cells < _FEWEST else set()
    return must, may


#: Of each slice, whether the zones of all suppressed cells are published, and how many cells: zones that are not, as 0.
_SUPPRESSED_CELLS = (
    "SELECT s, bool_and(known), count(DISTINCT pair) FROM (SELECT u.s, (coalesce(mo.z, 0), coalesce(md.z, 0)) AS pair, "
    "mo.z IS NOT NULL AND md.z IS NOT NULL AS known FROM suppressed u "
    "LEFT JOIN member_o mo ON o = mo.tile AND u.s = mo.s "
    "LEFT JOIN member_d md ON d = md.tile AND u.s = md.s) GROUP BY s"
)


def _too_little(db: Database, claims: Claims) -> set[int]:
    """The slices whose total is less than a safe cell, or of fewer than three flows."""
    if claims.overlapping:
        # Whose trips they are is not known.
        safe = claims.safe(total=True)
        most = ", ".join(f"{literal(math.inf)} AS {column}" for column in UNSHOWN.values())
        known = f"SELECT * REPLACE ({most}) FROM together"
        return db.numbers(f"SELECT s FROM ({known}) WHERE trips > 0 AND NOT {safe}")
    counts = f"SELECT s, count(*) < {_FEWEST} AS few FROM suppressed GROUP BY s"
    safe = claims.safe(total=True)
    return db.numbers(f"SELECT s FROM together JOIN ({counts}) USING (s) WHERE few OR NOT {safe}")


def _reaches_all(claims: Claims, pairs: str, sign: int = -1) -> str:
    """SQL: whether a group (trips, people, weight) is more than all of so many pairs but one can hold.

    Args:
        claims: the thresholds, which no pair that is not listed reaches.
        pairs: SQL of the number of pairs.
        sign: whether a sum of weights that is rounded counts as the larger (1) or as the smaller (-1).
    """
    others, k, terms = f"greatest({pairs} - 1, 0)", literal(max(claims.k, 1)), ["false"]
    for name, unit in UNITS.items():
        if claims.threshold(name) is None:
            continue
        least = literal(claims.threshold(name))
        if unit.weighed:
            # As if all weights were alike: of k of them that reach the threshold, a short pair holds k - 1.
            terms.append(f"{unit.column} * (1 + {sign * _TOLERANCE}) > {others} * {least} * ({k} - 1) / {k}")
        else:
            terms.append(f"{unit.column} > {others} * ({least} - 1)")
    return "(" + " OR ".join(f"coalesce({term}, false)" for term in terms) + ")"


def must_withhold_overall(db: Database, claims: Claims, flows: Flows, secret: set[int]) -> bool:
    """Whether a total of slices would reveal what slices withhold: their sum follows by subtraction.

    The same is asked of that sum as of the total of one matrix: three terms at the least, and, where slices withhold
    theirs, more than three pairs that it can lie in. Where persons are known, it must be k people's like any slice.

    Args:
        db: the tables of the recount.
        claims: the report.
        flows: everything that was read.
        secret: the slices that withhold theirs.
    """
    listed = ", ".join(map(str, sorted(secret))) or "-1"
    db.create(
        "pool",
        f"SELECT row, {AMOUNTS} FROM rows ANTI JOIN finest USING (m) "
        f"UNION ALL SELECT row, {', '.join(f'rows.{name}' for name in ('trips', *SUMMED))} FROM rows "
        "JOIN finest USING (m) "
        f"JOIN suppressed u ON u.s = finest.s AND u.o = rows.o AND u.d = rows.d WHERE finest.s IN ({listed})",
    )
    n = db.one("SELECT count(*) FROM pool")
    if n == 0:
        return False
    enough, known = claims.safe(total=True), counted_once(flows)
    if flows.people is not None:
        enough = f"{enough} AND people >= {literal(claims.k)}"
    counted = {unit: members_in(db, unit, "one", "(SELECT row, 1 AS one FROM pool)") for unit in known}
    members = ", ".join(
        f"{f'coalesce((SELECT n FROM ({counted[unit]})), 0)' if unit in known else 'NULL::BIGINT'} "
        f"AS {UNITS[unit].column}"
        for unit in COUNTED_ONCE
    )
    absent = db.one("SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m)")
    pairs = db.one(f"SELECT coalesce(sum(most), 0) FROM unlisted WHERE s IN ({listed})")
    reaches = _reaches_all(claims, str(absent + pairs))
    if not secret:
        # Unpublished slices alone: more than each can hold, if it were short, is certain of none.
        reaches = f"{reaches} AND NOT {_reaches_all(claims, str(absent + 1))}"
    whole = f"SELECT {TOTALS}, {members} FROM pool"
    few = _most_terms(db, claims, listed) < _FEWEST or (bool(secret) and absent + pairs <= _FEWEST)
    return bool(few or db.one(f"SELECT NOT ({enough}) OR ({reaches}) FROM ({whole})"))


def _most_terms(db: Database, claims: Claims, listed: str) -> int:
    """Of how many values the sum is at the most: flows of slices that are not published, and suppressed cells.

    Where cells are suppressed as a whole and their zones are known they are counted as cells, else flow by flow.

    Args:
        db: the tables of the recount.
        claims: the report.
        listed: SQL of the slices that withhold their total.
    """
    absent = int(db.one("SELECT count(*) FROM rows ANTI JOIN finest USING (m)"))
    if claims.levels is not None or not claims.homogeneous:
        return absent + int(db.one(f"SELECT count(*) FROM suppressed WHERE s IN ({listed})"))
    terms = (
        "SELECT DISTINCT u.s, mo.z AS a, md.z AS b, CASE WHEN mo.z IS NULL OR md.z IS NULL THEN flow END AS alone "
        "FROM suppressed u LEFT JOIN member_o mo ON o = mo.tile AND u.s = mo.s "
        f"LEFT JOIN member_d md ON d = md.tile AND u.s = md.s WHERE u.s IN ({listed})"
    )
    return absent + int(db.one(f"SELECT count(*) FROM ({terms})"))
