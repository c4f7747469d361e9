"""LayerCut and PairCut with secret thresholds and without: what they disclose, and their accuracy.

    python -m benchmarks layers                              both tables
    python -m benchmarks.layers --sets Santiago,Leeds        accuracy on some sets
    python -m benchmarks.layers --worlds --methods exact     some rows of what is disclosed

Worlds: four origin tiles below two parents and one destination, or two origin and two destination
tiles; 0 to 5 trips from each tile, or between each pair: 1,295 worlds each, k = 3. With secret
thresholds every release that some thresholds give is enumerated. Counted are the worlds with a
release from which a reader who knows the procedure determines a count below k (it is the same in
all worlds with that release), or proves that a tile has a trip although it has fewer than k. As
counts are at most 5, releases with a larger cell are passed over.

Accuracy: the planner's error of `benchmarks.planner`, k = 10 trips, on every public set.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.planner import SETS, Areas, measure
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.secret_thresholds import LARGEST, SecretThresholds, node_words
from flowveil.methods import find_method
from flowveil.methods.layercut import RATIO, _Layers, _with_rest
from flowveil.methods.pair_divisions import PUBLISH, PairTable
from flowveil.methods.paircut import FIRST_PRICE, SECRET_RATIO, _plan, prices
from flowveil.release.plan import Plan

K = 3
MOST = 5
WORLDS = [world for world in itertools.product(range(MOST + 1), repeat=4) if any(world)]
LIMITS = (0.3, 0.01)
PLACES = {
    "one destination": ("four tiles", "one tile"),
    "two destinations": ("two tiles", "two tiles"),
}
METHODS: dict[str, dict[str, Any]] = {
    "layercut": {},
    "paircut": {"max_suppressed": 0.01},
}
#: A released table: zones, layer and trips of every cell.
Table = tuple[Any, ...]
World = tuple[int, ...]
#: The divisions of a layer under all thresholds, by the step and the trips that are left.
Divisions = dict[tuple[int, bytes], set[tuple[int, ...]]]
TREES = {
    "four tiles": ([-1, 0, 1, 1, 0, 4, 4], ["all", "x", "a", "b", "y", "c", "d"]),
    "two tiles": ([-1, 0, 0], ["all", "a", "b"]),
    "one tile": ([-1], ["there"]),
}


def tree_of(name: str) -> Hierarchy:
    """A public map: all of its tiles, with or without trips."""
    parent, code = TREES[name]
    return Hierarchy.from_parents(parent, np.array(code))[0]


def flows_of(world: World, origins: str, destinations: str) -> Flows:
    cells = np.array(world).reshape(-1, 1 if destinations == "one tile" else 2)
    o, d = np.nonzero(cells)
    return Flows(
        origins=tree_of(origins),
        destinations=tree_of(destinations),
        origin=o.astype(np.int32),
        destination=d.astype(np.int32),
        trips=cells[o, d].astype(np.int64),
    )


def cells_of(flows: Flows, plan: Plan) -> Table:
    """The released table of a plan."""
    rows: dict[tuple[Any, ...], int] = defaultdict(int)
    codes = [
        zones.codes(np.arange(len(zones))) for zones in (plan.origin_zones, plan.destination_zones)
    ]
    layer = np.zeros(len(codes[0]), int) if plan.layer is None else plan.layer
    for f in np.flatnonzero(plan.kept).tolist():
        o, d = plan.origin_zone[f], plan.destination_zone[f]
        rows[str(codes[0][o]), str(codes[1][d]), int(layer[o])] += int(flows.trips[f])
    return tuple(sorted(rows.items()))


class Allowed(SecretThresholds):
    """Thresholds that allow the pairs at some places of a table, and nothing else."""

    def __init__(self, chosen: Sequence[bool]) -> None:
        super().__init__((0, 0))
        object.__setattr__(self, "chosen", chosen)

    def amounts(self, step: int, nodes: Sequence[Any]) -> Any:  # noqa: ARG002
        return np.where(self.chosen[: len(nodes[0])], 0, LARGEST)


def all_layers(flows: Flows, limits: Sequence[float], divisions: Divisions) -> list[set[Table]]:
    """The releases of LayerCut under all thresholds, for several limits."""
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    nodes = tuple(tree.leaf_node[tile] for tree, tile in flows.ends)
    words = tuple(node_words(tree) for tree, _ in flows.ends)
    number = np.zeros(len(flows), dtype=np.int8)
    states = {b"": _Layers(flows, guarantee, (), None, None, words, number, nodes)}
    for step, price in enumerate(prices(flows, (), first=FIRST_PRICE, ratio=RATIO)):
        states = {
            b"".join(column.tobytes() for column in (layers.number, *layers.nodes)): layers
            for before in states.values()
            for layers in one_layer_more(before, price, step, divisions)
        }
    found: list[set[Table]] = [set() for _ in limits]
    for layers in states.values():
        for tables, limit in zip(found, limits, strict=True):
            with suppress(InfeasibleError):
                done = _with_rest(layers, limit * flows.trips.sum())
                kept = done.number > 0
                plan = Plan.from_nodes(flows, done.nodes, kept, {}, layer=done.number)
                tables.add(cells_of(flows, plan))
    return found


def one_layer_more(
    layers: _Layers, price: float, step: int, divisions: Divisions
) -> Iterator[_Layers]:
    """The layers and one more, under all thresholds of its pairs."""
    rows, table = layers.left_pairs
    if table is None:
        yield layers
        return
    flows = layers.flows
    left = (flows.origin[rows], flows.destination[rows], flows.trips[rows])
    key = step, b"".join(column.tobytes() for column in left)
    if key not in divisions:
        # The pair of both roots is the first, and is refused.
        every = itertools.product((False, True), repeat=len(table) - 1)
        refused = (
            table.refused_by(Allowed((False, *chosen)), layers.words, step) for chosen in every
        )
        divisions[key] = {tuple(table.refuse(one).divide(price).published) for one in refused}
    for published in sorted(divisions[key]):
        if not published:
            yield layers
            continue
        cell, nodes, _ = layers._cells(rows, table, np.array(published, dtype=np.int64))
        yield layers._with_cells(rows, cell, nodes)


def all_divisions(flows: Flows, limits: Sequence[float], divisions: Divisions) -> list[set[Table]]:
    """The releases of PairCut under all thresholds, for several limits.

    Any division within the limit, at any price of the ladder; the cell of everything where no
    price has one.
    """
    del divisions
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    table = PairTable.from_flows(flows, guarantee, "error", on_map=True)
    if table is None:
        return [set() for _ in limits]
    words = tuple(node_words(tree) for tree, _ in flows.ends)
    found = {(0,): table.follow(np.full(len(table), PUBLISH))}
    for price in prices(flows, (), first=FIRST_PRICE, ratio=SECRET_RATIO):
        for chosen in itertools.product((False, True), repeat=len(table) - 1):
            refused = table.refused_by(Allowed((False, *chosen)), words, 0)
            division = table.refuse(refused).divide(price)
            if len(division.published):
                found[tuple(division.published.tolist())] = division
    plans = [
        (one.suppressed, cells_of(flows, _plan(flows, table, one, {}))) for one in found.values()
    ]
    return [
        {cells for suppressed, cells in plans if suppressed <= limit * flows.trips.sum()}
        for limit in limits
    ]


def exactly_k(
    method: str, flows: Flows, limits: Sequence[float], divisions: Divisions
) -> list[set[Table]]:
    """The release with thresholds of exactly k, for several limits."""
    del divisions
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    found: list[set[Table]] = [set() for _ in limits]
    for tables, limit in zip(found, limits, strict=True):
        with suppress(InfeasibleError):
            plan = find_method(method).plan(flows, guarantee, max_suppressed=limit)
            tables.add(cells_of(flows, plan))
    return found


def disclosed(of_worlds: Mapping[World, set[Table]]) -> tuple[int, int]:
    """Worlds in which a count is determined, and worlds in which a trip is proven."""
    groups: dict[Table, list[World]] = defaultdict(list)
    for world, tables in of_worlds.items():
        for table in tables:
            groups[table].append(world)
    determined: set[World] = set()
    proven: set[World] = set()
    for table, worlds in groups.items():
        if max(trips for _, trips in table) > MOST:
            continue
        counts = np.array(worlds)
        is_below = (counts > 0) & (counts < K)
        is_fixed = (counts == counts[0]).all(axis=0)
        for into, columns in ((determined, is_fixed), (proven, counts.min(axis=0) > 0)):
            into.update(itertools.compress(worlds, (is_below & columns).any(axis=1)))
    return len(determined), len(proven)


VARIANTS: dict[str, Callable[[Flows, Sequence[float], Divisions], list[set[Table]]]] = {
    "secret LayerCut": all_layers,
    "secret PairCut": all_divisions,
    "exact LayerCut": partial(exactly_k, "layercut"),
    "exact PairCut": partial(exactly_k, "paircut"),
}


def print_worlds(methods: Sequence[str]) -> None:
    """The table of what is disclosed."""
    titles = [f"{place}, {limit:.0%}" for place in PLACES for limit in LIMITS]
    print(f"| determined (proven) | {' | '.join(titles)} |")
    print(f"|---|{'---:|' * len(titles)}", flush=True)
    for name, publish in VARIANTS.items():
        if methods and not any(name.lower().startswith(one) for one in methods):
            continue
        entries = []
        for place in PLACES.values():
            divisions: Divisions = {}
            tables = {w: publish(flows_of(w, *place), LIMITS, divisions) for w in WORLDS}
            for at in range(len(LIMITS)):
                found = disclosed({world: of_world[at] for world, of_world in tables.items()})
                entries.append("{} ({})".format(*found))
        print(f"| {name} | {' | '.join(entries)} |", flush=True)


def print_errors(names: Sequence[str]) -> None:
    """The table of planner's errors."""
    titles = [
        f"{method}, {which}" for method in METHODS for which in ("secret", "exactly k", "times")
    ]
    print(f"\n| data | {' | '.join(titles)} |")
    print(f"|---|{'---:|' * len(titles)}", flush=True)
    for name, read in SETS.items():
        if names and not any(name.lower().startswith(one) for one in names):
            continue
        flows = replace(read(), people=None)
        areas = Areas.of(name, flows)
        true, entries = areas.true(), []
        for method, options in METHODS.items():
            both = [
                measure(areas, true, method, {**options, "secret_thresholds": secret})
                for secret in (True, False)
            ]
            entries += [f"{one.error:.2%}" if one else "–" for one in both]
            secret, exact = (one.error if one else 0.0 for one in both)
            entries.append(f"{secret / exact:.3f}" if exact > 1e-6 else "–")
        print(f"| {name} | {' | '.join(entries)} |", flush=True)


def main() -> None:
    """Prints both tables, or a part of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="", help="beginnings of names, with commas between")
    parser.add_argument("--worlds", action="store_true", help="only what is disclosed")
    parser.add_argument("--methods", default="", help="beginnings of rows of that table")
    given, _ = parser.parse_known_args()
    names, methods = (
        [name.strip().lower() for name in chosen.split(",") if name.strip()]
        for chosen in (given.sets, given.methods)
    )
    if not names:
        print_worlds(methods)
    if not given.worlds:
        print_errors(names)


if __name__ == "__main__":
    main()
