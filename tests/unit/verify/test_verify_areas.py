"""Errors between areas are counted at the levels that can be counted, and nothing is spread at the others."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from flowveil.verify import areas
from flowveil.verify.database import Database

#: Two regions of so many districts, with one tile each.
DISTRICTS = 40
TILES = 2 * DISTRICTS
_ROWS = ("operator_cardinality", "intermediate_rows")


class Noted(Database):
    """A database that keeps what was asked of it last."""

    asked = ""

    def rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        self.asked = query
        return super().rows(query, values)


def recounted_so_far(db: Database) -> None:
    """What the steps before leave: one cell of everything to everything, and its 20 trips within the first region."""
    # The root is 0, the regions are 1 and 2; districts and then tiles follow.
    for end in "od":
        db.create(f"tiles_{end}", f"SELECT range AS tile, {3 + TILES} + range AS leaf FROM range({TILES})")
        above = [
            "SELECT tile, leaf AS node, 0 AS step",
            "SELECT tile, 3 + tile, 1",
            f"SELECT tile, 1 + tile // {DISTRICTS}, 2",
            "SELECT tile, 0, 3",
        ]
        db.create(f"up_{end}", " UNION ALL ".join(f"{one} FROM tiles_{end}" for one in above))
        db.create(f"node_{end}", f"SELECT DISTINCT node, 3 - step AS level FROM up_{end}")
        db.create(f"member_{end}", f"SELECT 0 AS z, tile FROM tiles_{end}")
    db.create("held", "SELECT 0 AS s, 0 AS a, 0 AS b, 20 AS trips")
    db.create("finest", "SELECT 0 AS s, 0 AS m")
    db.create("rows", "SELECT 0 AS m, range AS o, range + 1 AS d, 2 AS trips FROM range(10)")


def most_rows(plan: str) -> int:
    """How many rows come out of the largest step of a plan that was run."""
    found: list[int] = []
    # Versions of DuckDB have another word for it.
    json.loads(plan, object_hook=lambda one: found.extend(one[w] for w in _ROWS if w in one) or one)
    return max(found)


@pytest.mark.parametrize(("most", "levels"), [(TILES**2 - 1, [1]), (TILES**2, [2, 1])])
def test_cells_are_not_spread_at_levels_that_are_left_out(monkeypatch, most, levels):
    """One cell of all tiles is 6,400 pairs of districts and 4 of regions: the former are made only to be counted."""
    monkeypatch.setattr(areas, "_MOST_PAIRS", most)
    with duckdb.connect() as connection:
        db = Noted(connection)
        recounted_so_far(db)
        counted = list(areas._counted(db, [2, 1]))
        ((_, plan),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {db.asked}").fetchall()
    assert [one["level"] for one in counted] == levels
    # A quarter of the cell is where its trips are.
    assert counted[-1]["error"] == pytest.approx(0.75)
    spread = most_rows(plan)
    assert (spread >= TILES**2) == (2 in levels)
    # Otherwise nothing has more rows than the tiles at either level.
    assert 2 in levels or spread <= 2 * TILES
