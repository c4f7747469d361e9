from __future__ import annotations

import geopandas
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pytest
import shapely

import flowveil
from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.areas import parse_area

PARIS = "2.2,48.8,2.5,48.9"


def test_a_box_holds_its_borders_and_may_cross_the_180th_meridian() -> None:
    box = parse_area("170, -10, -170, 10")
    lon = np.array([170.0, 180.0, -180.0, -170.0, 169.0, 0.0])
    assert box.holds(np.zeros(6), lon).tolist() == [True] * 4 + [False] * 2
    assert parse_area(box.text) == box


def test_an_area_of_cells_holds_the_tiles_below_them_whatever_their_resolutions() -> None:
    coarse, other = h3_int.latlng_to_cell(48.85, 2.35, 6), h3_int.latlng_to_cell(48.95, 2.35, 8)
    area = parse_area(f"{coarse:x},{other:x}")
    tiles = np.array(
        [
            *h3_int.cell_to_children(coarse, 9),
            *h3_int.grid_disk(h3_int.cell_to_center_child(other, 9), 4),
        ]
    )
    expected = [
        h3_int.cell_to_parent(t, 6) == coarse or h3_int.cell_to_parent(t, 8) == other
        for t in tiles.tolist()
    ]
    assert 0 < sum(expected) < len(expected)
    assert area.holds_cells(tiles.astype(np.uint64)).tolist() == expected
    with pytest.raises(ParameterError, match="finer than the tiles"):
        area.holds_cells(np.array([h3_int.latlng_to_cell(48.85, 2.35, 7)], dtype=np.uint64))


@pytest.mark.parametrize(
    "text",
    ["1,2,3", "2.5,48.9,2.2,48.8", "0,0,0,1", "0,-91,1,0", "nowhere.geojson", "8a1fb46622dfffe"],
)
def test_an_invalid_area_is_refused(text) -> None:
    with pytest.raises(ParameterError, match="Allowed: west,south,east,north"):
        parse_area(text)


def test_an_area_of_a_file_keeps_its_reference_system_and_its_name_to_itself(tmp_path) -> None:
    geopandas = pytest.importorskip("geopandas")
    path = tmp_path / "secret_place.gpkg"
    drawn = geopandas.GeoSeries([shapely.box(2.2, 48.8, 2.5, 48.9)], crs=4326).to_crs(2154)
    drawn.to_file(path)
    area = parse_area(str(path))
    assert area.holds(np.array([48.85, 48.85]), np.array([2.3, 2.6])).tolist() == [True, False]
    assert area.text == "AREA"
    with pytest.raises(ParameterError, match="came from a file"):
        parse_area(area.text)
    points = tmp_path / "points.geojson"
    geopandas.GeoSeries([shapely.Point(0, 0)], crs=4326).to_file(points)
    with pytest.raises(DataError, match="polygons"):
        parse_area(str(points))


def test_trips_with_an_end_outside_are_left_out_and_counted_whatever_their_share() -> None:
    rng = np.random.default_rng(0)
    points = {
        f"{end}_{axis}": rng.uniform(*span, 400)
        for end in ("start", "end")
        for axis, span in (("lat", (48.7, 49.0)), ("lon", (2.0, 2.7)))
    }
    flows = flowveil.read_trips(pa.table(points), resolution=7, within=PARIS)
    center = [
        np.array(
            [
                h3_int.cell_to_latlng(h3_int.latlng_to_cell(a, b, 7))
                for a, b in zip(points[f"{e}_lat"], points[f"{e}_lon"], strict=True)
            ]
        )
        for e in ("start", "end")
    ]
    inside = [
        (c[:, 0] >= 48.8) & (c[:, 0] <= 48.9) & (c[:, 1] >= 2.2) & (c[:, 1] <= 2.5) for c in center
    ]
    assert flows.intake.left_out == {"outside the area": int(np.sum(~(inside[0] & inside[1])))}
    assert int(flows.trips.sum()) == int(np.sum(inside[0] & inside[1]))
    assert flows.intake.parameters()["within"] == PARIS


@pytest.mark.parametrize("resolution", [4, 6, 9])
def test_ends_that_need_not_be_found_are_those_that_would_not_be_in_the_area(
    resolution, monkeypatch
):
    rng = np.random.default_rng(resolution)
    lat, lon = (rng.uniform(low, high, 4_000) for low, high in ((47.5, 50.0), (0.5, 4.5)))
    table = pa.table({"o_lat": lat, "o_lon": lon, "d_lat": lat[::-1], "d_lon": lon[::-1]})
    asked = {"resolution": resolution, "within": "1.5,48.2,3.2,49.4", "max_dropped": 1.0}
    quick = flowveil.read_trips(table, **asked)
    monkeypatch.setattr("flowveil.reading.tiling._bounds_of", lambda *_: None)
    slow = flowveil.read_trips(table, **asked)
    assert slow.intake == quick.intake
    assert slow.trips.tolist() == quick.trips.tolist()
    assert slow.origins.code.tolist() == quick.origins.code.tolist()


def test_ends_in_no_zone_and_in_zones_outside_the_area_are_counted_once_each() -> None:
    zones = flowveil.read_zones(
        geopandas.GeoDataFrame(
            {"zone": list("abc"), "parent": ["all"] * 3},
            geometry=shapely.box([0, 1, 2], 0, [1, 2, 3], 1),
            crs=4326,
        )
    )
    lon = np.array([0.5] * 60 + [10.0] * 2 + [2.5] * 3)
    table = pa.table({"o_lat": [0.5] * 65, "o_lon": lon, "d_lat": [0.5] * 65, "d_lon": [1.5] * 65})
    intake = flowveil.read_trips(table, zones=zones, within="0,0,2,1").intake
    assert (intake.dropped, intake.outside_rows) == ({"outside every zone": 2}, 3)
