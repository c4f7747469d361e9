"""Secret thresholds: how they are drawn, and that nothing about the parts of a cell can be proven.

The proof of docs/methods/layercut.md is run: for each table that a small world gives, and each
extreme way to distribute the trips of its cells over their parts, thresholds that allow exactly
the cells of the table give the same table and the same statement.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import h3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_small_worlds import (
    BELOW,
    HOURS,
    LARGE,
    REASONS,
    REST,
    ROW,
    SQUARE,
    TIMED_REASONS,
    WHY,
    WHY_TREE,
    Case,
    Pair,
    flows_of,
    one_person_a_trip,
    sliced_of,
)

from conftest import trip_table
from flowveil import anonymize, read_trips
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import H3_PART_SHIFT, H3_PARTS, Hierarchy
from flowveil.core.secret_key import create_key, read_key
from flowveil.core.secret_thresholds import (
    LARGEST,
    SecretThresholds,
    node_words,
    siphash,
    trailing_zeros,
)
from flowveil.core.times import TIME
from flowveil.methods.district_layers import _Ladder, _Search
from flowveil.methods.layercut import RATIO
from flowveil.methods.paircut import FIRST_PRICE, SECRET_RATIO
from flowveil.publishing import anonymization
from flowveil.release.boundary import to_published
from flowveil.release.statement import Published
from flowveil.zoning.public_map import H3Map, zone_chains
from reference.siphash import siphash as slow_siphash
from samples.releases import city_flows

K = 3
#: Random thresholds for each world, and worlds for each table.
DRAWS, EXTREMES = 2, 4
STEPS_UP = {"work": 0, "study": 0, "shop": 0, "work or study": 1, "all": 2}
WORDS = st.integers(0, 2**64 - 1)


# ---- how they are drawn --------------------------------------------------------------------------


@given(st.binary(min_size=16, max_size=16), st.lists(st.lists(WORDS, min_size=3, max_size=3)))
@settings(max_examples=30, deadline=None)
def test_siphash_is_that_of_the_reference(key, columns):
    words = [np.array(column, dtype=np.uint64) for column in columns] or [np.zeros(3, np.uint64)]
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    for at, found in enumerate(siphash(halves, words).tolist()):
        message = b"".join(int(word[at]).to_bytes(8, "little") for word in words)
        assert found == slow_siphash(key, message)


@pytest.mark.parametrize(
    ("length", "value"),
    [(0, 0x726FDB47DD0E0E31), (8, 0x93F5F5799A932462), (15, 0xA129CA6149BE45E5)],
)
def test_the_reference_gives_the_values_of_the_authors(length, value):
    assert slow_siphash(bytes(range(16)), bytes(range(length))) == value


def test_an_amount_is_geometric():
    words = np.array([0, 1, 2, 3, 8, 2**63], dtype=np.uint64)
    assert trailing_zeros(words).tolist() == [64, 0, 1, 0, 3, 63]
    n = 200_000
    amounts = SecretThresholds((1, 2)).amounts(0, [np.arange(n, dtype=np.uint64)])
    for j in range(1, 8):
        expected = n * 2.0**-j
        assert abs((amounts >= j).sum() - expected) < 5 * np.sqrt(expected)


def test_the_key_follows_from_the_flows_alone_and_from_the_key_file(tmp_path):
    flows = city_flows()
    key = SecretThresholds.from_flows(flows)._key
    order = np.random.default_rng(0).permutation(len(flows))
    again = Flows.from_pairs(
        flows.origin[order],
        flows.destination[order],
        flows.trips[order],
        origins=flows.origins,
        destinations=flows.destinations,
    )
    alone = Flows.from_pairs(
        flows.origin,
        flows.destination,
        flows.trips,
        origins=flows.origins,
        destinations=flows.destinations,
    )
    assert SecretThresholds.from_flows(again)._key == SecretThresholds.from_flows(alone)._key
    trips = alone.trips.copy()
    trips[0] += 1
    changed = Flows.from_pairs(
        alone.origin,
        alone.destination,
        trips,
        origins=flows.origins,
        destinations=flows.destinations,
    )
    create_key(tmp_path / "a.key")
    secret = SecretThresholds.from_flows(flows, read_key(tmp_path / "a.key"))
    keys = {key, SecretThresholds.from_flows(changed)._key, secret._key}
    assert len(keys) == 3
    assert str(key[0]) not in repr(secret)


# ---- what can be proven --------------------------------------------------------------------------


class Allowed(SecretThresholds):
    """Thresholds that allow certain nodes in certain steps, and nothing else."""

    def __init__(self, cells: Mapping[int, set[tuple[int, ...]]]) -> None:
        super().__init__((0, 0))
        object.__setattr__(self, "cells", cells)

    def amounts(self, step: Any, nodes: Sequence[Any]) -> Any:
        steps = np.full(len(nodes[0]), step).tolist()
        rows = zip(steps, zip(*(node.tolist() for node in nodes), strict=True), strict=True)
        amounts = [0 if row in self.cells.get(own, ()) else LARGEST for own, row in rows]
        return np.array(amounts, dtype=np.int64)


class Reached:
    """The node tuples that reached their thresholds in a run with units, by step, as far as the
    cells of its plan depend on them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.cells: dict[int, set[tuple[int, ...]]] = {}

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for owner, name, watched in (
            (_Search, "_reaching", self._reaching),
            (_Search, "_divide", self._closing),
            (_Search, "plan_units", self._closing),
            (_Search, "to_plan", self._to_plan),
            (_Ladder, "publish", self._publish),
        ):
            patch.setattr(owner, name, self._wrapped(getattr(owner, name), watched))

    @staticmethod
    def _wrapped(plain: Any, watched: Any) -> Any:
        return lambda own, *given, **named: watched(plain, own, *given, **named)

    def _add(self, search: Any, rows: Any, steps: Any, nodes: Any, **about: Any) -> None:
        words = [word[node] for word, node in zip(search.words, nodes, strict=True)]
        about |= {"rows": rows, "steps": steps, "words": words, "end": None}
        self.events.append(about)

    def _reaching(self, plain: Any, search: Any, rows: Any, nodes: Any, step: Any = None) -> Any:
        held = plain(search, rows, nodes, step)
        steps = np.full(len(rows), search.step) if step is None else step
        own = [node[held] for node in nodes]
        self._add(search, rows[held], steps[held], own, open=step is None)
        return held

    def _closing(self, plain: Any, search: Any, *given: Any) -> None:
        """What a call published lies between its steps: the first open event is its container."""
        first = len(self.events) - (plain.__name__ == "_divide")
        plain(search, *given)
        event = self.events[first] if 0 <= first < len(self.events) else None
        if event is not None and event.get("open") and event["end"] is None:
            event["end"] = search.step

    def _publish(self, plain: Any, ladder: Any, price: float, step: int, *, whole: bool) -> None:
        before = ladder.step.copy()
        plain(ladder, price, step, whole=whole)
        new = np.flatnonzero((ladder.step == step) & (before != step))
        place = {int(row): at for at, row in enumerate(ladder.rows)}
        at = np.array([place[row] for row in new.tolist()], dtype=np.int64)
        nodes = [*(node[new] for node in ladder.nodes), *(value[at] for value in ladder.values)]
        self._add(ladder.search, new, np.full(len(new), step), nodes, ladder=ladder)

    def _to_plan(self, plain: Any, search: Any) -> Any:
        for event in self.events:
            rows, steps, ladder = event["rows"], event["steps"], event.get("ladder")
            label = search.label[rows]
            if ladder is not None and not ladder.inside:
                kept = ladder.step[rows] == steps
            elif event.get("open"):
                kept = (label >= steps) & (label <= event["end"])
            else:
                kept = label == steps
            words = zip(*(word[kept].tolist() for word in event["words"]), strict=True)
            for step, row in zip(steps[kept].tolist(), words, strict=True):
                self.cells.setdefault(step, set()).add(row)
        return plain(search)


