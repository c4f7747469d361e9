"""The zones of an earlier release, recounted on new data.

Cells below the threshold are suppressed, and the plan is refused if they hold more than the limit.
A tile outside the earlier zones gets the coarsest node that overlaps none of them. If the earlier
zones overlap, a flow belongs to the one earlier cell that contains it; flows in no earlier cell are
suppressed.

Of a map in layers, a flow belongs to the first layer with a published cell around it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Ints, Mask, repr_of_sizes
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import OUTSIDE_CELL, VIRTUAL_ROOT, Hierarchy
from flowveil.methods.method import Method
from flowveil.methods.odkanon import Cuts
from flowveil.release.plan import Plan
from flowveil.release.zone_map import CELLS, TILES, FrozenMap
from flowveil.zoning.covering import containing_cells
from flowveil.zoning.restriction import refined, to_the_top, tree_over

NAME = "zones-of"


@dataclass(frozen=True)
class ZonesOf(Method):
    """The method that keeps the zones of a frozen map."""

    frozen: FrozenMap | None = None

    @classmethod
    def over(cls, source: Any, *, revise: bool = False) -> ZonesOf:
        """Returns the method for the zones of a folder, a frozen map, or its file.

        For a revision if asked.
        """
        frozen = FrozenMap.read(source)
        plan = functools.partial(plan_over, frozen=frozen, revise=revise)
        summary = "the zones of an earlier release"
        return cls(
            NAME, plan, summary, homogeneous=frozen.homogeneous, same_zones_plan=plan, frozen=frozen
        )

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Empty: there is nothing to choose."""
        return {}

    def on_hierarchy(self, flows: Flows, hierarchy: str | None) -> tuple[Flows, dict[str, str]]:
        """Returns the flows on the whole tree of the frozen map, and parameters.

        ParameterError if read differently.
        """
        assert self.frozen is not None
        if hierarchy not in (None, self.frozen.hierarchy):
            raise ParameterError(
                f"The earlier release uses the hierarchy '{self.frozen.hierarchy}'; found"
                f" '{hierarchy}'. Hint: omit --hierarchy."
            )
        _refuse_other_reading(flows.intake.parameters(), self.frozen)
        moved, name = refined(flows, self.frozen.hierarchy)
        return to_the_top(moved), {"hierarchy": name, "zones_of": self.frozen.sha256}


def _refuse_other_reading(read: Mapping[str, Any], frozen: FrozenMap) -> None:
    resolutions = frozen.about["resolution"], read["resolution"]
    if resolutions[0] != resolutions[1]:
        there, here = ("a zone map" if r is None else f"H3 at resolution {r}" for r in resolutions)
        raise ParameterError(
            f"The earlier release has the tiles of {there}; these trips were read on {here}. "
            "Hint: read them the same way (--resolution, --zones)."
        )
    if read["same_zones"] != frozen.about["same_zones"]:
        raise ParameterError(
            f"The earlier release was made {'with' if frozen.about['same_zones'] else 'without'}"
            " --same-zones; these trips were not read that way. Hint: read them the same way."
        )


def plan_over(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float,
    frozen: FrozenMap,
    revise: bool = False,
) -> Plan:
    """Plans the release of these flows, on trees up to the top, over the zones of a frozen map.

    With ``revise`` the release revises the one that has these zones. ParameterError if the map of
    these flows differs from the earlier one, InfeasibleError if cells below the threshold exceed
    the limit.
    """
    # Checks that the zones are on this map with the same tiles.
    ends = [_Covering.from_map(flows, frozen, end) for end in ("origin", "destination")]
    if frozen.homogeneous:
        plan = Cuts(flows.origins, flows.destinations, *(end.cut() for end in ends)).plan(
            flows, guarantee
        )
    else:
        plan = MapCells.from_map(flows, frozen).assign(flows, guarantee, revise=revise)
    plan = replace(plan, frozen=frozen.as_table())
    volume = flows.volume(guarantee.basis)
    share = 1 - float(np.sum(volume[plan.kept])) / float(np.sum(volume))
    if share > max_suppressed:
        raise InfeasibleError(
            f"Over the zones of the earlier release about {share:.0%} would be suppressed; allowed"
            f" are {max_suppressed:.0%}. Hint: allow more (--max-suppressed), lower k, or choose a"
            " new map by leaving --zones-of out, and audit it against the earlier releases.",
            best=None if plan.kept.any() else {"suppressed": 1.0},
        )
    return plan


