"""Mondrian: median cuts of flows as points in four dimensions (LeFevre et al. 2006).

A flow is a point (longitude and latitude of origin and destination) with a volume. All flows start in one partition. A
partition is cut in the dimension of its widest range, in metres, at the median of its volume. If one side would not be
safe, the next-widest dimension is tried. A partition that cannot be cut is final, and the box around its flows is
published. Nothing is suppressed.

All partitions of one depth are cut together. The flows are kept in four orders, one for each dimension, each sorted by
partition and coordinate. A range is the difference of the ends of a slice, the median comes from a running sum, and the
next orders are the flows that go left followed by those that go right, so sorting happens only once. Persons and tiles
are kept sorted by partition in the same way.

Guarantees: every partition is safe, and none has a median cut with two safe sides. The partitions are those of the
recursion in ``tests/reference/mondrian.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Ints
from flowveil.release.boxes import DIMENSIONS, Frame
from flowveil.release.plan import Plan

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


def mondrian(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,  # noqa: ARG001  # every method takes it; this one suppresses nothing
    partitioning: Literal["strict", "relaxed"] = "strict",
    grid_m: float | None = None,
) -> Plan:
    """Plans boxes by median cuts.

    Args:
        flows: the flows to anonymise; their tiles need coordinates.
        guarantee: thresholds that every cell must reach.
        max_suppressed: not used; Mondrian suppresses nothing.
        partitioning: ``"strict"`` keeps flows at the median together, so that boxes are disjoint; ``"relaxed"`` may
            divide them, in the order of their tiles, for more equal sides.
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


@dataclass(frozen=True, eq=False)
class _Members:
    """Members to be counted distinctly: (flow, member) rows, sorted by partition, then member.

    Attributes:
        flow, member: the rows.
        start: start of each partition, and the end.
    """

    flow: Places
    member: Ints
    start: Places

    @classmethod
    def from_rows(cls, flow: Ints, member: Ints) -> _Members:
        """Sorts rows; all flows are in one partition."""
        order = np.argsort(member, kind="stable")
        return cls(flow[order].astype(np.int64), member[order], np.array([0, len(order)]))

    def split(self, side: NDArray[np.int8], cut: Mask) -> _Members:
        """Returns the rows of the left sides of the cut partitions, then of their right sides."""
        row_side = side.take(self.flow)
        rows = _left_then_right(row_side)
        left = _count_between(row_side == 1, self.start)[cut]
        right = np.diff(self.start)[cut] - left
        return _Members(self.flow.take(rows), self.member.take(rows), _starts(np.concatenate((left, right))))

    def enough(self, which: Places, side: NDArray[np.int8], threshold: int) -> Mask:
        """Returns whether both sides of these partitions, as marked in ``side``, have enough distinct members."""
        size = np.diff(self.start)[which]
        start = _starts(size)
        place = np.repeat(self.start[which] - start[:-1], size) + np.arange(start[-1])
        if len(place) == 0:
            return np.zeros(len(which), dtype=np.bool_)
        member, left = self.member.take(place), side.take(self.flow.take(place)) == 1
        changes = np.empty(len(member), dtype=np.bool_)
        np.not_equal(member[1:], member[:-1], out=changes[1:])
        # An empty partition begins where the next does.
        changes[start[:-1][size > 0]] = True
        runs = np.flatnonzero(changes)
        first_run = np.searchsorted(runs, start)
        enough = np.ones(len(which), dtype=np.bool_)
        for there in (np.logical_or.reduceat(left, runs), np.logical_or.reduceat(~left, runs)):
            enough &= _count_between(there, first_run) >= threshold
        return enough


@dataclass(frozen=True, eq=False)
class _Layout:
    """The flows of the partitions that may still be cut.

    Attributes:
        orders: flows, one row per dimension; sorted by partition, then coordinate, then flow.
        start: start of each partition in each order, and the end.
        total: sums of each partition, one row per quantity.
        members: people and tiles of each end, if they are protected.
    """

    orders: Places
    start: Places
    total: Floats
    members: tuple[_Members, ...]

    def __len__(self) -> int:
        return len(self.start) - 1

    def split(self, side: NDArray[np.int8], n_left: Places, left: Floats) -> _Layout:
        """Returns the partitions of the next depth: the left sides of the cut ones, then their right sides.

        Args:
            side: for each flow of the input, 1 for left, 0 for right, -1 if its partition is final.
            n_left: flows that go left in each partition, 0 if it is not cut.
            left: their sums, as in ``total``.
        """
        cut = n_left > 0
        size, n_left, left = np.diff(self.start)[cut], n_left[cut], left[:, cut]
        orders = np.empty((DIMENSIONS, int(size.sum())), dtype=np.int64)
        for order, split in zip(self.orders, orders, strict=True):
            order.take(_left_then_right(side.take(order)), out=split)
        return _Layout(
            orders=orders,
            start=_starts(np.concatenate((n_left, size - n_left))),
            total=np.concatenate((left, self.total[:, cut] - left), axis=1),
            members=tuple(rows.split(side, cut) for rows in self.members),
        )


