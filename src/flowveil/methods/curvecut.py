"""CurveCut: boxes as fine as GLOVE's at the speed of a sort (after Ghinita et al.

2007; docs/methods/curvecut.md).

Flows are points in four dimensions, sorted along a Hilbert curve. Dynamic programming finds the
optimal partition of that order into safe runs and suppressed flows, at the price that meets the
limit. Then neighbouring boxes exchange flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Mask, Positions, Words
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee, check_whole
from flowveil.methods.method import INFEASIBLE, boxes_extra
from flowveil.release.boxes import DIMENSIONS, Frame, Hulls
from flowveil.release.plan import Plan

#: Rounds of exchange at effort 1, and the total number of flows that they may visit.
ROUNDS = 32
VISITS = 2_000_000

#: Boxes that are repartitioned together, and their largest number of flows.
TOGETHER = 2
MOST_FLOWS = 2000

#: Above this number of flows, the price is first searched on a sample of the curve, in blocks of
#: BLOCK flows.
SAMPLED_ABOVE = 200_000
BLOCK = 4096

#: Bits of a position on the curve.
KEY_BITS = 64

#: The search for the price ends when this share of the limit is spent.
NEARLY = 0.99


def curvecut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    effort: float = 1.0,
    window: int = 256,
    grid_m: float | None = None,
) -> Plan:
    """Plans boxes by optimal cuts along a Hilbert curve and exchange of flows between neighbours.

    Args:
        flows: the flows to anonymise; their tiles need coordinates.
        max_suppressed: largest share of the volume that may be suppressed; never exceeded.
        effort: work of the exchange; 0 skips it.
        window: flows by which a run may exceed the shortest safe run from the same flow.
        grid_m: width in metres of the grid of box edges; by default that of a tile.
    """
    if not (np.isfinite(effort) and effort >= 0):
        raise ParameterError(f"effort must be 0 or more; found {effort!r}.")
    check_whole("window", window)
    frame = Frame.of(flows, grid_m=grid_m)
    points = Points.from_flows(flows, guarantee, frame)
    budget = max_suppressed * float(np.sum(points.volume))
    curve = Curve.from_order(points, np.argsort(hilbert_keys(frame.point), kind="stable"), window)
    if len(flows) == 0 or curve.ends[0] > len(flows):
        raise InfeasibleError(INFEASIBLE)
    price, pieces = curve.within(budget)
    pieces = points.without_costliest(
        improved(points, pieces, price, budget, window, effort), budget
    )
    group = pieces.group()
    return Plan.from_boxes(frame, group, pieces.published[group], disjoint=False)


@dataclass(frozen=True, eq=False)
class Pieces:
    """An order of the flows, the start of each piece, and whether it is a published box.

    Others are single flows.
    """

    order: Positions
    first: Positions
    published: Mask

    def sizes(self) -> Positions:
        """Returns the number of flows of each piece."""
        return np.diff(self.first, append=len(self.order))

    def begins(self) -> Mask:
        """Returns whether a piece begins at each position."""
        begins = np.zeros(len(self.order), dtype=np.bool_)
        begins[self.first] = True
        return begins

    def group(self) -> Ints:
        """Returns the piece of each flow."""
        group = np.empty(len(self.order), dtype=np.int32)
        group[self.order] = np.repeat(np.arange(len(self.first), dtype=np.int32), self.sizes())
        return group

    def rearranged(self, order: Positions) -> Pieces:
        """Returns the same pieces in another order."""
        size = self.sizes()[order]
        first = np.cumsum(size) - size
        place = np.repeat(self.first[order] - first, size) + np.arange(len(self.order))
        return Pieces(self.order[place], first, self.published[order])

    def exchanged(self, other: Pieces, instead: Mask) -> Pieces:
        """Returns these pieces with those of ``other`` at the masked positions.

        Both begin a piece at mask edges.
        """
        order = np.where(instead, other.order, self.order)
        shown = np.where(instead, *(np.repeat(p.published, p.sizes()) for p in (other, self)))
        first = np.flatnonzero(np.where(instead, other.begins(), self.begins()))
        return Pieces(order, first, shown[first])


@dataclass(frozen=True, eq=False)
class Points:
    """The flows in the form that the compiled loops need.

    ``point`` has the squares of each flow, one row per flow, ``step`` the width of a square in each
    dimension in centimetres, ``safety`` the arguments of `first_safe_ends` other than the order.
    """

    point: NDArray[np.int32]
    volume: Floats
    step: Positions
    safety: Any

    @classmethod
    def from_flows(cls, flows: Flows, guarantee: Guarantee, frame: Frame) -> Points:
        """Lays out the flows."""
        members = guarantee.members(flows)
        safety = (*guarantee.sums(flows), *members, np.zeros(len(members.kind), dtype=np.int32))
        volume = flows.volume(guarantee.basis).astype(np.float64)
        return cls(np.ascontiguousarray(frame.point.T), volume, frame.step_cm, safety)

    def hulls(self, pieces: Pieces) -> Hulls:
        """Returns the boxes of the pieces."""
        return Hulls.of_slices(self.point.T, pieces.order, pieces.first)

    def held(self, pieces: Pieces) -> Floats:
        """Returns the volume of each piece."""
        held: Floats = np.add.reduceat(self.volume[pieces.order], pieces.first)
        return held

    def sides(self, pieces: Pieces) -> Floats:
        """Returns the sum of the four sides of each piece's box."""
        hulls = self.hulls(pieces)
        return (self.step @ (hulls.high.astype(np.int64) - hulls.low + 1)).astype(np.float64)

    def without_costliest(self, pieces: Pieces, budget: float) -> Pieces:
        """Suppresses the boxes with the longest sides, above the mean and within the remaining
        budget.
        """
        held, sides = self.held(pieces), self.sides(pieces)
        shown = pieces.published
        left = budget - float(np.sum(held[~shown]))
        mean = float(np.sum((held * sides)[shown])) / max(float(np.sum(held[shown])), 1e-300)
        candidates = np.flatnonzero(shown & (sides > mean) & (held <= left) & (held > 0))
        order = candidates[np.argsort(-sides[candidates], kind="stable")]
        published = shown.copy()
        published[order[: np.searchsorted(np.cumsum(held[order]), left, side="right")]] = False
        return replace(pieces, published=published)


