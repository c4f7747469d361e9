"""Bounds of what the cells of several matrices share, by integer and linear programs.

Two homogeneous matrices have a closed form (`flowveil.audit.blocks`); three, nested zones, or slices by different
columns have none. The unknowns are classes of trips: those that the same published cells count, at most one cell of
each layer. Each published cell is the sum of its classes. Connected components of cells that share classes are solved
one by one with HiGHS: small ones exactly, in whole numbers, larger ones by their linear relaxation. One solution clears
every class that it leaves empty, or fills up to the guarantee; only the remaining classes are bounded one by one.

Guaranteed: bounds hold for all whole numbers that give the published tables. Unlisted pairs are only known not to be
negative. Bounds of relaxations may be wider than the exact ones, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.blocks import Side
from flowveil.audit.zone_forest import Ground, Nodes

#: Upper bounds for the classes of a component that is solved at all, and in whole numbers.
MOST_CLASSES, MOST_EXACT = 2_000, 200
#: Upper bound for the programs of one audit, about a millisecond each.
MOST_PROGRAMS = 3_000
_ROUNDING = 1e-6

#: The cell of each matrix that counts a class; -1 for none.
Cells = tuple[int, ...]


@dataclass(frozen=True)
class Shared:
    """A class of trips that is confined: its nodes, the cell of each matrix (or -1), and its bounds."""

    origin: int
    destination: int
    cells: Cells
    low: int
    high: int


@dataclass
class Solution:
    """What was found in the components.

    Attributes:
        shared: the classes that are confined.
        solved: components solved in whole numbers, or by subtraction alone.
        bounded: components of which the relaxation was solved.
        left_out: components that are too large, or beyond `MOST_PROGRAMS`.
    """

    shared: list[Shared] = field(default_factory=list)
    solved: int = 0
    bounded: int = 0
    left_out: int = 0


def confined_components(
    ground: Ground, sides: Sequence[Side], below: int, values: Sequence[NDArray[np.int64]] | None = None
) -> Solution:
    """The classes that these layers of the same trips confine.

    Args:
        ground: the forest of zones.
        sides: the layers; the cells of each share no trip.
        below: the guarantee.
        values: for each layer and cell its value in each slice column; -1 for all values.
    """
    areas = _classes(ground, sides, values or [np.zeros((len(side.trips), 0), np.int64) for side in sides])
    left = [side.trips.astype(np.int64).copy() for side in sides]
    fixed = _fixed(list(areas), left)
    found = Solution()
    for cells, value in fixed.items():
        if 0 < value < below:
            found.shared.append(Shared(*areas[cells], cells, value, value))
    members = sorted(cells for cells in areas if cells not in fixed)
    found.solved += bool(fixed)
    programs = 0
    for component in sorted(_components(members, sides), key=len):
        own = [members[i] for i in component]
        if len(own) > MOST_CLASSES or programs >= MOST_PROGRAMS:
            found.left_out += 1
            continue
        whole = len(own) <= MOST_EXACT
        program = _Program(own, left, whole=whole)
        for cells, low, high in program.confined(below):
            found.shared.append(Shared(*areas[cells], cells, low, high))
        programs += program.n_solved
        found.solved += whole
        found.bounded += not whole
    return found


def _counted(cells: Cells) -> int:
    return sum(cell >= 0 for cell in cells)


def _fixed(classes: Sequence[Cells], left: Sequence[NDArray[np.int64]]) -> dict[Cells, int]:
    """The classes whose value follows by subtraction alone: the last class of a cell holds what the others leave.

    Args:
        classes: all classes.
        left: what each cell holds; what is fixed is taken away.
    """
    of_cell: dict[tuple[int, int], set[Cells]] = {}
    for cells in classes:
        for s, cell in enumerate(cells):
            if cell >= 0:
                of_cell.setdefault((s, cell), set()).add(cells)
    fixed: dict[Cells, int] = {}
    waiting = [row for row, members in of_cell.items() if len(members) == 1]
    while waiting:
        members = of_cell[waiting[-1]]
        s, cell = waiting.pop()
        if len(members) != 1:
            continue
        cells = next(iter(members))
        fixed[cells] = value = int(left[s][cell])
        for t, other in enumerate(cells):
            if other >= 0:
                left[t][other] -= value
                of_cell[t, other].discard(cells)
                if len(of_cell[t, other]) == 1:
                    waiting.append((t, other))
    return fixed


# ---- classes -------------------------------------------------------------------------------------------------


def _classes(
    ground: Ground, sides: Sequence[Side], values: Sequence[NDArray[np.int64]]
) -> dict[Cells, tuple[int, int]]:
    """Every set of cells that some trip may be counted by, with its nodes.

    The extent of a set is its area times the values that its slice columns leave open, of which one is never listed.
    What exactly these cells share is what they share, less what further cells share with them; a class without extent
    holds no trip and is left out.
    """
    enter, leave = _order(ground.parent)
    n_values = np.max([v.max(axis=0, initial=-1) for v in values], axis=0) + 2
    fixed_by = [[tuple(row) for row in of_layer.tolist()] for of_layer in values]
    held: dict[Cells, tuple[int, int]] = {}
    nothing = (-1,) * len(sides)
    for s, side in enumerate(sides):
        found = dict(held)
        for cell, (o, d) in enumerate(zip(side.origin.tolist(), side.destination.tolist(), strict=True)):
            found[(*nothing[:s], cell, *nothing[s + 1 :])] = (o, d)
        if held:
            overlaps = _overlaps(held, side, s, enter, leave)
            found |= {cells: at for cells, at in overlaps.items() if _joined(cells, fixed_by) is not None}
        held = found
    size, wide = ground.size.tolist(), n_values.tolist()
    exact = {}
    for cells, (o, d) in held.items():
        open_values = [n for n, v in zip(wide, _joined(cells, fixed_by) or (), strict=True) if v < 0]
        exact[cells] = size[o] * size[d] * math.prod(open_values)
    for cells in sorted(held, key=lambda c: -_counted(c)):
        used = [s for s, c in enumerate(cells) if c >= 0]
        for n in range(1, len(used)):
            for kept in combinations(used, n):
                exact[tuple(c if s in kept else -1 for s, c in enumerate(cells))] -= exact[cells]
    return {cells: nodes for cells, nodes in held.items() if exact[cells] > 0}


def _joined(cells: Cells, fixed_by: Sequence[Sequence[tuple[int, ...]]]) -> tuple[int, ...] | None:
    """The values that all cells of a set fix together; None where two of them fix different ones."""
    rows = [fixed_by[s][cell] for s, cell in enumerate(cells) if cell >= 0]
    joined = []
    for column in zip(*rows, strict=True):
        fixed = {value for value in column if value >= 0}
        if len(fixed) > 1:
            return None
        joined.append(fixed.pop() if fixed else -1)
    return tuple(joined)


def _order(parent: Nodes) -> tuple[Nodes, Nodes]:
    """When a walk through the forest enters and leaves each node: a node holds another where its span does."""
    n = len(parent)
    below = np.ones(n, dtype=np.int64)
    for node in range(n - 1, -1, -1):
        if parent[node] >= 0:
            below[parent[node]] += below[node]
    enter, following = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    top = 0
    for node in range(n):
        above = int(parent[node])
        if above < 0:
            enter[node], top = top, top + int(below[node])
        else:
            enter[node] = following[above]
            following[above] += below[node]
        following[node] = enter[node] + 1
    return enter, enter + below


def _overlaps(
    held: dict[Cells, tuple[int, int]], side: Side, s: int, enter: Nodes, leave: Nodes
) -> dict[Cells, tuple[int, int]]:
    """What the cells of one more matrix share with the sets found so far."""
    sets = list(held)
    nodes = np.array([held[cells] for cells in sets], dtype=np.int64)
    by_origin: dict[int, list[int]] = {}
    for i, o in enumerate(nodes[:, 0].tolist()):
        by_origin.setdefault(o, []).append(i)
    of_side: dict[int, list[int]] = {}
    for cell, o in enumerate(side.origin.tolist()):
        of_side.setdefault(o, []).append(cell)
    found: dict[Cells, tuple[int, int]] = {}
    for o, these in by_origin.items():
        for p, those in of_side.items():
            if not _nested(enter, leave, o, p):
                continue
            one, other = nodes[these, 1], side.destination[those]
            inside = (enter[one][:, None] >= enter[other]) & (leave[one][:, None] <= leave[other])
            around = (enter[one][:, None] <= enter[other]) & (leave[one][:, None] >= leave[other])
            smaller_o = o if leave[o] - enter[o] <= leave[p] - enter[p] else p
            for i, j in zip(*(at.tolist() for at in np.nonzero(inside | around)), strict=True):
                cells = sets[these[i]]
                d = int(one[i] if inside[i, j] else other[j])
                found[(*cells[:s], those[j], *cells[s + 1 :])] = (smaller_o, d)
    return found


def _nested(enter: Nodes, leave: Nodes, a: int, b: int) -> bool:
    return bool((enter[a] <= enter[b] and leave[b] <= leave[a]) or (enter[b] <= enter[a] and leave[a] <= leave[b]))


# ---- programmes ----------------------------------------------------------------------------------------------


def _components(members: Sequence[Cells], sides: Sequence[Side]) -> Iterator[list[int]]:
    """Classes that are connected through cells."""
    first = np.concatenate(([0], np.cumsum([len(side.trips) for side in sides]))).tolist()
    above = list(range(first[-1]))

    def top(x: int) -> int:
        while above[x] != x:
            above[x] = above[above[x]]
            x = above[x]
        return x

    for cells in members:
        used = [first[s] + c for s, c in enumerate(cells) if c >= 0]
        for other in used[1:]:
            above[top(other)] = top(used[0])
    found: dict[int, list[int]] = {}
    for i, cells in enumerate(members):
        s, c = next((s, c) for s, c in enumerate(cells) if c >= 0)
        found.setdefault(top(first[s] + c), []).append(i)
    yield from found.values()


class _Program:
    """The sums of the classes of one component, which are not negative."""

    def __init__(self, own: Sequence[Cells], left: Sequence[NDArray[np.int64]], *, whole: bool) -> None:
        from scipy.sparse import csr_matrix

        rows = sorted({(s, c) for cells in own for s, c in enumerate(cells) if c >= 0})
        place = {row: i for i, row in enumerate(rows)}
        at = np.array([(place[s, c], x) for x, cells in enumerate(own) for s, c in enumerate(cells) if c >= 0])
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
        result = milp(cost, constraints=constraints, bounds=Bounds(0, np.inf), integrality=integrality)
        if not result.success:
            return None
        solution: NDArray[np.float64] = result.x
        return solution
