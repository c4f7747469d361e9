"""The trips that a release was made from, placed into its published cells.

What only the holder can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.core.arrays import Counts
from flowveil.core.errors import ParameterError
from flowveil.verify.audit.published import PublishedMatrix, PublishedRelease
from flowveil.zoning.covering import cells_by_layer

if TYPE_CHECKING:
    from flowveil.core.flows import Flows, People
    from flowveil.core.hierarchy import Hierarchy
    from flowveil.verify.audit.subtraction import Group


class Figures:
    """Findings in counts and shares."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, four decimals."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True, eq=False)
class PlacedTrips:
    """Trips with the published cell of each flow."""

    flows: Flows
    cell: Counts  # -1 where no cell counts the flow
    n_cells: int  # how many cells are published
    # whether every cell holds as many trips as it says; at least, where some were taken out of it
    counted: bool

    @property
    def has_persons(self) -> bool:
        """Whether it is known who made how many trips."""
        return self.flows.people is not None and self.flows.people.trips is not None

    @property
    def people(self) -> People:
        """Who made the trips; raises ParameterError if that is not known."""
        if self.flows.people is None or not self.has_persons:
            raise ParameterError("This attack needs persons: name their column with --person.")
        return self.flows.people


def read_trips_of(release: PublishedRelease, source: Any, **reading: Any) -> Any:
    """Reads trips as the report of a release says, on the tree that it has.

    Flows, or slices if it has slices.
    """
    from flowveil.reading import Reading
    from flowveil.reading.engines import read_flows
    from flowveil.zoning.restriction import refined, to_the_top

    parameters = release.report["parameters"]
    flows: Any = read_flows(source, Reading.from_parameters(parameters, **reading))
    moved = refined(flows, parameters.get("hierarchy"))[0]
    # Zones that were kept from other data, and those under secret thresholds, may lie above
    # everything that these trips have.
    statement = release.report["statement"]
    above = statement.get("zones_of") or statement.get("thresholds") == "k plus a secret amount"
    return to_the_top(moved) if above else moved


def slices_of(
    release: PublishedRelease, source: Any, **reading: Any
) -> list[tuple[PublishedMatrix, Flows]]:
    """Returns the finest matrices of a sliced release, each with its trips."""
    sliced = read_trips_of(release, source, **reading)
    own = dict(sliced.split())
    if release.slice_columns != sliced.slice_columns:
        raise ParameterError(
            "The slices of the release are not those of the trips that it is compared with."
        )
    return [(matrix, own[matrix.key]) for matrix in release.matrices if matrix.key in own]


def cell_nodes(
    release: PublishedRelease, flows: Flows, matrix: PublishedMatrix
) -> tuple[Counts, Counts]:
    """Returns the nodes of both zones of each cell, in the trees of the trips."""
    return (
        nodes_of(flows.origins, release.origin_zones)[matrix.origin],
        nodes_of(flows.destinations, release.destination_zones)[matrix.destination],
    )


def place_trips(
    release: PublishedRelease, flows: Flows, matrix: PublishedMatrix | None = None
) -> PlacedTrips:
    """Finds the published cell of each flow, in layers that of the first one.

    By default in the only matrix.
    """
    matrix = release.matrices[0] if matrix is None else matrix
    cell = cells_containing(
        flows, cell_nodes(release, flows, matrix), np.arange(len(flows)), matrix.layer
    )
    inside = cell >= 0
    held = np.bincount(cell[inside], weights=flows.trips[inside], minlength=len(matrix.trips))
    counted = bool(np.all(held == matrix.trips if release.whole_cells else held >= matrix.trips))
    return PlacedTrips(flows, cell, len(matrix.trips), counted)


def cells_containing(
    flows: Flows, cells: tuple[Any, Any], rows: Any, layer: Counts | None = None
) -> Counts:
    """Returns the cell, given as pairs of nodes, that contains each of these flows.

    -1 if none does.
    """
    ends = (flows.origins, flows.origin), (flows.destinations, flows.destination)
    points = [tree.leaf_node[tile[rows]] for tree, tile in ends]
    layer = np.zeros(len(cells[0]), dtype=np.int64) if layer is None else layer
    return cells_by_layer([tree.parent for tree, _ in ends], cells, points, layer)


def recounted(
    groups: Sequence[Group], releases: Sequence[PublishedRelease], flows: Sequence[Flows | None]
) -> tuple[int, int]:
    """Returns how many groups of two homogeneous releases were counted in the trips, and how many
    are in bounds.
    """
    placed = {i: place_trips(releases[i], f) for i, f in enumerate(flows) if f is not None}
    checked = true = 0
    for group in groups:
        i = group.absent
        if (
            i < 0
            or group.unit != "trips"
            or len(group.releases) != 2
            or not set(group.releases) <= set(placed)
        ):
            continue
        other = next(x for x in group.releases if x != i)
        own = flows[i] if group.pairs else flows[other]
        if own is None or not (releases[i].homogeneous and releases[other].homogeneous):
            continue
        checked += 1
        inside = np.ones(len(own), dtype=np.bool_) if group.pairs else placed[i].cell < 0
        ends = group.pairs[0] if group.pairs else (group.origin, group.destination)
        for tree, tile, code in zip(
            (own.origins, own.destinations), (own.origin, own.destination), ends, strict=True
        ):
            node = int(nodes_of(tree, (code,))[0])
            inside = inside & (tile >= tree.leaf_start[node]) & (tile < tree.leaf_stop[node])
        true += group.low <= int(own.trips[inside].sum()) <= group.high
    return checked, true


def nodes_of(tree: Hierarchy, codes: tuple[str, ...]) -> Counts:
    """Returns the nodes with these codes; raises ParameterError if the trips have no such node."""
    nodes = np.array([tree.node_of_code.get(code, -1) for code in codes], dtype=np.int64)
    if (nodes < 0).any():
        raise ParameterError(
            f"{int((nodes < 0).sum())} zones of the release are not in the trips that it is"
            " compared with. Hint: name the trips that it was made from, and the map with --zones."
        )
    return nodes
