"""What two homogeneous matrices of the same trips say together, exactly.

At each place take the larger of the two zones. Pairs of these are *blocks*: every cell of either matrix is in one
block, blocks share no trip, and each end of a block is divided by one of the two matrices only. So inside a block every
pair of the first matrix meets every pair of the second: a two-way table, whose rows are pairs of the first and whose
columns are pairs of the second. The sum of a published pair's row is known; that of one that is not listed lies between
0 and ``most_unlisted``; beyond the listed zones lies a rest of which nothing is known.

In such a table every whole number between two bounds is possible for a row, a column, a field and the whole table, and
the bounds are sums of the margins (Fréchet's, for margins that are intervals: no set of rows can need more than all
columns can give). `tests/reference/confined.py` counts all integer solutions instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.zone_forest import Nodes

Counts = NDArray[np.int64]
#: More than any count: an unknown bound. A million of them still fit into 64 bits.
UNKNOWN = np.int64(1) << 40


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two matrices.

    Attributes:
        origins, destinations: the nodes of the zones of each end, distinct.
        origin, destination, trips: of each published cell: its two nodes, and its value.
        most_unlisted: the most trips in a pair that is not listed.
        exact: cells count all of their trips; else only a lower bound.
    """

    origins: Nodes
    destinations: Nodes
    origin: Nodes
    destination: Nodes
    trips: Counts
    most_unlisted: int
    exact: bool = True


@dataclass(frozen=True, eq=False)
class Finding:
    """A group that is confined: what it is made of, and its bounds.

    Attributes:
        kind: ``remainder``: what a matrix does not publish of a block. ``cell``: a pair of zones of one matrix that is
            not listed. ``crossing``: what a cell of one and a cell of the other share.
        origin, destination: the nodes of the block.
        side: which of the two matrices does not publish it; -1 for a crossing.
        low, high: its smallest and largest value.
        single: it is one pair of zones, or one intersection of cells.
        members: the nodes of the pair, or of the two pairs that cross; empty for a remainder.
    """

    kind: str
    origin: int
    destination: int
    side: int
    low: int
    high: int
    single: bool
    members: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class _Axis:
    """One end of all blocks: which block each zone is in, and how many zones of each side are in it."""

    block_of: tuple[NDArray[np.int64], NDArray[np.int64]]
    listed: tuple[dict[int, list[int]], dict[int, list[int]]]
    covered: tuple[set[int], set[int]]


def _axis(parent: Nodes, size: Nodes, nearest: tuple[Nodes, Nodes], zones: tuple[Nodes, Nodes]) -> _Axis:
    blocks, listed, covered = [], [], []
    for side in (0, 1):
        other = nearest[1 - side]
        of_node = np.where(other >= 0, other, np.arange(len(parent)))
        blocks.append(of_node)
        inside: dict[int, list[int]] = {}
        for zone in zones[side].tolist():
            inside.setdefault(int(of_node[zone]), []).append(zone)
        listed.append(inside)
        covered.append({block for block, members in inside.items() if int(size[members].sum()) == int(size[block])})
    return _Axis((blocks[0], blocks[1]), (listed[0], listed[1]), (covered[0], covered[1]))


@dataclass(frozen=True, eq=False)
class Blocks:
    """All blocks in which something is published, with what either side publishes there.

    Attributes:
        origin, destination: the nodes of each block.
        shown: the sum of what each side publishes in it.
        pairs, published: how many pairs of listed zones of each side there are in it, and how many are published.
        rest: whether either side's listed zones leave a part of it open.
        most: the most that each side allows in all.
        least: the least that the block holds.
        cells: for each side, the cells of each block.
    """

    axes: tuple[_Axis, _Axis]
    sides: tuple[Side, Side]
    origin: Nodes
    destination: Nodes
    shown: Counts
    pairs: Counts
    published: Counts
    rest: NDArray[np.bool_]
    most: Counts
    least: Counts
    block_of_cell: tuple[Counts, Counts]


