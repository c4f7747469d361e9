"""TwinCut, PairCut and CurveCut on every public set, for several k and limits, on H3 and on halves.

A long table, made in parts: every result is a row of ``benchmarks/results/choosing-sets.csv``, and
what has its row there is not run again. So it can be stopped at any time and continued:

    python -m benchmarks.choosing_sets --k 10 --sets Bristol     run what is missing of a part
    python -m benchmarks.choosing_sets --print                   the table so far, as Markdown

Sets whose tree cannot be refined have no row on halves. Seconds are those of the processor, so that
a busy machine does not distort them; they include the recount of the release.
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
#: Method, tree and options. TwinCut stops by counted work alone, so that its results do not depend
#: on the machine.
RUNS = (
    ("twincut", "h3", UNHURRIED),
    ("twincut", "halves", UNHURRIED),
    ("paircut", "h3", {}),
    ("paircut", "halves", {}),
    ("curvecut", "", {}),
)
#: From this error on, a release has merged tiles: single tiles have 2.
MERGED = 2.1
#: Pairs of methods that the last lines compare.
PAIRS = (
    (("twincut", "halves"), ("twincut", "h3")),
    (("paircut", "halves"), ("paircut", "h3")),
    (("paircut", "halves"), ("twincut", "halves")),
    (("curvecut", ""), ("paircut", "halves")),
)
#: The small sets first.
ORDER = (
    "Bristol",
    "Leeds",
    "Montpellier",
    "Bay Area",
    "New York",
    "São Paulo",
    "Detroit",
    "Citi",
    "San F",
    "Santiago",
)


def run(
    flows: flowveil.Flows, k: int, limit: float, method: str, tree: str, options: dict[str, float]
) -> list[str]:
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
    size = (
        plan.origin_zones.size[cells.origin].astype(np.float64)
        + plan.destination_zones.size[cells.destination]
    )
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
    names = sorted(
        SETS, key=lambda name: next(i for i, start in enumerate(ORDER) if name.startswith(start))
    )
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
    """The errors there are, as Markdown: a line for each set and limit, and in each entry the k one
    after the other."""
    found = known()
    columns = [f"{method}{', ' * bool(tree)}{tree}" for method, tree, _ in RUNS]
    print(f"| data | limit | {' | '.join(columns)} |\n|---|---:|{'---:|' * len(columns)}")
    for name in SETS:
        for limit in SHARES:
            rows = [[found.get((name, str(k), f"{limit:g}", *run[:2])) for k in KS] for run in RUNS]
            print(f"| {name} | {limit:.0%} | {' | '.join(_entry(of_run) for of_run in rows)} |")
    print()
    for pair in PAIRS:
        one, other = (" on ".join(filter(None, run)) for run in pair)
        print(f"- {one} against {other}: {_times(found, *pair)}")
    missing = len(SETS) * len(KS) * len(SHARES) * len(RUNS) - len(found)
    print(f"- runs that are missing: {missing}")


def _entry(rows: list[list[str] | None]) -> str:
    if any(row is not None and row[0] == "not on this map" for row in rows):
        return "–"
    texts = ["·" if row is None else f"{float(row[0]):,.1f}" if row[1] else row[0] for row in rows]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _times(
    found: dict[tuple[str, ...], list[str]], one: tuple[str, str], other: tuple[str, str]
) -> str:
    """By how much the first is finer, where something may be suppressed and the second had to merge
    something."""
    ratios, rest = [], 0
    for (*where, method, tree), row in found.items():
        finer = found.get((*where, *one))
        if (method, tree) != other or where[2] == "0" or finer is None or not (row[1] and finer[1]):
            continue
        if float(row[0]) < MERGED:
            rest += 1
        else:
            ratios.append(float(row[0]) / float(finer[0]))
    low, middle, high = np.quantile(ratios, (0, 0.5, 1))
    text = f"{low:.2f} to {high:.2f} times finer, {middle:.2f} in the middle, in {len(ratios)} runs"
    return f"{text}; in {rest} others the second merges next to nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--k", type=int, action="append")
    parser.add_argument("--sets", default="", help="part of the names of the sets to run")
    parser.add_argument(
        "--print", action="store_true", help="print the table so far, and run nothing"
    )
    asked = parser.parse_args()
    if asked.print:
        show()
    elif DATA.is_dir():
        fill(tuple(asked.k or KS), asked.sets)
    else:
        print("The public data sets are not next to the repository.")


if __name__ == "__main__":
    main()
