"""Exact counts labelled as counts made from the top down are found; honest ones are not accused."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from fractions import Fraction

import h3
import numpy as np
import pytest

from flowveil import Flows, Hierarchy, NoisyRelease, anonymize
from flowveil.flows import Cells, group_pairs
from flowveil.methods.consistency import fit_to_totals
from flowveil.methods.contributions import counted_trips
from flowveil.methods.discrete_laplace import DiscreteLaplace, repeatable_bits
from flowveil.release.noisy import NothingLeftError
from flowveil.verify import verify_release
from flowveil.verify.law import FALSE_ALARM
from flowveil.verify.walk import _likeliest_two, _too_exact
from samples.drafts import unchecked
from samples.releases import city_flows


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def on_a_map() -> Flows:
    rng = np.random.default_rng(5)
    parent = [-1, *[0] * 4, *np.repeat(np.arange(1, 5), 4).tolist()]
    tree, _ = Hierarchy.from_parents(parent, np.array([f"n{i:02d}" for i in range(21)]), kind="table")
    place = [np.minimum(rng.geometric(0.2, 20_000) - 1, 15) for _ in range(2)]
    person = rng.integers(0, 2000, 20_000)
    return Flows.from_pairs(*place, origins=tree, destinations=tree, person=person, whole_map=tree)


CASES = {
    "a map": (on_a_map(), {"epsilon": 2.0, "bound": 4}),
    "Gaussian noise on a map": (on_a_map(), {"epsilon": 2.0, "bound": 4, "delta": 1e-6}),
    "cells": (
        city_flows(rows=20_000),
        {"epsilon": 2.0, "bound": 20, "region": h3.latlng_to_cell(48.85, 2.35, 6), "level": 8},
    ),
}


def with_trips(release: NoisyRelease, trips: np.ndarray) -> NoisyRelease:
    """The release as it would be with these trips of the flows instead of noisy counts."""
    plan = release.plan
    n = len(plan.origin_zones), len(plan.destination_zones)
    group = group_pairs(np.where(trips > 0, plan.origin_zone, np.int32(-1)), plan.destination_zone, *n)
    cells = Cells(group.origin, group.destination, group.sum(trips))
    return dataclasses.replace(release, counts=dataclasses.replace(release.counts, cells=cells))


@pytest.mark.parametrize("case", CASES)
def test_honest_folders_hold_and_forged_ones_do_not(case, tmp_path):
    flows, asked = CASES[case]
    release = anonymize(flows, "topdown", **asked)
    assert verify_release(release.write(tmp_path / "honest"), flows) == []
    bounded = counted_trips(flows, np.ones(len(flows), bool), bound=asked["bound"])
    for name, trips in (("bounded", bounded), ("raw", flows.trips)):
        found = verify_release(with_trips(release, trips).write(tmp_path / name), flows)
        assert found == [
            "flows.parquet: more counts are exact than noise of this scale leaves: these are counts, not noise"
        ]
    twice = verify_release(with_trips(release, 2 * bounded).write(tmp_path / "twice"), flows)
    assert twice == ["flows.parquet: the published trips sum to more or less than noise on the whole leaves"]


def test_a_region_without_trips_is_verified(tmp_path):
    """All that is published there is noise: little of it holds, more than noise leaves is found."""
    flows = city_flows(rows=200)
    asked = {"epsilon": 1.0, "bound": 2, "region": h3.latlng_to_cell(0.0, 0.0, 6), "level": 7}
    release = None
    while release is None:  # About every second draw on the whole is below zero, and leaves nothing to publish.
        with suppress(NothingLeftError):
            release = anonymize(flows, "topdown", **asked)
    assert verify_release(release.write(tmp_path / "honest"), flows) == []
    cells = Cells(np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([10**6]))
    invented = dataclasses.replace(release, counts=dataclasses.replace(release.counts, cells=cells))
    found = verify_release(invented.write(tmp_path / "invented"), flows)
    assert found == ["flows.parquet: the published trips sum to more or less than noise on the whole leaves"]


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
def test_honest_families_are_not_accused(scale):
    """100 releases of 200 families for each scale, with exactly the count that would help a forger most."""
    assert 3 * 100 * FALSE_ALARM < 1e-6
    law, bits = DiscreteLaplace(Fraction(scale)), repeatable_bits(1)
    counts = np.minimum(np.random.default_rng(0).zipf(1.6, 200 * 6), 500).astype(np.int64)
    family = np.repeat(np.arange(200), 6)
    total = np.add.reduceat(counts, np.arange(0, 1200, 6))
    size = np.full(200, 6)
    for _ in range(100):
        noisy = fit_to_totals(counts + law.draw(1200, bits), family, total)
        exact = np.logical_and.reduceat(noisy == counts, np.arange(0, 1200, 6))
        assert not _too_exact(size, exact, _likeliest_two(scale))
    if scale >= 1:
        assert _too_exact(size, np.ones(200, bool), _likeliest_two(scale))
