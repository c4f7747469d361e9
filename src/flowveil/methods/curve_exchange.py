"""The exchange of CurveCut, compiled: neighbouring boxes are divided anew along other orders of their flows.

The flows of a few boxes, and those left out between them, are sorted along each of the four dimensions and from one to
the other of two that lie far apart; each order is cut as the whole curve was, at the same price.
Needs numba (the extra ``boxes``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from flowveil.methods.curve_cuts import best_cuts, first_safe_ends, run_boxes

#: Orders that are tried: along the four dimensions, and from one of two flows that lie far apart to the other.
ORDERS = 5


@njit(cache=True)
def divide_anew(
    flows: NDArray[np.int64],
    first: NDArray[np.int64],
    published: NDArray[np.bool_],
    stretches: NDArray[np.int64],
    point: NDArray[np.int32],
    volume: NDArray[np.float64],
    step: NDArray[np.int64],
    safety: Any,
    price: float,
    longer: int,
    most_flows: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Divide every stretch of pieces anew, where that is cheaper.

    Args:
        flows: flows, piece after piece.
        first, published: where each piece begins, and the end; whether it is a box or a flow left out.
        stretches: the piece that each stretch begins with, and the end.
        point, volume: squares and volume of each flow.
        step: width of a square in each dimension.
        safety: what `first_safe_ends` asks for besides an order.
        price: of a unit that is left out.
        longer: by how many flows a run may be longer than the shortest.
        most_flows: stretches of more flows stay as they are.

    Returns:
        The flows anew; whether each begins a piece, and is published; and by stretch, what is gained at the price and
        how much more is left out.
    """
    anew, begins, shown = flows.copy(), np.zeros(len(flows), np.bool_), np.zeros(len(flows), np.bool_)
    gain, more = np.zeros(len(stretches) - 1), np.zeros(len(stretches) - 1)
    for s in range(len(stretches) - 1):
        start, stop = first[stretches[s]], first[stretches[s + 1]]
        begins[start] = True
        if stop - start > most_flows:
            continue
        mine = flows[start:stop]
        cost, left = _costs(
            point[mine],
            volume[mine],
            first[stretches[s] : stretches[s + 1] + 1] - start,
            published[stretches[s] : stretches[s + 1]],
            step,
        )
        now = cost + price * left
        # Less than rounding is no gain.
        best = now - 1e-9 * abs(now)
        sorting = sorting_keys(point[mine], step)
        for o in range(ORDERS):
            order = mine[np.argsort(sorting[o], kind="mergesort")]
            ends = first_safe_ends(order, *safety)
            squares = point[order]
            pieces, are_runs, cost, out = best_cuts(
                squares, volume[order], ends, run_boxes(squares, ends), step, price, longer
            )
            if cost + price * out < best:
                best = cost + price * out
                gain[s], more[s] = now - best, out - left
                # Number by number: assignments of slices take seconds to compile.
                for i in range(stop - start):
                    anew[start + i], begins[start + i] = order[i], False
                for i in range(len(pieces)):
                    begins[start + pieces[i]] = True
                    end = pieces[i + 1] if i + 1 < len(pieces) else stop - start
                    for place in range(start + pieces[i], start + end):
                        shown[place] = are_runs[i]
    return anew, begins, shown, gain, more


@njit(cache=True)
def sorting_keys(point: NDArray[np.int32], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the flows of a stretch are sorted by, one row for each order."""
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
    """L1 distance of two flows."""
    apart = 0
    for d in range(4):
        apart += abs(np.int64(point[one, d]) - point[other, d]) * step[d]
    return apart


@njit(cache=True)
def _farthest(point: Any, step: Any, start: int) -> int:
    """The flow farthest from one, the first of them where there are several."""
    most, found = -1, start
    for i in range(len(point)):
        apart = _apart(point, step, start, i)
        if apart > most:
            most, found = apart, i
    return found


@njit(cache=True)
def _costs(point: Any, volume: Any, first: Any, published: Any, step: Any) -> tuple[float, float]:
    """What the boxes of a stretch cost, and the volume that it leaves out."""
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