@dataclass(frozen=True, eq=False)
class Curve:
    """Flows in the order of a curve, with the end of the shortest safe run from each position.

    A run may exceed the shortest by ``window`` flows. ``point`` and ``volume`` are those of the
    flows in this order.
    """

    points: Points
    order: Positions
    window: int
    ends: Positions
    point: NDArray[np.int32]
    volume: Floats

    @classmethod
    def from_order(cls, points: Points, order: Positions, window: int) -> Curve:
        """Finds the shortest safe runs."""
        ends = _compiled_loops().first_safe_ends(order, *points.safety)
        return cls(points, order, window, ends, points.point[order], points.volume[order])

    def at(self, price: float) -> Cut:
        """Returns the optimal partition at a price."""
        first, published, cost, left = _compiled_loops().best_cuts(
            self.point, self.volume, self.ends, self.points.step, price, self.window
        )
        return Cut(price, Pieces(self.order, first, published), cost, left)

    def within(self, budget: float) -> tuple[float, Pieces]:
        """Returns the price at which the limit is met, and the pieces after spending the rest of
        the limit.

        If no partition meets the limit, the window is doubled until one does; finally, everything
        can be one run.
        """
        over, within = self._bracket(budget)
        if within is None:
            return replace(self, window=2 * self.window).within(budget)
        while over is not None and within.left < NEARLY * budget:
            # The intersection of the tangents: the dual is concave and piecewise linear in the
            # price.
            price = (within.cost - over.cost) / (over.left - within.left)
            probe = self.at(price)
            if not over.price < price < within.price or probe.left in (over.left, within.left):
                break
            over, within = (probe, within) if probe.left > budget else (over, probe)
        while within.mean(self.total) > within.price * (1 + 1e-12):
            # More suppression would not lower the mean.
            over, within = None, self.at(within.mean(self.total))
        return within.price, within.pieces if over is None else self._spent(within, over, budget)

    @property
    def total(self) -> float:
        """The volume of all flows."""
        return float(np.sum(self.volume))

    def _bracket(self, budget: float) -> tuple[Cut | None, Cut | None]:
        """Returns a partition over the limit and one within it; None for a missing one."""
        within, over, step = self.at(self._guess(budget)), None, 1.04
        highest = float(self.points.step.sum()) * 2.0**32 * max(self.total, 1.0)
        while within.left > budget:
            if within.price > highest:
                return within, None
            over, within, step = within, self.at(within.price * step), step**2
        while (
            over is None
            and within.left < NEARLY * budget
            and within.price > within.mean(self.total)
        ):
            lower, step = self.at(within.price / step), step**2
            over, within = (lower, within) if lower.left > budget else (None, lower)
        return over, within

    def _guess(self, budget: float) -> float:
        """Returns a first price: from a sample of the curve, or three times the median sides of a
        box.
        """
        n = len(self.order)
        if n > SAMPLED_ABOVE:
            block = np.arange(n) // BLOCK % (n // SAMPLED_ABOVE * 8) == 0
            part = Curve.from_order(self.points, self.order[block], self.window)
            if part.ends[0] <= len(part.order):
                return part.within(budget * part.total / self.total)[0]
        some = [
            self.point[start : self.ends[start]] for start in np.flatnonzero(self.ends <= n)[::101]
        ]
        return 3.0 * float(
            np.median(
                [(np.ptp(run, axis=0).astype(np.int64) + 1) @ self.points.step for run in some]
            )
        )

    def _spent(self, within: Cut, over: Cut, budget: float) -> Pieces:
        """Returns the pieces within the limit, with those over it where they save most per
        suppressed volume.
        """
        # Between positions where a piece begins in both, the pieces can be exchanged. The mean must
        # become lower.
        begins = within.pieces.begins() & over.pieces.begins()
        segment = np.cumsum(begins) - 1
        saved, more = np.zeros(segment[-1] + 1), np.zeros(segment[-1] + 1)
        for pieces, sign in ((within.pieces, 1.0), (over.pieces, -1.0)):
            at, held = segment[pieces.first], self.points.held(pieces)
            cost = np.where(pieces.published, held * self.points.sides(pieces), 0.0)
            saved += sign * np.bincount(at, weights=cost, minlength=len(saved))
            more -= sign * np.bincount(
                at, weights=np.where(pieces.published, 0.0, held), minlength=len(more)
            )
        worth = saved > more * within.mean(self.total) * (1 + 1e-9)
        taken = chosen_within(np.where(worth, saved, 0.0), more, budget - within.left)
        return within.pieces.exchanged(over.pieces, taken[segment])


