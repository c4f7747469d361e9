"""The trips that a release was made from, placed into its published cells: what only the holder can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.published import PublishedMatrix, PublishedRelease
from flowveil.audit.zone_forest import holders
from flowveil.errors import ParameterError

if TYPE_CHECKING:
    from flowveil.audit.subtraction import Group
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlacedTrips:
    """Who is where.

    Attributes:
        cell: the published cell of each flow; -1 where none counts it.
        trips: of each flow.
        origin, destination: the tiles of each flow.
        flow, person, person_trips: who made how many trips of which flow; None where persons are not known.
        n_cells: how many cells are published.
        counted: whether every cell holds as many trips as it says; at least, where some were taken out of it.
    """

    cell: Counts
    trips: Counts
    origin: Counts
    destination: Counts
    flow: Counts | None
    person: Counts | None
    person_trips: Counts | None
    n_cells: int
    counted: bool


def read_trips_of(release: PublishedRelease, source: Any, **reading: Any) -> Flows:
    """Read trips as the report of a release of one matrix says, on the tree that it has."""
    from flowveil.engines import read_flows
    from flowveil.reading import Reading
    from flowveil.zoning.refinement import refined
    from flowveil.zoning.restriction import to_the_top

    parameters = release.report["parameters"]
    flows = read_flows(source, Reading.from_parameters(parameters, **reading)).whole
    moved = refined(flows, parameters.get("hierarchy"))[0]
    # Zones that were kept from other data may lie above everything that these trips have.
    return to_the_top(moved) if release.report["statement"].get("zones_of") else moved


def slices_of(release: PublishedRelease, source: Any, **reading: Any) -> list[tuple[PublishedMatrix, Flows]]:
    """The finest matrices of a sliced release, each with its trips.

    Raises:
        ParameterError: a slice of the release is not in the trips.
    """
    from flowveil.engines import read_flows
    from flowveil.reading import Reading
    from flowveil.zoning.refinement import refined
    from flowveil.zoning.restriction import to_the_top

    parameters = release.report["parameters"]
    sliced = refined(read_flows(source, Reading.from_parameters(parameters, **reading)), parameters.get("hierarchy"))[0]
    sliced = to_the_top(sliced) if release.report["statement"].get("zones_of") else sliced
    own = dict(zip(sliced.keys, sliced.slices, strict=True))
    if release.slice_columns != tuple(sliced.columns):
        raise ParameterError("The slices of the release are not those of the trips that it is compared with.")
    return [(matrix, own[matrix.key]) for matrix in release.matrices if matrix.key in own]


def place_trips(release: PublishedRelease, flows: Flows, matrix: PublishedMatrix | None = None) -> PlacedTrips:
    """Find the published cell of each flow.

    Args:
        release: the zones.
        flows: the trips of the matrix.
        matrix: the cells; by default those of the only matrix.

    Raises:
        ParameterError: the release has zones that are not in the trips.
    """
    matrix = release.matrices[0] if matrix is None else matrix
    node_o = nodes_of(flows.origins, release.origin_zones)[matrix.origin]
    node_d = nodes_of(flows.destinations, release.destination_zones)[matrix.destination]
    parents = (flows.origins.parent.astype(np.int64), flows.destinations.parent.astype(np.int64))
    leaf_o = flows.origins.leaf_node[flows.origin].astype(np.int64)
    leaf_d = flows.destinations.leaf_node[flows.destination].astype(np.int64)
    cell = holders(parents, node_o, node_d)(leaf_o, leaf_d)
    inside = cell >= 0
    held = np.bincount(cell[inside], weights=flows.trips[inside], minlength=len(matrix.trips))
    people = flows.people
    known = people is not None and people.trips is not None
    return PlacedTrips(
        cell=cell,
        trips=flows.trips.astype(np.int64),
        origin=flows.origin.astype(np.int64),
        destination=flows.destination.astype(np.int64),
        flow=people.cell.astype(np.int64) if people is not None and known else None,
        person=people.person.astype(np.int64) if people is not None and known else None,
        person_trips=people.trips if people is not None and known else None,
        n_cells=len(matrix.trips),
        counted=bool(np.all(held == matrix.trips if release.whole_cells else held >= matrix.trips)),
    )


def recounted(
    groups: Sequence[Group], releases: Sequence[PublishedRelease], flows: Sequence[Flows | None]
) -> tuple[int, int]:
    """How many groups of two homogeneous releases were counted in the trips, and how many lie within their bounds.

    Args:
        groups: what `confined_groups` found in trips.
        releases: of which.
        flows: the trips of each release; None where they could not be placed.
    """
    placed = {i: place_trips(releases[i], f) for i, f in enumerate(flows) if f is not None}
    checked = true = 0
    for group in groups:
        i = group.absent
        if i < 0 or group.unit != "trips" or len(group.releases) != 2 or not set(group.releases) <= set(placed):
            continue
        other = next(x for x in group.releases if x != i)
        if not (releases[i].homogeneous and releases[other].homogeneous):
            continue
        own = flows[i] if group.pairs else flows[other]
        if own is None:
            continue
        checked += 1
        ends = group.pairs[0] if group.pairs else (group.origin, group.destination)
        value = _held(own, ends, None if group.pairs else placed[i].cell < 0)
        true += group.low <= value <= group.high
    return checked, true


def _held(flows: Flows, ends: tuple[str, str], mask: NDArray[np.bool_] | None) -> int:
    """The trips between two zones, of the flows that are marked."""
    inside = np.ones(len(flows), dtype=np.bool_) if mask is None else mask.copy()
    for tree, tile, code in zip(
        (flows.origins, flows.destinations), (flows.origin, flows.destination), ends, strict=True
    ):
        node = int(nodes_of(tree, (code,))[0])
        inside &= (tile >= tree.leaf_start[node]) & (tile < tree.leaf_stop[node])
    return int(flows.trips[inside].sum())


def nodes_of(tree: Hierarchy, codes: tuple[str, ...]) -> Counts:
    """The nodes with these codes; -1 where the trips have none: then the release is of others."""
    place = _places(tree)
    found = np.array([place.get(code, -1) for code in codes], dtype=np.int64)
    if (found < 0).any():
        raise ParameterError(
            f"{int((found < 0).sum())} zones of the release are not in the trips that it is compared with. "
            "Hint: name the trips that it was made from, and the map with --zones."
        )
    return found


@lru_cache(maxsize=8)
def _places(tree: Hierarchy) -> dict[str, int]:
    codes = tree.code_text(np.arange(len(tree.parent), dtype=np.int32))
    return {code: node for node, code in enumerate(codes.tolist())}
