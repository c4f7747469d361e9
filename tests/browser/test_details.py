"""Details of the comparison's page in a real browser.

Legends, wide tables on the screen and on paper.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import shapely

from browser.pages import redrawn
from flowveil.analysis.comparison import Comparison
from flowveil.analysis.experiment import MeasuredRun


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
        MeasuredRun(
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
                "(() => { const s = document.querySelector('.sideways'); return s.scrollWidth >"
                " s.clientWidth })()"
            )
            assert page.locator(".sideways-hint").is_visible() == cut, width
            if width == 390:
                assert cut
                shade = page.evaluate(
                    "getComputedStyle(document.querySelector('.sideways')).backgroundImage"
                )
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
            right = page.evaluate(
                "document.querySelector('table.dense').getBoundingClientRect().right"
            )
            assert right <= width
        pdf = page.pdf(prefer_css_page_size=True)
    boxes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([\d. ]+)\]", pdf)}
    assert boxes
    assert all(east - west > north - south for west, south, east, north in boxes)
