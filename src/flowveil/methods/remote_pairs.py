"""Safe pairs whose persons are counted on a cluster.

The driver knows trips, weight and tiles of pairs, and the number of persons of each flow. A pair has at least as many
persons as its largest flow, and at most the sum over its flows. The cluster is queried only if these bounds do not
decide. All undecided pairs of one origin depth form one query: a pair is a range of destination leaves within the flows
of its origin node, and every block of persons returns its distinct persons in each range. Small queries are combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.methods.distinct_along import prefix
from flowveil.methods.lowest_common_ancestor import AncestorDepth
from flowveil.remote_people import Counts, RemotePeople, in_window

if TYPE_CHECKING:
    from flowveil.methods.safe_pairs import Level, Sketch


#: Bytes of levels that are combined into one query; every job on a cluster has a fixed cost.
QUERY_BYTES = 64_000_000


class Ranges(NamedTuple):
    """A query to every block.

    Attributes:
        first: first flow of the following two columns.
        origin: number of the origin node of each flow; -1 if no pair needs it.
        leaf: destination leaf of each flow.
        meet: ancestor depths of destination leaves.
        pair_origin, start, stop: origin and range of destination leaves of each pair.
        depth: depth of the destination node of each pair.
    """

    first: int
    origin: Ints
    leaf: Ints
    meet: AncestorDepth
    pair_origin: Ints
    start: Ints
    stop: Ints
    depth: NDArray[np.int16]


def with_enough(
    candidates: Iterable[Level], flows: Flows, people: RemotePeople, least: int, destinations: Sketch
) -> Iterator[Level]:
    """Yields the candidate pairs that have enough persons, by level.

    Args:
        candidates: levels from the destination root down, within each origin depth.
        flows: the flows.
        people: their persons.
        least: threshold of persons.
        destinations: the sketch of the destinations.
    """
    leaf = people.window(destinations.leaf_of_tile[flows.destination][people.row])[1]
    builder = _QueryBuilder(people, len(flows), destinations, leaf, AncestorDepth.from_tree(destinations.tree))
    waiting: list[list[_Undecided]] = []
    bounds = _Bounds(people.count(len(flows)), least)
    held = 0
    for candidate in candidates:
        first = candidate.destination[0] == 0
        if first and held > QUERY_BYTES:
            yield from _enough(waiting, builder, least)
            waiting, held = [], 0
        level = bounds.candidates(candidate)
        if first:
            # Without a pair at the destination root, no pair exists below.
            waiting.append([])
            held += candidate.order.nbytes
        if level is not None:
            waiting[-1].append(level)
            held += level.level.start.nbytes + level.level.stop.nbytes
    yield from _enough(waiting, builder, least)


class _Undecided(NamedTuple):
    """Pairs that may have enough persons.

    Attributes:
        level: the pairs.
        asked: the undecided ones among them.
    """

    level: Level
    asked: NDArray[np.intp]


class _Bounds:
    """Bounds of the persons of pairs, from the persons of single flows.

    Args:
        persons: persons of each flow.
        least: threshold of persons.
    """

    def __init__(self, persons: Counts, least: int) -> None:
        self._persons, self._least = persons, least
        self._order: NDArray[Any] | None = None

    def candidates(self, level: Level) -> _Undecided | None:
        """Returns the pairs of a level that may have enough persons; None without any."""
        if level.order is not self._order:
            # All levels of an origin depth share one order.
            self._order = level.order
            persons = self._persons[level.order]
            self._sums = prefix(persons)
            self._sated = prefix((persons >= self._least).astype(np.int32))
        kept = np.flatnonzero(self._sums[level.stop] - self._sums[level.start] >= self._least)
        if len(kept) == 0:
            return None
        level = _some(level, kept)
        return _Undecided(level, np.flatnonzero(self._sated[level.stop] == self._sated[level.start]))


def _some(level: Level, kept: NDArray[np.intp]) -> Level:
    """Returns some pairs of a level."""
    if len(kept) == len(level.start):
        return level
    return replace(
        level,
        destination=level.destination[kept],
        volume=level.volume[kept],
        start=level.start[kept],
        stop=level.stop[kept],
        time=None if level.time is None else level.time[kept],
    )


@dataclass(frozen=True, eq=False)
class _QueryBuilder:
    """The common part of all queries.

    Attributes:
        people: the remote people.
        n_flows: number of flows.
        destinations: the sketch of the destinations.
        leaf: destination leaf of each flow of the blocks, from the first on.
        meet: ancestor depths of leaves.
    """

    people: RemotePeople
    n_flows: int
    destinations: Sketch
    leaf: Ints
    meet: AncestorDepth

    def query(self, levels: list[_Undecided]) -> Ranges:
        """Returns the query for the levels of one origin depth; the first level contains the destination root."""
        tree = self.destinations.tree
        row, pair = levels[0].level.rows()
        number = np.full(self.n_flows, -1, dtype=np.int32)
        number[row] = pair
        of = np.concatenate([number[level.order[level.start[asked]]] for level, asked in levels])
        # Flows of origins without undecided pairs are skipped.
        has_undecided = np.zeros(len(levels[0].level.start) + 1, dtype=np.bool_)
        has_undecided[of] = True
        first, origin = self.people.window(np.where(has_undecided[number], number, np.int32(-1))[self.people.row])
        node = np.concatenate([level.destination[asked] for level, asked in levels])
        depths = np.array([tree.depth[level.destination[0]] for level, _ in levels], np.int16)
        return Ranges(
            first,
            origin,
            self.leaf,
            self.meet,
            of,
            tree.leaf_start[node],
            tree.leaf_stop[node],
            np.repeat(depths, [len(asked) for _, asked in levels]),
        )


def _enough(depths: list[list[_Undecided]], builder: _QueryBuilder, least: int) -> Iterator[Level]:
    """Yields the pairs with enough persons for some origin depths, with one query."""
    depths = [levels for levels in depths if levels]
    questions = [levels for levels in depths if any(len(asked) for _, asked in levels)]
    counted = np.zeros(0, np.int64)
    if questions:
        counted = builder.people.blocks.summed(count_all_ranges, [builder.query(levels) for levels in questions])
    for level, asked in (undecided for levels in depths for undecided in levels):
        n, counted = np.split(counted, [len(asked)])
        enough = np.ones(len(level.start), dtype=np.bool_)
        enough[asked] = n >= least
        if enough.any():
            yield _some(level, np.flatnonzero(enough))


def count_all_ranges(flow: Ints, person: Ints, asked: list[Ranges]) -> Counts:
    """Returns the answers to several queries, concatenated."""
    return np.concatenate([count_ranges(flow, person, ranges) for ranges in asked])


def count_ranges(flow: Ints, person: Ints, asked: Ranges) -> Counts:
    """Returns the distinct persons of each pair in a block.

    A row adds to a pair unless the same person has an earlier row in that pair: unless, within the origin, the common
    ancestor of both leaves is at least as deep as the pair's destination node.
    """
    rows, origin = in_window(flow, asked.first, asked.origin)
    inside = origin >= 0
    origin, person = origin[inside], person[rows][inside]
    leaf = asked.leaf[flow[rows][inside] - asked.first]
    # Rows in the order of their pairs, then each person's rows in that order.
    place = origin.astype(np.int64) * (int(asked.leaf.max(initial=0)) + 1) + leaf
    order = np.argsort(place, kind="stable")
    place, origin, leaf, person = place[order], origin[order], leaf[order], person[order]
    by_person = np.argsort(person, kind="stable")
    before, after = by_person[:-1], by_person[1:]
    again = (person[before] == person[after]) & (origin[before] == origin[after])
    met = np.full(len(place), -1, dtype=np.int16)
    met[after[again]] = asked.meet.depth(leaf[before[again]], leaf[after[again]])
    wide = int(asked.leaf.max(initial=0)) + 1
    counted = np.zeros(len(asked.depth), dtype=np.int64)
    for depth in np.unique(asked.depth):
        at = np.flatnonzero(asked.depth == depth)
        new = np.concatenate(([0], np.cumsum(met < depth)))
        low = asked.pair_origin[at].astype(np.int64) * wide
        # Ranges end at the last leaf with flows.
        start, stop = (np.searchsorted(place, low + np.minimum(edge[at], wide)) for edge in (asked.start, asked.stop))
        counted[at] = new[stop] - new[start]
    return counted
