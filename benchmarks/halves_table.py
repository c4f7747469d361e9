"""Unrefined H3 and maps against halves on every public set, as Markdown.

K = 10 trips, mean generalisation error.

Seconds are those of the processor, so that a busy machine does not distort them.
"""

from __future__ import annotations

import argparse
import time

import flowveil
from benchmarks.twincut_table import DATA, SETS, UNHURRIED

METHODS = ("twincut", "paircut")
OPTIONS: dict[str, dict[str, float]] = {"twincut": UNHURRIED, "paircut": {}}
HIERARCHIES = ("h3", "halves")
LIMITS = (0.01, 0.05, 0.1)
K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="", help="part of the names of the sets to run")
    wanted = parser.parse_args().sets
    if not DATA.is_dir():
        print("The public data sets are not next to the repository.")
        return
    columns = [f"{method}, {tree}" for method in METHODS for tree in HIERARCHIES]
    print(f"| data | limit | {' | '.join(columns)} |\n|---|---|{'---:|' * len(columns)}")
    for name, read in SETS.items():
        if wanted not in name:
            continue
        flows = read()
        for limit in LIMITS:
            entries = [
                entry(flows, method, limit, tree) for method in METHODS for tree in HIERARCHIES
            ]
            print(f"| {name} | {limit:.0%} | {' | '.join(entries)} |", flush=True)


def entry(flows: flowveil.Flows, method: str, limit: float, tree: str) -> str:
    begun = time.process_time()
    try:
        release = flowveil.anonymize(
            flows, method, K, "trips", limit, hierarchy=tree, **OPTIONS[method]
        )
    except flowveil.InfeasibleError:
        return "infeasible"
    except flowveil.ParameterError:
        return "unrefined"
    error = release.metrics()["trips"]["mean_generalization_error"]
    return f"{error:,.1f} ({time.process_time() - begun:.0f} s)"


if __name__ == "__main__":
    main()
