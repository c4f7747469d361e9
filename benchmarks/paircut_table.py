"""The table of PairCut's page, as Markdown.

Its error and those of the methods it generalises, at several limits.
"""

from __future__ import annotations

from typing import Any

import flowveil
from benchmarks.tables import DATA

SETS = {
    "Santiago, resolution 9": (
        "santiago_taxi/trips.parquet",
        {"resolution": 9},
        (0.0, 0.01, 0.05, 0.1),
    ),
    "Santiago, resolution 10": ("santiago_taxi/trips.parquet", {"resolution": 10}, (0.0766, 0.1)),
    "San Francisco, resolution 10": (
        "cabspotting_sf/trips.parquet",
        {"resolution": 10},
        (0.0, 0.0142, 0.05, 0.1),
    ),
}
#: TwinCut without its local search, which takes longer than everything else here.
METHODS: dict[str, dict[str, Any]] = {
    "odkanon": {"budget": "volume"},
    "atg-dual": {},
    "twincut": {"effort": 0.0, "hierarchy": "h3"},
    "paircut": {"hierarchy": "h3"},
}
K = 10


def main() -> None:
    if not DATA.is_dir():
        print("The public data sets are not next to the repository.")
        return
    print(f"Mean generalisation error, k = {K} trips.\n")
    print(
        f"| data | limit | {' | '.join(METHODS)} | proven gap"
        f" |\n|---|---|{'---:|' * (len(METHODS) + 1)}"
    )
    for name, (path, how, limits) in SETS.items():
        flows = flowveil.read_trips(DATA / path, **how)
        for limit in limits:
            errors, gap = [], None
            for method, options in METHODS.items():
                try:
                    release = flowveil.anonymize(flows, method, K, "trips", limit, **options)
                except flowveil.InfeasibleError:
                    errors.append("–")
                    continue
                gap = release.plan.notes.get("proven_gap", gap)
                errors.append(f"{release.metrics()['trips']['mean_generalization_error']:,.1f}")
            print(f"| {name} | {limit:.2%} | {' | '.join(errors)} | {gap:.1e} |", flush=True)


if __name__ == "__main__":
    main()
