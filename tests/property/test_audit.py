"""The audit's subtraction against all integer solutions.

Sound, and complete for two homogeneous releases.
"""

from __future__ import annotations

import h3
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flowveil.verify.audit.published import published_release
from flowveil.verify.audit.subtraction import confined_groups
from reference.confined import Solutions, Table

K = 3
#: A map of four tiles in two districts: zones of one release may be made of whole zones of the
#: other.
TILES = sorted(h3.cell_to_children(h3.cell_to_parent("89b2c55b5b3ffff", 8), 9))[:4]
MADE_OF = {
    "region": TILES,
    "north": TILES[:2],
    "south": TILES[2:],
    **{tile: [tile] for tile in TILES},
}


def tiles_of(zone):
    return frozenset(MADE_OF[zone])


@st.composite
def cuts(draw):
    """The zone of every tile: the region, or its districts, each whole or divided."""
    if draw(st.integers(0, 3)) == 0:
        return dict.fromkeys(TILES, "region")
    divided = {district: draw(st.booleans()) for district in ("north", "south")}
    district = {tile: "north" if tile in MADE_OF["north"] else "south" for tile in TILES}
    return {tile: tile if divided[district[tile]] else district[tile] for tile in TILES}


@st.composite
def releases(draw):
    """Two tables of the same trips, as published: cells that reach K."""
    n_trips = draw(st.integers(4, 14))
    ends = st.tuples(
        st.sampled_from(TILES[: draw(st.integers(1, 4))]),
        st.sampled_from(TILES[: draw(st.integers(1, 3))]),
    )
    trips = draw(st.lists(ends, min_size=n_trips, max_size=n_trips))
    tables = []
    for _ in range(2):
        origins, destinations = draw(cuts()), draw(cuts())
        cells: dict[tuple[str, str], int] = {}
        for o, d in trips:
            cells[origins[o], destinations[d]] = cells.get((origins[o], destinations[d]), 0) + 1
        tables.append({pair: n for pair, n in cells.items() if n >= K})
    return tables, draw(st.booleans())


def release_of(cells, *, by_trips=True, homogeneous=True):
    pairs = sorted(cells)
    flows = pa.table(
        {
            "origin_zone": [o for o, _ in pairs],
            "destination_zone": [d for _, d in pairs],
            "trips": pa.array([cells[p] for p in pairs], pa.int64()),
        }
    )
    codes = sorted({zone for pair in pairs for zone in pair})
    zones = pa.table({"zone": codes, "h3_cells": [MADE_OF[code] for code in codes]})
    report = {
        "kind": "plain",
        "method": "twincut",
        "statement": {"homogeneous": homogeneous, "suppression": {"rule": "short cells"}},
        "parameters": {},
        "guarantee": {"k": K, "protect": ["trips"] if by_trips else ["people"], "trips": K},
    }
    return published_release(flows, zones, report)


def members(group, solutions):
    """The unknowns of a group."""
    if group.kind == "shared":
        sets = [
            solutions.inside(pair) if pair != ("", "") else solutions.unpublished(side)
            for side, pair in enumerate(group.pairs)
        ]
        return set.intersection(*sets)
    if group.kind == "crossing":
        sets = [
            solutions.inside(pair) if pair != ("", "") else solutions.outside(side)
            for side, pair in enumerate(group.pairs)
        ]
        return sets[0] & sets[1] & solutions.inside((group.origin, group.destination))
    if group.single:
        return solutions.inside(group.pairs[0])
    return solutions.inside((group.origin, group.destination)) & solutions.unpublished(group.absent)


@settings(max_examples=60, deadline=None)
@given(releases())
def test_groups_are_those_that_all_integer_solutions_confine(drawn):
    tables, by_trips = drawn
    assume(all(tables))
    most = K - 1 if by_trips else None
    solutions = Solutions((Table(tables[0], most), Table(tables[1], most)), tiles_of)
    assume(not solutions.too_many)
    found = confined_groups([release_of(cells, by_trips=by_trips) for cells in tables])
    assert found.contradictions == 0
    reported = set()
    for group in found.groups:
        rows = members(group, solutions)
        assert solutions.bounds(rows) == (group.low, group.high), group
        reported.add(frozenset(rows))
    for rows in groups_to_find(solutions):
        low, high = solutions.bounds(rows)
        assert not (low > 0 and high < K) or frozenset(rows) in reported, (sorted(rows), low, high)


def groups_to_find(solutions):
    """Pairs of listed zones, what two of them share, and what one release does not publish of the
    other's cells."""
    for side, table in enumerate(solutions.tables):
        other = solutions.tables[1 - side]
        for pair in table.pairs:
            if pair not in table.cells and solutions.whole(pair):
                yield solutions.inside(pair)
            for second in other.pairs if side == 0 else ():
                shared = solutions.inside(pair) & solutions.inside(second)
                if shared:
                    yield shared
        for pair in table.cells:
            left = solutions.inside(pair) & solutions.unpublished(1 - side)
            if left and any(solutions.inside(p) <= solutions.inside(pair) for p in other.cells):
                yield left


@st.composite
def nested(draw):
    """Cells that share no trip, but whose zones nest.

    The whole, divided at either end, and again.
    """
    parts = {"region": ["north", "south"], "north": TILES[:2], "south": TILES[2:]}
    cells = [("region", "region")]
    for _ in range(draw(st.integers(1, 3))):
        o, d = cells.pop(draw(st.integers(0, len(cells) - 1)))
        along_origins = draw(st.booleans())
        if along_origins and o in parts:
            cells += [(part, d) for part in parts[o]]
        elif d in parts:
            cells += [(o, part) for part in parts[d]]
        else:
            cells.append((o, d))
    return cells


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nothing_is_said_of_nested_or_of_three_releases_that_a_solution_contradicts(data):
    ends = st.tuples(st.sampled_from(TILES[:3]), st.sampled_from(TILES[:3]))
    trips = data.draw(st.lists(ends, min_size=4, max_size=12))
    tables = []
    for _ in range(data.draw(st.integers(2, 3))):
        cells = data.draw(nested())
        counted = {
            p: sum(o in tiles_of(p[0]) and d in tiles_of(p[1]) for o, d in trips) for p in cells
        }
        tables.append({pair: n for pair, n in counted.items() if n >= K})
    assume(all(tables))
    # Pairs of zones of a nested release are not its cells, so nothing is known of what it does not
    # list.
    solutions = Solutions([Table(cells, None) for cells in tables], tiles_of)
    assume(not solutions.too_many)
    found = confined_groups([release_of(cells, homogeneous=False) for cells in tables])
    assert found.contradictions == 0
    for group in found.groups:
        low, high = solutions.bounds(nested_members(group, solutions))
        assert group.low <= low, group
        assert high <= group.high, group


def nested_members(group, solutions):
    if group.kind == "shared":
        return members(group, solutions)
    # Cells that lie inside are subtracted; one that crosses is not.
    rows = solutions.inside((group.origin, group.destination))
    parts = [solutions.inside(cell) for cell in solutions.tables[group.absent].cells]
    return rows - set().union(*(part for part in parts if part <= rows))
