"""Which cell of a matrix holds a pair of nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int64]


def holders(parents: tuple[Nodes, Nodes], origin: Nodes, destination: Nodes) -> Callable[[Nodes, Nodes], Nodes]:
    """A function that finds, for pairs of nodes, the cell that holds each: -1 where none does.

    Cells share no pair, so there is one at most; found by going up from either end.

    Args:
        parents: of the nodes of each end; -1 at the top.
        origin, destination: the nodes of each cell.
    """
    n = len(parents[1])
    keys = origin * n + destination
    order = np.argsort(keys)
    keys = keys[order]

    def find(o: Nodes, d: Nodes) -> Nodes:
        found = np.full(len(o), -1, dtype=np.int64)
        up_o = o.copy()
        while len(keys) and (up_o >= 0).any():
            up_d = d.copy()
            while (up_d >= 0).any():
                wanted = up_o * n + up_d
                at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                hit = (keys[at] == wanted) & (up_o >= 0) & (up_d >= 0) & (found < 0)
                found[hit] = order[at[hit]]
                up_d = np.where(up_d >= 0, parents[1][up_d], -1)
            up_o = np.where(up_o >= 0, parents[0][up_o], -1)
        return found

    return find
