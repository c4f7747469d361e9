"""Laplace as a method: the noise that reaches the table, the zones it covers, and what it
refuses."""

from __future__ import annotations

import json
import sys
import warnings

import h3
import numpy as np
import pyarrow as pa
import pytest

from conftest import trip_table
from flowveil import (
    Flows,
    Hierarchy,
    InfeasibleError,
    NoisyRelease,
    ParameterError,
    anonymize,
    read_trips,
    read_zones,
)
from flowveil.apps.cli import main
from flowveil.core.flows import Cells, People
from flowveil.methods import METHODS
from flowveil.methods.epsilon import WeakPromiseWarning
from flowveil.methods.noise_guarantee import bounded_trips
from flowveil.zoning.h3 import h3_hierarchy
from reference.goodness import FALSE_ALARM, fit, laplace_law

PARIS = h3.latlng_to_cell(48.85, 2.35, 9)
REGION = h3.cell_to_parent(PARIS, 5)


def star(n: int) -> Hierarchy:
    return Hierarchy.from_parents(
        [-1] + [0] * n, np.array(["all", *(f"t{i:04d}" for i in range(n))])
    )[0]


def full_table(n: int, trips: np.ndarray) -> Flows:
    """Trips between all pairs of n tiles; a pair without trips is no flow."""
    o, d = np.divmod(np.flatnonzero(trips), n)
    return Flows.from_pairs(o, d, trips[trips > 0], origins=star(n), destinations=star(n))


def matrix_of(release: NoisyRelease) -> np.ndarray:
    cells, plan = release.cells, release.plan
    out = np.zeros((len(plan.origin_zones), len(plan.destination_zones)), dtype=np.int64)
    out[cells.origin, cells.destination] = cells.trips
    return out


# ---- noise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 0.25])
def test_noise_in_the_published_table_follows_the_distribution(epsilon):
    """Counts so large that nothing is clamped.

    Published minus true is the noise, as drawn by OpenDP.
    """
    n, count = 140, 1000
    release = anonymize(
        full_table(n, np.full(n * n, count)), "laplace", epsilon=epsilon, region="observed"
    )
    noise = matrix_of(release).ravel() - count
    assert fit(noise, laplace_law(1 / epsilon)) > FALSE_ALARM


def test_empty_pairs_and_pairs_with_trips_have_the_same_noise():
    """Half of the pairs have one trip: clamped at zero, both halves follow the law shifted by their
    count."""
    n = 200
    trips = (np.arange(n * n) % 2).astype(np.int64)
    noisy = matrix_of(
        anonymize(full_table(n, trips), "laplace", epsilon=0.5, region="observed")
    ).ravel()
    law = laplace_law(2.0)
    for count in (0, 1):
        assert (
            fit(noisy[trips == count], {x + count: p for x, p in law.items() if x + count >= 1})
            > FALSE_ALARM
        )


def test_a_large_domain_is_worked_on_in_parts(monkeypatch):
    # By name in sys.modules: the package has a function of the same name.
    monkeypatch.setattr(sys.modules["flowveil.methods.laplace"], "_BATCH_PAIRS", 1000)
    n = 200
    flows = full_table(n, (np.arange(n * n) % 17 == 0).astype(np.int64) * 500)
    noisy = matrix_of(anonymize(flows, "laplace", epsilon=1, region="observed")).ravel()
    has_trips = np.arange(n * n) % 17 == 0
    assert noisy[has_trips].min() > 400
    assert (
        fit(noisy[~has_trips], {x: p for x, p in laplace_law(1.0).items() if x >= 1}) > FALSE_ALARM
    )


def test_noise_grows_with_the_bound():
    flows = read_trips(trip_table(400), resolution=9)
    for bound in (1, 30):
        promise = anonymize(
            flows, "laplace", epsilon=2, bound=bound, region=REGION, level=7
        ).guarantee
        assert promise.scale == bound / 2


