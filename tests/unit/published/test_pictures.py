"""Static maps: from a release or from its folder alone, the same bytes each time."""

from __future__ import annotations

import html
import json
import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pytest
import shapely

import flowveil
from flowveil.core.errors import MissingExtraError, ParameterError
from flowveil.published.answer_picture import palette
from flowveil.published.pictures import SHOWS, class_limits, draw
from samples.drafts import unchecked
from samples.installed import needs
from samples.releases import city_flows, region_flows, release_of

needs("matplotlib")

HEADS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture(scope="module")
def release():
    return release_of(city_flows(), budget="volume")


def is_a_picture(path) -> bool:
    return path.read_bytes().startswith(HEADS[path.suffix]) and path.stat().st_size > 2000


@pytest.mark.slow
def test_names_of_zones_reach_pictures(release, tmp_path):
    zones = release.zones
    names = pa.array(
        [
            f"District {code[3:9]}, a name that is too long for a map"
            for code in zones["zone"].to_pylist()
        ]
    )
    for show in SHOWS:
        drawn = draw(
            release.flows, zones.append_column("name", names), tmp_path / "named.svg", show=show
        ).read_text()
        assert "Named on the map: District " in drawn
        assert (
            1
            <= drawn.partition("Named on the map")[2].partition("</desc>")[0].count("District ")
            <= 12 * 2
        )
        assert (
            "Named on the map"
            not in draw(release.flows, zones, tmp_path / "plain.svg", show=show).read_text()
        )


@pytest.mark.parametrize("show", ["both", "flows"])
def test_every_map_is_one_call(show, release, tmp_path):
    """Pixels; another test draws every map as an SVG."""
    assert is_a_picture(
        release.picture(tmp_path / "map.png", show=show, basis="weight", title="Paris & around")
    )


def test_the_published_folder_is_enough_and_bytes_are_stable(release, tmp_path):
    with unchecked():
        out = release.write(tmp_path / "out")
    for suffix, show in ((".png", "origins"), (".svg", "both"), (".pdf", "origins")):
        a = flowveil.picture(out, tmp_path / f"a{suffix}", show=show)
        b = flowveil.picture(release, tmp_path / f"b{suffix}", show=show)
        assert is_a_picture(a)
        assert a.read_bytes() == b.read_bytes()


def test_of_a_place_the_cells_of_all_sizes_that_hold_it_are_drawn(tmp_path):
    release = flowveil.anonymize(city_flows(), "paircut", k=10, protect="trips")
    zones = release.zones.to_pylist()
    busiest = max(release.flows.to_pylist(), key=lambda row: row["trips"])["origin_zone"]
    (place,) = [
        (z["lat"], z["lon"]) for z in zones if z["zone"] == busiest and z["role"] != "destination"
    ]
    point = shapely.Point(place[::-1])
    holding = {
        z["zone"]
        for z in zones
        if z["role"] != "destination" and shapely.from_wkb(z["geometry"]).covers(point)
    }
    used = holding & set(release.flows["origin_zone"].to_pylist())
    assert len(used) > 1, "zones of several sizes hold it"
    path = flowveil.picture(release, tmp_path / "map.svg", place=place)
    assert f"{len(used)} origin zones" in path.read_text("utf-8")
    with pytest.raises(ParameterError, match="No origin zone"):
        flowveil.picture(release, tmp_path / "nowhere.svg", place=(0.0, 0.0))


def test_wrong_arguments_are_said(release, tmp_path):
    with pytest.raises(ParameterError, match="Did you mean 'origins'"):
        release.picture(tmp_path / "a.png", show="orgins")
    with pytest.raises(ParameterError, match=r"\.png or \.svg"):
        release.picture(tmp_path / "a.jpg")
    with pytest.raises(ParameterError, match="no place on a map"):
        release_of(region_flows(), budget="volume").picture(tmp_path / "a.png")
    with pytest.raises(ParameterError, match="no release"):
        flowveil.picture(tmp_path, tmp_path / "a.png")


def test_a_missing_library_is_named_with_its_extra(release, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"flowveil\[pictures\]"):
        release.picture(tmp_path / "a.png")


def test_class_limits_are_round_and_cover_everything():
    limits = class_limits(np.array([11.0, 37.0, 99_000.0]))
    assert limits[0] == 11
    assert limits[-1] == 99_000
    assert len(limits) <= 7
    assert all(str(int(limit)).strip("0") in ("1", "2", "5") for limit in limits[1:-1])
    assert len(class_limits(np.array([5.0, 5.0]))) == 2


def city_and_outlier(*, far: bool) -> tuple[pa.Table, pa.Table]:
    """A city of 10 × 10 boxes with flows to the neighbour, and a last box that is far away or next
    to it."""
    x, y = np.meshgrid(np.arange(10) * 0.01, np.arange(10) * 0.01)
    west, south = (
        np.append(x.ravel(), 9.0 if far else 0.1) + 2,
        np.append(y.ravel(), 5.0 if far else 0.0) + 48,
    )
    names = [f"box{i:03d}" for i in range(101)]
    zones = pa.table(
        {
            "zone": names,
            "role": ["both"] * 101,
            "level": [0] * 101,
            "tiles": [1] * 101,
            "area_km2": np.ones(101),
            "lat": south + 0.005,
            "lon": west + 0.005,
            "geometry": shapely.to_wkb(shapely.box(west, south, west + 0.01, south + 0.01)),
        }
    )
    trips = np.append(100 + 9 * np.arange(100), 10)
    return (
        pa.table({"origin_zone": names, "destination_zone": names[1:] + names[:1], "trips": trips}),
        zones,
    )


