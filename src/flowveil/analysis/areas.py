"""The planner's error: how many trips a reader of the release misplaces or misses between areas.

Private.

Areas are H3 cells of one level, the levels of the user's map, or districts given as polygons. The
reader's estimate is that of `flowveil reconstruct` (`flowveil.published.disaggregation`), compared
with all input trips. Cells that would need more than `MOST_ROWS` rows are spread evenly.
docs/reports-and-exports.md defines the measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows, group_pairs
from flowveil.core.hierarchy import OUTSIDE, OUTSIDE_CELL, Hierarchy
from flowveil.published.disaggregation import disaggregate
from flowveil.published.folds import folds_of, spread_over_values
from flowveil.published.maps import geometries, zones_of
from flowveil.published.zone_overlaps import Overlap, h3_overlap, hexagons_around, outline_overlap
from flowveil.release.plan import NodeZones
from flowveil.zoning.gazetteer import kilometres
from flowveil.zoning.h3 import is_h3, parent_of

if TYPE_CHECKING:
    from flowveil.release.counts import Publishable

#: H3 resolutions of areas: about 1, 3 and 7 km across.
LEVELS = (8, 7, 6)
#: The level of tables with one level.
PLANNING_LEVEL = 7
#: Largest number of (cell, area, area) rows of a reconstruction, and of areas for accessibility.
MOST_ROWS, MOST_AREAS = 10_000_000, 4_000
#: Largest number of rows of one end of an even spread, for measures and for `Release.reconstruct`.
_MOST_EVEN_ROWS, _MOST_TILE_ROWS = 3_000_000, 100_000_000
#: The planner's errors, first in every table.
PLANNER = (
    "misplaced",
    "area_error",
    "production_error",
    "attraction_error",
    "trip_length_ratio",
    "accessibility_error",
)
#: The same between all slices, or values of folds, added up: shown where a release has some.
TOGETHER = "misplaced_together"
#: Tiles of an area where a map has no levels: the largest nodes of its dendrogram with no more.
CLUSTER_TILES = 16
#: How an estimate was made.
RECONSTRUCTION, EVEN = "reconstruction", "even spread"


@dataclass(frozen=True)
class AreaAccuracy:
    """The planner's errors between the areas of one zoning, as the module defines them."""

    areas: str
    level: int | None  # of the tree, for H3 the resolution; None for districts
    n_areas: int  # with input trips
    basis: str
    estimate: str  # ``reconstruction``, or ``even spread`` if cells are too coarse for it
    # Half the sum of absolute differences: trips in the wrong pair of areas, slice or folded value.
    misplaced: float
    # The same of all slices and values added up; None without any.
    misplaced_together: float | None
    area_error: float  # trips that the estimate lacks
    production_error: float
    attraction_error: float
    trip_length_ratio: float | None
    accessibility_error: float | None


@dataclass(frozen=True, eq=False)
class Zoning:
    """Areas that trips are summed by."""

    name: str
    level: int | None
    codes: list[str]
    places: Floats  # latitude and longitude of their centres, NaN if unknown
    origin: Numbers  # the area of each tile of the two ends; -1 outside all areas
    destination: Numbers
    outlines: NDArray[np.object_] | None = None
    node: NDArray[Any] | None = None  # the area of each tile of the map, a node of its tree


def area_accuracy(
    release: Publishable,
    *,
    districts: Any = None,
    levels: Sequence[int] | None = None,
    basis: str = "trips",
) -> list[AreaAccuracy]:
    """Returns the planner's errors of a release, for each zoning that can be compared.

    Each finest slice is compared with its trips. ``districts`` is a ZoneMap with outlines, whose
    tiles are further areas; ``levels`` are H3 resolutions, or levels of the user's map,
    `default_levels` by default. A map without levels has `clusters` as areas.
    """
    parts, absent = finest_parts(release)
    if not parts or any(len(flows) == 0 for flows, _ in parts):
        return []
    flows = parts[0][0]
    wanted = default_levels(flows) if levels is None else levels
    zonings = [zoning_at(flows, level) for level in wanted]
    if not wanted:
        zonings.append(clusters(flows))
    if districts is not None:
        zonings.append(zoning_of_districts(flows, districts))
    errors = (_accuracy(parts, absent, zoning, basis) for zoning in zonings if zoning is not None)
    return [one for one in errors if one is not None]


