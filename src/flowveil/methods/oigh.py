"""OIGH: one level for all origins, one for all destinations (as adapted by Matet et al. 2023 for ragged trees).

Going up one level coarsens all zones of an axis, so a release is a point (origin level, destination level) of a small
lattice. OIGH takes the lowest point, by the sum of both levels, at which cells below the threshold hold at most the
allowed volume, and suppresses those cells.

Going up never moves volume into cells below the threshold. So the lowest good destination level never rises with the
origin level, and one descent along that staircase evaluates at most as many points as there are levels.

Guarantees the same levels and zones as the exhaustive search in ``tests/reference/oigh.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Cells, Flows, Merged
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.release.plan import Plan


def oigh(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plans homogeneous zones with one level per axis.

    Among the points of the lowest height, takes the one with the smallest average class (published volume over
    published cells), and on ties the one with the finest origins.

    Args:
        flows: the flows to anonymise.
        guarantee: thresholds that every cell must reach.
        max_suppressed: largest share of the volume in cells below the threshold, which are suppressed. 0 as in the
            ODkAnon papers; 0.1 as in Matet et al.
    """
    lattice = Lattice.from_flows(flows, guarantee, max_suppressed)
    chosen = lattice.lowest_good(lattice.tiles(flows))
    return lattice.plan(flows, chosen.up_o, chosen.up_d)


