"""Everything outside a study area as one tile, `outside`.

The last leaf of a tree, directly below its root.

Keeps trips that cross the border of the area: the part beyond it is one tile without a position. It
is merged with tiles of the area only in the root, `all`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints
from flowveil.core.errors import DataError, HierarchyError
from flowveil.core.hierarchy import OUTSIDE, OUTSIDE_CELL, VIRTUAL_ROOT, Hierarchy


@dataclass(frozen=True, eq=False)
class Beyond:
    """Geography of a tree with `outside`, which has no position.

    That of the tree without it, ``inside``.

    ``shift`` is the number of nodes added above it: 1 if the root is new.
    """

    inside: Hierarchy
    shift: int

    def centers(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of each node's centre; NaN for `outside`."""
        lat, lon = self._filled("centers", nodes, np.full((2, len(nodes)), np.nan))
        return lat, lon

    def areas_km2(self, nodes: Ints) -> Floats:
        """Returns the area of each node; NaN for `outside`."""
        return self._filled("areas_km2", nodes, np.full(len(nodes), np.nan))

    def polygons(self, nodes: Ints) -> NDArray[np.object_]:
        """Returns the outline of each node; None for `outside`."""
        return self._filled("polygons", nodes, np.full(len(nodes), None, dtype=object))

    def _filled(self, what: str, nodes: Ints, values: NDArray[Any]) -> NDArray[Any]:
        """Fills in what the tree without `outside` says of its nodes; nothing on a map without
        places.
        """
        if self.inside.geography is None:
            return values
        known = nodes != self.inside.n_nodes + self.shift
        inner = np.maximum(nodes[known] - self.shift, 0).astype(np.int32)
        values[..., known] = getattr(self.inside.geography, what)(inner)
        return values


def has_outside(tree: Hierarchy) -> bool:
    """Returns whether one of the tiles is `outside`."""
    return isinstance(tree.geography, Beyond)


def inside_of(tree: Hierarchy) -> Hierarchy:
    """Returns the tree without `outside`."""
    return tree.geography.inside if isinstance(tree.geography, Beyond) else tree


def with_outside(tree: Hierarchy) -> Hierarchy:
    """Returns a tree that reaches to the top of its map with `outside` as its last tile, below a
    virtual root.

    Raises DataError if the map has a zone of that name, and HierarchyError if an H3 tree does not
    reach to the top.
    """
    if has_outside(tree):
        return tree
    is_text = tree.code.dtype.kind == "U"
    top = VIRTUAL_ROOT if is_text else 0
    shift = int(tree.code[0] != top)
    if shift and not is_text:
        raise HierarchyError("The tile 'outside' needs a virtual root; this tree has none.")
    taken = {OUTSIDE, *([VIRTUAL_ROOT] if shift else [])} & set(
        tree.code.tolist() if is_text else ()
    )
    if taken:
        raise DataError(
            f"The map has a zone {' and one '.join(sorted(taken))}, which is the name of everything"
            " outside the area. Hint: give that zone another code."
        )
    above = np.arange(shift, dtype=np.int32) - 1
    # The last node, below the root.
    parent = np.concatenate(
        (above, np.where(tree.parent < 0, shift - 1, tree.parent + shift), [0])
    ).astype(np.int32)
    kind = np.str_ if is_text else np.uint64
    last = OUTSIDE if is_text else OUTSIDE_CELL
    code = np.concatenate(
        (np.array([top] * shift, dtype=kind), tree.code, np.array([last], dtype=kind))
    )
    base = int(tree.level[0]) - shift
    levels = None if tree.levels is None else [*([base] * shift), *tree.levels.tolist(), base + 1]
    return Hierarchy(
        parent=parent,
        code=code,
        base_level=base,
        geography=Beyond(tree, shift),
        kind=tree.kind,
        levels=None if tree.levels is None else np.array(levels, dtype=np.int32),
        names=(
            None
            if tree.names is None
            else np.array([""] * shift + tree.names.tolist() + [""], dtype=np.str_)
        ),
    )