@dataclass(frozen=True, eq=False)
class _Covering:
    """The zones of one end: the tree of the new data, a larger tree with a tile of every zone, and
    its sorted nodes.
    """

    tree: Hierarchy
    larger: Hierarchy
    zones: Ints

    @classmethod
    def from_map(cls, flows: Flows, frozen: FrozenMap, end: str) -> _Covering:
        """Finds the zones of an end.

        Raises ParameterError if they are not on the map or have other tiles there.
        """
        tree = flows.origins if end == "origin" else flows.destinations
        codes = frozen.zones(end)
        if CELLS in frozen.table.column_names:
            seen = tree.code[tree.leaf_node]
            resolution = int(frozen.about["resolution"])
            rows = zip(
                *(frozen.table[name].to_pylist() for name in ("zone", "role", CELLS)), strict=True
            )
            # The virtual root contains all tiles, so it needs none.
            cells = [
                cells
                for zone, role, cells in rows
                if role in (end, "both") and zone != VIRTUAL_ROOT
            ]
            first = np.array([_first_tile(c, resolution) for c in cells], dtype=np.uint64)
            larger = tree_over(np.concatenate((seen, first)), frozen.hierarchy)
        else:
            if flows.whole_map is None:
                raise ParameterError(
                    "The earlier release uses a zone map. Hint: give the map with --zones."
                )
            larger = flows.whole_map
        nodes = np.array([larger.node_of_code.get(code, -1) for code in codes], dtype=np.int32)
        same = bool(np.all(nodes >= 0))
        if same and TILES in frozen.table.column_names:
            tiles = dict(
                zip(frozen.table["zone"].to_pylist(), frozen.table[TILES].to_pylist(), strict=True)
            )
            leaf = larger.code_text(larger.leaf_node)
            leaves = [
                leaf[larger.leaf_start[node] : larger.leaf_stop[node]].tolist() for node in nodes
            ]
            same = all(
                sorted(found) == tiles[code] for found, code in zip(leaves, codes, strict=True)
            )
        if not same:
            raise ParameterError(
                "The map differs from that of the earlier release: zones are missing, or have other"
                " tiles. Hint: give the same map with the same columns (--zones)."
            )
        return cls(tree, larger, np.sort(nodes))

    def cut(self) -> Ints:
        """Returns the zones, and the nodes that fill the rest, as a cut of the tree of the new
        data.
        """
        larger, zones = self.larger, self.zones
        if np.any(zones[1:] < larger.stop[zones[:-1]]):
            raise ParameterError(
                "Zones of the earlier release overlap, although its report says otherwise."
            )
        before = np.searchsorted(zones, np.arange(larger.n_nodes + 1))
        holds = before[larger.stop] > before[:-1]
        # A node without zones is inside the last one before it, or free; the topmost free nodes
        # fill the rest.
        inside = np.arange(larger.n_nodes) < np.append(0, larger.stop[zones])[before[:-1]]
        free = ~holds & ~inside
        fills = np.flatnonzero(free & holds[np.maximum(larger.parent, 0)]).astype(np.int32)
        whole = np.sort(np.concatenate((zones, fills)))
        larger.check_cut(whole)
        cut = np.flatnonzero(np.isin(self.tree.code, larger.code[whole])).astype(np.int32)
        self.tree.check_cut(cut)
        return cut


def _first_tile(cells: list[str], resolution: int) -> int:
    if not cells:
        return OUTSIDE_CELL
    try:
        return int(h3_int.cell_to_center_child(int(cells[0], 16), resolution))
    except (ValueError, IndexError):
        raise ParameterError(
            "The earlier release lists cells that are not H3 cells of its resolution."
        ) from None


