"""report.html in a real browser: from disk, with the network cut, by mouse, by keyboard, on a
phone, on paper."""

from __future__ import annotations

import csv
import re
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from xml.etree import ElementTree

import h3.api.basic_int as h3
import numpy as np
import pytest

from browser.pages import redrawn
from conftest import trip_table
from flowveil import anonymize, anonymize_slices, compare, read_slices, read_tree, read_trips
from flowveil.analysis.release_analysis import analyze_release
from flowveil.core.flows import Flows
from flowveil.zoning.h3 import h3_hierarchy
from samples.drafts import unchecked
from samples.hourly import PURPOSES, hourly_trips
from samples.processes import in_this_process
from samples.releases import city_flows, region_flows, release_of

MAP = ".stage > canvas"


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
    return release.write(tmp_path_factory.mktemp("report") / "out", source="A test") / "report.html"


def painted(page, canvas: str) -> int:
    """How many different colours a map shows."""
    return page.evaluate(
        """(canvas) => {
            const c = document.querySelector(canvas);
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            const seen = new Set();
            for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
            return seen.size;
        }""",
        canvas,
    )


def picture_of(page) -> str:
    return page.evaluate("(canvas) => document.querySelector(canvas).toDataURL()", MAP)


def numbers_in(text: str) -> list[int]:
    return [int(found.replace(",", "")) for found in re.findall(r"[\d,]*\d", text)]


def saved(page, name: str, *, act=None):
    """The file that a button saves."""
    with page.expect_download() as download:
        (act or page.get_by_role("button", name=name, exact=True)).click()
    return download.value


# ---- the first screen ----------------------------------------------------------------------------


@pytest.mark.parametrize("phone", [False, True])
def test_the_map_is_on_the_first_screen_and_nothing_scrolls_sideways(report, open_page, phone):
    with open_page(report, phone=phone, fragment="") as opened:
        page = opened.page
        size, box = page.viewport_size, page.locator(MAP).bounding_box()
        assert " trip" in page.locator("h1").inner_text()
        assert box["y"] + box["height"] <= size["height"]
        assert box["width"] * box["height"] > 0.4 * size["width"] * size["height"]
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        opened.keep(f"report-{'phone' if phone else 'laptop'}")