def _left_then_right(side: NDArray[np.int8]) -> Places:
    # Selecting by positions is faster than by an alternating mask.
    return np.concatenate((np.flatnonzero(side == 1), np.flatnonzero(side == 0)))


def _starts(sizes: Places) -> Places:
    return np.concatenate(([0], np.cumsum(sizes)))


def _count_between(flags: Mask, start: Places) -> Places:
    """Returns the number of set flags in each slice."""
    before = np.concatenate(([0], np.cumsum(flags)))
    return before[start[1:]] - before[start[:-1]]


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Partitions to be cut, each in the order of its chosen dimension.

    Attributes:
        which: the partitions.
        flow: their flows.
        start: start of each in ``flow``, and the end.
        reached: running sums of the quantities, from 0.
    """

    which: Places
    flow: Places
    start: Places
    reached: Floats

    def sums(self, at: Places) -> tuple[Floats, Floats]:
        """Returns the sums of each partition before and after a position in ``flow``."""
        here = self.reached[:, at]
        return here - self.reached[:, self.start[:-1]], self.reached[:, self.start[1:]] - here

    def slices(self, at: Places, chosen: Mask) -> tuple[Places, Places, Places]:
        """Returns flows, starts and positions of the chosen partitions."""
        if chosen.all():
            return self.flow, self.start, at
        size = np.diff(self.start)
        start = _starts(size[chosen])
        return self.flow[np.repeat(chosen, size)], start, start[:-1] + (at - self.start[:-1])[chosen]


class _Cutter:
    """Cuts all partitions, depth by depth."""

    def __init__(self, flows: Flows, guarantee: Guarantee, frame: Frame, *, divide_ties: bool) -> None:
        self.flows, self.guarantee, self.frame = flows, guarantee, frame
        self.divide_ties = divide_ties
        # Summed quantities, the volume first, and their thresholds. A side has at least as many trips as people.
        thresholds = {"trips": float(max(guarantee.trips or 0, guarantee.people or 0)), **guarantee.of_columns}
        names = dict.fromkeys((guarantee.basis, *thresholds))
        self.quantities = [flows.volume(name).astype(np.float64) for name in names]
        self.least = np.array([thresholds[name] for name in names])[:, None]
        # Members that are counted distinctly on each side, with their threshold.
        self.counted: list[tuple[int, tuple[Ints, Ints]]] = []
        if guarantee.locations is not None:
            each = np.arange(len(flows), dtype=np.int32)
            self.counted += [(guarantee.locations, (each, tile)) for tile in (flows.origin, flows.destination)]
        if guarantee.people is not None and flows.people is not None:
            self.counted.append((guarantee.people, (flows.people.cell, flows.people.person)))
        self.group = np.zeros(len(flows), dtype=np.int32)
        self.side = np.full(len(flows), -1, dtype=np.int8)
        self.n_final = 0

    def run(self) -> Ints:
        """Returns the partition of each flow, numbered without gaps."""
        layout = self._first_layout()
        while len(layout):
            layout = self._next_depth(layout)
        return self.group

    def _first_layout(self) -> _Layout:
        return _Layout(
            orders=np.stack([_sorting(axis) for axis in self.frame.point]),
            start=np.array([0, len(self.flows)]),
            total=np.array([[q.sum()] for q in self.quantities]),
            members=tuple(_Members.from_rows(*rows) for _, rows in self.counted),
        )

    def _next_depth(self, layout: _Layout) -> _Layout:
        width = self._widths(layout)
        by_width = np.argsort(-width, axis=0, kind="stable")
        # Partitions below twice the threshold cannot be cut.
        left_to_cut = np.flatnonzero(np.all(layout.total >= 2 * self.least, axis=0))
        n_left, left = np.zeros(len(layout), dtype=np.int64), np.zeros_like(layout.total)
        self.side[layout.orders[0]] = -1
        for rank in range(DIMENSIONS):
            dimension = by_width[rank, left_to_cut]
            # Widths are descending: with a width of 0, the remaining dimensions have none either.
            wide = width[dimension, left_to_cut] > 0
            left_to_cut, dimension = left_to_cut[wide], dimension[wide]
            if len(left_to_cut) == 0:
                break
            self._cut(layout, left_to_cut, dimension, n_left, left)
            left_to_cut = left_to_cut[n_left[left_to_cut] == 0]
        self._close(layout, n_left == 0)
        return layout.split(self.side, n_left, left)

    def _widths(self, layout: _Layout) -> Places:
        first, last = layout.start[:-1], layout.start[1:] - 1
        rows = zip(self.frame.point, layout.orders, self.frame.step_cm, strict=True)
        return np.stack([(axis[o[last]] - axis[o[first]]) * step for axis, o, step in rows])

    def _cut(self, layout: _Layout, which: Places, dimension: Places, n_left: Places, left: Floats) -> None:
        """Cuts these partitions in these dimensions if both sides are safe, and records what goes left.

        Strict partitioning keeps flows at the median together, so the cut is before or after them: first where the
        sides are more equal, then the other. Relaxed partitioning cuts before or after the median flow.
        """
        parts = self._sorted(layout, which, dimension)
        start, reached = parts.start, parts.reached[0]
        below, above = reached[start[:-1]], reached[start[1:]]
        median = np.searchsorted(reached, below + (above - below) / 2, side="left") - 1
        median = np.clip(median, start[:-1], start[1:] - 1)
        before, after = median, median + 1
        if not self.divide_ties:
            before, after = self._around_ties(parts, dimension, median)
        unequal = [np.abs((reached[at] - below) - (above - reached[at])) for at in (before, after)]
        later = unequal[1] <= unequal[0]
        undone = np.ones(len(which), dtype=np.bool_)
        for at in (np.where(later, after, before), np.where(later, before, after)):
            allowed = self._allowed(layout, parts, at, undone)
            self._take_sides(parts, at, allowed)
            n_left[which[allowed]] = (at - start[:-1])[allowed]
            left[:, which[allowed]] = parts.sums(at)[0][:, allowed]
            undone &= ~allowed

    def _sorted(self, layout: _Layout, which: Places, dimension: Places) -> _Sorted:
        size = np.diff(layout.start)[which]
        start = _starts(size)
        row = dimension * layout.orders.shape[1]
        place = np.repeat(row + layout.start[which] - start[:-1], size) + np.arange(start[-1])
        flow = layout.orders.reshape(-1).take(place)
        reached = np.zeros((len(self.quantities), len(flow) + 1))
        for sums, quantity in zip(reached, self.quantities, strict=True):
            np.cumsum(quantity.take(flow), out=sums[1:])
        return _Sorted(which, flow, start, reached)

    def _around_ties(self, parts: _Sorted, dimension: Places, median: Places) -> tuple[Places, Places]:
        """Returns start and end of the run of flows that share the median's coordinate."""
        row = np.repeat(dimension * self.frame.point.shape[1], np.diff(parts.start))
        at = self.frame.point.reshape(-1).take(row + parts.flow)
        changes = np.empty(len(at) + 1, dtype=np.bool_)
        np.not_equal(at[1:], at[:-1], out=changes[1:-1])
        changes[parts.start] = True
        edges = np.flatnonzero(changes)
        run = np.searchsorted(edges, median, side="right")
        return edges[run - 1], edges[run]

    def _allowed(self, layout: _Layout, parts: _Sorted, at: Places, candidates: Mask) -> Mask:
        """Returns which of these partitions may be cut there: both sides must be safe.

        Distinct members are counted only where the sums reach their thresholds.
        """
        ok = candidates & (at > parts.start[:-1]) & (at < parts.start[1:])
        for side in parts.sums(at):
            ok &= np.all(side >= self.least, axis=0)
        for (threshold, _), members in zip(self.counted, layout.members, strict=True):
            if not ok.any():
                break
            self._take_sides(parts, at, ok)
            enough = members.enough(parts.which[ok], self.side, threshold)
            # Undo the marks: the caller decides which cuts are made.
            self.side[parts.slices(at, ok)[0]] = -1
            ok[ok] = enough
        return ok

    def _take_sides(self, parts: _Sorted, at: Places, chosen: Mask) -> None:
        """Marks the flows of the chosen partitions by their side of the cut."""
        flow, start, at = parts.slices(at, chosen)
        self.side[flow] = np.arange(len(flow)) < np.repeat(at, np.diff(start))

    def _close(self, layout: _Layout, final: Mask) -> None:
        """Numbers the partitions that were not cut."""
        size = np.diff(layout.start)
        flow = layout.orders[0][np.repeat(final, size)]
        number = np.arange(self.n_final, self.n_final + np.count_nonzero(final), dtype=np.int32)
        self.group[flow] = np.repeat(number, size[final])
        self.n_final += len(number)


def _sorting(axis: Ints) -> Places:
    """Returns the stable order of a coordinate; small numbers use radix sort."""
    shifted = axis - axis.min(initial=0)
    small = len(axis) and int(shifted.max()) < 1 << 16
    return np.argsort(shifted.astype(np.uint16) if small else axis, kind="stable")
