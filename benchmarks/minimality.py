"""What the choice of zones reveals to an attacker who knows the method, and whether a margin helps.

Small: a map of four tiles below two parents and one destination, 0 to 5 trips from each tile: 1,295
worlds. A tile is confined where all worlds with the same published table have the same number of
its trips, above 0 and below k = 3.

Real: nothing may be suppressed, so TwinCut divides a zone wherever no cell falls short. A reader of
the table concludes that dividing any published zone would make a cell short; where a zone is in one
cell only, that is a part of this cell. Counted is how often that is true.

A *margin* s: zones are chosen as if k were k + s, cells are published from k on.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict

import numpy as np

import flowveil
from benchmarks.twincut_table import DATA
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method
from flowveil.publishing.release import Release
from flowveil.release.plan import NodeZones

K_SMALL, K = 3, 10
WORLDS = np.array([world for world in itertools.product(range(6), repeat=4) if any(world)])
PARENTS = {"x": (0, 1), "y": (2, 3)}
#: The zones that are published, and their trips.
Table = tuple[tuple[str, int], ...]
THERE, _ = Hierarchy.from_parents([-1], np.array(["there"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["small", "real"])
    chosen = parser.parse_args().part
    if chosen in (None, "small"):
        small()
    if chosen in (None, "real") and DATA.is_dir():
        real()


# ---- all worlds of a small map -------------------------------------------------------------------


def flows_of(world: np.ndarray) -> Flows:
    seen = np.flatnonzero(world)
    parent, code = [-1], ["all"]
    for name, tiles in PARENTS.items():
        below = [int(tile) for tile in tiles if world[tile]]
        if below:
            parent, code = [*parent, 0], [*code, name]
            parent, code = (
                [*parent, *[len(code) - 1] * len(below)],
                [
                    *code,
                    *("abcd"[tile] for tile in below),
                ],
            )
    tree = Hierarchy.from_parents(parent, np.array(code))[0]
    n = len(seen)
    return Flows.from_pairs(
        np.arange(n), np.zeros(n, int), world[seen], origins=tree, destinations=THERE
    )


def small() -> None:
    print(
        "| small map, k = 3, at most 30 % suppressed | worlds with a confined tile | published"
        " worlds | mean error |"
    )
    print("|---|---|---|---|")
    for title, planned, published in (
        ("k = 3", 3, 3),
        ("margin 1", 4, 3),
        ("margin 2", 5, 3),
        ("k = 4", 4, 4),
        ("k = 5", 5, 5),
    ):
        groups: dict[Table, list[np.ndarray]] = defaultdict(list)
        errors = []
        for world in WORLDS:
            made = table_of(world, planned, published)
            if made is not None:
                groups[made[0]].append(world)
                errors.append(made[1])
        confined = sum(len(worlds) for worlds in groups.values() if is_confined(np.array(worlds)))
        print(f"| {title} | {confined} | {len(errors):,} | {np.mean(errors):.2f} |", flush=True)


def table_of(world: np.ndarray, planned: int, published: int) -> tuple[Table, float] | None:
    flows = flows_of(world)
    guarantee = Guarantee.resolve(flows, k=planned, protect="trips")
    try:
        plan = find_method("twincut").plan(flows, guarantee, max_suppressed=0.3, effort=0)
    except InfeasibleError:
        return None
    zones = plan.origin_zones
    trips = np.bincount(plan.origin_zone, flows.trips, minlength=len(zones)).astype(int)
    shown = trips >= published
    if not shown.any():
        return None
    codes = zones.codes(np.arange(len(zones), dtype=np.int32)).tolist()
    rows = sorted(
        (code, int(n)) for code, n, is_shown in zip(codes, trips, shown, strict=True) if is_shown
    )
    return tuple(rows), float(np.average(zones.size[shown], weights=trips[shown]))


def is_confined(worlds: np.ndarray) -> bool:
    first = worlds[0]
    return bool(np.any((worlds == first).all(axis=0) & (first >= 1) & (first < K_SMALL)))


# ---- real trips ----------------------------------------------------------------------------------


def real() -> None:
    print(
        "\n| TwinCut, k = 10, nothing suppressed | zones of several tiles | in one cell | truly"
        " short | mean error |"
    )
    print("|---|---|---|---|---|")
    ends = {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"}
    for name, folder, resolution in (
        ("Santiago 8", "santiago_taxi", 8),
        ("San Francisco 8", "cabspotting_sf", 8),
    ):
        flows = flowveil.read_trips(
            str(DATA / folder / "trips.parquet"), resolution=resolution, **ends
        )
        for margin in (0, 2, 5, 10):
            release = flowveil.anonymize(flows, "twincut", K + margin, "trips", 0.0, hierarchy="h3")
            coarse, alone, short = concluded(release)
            error = release.metrics()["trips"]["mean_generalization_error"]
            share = f"{short / alone:.0%}" if alone else "none"
            found = f"{coarse:,} | {alone:,} | {short:,} ({share})"
            print(f"| {name}, margin {margin} | {found} | {error:,.1f} |", flush=True)


def concluded(release: Release) -> tuple[int, int, int]:
    """Zones of several tiles, those that are in one published cell, and those of which a part of it
    is below k."""
    flows, plan, cells = release.input, release.plan, release.cells
    coarse = alone = short = 0
    for zones, own, tile in (
        (plan.origin_zones, cells.origin, flows.origin),
        (plan.destination_zones, cells.destination, flows.destination),
    ):
        assert isinstance(zones, NodeZones)
        tree, nodes = zones.hierarchy, zones.nodes
        uses = np.bincount(own, minlength=len(nodes))
        several = np.flatnonzero((tree.size[nodes] > 1) & (uses > 0))
        coarse += len(several)
        for zone in several[uses[several] == 1].tolist():
            alone += 1
            inside = release.cell_of_flow == int(np.flatnonzero(own == zone)[0])
            children = np.flatnonzero(tree.parent == nodes[zone])
            held = [
                int(
                    flows.trips[
                        inside & (tile >= tree.leaf_start[c]) & (tile < tree.leaf_stop[c])
                    ].sum()
                )
                for c in children.tolist()
            ]
            short += any(0 < n < K for n in held)
    return coarse, alone, short


if __name__ == "__main__":
    main()
