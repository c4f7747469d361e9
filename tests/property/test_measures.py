"""The measures equal their definitions over all pairs of tiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flowveil.analysis.measures import weighted_quantile
from flowveil.core.errors import InfeasibleError
from flowveil.core.guarantee import Guarantee
from flowveil.methods.odkanon import odkanon
from flowveil.publishing.release import Release
from reference import measures as slow
from samples.strategies import flow_tables


def release_of(flows, k, **options) -> Release:
    guarantee = Guarantee.resolve(flows, k=k)
    plan = odkanon(flows, guarantee, **options)
    return Release.from_plan(flows, plan, guarantee, method="odkanon", parameters={})


@settings(max_examples=40, deadline=None)
@given(flow_tables(), st.integers(1, 8), st.sampled_from(["rows", "volume"]))
def test_utility_equals_the_definition_over_all_tile_pairs(flows, k, budget):
    try:
        release = release_of(flows, k, budget=budget, max_suppressed=0.4)
    except InfeasibleError:
        assume(False)
    for basis, got in release.metrics().items():
        if basis == "weight" and release.cells.weight.sum() == 0:
            assert got["mean_generalization_error"] is None
            continue
        least = float(k)
        if basis == "weight":
            # k mean weights, rounded up to a millionth.
            least = math.ceil(k * round(flows.weight.sum() * 1e6) / int(flows.trips.sum())) / 1e6
        want = slow.measures(release, basis, least)
        mean_class = want.pop("mean_class")
        want["c_avg"] = None if mean_class is None else mean_class / least
        for key, value in want.items():
            if value is None:
                assert got[key] is None, key
            else:
                assert got[key] == pytest.approx(value, rel=1e-9, abs=1e-9), key


@settings(max_examples=40, deadline=None)
@given(flow_tables(weights=True, persons=True), st.integers(1, 8))
def test_privacy_counts_every_unit(flows, k):
    try:
        release = release_of(flows, k)
    except InfeasibleError:
        assume(False)
    got = release.metrics()["trips"]
    people = [
        len({p for f in rows for p in flows.people.person[flows.people.cell == f].tolist()})
        for rows in (np.flatnonzero(release.cell_of_flow == c) for c in range(len(release.cells)))
    ]
    assert got["k_people"] == min(people)
    assert got["cells_under_k_people"] == sum(p < k for p in people)
    assert got["k_trips"] == release.cells.trips.min() >= k
    assert got["k_population"] == release.cells.weight.min()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=12))
def test_weighted_median_is_the_median_of_repeated_values(pairs):
    values, weights = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    repeated = np.sort(np.repeat(values, weights.astype(int)))
    assert weighted_quantile(values, weights) == repeated[(len(repeated) - 1) // 2]
