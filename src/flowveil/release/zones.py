"""Zones of one end of a release: what every kind of them answers, and those that are nodes of a hierarchy.

The other kind, rectangles between grid lines, is in `flowveil.release.boxes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError
from flowveil.hierarchy import Floats, Hierarchy, Ints
from flowveil.times import Times


class Zones(Protocol):
    """The zones of one end, numbered from 0: nodes of a hierarchy, or boxes."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> Ints:
        """Tiles in each zone."""
        ...

    @property
    def level(self) -> Ints:
        """Level of each zone in its hierarchy."""
        ...

    def possible(self, whole_map: Hierarchy | None) -> NDArray[np.int64] | None:
        """Tiles that each zone could hold, seen or not: a function of the map alone. None where it is not known."""
        ...

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        ...

    def names(self, zones: Ints) -> NDArray[np.str_] | None:
        """What people call the zones, empty where nothing is said; None where no map says so."""
        ...

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
        ...

    def areas_km2(self, zones: Ints) -> Floats | None:
        """Areas, or None where the map is unknown."""
        ...

    def polygons(self, zones: Ints) -> NDArray[np.object_] | None:
        """Shapely geometries, or None where the map is unknown."""
        ...

    def h3_cells(self, zones: Ints) -> list[list[str]] | None:
        """The H3 cells that each zone consists of, as few as there can be; None where zones are not made of them."""
        ...


@dataclass(frozen=True, eq=False)
class NodeZones:
    """Zones that are nodes of a hierarchy: a cut, or any nodes that a method chose.

    Attributes:
        hierarchy: the tree.
        nodes: the node of each zone.
        layer: of origin zones where cells come in layers: the layer of each, from 1. The same node in two layers is
            two zones here, and one in zones.parquet. None where there are no layers.
    """

    hierarchy: Hierarchy
    nodes: Ints
    layer: NDArray[np.int8] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def size(self) -> Ints:
        """Tiles below each node."""
        return self.hierarchy.size[self.nodes]

    @cached_property
    def level(self) -> Ints:
        """Level of each node."""
        return self.hierarchy.level[self.nodes]

    def possible(self, whole_map: Hierarchy | None) -> NDArray[np.int64] | None:
        """All tiles below each node: H3 cells, or those of the map; None for a tree that comes with no map."""
        from flowveil.zoning.h3 import resolution_of
        from flowveil.zoning.halves import n_descendants_of_parts

        tree, code = self.hierarchy, self.hierarchy.code[self.nodes]
        if tree.kind in ("h3", "halves") and code.dtype == np.uint64:
            return n_descendants_of_parts(code, int(resolution_of(tree.code[tree.leaf_node[:1]])[0]))
        if whole_map is None:
            return None
        by_code = np.argsort(whole_map.code)
        at = by_code[np.minimum(np.searchsorted(whole_map.code, code, sorter=by_code), whole_map.n_nodes - 1)]
        if np.any(whole_map.code[at] != code):
            raise DataError("The map of these flows lacks zones of their hierarchies.")
        return whole_map.size[at].astype(np.int64)

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        return self.hierarchy.code_text(self.nodes[zones])

    def names(self, zones: Ints) -> NDArray[np.str_] | None:
        """What the map calls the zones; None where it has no names."""
        names = self.hierarchy.names
        return None if names is None else names[self.nodes[zones]]

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.centers(self.nodes[zones])

    def areas_km2(self, zones: Ints) -> Floats | None:
        """Areas, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.areas_km2(self.nodes[zones])

    def polygons(self, zones: Ints) -> NDArray[np.object_] | None:
        """Shapely geometries, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.polygons(self.nodes[zones])

    def h3_cells(self, zones: Ints) -> list[list[str]] | None:
        """The H3 cells that each zone consists of; None where the tree is not made of them."""
        cells = getattr(self.hierarchy.geography, "h3_cells", None)
        found: list[list[str]] | None = None if cells is None else cells(self.nodes[zones])
        return found


@dataclass(frozen=True, eq=False)
class TimedZones(NodeZones):
    """Origin zones where time is folded: each is a node and an interval of time.

    So a cell is still a pair of zones, and all that counts, merges and measures pairs does so for triples. The same
    node with two intervals is two zones here, and one in zones.parquet.

    Attributes:
        times: the tree of times.
        time: the node of that tree of each zone.
    """

    times: Times
    time: Ints

    @cached_property
    def start(self) -> NDArray[np.str_]:
        """The beginning of the interval of each zone, as text."""
        return self.times.start[self.time]

    @cached_property
    def stop(self) -> NDArray[np.str_]:
        """The end of the interval of each zone, which is not in it."""
        return self.times.stop[self.time]

    @cached_property
    def hours(self) -> Floats:
        """How long the interval of each zone is."""
        return self.times.hours[self.time]

    @cached_property
    def steps(self) -> Ints:
        """Steps in the interval of each zone."""
        return self.times.tree.size[self.time]
