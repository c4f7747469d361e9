"""Differential privacy at the accuracy of k = 10: errors between districts, over ten draws.

    python -m benchmarks posterior                                 all sets; writes results/posterior.md
    python -m benchmarks posterior_parts               hours and persons; writes posterior-parts.md
    python -m benchmarks.posterior --sets Santiago --draws 2 --epsilon 1      prints only

Districts are H3 cells of resolution 7 whose centres lie in a circle around the city. Trips with an
end outside the circle are not read. Every method gets the same trips and, where it needs a public
region, the same circle. Noisy methods protect single trips. LayerCut (k = 10 trips) publishes finer
and coarser zones; its table between districts is the estimate of a reader (`benchmarks.planner`).

Misplaced: half the sum of absolute differences from the true counts, as a share of all trips.
Missed: the part of it where fewer trips are published than there were. False: share of the listed
cells without any trip. The constants of posterior were chosen on the first three sets.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

import flowveil
from benchmarks.planner import DATA, ENDS, Areas, estimated
from flowveil.core.flows import Flows
from flowveil.release.boundary import to_published
from flowveil.zoning.h3 import parent_of

RESULTS = Path(__file__).parent / "results" / "posterior.md"
LEVEL, K, DRAWS = 7, 10, 10
#: ε of a trip; others than the main one with few draws.
EPSILONS, MAIN, FEW = (0.25, 0.5, 1.0, 2.0), 1.0, 3
COORDINATES = {"origin": ("o_lat", "o_lon"), "destination": ("d_lat", "d_lon"), "person": ""}


@dataclass(frozen=True)
class City:
    """A data set, and the circle: centre in degrees and radius in kilometres."""

    name: str
    path: str
    lat: float
    lon: float
    radius: float
    how: dict[str, Any]
    chosen_on: bool = True

    def circle(self) -> gpd.GeoDataFrame:
        """The study area."""
        angle = np.linspace(0, 2 * np.pi, 129)
        lon = self.lon + self.radius / (111.3 * np.cos(np.radians(self.lat))) * np.cos(angle)
        lat = self.lat + self.radius / 111.0 * np.sin(angle)
        outline = shapely.Polygon(np.stack((lon, lat), axis=1))
        return gpd.GeoDataFrame(geometry=[outline], crs="EPSG:4326")

    def flows(self) -> Flows:
        """The trips within the circle."""
        source: Any = DATA / self.path
        if "trips" in self.how:
            table = pq.read_table(source)
            source = table.filter(pc.equal(table["year"], pc.max(table["year"])))
        return flowveil.read_trips(source, within=self.circle(), max_dropped=1.0, **self.how)


CITIES = (
    City(
        "Santiago", "santiago_taxi/trips.parquet", -33.45, -70.66, 40,
        {"resolution": 9, **COORDINATES},
    ),
    City(
        "San Francisco", "cabspotting_sf/trips.parquet", 37.70, -122.40, 45,
        {"resolution": 10, **COORDINATES},
    ),
    City(
        "São Paulo", "saopaulo_od2023/trips.parquet", -23.55, -46.63, 60,
        {"resolution": 9, **COORDINATES},
    ),
    City(
        "Detroit", "lodes_detroit/od.parquet", 42.35, -83.10, 70,
        {"origin_tile": "o_hex", "destination_tile": "d_hex", "trips": "workers",
         "skip_unknown": True},
        chosen_on=False,
    ),
    City(
        "New York", "nyc_taxi_coords_sample/taxi.parquet", 40.75, -73.95, 40,
        {"resolution": 9, "origin": ("pickup_latitude", "pickup_longitude"),
         "destination": ("dropoff_latitude", "dropoff_longitude"), "person": ""},
        chosen_on=False,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """Of one release: shares of all trips, and of the listed pairs; the number of pairs."""

    misplaced: float
    missed: float
    seconds: float
    false: float = 0.0
    pairs: int = 0


@dataclass(frozen=True, eq=False)
class Truth:
    """The true trips between districts, as a dense table over all districts that occur."""

    flows: Flows
    codes: np.ndarray
    table: np.ndarray

    @classmethod
    def of(cls, flows: Flows) -> Truth:
        ends = [
            parent_of(tree.code[tree.leaf_node], LEVEL)[tile]
            for tree, tile in (
                (flows.origins, flows.origin),
                (flows.destinations, flows.destination),
            )
        ]
        codes = np.unique(np.concatenate(ends))
        table = np.zeros((len(codes), len(codes)))
        np.add.at(table, tuple(np.searchsorted(codes, end) for end in ends), flows.trips)
        return cls(flows, codes, table)

    def errors(self, origin: Any, destination: Any, trips: Any, seconds: float) -> Errors:
        """The errors of a table with codes of districts."""
        numbers = [
            np.array([int(code, 16) for code in end], np.uint64) for end in (origin, destination)
        ]
        trips, total = np.asarray(trips, dtype=np.float64), self.table.sum()
        place = [np.minimum(np.searchsorted(self.codes, n), len(self.codes) - 1) for n in numbers]
        known = (self.codes[place[0]] == numbers[0]) & (self.codes[place[1]] == numbers[1])
        found = np.zeros_like(self.table)
        np.add.at(found, (place[0][known], place[1][known]), trips[known])
        beyond = trips[~known].sum()
        return Errors(
            (np.abs(found - self.table).sum() + beyond) / 2 / total,
            np.maximum(self.table - found, 0).sum() / total,
            seconds,
        )


def noisy_errors(truth: Truth, method: str, **options: Any) -> Errors:
    """The errors of one draw."""
    begin = time.process_time()
    release = flowveil.anonymize(truth.flows, method, protect="trips", **options)
    return release_errors(truth, release, time.process_time() - begin)


def release_errors(truth: Truth, release: Any, seconds: float) -> Errors:
    """The errors of a noisy release; cells coarser than districts are spread like LayerCut's."""
    true = np.bincount(
        release.cell_of_flow[release.cell_of_flow >= 0],
        weights=release.input.trips[release.cell_of_flow >= 0],
        minlength=len(release.cells),
    )
    false = float(np.mean(true == 0))
    table = release.flows
    ends = [table[f"{end}_zone"].to_pylist() for end in ENDS]
    finest = all(len(code) == 15 and int(code[1], 16) == LEVEL for end in ends for code in set(end))
    if finest:
        errors = truth.errors(*ends, table["trips"].to_numpy(), seconds)
    else:
        errors = reconstructed_errors(truth, release, seconds)
    return replace(errors, false=false, pairs=len(release.cells))


