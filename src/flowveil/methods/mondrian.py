"""Mondrian: median cuts of flows as points in four dimensions (LeFevre et al.

2006; docs/methods/mondrian.md).

Every partition is safe, and nothing is suppressed. All partitions of one depth are cut together.
The flows are kept in four orders, one for each dimension, each sorted by partition and coordinate,
so sorting happens only once.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from flowveil.core.arrays import Ints, Mask, Positions
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.release.boxes import DIMENSIONS, Frame
from flowveil.release.plan import Plan


def mondrian(
    flows: Flows,
    guarantee: Guarantee,
    *,
    # every method takes it; this one suppresses nothing
    max_suppressed: float = 0.1,  # noqa: ARG001
    partitioning: Literal["strict", "relaxed"] = "strict",
    grid_m: float | None = None,
) -> Plan:
    """Plans boxes by median cuts.

    Args:
        flows: the flows to anonymise; their tiles need coordinates.
        max_suppressed: not used; Mondrian suppresses nothing.
        partitioning: ``"strict"`` keeps flows at the median together, so that boxes are disjoint;
            ``"relaxed"`` may divide them, in the order of their tiles, for more equal sides.
        grid_m: width in metres of the grid of box edges; by default that of a tile.
    """
    if partitioning not in ("strict", "relaxed"):
        raise ParameterError(f"partitioning must be 'strict' or 'relaxed'; found {partitioning!r}.")
    frame = Frame.of(flows, grid_m=grid_m)
    group = _Cutter(flows, guarantee, frame, divide_ties=partitioning == "relaxed").run()
    kept = np.ones(len(flows), dtype=np.bool_)
    if not group.any():
        # The only partition has not been checked yet.
        kept[:] = guarantee.safe(flows.merge(group, group, 1, 1).cells).all()
    partitions = int(group.max()) + 1
    return Plan.from_boxes(
        frame,
        group,
        kept,
        disjoint=partitioning == "strict",
        notes={"partitioning": partitioning, "partitions": partitions},
    )


class _Cutter:
    """Cuts all partitions, depth by depth."""

    def __init__(
        self, flows: Flows, guarantee: Guarantee, frame: Frame, *, divide_ties: bool
    ) -> None:
        n = len(flows)
        self.frame, self.divide_ties = frame, divide_ties
        # Summed quantities, the volume first, and their thresholds. A side has at least as many
        # trips as people.
        thresholds = {
            "trips": float(max(guarantee.trips or 0, guarantee.people or 0)),
            **guarantee.of_columns,
        }
        names = dict.fromkeys((guarantee.basis, *thresholds))
        self.quantities = [flows.volume(name).astype(np.float64) for name in names]
        self.least = np.array([thresholds[name] for name in names])[:, None]
        self.members = guarantee.members(flows)
        self.group = np.zeros(n, dtype=np.int32)
        # The side of each flow in the cut of its partition: 1 for left, 0 for right, -1 if it is
        # not cut.
        self.side = np.full(n, -1, dtype=np.int8)
        self.n_final = 0

    def run(self) -> Ints:
        """Returns the partition of each flow, numbered without gaps."""
        orders = np.stack([np.argsort(axis, kind="stable") for axis in self.frame.point])
        start = np.array([0, len(self.group)])
        while len(start) > 1:
            orders, start = self._next_depth(orders, start)
        return self.group

    def _next_depth(self, orders: Positions, start: Positions) -> tuple[Positions, Positions]:
        """Cuts the partitions once.

        Returns orders and starts of the left sides, then of the right sides.
        """
        size, first, last = np.diff(start), start[:-1], start[1:] - 1
        rows = zip(self.frame.point, orders, self.frame.step_cm, strict=True)
        width = np.stack([(axis[o[last]] - axis[o[first]]) * step for axis, o, step in rows])
        by_width = np.argsort(-width, axis=0, kind="stable")
        # Partitions below twice the threshold cannot be cut.
        total = np.stack([np.add.reduceat(q[orders[0]], first) for q in self.quantities])
        left_to_cut = np.flatnonzero(np.all(total >= 2 * self.least, axis=0))
        n_left = np.zeros(len(size), dtype=np.int64)
        self.side[orders[0]] = -1
        for rank in range(DIMENSIONS):
            dimension = by_width[rank, left_to_cut]
            # Widths are descending: with a width of 0, the remaining dimensions have none either.
            wide = width[dimension, left_to_cut] > 0
            left_to_cut, dimension = left_to_cut[wide], dimension[wide]
            if len(left_to_cut) == 0:
                break
            n_left[left_to_cut] = self._cut(orders, start, left_to_cut, dimension)
            left_to_cut = left_to_cut[n_left[left_to_cut] == 0]
        cut = n_left > 0
        number = self.n_final + np.cumsum(~cut) - 1
        self.group[orders[0]] = np.repeat(number, size)
        self.n_final += int(np.count_nonzero(~cut))
        n_left, size = n_left[cut], size[cut]
        sides = self.side[orders]
        orders = np.stack(
            [np.concatenate((o[at == 1], o[at == 0])) for o, at in zip(orders, sides, strict=True)]
        )
        return orders, _starts(np.concatenate((n_left, size - n_left)))

    def _cut(
        self, orders: Positions, start: Positions, which: Positions, dimension: Positions
    ) -> Positions:
        """Cuts these partitions in these dimensions if both sides are safe.

        Returns how many flows go left.

        Strict partitioning keeps flows at the median together, so the cut is before or after them:
        first where the sides are more equal, then the other. Relaxed partitioning cuts before or
        after the median flow.
        """
        size = np.diff(start)[which]
        edges = _starts(size)
        place = np.repeat(start[which] - edges[:-1], size) + np.arange(edges[-1])
        flow = orders[np.repeat(dimension, size), place]
        reached = np.stack([np.concatenate(([0.0], np.cumsum(q[flow]))) for q in self.quantities])
        below, above = reached[0, edges[:-1]], reached[0, edges[1:]]
        median = np.searchsorted(reached[0], below + (above - below) / 2, side="left") - 1
        before = np.clip(median, edges[:-1], edges[1:] - 1)
        after = before + 1
        if not self.divide_ties:
            at = self.frame.point[np.repeat(dimension, size), flow]
            changes = np.append(True, at[1:] != at[:-1])
            changes[edges[:-1]] = True
            runs = np.append(np.flatnonzero(changes), len(at))
            run = np.searchsorted(runs, before, side="right")
            before, after = runs[run - 1], runs[run]
        unequal = [
            np.abs((reached[0, at] - below) - (above - reached[0, at])) for at in (before, after)
        ]
        later = unequal[1] <= unequal[0]
        n_left = np.zeros(len(which), dtype=np.int64)
        part = np.repeat(np.arange(len(which)), size)
        for at in (np.where(later, after, before), np.where(later, before, after)):
            left = np.arange(len(flow)) < at[part]
            allowed = (n_left == 0) & (at > edges[:-1]) & (at < edges[1:])
            for low, high in ((edges[:-1], at), (at, edges[1:])):
                allowed &= np.all(reached[:, high] - reached[:, low] >= self.least, axis=0)
            self._count_members(flow, part * 2 + left, allowed)
            taken = allowed[part]
            self.side[flow[taken]] = left[taken]
            n_left[allowed] = (at - edges[:-1])[allowed]
        return n_left

    def _count_members(self, flow: Positions, cell: Positions, allowed: Mask) -> None:
        """Clears the allowed partitions with too few distinct members on a side.

        Cell is 2 * partition + side.
        """
        start, member, kind, fewest = self.members
        if len(fewest) == 0:
            return
        kept = allowed[cell // 2]
        rows, each = flow[kept], np.diff(start)[flow[kept]]
        place = np.repeat(start[rows] - (np.cumsum(each) - each), each) + np.arange(each.sum())
        key = np.sort(np.repeat(cell[kept], each) * len(kind) + member[place])
        side, distinct = np.divmod(key[np.diff(key, prepend=-1) != 0], max(len(kind), 1))
        n_kinds = len(fewest)
        counts = np.bincount(side * n_kinds + kind[distinct], minlength=2 * n_kinds * len(allowed))
        allowed &= np.all(counts.reshape(-1, 2, n_kinds) >= fewest, axis=(1, 2))


def _starts(sizes: Positions) -> Positions:
    return np.concatenate(([0], np.cumsum(sizes)))
