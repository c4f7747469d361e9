"""Bounds of what matrices of the same trips say together, whatever the trips are
(docs/audit/README.md).

*Two homogeneous matrices: exactly.* At each place take the larger of the two zones. Pairs of these
are *blocks*: two-way tables whose rows are pairs of the first matrix and whose columns are pairs of
the second. Bounds are Fréchet's, and every whole number between them is possible;
`tests/reference/confined.py` counts all integer solutions instead.

*Three matrices, nested zones, slices by different columns: by integer and linear programs* over
classes of trips that the same published cells count. Bounds of relaxations may be wider than the
exact ones, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Mask, Positions
from flowveil.verify.audit.zone_forest import Ground
from flowveil.zoning.covering import Ancestors

Pair = tuple[int, int]
#: The cell of each matrix that counts a class; -1 for none.
Cells = tuple[int, ...]
#: More than any count: an unknown bound. A million of them still fit into 64 bits.
UNKNOWN = np.int64(1) << 40
#: Upper bounds for the classes of a component that is solved at all, and in whole numbers.
MOST_CLASSES, MOST_EXACT = 2_000, 200
#: Upper bound for the programs of one audit, about a millisecond each.
MOST_PROGRAMS = 3_000
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Side:
    """One of several matrices: the two nodes of each published cell, and its value."""

    origin: Positions
    destination: Positions
    trips: Counts
    most_unlisted: int  # the most trips in a pair that is not listed
    exact: bool = True  # cells count all of their trips; else only a lower bound

    def zones(self, end: int) -> Positions:
        """Returns the distinct nodes of origins (0) or destinations (1)."""
        return np.unique((self.origin, self.destination)[end])


class Finding(NamedTuple):
    """A group that is confined.

    Of kind ``remainder`` it is what a matrix does not publish of a block; ``cell``: a pair of zones
    of one matrix that is not listed; ``crossing``: what a cell of one and a cell of the other
    share; ``shared``: a class of trips.
    """

    kind: str
    block: Pair  # the nodes of the block
    side: int  # which of the two matrices does not publish it; -1 where cells share it
    low: int
    high: int
    # The nodes of the pair, or of the two pairs that cross; of a class the cell of each matrix, or
    # -1.
    members: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class TableBlocks:
    """All blocks in which something is published.

    Most arrays have a row for each of the two sides.
    """

    sides: tuple[Side, Side]
    listed: dict[Pair, dict[int, list[int]]]  # by end and side: the listed zones of each block
    nodes: list[Pair]  # of both ends
    shown: Counts  # the sum of what each side publishes in it
    pairs: Counts  # how many pairs of listed zones of each side there are in it
    published: Counts  # how many of these are published
    rest: Mask  # whether either side's listed zones leave a part of it open
    most: Counts  # the most that each side allows in all
    block_of_cell: tuple[Counts, Counts]

    @property
    def least(self) -> Counts:
        """The least that each block holds."""
        return np.asarray(self.shown.max(axis=0))

    @property
    def contradictions(self) -> Mask:
        """Blocks in which no numbers satisfy both matrices: they are not of the same trips."""
        return np.asarray(self.least > self.most.min(axis=0))

    @cached_property
    def _cells(self) -> list[list[Counts]]:
        """The cells of each block, by side."""
        n = len(self.nodes)
        return [
            np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=n))[:-1])
            for of in self.block_of_cell
        ]

    def pairs_of(self, s: int, b: int) -> tuple[Counts, list[Pair], list[Pair]]:
        """Returns the cells of a side in a block, their pairs of nodes, and the listed pairs
        without a cell.
        """
        side, cells = self.sides[s], self._cells[s][b]
        published = list(
            zip(side.origin[cells].tolist(), side.destination[cells].tolist(), strict=True)
        )
        have = set(published)
        origins, destinations = (
            self.listed[end, s].get(node, []) for end, node in enumerate(self.nodes[b])
        )
        return (
            cells,
            published,
            [(o, d) for o in origins for d in destinations if (o, d) not in have],
        )


def blocks_of(ground: Ground, sides: tuple[Side, Side]) -> TableBlocks:
    """Divides two homogeneous matrices into blocks."""
    n = len(ground.parent)
    block_of, listed, covered = {}, {}, {}
    for end, s in ((0, 0), (0, 1), (1, 0), (1, 1)):
        other = ground.nearest(sides[1 - s].zones(end))
        block_of[end, s] = of_node = np.where(other >= 0, other, np.arange(n))
        inside: dict[int, list[int]] = {}
        for zone in sides[s].zones(end).tolist():
            inside.setdefault(int(of_node[zone]), []).append(zone)
        listed[end, s] = inside
        covered[end, s] = {
            b for b, zones in inside.items() if int(ground.size[zones].sum()) == int(ground.size[b])
        }
    keys = [
        block_of[0, s][sides[s].origin] * n + block_of[1, s][sides[s].destination] for s in (0, 1)
    ]
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    of_cell = (place[: len(keys[0])], place[len(keys[0]) :])
    ends = list(zip((distinct // n).tolist(), (distinct % n).tolist(), strict=True))
    shown, pairs, published, rest, most = (
        np.zeros((2, len(distinct)), dtype=np.int64) for _ in range(5)
    )
    for s in (0, 1):
        np.add.at(shown[s], of_cell[s], sides[s].trips)
        published[s] = np.bincount(of_cell[s], minlength=len(distinct))
        pairs[s] = [len(listed[0, s].get(o, ())) * len(listed[1, s].get(d, ())) for o, d in ends]
        rest[s] = [not (o in covered[0, s] and d in covered[1, s]) for o, d in ends]
        unlisted = (pairs[s] - published[s]) * sides[s].most_unlisted
        open_end = (rest[s] > 0) | (not sides[s].exact)
        most[s] = np.where(open_end, UNKNOWN, np.minimum(shown[s] + unlisted, UNKNOWN))
    return TableBlocks(sides, listed, ends, shown, pairs, published, rest > 0, most, of_cell)


def confined(blocks: TableBlocks, below: int) -> Iterator[Finding]:
    """Yields every group of these blocks whose value lies above 0 and below ``below``, whatever the
    trips are.
    """
    possible = ~blocks.contradictions
    for s in (0, 1):
        yield from _unlisted(blocks, s, possible, below)
    if not (blocks.sides[0].exact and blocks.sides[1].exact):
        return
    # A field of a table can have a lower bound above 0 only where a side is bounded.
    bounded = (blocks.most < UNKNOWN).any(axis=0) & (blocks.shown > 0).all(axis=0)
    several = (blocks.pairs + blocks.rest).min(axis=0) > 1
    for b in np.flatnonzero(possible & several & bounded).tolist():
        yield from _crossing(blocks, b, below)


def _unlisted(blocks: TableBlocks, s: int, possible: Mask, below: int) -> Iterator[Finding]:
    """What side s does not publish of a block.

    All of it together, and each pair that is not listed.
    """
    side, shown = blocks.sides[s], blocks.shown[s]
    low, high = blocks.least - shown, blocks.most.min(axis=0) - shown
    c = blocks.pairs[s] - blocks.published[s]
    alone = (c == 1) & ~blocks.rest[s] & side.exact
    for b in np.flatnonzero(possible & (low > 0) & (high < below)).tolist():
        members = blocks.pairs_of(s, b)[2][0] if alone[b] else ()
        yield Finding("remainder", blocks.nodes[b], s, int(low[b]), int(high[b]), members)
    if not side.exact:
        return
    others = np.where(blocks.rest[s], UNKNOWN, np.minimum((c - 1) * side.most_unlisted, UNKNOWN))
    each_low, each_high = np.maximum(low - others, 0), np.minimum(side.most_unlisted, high)
    for b in np.flatnonzero(
        possible & (c > 0) & ~alone & (each_low > 0) & (each_high < below)
    ).tolist():
        bounds = int(each_low[b]), int(each_high[b])
        yield from (
            Finding("cell", blocks.nodes[b], s, *bounds, pair) for pair in blocks.pairs_of(s, b)[2]
        )


def _margins(blocks: TableBlocks, s: int, b: int) -> tuple[Counts, Counts, list[Pair]]:
    """The rows or columns of one block: smallest and largest value of each, and its pair.

    The rest stands last.
    """
    cells, published, missing = blocks.pairs_of(s, b)
    rest = [(-1, -1)] if blocks.rest[s, b] else []
    value = blocks.sides[s].trips[cells]
    low = np.concatenate((value, np.zeros(len(missing) + len(rest), np.int64)))
    most = np.full(len(missing), blocks.sides[s].most_unlisted, np.int64)
    return (
        low,
        np.concatenate((value, most, np.full(len(rest), UNKNOWN, np.int64))),
        [*published, *missing, *rest],
    )


def _crossing(blocks: TableBlocks, b: int, below: int) -> Iterator[Finding]:
    """The fields of one table, of several rows and columns, that are confined."""
    (low_r, high_r, rows), (low_c, high_c, columns) = (_margins(blocks, s, b) for s in (0, 1))
    (most_r, other_r), (most_c, other_c) = _sums(high_r), _sums(high_c)
    low = np.maximum.reduce(
        np.broadcast_arrays(0, low_r[:, None] - other_c, low_c - other_r[:, None])
    )
    spare_r, spare_c = most_c - (low_r.sum() - low_r), most_r - (low_c.sum() - low_c)
    high = np.minimum.reduce(
        np.broadcast_arrays(high_r[:, None], high_c, spare_r[:, None], spare_c)
    )
    for i, j in zip(
        *(place.tolist() for place in np.nonzero((low > 0) & (high < below))), strict=True
    ):
        yield Finding(
            "crossing",
            blocks.nodes[b],
            -1,
            int(low[i, j]),
            int(high[i, j]),
            (*rows[i], *columns[j]),
        )


def _sums(high: Counts) -> tuple[int, Counts]:
    """The sum of upper bounds, and for each the sum of all others."""
    unknown = high >= UNKNOWN
    finite = np.where(unknown, 0, high)
    others = np.where(unknown.sum() > unknown, UNKNOWN, finite.sum() - finite)
    return (int(UNKNOWN) if unknown.any() else min(int(high.sum()), int(UNKNOWN))), others


# ---- programs ------------------------------------------------------------------------------------


@dataclass
class BoundsSolution:
    """What was found in the components."""

    shared: list[Finding] = field(default_factory=list)  # the classes that are confined
    solved: int = 0  # components solved in whole numbers, or by subtraction alone
    bounded: int = 0  # components of which the relaxation was solved
    left_out: int = 0  # components that are too large, or beyond `MOST_PROGRAMS`


def confined_components(
    ground: Ground, sides: Sequence[Side], below: int, values: Sequence[NDArray[np.int64]]
) -> BoundsSolution:
    """Returns the classes that layers of the same trips confine.

    The cells of each layer share no trip.

    ``values`` holds for each layer and cell its value in each slice column; -1 for all values.
    """
    areas = _classes(ground, sides, values)
    left = [side.trips.astype(np.int64).copy() for side in sides]
    fixed = _fixed(list(areas), left)
    found = BoundsSolution(solved=int(bool(fixed)))
    found.shared += [
        Finding("shared", areas[cells], -1, n, n, cells)
        for cells, n in fixed.items()
        if 0 < n < below
    ]
    members = sorted(cells for cells in areas if cells not in fixed)
    programs = 0
    for component in sorted(_components(members, sides), key=len):
        whole = len(component) <= MOST_EXACT
        if len(component) > MOST_CLASSES or programs >= MOST_PROGRAMS:
            found.left_out += 1
            continue
        program = _Program([members[i] for i in component], left, whole=whole)
        confined_here = program.confined(below)
        found.shared += [
            Finding("shared", areas[cells], -1, low, high, cells)
            for cells, low, high in confined_here
        ]
        programs += program.n_solved
        found.solved += whole
        found.bounded += not whole
    return found


def _fixed(classes: Sequence[Cells], left: Sequence[NDArray[np.int64]]) -> dict[Cells, int]:
    """The classes whose value follows by subtraction alone.

    The last class of a cell holds what the others leave.
    """
    # What is fixed is taken away from ``left``, what each cell holds.
    of_cell: dict[Pair, set[Cells]] = {}
    for cells in classes:
        for s, cell in enumerate(cells):
            if cell >= 0:
                of_cell.setdefault((s, cell), set()).add(cells)
    fixed: dict[Cells, int] = {}
    waiting = [row for row, members in of_cell.items() if len(members) == 1]
    while waiting:
        s, cell = waiting.pop()
        if len(of_cell[s, cell]) != 1:
            continue
        cells = next(iter(of_cell[s, cell]))
        fixed[cells] = value = int(left[s][cell])
        for t, other in enumerate(cells):
            if other >= 0:
                left[t][other] -= value
                of_cell[t, other].discard(cells)
                if len(of_cell[t, other]) == 1:
                    waiting.append((t, other))
    return fixed


def _classes(
    ground: Ground, sides: Sequence[Side], values: Sequence[NDArray[np.int64]]
) -> dict[Cells, Pair]:
    """Every set of cells that some trip may be counted by, with its nodes.

    The extent of a set is its area times the values that its slice columns leave open, of which one
    is never listed. What exactly these cells share is what they share, less what further cells
    share with them; a class without extent holds no trip and is left out.
    """
    tree = Ancestors(ground.parent)
    n_values = (np.max([v.max(axis=0, initial=-1) for v in values], axis=0) + 2).tolist()
    fixed_by = [[tuple(row) for row in of_layer.tolist()] for of_layer in values]
    held: dict[Cells, Pair] = {}
    nothing = (-1,) * len(sides)
    for s, side in enumerate(sides):
        found = dict(held)
        for cell, nodes in enumerate(
            zip(side.origin.tolist(), side.destination.tolist(), strict=True)
        ):
            found[(*nothing[:s], cell, *nothing[s + 1 :])] = nodes
        if held:
            overlaps = _overlaps(held, side, s, tree)
            found |= {
                cells: at for cells, at in overlaps.items() if _joined(cells, fixed_by) is not None
            }
        held = found
    size, exact = ground.size.tolist(), {}
    for cells, (o, d) in held.items():
        open_values = [
            n for n, v in zip(n_values, _joined(cells, fixed_by) or (), strict=True) if v < 0
        ]
        exact[cells] = size[o] * size[d] * math.prod(open_values)
    for cells in sorted(held, key=lambda cells: -sum(cell >= 0 for cell in cells)):
        used = [s for s, c in enumerate(cells) if c >= 0]
        for n in range(1, len(used)):
            for kept in combinations(used, n):
                exact[tuple(c if s in kept else -1 for s, c in enumerate(cells))] -= exact[cells]
    return {cells: nodes for cells, nodes in held.items() if exact[cells] > 0}


def _joined(cells: Cells, fixed_by: Sequence[Sequence[tuple[int, ...]]]) -> tuple[int, ...] | None:
    """The values that all cells of a set fix together.

    None where two of them fix different ones.
    """
    rows = [fixed_by[s][cell] for s, cell in enumerate(cells) if cell >= 0]
    joined = []
    for column in zip(*rows, strict=True):
        fixed = {value for value in column if value >= 0}
        if len(fixed) > 1:
            return None
        joined.append(fixed.pop() if fixed else -1)
    return tuple(joined)


def _overlaps(held: dict[Cells, Pair], side: Side, s: int, tree: Ancestors) -> dict[Cells, Pair]:
    """What the cells of one more matrix share with the sets found so far."""

    @cache
    def smaller(end: int, other: int) -> NDArray[np.int32]:
        """The smaller of two zones, one inside the other; -1 where they are disjoint."""
        node = nodes[end]
        inside = tree.at_depth(node, tree.depth[other]) == other
        around = tree.at_depth(np.array([other]), tree.depth[node]) == node
        return np.where(inside, node, np.where(around, other, -1))

    sets, nodes = list(held), np.array(list(held.values()), dtype=np.int64).T
    found: dict[Cells, Pair] = {}
    for cell, (o, d) in enumerate(
        zip(side.origin.tolist(), side.destination.tolist(), strict=True)
    ):
        shared_o, shared_d = smaller(0, o), smaller(1, d)
        for i in np.flatnonzero((shared_o >= 0) & (shared_d >= 0)).tolist():
            found[(*sets[i][:s], cell, *sets[i][s + 1 :])] = (int(shared_o[i]), int(shared_d[i]))
    return found


def _components(members: Sequence[Cells], sides: Sequence[Side]) -> list[Counts]:
    """Classes that are connected through cells."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    if not members:
        return []
    first = np.cumsum([len(members), *(len(side.trips) for side in sides)]).tolist()
    edges = np.array(
        [
            (i, first[s] + c)
            for i, cells in enumerate(members)
            for s, c in enumerate(cells)
            if c >= 0
        ]
    )
    graph = coo_matrix((np.ones(len(edges)), edges.T), shape=(first[-1], first[-1]))
    label = np.unique(
        connected_components(graph, directed=False)[1][: len(members)], return_inverse=True
    )[1]
    return np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])


