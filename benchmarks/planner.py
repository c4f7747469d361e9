"""The planner's error: share of trips that a reader misplaces between areas, by method and data set.

    python -m benchmarks planner                                        every set and method
    python -m benchmarks.planner --sets Santiago --methods layercut,twincut

Each method publishes with k = 10 trips. The matrix between areas is estimated from the published
tables alone, without public weights (`flowveil.published.disaggregation`), and compared with all
input trips. Areas are H3 cells of resolution 7, the tiles of the set's own map, or the sectors of
Montpellier. ``fixed`` is what people do today: one resolution, or one level of the map, for
everything, and cells below k dropped, at most 15 % of the trips: the finest one, and with hindsight
the one with the least error between these areas.

The first table has the errors, and how many times better LayerCut is than the two fixed ones. The
second has of LayerCut the share missed and published, the mean trip length of the estimate as a share of the
true one, cells, and its processor time as a multiple of PairCut's (at 10 %).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import flowveil
from benchmarks import twincut_table
from benchmarks.twincut_table import DATA
from flowveil.core.arrays import Ints
from flowveil.core.flows import Flows, group_pairs
from flowveil.core.hierarchy import Hierarchy
from flowveil.published.disaggregation import disaggregate
from flowveil.published.tables import lookup_table, zones_table
from flowveil.published.zone_overlaps import (
    Overlap,
    h3_overlap,
    hexagons_around,
    map_overlap,
    outline_overlap,
)
from flowveil.release.boundary import to_published
from flowveil.zoning.h3 import parent_of

K, LEVEL, MOST_DROPPED = 10, 7, 0.15
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "layercut": ("layercut", {}),
    "paircut 1 %": ("paircut", {"max_suppressed": 0.01}),
    "paircut 10 %": ("paircut", {"max_suppressed": 0.1}),
    "twincut 1 %": ("twincut", {"max_suppressed": 0.01}),
    "twincut 10 %": ("twincut", {"max_suppressed": 0.1}),
    "atg-dual 10 %": ("atg-dual", {"max_suppressed": 0.1}),
    "odkanon": ("odkanon", {}),
}
#: Run where it is named, because it takes minutes.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "curvecut 10 %": ("curvecut", {"max_suppressed": 0.1}),
}
ENDS = ("origin", "destination")
Table = dict[tuple[str, str], float]


def coordinates(path: str, resolution: int, **how: Any) -> Callable[[], Flows]:
    ends = {"origin": ("o_lat", "o_lon"), "destination": ("d_lat", "d_lon")}
    return lambda: flowveil.read_trips(DATA / path, resolution=resolution, person="", **ends, **how)


def detroit() -> Flows:
    """Commuters of one year between H3 cells."""
    table = pq.read_table(DATA / "lodes_detroit/od.parquet")
    table = table.filter(pc.equal(table["year"], pc.max(table["year"])))
    ends = {"origin_tile": "o_hex", "destination_tile": "d_hex"}
    return flowveil.read_trips(table, **ends, trips="workers", skip_unknown=True, max_dropped=1.0)


#: Porto's public part (320 trips) is for its reader, not for results.
SETS: dict[str, Callable[[], Flows]] = {
    "Santiago taxis, resolution 9": coordinates("santiago_taxi/trips.parquet", 9),
    "San Francisco cabs, resolution 10": coordinates("cabspotting_sf/trips.parquet", 10),
    "São Paulo survey, resolution 9": coordinates("saopaulo_od2023/trips.parquet", 9),
    "Detroit commuters, resolution 7": detroit,
    **{
        name: twincut_table.SETS[name]
        for name in (
            "Leeds commuters, MSOA",
            "Bristol commuters, MSOA",
            "Montpellier survey, zones in sectors",
            "New York green taxis, zones",
            "New York taxi sample, resolution 9",
            "Bay Area bikes, resolution 10",
            "Citi Bike Jersey City, resolution 10",
        )
    },
}


# ---- areas ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Areas:
    """What a planner sums by.

    Attributes:
        flows: the input.
        places: latitude and longitude of areas on the set's own map.
        sectors: the area of each tile where that is not the tile; by code.
    """

    flows: Flows
    places: dict[str, tuple[float, float]]
    sectors: dict[str, str] | None

    @classmethod
    def of(cls, name: str, flows: Flows) -> Areas:
        tree = flows.whole_map
        if flows.intake.resolution is not None or tree is None:
            return cls(flows, {}, None)
        if name.startswith("Montpellier"):
            as_text = pa_csv.ConvertOptions(column_types={"sector": pa.string()})
            table = pa_csv.read_csv(
                DATA / "montpellier_emd/sectors.csv", convert_options=as_text
            ).to_pylist()
            places = {row["sector"]: (row["lat"], row["lon"]) for row in table}
            tiles = tree.leaf_node
            above = tree.code_text(tree.parent[tiles]).tolist()
            return cls(flows, places, dict(zip(tree.code_text(tiles).tolist(), above, strict=True)))
        assert tree.geography is not None
        centers = zip(*tree.geography.centers(tree.leaf_node), strict=True)
        return cls(
            flows, dict(zip(tree.code_text(tree.leaf_node).tolist(), centers, strict=True)), None
        )

    def of_tiles(self, tree: Hierarchy) -> np.ndarray:
        """The area of each tile."""
        codes = tree.code[tree.leaf_node]
        if codes.dtype == np.uint64:
            return np.array([format(cell, "x") for cell in parent_of(codes, LEVEL).tolist()])
        texts = tree.code_text(tree.leaf_node)
        return (
            texts
            if self.sectors is None
            else np.array([self.sectors[code] for code in texts.tolist()])
        )

    def true(self) -> Table:
        """All input trips."""
        flows = self.flows
        ends = [
            self.of_tiles(flows.origins)[flows.origin],
            self.of_tiles(flows.destinations)[flows.destination],
        ]
        return summed(*ends, flows.trips.astype(np.float64))

    def overlap(
        self, zones: pa.Table, lookup: pa.Table | None, end: str, *, boxed: bool = False
    ) -> Overlap:
        """How published zones and areas overlap."""
        if self.flows.intake.resolution is None and not boxed:
            assert lookup is not None
            if self.sectors is not None:
                tiles = pa.array(
                    [self.sectors[tile] for tile in lookup["tile"].to_pylist()], pa.string()
                )
                lookup = lookup.set_column(lookup.schema.get_field_index("tile"), "tile", tiles)
            return map_overlap(zones, lookup, end, places=self.places, worth=None)
        if not boxed:
            return h3_overlap(
                zones, end, level=LEVEL, resolution=int(self.flows.intake.resolution or LEVEL)
            )
        if self.flows.intake.resolution is not None:
            return outline_overlap(zones, end, *hexagons_around(zones, LEVEL))
        tree = self.flows.whole_map
        assert tree is not None
        assert tree.geography is not None
        outlines = tree.geography.polygons(tree.leaf_node)
        if outlines is None:
            raise flowveil.ParameterError("The map has no outlines.")
        return outline_overlap(zones, end, tree.code_text(tree.leaf_node), outlines)


def summed(origin: Any, destination: Any, values: Any) -> Table:
    """Sums by pair."""
    table = pa.table({"o": origin.tolist(), "d": destination.tolist(), "v": values})
    rows = table.group_by(["o", "d"]).aggregate([("v", "sum")]).to_pylist()
    return {(row["o"], row["d"]): row["v_sum"] for row in rows}


def estimated(cells: pa.Table, ends: list[Overlap]) -> Table:
    """What a reader gets."""
    found = disaggregate(cells, ends[0], ends[1])
    return summed(
        found.origins[found.origin], found.destinations[found.destination], found.values["trips"]
    )


def misplaced(true: Table, found: Table) -> float:
    """The planner's error: half the sum of absolute differences, as a share of all trips."""
    pairs = true.keys() | found.keys()
    differences = (abs(true.get(pair, 0.0) - found.get(pair, 0.0)) for pair in pairs)
    return sum(sorted(differences)) / 2 / sum(true.values())


