"""The planner's error: how many trips a reader of the release misses or misplaces between areas.

A reader spreads the published cells over their zones (`flowveil.release.spreading`) and sums them by area: H3 cells of
one level, the levels of the user's own map, or districts given as polygons. The estimate is compared with all input
trips. Everything here is computed from raw trips, so it is private.

Definitions, where V is the input volume, v the volume of a pair of areas and w its estimate:

- ``area_error``: sum over pairs of max(v - w, 0) / V, from 0 to 1;
- ``production_error``, ``attraction_error``: the same for the volume that begins, and that ends, in each area;
- ``trip_length_ratio``: mean distance between the centres of the two areas, estimate over input, between areas in which
  input trips begin or end;
- ``accessibility_error``: mean over trips of the relative error of the accessibility of the area where they begin. The
  accessibility of an area is the volume that ends in every area times exp(-distance / mean trip length of the input).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import Flows, group_pairs
from flowveil.hierarchy import OUTSIDE, OUTSIDE_CELL, Floats, Hierarchy
from flowveil.zoning.h3 import n_descendants, parent_of, resolution_of

if TYPE_CHECKING:
    from flowveil.release.release import Publishable

#: H3 resolutions between which planners compare: areas about 1, 3 and 7 km across.
LEVELS = (8, 7, 6)
#: The level of tables that show one.
PLANNING_LEVEL = 7
#: An estimate with more rows is not made, and a matrix of more areas is not compared for accessibility.
MOST_ROWS, MOST_AREAS = 3_000_000, 4_000
_EARTH_KM = 6371.0088

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AreaAccuracy:
    """How well a reader knows the trips between the areas of one zoning. See the module for the definitions.

    Attributes:
        areas: what the areas are.
        level: of the tree: for H3 the resolution; None for districts.
        n_areas: areas in which input trips begin or end.
        basis: what is counted, trips or weight.
    """

    areas: str
    level: int | None
    n_areas: int
    basis: str
    area_error: float
    production_error: float
    attraction_error: float
    trip_length_ratio: float | None
    accessibility_error: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Zoning:
    """Areas that trips are summed by.

    Attributes:
        name, level: see `AreaAccuracy`.
        codes: the areas.
        places: latitude and longitude of their centres; not a number where it is unknown.
        origin, destination: the area of each tile of the two ends; -1 outside all areas.
    """

    name: str
    level: int | None
    codes: list[str]
    places: Floats
    origin: Numbers
    destination: Numbers
    outlines: NDArray[np.object_] | None = None


def area_accuracy(
    release: Publishable, *, districts: Any = None, levels: Sequence[int] | None = None, basis: str = "trips"
) -> list[AreaAccuracy]:
    """The planner's errors of a release, for each zoning that can be compared.

    Args:
        release: of one matrix or of slices, exact or noisy. Each of the finest slices is compared with its own trips.
        districts: a ZoneMap with outlines: its tiles are the areas, besides the levels.
        levels: H3 resolutions, or levels of the user's map; `default_levels` by default.
        basis: trips or weight.
    """
    parts, absent = finest_parts(release)
    if not parts or any(len(flows) == 0 for flows, _ in parts):
        return []
    flows = parts[0][0]
    wanted = default_levels(flows) if levels is None else levels
    zonings = [zoning_at(flows, level) for level in wanted]
    if districts is not None:
        zonings.append(zoning_of_districts(flows, districts))
    found = (_accuracy(parts, absent, zoning, basis) for zoning in zonings if zoning is not None)
    return [one for one in found if one is not None]


def main_level(levels: Iterable[int]) -> int | None:
    """The level of tables that show one: `PLANNING_LEVEL`, or the nearest to it."""
    return min(levels, key=lambda level: abs(level - PLANNING_LEVEL), default=None)


def main_accuracy(found: Sequence[AreaAccuracy]) -> AreaAccuracy | None:
    """The entry of the level that tables show."""
    level = main_level(one.level for one in found if one.level is not None)
    return next((one for one in found if level is not None and one.level == level), None)


def default_levels(flows: Flows) -> list[int]:
    """`LEVELS` that are coarser than the tiles; for other trees, and coarse tiles, the two levels above the tiles."""
    tree = flows.origins
    if tree.kind == "dendrogram":
        return []
    finest = int(tree.level[tree.leaf_node].max())
    fixed = [level for level in LEVELS if level < finest] if _is_h3(tree) else []
    top = -1 if _is_h3(tree) else int(tree.level[0])
    return fixed or [level for level in (finest - 1, finest - 2) if level > top]


def finest_parts(release: Any) -> tuple[list[tuple[Flows, Any]], list[Flows]]:
    """The matrices that share no trips, each with its input, and the input of slices that are not published."""
    if not release.slice_columns:
        return [(release.input, release)], []
    published = dict(release.parts)
    own = [(flows, published[key]) for key, flows in release.input if key in published]
    return own, [flows for key, flows in release.input if key not in published]


# ---- areas -------------------------------------------------------------------------------------------------------


def zoning_at(flows: Flows, level: int) -> Zoning | None:
    """The areas of a level; None for a tree that has no map to compare on."""
    trees = (flows.origins, flows.destinations)
    if all(_is_h3(tree) for tree in trees):
        cells = [_lifted(tree.code[tree.leaf_node], level) for tree in trees]
        used, number = np.unique(np.concatenate(cells), return_inverse=True)
        codes = [OUTSIDE if cell == OUTSIDE_CELL else format(cell, "x") for cell in used.tolist()]
        none = (float("nan"), float("nan"))
        places = np.array([none if cell == OUTSIDE_CELL else h3_cells.cell_to_latlng(cell) for cell in used.tolist()])
        ends = np.split(number, [trees[0].n_tiles])
        return Zoning(f"H3 resolution {level}", level, codes, places, ends[0], ends[1])
    whole = flows.whole_map
    if whole is None:
        return None
    top = _nodes_at(whole, level)
    area_of_code = dict(zip(whole.code_text(whole.leaf_node).tolist(), top.tolist(), strict=True))
    nodes = [np.array([area_of_code[code] for code in tree.code_text(tree.leaf_node).tolist()]) for tree in trees]
    used, number = np.unique(np.concatenate(nodes), return_inverse=True)
    places = np.full((len(used), 2), np.nan)
    if whole.geography is not None:
        places = np.stack(whole.geography.centers(used.astype(np.int32)), axis=1)
    ends = np.split(number, [trees[0].n_tiles])
    codes = whole.code_text(used.astype(np.int32)).tolist()
    return Zoning(f"level {level} of the map", level, codes, places, ends[0], ends[1])


def zoning_of_districts(flows: Flows, districts: Any) -> Zoning:
    """Polygons of the user as areas; a tile belongs to the district around its centre.

    Raises:
        ParameterError: the districts have no outlines, or the tiles no places.
    """
    tree = districts.hierarchy
    trees = (flows.origins, flows.destinations)
    if tree.geography is None or districts.locator is None or any(end.geography is None for end in trees):
        raise ParameterError(
            "Districts need outlines, and tiles whose place is known. Hint: a GeoJSON file of polygons."
        )
    outlines = np.asarray(tree.geography.polygons(tree.leaf_node), dtype=object)
    index = shapely.STRtree(outlines)
    ends = []
    for end in trees:
        assert end.geography is not None
        lat, lon = end.geography.centers(end.leaf_node)
        area = np.full(end.n_tiles, -1, dtype=np.int64)
        known = np.flatnonzero(~np.isnan(lat))
        tile, district = index.query(shapely.points(lon[known], lat[known]), predicate="intersects")
        area[known[tile[::-1]]] = district[::-1]
        ends.append(area)
    places = np.stack(tree.geography.centers(tree.leaf_node), axis=1)
    codes = districts.tile_codes.astype(np.str_).tolist()
    return Zoning("districts", None, codes, places, ends[0], ends[1], outlines)


def _is_h3(tree: Hierarchy) -> bool:
    return tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64


def _lifted(cells: NDArray[Any], level: int) -> NDArray[np.uint64]:
    outside = np.uint64(OUTSIDE_CELL)
    return np.where(cells == outside, outside, parent_of(cells, level))


def _nodes_at(tree: Hierarchy, level: int) -> NDArray[Any]:
    """The node of a level above each tile; a tile that ends above the level is its own area."""
    node = tree.leaf_node.copy()
    for _ in range(tree.max_depth):
        above = (tree.parent[node] >= 0) & (tree.level[tree.lift(node)] >= level)
        node = np.where(above, tree.lift(node), node)
    return node


# ---- the estimate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Volumes of pairs of areas: sorted distinct keys ``origin * n + destination``. -1 is no area."""

    n: int
    key: Numbers
    volume: Floats

    @classmethod
    def summed(cls, n: int, origin: Any, destination: Any, volume: Any) -> _Pairs:
        key = np.asarray(origin, dtype=np.int64) * n + destination
        used, at = np.unique(key, return_inverse=True)
        return cls(n, used, np.bincount(at, weights=volume, minlength=len(used)).astype(np.float64, copy=False))

    @property
    def ends(self) -> tuple[Numbers, Numbers]:
        return self.key // self.n, self.key % self.n

    def at(self, other: _Pairs) -> Floats:
        """The volume of each pair of another table; 0 where there is none."""
        if len(self.key) == 0:
            return np.zeros(len(other.key))
        place = np.minimum(np.searchsorted(self.key, other.key), len(self.key) - 1)
        return np.where(self.key[place] == other.key, self.volume[place], 0.0)


