"""Noisy counts at the sizes the project asks for: time and peak memory, written folder included."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import h3
import pyarrow.parquet as pq

import flowveil
from benchmarks.stopwatch import peak_gigabytes
from flowveil.sources.synthetic import synthetic_flows

#: Peak memory that is asked for, in gigabytes.
ASKED = 4.0
FLOWS = 1_000_000


def region_of_5145_zones() -> str:
    """15 cells of resolution 5 around Paris: 15 * 343 zones of resolution 8, 26 million pairs."""
    centre = h3.latlng_to_cell(48.85, 2.35, 5)
    return ",".join(sorted(h3.grid_disk(centre, 2))[:15])


RUNS: dict[str, dict[str, object]] = {
    "all pairs of 5,145 zones": {"epsilon": 1.0, "level": 8, "region": region_of_5145_zones()},
    "from a threshold, all tiles": {"epsilon": 1.0, "delta": 1e-6},
}


def publish_alone(name: str) -> None:
    start = time.perf_counter()
    flows = synthetic_flows(FLOWS)
    made = time.perf_counter()
    release = flowveil.anonymize(flows, "laplace", **RUNS[name])
    drawn = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        release.write(Path(folder) / "release")
        rows = pq.read_metadata(Path(folder) / "release" / "flows.parquet").num_rows
    written = time.perf_counter()
    zones = len(release.plan.origin_zones), len(release.plan.destination_zones)
    print(
        f"{name}: {zones[0]:,} x {zones[1]:,} = {zones[0] * zones[1]:,} pairs, {rows:,} published "
        f"({rows / zones[0] / zones[1]:.2%}); flows {made - start:.1f} s, noise {drawn - made:.1f} s, "
        f"writing and checking {written - drawn:.1f} s",
        flush=True,
    )


def main() -> None:
    for name in RUNS:
        peak = peak_gigabytes(publish_alone, name)
        print(f"{name}: peak {peak:.2f} GB (asked: at most {ASKED:.0f})", flush=True)