def missed(true: Table, found: Table) -> float:
    """The share of the trips that the estimate lacks: small where its total is too high."""
    return sum(max(v - found.get(pair, 0.0), 0.0) for pair, v in true.items()) / sum(true.values())


def mean_length(pairs: Table, ends: list[Overlap]) -> float:
    """Mean distance between the centres of areas that have one, in kilometres."""
    place = [dict(zip(e.codes.tolist(), zip(e.lat, e.lon, strict=True), strict=True)) for e in ends]
    known = [
        (*place[0][o], *place[1][d], v)
        for (o, d), v in pairs.items()
        if o in place[0] and d in place[1]
    ]
    rows = np.array(known)
    rows = rows[~np.isnan(rows).any(axis=1)]
    if len(rows) == 0:
        return float("nan")
    y0, x0, y1, x1 = np.radians(rows[:, :4].T)
    half = np.sin((y1 - y0) / 2) ** 2 + np.cos(y0) * np.cos(y1) * np.sin((x1 - x0) / 2) ** 2
    return float(np.average(12_742 * np.arcsin(np.sqrt(half)), weights=rows[:, 4]))


# ---- one resolution for everything ---------------------------------------------------------------


def fixed_levels(areas: Areas, true: Table) -> list[tuple[float, str]]:
    """Errors of one level for both ends, the finest first, of those that drop at most
    `MOST_DROPPED`; with names."""
    flows = areas.flows
    found = []
    for level, nodes in levels(flows):
        pairs = group_pairs(
            nodes[0][flows.origin],
            nodes[1][flows.destination],
            *(len(t.code) for t in trees(flows)),
        )
        trips = pairs.sum(flows.trips.astype(np.float64))
        kept = trips >= K
        if 1 - trips[kept].sum() / trips.sum() > MOST_DROPPED:
            continue
        codes = [
            tree.code_text(number[kept])
            for tree, number in zip(trees(flows), (pairs.origin, pairs.destination), strict=True)
        ]
        cells = pa.table(
            {
                "origin_zone": codes[0].tolist(),
                "destination_zone": codes[1].tolist(),
                "trips": trips[kept],
            }
        )
        ends = [
            areas.overlap(*tables_of_nodes(areas, end, codes[at]), end)
            for at, end in enumerate(ENDS)
        ]
        found.append((misplaced(true, estimated(cells, ends)), level))
    return found


