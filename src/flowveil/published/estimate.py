"""estimate.parquet: the flows of a release between areas of one public size, with their ranges.

A pure function of the published cells and the map. It is what the page shows, and what a reader who
wants a plain matrix of exact areas needs. An estimate is never a count: each row has the range that
the cells allow (docs/reports-and-exports.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.arrays import Floats, Outlines
from flowveil.core.errors import ParameterError
from flowveil.core.hierarchy import OUTSIDE, Hierarchy
from flowveil.core.times import TIME
from flowveil.published.disaggregation import BOUNDS, VOLUMES, disaggregate
from flowveil.published.folds import Fold, folds_of, spread_over_values
from flowveil.published.maps import ENDS, zone_of_flow, zones_of
from flowveil.published.tables import add_up, split_slices
from flowveil.published.zone_overlaps import Overlap, h3_overlap, hexagon, sum_by
from flowveil.release.statement import Published, Statement
from flowveil.zoning.public_map import H3Map, TreeMap

#: The fewest trips of a cell that are listed between two areas.
LEAST_TRIPS = 0.25
#: At least this share of the trips is in rows whose range is narrower than `NARROW` times the
#: estimate: the rule for the size of the areas.
KNOWN_SHARE, NARROW = 0.5, 0.5
#: Rows of cells and pairs of areas: a size that needs more is too fine. Takes 0.5 GB.
MOST_ROWS = 3_000_000


@dataclass(frozen=True, eq=False)
class Estimate:
    """The flows between areas of one size."""

    level: int  # the resolution of the H3 cells, or the level of the map
    hexagonal: bool  # whether areas are H3 cells
    # origin, destination [, time], trips, trips_low, trips_high [, weight, weight_low, weight_high]
    table: pa.Table
    ends: tuple[Overlap, Overlap]  # the areas that zones of each end touch
    tree: Hierarchy | None = None  # the map of the operator, where areas are its zones
    time: Fold | None = None  # the steps of the intervals of cells, where times fold

    def together(self) -> pa.Table:
        """Returns the volumes of all times together, sorted by both ends."""
        return add_up(self.table, ["origin", "destination"])[0]

    @property
    def codes(self) -> list[str]:
        """The areas that zones touch, sorted by code."""
        return sorted({code for over in self.ends for code in over.codes.tolist()})

    def places(self, codes: list[str]) -> tuple[Outlines, Floats, Floats]:
        """Returns outline, latitude and longitude of areas; None and NaN where unknown."""
        outlines, lat, lon = np.full(len(codes), None), *np.full((2, len(codes)), np.nan)
        where = None if self.tree is None else self.tree.geography
        if self.hexagonal:
            # A zone between two resolutions that is too large to be spread is an area itself.
            plain = [code not in (OUTSIDE, "all") and "." not in code for code in codes]
            outlines[plain] = [hexagon(codes[at]) for at in np.flatnonzero(plain)]
        elif self.tree is not None and where is not None:
            nodes = np.array([self.tree.node_of_code[code] for code in codes], dtype=np.int32)
            polygons = where.polygons(nodes)
            outlines = outlines if polygons is None else polygons
            lat, lon = where.centers(nodes)
        for over in self.ends:
            if self.hexagonal and over.lat is not None and over.lon is not None:
                at = np.searchsorted(codes, over.codes)
                lat[at], lon[at] = over.lat, over.lon
        return outlines, lat, lon

    def names(self, codes: list[str]) -> list[str | None]:
        """Returns the names of areas on the operator's map."""
        if self.tree is None or self.tree.names is None:
            return [None] * len(codes)
        return [self.tree.names[self.tree.node_of_code[code]] or None for code in codes]


