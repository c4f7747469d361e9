"""Rounding: every count becomes one of the two nearest multiples of a base, drawn by the keys of its records.

*Random* rounding is unbiased, and equal in every table of the same data. *Controlled* rounding (Cox 1987) also rounds
the totals, which are the sums of the published counts; what a cell becomes depends on the whole table.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import check_whole
from flowveil.methods.cellkey import KeyedPairs, spread
from flowveil.record_keys import MODULUS, Keys
from flowveil.release.noisy import NoisyCounts

LARGEST_BASE = 100
#: Largest number of pairs of one table with controlled rounding.
MOST_CONTROLLED = 1_000_000


def rounding(
    flows: Flows,
    *,
    base: int = 5,
    mode: Literal["random", "controlled"] = "random",
    small_only: bool = False,
    level: int | None = None,
) -> NoisyCounts:
    """Rounds the count of every pair of zones to a multiple of the base.

    Args:
        flows: flows with record keys.
        base: counts become multiples of this.
        mode: ``random``: each count alone; ``controlled``: so that totals agree.
        small_only: counts from the base on stay exact.
        level: level of the zones in their hierarchy (the resolution, for H3); tiles by default.

    Raises:
        ParameterError: an option is out of range, the table is too large to be controlled, or there are no record keys.
        DataError: the flows have fractions of trips.
    """
    check_whole("base", base, least=2, most=LARGEST_BASE)
    if mode not in ("random", "controlled"):
        raise ParameterError(f"mode must be random or controlled; found {mode!r}.")
    pairs = KeyedPairs.from_flows(flows, level)
    counts = pairs.cells.trips
    remainder = counts % base if not small_only else np.where(counts < base, counts, 0)
    if mode == "controlled":
        how = "so that totals of origins, of destinations and of all are rounded too (Cox 1987)"
        rounded_up = _controlled(pairs, remainder, int(base))
    else:
        how = "as the sum of record keys says, with probability remainder / base"
        rounded_up = (spread(pairs.keys) * base < remainder * MODULUS).astype(np.int64)
    of = f"counts below {base}, the others are exact" if small_only else "counts"
    return pairs.released(
        counts - remainder + base * rounded_up,
        f"{of}: rounded to multiples of {base}, up or down {how}; 0 stays 0",
        maximum=int(base) - 1,
        # That of the remainder with the largest one.
        deviation=math.sqrt((base // 2) * (base - base // 2)),
        details={"base": int(base), "mode": mode, "small_only": bool(small_only)},
    )


def _controlled(pairs: KeyedPairs, remainder: Keys, base: int) -> Keys:
    """Returns 1 for the counts that are rounded up, else 0.

    Remainders are edges between origins and destinations. One more node at each end has the edges that complete the
    sums of every node to a multiple of the base. As long as edges are left, each node has none or several, so there is
    a cycle: its edges are raised and lowered in turn until one is 0 or the base.
    """
    if len(remainder) > MOST_CONTROLLED:
        raise ParameterError(
            f"Controlled rounding is for tables of at most {MOST_CONTROLLED:,} pairs; this one has more. Hint: a "
            "coarser level, or mode=random."
        )
    origin, destination = pairs.cells.origin.astype(np.int64), pairs.cells.destination.astype(np.int64)
    n_o, n_d = int(origin.max(initial=-1)) + 1, int(destination.max(initial=-1)) + 1
    rows, columns = (np.bincount(end, remainder, n).astype(np.int64) for end, n in ((origin, n_o), (destination, n_d)))
    value = np.concatenate((remainder, -rows % base, -columns % base, [rows.sum() % base])).tolist()
    ends = (
        np.concatenate((origin, np.arange(n_o), np.full(n_d + 1, n_o))),
        np.concatenate((destination, np.full(n_o, n_d), np.arange(n_d + 1))) + n_o + 1,
    )
    first, both = ends[0].tolist(), (ends[0] + ends[1]).tolist()
    keys = pairs.keys.tolist()
    edges: list[list[int]] = [[] for _ in range(n_o + n_d + 2)]
    for edge in np.flatnonzero(value).tolist():
        edges[first[edge]].append(edge)
        edges[both[edge] - first[edge]].append(edge)
    cycles = 0
    for start in range(n_o + 1):
        path, nodes, position = list[int](), [start], {start: 0}
        while (edge := _exit(edges[nodes[-1]], value, base, path[-1] if path else -1)) >= 0:
            path.append(edge)
            node = both[edge] - nodes[-1]
            if node not in position:
                position[node] = len(path)
                nodes.append(node)
                continue
            at = position[node]
            cycle, path = path[at:], path[:at]
            while nodes[-1] != node:
                del position[nodes.pop()]
            _shift(cycle, value, base, sum(keys[e] for e in cycle if e < len(keys)) + cycles)
            cycles += 1
    return np.array(value[: len(remainder)], dtype=np.int64) // base


def _exit(edges: list[int], value: list[int], base: int, arrival: int) -> int:
    """Returns the last edge of a node that is neither 0 nor the base, nor the arrival, else -1."""
    for at in (-1, -2):
        while len(edges) >= -at and value[edges[at]] in (0, base):
            del edges[at]
        if len(edges) >= -at and edges[at] != arrival:
            return edges[at]
    return -1


def _shift(cycle: list[int], value: list[int], base: int, key: int) -> None:
    """Raises every other edge and lowers the rest, or the reverse, by the largest step; unbiased for a random key."""
    raised, lowered = cycle[::2], cycle[1::2]
    up = min(*(base - value[e] for e in raised), *(value[e] for e in lowered))
    down = min(*(value[e] for e in raised), *(base - value[e] for e in lowered))
    drawn = int(spread(np.array([key % MODULUS]))[0])
    step = up if drawn * (up + down) < down * MODULUS else -down
    for e in raised:
        value[e] += step
    for e in lowered:
        value[e] -= step
