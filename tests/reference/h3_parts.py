"""Parts of H3 cells, by their codes: which children they hold."""

from __future__ import annotations

from typing import Any

import h3.api.basic_int as h3_int
import numpy as np

#: The parts that contain the child of each digit, from the smallest up.
_PARTS_OF_CHILD = {
    0: ("04", "0246"),
    4: ("04", "0246"),
    2: ("26", "0246"),
    6: ("26", "0246"),
    1: ("13", "135"),
    3: ("13", "135"),
    5: ("135",),
}


#: The digits of every part there is, and of those of pentagons, which have no child 1; numbered
#: from 1 on.
PARTS = ("04", "26", "0246", "13", "135", "35")
#: Base cells of H3 that are pentagons.
PENTAGONS = (4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117)


def _part_numbers(*, pentagon: bool) -> Any:
    """For each digit of a child, the numbers of its small and of its large part; 0 without one."""
    numbers = np.zeros((2, 8), dtype=np.uint64)
    for digit, names in _PARTS_OF_CHILD.items():
        kept = [name.replace("1", "") if pentagon else name for name in names]
        for name in kept:
            if len(name) > 1:
                numbers[int(name == kept[-1]), digit] = PARTS.index(name) + 1
    return numbers


_OF_HEXAGONS, _OF_PENTAGONS = _part_numbers(pentagon=False), _part_numbers(pentagon=True)


def parts_above(cells: Any, resolution: int) -> tuple[Any, Any, Any]:
    """The parents of cells of one resolution, and the numbers of the small and of the large part
    between.

    From the bits of a cell: four for its resolution, then seven for the base cell and three for
    each resolution, all set below its own.
    """
    shift = np.uint64(3 * (15 - resolution))
    digit = (cells >> shift & np.uint64(7)).astype(np.int64)
    parents = cells & np.uint64(~(15 << 52) & 0xFFFFFFFFFFFFFFFF) | np.uint64(resolution - 1 << 52)
    parents |= np.uint64(7) << shift
    central = parents << np.uint64(19) >> (np.uint64(19) + shift + np.uint64(3)) == 0
    pentagon = central & np.isin(parents >> np.uint64(45) & np.uint64(127), PENTAGONS)
    small, large = np.where(pentagon, _OF_PENTAGONS[:, digit], _OF_HEXAGONS[:, digit])
    return parents, small, large


def hexadecimal(cells: Any) -> Any:
    """Cells as sixteen hexadecimal digits, the first of them 0, for a whole array."""
    digits = np.frombuffer(cells.astype(">u8").tobytes().hex().encode(), dtype="S1").reshape(-1, 16)
    return np.ascontiguousarray(digits[:, 1:]).view("S15").ravel().astype(np.str_)


def numbers_of(codes: Any) -> Any:
    """The inverse of `hexadecimal`, for a whole array."""
    digits = np.full((len(codes), 16), ord("0"), dtype=np.uint8)
    digits[:, 1:] = np.ascontiguousarray(codes.astype("S15")).view(np.uint8).reshape(-1, 15)
    return np.frombuffer(bytes.fromhex(digits.tobytes().decode("ascii")), dtype=">u8").astype(
        np.uint64
    )


def parts_around(cell: int, parent: int, resolution: int) -> list[str]:
    """The codes of the parts of a parent that contain a child, from the smallest up."""
    names = _PARTS_OF_CHILD[cell >> 3 * (15 - resolution) & 7]
    if h3_int.is_pentagon(parent):
        names = tuple(name.replace("1", "") for name in names)
    return [f"{parent:x}.{name}" for name in names if len(name) > 1]


def cells_in(code: str) -> list[int]:
    """The H3 cells that a code names, in increasing order.

    A cell, or the children that make a part; else nothing.
    """
    name, dot, digits = code.partition(".")
    try:
        cell = int(name, 16)
    except ValueError:
        return []
    # A code of a user's map may be any number in this form.
    if not 0 < cell < 1 << 63 or format(cell, "x") != name or not h3_int.is_valid_cell(cell):
        return []
    if not dot:
        return [cell]
    finer = h3_int.get_resolution(cell) + 1
    if finer > 15:
        return []
    children = sorted(h3_int.cell_to_children(cell, finer))
    named = [child for child in children if code in parts_around(child, cell, finer)]
    return named if len(named) == len(digits) else []