def estimate(published: Published, zones: pa.Table) -> Estimate | None:
    """Returns the estimate between the finest areas of which enough is known.

    That is the finest public size at which at least `KNOWN_SHARE` of the trips are in rows whose
    range is narrower than `NARROW` times the estimate. None where no range follows from the cells:
    counts are noisy, zones are boxes, or the release belongs to no map.
    """
    statement = published.statement
    if statement.facets.is_noisy or statement.boxes is not None:
        return None
    cells = published.cells
    by_time = TIME in statement.facets.dimensions
    folds = folds_of(cells, statement.parameters)
    time = next((fold for fold in folds if fold.name == TIME), None)
    for level, ends, tree in _sizes(published, cells, zones):
        if not _may_be_known(cells, ends):
            continue
        try:
            # Ranges of fewer rows are narrower: a size that fails with them fails.
            if _known_share(_between(cells, ends, statement, ranges=False)) < KNOWN_SHARE:
                continue
            table = _between(cells, ends, statement, ranges=True)
            if _known_share(table) < KNOWN_SHARE:
                continue
            table = table if time is None else _by_time(cells, ends, time)
        except ParameterError:  # too many rows
            continue
        else:
            named = _named(table, ends, by_time=by_time)
            return Estimate(level, isinstance(published.map, H3Map), named, ends, tree, time)
    return None


def _sizes(
    published: Published, cells: pa.Table, zones: pa.Table
) -> Iterator[tuple[int, tuple[Overlap, Overlap], Hierarchy | None]]:
    """Yields the public sizes of areas, the finest first, with the overlaps at both ends."""
    if isinstance(published.map, H3Map):
        resolution = published.map.resolution
        for level in range(min(_typical_level(cells, zones) + 1, resolution), -1, -1):
            origins, destinations = (
                h3_overlap(zones, end, level=level, resolution=resolution) for end in ENDS
            )
            yield level, (origins, destinations), None
    elif isinstance(published.map, TreeMap):
        tree = published.map.tree
        for level in range(int(tree.level.max()), int(tree.level.min()) - 1, -1):
            origins, destinations = (tree_overlap(tree, zones, end, level) for end in ENDS)
            yield level, (origins, destinations), tree


def _typical_level(cells: pa.Table, zones: pa.Table) -> int:
    """Returns the level that half of the ends of trips are known at, or a finer one."""
    levels, volumes = [], []
    for end in ENDS:
        listed = zones_of(zones, end)
        levels.append(listed["level"].to_numpy().astype(np.int64)[zone_of_flow(cells, listed, end)])
        volumes.append(cells["trips"].to_numpy())
    level, volume = np.concatenate(levels), np.concatenate(volumes)
    order = np.argsort(level, kind="stable")
    return max(int(level[order][np.searchsorted(np.cumsum(volume[order]), volume.sum() / 2)]), 0)


def tree_overlap(tree: Hierarchy, zones: pa.Table, end: str, level: int) -> Overlap:
    """Returns the overlap of the zones of an end with the zones of a level of the operator's map,
    in tiles. A tile above the level is an area.
    """
    codes = zones_of(zones, end)["zone"].to_pylist()
    node = np.array([tree.node_of_code[code] for code in codes], dtype=np.int64)
    area = tree.leaf_node.astype(np.int64)
    while True:
        parent = np.maximum(tree.parent[area], 0)
        # A part of a zone has the level of the zone.
        low = (tree.level[area] > level) | (
            (tree.parent[area] >= 0) & (tree.level[parent] == tree.level[area])
        )
        if not low.any():
            break
        area = np.where(low, parent, area)
    start, stop = tree.leaf_start[node].astype(np.int64), tree.leaf_stop[node].astype(np.int64)
    zone = np.repeat(np.arange(len(node)), stop - start)
    leaf = np.arange(len(zone)) - np.repeat(np.cumsum(stop - start) - stop, stop - start)
    areas = np.unique(area)
    texts = tree.code_text(areas.astype(np.int32))
    size = dict(zip(texts.tolist(), tree.size[areas].astype(np.float64).tolist(), strict=True))
    codes_of = texts[np.searchsorted(areas, area[leaf])]
    overlap = Overlap.of(codes, zone, codes_of, np.ones(len(zone)), size)
    centers = None if tree.geography is None else tree.geography.centers(areas.astype(np.int32))
    places = (
        {}
        if centers is None
        else dict(zip(texts.tolist(), zip(*centers, strict=True), strict=True))
    )
    return overlap.placed(places)


