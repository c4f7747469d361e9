"""Boxes: the grid, tiles in rectangles, published codes, shapes and areas.

Measures where boxes overlap.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyproj import Geod

from flowveil import DataError, Flows, Hierarchy, MissingExtraError, ParameterError, anonymize
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import PlaceCounts
from flowveil.methods.mondrian import mondrian
from flowveil.publishing.release import Release
from flowveil.release.boxes import UNITS_PER_DEGREE, BoxZones, Frame, Grid, TileIndex
from flowveil.release.plan import Plan
from flowveil.zoning.covering import pairs_inside
from flowveil.zoning.public_map import Rectangles
from reference import measures as slow
from samples.placed import placed_flows, placed_problems, star
from samples.releases import city_flows

WORLD = st.tuples(st.floats(-89, 89), st.floats(-180, 180))


def zones_of(grid: Grid, lat, lon, boxes) -> BoxZones:
    squares = grid.squares(np.array(lat, float), np.array(lon, float))
    columns = (np.array(column, dtype=np.int32) for column in zip(*boxes, strict=True))
    return BoxZones.of(grid, squares, *columns)[0]


def published(zones: BoxZones) -> Rectangles:
    """The boxes as a reader knows them: by their codes alone."""
    return Rectangles.from_codes(zones.codes(np.arange(len(zones))).tolist())


# ---- the grid ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(WORLD, min_size=1, max_size=20),
    st.integers(10, 10**6),
    st.integers(10, 10**6),
    st.booleans(),
)
def test_a_point_is_in_its_square_and_in_no_other(points, lon_units, lat_units, across):
    lat, lon = np.array(points).T
    grid = Grid(lon_units, lat_units, across)
    x, y = grid.squares(lat, lon)
    zones = BoxZones(grid, (x, y), x, y, x, y)
    east = np.where(lon >= 180, lon - 360, lon)
    for i, shape in enumerate(published(zones).polygons()):
        bounds = [part.bounds for part in shapely.get_parts(shape)]
        assert len(bounds) == 1
        assert sum(w <= east[i] < e and s <= lat[i] < n for w, s, e, n in bounds) == 1


@given(st.lists(WORLD, min_size=1, max_size=20), st.integers(10, 10**6))
def test_lines_do_not_reveal_that_a_suppressed_trip_lies_across_the_earth(points, units):
    """Trips in New York and one in Auckland are cut at Greenwich.

    The boxes of New York keep their edges.
    """
    lat, lon = np.array(points).T
    codes = []
    for across in (False, True):
        x, y = Grid(units, units, across).squares(lat, lon)
        zones = BoxZones(Grid(units, units, across), (x, y), x, y, x, y)
        codes.append(zones.codes(np.arange(len(x))).tolist())
    assert codes[0] == codes[1]


def test_edges_on_a_grid_line_belong_to_the_box_east_and_north_of_it():
    grid = Grid(1_000_000, 1_000_000)
    x, y = grid.squares(np.array([0.1, 0.2, 0.3]), np.array([0.7, 0.6, -0.1]))
    assert x.tolist() == [7, 6, -1]
    assert y.tolist() == [1, 2, 3]


def test_the_grid_is_as_wide_as_a_tile_unless_said_otherwise():
    tree = star(np.array([48.0, 48.1]), np.array([2.0, 2.1]))
    flows = Flows.from_pairs([0, 1], [1, 0], [9, 9], origins=tree, destinations=tree)
    usual, wide = Frame.of(flows), Frame.of(flows, grid_m=5000)
    assert usual.step_cm.tolist() == pytest.approx([100_000] * 4, rel=0.05)
    assert wide.step_cm.tolist() == pytest.approx([500_000] * 4, rel=0.05)
    # A number that the sentence can state.
    assert usual.grid.degrees[1] == 0.009


@pytest.mark.parametrize("grid_m", [0, -1, 0.5, float("nan"), float("inf")])
def test_a_grid_has_a_width(grid_m):
    tree = star(np.zeros(1), np.zeros(1))
    flows = Flows.from_pairs([0], [0], [9], origins=tree, destinations=tree)
    with pytest.raises(ParameterError, match="grid_m must be at least 1 metre"):
        Frame.of(flows, grid_m=grid_m)


@pytest.mark.parametrize("method", ["mondrian", "glove", "glove-sk", "curvecut"])
def test_tiles_without_a_place_are_refused(method):
    tree, _ = Hierarchy.from_parents([-1, 0, 0], np.array(["r", "a", "b"]))
    flows = Flows.from_pairs([0, 1], [1, 0], [9, 9], origins=tree, destinations=tree)
    with pytest.raises(DataError, match=r"no coordinates.*Hint"):
        anonymize(flows, method, k=3)


@pytest.mark.parametrize(
    ("method", "library"),
    [("glove", "numba"), ("glove", "scipy"), ("glove-sk", "sklearn"), ("curvecut", "numba")],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, method, library):
    for name in [m for m in sys.modules if m.split(".")[0] == library or m.endswith("box_loops")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    tree = star(np.zeros(2), np.array([0.0, 0.1]))
    flows = Flows.from_pairs([0, 1], [1, 0], [2, 2], origins=tree, destinations=tree)
    with pytest.raises(MissingExtraError, match=r"flowveil\[boxes\]"):
        anonymize(flows, method, k=3)


@pytest.mark.parametrize("method", ["mondrian", "glove", "curvecut"])
def test_listed_places_count_instead_of_tiles(method):
    flows = city_flows(rows=3000)
    listed = flows.origins.code_text(flows.origins.leaf_node)[::3]
    flows = replace(flows, l_places=PlaceCounts(listed, np.ones(len(listed), np.int64)))
    assert len(anonymize(flows, method, k=5, l=3).flows) > 1


# ---- counting ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=40),
    st.lists(st.tuples(*[st.integers(-7, 7)] * 4), min_size=1, max_size=10),
)
def test_tiles_in_rectangles(tiles, rectangles):
    x, y = np.array(tiles, dtype=np.int32).T
    x0, y0, x1, y1 = np.array(rectangles, dtype=np.int32).T
    x1, y1 = np.maximum(x0, x1), np.maximum(y0, y1)
    want = [
        sum(a <= p <= c and b <= q <= d for p, q in tiles)
        for a, b, c, d in zip(x0, y0, x1, y1, strict=True)
    ]
    assert TileIndex.of(x, y).count(x0, y0, x1, y1).tolist() == want


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 120), st.integers(0, 20), st.integers(0, 10**6))
def test_pairs_of_points_and_boxes(dimensions, n_points, n_boxes, seed):
    rng = np.random.default_rng(seed)
    point = rng.integers(0, 6, (dimensions, n_points))
    low = rng.integers(-1, 6, (dimensions, n_boxes))
    high = low + rng.integers(0, 8, low.shape)
    got = [
        (int(p), int(b))
        for part in pairs_inside(point, low, high)
        for p, b in zip(*part, strict=True)
    ]
    want = {
        (p, b)
        for p in range(n_points)
        for b in range(n_boxes)
        if np.all(low[:, b] <= point[:, p]) and np.all(point[:, p] < high[:, b])
    }
    assert len(got) == len(set(got))
    assert set(got) == want


def test_pairs_are_found_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr("flowveil.zoning.covering.PAIRS_AT_ONCE", 50)
    point = np.arange(1000)[None]
    parts = list(pairs_inside(point, np.zeros((1, 7), int), np.full((1, 7), 1000)))
    assert len(parts) > 7
    assert sum(len(p) for p, _ in parts) == 7000


# ---- zones ---------------------------------------------------------------------------------------


def test_codes_say_west_south_east_north():
    zones = zones_of(Grid(12_000, 9_000), [48.85], [2.35], [(1958, 54_277, 1959, 54_279)])
    assert zones.codes(np.array([0])).tolist() == ["box_2.3496_48.8493_2.352_48.852"]
    west, south, east, north = published(zones).polygons()[0].bounds
    assert (west, south, east, north) == (2.3496, 48.8493, 2.352, 48.852)
    assert zones.level.tolist() == [0]


@settings(max_examples=40, deadline=None)
@given(placed_flows())
def test_codes_are_unique_and_sizes_are_tiles_in_the_published_shape(flows):
    plan = mondrian(flows, Guarantee.resolve(flows, k=1))
    for tree, zones in (
        (flows.origins, plan.origin_zones),
        (flows.destinations, plan.destination_zones),
    ):
        number = np.arange(len(zones))
        assert len(set(zones.codes(number).tolist())) == len(zones)
        inside = slow.tiles_of(tree, zones)
        assert zones.size.tolist() == [len(inside[z]) for z in range(len(zones))]
        lat, lon = published(zones).centers()
        middle = shapely.points(lon, lat)
        assert np.all(shapely.dwithin(published(zones).polygons(), middle, 1e-9))


def test_areas_are_those_of_the_ellipsoid():
    zones = zones_of(
        Grid(100_000, 100_000), [0.0], [0.0], [(23, 4885, 27, 4889), (0, -2000, 99, -1901)]
    )
    got = published(zones).areas_km2()
    # Parallels are not geodesics: cut the edges into short pieces.
    for area, shape in zip(got, published(zones).polygons(), strict=True):
        ring = shapely.segmentize(shape, 0.001)
        assert area == pytest.approx(
            abs(Geod(ellps="WGS84").geometry_area_perimeter(ring)[0]) / 1e6, rel=1e-6
        )


def test_the_whole_earth():
    zones = zones_of(Grid(UNITS_PER_DEGREE, UNITS_PER_DEGREE), [0.0], [0.0], [(-180, -90, 179, 89)])
    assert published(zones).areas_km2()[0] == pytest.approx(510_065_621.7, rel=1e-6)


def test_a_box_across_180_degrees():
    tree = star(np.array([-17.0, -17.0]), np.array([179.99, -179.99]))
    flows = Flows.from_pairs([0, 1], [0, 1], [6, 6], origins=tree, destinations=tree)
    plan = mondrian(flows, Guarantee.resolve(flows, k=12))
    zones = plan.origin_zones
    assert len(zones) == 1
    assert zones.size.tolist() == [2]
    parts = shapely.get_parts(published(zones).polygons()[0])
    assert len(parts) == 2
    assert abs(published(zones).centers()[1][0]) == pytest.approx(180, abs=0.02)
    assert published(zones).areas_km2()[0] < 20
    west, east = (float(t) for t in np.array(zones.codes(np.array([0]))[0].split("_"))[[1, 3]])
    assert west > 179
    assert east < -179


# ---- measures ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    placed_problems(),
    st.sampled_from(["mondrian", "mondrian-relaxed", "glove"]),
    st.sampled_from([0.0, 0.3]),
)
def test_measures_equal_their_definition_where_boxes_overlap(problem, method, max_suppressed):
    flows, guarantee = problem
    options = {"partitioning": "relaxed"} if method.endswith("relaxed") else {}
    assume(len(flows) > 1)
    try:
        asked = {"k": guarantee.k, "protect": "trips", "allow_small_k": True, **options}
        release = anonymize(flows, method.split("-")[0], max_suppressed=max_suppressed, **asked)
    except Exception as problem:
        assume("No cell can be published" not in str(problem))
        raise
    for basis, got in release.metrics().items():
        if release.cells.volume(basis).sum() == 0:
            continue
        least = 0.0 if basis == "trips" else release.guarantee.class_size(basis, flows)
        want = slow.measures(release, basis, least)
        want.pop("mean_class")
        for key, value in want.items():
            if value is None:
                assert got[key] is None, key
            else:
                assert got[key] == pytest.approx(value, rel=1e-9, abs=1e-9), key
        moved = slow.distances(release, basis)
        mean = sum(m * v for m, v in moved) / sum(v for _, v in moved)
        assert got["generalization_distance_m"] == pytest.approx(mean, rel=1e-9, abs=1e-6)


def test_a_pair_in_two_boxes_gets_a_share_of_both():
    tree = star(np.zeros(3), np.array([0.0, 0.02, 0.04]))
    flows = Flows.from_pairs([0, 1, 2], [0, 0, 0], [3, 4, 3], origins=tree, destinations=tree)
    guarantee = Guarantee.resolve(flows, k=3)
    frame = Frame.of(flows)
    # The outer two flows share a box that also covers the middle one.
    plan = Plan.from_boxes(frame, np.array([0, 1, 0], np.int32), np.ones(3, bool), disjoint=False)
    release = Release.from_plan(flows, plan, guarantee, method="by hand", parameters={})
    # 6 trips over 3 pairs: 2 each. The middle pair gets 2 + 4 for its 4, the others 2 for their 3.
    assert release.metrics()["trips"]["reconstruction_loss"] == pytest.approx((1 + 2 + 1) / 10)


def test_the_declared_grid_says_nothing_of_a_trip_far_away():
    """Paris, and one trip from the far north: it is suppressed, and the width of squares must not
    give it away."""
    near = star(48.85 + 0.009 * np.arange(9), np.full(9, 2.35))
    far = star(np.append(48.85 + 0.009 * np.arange(9), 69.6), np.append(np.full(9, 2.35), 18.9))
    grids = []
    for tree in (near, far):
        n = tree.n_tiles
        trips = np.where(np.arange(n) < 9, 20, 1)
        flows = Flows.from_pairs(np.arange(n), np.arange(n), trips, origins=tree, destinations=tree)
        release = anonymize(flows, "curvecut", k=10)
        grids.append(vars(release.plan.boxes))
    assert grids[0] == grids[1]