def test_pairs_are_sorted_distinct_and_at_least_one():
    flows = read_trips(trip_table(400), resolution=9)
    cells = anonymize(flows, "laplace", epsilon=1, bound=5, region=REGION, level=7).cells
    key = cells.origin.astype(np.int64) * 10**6 + cells.destination
    assert np.all(np.diff(key) > 0)
    assert cells.trips.min() >= 1
    assert cells.weight is None
    assert cells.people is None


def test_the_scale_is_never_smaller_than_promised():
    from fractions import Fraction

    from flowveil.methods.epsilon import noise_scale

    for bound in (1, 3, 7, 20, 1000):
        for epsilon in (0.1, 0.3, 0.7, 1 / 3, 1.0, 2.5, 1e-2):
            assert Fraction(noise_scale(bound, epsilon)) * Fraction(epsilon) >= bound


# ---- full and thresholded ------------------------------------------------------------------------


def test_all_pairs_publish_empty_ones_and_a_threshold_none():
    flows = read_trips(trip_table(3000), resolution=9)
    true_pairs = pairs_at(flows, 7)
    everything = anonymize(flows, "laplace", epsilon=1, bound=4, region=REGION, level=7)
    assert codes_of(everything) - true_pairs
    large = anonymize(flows, "laplace", epsilon=4, bound=4, delta=1e-4, level=7)
    assert codes_of(large)
    assert codes_of(large) <= true_pairs
    assert large.cells.trips.min() >= large.guarantee.threshold
    assert large.guarantee.threshold > 4
    assert everything.guarantee.threshold is None


def test_a_person_alone_stays_below_the_threshold():
    """The chance of each to show is δ at most; with δ = 1e-12 none of sixty does."""
    n = 60
    person = np.repeat(np.arange(n), 3)
    tile = np.repeat(np.arange(n), 3)
    flows = Flows.from_pairs(tile, tile, origins=star(n), destinations=star(n), person=person)
    with pytest.raises(InfeasibleError, match="threshold"):
        anonymize(flows, "laplace", epsilon=1, bound=3, delta=1e-12)


def codes_of(release: NoisyRelease) -> set[tuple[str, str]]:
    table = release.flows
    return set(
        zip(table["origin_zone"].to_pylist(), table["destination_zone"].to_pylist(), strict=True)
    )


def pairs_at(flows: Flows, level: int) -> set[tuple[str, str]]:
    ends = []
    for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination)):
        cells = [format(c, "x") for c in tree.code[tree.leaf_node[tile]].tolist()]
        ends.append([h3.cell_to_parent(c, level) for c in cells])
    return set(zip(*ends, strict=True))


# ---- the unit ------------------------------------------------------------------------------------


def test_without_persons_the_unit_is_a_trip():
    table = trip_table(400).drop(["person_id"])
    release = anonymize(
        read_trips(table, resolution=9), "laplace", epsilon=1, region=REGION, level=7
    )
    assert release.guarantee.unit == "trip"
    assert release.guarantee.bound == 1
    assert "each single trip" in repr(release)


def test_trips_of_unknown_persons_and_beyond_the_bound_are_not_counted():
    trips, person = np.array([1000, 3, 500]), np.array([-1, 0, 1])
    flows = Flows.from_pairs(
        np.arange(3), np.arange(3), trips, origins=star(3), destinations=star(3), person=person
    )
    release = anonymize(flows, "laplace", epsilon=20, bound=10, region="observed")
    noisy = matrix_of(release)
    assert noisy[0, 0] < 10
    assert noisy[2, 2] < 20
    assert release.left_out == {
        "outside the region": 0,
        "of unknown persons": 1000,
        "beyond the bound": 490,
    }


def test_a_bound_keeps_trips_from_all_over_a_persons_rows():
    trips = bounded_trips(np.zeros(100, np.int32), np.ones(100, np.int64), 10)
    assert trips.sum() == 10
    assert np.diff(np.flatnonzero(trips)).tolist() == [10] * 9
    shares = bounded_trips(np.zeros(2, np.int32), np.array([900, 100]), 10)
    assert shares.tolist() == [9, 1]
    assert bounded_trips(np.array([3, 3, 5]), np.array([2, 2, 9]), 4).tolist() == [2, 2, 4]


