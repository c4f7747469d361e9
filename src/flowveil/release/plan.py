"""Plan: what a method decided.

A method is a pure function from `Flows` and a `Guarantee` to a `Plan`; it never publishes.
`flowveil.release.release.Release` applies the plan, recounts every cell, and refuses if one is below the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.release.boxes import Boxes, BoxZones, Frame, Hulls
from flowveil.release.zones import NodeZones, TimedZones, Zones
from flowveil.zoning.places import Places

if TYPE_CHECKING:
    import pyarrow as pa


#: A rule on cells that is not monotone. Arguments: positions of flows, the cell of each (-1 for none), and for each end
#: the node of its cell. Returns which cells break the rule.
CellRule = Callable[[NDArray[np.int64], NDArray[np.int64], Sequence[Ints]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Suppression:
    """The rule by which flows were suppressed, which `verify` applies again.

    Attributes:
        rule: ``short cells``: a cell is published whole or not at all. ``hopeless flows``: flows are taken out before
            cells are counted. ``noise``: flows outside the pairs that noisy counts are drawn for are not counted.
        levels, beta: of hopeless flows: how many levels both ends were lifted, and the share of the flows that may be
            taken out; None with the other rules.
    """

    rule: Literal["short cells", "hopeless flows", "noise"] = "short cells"
    levels: int | None = None
    beta: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports: the rule and the numbers that it has."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=False)
class Plan:
    """What a method decided, for every flow.

    Attributes:
        origin_zone, destination_zone: the zones that hold the flow's tiles, for every flow, kept or not.
        kept: which flows are published; the others are suppressed.
        origin_zones, destination_zones: the zones that those numbers mean.
        homogeneous: the origin zones are disjoint, and so are the destination zones.
        boxes: properties of the boxes; None if zones are nodes.
        suppression: the rule by which flows were suppressed.
        notes: what else the method has to say of its run; only what may be published.
        frozen: the map of the earlier release whose zones these are, for the check before publishing; else None.
        stricter: the listed places around which cells had to reach more, by their tiles; None without a list.
    """

    origin_zone: Ints
    destination_zone: Ints
    kept: NDArray[np.bool_]
    origin_zones: Zones
    destination_zones: Zones
    homogeneous: bool
    boxes: Boxes | None = None
    suppression: Suppression = field(default_factory=Suppression)
    notes: Mapping[str, Any] = field(default_factory=dict)
    frozen: pa.Table | None = None
    stricter: Places | None = None

    @property
    def kind(self) -> Literal["plain", "layered", "boxed", "folded"]:
        """Whether zones are nodes, nodes in layers, boxes, or nodes with times (in layers or not)."""
        if isinstance(self.origin_zones, TimedZones):
            return "folded"
        if self.layer is not None:
            return "layered"
        return "plain" if self.boxes is None else "boxed"

    @property
    def layer(self) -> NDArray[np.int8] | None:
        """The layer of each origin zone, where cells come in layers."""
        return self.origin_zones.layer if isinstance(self.origin_zones, NodeZones) else None

    @property
    def timed(self) -> TimedZones | None:
        """The origin zones with their times, where time is folded."""
        return self.origin_zones if isinstance(self.origin_zones, TimedZones) else None

    @property
    def cells_may_overlap(self) -> bool:
        """Whether a flow may be inside several cells, although it is counted in one."""
        return self.layer is not None or (self.boxes is not None and not self.boxes.disjoint)

    @classmethod
    def from_cuts(
        cls,
        flows: Flows,
        origin_cut: Ints,
        destination_cut: Ints,
        kept: NDArray[np.bool_],
        *,
        suppression: Suppression | None = None,
        notes: Mapping[str, Any] | None = None,
        frozen: pa.Table | None = None,
    ) -> Plan:
        """The plan of one cut for each end: a homogeneous release."""
        return cls(
            origin_zone=flows.origins.zone_of_tile(origin_cut)[flows.origin],
            destination_zone=flows.destinations.zone_of_tile(destination_cut)[flows.destination],
            kept=kept,
            origin_zones=NodeZones(flows.origins, origin_cut),
            destination_zones=NodeZones(flows.destinations, destination_cut),
            homogeneous=True,
            suppression=suppression or Suppression(),
            notes=notes or {},
            frozen=frozen,
        )

    @classmethod
    def from_boxes(
        cls,
        frame: Frame,
        group: Ints,
        kept: NDArray[np.bool_],
        *,
        disjoint: bool,
        notes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The plan that publishes the hull of each group of flows as a cell.

        Args:
            frame: where the flows lie.
            group: number of the group of each flow, from 0 without gaps. A group is kept or suppressed as a whole.
            kept: which flows are published.
            disjoint: no flow is in the hull of two groups. Single ends may overlap.
            notes: what the method has to say of its run.
        """
        grid, hulls = frame.grid, Hulls.around(frame.point, group)
        (x0, y0, x2, y2), (x1, y1, x3, y3) = hulls.low, hulls.high
        origins, origin = BoxZones.of(grid, frame.origin_squares, frame.origin_tiles, x0, y0, x1, y1)
        destinations, destination = BoxZones.of(
            grid, frame.destination_squares, frame.destination_tiles, x2, y2, x3, y3
        )
        return cls(
            origin_zone=origin[group],
            destination_zone=destination[group],
            kept=kept,
            origin_zones=origins,
            destination_zones=destinations,
            homogeneous=False,
            boxes=Boxes(*grid.degrees, disjoint, frame.finer_than_tiles),
            notes=notes or {},
        )
