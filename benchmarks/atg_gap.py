"""How far ATG-Dual is from the best cells that do not intersect on the same tree, as Markdown.

K = 10 trips.

The bound is proven by PairCut's dual (`flowveil.analysis.measures.division_floor`): no release of
this class, ATG-Dual's included, has a smaller mean generalisation error. So a gap of 20 % bounds
what can be gained.
"""

from __future__ import annotations

import flowveil
from benchmarks.twincut_table import DATA, SETS, best_atg, run
from flowveil.analysis.measures import division_floor

CHOSEN = (
    "Santiago taxis, resolution 9",
    "San Francisco cabs, resolution 10",
    "New York taxi sample, resolution 9",
)
LIMITS = (0.01, 0.05, 0.1)
K = 10


def main() -> None:
    if not DATA.is_dir():
        print("The public data sets are not next to the repository.")
        return
    print("| data | limit | proven bound | v_target auto | gap | best v_target | gap |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in CHOSEN:
        flows = SETS[name]()
        guarantee = flowveil.Guarantee.resolve(flows, k=K, protect="trips")
        for limit in LIMITS:
            asked = {"k": K, "protect": "trips", "max_suppressed": limit}
            bound = division_floor(flows, guarantee, max_suppressed=limit)
            assert bound is not None
            errors = (run(flows, "atg-dual", **asked).error, best_atg(flows, **asked).error)
            entries = " | ".join(f"{error:,.1f} | {error / bound - 1:.0%}" for error in errors)
            print(f"| {name} | {limit:.0%} | {bound:,.1f} | {entries} |", flush=True)


if __name__ == "__main__":
    main()
