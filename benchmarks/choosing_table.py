"""The table of the page on choosing a method, as Markdown: TwinCut, PairCut and CurveCut on the
same flows."""

from __future__ import annotations

import flowveil
from benchmarks.tables import DATA
from flowveil.reading.sources.synthetic import synthetic_survey

#: The two that work on a tree take unrefined H3.
METHODS = {
    "twincut": ("TwinCut", {"hierarchy": "h3"}),
    "paircut": ("PairCut", {"hierarchy": "h3"}),
    "curvecut": ("CurveCut", {}),
}
SETS = {
    "the demo's survey, resolution 9": (None, 9),
    "Santiago, resolution 9": ("santiago_taxi/trips.parquet", 9),
    "San Francisco, resolution 10": ("cabspotting_sf/trips.parquet", 10),
}
K = 10


def main() -> None:
    print("| data | limit | method | Ḡ | metres | cells |\n|---|---|---|---:|---:|---:|")
    for name, (path, resolution) in SETS.items():
        if path is not None and not DATA.is_dir():
            continue
        trips = synthetic_survey() if path is None else DATA / path
        flows = flowveil.read_trips(trips, resolution=resolution)
        for limit in (0.01, 0.1):
            for method, (title, options) in METHODS.items():
                release = flowveil.anonymize(flows, method, K, "trips", limit, **options)
                m = release.metrics()["trips"]
                print(
                    f"| {name} | {limit:.0%} | {title} | {m['mean_generalization_error']:,.1f} | "
                    f"{m['generalization_distance_m']:,.0f} | {m['n_cells']:,} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
