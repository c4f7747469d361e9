"""The report of a noisy release in a real browser.

The same maps, and first of all that counts are noisy.
"""

from __future__ import annotations

import h3
import pyarrow as pa
import pytest

from conftest import trip_table
from flowveil import anonymize, read_trips, read_zones
from flowveil.analysis.release_analysis import analyze_release
from samples.drafts import unchecked

REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ZONES = sorted(h3.cell_to_children(REGION, 7))


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


@pytest.fixture(scope="module")
def release():
    flows = read_trips(trip_table(4000), resolution=9)
    return anonymize(flows, "laplace", epsilon=1, bound=5, region=REGION, level=7)


def test_maps_and_layers_work_and_noise_is_said_first(release, tmp_path, open_page):
    with open_page(release.write(tmp_path / "out") / "report.html") as opened:
        page = opened.page
        assert "ε = 1" in page.locator(".story").inner_text()
        first = page.locator(".notice").first
        assert first.inner_text().startswith("Noisy:")
        assert first.bounding_box()["y"] < page.locator(".stage").bounding_box()["y"]
        page.locator(".numbers summary").click()
        page.locator(".numbers tbody tr").first.wait_for()
        rows = page.locator(".numbers tbody tr").all_inner_texts()
        counts = sorted(release.flows["trips"].to_pylist(), reverse=True)
        assert [int(row.split("\t")[-1].replace(",", "")) for row in rows] == counts[: len(rows)]
        opened.keep("noisy-report")


def test_the_page_of_the_analysis_opens(release, tmp_path, open_page):
    with open_page(
        analyze_release(release).write(tmp_path / "private") / "before-after.html"
    ) as opened:
        assert "NOT FOR PUBLICATION" in opened.page.locator("body").inner_text()
        assert opened.page.locator("figure[data-layer=origin_lost] canvas").count() == 1
        opened.keep("noisy-internal")


def test_zones_of_the_data_are_said_and_can_be_looked_at(tmp_path, open_page):
    """Tiles are those of the map, seen or not: which zones were seen is what the page warns of."""
    lat, lon = zip(*(h3.cell_to_latlng(c) for c in ZONES), strict=True)
    where = read_zones(
        pa.table(
            {"sector": [f"s{i % 6}" for i in range(49)], "zone": ZONES, "lat": lat, "lon": lon}
        ),
        levels=["sector", "zone"],
        lat="lat",
        lon="lon",
    )
    trips = pa.table({"o": ZONES * 20, "d": (ZONES[7:] + ZONES[:7]) * 20})
    flows = read_trips(trips, zones=where, origin_tile="o", destination_tile="d")
    release = anonymize(flows, "laplace", epsilon=1, region="observed", level=0)
    assert sorted(release.zones["tiles"].to_pylist()) == [8, 8, 8, 8, 8, 9]
    with open_page(release.write(tmp_path / "out") / "report.html") as opened:
        page = opened.page
        assert any(
            "the list of zones" in said for said in page.locator(".notice").all_inner_texts()
        )
        opened.keep("noisy-observed")
