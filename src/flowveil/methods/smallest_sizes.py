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
from flowveil.methods.safe_pairs import Level, Sketch, leaf_ancestors

#: Flows times pairs of depths beyond which no floor is computed: trees so deep are rare, and it would take minutes.
MOST_WORK = 2_000_000_000

#: Larger than any size: no safe pair so far.
_NONE = np.iinfo(np.int64).max

KNOWN: WeakKeyDictionary[Flows, dict[Guarantee, Floats | None]] = WeakKeyDictionary()


def is_affordable(flows: Flows, origins: Sketch, destinations: Sketch) -> bool:
    """Whether the floor of flows on such trees is computed at all."""
    return len(flows) * (origins.tree.max_depth + 1) * (destinations.tree.max_depth + 1) <= MOST_WORK


class SmallestSizes:
    """For each flow the smallest |o| + |d| over the safe pairs that hold it, taken by origin depth."""

    def __init__(self, flows: Flows, origins: Sketch, destinations: Sketch) -> None:
        self._size_o = origins.size
        self._leaf = destinations.leaf_of_tile[flows.destination]
        self._size_d = np.stack([destinations.size[node] for node in leaf_ancestors(destinations.tree)])
        self._smallest = np.full(len(flows), _NONE, dtype=np.int64)

    def of(self, levels: list[Level]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Flows that pairs of these levels hold, and the smallest size among those; threads may ask at any time.

        Flows that are in a smaller pair already, whatever these are, are left out.

        The levels are those of one origin depth, from the root of the destinations down. What is divided is safe, so a
        flow is in as many of their pairs as it is deep, and the deepest is the smallest.
        """
        order, nodes = levels[0].order, levels[0].nodes
        change = np.zeros(len(order) + 1, dtype=np.int16)
        for level in levels:
            change[level.start] += 1
            change[level.stop] -= 1
        within = np.cumsum(change[:-1], dtype=np.int16)
        held = np.flatnonzero(within)
        flow = order[held]
        size = self._size_o[nodes[held]].astype(np.int64)
        # What is noted meanwhile only makes them fewer.
        smaller = np.flatnonzero(size + 1 < self._smallest[flow])
        flow, size = flow[smaller], size[smaller]
        depth = within[held[smaller]].astype(np.int64)
        depth -= 1
        depth *= self._size_d.shape[1]
        depth += self._leaf[flow]
        size += self._size_d.ravel()[depth]
        return flow, size

    def note(self, flow: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        """Note what `of` returned, in any order."""
        self._smallest[flow] = np.minimum(self._smallest[flow], size)

    def finish(self) -> Floats:
        """What all levels came to; infinite for flows that no safe pair holds."""
        smallest = self._smallest.astype(np.float64)
        smallest[self._smallest == _NONE] = np.inf
        smallest.flags.writeable = False
        return smallest
