"""What a reader who knows the procedure learns from the choice of zones.

The figures of the threat model.

A map of four origin tiles a, b | c, d below two parents, and one destination; 0 to 5 trips from
each tile, not all 0: 1,295 worlds. Two worlds with the same published table cannot be
distinguished. In how many worlds does every world with the same table have the same number of
trips, 1 or 2 where k = 3, from some tile?
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method

K = 3
BELOW = {"all": (0, 1, 2, 3), "x": (0, 1), "y": (2, 3), "a": (0,), "b": (1,), "c": (2,), "d": (3,)}
WORLDS = np.array([world for world in itertools.product(range(6), repeat=4) if any(world)])
#: (zone, tiles with trips, trips), as published before numbers of possible tiles took their place.
Table = tuple[tuple[str, int, int], ...]


@cache
def tree_of(seen: tuple[int, ...]) -> Hierarchy:
    """The tree of the tiles that were seen."""
    parent, code = [-1], ["all"]
    for name in ("x", "y"):
        below = [i for i in BELOW[name] if i in seen]
        if below:
            parent, code = [*parent, 0], [*code, name]
            parent, code = (
                [*parent, *[len(code) - 1] * len(below)],
                [
                    *code,
                    *("abcd"[i] for i in below),
                ],
            )
    return Hierarchy.from_parents(parent, np.array(code))[0]


THERE, _ = Hierarchy.from_parents([-1], np.array(["there"]))


def flows_of(world: np.ndarray) -> Flows:
    tile = np.flatnonzero(world)
    n = len(tile)
    origins = tree_of(tuple(tile.tolist()))
    return Flows.from_pairs(
        np.arange(n), np.zeros(n, int), world[tile], origins=origins, destinations=THERE
    )


def table_of(world: np.ndarray, method: str, **options) -> Table | None:
    flows = flows_of(world)
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    try:
        plan = find_method(method).plan(flows, guarantee, max_suppressed=0.3, **options)
    except InfeasibleError:
        return None
    zones = plan.origin_zones
    trips = np.bincount(
        plan.origin_zone[plan.kept], flows.trips[plan.kept], minlength=len(zones)
    ).astype(int)
    codes = zones.codes(np.arange(len(zones)))
    rows = zip(codes.tolist(), zones.size.tolist(), trips.tolist(), strict=True)
    return tuple(sorted(row for row in rows if row[2] >= K))


def turned(world: np.ndarray) -> tuple[tuple[int, ...], dict[str, str]]:
    """The world with the smaller of two brothers first, on both levels.

    And what its zones are called in this one.
    """
    order = sorted((0, 1), key=lambda i: world[i]), sorted((2, 3), key=lambda i: world[i])
    x, y = sorted(order, key=lambda pair: world[pair].tolist())
    names = {"abcd"[here]: "abcd"[there] for here, there in enumerate((*x, *y))}
    names |= {"x": "x", "y": "y"} if x == order[0] else {"x": "y", "y": "x"}
    return tuple(world[[*x, *y]].tolist()), {**names, "all": "all"}


def tables_of_turned_worlds(method: str, **options) -> list[Table | None]:
    """The tables of all worlds, where the method decides the same whichever brother comes first.

    230 are decided.
    """
    decide = cache(lambda world: table_of(np.array(world), method, **options))
    tables = []
    for world in WORLDS:
        first, names = turned(world)
        table = decide(first)
        tables.append(
            None if table is None else tuple(sorted((names[zone], *rest) for zone, *rest in table))
        )
    return tables


def fixed_and_short(worlds: np.ndarray) -> bool:
    """Whether all these worlds have the same trips from some tile, and fewer than k."""
    first = worlds[0]
    return bool(np.any((worlds == first).all(axis=0) & (first >= 1) & (first < K)))


def worlds_of_table(table: Table, *, sizes: bool) -> np.ndarray:
    """The worlds that fit a table, whatever made it.

    Sums of zones, and fewer than k where nothing is listed.
    """
    fit, listed = np.ones(len(WORLDS), bool), set()
    for zone, size, trips in table:
        inside = WORLDS[:, BELOW[zone]]
        fit &= inside.sum(axis=1) == trips
        fit &= ((inside > 0).sum(axis=1) == size) | (not sizes)
        listed |= set(BELOW[zone])
    return WORLDS[fit & (WORLDS[:, sorted({0, 1, 2, 3} - listed)] < K).all(axis=1)]


def figures(tables: list[Table | None], *, sizes: bool) -> tuple[int, int]:
    """In how many worlds a short value is determined.

    By the table and the procedure, and by the table alone.
    """
    groups = defaultdict(list)
    for world, table in zip(WORLDS, tables, strict=True):
        if table is not None:
            groups[tuple(row if sizes else (row[0], 0, row[2]) for row in table)].append(world)
    known = sum(len(worlds) for worlds in groups.values() if fixed_and_short(np.array(worlds)))
    alone = (
        len(w)
        for table, w in groups.items()
        if fixed_and_short(worlds_of_table(table, sizes=sizes))
    )
    return known, sum(alone)


ANNEX = Path(__file__).parents[3] / "docs" / "methods" / "proofs.md"
NAMED = {"twincut": ("TwinCut", {"effort": 0}), "odkanon": ("ODkAnon", {"budget": "volume"})}


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMED)
def test_the_figures_of_the_annex(method):
    name, options = NAMED[method]
    assert len(WORLDS) == 1295
    if method == "twincut":
        tables = tables_of_turned_worlds(method, **options)
        assert [table_of(world, method, **options) for world in WORLDS[::20]] == tables[::20]
    else:
        # Which of two brothers comes first decides between equals.
        tables = [table_of(world, method, **options) for world in WORLDS]
    with_sizes, without = (figures(tables, sizes=sizes) for sizes in (True, False))
    figures_said = f"{with_sizes[0]} ({with_sizes[1]}) | {without[0]} ({without[1]}) |"
    said = ANNEX.read_text(encoding="utf-8")
    assert f"| {name} | {figures_said}" in said
    if method == "twincut":
        # With one destination PairCut chooses the same. Not every world, because each takes it a
        # fiftieth of a second.
        assert [table_of(world, "paircut") for world in WORLDS[::20]] == tables[::20]
        assert f"| PairCut, thresholds of exactly k | {figures_said}" in said
