"""Cells around listed places, held against the higher thresholds that the list asks for.

Which zones hold a place is followed upwards from its tile, by what the library h3 says or by the parents of the user's
own map. Without the list, what cells reach there cannot be recounted, nor whether one is missing without a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flowveil.verify.claims import Claims, mean_population
from flowveil.verify.database import Database
from flowveil.verify.frozen import above_in_h3, climbing
from flowveil.verify.units import UNITS
from flowveil.verify.zones import ENDS

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.zoning.places import Places

#: What is said where the list is not at hand.
NOT_COMPARED = (
    "flows.parquet: cells around listed places are said to reach more, but the list was not given, so they were not "
    "recounted. Hint: --stricter PLACES."
)


def load_stricter(
    db: Database, claims: Claims, flows: Flows, places: Places | None, unread: list[str]
) -> Iterator[str]:
    """``strict_o``, ``strict_d`` (z, k, l): published zones that hold listed places, and the highest asked there.

    ``raised`` (k, population): what each k asks of the population. All are empty where a list is stated and none is at
    hand; then ``unread`` gets a line. Where none is stated there are no such tables.

    Args:
        db: with ``zone_o`` and ``zone_d``.
        claims: the report.
        flows: the input.
        places: the list, by the tiles of the input.
        unread: see above.
    """
    import pyarrow as pa

    said = claims.parameters.get("stricter")
    asked: dict[str, tuple[int, int]] = {}
    if said is None and places is not None:
        yield "report.json: does not say that more is asked around listed places"
    if said is not None and claims.kind != "plain":
        yield "report.json: more cannot be asked around listed places in a release of this kind"
    if said is not None and places is None:
        unread.append(NOT_COMPARED)
    if said is not None and places is not None:
        if said != {"places": len(places), **places.highest}:
            yield "report.json: the list of places is said to be another than the one that was given"
        asked = _asked_of_codes(places, _way_up(claims, flows))
    if claims.parameters.get("stricter") is None:
        return
    form = pa.schema({"zone": pa.string(), "k": pa.int64(), "l": pa.int64()})
    rows = [{"zone": code, "k": k, "l": least} for code, (k, least) in asked.items()]
    db.store("asked_code", pa.Table.from_pylist(rows, schema=form))
    for end, _ in ENDS:
        db.create(f"strict_{end}", f"SELECT z, k, l FROM zone_{end} JOIN asked_code USING (zone)")
    known = sorted({k for k, _ in asked.values()})
    population = [0.0 if flows.weight is None else mean_population(flows.weight, flows.trips, k) for k in known]
    db.store("raised", pa.table({"k": pa.array(known, pa.int64()), "population": pa.array(population, pa.float64())}))


def check_stricter(db: Database, claims: Claims) -> Iterator[str]:
    """A finding where a published cell around a listed place falls short, or more is suppressed than may be."""
    if claims.parameters.get("stricter") is None:
        return
    columns = {name: unit.recounted for name, unit in UNITS.items()}
    short = db.one(f"SELECT count(*) FROM ({around_places(claims, 'recount', columns)})")
    if short:
        yield f"flows.parquet: {short} cells around listed places fall short of what is asked there"
    basis = "trips" if claims.threshold("population") is None else "weight"
    whole = float(db.one(f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM raw"))
    shown = float(db.one(f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM assigned"))
    allowed = claims.parameters.get("max_suppressed")
    if allowed is not None and whole - shown > (allowed + 1e-9) * whole:
        yield "flows.parquet: more is suppressed than the limit allows, cells around listed places included"


def around_places(claims: Claims, rows: str, columns: dict[str, str]) -> str:
    """SQL: the rows (a, b, begin_tiles, end_tiles, and a column for each unit) that are short around a listed place."""
    terms = [
        f"coalesce({columns[name]}, 0) < " + ("t.population" if unit.weighed else "t.k")
        for name, unit in UNITS.items()
        if claims.threshold(name) is not None
    ]
    tiles = "coalesce(least(begin_tiles, end_tiles), 0) < greatest(coalesce(o.l, 0), coalesce(d.l, 0))"
    return (
        f"SELECT r.* FROM {rows} r LEFT JOIN strict_o o ON r.a = o.z LEFT JOIN strict_d d ON r.b = d.z "
        "LEFT JOIN raised t ON t.k = greatest(coalesce(o.k, 0), coalesce(d.k, 0)) AND t.k > 0 "
        f"WHERE (t.k IS NOT NULL AND ({' OR '.join(terms)})) OR {tiles if claims.counts_tiles else 'false'}"
    )


def missing_cells(claims: Claims, places: Places | None) -> str:
    """SQL: the cells of ``unpublished`` that no rule keeps from being published."""
    if claims.parameters.get("stricter") is not None and places is None:
        return "(SELECT * FROM unpublished WHERE false)"
    rules = []
    if claims.parameters.get("dominance") is not None:
        rules.append("dominated")
    if claims.parameters.get("stricter") is not None:
        columns = {name: unit.column for name, unit in UNITS.items()}
        rules.append(f"({around_places(claims, 'unpublished', columns)})")
    return f"(SELECT * FROM unpublished{''.join(f' ANTI JOIN {rule} USING (s, a, b)' for rule in rules)})"


def _way_up(claims: Claims, flows: Flows) -> Callable[[str], list[str]]:
    if flows.whole_map is not None:
        return climbing(flows.whole_map)
    halves = claims.parameters.get("hierarchy") == "halves"
    return lambda code: above_in_h3(code, halves=halves)


def _asked_of_codes(places: Any, above: Callable[[str], list[str]]) -> dict[str, tuple[int, int]]:
    """What is asked of every zone that holds a place, by its code."""
    asked: dict[str, tuple[int, int]] = {}
    for tile, k, least in zip(places.tile.tolist(), places.k.tolist(), places.l.tolist(), strict=True):
        for code in (tile, *above(tile)):
            before = asked.get(code, (0, 0))
            asked[code] = max(before[0], k), max(before[1], least)
    return asked