def main_level(levels: Iterable[int]) -> int | None:
    """Returns `PLANNING_LEVEL`, or the level nearest to it; None without levels."""
    return min(levels, key=lambda level: abs(level - PLANNING_LEVEL), default=None)


def main_accuracy(errors: Sequence[AreaAccuracy]) -> AreaAccuracy | None:
    """Returns the entry that tables show: of one level; of a map without any, the districts that
    were given, or else the clusters.
    """
    level = main_level(one.level for one in errors if one.level is not None)
    if level is None:
        return errors[-1] if errors else None
    return next(one for one in errors if one.level == level)


def planner_values(accuracy: AreaAccuracy) -> dict[str, float | None]:
    """Returns the planner's errors by name, "misplaced" first, and with slices those together."""
    values = {name: getattr(accuracy, name) for name in PLANNER}
    if accuracy.misplaced_together is None:
        return values
    return {"misplaced": values["misplaced"], TOGETHER: accuracy.misplaced_together} | values


def misplaced_text(accuracy: AreaAccuracy) -> str:
    """Returns the first error as a part of a sentence."""
    text = f"a reader misplaces {accuracy.misplaced:.1%} of all trips"
    if accuracy.misplaced_together is None:
        return text
    return f"{text} in place, time or group ({accuracy.misplaced_together:.1%} of all together)"


def default_levels(flows: Flows) -> list[int]:
    """Returns `LEVELS` coarser than the tiles.

    For other trees and coarse tiles, the two levels above the tiles.
    """
    tree = flows.origins
    if tree.is_dendrogram:
        return []
    finest = int(tree.level[tree.leaf_node].max())
    fixed = [level for level in LEVELS if level < finest] if is_h3(tree) else []
    top = -1 if is_h3(tree) else int(tree.level[0])
    return fixed or [level for level in (finest - 1, finest - 2) if level > top]


def areas_of_readers(flows: Flows, districts: Any = None) -> Zoning | None:
    """Returns the areas that readers care about; None where the map has none.

    ``districts`` is a level of the tree, or a ZoneMap with outlines. By default the level of
    `main_level`, or the `clusters` of a map without levels.
    """
    if districts is None:
        level = main_level(default_levels(flows))
        return clusters(flows) if level is None else zoning_at(flows, level)
    if isinstance(districts, int):
        return zoning_at(flows, districts)
    return zoning_of_districts(flows, districts)


def finest_parts(release: Any) -> tuple[list[tuple[Flows, Any]], list[Flows]]:
    """Returns the matrices that share no trips, each with its input, and the input of unpublished
    slices.
    """
    if not release.slice_columns:
        return [(release.input, release)], []
    published = dict(release.parts)
    slices = release.input.split()
    pairs = [(flows, published[key]) for key, flows in slices if key in published]
    return pairs, [flows for key, flows in slices if key not in published]


def zoning_at(flows: Flows, level: int) -> Zoning | None:
    """Returns the areas of a level; None if the tree has no map."""
    trees, whole = (flows.origins, flows.destinations), flows.whole_map
    if all(is_h3(tree) for tree in trees):
        name, outside = f"H3 resolution {level}", np.uint64(OUTSIDE_CELL)
        cells = np.concatenate([tree.code[tree.leaf_node] for tree in trees])
        used, number = np.unique(
            np.where(cells == outside, outside, parent_of(cells, level)), return_inverse=True
        )
        codes = [OUTSIDE if cell == outside else format(cell, "x") for cell in used.tolist()]
        unknown = (float("nan"), float("nan"))
        places = np.array(
            [
                unknown if cell == outside else h3_cells.cell_to_latlng(cell)
                for cell in used.tolist()
            ]
        )
    elif whole is None:
        return None
    else:
        return _zoning_of_nodes(flows, f"level {level} of the map", level, nodes_at(whole, level))
    origin, destination = np.split(number, [trees[0].n_tiles])
    return Zoning(name, level, codes, places, origin, destination)


