"""The zones of a release against the map: which tiles each holds, how many there could be, at which level it stands."""

from __future__ import annotations

from collections.abc import Iterator

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database
from flowveil.verify.tables import check_ends, listed_zones

ENDS = (("o", "origin"), ("d", "destination"))


def load_zones(db: Database) -> None:
    """``zone_*`` (z, s, i, zone, node, tiles, level, possible, coarse) and ``member_*`` (s, i, tile, z), for each end.

    A zone of one slice, or of one interval of time, is not that of another: cells of two of them never count as one.
    """
    for end, role in ENDS:
        db.create(
            f"zone_{end}",
            "SELECT row_number() OVER (ORDER BY s, i, zone) AS z, s, i, zone, node, n.tiles, n.level, possible, coarse "
            f"FROM (SELECT DISTINCT s, i, {role}_zone AS zone FROM published) "
            f"SEMI JOIN {listed_zones(role)} USING (zone) "
            f"LEFT JOIN node_{end} n ON zone = text",
        )
        db.create(f"member_{end}", f"SELECT s, i, tile, z FROM up_{end} JOIN zone_{end} USING (node)")


def list_cells(db: Database) -> None:
    """``cells`` (a, b): the pairs of zones that are published."""
    db.create(
        "cells",
        "SELECT DISTINCT o.z AS a, d.z AS b FROM published p "
        "JOIN zone_o o ON origin_zone = o.zone AND p.s = o.s AND p.i = o.i "
        "JOIN zone_d d ON destination_zone = d.zone AND p.s = d.s AND p.i = d.i",
    )


def check_zones(db: Database, claims: Claims) -> Iterator[str]:
    """Compare zones.parquet with the map, or with the boxes."""
    same_zones = claims.parameters.get("same_zones") is True
    yield from check_ends(db, "published", same_zones=same_zones)
    if same_zones:
        yield from _check_one_cut(db, claims)
    for end, role in ENDS:
        map_of_end = (
            f"zone_{end} r ON l.zone = r.zone" if claims.kind == "boxed" else f"node_{end} r ON l.zone = r.text"
        )
        compared = f"{listed_zones(role)} l LEFT JOIN {map_of_end}"
        tests = {
            "cover no tile of the input": "node IS NULL",
            "have another number of possible tiles than the map": (
                "node IS NOT NULL AND l.tiles IS DISTINCT FROM r.possible"
            ),
            "have another level than the map": "node IS NOT NULL AND l.level IS DISTINCT FROM r.level",
        }
        for problem, n in db.counts(compared, tests).items():
            if n:
                yield f"zones.parquet: {n} {role} zones {problem}"
        if claims.homogeneous:
            twice = f"SELECT s, tile FROM member_{end} GROUP BY s, tile HAVING count(*) > 1"
            overlaps = db.one(f"SELECT count(*) FROM ({twice})")
            if overlaps:
                yield (
                    f"zones.parquet: {role} zones overlap in {overlaps} tiles, "
                    "but report.json says that they are homogeneous"
                )


def _check_one_cut(db: Database, claims: Claims) -> Iterator[str]:
    """Whether a tile is in the same zone as an origin and as a destination, as the report says."""
    if not claims.homogeneous:
        yield "report.json: says that both ends have the same zones, and that zones may overlap"
        return
    named = {end: f"SELECT s, tile, zone FROM member_{end} JOIN zone_{end} USING (s, z)" for end, _ in ENDS}
    apart = db.one(
        f"SELECT count(*) FROM ({named['o']}) o JOIN ({named['d']}) d USING (s, tile) WHERE o.zone <> d.zone"
    )
    if apart:
        yield (
            f"zones.parquet: {apart} tiles are in different zones as origin and as destination, "
            "but report.json says that both ends have the same zones"
        )
