"""Safe pairs whose persons are counted on a cluster.

The driver knows which pairs have enough trips, weight and tiles, and how many persons each flow has. A pair has at
least as many as any of its flows, and at most as many as all of them together; only where that leaves it open whether
they are enough is the cluster asked. All such pairs of one origin depth become one question: a pair is a range of
destination leaves within the flows of its origin node, and every block of persons answers how many different ones it
has in each range. Questions that are small travel together.
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


#: Bytes of levels that may wait on the driver to be asked about together: whatever is asked, a job on a cluster takes a
#: good part of a second.
ONE_QUESTION = 64_000_000


class Ranges(NamedTuple):
    """What is asked of every block.

    Attributes:
        first: the first flow of the two columns that follow.
        origin: of each flow, the number of the origin node that it is counted with; -1 where no pair needs it.
        leaf: its destination leaf.
        meet: where destination leaves meet.
        pair_origin, start, stop: of each pair, its origin, and its destination leaves.
        depth: of each pair, the depth of its destination node.
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
    """Of levels of candidates, the pairs that have enough persons.

    Args:
        candidates: from the root of the destinations down, within each origin depth.
        flows: the flows.
        people: who is behind them.
        least: how many are enough.
        destinations: the sketch of the destinations.
    """
    leaf = people.window(destinations.leaf_of_tile[flows.destination][people.row])[1]
    asking = _Asking(people, len(flows), destinations, leaf, AncestorDepth.from_tree(destinations.tree))
    waiting: list[list[_Doubtful]] = []
    bounds = _Bounds(people.count(len(flows)), least)
    held = 0
    for candidate in candidates:
        first = candidate.destination[0] == 0
        if first and held > ONE_QUESTION:
            yield from _enough(waiting, asking, least)
            waiting, held = [], 0
        level = bounds.of(candidate)
        if first:
            # Without any pair where destinations are whole there is none below.
            waiting.append([])
            held += candidate.order.nbytes
        if level is not None:
            waiting[-1].append(level)
            held += level.level.start.nbytes + level.level.stop.nbytes
    yield from _enough(waiting, asking, least)


class _Doubtful(NamedTuple):
    """Pairs that may have enough persons.

    Attributes:
        level: the pairs.
        asked: those of them of which it is not known.
    """

    level: Level
    asked: NDArray[np.intp]


class _Bounds:
    """What the persons of single flows say of pairs.

    Args:
        persons: of each flow.
        least: how many are enough.
    """

    def __init__(self, persons: Counts, least: int) -> None:
        self._persons, self._least = persons, least
        self._order: NDArray[Any] | None = None

    def of(self, level: Level) -> _Doubtful | None:
        """The pairs of a level that may have enough; None where there are none."""
        if level.order is not self._order:
            # All levels of an origin depth have one order.
            self._order = level.order
            persons = self._persons[level.order]
            self._sums = prefix(persons)
            self._sated = prefix((persons >= self._least).astype(np.int32))
        kept = np.flatnonzero(self._sums[level.stop] - self._sums[level.start] >= self._least)
        if len(kept) == 0:
            return None
        level = _some(level, kept)
        return _Doubtful(level, np.flatnonzero(self._sated[level.stop] == self._sated[level.start]))


def _some(level: Level, kept: NDArray[np.intp]) -> Level:
    """Some pairs of a level."""
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
class _Asking:
    """What all questions have in common.

    Attributes:
        people: who is asked about.
        n_flows: how many flows there are.
        destinations: the sketch of the destinations.
        leaf: the destination leaf of each flow of the blocks, from the first on.
        meet: where leaves meet.
    """

    people: RemotePeople
    n_flows: int
    destinations: Sketch
    leaf: Ints
    meet: AncestorDepth

    def about(self, levels: list[_Doubtful]) -> Ranges:
        """What to ask about the levels of one origin depth: the first has the whole of the destinations."""
        tree = self.destinations.tree
        row, pair = levels[0].level.rows()
        number = np.full(self.n_flows, -1, dtype=np.int32)
        number[row] = pair
        of = np.concatenate([number[level.order[level.start[asked]]] for level, asked in levels])
        # Flows of origins that nothing is asked about need not be looked at.
        open_to_doubt = np.zeros(len(levels[0].level.start) + 1, dtype=np.bool_)
        open_to_doubt[of] = True
        first, origin = self.people.window(np.where(open_to_doubt[number], number, np.int32(-1))[self.people.row])
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


def _enough(depths: list[list[_Doubtful]], asking: _Asking, least: int) -> Iterator[Level]:
    """The same for the levels of some origin depths, which are asked about together."""
    depths = [levels for levels in depths if levels]
    questions = [levels for levels in depths if any(len(asked) for _, asked in levels)]
    counted = np.zeros(0, np.int64)
    if questions:
        counted = asking.people.blocks.summed(count_all_ranges, [asking.about(levels) for levels in questions])
    for level, asked in (doubtful for levels in depths for doubtful in levels):
        n, counted = np.split(counted, [len(asked)])
        enough = np.ones(len(level.start), dtype=np.bool_)
        enough[asked] = n >= least
        if enough.any():
            yield _some(level, np.flatnonzero(enough))


def count_all_ranges(flow: Ints, person: Ints, asked: list[Ranges]) -> Counts:
    """The answers to several questions, one after the other."""
    return np.concatenate([count_ranges(flow, person, ranges) for ranges in asked])


def count_ranges(flow: Ints, person: Ints, asked: Ranges) -> Counts:
    """Distinct persons of each pair in a block.

    A row adds to a pair unless the same person has a row before it in that pair: unless, within the origin, the leaf of
    the person's row before meets it at least as deep as the pair's destination node lies.
    """
    rows, origin = in_window(flow, asked.first, asked.origin)
    inside = origin >= 0
    origin, person = origin[inside], person[rows][inside]
    leaf = asked.leaf[flow[rows][inside] - asked.first]
    # Rows in the order of their pairs; then each person's rows in that order.
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
        # No leaf lies beyond the last one that a flow has.
        start, stop = (np.searchsorted(place, low + np.minimum(edge[at], wide)) for edge in (asked.start, asked.stop))
        counted[at] = new[stop] - new[start]
    return counted
