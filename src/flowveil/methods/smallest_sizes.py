"""The smallest safe pair of nodes that contains each flow: the lower bound of the generalisation error."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats
from flowveil.methods.safe_pairs import Level, Sketch, leaf_ancestors

#: Largest number of flows times pairs of depths for which the bound is computed; more would take minutes.
MOST_WORK = 2_000_000_000

#: Larger than any size: no safe pair found yet.
_NONE = np.iinfo(np.int64).max

#: Cache of results, by flows and guarantee.
SMALLEST_SIZES: WeakKeyDictionary[Flows, dict[Guarantee, Floats | None]] = WeakKeyDictionary()


def is_affordable(flows: Flows, origins: Sketch, destinations: Sketch) -> bool:
    """Returns whether the bound is computed for these flows and trees."""
    return len(flows) * (origins.tree.max_depth + 1) * (destinations.tree.max_depth + 1) <= MOST_WORK


class SmallestSizes:
    """For each flow the smallest |o| + |d| over the safe pairs that contain it, collected by origin depth."""

    def __init__(self, flows: Flows, origins: Sketch, destinations: Sketch) -> None:
        self._size_o = origins.size
        self._leaf = destinations.leaf_of_tile[flows.destination]
        self._size_d = np.stack([destinations.size[node] for node in leaf_ancestors(destinations.tree)])
        self._smallest = np.full(len(flows), _NONE, dtype=np.int64)

    def in_levels(self, levels: list[Level]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the flows in pairs of these levels, and the smallest size of those pairs. Thread-safe.

        Flows that already have a smaller pair are skipped.

        Args:
            levels: levels of one origin depth, from the destination root down. Divided pairs are safe, so a flow is in
                one pair of every level down to its deepest, and the deepest is the smallest.
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
        # Concurrent updates only make this selection smaller.
        smaller = np.flatnonzero(size + 1 < self._smallest[flow])
        flow, size = flow[smaller], size[smaller]
        depth = within[held[smaller]].astype(np.int64)
        depth -= 1
        depth *= self._size_d.shape[1]
        depth += self._leaf[flow]
        size += self._size_d.ravel()[depth]
        return flow, size

    def update(self, flow: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        """Records a result of `in_levels`, in any order."""
        self._smallest[flow] = np.minimum(self._smallest[flow], size)

    def sizes(self) -> Floats:
        """Returns the smallest size of each flow; infinite for flows that no safe pair contains."""
        smallest = self._smallest.astype(np.float64)
        smallest[self._smallest == _NONE] = np.inf
        smallest.flags.writeable = False
        return smallest