def clusters(flows: Flows) -> Zoning | None:
    """Returns the clusters of a dendrogram of at most `CLUSTER_TILES` tiles; None for other maps.

    They are decided by the map alone, and so the same for all methods and trips.
    """
    whole = flows.whole_map
    if whole is None or not whole.is_dendrogram:
        return None
    node = whole.leaf_node.copy()
    # A node on the way up holds at least one tile more than the one below it.
    for _ in range(CLUSTER_TILES):
        up = np.maximum(whole.parent[node], 0)
        small = (whole.parent[node] >= 0) & (whole.size[up] <= CLUSTER_TILES)
        node = np.where(small, up, node)
    return _zoning_of_nodes(flows, f"clusters of at most {CLUSTER_TILES} tiles", None, node)


def _zoning_of_nodes(flows: Flows, name: str, level: int | None, node: NDArray[Any]) -> Zoning:
    """Returns nodes of the user's map, one above each of its tiles, as areas."""
    whole, trees = flows.whole_map, (flows.origins, flows.destinations)
    assert whole is not None
    area = dict(zip(whole.code_text(whole.leaf_node).tolist(), node.tolist(), strict=True))
    of_tile = [area[code] for tree in trees for code in tree.code_text(tree.leaf_node).tolist()]
    used, number = np.unique(np.array(of_tile, dtype=np.int32), return_inverse=True)
    places = np.full((len(used), 2), np.nan)
    if whole.geography is not None:
        places = np.stack(whole.geography.centers(used), axis=1)
    origin, destination = np.split(number, [trees[0].n_tiles])
    codes = whole.code_text(used).tolist()
    return Zoning(name, level, codes, places, origin, destination, node=node)


def nodes_at(tree: Hierarchy, level: int) -> NDArray[Any]:
    """Returns the node of a level above each tile; a tile above the level is an area itself."""
    node = tree.leaf_node.copy()
    for _ in range(tree.max_depth):
        # Not below the level, and not a part of a zone of this level.
        above = (tree.parent[node] >= 0) & (tree.level[tree.lift(node)] >= level)
        node = np.where(above, tree.lift(node), node)
    return node


