"""The tree over the tiles, in flat arrays.

Nodes are in depth-first pre-order, so the subtree of a node and the leaves below it are slices. A
sum over a node is a difference of two prefix sums, and generalising a tile is one array look-up.

Coordinates are not part of the tree but of its `Geography`, which the builders in `flowveil.zoning`
attach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowveil.core.arrays import Floats, Ints, repr_of_sizes
from flowveil.core.errors import HierarchyError

#: Code of a root above several trees.
VIRTUAL_ROOT = "all"
#: Code of the tile for everything outside a study area, and its number among H3 cells: above all
#: valid cells.
OUTSIDE = "outside"
OUTSIDE_CELL = 0x78FFFFFFFFFFFFFF
#: Suffix of the code for each part of an H3 cell: the digits of its children, ascending. The number
#: of a part is stored in the three bits that H3 reserves (0: the cell itself). The last part is
#: that of a pentagon, which has no child 1.
H3_PARTS = ("", ".0246", ".135", ".04", ".26", ".13", ".35")
H3_PART_SHIFT = 56


class Geography(Protocol):
    """Coordinates of the nodes of a hierarchy. Results are in the order of the given nodes."""

    def centers(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of each node's centre, in degrees (WGS 84)."""
        ...

    def areas_km2(self, nodes: Ints) -> Floats:
        """Returns the area of each node in square kilometres."""
        ...

    def polygons(self, nodes: Ints) -> NDArray[np.object_]:
        """Returns a shapely geometry for each node (longitude, latitude)."""
        ...