def _may_be_known(cells: pa.Table, ends: tuple[Overlap, Overlap]) -> bool:
    """Whether the cells inside one pair of areas have enough trips: a row with a narrow range has
    more than half of its trips in them.
    """
    whole = np.ones(len(cells), dtype=np.bool_)
    for end, over in zip(ENDS, ends, strict=True):
        alone = (np.diff(over.first) == 1) & ~over.partial
        whole &= alone[over.numbers(cells[f"{end}_zone"])]
    trips = cells["trips"].to_numpy()
    return bool(2 * trips[whole].sum() >= KNOWN_SHARE * trips.sum())


def _between(
    cells: pa.Table,
    ends: tuple[Overlap, Overlap],
    statement: Statement,
    *,
    ranges: bool,
) -> dict[str, Any]:
    """Returns columns by number: ``pair``, ``time`` (a label or None), volumes and bounds.

    Slices of other columns, and folds, are added up. Pairs without trips are listed as well.
    """
    others = [name for name in statement.slice_columns if name != TIME]
    # Cells of different values may cover one pair of areas, so that layers say nothing there.
    folded = statement.facets.folds or bool(others)
    how: dict[str, Any] = {"most_rows": MOST_ROWS, "least": LEAST_TRIPS, "ranges": ranges}
    tables: list[dict[str, Any]] = []
    for key, rows in split_slices(cells, [TIME] if TIME in statement.slice_columns else []):
        one = disaggregate(rows, *ends, folded=folded, **how)
        time = np.full(len(one.origin), key.get(TIME), dtype=object)
        pair = one.origin * len(ends[1].codes) + one.destination
        tables.append({"time": time, "pair": pair, **one.values, **one.bounds})
    return {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}


def _by_time(cells: pa.Table, ends: tuple[Overlap, Overlap], time: Fold) -> dict[str, Any]:
    """Returns the same columns for each step of the intervals of cells; other folds are added
    up.
    """
    how: dict[str, Any] = {"most_rows": MOST_ROWS, "least": LEAST_TRIPS}
    one = spread_over_values(cells, *ends, [time], **how)
    pair = one.origin * len(ends[1].codes) + one.destination
    labels = np.array(time.labels, dtype=object)
    return {"time": labels[one.of[0]], "pair": pair, **one.values, **one.bounds}


def _known_share(table: dict[str, Any]) -> float:
    """The share of trips between pairs of areas whose range is narrow."""
    pair, at = np.unique(table["pair"], return_inverse=True)
    trips, low, high = (sum_by(at, table[name], len(pair)) for name in ("trips", *BOUNDS["trips"]))
    narrow = high - low < NARROW * trips
    return float(trips[narrow].sum() / max(trips.sum(), 1e-9))


def _named(table: dict[str, Any], ends: tuple[Overlap, Overlap], *, by_time: bool) -> pa.Table:
    """Returns the rows with trips as a table, sorted by origin, destination and time."""
    listed = np.flatnonzero(np.round(table["trips"], 2) > 0)
    origins, destinations = ends
    pair = table["pair"][listed]
    # Hundredths, so that bytes do not depend on how a machine rounds sums.
    columns: dict[str, Any] = {
        "origin": origins.codes[pair // len(destinations.codes)].tolist(),
        "destination": destinations.codes[pair % len(destinations.codes)].tolist(),
    }
    if by_time:
        columns["time"] = pa.array(table["time"][listed].tolist(), pa.string())
    for name in VOLUMES:
        if name in table:
            low, high = BOUNDS[name]
            whole = name == "trips"
            columns[name] = np.round(table[name][listed], 2)
            for bound in (low, high):
                values = np.round(table[bound][listed], 2)
                columns[bound] = values.astype(np.int64) if whole else values
    keys = [name for name in ("origin", "destination", "time") if name in columns]
    made = pa.table(columns)
    order = pc.sort_indices(made, sort_keys=[(name, "ascending") for name in keys])
    return made.take(order).combine_chunks()