Table = tuple[str, str]


@dataclass(frozen=True)
class Setting:
    """A request, and the worlds that it is tried on.

    Attributes:
        case: the pairs, with 0 to 3 trips each.
        method, limit: the request.
        h3: whether the tiles are H3 cells, which take longer: every fifth world is tried.
    """

    case: Case
    method: str = "layercut"
    limit: float = 0.3
    h3: bool = False

    @property
    def has_units(self) -> bool:
        """Whether LayerCut plans pairs of districts, or values after places."""
        of_values = bool(self.case.folds) and "fold_weight" not in self.case.options
        return self.method == "layercut" and (of_values or "districts" in self.case.options)

    @property
    def pairs(self) -> list[Pair]:
        return [*self.case.pairs, *self.case.fixed]

    def flows(self, world: Sequence[int]) -> Flows:
        counts = dict(zip(self.pairs, world, strict=True))
        seen = [pair for pair, n in counts.items() if n]
        if self.h3:
            rows = [pair for pair, n in counts.items() for _ in range(n)]
            table = pa.table(dict(zip(("o", "d"), zip(*rows, strict=True), strict=True)))
            ends = {"origin_tile": "o", "destination_tile": "d"}
            return read_trips(table, **ends, no_person=True)
        if not self.case.folds:
            return flows_of(self.case, counts, seen)
        sliced = sliced_of(self.case, self.case.folds, counts, seen)
        return sliced.folded({WHY: WHY_TREE} if WHY in self.case.folds else {})

    def publish(
        self, world: Sequence[int], secret: SecretThresholds, reached: Reached | None = None
    ) -> Published | None:
        with pytest.MonkeyPatch.context() as patch:
            if reached is not None:
                reached.watch(patch)
            patch.setattr(anonymization.SecretThresholds, "from_flows", lambda *_: secret)
            request = {"protect": "trips", **self.case.options}
            try:
                release = anonymize(
                    self.flows(world), self.method, K, max_suppressed=self.limit, **request
                )
            except InfeasibleError:
                return None
        return to_published(release)

    def explained(self, published: Published) -> SecretThresholds:
        """Thresholds that allow the cells of a table and no others, each layer in the first step
        with a price above the sizes of its cells."""
        nodes, sizes = self.nodes_of(published), self.sizes(published)
        ratio = RATIO if self.method == "layercut" else SECRET_RATIO
        step, allowed = -1, {}
        for layer in sorted(nodes):
            step += 1
            while FIRST_PRICE * ratio**step <= sizes[layer]:
                step += 1
            allowed[step] = nodes[layer]
        return Allowed(allowed)

    def sizes(self, published: Published) -> dict[int, float]:
        """The largest size of a cell of each layer: tiles, hours and steps up."""
        cells = published.cells.to_pylist()
        found: dict[int, float] = {}
        for cell in cells:
            zones = [cell["origin_zone"], cell["destination_zone"]]
            size = sum(published.map.places([zone]).tiles[0] for zone in zones)
            size += STEPS_UP[cell[WHY]] if WHY in cell else 0
            size += hours(cell["time_from"], cell["time_to"]) if "time_from" in cell else 0
            layer = cell.get("layer", 1)
            found[layer] = max(found.get(layer, 0), size)
        return found

    def nodes_of(self, published: Published) -> dict[int, set[tuple[int, ...]]]:
        """The words of the nodes of each cell, by layer."""
        found: dict[int, set[tuple[int, ...]]] = {}
        ends = self.flows([1] * len(self.pairs)).ends
        for cell in published.cells.to_pylist():
            codes = [cell["origin_zone"], cell["destination_zone"], *folded_codes(cell)]
            words = []
            for code, (tree, _) in zip(codes, ends, strict=True):
                words.append(word_of(code, tree.code.dtype == np.uint64))
            found.setdefault(cell.get("layer", 1), set()).add(tuple(words))
        return found

    def parts(self, published: Published) -> list[tuple[int, list[int]]]:
        """The trips of each cell, and the pairs that may have them: those of the cell that no cell
        of an earlier layer has, and that are in no unit that is complete."""
        held: set[int] = set()
        found = []
        cells = published.cells.to_pylist()
        for layer in sorted({cell.get("layer", 1) for cell in cells}):
            taken = set(held)
            for cell in (cell for cell in cells if cell.get("layer", 1) == layer):
                inside = [
                    at
                    for at, pair in enumerate(self.pairs)
                    if at not in taken
                    and self.contains(cell, pair)
                    and not any(self.completes(other, pair, cell) for other in cells)
                ]
                found.append((cell["trips"], inside))
                held |= set(inside)
        return found

    def completes(self, earlier: Mapping[str, Any], pair: Pair, cell: Mapping[str, Any]) -> bool:
        """Whether an earlier cell shows that a later one has no trips of a pair: a pair of
        districts with a cell inside is complete, and so is its interval."""
        if not self.has_units or earlier["layer"] >= cell["layer"]:
            return False
        ends = ("origin_zone", "destination_zone")
        unit = [self.district(tile) for tile in pair[:2]]
        if [self.district(earlier[end]) for end in ends] != unit:
            return False
        if [self.district(cell[end]) for end in ends] != unit:
            return True
        places = dict(zip(ends, pair[:2], strict=True))
        return folded_codes(earlier) != folded_codes(cell) and self.contains(
            {**earlier, **places}, pair
        )

    def district(self, zone: str) -> str | None:
        """The district around a zone; None for a coarser zone."""
        if not self.h3:
            return {"map": None, "t": "t"}.get(zone, "x" if zone in "xab" else "y")
        cell = zone.partition(".")[0]
        if zone == "all" or h3.get_resolution(cell) < 8:
            return None
        return h3.cell_to_parent(cell, 8)

    def contains(self, cell: Mapping[str, Any], pair: Pair) -> bool:
        zones = cell["origin_zone"], cell["destination_zone"]
        for zone, tile in zip(zones, pair[:2], strict=True):
            if tile not in BELOW.get(zone, ()) and zone not in enclosing(tile, self.h3):
                return False
        values = dict(zip(self.case.folds, pair[2:], strict=True))
        if WHY in values and values[WHY] not in BELOW[cell[WHY]]:
            return False
        return TIME not in values or cell["time_from"] <= values[TIME] < cell["time_to"]

    def extremes(self, published: Published, rng: np.random.Generator) -> Iterator[list[int]]:
        """Worlds in which all trips of each cell are in one of its parts, up to `EXTREMES`."""
        parts = self.parts(published)
        choices = list(itertools.product(*(inside for _, inside in parts)))
        for at in rng.permutation(len(choices))[:EXTREMES]:
            world = [0] * len(self.pairs)
            for (trips, _), part in zip(parts, choices[at], strict=True):
                world[part] += trips
            yield world