def trees(flows: Flows) -> tuple[Hierarchy, Hierarchy]:
    return flows.origins, flows.destinations


def levels(flows: Flows) -> Iterator[tuple[str, list[Ints]]]:
    """Every level, and the node of each tile there; tiles that end above it stay."""
    highest = max(int(tree.level.max()) for tree in trees(flows))
    lowest = min(int(tree.level.min()) for tree in trees(flows))
    if flows.intake.resolution is not None:
        # Coarser cells are never the best: each is spread over thousands of areas.
        lowest = max(lowest, LEVEL - 2)
    for level in range(highest, lowest - 1, -1):
        nodes = []
        for tree in trees(flows):
            node = tree.leaf_node.copy()
            for _ in range(tree.max_depth):
                node = np.where(
                    (tree.parent[node] >= 0) & (tree.level[node] > level), tree.parent[node], node
                )
            nodes.append(node.astype(np.int32))
        yield f"level {level}", nodes


def tables_of_nodes(areas: Areas, end: str, codes: Any) -> tuple[pa.Table, pa.Table | None]:
    """Zones, and their tiles on the set's own map, in the form that a release has."""
    distinct = np.unique(codes).tolist()
    zones: dict[str, Any] = {"zone": distinct, "role": [end] * len(distinct)}
    if areas.flows.intake.resolution is not None:
        return pa.table({**zones, "h3_cells": [[code] for code in distinct]}), None
    tree = areas.flows.whole_map
    assert tree is not None
    number = {
        code: n
        for n, code in enumerate(tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist())
    }
    tiles = tree.code_text(tree.leaf_node).tolist()
    rows = [
        (code, end, tile)
        for code in distinct
        for tile in tiles[tree.leaf_start[number[code]] : tree.leaf_stop[number[code]]]
    ]
    return pa.table(zones), pa.table(
        dict(zip(("zone", "role", "tile"), map(list, zip(*rows, strict=True)), strict=True))
    )


