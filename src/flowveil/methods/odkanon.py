"""ODkAnon: greedy bottom-up merging into homogeneous zones (Armenante et al., NetMob 2025).

The published loop merges, step after step, the sibling group with the fewest trips, on an axis chosen from the two
zone counts, until no cell is short. The cost of a group is its parent's total on that axis, so the order of merges
on an axis depends on that axis' totals alone, and the axis rule on the zone counts alone: cells decide nothing but when
to stop, and merging never makes a cell worse. So the whole schedule is computed once from the marginals and the
stopping step is found by bisection; cells are counted at the probed steps only.

The order on one axis is a plain sort. A parent's total is at least its child's, and where they are equal the child is
deeper and goes first; so in the order (total, deeper first, code) every group comes after all groups below it, which
is what makes it eligible.

Guaranteed: the zones are those of the step-by-step loop in ``tests/reference/odkanon.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import DENSE_ENTRIES_PER_ROW, Cells, Flows, Merged
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.plan import Plan

#: The axis whose share of zones has drifted this far from the start is merged next.
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
    """Plan homogeneous zones by the ODkAnon schedule.

    Args:
        flows: what to anonymise.
        guarantee: what every cell must satisfy.
        max_suppressed: with ``budget="rows"`` the share of flows (rows, as published by the authors) that the
            pre-filter may suppress; with ``budget="volume"`` the share of the volume that may be suppressed.
        levels: the pre-filter calls a flow hopeless when lifting both ends by 0 to this many levels never makes
            its cell safe.
        beta: the pre-filter's share of rows, where it should differ from ``max_suppressed``.
        budget: ``"rows"`` filters first and merges until no cell is short; ``"volume"`` does not filter but stops
            as soon as the cells that are short hold at most ``max_suppressed`` of the volume, and suppresses them.
    """
    if levels < 0:
        raise ParameterError(f"levels must be 0 or more; found {levels}.")
    if budget not in ("rows", "volume"):
        raise ParameterError(f"budget must be 'rows' or 'volume'; found {budget!r}.")
    if beta is not None and budget == "volume":
        raise ParameterError("beta belongs to the pre-filter; with budget='volume' use max_suppressed.")
    share = max_suppressed if beta is None else beta
    if not 0 <= share < 1:
        raise ParameterError(f"beta must be at least 0 and below 1; found {share}.")
    by_rows = budget == "rows"
    kept = np.ones(len(flows), dtype=np.bool_)
    if by_rows and len(flows):
        kept = ~hopeless(flows, guarantee, levels=levels, share=share)
    rest: Cells = flows if kept.all() else flows.select(kept)
    schedule = Schedule.of(flows, rest, guarantee.basis)
    allowed = 0.0 if by_rows else max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    step = _first_good_step(schedule, rest, guarantee, allowed)
    origin_cut, destination_cut = schedule.cuts(step)
    merged = _merge(schedule, rest, step)
    safe = _safe(schedule, merged.cells, guarantee, step)
    if not safe.all():
        kept[np.flatnonzero(kept)[~safe[merged.row]]] = False
    rule: dict[str, Any] = {"rule": "short cells"}
    if by_rows:
        rule = {"rule": "hopeless flows", "levels": levels, "beta": share}
    return Plan.from_cuts(
        flows,
        origin_cut,
        destination_cut,
        kept,
        suppression=rule,
        notes={"steps": step, "roots_reached": step == schedule.n_steps},
    )


def hopeless(flows: Flows, guarantee: Guarantee, *, levels: int, share: float) -> NDArray[np.bool_]:
    """The flows that the pre-filter suppresses.

    A flow is hopeless when at no level its cell, both ends lifted by that level, is safe. All hopeless flows go if
    they are at most ``share`` of the flows, else that share with the smallest volume (ties: origin code, then
    destination code).
    """
    origins, destinations = flows.origins, flows.destinations
    lost = ~guarantee.safe(flows, np.ones(len(flows), np.int32), np.ones(len(flows), np.int32))
    # Each level is merged from the one below, so the tables shrink; `row` follows the flows up.
    cells: Cells = flows
    row: Ints | None = None
    node_o, node_d = origins.leaf_node[flows.origin], destinations.leaf_node[flows.destination]
    for _ in range(levels):
        if not lost.any():
            break
        merged = _merge_nodes(cells, origins.lift(node_o), destinations.lift(node_d), origins, destinations)
        cells = merged.cells
        row = merged.row if row is None else merged.row[row]
        node_o, node_d = cells.origin, cells.destination
        lost &= ~guarantee.safe(cells, origins.size[node_o], destinations.size[node_d])[row]
    limit = int(np.floor(len(flows) * share))
    if lost.sum() <= limit:
        return lost
    candidates = np.flatnonzero(lost)
    order = np.lexsort(
        (
            destinations.code_rank[destinations.leaf_node[flows.destination[candidates]]],
            origins.code_rank[origins.leaf_node[flows.origin[candidates]]],
            flows.volume(guarantee.basis)[candidates],
        )
    )
    out = np.zeros(len(flows), dtype=np.bool_)
    out[candidates[order[:limit]]] = True
    return out


def _merge_nodes(cells: Cells, node_o: Ints, node_d: Ints, origins: Hierarchy, destinations: Hierarchy) -> Merged:
    return cells.merge(node_o, node_d, origins.n_nodes, destinations.n_nodes)


@dataclass(frozen=True, eq=False)
class Axis:
    """The merges of one axis: which nodes, in which order, and how many zones are left after each."""

    hierarchy: Hierarchy
    order: Ints
    zones_left: NDArray[np.int64]

    @classmethod
    def of(cls, tree: Hierarchy, tile: Ints, volume: NDArray[Any]) -> Axis:
        """Order the merges by total volume, then deeper first, then code.

        Only tiles that occur take part: a node is a merge when a tile of interest lies below it, and the topmost
        merge is the smallest node that holds them all.
        """
        active = tree.sum_over(np.bincount(tile, minlength=tree.n_tiles) > 0)
        total = tree.sum_over(np.bincount(tile, weights=volume, minlength=tree.n_tiles))
        present = active > 0
        child_count = np.bincount(tree.parent[1:][present[1:]], minlength=tree.n_nodes)
        inner = present & ~tree.is_leaf
        whole = np.flatnonzero(active == active[0])
        if len(whole):
            inner[: whole[-1]] &= active[: whole[-1]] != active[0]
        nodes = np.flatnonzero(inner)
        order = nodes[np.lexsort((tree.code_rank[nodes], -tree.depth[nodes].astype(np.int32), total[nodes]))]
        left = np.concatenate(([int(active[0])], active[0] - np.cumsum(child_count[order] - 1)))
        return cls(hierarchy=tree, order=order.astype(np.int32), zones_left=left)

    def cut(self, merges: int) -> Ints:
        """The zones after that many merges."""
        merged = np.zeros(self.hierarchy.n_nodes, dtype=np.bool_)
        merged[self.order[:merges]] = True
        return self.hierarchy.cut_from_merged(merged)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The whole sequence of merges on both axes; ``origin_merges[t]`` of the first t are on origins."""

    origins: Axis
    destinations: Axis
    origin_merges: Ints

    @classmethod
    def of(cls, flows: Flows, rest: Cells, basis: str) -> Schedule:
        """Compute the schedule from the marginals of the flows that are left."""
        volume = rest.volume(basis)
        origins = Axis.of(flows.origins, rest.origin, volume)
        destinations = Axis.of(flows.destinations, rest.destination, volume)
        return cls(origins, destinations, _interleave(origins.zones_left, destinations.zones_left))

    @property
    def n_steps(self) -> int:
        """Merges until both roots are reached."""
        return len(self.origin_merges) - 1

    def cuts(self, step: int) -> tuple[Ints, Ints]:
        """The two cuts after that many steps."""
        i = int(self.origin_merges[step])
        return self.origins.cut(i), self.destinations.cut(step - i)

    def table_size(self) -> NDArray[np.float64]:
        """Entries of the dense OD table at each step."""
        i = self.origin_merges
        j = np.arange(len(i)) - i
        return self.origins.zones_left[i] * self.destinations.zones_left[j].astype(np.float64)


