"""The safe pairs as a table of either end: those of a node together, laid out without sorting.

The walk over safe pairs tells them by depths. Within an origin depth a pair begins at a place among the sorted flows;
of those that begin at one place, the deeper lie in the others. So where each stands among all of its origin node, by
the order of the destination tree, is known by counting. The table of the other end is that table turned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats, Ints
from flowveil.methods.safe_pairs import Level, Sketch
from flowveil.workers import parallel_map

Positions = NDArray[np.int64]

#: Pairs that are turned at once: what is sorted stays small beside the table, and near at hand.
_TURNED = 1_000_000


@dataclass(frozen=True, eq=False)
class Part:
    """The safe pairs of one origin depth, by origin node, then destination node.

    Attributes:
        node, length: the origin nodes, and how many pairs each has.
        destination, volume, priced: of each pair; no price where it follows from the others.
    """

    node: Ints
    length: Positions
    destination: Ints
    volume: NDArray[Any]
    priced: Floats | None


def part_of(levels: Sequence[Level], costs: Sequence[Floats] | None) -> Part:
    """The pairs of the levels of one origin depth, which come from the root of the destinations down.

    A flow begins pairs from the depth on from which it is apart from the one before it, down to the last safe one.

    Args:
        levels: the levels.
        costs: what the pairs of each cost, where that does not follow from the rest.
    """
    parts = levels[0].parts
    length = np.zeros(len(parts), dtype=np.int16)
    for depth, level in enumerate(levels, start=1):
        length[level.start] = depth
    length -= np.where(length > 0, parts, np.int16(0))
    first = np.cumsum(length, dtype=np.int64)
    n = int(first[-1])
    first -= length
    # Level 0 has the root of the destinations: one pair for each origin node.
    begins = first[levels[0].start]
    first -= parts
    destination = np.empty(n, dtype=np.int32)
    whole = max(int(level.volume.max()) for level in levels) < 2**31
    volume = np.empty(n, dtype=np.int32 if whole and levels[0].volume.dtype.kind in "iu" else np.float64)
    priced = None if costs is None else np.empty(n)
    for depth, level in enumerate(levels):
        at = first[level.start]
        at += depth
        destination[at], volume[at] = level.destination, level.volume
        if priced is not None and costs is not None:
            priced[at] = costs[depth]
    return Part(levels[0].origin, np.diff(begins, append=n), destination, volume, priced)


@dataclass(frozen=True, eq=False)
class PairTable:
    """The safe pairs of node n of one end are the slice ``first[n]:first[n + 1]`` of the rest, by the other end."""

    first: Positions
    other: Ints
    volume: NDArray[Any]
    priced: Floats | None

    def turned(self, n_others: int, *, threads: int = 1) -> PairTable:
        """The same pairs by the nodes of the other end."""
        n = len(self.other)
        blocks = [slice(begin, min(begin + _TURNED, n)) for begin in range(0, n, _TURNED)]
        each = max(-(-len(blocks) // threads), 1)
        shares = [blocks[begin : begin + each] for begin in range(0, len(blocks), each)]
        held = list(parallel_map((partial(self._held, share, n_others) for share in shares), threads=threads))
        first = np.concatenate(([0], np.cumsum(np.sum(held, axis=0))))
        other, volume = np.empty_like(self.other), np.empty_like(self.volume)
        priced = None if self.priced is None else np.empty_like(self.priced)
        turned = PairTable(first, other, volume, priced)
        begins = np.cumsum([first[:-1], *held[:-1]], axis=0)
        pieces = (partial(self._turn, share, into, turned) for share, into in zip(shares, begins, strict=True))
        for _ in parallel_map(pieces, threads=threads):
            pass
        return turned

    def _held(self, blocks: Sequence[slice], n_others: int) -> Positions:
        """How many pairs of these blocks each node of the other end has."""
        count = np.zeros(n_others, dtype=np.int64)
        for here in blocks:
            count += np.bincount(self.other[here], minlength=n_others)
        return count

    def _turn(self, blocks: Sequence[slice], next_place: Positions, turned: PairTable) -> None:
        """Write these blocks into the turned table, the pairs of each of its nodes from a place on."""
        for here in blocks:
            nodes = self.other[here]
            # One number sorts much faster than two: the node, then the place.
            bits = len(nodes).bit_length()
            row = nodes.astype(np.int64)
            row <<= bits
            row |= np.arange(len(nodes))
            row.sort()
            row &= (1 << bits) - 1
            length = np.bincount(nodes, minlength=len(next_place))
            at = np.repeat(next_place - (np.cumsum(length) - length), length)
            at += np.arange(len(nodes))
            next_place += length
            turned.other[at], turned.volume[at] = self._nodes(here)[row], self.volume[here][row]
            if turned.priced is not None and self.priced is not None:
                turned.priced[at] = self.priced[here][row]

    def _nodes(self, here: slice) -> Ints:
        """The nodes of the pairs of a slice."""
        low, high = np.searchsorted(self.first, (here.start, here.stop - 1), side="right") - 1
        edges = np.clip(self.first[low : high + 2], here.start, here.stop)
        return np.repeat(np.arange(low, high + 1, dtype=np.int32), np.diff(edges))


def occurring(parts: Sequence[Part], sketches: Sequence[Sketch]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which nodes of the two sketches are in a safe pair."""
    origins, destinations = (np.zeros(s.tree.n_nodes, dtype=np.bool_) for s in sketches)
    for part in parts:
        origins[part.node] = True
        destinations[part.destination] = True
    return origins, destinations


def by_origin(
    parts: list[Part],
    origins: tuple[Positions, Positions],
    destinations: tuple[Positions, Positions],
    *,
    threads: int = 1,
) -> PairTable:
    """The table of the origins; the parts are used up.

    Args:
        parts: the pairs of each origin depth, by nodes of the sketches.
        origins, destinations: the nodes that occur, and the number of every node.
        threads: how many parts are laid out at a time.
    """
    length = np.zeros(len(origins[0]), dtype=np.int64)
    for part in parts:
        length[origins[1][part.node]] = part.length
    first = np.concatenate(([0], np.cumsum(length)))
    n = int(first[-1])
    number = destinations[1].astype(np.int32)
    other = np.empty(n, dtype=np.int32)
    volume = np.empty(n, dtype=np.result_type(*(part.volume for part in parts)))
    priced = None if parts[0].priced is None else np.empty(n)

    def lay_out(part: Part) -> None:
        before = np.cumsum(part.length) - part.length
        at = np.repeat(first[origins[1][part.node]] - before, part.length)
        at += np.arange(len(at))
        other[at], volume[at] = number[part.destination], part.volume
        if priced is not None and part.priced is not None:
            priced[at] = part.priced

    def used_up() -> Iterator[Callable[[], None]]:
        while parts:
            yield partial(lay_out, parts.pop())

    for _ in parallel_map(used_up(), threads=threads):
        pass
    return PairTable(first, other, volume, priced)
