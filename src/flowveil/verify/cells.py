"""The published cells: which raw flows each counts, and whether it says what they come to and reaches the guarantee."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from flowveil.verify.claims import TOLERANCE, Claims
from flowveil.verify.database import Database, literal
from flowveil.verify.members import members_in
from flowveil.verify.units import AMOUNTS, COUNTED_ONCE, SUMMED, TOTALS, UNITS, counted_once

if TYPE_CHECKING:
    from flowveil.flows import Flows


def load_flows(db: Database, claims: Claims) -> None:
    """``raw`` (flow, s, o, d, t, and what adds up): the flows that each published slice is held against.

    ``people_flow`` (flow, member): their persons; each unit whose members are counted once has such a table.
    ``at_flow`` (flow, row): the rows that each flow is made of.
    Coarser matrices over common zones are sums: they are held against the rows that published cells of the finest
    slices count.
    """
    if claims.kind != "sliced":
        # Flows of one matrix are rows already, and keep their place in the input, by which boxes find them.
        db.define("raw", f"SELECT row AS flow, 0::BIGINT AS s, o, d, t, {AMOUNTS} FROM rows")
        db.define("at_flow", "SELECT row AS flow, row FROM rows")
        for unit in COUNTED_ONCE.keys() - db.elsewhere:
            db.define(f"{unit}_flow", f"SELECT row AS flow, member FROM {unit}_row")
            if f"{unit}_row" in db.at_hand:
                db.at_hand[f"{unit}_flow"] = db.at_hand[f"{unit}_row"]
        return
    counted = "part JOIN rows USING (m)"
    if claims.shared:
        shown = (
            "SELECT row FROM (SELECT row, mo.z AS a, md.z AS b FROM rows JOIN finest f USING (m) "
            "JOIN member_o mo ON rows.o = mo.tile AND f.s = mo.s JOIN member_d md ON rows.d = md.tile AND f.s = md.s) "
            "SEMI JOIN cells USING (a, b)"
        )
        counted += f" WHERE s IN (SELECT s FROM finest) OR row IN ({shown})"
    db.create("counted_row", f"SELECT s, row, o, d, {AMOUNTS} FROM {counted}")
    db.create(
        "raw",
        f"SELECT row_number() OVER (ORDER BY s, o, d) - 1 AS flow, * FROM (SELECT s, o, d, {TOTALS} FROM counted_row "
        "GROUP BY s, o, d)",
    )
    db.define("at_flow", "SELECT flow, row FROM counted_row JOIN raw USING (s, o, d)")
    for unit in COUNTED_ONCE.keys() - db.elsewhere:
        db.create(f"{unit}_flow", f"SELECT DISTINCT flow, member FROM {unit}_row JOIN at_flow USING (row)")


def group(db: Database, name: str, rows: str, *, once: Collection[str], tiles: bool = False) -> None:
    """Count groups: ``rows`` has (flow, s, a, b, and what adds up), ``name`` gets (s, a, b, the sums) and more.

    Of each unit in ``once`` the distinct members, such as ``people``; ``begin_tiles`` and ``end_tiles`` are the
    distinct tiles, or listed places, in which the trips begin and end. Each is empty where it is not asked for.
    """
    found = f"SELECT s, a, b, {TOTALS} FROM {rows} GROUP BY s, a, b"
    numbered = {
        UNITS[unit].column: members_in(db, unit, "s, a, b", rows, by="flow") if unit in once else None
        for unit in COUNTED_ONCE
    }
    for column, source in (("begin_tiles", "begin_member"), ("end_tiles", "end_member")):
        distinct = f"SELECT DISTINCT s, a, b, member FROM {rows} JOIN {source} USING (flow)"
        numbered[column] = f"SELECT s, a, b, count(*) AS n FROM ({distinct}) GROUP BY s, a, b" if tiles else None
    for column, numbers in numbered.items():
        if numbers is None:
            found = f"SELECT *, NULL::BIGINT AS {column} FROM ({found})"
            continue
        found = f"SELECT g.*, coalesce(n, 0) AS {column} FROM ({found}) g LEFT JOIN ({numbers}) USING (s, a, b)"
    db.create(name, found)


def assign_flows(db: Database, claims: Claims, flows: Flows) -> None:
    """``located`` (flow, s, a, b, ...): the published zones of each flow; ``assigned``: those of published cells.

    ``held``: each published cell with what lies in its zones; ``recount``: with what it is held against. The two differ
    where boxes share flows: then a cell is taken at its word, and that it lies within its boxes is checked.
    """
    rest = "raw"
    if claims.levels is not None:
        _list_hopeless(db, claims)
        rest = "(SELECT * FROM raw ANTI JOIN hopeless USING (flow))"
    if claims.kind == "boxed":
        db.define("located", f"SELECT flow, s, a, b, {AMOUNTS} FROM {rest} JOIN inside USING (flow)")
    else:
        # A flow lies in every interval that holds its time; without times there is one.
        when, same = ("JOIN during w ON r.t = w.t ", " AND {0}.i = w.i") if claims.kind == "folded" else ("", "")
        db.define(
            "located",
            f"SELECT flow, r.s AS s, mo.z AS a, md.z AS b, {AMOUNTS} FROM {rest} r {when}"
            f"JOIN member_o mo ON r.o = mo.tile AND r.s = mo.s{same.format('mo')} "
            f"JOIN member_d md ON r.d = md.tile AND r.s = md.s{same.format('md')}",
        )
    db.create("assigned", "SELECT * FROM located SEMI JOIN cells USING (a, b)")
    tiles = claims.counts_tiles
    group(db, "counted", "assigned", once=counted_once(flows), tiles=tiles)
    counted = [f"c.{name} AS true_{name}" for name in ("trips", *SUMMED)]
    counted += [f"c.{UNITS[unit].column}" for unit in COUNTED_ONCE]
    steps, interval = ("steps", "JOIN interval USING (i) ") if claims.kind == "folded" else ("1", "")
    db.create(
        "held",
        f"SELECT p.*, {steps} AS steps, a, b, {', '.join(counted)}, "
        "begin_tiles, end_tiles, o.tiles AS tiles_o, d.tiles AS tiles_d, o.coarse AS coarse_o, d.coarse AS coarse_d "
        f"FROM published p {interval}JOIN zone_o o ON origin_zone = o.zone AND p.s = o.s AND p.i = o.i "
        "JOIN zone_d d ON destination_zone = d.zone AND p.s = d.s AND p.i = d.i "
        "LEFT JOIN counted c ON c.a = o.z AND c.b = d.z",
    )
    weight = "NULL::DOUBLE" if flows.weight is None else "weight"
    said = f" REPLACE (trips AS true_trips, {weight} AS true_weight)" if claims.overlapping else ""
    db.define("recount", f"SELECT *{said} FROM held")


def _list_hopeless(db: Database, claims: Claims) -> None:
    """``hopeless`` (flow): the flows that the suppression rule takes out before cells are counted.

    A flow is hopeless where its cell is short at every level l from 0 to L, both ends lifted by l steps or to the root.
    The highest level decides alone. Which node a tile is lifted to by l + 1 steps depends only on the one that l
    steps lead to: its parent, or the root itself. So flows that share a cell at l share one at l + 1, the cell at L
    holds the one at every l below, and nothing that a guarantee counts (trips, distinct persons, weights that are
    never negative, distinct tiles) gets less with more flows: a cell that is safe at l is safe at L.
    """
    top = max(db.one(f"SELECT coalesce(max(top), 0) FROM up_{end}") for end in "od")
    level = min(claims.levels or 0, top)
    db.create(
        "lifted",
        f"SELECT flow, s, a.node AS a, b.node AS b, {AMOUNTS} FROM raw "
        f"JOIN (SELECT * FROM up_o WHERE step = least({level}, top)) a ON raw.o = a.tile "
        f"JOIN (SELECT * FROM up_d WHERE step = least({level}, top)) b ON raw.d = b.tile",
    )
    once = [unit for unit in COUNTED_ONCE if claims.threshold(unit) is not None]
    group(db, "lifted_cell", "lifted", once=once, tiles=claims.threshold("locations") is not None)
    volume = "trips" if claims.threshold("population") is None else "weight"
    # Python's product and floor, so that a share of rows is rounded as the method rounds it.
    allowed = {s: math.floor(n * claims.beta) for s, n in db.rows("SELECT s, count(*) FROM raw GROUP BY s")}
    most = ", ".join(f"({s}, {n})" for s, n in allowed.items()) or "(0, 0)"
    db.create(
        "hopeless",
        f"SELECT flow FROM (SELECT flow, s, row_number() OVER (PARTITION BY s ORDER BY r.{volume}, o, d) AS rank "
        f"FROM raw r SEMI JOIN (SELECT flow FROM lifted ANTI JOIN (SELECT * FROM lifted_cell WHERE {claims.safe()}) "
        f"USING (s, a, b)) USING (flow)) JOIN (VALUES {most}) allowance(s, most) USING (s) WHERE rank <= most",
    )


def check_cells(db: Database, claims: Claims, flows: Flows, *, missing_cells: str) -> Iterator[str]:
    """Whether each cell says what its flows come to, reaches the guarantee, and none that reaches it is missing.

    Args:
        db: with ``located``, ``cells`` and ``recount``.
        claims: the report.
        flows: the input.
        missing_cells: SQL of the cells of ``unpublished`` that no rule keeps from being published.
    """
    if claims.overlapping:
        yield from _check_overlapping(db, claims, flows)
        return
    conditions = {
        "cells hold no flow of the input": "true_trips IS NULL",
        "cells have another number of trips than the recount": "true_trips <> trips",
    }
    if flows.weight is not None:
        conditions["cells have another weight than the recount"] = (
            "true_trips IS NOT NULL AND (weight IS NULL OR isnan(weight) OR weight <> true_weight)"
        )
    conditions |= {f"cells {what}": f"true_trips IS NOT NULL AND {t}" for what, t in _short(claims)}
    # What a revision has kept is held against the earlier release: see `flowveil.verify.revision`.
    yield from _counted(db, conditions, table="(SELECT * FROM recount WHERE revised)" if claims.revised else "recount")
    double = db.one("SELECT count(*) FROM (SELECT flow FROM assigned GROUP BY flow HAVING count(*) > 1)")
    if double:
        yield f"flows.parquet: {double} flows of the input fall into two published cells"
    if claims.homogeneous:
        db.create("elsewhere", "SELECT * FROM located ANTI JOIN cells USING (a, b)")
        group(db, "unpublished", "elsewhere", once=counted_once(flows), tiles=claims.counts_tiles)
        missing = db.one(f"SELECT count(*) FROM {missing_cells} WHERE {claims.safe()}")
        if missing:
            yield f"flows.parquet: {missing} cells that reach the guarantee are missing"


def _check_overlapping(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """What must hold wherever the flows that lie in several boxes are counted.

    A cell holds no more than lies in its boxes. What lies in the boxes of one cell only is counted there or
    suppressed, so all that cells lack of it is no more than what is suppressed in total.
    """
    bases = ["trips"] if flows.weight is None else ["trips", "weight"]
    conditions = {"cells hold no flow of the input": "true_trips IS NULL"}
    for basis in bases:
        conditions[f"cells have more {basis} than lie in their boxes"] = f"{basis} > true_{basis}"
    if flows.weight is not None:
        conditions["cells have no weight"] = "weight IS NULL OR isnan(weight)"
        conditions["cells have a weight that is not a sum of millionths"] = "weight <> round(weight * 1e6) / 1e6"
    yield from _counted(db, conditions, table="held")
    yield from _counted(db, {f"cells {what}": test for what, test in _short(claims)})
    db.create(
        "alone",
        "SELECT a, b, sum(trips) AS trips, total_weight(weight) AS weight FROM assigned SEMI JOIN "
        "(SELECT flow FROM assigned GROUP BY flow HAVING count(*) = 1) USING (flow) GROUP BY a, b",
    )
    for basis in bases:
        left = db.one(f"SELECT (SELECT sum({basis}) FROM raw) - (SELECT sum({basis}) FROM published)") or 0
        lacking = db.one(
            f"SELECT coalesce(sum(greatest(alone.{basis} - recount.{basis}, 0)), 0) FROM recount "
            "JOIN alone USING (a, b)"
        )
        whole = float(db.one(f"SELECT coalesce(sum({basis}), 0) FROM raw"))
        rounding = TOLERANCE * max(1.0, whole) if basis == "weight" else 0.0
        if left < -rounding:
            yield f"flows.parquet: more {basis} are published than the input has"
        elif lacking > left + rounding:
            yield f"flows.parquet: cells lack more {basis} than are suppressed"


def _counted(db: Database, conditions: dict[str, str], *, table: str = "recount") -> Iterator[str]:
    for problem, n in db.counts(table, conditions).items():
        if n:
            yield f"flows.parquet: {n} {problem}"


def _short(claims: Claims) -> Iterator[tuple[str, str]]:
    """For each protected unit, how a cell falls short of it: in words and in SQL."""
    for name, unit in UNITS.items():
        least = claims.threshold(name)
        if least is not None:
            yield unit.short.format(least=least), f"coalesce({unit.recounted}, 0) < {literal(least)}"
    locations = claims.threshold("locations")
    if locations is not None:
        yield (
            f"have trips that begin, or end, in fewer than {locations} tiles",
            f"coalesce(least(begin_tiles, end_tiles), 0) < {literal(locations)}",
        )
