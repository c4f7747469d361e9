"""Shadow releases: the method of a release run on other trips, as an attacker does who knows it.

Membership inference with them: each other person is drawn with even odds, repeatedly, and the method is run with the
target and without. The score of a release is the share of the target's trips in published cells, each weighted by
one over the cell's volume. The threshold is set on half of the shadows and tested on the others. The advantage is the
true positive rate minus the false positive rate: 0 is guessing, 1 is certainty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.zone_forest import holders
from flowveil.errors import InfeasibleError, ParameterError
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
        ParameterError: the release has the zones of an earlier one and is not a folder.
        InfeasibleError: nothing can be published of these trips.
    """
    from flowveil.anonymization import anonymize

    parameters = release.report["parameters"]
    asked = {name: parameters.get(name) for name in ("k_population", "l", "dominance", "t")}
    confirmed = release.report["statement"].get("confirmed") or ()
    if parameters.get("stricter") is not None or parameters.get("l_places") is not None:
        raise ParameterError("A release that was made with a list of places cannot be run again without the list.")
    kept = release.report["statement"].get("zones_of") is not None
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


# ---- membership ------------------------------------------------------------------------------------------------------

#: Two-sided 95 %.
_NORMAL = 1.96


@dataclass(frozen=True)
class Membership:
    """The advantage of an attacker over guessing.

    Attributes:
        targets: persons whose membership was tested.
        shadows: releases that were tried, in all.
        advantage: true minus false positives.
        low, high: its 95 % interval.
    """

    targets: int
    shadows: int
    advantage: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {name: round(value, 4) for name, value in vars(self).items()}


def membership(
    release: PublishedRelease, flows: Flows, *, targets: int = 5, shadows: int = 10, seed: int = 0
) -> Membership:
    """Estimate the advantage by shadow releases with the release's own method and parameters.

    Args:
        release: says the method and what it guarantees.
        flows: with persons.
        targets: persons to test.
        shadows: pairs of releases a person.
        seed: of the draws.

    Raises:
        ParameterError: persons are not known.
    """
    people = flows.people
    if people is None or people.trips is None:
        raise ParameterError("Membership needs persons: name their column with --person.")
    random = np.random.default_rng(seed)
    persons = np.unique(people.person)
    right: list[tuple[bool, bool]] = []
    for target in random.permutation(persons)[:targets]:
        scores = np.array([_scores(release, flows, persons, int(target), random) for _ in range(shadows)])
        half = shadows // 2
        threshold = _threshold(scores[:half])
        right += [(bool(a > threshold), bool(b > threshold)) for a, b in scores[half:]]
    tried = len(right)
    with_her, without = (sum(pair[i] for pair in right) / max(tried, 1) for i in (0, 1))
    spread = _NORMAL * math.sqrt(
        (with_her * (1 - with_her) + without * (1 - without)) / max(tried, 1) + 1 / max(tried, 1) ** 2
    )
    advantage = with_her - without
    return Membership(
        min(targets, len(persons)), 2 * tried, advantage, max(advantage - spread, -1.0), min(advantage + spread, 1.0)
    )


def _threshold(scores: NDArray[np.float64]) -> float:
    """Returns the threshold that separates the two kinds best."""
    candidates = np.unique(scores)
    gains = [float((scores[:, 0] > c).mean() - (scores[:, 1] > c).mean()) for c in candidates]
    return float(candidates[int(np.argmax(gains))])


def _scores(
    release: PublishedRelease, flows: Flows, persons: NDArray[Any], target: int, random: np.random.Generator
) -> tuple[float, float]:
    others = persons[persons != target]
    # Each with even odds: a fixed number of people would give the person away by one count.
    drawn = others[random.random(len(others)) < 0.5]
    return (
        _score(release, flows, np.append(drawn, target), target),
        _score(release, flows, drawn, target),
    )


def _score(release: PublishedRelease, flows: Flows, persons: NDArray[Any], target: int) -> float:
    """How closely the cells of a release lie around a person's trips."""
    people = flows.people
    if people is None or people.trips is None:
        return 0.0
    inside = np.isin(people.person, persons)
    if not inside.any():
        return 0.0
    own = people.person == target
    of, trips = people.cell[inside], people.trips[inside]
    drawn = flows.from_pairs(
        flows.origin[of],
        flows.destination[of],
        trips,
        origins=flows.origins,
        destinations=flows.destinations,
        **flows.added(lambda values: values[of] * (trips / flows.trips[of])),
        person=people.person[inside],
        intake=flows.intake,
        whole_map=flows.whole_map,
    )
    try:
        shadow = again(release, drawn)
    except InfeasibleError:
        return 0.0
    # Where her trips would be counted is read off the published zones, whether anybody else made such a trip or not.
    zones = shown_nodes(shadow)
    if (shadow.input.origins.n_nodes, shadow.input.destinations.n_nodes) != (
        flows.origins.n_nodes,
        flows.destinations.n_nodes,
    ):
        raise ParameterError("The method did not keep the trees of the trips, so a person cannot be placed in them.")
    parents = (flows.origins.parent.astype(np.int64), flows.destinations.parent.astype(np.int64))
    hers = people.cell[own]
    cell = holders(parents, *zones)(
        flows.origins.leaf_node[flows.origin[hers]].astype(np.int64),
        flows.destinations.leaf_node[flows.destination[hers]].astype(np.int64),
    )
    volume = np.append(shadow.cells.trips, 1)[cell]
    return float(np.sum(np.where(cell >= 0, people.trips[own] / volume, 0.0)))