def _true_pairs(flows: Flows, zoning: Zoning, basis: str) -> _Pairs:
    # The last number is that of tiles outside all areas.
    n = len(zoning.codes) + 1
    origin, destination = zoning.origin[flows.origin] % n, zoning.destination[flows.destination] % n
    return _Pairs.summed(n, origin, destination, flows.volume(basis).astype(np.float64))


def _estimated_pairs(release: Any, flows: Flows, zoning: Zoning, basis: str) -> _Pairs | None:
    """What a reader of the two tables gets; None where it would need too many rows, or zones have no place."""
    table = release.flows
    if basis not in table.column_names:
        return None
    shares = [_shares(release, flows, zoning, end) for end in ("origin", "destination")]
    if shares[0] is None or shares[1] is None:
        return None
    return _spread(table, shares[0], shares[1], len(zoning.codes) + 1, basis)


@dataclass(frozen=True, eq=False)
class _Shares:
    """Of each zone of an end, the areas that it lies in, and how much of it: rows sorted by zone."""

    codes: pa.Array
    start: Numbers
    area: Numbers
    share: Floats

    @classmethod
    def from_parts(cls, codes: pa.Array, zone: Numbers, area: Numbers, size: Floats, n: int) -> _Shares:
        """From parts of zones with their sizes; what of a zone lies in no area goes to the last number."""
        pairs = group_pairs(zone.astype(np.int32), (area % n).astype(np.int32), len(codes), n)
        size = pairs.sum(size)
        whole = np.bincount(pairs.origin, weights=size, minlength=len(codes))
        start = np.searchsorted(pairs.origin, np.arange(len(codes) + 1))
        return cls(codes, start, pairs.destination.astype(np.int64), size / np.maximum(whole[pairs.origin], 1e-300))

    def spread(self, zone: Any) -> tuple[Numbers, Numbers, Floats] | None:
        """Repeats rows over the areas of their zones; None where there would be too many."""
        length = np.diff(self.start)[zone]
        n = int(length.sum())
        if n > MOST_ROWS:
            return None
        rows = np.repeat(np.arange(len(zone)), length)
        at = np.repeat(self.start[zone] - np.cumsum(length) + length, length) + np.arange(n)
        return rows, self.area[at], self.share[at]


