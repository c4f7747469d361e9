"""Hierarchies from tables: nested code columns, or a column with each zone's parent.

Codes are kept. In nested columns the same text in two columns (commune 75056, department 75056)
means different zones; the coarser one gets its column's name as prefix. In a parent table the same
text is the same zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Texts
from flowveil.core.errors import HierarchyError
from flowveil.core.hierarchy import VIRTUAL_ROOT, Hierarchy
from flowveil.zoning.columns import column_of_map


def nested_hierarchy(
    columns: Sequence[Texts], *, levels: Sequence[str], root: str | None = None
) -> Hierarchy:
    """Returns the tree of nested zone codes: ``columns`` has the codes of each row, coarsest level
    first, tiles last.

    Its `Hierarchy.level` is the position in ``levels`` (-1 for the root above them), its root the
    smallest zone that contains all tiles, or ``root`` above several. Tiles keep their codes; a
    coarser level that shares a code with a finer one has all its codes written ``level:code``.
    Raises HierarchyError with all codes that are missing or have two parents.
    """
    texts = [np.asarray(c, dtype=np.str_) for c in columns]
    if not texts or len(texts[-1]) == 0:
        raise HierarchyError("A hierarchy needs at least one row.")
    refuse_missing(texts, levels)
    codes, numbers = zip(*(np.unique(column, return_inverse=True) for column in texts), strict=True)
    problems = []
    for depth in range(1, len(texts)):
        several = _with_several_parents(numbers[depth], numbers[depth - 1])
        if len(several):
            problems.append(
                f"{_count(several, 'code')} of '{levels[depth]}' under several of"
                f" '{levels[depth - 1]}': {examples(codes[depth][several])}"
            )
    if problems:
        raise HierarchyError(
            "A zone can be in one zone only; found "
            + "; ".join(problems)
            + ". Hint: give levels from coarsest to finest, each nested in the one before; where"
            " codes repeat in every coarser zone, put the coarser code in front."
        )
    offset = 1 + np.concatenate(([0], np.cumsum([len(c) for c in codes])))
    parent = np.full(int(offset[-1]), -1, dtype=np.int64)
    parent[1 : offset[1]] = 0
    for depth in range(1, len(texts)):
        parent[offset[depth] + numbers[depth]] = offset[depth - 1] + numbers[depth - 1]
    named, top = _qualified(codes, levels, root)
    tree, _ = Hierarchy.from_parents(
        parent, np.concatenate((np.array([top]), *named)), base_level=-1, kind="table"
    )
    return without_chain_above(tree)


def parent_hierarchy(tile: Texts, parent: Texts, *, root: str | None = None) -> Hierarchy:
    """Returns the tree of a table with the parent of each zone.

    Zones without children are the tiles.

    A parent is a zone or an empty text; ``root`` is the code of a root above several zones without
    a parent. Raises HierarchyError if a zone has two parents or is its own ancestor, or if several
    have no parent and ``root`` is missing.
    """
    tile, parent = np.asarray(tile, dtype=np.str_), np.asarray(parent, dtype=np.str_)
    if len(tile) == 0:
        raise HierarchyError("A hierarchy needs at least one row.")
    refuse_missing([tile], ["zone"])
    code, number = np.unique(np.concatenate((tile, parent[parent != ""])), return_inverse=True)
    row = number[: len(tile)]
    above = np.full(len(tile), -1, dtype=np.int64)
    above[parent != ""] = number[len(tile) :]
    several = _with_several_parents(row, above)
    if len(several):
        raise HierarchyError(
            f"A zone can be in one zone only; found {_count(several, 'zone')} with several parents:"
            f" {examples(code[several])}. Hint: a zone may have several rows, all with the same"
            " parent."
        )
    up = np.full(len(code), -1, dtype=np.int64)
    up[row] = above
    _refuse_cycles(up, code)
    tops = np.flatnonzero(up < 0)
    if len(tops) == 1:
        tree, _ = Hierarchy.from_parents(up, code, kind="table")
        return without_chain_above(tree)
    if root is None:
        raise HierarchyError(_several_roots(tops, up, row, code))
    _refuse_root(root, code)
    up[tops] = len(code)
    tree, _ = Hierarchy.from_parents(
        np.append(up, -1), np.append(code, np.array([root])), base_level=-1, kind="table"
    )
    return without_chain_above(tree)


def without_chain_above(tree: Hierarchy) -> Hierarchy:
    """Makes the smallest node that contains all tiles the root; levels stay the same."""
    skipped = chain_above(tree.n_children)
    if skipped == 0:
        return tree
    parent = tree.parent[skipped:] - skipped
    parent[0] = -1
    return replace(
        tree, parent=parent, code=tree.code[skipped:], base_level=tree.base_level + skipped
    )


def chain_above(n_children: NDArray[Any]) -> int:
    """Returns the number of nodes with a single child from the root on.

    In pre-order they are the first nodes.
    """
    return int(np.argmax(n_children != 1))


def positions(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the position of each wanted value among distinct known ones; -1 if it is missing."""
    order = np.argsort(known, kind="stable")
    at = order[np.searchsorted(known, wanted, sorter=order).clip(max=len(known) - 1)]
    return np.where(known[at] == wanted, at, -1)


