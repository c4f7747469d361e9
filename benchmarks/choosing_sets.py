"""TwinCut, PairCut and CurveCut on every public set, for several k and limits, on H3 and on halves.

A long table, made in parts: every result is a row of ``benchmarks/results/choosing-sets.csv``, and what has its row
there is not run again. So it can be stopped at any time and continued:

    python -m benchmarks.choosing_sets --k 10 --sets Bristol     run what is missing of a part
    python -m benchmarks.choosing_sets --print                   the table so far, as Markdown

Sets whose tree cannot be refined have no row on halves. Seconds are those of the processor, so that a busy machine does
not distort them; they include the recount of the release.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import flowveil
from benchmarks.twincut_table import DATA, KS, SETS, SHARES, UNHURRIED

RESULTS = Path(__file__).parent / "results" / "choosing-sets.csv"
FIELDS = ("data", "k", "limit", "method", "hierarchy", "error", "cells", "suppressed", "seconds")
#: Method, tree and options. TwinCut stops by counted work alone, so that its results do not depend on the machine.
RUNS = (
    ("twincut", "h3", UNHURRIED),
    ("twincut", "halves", UNHURRIED),
    ("paircut", "h3", {}),
    ("paircut", "halves", {}),
    ("curvecut", "", {}),
)
#: The small sets first.
ORDER = ("Bristol", "Leeds", "Montpellier", "Bay Area", "New York", "São Paulo", "Detroit", "Citi", "San F", "Santiago")


def run(flows: flowveil.Flows, k: int, limit: float, method: str, tree: str, options: dict[str, float]) -> list[str]:
    """What a row says of a run, from the error on."""
    begun = time.process_time()
    on = {"hierarchy": tree} if tree else {}
    try:
        release = flowveil.anonymize(flows, method, k, "trips", limit, **on, **options)
    except flowveil.InfeasibleError:
        return ["infeasible", "", "", ""]
    except (flowveil.ParameterError, flowveil.DataError):
        return ["not on this map", "", "", ""]
    seconds = time.process_time() - begun
    plan, cells = release.plan, release.cells
    size = plan.origin_zones.size[cells.origin].astype(np.float64) + plan.destination_zones.size[cells.destination]
    suppressed = 1 - cells.trips.sum() / flows.trips.sum()
    error = np.average(size, weights=cells.trips)
    return [f"{error:.2f}", str(len(cells)), f"{suppressed:.4f}", f"{seconds:.1f}"]


def known() -> dict[tuple[str, ...], list[str]]:
    """The rows there are, by set, k, limit, method and tree."""
    if not RESULTS.is_file():
        return {}
    with RESULTS.open(encoding="utf-8", newline="") as lines:
        return {tuple(row[:5]): row[5:] for row in list(csv.reader(lines))[1:]}


def fill(ks: tuple[int, ...], only: str) -> None:
    """Run what is missing, and add a row for each."""
    done = known()
    names = sorted(SETS, key=lambda name: next(i for i, start in enumerate(ORDER) if name.startswith(start)))
    if not RESULTS.is_file():
        RESULTS.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    for k in ks:
        for name in (n for n in names if only in n):
            keys = [(name, str(k), f"{limit:g}", *r[:2]) for limit in SHARES for r in RUNS]
            if all(key in done for key in keys):
                continue
            flows = SETS[name]()
            for limit in SHARES:
                for method, tree, options in RUNS:
                    key = (name, str(k), f"{limit:g}", method, tree)
                    if key in done:
                        continue
                    row = [*key, *run(flows, k, limit, method, tree, options)]
                    with RESULTS.open("a", encoding="utf-8", newline="") as lines:
                        csv.writer(lines, lineterminator="\n").writerow(row)


def show() -> None:
    """The rows there are, as Markdown: the error of each method, one line a set, k and limit."""
    found = known()
    columns = [f"{method}{', ' * bool(tree)}{tree}" for method, tree, _ in RUNS]
    print(f"| data | k | limit | {' | '.join(columns)} |\n|---|---:|---:|{'---:|' * len(columns)}")
    for name in SETS:
        for k in KS:
            for limit in SHARES:
                keys = [(name, str(k), f"{limit:g}", method, tree) for method, tree, _ in RUNS]
                if any(key in found for key in keys):
                    entries = [_entry(found.get(key)) for key in keys]
                    print(f"| {name} | {k} | {limit:.0%} | {' | '.join(entries)} |")


def _entry(row: list[str] | None) -> str:
    if row is None:
        return ""
    return f"{float(row[0]):,.1f}" if row[1] else {"not on this map": "–"}.get(row[0], row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--k", type=int, action="append")
    parser.add_argument("--sets", default="", help="part of the names of the sets to run")
    parser.add_argument("--print", action="store_true", help="print the table so far, and run nothing")
    asked = parser.parse_args()
    if asked.print:
        show()
    elif DATA.is_dir():
        fill(tuple(asked.k or KS), asked.sets)
    else:
        print("The public data sets are not beside the repository.")


if __name__ == "__main__":
    main()