def reconstructed_errors(truth: Truth, release: Any, seconds: float) -> Errors:
    """The errors of what a reader computes from the folder."""
    from flowveil.published.tables import zones_table

    published = to_published(release)
    zones = zones_table(published)
    areas = Areas(truth.flows, {}, None)
    pairs = estimated(published.cells, [areas.overlap(zones, None, end) for end in ENDS])
    origin, destination = zip(*pairs, strict=True)
    return truth.errors(origin, destination, list(pairs.values()), seconds)


def layercut_errors(truth: Truth) -> Errors:
    """LayerCut with k = 10 trips. Its cells hold trips, so no listed pair is false."""
    begin = time.process_time()
    release = flowveil.anonymize(truth.flows, "layercut", k=K, protect="trips")
    errors = reconstructed_errors(truth, release, time.process_time() - begin)
    return replace(errors, pairs=len(release.cells))


def runs(epsilons: tuple[float, ...], draws: int) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Name, method, options and number of draws."""
    for epsilon in epsilons:
        n = draws if epsilon == MAIN else min(draws, FEW)
        yield f"posterior, ε = {epsilon:g} ({n})", "posterior", {"epsilon": epsilon}, n
    one: dict[str, Any] = {"epsilon": MAIN}
    least_error = {**one, "false_flows": 1.0}
    yield f"posterior, ε = 1, false_flows = 1 ({draws})", "posterior", least_error, draws
    all_pairs = {**one, "level": LEVEL, "floor": 1}
    yield f"topdown, ε = 1, floor = 1 ({draws})", "topdown", all_pairs, draws
    large = {**one, "level": LEVEL, "delta": 1e-6}
    yield f"laplace, ε = 1, δ = 10⁻⁶ ({draws})", "laplace", large, draws
    # Coarser cells are spread over districts, which takes long.
    few = min(draws, FEW)
    for method in ("topdown", "privtree"):
        yield f"{method}, ε = 1 ({few})", method, {**one, "level": LEVEL}, few


def spread(values: list[float]) -> str:
    """Mean, and the range in parentheses, in per cent."""
    mean, low, high = (100 * f(values) for f in (statistics.mean, min, max))
    digits = 2 if mean < 10 else 1
    return f"{mean:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def lines_of(city: City, epsilons: tuple[float, ...], draws: int) -> Iterator[str]:
    """The table of a city, in Markdown."""
    truth = Truth.of(city.flows())
    total, pairs = int(truth.table.sum()), int(np.sum(truth.table > 0))
    role = "constants chosen on it" if city.chosen_on else "held out"
    yield f"## {city.name} ({role})\n"
    yield f"{total:,} trips within {city.radius:g} km, {pairs:,} pairs of districts with trips.\n"
    yield "| | misplaced, % | missed, % | false flows, % | listed | seconds |"
    yield "|---|---:|---:|---:|---:|---:|"
    one = layercut_errors(truth)
    yield (
        f"| LayerCut, k = {K} | {one.misplaced:.2%} | {one.missed:.2%} | 0 | {one.pairs:,} |"
        f" {one.seconds:.1f} |".replace("%", "")
    )
    for name, method, options, n in runs(epsilons, draws):
        all_ = [noisy_errors(truth, method, **options) for _ in range(n)]
        yield (
            f"| {name} | {spread([e.misplaced for e in all_])} | {spread([e.missed for e in all_])}"
            f" | {spread([e.false for e in all_])} | {statistics.mean(e.pairs for e in all_):,.0f}"
            f" | {statistics.mean(e.seconds for e in all_):.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", default="")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--epsilon", default=",".join(f"{e:g}" for e in EPSILONS))
    given, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")
    epsilons = tuple(float(text) for text in given.epsilon.split(","))
    lines = [
        "# Errors between districts: posterior, other noise, and k = 10\n",
        "`python -m benchmarks posterior`; mean and range over the draws in parentheses of"
        " the operating system's noise, with default options. Seconds of the processor, without"
        " reading and writing.\n",
    ]
    for city in CITIES:
        if given.sets and city.name not in given.sets.split(","):
            continue
        for line in lines_of(city, epsilons, given.draws):
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    if not given.sets and given.draws == DRAWS:
        RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