def zoning_of_districts(flows: Flows, districts: Any) -> Zoning:
    """Returns the user's polygons as areas; a tile belongs to the district around its centre."""
    tree = districts.hierarchy
    trees = (flows.origins, flows.destinations)
    if (
        tree.geography is None
        or districts.outlines is None
        or any(end.geography is None for end in trees)
    ):
        raise ParameterError(
            "Districts need outlines, and tiles whose place is known. Hint: a GeoJSON file of"
            " polygons."
        )
    ends = []
    for end in trees:
        assert end.geography is not None
        lat, lon = end.geography.centers(end.leaf_node)
        area, known = np.full(end.n_tiles, -1, dtype=np.int64), ~np.isnan(lat)
        area[known] = districts.tiles_at(lat[known], lon[known])
        ends.append(area)
    outlines = np.asarray(tree.geography.polygons(tree.leaf_node), dtype=object)
    places = np.stack(tree.geography.centers(tree.leaf_node), axis=1)
    codes = districts.tile_codes.astype(np.str_).tolist()
    return Zoning("districts", None, codes, places, ends[0], ends[1], outlines)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Volumes of pairs of areas: sorted distinct keys ``origin * n + destination``.

    N - 1 is outside all areas.
    """

    n: int
    key: Numbers
    volume: Floats

    @classmethod
    def summed(cls, n: int, origin: Any, destination: Any, volume: Any) -> Pairs:
        """Sums volumes by pair."""
        key = np.asarray(origin, dtype=np.int64) * n + np.asarray(destination, dtype=np.int64)
        return cls.of_keys(n, key, volume)

    @classmethod
    def of_keys(cls, n: int, key: Numbers, volume: Any) -> Pairs:
        """Sums volumes by key."""
        used, at = np.unique(key, return_inverse=True)
        return cls(
            n,
            used,
            np.bincount(at, weights=volume, minlength=len(used)).astype(np.float64, copy=False),
        )

    @property
    def ends(self) -> tuple[Numbers, Numbers]:
        """Origin and destination area of each pair."""
        return self.key // self.n, self.key % self.n

    def at(self, other: Pairs) -> Floats:
        """Returns the volume of each pair of another table; 0 if it is missing."""
        if len(self.key) == 0:
            return np.zeros(len(other.key))
        place = np.minimum(np.searchsorted(self.key, other.key), len(self.key) - 1)
        return np.where(self.key[place] == other.key, self.volume[place], 0.0)


def true_pairs(flows: Flows, zoning: Zoning, basis: str) -> Pairs:
    """Returns the input volumes between areas."""
    n = len(zoning.codes) + 1
    origin, destination = zoning.origin[flows.origin] % n, zoning.destination[flows.destination] % n
    return Pairs.summed(n, origin, destination, flows.volume(basis).astype(np.float64))


def estimated_pairs(
    release: Any, flows: Flows, zoning: Zoning, basis: str
) -> tuple[Pairs, str] | None:
    """Returns the reader's estimate and how it was made.

    None if zones have no place or there are too many rows.
    """
    table = release.flows
    if basis not in table.column_names:
        return None
    try:
        origins, destinations = (
            _overlap(release, flows, zoning, end) for end in ("origin", "destination")
        )
        if origins is None or destinations is None:
            return None
        zone_o, zone_d = (
            origins.numbers(table["origin_zone"]),
            destinations.numbers(table["destination_zone"]),
        )
        if (
            int(np.sum(np.diff(origins.first)[zone_o] * np.diff(destinations.first)[zone_d]))
            <= MOST_ROWS
        ):
            made = disaggregate(table, origins, destinations, folded=release.facets.folds)
            pairs, how = (made.origin, made.destination, made.values[basis]), RECONSTRUCTION
        else:
            pairs, how = (
                _spread_evenly(zone_o, zone_d, table[basis].to_numpy(), origins, destinations),
                EVEN,
            )
    except ParameterError:
        return None
    number = {code: i for i, code in enumerate(zoning.codes)}
    n = len(zoning.codes) + 1
    area_o, area_d = (
        np.array([number.get(code, n - 1) for code in overlap.codes.tolist()], dtype=np.int64)
        for overlap in (origins, destinations)
    )
    return Pairs.summed(n, area_o[pairs[0]], area_d[pairs[1]], pairs[2]), how


def _value_differences(release: Any, flows: Flows, zoning: Zoning, basis: str) -> float | None:
    """Returns the sum of absolute differences over pairs of areas and values of what folds.

    None if zones have no place or there are too many rows.
    """
    table, trees = release.flows, {f.name: f.parents for f in flows.folds if f.every is None}
    every = next((fold.every for fold in flows.folds if fold.every is not None), None)
    folds = folds_of(table, {"fold": trees, "slices": {"every": every}})
    try:
        ends = [_overlap(release, flows, zoning, end) for end in ("origin", "destination")]
        if ends[0] is None or ends[1] is None:
            return None
        made = spread_over_values(table, ends[0], ends[1], folds, most_rows=MOST_ROWS, ranges=False)
    except ParameterError:
        return None
    number, n = {code: i for i, code in enumerate(zoning.codes)}, len(zoning.codes) + 1
    area = [
        np.array([number.get(code, n - 1) for code in codes.tolist()], dtype=np.int64)
        for codes in (made.origins, made.destinations)
    ]
    guess = area[0][made.origin] * n + area[1][made.destination]
    true = (zoning.origin[flows.origin] % n) * n + zoning.destination[flows.destination] % n
    leaves = {one.name: leaf for one, leaf in zip(flows.dimensions, flows.leaves, strict=True)}
    for fold, values in zip(folds, made.of, strict=True):
        own = next(one for one in flows.folds if one.name == fold.name)
        place = {label: i for i, label in enumerate(fold.labels)}
        # A step before the first interval, or after the last, has no published trip.
        seen = np.array([place.get(label, -1) for label in own.labels.tolist()], dtype=np.int64)
        guess = guess * (len(fold.labels) + 1) + values
        true = true * (len(fold.labels) + 1) + seen[leaves[fold.name]] % (len(fold.labels) + 1)
    volume = flows.volume(basis).astype(np.float64)
    pairs = (Pairs.of_keys(n, key, v) for key, v in ((true, volume), (guess, made.values[basis])))
    return _differences(*pairs)


def _overlap(release: Any, flows: Flows, zoning: Zoning, end: str) -> Overlap | None:
    """Returns the areas of each zone of an end, as `flowveil.published.reconstruction` has them."""
    zones, tree = release.zones, flows.whole_map
    if zoning.outlines is not None:
        return outline_overlap(zones, end, np.array(zoning.codes, dtype=np.str_), zoning.outlines)
    level = zoning.level or 0
    if is_h3(flows.origins):
        if release.facets.has_boxes:
            return outline_overlap(zones, end, *hexagons_around(zones, level))
        # The finest resolution: a map may have tiles of several.
        resolution = int(flows.origins.level[flows.origins.leaf_node].max())
        return h3_overlap(zones, end, level=level, resolution=resolution)
    if tree is None:
        return None
    codes = zones_of(zones, end)["zone"].to_pylist()
    if release.facets.has_boxes:
        if tree.geography is None:
            return None
        zone, leaf = _tiles_in_boxes(zones_of(zones, end), tree)
    else:
        at = np.array([tree.node_of_code[code] for code in codes])
        zone, leaf = _ranges(tree.leaf_start[at], tree.size[at], _MOST_TILE_ROWS)
    areas = nodes_at(tree, level) if zoning.node is None else zoning.node
    names = tree.code_text(areas)
    overlap = Overlap.of(codes, zone, names[leaf], np.ones(len(leaf)), None)
    if tree.geography is None:
        return overlap
    centers = zip(*tree.geography.centers(areas), strict=True)
    return overlap.placed(dict(zip(names.tolist(), centers, strict=True)))


def _tiles_in_boxes(zones: pa.Table, tree: Hierarchy) -> tuple[Numbers, Numbers]:
    """Returns (box, tile) for each tile of the map whose centre a box contains.

    Raises ParameterError if a box contains none.
    """
    assert tree.geography is not None
    lat, lon = tree.geography.centers(tree.leaf_node)
    boxes = geometries(zones)
    tile, box = shapely.STRtree(boxes).query(shapely.points(lon, lat), predicate="intersects")
    if len(np.unique(box)) < len(boxes):
        raise ParameterError("A box contains the centre of no tile of the map.")
    return box.astype(np.int64), tile.astype(np.int64)


def _spread_evenly(
    zone_o: Any,
    zone_d: Any,
    volume: Any,
    origins: Overlap,
    destinations: Overlap,
    most: int = _MOST_EVEN_ROWS,
) -> tuple[Numbers, Numbers, Floats]:
    """Returns pairs of areas and their volume, one end after the other.

    Raises ParameterError for too many rows.
    """
    rows, area, share = _spread(zone_o, origins, most)
    half = group_pairs(
        area, zone_d[rows].astype(np.int32), len(origins.codes), len(destinations.zones)
    )
    sums = half.sum(volume[rows] * share)
    rows, area, share = _spread(half.destination, destinations, most)
    return half.origin[rows].astype(np.int64), area.astype(np.int64), sums[rows] * share


def _spread(zone: Any, overlap: Overlap, most: int) -> tuple[Numbers, Any, Floats]:
    """Repeats rows over the areas of their zones.

    Which row, which area, which share of the zone.
    """
    rows, at = _ranges(overlap.first[zone], np.diff(overlap.first)[zone], most)
    whole = np.add.reduceat(overlap.measure, overlap.first[:-1])
    share = overlap.measure / np.repeat(whole, np.diff(overlap.first))
    return rows, overlap.area[at], share[at]


def _ranges(start: Any, length: Any, most: int) -> tuple[Numbers, Numbers]:
    """Returns the numbers from each start on, as many as its length, and before them the place of
    that start.
    """
    if int(length.sum(dtype=np.int64)) > most:
        raise ParameterError("The areas are too fine for these cells. Hint: use larger areas.")
    rows = np.repeat(np.arange(len(length)), length)
    return rows, np.repeat(start - np.cumsum(length, dtype=np.int64) + length, length) + np.arange(
        len(rows)
    )


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Estimated flows between areas, one row for each pair that has any; trips are not whole."""

    zoning: Zoning  # the areas, which ``origin`` and ``destination`` number
    origin: Numbers
    destination: Numbers
    trips: Floats
    weight: Floats | None

    @property
    def table(self) -> pa.Table:
        """``origin_zone``, ``destination_zone``, ``trips`` and, where known, ``weight``."""
        codes = np.array(self.zoning.codes, dtype=object)
        columns = {
            "origin_zone": codes[self.origin],
            "destination_zone": codes[self.destination],
            "trips": self.trips,
        }
        return pa.table(columns if self.weight is None else {**columns, "weight": self.weight})


