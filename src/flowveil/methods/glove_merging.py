"""The merging loop of GLOVE, compiled.

Each merge depends on all merges before it, so there is no vector form. Candidate pairs stand in a heap; a pair
whose boxes are gone is passed over when it comes up. Needs numba (the extra ``boxes``).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

GONE, SHORT, SAFE = 0, 1, 2


@njit(cache=True)
def stretch(low: Any, high: Any, volume: Any, a: int, b: int) -> float:
    """How much farther the box around both reaches than each of the two, on average over their volume.

    The reach of a box is the sum of its four sides: the largest L1 distance between two points in it.
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
    """The distinct values of two sorted arrays, sorted."""
    out = np.empty(len(one) + len(other), one.dtype)
    i = j = n = 0
    while i < len(one) or j < len(other):
        if j == len(other) or (i < len(one) and one[i] <= other[j]):
            value = one[i]
            if j < len(other) and other[j] == value:
                j += 1
            i += 1
        else:
            value = other[j]
            j += 1
        out[n] = value
        n += 1
    return out[:n].copy()


@njit(cache=True)
def merge_boxes(
    point: NDArray[np.float64],
    volume: NDArray[np.float64],
    held: NDArray[np.float64],
    least: NDArray[np.float64],
    person_start: NDArray[np.int64],
    person: NDArray[np.int32],
    fewest_people: int,
    origin: NDArray[np.int32],
    destination: NDArray[np.int32],
    fewest_tiles: int,
    near_start: NDArray[np.int64],
    near: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Merge the cheapest pair of short boxes until fewer than two are left.

    Only pairs of neighbours are considered, and the neighbours of a merged box are those of its parts. When no short
    box has a short neighbour left, each of them gets the one that is cheapest to merge with. Ties go to the smaller
    numbers; merged boxes are numbered in the order of merging, after the flows.

    Args:
        point: coordinates of each flow, one row a flow; whole numbers, so that equal costs are equal.
        volume: what a flow counts in the cost of a merge.
        held, least: quantities that add up, one row a flow, and what a safe box holds of each.
        person_start, person: the sorted persons of each flow, as slices.
        fewest_people: distinct people of a safe box; 0 where people are not protected.
        origin, destination: the tiles of each flow.
        fewest_tiles: distinct tiles in which the flows of a safe box begin, and end; 0 where locations are not
            protected.
        near_start, near: the neighbours of each flow, as slices; symmetric.

    Returns:
        The box that each box was merged into, -1 where it was not; and the state of each box.
    """
    n, dimensions = point.shape
    size = 2 * n
    low, high = np.empty((size, dimensions)), np.empty((size, dimensions))
    weight, total = np.zeros(size), np.zeros((size, held.shape[1]))
    # Number by number, here and below: assignments of slices take as long to compile as all the rest.
    for i in range(n):
        weight[i] = volume[i]
        for d in range(dimensions):
            low[i, d] = high[i, d] = point[i, d]
        for q in range(len(least)):
            total[i, q] = held[i, q]
    into, state = np.full(size, -1), np.zeros(size, np.int8)
    seen = np.full(size, -1)
    people = [person[person_start[i] : person_start[i + 1]] for i in range(n)]
    # Sets of tiles are kept only where they are asked for.
    located = n if fewest_tiles > 0 else 0
    begin, end = [origin[i : i + 1] for i in range(located)], [destination[i : i + 1] for i in range(located)]
    neighbors = [near[near_start[i] : near_start[i + 1]] for i in range(n)]

    def is_safe(box: int) -> bool:
        for q in range(len(least)):
            if total[box, q] < least[q]:
                return False
        if len(people[box]) < fewest_people:
            return False
        return fewest_tiles == 0 or (len(begin[box]) >= fewest_tiles and len(end[box]) >= fewest_tiles)

    n_short = 0
    for i in range(n):
        state[i] = SAFE if is_safe(i) else SHORT
        n_short += state[i] == SHORT
    pairs = [(0.0, 0, 0) for _ in range(0)]
    for i in range(n):
        if state[i] == SHORT:
            for j in neighbors[i]:
                if i < j and state[j] == SHORT:
                    pairs.append((stretch(low, high, weight, i, j), i, j))
    heapify(pairs)
    m = n
    while n_short >= 2:
        if len(pairs) == 0:
            short: Any = np.flatnonzero(state[:m] == SHORT)
            for a in short:
                cheapest, partner = np.inf, a
                for b in short:
                    if a != b:
                        cost = stretch(low, high, weight, a, b)
                        if cost < cheapest:
                            cheapest, partner = cost, b
                one, other = min(a, partner), max(a, partner)
                pairs.append((cheapest, one, other))
                neighbors[one] = union(neighbors[one], np.array([other]))
                neighbors[other] = union(neighbors[other], np.array([one]))
            heapify(pairs)
        _, a, b = heappop(pairs)
        if state[a] != SHORT or state[b] != SHORT:
            continue
        for d in range(dimensions):
            low[m, d], high[m, d] = min(low[a, d], low[b, d]), max(high[a, d], high[b, d])
        weight[m] = weight[a] + weight[b]
        for q in range(len(least)):
            total[m, q] = total[a, q] + total[b, q]
        people.append(union(people[a], people[b]))
        if fewest_tiles > 0:
            begin.append(union(begin[a], begin[b]))
            end.append(union(end[a], end[b]))
        state[a], state[b], into[a], into[b] = GONE, GONE, m, m
        state[m] = SAFE if is_safe(m) else SHORT
        around = np.empty(len(neighbors[a]) + len(neighbors[b]) if state[m] == SHORT else 0, np.int64)
        n_around = 0
        if state[m] == SHORT:
            for part in (a, b):
                for j in neighbors[part]:
                    while into[j] >= 0:
                        j = into[j]
                    if state[j] == SHORT and j != m and seen[j] != m:
                        seen[j] = m
                        around[n_around] = j
                        n_around += 1
                        heappush(pairs, (stretch(low, high, weight, j, m), j, m))
        neighbors.append(np.sort(around[:n_around]))
        n_short -= 1 if state[m] == SHORT else 2
        m += 1
    return into[:m], state[:m]
