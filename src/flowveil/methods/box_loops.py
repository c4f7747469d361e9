"""The loops of CurveCut and GLOVE, compiled. Needs numba (the extra ``boxes``).

CurveCut: all units are monotone, so of the runs from a flow only those matter that are safe and
shorter than two safe runs. GLOVE: each merge depends on all earlier ones, so the loop cannot be
vectorised.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Orders that the exchange tries: along the four dimensions, and between two distant flows.
ORDERS = 5
#: States of a box of GLOVE.
GONE, UNSAFE, SAFE = 0, 1, 2


@njit(cache=True)
def first_safe_ends(
    order: Any, held: Any, least: Any, start_of: Any, member: Any, kind: Any, fewest: Any, seen: Any
) -> NDArray[np.int64]:
    """Returns the end of the shortest safe run from each position.

    Beyond the end of the order without one.

    One window slides along the order. ``held`` and ``least`` are the sums of each flow and the
    thresholds of a safe run; ``start_of`` to ``fewest`` the `flowveil.core.guarantee.Members` of
    the flows; ``seen`` has a zero for each member.
    """
    n, n_held = len(order), held.shape[1]
    ends = np.full(n, n + 1)
    total = np.zeros(n_held)
    distinct = np.zeros(len(fewest), np.int64)
    stop = 0
    for start in range(n):
        while True:
            safe = stop > start
            for q in range(n_held):
                safe = safe and total[q] >= least[q]
            for m in range(len(fewest)):
                safe = safe and distinct[m] >= fewest[m]
            if safe or stop == n:
                break
            flow = order[stop]
            for q in range(n_held):
                total[q] += held[flow, q]
            for r in range(start_of[flow], start_of[flow + 1]):
                distinct[kind[member[r]]] += seen[member[r]] == 0
                seen[member[r]] += 1
            stop += 1
        if safe:
            ends[start] = stop
        flow = order[start]
        for q in range(n_held):
            total[q] -= held[flow, q]
        for r in range(start_of[flow], start_of[flow + 1]):
            seen[member[r]] -= 1
            distinct[kind[member[r]]] -= seen[member[r]] == 0
    return ends


@njit(cache=True)
def best_cuts(
    point: Any, volume: Any, ends: Any, step: Any, price: float, longer: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], float, float]:
    """Returns the cheapest partition of an order into safe runs and suppressed flows.

    A run costs its volume times the sum of the four sides of its box, a suppressed flow its volume
    times the price. ``ends`` has the end of the shortest safe run from each position; a run may
    exceed it by ``longer`` flows. Returned are the start of each piece, whether it is a published
    run, the cost of the runs, and the suppressed volume.
    """
    n = len(point)
    best, before = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    best[0] = 0.0
    reached = np.zeros(n + 1)
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
        l0, l1, l2, l3 = h0, h1, h2, h3 = point[start]
        for place in range(start, last):
            p0, p1, p2, p3 = point[place]
            l0, l1, l2, l3 = min(l0, p0), min(l1, p1), min(l2, p2), min(l3, p3)
            h0, h1, h2, h3 = max(h0, p0), max(h1, p1), max(h2, p2), max(h3, p3)
            if place + 1 < stop:
                continue
            sides = (
                (h0 - l0 + 1) * s0 + (h1 - l1 + 1) * s1 + (h2 - l2 + 1) * s2 + (h3 - l3 + 1) * s3
            )
            cost = so_far + (reached[place + 1] - reached[start]) * sides
            if cost <= best[place + 1]:
                best[place + 1], before[place + 1] = cost, start
    return _backtrack(best, before, volume, price)


@njit(cache=True)
def _backtrack(
    best: Any, before: Any, volume: Any, price: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_], float, float]:
    """Returns the pieces of the optimal partition; ``before`` is -1 after a suppressed flow."""
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
    return (
        first[:pieces][::-1].copy(),
        published[:pieces][::-1].copy(),
        best[n] - price * left,
        left,
    )


@njit(cache=True)
def repartition(
    pieces: Any,
    stretches: NDArray[np.int64],
    points: Any,
    price: float,
    longer: int,
    most_flows: int,
) -> tuple[
    NDArray[np.int64],
    NDArray[np.bool_],
    NDArray[np.bool_],
    NDArray[np.float64],
    NDArray[np.float64],
]:
    """Repartitions every stretch of pieces for which that is cheaper, unless it has more than
    ``most_flows``.

    ``pieces`` are the flows piece after piece, the start of each piece and the end, and whether it
    is a published box; ``stretches`` the first piece of each stretch, and the end; ``points`` the
    fields of `Points` in `curvecut`. Returns the flows in their new order, whether each starts a
    piece and is published; by stretch, the gain at the price and the additional suppressed volume.
    """
    flows, first, published = pieces
    point, volume, step, safety = points
    new_order, begins, shown = (
        flows.copy(),
        np.zeros(len(flows), np.bool_),
        np.zeros(len(flows), np.bool_),
    )
    gain, more = np.zeros(len(stretches) - 1), np.zeros(len(stretches) - 1)
    for s in range(len(stretches) - 1):
        low, high = stretches[s], stretches[s + 1]
        start, stop = first[low], first[high]
        begins[start] = True
        if stop - start > most_flows:
            continue
        members = flows[start:stop]
        cost, left = _costs(
            point[members],
            volume[members],
            first[low : high + 1] - start,
            published[low:high],
            step,
        )
        now = cost + price * left
        # Gains below this are rounding errors.
        best = now - 1e-9 * abs(now)
        sorting = sorting_keys(point[members], step)
        for o in range(ORDERS):
            order = members[np.argsort(sorting[o], kind="mergesort")]
            ends = first_safe_ends(order, *safety)
            starts, are_runs, cost, out = best_cuts(
                point[order], volume[order], ends, step, price, longer
            )
            if cost + price * out < best:
                best = cost + price * out
                gain[s], more[s] = now - best, out - left
                _write_pieces(new_order, begins, shown, start, order, starts, are_runs)
    return new_order, begins, shown, gain, more


@njit(cache=True)
def _write_pieces(
    new_order: Any, begins: Any, shown: Any, start: int, order: Any, starts: Any, are_runs: Any
) -> None:
    """Writes the pieces of a stretch that begins at ``start``."""
    new_order[start : start + len(order)] = order
    begins[start : start + len(order)] = False
    for i in range(len(starts)):
        begins[start + starts[i]] = True
        end = starts[i + 1] if i + 1 < len(starts) else len(order)
        shown[start + starts[i] : start + end] = are_runs[i]


@njit(cache=True)
def sorting_keys(point: NDArray[np.int32], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the sort keys of the flows of a stretch, one row for each order."""
    # The flow farthest from the first, and the flow farthest from that one.
    from_one = _distances(point, step, np.argmax(_distances(point, step, 0)))
    from_other = _distances(point, step, np.argmax(from_one))
    keys = np.empty((ORDERS, len(point)), np.int64)
    for i in range(len(point)):
        for d in range(4):
            keys[d, i] = point[i, d]
        keys[4, i] = from_one[i] - from_other[i]
    return keys