def _spread(table: pa.Table, origin: _Shares, destination: _Shares, n: int, basis: str) -> _Pairs | None:
    zone_o = pc.index_in(table["origin_zone"], value_set=origin.codes).to_numpy()
    zone_d = pc.index_in(table["destination_zone"], value_set=destination.codes).to_numpy()
    first = origin.spread(zone_o)
    if first is None:
        return None
    rows, area_o, share = first
    half = group_pairs(area_o.astype(np.int32), zone_d[rows].astype(np.int32), n, len(destination.codes))
    volume = half.sum(table[basis].to_numpy()[rows] * share)
    second = destination.spread(half.destination)
    if second is None:
        return None
    rows, area_d, share = second
    return _Pairs.summed(n, half.origin[rows], area_d, volume[rows] * share)


def _shares(release: Any, flows: Flows, zoning: Zoning, end: str) -> _Shares | None:
    """By tiles of the user's map, or by the area of intersections: of boxes, and with districts."""
    zones = release.zones.filter(pc.is_in(release.zones["role"], value_set=pa.array([end, "both"])))
    codes, n = zones["zone"].combine_chunks(), len(zoning.codes) + 1
    if zoning.outlines is None and "h3_cells" in zones.column_names:
        # Of all tiles, the finest: a map that was given may have several resolutions.
        resolution = int(flows.origins.level[flows.origins.leaf_node].max())
        return _shares_of_cells(codes, zones["h3_cells"].to_pylist(), zoning, resolution)
    tree = flows.whole_map
    if zoning.outlines is None and tree is not None and release.kind != "boxed":
        node = {code: i for i, code in enumerate(tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist())}
        at = np.array([node[code] for code in codes.to_pylist()])
        length = tree.size[at].astype(np.int64)
        zone = np.repeat(np.arange(len(at)), length)
        leaf = np.repeat(tree.leaf_start[at] - np.cumsum(length) + length, length) + np.arange(int(length.sum()))
        names = tree.code_text(_nodes_at(tree, zoning.level or 0)).tolist()
        number = {code: i for i, code in enumerate(zoning.codes)}
        area = np.array([number.get(name, -1) for name in names])
        return _Shares.from_parts(codes, zone, area[leaf], np.ones(len(leaf)), n)
    outlines = zoning.outlines if zoning.outlines is not None else _outlines_of(zoning)
    if zones["geometry"].null_count == len(zones) or outlines is None:
        return None
    return _shares_by_intersection(codes, shapely.from_wkb(zones["geometry"].to_pylist()), outlines, n)


