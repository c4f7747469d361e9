"""Bounds of what the cells of several matrices share, by linear programmes.

Two homogeneous matrices have a closed form (`flowveil.audit.blocks`); three, or nested zones, have none. Here the
unknowns are classes of trips: those that the same published cells count, one cell a matrix at most. Each published cell
says what its classes sum to. Cells that share no class, not even through others, have nothing to do with each other, so
each connected component is solved alone, with HiGHS. One solution clears every class that it leaves empty, or fills up
to the guarantee; only what no solution clears is bounded one by one.

Guaranteed: bounds hold for all whole numbers that give the published tables. What is not listed is only known not to be
negative, so bounds may be wider than the best, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.blocks import Side
from flowveil.audit.zone_forest import Ground, Nodes

#: A component of more classes is left to subtraction of whole cells, and that is said.
MOST_CLASSES = 2_000
_ROUNDING = 1e-6

#: The cell of each matrix that counts a class; -1 for none.
Cells = tuple[int, ...]


@dataclass(frozen=True)
class Shared:
    """A class of trips that is confined: the nodes that it lies in, the cell of each matrix (or -1), and its bounds."""

    origin: int
    destination: int
    cells: Cells
    low: int
    high: int


def confined_components(ground: Ground, sides: Sequence[Side], below: int) -> Iterator[Shared | None]:
    """The classes that these matrices of the same trips confine; None for each component that is too large."""
    areas = _classes(ground, sides)
    left = [side.trips.astype(np.int64).copy() for side in sides]
    fixed = _fixed(list(areas), left)
    for cells, value in fixed.items():
        if 0 < value < below:
            yield Shared(*areas[cells], cells, value, value)
    members = sorted(cells for cells in areas if cells not in fixed)
    for component in _components(members, sides):
        own = [members[i] for i in component]
        if len(own) > MOST_CLASSES:
            yield None
            continue
        for cells, low, high in _confined(own, left, below):
            yield Shared(*areas[cells], cells, low, high)


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


def _classes(ground: Ground, sides: Sequence[Side]) -> dict[Cells, tuple[int, int]]:
    """Every set of cells that some place may be counted by, with the nodes that it lies in.

    The area that exactly these cells share is what they share, less what further cells share with them; a class without
    area holds no trip and is left out.
    """
    enter, leave = _order(ground.parent)
    held: dict[Cells, tuple[int, int]] = {}
    nothing = (-1,) * len(sides)
    for s, side in enumerate(sides):
        found = dict(held)
        for cell, (o, d) in enumerate(zip(side.origin.tolist(), side.destination.tolist(), strict=True)):
            found[(*nothing[:s], cell, *nothing[s + 1 :])] = (o, d)
        if held:
            found |= _overlaps(held, side, s, enter, leave)
        held = found
    size = ground.size.tolist()
    exact = {cells: size[o] * size[d] for cells, (o, d) in held.items()}
    for cells in sorted(held, key=lambda c: -_counted(c)):
        used = [s for s, c in enumerate(cells) if c >= 0]
        for n in range(1, len(used)):
            for kept in combinations(used, n):
                exact[tuple(c if s in kept else -1 for s, c in enumerate(cells))] -= exact[cells]
    return {cells: nodes for cells, nodes in held.items() if exact[cells] > 0}


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


def _confined(own: Sequence[Cells], left: Sequence[NDArray[np.int64]], below: int) -> Iterator[tuple[Cells, int, int]]:
    """The classes of a component that are confined, with their bounds."""
    rows = sorted({(s, c) for cells in own for s, c in enumerate(cells) if c >= 0})
    place = {row: i for i, row in enumerate(rows)}
    at = [(place[s, c], x) for x, cells in enumerate(own) for s, c in enumerate(cells) if c >= 0]
    value = np.array([left[s][c] for s, c in rows], dtype=np.float64)
    programme = _Programme(at, value, len(own))
    candidates = np.ones(len(own), dtype=np.bool_)
    for sign in (1.0, -1.0):
        while candidates.any():
            x = programme.solve(np.where(candidates, sign, 0.0))
            if x is None:
                return
            cleared = candidates & ((x < 1 - _ROUNDING) if sign > 0 else (x > below - 1 + _ROUNDING))
            if not cleared.any():
                break
            candidates &= ~cleared
    for i in np.flatnonzero(candidates).tolist():
        alone = np.zeros(len(own))
        alone[i] = 1.0
        smallest, largest = programme.solve(alone), programme.solve(-alone)
        if smallest is None or largest is None:
            return
        low, high = math.ceil(smallest[i] - _ROUNDING), math.floor(largest[i] + _ROUNDING)
        if low > 0 and high < below:
            yield own[i], low, high


class _Programme:
    """Whole sums of classes that are not negative."""

    def __init__(self, at: Sequence[tuple[int, int]], value: NDArray[np.float64], n: int) -> None:
        from scipy.sparse import csr_matrix

        row, column = np.array(at).T
        self.sums: Any = csr_matrix((np.ones(len(at)), (row, column)), shape=(len(value), n))
        self.value = value

    def solve(self, cost: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """A solution of least cost; None where the matrices contradict each other."""
        from scipy.optimize import linprog

        result = linprog(cost, A_eq=self.sums, b_eq=self.value, bounds=(0, None), method="highs")
        if not result.success:
            return None
        solution: NDArray[np.float64] = result.x
        return solution
