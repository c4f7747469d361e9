"""What the choice of zones gives away to a reader who knows the method: minimality, or downcoding.

A zone is large because a smaller one would have been below the threshold. So a reader who knows the method concludes
from a zone that was not divided that a part of one of its cells is short. Two figures:

*Certain*: TwinCut and PairCut divide whatever can be divided where nothing may be suppressed. A zone of several tiles
that is in one published cell has a part below the guarantee then, and for PairCut every cell of such a zone does. The
folder says all of that.

*Tried*: for any method and limit, with the trips. Take a published zone (of nested cells: a cell) that has a short
part. Move the trips of its short parts to the largest part of the same cell: the published table stays the same, and
no part is short. Run the method on that. If the zone is divided now, the reader who finds it whole knows that this
world is not the true one: its short parts are why it was not divided. Worlds in which only one part is left are not
tried: they differ in which tiles are used, not in what is short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.shadow_releases import again, guarantee_of, moved, shown_nodes
from flowveil.audit.trips import nodes_of, place_trips
from flowveil.errors import InfeasibleError

if TYPE_CHECKING:
    from flowveil.audit.published import PublishedRelease
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Counts = NDArray[np.int64]
#: Methods that divide every zone, or cell, that can be divided without a short part, where nothing may be suppressed.
_DIVIDE_ALL = ("twincut", "paircut")


@dataclass(frozen=True)
class Minimality:
    """What zones that were not divided say of their parts.

    Attributes:
        units: published zones of both ends; of nested cells, published cells counted once for each end.
        certain: units of which the folder alone says that a part is short, or that one tile alone is used; None where
            nothing can be concluded without running the method.
        blocked: with the trips: units that have a short part.
        short: with the trips: how many parts of published cells are short.
        tried: blocked units for which the method was run on a world without their short parts.
        divided: those that are divided in that world.
        confined: the short parts of these. A reader knows that at least one of each zone's is below the guarantee, not
            which.
    """

    units: int
    certain: int | None = None
    blocked: int | None = None
    short: int | None = None
    tried: int = 0
    divided: int = 0
    confined: int = 0

    @property
    def share(self) -> float | None:
        """The share of units that give something away: the larger of the certain and the tried share."""
        found = [] if self.certain is None else [self.certain / max(self.units, 1)]
        if self.blocked is not None and (self.tried or not self.blocked):
            found.append(self.blocked / max(self.units, 1) * self.divided / max(self.tried, 1))
        return max(found, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return dict(vars(self))


def minimality(
    release: PublishedRelease, flows: Flows | None = None, *, tries: int = 0, seed: int = 0
) -> Minimality | None:
    """What the zones of a release of one matrix give away; None for boxes, folded times, noise and slices.

    Args:
        release: as published.
        flows: the trips it was made from, on its tree; without them only what is certain.
        tries: for how many zones the method is run again.
        seed: of the sample.
    """
    if len(release.matrices) != 1 or not release.nodes or release.noisy or release.revised:
        return None
    matrix = release.matrices[0]
    n_cells = len(matrix.trips)
    units = len(release.origin_zones) + len(release.destination_zones) if release.homogeneous else 2 * n_cells
    certain = _certain(release)
    if flows is None:
        return Minimality(units, certain)
    ends = [_End.of(release, flows, end) for end in (0, 1)]
    blocked = [(end, int(unit)) for end in ends for unit in end.blocked]
    short = sum(int(end.short.sum()) for end in ends)
    tried = divided = confined = 0
    # Over kept zones nothing was chosen, so nothing is given away by it.
    chosen = release.report["statement"].get("zones_of") is None
    for at in np.random.default_rng(seed).permutation(len(blocked)).tolist() if tries and chosen else ():
        end, unit = blocked[at]
        if tried == tries:
            break
        world = end.without_short(flows, unit)
        if world is None:
            continue
        tried += 1
        if not _is_published(release, world, end, unit):
            divided += 1
            confined += int(end.short[end.unit_of_part == unit].sum())
    if not chosen:
        blocked = []
    return Minimality(units, certain, len(blocked), short, tried, divided, confined)


def _certain(release: PublishedRelease) -> int | None:
    parameters = release.report["parameters"]
    kept = release.report["statement"].get("zones_of") is not None
    named = (parameters.get(name) is not None for name in ("dominance", "stricter", "t"))
    all_divided = (
        release.report["method"] in _DIVIDE_ALL
        and parameters.get("max_suppressed") == 0
        and (parameters.get("options") or {}).get("objective", "error") == "error"
        and not (kept or parameters.get("same_zones") or any(named))
        and release.tiles
    )
    if kept:
        return 0
    if not all_divided:
        return None
    matrix, found = release.matrices[0], 0
    for codes, zone, role in (
        (release.origin_zones, matrix.origin, "origin"),
        (release.destination_zones, matrix.destination, "destination"),
    ):
        tiles = np.array([release.tiles.get((c, role), release.tiles.get((c, "both"), 1)) for c in codes])
        cells = np.bincount(zone, minlength=len(codes))
        found += int(np.sum((tiles > 1) & (cells == 1)) if release.homogeneous else np.sum(tiles[zone] > 1))
    return found


@dataclass(frozen=True, eq=False)
class _End:
    """The parts of published cells when the zones of one end are divided.

    Attributes:
        end: 0 for origins, 1 for destinations.
        nodes: the node of each published cell's zone, and that of its other end.
        cell, part: the published cell of each flow (-1: none), and the child of its zone that holds the flow.
        unit_of_cell: the zone of each cell; of nested cells, the cell itself.
        unit_of_part, part_cell, part_node, part_trips: the distinct parts of cells that hold trips.
        short: which of these are short.
        blocked: the units with several parts of which one is short.
    """

    end: int
    nodes: tuple[Counts, Counts]
    cell: Counts
    part: Counts
    unit_of_cell: Counts
    unit_of_part: Counts
    part_cell: Counts
    part_node: Counts
    part_trips: Counts
    short: NDArray[np.bool_]
    blocked: Counts

    @classmethod
    def of(cls, release: PublishedRelease, flows: Flows, end: int) -> _End:
        matrix = release.matrices[0]
        tree = (flows.origins, flows.destinations)[end]
        node_o = nodes_of(flows.origins, release.origin_zones)[matrix.origin]
        node_d = nodes_of(flows.destinations, release.destination_zones)[matrix.destination]
        own = (node_o, node_d)[end]
        placed = place_trips(release, flows)
        cell = placed.cell
        inside = np.flatnonzero(cell >= 0)
        part = np.full(len(flows), -1, dtype=np.int64)
        tile = (placed.origin, placed.destination)[end]
        part[inside] = _parts(tree, own[cell[inside]], tile[inside])
        guarantee = guarantee_of(release, flows)
        rows = np.where(cell >= 0, cell, -1).astype(np.int32)
        merged = guarantee.prepare(flows).merge(rows, part.astype(np.int32), len(own), len(tree.parent)).cells
        unit = own if release.homogeneous else np.arange(len(own), dtype=np.int64)
        of_part = unit[merged.origin]
        short = ~guarantee.safe(merged)
        several = np.zeros(int(unit.max(initial=0)) + 1, dtype=np.int64)
        distinct = np.unique(np.stack((of_part, merged.destination.astype(np.int64))), axis=1)[0]
        np.add.at(several, distinct, 1)
        # A zone of one part stays what it is, and what is short is the whole of it: a cell below a stricter rule.
        short &= several[of_part] > 1
        return cls(
            end, (node_o, node_d), cell, part, unit, of_part, merged.origin.astype(np.int64),
            merged.destination.astype(np.int64), merged.trips.astype(np.int64), short, np.unique(of_part[short]),
        )  # fmt: skip

    def without_short(self, flows: Flows, unit: int) -> Flows | None:
        """The world in which no part of a unit is short: the same table, if its zone stays whole.

        None where one part alone would be left.
        """
        own = np.flatnonzero(self.unit_of_part == unit)
        target: dict[int, int] = {}
        left: set[int] = set()
        for cell in np.unique(self.part_cell[own]).tolist():
            here = own[self.part_cell[own] == cell]
            largest = int(self.part_node[here[np.argmax(self.part_trips[here])]])
            target[cell] = largest
            left |= {largest, *self.part_node[here[~self.short[here]]].tolist()}
        if len(left) < 2:
            return None
        ends = [flows.origin.copy(), flows.destination.copy()]
        moving = {(int(self.part_cell[p]), int(self.part_node[p])) for p in own[self.short[own]].tolist()}
        for cell, node in moving:
            if node != target[cell]:
                there = np.flatnonzero((self.cell == cell) & (self.part == target[cell]))
                tile = ends[self.end][there[np.argmax(flows.trips[there])]]
                ends[self.end][(self.cell == cell) & (self.part == node)] = tile
        return moved(flows, *ends)


def _parts(tree: Hierarchy, zone: Counts, tile: Counts) -> Counts:
    """The child of each zone that holds a tile; the zone itself where it is a tile.

    A node with a single child holds what the child holds, so children are those of the last of such nodes.
    """
    last = zone.copy()
    while True:
        child = np.minimum(last + 1, len(tree.parent) - 1)
        same = (tree.stop[child] == tree.stop[last]) & (child > last)
        if not same.any():
            break
        last = np.where(same, child, last)
    node = tree.leaf_node[tile].astype(np.int64)
    while True:
        above = tree.parent[node].astype(np.int64)
        rising = (node != last) & (above != last)
        if not rising.any():
            return node
        node = np.where(rising, above, node)


def _is_published(release: PublishedRelease, world: Flows, end: _End, unit: int) -> bool:
    """Whether the method publishes the same zone, or the same cell, in another world."""
    try:
        shadow = again(release, world)
    except InfeasibleError:
        return False
    cell = int(np.flatnonzero(end.unit_of_cell == unit)[0])
    trees = (world.origins, world.destinations)
    shown = shown_nodes(shadow)
    equal = [
        (tree.leaf_start[nodes] == tree.leaf_start[own[cell]]) & (tree.leaf_stop[nodes] == tree.leaf_stop[own[cell]])
        for tree, nodes, own in zip(trees, shown, end.nodes, strict=True)
    ]
    return bool(equal[end.end].any() if release.homogeneous else (equal[0] & equal[1]).any())


def in_words(found: Mapping[str, Any]) -> str:
    """Returns the findings as one sentence."""
    sentences = []
    if found["certain"]:
        sentences.append(f"{found['certain']:,} of {found['units']:,} zones certainly have a part below the threshold")
    if found["blocked"]:
        sentences.append(f"{found['blocked']:,} of {found['units']:,} zones have a part below the threshold")
    if found["tried"]:
        sentences.append(
            f"{found['divided']:,} of {found['tried']:,} zones tried would be divided if all their parts reached the "
            f"threshold, so a reader infers that at least one does not ({found['confined']:,} such parts)"
        )
    return "; ".join(sentences)
