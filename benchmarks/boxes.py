"""Mondrian and GLOVE: how long they take, and how fine they are compared with ATG-Dual on the same
flows.

    python -m benchmarks.boxes [--rows 1700000] [--glove-flows 20000] [--repeat 3] [--trips FILE]
    [--sk]

Mondrian is compared with one `numpy.argsort` of a column of random coordinates of the same length,
measured in turn in the same run (target: 60 times); the ODkAnon thesis reports 3,094 s for 1.7
million trips in Porto. GLOVE is compared with two minutes for 20,000 flows, and its mean
generalisation error against that of ATG-Dual (target: not above). Both run on made-up trips around
forty centres, or on the trips of a file, of which as many are drawn as give the asked number of
flows. The first call of GLOVE, which compiles it, is not measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np

from flowveil import Flows, Guarantee, Release, anonymize, read_trips
from flowveil.methods.mondrian import mondrian
from flowveil.zoning.h3 import h3_hierarchy

MONDRIAN_TARGET = 60.0
GLOVE_TARGET_S = 120.0


def made_up_flows(rows: int, *, resolution: int, seed: int = 7) -> Flows:
    rng = np.random.default_rng(seed)
    center = rng.normal((48.85, 2.35), 0.08, size=(40, 2))
    ends = []
    for _ in range(2):
        point = center[rng.integers(len(center), size=rows)] + rng.normal(0, 0.02, size=(rows, 2))
        cells = np.array(
            [h3_int.latlng_to_cell(*p, resolution) for p in point.tolist()], dtype=np.uint64
        )
        ends.append(np.unique(cells, return_inverse=True))
    (tiles_o, origin), (tiles_d, destination) = ends
    return Flows.from_pairs(
        origin,
        destination,
        origins=h3_hierarchy(tiles_o),
        destinations=h3_hierarchy(tiles_d),
        person=rng.integers(0, max(rows // 40, 1), size=rows),
    )


def drawn_flows(path: str, wanted: int, *, resolution: int) -> Flows:
    """Flows of as many trips of a file as give about the wanted number of flows."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    order = np.random.default_rng(1).permutation(len(table))
    low, high = 1, len(table)
    while high - low > len(table) // 500:
        middle = (low + high) // 2
        flows = read_trips(
            table.take(np.sort(order[:middle])), resolution=resolution, max_dropped=0.5
        )
        low, high = (middle, high) if len(flows) < wanted else (low, middle)
    return flows


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def time_mondrian(rows: int, repeat: int) -> None:
    flows = made_up_flows(rows, resolution=10)
    column = np.random.default_rng(0).normal(size=rows)
    print(f"Mondrian, {rows:,} trips in {len(flows):,} flows, k = 10")
    for protect in ("trips", ["trips", "people"]):
        guarantee = Guarantee.resolve(flows, k=10, protect=protect)
        for partitioning in ("strict", "relaxed"):
            ratios = []
            for _ in range(repeat):
                floor, _ = seconds(lambda: np.argsort(column))
                ours, plan = seconds(lambda: mondrian(flows, guarantee, partitioning=partitioning))  # noqa: B023
                ratios.append(ours / floor)
            units = " and ".join(guarantee.units)
            print(
                f"  {partitioning:8} {units:17} {plan.notes['partitions']:8,} partitions "
                f" {ours:6.2f} s, median {np.median(ratios):5.1f} times one argsort, target"
                f" {MONDRIAN_TARGET:.0f}"
            )


def compare_glove(flows: Flows, *, with_sk: bool) -> None:
    print(
        f"GLOVE, {len(flows):,} flows of {int(flows.trips.sum()):,} trips, k = 10, at most 10 %"
        " suppressed"
    )
    anonymize(made_up_flows(300, resolution=8), "glove", k=10)
    runs: list[tuple[str, dict[str, Any]]] = [("atg-dual", {}), ("mondrian", {}), ("glove", {})]
    runs += [("glove-sk", {})] if with_sk else []
    for method, options in runs:
        taken, release = seconds(lambda: anonymize(flows, method, k=10, **options))  # noqa: B023
        print(f"  {method:9} {taken:7.2f} s  {describe(release)}")
    print(f"  target: glove within {GLOVE_TARGET_S:.0f} s and no coarser than atg-dual")


def describe(release: Release) -> str:
    m = release.metrics()["trips"]
    return (
        f"error {m['mean_generalization_error']:9.1f} tiles, {m['generalization_distance_m']:7.0f}"
        f" m, reconstruction {m['reconstruction_loss']:.2f}, suppressed"
        f" {m['suppressed_share']:.1%}, {m['n_cells']:,} cells"
    )


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=1_700_000, help="trips for Mondrian; 0 leaves it out"
    )
    parser.add_argument(
        "--glove-flows", type=int, default=20_000, help="flows for GLOVE; 0 leaves it out"
    )
    parser.add_argument("--resolution", type=int, default=9, help="H3 resolution for GLOVE")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--trips", help="a Parquet file of trips for GLOVE instead of made-up ones")
    parser.add_argument("--sk", action="store_true", help="run GLOVE-sk too")
    options = parser.parse_args(arguments)
    if options.rows:
        time_mondrian(options.rows, options.repeat)
    if options.glove_flows:
        if options.trips:
            flows = drawn_flows(options.trips, options.glove_flows, resolution=options.resolution)
        else:
            flows = made_up_flows(options.glove_flows, resolution=options.resolution)
        compare_glove(flows, with_sk=options.sk)


if __name__ == "__main__":
    main(sys.argv[1:])
