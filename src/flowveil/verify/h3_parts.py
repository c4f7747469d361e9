"""Parts of H3 cells, by their codes: which children they hold, and how many tiles there could be in them."""

from __future__ import annotations

import h3.api.basic_int as h3_int

#: The parts that the child of each digit lies in, from the smallest up.
_PARTS_OF_CHILD = {
    0: ("04", "0246"),
    4: ("04", "0246"),
    2: ("26", "0246"),
    6: ("26", "0246"),
    1: ("13", "135"),
    3: ("13", "135"),
    5: ("135",),
}


def parts_around(cell: int, parent: int, resolution: int) -> list[str]:
    """The codes of the parts of a parent that a child lies in, from the smallest up."""
    names = _PARTS_OF_CHILD[cell >> 3 * (15 - resolution) & 7]
    if h3_int.is_pentagon(parent):
        names = tuple(name.replace("1", "") for name in names)
    return [f"{parent:x}.{name}" for name in names if len(name) > 1]


def cells_in(code: str) -> list[int]:
    """The H3 cells that a code names, in increasing order: a cell, or the children that make a part; else nothing."""
    name, dot, digits = code.partition(".")
    try:
        cell = int(name, 16)
    except ValueError:
        return []
    # A code of somebody's own map may be any number in this form.
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


def possible_tiles(code: str, resolution: int) -> int:
    """How many cells of a resolution there are in what a code names."""
    if code == "all":
        return int(h3_int.get_num_cells(resolution))
    return sum(h3_int.cell_to_children_size(cell, resolution) for cell in cells_in(code))
