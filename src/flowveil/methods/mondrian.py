"""Mondrian: median cuts of flows seen as points in four dimensions (LeFevre et al. 2006).

A flow is a point (longitude and latitude of its origin and of its destination) with a volume. All flows start in one
partition. A partition is cut in the dimension of its widest range, in metres, at the median of its volume; where one
side would fall short of the guarantee, the next-widest dimension is tried. A partition that cannot be cut in any is
final, and the box around its flows is published. Nothing is suppressed.

All partitions of one depth are cut together. The flows stand in four orders, one for each dimension, each sorted
by partition and then by coordinate: the range of a partition is the difference of the ends of its slice, the median
is found in a running sum, and the orders of the next depth are the flows that go left followed by those that go
right, so nothing is sorted after the start. Persons and tiles are kept sorted by partition in the same way.

Guaranteed: every partition satisfies the guarantee, and none has a median cut that would leave both sides safe. The
partitions are those of the recursion in ``tests/reference/mondrian.py``.
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
    """Plan boxes by median cuts.

    Args:
        flows: what to anonymise; their tiles need a place on the map.
        guarantee: what every cell must satisfy.
        max_suppressed: not used; Mondrian suppresses nothing.
        partitioning: ``"strict"`` keeps flows at the median together, so that no flow lies in two boxes;
            ``"relaxed"`` may divide them, in the order of their tiles, for more equal sides.
        grid_m: width in metres of the grid that box edges lie on; by default that of a tile.
    """
    if partitioning not in ("strict", "relaxed"):
        raise ParameterError(f"partitioning must be 'strict' or 'relaxed'; found {partitioning!r}.")
    frame = Frame.of(flows, grid_m=grid_m)
    group = _Cutter(flows, guarantee, frame, divide_ties=partitioning == "relaxed").run()
    kept = np.ones(len(flows), dtype=np.bool_)
    if not group.any():
        # Never cut: the only partition has not been checked yet.
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
    """What does not add up and has to be counted: (flow, member) rows, sorted by partition, then member.

    Attributes:
        flow, member: the rows.
        start: where each partition begins in them, and where the last ends.
    """

    flow: Places
    member: Ints
    start: Places

    @classmethod
    def from_rows(cls, flow: Ints, member: Ints) -> _Members:
        """Rows in any order; all flows are in one partition."""
        order = np.argsort(member, kind="stable")
        return cls(flow[order].astype(np.int64), member[order], np.array([0, len(order)]))

    def split(self, side: NDArray[np.int8], cut: Mask) -> _Members:
        """The rows of the left sides of the partitions that are cut, then those of their right sides."""
        row_side = side.take(self.flow)
        rows = _left_then_right(row_side)
        left = _count_between(row_side == 1, self.start)[cut]
        right = np.diff(self.start)[cut] - left
        return _Members(self.flow.take(rows), self.member.take(rows), _starts(np.concatenate((left, right))))

    def enough(self, which: Places, side: NDArray[np.int8], threshold: int) -> Mask:
        """Whether both sides of these partitions, as marked in ``side``, have that many distinct members."""
        size = np.diff(self.start)[which]
        start = _starts(size)
        place = np.repeat(self.start[which] - start[:-1], size) + np.arange(start[-1])
        if len(place) == 0:
            return np.zeros(len(which), dtype=np.bool_)
        member, left = self.member.take(place), side.take(self.flow.take(place)) == 1
        changes = np.empty(len(member), dtype=np.bool_)
        np.not_equal(member[1:], member[:-1], out=changes[1:])
        # A partition without any row begins where the next does.
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
        orders: flows, one row for each dimension; sorted by partition, then coordinate, then flow.
        start: where each partition begins in each order, and where the last ends.
        total: what each partition holds, one row for each quantity that adds up.
        members: the people, and the tiles at each end, as far as they are protected.
    """

    orders: Places
    start: Places
    total: Floats
    members: tuple[_Members, ...]

    def __len__(self) -> int:
        return len(self.start) - 1

    def split(self, side: NDArray[np.int8], n_left: Places, left: Floats) -> _Layout:
        """The partitions of the next depth: the left sides of those that are cut, then their right sides.

        Args:
            side: for each flow of the input, 1 where it goes left, 0 where it goes right, -1 where its partition is
                final.
            n_left: flows that go left in each partition, 0 where it is not cut.
            left: what they hold, as in ``total``.
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
    # Positions first: picking by a mask that changes at every other item is several times slower.
    return np.concatenate((np.flatnonzero(side == 1), np.flatnonzero(side == 0)))


def _starts(sizes: Places) -> Places:
    return np.concatenate(([0], np.cumsum(sizes)))


def _count_between(flags: Mask, start: Places) -> Places:
    """How many flags are set in each slice."""
    before = np.concatenate(([0], np.cumsum(flags)))
    return before[start[1:]] - before[start[:-1]]


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Partitions that are about to be cut, each in the order of the dimension chosen for it.

    Attributes:
        which: the partitions.
        flow: their flows.
        start: where each begins in ``flow``, and where the last ends.
        reached: running sums of the quantities that add up, from 0.
    """

    which: Places
    flow: Places
    start: Places
    reached: Floats

    def sums(self, at: Places) -> tuple[Floats, Floats]:
        """What each partition holds before and after a place in ``flow``."""
        here = self.reached[:, at]
        return here - self.reached[:, self.start[:-1]], self.reached[:, self.start[1:]] - here

    def slices(self, at: Places, chosen: Mask) -> tuple[Places, Places, Places]:
        """Flows, starts and places of the chosen partitions only."""
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
        # Quantities that add up, the volume first, and what a side must hold of each.
        # Every person on a side made a trip there.
        asked = {"trips": float(max(guarantee.trips or 0, guarantee.people or 0)), **guarantee.of_columns}
        names = dict.fromkeys((guarantee.basis, *asked))
        self.quantities = [flows.volume(name).astype(np.float64) for name in names]
        self.least = np.array([asked[name] for name in names])[:, None]
        # What has to be counted anew on each side, and how many of it a side must have.
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
        """The partition of each flow, numbered without gaps."""
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
        # Who does not hold enough for two sides need not be looked at closer: most of the final ones.
        left_to_cut = np.flatnonzero(np.all(layout.total >= 2 * self.least, axis=0))
        n_left, left = np.zeros(len(layout), dtype=np.int64), np.zeros_like(layout.total)
        self.side[layout.orders[0]] = -1
        for rank in range(DIMENSIONS):
            dimension = by_width[rank, left_to_cut]
            # Widths fall from here on: a point in this dimension is a point in all that are left.
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
        """Cut these partitions in these dimensions where that is allowed, and note what goes left.

        The flows at the median stay together (strict), so the cut lies before or after them: first where the sides
        are more equal, then the other. Where flows may be divided, those are the places before and after the
        median flow.
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
        """Where the run of flows that share the median's coordinate begins and ends."""
        row = np.repeat(dimension * self.frame.point.shape[1], np.diff(parts.start))
        at = self.frame.point.reshape(-1).take(row + parts.flow)
        changes = np.empty(len(at) + 1, dtype=np.bool_)
        np.not_equal(at[1:], at[:-1], out=changes[1:-1])
        changes[parts.start] = True
        edges = np.flatnonzero(changes)
        run = np.searchsorted(edges, median, side="right")
        return edges[run - 1], edges[run]

    def _allowed(self, layout: _Layout, parts: _Sorted, at: Places, asked: Mask) -> Mask:
        """Which of the partitions asked about may be cut there: both sides must be safe.

        What has to be counted anew is counted only where the quantities that add up are reached.
        """
        ok = asked & (at > parts.start[:-1]) & (at < parts.start[1:])
        for side in parts.sums(at):
            ok &= np.all(side >= self.least, axis=0)
        for (threshold, _), members in zip(self.counted, layout.members, strict=True):
            if not ok.any():
                break
            self._take_sides(parts, at, ok)
            enough = members.enough(parts.which[ok], self.side, threshold)
            # Only a look: whoever asked decides who goes where.
            self.side[parts.slices(at, ok)[0]] = -1
            ok[ok] = enough
        return ok

    def _take_sides(self, parts: _Sorted, at: Places, chosen: Mask) -> None:
        """Mark the flows of the chosen partitions by the side of the cut they lie on."""
        flow, start, at = parts.slices(at, chosen)
        self.side[flow] = np.arange(len(flow)) < np.repeat(at, np.diff(start))

    def _close(self, layout: _Layout, final: Mask) -> None:
        """Number the partitions that were not cut."""
        size = np.diff(layout.start)
        flow = layout.orders[0][np.repeat(final, size)]
        number = np.arange(self.n_final, self.n_final + np.count_nonzero(final), dtype=np.int32)
        self.group[flow] = np.repeat(number, size[final])
        self.n_final += len(number)


def _sorting(axis: Ints) -> Places:
    """The stable order of a coordinate; small numbers are sorted by radix, several times as fast."""
    shifted = axis - axis.min(initial=0)
    small = len(axis) and int(shifted.max()) < 1 << 16
    return np.argsort(shifted.astype(np.uint16) if small else axis, kind="stable")