def _interleave(left_o: NDArray[np.int64], left_d: NDArray[np.int64]) -> Ints:
    """How many of the first t steps merge origins, for every t.

    Each choice depends on the counts that all choices before it led to, so this is the one loop without a vector
    form; it runs over the inner nodes of the trees, not over flows, at a fraction of a microsecond a step.
    """
    n_o, n_d = len(left_o) - 1, len(left_d) - 1
    counts_o, counts_d = left_o.tolist(), left_d.tolist()
    start = counts_o[0] / counts_d[0] if counts_d[0] else 1.0
    upper, lower = start * (1 + TOLERANCE), start * (1 - TOLERANCE)
    taken = [0]
    i = j = 0
    while i < n_o and j < n_d:
        ratio = counts_o[i] / counts_d[j]
        if ratio > upper or (ratio >= lower and (i + j) % 2 == 0):
            i += 1
        else:
            j += 1
        taken.append(i)
    tail = np.full(n_d - j, i) if i == n_o else np.arange(i + 1, n_o + 1)
    return np.concatenate((taken, tail)).astype(np.int32)


def _merge(schedule: Schedule, cells: Cells, step: int, ends: tuple[Ints, Ints] | None = None) -> Merged:
    origin_cut, destination_cut = schedule.cuts(step)
    tiles_o, tiles_d = ends if ends is not None else (cells.origin, cells.destination)
    return cells.merge(
        schedule.origins.hierarchy.zone_of_tile(origin_cut)[tiles_o],
        schedule.destinations.hierarchy.zone_of_tile(destination_cut)[tiles_d],
        len(origin_cut),
        len(destination_cut),
    )


