"""What can be learnt by subtracting published matrices from each other.

A total and its segments, or a day and its hours, give a reader two counts of nested sets of trips; their
difference is a count too, which a reader can compute. It must satisfy the guarantee like a cell.

One comparison takes a coarser matrix and a layer of finer ones that together hold the same trips: the days of a week.
On any region whose published volume is known from the coarser matrix, the finer cells that lie wholly inside it can be
subtracted, all of them or all but those of one slice. The remainder after subtracting all is the smallest such
difference: if it is nothing, or safe, then so is every other one, because adding published (safe) cells back never
makes it worse. So one count for each region is enough.

Where several layers are finer (days, and their hours), a reader may also mix them: the week, minus Tuesday, minus what
is published of the hours of Wednesday. What no layer covers is the least that any mixture leaves, so it is counted as
well. If it is nothing, a mixture leaves only what one layer covers and another does not, and that is a difference
between these two, which is looked at on its own.

The regions are

- each cell of the coarser matrix;
- each pair of nodes of the two trees that is made of whole cells of the coarser matrix, nothing in it suppressed: a
  finer zone either lies inside a node, or holds it, or has nothing to do with it, so on such a pair every finer matrix
  can be subtracted whole or not at all. In trees too deep for that, where both matrices have one cut for each end, only
  the smallest areas that are unions of zones of both, for each finer matrix and for all of them together.

Zones are slices of the leaf order of common trees, so "lies inside" is two comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import HierarchyError
from flowveil.flows import MILLION, Cells, Flows, concat_cells, group_pairs, to_fixed_point
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.release.release import Release
from flowveil.release.zones import NodeZones, Zones

Rows = NDArray[np.int64]

#: Pairs of depths that are looked at one by one: the trees of H3 have a dozen levels at most, three times as many where
#: they are refined into halves, dendrograms dozens.
MOST_LEVEL_PAIRS = 1_024


@dataclass(frozen=True)
class Differencing:
    """How many differences between the matrices of a family are known to a reader, and how many are short.

    Attributes:
        comparisons: pairs of a coarser matrix and a set of finer ones that were compared.
        differences: regions where a difference above zero is known.
        short: how many of these are below the guarantee.
        unchecked: comparisons that settle nothing: zones are not nodes of one tree, or something is suppressed, or
            there are more than two kinds of matrices.
    """

    comparisons: int = 0
    differences: int = 0
    short: int = 0
    unchecked: int = 0

    @property
    def harmless(self) -> bool:
        """Whether no difference is short, and all comparisons settle it."""
        return self.short == 0 and self.unchecked == 0

    def __add__(self, other: Differencing) -> Differencing:
        return Differencing(
            self.comparisons + other.comparisons,
            self.differences + other.differences,
            self.short + other.short,
            self.unchecked + other.unchecked,
        )


#: For each finest slice, the finer matrix that counts it; None where that one is not published.
Layer = Sequence[Release | None]


def compare(coarse: Release, parts: Sequence[Flows], layers: Sequence[Layer]) -> Differencing:
    """Count the differences between a matrix and finer ones.

    Args:
        coarse: the coarser matrix.
        parts: the flows of the finest slices that together are the coarser one's.
        layers: kinds of finer matrices that are subtracted together; each names the matrix of every part.
    """
    fine = _distinct_releases(layers)
    if any(
        not isinstance(z, NodeZones) for r in [coarse, *fine] for z in (r.plan.origin_zones, r.plan.destination_zones)
    ):
        return Differencing(comparisons=1, unchecked=1)
    records = _Records.of(coarse, parts, layers)
    known, short = [], []
    for regions in _region_sets(coarse, fine):
        difference, bad = records.short(coarse, regions)
        known.append(regions.rectangle.take(difference).corners())
        short.append(regions.rectangle.take(bad).corners())
    return Differencing(comparisons=1, differences=_distinct(known), short=_distinct(short))


def _distinct_releases(layers: Sequence[Layer]) -> list[Release]:
    return list({id(release): release for layer in layers for release in layer if release is not None}.values())


def _distinct(corners: Sequence[NDArray[np.int32]]) -> int:
    """How many different rectangles there are: the same one may be a region in several ways."""
    return len(np.unique(np.concatenate(corners), axis=0))


def too_deep(origins: Hierarchy, destinations: Hierarchy) -> bool:
    """Whether the trees have more pairs of levels than are looked at, so that a comparison settles nothing."""
    return (origins.max_depth + 1) * (destinations.max_depth + 1) > MOST_LEVEL_PAIRS


# ---- regions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rectangles:
    """Pairs of leaf slices: one of the origins, one of the destinations."""

    origin_start: Ints
    origin_stop: Ints
    destination_start: Ints
    destination_stop: Ints

    @classmethod
    def of(cls, origins: Hierarchy, destinations: Hierarchy, node_o: Ints, node_d: Ints) -> _Rectangles:
        return cls(
            origins.leaf_start[node_o],
            origins.leaf_stop[node_o],
            destinations.leaf_start[node_d],
            destinations.leaf_stop[node_d],
        )

    def take(self, at: NDArray[Any]) -> _Rectangles:
        return _Rectangles(
            self.origin_start[at], self.origin_stop[at], self.destination_start[at], self.destination_stop[at]
        )

    def corners(self) -> NDArray[np.int32]:
        columns = (self.origin_start, self.origin_stop, self.destination_start, self.destination_stop)
        return np.stack(columns, axis=1).astype(np.int32)

    def inside(self, other: _Rectangles) -> NDArray[np.bool_]:
        within: NDArray[np.bool_] = (
            (self.origin_start >= other.origin_start)
            & (self.origin_stop <= other.origin_stop)
            & (self.destination_start >= other.destination_start)
            & (self.destination_stop <= other.destination_stop)
        )
        return within


@dataclass(frozen=True, eq=False)
class _Regions:
    """Disjoint rectangles that hold every flow of the coarser matrix: whose region each flow is in.

    ``whole``: only regions in which the coarser matrix suppresses nothing count, because elsewhere its published
    volume is not that of the region.
    """

    of_flow: Ints
    rectangle: _Rectangles
    whole: bool


def _cells_of(release: Release) -> _Regions:
    plan, flows = release.plan, release.input
    origins, destinations = _nodes(plan.origin_zones), _nodes(plan.destination_zones)
    groups = group_pairs(plan.origin_zone, plan.destination_zone, len(origins), len(destinations))
    rectangle = _Rectangles.of(
        flows.origins, flows.destinations, origins[groups.origin], destinations[groups.destination]
    )
    return _Regions(groups.row, rectangle, whole=False)


def _region_sets(coarse: Release, fine: Sequence[Release]) -> Iterator[_Regions]:
    flows = coarse.input
    yield _cells_of(coarse)
    if not too_deep(flows.origins, flows.destinations):
        yield from _node_pairs(flows)
        return
    own = _cuts_of(coarse)
    cuts = [_cuts_of(release) for release in fine]
    if own is None or any(c is None for c in cuts):
        # Zones that overlap have no smallest common unions; the cells of the finer matrices are looked at one by one.
        for release in fine:
            yield _covered_cells(coarse, release)
        return
    everything = own
    for cut in cuts:
        if cut is not None:
            yield _joined(flows, own, cut)
            everything = _larger(flows, everything, cut)
    if len(cuts) > 1:
        yield _joined(flows, everything, own)


def _node_pairs(flows: Flows) -> Iterator[_Regions]:
    """All pairs of nodes: for each pair of depths, the pair that holds each flow."""
    up_o, up_d = _ancestors(flows.origins), _ancestors(flows.destinations)
    for at_o in up_o:
        node_o = at_o[flows.origin]
        for at_d in up_d:
            node_d = at_d[flows.destination]
            groups = group_pairs(node_o, node_d, flows.origins.n_nodes, flows.destinations.n_nodes)
            rectangle = _Rectangles.of(flows.origins, flows.destinations, groups.origin, groups.destination)
            yield _Regions(groups.row, rectangle, whole=True)


def _ancestors(tree: Hierarchy) -> list[Ints]:
    """For each depth, the node of that depth above each tile; the tile itself where it is not that deep."""
    found = [tree.leaf_node]
    for depth in range(tree.max_depth - 1, -1, -1):
        node = found[-1]
        found.append(np.where(tree.depth[node] > depth, tree.lift(node), node).astype(np.int32))
    return found


def _cuts_of(release: Release) -> tuple[Ints, Ints] | None:
    """The node of the zone of every tile, at each end; None where zones overlap."""
    if not release.plan.homogeneous:
        return None
    found = []
    for tree, zones in (
        (release.input.origins, release.plan.origin_zones),
        (release.input.destinations, release.plan.destination_zones),
    ):
        cut = _nodes(zones)
        try:
            tree.check_cut(cut)
        except HierarchyError:
            return None
        found.append(cut[tree.zone_of_tile(cut)])
    return found[0], found[1]


def _larger(flows: Flows, one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """At each tile the larger of two zones: of two nodes above the same tile, one holds the other."""
    pair = []
    for tree, a, b in zip((flows.origins, flows.destinations), one, other, strict=True):
        pair.append(np.where(tree.size[a] >= tree.size[b], a, b).astype(np.int32))
    return pair[0], pair[1]


def _joined(flows: Flows, one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> _Regions:
    """The smallest areas that are unions of zones of both cuts."""
    tile_o, tile_d = _larger(flows, one, other)
    node_o, node_d = tile_o[flows.origin], tile_d[flows.destination]
    rectangle = _Rectangles.of(flows.origins, flows.destinations, node_o, node_d)
    groups = group_pairs(
        rectangle.origin_start, rectangle.destination_start, flows.origins.n_tiles, flows.destinations.n_tiles
    )
    return _Regions(groups.row, rectangle.take(_first_of(groups.row, len(groups.origin))), whole=True)


def _covered_cells(coarse: Release, fine: Release) -> _Regions:
    """The cells of a finer matrix that are made of whole cells of the coarser one."""
    flows = coarse.input
    at = _positions(flows, fine.input)
    rectangles = _cell_rectangles(fine)
    region = np.full(len(flows), -1, dtype=np.int32)
    counted = fine.cell_of_flow >= 0
    region[at[counted]] = fine.cell_of_flow[counted]
    # Flows of the coarser matrix that the finer one does not have are found through the cell that holds them.
    cells = _cells_of(coarse)
    home = np.full(len(cells.rectangle.origin_start), -1, dtype=np.int32)
    home[cells.of_flow[region >= 0]] = region[region >= 0]
    inside = np.zeros(len(home), dtype=np.bool_)
    known = home >= 0
    inside[known] = cells.rectangle.take(known).inside(rectangles.take(home[known]))
    whole_region = np.where(inside, home, -1)[cells.of_flow].astype(np.int32)
    spoilt = np.unique(region[(region >= 0) & (whole_region != region)])
    whole_region[np.isin(whole_region, spoilt)] = -1
    return _Regions(whole_region, rectangles, whole=True)


def _nodes(zones: Zones) -> Ints:
    if not isinstance(zones, NodeZones):
        raise HierarchyError("These zones are not nodes of a tree.")
    return zones.nodes


def _cell_rectangles(release: Release) -> _Rectangles:
    plan, flows = release.plan, release.input
    return _Rectangles.of(
        flows.origins,
        flows.destinations,
        _nodes(plan.origin_zones)[release.cells.origin],
        _nodes(plan.destination_zones)[release.cells.destination],
    )


# ---- records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Covering:
    """The published cells of one layer of finer matrices.

    Attributes:
        cell: the cell that counts each record, -1 where none does.
        rectangles: where each cell lies.
        first: a record of each cell.
    """

    cell: Ints
    rectangles: _Rectangles
    first: Rows

    @classmethod
    def of(cls, parts: Sequence[Flows], layer: Layer) -> _Covering:
        start: dict[int, int] = {}
        cell, rectangles = [np.zeros(0, np.int32)], []
        n_cells = 0
        for flows, release in zip(parts, layer, strict=True):
            if release is None:
                cell.append(np.full(len(flows), -1, dtype=np.int32))
                continue
            if id(release) not in start:
                start[id(release)] = n_cells
                rectangles.append(_cell_rectangles(release))
                n_cells += len(release.cells)
            own = release.cell_of_flow[_positions(release.input, flows)]
            cell.append(np.where(own >= 0, own + np.int32(start[id(release)]), np.int32(-1)).astype(np.int32))
        cells = np.concatenate(cell)
        return cls(cell=cells, rectangles=_stacked_rectangles(rectangles), first=_first_of(cells, n_cells))

    def covered(self, region: Ints, regions: _Regions) -> NDArray[np.bool_]:
        """Which records are counted in a cell that lies wholly in the record's region."""
        of_cell = region[self.first]
        nested = of_cell >= 0
        nested[nested] = self.rectangles.take(nested).inside(regions.rectangle.take(of_cell[nested]))
        covered = np.zeros(len(self.cell), dtype=np.bool_)
        counted = self.cell >= 0
        covered[counted] = nested[self.cell[counted]]
        return covered


