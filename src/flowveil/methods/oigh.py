"""OIGH: one level for all origins, one for all destinations (as adapted by Matet et al. 2023 for ragged trees).

Going up one level coarsens all zones of an axis, so a release is a point (origin level, destination level) of a small
lattice. OIGH takes the lowest point, by the sum of both levels, at which cells below the threshold hold at most the
allowed volume, and suppresses those cells.

Going up never moves volume into cells below the threshold. So a bad point rules out all points below it, and a good
point makes all points above it good. The search evaluates about as many points as there are levels, each merged from
the coarsest table that is already available below it.

Guarantees the same levels and zones as the exhaustive search in ``tests/reference/oigh.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import DENSE_ENTRIES_PER_ROW, Cells, Flows, Merged
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.release.plan import Plan

#: Ranges of more origin levels than this get a separate table that their points are merged from.
WORTH_A_TABLE = 3


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
    lattice = Lattice(
        origins=AxisLevels.from_tree(flows.origins),
        destinations=AxisLevels.from_tree(flows.destinations),
        guarantee=guarantee,
        allowed=max_suppressed * float(np.sum(flows.volume(guarantee.basis))),
    )
    chosen = Search(lattice, lattice.ground(flows)).run()
    cut_o = lattice.origins.cut(chosen.up_o)
    cut_d = lattice.destinations.cut(chosen.up_d)
    kept = np.ones(len(flows), dtype=np.bool_)
    if not chosen.all_safe:
        kept = lattice.kept_flows(flows, cut_o, cut_d)
    notes = {"origin_levels_up": chosen.up_o, "destination_levels_up": chosen.up_d}
    return Plan.from_cuts(flows, cut_o, cut_d, kept, notes=notes)


def one_level(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plans zones of one level for both ends: the lowest level with little enough volume below the threshold.

    Args:
        flows: the flows to anonymise; both ends are tiles of one tree.
        guarantee: thresholds that every cell must reach.
        max_suppressed: largest share of the volume in cells below the threshold, which are suppressed.
    """
    levels = AxisLevels.from_tree(flows.origins)
    allowed = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    lattice = Lattice(origins=levels, destinations=levels, guarantee=guarantee, allowed=allowed)
    below = lattice.ground(flows)
    low, high = (-1, 0) if below.verdict.good else (0, levels.top)
    while high - low > 1:
        middle = (low + high) // 2
        table = lattice.count(middle, middle, below)
        if table.verdict.good:
            high = middle
        else:
            low, below = middle, table
    cut = levels.cut(high)
    notes = {"origin_levels_up": high, "destination_levels_up": high}
    return Plan.from_cuts(flows, cut, cut, lattice.kept_flows(flows, cut, cut), notes=notes)


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

    @cached_property
    def zones_left(self) -> NDArray[np.int64]:
        """Number of zones at each level."""
        gone = np.bincount(self.rank, weights=np.maximum(self.hierarchy.n_children - 1, 0))
        return self.hierarchy.n_tiles - np.cumsum(gone).astype(np.int64)

    def cut(self, up: int) -> Ints:
        """Returns the zones at this level."""
        return self.hierarchy.cut_from_merged(self.rank <= up)


@dataclass(frozen=True)
class Verdict:
    """Evaluation of one point of the lattice.

    Attributes:
        up_o, up_d: levels up on the two axes.
        good: cells below the threshold hold at most the allowed volume.
        all_safe: all cells are safe.
        average: published volume over published cells.
    """

    up_o: int
    up_d: int
    good: bool
    all_safe: bool
    average: float


@dataclass(frozen=True, eq=False)
class Table:
    """A point of the lattice with its cells, and a tile of each end for further merging."""

    verdict: Verdict
    cells: Cells
    tile_o: Ints
    tile_d: Ints

    def lies_below(self, up_o: int, up_d: int) -> bool:
        """Returns whether a point can be merged from this one."""
        return self.verdict.up_o <= up_o and self.verdict.up_d <= up_d


@dataclass(frozen=True, eq=False)
class Lattice:
    """All pairs of levels, and the condition for a good pair."""

    origins: AxisLevels
    destinations: AxisLevels
    guarantee: Guarantee
    allowed: float

    def ground(self, flows: Flows) -> Table:
        """Returns the point of the tiles; its cells are the flows."""
        return Table(self._verdict(0, 0, flows), flows, flows.origin, flows.destination)

    def count(self, up_o: int, up_d: int, below: Table) -> Table:
        """Returns the point at these levels, merged from a table below it."""
        cut_o, cut_d = self.origins.cut(up_o), self.destinations.cut(up_d)
        cells = self._merge(below.cells, below.tile_o, below.tile_d, cut_o, cut_d).cells
        return Table(
            verdict=self._verdict(up_o, up_d, cells),
            cells=cells,
            tile_o=self.origins.hierarchy.leaf_start[cut_o][cells.origin],
            tile_d=self.destinations.hierarchy.leaf_start[cut_d][cells.destination],
        )

    def kept_flows(self, flows: Flows, cut_o: Ints, cut_d: Ints) -> NDArray[np.bool_]:
        """Returns the flows whose cell is safe in these cuts."""
        merged = self._merge(flows, flows.origin, flows.destination, cut_o, cut_d)
        return self.guarantee.safe(merged.cells)[merged.row]

    def _merge(self, cells: Cells, tile_o: Ints, tile_d: Ints, cut_o: Ints, cut_d: Ints) -> Merged:
        zone_o = self.origins.hierarchy.zone_of_tile(cut_o)[tile_o]
        zone_d = self.destinations.hierarchy.zone_of_tile(cut_d)[tile_d]
        return cells.merge(zone_o, zone_d, len(cut_o), len(cut_d))

    def _verdict(self, up_o: int, up_d: int, cells: Cells) -> Verdict:
        safe = self.guarantee.safe(cells)
        volume = cells.volume(self.guarantee.basis)
        n_safe = int(np.count_nonzero(safe))
        return Verdict(
            up_o=up_o,
            up_d=up_d,
            good=float(np.sum(volume[~safe])) <= self.allowed,
            all_safe=n_safe == len(cells),
            average=float(np.sum(volume[safe])) / n_safe if n_safe else np.inf,
        )