def _safe(schedule: Schedule, cells: Cells, guarantee: Guarantee, step: int) -> NDArray[np.bool_]:
    origin_cut, destination_cut = schedule.cuts(step)
    return guarantee.safe(
        cells,
        schedule.origins.hierarchy.size[origin_cut][cells.origin],
        schedule.destinations.hierarchy.size[destination_cut][cells.destination],
    )


def _first_good_step(schedule: Schedule, cells: Cells, guarantee: Guarantee, allowed: float) -> int:
    """The first step at which the cells that are short hold no more than the allowed volume.

    Bisection: coarser steps never have more volume in short cells. The first probe is the finest step whose table
    is cheap to count densely; a probe that fails becomes the (smaller) table that later probes are merged from.
    """
    low, high = -1, schedule.n_steps
    tiles_o, tiles_d = cells.origin, cells.destination
    cheap = np.flatnonzero(schedule.table_size() <= DENSE_ENTRIES_PER_ROW * max(len(cells), 1))
    probe = int(cheap[0]) if len(cheap) else high
    while high - low > 1 or probe == high:
        merged = _merge(schedule, cells, probe, (tiles_o, tiles_d)).cells
        short = ~_safe(schedule, merged, guarantee, probe)
        if float(np.sum(merged.volume(guarantee.basis)[short])) <= allowed:
            high = probe
        elif probe == schedule.n_steps:
            return probe
        else:
            low = probe
            origin_cut, destination_cut = schedule.cuts(probe)
            cells = merged
            tiles_o = schedule.origins.hierarchy.leaf_start[origin_cut][merged.origin]
            tiles_d = schedule.destinations.hierarchy.leaf_start[destination_cut][merged.destination]
        if high - low <= 1:
            break
        probe = (low + high) // 2
    return high
