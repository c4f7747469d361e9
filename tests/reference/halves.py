"""Halves, as the agreement says them: an H3 cell's children by their digits, two parts, two of
these, single children.

Slow and obvious: strings and sets, cell by cell.
"""

from __future__ import annotations

import h3.api.basic_str as h3

#: The parts of a cell, from the largest down.
PARTS = ({0, 4, 6, 2}, {3, 1, 5}, {0, 4}, {6, 2}, {3, 1}, {5})


def digit(cell: str) -> int:
    """Which child of its parent a cell is."""
    return int(cell, 16) >> 3 * (15 - h3.get_resolution(cell)) & 7


def path(cell: str) -> list[str]:
    """The codes from a cell up to its parent: the cell, its parts, the parent."""
    parent = h3.cell_to_parent(cell)
    siblings = {digit(c) for c in h3.cell_to_children(parent)}
    found = [cell]
    for part in reversed(PARTS):
        there = part & siblings
        if digit(cell) in there and len(there) > 1:
            found.append(f"{parent}." + "".join(map(str, sorted(there))))
    return [*found, parent]


def climb(tile: str) -> list[str]:
    """Every code above a tile, itself first, a base cell last."""
    found = [tile]
    while h3.get_resolution(found[-1]) > 0:
        found += path(found[-1])[1:]
    return found


def cells_of(code: str) -> set[str]:
    """The H3 cells that a code means."""
    cell, _, digits = code.partition(".")
    if not digits:
        return {cell}
    return {c for c in h3.cell_to_children(cell) if str(digit(c)) in digits}
