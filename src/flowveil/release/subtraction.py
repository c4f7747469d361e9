"""What a reader learns by subtracting published matrices of one release from each other.

The difference of a total and its segments, or of a day and its hours, is a count and must satisfy the guarantee like a
cell (docs/decisions/0008-subtraction-within-a-command.md). On every region whose published volume is known from the
coarser matrix (its cells, and pairs of nodes made of whole cells), all finer cells inside it are subtracted. That is
the smallest difference: adding safe cells back never makes it worse. Readers may mix several finer layers (days, and
their hours), so what no layer covers is counted as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError
from flowveil.flows import MILLION, Cells, Flows, concat_cells, group_pairs, to_fixed_point
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.release.plan import NodeZones
from flowveil.release.release import Release
from flowveil.slices import Key, SlicedFlows, holds

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Pairs of depths that are looked at one by one: the trees of H3 have a dozen levels at most, three times as many where
#: they are refined into halves, dendrograms dozens.
MOST_LEVEL_PAIRS = 1_024


@dataclass(frozen=True)
class Differencing:
    """How many differences between the matrices of a family are known to a reader, and how many are short."""

    comparisons: int = 0  # pairs of a coarser matrix and a set of finer ones that were compared
    differences: int = 0  # regions where a difference above zero is known
    short: int = 0  # how many of these are below the guarantee
    # Comparisons that settle nothing: zones are not nodes of one tree, trees are too deep, something is suppressed, or
    # there are more than two kinds of matrices.
    unchecked: int = 0

    @property
    def harmless(self) -> bool:
        """Whether no difference is short, and all comparisons settle it."""
        return self.short == 0 and self.unchecked == 0

    def __add__(self, other: Differencing) -> Differencing:
        return Differencing(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


#: For each finest slice, the finer matrix that counts it; None where that one is not published.
Layer = Sequence[Release | None]


def differences(
    flows: SlicedFlows, coarser: Sequence[Key], published: Mapping[Key, Release], *, common_zones: bool
) -> Differencing:
    """Returns what subtraction reveals in finer and coarser matrices of the same trips.

    Over common zones a coarser matrix is the sum of published cells of finer ones and reveals nothing new. Otherwise
    the differences of a matrix and one layer of finer ones are counted. Where anything is suppressed, what is missing
    from one matrix can follow from another and back, in more combinations than are looked at, and so with more than
    two layers: then no count settles it.
    """
    found = Differencing()
    requested = _kinds(flows, coarser)
    kinds = [kind for kind in requested if any(key in published for key in kind)]
    complete = len(published) == len(coarser) + len(flows.keys) and all(
        bool((release.cell_of_flow >= 0).all()) for release in published.values()
    )
    # Slices that are all missing are known to be short, and a total of short slices may reveal each.
    if len(requested) < 2 or not any(key in published for key in coarser):
        return found
    if any(release.plan.layer is not None for release in published.values()):
        return Differencing(comparisons=1, unchecked=1)
    for key in coarser:
        if key in published and common_zones:
            found += Differencing(comparisons=1)
        elif key in published:
            parts, subtracted = _finer_layers(flows, requested, key, published)
            for layers in subtracted:
                found += compare(published[key], parts, layers)
            if not complete or len(kinds) > 2:
                found += Differencing(unchecked=1)
    return found


def refuse_differences(found: Differencing, *, accepted: bool) -> None:
    """Raises InfeasibleError if matrices reveal, or may reveal, what the guarantee hides, unless that is accepted."""
    if accepted or found.harmless:
        return
    hint = (
        "Hint: --common-zones gives all matrices the same zones and makes the coarser ones sums of the finer ones, so "
        "that subtraction reveals nothing; or leave out the total (--total) or the longer step and compute it from the "
        "release (`flowveil derive DIR --sum COLUMN`); or publish nevertheless with --accept-differencing."
    )
    if found.short:
        raise InfeasibleError(
            "The matrices are safe one by one but not together: subtracting them from each other gives "
            f"{found.short:,} differences above zero that are short of the guarantee, known to any reader. "
            f"Nothing was published. {hint}"
        )
    raise InfeasibleError(
        "Matrices of the same trips are published together, and whether subtraction reveals something cannot be "
        "determined: something is suppressed in them, or there are more than two kinds, or their zones are layers or "
        f"not nodes of one tree. Nothing was published. {hint}"
    )


def _kinds(flows: SlicedFlows, coarser: Sequence[Key]) -> list[list[Key]]:
    """Returns the keys by kind, coarsest first: keys of one kind are disjoint and together hold everything."""
    kinds: dict[tuple[int, ...], list[Key]] = {}
    for key in (*coarser, *flows.keys):
        # Labels of one step of time are equally long; of attributes, only whether one is given makes a kind.
        last = len(key[-1]) if key[-1] is not None and flows.every is not None else 0
        kinds.setdefault((*(int(value is None) for value in key), last), []).append(key)
    return list(kinds.values())


def _finer_layers(
    flows: SlicedFlows, kinds: Sequence[list[Key]], key: Key, published: Mapping[Key, Release]
) -> tuple[list[Flows], list[list[Layer]]]:
    """Returns the finest slices of a coarser matrix, and the layers to subtract: each finer kind alone, then all."""
    own = next(i for i, kind in enumerate(kinds) if key in kind)
    members = flows.members(key)
    layers: list[Layer] = []
    for kind in kinds[own + 1 :]:
        of_part: dict[int, Release | None] = {}
        for finer in kind:
            if holds(key, finer, columns=flows.columns):
                of_part |= dict.fromkeys(flows.members(finer), published.get(finer))
        layers.append([of_part[m] for m in members])
    subtracted = [[layer] for layer in layers]
    return [flows.slices[m] for m in members], [*subtracted, layers] if len(layers) > 1 else subtracted


def compare(coarse: Release, parts: Sequence[Flows], layers: Sequence[Layer]) -> Differencing:
    """Counts the differences between a matrix and finer ones.

    ``parts`` are the flows of the finest slices that together are the coarser one's; ``layers`` are kinds of finer
    matrices that are subtracted together, and each names the matrix of every part.
    """
    plans = [coarse.plan, *(release.plan for layer in layers for release in layer if release is not None)]
    origins, destinations = coarse.input.origins, coarse.input.destinations
    if (
        any(not isinstance(z, NodeZones) for plan in plans for z in (plan.origin_zones, plan.destination_zones))
        or (origins.max_depth + 1) * (destinations.max_depth + 1) > MOST_LEVEL_PAIRS
    ):
        return Differencing(comparisons=1, unchecked=1)
    records = _Records(
        coarse,
        np.concatenate([_positions(coarse.input, flows) for flows in parts]),
        concat_cells(parts),
        [_finer_cells(parts, layer) for layer in layers],
    )
    known, short = [], []
    for regions in _region_sets(coarse):
        difference, bad = records.remainders(regions)
        known.append(regions.rectangle[difference])
        short.append(regions.rectangle[bad])
    # The same rectangle may be a region in several ways.
    n_known, n_short = (len(np.unique(np.concatenate(found), axis=0)) for found in (known, short))
    return Differencing(comparisons=1, differences=n_known, short=n_short)


@dataclass(frozen=True, eq=False)
class _Regions:
    """Disjoint rectangles that hold every flow of the coarser matrix, and the region of each flow.

    A rectangle is a row: first and last leaf of the origins, then of the destinations, the last ones excluded. If
    ``whole``, only regions in which the coarser matrix suppresses nothing count: elsewhere its published volume is
    not that of the region.
    """

    of_flow: Ints
    rectangle: Ints
    whole: bool


def _rectangles(flows: Flows, node_o: Ints, node_d: Ints) -> Ints:
    ends = ((flows.origins, node_o), (flows.destinations, node_d))
    return np.stack([bound[node] for tree, node in ends for bound in (tree.leaf_start, tree.leaf_stop)], axis=1)


def _region_sets(coarse: Release) -> Iterator[_Regions]:
    """Yields the cells of a matrix, and for each pair of depths the pair of nodes that holds each flow."""
    plan, flows = coarse.plan, coarse.input
    groups = group_pairs(plan.origin_zone, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
    yield _Regions(groups.row, _cell_rectangles(coarse, groups.origin, groups.destination), whole=False)
    up_d = list(_ancestors(flows.destinations))
    for at_o in _ancestors(flows.origins):
        for at_d in up_d:
            groups = group_pairs(
                at_o[flows.origin], at_d[flows.destination], flows.origins.n_nodes, flows.destinations.n_nodes
            )
            yield _Regions(groups.row, _rectangles(flows, groups.origin, groups.destination), whole=True)


def _ancestors(tree: Hierarchy) -> Iterator[Ints]:
    """Yields for each depth the node of that depth above each tile; the tile itself where it is not that deep."""
    node = tree.leaf_node
    yield node
    for depth in range(tree.max_depth - 1, -1, -1):
        node = np.where(tree.depth[node] > depth, tree.lift(node), node).astype(np.int32)
        yield node


def _cell_rectangles(release: Release, origin: Ints, destination: Ints) -> Ints:
    """Returns the rectangles of pairs of zones of a release."""
    nodes = release.plan.nodes
    return _rectangles(release.input, nodes[0][origin], nodes[1][destination])


def _finer_cells(parts: Sequence[Flows], layer: Layer) -> tuple[Ints, Ints]:
    """Returns the cell of a layer of finer matrices that counts each record (-1: none), and the cells' rectangles."""
    start: dict[int, int] = {}
    cell, rectangles = [], [np.zeros((0, 4), np.int32)]
    n_cells = 0
    for flows, release in zip(parts, layer, strict=True):
        if release is None:
            cell.append(np.full(len(flows), -1, dtype=np.int32))
            continue
        if id(release) not in start:
            start[id(release)] = n_cells
            rectangles.append(_cell_rectangles(release, release.cells.origin, release.cells.destination))
            n_cells += len(release.cells)
        of_flow = release.cell_of_flow[_positions(release.input, flows)]
        cell.append(np.where(of_flow >= 0, of_flow + np.int32(start[id(release)]), np.int32(-1)).astype(np.int32))
    return np.concatenate(cell), np.concatenate(rectangles)


