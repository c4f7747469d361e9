"""The exchange step of CurveCut, compiled: neighbouring boxes are repartitioned along other orders of their flows.

The flows of a few boxes, and the suppressed flows between them, are sorted along each of the four dimensions, and from
one to the other of two distant flows. Each order is cut like the whole curve, at the same price.
Needs numba (the extra ``boxes``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from flowveil.methods.curve_cuts import best_cuts, first_safe_ends, run_boxes

#: Orders that are tried: along the four dimensions, and between two distant flows.
ORDERS = 5


@njit(cache=True)
def repartition(
    pieces: Any, stretches: NDArray[np.int64], points: Any, price: float, longer: int, most_flows: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Repartitions every stretch of pieces for which that is cheaper.

    Args:
        pieces: flows piece after piece; start of each piece and the end; whether each piece is a published box.
        stretches: first piece of each stretch, and the end.
        points: squares and volume of each flow, width of a square in each dimension, and the arguments of
            `first_safe_ends` other than the order.
        price: price of a suppressed unit.
        longer: flows by which a run may exceed the shortest safe one.
        most_flows: longer stretches are left unchanged.

    Returns:
        The flows in their new order; whether each starts a piece, and is published; and by stretch, the gain at the
        price and the additional suppressed volume.
    """
    flows, first, published = pieces
    point, volume, step, safety = points
    new_order, begins, shown = flows.copy(), np.zeros(len(flows), np.bool_), np.zeros(len(flows), np.bool_)
    gain, more = np.zeros(len(stretches) - 1), np.zeros(len(stretches) - 1)
    for s in range(len(stretches) - 1):
        low, high = stretches[s], stretches[s + 1]
        start, stop = first[low], first[high]
        begins[start] = True
        if stop - start > most_flows:
            continue
        members = flows[start:stop]
        cost, left = _costs(point[members], volume[members], first[low : high + 1] - start, published[low:high], step)
        now = cost + price * left
        # Gains below this are rounding errors.
        best = now - 1e-9 * abs(now)
        sorting = sorting_keys(point[members], step)
        for o in range(ORDERS):
            order = members[np.argsort(sorting[o], kind="mergesort")]
            ends = first_safe_ends(order, *safety)
            squares = point[order]
            starts, are_runs, cost, out = best_cuts(
                squares, volume[order], ends, run_boxes(squares, ends), step, price, longer
            )
            if cost + price * out < best:
                best = cost + price * out
                gain[s], more[s] = now - best, out - left
                _write_pieces(new_order, begins, shown, start, order, starts, are_runs)
    return new_order, begins, shown, gain, more


@njit(cache=True)
def _write_pieces(new_order: Any, begins: Any, shown: Any, start: int, order: Any, starts: Any, are_runs: Any) -> None:
    """Writes the pieces of a stretch that begins at ``start``. Element by element: slices compile slowly."""
    for i in range(len(order)):
        new_order[start + i], begins[start + i] = order[i], False
    for i in range(len(starts)):
        begins[start + starts[i]] = True
        end = starts[i + 1] if i + 1 < len(starts) else len(order)
        for place in range(start + starts[i], start + end):
            shown[place] = are_runs[i]


@njit(cache=True)
def sorting_keys(point: NDArray[np.int32], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the sort keys of the flows of a stretch, one row for each order."""
    n = len(point)
    keys = np.zeros((ORDERS, n), np.int64)
    for d in range(4):
        for i in range(n):
            keys[d, i] = point[i, d]
    # The flow farthest from the first, and the flow farthest from that one.
    one = _farthest(point, step, 0)
    other = _farthest(point, step, one)
    for i in range(n):
        keys[4, i] = _apart(point, step, i, one) - _apart(point, step, i, other)
    return keys


@njit(cache=True)
def _apart(point: Any, step: Any, one: int, other: int) -> int:
    """Returns the L1 distance of two flows."""
    apart = 0
    for d in range(4):
        apart += abs(np.int64(point[one, d]) - point[other, d]) * step[d]
    return apart


@njit(cache=True)
def _farthest(point: Any, step: Any, start: int) -> int:
    """Returns the first of the flows that are farthest from one."""
    most, found = -1, start
    for i in range(len(point)):
        apart = _apart(point, step, start, i)
        if apart > most:
            most, found = apart, i
    return found


@njit(cache=True)
def _costs(point: Any, volume: Any, first: Any, published: Any, step: Any) -> tuple[float, float]:
    """Returns the cost of the boxes of a stretch, and its suppressed volume."""
    cost, left = 0.0, 0.0
    for piece in range(len(published)):
        held, sides = 0.0, 0
        for i in range(first[piece], first[piece + 1]):
            held += volume[i]
        if not published[piece]:
            left += held
            continue
        for d in range(4):
            low = high = point[first[piece], d]
            for i in range(first[piece] + 1, first[piece + 1]):
                low, high = min(low, point[i, d]), max(high, point[i, d])
            sides += (np.int64(high) - low + 1) * step[d]
        cost += held * sides
    return cost, left
