"""Distances in metres equal the mean over every end of every published trip."""

from __future__ import annotations

import h3.api.basic_int as h3_int
import numpy as np
import pytest

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.odkanon import odkanon
from flowveil.publishing.release import Release
from flowveil.zoning.h3 import h3_hierarchy
from reference.measures import distances


def city(seed: int, n: int = 300, resolution: int = 8) -> Flows:
    rng = np.random.default_rng(seed)
    points = rng.normal((48.85, 2.35), (0.05, 0.08), size=(2, n, 2))
    cells = [
        [h3_int.latlng_to_cell(lat, lon, resolution) for lat, lon in end] for end in points.tolist()
    ]
    ends = [np.unique(np.array(c, dtype=np.uint64), return_inverse=True) for c in cells]
    return Flows.from_pairs(
        ends[0][1],
        ends[1][1],
        origins=h3_hierarchy(ends[0][0]),
        destinations=h3_hierarchy(ends[1][0]),
    )


@pytest.mark.parametrize("seed", range(3))
def test_distance_is_the_mean_over_both_ends_of_every_trip(seed):
    flows = city(seed)
    guarantee = Guarantee.resolve(flows, k=5)
    plan = odkanon(flows, guarantee, budget="volume", max_suppressed=0.3)
    release = Release.from_plan(flows, plan, guarantee, method="odkanon", parameters={})
    got = release.metrics()["trips"]
    metres, weight = np.array(distances(release, "trips")).T
    mean = np.average(metres, weights=weight)
    assert got["generalization_distance_m"] == pytest.approx(mean)
    assert got["generalization_distance_std_m"] == pytest.approx(
        np.average((metres - mean) ** 2, weights=weight) ** 0.5
    )
    repeated = np.sort(np.repeat(metres, weight.astype(int)))
    assert got["generalization_distance_median_m"] == pytest.approx(
        repeated[(len(repeated) - 1) // 2]
    )


def test_unpublished_map_has_no_distance():
    from flowveil.core.hierarchy import Hierarchy

    tree, _ = Hierarchy.from_parents([-1, 0, 0], np.array(["all", "a", "b"]))
    flows = Flows.from_pairs([0, 1], [1, 0], [9, 9], origins=tree, destinations=tree)
    guarantee = Guarantee.resolve(flows, k=5)
    plan = odkanon(flows, guarantee)
    release = Release.from_plan(flows, plan, guarantee, method="odkanon", parameters={})
    assert release.metrics()["trips"]["generalization_distance_m"] is None