def one_level(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plans zones of one level for both ends: the lowest level with little enough volume below the threshold.

    Args:
        flows: the flows to anonymise; both ends are tiles of one tree.
        guarantee: thresholds that every cell must reach.
        max_suppressed: largest share of the volume in cells below the threshold, which are suppressed.
    """
    lattice = Lattice.from_flows(flows, guarantee, max_suppressed)
    below = lattice.tiles(flows)
    low, high = (-1, 0) if below.good else (0, lattice.origins.top)
    while high - low > 1:
        middle = (low + high) // 2
        point = lattice.merge_to(middle, middle, below)
        if point.good:
            high = middle
        else:
            low, below = middle, point
    return lattice.plan(flows, high, high)


@dataclass(frozen=True, eq=False)
class AxisLevels:
    """The cuts of one axis, from the tiles (0 levels up) to the root (``top`` levels up).

    ``rank`` is the level at which the children of each node are merged; 0 for a tile. A cut is then one comparison.
    """

    hierarchy: Hierarchy
    rank: Ints

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> AxisLevels:
        """Numbers the levels of a tree.

        If all tiles are equally deep (H3), a level is a horizontal cut, as OIGH was defined. Otherwise the rule of
        Matet et al. applies: one level up merges, of the nodes whose children are all zones, those with the fewest
        tiles. So the level of a node is the dense rank of (tiles, height above the lowest node with the same tiles).
        """
        if np.all(tree.depth[tree.leaf_node] == tree.max_depth):
            return cls(tree, (tree.max_depth - tree.depth.astype(np.int32)).astype(np.int32))
        # In pre-order an only child follows its parent: nodes with the same tiles are a run.
        last = np.append(tree.parent[1:] != np.arange(tree.n_nodes - 1), True)
        last[:-1] |= tree.size[1:] != tree.size[:-1]
        ends = np.flatnonzero(last)
        height = ends[np.searchsorted(ends, np.arange(tree.n_nodes))] - np.arange(tree.n_nodes)
        inner = np.flatnonzero(~tree.is_leaf)
        order = inner[np.lexsort((height[inner], tree.size[inner]))]
        opens = np.ones(len(order), dtype=np.bool_)
        opens[1:] = (np.diff(tree.size[order]) != 0) | (np.diff(height[order]) != 0)
        rank = np.zeros(tree.n_nodes, dtype=np.int32)
        rank[order] = np.cumsum(opens)
        return cls(tree, rank)

    @property
    def top(self) -> int:
        """Number of levels above the tiles."""
        return int(self.rank[0])

    def cut(self, up: int) -> Ints:
        """Returns the zones at this level."""
        return self.hierarchy.cut_from_merged(self.rank <= up)


@dataclass(frozen=True, eq=False)
class Point:
    """One point of the lattice with its cells, and a tile of each end for further merging.

    Attributes:
        up_o, up_d: levels up on the two axes.
        cells, tile_o, tile_d: the cells, and a tile in each of their two zones.
        good: cells below the threshold hold at most the allowed volume.
        average: published volume over published cells.
    """

    up_o: int
    up_d: int
    cells: Cells
    tile_o: Ints
    tile_d: Ints
    good: bool
    average: float


@dataclass(frozen=True, eq=False)
class Lattice:
    """All pairs of levels, and the condition for a good pair."""

    origins: AxisLevels
    destinations: AxisLevels
    guarantee: Guarantee
    allowed: float

    @classmethod
    def from_flows(cls, flows: Flows, guarantee: Guarantee, max_suppressed: float) -> Lattice:
        """Returns the lattice of the trees of these flows."""
        origins, destinations = (AxisLevels.from_tree(tree) for tree in (flows.origins, flows.destinations))
        allowed = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
        return cls(origins, destinations, guarantee, allowed)

    def tiles(self, flows: Flows) -> Point:
        """Returns the point of the tiles; its cells are the flows."""
        return self._point(0, 0, flows, flows.origin, flows.destination)

    def lowest_good(self, tiles: Point) -> Point:
        """Returns the best of the lowest good points, or the top of the lattice if no point is good."""
        bad, start = self._around_diagonal(tiles)
        if not start.good:
            return start
        height, found = start.up_o + start.up_d, [start]
        # All points below a bad one are bad: up to its origin level, only higher destination levels are tried.
        ranges = [(0, self.origins.top + 1, 0)]
        if bad is not None:
            ranges = [(0, bad.up_o + 1, bad.up_d + 1), (bad.up_o + 1, self.origins.top + 1, 0)]
        up_d = self.destinations.top
        for first, stop, least in ranges:
            below = self.merge_to(first, least, tiles) if first + least <= height else tiles
            for up_o in range(first, stop):
                up_d = min(up_d, height - up_o)
                while up_d >= least and (point := self.merge_to(up_o, up_d, below)).good:
                    if up_o + up_d < height:
                        height, found = up_o + up_d, []
                    found.append(point)
                    up_d -= 1
                up_d += 1
        return min(found, key=lambda point: (point.average, point.up_o))

    def _around_diagonal(self, tiles: Point) -> tuple[Point | None, Point]:
        """Returns the last bad and the first good point on the diagonal from the tiles to the top.

        None if no point is bad; the top as second if no point is good.
        """
        height = self.origins.top + self.destinations.top
        low, high, bad, good = -1, height, None, None
        while high - low > 1 or good is None:
            middle = (low + high) // 2 if high - low > 1 else high
            up_o = middle * self.origins.top // max(height, 1)
            point = self.merge_to(up_o, middle - up_o, bad or tiles)
            if point.good or middle == height:
                high, good = middle, point
            else:
                low, bad = middle, point
        return bad, good

    def merge_to(self, up_o: int, up_d: int, below: Point) -> Point:
        """Returns the point at these levels, merged from a point below it."""
        if (up_o, up_d) == (below.up_o, below.up_d):
            return below
        cut_o, cut_d = self.origins.cut(up_o), self.destinations.cut(up_d)
        cells = self._merge(below.cells, below.tile_o, below.tile_d, cut_o, cut_d).cells
        tile_o = self.origins.hierarchy.leaf_start[cut_o][cells.origin]
        tile_d = self.destinations.hierarchy.leaf_start[cut_d][cells.destination]
        return self._point(up_o, up_d, cells, tile_o, tile_d)

    def plan(self, flows: Flows, up_o: int, up_d: int) -> Plan:
        """Returns the plan of the safe cells at these levels."""
        cut_o, cut_d = self.origins.cut(up_o), self.destinations.cut(up_d)
        merged = self._merge(flows, flows.origin, flows.destination, cut_o, cut_d)
        kept: NDArray[np.bool_] = self.guarantee.safe(merged.cells)[merged.row]
        notes = {"origin_levels_up": up_o, "destination_levels_up": up_d}
        return Plan.from_cuts(flows, cut_o, cut_d, kept, notes=notes)

    def _merge(self, cells: Cells, tile_o: Ints, tile_d: Ints, cut_o: Ints, cut_d: Ints) -> Merged:
        zone_o = self.origins.hierarchy.zone_of_tile(cut_o)[tile_o]
        zone_d = self.destinations.hierarchy.zone_of_tile(cut_d)[tile_d]
        return cells.merge(zone_o, zone_d, len(cut_o), len(cut_d))

    def _point(self, up_o: int, up_d: int, cells: Cells, tile_o: Ints, tile_d: Ints) -> Point:
        safe = self.guarantee.safe(cells)
        volume = cells.volume(self.guarantee.basis)
        n_safe = int(np.count_nonzero(safe))
        good = float(np.sum(volume[~safe])) <= self.allowed
        average = float(np.sum(volume[safe])) / n_safe if n_safe else np.inf
        return Point(up_o, up_d, cells, tile_o, tile_d, good, average)
