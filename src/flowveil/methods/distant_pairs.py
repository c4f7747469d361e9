"""Safe pairs whose persons are counted on a cluster.

The driver knows which pairs have enough trips, weight and tiles. All such pairs of one origin depth become one
question: a pair is a range of destination leaves within the flows of its origin node, and every block of persons
answers how many different ones it has in each range. Questions that are small travel together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.distant import Counts, DistantPeople, in_window
from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.methods.meeting import Meeting

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
    meet: Meeting
    pair_origin: Ints
    start: Ints
    stop: Ints
    depth: NDArray[np.int16]


def with_enough(
    candidates: Iterable[Level], flows: Flows, people: DistantPeople, least: int, destinations: Sketch
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
    asking = _Asking(people, len(flows), destinations, leaf, Meeting.of(destinations.tree))
    waiting: list[list[Level]] = []
    held = 0
    for level in candidates:
        if level.destination[0] == 0:
            if held > ONE_QUESTION:
                yield from _enough(waiting, asking, least)
                waiting, held = [], 0
            waiting.append([])
            held += level.order.nbytes
        waiting[-1].append(level)
        held += level.start.nbytes + level.stop.nbytes
    if waiting:
        yield from _enough(waiting, asking, least)


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

    people: DistantPeople
    n_flows: int
    destinations: Sketch
    leaf: Ints
    meet: Meeting

    def about(self, levels: list[Level]) -> Ranges:
        """What to ask about the levels of one origin depth: the first has the whole of the destinations."""
        tree = self.destinations.tree
        row, pair = levels[0].rows()
        number = np.full(self.n_flows, -1, dtype=np.int32)
        number[row] = pair
        first, origin = self.people.window(number[self.people.row])
        node = np.concatenate([level.destination for level in levels])
        sizes = [len(level.destination) for level in levels]
        return Ranges(
            first,
            origin,
            self.leaf,
            self.meet,
            np.concatenate([number[level.order[level.start]] for level in levels]),
            tree.leaf_start[node],
            tree.leaf_stop[node],
            np.repeat(np.array([tree.depth[level.destination[0]] for level in levels], np.int16), sizes),
        )


def _enough(depths: list[list[Level]], asking: _Asking, least: int) -> Iterator[Level]:
    """The same for the levels of some origin depths, which are asked about together."""
    counted = asking.people.blocks.summed(count_all_ranges, [asking.about(levels) for levels in depths])
    for levels in depths:
        for level in levels:
            n, counted = np.split(counted, [len(level.origin)])
            kept = n >= least
            if kept.any():
                yield replace(
                    level,
                    destination=level.destination[kept],
                    volume=level.volume[kept],
                    start=level.start[kept],
                    stop=level.stop[kept],
                    time=None if level.time is None else level.time[kept],
                )


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
