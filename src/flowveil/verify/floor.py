"""The smallest safe cell of every flow, counted anew: what the floor of the generalisation error is the mean of.

Shares nothing with the methods or with `flowveil.analysis.measures`, which walk down to all safe pairs from the roots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.reading.limits import threads
from flowveil.verify.raw import leaves
from flowveil.verify.units import SUMMED, UNITS
from flowveil.workers import parallel_map

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Depths = NDArray[np.int16]
Members = Mapping[str, tuple[Any, Any]]

#: Flows and their members times pairs of depths beyond which the floor is not recounted: it would take minutes.
MOST_WORK = 2_000_000_000
#: Members of flows that are sorted at a time, so that threads need little memory each.
_AT_ONCE = 1 << 18


def is_affordable(flows: Flows, n_rows: int) -> bool:
    """Whether the floor is recounted of so many flows and members of flows together."""
    return n_rows * _n_depths(flows.origins) * _n_depths(flows.destinations) <= MOST_WORK


def smallest_safe(flows: Flows, raw: Mapping[str, Any], guarantee: Mapping[str, Any], members: Members) -> Floats:
    """For each flow the fewest tiles |o| + |d| over pairs of nodes that hold it and whose cell is safe.

    A pair that holds a safe one is safe. So for every flow and origin depth there is a deepest destination depth that
    is safe, no deeper than at an origin depth above. Origin depths are looked at from the middle, then in the middles
    of what is left, and so are destination depths: by then most pairs hold one that is safe, or lie in one that is not.

    Args:
        flows: their two trees.
        raw: slice (s), tiles (o, d), trips and weight of each flow; slices are counted apart.
        guarantee: the thresholds.
        members: by protected unit whose members are counted once: flow and member, one row for each of a flow.
    """
    nodes_o, nodes_d = _ancestors(flows.origins), _ancestors(flows.destinations)
    n_flows = len(raw["s"])
    o, d = raw["o"].astype(np.int64), raw["d"].astype(np.int64)
    tiles_o, tiles_d = _sizes(flows.origins)[nodes_o], _sizes(flows.destinations)[nodes_d]
    by_flow = {name: _by_flow(*rows, n_flows) for name, rows in members.items()}
    smallest = np.full(n_flows, np.inf)
    # The deepest destination depth that is safe, by origin depth: above the root no more than all depths, below the
    # tiles no less than all of a flow that is safe by itself.
    every = np.arange(n_flows)
    alone = _Counts(raw, guarantee, by_flow, every).are_safe(every, every + 1)
    last = np.int16(len(nodes_d) - 1)
    deepest: dict[int, Depths] = {-1: np.full(n_flows, last), len(nodes_o): np.where(alone, last, np.int16(-1))}
    sought = _Sought(flows, raw, guarantee, by_flow, nodes_o, nodes_d)
    for depths in _generations(len(nodes_o)):
        # None of these depths lies between two others of them.
        found = parallel_map(
            (partial(sought.at_depth, i, deepest[above], deepest[below]) for i, above, below in depths),
            threads=threads(),
        )
        for (i, _, _), deepest_here in zip(depths, found, strict=True):
            deepest[i] = deepest_here
            some = np.flatnonzero(deepest_here >= 0)
            smallest[some] = np.minimum(smallest[some], tiles_o[i, o[some]] + tiles_d[deepest_here[some], d[some]])
    return smallest


class _Sought:
    """The deepest destination depth that is safe, looked for at one origin depth after the other.

    Args:
        flows, raw, guarantee: see `smallest_safe`.
        members: the members of each flow, as `_by_flow` has them.
        nodes_o, nodes_d: the node above each tile at every depth.
    """

    def __init__(
        self,
        flows: Flows,
        raw: Mapping[str, Any],
        guarantee: Mapping[str, Any],
        members: Mapping[str, tuple[Places, Any, int]],
        nodes_o: Places,
        nodes_d: Places,
    ) -> None:
        self._raw, self._guarantee, self._members = raw, guarantee, members
        self._nodes_o, self._n_depths, self._n_tiles = nodes_o, *nodes_d.shape
        self._o, self._d = raw["o"].astype(np.int64), raw["d"].astype(np.int64)
        self._n_nodes = len(flows.origins.parent)
        self._together = _Together(nodes_d)

    def at_depth(self, i: int, most: Depths, least: Depths) -> Depths:
        """For each flow; it is known at an origin depth above (no less) and at one below (no more)."""
        node, found = self._nodes_o[i][self._o], least.copy()
        # Where the depths above and below agree about all flows of an origin node, nothing is left to be counted.
        doubtful = np.zeros(self._n_nodes, dtype=np.bool_)
        doubtful[node[least < most]] = True
        at = np.flatnonzero(doubtful[node])
        # Tiles below a node are numbered one after the other, so pairs of every destination depth are runs of these.
        # Flows in one place of the order are of one pair at every depth: which comes first makes no difference.
        block = self._raw["s"][at].astype(np.int64) * self._n_nodes + node[at]
        sort = np.argsort(block * self._n_tiles + self._d[at])
        order, block = at[sort], block[sort]
        shared = self._together.depths(self._d[order][:-1], self._d[order][1:])
        begins = np.concatenate(([0], np.where(block[1:] == block[:-1], shared, 0)))[: len(order)].astype(np.int16)
        counts = _Counts(self._raw, self._guarantee, self._members, order)
        low, high = least[order], most[order]
        for j, _, _ in _middles(self._n_depths):
            _decide(j, low, high, begins, counts)
        found[order] = low
        return found


def _generations(n: int) -> list[list[tuple[int, int, int]]]:
    """What `_middles` has, those together that are the middles of as many halvings: each needs earlier ones only."""
    known, generations = {-1: -1, n: -1}, list[list[tuple[int, int, int]]]()
    for middle, low, high in _middles(n):
        known[middle] = max(known[low], known[high]) + 1
        if known[middle] == len(generations):
            generations.append([])
        generations[known[middle]].append((middle, low, high))
    return generations


def _middles(n: int) -> Iterator[tuple[int, int, int]]:
    """All of 0 to n - 1, the middle first, and of those before it the nearest on either side (or -1 and n)."""
    todo = deque([(-1, n)])
    while todo:
        low, high = todo.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle, low, high
            todo += [(low, middle), (middle, high)]


def _decide(j: int, least: Depths, most: Depths, begins: Depths, counts: _Counts) -> None:
    """Narrow the bounds of each flow's deepest safe depth by the pairs of depth j.

    A pair that is safe at another depth below is safe here, and one inside a pair that is not is not; flows of one pair
    agree about the latter. Only the rest are counted.

    Args:
        j: the destination depth.
        least, most: the bounds; changed.
        begins: from which depth on each flow is in another pair than the one before it.
        counts: what runs of these flows hold.
    """
    tried = np.flatnonzero((least < j) & (most >= j))
    if len(tried) == 0:
        return
    edge = np.append(np.flatnonzero(begins <= j), len(least))
    pair = np.searchsorted(edge, tried, side="right") - 1
    first = np.concatenate(([True], pair[1:] != pair[:-1]))
    start, stop = edge[pair[first]], edge[pair[first] + 1]
    # Every second one is what lies between these pairs; the end needs a place too.
    safe = np.maximum.reduceat(np.append(least, np.int16(-1)), np.column_stack((start, stop)).ravel())[::2] >= j
    asked = np.flatnonzero(~safe)
    safe[asked] = counts.are_safe(start[asked], stop[asked])
    of_tried = safe[np.cumsum(first) - 1]
    least[tried[of_tried]] = j
    most[tried[~of_tried]] = j - 1


class _Together:
    """At how many depths two tiles lie in one node, from the root down.

    Between neighbours it is counted, between others it is the smallest between neighbours on the way; smallest ones are
    kept for 1, 2, 4, ... neighbours.
    """

    def __init__(self, nodes: Places) -> None:
        shared = np.count_nonzero(nodes[:, 1:] == nodes[:, :-1], axis=0).astype(np.int16)
        self._all = np.int16(len(nodes))
        self._smallest = [shared]
        while 2 ** len(self._smallest) <= len(shared):
            last, width = self._smallest[-1], 2 ** (len(self._smallest) - 1)
            self._smallest.append(np.minimum(last[:-width], last[width:]))

    def depths(self, one: Places, other: Places) -> Depths:
        """Of each pair of tiles."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        shared = np.full(len(low), self._all)
        power = np.frexp((high - low).astype(np.float64))[1] - 1
        for p, smallest in enumerate(self._smallest):
            at = np.flatnonzero(power == p)
            shared[at] = np.minimum(smallest[low[at]], smallest[high[at] - 2**p])
        return shared


