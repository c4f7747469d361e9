"""Zones and flows across the 180th meridian, and trips over the whole globe."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import flowveil
from flowveil.published.exports import lines
from flowveil.published.maps import (
    MapFrame,
    lies_across,
    map_of_release,
    part_bounds,
    shifted_eastward,
)
from flowveil.zoning.files import read_zones
from flowveil.zoning.geometry import places_from_outlines


def trips(lat: np.ndarray, lon: np.ndarray) -> pa.Table:
    lon = (lon + 180) % 360 - 180
    columns = {
        "start_lat": lat[:, 0],
        "start_lon": lon[:, 0],
        "end_lat": lat[:, 1],
        "end_lon": lon[:, 1],
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def fiji(tmp_path_factory) -> pa.Table:
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("fiji") / "release"
    table = trips(-17 + rng.normal(0, 0.3, (2000, 2)), 180 + rng.normal(0, 0.8, (2000, 2)))
    release = flowveil.anonymize(flowveil.read_trips(table, resolution=6), "twincut", k=10)
    release.write(folder, formats=("geojson", "gpkg"))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("small_surroundings")
@pytest.mark.parametrize("method", ["twincut", "paircut"])
def test_trips_over_the_whole_globe_are_published(tmp_path, method):
    rng = np.random.default_rng(1)
    lat = np.degrees(np.arcsin(rng.uniform(-1, 1, (3000, 2))))
    flows = flowveil.read_trips(trips(lat, rng.uniform(-180, 180, (3000, 2))), resolution=1)
    release = flowveil.anonymize(flows, method, k=10)
    release.write(tmp_path / "release", formats=("geojson",))
    zones = pq.read_table(tmp_path / "release" / "zones.parquet")
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    assert np.all(np.abs(shapely.bounds(outlines)) <= (180, 90, 180, 90))
    # No ring of the page runs round the world: a zone is torn nowhere, Greenwich included.
    drawn = map_of_release(pq.read_table(tmp_path / "release" / "flows.parquet"), zones)
    width = 1 / drawn["frame"]["perUnit"]
    whole = [zone for zone in zones["zone"].to_pylist() if zone == "all"]
    steps = [
        max(abs(x) for x in ring[2::2])
        for shape in drawn["shapes"]
        for ring in shape
        if len(ring) > 2
    ]
    assert max(steps) < width / 2 or whole


def test_flow_lines_take_the_shorter_way(fiji):
    features = json.loads((fiji / "flows.geojson").read_text("utf-8"))["features"]
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    cut = [shape for shape in shapes if shape.geom_type == "MultiLineString"]
    assert cut
    for shape in cut:
        west, east = shape.geoms
        assert abs(west.coords[1][0]) == 180
        assert west.coords[1] == (-east.coords[0][0], east.coords[0][1])
    # Five degrees of the map, and not three hundred and fifty-five.
    assert max(shape.length for shape in shapes) < 8


def test_zones_across_are_drawn_together(fiji):
    flows, zones = (pq.read_table(fiji / f"{name}.parquet") for name in ("flows", "zones"))
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    assert lies_across(part_bounds(outlines))
    frame = MapFrame.around(part_bounds(outlines))
    assert frame.shifted
    drawn = map_of_release(flows, zones)
    xs = [ring[0] for shape in drawn["shapes"] for ring in shape]
    assert max(xs) - min(xs) <= 1 / drawn["frame"]["perUnit"] / 20
    # Pictures show it in one piece, too.
    moved = shapely.from_wkb(shifted_eastward(zones)["geometry"].to_numpy(zero_copy_only=False))
    assert np.ptp(shapely.total_bounds(moved)[[0, 2]]) < 10
    assert all(shape.geom_type == "Polygon" for shape in moved)
    assert shapely.area(moved).sum() == pytest.approx(shapely.area(outlines).sum(), rel=1e-6)


@pytest.mark.parametrize(
    "outline",
    [
        shapely.box(179, -18, 181, -16),
        shapely.box(-181, -18, -179, -16),
        shapely.MultiPolygon([shapely.box(179, -18, 180, -16), shapely.box(-180, -18, -179, -16)]),
    ],
)
def test_an_own_zone_across_has_its_centre_in_it(outline):
    others = [shapely.box(177, -18, 179, -16), shapely.box(-179, -18, -177, -16)]
    places = places_from_outlines(
        np.array(["a", "b", "c"]), np.array([outline, *others], dtype=object)
    )
    assert abs(places.lon[0]) == pytest.approx(180, abs=1e-6)
    assert places.drawn_km2 is not None
    assert places.drawn_km2 == pytest.approx(np.full(3, places.drawn_km2[1]), rel=1e-4)
    assert places.drawn is not None
    west, _, east, _ = shapely.bounds(places.drawn[0])
    assert (west, east) == (-180, 180)
    assert shapely.area(places.drawn[0]) == pytest.approx(4)


def test_points_on_both_sides_are_found_in_an_own_zone(tmp_path):
    zones = pa.table(
        {
            "code": ["a", "b"],
            "geometry": (
                shapely.to_wkb(
                    [shapely.box(179, -18, 181, -16), shapely.box(177, -18, 179, -16)]
                ).tolist()
            ),
        }
    )
    geo = b'{"primary_column":"geometry","columns":{"geometry":{"encoding":"WKB"}}}'
    pq.write_table(zones.replace_schema_metadata({"geo": geo}), tmp_path / "zones.parquet")
    found = read_zones(tmp_path / "zones.parquet", tile="code")
    assert found.tiles_at(np.array([-17.0, -17.0]), np.array([-179.5, 179.5])).tolist() == [0, 0]


def test_a_line_from_the_meridian_itself_is_not_cut():
    zones = pa.table(
        {"zone": ["a", "b"], "role": ["both"] * 2, "lon": [180.0, -179.0], "lat": [0.0, 1.0]}
    )
    drawn = lines(pa.table({"origin_zone": ["a"], "destination_zone": ["b"]}), zones)
    assert drawn[0].geom_type == "LineString"
    assert drawn[0].length < 2
