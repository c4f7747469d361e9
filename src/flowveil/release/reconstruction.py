"""Reconstruction: published cells spread evenly over their pairs of tiles (Matet et al., section 4.3 and appendix H).

Slices are generalised each in its own way. Reconstructed onto a common zoning, they can be compared and added. The two
ends are spread one after the other, because a cell's share of a pair of areas is the product of its shares at the ends:
pairs of tiles are never listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import group_pairs
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.release.plan import NodeZones, Zones

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.release.release import Release

#: More rows than this in between are refused: the zoning asked for is too fine for cells that coarse.
MOST_ROWS = 100_000_000


@dataclass(frozen=True, eq=False)
class Zoning:
    """A partition of the tiles at each end into areas."""

    origin_area: Ints  # the area of each tile; -1 for tiles outside all areas
    destination_area: Ints
    origin_codes: NDArray[np.str_]  # the names of the areas
    destination_codes: NDArray[np.str_]

    @classmethod
    def at_level(cls, origins: Hierarchy, destinations: Hierarchy, level: int) -> Zoning:
        """Returns the nodes of one level (the resolution, for H3); tiles that end above it are separate areas."""
        (cut_o, area_o), (cut_d, area_d) = (
            np.unique(nodes_at(tree, level), return_inverse=True) for tree in (origins, destinations)
        )
        codes = origins.code_text(cut_o.astype(np.int32)), destinations.code_text(cut_d.astype(np.int32))
        return cls(area_o.astype(np.int32), area_d.astype(np.int32), *codes)


def nodes_at(tree: Hierarchy, level: int) -> NDArray[Any]:
    """Returns the node of a level above each tile; a tile above the level is an area itself."""
    node = tree.leaf_node.copy()
    for _ in range(tree.max_depth):
        # Not below the level, and not a part of a zone of this level.
        above = (tree.parent[node] >= 0) & (tree.level[tree.lift(node)] >= level)
        node = np.where(above, tree.lift(node), node)
    return node


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Estimated flows between areas, one row for each pair that has any; trips are not whole."""

    zoning: Zoning  # the areas, which ``origin`` and ``destination`` number
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
        return pa.table(columns if self.weight is None else {**columns, "weight": self.weight})


def reconstruct(release: Release, zones: int | Zoning) -> Reconstruction:
    """Spreads the published cells of a release evenly over their tiles and adds up by area: a level, or a zoning.

    Guaranteed: where areas hold every tile, the total is that of the published cells; where every cell is in one pair
    of areas, the result is exact. Raises ParameterError for zones that are not nodes of a tree, and too fine areas.
    """
    cells, plan, flows = release.cells, release.plan, release.input
    zoning = zones if isinstance(zones, Zoning) else Zoning.at_level(flows.origins, flows.destinations, zones)
    volumes = [cells.trips] if cells.weight is None else [cells.trips, cells.weight]
    shares = _shares(plan.origin_zones, flows.origins, zoning.origin_area, cells.origin)
    rows, area, share = shares.spread(cells.origin)
    n_o, n_d = len(zoning.origin_codes), len(zoning.destination_codes)
    half = group_pairs(area, cells.destination[rows], n_o, len(plan.destination_zones))
    volumes = [half.sum(volume[rows] * share) for volume in volumes]
    shares = _shares(plan.destination_zones, flows.destinations, zoning.destination_area, half.destination)
    rows, area, share = shares.spread(half.destination)
    whole = group_pairs(half.origin[rows], area, n_o, n_d)
    trips, *weight = [whole.sum(volume[rows] * share) for volume in volumes]
    return Reconstruction(zoning, whole.origin, whole.destination, trips, weight[0] if weight else None)


@dataclass(frozen=True, eq=False)
class Shares:
    """For each zone, the areas that contain it and its share in each, as slices of two arrays."""

    start: NDArray[np.int64]
    area: Ints
    share: Floats

    def spread(self, zone: Ints, *, most: int = MOST_ROWS) -> tuple[NDArray[np.int64], Ints, Floats]:
        """Repeats rows over the areas of their zones: which row, which area, which share; at most ``most`` of them."""
        rows, at = _ranges(self.start[:-1][zone], np.diff(self.start)[zone], most)
        return rows, self.area[at], self.share[at]


def _shares(zones: Zones, tree: Hierarchy, area_of_tile: Ints, used: Ints) -> Shares:
    if not isinstance(zones, NodeZones):
        raise ParameterError("Only zones that are nodes of a tree can be reconstructed onto other zones.")
    present = np.unique_values(used)
    zone, tile = _ranges(tree.leaf_start[zones.nodes[present]], zones.size[present], MOST_ROWS)
    groups = group_pairs(present[zone], area_of_tile[tile], len(zones), int(area_of_tile.max()) + 1)
    tiles = np.bincount(groups.row[groups.row >= 0], minlength=len(groups.origin))
    start = np.searchsorted(groups.origin, np.arange(len(zones) + 1))
    return Shares(start=start, area=groups.destination, share=tiles / zones.size[groups.origin])


def _ranges(start: NDArray[Any], length: NDArray[Any], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the numbers from each start on, as many as its length, and before them the place of that start."""
    n = int(length.sum(dtype=np.int64))
    if n > most:
        raise ParameterError(
            f"The zoning is too fine for these cells: {n:,} pairs would have to be spread, allowed are {most:,}. "
            "Hint: use larger areas."
        )
    ahead = start.astype(np.int64) - np.cumsum(length, dtype=np.int64) + length
    return np.repeat(np.arange(len(length)), length), np.repeat(ahead, length) + np.arange(n)
