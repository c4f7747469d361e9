"""ODkAnon: greedy bottom-up merging into homogeneous zones (Armenante et al., NetMob 2025).

The order of merges depends on marginal totals and zone counts alone, and merging never makes a cell
worse. So the schedule is computed once, and bisection finds the stopping step
(docs/decisions/0013-odkanon-in-closed-form.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Ints
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Cells, Flows, Merged, group_pairs
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.release.plan import Plan, Suppression

#: Relative drift of the ratio of zone counts at which the larger axis is merged next.
TOLERANCE = 0.03


def odkanon(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    levels: int = 3,
    beta: float | None = None,
    budget: Literal["rows", "volume"] = "rows",
) -> Plan:
    """Plans homogeneous zones by the ODkAnon schedule.

    Args:
        max_suppressed: with ``budget="rows"``, largest share of flows (rows, as published by the
            authors) that the pre-filter may suppress; with ``budget="volume"``, largest share of
            the volume that may be suppressed.
        levels: the pre-filter suppresses flows whose cell is not safe with both ends lifted by up
            to this many levels.
        beta: share of rows for the pre-filter, if it differs from ``max_suppressed``.
        budget: ``"rows"`` filters first and merges until all cells are safe. ``"volume"`` merges
            until the cells below the threshold hold at most ``max_suppressed`` of the volume, and
            suppresses them.
    """
    if levels < 0:
        raise ParameterError(f"levels must be 0 or more; found {levels}.")
    if budget not in ("rows", "volume"):
        raise ParameterError(f"budget must be 'rows' or 'volume'; found {budget!r}.")
    if beta is not None and budget == "volume":
        raise ParameterError(
            "beta belongs to the pre-filter; with budget='volume' use max_suppressed."
        )
    share = max_suppressed if beta is None else beta
    if not 0 <= share < 1:
        raise ParameterError(f"beta must be at least 0 and below 1; found {share}.")
    by_rows = budget == "rows"
    kept = np.ones(len(flows), dtype=np.bool_)
    if by_rows and len(flows):
        kept = ~hopeless(flows, guarantee, levels=levels, share=share)
    rest: Cells = flows if kept.all() else flows.select(kept)
    schedule = Schedule.from_flows(flows, rest, guarantee)
    allowed = None if by_rows else max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    step = _first_good_step(schedule, rest, guarantee, allowed)
    cuts = schedule.cuts(step)
    merged = cuts.merge(rest)
    kept[kept] = guarantee.safe(merged.cells)[merged.row]
    return Plan.from_cuts(
        flows,
        cuts.origin,
        cuts.destination,
        kept,
        suppression=Suppression("hopeless flows", levels, share) if by_rows else Suppression(),
        notes={"steps": step, "roots_reached": step == schedule.n_steps},
    )


def volume_budget_cuts(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float,
    suppressed: Callable[[Cuts], float] | None = None,
) -> Cuts:
    """Returns the zones of ``budget="volume"``.

    ``suppressed``, if given, computes exactly what cuts suppress.
    """
    schedule = Schedule.from_flows(flows, flows, guarantee)
    allowed = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    if suppressed is None:
        return schedule.cuts(_first_good_step(schedule, flows, guarantee, allowed))
    steps = range(schedule.n_steps)
    return schedule.cuts(
        bisect_left(steps, True, key=lambda step: suppressed(schedule.cuts(step)) <= allowed)
    )


def hopeless(flows: Flows, guarantee: Guarantee, *, levels: int, share: float) -> NDArray[np.bool_]:
    """Returns the flows that the pre-filter suppresses.

    A flow is hopeless if its cell is not safe at any level up to ``levels``. All units are
    monotone, so only the highest level matters. If more than ``share`` of the flows are hopeless,
    that share with the smallest volume is suppressed (ties: origin code, then destination code).
    """
    trees = flows.origins, flows.destinations
    node_o, node_d = (_lifted_tiles(tree, levels) for tree in trees)
    merged = flows.merge(
        node_o[flows.origin], node_d[flows.destination], *(tree.n_nodes for tree in trees)
    )
    lost = ~guarantee.safe(merged.cells)[merged.row]
    rows = np.flatnonzero(lost)
    limit = int(np.floor(len(flows) * share))
    if len(rows) > limit:
        rank_o, rank_d = (
            tree.code_rank[tree.leaf_node][tile[rows]]
            for tree, tile in zip(trees, (flows.origin, flows.destination), strict=True)
        )
        lost[rows[np.lexsort((rank_d, rank_o, flows.volume(guarantee.basis)[rows]))[limit:]]] = (
            False
        )
    return lost


def _lifted_tiles(tree: Hierarchy, levels: int) -> Ints:
    """Returns the ancestor of each tile this many levels up, or the root."""
    node = tree.leaf_node
    for _ in range(min(levels, tree.max_depth)):
        node = tree.lift(node)
    return node


@dataclass(frozen=True, eq=False)
class Axis:
    """The merges of one axis in order, and the zones after each.

    ``idle`` nodes have no flows and count as merged.
    """

    hierarchy: Hierarchy
    idle: NDArray[np.bool_]
    order: Ints
    zones_left: NDArray[np.int64]

    @classmethod
    def from_volumes(cls, tree: Hierarchy, tile: Ints, volume: NDArray[Any]) -> Axis:
        """Orders the nodes above tiles with flows, up to their common one, by volume, then deeper
        first, then code.
        """
        active = tree.sum_over(np.bincount(tile, minlength=tree.n_tiles) > 0)
        total = tree.sum_over(np.bincount(tile, weights=volume, minlength=tree.n_tiles))
        present = active > 0
        child_count = np.bincount(tree.parent[1:][present[1:]], minlength=tree.n_nodes)
        inner = present & ~tree.is_leaf
        smallest_whole = np.flatnonzero(active == active[0])[-1]
        inner[:smallest_whole] &= active[:smallest_whole] != active[0]
        nodes = np.flatnonzero(inner)
        order = nodes[
            np.lexsort((tree.code_rank[nodes], -tree.depth[nodes].astype(np.int32), total[nodes]))
        ]
        left = np.concatenate(([int(active[0])], active[0] - np.cumsum(child_count[order] - 1)))
        return cls(hierarchy=tree, idle=~present, order=order.astype(np.int32), zones_left=left)

    def cut(self, merges: int) -> Ints:
        """Returns the zones after this many merges."""
        merged = self.idle.copy()
        merged[self.order[:merges]] = True
        return self.hierarchy.cut_from_merged(merged)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The sequence of merges on both axes; ``origin_merges[t]`` of the first t are on origins.

    If both ends have the same zones, every merge applies to both ends, ordered by the sum of both.
    """

    origins: Axis
    destinations: Axis
    origin_merges: Ints
    one_axis: bool = False

    @classmethod
    def from_flows(cls, flows: Flows, rest: Cells, guarantee: Guarantee) -> Schedule:
        """Computes the schedule from the marginal totals of the remaining flows."""
        volume = rest.volume(guarantee.basis)
        if flows.same_zones:
            ends = np.concatenate((rest.origin, rest.destination))
            both = Axis.from_volumes(flows.origins, ends, np.concatenate((volume, volume)))
            return cls(both, both, np.arange(len(both.order) + 1, dtype=np.int32), one_axis=True)
        origins = Axis.from_volumes(flows.origins, rest.origin, volume)
        destinations = Axis.from_volumes(flows.destinations, rest.destination, volume)
        return cls(origins, destinations, _interleave(origins.zones_left, destinations.zones_left))

    @property
    def n_steps(self) -> int:
        """Number of merges until both roots are reached."""
        return len(self.origin_merges) - 1

    def cuts(self, step: int) -> Cuts:
        """Returns the two cuts after this many steps."""
        i = int(self.origin_merges[step])
        o, d = self.origins, self.destinations
        return Cuts(o.hierarchy, d.hierarchy, o.cut(i), d.cut(i if self.one_axis else step - i))