def words(path) -> str:
    """All text of an SVG."""
    return " ".join(ET.parse(path).getroot().itertext())


@pytest.fixture(scope="module")
def near_flows(tmp_path_factory):
    """Flows within a city, drawn."""
    return draw(
        *city_and_outlier(far=False), tmp_path_factory.mktemp("near") / "flows.svg", show="flows"
    )


@pytest.mark.parametrize("show", ["both", "flows"])
def test_a_far_box_does_not_shrink_the_city_and_is_told(show, near_flows, tmp_path):
    far = draw(*city_and_outlier(far=True), tmp_path / "far.svg", show=show)
    assert "1 zone lies outside this map." in words(far)
    # Two degrees a picture would be 200 km; the city is ten.
    assert re.search(r"\b[12] km\b", words(far))
    near = (
        near_flows
        if show == "flows"
        else draw(*city_and_outlier(far=False), tmp_path / "near.svg", show=show)
    )
    assert "outside" not in words(near)


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.slow
def test_an_svg_tells_what_it_shows(show, release, tmp_path):
    path = release.picture(
        tmp_path / "map.svg", show=show, basis="weight", title="Paris & <around>"
    )
    assert is_a_picture(path)
    root = ET.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    title, desc = root.find(f"{space}title"), root.find(f"{space}desc")
    assert title.text == "Paris & <around>"
    assert len(desc.text) > 30
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert root.get("role") == "img"
    plain = ET.parse(release.picture(tmp_path / "plain.svg", show=show)).getroot()
    assert plain.find(f"{space}title").text.startswith("Map")


def test_flows_have_a_legend_of_widths(near_flows):
    root = ET.parse(near_flows).getroot()
    legend = next(group for group in root.iter() if group.get("id") == "legend_1")
    entries = [text.strip() for text in legend.itertext() if text.strip()]
    assert "trips" in entries
    assert set(entries) - {"trips"} <= {"10", "20", "50", "100", "200", "500"}
    assert len(entries) >= 3


def test_wide_lines_have_no_stripes(near_flows):
    """Pieces of a transparent line show where they meet; opaque ones do not."""
    text = near_flows.read_text()
    lines = re.search(
        r'<g id="LineCollection_1">(.*?)</g>\s*<g id="(?!LineCollection)', text, re.S
    ).group(1)
    assert "stroke: #" in lines
    assert "opacity" not in lines
    assert "stroke-linecap: round" in lines


def test_a_picture_names_its_guarantee_source_and_the_release_drawn_over_it(tmp_path):
    release, other = (
        flowveil.anonymize(city_flows(rows=1500), method=m, k=5, protect="trips")
        for m in ("odkanon", "oigh")
    )
    with unchecked():
        folder = release.write(
            tmp_path / "release", title="Trips in the city", source="Counts of 2024"
        )
    text = flowveil.picture(folder, tmp_path / "a.svg", over=other, zoom=2).read_text(
        encoding="utf-8"
    )
    for said in (
        "Trips in the city",
        "k = 5 on trips. Source: Counts of 2024",
        "of another release",
        ">N<",
    ):
        assert said in text
    west, south, east, north = 2.0, 48.0, 3.0, 49.0
    flowveil.picture(folder, tmp_path / "b.svg", bbox=(west, south, east, north))
    for wrong in ({"bbox": (east, south, west, north)}, {"zoom": 0.5}):
        with pytest.raises(ParameterError):
            flowveil.picture(folder, tmp_path / "c.svg", **wrong)


def test_the_answer_of_the_page_is_drawn_by_its_script(tmp_path):
    needs("quickjs")
    release = flowveil.anonymize(city_flows(), k=10, protect="trips")
    with unchecked():
        folder = release.write(tmp_path / "release", title="Trips", source="Counts of 2024")
    page = (folder / "report.html").read_text("utf-8")
    data = json.loads(page.partition('id="map-data">')[2].partition("</script>")[0])
    place = data["answer"]["places"]["name"][0]
    drawn = flowveil.picture(folder, tmp_path / "a.svg").read_text("utf-8")
    for said in (data["answer"]["headline"], data["answer"]["story"], "Counts of 2024"):
        assert said in html.unescape(drawn)
    a = flowveil.picture(folder, tmp_path / "a.png", question=f"from={place}")
    b = flowveil.picture(release, tmp_path / "b.png", question=f"from={place}")
    assert is_a_picture(a)
    assert is_a_picture(b)
    c = flowveil.picture(folder, tmp_path / "c.png", question=f"from={place}")
    assert c.read_bytes() == a.read_bytes()
    asked = flowveil.picture(folder, tmp_path / "d.svg", question=f"from={place}")
    assert f"Where do trips from {place} go?" in html.unescape(asked.read_text("utf-8"))
    for wrong in (
        {"show": "answer", "zoom": 2},
        {"show": "origins", "question": "from=a"},
        {"question": "from=a", "place": (48.8, 2.3)},
    ):
        with pytest.raises(ParameterError, match="answer"):
            flowveil.picture(folder, tmp_path / "e.svg", **wrong)


def test_colours_are_those_of_the_page():
    colours = palette()
    assert colours["from"] == "#c8480f"
    assert [len(colour) for colour in colours["flow"]] == [7] * 6
