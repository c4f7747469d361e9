"""report.html in a real browser: from disk, with the network cut, by mouse, by keyboard, on a phone, on paper."""

from __future__ import annotations

import re

import h3.api.basic_int as h3
import numpy as np
import pytest

from browser.pages import redrawn, until
from conftest import trip_table
from flowveil import anonymize, compare, read_trips
from flowveil.analysis import analyze_release
from flowveil.flows import Flows
from flowveil.zoning.h3 import h3_hierarchy
from samples.drafts import unchecked
from samples.processes import in_this_process
from samples.releases import city_flows, region_flows, release_of


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


@pytest.fixture(scope="module")
def flows():
    return read_trips(trip_table(3000), resolution=9, person="person_id", weight="weight")


@pytest.fixture(scope="module")
def release(flows):
    return anonymize(flows, "odkanon", k=10, budget="volume")


@pytest.fixture(scope="module")
def report(release, tmp_path_factory):
    return release.write(tmp_path_factory.mktemp("report") / "out") / "report.html"


@pytest.fixture(scope="module")
def nested(flows, tmp_path_factory):
    overlapping = anonymize(flows, k=10, method="atg-dual")
    assert not overlapping.plan.homogeneous
    return overlapping.write(tmp_path_factory.mktemp("nested") / "out") / "report.html"


def painted(page, layer: str) -> int:
    """How many different colours a map shows."""
    return page.evaluate(
        """(layer) => {
            const c = document.querySelector(`figure[data-layer=${layer}] canvas`);
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            const seen = new Set();
            for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
            return seen.size;
        }""",
        layer,
    )


def picture_of(page, layer: str) -> str:
    return page.evaluate("(layer) => document.querySelector(`figure[data-layer=${layer}] canvas`).toDataURL()", layer)


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_it_draws_all_three_maps_and_other_colours_otherwise(report, open_page, scheme, other):
    with open_page(report, color_scheme=scheme) as opened:
        for layer in ("origin", "destination", "flows"):
            assert painted(opened.page, layer) > 5, layer
        opened.keep(f"report-{scheme}")
        before = picture_of(opened.page, "origin")
        opened.page.emulate_media(color_scheme=other)
        redrawn(opened.page)
        assert picture_of(opened.page, "origin") != before


def code_in(text: str) -> str:
    """The code of a zone that is called by the nearest town: "around Paris (871fb4662ffffff)"."""
    return text.strip().rpartition("(")[2].rstrip(")")


def test_a_click_on_a_zone_filters_maps_and_table(report, release, open_page):
    with open_page(report) as opened:
        page = opened.page
        everything = page.locator("#flow-rows tr").count()
        before = picture_of(page, "destination")
        page.locator("figure[data-layer=origin]").scroll_into_view_if_needed()
        box = page.locator("figure[data-layer=origin] canvas").bounding_box()
        # The middle of the map may lie between zones: go out until one is hit.
        for step in range(0, 120, 8):
            page.mouse.click(box["x"] + box["width"] / 2 + step, box["y"] + box["height"] / 2)
            if page.locator("#clear").is_enabled():
                break
        chosen = page.locator("#selected code").inner_text()
        assert chosen in release.flows["origin_zone"].to_pylist()
        rows = page.locator("#flow-rows tr").all_inner_texts()
        assert rows
        assert all(code_in(row.split("\t")[0]) == chosen for row in rows)
        assert len(rows) <= everything
        assert picture_of(page, "destination") != before
        opened.keep("report-selected")
        page.locator("#clear").click()
        assert page.locator("#flow-rows tr").count() == everything


def test_what_is_not_published_is_hatched_and_never_called_zero(report, release, open_page):
    """The origin with the fewest cells has destinations without a published flow."""
    pairs = release.flows.select(["origin_zone", "destination_zone"]).to_pylist()
    origins = [pair["origin_zone"] for pair in pairs]
    few = min(sorted(set(origins)), key=origins.count)
    assert origins.count(few) < len({pair["destination_zone"] for pair in pairs})
    with open_page(report) as opened:
        page = opened.page
        page.locator("#find").fill(few)
        page.keyboard.press("Enter")
        assert page.locator(".legend .hatched").count() == 1
        assert "none, or too few" in page.locator(".legend .missing").inner_text()
        assert "for all others: none, or too few" in page.locator("#selected").inner_text()
        bars = page.locator("#selected ol.bars li").count()
        assert bars == min(10, origins.count(few))
        opened.keep("report-not-published")


