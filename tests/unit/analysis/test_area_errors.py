"""The planner's error equals its definition, for H3 levels, the user's map, districts and boxes."""

from __future__ import annotations

import json
import tempfile
from collections import Counter

import h3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from conftest import trip_table
from flowveil.analysis.areas import (
    CLUSTER_TILES,
    area_accuracy,
    clusters,
    default_levels,
    main_accuracy,
)
from flowveil.analysis.experiment import planner_errors
from flowveil.core.errors import InfeasibleError
from reference import areas as slow
from samples.drafts import unchecked
from samples.stage import city_trips, map_of_squares

METHODS = st.sampled_from(["layercut", "odkanon", "twincut", "paircut", "atg-dual"])
TREES = st.sampled_from(["h3", "halves"])


def _errors(one):
    return one.misplaced, one.area_error, one.production_error, one.attraction_error


def _released(seed, method, hierarchy):
    flows = flowveil.read_trips(trip_table(80, seed=seed), resolution=8)
    return flowveil.anonymize(
        flows, method, k=5, protect="trips", hierarchy=hierarchy, max_suppressed=0.3
    )


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 99), METHODS, TREES)
def test_errors_are_those_of_what_reconstruct_makes_of_the_folder(seed, method, hierarchy):
    release = _released(seed, method, hierarchy)
    with tempfile.TemporaryDirectory() as place:
        folder = release.write(f"{place}/release")
        tables = {level: flowveil.reconstruct(folder, level) for level in (7, 6)}
    errors = area_accuracy(release)
    assert [(one.level, one.estimate) for one in errors] == [
        (7, "reconstruction"),
        (6, "reconstruction"),
    ]
    for one in errors:
        columns = (
            tables[one.level][name].to_pylist() for name in ("origin", "destination", "trips")
        )
        estimate = {(o, d): trips for o, d, trips in zip(*columns, strict=True)}
        expected = slow.area_errors(release.input, one.level, estimate)
        assert _errors(one) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 99), METHODS, TREES)
