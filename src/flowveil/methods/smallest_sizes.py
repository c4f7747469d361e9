"""The smallest safe pair that holds each flow: what a walk over the safe pairs tells besides, remembered for the floor.

A method that has walked over all safe pairs of some flows need not walk again when its result is measured.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats
from flowveil.methods.safe_pairs import Level, Sketch

#: Flows times pairs of depths beyond which no floor is computed: trees so deep are rare, and it would take minutes.
MOST_WORK = 2_000_000_000

KNOWN: WeakKeyDictionary[Flows, dict[Guarantee, Floats | None]] = WeakKeyDictionary()


def is_affordable(flows: Flows, origins: Sketch, destinations: Sketch) -> bool:
    """Whether the floor of flows on such trees is computed at all."""
    return len(flows) * (origins.tree.max_depth + 1) * (destinations.tree.max_depth + 1) <= MOST_WORK


class SmallestSizes:
    """For each flow the smallest |o| + |d| over the safe pairs that hold it, taken level by level."""

    def __init__(self, n_flows: int, origins: Sketch, destinations: Sketch) -> None:
        self._origins = origins
        self._destinations = destinations
        self._smallest = np.full(n_flows, np.inf)
        self._depth = -1
        self._order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._here: Floats = np.zeros(1)
        self._around: tuple[NDArray[np.int64], NDArray[np.int64], Floats] | None = None

    def take(self, level: Level) -> None:
        """Take the next level.

        Its runs of flows lie in those of the level before. So it is enough to note where a size begins: a run's own
        where it begins, and where it ends before the run around it does, that one's again.
        """
        depth = int(self._origins.tree.depth[level.origin[0]])
        if depth != self._depth or level.order is not self._order:
            self._put_away()
            self._depth, self._order, self._around = depth, level.order, None
            self._here = np.full(len(level.order) + 1, np.nan)
            self._here[0] = np.inf
        start, stop = level.start, level.stop
        size = self._origins.size[level.origin].astype(np.float64) + self._destinations.size[level.destination]
        if self._around is None:
            self._here[stop] = np.inf
        else:
            run = np.searchsorted(self._around[0], start, side="right") - 1
            inside = stop < self._around[1][run]
            self._here[stop[inside]] = self._around[2][run[inside]]
        self._here[start] = size
        self._around = start, stop, size

    def _put_away(self) -> None:
        begins = np.flatnonzero(~np.isnan(self._here[:-1]))
        here = np.repeat(self._here[begins], np.diff(begins, append=len(self._order)))
        self._smallest[self._order] = np.minimum(self._smallest[self._order], here)

    def finish(self) -> Floats:
        """What all levels came to; infinite for flows that no safe pair holds."""
        self._put_away()
        self._smallest.flags.writeable = False
        return self._smallest
