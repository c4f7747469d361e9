"""Merging against noise at equal usefulness.

The table of benchmarks/results/methods.md.

    python -m benchmarks k_or_epsilon

Public data sets with persons: San Francisco cabs inside two H3 cells (the cab is the person), the
Montpellier survey on the 110 sectors whose places are known. GeoLife has two persons, so it is left
out. Every method is measured the same: the flows between squares of 1, 2 and 5 km. Errors are
against the true trips, one draw each. Results go to benchmarks/results/k-or-epsilon.csv.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flowveil
from benchmarks.noise import TRIPS, busiest_region
from benchmarks.square_errors import usefulness
from benchmarks.tables import DATA

RESULTS = Path(__file__).parent / "results" / "k-or-epsilon.csv"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
STEPS = (5, 10, 20)
#: Trips of one person that are counted. A cab of two shifts makes some 40 a day, in 24 days some
#: 1,000; a respondent covers one day, and hardly any person makes more than 8 trips in it.
BOUNDS = {"San Francisco": 1000, "Montpellier": 8}


def sets() -> Iterator[tuple[str, flowveil.Flows, dict[str, Any], list[int] | None]]:
    """Name, flows, what noise needs to know, and the cells outside which nothing is compared."""
    sectors = flowveil.read_zones(DATA / "montpellier_emd" / "sectors.csv", tile="sector")
    survey = flowveil.read_trips(
        DATA / "montpellier_emd" / "legs.parquet",
        zones=sectors,
        origin_tile="o_sector",
        destination_tile="d_sector",
        person="person_id",
        skip_unknown=True,
        max_dropped=0.5,
    )
    yield "Montpellier", survey, {"bound": BOUNDS["Montpellier"]}, None
    cabs = flowveil.read_trips(TRIPS, resolution=9, person="cab_id")
    region = busiest_region(cabs)
    where = {"region": region, "bound": BOUNDS["San Francisco"]}
    yield "San Francisco", cabs, where, [int(cell, 16) for cell in region.split(",")]


def runs(name: str, where: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, promise, and what to ask for; of noise over levels, those that may be best."""
    levels: tuple[int | None, ...] = (5, 7) if name == "San Francisco" else (None,)
    for method in ("laplace", "topdown", "privtree"):
        # The finest level is for the method itself to leave: privtree stops where noise would drown
        # what is there.
        for level in (8,) if method == "privtree" and name == "San Francisco" else levels:
            for epsilon in EPSILONS:
                asked = {**where, "epsilon": epsilon, **({} if level is None else {"level": level})}
                yield (
                    method,
                    f"ε = {epsilon:g}" + ("" if level is None else f", level {level}"),
                    asked,
                )
    for method in ("paircut", "twincut"):
        for k in STEPS:
            # Not stopped where the machine is busy.
            patience = {"time_limit": 3600.0} if method == "twincut" else {}
            yield method, f"k = {k} people", {"k": k, "protect": "people", **patience}


def main() -> None:
    if not DATA.is_dir():
        print("the public data sets are not next to the repository")
        return
    rows = []
    for name, flows, where, region in sets():
        for method, promise, asked in runs(name, where):
            start = time.process_time()
            try:
                release = flowveil.anonymize(flows, method, **asked)
            except (flowveil.InfeasibleError, flowveil.ParameterError) as problem:
                print(f"{name}, {method}, {promise}: {problem}", flush=True)
                continue
            row: dict[str, Any] = {
                "data": name,
                "method": method,
                "promise": promise,
                "pairs": len(release.cells),
            }
            for size in usefulness(release, region=region):
                row |= {key: round(value, 4) for key, value in size.to_dict().items()}
            rows.append(row)
            print({**row, "seconds": round(time.process_time() - start, 1)}, flush=True)
            write(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Keep the results."""
    with open(RESULTS, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, fieldnames=list(dict.fromkeys(key for row in rows for key in row))
        )
        writer.writeheader()
        writer.writerows(rows)
