"""What a page embeds: exactly what is published, every cell of it."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import K_METHODS
from flowveil import anonymize, anonymize_slices, read_slices, read_tree
from flowveil.published import flow_map
from flowveil.published.flow_map import pack, pack_shapes
from flowveil.published.html import render, tile_server
from flowveil.published.maps import MapFrame
from samples.hourly import PURPOSES, hourly_trips
from samples.releases import city_flows, release_of


def embedded(page: str) -> dict:
    (data,) = re.findall(
        r'<script type="application/json" id="map-data">(.*?)</script>', page, re.S
    )
    return json.loads(data)


def page_of(release) -> str:
    return render(release.summary(), release.flows, release.zones)


def column(packed: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["bytes"]), dtype=f"<{packed['type']}")


def shapes(packed: dict) -> list[list[np.ndarray]]:
    """The shapes, read number by number."""
    content, at, found = base64.b64decode(packed["bytes"]), 0, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return -((value + 1) >> 1) if value & 1 else value >> 1

    for size in column(packed["sizes"]).tolist():
        stop = at + size
        lines = [
            np.cumsum([[number(), number()] for _ in range(number())], axis=0)
            for _ in range(number() if size else 0)
        ]
        assert at == stop
        found.append(lines)
    return found


def rows_on(data: dict) -> list[tuple]:
    code, cells = data["zones"]["code"], data["cells"]
    ends = ([code[z] for z in column(cells[end])] for end in ("origin", "destination"))
    return list(
        zip(*ends, *(column(cells[basis]).tolist() for basis in data["bases"]), strict=True)
    )


@pytest.mark.parametrize("method", K_METHODS)
def test_the_page_embeds_the_published_rows_and_nothing_else(method):
    release = anonymize(city_flows(rows=4000), method=method, k=7, protect=["trips", "people"])
    data = embedded(page_of(release))
    rows = [
        tuple(row[name] for name in ("origin_zone", "destination_zone", *data["bases"]))
        for row in release.flows.to_pylist()
    ]
    assert rows_on(data) == rows
    assert data["zones"]["code"] == release.zones["zone"].to_pylist()
    assert set(data) <= {
        "bases",
        "homogeneous",
        "frame",
        "zones",
        "cells",
        "context",
        "area",
        "words",
        "times",
    }
    assert set(data["cells"]) == {"count", "origin", "destination", *data["bases"]}


@pytest.mark.parametrize("method", K_METHODS)
def test_no_tile_of_a_suppressed_flow_is_named(method):
    release = anonymize(city_flows(rows=1500), method=method, k=4)
    text = page_of(release)
    published = set(release.zones["zone"].to_pylist())
    for tree in (release.input.origins, release.input.destinations):
        for code in tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)):
            if code == "all":  # a word of the page
                continue
            # The code of a cell begins those of its parts.
            assert bool(re.search(rf"{re.escape(code)}(?![.\w])", text)) == (code in published)


def test_each_cell_has_its_slice():
    trips = hourly_trips()
    trips = trips.append_column("sex", pa.array(np.where(np.arange(len(trips)) % 3, "f", "m")))
    flows = read_slices(trips, every="hour", by="sex", time="start", resolution=8)
    release = anonymize_slices(flows, "odkanon", k=10)
    slices = embedded(page_of(release))["slices"]
    keys = [slices["keys"][i] for i in column(slices["of"])]
    assert keys == [[row["sex"], row["time"]] for row in release.flows.to_pylist()]


def test_the_page_has_the_group_of_each_cell_and_the_tree_of_groups():
    reading = {"by": "purpose", "time": "start", "every": "hour", "resolution": 8}
    folded = read_slices(hourly_trips(), **reading).folded({"purpose": read_tree(PURPOSES)})
    release = anonymize(folded, "paircut", k=10)
    slices = embedded(page_of(release))["slices"]
    keys = [slices["keys"][i] for i in column(slices["of"])]
    rows = release.flows.to_pylist()
    assert keys == [[row["purpose"], f"{row['time_from']} to {row['time_to']}"] for row in rows]
    tree, no_tree = slices["trees"]
    assert no_tree is None
    groups = {"work or study": "all", "free time": "all", "home": "all", "all": None}
    assert dict(tree) == {**PURPOSES, **groups}
    nodes = [node for node, _ in tree]
    assert all(parent is None or nodes.index(parent) < nodes.index(node) for node, parent in tree)


def test_each_cell_of_a_folded_release_has_its_interval():
    folded = read_slices(hourly_trips(), every="hour", time="start", resolution=8).folded()
    release = anonymize(folded, "paircut", k=10)
    times = embedded(page_of(release))["times"]
    found = [times["intervals"][i] for i in column(times["of"])]
    rows = release.flows.to_pylist()
    assert [said for _, _, said in found] == [
        f"{row['time_from']} to {row['time_to']}" for row in rows
    ]
    assert [[a, b] for a, b, _ in found] == [
        [int(row["time_from"][:2]), int(row["time_to"][:2])] for row in rows
    ]
    assert times["hours"] == 24


def test_a_page_that_cannot_hold_all_cells_says_how_many_there_are(monkeypatch):
    release = release_of(city_flows(rows=4000), budget="volume")
    monkeypatch.setattr(flow_map, "MAX_CELLS", 5)
    data = embedded(page_of(release))
    assert data["cells"]["count"] == len(release.flows)
    largest = sorted((row[data["bases"][-1]] for row in release.flows.to_pylist()), reverse=True)[
        :5
    ]
    assert sorted((row[-1] for row in rows_on(data)), reverse=True) == largest


@given(st.lists(st.integers(-(2**31), 2**32 - 1) | st.floats(-1e9, 1e9)))
def test_columns_are_packed_without_loss(values):
    assert column(pack(np.array(values, dtype=np.float64))).tolist() == [float(v) for v in values]


def test_shapes_survive_their_encoding():
    frame = MapFrame.around(np.array([[2.0, 48.0, 3.0, 49.0]]))
    hole = shapely.Polygon(
        [(2.1, 48.1), (2.9, 48.1), (2.9, 48.9), (2.1, 48.9)],
        [[(2.4, 48.4), (2.6, 48.4), (2.5, 48.6)]],
    )
    islands = shapely.MultiPolygon(
        [shapely.box(2, 48, 2.2, 48.2), shapely.box(2.5, 48.5, 2.7, 48.7)]
    )
    given_shapes = np.array([hole, None, islands], dtype=object)
    found = shapes(pack_shapes(given_shapes, frame))
    assert [len(lines) for lines in found] == [2, 0, 2]
    for lines, original in zip(found, given_shapes, strict=True):
        parts = (
            [] if original is None else shapely.get_parts(shapely.transform(original, frame.units))
        )
        expected = [ring for part in parts for ring in shapely.get_rings(part)]
        for line, wanted in zip(lines, expected, strict=True):
            assert np.abs(line - shapely.get_coordinates(wanted)[:-1]).max() <= 0.5


def test_outlines_with_many_corners_are_simplified():
    frame = MapFrame.around(np.array([[2.0, 48.0, 3.0, 49.0]]))
    circle = shapely.Point(2.5, 48.5).buffer(0.4, quad_segs=4000)
    ((line,),) = shapes(pack_shapes(np.array([circle], dtype=object), frame, most=500))
    assert len(line) <= 500
    assert shapely.Polygon(line).area == pytest.approx(
        shapely.transform(circle, frame.units).area, rel=0.01
    )


def test_a_map_across_the_180th_meridian_is_one_map():
    frame = MapFrame.around(
        np.array([[179.0, -18.0, 179.9, -17.0], [-179.9, -18.0, -179.0, -17.0]])
    )
    assert frame.shifted
    units = frame.units(np.array([[179.9, -17.5], [-179.9, -17.5]]))
    assert 0 < units[1, 0] - units[0, 0] < 40_000


def test_text_in_the_data_cannot_end_the_script():
    release = release_of(city_flows(), budget="volume")
    hostile = release.zones.set_column(
        0, "zone", pa.array(["</script><b>" + z for z in release.zones["zone"].to_pylist()])
    )
    flows = release.flows
    for i, name in enumerate(("origin_zone", "destination_zone")):
        flows = flows.set_column(
            i, name, pa.array(["</script><b>" + z for z in flows[name].to_pylist()])
        )
    page = render(release.summary(), flows, hostile)
    assert page.count("</script>") == 3
    assert embedded(page)["zones"]["code"][0].startswith("</script><b>")


def test_the_background_map_is_opt_in_and_only_over_https(tmp_path):
    assert tile_server(None) is None
    assert tile_server("default").startswith("https://")
    assert tile_server("https://tiles.example:8443/a-b/{z}/{x}/{y}@2x.png?key=1a-b") is not None
    assert (
        tile_server(
            "https://a/wmts?LAYER=A.B&FORMAT=image/png&TILEMATRIX={z}&TILEROW={y}&TILECOL={x}"
        )
        is not None
    )
    release = release_of(city_flows(), budget="volume")
    hosts = (
        "a;script-src *",
        "a' 'unsafe-eval",
        'a"><script>',
        "a b",
        "me:secret@a",
        "a_b",
        "ä",
        "",
        "*",
        "a\n",
    )
    urls = [f"https://{host}/{{z}}/{{x}}/{{y}}" for host in hosts]
    urls += [
        "https://a/{z}/{x}/{y};b",
        "https://a/{z}/{x}/{y}'",
        "https://a/{z}/{x}/{y} ",
        "https://a/{z}/{x}/{y}#b",
    ]
    # Room for a message, which no tile server needs.
    urls += [
        "https://a/{z}/{x}/{y}?note=1",
        "https://a/{z}/{x}/{y}?key=Anna+left",
        "https://a/Anna%20left/{z}/{x}/{y}",
    ]
    for wrong in ("http://tiles.example/{z}/{x}/{y}", "https://tiles.example/", "yes", *urls):
        with pytest.raises(ValueError, match="https address"):
            tile_server(wrong)
        with pytest.raises(ValueError, match="https address"):
            release.write(tmp_path / "out", basemap=wrong)
    assert not list(tmp_path.iterdir())
    assert "https:" not in page_of(release).replace("https://schema.org/", "")
    assert "img-src 'none'" in page_of(release)


def test_the_command_makes_the_release_again():
    report = anonymize(
        city_flows(), k=6, method="odkanon", budget="volume", protect=["trips", "people"]
    ).summary()
    assert report["published"]["command"].startswith("flowveil anonymize INPUT --method odkanon ")
    assert "--k 6 --protect trips,people --max-suppressed 0.1" in report["published"]["command"]
    assert "--option budget=volume" in report["published"]["command"]
    assert report["published"]["command"].endswith("--out DIR")


@given(st.lists(st.floats(-179, -1), min_size=2))
def test_a_frame_west_of_greenwich_stays_there(lon):
    west = np.array(lon)
    bounds = np.column_stack(
        (west, np.full(len(west), 37.0), west + 0.01, np.full(len(west), 38.0))
    )
    assert not MapFrame.around(bounds).shifted