def test_cells_that_are_too_coarse_are_spread_evenly(seed, method, hierarchy):
    release = _released(seed, method, hierarchy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowveil.analysis.areas.MOST_ROWS", 0)
        # The reference spreads the largest zones over all of their areas too.
        patch.setattr("flowveil.published.zone_overlaps.MOST_AREAS", 1_000_000)
        errors = area_accuracy(release)
    for one in errors:
        assert one.estimate == "even spread"
        expected = slow.area_errors(
            release.input, one.level, slow.even_spread(release, one.level, 8)
        )
        assert _errors(one) == pytest.approx(expected, abs=1e-9)


def test_tiles_that_are_published_unchanged_have_no_error():
    flows = flowveil.read_trips(trip_table(300), resolution=8)
    release = flowveil.anonymize(flows, "suppression", k=1, protect="trips", allow_small_k=True)
    for one in area_accuracy(release):
        assert _errors(one) == pytest.approx((0, 0, 0, 0), abs=1e-12)
        assert one.trip_length_ratio == pytest.approx(1)
        assert one.accessibility_error == pytest.approx(0, abs=1e-12)


def _on_a_map(k: int):
    """Two towns of two districts each; trips within each town only."""
    zones = pa.table(
        {
            "zone": ["a", "b", "c", "d"],
            "town": ["west", "west", "east", "east"],
            "lat": [48.80, 48.81, 48.82, 48.83],
            "lon": [2.30, 2.31, 2.80, 2.81],
        }
    )
    pairs = [("a", "b")] * 12 + [("b", "a")] * 8 + [("c", "d")] * 20
    table = pa.table({"o": [o for o, _ in pairs], "d": [d for _, d in pairs]})
    flows = flowveil.read_trips(
        table,
        origin_tile="o",
        destination_tile="d",
        zones=flowveil.read_zones(zones, levels=["town", "zone"]),
    )
    return flowveil.anonymize(flows, "oigh", k=k, protect="trips", max_suppressed=0)


def test_levels_of_the_users_own_map_are_areas():
    exact = area_accuracy(_on_a_map(5))
    assert default_levels(_on_a_map(5).input) == [one.level for one in exact]
    assert all(one.area_error == pytest.approx(0) for one in exact)
    # Towns as zones: trips between towns stay right.
    assert area_accuracy(_on_a_map(15))[0].area_error == pytest.approx(0)
    # One zone for all: 40 trips are spread evenly over four pairs of towns.
    assert area_accuracy(_on_a_map(30))[0].area_error == pytest.approx(0.5)


def test_districts_of_the_user_are_areas():
    flows = flowveil.read_trips(trip_table(300), resolution=8)
    release = flowveil.anonymize(flows, "suppression", k=1, protect="trips", allow_small_k=True)
    ring = [[1.0, 47.0], [4.0, 47.0], [4.0, 50.0], [1.0, 50.0], [1.0, 47.0]]
    feature = {
        "type": "Feature",
        "properties": {"zone": "all"},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    geometry = pytest.importorskip("geopandas").GeoDataFrame.from_features(
        [feature], crs="EPSG:4326"
    )
    (found,) = area_accuracy(release, districts=flowveil.read_zones(geometry), levels=[])
    assert (found.areas, found.n_areas, found.area_error) == (
        "districts",
        1,
        pytest.approx(0, abs=1e-9),
    )


def test_boxes_are_spread_by_their_area():
    flows = flowveil.read_trips(trip_table(400), resolution=8)
    try:
        release = flowveil.anonymize(flows, "mondrian", k=5, protect="trips")
    except InfeasibleError:
        pytest.fail("mondrian publishes every trip")
    fine, coarse = area_accuracy(release)
    assert 0 <= coarse.area_error <= fine.area_error <= 1


def test_boxes_across_the_180th_meridian_are_as_accurate_as_elsewhere():
    errors = []
    for middle in (180.0, 10.0):
        rng = np.random.default_rng(1)
        lat, lon = (
            rng.normal(-17, 0.2, (2, 600)),
            (middle + rng.normal(0, 0.2, (2, 600)) + 180) % 360 - 180,
        )
        ends = {"start_lat": lat[0], "start_lon": lon[0], "end_lat": lat[1], "end_lon": lon[1]}
        flows = flowveil.read_trips(pa.table(ends), resolution=8)
        errors.append(
            area_accuracy(flowveil.anonymize(flows, "mondrian", k=10, protect="trips"), levels=[6])[
                0
            ]
        )
    across, elsewhere = errors
    assert across.production_error == pytest.approx(elsewhere.production_error, abs=0.05)
    assert across.trip_length_ratio == pytest.approx(elsewhere.trip_length_ratio, abs=0.05)


def test_slices_are_compared_each_with_its_own_trips():
    table = trip_table(600).append_column("sex", pa.array([("f", "m")[i % 2] for i in range(600)]))
    sliced = flowveil.read_slices(table, by="sex", resolution=8)
    release = flowveil.anonymize_slices(sliced, "odkanon", k=5, protect="trips")
    (together,) = area_accuracy(release, levels=[6])
    own = [(*area_accuracy(part, levels=[6]), part.input.trips.sum()) for _, part in release.parts]
    for name in ("misplaced", "area_error"):
        errors = sum(getattr(one, name) * n for one, n in own) / sum(n for _, n in own)
        assert getattr(together, name) == pytest.approx(errors)
    # What one slice has too much and another lacks is right in their sum.
    assert 0 < together.misplaced_together < together.misplaced
    assert own[0][0].misplaced_together is None


def test_folds_are_compared_value_by_value_and_together(tmp_path):
    rng = np.random.default_rng(3)
    table = trip_table(900).append_column(
        "sex", pa.array(rng.choice(["f", "m"], 900, p=[0.8, 0.2]))
    )
    start = np.datetime64("2024-01-01", "s") + rng.integers(0, 86_400, 900)
    table = table.append_column("start", pa.array(start))
    flows = flowveil.read_trips(table, by="sex", resolution=8, time="start", every="6h")
    trees = {"sex": flowveil.read_tree({"all": None, "f": "all", "m": "all"})}
    release = flowveil.anonymize(flows.folded(trees), "layercut", k=5, protect="trips")
    (one,) = area_accuracy(release, levels=[6])
    with unchecked():
        folder = release.write(tmp_path / "r")
    for name, dimensions in (("misplaced", ["time", "sex"]), ("misplaced_together", [])):
        added = [column for column in ("time", "sex") if column not in dimensions]
        estimate = flowveil.reconstruct(folder, 6, sum=added)
        difference = Counter[tuple[str, ...]]()
        columns = ("origin", "destination", *dimensions, "trips")
        for *key, trips in zip(*(estimate[column].to_pylist() for column in columns), strict=True):
            difference[tuple(key)] += trips
        codes = [
            tree.code_text(tree.leaf_node).tolist() for tree in (flows.origins, flows.destinations)
        ]
        value = {
            d.name: d.labels[leaf] for d, leaf in zip(flows.dimensions, flows.leaves, strict=True)
        }
        for row, trips in enumerate(flows.trips.tolist()):
            ends = (codes[0][flows.origin[row]], codes[1][flows.destination[row]])
            areas = [h3.cell_to_parent(code, 6) for code in ends]
            difference[(*areas, *(str(value[column][row]) for column in dimensions))] -= trips
        wanted = sum(map(abs, difference.values())) / 2 / flows.trips.sum()
        assert getattr(one, name) == pytest.approx(wanted)
    assert 0 < one.misplaced_together < one.misplaced


# ---- maps without levels -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_dendrogram(tmp_path_factory) -> flowveil.Flows:
    """Trips between the 64 squares of a map without parents."""
    path = tmp_path_factory.mktemp("map") / "squares.geojson"
    path.write_text(json.dumps(map_of_squares()), encoding="utf-8")
    zones = flowveil.read_zones(path, tile="iris")
    assert zones.hierarchy.kind == "dendrogram"
    return flowveil.read_trips(city_trips(), zones=zones)


def test_clusters_are_the_largest_nodes_of_a_stated_size(on_dendrogram):
    tree = on_dendrogram.whole_map
    zoning = clusters(on_dendrogram)
    for leaf, node in enumerate(zoning.node.tolist()):
        assert tree.leaf_start[node] <= leaf < tree.leaf_stop[node]
        assert tree.size[node] <= CLUSTER_TILES < tree.size[tree.parent[node]]
    assert 64 / CLUSTER_TILES <= len(np.unique(zoning.node)) < 20


@pytest.mark.parametrize("method", ["layercut", "odkanon", "atg-dual", "oigh", "glove", "mondrian"])
def test_every_method_has_a_planners_error_on_a_dendrogram(on_dendrogram, method):
    release = flowveil.anonymize(on_dendrogram, method, k=10, protect="trips")
    (error,) = area_accuracy(release)
    assert error.areas == f"clusters of at most {CLUSTER_TILES} tiles"
    assert main_accuracy([error]) is error
    assert 0 <= error.area_error < 1
    assert planner_errors(release, "trips")["misplaced"] == error.misplaced
    if method != "layercut":
        # Tiles that are published as they are have no error; neither have boxes of one tile.
        exact = flowveil.anonymize(
            on_dendrogram, method, k=1, protect="trips", max_suppressed=0.0, allow_small_k=True
        )
        (none,) = area_accuracy(exact)
        assert none.area_error == pytest.approx(0, abs=1e-9)