def _read_only(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    array = np.array(values, dtype=dtype, copy=True, order="C")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """A rooted tree; its leaves are the tiles, numbered 0..n_tiles in node order.

    Attributes:
        parent: int32; the root is node 0 with -1, otherwise ``parent[v] < v``.
        code: unique codes, uint64 (H3) or text. All builders in flowveil order siblings by code.
        base_level: `level` of the root (the resolution of an H3 root, -1 for a virtual root above
            several base cells).
        names: names of the nodes for people, if the map has them; empty texts for missing ones.
        kind: ``"h3"``, ``"halves"`` (with parts of cells between), ``"table"``, ``"dendrogram"`` or
            ``"tree"``.
        levels: int32; the level of each node if it differs from its depth: a part of a zone has the
            level of the zone.
        depth: int16; that of the parent plus one.
        stop: int32; the subtree of v is the slice ``v:stop[v]``.
        leaf_start, leaf_stop: int32; the leaves below v are that slice of the leaf order.

    The arrays are validated, copied and made read-only on construction.
    """

    __repr__ = repr_of_sizes

    parent: Ints
    code: NDArray[Any]
    base_level: int = 0
    geography: Geography | None = None
    kind: str = "tree"
    levels: Ints | None = None
    names: NDArray[np.str_] | None = None
    depth: NDArray[np.int16] = field(init=False)
    stop: Ints = field(init=False)
    leaf_start: Ints = field(init=False)
    leaf_stop: Ints = field(init=False)

    def __post_init__(self) -> None:
        parent = _read_only(self.parent, np.int32)
        n = len(parent)
        if n == 0:
            raise HierarchyError(
                "The hierarchy has no nodes. Found none, at least a root is needed."
            )
        if parent[0] != -1:
            raise HierarchyError("Node 0 must be the root: its parent must be -1.")
        if np.any(parent[1:] < 0):
            raise HierarchyError(
                f"The hierarchy has {1 + int(np.sum(parent[1:] < 0))} roots; exactly one is"
                " allowed. Hint: put one root above them."
            )
        if np.any(parent[1:] >= np.arange(1, n)):
            raise HierarchyError(
                "Nodes are not in pre-order: a parent must come before its children."
            )
        code = self._checked_codes(n)
        if self.names is not None and len(self.names) != n:
            raise HierarchyError(
                f"{n} nodes but {len(self.names)} names; one name for each node is needed."
            )
        depth, stop = _depth_and_stop(parent)
        is_leaf = stop == np.arange(1, n + 1)
        before = np.concatenate(([0], np.cumsum(is_leaf)))
        for name, values, dtype in (
            ("parent", parent, np.int32),
            ("code", code, code.dtype),
            ("depth", depth, np.int16),
            ("stop", stop, np.int32),
            ("leaf_start", before[:-1], np.int32),
            ("leaf_stop", before[stop], np.int32),
        ):
            object.__setattr__(self, name, _read_only(values, dtype))

    def _checked_codes(self, n: int) -> NDArray[Any]:
        code = np.asarray(self.code)
        if code.dtype.kind not in "uU":
            code = code.astype(np.str_) if code.dtype.kind in "OST" else code.astype(np.uint64)
        if len(code) != n:
            raise HierarchyError(
                f"{n} nodes but {len(code)} codes; one code for each node is needed."
            )
        ordered = np.sort(code)
        twice = int(np.sum(ordered[1:] == ordered[:-1]))
        if twice:
            raise HierarchyError(f"Duplicate codes: {twice}; every node needs a distinct code.")
        return code

    # ---- size ------------------------------------------------------------------------------------

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.parent)

    @property
    def n_tiles(self) -> int:
        """Number of leaves."""
        return int(self.leaf_stop[0])

    @property
    def is_whole_h3(self) -> bool:
        """Whether every node is an H3 cell, none a part of one."""
        return self.kind == "h3" and self.code.dtype == np.uint64

    @property
    def is_dendrogram(self) -> bool:
        """Whether the tree was built from the centres of its tiles."""
        return self.kind == "dendrogram"

    @property
    def is_table(self) -> bool:
        """Whether the tree comes from columns of a user's map."""
        return self.kind == "table"

    @cached_property
    def size(self) -> Ints:
        """Tiles below each node; 1 for a leaf."""
        return _read_only(self.leaf_stop - self.leaf_start, np.int32)

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Whether each node is a tile."""
        return _read_only(self.n_children == 0, np.bool_)

    @cached_property
    def leaf_node(self) -> Ints:
        """The node of each tile."""
        return _read_only(np.flatnonzero(self.is_leaf), np.int32)

    @cached_property
    def n_children(self) -> Ints:
        """Children of each node; 0 for a leaf."""
        return _read_only(np.bincount(self.parent[1:], minlength=self.n_nodes), np.int32)

    @cached_property
    def level(self) -> Ints:
        """Depth counted from `base_level`, or `levels` if set: the resolution, for H3."""
        return _read_only(
            self.depth.astype(np.int32) + self.base_level if self.levels is None else self.levels,
            np.int32,
        )

    @cached_property
    def code_rank(self) -> Ints:
        """Rank of each node's code among all codes, for ties."""
        rank = np.empty(self.n_nodes, dtype=np.int32)
        rank[np.argsort(self.code)] = np.arange(self.n_nodes, dtype=np.int32)
        return _read_only(rank, np.int32)

    # ---- sums and cuts ---------------------------------------------------------------------------

    def sum_over(self, per_tile: NDArray[Any]) -> NDArray[Any]:
        """Returns the sum of a tile value over every node, by prefix sums (exact for counts and
        fixed point).
        """
        dtype = np.float64 if per_tile.dtype.kind == "f" else np.int64
        total = np.concatenate((np.zeros(1, dtype=dtype), np.cumsum(per_tile, dtype=dtype)))
        return total[self.leaf_stop] - total[self.leaf_start]

    def nodes_at_depth(self, depth: int) -> Ints:
        """Returns the nodes of one depth, in node order."""
        return self._by_depth[depth]

    @cached_property
    def _by_depth(self) -> list[Ints]:
        return [nodes.astype(np.int32) for nodes in _layers(self.depth)]

    @cached_property
    def max_depth(self) -> int:
        """Depth of the deepest tile."""
        return int(self.depth.max())

    def lift(self, nodes: Ints) -> Ints:
        """Returns the parents of these nodes; the root is its own parent."""
        return np.maximum(self.parent[nodes], 0)

    def cut_from_merged(self, merged: NDArray[np.bool_]) -> Ints:
        """Returns the topmost merged nodes, in node order.

        Disjoint leaf slices that cover all tiles.

        Below a merged node, whose children are one zone, all inner nodes must be merged; leaves
        count as merged.
        """
        closed = merged | self.is_leaf
        top = closed.copy()
        top[1:] &= ~closed[self.parent[1:]]
        return np.flatnonzero(top).astype(np.int32)

    def zone_of_tile(self, cut: Ints) -> Ints:
        """Returns the position in ``cut`` of the zone of each tile."""
        return np.repeat(np.arange(len(cut), dtype=np.int32), self.size[cut])

    @cached_property
    def narrowest(self) -> Ints:
        """For each node the deepest node with the same tiles.

        The end of its chain of single children.
        """
        nodes = np.where(self.n_children == 1, self.n_nodes, np.arange(self.n_nodes))
        return _read_only(np.minimum.accumulate(nodes[::-1])[::-1], np.int32)

    def check_cut(self, cut: Ints) -> None:
        """Raises HierarchyError unless these nodes are disjoint, in node order, and cover every
        tile.
        """
        start, stop = self.leaf_start[cut], self.leaf_stop[cut]
        if (
            len(cut) == 0
            or start[0] != 0
            or stop[-1] != self.n_tiles
            or np.any(start[1:] != stop[:-1])
        ):
            raise HierarchyError(
                "These nodes are not a cut: they must be disjoint and cover every tile."
            )

    def code_text(self, nodes: Ints) -> NDArray[np.str_]:
        """Returns published codes: hexadecimal for H3, 'all' for a virtual root, 'outside', else
        the given code.

        A part of an H3 cell is the cell, a dot and the digits of its children.
        """
        code = self.code[nodes]
        if code.dtype.kind == "U":
            return code
        part = code >> np.uint64(H3_PART_SHIFT) & np.uint64(7 if self.kind == "halves" else 0)
        cell = code ^ part << np.uint64(H3_PART_SHIFT)
        special = {0: VIRTUAL_ROOT, OUTSIDE_CELL: OUTSIDE}
        named = [
            special.get(c) or f"{c:x}{H3_PARTS[p]}"
            for c, p in zip(cell.tolist(), part.tolist(), strict=True)
        ]
        return np.array(named, dtype=np.str_)

    @cached_property
    def node_of_code(self) -> dict[str, int]:
        """The node of each published code."""
        codes = self.code_text(np.arange(self.n_nodes, dtype=np.int32)).tolist()
        return {code: node for node, code in enumerate(codes)}

    # ---- builders --------------------------------------------------------------------------------

    @classmethod
    def from_parents(
        cls, parent: ArrayLike, code: ArrayLike, *, base_level: int = 0, kind: str = "tree"
    ) -> tuple[Hierarchy, Ints]:
        """Builds a hierarchy from the position of the parent of each item (-1.

        Root) and codes, in any order.

        Siblings are ordered by code. Returns the hierarchy and, for each item, its node. Raises
        HierarchyError for several roots, no root, or a cycle.
        """
        up = np.asarray(parent, dtype=np.int64)
        names = np.asarray(code)
        n = len(up)
        roots = np.flatnonzero(up < 0)
        if len(roots) != 1:
            raise HierarchyError(f"The hierarchy has {len(roots)} roots; exactly one is allowed.")
        if np.any(up >= n):
            raise HierarchyError("A parent is named that is not among the nodes (orphan).")
        depth = _depth_of(up)
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(names, kind="stable")] = np.arange(n)
        subtree = _subtree_sizes(up, depth)
        node = np.zeros(n, dtype=np.int64)
        for layer in _layers(depth)[1:]:
            order = layer[np.lexsort((rank[layer], up[layer]))]
            ahead = np.concatenate(([0], np.cumsum(subtree[order])[:-1]))
            first = np.concatenate(([True], up[order][1:] != up[order][:-1]))
            ahead -= np.maximum.accumulate(np.where(first, ahead, 0))
            node[order] = node[up[order]] + 1 + ahead
        position = np.empty(n, dtype=np.int64)
        position[node] = np.arange(n)
        new_parent = np.where(up[position] < 0, -1, node[np.maximum(up[position], 0)])
        tree = cls(
            parent=new_parent.astype(np.int32),
            code=names[position],
            base_level=base_level,
            kind=kind,
        )
        return tree, node.astype(np.int32)


