"""LayerCut with secret thresholds and without: what it discloses in small worlds, and its accuracy.

    python -m benchmarks layers

Worlds: four origin tiles below two parents and one destination, or two origin and two destination
tiles; 0 to 5 trips from each tile, or between each pair: 1,295 worlds each, k = 3. Counted are the
worlds in which a reader who knows the procedure determines a count below k: it is the same in all
worlds with the same published table. With secret thresholds it is 0, by the proof that
`tests/property/test_secret_thresholds.py` runs. Accuracy: the planner's error of `benchmarks.planner`, k = 10.
"""

from __future__ import annotations

import importlib
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.planner import SETS, Areas, measure
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method

K = 3
WORLDS = [world for world in itertools.product(range(6), repeat=4) if any(world)]
#: Ratio between prices, and whether thresholds are secret.
VARIANTS = {
    "k plus a secret amount": (4.0, True),
    "the same, prices times 16": (16.0, True),
    "exactly k": (4.0, False),
}
LIMITS = (0.3, 0.01)
TREES = {
    "four tiles": ([-1, 0, 1, 1, 0, 4, 4], ["all", "x", "a", "b", "y", "c", "d"]),
    "two tiles": ([-1, 0, 0], ["all", "a", "b"]),
    "one tile": ([-1], ["there"]),
}


def seen_tree(name: str, tiles: np.ndarray) -> Hierarchy:
    """The tree over the tiles that have trips."""
    parent, code = TREES[name]
    leaves = [node for node in range(len(parent)) if node not in parent]
    kept = {leaves[tile] for tile in tiles.tolist()}
    for node in sorted(kept, reverse=True):
        while parent[node] >= 0:
            node = parent[node]
            kept.add(node)
    order = sorted(kept)
    number = {node: n for n, node in enumerate(order)}
    return Hierarchy.from_parents(
        [number.get(parent[node], -1) for node in order], np.array(code)[order]
    )[0]


def flows_of(world: tuple[int, ...], origins: str, destinations: str) -> Flows:
    cells = np.array(world).reshape(-1, 1 if destinations == "one tile" else 2)
    o, d = np.nonzero(cells)
    seen_o, seen_d = np.unique(o), np.unique(d)
    return Flows(
        origins=seen_tree(origins, seen_o),
        destinations=seen_tree(destinations, seen_d),
        origin=np.searchsorted(seen_o, o).astype(np.int32),
        destination=np.searchsorted(seen_d, d).astype(np.int32),
        trips=cells[o, d].astype(np.int64),
    )


def published(flows: Flows, limit: float) -> tuple[Any, ...] | None:
    """Zones, layer and trips of every cell."""
    guarantee = Guarantee.resolve(flows, k=K, protect="trips")
    try:
        plan = find_method("layercut").plan(flows, guarantee, max_suppressed=limit)
    except InfeasibleError:
        return None
    rows: dict[tuple[Any, ...], int] = defaultdict(int)
    codes = [
        zones.codes(np.arange(len(zones))) for zones in (plan.origin_zones, plan.destination_zones)
    ]
    layer = np.zeros(len(codes[0]), int) if plan.layer is None else plan.layer
    for f in np.flatnonzero(plan.kept).tolist():
        o, d = plan.origin_zone[f], plan.destination_zone[f]
        rows[str(codes[0][o]), str(codes[1][d]), int(layer[o])] += int(flows.trips[f])
    return tuple(sorted(rows.items()))


def determined(make: Callable[[tuple[int, ...]], tuple[Any, ...] | None]) -> int:
    """Worlds in which a count above 0 and below k is the same in all worlds with the same table."""
    groups = defaultdict(list)
    for world in WORLDS:
        table = make(world)
        if table is not None:
            groups[table].append(world)
    found = 0
    for worlds in groups.values():
        counts = np.array(worlds)
        fixed = (counts == counts[0]).all(axis=0) & (counts[0] > 0) & (counts[0] < K)
        found += len(worlds) * bool(fixed.any())
    return found


def main() -> None:
    module = importlib.import_module("flowveil.methods.layercut")
    sets = {
        name: SETS[name]()
        for name in ("Santiago taxis, resolution 9", "San Francisco cabs, resolution 10")
    }
    areas = {name: Areas.of(name, flows) for name, flows in sets.items()}
    true = {name: of_set.true() for name, of_set in areas.items()}
    worlds = [("four tiles", "one tile"), ("two tiles", "two tiles")]
    print(
        "| thresholds | one destination, 30 % | 1 % | two destinations, 30 % | 1 % | Santiago | San"
        " Francisco |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for name, (ratio, secret) in VARIANTS.items():
        module.RATIO = ratio
        counts = [
            0
            if secret
            else determined(lambda world, w=where, c=limit: published(flows_of(world, *w), c))
            for where in worlds
            for limit in LIMITS
        ]
        results = [
            measure(areas[one], true[one], "layercut", {"secret_thresholds": secret})
            for one in sets
        ]
        errors = [f"{one.error:.2%}" if one else "–" for one in results]
        print(f"| {name} | {' | '.join(map(str, counts))} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
