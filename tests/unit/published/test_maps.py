"""What a page embeds: exactly what is published, and a grid that reveals nothing."""

from __future__ import annotations

import dataclasses
import json
import re

import h3.api.basic_str as h3
import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import K_METHODS
from flowveil import anonymize
from flowveil.published.html import render, tile_server
from flowveil.published.maps import MAX_GRID_TILES, Frame, encode_shapes, grid_below_boxes, map_of_release, neutral_grid
from samples.releases import city_flows, release_of


def embedded(page: str) -> dict:
    (data,) = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', page, re.S)
    return json.loads(data)


def page_of(release) -> str:
    return render(release.summary(), release.flows, release.zones)


def decoded(shape: list[list[int]]) -> list[np.ndarray]:
    return [np.cumsum(np.array(ring).reshape(-1, 2), axis=0) for ring in shape]


@pytest.mark.parametrize("method", K_METHODS)
def test_the_page_embeds_the_published_rows_and_nothing_else(method):
    flows = city_flows(rows=4000)
    release = anonymize(flows, method=method, k=7, protect=["trips", "people"])
    data = embedded(page_of(release))
    published = {(r["origin_zone"], r["destination_zone"]): r for r in release.flows.to_pylist()}
    held = data["flows"]
    assert len(held["origin"]) == len(published)
    for o, d, trips, weight in zip(*(held[c] for c in ("origin", "destination", "trips", "weight")), strict=True):
        row = published[data["layers"]["origin"]["code"][o], data["layers"]["destination"]["code"][d]]
        assert trips == row["trips"] >= 7
        assert weight == pytest.approx(row["weight"], abs=0.006)
    for end in ("origin", "destination"):
        layer = data["layers"][end]
        assert set(layer["code"]) == {key[end == "destination"] for key in published}
        assert sum(layer["trips"]) == sum(row["trips"] for row in published.values())
        assert set(layer) == {
            "code",
            "where",
            "far",
            "level",
            "tiles",
            "area",
            "x",
            "y",
            "shape",
            "trips",
            "weight",
            "cells",
        }


@pytest.mark.parametrize("method", K_METHODS)
def test_no_tile_of_a_suppressed_flow_is_named(method):
    release = anonymize(city_flows(rows=1500), method=method, k=4)
    text = page_of(release)
    published = set(release.zones["zone"].to_pylist())
    for tree in (release.input.origins, release.input.destinations):
        for code in tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)):
            # The code of a cell begins those of its parts.
            assert bool(re.search(rf"{re.escape(code)}(?![.\w])", text)) == (code in published)


def _listing(codes):
    return pa.table({"zone": codes, "h3_cells": [[code] for code in codes]})


def test_the_grid_is_every_tile_a_zone_could_hold():
    zone = h3.latlng_to_cell(48.85, 2.35, 6)
    zones = _listing([zone, h3.cell_to_center_child(zone, 8)])
    frame = Frame.around(np.array([[2.2, 48.7, 2.5, 49.0]]))
    grid = neutral_grid(zones, 8, frame)
    assert grid["resolution"] == 8
    assert len(grid["shapes"]) == 49
    # Too many at resolution 12: the finest that is not.
    assert neutral_grid(zones, 12, frame)["resolution"] == 10
    assert neutral_grid(zones, None, frame) is None
    assert neutral_grid(_listing(["all", zone]), 8, frame) is None
    assert neutral_grid(_listing([h3.cell_to_center_child(zone, 8)]), 8, frame) is None


def rings_of(cells, frame: Frame) -> set[tuple[int, int]]:
    """The first point of every cell's outline, which tells cells apart."""
    points = [h3.cell_to_boundary(cell)[0] for cell in cells]
    units = np.rint(frame.units(np.array([(lon, lat) for lat, lon in points]))).astype(int)
    return set(map(tuple, units.tolist()))


