"""The merging loop of GLOVE, compiled.

Each merge depends on all earlier ones, so the loop cannot be vectorised. Candidate pairs are in a heap; pairs with
merged boxes are skipped. Needs numba (the extra ``boxes``).

Measured by `python -m benchmarks boxes`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

GONE, UNSAFE, SAFE = 0, 1, 2


@njit(cache=True)
def stretch(low: Any, high: Any, volume: Any, a: int, b: int) -> float:
    """Returns by how much the reach of the common box exceeds that of the two boxes, averaged over their volume.

    The reach of a box is the sum of its four sides: the largest L1 distance between two of its points.
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
    """Returns a pair with the cheapest partner for each of these boxes, and makes the two neighbours."""
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

    Only pairs of neighbours are candidates; a merged box has the neighbours of its parts. If no candidate is left, each
    box gets its cheapest partner as neighbour. Ties go to the smaller numbers; merged boxes are numbered in order of
    merging, after the flows.

    Args:
        low, high: coordinates of each flow, one row per flow, and as many rows for merged boxes; integers, so that
            equal costs are equal.
        weight: weight of each flow in the cost of a merge, and room for merged boxes.
        total, least: sums of each flow (one row per flow, and room for merged boxes), and the thresholds of a safe box.
        counted: the `flowveil.guarantee.Members` of the flows.
        graph: start of each flow's neighbours, and the neighbours; symmetric.

    Returns:
        The box that each box was merged into (-1 if none), and the state of each box.
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
            pairs = cheapest_pairs(low, high, weight, np.flatnonzero(state[:m] == UNSAFE), neighbors)
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
    """Returns the sorted unsafe neighbours of a box merged from a and b; empty if the box is safe."""
    near = union(neighbors[a], neighbors[b])
    for i in range(len(near)):
        while into[near[i]] >= 0:
            near[i] = into[near[i]]
    near = np.unique(near)
    return near[(state[near] == UNSAFE) & (near != box) & (state[box] == UNSAFE)]
