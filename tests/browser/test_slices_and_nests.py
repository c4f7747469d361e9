"""Pages of several matrices in a real browser: slices one at a time, nested zones by place, folded times as a strip."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from browser.pages import until
from flowveil import anonymize, anonymize_slices, read_slices
from flowveil.published.document import asset, map_module
from samples.drafts import unchecked
from samples.hourly import hourly_trips


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    """Hours of the day by sex; m has trips in fewer hours than f."""
    trips = hourly_trips()
    trips = trips.append_column("sex", pa.array(np.where(np.arange(len(trips)) % 5, "f", "m")))
    flows = read_slices(trips, every="hour", by="sex", time="start", resolution=8)
    release = anonymize_slices(flows, "odkanon", k=10, accept_differencing=True)
    return release.write(tmp_path_factory.mktemp("sliced") / "out")


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    flows = read_slices(hourly_trips(), every="hour", time="start", resolution=8).folded()
    return anonymize(flows, "paircut", k=10).write(tmp_path_factory.mktemp("folded") / "out")


def data_of(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'id="map-data">(.*?)</script>', text, re.S)[1])


def rows_of(page):
    return {tuple(row.split("\t")) for row in page.locator("#flow-rows tr").all_inner_texts()}


def test_slices_are_shown_one_at_a_time(sliced, open_page):
    slices = data_of(sliced)["slices"]
    hours = sorted({time for _, time in slices["keys"]})
    with open_page(sliced / "report.html") as opened:
        page = opened.page
        picker = page.get_by_label("sex")
        picker.select_option(label="f")
        page.locator("#slice").fill("0")
        first = rows_of(page)
        assert hours[0] in page.locator(".view-note").inner_text()
        assert page.locator(".slice-bars rect").count() == len(hours)
        page.locator(".slice-bars rect.bar").nth(5).click()
        assert rows_of(page) != first
        # A slice that is not published says so; it is not shown as another one, nor as zero.
        picker.select_option(label="m")
        missing = next(i for i, hour in enumerate(hours) if ["m", hour] not in slices["keys"])
        page.locator("#slice").fill(str(missing))
        assert "nothing of this slice is published: none, or too few" in page.locator(".view-note").inner_text()
        assert page.locator("#flow-rows tr").count() == 0
        page.select_option("#view-kind", "-1")
        assert "estimates" in page.locator(".view-note").inner_text()
        assert "(estimated)" in page.locator(".legend[data-scale=main]").inner_text()
        page.select_option("#view-kind", "slice")
        page.locator(".multiples summary").click()
        page.wait_for_selector(".small-maps canvas")
        assert 1 <= page.locator(".small-maps canvas").count() <= 12
        opened.keep("sliced")


def test_segments_have_bars_and_a_picker_that_follow_each_other(open_page, tmp_path):
    trips = hourly_trips()
    trips = trips.append_column("mode", pa.array(np.array(["bike", "bus", "car"])[np.arange(len(trips)) % 3]))
    release = anonymize_slices(read_slices(trips, by="mode", resolution=8), "twincut", k=10, accept_differencing=True)
    with open_page(release.write(tmp_path / "out") / "report.html", phone=True) as opened:
        page = opened.page
        assert page.locator("#slice").count() == 0
        page.locator(".slice-bars rect.bar").nth(1).tap()
        assert page.get_by_label("mode").evaluate("e => e.selectedOptions[0].textContent") == "bus"
        assert "bus" in page.locator(".view-note").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        opened.keep("segments-phone")


def test_time_plays_and_stops(sliced, open_page):
    with open_page(sliced / "report.html") as opened:
        page = opened.page
        page.locator("#slice").fill("3")
        page.locator("#play").click()
        until(page, "document.getElementById('slice').value !== '3'")
        page.locator("#play").click()
        stopped = page.locator("#slice").input_value()
        page.wait_for_timeout(900)
        assert page.locator("#slice").input_value() == stopped


def test_a_place_lists_the_published_zones_that_hold_it_and_a_pair_its_times(folded, open_page):
    with open_page(folded / "report.html") as opened:
        page = opened.page
        assert "estimates" in page.locator(".view-note").inner_text()
        page.locator("#zone-rows button.zone").first.click()
        said = page.locator("#selected").inner_text()
        assert "Published zones that hold this place, from fine to coarse" in said
        sizes = [
            float(size)
            for size in re.findall(r"([\d.]+) km², \d+ cell", said.split("As origins")[1].split("As destinations")[0])
        ]
        assert sizes
        assert sizes == sorted(sizes)
        opened.keep("nested")
        page.locator("#selected ol.bars").nth(1).locator("button").first.click()
        assert page.locator("#view-kind").input_value() == "0"
        page.locator("#selected ol.bars button").first.click()
        assert page.locator("#selected .strip .day i").count() >= 1
        assert "trips" in page.locator("#selected .strip .day").get_attribute("aria-label")
        opened.keep("folded")


def test_the_module_mounts_into_an_empty_element_and_takes_new_data(folded, sliced, open_page, tmp_path):
    before, after = (json.dumps(data_of(folder)) for folder in (sliced, folded))
    path = tmp_path / "elsewhere.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{asset('page.css')}</style><div id='here'></div>"
        f"<script type='module'>{map_module()}\nconst map = mount(document.getElementById('here'), {before});"
        f"window.next = () => map.update({after}); window.end = () => map.destroy();"
        "document.documentElement.dataset.ready = 'true';</script>",
        encoding="utf-8",
    )
    with open_page(path) as opened:
        page = opened.page
        assert page.locator("figure.map canvas").count() == 3
        labels = page.locator("canvas").first.get_attribute("aria-label")
        page.evaluate("next()")
        assert page.locator("canvas").first.get_attribute("aria-label") != labels
        page.evaluate("end()")
        assert page.locator(".tip, .zoom").count() == 0
