"""What deciding takes in memory: the peak of TwinCut and PairCut beyond the flows themselves, each
in a fresh process.

    python -m benchmarks.memory [FLOWS] [METHOD ...]

Bytes a flow are what `flowveil.system.limits` refuses by; with people there are three for each
flow.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

import flowveil
from benchmarks.stopwatch import peak_gigabytes
from benchmarks.synthetic_flows import synthetic_flows
from flowveil.core.flows import People

PER_FLOW = 3


def made(n: int, protect: str) -> flowveil.Flows:
    flows = synthetic_flows(n)
    if protect != "people":
        return flows
    rng = np.random.default_rng(0)
    cell = np.repeat(np.arange(n, dtype=np.int32), PER_FLOW)
    person = rng.integers(n // 4, size=len(cell)).astype(np.int32)
    return replace(flows, people=People.aggregate(cell, person, np.ones(len(cell), np.int64)))


def decide(n: int, protect: str, method: str) -> None:
    flows = made(n, protect)
    flowveil.anonymize(flows, method=method, k=10, protect=protect)


def main(n: int = 1_000_000, methods: tuple[str, ...] = ("twincut", "paircut")) -> None:
    print(f"{n:,} flows")
    for protect in ("trips", "people"):
        before = peak_gigabytes(made, n, protect)
        for method in methods:
            peak = peak_gigabytes(decide, n, protect, method)
            beyond = (peak - before) * 1024**3 / n
            print(
                f"{method:8} {protect:7} flows {before:.2f} GB, peak {peak:.2f} GB: {beyond:.0f}"
                " bytes a flow",
                flush=True,
            )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000,
        tuple(sys.argv[2:]) or ("twincut", "paircut"),
    )