def spread_release(release: Any, zones: int | Zoning) -> Reconstruction:
    """Spreads the cells of a release evenly over the tiles that have trips, and adds up by area.

    A level, or a zoning.

    Guaranteed: if areas hold every tile, the total is that of the published cells; if every cell is
    in one pair of areas, the result is exact. Raises ParameterError for zones that are not nodes of
    a tree, and too fine areas.
    """
    plan, cells, trees = (
        release.plan,
        release.cells,
        (release.input.origins, release.input.destinations),
    )
    if not isinstance(plan.origin_zones, NodeZones) or not isinstance(
        plan.destination_zones, NodeZones
    ):
        raise ParameterError(
            "Only zones that are nodes of a tree can be reconstructed onto other zones."
        )
    if not isinstance(zones, Zoning):
        texts = [tree.code_text(nodes_at(tree, zones)) for tree in trees]
        codes, number = np.unique(np.concatenate(texts), return_inverse=True)
        areas = np.split(number, [trees[0].n_tiles])
        zones = Zoning(
            f"level {zones}",
            zones,
            codes.tolist(),
            np.full((len(codes), 2), np.nan),
            areas[0],
            areas[1],
        )
    origins = _tile_overlap(plan.origin_zones, zones.origin, zones.codes)
    destinations = _tile_overlap(plan.destination_zones, zones.destination, zones.codes)
    n = len(zones.codes) + 1
    trips, *weight = [
        Pairs.summed(
            n,
            *_spread_evenly(
                cells.origin, cells.destination, volume, origins, destinations, _MOST_TILE_ROWS
            ),
        )
        for volume in (cells.trips, cells.weight)
        if volume is not None
    ]
    origin, destination = trips.ends
    inside = (origin < n - 1) & (destination < n - 1)
    weights = weight[0].volume[inside] if weight else None
    return Reconstruction(zones, origin[inside], destination[inside], trips.volume[inside], weights)