def test_flows_that_do_not_know_a_persons_trips_are_refused():
    flows = full_table(3, np.ones(9, np.int64))
    people = People(cell=np.arange(9, dtype=np.int32), person=np.zeros(9, np.int32))
    blind = Flows(
        flows.origin,
        flows.destination,
        flows.trips,
        None,
        people,
        origins=star(3),
        destinations=star(3),
    )
    with pytest.raises(ValueError, match="the trips of each person"):
        anonymize(blind, "laplace", epsilon=1, bound=2, region="observed")


# ---- the zones -----------------------------------------------------------------------------------


def test_zones_are_those_of_the_region_seen_or_not():
    flows = read_trips(trip_table(400), resolution=9)
    release = anonymize(flows, "laplace", epsilon=1, bound=5, region=REGION, level=7)
    below = set(h3.cell_to_children(REGION, 7))
    assert set(release.zones["zone"].to_pylist()) == below
    assert set(release.zones["tiles"].to_pylist()) == {49}
    assert set(release.zones["role"].to_pylist()) == {"both"}
    assert release.guarantee.domain["zones"] == 49


def test_trips_outside_the_region_are_left_out():
    flows = read_trips(trip_table(4000), resolution=9)
    small = h3.cell_to_parent(PARIS, 6)
    release = anonymize(flows, "laplace", epsilon=1, bound=5, region=small, level=8)
    assert set(release.zones["zone"].to_pylist()) <= set(h3.cell_to_children(small, 8))
    assert release.left_out["outside the region"] > 0
    inside = h3.cell_to_children(h3.cell_to_parent(PARIS, 7), 8)
    mixed = anonymize(
        flows,
        "laplace",
        epsilon=1,
        bound=5,
        region=f"{h3.cell_to_parent(PARIS, 7)}, {inside[0]}",
        level=8,
    )
    assert mixed.guarantee.domain["zones"] == 7


def test_several_levels_of_tiles():
    flows = read_trips(trip_table(400), resolution=9)
    cell = h3.cell_to_parent(PARIS, 7)
    tiles = anonymize(flows, "laplace", epsilon=1, bound=5, region=cell)
    assert {h3.get_resolution(z) for z in tiles.zones["zone"].to_pylist()} == {9}
    assert tiles.guarantee.domain["level"] == 9
    with pytest.raises(ParameterError, match="resolution from 0 to that of the tiles, 9"):
        anonymize(flows, "laplace", epsilon=1, bound=5, region=cell, level=10)


def test_a_pentagon_region():
    tiles = np.sort(
        np.array([int(c, 16) for c in h3.cell_to_children("8009fffffffffff", 3)], dtype=np.uint64)
    )
    tree = h3_hierarchy(tiles)
    o = np.arange(0, tree.n_tiles, 7)
    flows = Flows.from_pairs(o, o, origins=tree, destinations=tree)
    release = anonymize(flows, "laplace", epsilon=1, level=2, region="8009fffffffffff")
    assert release.guarantee.domain["zones"] == 41
    assert sorted(set(release.zones["tiles"].to_pylist())) == [6, 7]


@pytest.fixture
def zoned():
    """Trips on three of six zones; the map has two sectors."""
    where = read_zones(
        pa.table(
            {"sector": ["N", "N", "N", "S", "S", "S"], "zone": ["3", "20", "1", "40", "5", "6"]}
        ),
        levels=["sector", "zone"],
    )
    trips = pa.table({"o": ["3", "3", "20"] * 40, "d": ["20", "5", "5"] * 40})
    return read_trips(trips, zones=where, origin_tile="o", destination_tile="d")


def test_the_zones_of_a_users_map_are_its_own(zoned):
    seen: set[str] = set()
    for _ in range(30):
        release = anonymize(zoned, "laplace", epsilon=0.5)
        assert (
            release.flows.sort_by([("origin_zone", "ascending"), ("destination_zone", "ascending")])
            == release.flows
        )
        seen |= set(release.zones["zone"].to_pylist())
    assert seen == {"3", "20", "1", "40", "5", "6"}
    assert release.guarantee.domain == {
        "level": "tiles",
        "pairs": "all pairs of the zones of the map",
        "zones": 6,
        "zones_from_data": False,
    }