def _shares_of_cells(codes: pa.Array, zones: list[list[str]], zoning: Zoning, resolution: int) -> _Shares:
    """By possible tiles, as `flowveil.release.spreading` does. Areas without input trips count as outside."""
    level, n = zoning.level or 0, len(zoning.codes) + 1
    outside = np.uint64(OUTSIDE_CELL)
    areas = np.array([outside if code == OUTSIDE else int(code, 16) for code in zoning.codes], dtype=np.uint64)
    zone = np.repeat(np.arange(len(zones)), [max(len(cells), 1) for cells in zones])
    cell = np.array([int(c, 16) for cells in zones for c in cells or [format(OUTSIDE_CELL, "x")]], dtype=np.uint64)
    tiles = n_descendants(cell, resolution).astype(np.float64)
    own = resolution_of(cell)
    fine = (own >= level) | (cell == outside)
    above = np.where(cell == outside, outside, parent_of(cell, level))
    at = np.minimum(np.searchsorted(areas, above), len(areas) - 1)
    area = np.where(fine & (areas[at] == above), at, -1)
    parts = [(zone[fine], area[fine], tiles[fine])]
    for step in np.unique(own[~fine]).tolist():
        rows = np.flatnonzero(~fine & (own == step))
        # Areas below a cell are consecutive: their order is that of the tree.
        lifted = np.where(areas == outside, outside, parent_of(areas, step))
        order = np.argsort(lifted, kind="stable")
        first = np.searchsorted(lifted[order], cell[rows], side="left")
        length = np.searchsorted(lifted[order], cell[rows], side="right") - first
        inside = order[np.repeat(first - np.cumsum(length) + length, length) + np.arange(int(length.sum()))]
        size = n_descendants(areas[inside], resolution).astype(np.float64)
        row = np.repeat(np.arange(len(rows)), length)
        rest = tiles[rows] - np.bincount(row, weights=size, minlength=len(rows))
        parts += [(zone[rows[row]], inside, size), (zone[rows], np.full(len(rows), -1), rest)]
    found = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    kept = found[2] > 0
    return _Shares.from_parts(codes, found[0][kept], found[1][kept], found[2][kept], n)


def _outlines_of(zoning: Zoning) -> NDArray[np.object_] | None:
    """The outlines of H3 areas, in longitude and latitude."""
    if not zoning.name.startswith("H3"):
        return None
    rings = [
        [] if code == OUTSIDE else [(lon, lat) for lat, lon in h3_cells.cell_to_boundary(int(code, 16))]
        for code in zoning.codes
    ]
    return np.array([shapely.Polygon(ring) for ring in rings], dtype=object)


def _shares_by_intersection(codes: pa.Array, outlines: Any, areas: NDArray[np.object_], n: int) -> _Shares | None:
    """Shares by area in degrees, which is proportional to the true area within a zone of a city."""
    zone, area = shapely.STRtree(areas).query(outlines, predicate="intersects")
    if len(zone) > MOST_ROWS:
        return None
    size = shapely.area(shapely.intersection(outlines[zone], areas[area]))
    whole = np.nan_to_num(shapely.area(outlines))
    inside = np.bincount(zone, weights=size, minlength=len(codes))
    # The rest of a zone lies in no area; a zone without an outline lies there altogether.
    rest = np.where(whole > 0, np.maximum(whole - inside, 0.0), 1.0)
    every = np.arange(len(codes))
    rest_rows = every[rest > 1e-9 * np.maximum(whole, 1e-300)]
    zone, area = np.concatenate((zone, rest_rows)), np.concatenate((area, np.full(len(rest_rows), -1)))
    return _Shares.from_parts(codes, zone, area, np.concatenate((size, rest[rest_rows])), n)


