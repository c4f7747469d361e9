"""OIGH: one level for all origins, one for all destinations (as adapted by Matet et al. 2023 for ragged trees).

Going up one level coarsens every zone of an axis at once, so a release is a point of a small lattice: the level of the
origins and the level of the destinations. OIGH takes the lowest point, counted in levels gone up on both axes
together, at which no more than the allowed volume lies in short cells, and suppresses those cells.

Going up never moves volume into short cells, on either axis. So a point that fails rules out all points below it, and
one that holds makes all points above it hold: the search finds the lowest height, and every point of that height, from
about as many counts as there are levels, where the lattice has levels times levels of them. Each count starts from
the coarsest table already made that lies below its point, not from the flows.

Guaranteed: the levels and the zones are those of the exhaustive search in ``tests/reference/oigh.py``.
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

#: A range of more origin levels than this is worth a table of its own that its probes start from.
WORTH_A_TABLE = 3


def oigh(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> Plan:
    """Plan homogeneous zones of one level an axis.

    Among the points of the lowest height, the one with the smallest average class (published volume over published
    cells) is taken; if several share it, the one with the finest origins.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may lie in short cells, which are suppressed. 0 asks for levels
            at which no cell is short, as in the ODkAnon papers; 0.1 is what Matet et al. allow.
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
    """Plan zones of one level that serve both ends: the lowest at which few enough trips are in short cells.

    Args:
        flows: what to anonymise; both ends are tiles of one tree.
        guarantee: what every cell must satisfy.
        max_suppressed: share of the volume that may lie in short cells, which are suppressed.
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

    ``rank`` is the level at which each node's children have become one zone; 0 for a tile. Any cut is then one
    comparison, however many levels there are.
    """

    hierarchy: Hierarchy
    rank: Ints

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> AxisLevels:
        """Number the levels of a tree.

        Where all tiles are equally deep (H3), a level is a horizontal cut, as OIGH was defined. Where they are not,
        horizontal cuts would not cover the map, and the rule of Matet et al. holds: one level up merges, of the nodes
        whose children are all zones, those with the fewest tiles. A node with fewer tiles is never kept waiting by
        one with more, and a node with as many tiles as its only child comes one level after it; so the level of a
        node is the dense rank of (tiles, height above the lowest node with these same tiles).
        """
        if np.all(tree.depth[tree.leaf_node] == tree.max_depth):
            return cls(tree, (tree.max_depth - tree.depth.astype(np.int32)).astype(np.int32))
        # In pre-order an only child stands right after its parent: nodes with the same tiles are a run.
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
        """How many levels there are above the tiles."""
        return int(self.rank[0])

    @cached_property
    def zones_left(self) -> NDArray[np.int64]:
        """Number of zones at each level."""
        gone = np.bincount(self.rank, weights=np.maximum(self.hierarchy.n_children - 1, 0))
        return self.hierarchy.n_tiles - np.cumsum(gone).astype(np.int64)

    def cut(self, up: int) -> Ints:
        """The zones so many levels up."""
        return self.hierarchy.cut_from_merged(self.rank <= up)


@dataclass(frozen=True)
class Verdict:
    """What counting a point of the lattice came to.

    Attributes:
        up_o, up_d: levels gone up on the two axes.
        good: the short cells hold no more than the allowed volume.
        all_safe: no cell is short.
        average: published volume over published cells.
    """

    up_o: int
    up_d: int
    good: bool
    all_safe: bool
    average: float


@dataclass(frozen=True, eq=False)
class Table:
    """A point of the lattice with its cells; a tile under each end stands for it when they are merged further."""

    verdict: Verdict
    cells: Cells
    tile_o: Ints
    tile_d: Ints

    def lies_below(self, up_o: int, up_d: int) -> bool:
        """Whether a point can be counted from this one."""
        return self.verdict.up_o <= up_o and self.verdict.up_d <= up_d


