"""What goes wrong between larger areas: trips that a reader who adds up counts between the wrong ones, or not at all.

A planner asks for flows between districts, not between tiles. Published cells are spread evenly over their tiles and
added up by area (`flowveil.release.reconstruction`); the error is the share of all trips that are then missing where
they belong, because they were suppressed or because their cell lies in several areas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import group_pairs
from flowveil.release.reconstruction import Zoning, reconstruct
from flowveil.release.zones import NodeZones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowveil.flows import Cells
    from flowveil.hierarchy import Hierarchy, Ints
    from flowveil.release.release import Release

#: H3 resolutions of areas about 1 km and about 6 km across, which planners ask for.
KILOMETRES = {8: 1, 6: 6}
#: With more pairs of areas than this to spread cells over, the error is not computed.
MOST_PAIRS = 5_000_000


@dataclass(frozen=True)
class AreaError:
    """The error between the areas of one level.

    Attributes:
        level: of the tree: for H3 the resolution.
        error: share of all trips that are missing where they belong, from 0 to 1.
        crossing: cells that lie in more than one pair of areas; of these alone comes what suppression does not explain.
        misplaced: trips of such cells that are counted between other areas.
    """

    level: int
    error: float
    crossing: int
    misplaced: float


def levels_of(tree: Hierarchy) -> list[int]:
    """The levels that are larger than the tiles and smaller than everything, finest first: at most four.

    Of H3 the next two and those about 1 and 6 km across; of a map with parents the next two. A tree that was made from
    places has none that mean something.
    """
    finest = int(tree.level[tree.leaf_node].max())
    in_cells = tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64
    if tree.kind == "dendrogram":
        return []
    wanted = {finest - 1, finest - 2, *(KILOMETRES if in_cells else ())}
    top = -1 if in_cells else int(tree.level[0])
    return sorted((level for level in wanted if top < level < finest), reverse=True)


def area_errors(releases: Sequence[Release], absent: Sequence[Cells] = ()) -> list[AreaError]:
    """The errors at the levels of `levels_of`; none where zones are no nodes of a tree, or too much would be spread.

    Args:
        releases: one matrix, or the slices, which share their trees and no trips: each is held against its own trips.
        absent: slices that are not published; they are missing everywhere.
    """
    ends = [(release.plan.origin_zones, release.plan.destination_zones) for release in releases]
    if not all(isinstance(zones, NodeZones) for pair in ends for zones in pair):
        return []
    found = (
        _at_level(releases, level, float(sum(part.trips.sum() for part in absent)))
        for level in levels_of(releases[0].input.origins)
    )
    return [one for one in found if one is not None]


def _at_level(releases: Sequence[Release], level: int, lost: float) -> AreaError | None:
    first = releases[0].input
    zoning = Zoning.at_level(first.origins, first.destinations, level)
    pairs = [_pairs_of_areas(release, zoning) for release in releases]
    if sum(int(of_cells.sum()) for of_cells in pairs) > MOST_PAIRS:
        return None
    missing = sum(_missing(release, zoning) for release in releases) + lost
    total = float(sum(release.input.trips.sum() for release in releases)) + lost
    gone = total - float(sum(release.cells.trips.sum() for release in releases))
    # Sums of shares are off in their last digits.
    missing = max(missing, gone)
    return AreaError(level, missing / total, sum(int(np.sum(of_cells > 1)) for of_cells in pairs), missing - gone)


def _pairs_of_areas(release: Release, zoning: Zoning) -> NDArray[np.int64]:
    """In how many pairs of areas each cell lies."""
    flows, cells, plan = release.input, release.cells, release.plan
    assert isinstance(plan.origin_zones, NodeZones)
    assert isinstance(plan.destination_zones, NodeZones)
    n_o = _areas_in(flows.origins, plan.origin_zones.nodes, zoning.origin_area)[cells.origin]
    n_d = _areas_in(flows.destinations, plan.destination_zones.nodes, zoning.destination_area)[cells.destination]
    return n_o * n_d


def _missing(release: Release, zoning: Zoning) -> float:
    """Trips of a matrix that are not between the areas where they belong."""
    flows, shape = release.input, (len(zoning.origin_codes), len(zoning.destination_codes))
    true = group_pairs(zoning.origin_area[flows.origin], zoning.destination_area[flows.destination], *shape)
    there = true.sum(flows.trips.astype(np.float64))
    spread = reconstruct(release, zoning)
    width = np.int64(shape[1])
    estimated = spread.origin.astype(np.int64) * width + spread.destination
    wanted = true.origin.astype(np.int64) * width + true.destination
    at = np.minimum(np.searchsorted(estimated, wanted), len(estimated) - 1)
    got = np.where(estimated[at] == wanted, spread.trips[at], 0.0)
    return float(np.sum(np.maximum(there - got, 0.0)))


def _areas_in(tree: Hierarchy, nodes: Ints, area: Ints) -> NDArray[np.int64]:
    """In how many areas each zone lies: areas are slices of the tiles, so new ones are counted along them."""
    new = np.concatenate(([True], area[1:] != area[:-1]))
    before = np.concatenate(([0], np.cumsum(new)))
    first, last = tree.leaf_start[nodes], tree.leaf_stop[nodes]
    counted: NDArray[np.int64] = 1 + before[last] - before[first + 1]
    return counted