def blocks_of(
    parent: Nodes,
    size: Nodes,
    nearest: tuple[tuple[Nodes, Nodes], tuple[Nodes, Nodes]],
    sides: tuple[Side, Side],
) -> Blocks:
    """Divide two matrices into blocks.

    Args:
        parent, size: the forest.
        nearest: for origins and for destinations, and each side, the side's zone that holds each node.
        sides: the two matrices.
    """
    axes = (
        _axis(parent, size, nearest[0], (sides[0].origins, sides[1].origins)),
        _axis(parent, size, nearest[1], (sides[0].destinations, sides[1].destinations)),
    )
    n = len(parent)
    keys = [axes[0].block_of[s][sides[s].origin] * n + axes[1].block_of[s][sides[s].destination] for s in (0, 1)]
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    of_cell = (place[: len(keys[0])], place[len(keys[0]) :])
    origin, destination = distinct // n, distinct % n
    shown, pairs, published, rest, most = (np.zeros((2, len(distinct)), dtype=np.int64) for _ in range(5))
    for s in (0, 1):
        np.add.at(shown[s], of_cell[s], sides[s].trips)
        published[s] = np.bincount(of_cell[s], minlength=len(distinct))
        o, d = axes[0], axes[1]
        pairs[s] = [
            len(o.listed[s].get(i, ())) * len(d.listed[s].get(j, ()))
            for i, j in zip(origin.tolist(), destination.tolist(), strict=True)
        ]
        rest[s] = [
            not (i in o.covered[s] and j in d.covered[s])
            for i, j in zip(origin.tolist(), destination.tolist(), strict=True)
        ]
        unlisted = (pairs[s] - published[s]) * sides[s].most_unlisted
        open_end = (rest[s] > 0) | (not sides[s].exact)
        most[s] = np.where(open_end, UNKNOWN, np.minimum(shown[s] + unlisted, UNKNOWN))
    least = shown.max(axis=0)
    return Blocks(axes, sides, origin, destination, shown, pairs, published, rest > 0, most, least, of_cell)


def contradictions(blocks: Blocks) -> NDArray[np.bool_]:
    """Blocks in which no numbers satisfy both matrices: they are not of the same trips."""
    broken: NDArray[np.bool_] = np.asarray(blocks.least > blocks.most.min(axis=0))
    return broken


def confined(blocks: Blocks, below: int) -> Iterator[Finding]:
    """Every group of these blocks whose value lies above 0 and below ``below``, whatever the trips are."""
    possible = ~contradictions(blocks)
    highest = blocks.most.min(axis=0)
    for s in (0, 1):
        yield from _unlisted(blocks, s, possible, highest, below)
    n_rows = blocks.pairs + blocks.rest
    crossing = possible & (n_rows.min(axis=0) > 1) & blocks.sides[0].exact & blocks.sides[1].exact
    order = [np.argsort(of, kind="stable") for of in blocks.block_of_cell]
    edges = [
        np.searchsorted(of[by], np.arange(len(blocks.origin) + 1))
        for of, by in zip(blocks.block_of_cell, order, strict=True)
    ]
    for b in np.flatnonzero(crossing & _may_cross(blocks)).tolist():
        margins = [_Margins.of(blocks, s, b, order[s][edges[s][b] : edges[s][b + 1]]) for s in (0, 1)]
        yield from _crossing(blocks, b, margins[0], margins[1], below)


def _unlisted(blocks: Blocks, s: int, possible: NDArray[np.bool_], highest: Counts, below: int) -> Iterator[Finding]:
    """What side s does not publish of a block: all of it together, and each pair that is not listed."""
    side, shown = blocks.sides[s], blocks.shown[s]
    low, high = blocks.least - shown, highest - shown
    c = blocks.pairs[s] - blocks.published[s]
    found = possible & (low > 0) & (high < below)
    alone = (c == 1) & ~blocks.rest[s] & side.exact
    for b in np.flatnonzero(found).tolist():
        members = _missing_pairs(blocks, s, b)[0] if alone[b] else ()
        yield Finding(
            "remainder", int(blocks.origin[b]), int(blocks.destination[b]), s,
            int(low[b]), int(high[b]), bool(alone[b]), members,
        )  # fmt: skip
    if not side.exact:
        return
    others = np.where(blocks.rest[s], UNKNOWN, np.minimum((c - 1) * side.most_unlisted, UNKNOWN))
    each_low, each_high = np.maximum(low - others, 0), np.minimum(side.most_unlisted, high)
    for b in np.flatnonzero(possible & (c > 0) & ~alone & (each_low > 0) & (each_high < below)).tolist():
        for pair in _missing_pairs(blocks, s, b):
            yield Finding(
                "cell", int(blocks.origin[b]), int(blocks.destination[b]), s,
                int(each_low[b]), int(each_high[b]), True, pair,
            )  # fmt: skip


