"""Distinct members (people, or tiles) of runs of sorted flows, told apart only where it matters.

Distinct people do not add up, and a walk over safe pairs asks for them at every pair of depths. But it asks whether
they are enough, not how many they are: members are sorted once, and told apart where that decides.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Ints
from flowveil.methods.lowest_common_ancestor import AncestorDepth

Positions = NDArray[np.int64]


class Repeats:
    """Members (people, or tiles) of flows, and how deep in the tree of origins a member's rows lie together.

    Distinct members of a pair are those of its flows, added up, less those who come again. Whoever comes again has two
    rows whose origins lie in one node. So rows are sorted by member and origin once, and where each meets the one
    before it says at which origin depths it has to be looked at: deep down at next to none.

    Nobody asks how many members a pair has once they are enough. A flow with enough of its own makes every pair safe
    that it is in, and so do the flows from one origin node to one destination leaf, together, at this depth and all
    above. Their rows are left out: added up, not told apart, they are enough still.

    Args:
        flow, member: rows of flows and members.
        enough: how many distinct members a pair needs.
        order: the flows.
        leaf_o: the origin leaf of every flow.
        time: the node of times of every flow, where time is an end: in two of them a member is two.
        meet: where origin leaves meet.
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
        # Half as wide where that is wide enough: they are added up at every depth.
        narrow = np.int32 if len(flow) < 2**31 else np.int64
        self.each: NDArray[Any] = np.bincount(flow, minlength=n).astype(narrow)
        self._sated = self.each >= enough
        self._noted: list[Positions] = []
        self._dropped = 0
        told_apart = np.zeros(n, dtype=np.bool_)
        told_apart[order] = True
        there = (told_apart & ~self._sated)[flow]
        flow, member = flow[there], member[there]
        by_origin = np.argsort(leaf_o, kind="stable")
        place = np.empty(n, dtype=np.int64)
        place[by_origin] = np.arange(n)
        # One number sorts much faster than two: the member, then the place.
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

    def note_sated(self, flows: Positions) -> None:
        """These flows may be left out; threads may say so at any time."""
        self._noted.append(flows)

    def leave_out(self) -> Self:
        """Leave out what was noted, once it is worth it. It changes no result when that is.

        Returns:
            The rows as they are now, for the depth that comes next. What is left out later is enough at depths above
            it, and has to be told apart at this one still, whenever a thread comes to look at it.
        """
        self._drop_noted()
        return copy(self)

    def _drop_noted(self) -> None:
        while self._noted:
            flows = self._noted.pop()
            flows = flows[~self._sated[flows]]
            self._sated[flows] = True
            self._dropped += int(self.each[flows].sum())
        flow, met = self.rows
        if self._dropped * 8 < len(flow) or not len(flow):
            return
        self._dropped = 0
        kept = np.flatnonzero(~self._sated[flow])
        # Two rows meet no deeper than what stood between them does.
        begins = np.zeros(len(kept), dtype=np.int64)
        np.add(kept[:-1], 1, out=begins[1:])
        met = np.minimum.reduceat(met[: kept[-1] + 1], begins) if len(kept) else met[:0]
        again = met >= 0
        again[:-1] |= again[1:].copy()
        several = np.flatnonzero(again)
        self.rows = flow[kept[several]], met[several]


class DistinctAlong:
    """Distinct members of runs of sorted flows of one origin depth, without listing them anew for each depth.

    A row of a member adds to the count of a run unless the same member has a row before it in that run. Runs of a
    depth are the leaves below one node, so all that matters is how deep the leaf of the row meets that of the
    member's row before: from the next depth on the row counts. Depths are asked for from the top down, so each row is
    counted in once.

    Args:
        repeats: the rows.
        depth_o: the depth of the origin nodes.
        order: the sorted flows; those of an origin node stand together.
        ways: the ways to the destination leaf of each of them.
        meet: where destination leaves meet.
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
        # By member and origin node, then place.
        bits = n.bit_length()
        place = position[flow[several]]
        key = np.cumsum(~together[several], dtype=np.int64)
        key <<= bits
        key |= place
        if n < len(position):
            # A leaf lies together with itself, also below its own depth, where it is in no pair.
            key = key[place >= 0]
        key.sort()
        at = key & ((1 << bits) - 1)
        key >>= bits
        twice = np.flatnonzero(key[1:] == key[:-1])
        before, at = at[twice], at[twice + 1]
        met = meet.between([way[before] for way in ways], [way[at] for way in ways])
        # Small numbers are sorted by counting.
        self._at = at[np.argsort(met, kind="stable")]
        self._known_by = np.concatenate(([0], np.cumsum(np.bincount(met, minlength=meet.deepest + 1))))
        members = repeats.each[order]
        self._most = prefix(members)
        self._counted: NDArray[Any] = members - np.bincount(self._at, minlength=n).astype(members.dtype)
        self._done = self._summed = 0
        self._least = prefix(self._counted)

    def leave_out_sated(self, order: Positions, places: Positions) -> None:
        """Note the flows of an origin node and a destination leaf that have enough members together.

        Args:
            order: the sorted flows.
            places: where each such group begins.
        """
        members: NDArray[Any] = self._repeats.each[order]
        members -= np.bincount(self._at[self._known_by[-2] :], minlength=len(order)).astype(members.dtype)
        sated = np.add.reduceat(members, places) >= self._repeats.enough
        self._repeats.note_sated(order[np.flatnonzero(np.repeat(sated, np.diff(places, append=len(order))))])

    def within(self, start: Positions, stop: Positions, depth: int) -> NDArray[Any]:
        """Members of these runs, whose destinations have this depth, which is no less than those before.

        They are told apart where that decides whether they are enough. Elsewhere they are at least so many, and enough,
        or, counted again and again, at most so many, and not enough.
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
    """What the values before each place come to, and all of them; in half the width where that is wide enough."""
    narrow = values.dtype.kind in "iu" and int(values.sum(dtype=np.int64)) < 2**31
    before: NDArray[Any] = np.zeros(len(values) + 1, dtype=np.int32 if narrow else values.dtype)
    np.cumsum(values, dtype=before.dtype, out=before[1:])
    return before