def table_of(published: Published) -> Table:
    statement = json.dumps(published.statement.to_report(), sort_keys=True)
    return json.dumps(published.cells.to_pylist()), statement


def folded_codes(cell: Mapping[str, Any]) -> list[str]:
    codes = [cell[WHY]] if WHY in cell else []
    timed = [f"{cell['time_from']} {cell['time_to']}"] if "time_from" in cell else []
    return [*codes, *timed]


def word_of(code: str, is_h3: bool) -> int:
    """The word of a node, from its published code."""
    if not is_h3:
        tree, _ = Hierarchy.from_parents([-1], np.array([code]))
        return int(node_words(tree)[0])
    if code == "all":
        return 0
    cell, _, digits = code.partition(".")
    part = H3_PARTS.index(f".{digits}") if digits else 0
    return int(cell, 16) | part << H3_PART_SHIFT


@cache
def enclosing(tile: str, is_h3: bool) -> set[str]:
    """The zones around an H3 tile."""
    if not is_h3:
        return set()
    return {code for code, _ in zone_chains(H3Map(9), [tile])[0]}


def hours(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() / 3600


# A few hexagons: a, b and c are children of one cell, of which a and b share a part; t is far.
PARENT = h3.latlng_to_cell(48.85, 2.35, 8)
A, C, B = (h3.cell_to_children(PARENT, 9)[digit] for digit in (0, 1, 4))
T = h3.latlng_to_cell(48.95, 2.45, 9)
HEXAGONS = [(A, T), (B, T), (C, T)]
SETTINGS = {
    "a row": Setting(Case(ROW, 0, {})),
    "a row, 1 %": Setting(Case(ROW, 0, {}), limit=0.01),
    "a square": Setting(Case(SQUARE, 0, {})),
    "a square, 1 %": Setting(Case(SQUARE, 0, {}), limit=0.01),
    "a large pair": Setting(Case(REST, 0, {}, LARGE)),
    "people": Setting(Case(REST, 0, {"protect": "people"}, persons=one_person_a_trip)),
    "hexagons": Setting(Case(HEXAGONS, 0, {}), h3=True),
    "reasons": Setting(Case(REASONS, 0, {}, folds=(WHY,))),
    "hours": Setting(Case(HOURS, 0, {}, folds=(TIME,))),
    "hours, 1 %": Setting(Case(HOURS, 0, {}, folds=(TIME,)), limit=0.01),
    "reasons and hours": Setting(Case(TIMED_REASONS, 0, {}, folds=(WHY, TIME))),
    "weighed reasons": Setting(Case(REASONS, 0, {"fold_weight": 1.0}, folds=(WHY,))),
    "districts": Setting(Case(ROW, 0, {"districts": 1})),
    "districts, 1 %": Setting(Case(ROW, 0, {"districts": 1}), limit=0.01),
    "districts, a square": Setting(Case(SQUARE, 0, {"districts": 1})),
    "districts, a square, 1 %": Setting(Case(SQUARE, 0, {"districts": 1}), limit=0.01),
    "districts, people": Setting(
        Case(REST, 0, {"protect": "people", "districts": 1}, persons=one_person_a_trip)
    ),
    "districts, hexagons": Setting(Case(HEXAGONS, 0, {"districts": 8}), h3=True),
    "districts, hours": Setting(Case(HOURS, 0, {"districts": 1}, folds=(TIME,))),
    "paircut, a row": Setting(Case(ROW, 0, {}), "paircut"),
    "paircut, a square": Setting(Case(SQUARE, 0, {}), "paircut"),
    "paircut, a square, 1 %": Setting(Case(SQUARE, 0, {}), "paircut", 0.01),
    "paircut, hexagons": Setting(Case(HEXAGONS, 0, {}), "paircut", h3=True),
    "paircut, reasons": Setting(Case(REASONS, 0, {}, folds=(WHY,)), "paircut"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_is_proven_of_the_parts_of_a_cell(name):
    setting, rng = SETTINGS[name], np.random.default_rng(0)
    tables: dict[Table, tuple[Published, Reached]] = {}
    fixed = list(setting.case.fixed.values())
    for number, world in enumerate(
        itertools.islice(setting.case.worlds(), 1, None, 1 + 4 * setting.h3)
    ):
        for draw in range(DRAWS):
            reached = Reached()
            drawn = SecretThresholds((number, draw))
            published = setting.publish([*world, *fixed], drawn, reached)
            if published is not None:
                tables[table_of(published)] = published, reached
    assert len(tables) > 10
    tried = 0
    for table, (published, reached) in tables.items():
        units = setting.has_units
        secret = Allowed(reached.cells) if units else setting.explained(published)
        for other in setting.extremes(published, rng):
            again = setting.publish(other, secret)
            assert again is not None, (table, other)
            assert table_of(again) == table, other
            tried += 1
    assert tried > len(tables)


def test_one_trip_with_a_rare_value_does_not_change_the_order_of_places_and_values():
    """How many values the trips have is not public: a sixth that one trip has must not show."""
    table = trip_table(600).drop_columns(["person_id"])
    found = []
    for rare in ("a", "rare"):
        values = pa.array([rare, *("abcde"[n % 5] for n in range(599))])
        flows = read_trips(table.append_column("why", values), by="why", resolution=8)
        with pytest.MonkeyPatch.context() as patch:
            same = SecretThresholds((0, 0))
            patch.setattr(anonymization.SecretThresholds, "from_flows", lambda *_, s=same: s)
            published = to_published(anonymize(flows, "layercut", 5, "trips"))
        found.append({tuple(cell.items()) for cell in published.cells.to_pylist()})
    assert not any("rare" in cell for cells in found for row in cells for cell in row)
    assert len(found[0] & found[1]) > 0.8 * len(found[0]) > 10