def _interleave(left_o: NDArray[np.int64], left_d: NDArray[np.int64]) -> Ints:
    """Returns for every t how many of the first t steps merge origins.

    Each choice depends on all earlier ones.
    """
    n_o, n_d = len(left_o) - 1, len(left_d) - 1
    counts_o, counts_d = left_o.tolist(), left_d.tolist()
    start = counts_o[0] / counts_d[0] if counts_d[0] else 1.0
    upper, lower = start * (1 + TOLERANCE), start * (1 - TOLERANCE)
    taken = [0]
    i = j = 0
    while i < n_o and j < n_d:
        ratio = counts_o[i] / counts_d[j]
        if ratio > upper or ((i + j) % 2 == 0 and ratio >= lower):
            i += 1
        else:
            j += 1
        taken.append(i)
    tail = np.full(n_d - j, i) if i == n_o else np.arange(i + 1, n_o + 1)
    return np.concatenate((taken, tail)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Cuts:
    """A cut of each tree."""

    origins: Hierarchy
    destinations: Hierarchy
    origin: Ints
    destination: Ints

    def zones(self, cells: Cells) -> tuple[Ints, Ints]:
        """Returns the zones of the tiles of each cell at both ends."""
        zone_o, zone_d = (
            self.origins.zone_of_tile(self.origin),
            self.destinations.zone_of_tile(self.destination),
        )
        return zone_o[cells.origin], zone_d[cells.destination]

    def merge(self, cells: Cells) -> Merged:
        """Merges cells between tiles into the cells of these cuts."""
        return cells.merge(*self.zones(cells), len(self.origin), len(self.destination))

    def plan(self, flows: Flows, guarantee: Guarantee, **more: Any) -> Plan:
        """Returns the plan that publishes all safe cells of these cuts.

        Further arguments as in `Plan.from_cuts`.
        """
        merged = self.merge(flows)
        kept = guarantee.safe(merged.cells)[merged.row]
        return Plan.from_cuts(flows, self.origin, self.destination, kept, **more)


def _first_good_step(
    schedule: Schedule, cells: Cells, guarantee: Guarantee, allowed: float | None
) -> int:
    """Returns the first step at which cells below the threshold hold at most the allowed volume
    (None: no such cells).

    Bisection: coarser steps never have more such cells or volume. Returns the last step if none is
    good.
    """

    def is_good(step: int) -> bool:
        merged = schedule.cuts(step).merge(cells).cells
        unsafe = ~guarantee.safe(merged)
        volume = float(np.sum(merged.volume(guarantee.basis)[unsafe]))
        return not unsafe.any() or (allowed is not None and volume <= allowed)

    return bisect_left(range(schedule.n_steps), True, key=is_good)


def common_cuts(flows: Flows, guarantee: Guarantee, *, max_suppressed: float) -> Cuts:
    """Returns the finest step of the common schedule with little enough volume below the threshold
    in every slice.
    """
    rows = guarantee.to_fixed_point(flows)[0]
    whole, guarantee = guarantee.to_fixed_point(flows.whole)
    schedule = Schedule.from_flows(whole, whole, guarantee)
    number = np.repeat(np.arange(len(flows.slices), dtype=np.int32), [len(s) for s in flows.slices])
    allowed = max_suppressed * float(np.sum(rows.volume(guarantee.basis)))

    def is_good(step: int) -> bool:
        cuts = schedule.cuts(step)
        zone_o, zone_d = cuts.zones(rows)
        places = group_pairs(number, zone_o, len(flows.slices), len(cuts.origin))
        cells = rows.merge(places.row, zone_d, len(places.origin), len(cuts.destination)).cells
        short = ~guarantee.safe(cells)
        # Cells without weight count a little, so that a budget of 0 allows none of them.
        volume = float(np.sum(cells.volume(guarantee.basis)[short])) + 1e-9 * float(
            np.count_nonzero(short)
        )
        return volume <= allowed

    return schedule.cuts(bisect_left(range(schedule.n_steps), True, key=is_good))
