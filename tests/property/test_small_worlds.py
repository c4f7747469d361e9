"""What a reader learns from a release, by brute force.

All inputs of a small map are published and compared.

Two worlds with the same cells and the same statement cannot be distinguished. A count is determined
if all worlds that a reader cannot distinguish have the same count of some tile pair, above 0 and
below k. Three readers:

- who knows k and the rules of the statement: determines nothing;
- who knows the procedure as well and sees the cells alone: determines what the threat model calls
  minimality;
- who sees the statement in addition: no more than that.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, anonymize_slices, read_tree, read_trips, read_zones
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.times import TIME, Every
from flowveil.release.boundary import to_published
from flowveil.release.statement import round_share, share_step

K = 3
#: A tile pair of a world; in slices, with the value of the slice.
Pair = tuple[str, ...]
World = tuple[int, ...]
BELOW: dict[str, Any] = {"map": "abcdt", "x": "ab", "y": "cd", **{tile: tile for tile in "abcdt"}}
#: A folded attribute.
WHY = "why"
WHYS = {"work": "work or study", "study": "work or study", "shop": ""}
WHY_TREE = read_tree(WHYS)
BELOW |= {
    "outside": "cd",
    "all": tuple(WHYS),
    "work or study": ("work", "study"),
    **{why: (why,) for why in WHYS},
}
#: Four origins and one destination; two origins and two destinations; one large pair and three
#: small ones.
ROW = [(tile, "t") for tile in "abcd"]
SQUARE = [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
REST = ROW[1:]
LARGE = {("a", "t"): 40}
SLICES = [(tile, "t", sex) for sex in "fm" for tile in "ab"]
HOURS = [
    ("a", "t", "2024-01-05T08:00"),
    ("a", "t", "2024-01-05T09:00"),
    ("b", "t", "2024-01-05T08:00"),
]
REASONS = [("a", "t", "work"), ("a", "t", "study"), ("b", "t", "work")]
#: With the reason and the hour.
TIMED_REASONS = [
    ("a", "t", why, HOURS[n][2]) for why, n in (("work", 0), ("study", 0), ("work", 1))
]
#: The same tiles as points: a and b next to each other, c and d, and t between.
PLACES = {
    "a": (48.80, 2.30),
    "b": (48.81, 2.31),
    "c": (48.80, 2.40),
    "d": (48.81, 2.41),
    "t": (48.85, 2.35),
}
POINTS = read_zones(
    pa.table(
        {
            "zone": list(PLACES),
            "parent": ["x", "x", "y", "y", None],
            "lat": [lat for lat, _ in PLACES.values()],
            "lon": [lon for _, lon in PLACES.values()],
        }
    ),
    root="map",
)
OUTSIDE = {"within": "2.2,48.7,2.36,49.0", "outside": "keep"}
LARGE_SLICE = {("a", "t", "e"): 40, ("b", "t", "e"): 20}


@cache
def tree_of(tiles: str) -> Hierarchy:
    """The map of some tiles: a and b in x, c and d in y, t alone."""
    parent, code = [-1], ["map"]
    for zone, below in (("x", "ab"), ("y", "cd"), ("", "t")):
        seen = [tile for tile in below if tile in tiles]
        if seen and zone:
            parent, code = [*parent, 0], [*code, zone]
        above = len(code) - 1 if zone else 0
        parent, code = [*parent, *[above] * len(seen)], [*code, *seen]
    return Hierarchy.from_parents(parent, np.array(code))[0]


def one_person_a_trip(pair: Pair, trips: int) -> list[int]:
    """The persons of a pair: all different."""
    return [100 * ord(pair[0]) + 10_000 * ord(pair[1]) + n for n in range(trips)]


def a_commuter(pair: Pair, trips: int) -> list[int]:
    """The persons of a pair: the first makes two trips."""
    return [one_person_a_trip(pair, trips)[max(0, n - 1)] for n in range(trips)]


def flows_of(case: Case, counts: Mapping[Pair, int], seen: Sequence[Pair]) -> Flows:
    """The trips of a world on the trees of the pairs that were seen."""
    trees = [tree_of("".join(sorted({pair[end] for pair in seen}))) for end in (0, 1)]
    number = [{str(c): i for i, c in enumerate(tree.code_text(tree.leaf_node))} for tree in trees]
    rows = [pair for pair, n in counts.items() for _ in range(n)]
    persons = (
        None
        if case.persons is None
        else [p for pair, n in counts.items() for p in case.persons(pair, n)]
    )
    return Flows.from_pairs(
        *(np.array([number[end][pair[end]] for pair in rows]) for end in (0, 1)),
        person=None if persons is None else np.array(persons),
        weight=None if case.weights is None else np.array([case.weights[pair[0]] for pair in rows]),
        origins=trees[0],
        destinations=trees[1],
        whole_map=tree_of("abcdt"),
    )


def read_of(reading: Mapping[str, Any], counts: Mapping[Pair, int]) -> Flows:
    """The trips of a world, read from a table."""
    rows = [pair for pair, n in counts.items() for _ in range(n)]
    table = pa.table(dict(zip(("o", "d"), zip(*rows, strict=True), strict=True)))
    how = {"zones": POINTS, "origin_tile": "o", "destination_tile": "d", "no_person": True}
    return read_trips(table, **how, **reading)


def sliced_of(
    case: Case, columns: tuple[str, ...], counts: Mapping[Pair, int], seen: Sequence[Pair]
) -> Flows:
    """The trips of a world by the values that its pairs have after their tiles."""
    keys = tuple(sorted({pair[2:] for pair in seen}))
    parts = [{pair: n for pair, n in counts.items() if pair[2:] == key} for key in keys]
    every = Every.parse("1h") if TIME in columns else None
    return Flows.from_slices(
        columns, keys, tuple(flows_of(case, part, seen) for part in parts), every
    )


@dataclass(frozen=True)
class Case:
    """A request, and the worlds that it is tried on.

    Attributes:
        pairs: the pairs whose counts vary from 0 to ``most``.
        determined: in how many worlds a reader of the cells who knows the procedure determines a
            count.
        options: the request.
        fixed: pairs with a fixed count, unknown to the reader.
        persons: the persons of a pair.
        weights: the weight of a trip from each tile, known to the reader.
        reading: how a table of the trips is read on `POINTS`; None if flows are made without
            reading.
        folds: the columns that fold, for `test_secret_thresholds`.
        most_unlisted: the most trips of a pair in no cell, as a reader knows; None if unknown.
        is_share_known: whether `shown_share` is the rule of the suppressed share.
    """

    pairs: Sequence[Pair]
    determined: int
    options: Mapping[str, Any]
    fixed: Mapping[Pair, int] = field(default_factory=dict)
    persons: Callable[[Pair, int], list[int]] | None = None
    weights: Mapping[str, float] | None = None
    reading: Mapping[str, Any] | None = None
    folds: tuple[str, ...] = ()
    most: int = K
    most_unlisted: int | None = K - 1
    is_share_known: bool = True

    def worlds(self) -> Iterator[World]:
        return itertools.product(range(self.most + 1), repeat=len(self.pairs))

    def publish(self, world: World) -> Any:
        """The published tables and statement of a world; None if nothing can be published."""
        counts = {**self.fixed, **dict(zip(self.pairs, world, strict=True))}
        seen = [pair for pair, n in counts.items() if n]
        request = {"k": K, "protect": "trips", "max_suppressed": 0.3, **self.options}
        if not seen:
            return None
        try:
            if self.reading is not None:
                return to_published(anonymize(read_of(self.reading, counts), **request))
            if len(seen[0]) == 2:
                return to_published(anonymize(flows_of(self, counts, seen), **request))
            sliced = sliced_of(self, ("sex",), counts, seen)
            return to_published(anonymize_slices(sliced, **request))
        except InfeasibleError:
            return None


def is_determined(worlds: Any) -> bool:
    """Whether all these worlds have the same count of some pair, above 0 and below k."""
    worlds = np.array(worlds)
    return bool(np.any((worlds == worlds[0]).all(axis=0) & (worlds[0] > 0) & (worlds[0] < K)))


def shown_share(
    suppressed: int, published: int, cells: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]
) -> float:
    """The stated share of suppressed trips, as `flowveil.verify.recount` documents it."""
    step = share_step(K, published)

    def show(trips: int) -> float:
        return round_share(Fraction(trips, published + trips), step)

    shown = show(suppressed + 1 if suppressed % (K - 1) == K - 2 else suppressed)
    if "layer" in cells[0] or "sex" in cells[0]:
        return max(shown, round_share(Fraction(str(stated["parameters"]["max_suppressed"])), step))
    if not stated["statement"]["homogeneous"]:
        return shown
    ends = [{cell[f"{end}_zone"] for cell in cells} for end in ("origin", "destination")]
    pairs = len(ends[0]) * len(ends[1]) - len(cells)
    most, nearly = (K - 1) * pairs, (K - 1) * max(pairs - 1, 0)
    return shown if suppressed > most or shown < show(nearly) else max(shown, show(most))


def may_hold(cell: Mapping[str, Any], pair: Pair) -> bool:
    """Whether a trip of a pair may be in a cell, by its zones and slice alone."""
    zones = cell["origin_zone"], cell["destination_zone"]
    inside = all(is_inside(tile, zone) for tile, zone in zip(pair[:2], zones, strict=True))
    return inside and pair[2:] in ((), (cell.get("sex"),))


def is_inside(tile: str, zone: str) -> bool:
    """Whether a tile is in a zone: of the map, a box, or what lies outside the study area."""
    if not zone.startswith("box_"):
        return tile in BELOW[zone]
    west, south, east, north = map(float, zone.split("_")[1:])
    lat, lon = PLACES[tile]
    return west <= lon <= east and south <= lat <= north


def fitting_worlds(
    case: Case, cells: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]
) -> np.ndarray:
    """The worlds that a reader who knows k and the rules, but not the procedure, thinks possible.

    A trip is in the first layer of its slice with a cell around it. Cells count all trips of such
    pairs, unless boxes overlap or hopeless flows were taken out; then they have at least what the
    cell counts. A pair in no cell has at most ``case.most_unlisted`` trips. Large pairs may have
    any count.
    """
    worlds = np.array(list(itertools.product(range(2 * K), repeat=len(case.pairs))))
    fits, pairs = np.ones(len(worlds), bool), [*case.pairs, *case.fixed]
    suppression = stated["statement"]["suppression"]["rule"]
    counts_all = suppression != "hopeless flows" and stated["kind"] != "boxed"
    listed: set[Pair] = set()
    for layer in sorted({cell.get("layer", 0) for cell in cells}):
        before = set(listed)
        for cell in (cell for cell in cells if cell.get("layer", 0) == layer):
            inside = [p for p in pairs if may_hold(cell, p) and p not in before]
            total = worlds[:, [i for i, p in enumerate(case.pairs) if p in inside]].sum(axis=1)
            has_large = bool(set(inside) & set(case.fixed))
            if counts_all:
                fits &= total <= cell["trips"]
            if not has_large:
                fits &= total >= cell["trips"]
            listed |= set(inside)
    published = sum(cell["trips"] for cell in cells)
    if not counts_all:
        return worlds[fits & (worlds.sum(axis=1) >= published)]
    rest = worlds[:, [i for i, pair in enumerate(case.pairs) if pair not in listed]]
    if case.most_unlisted is not None:
        fits &= (rest <= case.most_unlisted).all(axis=1)
    if not case.is_share_known:
        return worlds[fits]
    shown = [
        shown_share(n, published, cells, stated) == stated["statement"]["shares"]["suppressed"]
        for n in range(2 * K * len(case.pairs))
    ]
    return worlds[fits & np.array(shown)[rest.sum(axis=1)]]


VOLUME = {"method": "odkanon", "budget": "volume"}
STRICTER = pa.table({"tile": ["b"], "k": [K + 1]})
#: With these a reader can assume that a pair in no cell has fewer than k trips.
PLAIN = {
    "suppression": Case(ROW, 0, {"method": "suppression"}),
    "odkanon": Case(ROW, 23, VOLUME),
    "oigh": Case(ROW, 2, {"method": "oigh"}),
    "atg-dual": Case(ROW, 12, {"method": "atg-dual"}),
    "atg-soft": Case(ROW, 0, {"method": "atg-soft"}),
    "twincut": Case(REST, 7, {"method": "twincut"}),
    "odkanon, square": Case(SQUARE, 4, VOLUME),
    "atg-dual, square": Case(SQUARE, 27, {"method": "atg-dual"}),
    **{
        f"{method}, large": Case(REST, 0, {"method": method}, LARGE)
        for method in (
            "suppression",
            "oigh",
            "atg-dual",
            "atg-soft",
            "twincut",
        )
    },
    "odkanon, large": Case(REST, 0, VOLUME, LARGE),
}
OTHERS = {
    "odkanon, hopeless flows": Case(ROW, 0, {"method": "odkanon"}),
    "people": Case(ROW, 23, {**VOLUME, "protect": "people"}, persons=one_person_a_trip),
    "people, large": Case(REST, 0, {**VOLUME, "protect": "people"}, LARGE, one_person_a_trip),
    "weights of places": Case(ROW, 172, VOLUME, weights={"a": 1.0, "b": 2.0, "c": 5.0, "d": 1.0}),
    "one weight": Case(
        REST, 0, {**VOLUME, "protect": "population"}, LARGE, weights=dict.fromkeys("abcd", 2.0)
    ),
    "locations": Case(SQUARE, 0, {**VOLUME, "l": 2}, most_unlisted=None),
    "closeness": Case(SQUARE, 14, {**VOLUME, "t": 0.4, "max_suppressed": 0.5}, most_unlisted=None),
    "dominance": Case(ROW, 3, {**VOLUME, "dominance": 0.5}, persons=a_commuter, most_unlisted=None),
    "stricter": Case(ROW, 12, {**VOLUME, "stricter": STRICTER}, most_unlisted=K),
    "slices": Case(SLICES, 31, VOLUME),
    "slices, large": Case(SLICES, 31, VOLUME, LARGE_SLICE),
    "common zones": Case(SLICES, 2, {"common_zones": True}),
    "common zones, large": Case(SLICES, 0, {"common_zones": True}, LARGE_SLICE),
    "boxes, curvecut": Case(REST, 7, {"method": "curvecut"}, reading={}),
    "boxes, mondrian": Case(REST, 1, {"method": "mondrian"}, reading={}),
    "boxes, glove": Case(REST, 9, {"method": "glove"}, reading={}),
    "outside": Case(REST, 0, VOLUME, LARGE, reading=OUTSIDE),
    "common layers": Case(SLICES[:3], 4, {"method": "layercut", "common_zones": True}),
}


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_no_reader_determines_more_than_the_choice_of_cells_reveals(name):
    case = {**PLAIN, **OTHERS}[name]
    by_cells: dict[str, list[World]] = defaultdict(list)
    by_folder: dict[tuple[str, str], list[World]] = defaultdict(list)
    for world in case.worlds():
        published = case.publish(world)
        if published is not None:
            cells = json.dumps(published.cells.to_pylist())
            by_cells[cells].append(world)
            by_folder[cells, json.dumps(published.statement.to_report(), sort_keys=True)].append(
                world
            )
    determined = {cells: is_determined(worlds) for cells, worlds in by_cells.items()}
    for (cells, _), worlds in by_folder.items():
        assert determined[cells] or not is_determined(worlds), (
            "the statement determines a count",
            cells,
            worlds,
        )
    assert (
        sum(len(worlds) for cells, worlds in by_cells.items() if determined[cells])
        == case.determined
    )
    for (cells, statement), worlds in by_folder.items():
        possible = fitting_worlds(case, json.loads(cells), json.loads(statement))
        assert {tuple(world) for world in possible.tolist()} >= set(worlds), (
            "the model of the reader is wrong"
        )
        assert not is_determined(possible), ("the rules determine a count", cells, statement)