def by_first(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns where each distinct value, or row, first occurs, ascending.

    And the number of each one in that order.
    """
    _, first, distinct = np.unique(values, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return np.sort(first), rank[distinct.ravel()]


def first_of_runs(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the positions at which a new value begins in an ordered array."""
    opens = np.ones(len(ordered), dtype=np.bool_)
    opens[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(opens)


def examples(codes: Texts, *, most: int = 5) -> str:
    """Returns the first few codes in text order, for a message. Zones are places, never persons."""
    shown = np.unique(np.asarray(codes, dtype=np.str_))
    listed = ", ".join(f"'{c}'" for c in shown[:most].tolist())
    return f"{listed} and {len(shown) - most} more" if len(shown) > most else listed


def _count(items: NDArray[Any], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def refuse_missing(columns: Sequence[Texts], levels: Sequence[str]) -> None:
    """Raises HierarchyError for rows without a code at one of the levels.

    The last are the tiles.
    """
    problems = []
    tiles = columns[-1]
    empty = np.flatnonzero(tiles == "")
    if len(empty):
        rows = ", ".join(str(i + 1) for i in empty[:5].tolist())
        problems.append(f"{_count(empty, 'row')} without a code in '{levels[-1]}' (rows {rows})")
    for column, level in zip(columns[:-1], levels, strict=False):
        orphans = tiles[(column == "") & (tiles != "")]
        if len(orphans):
            problems.append(
                f"{_count(orphans, 'row')} without a '{level}' (orphans): {examples(orphans)}"
            )
    if problems:
        raise HierarchyError(
            "Every tile needs a code at every level; found "
            + "; ".join(problems)
            + ". Hint: fill them in, remove those rows, or leave that level out."
        )


def _with_several_parents(child: NDArray[np.int64], parent: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.lexsort((parent, child))
    child, parent = child[order], parent[order]
    differs = (child[1:] == child[:-1]) & (parent[1:] != parent[:-1])
    return np.unique(child[1:][differs])


def _refuse_cycles(up: NDArray[np.int64], code: Texts) -> None:
    """Raises HierarchyError for cycles. After n steps up, every zone is at a root or on a cycle."""
    jump = np.where(up < 0, np.arange(len(up)), up)
    for _ in range(len(up).bit_length()):
        jump = jump[jump]
    on_cycle = np.unique(jump[up[jump] >= 0])
    if len(on_cycle):
        raise HierarchyError(
            f"The parents form a cycle: {_count(on_cycle, 'zone')} would contain themselves: "
            f"{examples(code[on_cycle])}. Hint: leave the parent of the topmost zone empty."
        )


def _several_roots(
    tops: NDArray[np.int64], up: NDArray[np.int64], row: NDArray[np.int64], code: Texts
) -> str:
    has_row, has_children = np.isin(np.arange(len(code)), row), np.isin(np.arange(len(code)), up)
    kinds = (
        ("tile", "without a parent (orphans)", ~has_children),
        ("zone", "with rows but no parent", has_children & has_row),
        ("zone", "named as parents only", ~has_row),
    )
    groups = [(noun, what, tops[mask[tops]]) for noun, what, mask in kinds]
    found = "; ".join(
        f"{_count(g, noun)} {what}: {examples(code[g])}" for noun, what, g in groups if len(g)
    )
    return (
        f"The table has {len(tops)} roots; exactly one is allowed. Found {found}. Hint:"
        f" {column_of_map('root', VIRTUAL_ROOT)} puts one root above them."
    )


def _qualified(
    codes: Sequence[Texts], levels: Sequence[str], root: str | None
) -> tuple[list[Texts], str]:
    """Returns codes that no two levels share, and the root's. Tiles keep theirs."""
    taken = codes[-1]
    named = [taken]
    for level, column in zip(reversed(levels[:-1]), reversed(codes[:-1]), strict=True):
        own = column
        while len(np.intersect1d(own, taken, assume_unique=True)):
            own = np.char.add(f"{level}:", own)
        taken = np.concatenate((taken, own))
        named.insert(0, own)
    if root is not None:
        _refuse_root(root, taken)
        return named, root
    top = VIRTUAL_ROOT
    while np.any(taken == top):
        top = f"root:{top}"
    return named, top


def _refuse_root(root: str, taken: Texts) -> None:
    if np.any(taken == root):
        raise HierarchyError(
            f"The root above several zones cannot be called '{root}': a zone is. Hint: give root"
            " another name."
        )
