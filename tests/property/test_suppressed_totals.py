"""What a reader can conclude from a release about pairs that are not listed.

Every world is tried.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method
from flowveil.publishing.release import Release

TREE, _ = Hierarchy.from_parents([-1, 0, 0, 0], np.array(["map", "a", "b", "c"]))
PAIRS = list(product(range(3), range(3)))


def tiles_of(trips: dict[tuple[int, int], int], k: int, *, unit: str = "trips") -> Release:
    """A map of three zones: pairs below k are suppressed.

    Each trip has its own person and weight 2.
    """
    rows = [(o, d) for (o, d), n in trips.items() for _ in range(n)]
    flows = Flows.from_pairs(
        np.array([o for o, _ in rows]),
        np.array([d for _, d in rows]),
        origins=TREE,
        destinations=TREE,
        whole_map=TREE,
        person=np.arange(len(rows)) if unit == "people" else None,
        weight=np.full(len(rows), 2.0) if unit == "population" else None,
    )
    guarantee = Guarantee.resolve(
        flows, k=k, protect=unit, k_population=2.0 * k if unit == "population" else None
    )
    plan = find_method("suppression").plan(flows, guarantee)
    parameters = {"k": k, "protect": [unit], "k_population": guarantee.population}
    return Release.from_plan(flows, plan, guarantee, method="suppression", parameters=parameters)


@pytest.mark.parametrize(
    ("n_unlisted", "unit"),
    [(2, "trips"), (3, "trips"), (4, "trips"), (4, "people"), (4, "population"), (5, "trips")],
)
def test_no_unlisted_pair_is_known_to_have_trips(n_unlisted, unit):
    """All worlds that publish the same must leave each unlisted pair the choice to be empty.

    A world is the trips of every pair that is not listed, each below k. What is published is the
    matrix and the whole report, so that its rounded shares are tried as well.
    """
    k, unlisted = 3, [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0)][:n_unlisted]
    listed = {pair: 2 * k for pair in PAIRS if pair not in unlisted}
    worlds = defaultdict(list)
    for values in product(range(k), repeat=n_unlisted):
        release = tiles_of({**listed, **dict(zip(unlisted, values, strict=True))}, k, unit=unit)
        published = json.dumps(release.summary()), str(release.flows.to_pylist())
        worlds[published].append(values)
    assert len(worlds) > 1 or n_unlisted < 5, "shares must differ somewhere, or nothing is tried"
    for alike in worlds.values():
        for held in zip(*alike, strict=True):
            assert 0 in held