def _counted_within(cell: Ints, rectangle: Ints, region: Ints, regions: _Regions) -> Mask:
    """Returns which rows are counted in a cell that lies wholly in the region of the row."""
    # A row of each cell: every cell counts at least one.
    first = np.zeros(len(rectangle), dtype=np.int64)
    inside = np.flatnonzero(cell >= 0)[::-1]
    first[cell[inside]] = inside
    outer = regions.rectangle[region[first]] if len(first) else rectangle
    within = np.all((rectangle[:, ::2] >= outer[:, ::2]) & (rectangle[:, 1::2] <= outer[:, 1::2]), axis=1)
    return np.append(within & (region[first] >= 0), False)[cell]


@dataclass(frozen=True, eq=False)
class _Records:
    """The flows of all finest slices, one below the other, and the finer cells that count them."""

    coarse: Release
    flow: Rows  # the flow of the coarser matrix that each record belongs to
    rows: Cells
    layers: Sequence[tuple[Ints, Ints]]  # see `_finer_cells`

    def remainders(self, regions: _Regions) -> tuple[Mask, Mask]:
        """Returns for each region whether something is left above zero, and whether that is short."""
        coarse, n = self.coarse, len(regions.rectangle)
        region = regions.of_flow[self.flow]
        covered = np.zeros(len(region), dtype=np.bool_)
        for cell, rectangle in self.layers:
            covered |= _counted_within(cell, rectangle, region, regions)
        kept = coarse.cell_of_flow[self.flow] >= 0
        left = np.where(kept & ~covered, region, np.int32(-1))
        remainder = self.rows.merge(left, np.where(left >= 0, 0, -1).astype(np.int32), max(n, 1), 1).cells
        known, bad = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        known[remainder.origin] = True
        bad[remainder.origin] = ~coarse.guarantee.safe(remainder)
        # A coarser matrix that filtered flows out first may count less than its finer cells do: then the published
        # numbers do not differ by the remainder, and that must not look like a small group either.
        shown = self._published_difference(regions, np.where(covered, region, n), n)
        bad |= shown
        known |= shown
        if regions.whole:
            # Regions with a flow that is suppressed, or counted in a cell that reaches out of the region.
            own = _cell_rectangles(coarse, coarse.cells.origin, coarse.cells.destination)
            sure = _counted_within(coarse.cell_of_flow, own, regions.of_flow, regions)
            spoilt = regions.of_flow[~sure]
            bad[spoilt[spoilt >= 0]] = known[spoilt[spoilt >= 0]] = False
        return known, bad

    def _published_difference(self, regions: _Regions, covered: Ints, n: int) -> Mask:
        """Returns the regions in which the published numbers of both matrices differ by too little."""
        coarse, guarantee = self.coarse.input, self.coarse.guarantee
        counted = np.where(self.coarse.cell_of_flow >= 0, regions.of_flow, n)
        counted[counted < 0] = n

        def difference(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
            # Row n is for flows in no region.
            sums = (np.bincount(at, v, n + 1)[:n] for at, v in ((counted, ours), (covered, theirs)))
            return np.subtract(*sums)

        trips = difference(coarse.trips, self.rows.trips)
        short = (trips > 0) & (trips < (guarantee.trips or 0))
        for column, least in guarantee.of_columns.items():
            held = difference(to_fixed_point(coarse.volume(column)), to_fixed_point(self.rows.volume(column)))
            short |= (trips > 0) & (held / MILLION < least)
        return short


def _positions(flows: Flows, part: Flows) -> Rows:
    """Returns the position of each flow of a part in the whole; both are sorted by the same tiles."""
    width = np.int64(flows.destinations.n_tiles)
    key = flows.origin.astype(np.int64) * width + flows.destination
    return np.searchsorted(key, part.origin.astype(np.int64) * width + part.destination)