def test_a_flow_line_is_clicked_and_its_numbers_stand_beside_the_map(report, release, open_page):
    with open_page(report) as opened:
        page = opened.page
        page.locator("#lines").fill("1")
        page.locator("figure[data-layer=flows]").scroll_into_view_if_needed()
        # The only line there is: look for its colour, which no zone has.
        x, y = page.evaluate(
            """() => {
                const c = document.querySelector('figure[data-layer=flows] canvas'), r = c.getBoundingClientRect();
                const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, found = [];
                for (let i = 0; i < d.length; i += 4) if (d[i] > d[i + 2] + 60) found.push(i / 4);
                const i = found[found.length >> 1];
                return [r.left + i % c.width, r.top + Math.floor(i / c.width)];
            }"""
        )
        page.mouse.move(x, y)
        assert "trips" in page.locator(".tip").inner_text()
        page.mouse.click(x, y)
        said = page.locator("#selected").inner_text()
        between = [r for r in release.flows.to_pylist() if r["origin_zone"] != r["destination_zone"]]
        most = max(row["trips"] for row in between)
        assert f"{most:,} trips" in said
        opened.keep("report-flow")


def test_two_fingers_zoom_and_the_answer_to_a_tap_is_in_view(report, open_page):
    with open_page(report, phone=True) as opened:
        page = opened.page
        canvas = page.locator("figure[data-layer=origin] canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = page.context.new_cdp_session(page)
        before = canvas.get_attribute("data-view").split(",")
        for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 60), ("touchEnd", None)):
            points = [] if apart is None else [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        # Drawn again when the fingers are gone; a third of the width is in view.
        third = (float(before[2]) - float(before[0])) / 3
        # While it is drawn, a map has no view.
        view = "(document.querySelector('figure[data-layer=origin] canvas')?.dataset.view ?? '0,0,0,0')"
        seen = f"(e => e[2] - e[0])({view}.split(','))"
        until(page, f"Math.abs({seen} - {third}) < {third / 10}")
        page.locator("#zone-rows button.zone").first.tap()
        sheet = page.locator("#selected").bounding_box()
        assert sheet["y"] + sheet["height"] <= 845
        assert sheet["y"] > 400


def test_the_layer_changes_with_its_legend(report, open_page):
    with open_page(report) as opened:
        page = opened.page
        seen = set()
        for colour in ("volume", "density", "tiles", "level"):
            page.select_option("#colour", colour)
            redrawn(page)
            seen.add((page.locator(".legend[data-scale=main]").inner_text(), picture_of(page, "origin")))
        assert len(seen) == 4
        page.select_option("#basis", "weight")
        page.select_option("#colour", "volume")
        assert page.locator(".legend[data-scale=main]").inner_text().startswith("Weight")
        opened.keep("report-levels")


def test_the_table_holds_the_largest_flows_of_the_release(report, release, open_page):
    with open_page(report) as opened:
        rows = [row.split("\t") for row in opened.page.locator("#flow-rows tr").all_inner_texts()]
    published = release.flows.to_pylist()
    largest = sorted((row["trips"] for row in published), reverse=True)[: len(rows)]
    assert [int(row[2].replace(",", "")) for row in rows] == largest
    known = {(row["origin_zone"], row["destination_zone"], row["trips"]) for row in published}
    assert {(code_in(row[0]), code_in(row[1]), int(row[2].replace(",", ""))) for row in rows} <= known


def test_everything_can_be_done_without_a_mouse(report, open_page):
    with open_page(report) as opened:
        page = opened.page
        canvas = page.locator("figure[data-layer=origin] canvas")
        canvas.focus()
        before = picture_of(page, "origin")
        for key in ("+", "+", "ArrowLeft", "ArrowDown"):
            page.keyboard.press(key)
        redrawn(page)
        assert picture_of(page, "origin") != before
        page.keyboard.press("0")
        code = page.locator("#zone-rows button.zone").first
        code.focus()
        page.keyboard.press("Enter")
        assert page.locator("#selected code").inner_text() == code_in(code.inner_text())
        canvas.focus()
        page.keyboard.press("Escape")
        assert page.locator("#clear").is_disabled()
        page.locator("#find").fill("nowhere")
        page.keyboard.press("Enter")
        assert page.evaluate("document.getElementById('find').validationMessage") != ""


def test_it_can_be_read_without_seeing(report, open_page):
    with open_page(report) as opened:
        page = opened.page
        for canvas in page.locator("figure.map canvas").all():
            assert "Map of" in canvas.get_attribute("aria-label")
        for drawing in page.locator("svg.chart").all():
            assert len(drawing.get_attribute("aria-label")) > 20
        nameless = page.evaluate(
            "[...document.querySelectorAll('button,select,input')].filter(e => !(e.labels && e.labels.length) && "
            "!e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby') && !e.textContent.trim())"
            ".map(e => e.outerHTML)"
        )
        assert nameless == []
        assert page.locator("#selected").get_attribute("aria-live") == "polite"


def test_overlapping_zones_are_chosen_from_small_to_large(nested, open_page):
    with open_page(nested) as opened:
        page = opened.page
        page.locator("figure[data-layer=destination]").scroll_into_view_if_needed()
        box = page.locator("figure[data-layer=destination] canvas").bounding_box()
        chosen: list[str] = []
        for step in range(0, 150, 6):
            at = (box["x"] + box["width"] / 2 + step, box["y"] + box["height"] / 2)
            chosen = []
            for _ in range(4):
                page.mouse.click(*at)
                if not page.locator("#clear").is_enabled():
                    break
                chosen.append(page.locator("#selected code").inner_text())
            if len(set(chosen)) > 1:
                break
            if page.locator("#clear").is_enabled():
                page.locator("#clear").click()
        assert chosen
        opened.keep("report-overlapping")


def test_it_fits_a_phone(report, open_page):
    with open_page(report, phone=True) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("figure[data-layer=origin] .zoom button").first.tap()
        opened.keep("report-phone")


def test_it_prints_in_light_colours(report, open_page):
    with open_page(report, color_scheme="dark") as opened:
        pdf = opened.page.pdf(format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000


def test_zones_without_a_place_are_listed(open_page, tmp_path):
    out = release_of(region_flows(), budget="volume").write(tmp_path / "out")
    with open_page(out / "report.html") as opened:
        assert opened.page.locator("figure.map").count() == 0
        assert opened.page.locator("#flow-rows tr").count() > 0


def test_the_background_map_asks_nobody_until_it_is_switched_on(open_page, tmp_path):
    out = release_of(city_flows(), budget="volume").write(
        tmp_path / "out", basemap="https://tiles.invalid/{z}/{x}/{y}.png"
    )
    with open_page(out / "report.html", offline=False) as opened:
        page = opened.page
        page.route(re.compile("^https:"), lambda route: route.fulfill(status=200, content_type="image/png", body=PIXEL))
        page.mouse.wheel(0, 300)
        assert [url for url in opened.asked if not url.startswith("file:")] == []
        with page.expect_request(re.compile("^https:")):
            page.locator("#background").check()
        elsewhere = [url for url in opened.asked if not url.startswith("file:")]
        assert elsewhere
        assert all(url.startswith("https://tiles.invalid/") for url in elsewhere)


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)


# ---- size and speed -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """10,000 zones and 10,000 flows."""
    rng = np.random.default_rng(7)
    tiles = np.sort(np.array(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 58), dtype=np.uint64))[:10_000]
    tree = h3_hierarchy(tiles)
    far = (np.arange(10_000) * 7919) % 10_000
    flows = Flows.from_pairs(np.arange(10_000), far, rng.integers(10, 5000, 10_000), origins=tree, destinations=tree)
    return anonymize(flows, method="suppression", k=10).write(tmp_path_factory.mktemp("large") / "out")


