"""What a report must not say: measures from which a suppressed value could be computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flowveil.disclosure.withholding import reason_to_withhold, revealing, withhold
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy
from flowveil.published.report import summarize
from flowveil.release.plan import Plan
from flowveil.release.release import Release
from samples.releases import city_flows, release_of, tile_release

#: Kept here by hand: what the registry says of a measure must not change by accident.
SUPPRESSED = (
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "reconstruction_loss",
    "suppressed_share",
)
SEEN = ("floor_generalization_error", "floor_ratio", "mean_generalization_error")
INSIDE = (
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "reconstruction_loss",
)


def test_what_each_measure_reveals():
    assert sorted(revealing("suppressed")) == list(SUPPRESSED)
    assert sorted(revealing("inside")) == list(INSIDE)
    assert sorted(revealing("seen")) == list(SEEN)
    assert revealing("terms") == {"c_dm", "distribution_distance", "reconstruction_loss"}


def test_measures_are_those_of_the_release():
    release = release_of(city_flows(), budget="volume")
    exact, published = release.metrics(), summarize(release)["measures"]
    for basis, values in exact.items():
        assert published[basis].keys() == values.keys()
        for name, value in values.items():
            if name in SEEN:
                continue
            assert published[basis][name] == pytest.approx(value, rel=0.05), name
        for name in ("n_cells", "k_trips", "k_people", "suppressed_share", "c_dm", "c_avg"):
            assert published[basis][name] == values[name]


def test_measures_from_tiles_are_rounded():
    release = release_of(city_flows(), budget="volume")
    published = summarize(release)["measures"]["trips"]
    for name, digits in (
        ("reconstruction_loss", 4),
        ("generalization_distance_m", 3),
        ("generalization_distance_median_m", 2),
    ):
        exact = release.metrics()["trips"][name]
        assert published[name] == float(f"{exact:.{digits}g}")
        assert published[name] != exact


def test_the_error_has_four_digits():
    release = release_of(city_flows(), budget="volume")
    exact = release.metrics()
    published = withhold([release], reason=None, few_coarse=False).published(exact)
    error = exact["trips"]["mean_generalization_error"]
    assert published["trips"]["mean_generalization_error"] == float(f"{error:.4g}") != error


@pytest.mark.parametrize(
    ("trips", "withheld"),
    [
        ([9, 8, 7], False),  # nothing suppressed
        ([9, 8, 4], True),  # one cell
        ([9, 8, 4, 4], True),  # two cells
        ([9, 8, 1, 1, 2], True),  # three cells, less than k together
        ([9, 8, 1, 2, 2], False),  # three cells, k together
    ],
)
def test_a_suppressed_total_is_disclosed_only_if_it_is_itself_a_safe_cell_of_several(trips, withheld):
    release = tile_release(trips)
    assert (reason_to_withhold(release) is not None) == withheld
    report = summarize(release)
    values = report["measures"]["trips"]
    assert [values[name] is None for name in SUPPRESSED] == [withheld] * len(SUPPRESSED)
    said = " ".join(report["statement"])
    assert ("withheld" in said) == withheld
    if withheld:
        assert report["withheld"]["reason"] in said
        assert values["c_avg"] is not None
        assert values["n_cells"] == 2


def test_people_and_population_count_too():
    # Three suppressed flows of two people: enough trips, not enough people.
    several = tile_release([9, 2, 2, 2, 9], person=[0, 1, 1, 2, 3], protect=["trips"], weight=[9, 1, 1, 1, 9], k=5)
    assert reason_to_withhold(several) is None
    tree = several.input.origins
    rows = np.repeat([0, 4, 1, 2, 3], [6, 6, 2, 2, 2])
    person = np.concatenate([np.arange(12), [1, 2, 2, 1, 1, 2]])
    flows = Flows.from_pairs(rows, rows, origins=tree, destinations=tree, person=person)
    guarantee = Guarantee.resolve(flows, k=3, protect="people")
    plan = Plan.from_cuts(flows, tree.leaf_node, tree.leaf_node, guarantee.safe(flows))
    release = Release.from_plan(flows, plan, guarantee, method="tiles", parameters={})
    assert int((release.cell_of_flow < 0).sum()) == 3
    assert reason_to_withhold(release) is not None
    light = tile_release(
        [9, 9, 4, 4, 4], weight=[900, 900, 1, 1, 1], protect=["trips", "population"], k=5, parameters={}
    )
    assert reason_to_withhold(light) is not None


def solve_for_suppressed(report, published_trips, published_squares):
    """Every suppressed total in 0..1000 that agrees with the report: what a reader could work out."""
    values = report["measures"]["trips"]
    fits = []
    for lost in range(1000):
        total = published_trips + lost
        expected = {
            "c_dm": published_squares + total * lost,
            "suppressed_share": lost / total,
            "reconstruction_loss": lost / total,
        }
        if all(values[n] is None or values[n] == pytest.approx(v, rel=1e-3) for n, v in expected.items()):
            fits.append(lost)
    return fits


def test_a_reader_cannot_solve_for_a_withheld_value():
    report = summarize(tile_release([9, 8, 4]))
    assert len(solve_for_suppressed(report, 17, 81 + 64)) == 1000
    # The attack works where the total may be disclosed: the oracle can fail.
    told = summarize(tile_release([9, 8, 1, 2, 2]))
    assert solve_for_suppressed(told, 17, 81 + 64) == [5]


def test_the_mean_weight_does_not_reveal_the_suppressed_weight():
    """Published weights and k times the mean weight would tie the suppressed weight to the suppressed trips."""
    weight = [910.25, 850.5, 37.77]
    release = tile_release([9, 8, 1], weight=weight, protect=["trips", "population"])
    report = summarize(release)
    exact = release.guarantee.population
    assert report["guarantee"]["population"] is None
    assert "5 times the mean weight of a trip" in report["statement"][0]
    assert report["measures"]["weight"]["c_avg"] is None
    assert f"{exact:,.0f}" not in " ".join(report["statement"])
    # One trip was suppressed; its weight would follow from the exact threshold.
    assert exact / 5 * 18 - sum(weight[:2]) == pytest.approx(37.77, abs=1e-4)


def test_an_absolute_population_is_disclosed_as_it_is():
    flows = tile_release([9, 8, 1], weight=[910, 850, 37]).input
    release = release_of(flows, protect="population", k_population=123.456, budget="volume", max_suppressed=0.5)
    assert summarize(release)["guarantee"]["population"] == 123.456


def test_cells_under_a_threshold_taken_from_the_mean_are_withheld_too():
    report = summarize(tile_release([9, 8, 4], weight=[9, 8, 4]))
    assert report["measures"]["trips"]["cells_under_k_population"] is None
    assert report["withheld"]["measures"]["weight"] == sorted([*SUPPRESSED, "c_avg", "cells_under_k_population"])


def two_tile_cells(splits) -> Release:
    """One cell for each split: two origin tiles that share so many trips to a tile of their own."""
    n = len(splits)
    parents = [-1, *[0] * n, *[1 + i // 2 for i in range(2 * n)]]
    names = ["R", *(f"p{i}" for i in range(n)), *(f"t{i}" for i in range(2 * n))]
    origins, _ = Hierarchy.from_parents(parents, np.array(names))
    destinations, _ = Hierarchy.from_parents([-1] + [0] * n, np.array(["R", *(f"d{i}" for i in range(n))]))
    flows = Flows.from_pairs(
        np.arange(2 * n),
        np.arange(2 * n) // 2,
        np.ravel(splits),
        origins=origins,
        destinations=destinations,
    )
    guarantee = Guarantee.resolve(flows, k=10, protect="trips")
    cut = np.flatnonzero((origins.parent == 0) & ~origins.is_leaf).astype(np.int32)
    plan = Plan.from_cuts(flows, cut, destinations.leaf_node, np.ones(2 * n, bool))
    return Release.from_plan(flows, plan, guarantee, method="pairs", parameters={})


@pytest.mark.parametrize("last", [(5, 5), (6, 4), (9, 1)])
def test_even_cells_are_not_given_away_by_a_loss_near_zero(last):
    report = summarize(two_tile_cells([(5, 5)] * 11 + [last]))
    assert report["measures"]["trips"]["n_cells"] == 12
    assert report["measures"]["trips"]["reconstruction_loss"] is None
    assert report["measures"]["trips"]["distribution_distance"] is None
    assert "even" in report["withheld"]["reason"]


def test_the_loss_of_uneven_cells_is_disclosed():
    report = summarize(two_tile_cells([(9, 1)] * 12))
    assert report["measures"]["trips"]["reconstruction_loss"] == 0.8
    assert report["withheld"] is None


@pytest.mark.parametrize(("n", "told"), [(9, False), (10, True)])
def test_the_error_is_disclosed_only_of_ten_zones_that_may_hold_several_tiles(n, told):
    report = summarize(two_tile_cells([(9, 1)] * n))
    for name in SEEN:
        assert (report["measures"]["trips"][name] is not None) == told, name
    assert ("so few zones" in (report["withheld"] or {"reason": ""})["reason"]) != told


def test_a_method_makes_no_number_public_where_the_error_is_withheld():
    """A price or a gap is a function of the tiles seen, as the error is: here nothing is suppressed."""
    release = two_tile_cells([(9, 1)] * 9)
    noted = replace(release, plan=replace(release.plan, notes={"lambda": 4.0, "stopped_early": False}))
    assert summarize(noted)["notes"] == {"stopped_early": False}


def test_a_loss_that_shows_single_tiles_in_large_zones_is_withheld():
    """In twelve zones of two tiles one was seen each: a loss of nothing would say so."""
    n = 12
    names = ["R", *(f"p{i:02d}" for i in range(n)), *(f"t{i:02d}" for i in range(2 * n))]
    whole_map, _ = Hierarchy.from_parents([-1, *[0] * n, *[1 + i // 2 for i in range(2 * n)]], np.array(names))
    seen, _ = Hierarchy.from_parents([-1, *[0] * n, *range(1, n + 1)], np.array([*names[: n + 1], *names[n + 1 :: 2]]))
    tiles = np.arange(n)
    flows = Flows.from_pairs(tiles, tiles, tiles + 20, origins=seen, destinations=seen, whole_map=whole_map)
    cut = np.flatnonzero(seen.parent == 0).astype(np.int32)
    plan = Plan.from_cuts(flows, cut, cut, np.ones(n, np.bool_))
    release = Release.from_plan(flows, plan, Guarantee.resolve(flows, k=10), method="seen", parameters={})
    assert release.metrics()["trips"]["reconstruction_loss"] == 0
    assert set(release.zones["tiles"].to_pylist()) == {2}
    assert summarize(release)["measures"]["trips"]["reconstruction_loss"] is None
