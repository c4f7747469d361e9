"""Every method on 1 and 10 million synthetic flows against one polars group-by of the same
flows."""

from __future__ import annotations

from typing import Any

import polars as pl

import flowveil
from benchmarks.stopwatch import best_of, interleaved, peak_gigabytes
from benchmarks.synthetic_flows import synthetic_flows

#: PairCut on a tree of halves.
HALVES = "paircut/2"
#: Upper bound for each method: group-bys on a million flows. TwinCut without its local search,
#: PairCut without spending the rest of its budget.
ASKED = {
    "odkanon": 6,
    "atg-dual": 10,
    "atg-soft": 10,
    "oigh": 6,
    "twincut": 40,
    "paircut": 15,
    HALVES: 60,
    "curvecut": 60,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "twincut": {"effort": 0.0, "hierarchy": "h3"},
    "paircut": {"spend": False, "hierarchy": "h3"},
    HALVES: {"spend": False, "hierarchy": "halves"},
}

#: Upper bound for TwinCut with its local search: seconds on a million flows.
MOST_SECONDS = 60
MILLION = 1_000_000


def floor_of(flows: flowveil.Flows) -> pl.DataFrame:
    """The floor: one group-by of the flows, as a data frame library does it."""
    return pl.DataFrame({"o": flows.origin, "d": flows.destination, "t": flows.trips})


def run_alone(n: int, method: str) -> None:
    run(synthetic_flows(n), method)


def run(flows: flowveil.Flows, method: str) -> None:
    flowveil.anonymize(flows, method=method.partition("/")[0], **OPTIONS.get(method, {}))


def make_alone(n: int) -> None:
    synthetic_flows(n)


def main(methods: tuple[str, ...] = tuple(ASKED)) -> None:
    print(
        f"{'method':10} {'flows':>11} {'floor':>8} {'method':>8} {'ratio':>6} {'asked':>6}"
        f" {'peak':>8}"
    )
    took: dict[tuple[str, int], float] = {}
    for n in (MILLION, 10 * MILLION):
        flows = synthetic_flows(n)
        table = floor_of(flows)
        for method in methods:
            if method.partition("/")[0] not in flowveil.METHODS:
                continue
            floor, time = interleaved(
                lambda: table.group_by("o", "d").agg(pl.col("t").sum()),  # noqa: B023
                lambda: run(flows, method),  # noqa: B023
                repeat=5 if n == MILLION else 2,
            )
            took[method, n] = time
            peak = peak_gigabytes(run_alone, n, method)
            asked = f"{ASKED[method]:6}" if n == MILLION else f"{'':6}"
            print(
                f"{method:10} {n:11,} {floor:7.3f}s {time:7.3f}s {time / floor:6.2f} {asked}"
                f" {peak:6.2f}GB",
                flush=True,
            )
        if "twincut" in methods and n == MILLION:
            time = best_of(lambda: flowveil.anonymize(flows, "twincut", hierarchy="h3"), repeat=1)  # noqa: B023
            print(
                f"{'twincut':10} {n:11,} with its local search {time:.1f}s (asked: below"
                f" {MOST_SECONDS})",
                flush=True,
            )
        print(
            f"{'(input)':10} {n:11,} {'':8} {'':8} {'':6} {'':6}"
            f" {peak_gigabytes(make_alone, n):6.2f}GB"
        )
    for method in methods:
        if (method, MILLION) in took:
            growth = took[method, 10 * MILLION] / took[method, MILLION]
            print(
                f"{method}: from 1 to 10 million flows {growth:.1f} times as long (asked: at"
                " most 13)"
            )
