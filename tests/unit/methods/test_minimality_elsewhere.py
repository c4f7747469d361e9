"""What a reader who knows the procedure learns from boxes and from a series: figures.

Three tiles in a row, the first two below one parent; one destination; 0 to 4 trips
from each, not all 0: 124 worlds. Two worlds with the same published table cannot be distinguished.
In how many worlds does every world with the same table have the same number of trips, 1 or 2 where
k = 3, from some tile? The threat model has the figures; methods on trees of places
are in `test_minimality`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method
from samples.placed import star

K, LIMIT = 3, 0.3
WORLDS = np.array([world for world in itertools.product(range(5), repeat=3) if any(world)])
SAID = (Path(__file__).parents[3] / "docs" / "methods" / "proofs.md").read_text(encoding="utf-8")
#: A published zone as the first and the last of the three that it holds, and its trips.
Table = tuple[tuple[tuple[int, int], int], ...]

THERE = star(np.array([48.9]), np.array([2.5]))
HERE, _ = Hierarchy.from_parents([-1], np.array(["here"]))
WEST, STEP = 2.35, 0.014


def in_a_row(world: np.ndarray) -> Flows:
    """Trips from three adjacent squares."""
    tile = np.flatnonzero(world)
    n = len(tile)
    origins = star(np.full(n, 48.85), WEST + STEP * tile)
    return Flows.from_pairs(
        np.arange(n), np.zeros(n, int), world[tile], origins=origins, destinations=THERE
    )


def planned(flows: Flows, method: str, **options):
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    try:
        return find_method(method).planner(flows)(flows, guarantee, max_suppressed=LIMIT, **options)
    except InfeasibleError:
        return None


def table_of(flows: Flows, method: str, **options) -> Table | None:
    plan = planned(flows, method, **options)
    if plan is None:
        return None
    zones = plan.origin_zones
    trips = np.bincount(
        plan.origin_zone[plan.kept], flows.trips[plan.kept], minlength=len(zones)
    ).astype(int)
    first = zones.grid.squares(np.array([48.85]), np.array([WEST]))[0][0]
    span = zip((zones.x0 - first).tolist(), (zones.x1 - first).tolist(), strict=True)
    return (
        tuple(sorted(row for row in zip(span, trips.tolist(), strict=True) if row[1] >= K)) or None
    )


def fixed_and_short(worlds: np.ndarray) -> bool:
    """Whether all these worlds have the same trips somewhere, and fewer than k."""
    return bool(np.any((worlds == worlds[0]).all(axis=0) & (worlds[0] >= 1) & (worlds[0] < K)))


@cache
def boxes_of(world: tuple[int, ...]) -> set[Table]:
    """All tables that some way to put each tile into a box, or to leave it out, makes within the
    limit."""
    seen, found = [tile for tile, trips in enumerate(world) if trips], set()
    for boxes in itertools.product(range(-1, len(seen)), repeat=len(seen)):
        inside = [
            [tile for tile, box in zip(seen, boxes, strict=True) if box == n]
            for n in range(-1, len(seen))
        ]
        left, *made = (
            ((min(own), max(own)), sum(world[i] for i in own)) if own else None for own in inside
        )
        if left is None or left[1] <= LIMIT * sum(world):
            found.add(tuple(sorted(box for box in made if box is not None)))
    return found


def fits_boxes(world: np.ndarray, table: Table) -> bool:
    """Whether the world can have these boxes."""
    return table in boxes_of(tuple(world.tolist()))


def grouped(tables) -> dict:
    groups = defaultdict(list)
    for world, table in zip(WORLDS, tables, strict=True):
        if table is not None:
            groups[table].append(world)
    return groups


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flows_of", "method", "options", "fits"),
    [
        # The exchange that the usual effort pays for finds no other boxes: a tenth of it is enough
        # here.
        ("CurveCut", in_a_row, "curvecut", {"effort": 0.1}, fits_boxes),
        ("Mondrian", in_a_row, "mondrian", {}, fits_boxes),
    ],
)
def test_the_figures_of_boxes(name, flows_of, method, options, fits):
    groups = grouped([table_of(flows_of(world), method, **options) for world in WORLDS])
    known = sum(len(worlds) for worlds in groups.values() if fixed_and_short(np.array(worlds)))
    alone = 0
    for table, worlds in groups.items():
        fitting = WORLDS[[fits(world, table) for world in WORLDS]]
        assert {tuple(world) for world in worlds} <= {tuple(world) for world in fitting}
        alone += len(worlds) * fixed_and_short(fitting)
    assert f"| {name} | {known} ({alone}) |" in SAID


# ---- a series ------------------------------------------------------------------------------------

BELOW = {"all": {0, 1, 2}, "x": {0, 1}, "y": {2}, "a": {0}, "b": {1}, "c": {2}}


def on_a_tree(world: np.ndarray) -> Flows:
    """Trips from a and b below x, and from c below y: trees have the tiles that were seen."""
    parent, code = [-1], ["all"]
    for name in ("x", "y"):
        below = [tile for tile in sorted(BELOW[name]) if world[tile]]
        if below:
            parent, code = [*parent, 0], [*code, name]
            parent, code = (
                [*parent, *[len(code) - 1] * len(below)],
                [
                    *code,
                    *("abc"[tile] for tile in below),
                ],
            )
    tree, _ = Hierarchy.from_parents(parent, np.array(code))
    n = len(trips := world[world > 0])
    return Flows.from_pairs(np.arange(n), np.zeros(n, int), trips, origins=tree, destinations=HERE)


def first_step(world: np.ndarray) -> dict[str, int] | None:
    plan = planned(on_a_tree(world), "twincut", effort=0) if world.any() else None
    if plan is None:
        return None
    zones = plan.origin_zones
    codes = zones.codes(np.arange(len(zones))).tolist()
    trips = world[world > 0]
    held = (
        np.bincount(plan.origin_zone[plan.kept], trips[plan.kept], minlength=len(zones))
        .astype(int)
        .tolist()
    )
    return {code: n for code, n in zip(codes, held, strict=True) if n >= K}


def over(zones: frozenset[str], world: np.ndarray) -> dict[str, int]:
    """The trips of each zone of a kept map.

    What it does not cover is in the coarsest nodes that overlap none.
    """
    whole = set(zones)
    for node in BELOW:
        if not any(BELOW[node] & BELOW[zone] for zone in whole):
            whole.add(node)
    return {zone: int(world[sorted(BELOW[zone])].sum()) for zone in sorted(whole)}


def later_step(zones: frozenset[str], world: np.ndarray) -> dict[str, int] | None:
    held = over(zones, world)
    shown = {zone: n for zone, n in held.items() if n >= K}
    return (
        shown if shown and sum(held.values()) - sum(shown.values()) <= LIMIT * world.sum() else None
    )


@pytest.mark.slow
def test_totals_of_a_series_reveal_nothing_that_its_steps_do_not_and_true_ones_would():
    steps = np.array(list(itertools.product(range(5), repeat=3)))
    first = [first_step(world) for world in steps]
    later = {
        zones: [later_step(zones, world) for world in steps]
        for zones in {frozenset(t) for t in first if t is not None}
    }
    published, with_totals, with_true = (defaultdict(list) for _ in range(3))
    for a, b in itertools.product(range(len(steps)), repeat=2):
        chosen = first[a] if first[a] is not None else first[b]
        if chosen is None:
            continue
        zones = frozenset(chosen)
        tables = (first[a], later[zones][b]) if first[a] is not None else (None, first[b])
        said = tuple(None if table is None else tuple(sorted(table.items())) for table in tables)
        added = Counter[str]()
        for table in tables:
            added.update(table or {})
        true = Counter(over(zones, steps[a] + steps[b]))
        world = np.concatenate((steps[a], steps[b]))
        published[said].append(world)
        with_totals[said, tuple(sorted(added.items()))].append(world)
        with_true[said, tuple(sorted((zone, true[zone]) for zone in added))].append(world)
    n = sum(len(worlds) for worlds in published.values())
    known, same, more = (
        sum(len(worlds) for worlds in groups.values() if fixed_and_short(np.array(worlds)))
        for groups in (published, with_totals, with_true)
    )
    assert known == same
    assert (
        f"{known:,} of {n:,} pairs of steps, with totals as without; with true totals it would be"
        f" {more:,}" in SAID
    )