def test_ten_thousand_zones_and_flows_open_and_stay_small(large, open_page):
    """How fast is measured by benchmarks/pages.py."""
    page = large / "report.html"
    assert page.stat().st_size < 15_000_000
    with open_page(page) as opened:
        assert painted(opened.page, "origin") > 5
        opened.keep("report-large", full=False)


# ---- the pages that are not published -----------------------------------------------------------------------------


def test_the_page_of_the_analysis_is_marked_and_draws_before_and_after(release, open_page, tmp_path):
    path = analyze_release(release).write(tmp_path / "private") / "before-after.html"
    with open_page(path) as opened:
        page = opened.page
        mark = page.locator(".internal-mark")
        assert "NOT FOR PUBLICATION" in mark.inner_text()
        assert page.evaluate("getComputedStyle(document.querySelector('.internal-mark')).position") == "sticky"
        for layer in ("origin_tiles", "origin_zones", "destination_tiles", "destination_zones", "origin"):
            assert painted(page, layer) > 3
        page.mouse.wheel(0, 2000)
        assert mark.is_visible()
        opened.keep("internal")
        page.emulate_media(media="print")
        # Fixed boxes are repeated on every printed page.
        assert page.evaluate("getComputedStyle(document.querySelector('.internal-mark')).position") == "fixed"


def test_the_comparison_shows_runs_that_failed(flows, open_page, tmp_path):
    with in_this_process():
        found = compare(flows, methods="odkanon,suppression", k=[10, 100_000], time_limit=60)
    out = found.write(tmp_path / "out")
    with open_page(out / "comparison.html") as opened:
        page = opened.page
        assert "NOT FOR PUBLICATION" in page.locator(".internal-mark").inner_text()
        runs = page.get_by_role("region", name="All runs: table").locator("table")
        assert runs.locator("tbody tr").count() == 4
        assert "infeasible" in runs.inner_text()
        assert page.locator("figure.map").count() == 2 * sum(run.status == "done" for run in found.runs)
        opened.keep("comparison")


def test_a_notebook_shows_the_page_in_a_frame(release, open_page, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'><body>{release._repr_html_()}", encoding="utf-8")
    with open_page(path) as opened:
        inside = opened.page.frame_locator("iframe")
        inside.locator("html[data-ready=true]").wait_for()
        assert inside.locator("figure.map").count() == 3
        assert inside.locator("#flow-rows tr").count() > 0
        assert inside.locator("table.measures").count() == 0
        opened.keep("notebook", full=False)
