"""Plan: what a method decided.

A method is a pure function from `Flows` and a `Guarantee` to a `Plan`; it never publishes.
`flowveil.publishing.release.Release` applies the plan, recounts every cell, and refuses if one is
below the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, repr_of_sizes
from flowveil.core.dimensions import Dimension
from flowveil.core.flows import Cells, Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.release.boxes import Boxes, BoxZones, Frame, Hulls
from flowveil.release.facets import Facets
from flowveil.zoning.places import Places

if TYPE_CHECKING:
    import pyarrow as pa


class Zones(Protocol):
    """The zones of one end, numbered from 0: nodes of a hierarchy, or boxes."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> Ints:
        """Tiles in each zone."""

    @property
    def level(self) -> Ints:
        """Level of each zone in its hierarchy."""

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""


@dataclass(frozen=True, eq=False, repr=False)
class NodeZones:
    """Zones that are nodes of a hierarchy: a cut, or any nodes that a method chose.

    Attributes:
        layer: of origin zones where cells come in layers: the layer of each, from 1. The same node
            in two layers is two zones here, and one in zones.parquet. None where there are no
            layers.
    """

    __repr__ = repr_of_sizes

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


@dataclass(frozen=True, eq=False, repr=False)
class FoldedZones(NodeZones):
    """Origin zones where columns fold: each is a node, and a node of each fold (``fold_nodes``).

    So a cell is still a pair of zones, and all that counts, merges and measures pairs does so for
    tuples. The same node with two nodes of a fold is two zones here, and one in zones.parquet.
    """

    __repr__ = repr_of_sizes

    folds: tuple[Dimension, ...]
    fold_nodes: tuple[Ints, ...]

    @cached_property
    def columns(self) -> dict[str, NDArray[np.str_]]:
        """The published columns of the folds, with the text of each zone."""
        both = zip(self.folds, self.fold_nodes, strict=True)
        return {name: texts[node] for fold, node in both for name, texts in fold.columns.items()}

    @cached_property
    def widths(self) -> tuple[Floats, ...]:
        """For each fold, the width of the node of each zone."""
        return tuple(
            fold.width[node] for fold, node in zip(self.folds, self.fold_nodes, strict=True)
        )

    @property
    def hours(self) -> Floats | None:
        """Length of the interval of each zone; None if time is not folded."""
        return next(
            (w for fold, w in zip(self.folds, self.widths, strict=True) if fold.every is not None),
            None,
        )

    @cached_property
    def n_values(self) -> NDArray[np.float64]:
        """Combinations of values in each zone."""
        sizes = [
            fold.tree.size[node] for fold, node in zip(self.folds, self.fold_nodes, strict=True)
        ]
        return np.asarray(np.prod(sizes, axis=0, dtype=np.float64))