@njit(cache=True)
def _distances(point: Any, step: Any, start: Any) -> Any:
    """Returns the L1 distance of each flow from one.

    Element by element, here and below: slices compile slowly.
    """
    distances = np.zeros(len(point), np.int64)
    for i in range(len(point)):
        for d in range(4):
            distances[i] += abs(np.int64(point[i, d]) - point[start, d]) * step[d]
    return distances


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


@njit(cache=True)
def hilbert_positions(point: Any, bits: int) -> NDArray[np.uint64]:
    """Returns the position of each point (a column of numbers below 2**bits) on the Hilbert curve.

    Skilling's transposition (Programming the Hilbert curve, 2004): from the highest bit on, each
    dimension is reflected or exchanged with the first, and the Gray code of the result is
    interleaved across the dimensions.
    """
    positions = np.zeros(point.shape[1], np.uint64)
    for i in range(point.shape[1]):
        x = point[:, i].copy()
        for bit in range(bits - 1, 0, -1):
            low = np.uint32((1 << bit) - 1)
            for d in range(len(x)):
                if x[d] >> bit & 1:
                    x[0] ^= low
                else:
                    exchanged = (x[0] ^ x[d]) & low
                    x[0] ^= exchanged
                    x[d] ^= exchanged
        for d in range(1, len(x)):
            x[d] ^= x[d - 1]
        flip = np.uint32(0)
        for bit in range(bits - 1, 0, -1):
            if x[-1] >> bit & 1:
                flip ^= np.uint32((1 << bit) - 1)
        for bit in range(bits - 1, -1, -1):
            for d in range(len(x)):
                positions[i] = positions[i] << np.uint64(1) | np.uint64((x[d] ^ flip) >> bit & 1)
    return positions


@njit(cache=True)
def stretch(low: Any, high: Any, volume: Any, a: int, b: int) -> float:
    """Returns by how much the reach of the common box exceeds that of the two boxes, averaged over
    their volume.

    The reach of a box is the sum of its four sides: the largest L1 distance between two of its
    points.
    """
    whole = own_a = own_b = 0.0
    for d in range(low.shape[1]):
        whole += max(high[a, d], high[b, d]) - min(low[a, d], low[b, d])
        own_a += high[a, d] - low[a, d]
        own_b += high[b, d] - low[b, d]
    total = volume[a] + volume[b]
    if total == 0.0:
        return float(whole - (own_a + own_b) / 2)
    return float((volume[a] * (whole - own_a) + volume[b] * (whole - own_b)) / total)