# ---- errors ------------------------------------------------------------------------------------------------------


def _accuracy(
    parts: Sequence[tuple[Flows, Any]], absent: Sequence[Flows], zoning: Zoning, basis: str
) -> AreaAccuracy | None:
    n, missing = len(zoning.codes) + 1, np.zeros(3)
    true, estimated = [], []
    for flows, release in parts:
        own = _true_pairs(flows, zoning, basis)
        guess = _estimated_pairs(release, flows, zoning, basis)
        if guess is None:
            return None
        missing += _missing(own, guess)
        true.append(own)
        estimated.append(guess)
    for flows in absent:
        own = _true_pairs(flows, zoning, basis)
        missing += own.volume.sum()
        true.append(own)
    whole, guess = _together(true, n), _together(estimated, n)
    total = float(whole.volume.sum())
    if not total:
        return None
    share = np.clip(missing / total, 0.0, 1.0)
    used = np.unique(np.concatenate(whole.ends))
    return AreaAccuracy(
        areas=zoning.name,
        level=zoning.level,
        n_areas=int(np.count_nonzero(used < n - 1)),
        basis=basis,
        area_error=float(share[0]),
        production_error=float(share[1]),
        attraction_error=float(share[2]),
        trip_length_ratio=_length_ratio(whole, guess, zoning.places),
        accessibility_error=_accessibility_error(whole, guess, zoning.places),
    )


def _together(pairs: Sequence[_Pairs], n: int) -> _Pairs:
    if len(pairs) == 1:
        return pairs[0]
    key = np.concatenate([one.key for one in pairs])
    return _Pairs.summed(n, key // n, key % n, np.concatenate([one.volume for one in pairs]))


def _missing(true: _Pairs, guess: _Pairs) -> Floats:
    """Volume that is missing between areas, where it begins, and where it ends."""
    between = float(np.maximum(true.volume - guess.at(true), 0.0).sum())
    found = [between]
    for true_end, guess_end in zip(true.ends, guess.ends, strict=True):
        here = np.bincount(true_end, weights=true.volume, minlength=true.n)
        there = np.bincount(guess_end, weights=guess.volume, minlength=true.n)
        found.append(float(np.maximum(here - there, 0.0).sum()))
    return np.array(found)


def _mean_length(pairs: _Pairs, places: Floats) -> float | None:
    """Mean distance in km between areas whose places are known, weighted by volume."""
    origin, destination = pairs.ends
    known = (origin < len(places)) & (destination < len(places))
    a, b, volume = places[origin[known]], places[destination[known]], pairs.volume[known]
    placed = ~np.isnan(a[:, 0]) & ~np.isnan(b[:, 0])
    a, b, volume = a[placed], b[placed], volume[placed]
    if not volume.sum() > 0:
        return None
    return float(np.average(_distance_km(a, b), weights=volume))


def _distance_km(a: Floats, b: Floats) -> Floats:
    """Great-circle distances between places (haversine formula)."""
    (lat_a, lon_a), (lat_b, lon_b) = np.moveaxis(np.radians(a), -1, 0), np.moveaxis(np.radians(b), -1, 0)
    half = np.sin((lat_b - lat_a) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_b - lon_a) / 2) ** 2
    found: Floats = 2 * _EARTH_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0)))
    return found


def _length_ratio(true: _Pairs, guess: _Pairs, places: Floats) -> float | None:
    before, after = _mean_length(true, places), _mean_length(guess, places)
    return None if not before or after is None else after / before


def _accessibility_error(true: _Pairs, guess: _Pairs, places: Floats) -> float | None:
    length = _mean_length(true, places)
    used = np.unique(np.concatenate(true.ends))
    used = used[used < len(places)]
    used = used[~np.isnan(places[used, 0])]
    if not length or len(used) > MOST_AREAS:
        return None
    here = places[used]
    decay = np.exp(-_distance_km(here[:, None], here[None, :]) / length)
    attracted = [np.bincount(pairs.ends[1], weights=pairs.volume, minlength=true.n)[used] for pairs in (true, guess)]
    before, after = (decay @ volume for volume in attracted)
    begun = np.bincount(true.ends[0], weights=true.volume, minlength=true.n)[used]
    if not begun.sum():
        return None
    return float(np.average(np.abs(after - before) / before, weights=begun))