class _Program:
    """The sums of the classes of one component, which are not negative."""

    def __init__(
        self, own: Sequence[Cells], left: Sequence[NDArray[np.int64]], *, whole: bool
    ) -> None:
        from scipy.sparse import csr_matrix

        rows = sorted({(s, c) for cells in own for s, c in enumerate(cells) if c >= 0})
        place = {row: i for i, row in enumerate(rows)}
        at = np.array(
            [(place[s, c], x) for x, cells in enumerate(own) for s, c in enumerate(cells) if c >= 0]
        )
        self._own, self._whole, self.n_solved = own, whole, 0
        self._sums: Any = csr_matrix((np.ones(len(at)), at.T), shape=(len(rows), len(own)))
        self._value = np.array([left[s][c] for s, c in rows], dtype=np.float64)

    def confined(self, below: int) -> Iterator[tuple[Cells, int, int]]:
        """The classes that are confined, with their bounds."""
        candidates = np.ones(len(self._own), dtype=np.bool_)
        for sign in (1.0, -1.0):
            while candidates.any():
                x = self._solve(np.where(candidates, sign, 0.0))
                if x is None:
                    return
                cleared = candidates & ((x < _ROUNDING) if sign > 0 else (x > below - _ROUNDING))
                if not cleared.any():
                    break
                candidates &= ~cleared
        for i in np.flatnonzero(candidates).tolist():
            alone = np.zeros(len(self._own))
            alone[i] = 1.0
            smallest, largest = self._solve(alone), self._solve(-alone)
            if smallest is None or largest is None:
                return
            low, high = math.ceil(smallest[i] - _ROUNDING), math.floor(largest[i] + _ROUNDING)
            if low > 0 and high < below:
                yield self._own[i], low, high

    def _solve(self, cost: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """A solution of least cost; None where the matrices contradict each other."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        self.n_solved += 1
        constraints = LinearConstraint(self._sums, self._value, self._value)
        integrality = np.full(len(cost), int(self._whole))
        result = milp(
            cost, constraints=constraints, bounds=Bounds(0, np.inf), integrality=integrality
        )
        return np.asarray(result.x, dtype=np.float64) if result.success else None