def test_the_grid_below_boxes_is_every_cell_that_touches_one():
    # A thin box that holds no centre of a cell, a large one, and two that overlap.
    boxes = [
        shapely.box(2.30, 48.8500, 2.40, 48.8501),
        shapely.box(2.32, 48.80, 2.36, 48.83),
        shapely.box(2.35, 48.82, 2.37, 48.84),
    ]
    zones = pa.table({"geometry": shapely.to_wkb(boxes)})
    frame = Frame.around(np.array([[2.2, 48.7, 2.5, 49.0]]))
    grid = grid_below_boxes(zones, 9, frame)
    assert grid["resolution"] == 9
    around = h3.grid_disk(h3.latlng_to_cell(48.83, 2.35, 9), 45)
    touching = [
        cell
        for cell in around
        if any(box.intersects(shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(cell)])) for box in boxes)
    ]
    assert len(grid["shapes"]) == len(touching)
    outline = shapely.union_all([shapely.Polygon(ring) for ring in decoded(grid["within"])])
    assert outline.area == pytest.approx(shapely.transform(shapely.union_all(boxes), frame.units).area, rel=1e-2)
    assert {tuple(shape[0][:2]) for shape in grid["shapes"]} == rings_of(touching, frame)


def test_the_grid_below_boxes_is_coarser_where_tiles_are_too_many():
    frame = Frame.around(np.array([[2.0, 48.0, 3.0, 49.0]]))
    wide = pa.table({"geometry": shapely.to_wkb([shapely.box(2.0, 48.0, 3.0, 49.0)])})
    grid = grid_below_boxes(wide, 10, frame)
    # Some 8,200 km²: 11,000 hexagons of resolution 8, 1,600 of resolution 7.
    assert grid["resolution"] == 7
    assert MAX_GRID_TILES / 7 < len(grid["shapes"]) <= MAX_GRID_TILES
    assert grid_below_boxes(wide, None, frame) is None
    nowhere = pa.table({"geometry": pa.array([None], pa.binary())})
    assert grid_below_boxes(nowhere, 9, frame) is None


def test_the_grid_below_boxes_does_not_know_the_tiles():
    """Two inputs with other tiles under the same published boxes: the same grid."""
    flows = city_flows(rows=3000, persons=False, weights=False)
    release = anonymize(flows, method="mondrian", k=10)
    view = map_of_release(release.flows, release.zones, resolution=8, homogeneous=False, boxes=True)
    covered = shapely.union_all(shapely.from_wkb(release.zones["geometry"].to_numpy(zero_copy_only=False)))
    possible = [
        cell
        for cell in h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 12)
        if covered.intersects(shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(cell)]))
    ]
    observed = {h3.int_to_str(int(c)) for c in flows.origins.code[flows.origins.leaf_node]}
    assert len(view["grid"]["shapes"]) == len(possible)
    assert set(possible) - observed


def test_the_page_of_boxes_has_a_grid_and_says_what_it_is():
    flows = city_flows(rows=3000)
    flows = dataclasses.replace(flows, intake=dataclasses.replace(flows.intake, resolution=8))
    page = page_of(anonymize(flows, method="mondrian", k=10))
    assert embedded(page)["grid"]["resolution"] == 8
    assert "every hexagon of H3 resolution 8 that a box touches" in page
    assert 'id="grid"' in page


def test_shapes_survive_their_encoding():
    frame = Frame.around(np.array([[2.0, 48.0, 3.0, 49.0]]))
    hole = shapely.Polygon(
        [(2.1, 48.1), (2.9, 48.1), (2.9, 48.9), (2.1, 48.9)], [[(2.4, 48.4), (2.6, 48.4), (2.5, 48.6)]]
    )
    islands = shapely.MultiPolygon([shapely.box(2, 48, 2.2, 48.2), shapely.box(2.5, 48.5, 2.7, 48.7)])
    shapes = encode_shapes(np.array([hole, islands], dtype=object), frame)
    assert [len(shape) for shape in shapes] == [2, 2]
    for rings, original in zip(shapes, (hole, islands), strict=True):
        units = shapely.transform(original, frame.units)
        expected = [r for part in shapely.get_parts(units) for r in shapely.get_rings(part)]
        for ring, wanted in zip(decoded(rings), expected, strict=True):
            assert np.abs(ring - shapely.get_coordinates(wanted)[:-1]).max() <= 0.5


def test_outlines_with_many_points_are_simplified():
    frame = Frame.around(np.array([[2.0, 48.0, 3.0, 49.0]]))
    circle = shapely.Point(2.5, 48.5).buffer(0.4, quad_segs=4000)
    (shape,) = encode_shapes(np.array([circle], dtype=object), frame, most=500)
    assert len(shape[0]) / 2 <= 500
    assert shapely.Polygon(decoded(shape)[0]).area == pytest.approx(
        shapely.transform(circle, frame.units).area, rel=0.01
    )


