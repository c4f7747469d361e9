"""Details of the pages in a real browser: what is out of view, boxes, the keyboard, legends, wide tables on paper."""

from __future__ import annotations

import re

import h3.api.basic_int as h3
import numpy as np
import pyarrow as pa
import pytest
import shapely

from browser.pages import redrawn
from flowveil import anonymize
from flowveil.analysis.comparison import Comparison
from flowveil.analysis.experiment import Run
from flowveil.flows import Flows
from flowveil.read_summary import ReadSummary
from flowveil.zoning.h3 import h3_hierarchy
from samples.drafts import unchecked


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


def city_with_a_far_zone() -> Flows:
    """300 trips inside each of 49 hexagons, 20 inside one that is 400 km away."""
    near = h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 6), 8)
    tiles = np.sort(np.array([*near, h3.latlng_to_cell(45.76, 4.84, 8)], dtype=np.uint64))
    tree = h3_hierarchy(tiles)
    far = int(np.flatnonzero(~np.isin(tiles, np.array(near, dtype=np.uint64)))[0])
    trips = np.full(len(tiles), 300)
    trips[far] = 20
    at = np.arange(len(tiles))
    # Some trips to the neighbour, so that there are flows to draw.
    return Flows.from_pairs(
        np.concatenate((at, at)),
        np.concatenate((at, np.where(at == far, at, np.where((at + 1) % len(at) == far, 0, (at + 1) % len(at))))),
        np.concatenate((trips, np.where(at == far, 1, 40 + at))),
        origins=tree,
        destinations=tree,
        intake=ReadSummary(rows=1, resolution=8),
    )


@pytest.fixture(scope="module")
def far_away(tmp_path_factory):
    release = anonymize(city_with_a_far_zone(), method="suppression", k=10)
    return release, release.write(tmp_path_factory.mktemp("far") / "out") / "report.html"


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    release = anonymize(city_with_a_far_zone(), method="mondrian", k=10)
    return release, release.write(tmp_path_factory.mktemp("boxes") / "out") / "report.html"


def picture_of(page, layer: str) -> str:
    return page.evaluate("(layer) => document.querySelector(`figure[data-layer=${layer}] canvas`).toDataURL()", layer)


def view_of(page, layer: str) -> tuple[float, ...]:
    """West, south, east, north of what a map shows."""
    return tuple(
        float(v) for v in page.locator(f"figure[data-layer={layer}] canvas").get_attribute("data-view").split(",")
    )


# ---- what lies outside the view ------------------------------------------------------------------------------------


def test_zones_outside_the_first_view_are_counted_and_can_be_shown(far_away, open_page):
    release, report = far_away
    far, rows = h3.int_to_str(h3.latlng_to_cell(45.76, 4.84, 8)), release.flows.to_pylist()
    away = {end: sum(row["trips"] for row in rows if row[f"{end}_zone"] == far) for end in ("origin", "destination")}
    away["flows"] = (away["origin"] + away["destination"]) / 2
    with open_page(report, viewport={"width": 1280, "height": 800}) as opened:
        page = opened.page
        for layer, said in (("origin", "1 zone lies"), ("destination", "1 zone lies"), ("flows", "2 zones lie")):
            outside = page.locator(f"figure[data-layer={layer}] .outside")
            assert outside.is_visible()
            share = 100 * away[layer] / sum(row["trips"] for row in rows)
            assert outside.inner_text().startswith(f"{said} outside this view, with {share:.2g}% of the trips.")
        assert view_of(page, "origin")[1] > 46
        opened.keep("details-outside")
        page.locator("figure[data-layer=origin] .outside button").click()
        redrawn(page)
        assert view_of(page, "origin")[1] < 45.8
        assert page.locator(".outside:visible").count() == 0