def chosen_within(saved: Floats, more: Floats, left: float) -> Mask:
    """Returns which exchanges to make: all that suppress no more, then the most efficient within
    the limit.
    """
    gains = saved > 0
    taken = gains & (more <= 0)
    left -= float(np.sum(more[taken]))
    candidates = np.flatnonzero(gains & (more > 0))
    order = candidates[np.argsort(-saved[candidates] / more[candidates], kind="stable")]
    taken[order[: np.searchsorted(np.cumsum(more[order]), left, side="right")]] = True
    return taken


@dataclass(frozen=True, eq=False)
class Cut:
    """The optimal partition at a price: pieces, cost of the boxes, and suppressed volume."""

    price: float
    pieces: Pieces
    cost: float
    left: float

    def mean(self, total: float) -> float:
        """Returns the mean sum of sides over the published volume."""
        return self.cost / (total - self.left) if total > self.left else 0.0


def improved(
    points: Points, pieces: Pieces, price: float, budget: float, window: int, effort: float
) -> Pieces:
    """Returns the pieces after the rounds of exchange that the effort allows."""
    visits = VISITS * effort
    for number in range(int(np.ceil(ROUNDS * effort))):
        held, sides = points.held(pieces), points.sides(pieces)
        # Boxes of a single square are optimal; without them, the other boxes become neighbours.
        aside = pieces.published & (sides == points.step.sum())
        visits -= float(np.sum(pieces.sizes()[~aside]))
        if aside.all() or visits < 0:
            break
        left_out, boxed = (
            float(np.sum(held[which])) for which in (~pieces.published, pieces.published)
        )
        # Boxes shrink and fewer flows are worth suppressing: lower the price, but not so far that
        # the mean rises.
        mean = float(np.sum((held * sides)[pieces.published])) / max(boxed, 1e-300)
        price = max(price * min(1.0, left_out / budget if budget > 0 else 1.0), mean)
        pieces = exchanged(points, pieces, aside, price, budget - left_out, window, number)
    return pieces


