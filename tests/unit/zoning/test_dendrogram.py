"""Every merge is the cheapest there is, and the tree does not depend on the order of the tiles."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import DataError
from flowveil.zoning.dendrogram import _Clusters, ward_hierarchy, ward_merges
from flowveil.zoning.geometry import refuse_places
from reference.zones import as_dict, cheapest_merge, merge_cost


def check_greedy(points: np.ndarray, weight: np.ndarray) -> None:
    """Each merge costs no more than any other that was possible then."""
    merges = ward_merges(points, weight)
    n = len(points)
    members = {i: frozenset([i]) for i in range(n)}
    assert len(merges) == n - 1
    scale = 1 + float(np.abs(points).max()) ** 2 * float(weight.sum())
    for i, (one, other) in enumerate(merges.tolist()):
        paid = merge_cost(points, weight, members[one], members[other])
        assert paid <= cheapest_merge(points, weight, list(members.values())) + 1e-9 * scale
        members[n + i] = members.pop(one) | members.pop(other)
    assert list(members.values()) == [frozenset(range(n))]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 10**6))
def test_merges_are_greedy(n, dimensions, seed):
    rng = np.random.default_rng(seed)
    check_greedy(rng.normal(size=(n, dimensions)), rng.integers(1, 5, n).astype(float))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12, unique=True)
)
def test_merges_are_greedy_where_distances_are_equal(points):
    check_greedy(np.array(points, dtype=float), np.ones(len(points)))


def test_merges_equal_scipy():
    hierarchy = pytest.importorskip("scipy.cluster.hierarchy")
    points = np.random.default_rng(3).normal(size=(700, 3))
    want = np.sort(hierarchy.linkage(points, "ward")[:, :2].astype(int), axis=1)
    assert np.array_equal(ward_merges(points, np.ones(700)), want)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_tiles_does_not_matter(places, random):
    codes = np.array([f"s{i:02d}" for i in range(len(places))])
    lat, lon = (np.array([p[i] / 100 + 48 for p in places]) for i in (0, 1))
    tree = ward_hierarchy(codes, lat, lon)
    assert sorted(tree.code[tree.leaf_node].tolist()) == codes.tolist()
    order = list(range(len(places)))
    random.shuffle(order)
    again = ward_hierarchy(codes[order], lat[order], lon[order])
    assert as_dict(again) == as_dict(tree)
    # Inner nodes have two children, but for those that gather one place.
    at_place: dict[tuple[int, int], set[str]] = {}
    for code, place in zip(codes.tolist(), places, strict=True):
        at_place.setdefault(place, set()).add(code)
    for v in np.flatnonzero(~tree.is_leaf).tolist():
        below = set(tree.code[tree.leaf_node[tree.leaf_start[v] : tree.leaf_stop[v]]].tolist())
        assert tree.n_children[v] == 2 or below in at_place.values()
    for together in at_place.values():
        if len(together) > 1:
            assert len({as_dict(tree)[c] for c in together}) == 1


def test_clusters_are_numbered_by_merge_and_spare_the_tiles_codes():
    lat, lon = np.array([48.0, 48.001, 48.1, 48.102]), np.full(4, 2.0)
    tree = ward_hierarchy(np.array(["a", "b", "c", "d"]), lat, lon)
    assert as_dict(tree) == {
        "c3": None,
        "c1": "c3",
        "c2": "c3",
        "a": "c1",
        "b": "c1",
        "c": "c2",
        "d": "c2",
    }
    assert tree.kind == "dendrogram"
    tree = ward_hierarchy(np.array(["c1", "cc2", "x", "y"]), lat, lon)
    assert set(tree.code.tolist()) == {"c1", "cc2", "x", "y", "ccc1", "ccc2", "ccc3"}
    lat = np.linspace(48, 49, 12)
    tree = ward_hierarchy(np.array([f"s{i:02d}" for i in range(12)]), lat, lat)
    assert tree.code[0] == "c11"
    assert "c01" in tree.code


def test_one_tile_and_one_place():
    tree = ward_hierarchy(np.array(["only"]), np.array([1.0]), np.array([2.0]))
    assert tree.n_nodes == 1
    many = np.array([f"s{i:04d}" for i in range(3000)])
    tree = ward_hierarchy(many, np.full(3000, 1.0), np.full(3000, 2.0))
    assert tree.n_nodes == 3001
    assert tree.max_depth == 1


def test_a_place_weighs_as_much_as_its_tiles():
    # Alone, b would be nearer to the many at 48.0 than to c; but the many are heavy to move.
    lat = np.array([48.0] * 9 + [48.10, 48.21])
    tree = ward_hierarchy(np.array([*(f"a{i}" for i in range(9)), "b", "c"]), lat, np.full(11, 2.0))
    assert as_dict(tree)["b"] == as_dict(tree)["c"] == "c2"


def test_neighbours_across_the_date_line_come_together():
    lat, lon = np.full(4, -17.0), np.array([179.99, -179.99, 178.0, -178.0])
    tree = ward_hierarchy(np.array(["a", "b", "c", "d"]), lat, lon)
    assert as_dict(tree)["a"] == as_dict(tree)["b"] == "c1"


def test_distances_are_metres_not_degrees():
    # At 60 degrees north a degree of longitude is half as long as one of latitude.
    tree = ward_hierarchy(
        np.array(["a", "b", "c"]), np.array([60.0, 60.0, 60.07]), np.array([10.0, 10.1, 10.0])
    )
    assert as_dict(tree)["a"] == as_dict(tree)["b"] == "c1"


def test_tiles_without_a_place_are_refused():
    codes = np.array([f"s{i}" for i in range(9)])
    lat, lon = np.full(9, 1.0), np.full(9, 2.0)
    lat[:7] = np.nan
    lon[8] = 181
    with pytest.raises(DataError) as caught:
        refuse_places(codes, lat, lon)
    assert "Of 9 tiles 7 have no coordinates: 's0', 's1', 's2', 's3', 's4' and 2 more" in str(
        caught.value
    )
    assert "1 lie off the earth" in str(caught.value)
    assert "'s8'" in str(caught.value)


def test_memory_grows_with_the_tiles_not_with_their_pairs():
    points = np.random.default_rng(0).normal(size=(2000, 3))
    tracemalloc.start()
    ward_merges(points, np.ones(2000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_500_000


def test_rows_of_equal_distances_need_few_rounds(monkeypatch):
    rounds = []
    search = _Clusters.nearest

    def counted(clusters, rows):
        rounds.append(len(rows))
        return search(clusters, rows)

    monkeypatch.setattr(_Clusters, "nearest", counted)
    merges = ward_merges(np.arange(4000.0)[:, None] * [1, 0, 0], np.ones(4000))
    assert len(merges) == 3999
    assert len(rounds) < 80
