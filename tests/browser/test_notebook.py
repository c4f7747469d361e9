"""What a notebook shows fits its cell: the map is in view."""

from __future__ import annotations

import pytest

from browser.pages import redrawn
from flowveil import anonymize
from flowveil.publishing.api import notebook_view
from samples.releases import city_flows


@pytest.mark.parametrize("width", [820, 1200])
def test_the_map_is_in_view(width, tmp_path, open_page):
    page_file = tmp_path / "cell.html"
    view = notebook_view(anonymize(city_flows(), k=5, protect="trips"))
    page_file.write_text(
        f"<!doctype html><html lang='en'><title>cell</title><body>{view}</body></html>", "utf-8"
    )
    with open_page(page_file) as opened:
        opened.page.set_viewport_size({"width": width, "height": 1000})
        frame = opened.page.frame_locator("iframe")
        frame.locator("html[data-ready=true]").wait_for(state="attached")
        redrawn(opened.page)
        outer = opened.page.locator("iframe").bounding_box()
        flows = frame.locator(".stage > canvas").bounding_box()
        assert flows["y"] + flows["height"] <= outer["y"] + outer["height"]
        opened.keep(f"notebook-{width}")