def _missing_pairs(blocks: Blocks, s: int, b: int) -> list[tuple[int, int]]:
    side = blocks.sides[s]
    mine = blocks.block_of_cell[s] == b
    listed = set(zip(side.origin[mine].tolist(), side.destination[mine].tolist(), strict=True))
    origins = blocks.axes[0].listed[s].get(int(blocks.origin[b]), [])
    destinations = blocks.axes[1].listed[s].get(int(blocks.destination[b]), [])
    return [(o, d) for o in origins for d in destinations if (o, d) not in listed]


def _may_cross(blocks: Blocks) -> NDArray[np.bool_]:
    """Whether a field of the table can have a lower bound above 0: a side is bounded."""
    may: NDArray[np.bool_] = np.asarray((blocks.most < UNKNOWN).any(axis=0) & (blocks.shown > 0).all(axis=0))
    return may


@dataclass(frozen=True, eq=False)
class _Margins:
    """The rows or columns of one block: bounds of each, and its pair; the rest stands last."""

    low: Counts
    high: Counts
    pair: list[tuple[int, int]]

    @classmethod
    def of(cls, blocks: Blocks, s: int, b: int, cells: Counts) -> _Margins:
        side = blocks.sides[s]
        published = list(zip(side.origin[cells].tolist(), side.destination[cells].tolist(), strict=True))
        have = set(published)
        origins = blocks.axes[0].listed[s].get(int(blocks.origin[b]), [])
        destinations = blocks.axes[1].listed[s].get(int(blocks.destination[b]), [])
        missing = [(o, d) for o in origins for d in destinations if (o, d) not in have]
        rest = [(-1, -1)] if blocks.rest[s, b] else []
        value = side.trips[cells]
        low = np.concatenate((value, np.zeros(len(missing) + len(rest), np.int64)))
        most = np.full(len(missing), side.most_unlisted, np.int64)
        high = np.concatenate((value, most, np.full(len(rest), UNKNOWN, np.int64)))
        return cls(low, high, [*published, *missing, *rest])


def _crossing(blocks: Blocks, b: int, rows: _Margins, columns: _Margins, below: int) -> Iterator[Finding]:
    """The fields of one table that are confined. More rows than one and more columns than one."""
    low_r, low_c = rows.low[:, None], columns.low[None, :]
    high_r, high_c = rows.high[:, None], columns.high[None, :]
    most_r, most_c = _sum(rows.high), _sum(columns.high)
    other_r, other_c = _others(rows.high)[:, None], _others(columns.high)[None, :]
    sum_r, sum_c = int(rows.low.sum()), int(columns.low.sum())
    low = np.maximum.reduce(np.broadcast_arrays(0, low_r - other_c, low_c - other_r))
    high = np.minimum.reduce(
        np.broadcast_arrays(
            high_r, high_c,
            most_c - (sum_r - low_r),
            most_r - (sum_c - low_c),
        )
    )  # fmt: skip
    for i, j in zip(*(at.tolist() for at in np.nonzero((low > 0) & (high < below))), strict=True):
        yield Finding(
            "crossing", int(blocks.origin[b]), int(blocks.destination[b]), -1,
            int(low[i, j]), int(high[i, j]), True, (*rows.pair[i], *columns.pair[j]),
        )  # fmt: skip


def _sum(high: Counts) -> int:
    return int(UNKNOWN) if (high >= UNKNOWN).any() else min(int(high.sum()), int(UNKNOWN))


def _others(high: Counts) -> Counts:
    """For each, the sum of all others."""
    unknown = high >= UNKNOWN
    finite = np.where(unknown, 0, high)
    others = finite.sum() - finite
    n_unknown = int(unknown.sum())
    return np.where(n_unknown - unknown.astype(np.int64) > 0, UNKNOWN, others)
