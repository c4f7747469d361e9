"""Can somebody who knows all trips of a person see from a release whether she was in the data?

Shadow releases: each of the others is drawn with even odds, again and again, and the method is run on them with the
person and without. The attacker looks at one number of each release: how much of the person's trips lie in published
cells, each counted by one over the cell's volume, so that small cells around her trips count most. The threshold is set
on half of the shadows and tried on the others. The advantage is the share of right answers with her minus the share of
wrong ones without: 0 is guessing, 1 is certainty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.cells import holders
from flowveil.audit.shadow_releases import again, shown_nodes
from flowveil.errors import InfeasibleError, ParameterError

if TYPE_CHECKING:
    from flowveil.audit.published import PublishedRelease
    from flowveil.flows import Flows

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
    """The threshold that tells the two kinds apart best."""
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
