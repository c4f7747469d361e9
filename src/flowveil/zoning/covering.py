"""Finds the boxes, or the cells of tree nodes, that contain points.

Points are sorted along a space-filling curve into a tree of blocks with bounds, which all boxes
descend together: pairs of a box and a block with disjoint bounds are dropped, the others are
replaced by their parts. Memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Positions

#: Points in a block, and blocks in a block of blocks.
BLOCK = 16
#: Pairs in one batch.
PAIRS_AT_ONCE = 1 << 21


def pairs_inside(
    point: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> Iterator[tuple[Positions, Positions]]:
    """Yields the numbers of all points and of the boxes that contain them (low <= point < high), in
    batches.

    Arrays have one row per dimension and one column per point or box. Every pair is yielded once.
    """
    if point.shape[1] == 0 or low.shape[1] == 0:
        return
    order = np.argsort(_along_curve(point), kind="stable")
    # Bounds of the points (level 0) and of the blocks above them.
    bounds = [(point[:, order], point[:, order])]
    while bounds[-1][0].shape[1] > BLOCK:
        first = np.arange(0, bounds[-1][0].shape[1], BLOCK)
        least, most = bounds[-1]
        bounds.append(
            (np.minimum.reduceat(least, first, axis=1), np.maximum.reduceat(most, first, axis=1))
        )
    n_top = bounds[-1][0].shape[1]
    box = np.repeat(np.arange(low.shape[1]), n_top)
    waiting = [(len(bounds) - 1, box, np.tile(np.arange(n_top), low.shape[1]))]
    while waiting:
        level, box, block = waiting.pop()
        if len(box) > PAIRS_AT_ONCE:
            half = len(box) // 2
            waiting += [(level, box[half:], block[half:]), (level, box[:half], block[:half])]
            continue
        meet = np.ones(len(box), dtype=np.bool_)
        for least, most, start, end in zip(*bounds[level], low, high, strict=True):
            meet &= (least.take(block) < end.take(box)) & (most.take(block) >= start.take(box))
        at = np.flatnonzero(meet)
        if len(at) == 0:
            continue
        if level == 0:
            yield order.take(block.take(at)), box.take(at)
            continue
        part = (block.take(at)[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
        owner = np.repeat(box.take(at), BLOCK)
        real = np.flatnonzero(part < bounds[level - 1][0].shape[1])
        waiting.append((level - 1, owner.take(real), part.take(real)))


def _along_curve(point: NDArray[Any]) -> NDArray[np.uint64]:
    """Returns the position of each point on a Z-order curve of its ranks."""
    dimensions, n = point.shape
    bits = min(64 // dimensions, 16)
    key = np.zeros(n, dtype=np.uint64)
    for d, axis in enumerate(point):
        ordered = np.sort(axis)
        # Equal values have equal ranks.
        rank = (np.searchsorted(ordered, axis) * ((1 << bits) - 1) // max(n, 1)).astype(np.uint64)
        for b in range(bits):
            key |= (rank >> np.uint64(b) & np.uint64(1)) << np.uint64(b * dimensions + d)
    return key


class Ancestors:
    """The ancestors of all nodes of a forest, which its parents give.

    -1 is the parent of a root.
    """

    def __init__(self, parent: NDArray[Any]) -> None:
        chain = [np.arange(len(parent), dtype=np.int32)]
        while (chain[-1] >= 0).any():
            chain.append(np.where(chain[-1] >= 0, parent[chain[-1]], -1).astype(np.int32))
        self._chain = np.stack(chain)
        self.depth = np.count_nonzero(self._chain >= 0, axis=0) - 1

    def at_depth(self, node: NDArray[Any], depth: Any) -> NDArray[np.int32]:
        """Returns the ancestor of each node at a depth; -1 where the node is less deep or -1."""
        up = self.depth[node] - depth
        return np.where((node >= 0) & (up >= 0), self._chain[np.maximum(up, 0), node], -1)


def containing_cells(
    parents: Sequence[NDArray[Any]],
    cells: Sequence[NDArray[Any]],
    points: Sequence[NDArray[Any]],
    *,
    overlap: Exception | None = None,
) -> Positions:
    """Returns the cell that contains each point, -1 without one.

    Of several the deepest, or ``overlap`` is raised.

    Arguments have an array for each tree: the parent of each node, and the node of each cell and of
    each point (-1 outside the tree). Makes one look-up for each combination of depths among the
    cells.
    """
    found = np.full(len(points[0]), -1, dtype=np.int64)
    if len(cells[0]) == 0:
        return found
    trees = [Ancestors(parent) for parent in parents]
    # Nodes are renumbered among those of cells, so that keys stay small; -1 for others, and for the
    # last entry.
    numbers = [np.full(len(parent) + 1, -1, dtype=np.int64) for parent in parents]
    for number, node in zip(numbers, cells, strict=True):
        used = np.unique(node)
        number[used] = np.arange(len(used))
    shape = [int(number.max()) + 1 for number in numbers]
    key = np.ravel_multi_index(
        tuple(number[node] for number, node in zip(numbers, cells, strict=True)), shape
    )
    order = np.argsort(key, kind="stable")
    key = key[order]
    left = np.flatnonzero(np.logical_and.reduce([node >= 0 for node in points]))
    depths = np.stack([tree.depth[node] for tree, node in zip(trees, cells, strict=True)])
    nodes = [np.arange(len(parent)) for parent in parents]
    for combination in np.unique(depths, axis=1).T[::-1]:
        ends = zip(trees, numbers, nodes, points, combination, strict=True)
        # Looked up for nodes first: there are fewer of them than points.
        above = [
            number[tree.at_depth(every, depth)][node[left]]
            for tree, number, every, node, depth in ends
        ]
        wanted = np.ravel_multi_index(tuple(np.maximum(node, 0) for node in above), shape)
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        hit = np.logical_and.reduce([key[at] == wanted, *(node >= 0 for node in above)])
        if overlap is not None and np.any(found[left[hit]] >= 0):
            raise overlap
        found[left[hit]] = order[at[hit]]
        left = left[~hit] if overlap is None else left
    return found


def cells_by_layer(
    parents: Sequence[NDArray[Any]],
    cells: Sequence[NDArray[Any]],
    points: Sequence[NDArray[Any]],
    layer: NDArray[Any],
) -> Positions:
    """Returns the cell of each point in the first layer that contains it, -1 without one.

    As `containing_cells`.
    """
    cell = np.full(len(points[0]), -1, dtype=np.int64)
    for number in np.unique(layer).tolist():
        of_layer, left = np.flatnonzero(layer == number), np.flatnonzero(cell < 0)
        found = containing_cells(
            parents, [node[of_layer] for node in cells], [node[left] for node in points]
        )
        cell[left] = np.where(found >= 0, of_layer[found], -1)
    return cell