def test_a_map_across_the_180th_meridian_is_one_map():
    frame = Frame.around(np.array([[179.0, -18.0, 179.9, -17.0], [-179.9, -18.0, -179.0, -17.0]]))
    assert frame.shifted
    units = frame.units(np.array([[179.9, -17.5], [-179.9, -17.5]]))
    assert 0 < units[1, 0] - units[0, 0] < 40_000


def test_a_page_holds_the_largest_and_says_so():
    release = release_of(city_flows(rows=4000), budget="volume")
    view = map_of_release(release.flows, release.zones, max_flows=5, max_zones=3)
    assert len(view["flows"]["trips"]) <= 5
    assert len(view["layers"]["origin"]["code"]) == 3
    assert view["count"]["flows"] == len(release.flows)
    volume = dict.fromkeys(release.flows["origin_zone"].to_pylist(), 0)
    for row in release.flows.to_pylist():
        volume[row["origin_zone"]] += row["trips"] if "weight" not in row else row["weight"]
    largest = sorted(volume, key=lambda zone: -volume[zone])[:3]
    assert set(view["layers"]["origin"]["code"]) == set(largest)


def test_text_in_the_data_cannot_end_the_script():
    release = release_of(city_flows(), budget="volume")
    hostile = release.zones.set_column(
        0, "zone", pa.array(["</script><b>" + z for z in release.zones["zone"].to_pylist()])
    )
    flows = release.flows
    for i, name in enumerate(("origin_zone", "destination_zone")):
        flows = flows.set_column(i, name, pa.array(["</script><b>" + z for z in flows[name].to_pylist()]))
    page = render(release.summary(), flows, hostile)
    assert page.count("</script>") == 2
    assert embedded(page)["layers"]["origin"]["code"][0].startswith("</script><b>")


def test_the_background_map_is_asked_for_and_only_over_https(tmp_path):
    assert tile_server(None) is None
    assert tile_server("default").startswith("https://")
    assert tile_server("https://tiles.example:8443/a-b/{z}/{x}/{y}@2x.png?key=1a-b") is not None
    assert tile_server("https://a/wmts?LAYER=A.B&FORMAT=image/png&TILEMATRIX={z}&TILEROW={y}&TILECOL={x}") is not None
    release = release_of(city_flows(), budget="volume")
    hosts = ("a;script-src *", "a' 'unsafe-eval", 'a"><script>', "a b", "me:secret@a", "a_b", "ä", "", "*", "a\n")
    urls = [f"https://{host}/{{z}}/{{x}}/{{y}}" for host in hosts]
    urls += ["https://a/{z}/{x}/{y};b", "https://a/{z}/{x}/{y}'", "https://a/{z}/{x}/{y} ", "https://a/{z}/{x}/{y}#b"]
    # Room for a message, which no tile server needs.
    urls += ["https://a/{z}/{x}/{y}?note=1", "https://a/{z}/{x}/{y}?key=Anna+left", "https://a/Anna%20left/{z}/{x}/{y}"]
    for wrong in ("http://tiles.example/{z}/{x}/{y}", "https://tiles.example/", "yes", *urls):
        with pytest.raises(ValueError, match="https address"):
            tile_server(wrong)
        with pytest.raises(ValueError, match="https address"):
            release.write(tmp_path / "out", basemap=wrong)
    assert not list(tmp_path.iterdir())
    assert "https:" not in page_of(release)
    assert "img-src 'none'" in page_of(release)


def test_the_command_makes_the_release_again():
    report = anonymize(city_flows(), k=6, method="odkanon", budget="volume", protect=["trips", "people"]).summary()
    assert report["published"]["command"].startswith("flowveil anonymize INPUT --method odkanon ")
    assert "--k 6 --protect trips,people --max-suppressed 0.1" in report["published"]["command"]
    assert "--option budget=volume" in report["published"]["command"]
    assert report["published"]["command"].endswith("--out DIR")


@given(st.lists(st.floats(-179, -1), min_size=2))
def test_a_frame_west_of_greenwich_stays_there(lon):
    west = np.array(lon)
    bounds = np.column_stack((west, np.full(len(west), 37.0), west + 0.01, np.full(len(west), 38.0)))
    assert not Frame.around(bounds).shifted