def test_the_place_of_the_map_is_written_on_it(far_away, open_page):
    """Without a background map, coordinates and north are what an area is recognised by."""
    _, report = far_away
    listen = """() => {
        window.words = [];
        const pen = CanvasRenderingContext2D.prototype, draw = pen.fillText;
        pen.fillText = function (text, ...at) { words.push(text); return draw.call(this, text, ...at); };
    }"""
    with open_page(report) as opened:
        page = opened.page
        page.evaluate(listen)
        page.locator("figure[data-layer=origin] canvas").focus()
        page.keyboard.press("+")
        redrawn(page)
        written = page.evaluate("words")
        west, south, east, north = view_of(page, "origin")
    assert "N" in written
    assert any(re.fullmatch(r"[125]0* k?m", text) for text in written)
    middles = {text for text in written if text.startswith("middle: ")}
    assert middles
    for middle in middles:
        lat, lon = map(float, re.fullmatch(r"middle: ([\d.]+)° N, ([\d.]+)° E", middle).groups())
        assert lat == pytest.approx((south + north) / 2, abs=0.02)
        assert lon == pytest.approx((west + east) / 2, abs=0.02)


# ---- boxes ---------------------------------------------------------------------------------------------------------


def test_boxes_have_a_grid_below_and_no_level(boxes, open_page):
    _, report = boxes
    with open_page(report) as opened:
        page = opened.page
        assert "level" not in page.locator("#colour option").evaluate_all("all => all.map(o => o.value)")
        heads = page.locator("#zone-rows").locator("xpath=..").locator("th").all_inner_texts()
        assert "Level" not in heads
        assert page.locator("#zone-rows tr").first.locator("td").count() == len(heads)
        before = picture_of(page, "origin")
        page.locator("#grid").uncheck()
        redrawn(page)
        assert picture_of(page, "origin") != before
        page.locator("#grid").check()
        page.locator("#zone-rows button.zone").first.click()
        said = page.locator("#selected").inner_text()
        assert "trips are counted in this box" in said
        assert "level" not in said
        assert "start here" not in said
        opened.keep("details-boxes")


def test_zones_that_do_not_overlap_hold_all_trips_of_their_place(far_away, open_page):
    _, report = far_away
    with open_page(report) as opened:
        page = opened.page
        page.locator("#zone-rows button.zone").first.click()
        assert "trips start here" in page.locator("#selected").inner_text()
        assert "level 8" in page.locator("#selected").inner_text()


# ---- without a mouse -----------------------------------------------------------------------------------------------


def test_enter_where_there_is_no_zone_says_so(far_away, open_page):
    _, report = far_away
    with open_page(report) as opened:
        page = opened.page
        page.locator("figure[data-layer=origin] canvas").focus()
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        said = page.locator("figure[data-layer=origin] [role=status]")
        assert "No zone lies under the cross" in said.inner_text()
        page.keyboard.press("0")
        page.locator("#zone-rows button.zone").first.click()
        assert said.inner_text() == ""


@pytest.mark.parametrize(("end", "zoomed"), [("origin", 0), ("destination", 8)])
def test_a_zone_chosen_by_its_code_comes_fully_into_view(far_away, open_page, end, zoomed):
    release, report = far_away
    far = h3.int_to_str(h3.latlng_to_cell(45.76, 4.84, 8))
    rows = {row["zone"]: row for row in release.zones.to_pylist()}
    code = next(zone for zone in rows if zone != far)
    with open_page(report) as opened:
        page = opened.page
        page.locator("figure[data-layer=origin] canvas").focus()
        for key in ["+"] * zoomed + ["ArrowRight"] * 40:
            page.keyboard.press(key)
        page.select_option("#find-end", end)
        for wanted in (code, far):
            page.locator("#find").fill(wanted)
            page.keyboard.press("Enter")
            redrawn(page)
            west, south, east, north = shapely.bounds(shapely.from_wkb(rows[wanted]["geometry"]))
            for layer in ("origin", "destination", "flows"):
                view = view_of(page, layer)
                assert view[0] < west < east < view[2]
                assert view[1] < south < north < view[3]


# ---- the comparison ------------------------------------------------------------------------------------------------


