"""The method of a release, run again on other trips: what an attacker who knows it does to tell inputs apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.published import stated
from flowveil.errors import ParameterError
from flowveil.flows import People
from flowveil.guarantee import Guarantee
from flowveil.release.zones import NodeZones

if TYPE_CHECKING:
    from flowveil.audit.published import PublishedRelease
    from flowveil.flows import Flows
    from flowveil.hierarchy import Ints
    from flowveil.release.release import Release


def again(release: PublishedRelease, flows: Flows) -> Release:
    """What the method of a release makes of other trips, with the parameters of its report.

    Args:
        release: says the method and what it guarantees.
        flows: other trips, on the tree of the release.

    Raises:
        ParameterError: the release has the zones of an earlier one and is not at hand as a folder.
        InfeasibleError: nothing can be published of these trips.
    """
    from flowveil.anonymization import anonymize

    parameters = release.report["parameters"]
    asked = {name: parameters.get(name) for name in ("k_population", "l", "dominance")}
    confirmed = stated(release.report).get("confirmed") or ()
    if parameters.get("stricter") is not None or parameters.get("l_places") is not None:
        raise ParameterError("A release that was made with a list of places cannot be run again without the list.")
    kept = stated(release.report).get("zones_of") is not None
    if kept and not Path(release.name).is_dir():
        raise ParameterError("A release over the zones of an earlier one is run again from its folder.")
    how = {"zones_of": release.name} if kept else {"hierarchy": parameters.get("hierarchy"), **parameters["options"]}
    return anonymize(
        flows,
        None if kept else release.report["method"],
        int(parameters["k"]),
        parameters.get("protect"),
        parameters.get("max_suppressed", 0.1),
        allow_small_k=True,
        population_only="population_only" in confirmed,
        **asked,
        **how,
    )


def guarantee_of(release: PublishedRelease, flows: Flows) -> Guarantee:
    """What every cell of a release must satisfy, for the trips that it was made from."""
    parameters = release.report["parameters"]
    return Guarantee.resolve(
        flows,
        k=int(parameters["k"]),
        protect=parameters.get("protect"),
        k_population=parameters.get("k_population"),
        l=parameters.get("l"),
    )


def moved(flows: Flows, origin: Ints, destination: Ints) -> Flows:
    """The same trips between other tiles of the same trees; persons and weights go with them."""
    merged = flows.merge(origin, destination, flows.origins.n_tiles, flows.destinations.n_tiles)
    cells, people = merged.cells, flows.people
    if people is not None and people.trips is not None:
        people = People.aggregate(merged.row[people.cell], people.person, people.trips)
    return replace(
        flows,
        origin=cells.origin,
        destination=cells.destination,
        trips=cells.trips,
        **cells.added(),
        people=people if people is None or people.trips is not None else cells.people,
        tiles=None,
    )


def shown_nodes(release: Release) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes of the published cells: of their origin zones, and of their destination zones."""
    plan, cells = release.plan, release.cells
    assert isinstance(plan.origin_zones, NodeZones)
    assert isinstance(plan.destination_zones, NodeZones)
    own = plan.origin_zones.nodes[cells.origin], plan.destination_zones.nodes[cells.destination]
    return own[0].astype(np.int64), own[1].astype(np.int64)
