"""Noisy counts at the required sizes: peak memory of the whole way into a folder, and times as
ratios.

    python -m benchmarks laplace

Two releases, each in a separate process: all pairs of some 5,000 zones at ε = 1 (required: at most
4 GB, streamed to Parquet), and from a threshold on over some 44,000 tiles, 1.9 billion pairs
(asked: at most 4 GB). Times are given as multiples of one polars group-by of the same flows,
measured in the same process just before; and the noise on all pairs also compared with a draw of
OpenDP for every pair, estimated from a sample of draws. Then the table of the docs: the accuracy on
the public data sets, where these are available.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h3
import numpy as np
import polars as pl
import pyarrow.parquet as pq
from tests.reference.opendp_noise import opendp_laplace

import flowveil
from benchmarks import tables
from benchmarks.stopwatch import best_of, peak_gigabytes
from benchmarks.synthetic_flows import synthetic_flows

#: Required peak memory, in gigabytes.
ASKED = 4.0
#: Draws from which OpenDP's time for all pairs is worked out.
SAMPLE = 200_000


def region_of_5145_zones() -> str:
    """15 cells of resolution 5 around Paris: 15 * 343 zones of resolution 8, 26 million pairs."""
    centre = h3.latlng_to_cell(48.85, 2.35, 5)
    return ",".join(sorted(h3.grid_disk(centre, 2))[:15])


@dataclass(frozen=True)
class Size:
    """A release to make: of how many flows, and how."""

    flows: int
    options: dict[str, Any] = field(default_factory=dict)


SIZES = {
    "all pairs": Size(1_000_000, {"epsilon": 1.0, "level": 8, "region": region_of_5145_zones()}),
    "from a threshold": Size(5_000_000, {"epsilon": 1.0, "delta": 1e-6, "level": 9}),
}


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def publish_alone(name: str) -> None:
    size = SIZES[name]
    flows = synthetic_flows(size.flows)
    table = pl.DataFrame({"o": flows.origin, "d": flows.destination, "t": flows.trips})
    floor = best_of(lambda: table.group_by("o", "d").agg(pl.col("t").sum()), repeat=3)
    noise, release = seconds(lambda: flowveil.anonymize(flows, "laplace", **size.options))
    with tempfile.TemporaryDirectory() as place:
        writing, folder = seconds(lambda: release.write(Path(place) / "release"))
        rows = pq.read_metadata(folder / "flows.parquet").num_rows
        megabytes = {
            file: (folder / file).stat().st_size / 1e6 for file in ("flows.parquet", "report.html")
        }
    zones = len(release.plan.origin_zones), len(release.plan.destination_zones)
    pairs = zones[0] * zones[1]
    print(f"{name}: {size.flows:,} flows, {zones[0]:,} x {zones[1]:,} zones = {pairs:,} pairs")
    print(
        f"  published {rows:,} pairs ({rows / pairs:.3%}), "
        + ", ".join(f"{f} {m:.1f} MB" for f, m in megabytes.items())
    )
    print(
        f"  floor {floor:.3f} s; noise {noise:.1f} s, {noise / floor:.0f} times; writing and"
        f" checking {writing:.1f} s, {writing / floor:.0f} times"
    )
    if release.guarantee.threshold is None:
        asked = {"sensitivity": release.guarantee.bound, "epsilon": release.guarantee.epsilon}
        each = seconds(lambda: opendp_laplace(np.zeros(SAMPLE, np.int64), **asked))[0] / SAMPLE
        print(
            f"  a draw of OpenDP for each pair: {each * pairs:,.0f} s, {each * pairs / noise:.0f}"
            " times the noise"
        )


def region_of_santiago() -> str:
    """19 cells of resolution 5 around the centre: 19 * 49 zones of resolution 7."""
    return ",".join(sorted(h3.grid_disk(h3.latlng_to_cell(-33.45, -70.66, 5), 2)))


#: (name in the table, data set of `benchmarks.tables`, options).
LEFT: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("New York taxi zones, one year", "New York taxi zones, dendrogram", {"epsilon": 1}),
    ("the same, ε = 0.1", "New York taxi zones, dendrogram", {"epsilon": 0.1}),
    ("the same, ε = 1, δ = 10⁻⁶", "New York taxi zones, dendrogram", {"epsilon": 1, "delta": 1e-6}),
    ("Leeds commuters, MSOA", "Leeds commuters, MSOA, dendrogram", {"epsilon": 1}),
    (
        "Santiago taxis, H3 resolution 7",
        "Santiago, resolution 9",
        {"epsilon": 1, "level": 7, "region": region_of_santiago()},
    ),
    (
        "the same, H3 resolution 9, δ = 10⁻⁶",
        "Santiago, resolution 9",
        {"epsilon": 1, "delta": 1e-6},
    ),
    (
        "Montpellier survey, sectors, bound 4",
        "Montpellier survey, zones in sectors",
        {"epsilon": 1, "bound": 4, "level": 0},
    ),
    (
        "the same, zones instead of sectors",
        "Montpellier survey, zones in sectors",
        {"epsilon": 1, "bound": 4},
    ),
)


def flows_of(name: str) -> flowveil.Flows:
    if name in tables.H3_SETS:
        path, how = tables.H3_SETS[name]
        return flowveil.read_trips(tables.DATA / path, **how)
    path, zones, how, columns = tables.ZONE_SETS[name]
    where = flowveil.read_zones(tables.DATA / zones, **columns)
    return flowveil.read_trips(tables.DATA / path, zones=where, **how)


def print_what_is_left() -> None:
    print("\n| data | unit | zones | E | D | pairs | added |\n|---|---|---|---|---|---|---|")
    read: dict[str, flowveil.Flows] = {}
    for label, name, options in LEFT:
        flows = read.setdefault(name, flows_of(name))
        release = flowveil.anonymize(flows, "laplace", **options)
        m, promise = release.metrics()["trips"], release.guarantee
        zones = "with trips" if promise.threshold else f"{promise.domain['zones']:,}"
        print(
            f"| {label} | {promise.unit} | {zones} | {m['reconstruction_loss']:.2f} |"
            f" {m['distribution_distance']:.2f} | {m['n_cells']:,} |"
            f" {-m['suppressed_share']:.1%} |",
            flush=True,
        )


def main() -> None:
    for name in SIZES:
        peak = peak_gigabytes(publish_alone, name)
        print(f"  peak {peak:.2f} GB (asked: at most {ASKED:.0f})", flush=True)
    if tables.DATA.is_dir():
        print_what_is_left()