def _tile_overlap(zones: NodeZones, area: Numbers, codes: list[str]) -> Overlap:
    """Returns how many tiles with trips each zone has in each area.

    The last area is outside all.
    """
    n, size = len(codes) + 1, zones.size.astype(np.int64)
    zone, tile = _ranges(zones.hierarchy.leaf_start[zones.nodes], size, _MOST_TILE_ROWS)
    groups = group_pairs(zone.astype(np.int32), (area[tile] % n).astype(np.int32), len(zones), n)
    tiles = np.bincount(groups.row).astype(np.float64)
    first = np.searchsorted(groups.origin, np.arange(len(zones) + 1))
    names = np.array([*codes, ""], dtype=np.str_)
    none = np.zeros(len(zones), dtype=np.bool_)
    return Overlap(pa.nulls(len(zones)), first, groups.destination, tiles, tiles, names, none)


def _accuracy(
    parts: Sequence[tuple[Flows, Any]], absent: Sequence[Flows], zoning: Zoning, basis: str
) -> AreaAccuracy | None:
    n, missing, differences = len(zoning.codes) + 1, np.zeros(3), 0.0
    several = len(parts) + len(absent) > 1
    true, estimated, how = [], [], set()
    for flows, release in [*parts, *((flows, None) for flows in absent)]:
        here = true_pairs(flows, zoning, basis)
        nothing = Pairs.summed(n, [], [], []), RECONSTRUCTION
        guess = nothing if release is None else estimated_pairs(release, flows, zoning, basis)
        if guess is None:
            return None
        missing += _missing(here, guess[0])
        of_values = None
        if release is not None and flows.folds:
            of_values = _value_differences(release, flows, zoning, basis)
        several |= of_values is not None
        differences += _differences(here, guess[0]) if of_values is None else of_values
        true.append(here)
        estimated.append(guess[0])
        how.add(guess[1])
    whole, estimate = (
        Pairs.summed(
            n,
            *(
                np.concatenate(column)
                for column in zip(*((*p.ends, p.volume) for p in pairs), strict=True)
            ),
        )
        for pairs in (true, estimated)
    )
    total = float(whole.volume.sum())
    if not total:
        return None
    share = np.clip(missing / total, 0.0, 1.0)
    used = np.unique(np.concatenate(whole.ends))
    before, after = _mean_length(whole, zoning.places), _mean_length(estimate, zoning.places)
    return AreaAccuracy(
        areas=zoning.name,
        level=zoning.level,
        n_areas=int(np.count_nonzero(used < n - 1)),
        basis=basis,
        estimate=EVEN if EVEN in how else RECONSTRUCTION,
        misplaced=differences / total / 2,
        misplaced_together=_differences(whole, estimate) / total / 2 if several else None,
        area_error=float(share[0]),
        production_error=float(share[1]),
        attraction_error=float(share[2]),
        trip_length_ratio=after / before if before and after is not None else None,
        accessibility_error=_accessibility_error(whole, estimate, zoning.places),
    )


