"""Safe pairs whose persons are counted on a cluster.

A pair has at least as many persons as its largest flow, and at most the sum over its flows. The
cluster is queried only if these bounds do not decide, once for all undecided pairs of one origin
depth; small queries are combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Ints
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.remote_people import RemotePeople, in_window
from flowveil.core.secret_thresholds import LARGEST

if TYPE_CHECKING:
    from flowveil.methods.safe_pairs import AncestorDepth, Level, Sketch

#: Bytes of levels that are combined into one query; every job on a cluster has a fixed cost.
QUERY_BYTES = 64_000_000
#: Pairs that may have enough persons, and which of them are undecided.
Undecided = tuple["Level", NDArray[np.intp]]


class Ranges(NamedTuple):
    """A query to every block: origin (-1 if no pair needs it) and destination leaf of each flow
    from ``first`` on.

    ``common`` has the ancestor depths of destination leaves. A pair has the number of an origin, a
    range of destination leaves, and the depth of its destination node.
    """

    first: int
    origin: Ints
    leaf: Ints
    common: AncestorDepth
    pair_origin: Ints
    start: Ints
    stop: Ints
    depth: NDArray[np.int16]


def with_enough(
    candidates: Iterable[Level],
    flows: Flows,
    people: RemotePeople,
    least: int,
    destinations: Sketch,
    common: AncestorDepth,
) -> Iterator[Level]:
    """Yields the candidate pairs with at least so many persons, in the order of the candidates."""
    leaf = people.window(destinations.leaf_of_tile[flows.destination][people.row])[1]
    persons = people.count(len(flows))
    waiting: list[list[Undecided]] = []
    held, order = 0, np.zeros(0, np.int64)

    def decided() -> Iterator[Level]:
        depths = [levels for levels in waiting if any(len(asked) for _, asked in levels)]
        counted = np.zeros(0, np.int64)
        if depths:
            queries = [
                _query(levels, people, destinations.tree, leaf, common, len(flows))
                for levels in depths
            ]
            counted = people.blocks.summed(count_all_ranges, queries)
        for level, asked in (undecided for levels in waiting for undecided in levels):
            n, counted = np.split(counted, [len(asked)])
            # Others have so many persons that their excess is the largest.
            excess = np.full(len(level.start), LARGEST, dtype=np.int64)
            excess[asked] = n - least
            level = replace(level, excess=np.minimum(level.excess, excess).astype(np.int8))
            if (excess >= 0).any():
                yield _some(level, np.flatnonzero(excess >= 0))

    for candidate in candidates:
        if candidate.order is not order:
            # Another origin depth.
            if held > QUERY_BYTES:
                yield from decided()
                waiting, held = [], 0
            order = candidate.order
            most = np.concatenate(([0], np.cumsum(persons[order])))
            sated = np.concatenate(([0], np.cumsum(persons[order] >= least + LARGEST)))
            waiting.append([])
            held += order.nbytes
        kept = np.flatnonzero(most[candidate.stop] - most[candidate.start] >= least)
        if len(kept):
            level = _some(candidate, kept)
            waiting[-1].append((level, np.flatnonzero(sated[level.stop] == sated[level.start])))
            held += level.start.nbytes + level.stop.nbytes
    yield from decided()


def _some(level: Level, kept: NDArray[np.intp]) -> Level:
    """Returns some pairs of a level."""
    columns: dict[str, Any] = {
        name: getattr(level, name)[kept] for name in ("volume", "start", "stop", "excess")
    }
    return replace(level, node=tuple(node[kept] for node in level.node), **columns)


def _query(
    levels: list[Undecided],
    people: RemotePeople,
    tree: Hierarchy,
    leaf: Ints,
    common: AncestorDepth,
    n_flows: int,
) -> Ranges:
    """Returns the query for the levels of one origin depth.

    The first level contains the destination root.
    """
    row, pair = levels[0][0].rows()
    number = np.full(n_flows, -1, dtype=np.int32)
    number[row] = pair
    of = np.concatenate([number[level.order[level.start[asked]]] for level, asked in levels])
    # Flows of origins without undecided pairs are skipped.
    has_undecided = np.zeros(len(levels[0][0].start) + 1, dtype=np.bool_)
    has_undecided[of] = True
    first, origin = people.window(np.where(has_undecided[number], number, np.int32(-1))[people.row])
    node = np.concatenate([level.destination[asked] for level, asked in levels])
    return Ranges(
        first,
        origin,
        leaf,
        common,
        of,
        tree.leaf_start[node],
        tree.leaf_stop[node],
        tree.depth[node],
    )


def count_all_ranges(flow: Ints, person: Ints, asked: list[Ranges]) -> Counts:
    """Returns the answers to several queries, concatenated."""
    return np.concatenate([count_ranges(flow, person, ranges) for ranges in asked])


def count_ranges(flow: Ints, person: Ints, asked: Ranges) -> Counts:
    """Returns the distinct persons of each pair in a block.

    A row adds to a pair unless the same person has an earlier row in that pair: unless, within the
    origin, the common ancestor of both leaves is at least as deep as the pair's destination node.
    """
    rows, origin = in_window(flow, asked.first, asked.origin)
    inside = origin >= 0
    origin, person = origin[inside], person[rows][inside]
    leaf = asked.leaf[flow[rows][inside] - asked.first]
    wide = int(asked.leaf.max(initial=0)) + 1
    # Rows in the order of their pairs, then each person's rows in that order.
    place = origin.astype(np.int64) * wide + leaf
    order = np.argsort(place, kind="stable")
    place, origin, leaf, person = place[order], origin[order], leaf[order], person[order]
    by_person = np.argsort(person, kind="stable")
    before, after = by_person[:-1], by_person[1:]
    again = (person[before] == person[after]) & (origin[before] == origin[after])
    met = np.full(len(place), -1, dtype=np.int16)
    met[after[again]] = asked.common.depth(leaf[before[again]], leaf[after[again]])
    counted = np.zeros(len(asked.depth), dtype=np.int64)
    for depth in np.unique(asked.depth):
        at = np.flatnonzero(asked.depth == depth)
        new = np.concatenate(([0], np.cumsum(met < depth)))
        low = asked.pair_origin[at].astype(np.int64) * wide
        # Ranges end at the last leaf with flows.
        start, stop = (
            np.searchsorted(place, low + np.minimum(edge[at], wide))
            for edge in (asked.start, asked.stop)
        )
        counted[at] = new[stop] - new[start]
    return counted