def _published(flows: Flows, guarantee: Guarantee, cell: Ints, left_by: Ints, n_cells: int) -> Mask:
    """Returns the flows in cells that can be published.

    ``cell`` is the cell of each flow in this layer, ``left_by`` the last cell of an earlier layer
    that was below the threshold; -1 for none. A cell with k - 1 times as many trips as cells left
    its flows is refused: each of these would have exactly k - 1.
    """
    merged = flows.merge(cell, np.zeros(len(flows), dtype=np.int32), n_cells, 1)
    safe = guarantee.safe(merged.cells)
    row, least_k = merged.row, 3
    # A flow that no earlier cell has left may have any number of trips.
    bounded = np.ones(len(merged.cells), dtype=np.bool_)
    bounded[row[(row >= 0) & (left_by < 0)]] = False
    pairs = np.unique(row[row >= 0].astype(np.int64) * (n_cells + 1) + left_by[row >= 0] + 1)
    parts = np.bincount(pairs // (n_cells + 1), minlength=len(merged.cells))
    if guarantee.k >= least_k:
        safe &= ~(bounded & (merged.cells.trips == (guarantee.k - 1) * parts))
    return np.append(safe, False)[row]


@dataclass(frozen=True, eq=False, repr=False)
class MapCells:
    """Cells that are kept: those of a frozen map whose zones have trips at both ends now, or those
    of a plan.

    ``origin`` and ``destination`` are their nodes; ``layer`` is 0 without layers.
    """

    __repr__ = repr_of_sizes

    origin: Ints
    destination: Ints
    layer: NDArray[np.int8]

    @classmethod
    def from_map(cls, flows: Flows, frozen: FrozenMap) -> MapCells:
        """Finds the cells; raises InfeasibleError if none has trips at both ends."""
        number = [tree.node_of_code for tree in (flows.origins, flows.destinations)]
        cells = [
            (number[0][o], number[1][d], n)
            for o, d, n in frozen.cells
            if o in number[0] and d in number[1]
        ]
        if not cells:
            raise InfeasibleError(
                "No trip is in a cell of the earlier release. Hint: choose a new map."
            )
        nodes = np.array(cells, dtype=np.int32)
        return cls(nodes[:, 0], nodes[:, 1], nodes[:, 2].astype(np.int8))

    @classmethod
    def from_plan(cls, plan: Plan) -> MapCells:
        """The cells of a plan, for flows on the same trees."""
        origins, destinations = plan.nodes
        pairs = np.unique(
            np.stack((plan.origin_zone, plan.destination_zone), axis=1)[plan.kept], axis=0
        )
        layer = np.zeros(len(origins), np.int8) if plan.layer is None else plan.layer
        return cls(origins[pairs[:, 0]], destinations[pairs[:, 1]], layer[pairs[:, 0]])

    def assign(self, flows: Flows, guarantee: Guarantee, *, revise: bool = False) -> Plan:
        """Assigns every flow to the cell that contains it, layer by layer.

        With ``revise`` a flow stays in the first cell around it, although that is below the
        threshold: all cells stay published. Raises ParameterError if a flow is in two cells of one
        layer.
        """
        cell, left_by = (np.full(len(flows), -1, dtype=np.int32) for _ in range(2))
        kept = np.zeros(len(flows), dtype=np.bool_)
        for layer in np.unique(self.layer).tolist():
            around = np.where(cell < 0, self.around(flows, layer), np.int32(-1))
            safe = _published(flows, guarantee, around, left_by, len(self.layer))
            cell = np.where((around >= 0) & (safe | revise), around, cell)
            left_by = np.where((around >= 0) & ~safe, around, left_by)
            kept |= safe
        return self._plan(flows, cell, kept)

    def around(self, flows: Flows, layer: int) -> Ints:
        """Returns the cell of a layer that contains each flow; -1 for none."""
        own = np.flatnonzero(self.layer == layer)
        trees, cells = (
            (flows.origins, flows.destinations),
            (
                self.origin[own],
                self.destination[own],
            ),
        )
        points = trees[0].leaf_node[flows.origin], trees[1].leaf_node[flows.destination]
        overlap = ParameterError(
            "Cells of the earlier release overlap, so trips cannot be assigned to them."
        )
        at = containing_cells([tree.parent for tree in trees], cells, points, overlap=overlap)
        return np.where(at >= 0, own[at], -1).astype(np.int32)

    def _plan(self, flows: Flows, cell: Ints, kept: Mask) -> Plan:
        """Returns the plan that assigns flows to these cells.

        The zones of a flow in no cell are its tiles.
        """
        inside = cell >= 0
        origin = np.where(inside, self.origin[cell], flows.origins.leaf_node[flows.origin])
        destination = np.where(
            inside, self.destination[cell], flows.destinations.leaf_node[flows.destination]
        )
        layers = (
            (np.where(inside, self.layer[cell], np.int8(0)), self.layer)
            if self.layer.any()
            else None
        )
        # All cells of the map are listed, so that a revision can keep cells without trips.
        nodes = [
            np.concatenate(both)
            for both in ((origin, self.origin), (destination, self.destination))
        ]
        return Plan.from_nodes(
            flows, nodes, kept, {}, layer=None if layers is None else np.concatenate(layers)
        )
