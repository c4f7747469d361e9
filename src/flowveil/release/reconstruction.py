"""Reconstruction: published cells spread onto a zoning of choice (Matet et al., section 4.3 and appendix H).

Slices are generalised each in its own way, and a reader has zones of interest of her own. With nothing else known, the
best estimate of the flow between two areas takes the volume of a cell to be evenly spread over its pairs of tiles.
Reconstructed onto a common zoning, slices can be compared and added.

A cell's share of a pair of areas is the product of its shares at the two ends, so the ends are spread one after the
other: cells over origin areas, what comes of it over destination areas. Pairs of tiles are never listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import group_pairs
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.release.zones import NodeZones, Zones

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.release.release import Release

#: More rows than this in between are refused: the zoning asked for is too fine for cells that coarse.
MOST_ROWS = 100_000_000


@dataclass(frozen=True, eq=False)
class Zoning:
    """A partition of the tiles at each end into areas.

    Attributes:
        origin_area, destination_area: the area of each tile; -1 for tiles outside all areas.
        origin_codes, destination_codes: the names of the areas.
    """

    origin_area: Ints
    destination_area: Ints
    origin_codes: NDArray[np.str_]
    destination_codes: NDArray[np.str_]

    @classmethod
    def at_level(cls, origins: Hierarchy, destinations: Hierarchy, level: int) -> Zoning:
        """The nodes of one level (the resolution, for H3); tiles that end above it are separate areas."""
        (area_o, codes_o), (area_d, codes_d) = _level(origins, level), _level(destinations, level)
        return cls(area_o, area_d, codes_o, codes_d)

    @classmethod
    def of_cuts(cls, origins: Hierarchy, destinations: Hierarchy, origin_cut: Ints, destination_cut: Ints) -> Zoning:
        """The zones of two cuts."""
        return cls(
            origins.zone_of_tile(origin_cut),
            destinations.zone_of_tile(destination_cut),
            origins.code_text(origin_cut),
            destinations.code_text(destination_cut),
        )

    @classmethod
    def of_release(cls, release: Release) -> Zoning:
        """The zones of another release, which must not overlap."""
        plan, flows = release.plan, release.input
        if not plan.homogeneous or not isinstance(plan.origin_zones, NodeZones):
            raise ParameterError(
                "These zones cannot serve as a zoning, because they overlap. "
                "Hint: name a level, or a homogeneous release."
            )
        if not isinstance(plan.destination_zones, NodeZones):
            raise ParameterError("These zones cannot serve as a zoning: they are not nodes of a tree.")
        return cls.of_cuts(flows.origins, flows.destinations, plan.origin_zones.nodes, plan.destination_zones.nodes)


def _level(tree: Hierarchy, level: int) -> tuple[Ints, NDArray[np.str_]]:
    node = tree.leaf_node.copy()
    for _ in range(tree.max_depth):
        # Not below the level, and not a part of a zone of this level.
        above = (tree.parent[node] >= 0) & (tree.level[tree.lift(node)] >= level)
        node = np.where(above, tree.lift(node), node)
    cut, area = np.unique(node, return_inverse=True)
    return area.astype(np.int32), tree.code_text(cut.astype(np.int32))


def zoning_of(release: Release, zones: Any) -> Zoning:
    """What users may name as a zoning: a level, another release, a pair of cuts, or a Zoning."""
    flows = release.input
    if isinstance(zones, Zoning):
        return zones
    if isinstance(zones, int | np.integer) and not isinstance(zones, bool):
        return Zoning.at_level(flows.origins, flows.destinations, int(zones))
    if hasattr(zones, "plan"):
        return Zoning.of_release(zones)
    if isinstance(zones, Sequence) and len(zones) == 2:
        cuts = [np.asarray(cut, dtype=np.int32) for cut in zones]
        flows.origins.check_cut(cuts[0])
        flows.destinations.check_cut(cuts[1])
        return Zoning.of_cuts(flows.origins, flows.destinations, cuts[0], cuts[1])
    raise ParameterError(
        f"{type(zones).__name__} is not a zoning. Allowed: a level (for H3 the resolution), a release whose zones do "
        "not overlap, a pair of cuts, or a Zoning."
    )


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Estimated flows between areas, one row for each pair that has any.

    Attributes:
        zoning: the areas.
        origin, destination: numbers of the areas.
        trips: estimated trips; not whole.
        weight: estimated weight, where there are weights.
    """

    zoning: Zoning
    origin: Ints
    destination: Ints
    trips: Floats
    weight: Floats | None

    @property
    def table(self) -> pa.Table:
        """``origin_zone``, ``destination_zone``, ``trips`` and, where known, ``weight``."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "origin_zone": pa.array(self.zoning.origin_codes[self.origin].tolist(), pa.string()),
            "destination_zone": pa.array(self.zoning.destination_codes[self.destination].tolist(), pa.string()),
            "trips": self.trips,
        }
        if self.weight is not None:
            columns["weight"] = self.weight
        return pa.table(columns)

    def volume(self, origin: int, destination: int, *, basis: str = "trips") -> float:
        """The estimated volume from one area to another."""
        at = (self.origin == origin) & (self.destination == destination)
        values = self.trips if basis == "trips" or self.weight is None else self.weight
        return float(values[at].sum())


def reconstruct(release: Release, zones: Any) -> Reconstruction:
    """Spread the published cells of a release evenly over their tiles and add up by area.

    Guaranteed: where areas hold every tile, the total is that of the published cells; where every cell is in one pair
    of areas, the result is exact.

    Raises:
        ParameterError: this is not a zoning, its zones are not nodes of the tree, or it is too fine.
    """
    zoning = zoning_of(release, zones)
    cells, plan, flows = release.cells, release.plan, release.input
    origin = _shares(plan.origin_zones, flows.origins, zoning.origin_area, cells.origin)
    rows, area_o, share = origin.spread(cells.origin)
    n_o, n_d = len(zoning.origin_codes), len(plan.destination_zones)
    half = group_pairs(area_o, cells.destination[rows], n_o, n_d)
    trips = half.sum(cells.trips[rows] * share)
    weight = None if cells.weight is None else half.sum(cells.weight[rows] * share)
    destination = _shares(plan.destination_zones, flows.destinations, zoning.destination_area, half.destination)
    rows, area_d, share = destination.spread(half.destination)
    whole = group_pairs(half.origin[rows], area_d, n_o, len(zoning.destination_codes))
    return Reconstruction(
        zoning=zoning,
        origin=whole.origin,
        destination=whole.destination,
        trips=whole.sum(trips[rows] * share),
        weight=None if weight is None else whole.sum(weight[rows] * share),
    )


@dataclass(frozen=True, eq=False)
class _Shares:
    """For each zone, the areas that contain it and its share in each, as slices of two arrays."""

    start: NDArray[np.int64]
    area: Ints
    share: Floats

    def spread(self, zone: Ints) -> tuple[NDArray[np.int64], Ints, Floats]:
        """Repeat rows over the areas of their zones: which row, which area, which share."""
        length = np.diff(self.start)[zone]
        n = int(length.sum())
        if n > MOST_ROWS:
            raise ParameterError(
                f"The zoning is too fine for these cells: {n:,} pairs would have to be spread, allowed are "
                f"{MOST_ROWS:,}. Hint: use larger areas."
            )
        rows = np.repeat(np.arange(len(zone)), length)
        ahead = np.repeat(np.cumsum(length) - length, length)
        at = np.repeat(self.start[zone], length) + np.arange(n) - ahead
        return rows, self.area[at], self.share[at]


def _shares(zones: Zones, tree: Hierarchy, area_of_tile: Ints, used: Ints) -> _Shares:
    if not isinstance(zones, NodeZones):
        raise ParameterError("Only zones that are nodes of a tree can be reconstructed onto other zones.")
    present = np.flatnonzero(np.bincount(used, minlength=len(zones)))
    node = zones.nodes[present]
    length = tree.size[node].astype(np.int64)
    zone = np.repeat(present, length)
    ahead = np.repeat(np.cumsum(length) - length, length)
    tile = np.repeat(tree.leaf_start[node].astype(np.int64), length) + np.arange(int(length.sum())) - ahead
    area = area_of_tile[tile]
    inside = area >= 0
    groups = group_pairs(zone[inside].astype(np.int32), area[inside], len(zones), int(area_of_tile.max()) + 1)
    tiles = np.bincount(groups.row, minlength=len(groups.origin))
    start = np.searchsorted(groups.origin, np.arange(len(zones) + 1))
    return _Shares(start=start, area=groups.destination, share=tiles / zones.size[groups.origin])