def test_levels_and_regions_of_a_users_map(zoned):
    sectors = anonymize(zoned, "laplace", epsilon=5, level=0)
    counts = {
        (r["origin_zone"], r["destination_zone"]): r["trips"] for r in sectors.flows.to_pylist()
    }
    assert abs(counts["N", "N"] - 40) < 20
    assert abs(counts["N", "S"] - 80) < 20
    assert set(sectors.zones["tiles"].to_pylist()) == {3}
    north = anonymize(zoned, "laplace", epsilon=5, region="N")
    assert set(north.zones["zone"].to_pylist()) <= {"3", "20", "1"}
    assert north.left_out["outside the region"] == 80
    with pytest.raises(ParameterError, match="no zone 'X'"):
        anonymize(zoned, "laplace", epsilon=5, region="N,X")
    with pytest.raises(ParameterError, match="finer than"):
        anonymize(zoned, "laplace", epsilon=5, region="20", level=0)
    with pytest.raises(ParameterError, match="from -1 to 1"):
        anonymize(zoned, "laplace", epsilon=5, level=2)


def test_observed_zones_are_marked_and_count_the_tiles_of_the_map(zoned):
    release = anonymize(zoned, "laplace", epsilon=1, level=0, region="observed")
    assert release.guarantee.domain["zones_from_data"] is True
    # Trips are on fewer tiles.
    assert set(release.zones["tiles"].to_pylist()) == {3}
    assert not anonymize(zoned, "laplace", epsilon=1, delta=1e-3).guarantee.domain[
        "zones_from_data"
    ]


# ---- measures ------------------------------------------------------------------------------------


def test_measures_are_those_of_the_papers():
    """Against a plain sum over all pairs of tiles."""
    n = 12
    trips = np.zeros(n * n, np.int64)
    trips[::5] = 3
    release = anonymize(
        full_table(n, trips), "laplace", epsilon=1, region="observed", unsafe_seed_for_tests=4
    )
    noisy = np.zeros((n, n))
    names = {f"t{i:04d}": i for i in range(n)}
    for row in release.flows.to_pylist():
        noisy[names[row["origin_zone"]], names[row["destination_zone"]]] = row["trips"]
    true = trips.reshape(n, n)
    m = release.metrics()["trips"]
    assert m["reconstruction_loss"] == pytest.approx(np.abs(noisy - true).sum() / true.sum())
    assert m["distribution_distance"] == pytest.approx(
        np.abs(noisy / noisy.sum() - true / true.sum()).sum()
    )
    assert m["suppressed_share"] == pytest.approx(1 - noisy.sum() / true.sum())
    assert m["published_trips"] == noisy.sum()
    assert m["c_avg"] is None
    assert m["mean_generalization_error"] is None


def test_noise_on_a_sparse_matrix_adds_volume():
    """Suppression is below zero, as in Table 3 of Matet et al."""
    n = 100
    trips = (np.arange(n * n) % 50 == 0).astype(np.int64) * 2
    m = anonymize(full_table(n, trips), "laplace", epsilon=1, region="observed").metrics()["trips"]
    assert m["suppressed_share"] < -1
    assert m["reconstruction_loss"] > 2


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs epsilon"),
        ({"epsilon": 0}, "above 0"),
        ({"epsilon": float("inf")}, "above 0"),
        ({"epsilon": True}, "above 0"),
        ({"epsilon": 1}, "needs a bound"),
        ({"epsilon": 1, "bound": 0}, "at least 1"),
        ({"epsilon": 1, "bound": 2.5}, "whole number"),
        ({"epsilon": 1, "bound": 5, "delta": 0.5}, "delta"),
        ({"epsilon": 1, "bound": 5, "delta": -1e-9}, "delta"),
        ({"epsilon": 1e-9, "bound": 5}, "scale"),
        ({"epsilon": 1, "bound": 5}, "which zones there are"),
        ({"epsilon": 1, "bound": 5, "region": ""}, "empty"),
        ({"epsilon": 1, "bound": 5, "region": "Paris"}, "not an H3 cell"),
        ({"epsilon": 1, "bound": 5, "region": REGION, "level": 4}, "finer than the zones"),
        ({"epsilon": 1, "bound": 5, "region": REGION, "level": "seven"}, "level"),
        (
            {"epsilon": 1, "bound": 5, "region": h3.cell_to_parent(REGION, 0)},
            "more than can be listed",
        ),
        (
            {"epsilon": 1, "bound": 5, "region": h3.cell_to_parent(REGION, 4)},
            "noise alone would publish",
        ),
        (
            {"epsilon": 1, "bound": 5, "region": REGION, "unsafe_seed_for_tests": -1},
            "unsafe_seed_for_tests",
        ),
        ({"epsilon": 1, "bound": 5, "region": REGION, "epsilom": 2}, "no option 'epsilom'"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options, words):
    flows = read_trips(trip_table(100), resolution=9)
    with pytest.raises(ParameterError, match=words):
        anonymize(flows, "laplace", **options)