@njit(cache=True)
def union(one: Any, other: Any) -> Any:
    """Returns the distinct values of two arrays, sorted."""
    return np.unique(np.concatenate((one, other)))


@njit(cache=True)
def is_safe(sums: Any, least: Any, members: Any, kind: Any, fewest: Any) -> Any:
    """Returns whether a box with these sums and members reaches all thresholds."""
    n_members = np.zeros(len(fewest), np.int64)
    for member in members:
        n_members[kind[member]] += 1
    return np.all(sums >= least) and np.all(n_members >= fewest)


@njit(cache=True)
def cheapest_pairs(low: Any, high: Any, weight: Any, unsafe: Any, neighbors: Any) -> Any:
    """Returns a pair with the cheapest partner for each of these boxes, and makes the two
    neighbours.
    """
    pairs = [(0.0, 0, 0) for _ in range(0)]
    for a in unsafe:
        cheapest, partner = np.inf, a
        for b in unsafe:
            if a != b:
                cost = stretch(low, high, weight, a, b)
                if cost < cheapest:
                    cheapest, partner = cost, b
        one, other = min(a, partner), max(a, partner)
        pairs.append((cheapest, one, other))
        neighbors[one] = union(neighbors[one], np.array([other]))
        neighbors[other] = union(neighbors[other], np.array([one]))
    heapify(pairs)
    return pairs


@njit(cache=True)
def merge_boxes(
    low: Any, high: Any, weight: Any, total: Any, least: Any, counted: Any, graph: Any
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Merges the cheapest pair of boxes below the threshold until fewer than two are left.

    Only pairs of neighbours are candidates; a merged box has the neighbours of its parts. If no
    candidate is left, each box gets its cheapest partner as neighbour. Ties go to the smaller
    numbers; merged boxes are numbered in order of merging, after the flows. Returns the box that
    each box was merged into (-1 if none), and the state of each box.

    Args:
        low, high, weight, total: bounds in whole centimetres, so that equal costs are equal, weight
            in the cost of a merge, and sums of each flow; with as many rows again for merged boxes.
        counted: the `flowveil.core.guarantee.Members` of the flows.
        graph: start of each flow's neighbours, and the neighbours; symmetric.
    """
    n = len(low) // 2
    (start, member, kind, fewest), (near_start, near) = counted, graph
    into, state = np.full(2 * n, -1), np.zeros(2 * n, np.int8)
    members = [member[start[i] : start[i + 1]] for i in range(n)]
    neighbors = [near[near_start[i] : near_start[i + 1]] for i in range(n)]
    for i in range(n):
        state[i] = SAFE if is_safe(total[i], least, members[i], kind, fewest) else UNSAFE
    n_unsafe = int(np.sum(state == UNSAFE))
    pairs = [(0.0, 0, 0) for _ in range(0)]
    for i in range(n):
        for j in neighbors[i]:
            if i < j and state[i] == UNSAFE and state[j] == UNSAFE:
                pairs.append((stretch(low, high, weight, i, j), i, j))
    heapify(pairs)
    m = n
    while n_unsafe >= 2:
        if len(pairs) == 0:
            pairs = cheapest_pairs(
                low, high, weight, np.flatnonzero(state[:m] == UNSAFE), neighbors
            )
        _, a, b = heappop(pairs)
        if state[a] != UNSAFE or state[b] != UNSAFE:
            continue
        low[m], high[m] = np.minimum(low[a], low[b]), np.maximum(high[a], high[b])
        weight[m], total[m] = weight[a] + weight[b], total[a] + total[b]
        members.append(union(members[a], members[b]))
        state[a], state[b], into[a], into[b] = GONE, GONE, m, m
        safe = is_safe(total[m], least, members[m], kind, fewest)
        state[m] = SAFE if safe else UNSAFE
        neighbors.append(unsafe_neighbors(m, a, b, neighbors, into, state))
        for j in neighbors[m]:
            heappush(pairs, (stretch(low, high, weight, j, m), j, m))
        n_unsafe -= 2 if safe else 1
        m += 1
    return into[:m], state[:m]


@njit(cache=True)
def unsafe_neighbors(box: int, a: int, b: int, neighbors: Any, into: Any, state: Any) -> Any:
    """Returns the sorted unsafe neighbours of a box merged from a and b.

    Empty if the box is safe.
    """
    near = union(neighbors[a], neighbors[b])
    for i in range(len(near)):
        while into[near[i]] >= 0:
            near[i] = into[near[i]]
    near = np.unique(near)
    return near[(state[near] == UNSAFE) & (near != box) & (state[box] == UNSAFE)]
