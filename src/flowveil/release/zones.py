"""Zones of one end of a release: what every kind of them answers, and those that are nodes of a hierarchy.

The other kind, rectangles between grid lines, is in `flowveil.release.boxes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        ...

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
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

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        return self.hierarchy.code_text(self.nodes[zones])

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.centers(self.nodes[zones])


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