@dataclass(eq=False)
class Search:
    """Searches the lowest good points of a lattice.

    Attributes:
        lattice: the lattice.
        ground: its lowest point.
        height: height of the lowest good point so far; higher points are skipped.
        found: the good points of that height.
        good, bad: the points evaluated so far; they decide all points above or below them.
    """

    lattice: Lattice
    ground: Table
    height: int = field(init=False)
    found: dict[tuple[int, int], Verdict] = field(init=False, default_factory=dict)
    good: list[tuple[int, int]] = field(init=False, default_factory=list)
    bad: list[tuple[int, int]] = field(init=False, default_factory=list)

    def run(self) -> Verdict:
        """Returns the best of the lowest good points, or the top of the lattice if no point is good."""
        if self.ground.verdict.good:
            return self.ground.verdict
        self.bad.append((0, 0))
        self.height = self.lattice.origins.top + self.lattice.destinations.top
        first, below = self._first_on_diagonal()
        if not first.good:
            return first
        self._explore(0, self.lattice.origins.top, (self.ground, below))
        return min(self.found.values(), key=lambda v: (v.average, v.up_o))

    def _first_on_diagonal(self) -> tuple[Verdict, Table]:
        """Returns the first good point on the diagonal from the tiles to the top, and the bad one below it.

        Bisection. The first probe is the finest point whose table can be counted densely. Returns the top if no point
        is good.
        """
        top_o, top_d = self.lattice.origins.top, self.lattice.destinations.top
        steps = np.arange(top_o + top_d + 1)
        path_o = steps * top_o // max(top_o + top_d, 1)
        path_d = steps - path_o
        entries = self.lattice.origins.zones_left[path_o] * self.lattice.destinations.zones_left[path_d]
        cheap = np.flatnonzero(entries <= DENSE_ENTRIES_PER_ROW * len(self.ground.cells))
        low, high = 0, len(steps) - 1
        below, first = self.ground, None
        probe = int(cheap[0]) if len(cheap) and low < cheap[0] < high else (low + high) // 2
        while high - low > 1:
            table = self._count(int(path_o[probe]), int(path_d[probe]), (below,))
            if table.verdict.good:
                high, first = probe, table.verdict
            else:
                low, below = probe, table
            probe = (low + high) // 2
        return first or self._count(top_o, top_d, (below,)).verdict, below

    def _explore(self, low: int, high: int, tables: tuple[Table, ...]) -> None:
        """Finds the lowest good points with origins ``low`` to ``high`` levels up.

        The coarsest corner of the range is above all its points of interest: if the corner is bad, so are they. The
        finest corner is below all of them, so they are merged from it. Tables live as long as their range, so that few
        exist at once.
        """
        high = min(high, self.height)
        if low > high or not self._is_good(high, self._reach(low), tables):
            return
        if low == high:
            self._descend(low, tables)
            return
        finest = self._reach(high)
        if high - low >= WORTH_A_TABLE and low + finest > 0:
            tables = (*tables, self._count(low, finest, tables))
        middle = (low + high) // 2
        self._explore(low, middle, tables)
        self._explore(middle + 1, high, tables)

    def _descend(self, up_o: int, tables: tuple[Table, ...]) -> None:
        """Finds the lowest good point at one origin level, given that the highest point of interest is good.

        That point is usually the lowest, so the one right below it is tried before bisecting.
        """
        low, high = -1, self._reach(up_o)
        probe = high - 1
        while high - low > 1:
            if self._is_good(up_o, probe, tables):
                high = probe
            else:
                low = probe
            probe = (low + high) // 2
        if (up_o, high) not in self.found:
            self._count(up_o, high, tables)

    def _reach(self, up_o: int) -> int:
        """Returns the highest destination level of interest at this origin level."""
        return min(self.lattice.destinations.top, self.height - up_o)

    def _is_good(self, up_o: int, up_d: int, tables: tuple[Table, ...]) -> bool:
        if any(up_o <= o and up_d <= d for o, d in self.bad):
            return False
        if any(up_o >= o and up_d >= d for o, d in self.good):
            return True
        return self._count(up_o, up_d, tables).verdict.good

    def _count(self, up_o: int, up_d: int, tables: tuple[Table, ...]) -> Table:
        """Evaluates a point from the last of these tables that is below it, and records the result."""
        below = next(t for t in reversed(tables) if t.lies_below(up_o, up_d))
        table = self.lattice.count(up_o, up_d, below)
        point = (up_o, up_d)
        if not table.verdict.good:
            self.bad.append(point)
            return table
        self.good.append(point)
        if sum(point) < self.height:
            self.height = sum(point)
            self.found.clear()
        if sum(point) == self.height:
            self.found[point] = table.verdict
        return table
