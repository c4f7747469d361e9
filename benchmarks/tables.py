"""The tables of the docs, as Markdown: every method on the public data sets."""

from __future__ import annotations

from pathlib import Path

import flowveil

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
H3_SETS = {
    "Santiago, resolution 9": ("santiago_taxi/trips.parquet", {"resolution": 9}),
    "San Francisco, resolution 10": (
        "cabspotting_sf/trips.parquet",
        {"resolution": 10, "person": "cab_id"},
    ),
}
ZONE_SETS = {
    "New York taxi zones, dendrogram": (
        "nyc_green_taxi_zones/trips.parquet",
        "nyc_green_taxi_zones/zones.geojson",
        {"skip_unknown": True},
        {"tile": "LocationID"},
    ),
    "Leeds commuters, MSOA, dendrogram": (
        "leeds/si_od_census.csv",
        "leeds/si_zones.geojson",
        {"trips": "all"},
        {},
    ),
    "Montpellier survey, zones in sectors": (
        "montpellier_emd/legs.parquet",
        "montpellier_emd/zone_hierarchy.csv",
        {"person": "person_id", "skip_unknown": True, "max_dropped": 0.5},
        {"levels": "sector,zone"},
    ),
}
RUNS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("TwinCut", "twincut", {"hierarchy": "h3"}),
    ("PairCut", "paircut", {"hierarchy": "h3"}),
    ("ODkAnon", "odkanon", {}),
    ("ODkAnon, volume budget", "odkanon", {"budget": "volume"}),
    ("ATG-Dual", "atg-dual", {}),
    ("ATG-Soft", "atg-soft", {}),
    ("OIGH", "oigh", {}),
    ("Mondrian", "mondrian", {}),
    ("Mondrian, relaxed", "mondrian", {"partitioning": "relaxed"}),
    ("GLOVE", "glove", {}),
    ("suppression", "suppression", {}),
)
#: GLOVE holds a hundred neighbours of every flow that is short: larger sets are left out.
MOST_FOR_GLOVE = 50_000


def main() -> None:
    if not DATA.is_dir():
        print("The public data sets are not next to the repository.")
        return
    for name, (path, how) in H3_SETS.items():
        print_table(name, flowveil.read_trips(DATA / path, **how))
    for name, (path, zones, how, columns) in ZONE_SETS.items():
        where = flowveil.read_zones(DATA / zones, **columns)
        print_table(name, flowveil.read_trips(DATA / path, zones=where, **how))


def print_table(name: str, flows: flowveil.Flows) -> None:
    print(f"\n**{name}** ({len(flows):,} flows, {int(flows.trips.sum()):,} trips)\n")
    print("| method | Ḡ | E | metres | zones (o × d) | cells | suppressed |")
    print("|---|---|---|---|---|---|---|")
    for label, method, options in RUNS:
        if method == "glove" and len(flows) > MOST_FOR_GLOVE:
            continue
        try:
            release = flowveil.anonymize(flows, method=method, k=10, **options)
        except flowveil.InfeasibleError:
            print(f"| {label} | infeasible | | | | | |")
            continue
        except flowveil.DataError:
            print(f"| {label} | needs a map with coordinates | | | | | |")
            continue
        m = release.metrics()["trips"]
        metres = (
            ""
            if m["generalization_distance_m"] is None
            else f"{m['generalization_distance_m']:,.0f}"
        )
        print(
            f"| {label} | {m['mean_generalization_error']:,.1f} | {m['reconstruction_loss']:.2f} |"
            f" {metres} | {m['n_origin_zones']:,} × {m['n_destination_zones']:,} | {m['n_cells']:,}"
            f" | {m['suppressed_share']:.1%} |",
            flush=True,
        )
