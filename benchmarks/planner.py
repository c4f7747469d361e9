"""The planner's error: share of trips that a reader misses or misplaces between areas, by method and data set.

    python -m benchmarks.planner                      every set and method
    python -m benchmarks.planner --sets Santiago --methods layercut,twincut

Each method publishes with k = 10 trips; from the published tables alone the matrix between areas is estimated
(`flowveil.published.reconstruction`, without public weights) and compared with all input trips. Areas are H3 cells of
resolution 7, or the tiles of the set's own map. Also: the share published, the mean trip length of the estimate as a
share of the true one, cells, and seconds of the processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import flowveil
from benchmarks.twincut_table import DATA
from flowveil.flows import Flows
from flowveil.published.disaggregation import disaggregate
from flowveil.published.tables import flows_table, zones_table
from flowveil.published.zone_overlaps import Overlap, h3_overlap, map_overlap
from flowveil.release.release import Release
from flowveil.zoning.h3 import parent_of

K, LEVEL = 10, 7
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "layercut": ("layercut", {}),
    "paircut 1 %": ("paircut", {"max_suppressed": 0.01}),
    "paircut 10 %": ("paircut", {"max_suppressed": 0.1}),
    "twincut 10 %": ("twincut", {"max_suppressed": 0.1}),
    "atg-dual 10 %": ("atg-dual", {"max_suppressed": 0.1}),
    "odkanon": ("odkanon", {}),
}
ENDS = {"origin": ("o_lat", "o_lon"), "destination": ("d_lat", "d_lon")}


Reader = Callable[[Path], Flows]


def coordinates(path: str, resolution: int, **how: Any) -> Reader:
    return lambda data: flowveil.read_trips(data / path, resolution=resolution, **ENDS, **how)


def zoned(path: str, zones: str, columns: dict[str, Any], **how: Any) -> Reader:
    return lambda data: flowveil.read_trips(data / path, zones=flowveil.read_zones(data / zones, **columns), **how)


def detroit(data: Path) -> Flows:
    """Commuters of one year between H3 cells."""
    table = pq.read_table(data / "lodes_detroit/od.parquet")
    table = table.filter(pc.equal(table["year"], pc.max(table["year"])))
    ends = {"origin_tile": "o_hex", "destination_tile": "d_hex"}
    return flowveil.read_trips(table, **ends, trips="workers", skip_unknown=True, max_dropped=1.0)


SETS: dict[str, Reader] = {
    "Santiago 9": coordinates("santiago_taxi/trips.parquet", 9),
    "San Francisco 10": coordinates("cabspotting_sf/trips.parquet", 10),
    "São Paulo 9": coordinates("saopaulo_od2023/trips.parquet", 9),
    "Bristol, MSOA": zoned("bristol/bristol_od.csv", "bristol/bristol_zones.geojson", {}, trips="all"),
    "Leeds, MSOA": zoned("leeds/si_od_census.csv", "leeds/si_zones.geojson", {}, trips="all"),
    "Detroit 7": detroit,
}


def error_of(release: Release) -> tuple[float, float]:
    """The error between areas, and the mean length of estimated trips as a share of the true one."""
    flows, zones = flows_table(release), zones_table(release)
    ends = [_overlap(release, zones, end) for end in ("origin", "destination")]
    estimate = disaggregate(flows, ends[0], ends[1])
    found = _keyed(
        estimate.origins[estimate.origin], estimate.destinations[estimate.destination], estimate.values["trips"]
    )
    source = release.input
    areas = [_areas(source.origins, source.origin), _areas(source.destinations, source.destination)]
    true = _keyed(areas[0], areas[1], source.trips.astype(np.float64))
    missing = sum(max(v - found.get(pair, 0.0), 0.0) for pair, v in true.items())
    return missing / sum(true.values()), _mean_length(found, ends) / _mean_length(true, ends)


def _keyed(origin: Any, destination: Any, values: Any) -> dict[tuple[str, str], float]:
    table = pa.table({"o": origin.tolist(), "d": destination.tolist(), "v": values})
    rows = table.group_by(["o", "d"]).aggregate([("v", "sum")]).to_pylist()
    return {(row["o"], row["d"]): row["v_sum"] for row in rows}


def _mean_length(pairs: dict[tuple[str, str], float], ends: list[Overlap]) -> float:
    place = [dict(zip(e.codes.tolist(), zip(e.lat, e.lon, strict=True), strict=True)) for e in ends]
    known = [(place[0][o], place[1][d], v) for (o, d), v in pairs.items() if o in place[0] and d in place[1]]
    a, b = (np.radians([row[i] for row in known]) for i in (0, 1))
    v = np.array([row[2] for row in known])
    placed = ~np.isnan(a).any(axis=1) & ~np.isnan(b).any(axis=1)
    a, b, v = a[placed], b[placed], v[placed]
    half = np.sin((b[:, 0] - a[:, 0]) / 2) ** 2
    half += np.cos(a[:, 0]) * np.cos(b[:, 0]) * np.sin((b[:, 1] - a[:, 1]) / 2) ** 2
    return float(np.sum(v * 12_742 * np.arcsin(np.sqrt(half))) / v.sum())


def _overlap(release: Release, zones: pa.Table, end: str) -> Overlap:
    resolution = release.input.intake.resolution
    if resolution is not None:
        return h3_overlap(zones, end, level=LEVEL, resolution=resolution)
    from flowveil.published.tables import lookup_table

    tree = release.input.whole_map
    assert tree is not None
    assert tree.geography is not None
    centers = zip(*tree.geography.centers(tree.leaf_node), strict=True)
    places = dict(zip(tree.code_text(tree.leaf_node).tolist(), centers, strict=True))
    lookup = lookup_table(release)
    assert lookup is not None
    return map_overlap(zones, lookup, end, places=places, worth=None)


def _areas(tree: Any, tile: Any) -> Any:
    codes = tree.code[tree.leaf_node]
    if codes.dtype == np.uint64:
        return np.array([format(cell, "x") for cell in parent_of(codes, LEVEL).tolist()])[tile]
    return tree.code_text(tree.leaf_node)[tile]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="", help="names, or beginnings of names, with commas between")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public sets")
    parser.add_argument("--methods", default="", help="the same for methods")
    asked = parser.parse_args()
    print("| data | method | error | published | mean length | cells | seconds |\n|---|---|---:|---:|---:|---:|---:|")
    for name, read in _chosen(SETS, asked.sets):
        flows = replace(read(asked.data), people=None)
        for title, (method, limit) in _chosen(METHODS, asked.methods):
            begin = time.process_time()
            try:
                release = flowveil.anonymize(flows, method, K, "trips", **limit)
            except flowveil.InfeasibleError:
                print(f"| {name} | {title} | infeasible | | | | |", flush=True)
                continue
            seconds = time.process_time() - begin
            error, length = error_of(release)
            published = float(release.cells.trips.sum() / flows.trips.sum())
            print(
                f"| {name} | {title} | {error:.2%} | {published:.2%} | {length:.3f} | {len(release.cells):,} "
                f"| {seconds:.1f} |",
                flush=True,
            )


def _chosen(known: dict[str, Any], names: str) -> list[tuple[str, Any]]:
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    return [(n, v) for n, v in known.items() if not wanted or any(n.lower().startswith(w) for w in wanted)]


if __name__ == "__main__":
    main()
