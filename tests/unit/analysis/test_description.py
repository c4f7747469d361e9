"""What is in the data before anything is anonymised."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter

import h3
import numpy as np
import pyarrow as pa
import pytest
import shapely
from shapely.geometry import mapping

import flowveil
from conftest import trip_table
from flowveil.analysis.areas import PLANNER
from flowveil.analysis.description import generalization_floor
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from samples.hourly import hourly_trips
from samples.releases import city_flows, region_flows


def small_flows() -> Flows:
    tree, _ = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2], np.array(list("RXYabcd")))
    return Flows.from_pairs(
        np.array([0, 0, 1, 2, 3]),
        np.array([0, 1, 1, 2, 0]),
        np.array([12, 3, 10, 9, 1]),
        origins=tree,
        destinations=tree,
    )


def test_the_columns_of_the_paper():
    """Table 2 of Matet et al.: density, share of flows and of volume that are safe at k."""
    found = flowveil.describe(small_flows(), k=10)
    assert (found.flows, found.trips, found.origins, found.destinations) == (5, 35, 4, 4)
    assert found.density == pytest.approx(5 / 16)
    tiles, up, *_ = found.levels
    assert tiles.safe[0].flows == pytest.approx(2 / 5)
    assert tiles.safe[0].volume == pytest.approx(22 / 35)
    # One level up: X to X has 25, Y to Y 9, Y to X 1.
    assert (up.flows, up.safe[0].flows) == (3, pytest.approx(1 / 3))
    assert up.safe[0].volume == pytest.approx(25 / 35)
    assert found.contributors is None
    assert found.weight is None


def test_every_unit_that_the_data_has_is_held_against_k():
    found = flowveil.describe(
        trip_table(2000), k=5, resolution=8, person="person_id", weight="weight"
    )
    assert [share.unit for share in found.levels[0].safe] == ["trips", "people", "population"]
    assert found.rows == 2000
    assert found.levels[0].resolution == 8
    assert found.contributors.people <= 500
    for finer, coarser in itertools.pairwise(found.levels):
        assert coarser.flows <= finer.flows
        assert all(b.volume >= a.volume for a, b in zip(finer.safe, coarser.safe, strict=True))
    assert found.levels[-1].flows == 1


def test_a_place_that_is_mostly_one_person_s_is_warned_of():
    flows = city_flows(rows=600)
    found = flowveil.describe(flows, k=4)
    most = 0
    for tile in (flows.origin, flows.destination):
        for place in np.unique(tile):
            rows = tile[flows.people.cell] == place
            made = np.bincount(flows.people.person[rows], weights=flows.people.trips[rows])
            total = flows.trips[tile == place].sum()
            most += bool(total >= 4 and made.max() > total / 2)
    assert found.contributors.one_behind == most
    assert any("one person made most trips" in line for line in found.lines()) == (most > 0)
    alone = flowveil.Flows.from_pairs(
        np.array([0] * 9), np.array([1] * 9), person=np.array([0] * 6 + [1, 2, 3]),
        origins=flows.origins, destinations=flows.destinations,
    )  # fmt: skip
    found = flowveil.describe(alone, k=4)
    assert (found.contributors.one_behind, found.contributors.places) == (2, 2)
    assert any("one person made most trips" in line for line in found.lines())


def test_contributors_by_hand():
    flows = city_flows(rows=600)
    found = flowveil.describe(flows, k=4).contributors
    each = np.bincount(flows.people.person)
    assert found.people == np.count_nonzero(each)
    assert found.flows_each == pytest.approx(each.sum() / found.people)
    enough = flows.trips >= 4
    assert found.few_behind == pytest.approx(np.mean(flows.n_people()[enough] < 4))
    trips = np.sort(np.bincount(flows.people.person, weights=flows.people.trips))[::-1]
    assert trips.sum() == 600
    assert found.trips_each == pytest.approx(600 / found.people)
    assert found.busiest_share == pytest.approx(trips[: found.people // 100].sum() / 600)


def commuter_table() -> pa.Table:
    """One person makes 900 of 1,100 trips between the same two places.

    200 others make one trip each.
    """
    rng = np.random.default_rng(3)
    n = 1100
    person = np.array(["C"] * 900 + [f"p{i:03d}" for i in range(200)])
    near = rng.uniform(-0.05, 0.05, (4, n))
    near[:, :900] = 0.0
    order = rng.permutation(n)
    columns = {"start_lat": 48.85, "start_lon": 2.35, "end_lat": 48.88, "end_lon": 2.30}
    table = {name: (at + near[i])[order] for i, (name, at) in enumerate(columns.items())}
    return pa.table({**table, "person_id": person[order]})


def test_one_person_with_most_of_the_trips_is_seen():
    found = flowveil.describe(commuter_table(), k=10, resolution=8, person="person_id")
    who = found.contributors
    assert who.people == 201
    # Two people are the busiest hundredth: 900 trips and one.
    assert who.busiest_share == pytest.approx(901 / 1100)
    assert who.trips_each == pytest.approx(1100 / 201)
    assert who.flows_each == pytest.approx(1.0)
    text = "\n".join(found.lines())
    assert "with the most trips made 81.9% of them" in text
    assert "5.5 trips and is in 1.0 flows (different pairs of tiles)" in text


def test_rows_without_a_person_add_no_person():
    table = commuter_table()
    names = [None if name == "C" else name for name in table["person_id"].to_pylist()]
    flows = flowveil.read_trips(
        table.set_column(4, "person_id", pa.array(names)),
        resolution=8,
        person="person_id",
        max_dropped=0.9,
    )
    assert flows.people.trips.sum() == 200


def test_flows_that_do_not_know_the_trips_of_a_person_say_less():
    flows = city_flows(rows=600)
    found = flowveil.describe(
        dataclasses.replace(flows, people=dataclasses.replace(flows.people, trips=None)), k=4
    )
    assert found.contributors.busiest_share is None
    assert found.contributors.trips_each is None
    text = "\n".join(found.lines())
    assert "the most trips" not in text
    assert "A person is in" in text


def test_the_floor_says_what_it_is_for():
    """By default people where persons are known."""
    text = "\n".join(flowveil.describe(city_flows(), k=10).lines())
    assert "Lower bound if people are protected" in text
    text = "\n".join(flowveil.describe(city_flows(), k=10, protect="trips").lines())
    assert "Lower bound if trips are protected" in text
    alone = "\n".join(flowveil.describe(city_flows(persons=False, weights=False), k=10).lines())
    assert "Lower bound if trips are protected" in alone


def test_the_advice_tells_when_boxes_make_sense():
    (on_a_map,) = [
        line for line in flowveil.describe(city_flows(), k=10).advice if "oxes (" in line
    ]
    assert "'mondrian'" in on_a_map
    assert "nothing may be suppressed" in on_a_map
    assert "not add them up" in on_a_map
    (nowhere,) = [
        line for line in flowveil.describe(region_flows(), k=10).advice if "oxes (" in line
    ]
    assert "cannot be made" in nowhere


@pytest.mark.slow
def test_what_methods_would_give_is_estimated_by_running_them():
    """No release of the method itself is coarser than its estimate.

    Folding is estimated where a time is given.
    """
    pytest.importorskip("numba")
    trips = hourly_trips(900)
    found = flowveil.describe(trips, k=6, resolution=7, time="start")
    whole_time, folded = ("layercut", "twincut", "paircut", "curvecut"), ("layercut", "paircut")
    assert [one.method for one in found.estimates] == [*whole_time, *folded]
    assert [one.folded for one in found.estimates] == [False] * 4 + [True] * 2
    assert found.flows == len(flowveil.read_trips(trips, resolution=7))
    flows = flowveil.read_slices(trips, time="start", every="hour", resolution=7).folded()
    whole = flowveil.read_trips(trips, resolution=7)
    for one, on in zip(found.estimates, (whole,) * 4 + (flows,) * 2, strict=True):
        release = flowveil.anonymize(on, one.method, k=6)
        measured = release.metrics()["trips"]
        assert release.parameters.get("hierarchy") == one.hierarchy
        if not one.folded:
            assert measured["mean_generalization_error"] <= one.error + 1e-9
        else:
            assert measured["mean_time_width_h"] == pytest.approx(one.width_h, rel=0.5)
    text = "\n".join(found.lines())
    assert all(one.gives in text for one in found.estimates)
    # The planner's errors come first.
    (line,) = (line for line in text.splitlines() if line.startswith("  twincut "))
    planner = found.estimates[1].planner
    assert list(planner) == list(PLANNER)
    assert line.split()[1:3] == [
        f"{planner['misplaced']:.1%}",
        f"{planner['area_error']:.1%}",
    ]
    with pytest.raises(ParameterError, match="--time"):
        flowveil.describe(trips, resolution=7, every="hour")


def test_what_cannot_be_estimated_is_said(monkeypatch):
    twincut, paircut = flowveil.describe(region_flows(), k=10_000).estimates[1:3]
    assert (twincut.error, paircut.error) == (None, None)
    assert "max_suppressed" in paircut.line()
    monkeypatch.setattr("flowveil.analysis.description.MOST_FLOWS", 3)
    assert all(
        "more than 3 flows" in one.line()
        for one in flowveil.describe(region_flows(), k=10).estimates
    )


def test_the_floor_against_every_pair_of_ancestors():
    for seed in range(4):
        flows = region_flows(seed=seed)
        guarantee = Guarantee.resolve(flows, k=8)
        tree = flows.origins

        def above(tile, tree=tree):
            node = int(tree.leaf_node[tile])
            while node >= 0:
                yield node
                node = int(tree.parent[node])

        def inside(node, tile, tree=tree):
            return tree.leaf_start[node] <= tile < tree.leaf_stop[node]

        cost = []
        for o, d in zip(flows.origin, flows.destination, strict=True):
            best = np.inf
            for a, b in itertools.product(above(o), above(d)):
                rows = [
                    inside(a, x) and inside(b, y)
                    for x, y in zip(flows.origin, flows.destination, strict=True)
                ]
                if flows.trips[rows].sum() >= 8:
                    best = min(best, tree.size[a] + tree.size[b])
            cost.append(best)
        left, total = flows.trips.sum() * 0.9, 0.0
        for c, t in sorted(zip(cost, flows.trips.tolist(), strict=True)):
            taken = min(t, left)
            total, left = total + c * taken, left - taken
            if left <= 0:
                break
        expected = total / (flows.trips.sum() * 0.9)
        assert generalization_floor(flows, guarantee, max_suppressed=0.1) == pytest.approx(expected)


def test_no_method_beats_the_floor():
    flows = city_flows(rows=3000)
    floor = flowveil.describe(flows, k=10).floor
    for method in ("odkanon", "oigh", "atg-dual"):
        options = {"budget": "volume"} if method == "odkanon" else {}
        release = flowveil.anonymize(flows, method=method, k=10, **options)
        assert release.metrics()["trips"]["mean_generalization_error"] >= floor - 1e-9


def test_it_says_what_it_is_and_is_plain_data():
    found = flowveil.describe(city_flows(), k=10)
    lines = list(found.lines())
    assert lines[0].startswith("Internal")
    assert any("Lower bound" in line for line in lines)
    assert json.loads(json.dumps(found.to_dict()))["internal"].startswith("Internal")
    assert "internal" in repr(found)
    assert "SECRET" not in "\n".join(lines)


def test_the_advice_fits():
    everything = flowveil.describe(city_flows(rows=60_000), k=2)
    assert "Enough is safe" in everything.advice[0]
    sparse = flowveil.describe(trip_table(800), k=10, resolution=10)
    assert "--resolution" in sparse.advice[0]
    assert any("protect people" in line or "--protect people" in line for line in sparse.advice)


def test_wrong_arguments_are_said():
    with pytest.raises(ParameterError, match="k must be"):
        flowveil.describe(city_flows(), k=0)
    with pytest.raises(ParameterError, match="max_suppressed"):
        flowveil.describe(city_flows(), max_suppressed=1.0)
    tree, _ = Hierarchy.from_parents([-1], np.array(["R"]))
    none = np.zeros(0, np.int32)
    with pytest.raises(DataError, match="no flows"):
        flowveil.describe(Flows.from_pairs(none, none, origins=tree, destinations=tree))


@pytest.mark.parametrize("districts", ["5", "polygons"])
def test_what_a_matrix_of_the_areas_themselves_would_lose(districts, tmp_path):
    trips, middle = hourly_trips(900), 2.35

    def area(lat: float, lon: float) -> object:
        tile = h3.latlng_to_cell(lat, lon, 8)
        if districts == "5":
            return h3.cell_to_parent(tile, 5)
        return h3.cell_to_latlng(tile)[1] >= middle

    ends = [
        [trips[f"{end}_{axis}"].to_pylist() for axis in ("lat", "lon")]
        for end in ("origin", "destination")
    ]
    pairs = Counter(
        (area(*origin), area(*destination))
        for origin, destination in zip(
            zip(*ends[0], strict=True), zip(*ends[1], strict=True), strict=True
        )
    )
    missing = sum(n for n in pairs.values() if n < 230)
    assert 0 < missing < 900
    given = districts
    if districts == "polygons":
        given = tmp_path / "districts.geojson"
        shapes = [shapely.box(2, 48, middle, 50), shapely.box(middle, 48, 3, 50)]
        features = [
            {"type": "Feature", "properties": {"code": str(i)}, "geometry": mapping(shape)}
            for i, shape in enumerate(shapes)
        ]
        given.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = flowveil.describe(trips, k=230, resolution=8, districts=given)
    assert found.whole_areas.missing == pytest.approx(missing / 900)
    assert found.advice[-1].startswith("Between areas of")
