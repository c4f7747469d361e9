"""The depth of the lowest common ancestor of two leaves of a tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Hierarchy, Ints

Depths = NDArray[np.int16]

#: Bits of a word, without its sign.
_WORD = 31


@dataclass(frozen=True, eq=False)
class AncestorDepth:
    """Computes the depth of the lowest common ancestor of two leaves in constant time.

    The path to a leaf is encoded in bits, with enough bits for the largest sibling group of each depth. The highest bit
    in which two paths differ determines the depth; it is read from the exponent of a float. Trees of halves take one
    word per leaf, deep trees more.

    Attributes:
        words: the paths to all leaves, first steps first.
        depths: for each word, the depth by exponent of the difference of two paths; -1 if they are equal.
        deepest: the result for a leaf and itself.
    """

    words: tuple[Ints, ...]
    depths: tuple[Depths, ...]
    deepest: int

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> AncestorDepth:
        """Encodes the paths, depth by depth."""
        words: list[Ints] = []
        depths = [np.full(256, -1, dtype=np.int16)]
        free = _WORD
        path = np.zeros(tree.n_nodes, dtype=np.int32)
        for depth in range(1, tree.max_depth + 1):
            nodes = tree.nodes_at_depth(depth)
            above = tree.parent[nodes]
            # Siblings are adjacent.
            place = np.arange(len(nodes), dtype=np.int32)
            place -= np.maximum.accumulate(np.where(np.append(True, above[1:] != above[:-1]), place, 0))
            bits = int(place.max()).bit_length()
            if bits > free:
                words.append(_on_leaves(tree, path, depth))
                path = np.zeros(tree.n_nodes, dtype=np.int32)
                depths.append(np.full(256, -1, dtype=np.int16))
                free = _WORD
            free -= bits
            path[nodes] = path[above] | (place << free)
            depths[-1][127 + free : 127 + free + bits] = depth - 1
        words.append(_on_leaves(tree, path, tree.max_depth + 1))
        return cls(tuple(words), tuple(depths), tree.max_depth)

    def depth(self, left: Ints, right: Ints) -> Depths:
        """Returns the depth of the lowest common ancestor; the largest depth for a leaf and itself."""
        return self.between([word[left] for word in self.words], [word[right] for word in self.words])

    def between(self, left: list[Ints], right: list[Ints]) -> Depths:
        """Returns the same for encoded paths."""
        met: Depths | None = None
        for one, other, depths in reversed(list(zip(left, right, self.depths, strict=True))):
            differ = one ^ other
            # Keeps the float conversion from rounding up to the next power of two.
            differ &= ~(differ >> 1)
            exponent = differ.astype(np.float32).view(np.int32)
            exponent >>= 23
            here = depths[exponent]
            met = here if met is None else np.where(here < 0, met, here)
        assert met is not None
        met[met < 0] = self.deepest
        return met


def _on_leaves(tree: Hierarchy, path: Ints, depth: int) -> Ints:
    """Returns the paths down to this depth, for all leaves."""
    for d in range(depth, tree.max_depth + 1):
        nodes = tree.nodes_at_depth(d)
        path[nodes] = path[tree.parent[nodes]]
    return path[tree.leaf_node]
