"""Distinct members (people or tiles) of runs of sorted flows, deduplicated only where it matters.

Distinct counts do not add up, and the search for safe pairs needs them at every pair of depths. But it only needs to
know whether they reach the threshold. So members are sorted once, and deduplicated only where that decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Ints
from flowveil.methods.lowest_common_ancestor import AncestorDepth

Positions = NDArray[np.int64]


class Repeats:
    """Members of flows, and the origin depth down to which the rows of a member are in one node.

    The distinct members of a pair are the sum over its flows minus the repeats. A repeated member has two rows with
    origins in one node. So rows are sorted by member and origin once; the depth of the common ancestor of consecutive
    rows determines at which origin depths they must be compared.

    A flow that reaches the threshold alone makes all its pairs safe. Its rows are dropped: without deduplication its
    sum still reaches the threshold.

    Args:
        flow, member: rows of flows and members.
        enough: threshold of distinct members of a pair.
        order: the flows.
        leaf_o: origin leaf of every flow.
        time: time node of every flow if time is an end; members of different nodes are distinct.
        meet: ancestor depths of origin leaves.
    """

    def __init__(
        self,
        flow: Ints,
        member: Ints,
        enough: int,
        order: Positions,
        leaf_o: Ints,
        time: Ints | None,
        meet: AncestorDepth,
    ) -> None:
        n = len(leaf_o)
        self.enough = enough
        # int32 if possible: these are summed at every depth.
        narrow = np.int32 if len(flow) < 2**31 else np.int64
        self.each: NDArray[Any] = np.bincount(flow, minlength=n).astype(narrow)
        used = np.zeros(n, dtype=np.bool_)
        used[order] = True
        kept = (used & (self.each < enough))[flow]
        flow, member = flow[kept], member[kept]
        by_origin = np.argsort(leaf_o, kind="stable")
        place = np.empty(n, dtype=np.int64)
        place[by_origin] = np.arange(n)
        # One combined key (member, position) sorts faster than two.
        bits = n.bit_length()
        key = member.astype(np.int64)
        if time is not None:
            key = key * (int(time.max(initial=0)) + 1) + time[flow]
        key <<= bits
        key |= place[flow]
        key.sort()
        again = np.zeros(len(key), dtype=np.bool_)
        np.equal(key[1:] >> bits, key[:-1] >> bits, out=again[1:])
        several = again.copy()
        several[:-1] |= again[1:]
        flow = by_origin[key[several] & ((1 << bits) - 1)].astype(np.int32)
        leaf = leaf_o[flow]
        met = np.full(len(leaf), -1, dtype=np.int16)
        at = np.flatnonzero(again[several])
        met[at] = meet.depth(leaf[at - 1], leaf[at])
        self.rows = flow, met


class DistinctAlong:
    """Distinct members of runs of sorted flows at one origin depth, updated from depth to depth.

    A row adds to the count of a run unless the same member has an earlier row in that run. A run consists of the leaves
    below one node. So only the depth of the common ancestor of the row's leaf and the member's previous leaf matters:
    from the next depth on the row counts. Depths are requested from the top down, so each row is added once.

    Args:
        repeats: the rows.
        depth_o: depth of the origin nodes.
        order: the sorted flows; those of an origin node are adjacent.
        ways: encoded paths to the destination leaf of each of them.
        meet: ancestor depths of destination leaves.
    """

    def __init__(self, repeats: Repeats, depth_o: int, order: Positions, ways: list[Ints], meet: AncestorDepth) -> None:
        n = len(order)
        self._repeats = repeats
        flow, meeting = repeats.rows
        together = meeting >= depth_o
        shared = together.copy()
        shared[:-1] |= together[1:]
        several = np.flatnonzero(shared)
        position = np.full(len(repeats.each), -1, dtype=np.int32)
        position[order] = np.arange(n, dtype=np.int32)
        # By member and origin node, then position.
        bits = n.bit_length()
        place = position[flow[several]]
        key = np.cumsum(~together[several], dtype=np.int64)
        key <<= bits
        key |= place
        if n < len(position):
            # A leaf shares a node with itself even below its depth, where it is in no pair.
            key = key[place >= 0]
        key.sort()
        at = key & ((1 << bits) - 1)
        key >>= bits
        twice = np.flatnonzero(key[1:] == key[:-1])
        before, at = at[twice], at[twice + 1]
        met = meet.between([way[before] for way in ways], [way[at] for way in ways])
        # numpy sorts small integers by counting.
        self._at = at[np.argsort(met, kind="stable")]
        self._known_by = np.concatenate(([0], np.cumsum(np.bincount(met, minlength=meet.deepest + 1))))
        members = repeats.each[order]
        self._most = prefix(members)
        self._counted: NDArray[Any] = members - np.bincount(self._at, minlength=n).astype(members.dtype)
        self._done = self._summed = 0
        self._least = prefix(self._counted)

    def within(self, start: Positions, stop: Positions, depth: int) -> NDArray[Any]:
        """Returns members of these runs at this destination depth, which must not decrease between calls.

        Counts are exact where that decides about the threshold. Elsewhere they are a lower bound that reaches the
        threshold, or an upper bound that does not.
        """
        enough = self._repeats.enough
        counted: NDArray[Any] = self._least[stop] - self._least[start]
        upto = int(self._known_by[depth])
        if upto == self._summed:
            return counted
        few = np.flatnonzero(counted < enough)
        first, last = start[few], stop[few]
        open_still = np.flatnonzero(self._most[last] - self._most[first] >= enough)
        if not len(open_still):
            return counted
        few, first, last = few[open_still], first[open_still], last[open_still]
        length = last - first
        more, self._done = self._at[self._done : upto], max(upto, self._done)
        if len(more) * 2 < len(self._counted):
            np.add.at(self._counted, more, self._counted.dtype.type(1))
        else:
            self._counted += np.bincount(more, minlength=len(self._counted)).astype(self._counted.dtype)
        if int(length.sum()) * 4 > len(self._counted):
            np.cumsum(self._counted, out=self._least[1:])
            self._summed = upto
            counted[few] = self._least[last] - self._least[first]
        else:
            begins = np.cumsum(length) - length
            place = np.repeat(first - begins, length)
            place += np.arange(len(place))
            counted[few] = np.add.reduceat(self._counted[place], begins)
        return counted


def prefix(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the prefix sums of the values, starting with 0; int32 if they fit."""
    narrow = values.dtype.kind in "iu" and int(values.sum(dtype=np.int64)) < 2**31
    before: NDArray[Any] = np.zeros(len(values) + 1, dtype=np.int32 if narrow else values.dtype)
    np.cumsum(values, dtype=before.dtype, out=before[1:])
    return before
