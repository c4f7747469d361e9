"""What is in the data before anything is anonymised."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import flowveil
from conftest import trip_table
from flowveil.description import generalization_floor
from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy
from unit.publish.releases import city_flows, region_flows


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
    (tiles, up, *_) = found.levels
    assert tiles.safe[0].flows == pytest.approx(2 / 5)
    assert tiles.safe[0].volume == pytest.approx(22 / 35)
    # One level up: X to X has 25, Y to Y 9, Y to X 1.
    assert (up.flows, up.safe[0].flows) == (3, pytest.approx(1 / 3))
    assert up.safe[0].volume == pytest.approx(25 / 35)
    assert found.contributors is None
    assert found.weight is None


def test_every_unit_that_the_data_has_is_held_against_k():
    found = flowveil.describe(trip_table(2000), k=5, resolution=8, person="person_id", weight="weight")
    assert [share.unit for share in found.levels[0].safe] == ["trips", "people", "population"]
    assert found.rows == 2000
    assert found.levels[0].resolution == 8
    assert found.contributors.people <= 500
    for finer, coarser in itertools.pairwise(found.levels):
        assert coarser.flows <= finer.flows
        assert all(b.volume >= a.volume for a, b in zip(finer.safe, coarser.safe, strict=True))
    assert found.levels[-1].flows == 1


def test_contributors_by_hand():
    flows = city_flows(rows=600)
    found = flowveil.describe(flows, k=4).contributors
    each = np.bincount(flows.people.person)
    assert found.people == np.count_nonzero(each)
    assert found.flows_each == pytest.approx(each.sum() / found.people)
    enough = flows.trips >= 4
    assert found.few_behind == pytest.approx(np.mean(flows.n_people()[enough] < 4))
    busiest = np.sort(each)[::-1][: found.people // 100].sum()
    assert found.busiest_share == pytest.approx(busiest / each.sum())


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
                rows = [inside(a, x) and inside(b, y) for x, y in zip(flows.origin, flows.destination, strict=True)]
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
    assert any("Floor" in line for line in lines)
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