# ---- the tables ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A release of one method."""

    error: float
    missed: float
    published: float
    length: float
    cells: int
    seconds: float


def measure(areas: Areas, true: Table, method: str, limit: dict[str, Any]) -> Result | None:
    """Runs a method; None where it cannot be run on this set."""
    begin = time.process_time()
    try:
        release: Any = flowveil.anonymize(areas.flows, method, K, "trips", **limit)
        seconds = time.process_time() - begin
        published = to_published(release)
        zones = zones_table(published)
        lookup = lookup_table(published, zones)
        ends = [areas.overlap(zones, lookup, end, boxed=release.kind == "boxed") for end in ENDS]
    except (
        flowveil.InfeasibleError,
        flowveil.ParameterError,
        flowveil.DataError,
        flowveil.MissingExtraError,
    ):
        return None
    found = estimated(published.cells, ends)
    share = float(release.cells.trips.sum() / areas.flows.trips.sum())
    ratio = mean_length(found, ends) / mean_length(true, ends)
    return Result(
        misplaced(true, found), missed(true, found), share, ratio, len(release.cells), seconds
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sets", default="", help="names, or beginnings of names, with commas between"
    )
    parser.add_argument("--methods", default="", help="the same for methods")
    given, _ = parser.parse_known_args()
    methods = _chosen({**METHODS, **NAMED} if given.methods else METHODS, given.methods)
    print(
        f"| data | {' | '.join(name for name, _ in methods)} | finest fixed | best fixed | LayerCut"
        " is better |"
    )
    print(f"|---|{'---:|' * len(methods)}---:|---:|---:|", flush=True)
    further = []
    for name, read in _chosen(SETS, given.sets):
        flows = replace(read(), people=None)
        areas = Areas.of(name, flows)
        true = areas.true()
        fixed = fixed_levels(areas, true)
        both = [fixed[0], min(fixed)]
        results = {title: measure(areas, true, *run) for title, run in methods}
        errors = [f"{one.error:.2%}" if one else "–" for one in results.values()]
        own, pair = results.get("layercut"), results.get("paircut 10 %")
        times = ", ".join(
            f"{error / own.error:.1f}" if own and own.error > 1e-6 else "–" for error, _ in both
        )
        named = " | ".join(f"{error:.2%} ({level})" for error, level in both)
        print(f"| {name} | {' | '.join(errors)} | {named} | {times} times |", flush=True)
        if own:
            slower = f"{own.seconds / pair.seconds:.2f}" if pair else "–"
            further.append(
                f"| {name} | {own.missed:.2%} | {own.published:.2%} | {own.length:.3f} | {own.cells:,} | {slower} |"
            )
    print(
        "\n| data | LayerCut: missed | published | mean trip length | cells | processor time against"
        " PairCut |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    print("\n".join(further), flush=True)


def _chosen(known: dict[str, Any], names: str) -> list[tuple[str, Any]]:
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    return [
        (n, v)
        for n, v in known.items()
        if not wanted or any(n.lower().startswith(w) for w in wanted)
    ]


if __name__ == "__main__":
    main()