def _missing(true: Pairs, guess: Pairs) -> Floats:
    """Returns the missing volume between areas, in origins, and in destinations."""
    missing = [float(np.maximum(true.volume - guess.at(true), 0.0).sum())]
    for true_end, guess_end in zip(true.ends, guess.ends, strict=True):
        here = np.bincount(true_end, weights=true.volume, minlength=true.n)
        there = np.bincount(guess_end, weights=guess.volume, minlength=true.n)
        missing.append(float(np.maximum(here - there, 0.0).sum()))
    return np.array(missing)


def _differences(true: Pairs, guess: Pairs) -> float:
    """Returns the sum of absolute differences over all pairs of areas."""
    _, pair = np.unique(np.concatenate((true.key, guess.key)), return_inverse=True)
    volumes = np.concatenate((true.volume, -guess.volume))
    return float(np.abs(np.bincount(pair, weights=volumes)).sum())


def _mean_length(pairs: Pairs, places: Floats) -> float | None:
    """Returns the mean distance in km between areas with known places, weighted by volume."""
    origin, destination = pairs.ends
    known = (origin < len(places)) & (destination < len(places))
    a, b, volume = places[origin[known]], places[destination[known]], pairs.volume[known]
    placed = ~np.isnan(a[:, 0]) & ~np.isnan(b[:, 0])
    a, b, volume = a[placed], b[placed], volume[placed]
    if not volume.sum() > 0:
        return None
    return float(np.average(kilometres(*a.T, *b.T), weights=volume))


def _accessibility_error(true: Pairs, guess: Pairs, places: Floats) -> float | None:
    length = _mean_length(true, places)
    used = np.unique(np.concatenate(true.ends))
    used = used[used < len(places)]
    used = used[~np.isnan(places[used, 0])]
    if not length or len(used) > MOST_AREAS:
        return None
    lat, lon = places[used].T
    decay = np.exp(-kilometres(lat[:, None], lon[:, None], lat, lon) / length)
    attracted = [
        np.bincount(pairs.ends[1], weights=pairs.volume, minlength=true.n)[used]
        for pairs in (true, guess)
    ]
    before, after = (decay @ volume for volume in attracted)
    begun = np.bincount(true.ends[0], weights=true.volume, minlength=true.n)[used]
    if not begun.sum():
        return None
    return float(np.average(np.abs(after - before) / before, weights=begun))