def squares(density: np.ndarray, area: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """Published tables of zones in a row with these densities and areas."""
    n = len(density)
    names = [f"z{i:03d}" for i in range(n)]
    outline = shapely.box(2 + np.arange(n) / 100, 48, 2.009 + np.arange(n) / 100, 48.01)
    zones = pa.table(
        {
            "zone": names,
            "role": ["both"] * n,
            "level": [0] * n,
            "tiles": [1] * n,
            "area_km2": area,
            "lat": np.full(n, 48.005),
            "lon": 2.0045 + np.arange(n) / 100,
            "geometry": shapely.to_wkb(outline),
        }
    )
    trips = np.maximum(np.rint(density * area), 1).astype(np.int64)
    return pa.table({"origin_zone": names, "destination_zone": names, "trips": trips}), zones


@pytest.fixture(scope="module")
def stretched(tmp_path_factory):
    """Densities of 100 to 2,000, and two huge zones with 0.0109 trips per km²."""
    density = np.concatenate((np.geomspace(100, 2000, 198), [0.0109, 0.0109]))
    area = np.concatenate((np.full(198, 10.0), [1e5, 1e5]))
    flows, zones = squares(density, area)
    measures = {
        "area_error": 0.1234,
        "trip_length_ratio": 1.012,
        "n_cells": 200,
        "n_origin_zones": 200,
        "n_destination_zones": 200,
        "mean_generalization_error": 123456.7,
        "generalization_distance_m": 12345.0,
        "generalization_distance_median_m": 12345.0,
        "generalization_distance_std_m": 12345.0,
        "reconstruction_loss": 1.2,
        "distribution_distance": 1.1,
        "suppressed_share": 0.1,
        "c_dm": 123_456_789_012_345,
        "c_avg": 1234.56,
        "k_people": 12,
    }
    runs = tuple(
        Run(
            name,
            10,
            ("trips", "people", "population"),
            "done",
            seconds=1.0,
            by_basis={"trips": measures},
            flows=flows,
            zones=zones,
        )
        for name in ("suppression", "odkanon")
    )
    found = Comparison(runs=runs, time_limit=60.0, max_suppressed=0.1)
    return found.write(tmp_path_factory.mktemp("comparison") / "out") / "comparison.html"


def test_a_few_huge_zones_do_not_stretch_the_colours(stretched, open_page):
    with open_page(stretched) as opened:
        heads = opened.page.locator(".legend[data-scale=main] .long").all_inner_texts()
        opened.keep("details-comparison")
    assert heads[0].startswith("under ")
    limits = [float(head.removeprefix("under ").split(" ")[0].replace(",", "")) for head in heads]
    assert min(limits) >= 100
    assert len(heads) >= 4
    assert all(str(int(limit)).rstrip("0") in ("1", "2", "5") for limit in limits)


def test_a_table_that_is_wider_than_the_screen_says_so(stretched, open_page):
    with open_page(stretched) as opened:
        page = opened.page
        for width in (390, 800, 1000, 1190, 1210, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            redrawn(page)
            cut = page.evaluate(
                "(() => { const s = document.querySelector('.sideways'); return s.scrollWidth > s.clientWidth })()"
            )
            assert page.locator(".sideways-hint").is_visible() == cut, width
            if width == 390:
                assert cut
                shade = page.evaluate("getComputedStyle(document.querySelector('.sideways')).backgroundImage")
                assert "gradient" in shade
            if width >= 1280:
                assert not cut, width
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_whole_table_is_on_paper(stretched, open_page):
    with open_page(stretched) as opened:
        page = opened.page
        page.emulate_media(media="print")
        # A4 without its margins, lying and upright, at 96 dots an inch.
        for width in (1032, 703):
            page.set_viewport_size({"width": width, "height": 900})
            right = page.evaluate("document.querySelector('table.dense').getBoundingClientRect().right")
            assert right <= width
        pdf = page.pdf(prefer_css_page_size=True)
    boxes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([\d. ]+)\]", pdf)}
    assert boxes
    assert all(east - west > north - south for west, south, east, north in boxes)