def test_a_bound_without_persons_is_refused():
    flows = read_trips(trip_table(100).drop(["person_id"]), resolution=9)
    with pytest.raises(ParameterError, match="persons are not known"):
        anonymize(flows, "laplace", epsilon=1, bound=5, region=REGION, level=7)


def test_options_are_read_from_text():
    parse = METHODS["laplace"].parse_option
    assert parse("epsilon", "0.5") == 0.5
    assert parse("bound", "20") == 20
    assert parse("region", "821f97fffffffff,831f8cfffffffff") == "821f97fffffffff,831f8cfffffffff"
    assert parse("delta", "1e-6") == 1e-6
    assert parse("level", "7") == 7


def test_a_seed_repeats():
    flows = read_trips(trip_table(400), resolution=9)
    asked = {"epsilon": 1, "bound": 5, "region": REGION, "level": 7}
    one, two, other = (
        anonymize(flows, "laplace", **asked, unsafe_seed_for_tests=s) for s in (1, 1, 2)
    )
    assert one.flows == two.flows
    assert one.flows != other.flows
    free = [anonymize(flows, "laplace", **asked).flows for _ in range(2)]
    assert free[0] != free[1]


def test_persons_keep_their_trips_through_a_merge():
    flows = read_trips(trip_table(200), resolution=9)
    merged: Cells = flows.merge(
        np.zeros(len(flows), np.int32), np.zeros(len(flows), np.int32), 1, 1
    ).cells
    assert flows.people.trips.sum() == flows.trips.sum()
    assert merged.people.trips.sum() == flows.trips.sum()
    assert len(np.unique(merged.people.person)) == len(merged.people.person)


# ---- which epsilon is a promise ------------------------------------------------------------------


def test_a_large_epsilon_is_refused_and_a_weak_one_warned_of():
    flows = read_trips(trip_table(200).drop(["person_id"]), resolution=9)
    options = {"region": REGION, "level": 7}
    for bad in (20.1, 1e6, float("inf"), float("nan"), 0, True, "1"):
        with pytest.raises(ParameterError, match="epsilon must be"):
            anonymize(flows, "laplace", epsilon=bad, **options)
    with pytest.raises(ParameterError, match="makes the counts useless"):
        anonymize(flows, "laplace", epsilon=1e-7, **options)
    with pytest.warns(WeakPromiseWarning, match="factor of"):
        release = anonymize(flows, "laplace", epsilon=12, **options)
    said = release.summary()["published"]["sentences"]
    assert any(line.startswith("Weak: ε = 12") for line in said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anonymize(flows, "laplace", epsilon=10, **options)


def test_the_command_line_warns_of_a_weak_epsilon(tmp_path, trips_csv, capsys):
    asked = ["anonymize", str(trips_csv), "--method", "laplace", "--resolution", "8", "--json"]
    for option in ("epsilon=12", "bound=2", "level=7", f"region={REGION}"):
        asked += ["--option", option]
    main([*asked, "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert said.err.startswith("Warning: Weak: ε = 12")
    assert any(line.startswith("Weak:") for line in json.loads(said.out)["published"]["sentences"])