def exchanged(
    points: Points, pieces: Pieces, aside: Mask, price: float, left: float, window: int, number: int
) -> Pieces:
    """Repartitions neighbours on this round's curve, not those ``aside``.

    ``left`` is the volume it may suppress.
    """
    hulls = points.hulls(pieces)
    middle = hulls.low.astype(np.int64) + hulls.high
    pieces = pieces.rearranged(np.lexsort((other_curve(middle, number), aside)))
    taking_part = pieces.published[: int(np.sum(~aside))]
    boxes_before: Positions = np.cumsum(taking_part) - taking_part
    stretches = np.append(
        np.flatnonzero(np.diff(boxes_before // TOGETHER, prepend=-1)), len(taking_part)
    )
    first = np.append(pieces.first, len(pieces.order))
    order, begins, shown, gain, more = _compiled_loops().repartition(
        (pieces.order, first, pieces.published),
        stretches,
        (points.point, points.volume, points.step, points.safety),
        price,
        window,
        MOST_FLOWS,
    )
    instead = np.zeros(len(order), dtype=np.bool_)
    instead[: first[stretches[-1]]] = np.repeat(
        chosen_within(gain, more, left), np.diff(first[stretches])
    )
    return pieces.exchanged(Pieces(order, np.flatnonzero(begins), shown[begins]), instead)


def other_curve(point: Positions, number: int) -> NDArray[np.uint64]:
    """Returns positions on the curve of this number.

    Dimensions permuted, some reflected, the start shifted.
    """
    orders = list(permutations(range(DIMENSIONS)))
    turned = point[list(orders[number * 7 % len(orders)])]
    sign = np.array([-1 if (number * 5 + 3) >> d & 1 else 1 for d in range(DIMENSIONS)])
    # Multiples of the golden ratio are evenly distributed modulo 1.
    share = (number + 1) * 0.618034 * np.arange(1, DIMENSIONS + 1, dtype=np.float64) % 1.0
    return hilbert_keys(turned * sign[:, None], shift=share)


def _compiled_loops() -> Any:
    """Imports the compiled loops."""
    with boxes_extra("CurveCut"):
        return import_module("flowveil.methods.box_loops")


def hilbert_keys(
    point: NDArray[np.integer[Any]], *, shift: NDArray[np.float64] | None = None
) -> Words:
    """Returns the position of each point on a Hilbert curve: near points have near positions.

    If the range needs more bits than a key has, neighbouring numbers share a key. ``point`` has one
    row per dimension; ``shift`` is how far the curve starts below the lowest point, as a share of
    the longest range.
    """
    dimensions, n = point.shape
    if n == 0:
        return np.zeros(0, dtype=np.uint64)
    shifted = point.astype(np.int64) - point.min(axis=1, keepdims=True)
    if shift is not None:
        shifted += np.floor(shift * (int(shifted.max()) + 1)).astype(np.int64)[:, None]
    needed = max(1, int(shifted.max()).bit_length())
    bits = min(needed, KEY_BITS // dimensions)
    positions: Words = _compiled_loops().hilbert_positions(
        (shifted >> (needed - bits)).astype(np.uint32), bits
    )
    return positions