@dataclass(frozen=True, eq=False)
class _Records:
    """The flows of all finest slices, one below the other.

    Attributes:
        flow: the flow of the coarser matrix with the same tiles.
        rows: trips, weight and people of each record.
        layers: the finer cells that count the records.
    """

    flow: Rows
    rows: Cells
    layers: tuple[_Covering, ...]

    @classmethod
    def of(cls, coarse: Release, parts: Sequence[Flows], layers: Sequence[Layer]) -> _Records:
        return cls(
            flow=np.concatenate([_positions(coarse.input, flows) for flows in parts]),
            rows=concat_cells(parts),
            layers=tuple(_Covering.of(parts, layer) for layer in layers),
        )

    def short(self, coarse: Release, regions: _Regions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each region, whether something is left above zero, and whether that is short of the guarantee."""
        n = len(regions.rectangle.origin_start)
        region = regions.of_flow[self.flow]
        covered = np.zeros(len(region), dtype=np.bool_)
        for layer in self.layers:
            covered |= layer.covered(region, regions)
        kept = coarse.cell_of_flow[self.flow] >= 0
        left = np.where(kept & ~covered, region, np.int32(-1))
        remainder = self.rows.merge(left, np.where(left >= 0, 0, -1).astype(np.int32), max(n, 1), 1).cells
        known, bad = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        known[remainder.origin] = True
        bad[remainder.origin] = ~coarse.guarantee.safe(remainder)
        # A coarser matrix that filtered flows out first may count less than its finer cells do: then the published
        # numbers do not differ by the remainder, and that must not look like a small group either.
        shown = self._published_difference(coarse, regions, np.where(covered, region, np.int32(-1)), n)
        bad |= shown
        known |= shown
        if regions.whole:
            spoilt = regions.of_flow[self._unsure(coarse, regions)]
            bad[spoilt[spoilt >= 0]] = False
            known[spoilt[spoilt >= 0]] = False
        return known, bad

    @staticmethod
    def _unsure(coarse: Release, regions: _Regions) -> NDArray[np.bool_]:
        """Which flows of the coarser matrix are suppressed, or counted in a cell that reaches out of the region."""
        cell = coarse.cell_of_flow
        rectangles = _cell_rectangles(coarse)
        home = regions.of_flow[_first_of(cell, len(coarse.cells))]
        nested = home >= 0
        nested[nested] = rectangles.take(nested).inside(regions.rectangle.take(home[nested]))
        unsure: NDArray[np.bool_] = (cell < 0) | ~nested[np.maximum(cell, 0)]
        return unsure

    def _published_difference(self, coarse: Release, regions: _Regions, covered: Ints, n: int) -> NDArray[np.bool_]:
        counted = np.where(coarse.cell_of_flow >= 0, regions.of_flow, np.int32(-1))
        difference = _sum(counted, coarse.input.trips, n) - _sum(covered, self.rows.trips, n)
        guarantee = coarse.guarantee
        short = np.zeros(n, dtype=np.bool_)
        if guarantee.trips is not None:
            short |= (difference > 0) & (difference < guarantee.trips)
        for column, least in guarantee.of_columns.items():
            ours, theirs = to_fixed_point(coarse.input.volume(column)), to_fixed_point(self.rows.volume(column))
            held = _sum(counted, ours, n) - _sum(covered, theirs, n)
            short |= (difference > 0) & (held / MILLION < least)
        return short


def _sum(region: Ints, values: NDArray[Any], n: int) -> NDArray[Any]:
    inside = region >= 0
    return np.bincount(region[inside], weights=values[inside], minlength=n)


def _positions(flows: Flows, part: Flows) -> Rows:
    """Returns the position of each flow of a part in the whole; both are sorted by the same tiles."""
    width = np.int64(flows.destinations.n_tiles)
    key = flows.origin.astype(np.int64) * width + flows.destination
    return np.searchsorted(key, part.origin.astype(np.int64) * width + part.destination)


def _first_of(number: Ints, n: int) -> Rows:
    """A row of each number below n, all of which occur."""
    at = np.zeros(n, dtype=np.int64)
    inside = np.flatnonzero(number >= 0)[::-1]
    at[number[inside]] = inside
    return at


def _stacked_rectangles(parts: Sequence[_Rectangles]) -> _Rectangles:
    none = np.zeros(0, np.int32)
    return _Rectangles(
        *(
            np.concatenate([none, *(getattr(p, name) for p in parts)])
            for name in ("origin_start", "origin_stop", "destination_start", "destination_stop")
        )
    )
