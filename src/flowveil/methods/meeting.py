"""Where two leaves of a tree meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Hierarchy, Ints


@dataclass(frozen=True, eq=False)
class Meeting:
    """Depth at which two leaves meet, in constant time: range minima over neighbours, in a table of doublings."""

    table: NDArray[np.int16]
    log: NDArray[np.int8]
    deepest: int

    @classmethod
    def of(cls, tree: Hierarchy) -> Meeting:
        """Neighbouring leaves meet in the parent of the topmost node that begins with the right one."""
        n = tree.n_tiles
        top = np.zeros(n, dtype=np.int32)
        top[tree.leaf_start[::-1]] = np.arange(tree.n_nodes - 1, -1, -1)
        # Numpy writes repeated positions in order: the last one written is the smallest node.
        neighbours = tree.depth[top[1:]] - 1
        log = np.zeros(max(n, 2) + 1, dtype=np.int8)
        log[2:] = np.floor(np.log2(np.arange(2, len(log))))
        rows = [np.append(neighbours, -1).astype(np.int16)]
        for step in range(int(log[max(n - 1, 1)])):
            width = 1 << step
            last = rows[-1]
            rows.append(np.concatenate((np.minimum(last[:-width], last[width:]), last[len(last) - width :])))
        return cls(table=np.vstack(rows), log=log, deepest=tree.max_depth)

    def depth(self, left: Ints, right: Ints) -> Ints:
        """Depth of the deepest node that holds both leaves; left ones first; as deep as any for a leaf and itself."""
        distance = right - left
        step = self.log[np.maximum(distance, 1)]
        reach = np.left_shift(1, step.astype(np.int32))
        met = np.minimum(self.table[step, left], self.table[step, np.maximum(right - reach, 0)]).astype(np.int32)
        return np.where(distance > 0, met, np.int32(self.deepest))
