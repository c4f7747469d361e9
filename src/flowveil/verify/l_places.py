"""What locations are counted by: the tiles in which trips begin and end, or the listed places in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database

if TYPE_CHECKING:
    from flowveil.flows import Flows


def load_members(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """``begin_member``, ``end_member`` (flow, member): what is counted once in the locations of a cell.

    Tiles; or, where the report says so, listed places: ``listed`` (tile, places) has how many lie in each tile. A
    finding where what it says of the list is not what the list has.
    """
    import pyarrow as pa

    said, given = claims.parameters.get("l_places"), flows.l_places
    if given is None:
        if said is not None:
            yield "report.json: locations are said to be listed places, but the list was not given"
        db.define("begin_member", "SELECT flow, o AS member FROM raw")
        db.define("end_member", "SELECT flow, d AS member FROM raw")
        return
    if said != {"places": int(np.sum(given.count))}:
        yield "report.json: does not say that locations are the listed places that were given"
    if claims.kind != "plain" or claims.threshold("locations") is None:
        yield "report.json: listed places cannot be counted in a release of this kind"
    places = pa.array(given.count.tolist(), pa.int64())
    if flows.origins.code.dtype.kind == "U":
        db.store("listed_text", pa.table({"text": pa.array(given.code.tolist(), pa.string()), "places": places}))
        db.define("listed", "SELECT node AS tile, places FROM listed_text JOIN code USING (text)")
    else:
        codes = pa.array([int(code, 16) for code in given.code.tolist()], pa.uint64())
        db.store("listed", pa.table({"tile": codes, "places": places}))
    most = int(claims.threshold("locations") or 1)
    # As many of a tile as any cell is asked for: more of them change nothing.
    each = f"SELECT tile, unnest(range(least(places, {most}))) AS place FROM listed"
    for name, end in (("begin_member", "o"), ("end_member", "d")):
        db.define(name, f"SELECT flow, (tile, place) AS member FROM raw JOIN ({each}) ON raw.{end} = tile")


def places_by_number(db: Database) -> dict[str, Any]:
    """How many listed places lie in each tile, by the number that the recount of measures gives it."""
    return {
        f"places_{end}": db.columns(
            "SELECT n, coalesce(places, 0) AS places FROM "
            f"(SELECT tile, row_number() OVER () - 1 AS n FROM tile_{end}) LEFT JOIN listed USING (tile) ORDER BY n"
        )["places"].astype(np.float64)
        for end in ("o", "d")
    }
