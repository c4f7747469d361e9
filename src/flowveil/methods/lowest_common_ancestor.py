"""Where two leaves of a tree meet."""

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
    """Depth at which two leaves meet, in constant time: the first step at which the ways to them part.

    The way to a leaf is written in bits, so many for each depth as its largest family needs. The highest bit in which
    two ways differ tells the depth, and the exponent of a float is the place of the highest bit. Trees of halves take
    one word a leaf, and two leaves four passes over it; deep trees take more words.

    Attributes:
        words: the ways to all leaves, first steps first.
        depths: for each word, the depth by the exponent of what two ways differ in; -1 where it is nothing.
        deepest: said of a leaf and itself.
    """

    words: tuple[Ints, ...]
    depths: tuple[Depths, ...]
    deepest: int

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> AncestorDepth:
        """Write down the ways, depth by depth."""
        words: list[Ints] = []
        depths = [np.full(256, -1, dtype=np.int16)]
        free = _WORD
        way = np.zeros(tree.n_nodes, dtype=np.int32)
        for depth in range(1, tree.max_depth + 1):
            nodes = tree.nodes_at_depth(depth)
            above = tree.parent[nodes]
            # Siblings stand together.
            place = np.arange(len(nodes), dtype=np.int32)
            place -= np.maximum.accumulate(np.where(np.append(True, above[1:] != above[:-1]), place, 0))
            bits = int(place.max()).bit_length()
            if bits > free:
                words.append(_on_leaves(tree, way, depth))
                way = np.zeros(tree.n_nodes, dtype=np.int32)
                depths.append(np.full(256, -1, dtype=np.int16))
                free = _WORD
            free -= bits
            way[nodes] = way[above] | (place << free)
            depths[-1][127 + free : 127 + free + bits] = depth - 1
        words.append(_on_leaves(tree, way, tree.max_depth + 1))
        return cls(tuple(words), tuple(depths), tree.max_depth)

    def depth(self, left: Ints, right: Ints) -> Depths:
        """Depth of the deepest node that holds both leaves; as deep as any for a leaf and itself."""
        return self.between([word[left] for word in self.words], [word[right] for word in self.words])

    def between(self, left: list[Ints], right: list[Ints]) -> Depths:
        """The same where the ways to both are at hand."""
        met: Depths | None = None
        for one, other, depths in reversed(list(zip(left, right, self.depths, strict=True))):
            differ = one ^ other
            # A number just below a power of two must not be rounded up to it.
            differ &= ~(differ >> 1)
            exponent = differ.astype(np.float32).view(np.int32)
            exponent >>= 23
            here = depths[exponent]
            met = here if met is None else np.where(here < 0, met, here)
        assert met is not None
        met[met < 0] = self.deepest
        return met


def _on_leaves(tree: Hierarchy, way: Ints, depth: int) -> Ints:
    """The ways down to this depth, of all leaves below nodes of it and of those that end above."""
    for d in range(depth, tree.max_depth + 1):
        nodes = tree.nodes_at_depth(d)
        way[nodes] = way[tree.parent[nodes]]
    return way[tree.leaf_node]