def test_dark_has_other_colours_and_paper_light_ones(report, open_page):
    with open_page(report, color_scheme="light", fragment="") as opened:
        page = opened.page
        assert painted(page, MAP) > 20
        light = picture_of(page)
        page.emulate_media(color_scheme="dark")
        redrawn(page)
        assert picture_of(page) != light
        opened.keep("report-dark")
        pdf = page.pdf(format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000


# ---- reading the map -----------------------------------------------------------------------------


def test_all_cells_are_on_the_page_and_clusters_open_on_zoom(large, open_page):
    """25,000 cells between 10,000 zones; how fast is measured by benchmarks/pages.py."""
    release, folder = large
    with open_page(folder / "report.html") as opened:
        page = opened.page
        assert numbers_in(page.locator(".legend .said").inner_text())[0] == sum(
            release.flows["trips"].to_pylist()
        )
        circles = numbers_in(page.locator(MAP).get_attribute("data-shown"))[0]
        assert circles < 1000
        page.locator(".numbers summary").click()
        page.locator(".numbers p", has_text=f"of {len(release.flows):,} numbers").wait_for()
        page.locator(MAP).focus()
        west, _, east, _ = map(float, page.locator(MAP).get_attribute("data-view").split(","))
        for _ in range(10):
            page.keyboard.press("+")
        redrawn(page)
        near_west, _, near_east, _ = map(
            float, page.locator(MAP).get_attribute("data-view").split(",")
        )
        assert near_east - near_west < (east - west) / 30
        # The same part of the map had one or two circles before.
        assert numbers_in(page.locator(MAP).get_attribute("data-shown"))[0] > 2
        opened.keep("report-large", full=False)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    rng = np.random.default_rng(7)
    tiles = np.sort(np.array(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 58), dtype=np.uint64))[
        :10_000
    ]
    tree = h3_hierarchy(tiles)
    at = np.arange(25_000)
    far = (at * 7919 + at // 10_000) % 10_000
    flows = Flows.from_pairs(
        at % 10_000, far, rng.integers(10, 5000, len(at)), origins=tree, destinations=tree
    )
    release = anonymize(flows, method="suppression", k=10)
    return release, release.write(tmp_path_factory.mktemp("large") / "out")


def test_a_place_is_chosen_by_name_and_its_numbers_are_those_of_the_release(
    report, release, open_page
):
    rows = release.flows.to_pylist()
    with open_page(report) as opened:
        page = opened.page
        page.locator(".search input").fill("paris")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert "Paris" in page.locator(".panel h3").inner_text()
        page.keyboard.press("Escape")
        code = rows[0]["origin_zone"]
        page.locator(".search input").fill(code)
        page.keyboard.press("Enter")
        starts = sum(row["trips"] for row in rows if row["origin_zone"] == code)
        ends = sum(row["trips"] for row in rows if row["destination_zone"] == code)
        assert numbers_in(page.locator(".panel p").first.inner_text())[:2] == [starts, ends]
        assert "none, or too few to publish" in page.locator(".panel").inner_text()
        opened.keep("report-chosen", full=False)
        page.locator(MAP).focus()
        page.keyboard.press("Escape")
        assert not page.locator(".panel").is_visible()


def test_a_pointer_shows_numbers_and_a_click_the_place(report, open_page):
    with open_page(report) as opened:
        page = opened.page
        page.locator(MAP).focus()
        page.keyboard.press("Enter")
        if not page.locator(".panel").is_visible():
            assert "No place lies under the cross" in page.locator(".legend .said").inner_text()
        page.keyboard.press("Escape")
        box = page.locator(MAP).bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        around = [(x, y) for x in range(-200, 200, 12) for y in range(-200, 200, 12)]
        for dx, dy in sorted(around, key=lambda one: abs(one[0]) + abs(one[1])):
            at = middle[0] + dx, middle[1] + dy
            page.mouse.move(*at)
            if page.locator(".tip").is_visible() and "start" in page.locator(".tip").inner_text():
                break
        called, trips = page.locator(".tip").inner_text().split("\n")[:2]
        page.mouse.click(*at)
        assert page.locator(".panel h3").inner_text() == called
        assert numbers_in(trips)[0] in numbers_in(page.locator(".panel p").first.inner_text())


def test_two_fingers_zoom(report, open_page):
    with open_page(report, phone=True) as opened:
        page = opened.page
        box = page.locator(MAP).bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = page.context.new_cdp_session(page)
        west, _, east, _ = map(float, page.locator(MAP).get_attribute("data-view").split(","))
        for kind, apart in (
            ("touchStart", 20),
            ("touchMove", 40),
            ("touchMove", 60),
            ("touchEnd", None),
        ):
            points = (
                []
                if apart is None
                else [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
            )
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        redrawn(page)
        near_west, _, near_east, _ = map(
            float, page.locator(MAP).get_attribute("data-view").split(",")
        )
        assert near_east - near_west == pytest.approx((east - west) / 3, rel=0.1)


def test_hours_have_a_slider_whose_numbers_are_those_of_the_hour(open_page, tmp_path):
    hours = read_slices(hourly_trips(), every="hour", time="start", resolution=8)
    release = anonymize_slices(hours, "odkanon", k=10)
    rows = release.flows.to_pylist()
    steps = sorted({row["time"] for row in rows})
    with open_page(release.write(tmp_path / "out") / "report.html") as opened:
        page = opened.page
        said = page.locator(".legend .said")
        assert numbers_in(said.inner_text())[0] == sum(row["trips"] for row in rows)
        page.get_by_role("slider").fill("1")
        assert page.locator(".time output").inner_text() == steps[1]
        assert numbers_in(said.inner_text())[0] == sum(
            row["trips"] for row in rows if row["time"] == steps[1]
        )
        opened.keep("report-hours", full=False)
        page.get_by_role("button", name="Play").click()
        page.wait_for_timeout(1100)
        page.get_by_role("button", name="Pause").click()
        assert page.locator(".time output").inner_text() not in (steps[1], "All times together")
        page.get_by_role("button", name="All times").click()
        assert numbers_in(said.inner_text())[0] == sum(row["trips"] for row in rows)


def test_a_group_in_the_menu_includes_the_groups_below_it(open_page, tmp_path):
    folded = read_slices(hourly_trips(), by="purpose", resolution=7).folded(
        {"purpose": read_tree(PURPOSES)}
    )
    release = anonymize(folded, "paircut", k=10)
    rows, within = release.flows.to_pylist(), {"free time", "shop", "leisure"}
    assert len(within & {row["purpose"] for row in rows}) > 1
    with open_page(release.write(tmp_path / "purposes") / "report.html") as opened:
        page = opened.page
        page.get_by_label("purpose").select_option(label="free time")
        redrawn(page)
        total = sum(row["trips"] for row in rows if row["purpose"] in within)
        assert numbers_in(page.locator(".legend .said").inner_text())[0] == total
        page.get_by_label("purpose").select_option(label="\u2003shop")
        redrawn(page)
        total = sum(row["trips"] for row in rows if row["purpose"] == "shop")
        assert numbers_in(page.locator(".legend .said").inner_text())[0] == total


def test_zones_without_a_place_are_a_table(open_page, tmp_path):
    release = release_of(region_flows(), budget="volume")
    with open_page(release.write(tmp_path / "out") / "report.html") as opened:
        assert opened.page.locator("canvas").count() == 0
        assert opened.page.locator(".numbers tbody tr").count() == min(50, len(release.flows))


# ---- take it with you ----------------------------------------------------------------------------


def test_pictures_carry_title_source_guarantee_and_scale(report, open_page):
    with open_page(report) as opened:
        page = opened.page
        png = saved(page, "PNG")
        assert png.suggested_filename == "Trips-in-Paris-France.png"
        assert png.path().read_bytes().startswith(b"\x89PNG")
        drawing = ElementTree.fromstring(saved(page, "SVG").path().read_text("utf-8"))
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Trips in Paris, France", "Source: A test.", "N"} <= set(texts)
    assert any("at least 10 people" in text and "k = 10" in text for text in texts)
    assert any(re.fullmatch(r"[125]0* k?m", text) for text in texts)
    assert any(text.endswith(" trips") for text in texts)


def test_the_csv_file_has_the_rows_that_are_shown(report, release, open_page):
    def rows_in(download) -> list[tuple[str, str, int]]:
        rows = csv.DictReader(download.path().read_text("utf-8").splitlines())
        return [(row["origin_zone"], row["destination_zone"], int(row["trips"])) for row in rows]

    published = [
        (r["origin_zone"], r["destination_zone"], r["trips"]) for r in release.flows.to_pylist()
    ]
    with open_page(report) as opened:
        page = opened.page
        everything = rows_in(saved(page, "CSV"))
        assert sorted(everything) == sorted(published)
        assert everything[0][2] == max(trips for _, _, trips in published)
        page.locator(".search input").fill(published[0][0])
        page.keyboard.press("Enter")
        assert sorted(rows_in(saved(page, "CSV"))) == sorted(
            r for r in published if published[0][0] in r[:2]
        )


def test_the_embedded_map_is_one_file_that_draws_offline(report, open_page, tmp_path):
    with open_page(report) as opened:
        page = opened.page
        page.get_by_text("Embed", exact=True).click()
        line = page.get_by_role("textbox", name="Line to copy into a page").input_value()
        one = saved(page, "Save the map file")
        assert line.startswith(f'<iframe src="{one.suggested_filename}"')
        one.save_as(tmp_path / one.suggested_filename)
    with open_page(
        tmp_path / one.suggested_filename, viewport={"width": 900, "height": 640}, fragment=""
    ) as opened:
        assert painted(opened.page, MAP) > 20
        assert opened.page.locator("h1, .answers").count() == 0
        assert opened.page.evaluate("document.documentElement.scrollHeight") <= 760
        opened.keep("report-embedded", full=False)


# ---- the background map --------------------------------------------------------------------------

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)


@pytest.fixture
def tiles(tmp_path):
    """A tile server on this machine, and the addresses that were requested."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [openssl, *words, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    asked: list[str] = []

    class Tiles(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(PIXEL)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Tiles)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], asked
    server.shutdown()


def test_the_background_map_asks_the_tile_server_only_when_switched_on(open_page, tmp_path, tiles):
    port, asked = tiles
    address = f"https://localhost:{port}/{{z}}/{{x}}/{{y}}.png"
    out = release_of(city_flows(), budget="volume").write(tmp_path / "out", basemap=address)
    with open_page(out / "report.html", offline=False, ignore_https_errors=True) as opened:
        page = opened.page
        page.wait_for_timeout(300)
        assert asked == []
        before = page.locator(MAP).screenshot()
        with page.expect_response(re.compile("^https:")):
            page.locator("#background").check()
        page.wait_for_timeout(500)
        assert asked
        assert all(re.fullmatch(r"/\d+/\d+/\d+\.png", path) for path in asked)
        assert page.locator(MAP).screenshot() != before
        others = [
            url
            for url in opened.asked
            if not url.startswith(("file:", f"https://localhost:{port}/"))
        ]
        assert others == []


# ---- the pages that are not published ------------------------------------------------------------


def test_the_page_of_the_analysis_is_marked_and_draws_before_and_after(
    release, open_page, tmp_path
):
    path = analyze_release(release).write(tmp_path / "private") / "before-after.html"
    with open_page(path) as opened:
        page = opened.page
        mark = page.locator(".internal-mark")
        assert "NOT FOR PUBLICATION" in mark.inner_text()
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.internal-mark')).position")
            == "sticky"
        )
        for layer in ("origin_tiles", "origin_zones", "destination_tiles", "destination_zones"):
            assert painted(page, f"figure[data-layer={layer}] canvas") > 3
        page.mouse.wheel(0, 2000)
        assert mark.is_visible()
        opened.keep("internal")
        page.emulate_media(media="print")
        # Fixed boxes are repeated on every printed page.
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.internal-mark')).position")
            == "fixed"
        )


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
        assert page.locator("figure.map").count() == 2 * sum(
            run.status == "done" for run in found.runs
        )
        opened.keep("comparison")


def test_a_notebook_shows_the_page_in_a_frame(release, open_page, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><body>{release._repr_html_()}", encoding="utf-8"
    )
    with open_page(path) as opened:
        inside = opened.page.frame_locator("iframe")
        inside.locator("html[data-ready=true]").wait_for()
        assert "arrows" in inside.locator(".stage > canvas").get_attribute("data-shown")
        assert inside.locator(".answers").count() == 0
        opened.keep("notebook", full=False)
