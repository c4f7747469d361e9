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
    from flowveil.anonymization import anonymize

    parameters = release.report["parameters"]
    people = flows.people
    if people is None or people.trips is None:
        return 0.0
    inside = np.isin(people.person, persons)
    if not inside.any():
        return 0.0
    own = people.person == target
    drawn = flows.from_pairs(
        np.repeat(flows.origin[people.cell[inside]], people.trips[inside]),
        np.repeat(flows.destination[people.cell[inside]], people.trips[inside]),
        origins=flows.origins,
        destinations=flows.destinations,
        person=np.repeat(people.person[inside], people.trips[inside]),
        whole_map=flows.whole_map,
    )
    try:
        shadow = anonymize(
            drawn,
            release.report["method"],
            int(parameters["k"]),
            protect=parameters.get("protect"),
            max_suppressed=parameters.get("max_suppressed", 0.1),
            k_population=parameters.get("k_population"),
            hierarchy=parameters.get("hierarchy"),
            allow_small_k=True,
        )
    except InfeasibleError:
        return 0.0
    place = {(int(o), int(d)): i for i, (o, d) in enumerate(zip(drawn.origin, drawn.destination, strict=True))}
    score = 0.0
    for row in np.flatnonzero(own).tolist():
        flow = int(people.cell[row])
        at = place.get((int(flows.origin[flow]), int(flows.destination[flow])))
        cell = -1 if at is None else int(shadow.cell_of_flow[at])
        if cell >= 0:
            score += int(people.trips[row]) / int(shadow.cells.trips[cell])
    return score
