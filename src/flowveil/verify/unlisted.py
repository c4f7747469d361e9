"""The part of the verification that asks whether a suppressed total would pin down a single pair of zones.

Written anew from the tables of the recount, sharing nothing with what decides to withhold. A pair that is not listed
is short: below k. If c pairs can hold what is suppressed, a total above (c - 1)(k - 1) leaves none of them empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: Trips, people and weights of a group as the recount names them, and what a short group may hold of each.
_MOST = {"trips": "trips > {others} * ({k} - 1)", "people": "people > {others} * ({k} - 1)"}
#: With so many pairs, that three cells are suppressed would tell that none is empty.
_FEWEST_PAIRS = 3
_TOLERANCE = 1e-9

Run = Callable[[str], list[tuple[Any, ...]]]


def count_pairs(run: Run, *, boxes: bool, lifted: int | None) -> None:
    """``unlisted``: for each slice the pairs that suppressed trips can lie in (s, c).

    Pairs of the finest published zones, and of tiles in no published zone, without those that a published cell covers.
    Zones of suppressed flows are not published, so tiles stand for them: as many at least. Where hopeless flows were
    taken out, a published cell holds all pairs of nodes its tiles are lifted to but one. For boxes, pairs of tiles.

    Args:
        run: executes a query.
        boxes: zones are boxes.
        lifted: levels of the rule that takes out hopeless flows, if that is the rule.
    """
    if boxes:
        run(
            "CREATE TABLE unlisted AS SELECT s, count(DISTINCT o) * count(DISTINCT d) - "
            "(SELECT count(*) FROM published) AS c FROM raw GROUP BY s"
        )
        return
    for end in "od":
        run(
            f"CREATE TABLE finest_{end} AS SELECT s, z, any_value(tile) AS tile FROM (SELECT m.s, tile, z, tiles, "
            "row_number() OVER (PARTITION BY m.s, tile ORDER BY tiles, level DESC) AS place "
            f"FROM member_{end} m JOIN zone_{end} USING (z)) GROUP BY s, z, tiles "
            "HAVING count(*) FILTER (place = 1) = tiles"
        )
        run(
            f"CREATE TABLE holds_{end} AS SELECT m.z, count(*) AS n FROM member_{end} m "
            f"JOIN finest_{end} f ON m.s = f.s AND m.tile = f.tile GROUP BY m.z"
        )
        run(
            f"CREATE TABLE ends_{end} AS SELECT s, count(*) AS n FROM (SELECT s, z::VARCHAR AS one FROM finest_{end} "
            f"UNION ALL SELECT DISTINCT raw.s, 'tile ' || raw.{end} FROM raw "
            f"ANTI JOIN member_{end} m ON raw.s = m.s AND raw.{end} = m.tile) GROUP BY s"
        )
    run(
        "CREATE TABLE unlisted AS SELECT s, any_value(o.n) * any_value(d.n) - coalesce(sum(a.n * b.n), 0) AS c "
        "FROM cells JOIN zone_o z ON z.z = a JOIN ends_o o USING (s) JOIN ends_d d USING (s) "
        "JOIN holds_o a ON a.z = cells.a JOIN holds_d b ON b.z = cells.b GROUP BY s"
    )
    if lifted is not None:
        _add_pairs_inside(run, lifted)


def _add_pairs_inside(run: Run, levels: int) -> None:
    for end in "od":
        run(
            f"CREATE TABLE lifts_{end} AS SELECT z, count(DISTINCT node) AS n FROM member_{end} "
            f"JOIN (SELECT * FROM up_{end} WHERE step = least({levels}, top)) USING (tile) GROUP BY z"
        )
    run(
        "CREATE OR REPLACE TABLE unlisted AS SELECT s, c + more AS c FROM unlisted JOIN (SELECT s, "
        "sum(a.n * b.n - 1) AS more FROM cells JOIN zone_o z ON z.z = a JOIN lifts_o a ON a.z = cells.a "
        "JOIN lifts_d b ON b.z = cells.b GROUP BY s) USING (s)"
    )


def reaches_all_pairs(thresholds: Mapping[str, str | None], pairs: str) -> str:
    """SQL: whether a group (trips, people, weight) is more than all of so many pairs but one can hold.

    Args:
        thresholds: what a cell must reach in trips, people and population, as SQL; None where not protected. And k.
        pairs: SQL of the number of pairs.
    """
    others = f"greatest({pairs} - 1, 0)"
    terms = ["false"]
    for unit, test in _MOST.items():
        if thresholds.get(unit) is not None:
            terms.append(f"coalesce({test.format(others=others, k=thresholds[unit])}, false)")
    if thresholds.get("population") is not None:
        # As if all weights were alike: of k of them that reach the threshold, a short pair holds k - 1.
        most = f"{thresholds['population']} * ({thresholds['k']} - 1) / {thresholds['k']}"
        terms.append(f"coalesce(weight * (1 - {_TOLERANCE}) > {others} * {most}, false)")
    return f"({' OR '.join(terms)})"


def slices_within_reach(run: Run, thresholds: Mapping[str, str | None]) -> set[int]:
    """The slices whose suppressed total (``together``) would leave no pair empty; ``unlisted`` must be there."""
    test = f"c <= {_FEWEST_PAIRS} OR {reaches_all_pairs(thresholds, 'c')}"
    return {s for (s,) in run(f"SELECT s FROM together JOIN unlisted USING (s) WHERE {test}")}
