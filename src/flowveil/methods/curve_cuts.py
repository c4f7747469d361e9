"""The loops of CurveCut, compiled: where a run of flows becomes safe, and the best cuts of an order.

A run is a slice of an order of flows. Every unit of the guarantee is monotone, so a run that holds a safe one is safe,
and a safe run that consists of two is never better than the two: their boxes lie within its own. So of the runs from a
flow on, only those count that are safe and end before two of them fit in: for k trips, less than 2k flows.
Needs numba (the extra ``boxes``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def first_safe_ends(
    order: NDArray[np.int64],
    held: NDArray[np.float64],
    least: NDArray[np.float64],
    rows: tuple[Any, Any, Any],
    members: tuple[Any, Any, Any],
    fewest: NDArray[np.int64],
    seen: tuple[Any, Any, Any],
) -> NDArray[np.int64]:
    """Where the shortest safe run from each place of the order on ends; beyond the order + 1 where there is none.

    One window slides along the order: what adds up is added and taken off, members are counted as they come and go.

    Args:
        order: flows.
        held, least: quantities that add up, one row a flow, and what a safe run holds of each.
        rows, members: three kinds of members (people, tiles of begin and end): where each flow's begin, and they.
        fewest: distinct members of a safe run, by kind; 0 where they are not protected.
        seen: zeros for each member, by kind; zeros again when this returns.
    """
    n, n_held = len(order), held.shape[1]
    ends = np.full(n, n + 1)
    total = np.zeros(n_held)
    distinct = np.zeros(3, np.int64)
    stop = 0
    for start in range(n):
        while True:
            safe = stop > start
            for q in range(n_held):
                safe = safe and total[q] >= least[q]
            for m in range(3):
                safe = safe and distinct[m] >= fewest[m]
            if safe or stop == n:
                break
            flow = order[stop]
            for q in range(n_held):
                total[q] += held[flow, q]
            for m in range(3):
                if fewest[m] > 0:
                    for r in range(rows[m][flow], rows[m][flow + 1]):
                        member = members[m][r]
                        distinct[m] += seen[m][member] == 0
                        seen[m][member] += 1
            stop += 1
        if safe:
            ends[start] = stop
        flow = order[start]
        for q in range(n_held):
            total[q] -= held[flow, q]
        for m in range(3):
            if fewest[m] > 0:
                for r in range(rows[m][flow], rows[m][flow + 1]):
                    member = members[m][r]
                    seen[m][member] -= 1
                    distinct[m] -= seen[m][member] == 0
    return ends


@njit(cache=True)
def run_boxes(point: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int32]:
    """The boxes of the shortest safe runs: four lowest squares, then four highest.

    Runs move on at both ends, so a box is put together from that of the part before ``turn``, known for every place
    there, and that of the rest, which only grows: each flow is looked at twice however long the runs are.

    Args:
        point: squares of the flows in their order, one row a flow.
        ends: where the shortest safe run from each place on ends.
    """
    n = len(point)
    boxes = np.empty((n, 8), np.int32)
    tail = np.empty(8, np.int32)
    turn = reached = 0
    for start in range(n):
        stop = ends[start]
        if stop > n:
            break
        if start >= turn:
            turn = reached = stop
            tail[:4], tail[4:] = 2**31 - 1, -(2**31)
            for place in range(turn - 1, start - 1, -1):
                for d in range(4):
                    low = high = point[place, d]
                    if place + 1 < turn:
                        low, high = min(low, boxes[place + 1, d]), max(high, boxes[place + 1, d + 4])
                    boxes[place, d], boxes[place, d + 4] = low, high
        while reached < stop:
            for d in range(4):
                tail[d], tail[d + 4] = min(tail[d], point[reached, d]), max(tail[d + 4], point[reached, d])
            reached += 1
        for d in range(4):
            boxes[start, d], boxes[start, d + 4] = min(boxes[start, d], tail[d]), max(boxes[start, d + 4], tail[d + 4])
    return boxes


@njit(cache=True)
def best_cuts(
    point: NDArray[np.int32],
    volume: NDArray[np.float64],
    ends: NDArray[np.int64],
    boxes: NDArray[np.int32],
    step: NDArray[np.int64],
    price: float,
    longer: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], float, float]:
    """The cheapest way to cut an order of flows into safe runs and flows that are left out.

    A run costs its volume times the sum of the four sides of its box, a flow left out its volume times the price. The
    best of every beginning of the order follows from those before it. Ties are published.

    Args:
        point: squares of the flows in their order, one row a flow.
        volume: of each flow.
        ends, boxes: where the shortest safe run from each place on ends, and its box.
        step: width of a square in each dimension.
        price: of a unit that is left out.
        longer: by how many flows a run may be longer than the shortest.

    Returns:
        Where each piece begins, whether it is a run that is published, what the runs cost, and the volume left out.
    """
    n = len(point)
    best, before = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    best[0] = 0.0
    reached = np.zeros(n + 1)
    # Number by number: an assignment of a slice takes longer to compile than the rest.
    for i in range(n):
        reached[i + 1] = reached[i] + volume[i]
    s0, s1, s2, s3 = step
    for start in range(n):
        so_far = best[start]
        if so_far + price * volume[start] < best[start + 1]:
            best[start + 1], before[start + 1] = so_far + price * volume[start], -1
        stop = ends[start]
        if stop > n:
            continue
        last = min(n, stop + longer)
        if stop < n and ends[stop] <= n:
            last = min(last, ends[stop] - 1)
        l0, l1, l2, l3, h0, h1, h2, h3 = boxes[start]
        while True:
            sides = (h0 - l0 + 1) * s0 + (h1 - l1 + 1) * s1 + (h2 - l2 + 1) * s2 + (h3 - l3 + 1) * s3
            cost = so_far + (reached[stop] - reached[start]) * sides
            if cost <= best[stop]:
                best[stop], before[stop] = cost, start
            if stop >= last:
                break
            p0, p1, p2, p3 = point[stop]
            l0, l1, l2, l3 = min(l0, p0), min(l1, p1), min(l2, p2), min(l3, p3)
            h0, h1, h2, h3 = max(h0, p0), max(h1, p1), max(h2, p2), max(h3, p3)
            stop += 1
    return _walked_back(best, before, volume, price)


@njit(cache=True)
def _walked_back(
    best: Any, before: Any, volume: Any, price: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_], float, float]:
    """The pieces that led to the best of the whole order; ``before`` is -1 behind a flow that is left out."""
    n = len(volume)
    first, published = np.empty(n, np.int64), np.empty(n, np.bool_)
    pieces, place, left = 0, n, 0.0
    while place > 0:
        is_run = before[place] >= 0
        if not is_run:
            left += volume[place - 1]
        place = before[place] if is_run else place - 1
        first[pieces], published[pieces] = place, is_run
        pieces += 1
    return first[:pieces][::-1].copy(), published[:pieces][::-1].copy(), best[n] - price * left, left