def _depth_of(up: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the depth of each item by pointer doubling, in O(log depth) passes.

    Detects cycles.
    """
    n = len(up)
    depth = (up >= 0).astype(np.int64)
    jump = np.where(up < 0, np.arange(n), up)
    for _ in range(max(1, n.bit_length() + 1)):
        if np.all(up[jump] < 0):
            return depth
        depth = depth + depth[jump]
        jump = jump[jump]
    raise HierarchyError(
        f"{int(np.sum(up[jump] >= 0))} nodes are their own ancestors: the parents form a cycle."
    )


def _layers(depth: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Returns the items of each depth, root first, each layer in item order."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1])


def _subtree_sizes(parent: NDArray[Any], depth: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the number of nodes below each node, itself included."""
    size = np.ones(len(parent), dtype=np.int64)
    for layer in reversed(_layers(depth)[1:]):
        np.add.at(size, parent[layer], size[layer])
    return size


def _depth_and_stop(parent: Ints) -> tuple[Ints, Ints]:
    """Returns depth and end of the subtree of every node.

    Raises if the order is not depth-first.
    """
    n = len(parent)
    depth = _depth_of(parent.astype(np.int64)).astype(np.int32)
    if n > 1 and int(depth.max()) > np.iinfo(np.int16).max:
        raise HierarchyError(
            f"The hierarchy is {int(depth.max())} levels deep; at most 32,767 are allowed."
        )
    # The order is depth-first exactly if every subtree is inside that of its parent.
    stop = np.arange(n) + _subtree_sizes(parent, depth)
    if np.any(stop[1:] > stop[parent[1:]]):
        raise HierarchyError("Nodes are not in depth-first pre-order.")
    return depth, stop.astype(np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class PlaceCounts:
    """Number of listed places in each tile that holds any, sorted by code.

    Locations counted by places, not tiles.
    """

    code: NDArray[np.str_]
    count: NDArray[np.int64]

    def rows(self, tree: Hierarchy, tile: Ints, most: int) -> tuple[Ints, Ints]:
        """For each of these tiles, its place in their order and the number of a listed place in it,
        one row each.

        Different tiles have different places. At most ``most`` places of a tile are listed: the
        largest threshold.
        """
        own = tree.code_text(tree.leaf_node)
        at = np.searchsorted(self.code, own).clip(max=len(self.code) - 1)
        held = np.minimum(np.where(self.code[at] == own, self.count[at], 0), most)
        first, of_each = np.cumsum(held) - held, held[tile]
        row = np.repeat(np.arange(len(tile), dtype=np.int32), of_each)
        within = np.arange(len(row)) - np.repeat(np.cumsum(of_each) - of_each, of_each)
        return row, (first[tile[row]] + within).astype(np.int32)