class _Counts:
    """What runs of sorted flows hold of what is protected.

    Args:
        raw: see `smallest_safe`.
        guarantee: the thresholds.
        members: the members of each flow, as `_by_flow` has them.
        order: the sorted flows.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        guarantee: Mapping[str, Any],
        members: Mapping[str, tuple[Places, Any, int]],
        order: Places,
    ) -> None:
        self._raw, self._guarantee, self._members, self._order = raw, guarantee, members, order
        self._sums: list[tuple[Places, float, float]] = []
        for name, unit in UNITS.items():
            if unit.members is None and guarantee.get(name) is not None:
                value = raw[unit.column][order]
                # In millionths, whose sums are exact.
                in_millionths = unit.column in SUMMED
                whole = np.rint(value.astype(np.float64) * 1e6).astype(np.int64) if in_millionths else value
                self._sums.append((_sums(whole), 1e6 if in_millionths else 1.0, guarantee[name]))
        self._all = {name: _sums(np.diff(first)[order]) for name, (first, _, _) in members.items()}

    def are_safe(self, start: Places, stop: Places) -> NDArray[np.bool_]:
        """Whether each of these runs may be published."""
        good = np.ones(len(start), dtype=np.bool_)
        for sums, each, threshold in self._sums:
            good &= (sums[stop] - sums[start]) / each >= threshold
        for name in self._members:
            # No run has more members than its flows have together.
            good &= self._all[name][stop] - self._all[name][start] >= self._guarantee[name]
        at = np.flatnonzero(good)
        if len(at) and self._guarantee.get("locations") is not None:
            good[at] = self._have_locations(start[at], stop[at])
        for name in self._members:
            at = np.flatnonzero(good)
            good[at] = self._distinct(name, start[at], stop[at]) >= self._guarantee[name]
        return good

    def _flows(self, start: Places, stop: Places) -> tuple[Places, Places]:
        """The flows of these runs, and the run of each."""
        length = stop - start
        place = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(length.sum())
        return self._order[place], np.repeat(np.arange(len(start)), length)

    def _have_locations(self, start: Places, stop: Places) -> NDArray[np.bool_]:
        """Whether trips begin in enough tiles, and end in enough."""
        raw, good = self._raw, np.ones(len(start), dtype=np.bool_)
        flow, run = self._flows(start, stop)
        for end in ("o", "d"):
            tile = raw[end][flow].astype(np.int64)
            wide = int(tile.max()) + 1
            distinct = np.unique(run * wide + tile)
            # Where listed places are counted, a tile counts as often as it holds one.
            each = raw[f"places_{end}"][distinct % wide] if f"places_{end}" in raw else None
            good &= np.bincount(distinct // wide, weights=each, minlength=len(start)) >= self._guarantee["locations"]
        return good

    def _distinct(self, name: str, start: Places, stop: Places) -> Places:
        """How many distinct members each of these runs has."""
        rows = np.cumsum(self._all[name][stop] - self._all[name][start])
        blocks = np.arange(_AT_ONCE, int(rows[-1]) if len(rows) else 0, _AT_ONCE)
        edges = [0, *np.unique(np.searchsorted(rows, blocks, side="right")).tolist(), len(start)]
        counted = [self._count_distinct(name, start[a:b], stop[a:b]) for a, b in pairwise(edges)]
        return np.concatenate(counted)

    def _count_distinct(self, name: str, start: Places, stop: Places) -> Places:
        first, member, wide = self._members[name]
        flow, run = self._flows(start, stop)
        length = (first[1:] - first[:-1])[flow]
        row = np.repeat(first[flow] - (np.cumsum(length) - length), length) + np.arange(length.sum())
        # numpy.unique looks each value up in a table, which takes longer than sorting.
        key = np.sort(np.repeat(run, length) * wide + member[row])
        is_new = np.concatenate((np.ones(min(len(key), 1), dtype=np.bool_), key[1:] != key[:-1]))
        return np.bincount(key[is_new] // wide, minlength=len(start))


def _sums(values: Any) -> Places:
    """The sums of all values before each place."""
    return np.concatenate(([0], np.cumsum(values, dtype=np.int64)))


def _by_flow(flow: Any, member: Any, n_flows: int) -> tuple[Places, Any, int]:
    """Where the members of each flow begin (the end included), the members in that order, and more than any number."""
    first = np.concatenate(([0], np.cumsum(np.bincount(flow, minlength=n_flows))))
    return first, member[np.argsort(flow, kind="stable")], int(member.max(initial=0)) + 1


def _ancestors(tree: Hierarchy) -> Places:
    """The node above each tile at every depth from the root down; its own where it is less deep."""
    leaf = leaves(tree)
    at = leaf.astype(np.int64)
    paths = [at]
    while (at > 0).any():
        at = np.maximum(tree.parent[at], 0)
        paths.append(at)
    # paths[u] is u steps up, the root from then on; a leaf of depth h is at depth t after max(h - t, 0) steps.
    steps = np.stack(paths)
    height = np.argmax(steps == 0, axis=0)
    nodes: Places = steps[np.maximum(height - np.arange(len(paths))[:, None], 0), np.arange(len(leaf))]
    return nodes


def _n_depths(tree: Hierarchy) -> int:
    """How many depths there are from the root down to the deepest tile."""
    at, n = leaves(tree), 1
    while len(at := at[at > 0]):
        at, n = tree.parent[at], n + 1
    return n


def _sizes(tree: Hierarchy) -> Floats:
    """Tiles below each node."""
    size = np.zeros(len(tree.parent))
    at = leaves(tree).astype(np.int64)
    while True:
        size += np.bincount(at, minlength=len(size))
        at = tree.parent[at[at > 0]].astype(np.int64)
        if len(at) == 0:
            return size