@dataclass(frozen=True, eq=False)
class Lattice:
    """All pairs of levels, and what makes one good."""

    origins: AxisLevels
    destinations: AxisLevels
    guarantee: Guarantee
    allowed: float

    def ground(self, flows: Flows) -> Table:
        """The point of the tiles: the flows are its cells."""
        return Table(self._verdict(0, 0, flows), flows, flows.origin, flows.destination)

    def count(self, up_o: int, up_d: int, below: Table) -> Table:
        """The point so many levels up, counted from one below it."""
        cut_o, cut_d = self.origins.cut(up_o), self.destinations.cut(up_d)
        cells = self._merge(below.cells, below.tile_o, below.tile_d, cut_o, cut_d).cells
        return Table(
            verdict=self._verdict(up_o, up_d, cells),
            cells=cells,
            tile_o=self.origins.hierarchy.leaf_start[cut_o][cells.origin],
            tile_d=self.destinations.hierarchy.leaf_start[cut_d][cells.destination],
        )

    def kept_flows(self, flows: Flows, cut_o: Ints, cut_d: Ints) -> NDArray[np.bool_]:
        """The flows whose cell is safe in these cuts."""
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
    """The search for the lowest good points of a lattice.

    Attributes:
        lattice: the lattice.
        ground: its lowest point.
        height: of the lowest good point seen so far; higher ones are of no interest.
        found: the good points of that height.
        good, bad: the points counted so far; they decide all points above, or below, them.
    """

    lattice: Lattice
    ground: Table
    height: int = field(init=False)
    found: dict[tuple[int, int], Verdict] = field(init=False, default_factory=dict)
    good: list[tuple[int, int]] = field(init=False, default_factory=list)
    bad: list[tuple[int, int]] = field(init=False, default_factory=list)

    def run(self) -> Verdict:
        """The best of the lowest good points; the top of the lattice where no point is good."""
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
        """The first good point on a straight way from the tiles to the top, and the bad one below it.

        Bisection. The first probe is the finest point whose table is cheap to count densely. The top is returned
        where no point is good.
        """
        top_o, top_d = self.lattice.origins.top, self.lattice.destinations.top
        steps = np.arange(top_o + top_d + 1)
        way_o = steps * top_o // max(top_o + top_d, 1)
        way_d = steps - way_o
        entries = self.lattice.origins.zones_left[way_o] * self.lattice.destinations.zones_left[way_d]
        cheap = np.flatnonzero(entries <= DENSE_ENTRIES_PER_ROW * len(self.ground.cells))
        low, high = 0, len(steps) - 1
        below, first = self.ground, None
        probe = int(cheap[0]) if len(cheap) and low < cheap[0] < high else (low + high) // 2
        while high - low > 1:
            table = self._count(int(way_o[probe]), int(way_d[probe]), (below,))
            if table.verdict.good:
                high, first = probe, table.verdict
            else:
                low, below = probe, table
            probe = (low + high) // 2
        return first or self._count(top_o, top_d, (below,)).verdict, below

    def _explore(self, low: int, high: int, tables: tuple[Table, ...]) -> None:
        """Find the lowest good points whose origins are ``low`` to ``high`` levels up.

        The coarsest corner of the range lies above every point of it that is not too high: where the corner is bad,
        none of them is good. The finest corner lies below them all: the range is counted from there. Tables live
        no longer than their range, so few are held at a time, however many levels there are.
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
        """Find the lowest good point above one origin level, where the highest of interest is good.

        Most often that is the one; so the point right below it is tried before bisecting.
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
        """The highest destination level of interest above that origin level."""
        return min(self.lattice.destinations.top, self.height - up_o)

    def _is_good(self, up_o: int, up_d: int, tables: tuple[Table, ...]) -> bool:
        if any(up_o <= o and up_d <= d for o, d in self.bad):
            return False
        if any(up_o >= o and up_d >= d for o, d in self.good):
            return True
        return self._count(up_o, up_d, tables).verdict.good

    def _count(self, up_o: int, up_d: int, tables: tuple[Table, ...]) -> Table:
        """Count a point from the last of these tables that lies below it, and take note of the outcome."""
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