#: A rule on cells that is not monotone. Arguments: positions of flows, the cell of each (-1 for
#: none), and for each end the node of its cell. Returns which cells break the rule.
CellRule = Callable[[NDArray[np.int64], NDArray[np.int64], Sequence[Ints]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Suppression:
    """The rule by which flows were suppressed, which `verify` applies again.

    Attributes:
        rule: ``short cells``: a cell is published whole or not at all. ``hopeless flows``: flows
            are taken out before cells are counted. ``noise``: flows outside the pairs that noisy
            counts are drawn for are not counted.
        levels, beta: of hopeless flows: how many levels both ends were lifted, and the share of the
            flows that may be taken out; None with the other rules.
    """

    rule: Literal["short cells", "hopeless flows", "noise"] = "short cells"
    levels: int | None = None
    beta: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports: the rule and the numbers that it has."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What a method decided, for every flow.

    Attributes:
        origin_zone, destination_zone: the zones that hold the flow's tiles, for every flow, kept or
            not.
        origin_zones, destination_zones: the zones that those numbers mean.
        homogeneous: the origin zones are disjoint, and so are the destination zones.
        boxes: properties of the boxes; None if zones are nodes.
        suppression: the rule by which flows were suppressed.
        notes: what else the method has to say of its run; only what may be published.
        frozen: the map of the earlier release whose zones these are, for the check before
            publishing; else None.
        stricter: the listed places around which cells had to reach more, by their tiles; None
            without a list.
        secret_thresholds: cells had to reach k plus a secret amount.
    """

    __repr__ = repr_of_sizes

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
    secret_thresholds: bool = False

    @property
    def facets(self) -> Facets:
        """What a release of this plan is."""
        folds = () if self.folded is None else self.folded.folds
        return Facets(
            zones="nodes" if self.boxes is None else "boxes",
            layers=self.layer is not None,
            dimensions={fold.name: "fold" for fold in folds},
        )

    @property
    def layer(self) -> NDArray[np.int8] | None:
        """The layer of each origin zone, where cells come in layers."""
        return self.origin_zones.layer if isinstance(self.origin_zones, NodeZones) else None

    @property
    def nodes(self) -> tuple[Ints, Ints]:
        """The nodes of the zones of both ends; not for boxes."""
        assert isinstance(self.origin_zones, NodeZones)
        assert isinstance(self.destination_zones, NodeZones)
        return self.origin_zones.nodes, self.destination_zones.nodes

    @property
    def folded(self) -> FoldedZones | None:
        """The origin zones with their nodes of folds, where columns fold."""
        return self.origin_zones if isinstance(self.origin_zones, FoldedZones) else None

    @property
    def widths(self) -> tuple[Floats, ...]:
        """For each fold, the width of the node of each origin zone; empty without folds."""
        return () if self.folded is None else self.folded.widths

    @property
    def cells_may_overlap(self) -> bool:
        """Whether a flow may be inside several cells, although it is counted in one."""
        return self.layer is not None or (self.boxes is not None and not self.boxes.disjoint)

    def cells_around(self, cells: Cells, flows: Any = slice(None)) -> NDArray[np.int64]:
        """Returns the published cell of the pair of zones of these flows, kept or not.

        -1 without one.
        """
        width = np.int64(len(self.destination_zones))
        published = cells.origin.astype(np.int64) * width + cells.destination
        wanted = self.origin_zone[flows].astype(np.int64) * width + self.destination_zone[flows]
        at = np.minimum(np.searchsorted(published, wanted), len(published) - 1)
        return np.where(published[at] == wanted, at, -1)

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
        )

    @classmethod
    def from_nodes(
        cls,
        flows: Flows,
        nodes: Sequence[Ints],
        kept: NDArray[np.bool_],
        notes: Mapping[str, Any],
        *,
        layer: NDArray[np.int8] | None = None,
    ) -> Plan:
        """The plan that puts every flow into these nodes of its ends.

        Origin, destination and folds.

        With layers, the same node in two layers is two origin zones. Rows after those of the flows
        are cells whose zones are listed too.
        """
        used, destination = np.unique(nodes[1], return_inverse=True)
        trees = [tree for tree, _ in (flows.ends[0], *flows.ends[2:])]
        shape = (
            *(tree.n_nodes for tree in trees),
            1 if layer is None else int(layer.max(initial=0)) + 1,
        )
        columns: Any = (
            nodes[0],
            *nodes[2:],
            np.zeros(len(nodes[0]), np.int8) if layer is None else layer,
        )
        key: NDArray[np.int64] = np.ravel_multi_index(columns, shape)
        distinct, origin = np.unique(key, return_inverse=True)
        node, *fold_nodes, layers = (
            part.astype(np.int32) for part in np.unravel_index(distinct, shape)
        )
        marked: dict[str, Any] = {} if layer is None else {"layer": layers.astype(np.int8)}
        origins = NodeZones(flows.origins, node, **marked)
        if flows.folds:
            origins = FoldedZones(flows.origins, node, flows.folds, tuple(fold_nodes), **marked)
        return cls(
            origin_zone=origin[: len(flows)].astype(np.int32),
            destination_zone=destination[: len(flows)].astype(np.int32),
            kept=kept,
            origin_zones=origins,
            destination_zones=NodeZones(flows.destinations, used.astype(np.int32)),
            homogeneous=False,
            notes=notes,
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
        """Returns the plan that publishes the hull of each group of flows as a cell.

        Groups are numbered from 0 without gaps, and kept or suppressed as a whole. ``disjoint``: no
        flow is in the hull of two groups; single ends may overlap.
        """
        grid, hulls = frame.grid, Hulls.around(frame.point, group)
        bounds = (
            np.concatenate((hulls.low[:2], hulls.high[:2])),
            np.concatenate((hulls.low[2:], hulls.high[2:])),
        )
        origins, origin = BoxZones.of(grid, frame.origin_squares, *bounds[0])
        destinations, destination = BoxZones.of(grid, frame.destination_squares, *bounds[1])
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
