"""How long the pages of large releases take to open in Chromium, against an empty page opened in
the same run.

Two pages: one matrix of 10,000 zones and 10,000 flows, and 168 hours of a week with different
zones. Written to ``benchmarks/results/pages.md``.

    python -m benchmarks pages
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h3.api.basic_int as h3
import numpy as np
import pyarrow as pa

import flowveil
from flowveil.core.flows import Flows
from flowveil.zoning.h3 import h3_hierarchy

RESULT = Path(__file__).parent / "results" / "pages.md"
#: Name, most seconds to open, most megabytes.
TARGETS = {"10,000 zones and flows": (2.5, None), "168 hours": (4.0, 10.0)}


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000, help="flows of an hour of the week")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        empty = Path(place) / "empty.html"
        empty.write_text(
            "<!doctype html><title>empty</title><script>document.documentElement.dataset.ready ="
            " 'true'</script>"
        )
        pages = {
            "empty page": empty,
            "10,000 zones and flows": one_matrix().write(Path(place) / "one") / "report.html",
            "168 hours": one_week(options.pairs).write(Path(place) / "week") / "report.html",
        }
        times = opened(pages, options.repeat)
        sizes = {name: path.stat().st_size / 1e6 for name, path in pages.items()}
    lines = [
        "# Pages",
        "",
        __doc__.splitlines()[0],
        "",
        "| page | MB | seconds to open | empty pages | processor seconds | asked |",
        "|---|---|---|---|---|---|",
    ]
    for name, (most, size) in TARGETS.items():
        asked = f"under {most:g} s" + (f" and {size:g} MB" if size else "")
        (wall, processor), (empty, _) = times[name], times["empty page"]
        lines.append(
            f"| {name} | {sizes[name]:.1f} | {wall:.2f} | {wall / empty:.0f} | {processor:.2f} |"
            f" {asked} |"
        )
    lines += [
        "",
        (
            "The best of a few openings in headless Chromium, from a file, until all maps are"
            " drawn. Processor seconds are"
        ),
        (
            "those of the process that shows the page, from an empty one on: on a busy machine they"
            " say more."
        ),
        (
            f"Processes that wanted a processor during the run: about {os.getloadavg()[0]:.0f}, on"
            f" {os.cpu_count()} cores."
        ),
    ]
    print("\n".join(lines))
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def one_matrix() -> flowveil.Release:
    rng = np.random.default_rng(7)
    tiles = np.sort(np.array(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 58), dtype=np.uint64))[
        :10_000
    ]
    tree = h3_hierarchy(tiles)
    far = (np.arange(10_000) * 7919) % 10_000
    trips = rng.integers(10, 5000, 10_000)
    flows = Flows.from_pairs(np.arange(10_000), far, trips, origins=tree, destinations=tree)
    return flowveil.anonymize(flows, method="suppression", k=10)


def one_week(pairs: int) -> flowveil.SlicedRelease:
    """Every hour of a week has n pairs of 400 places, drawn for each hour, each with 10 trips or
    more."""
    rng = np.random.default_rng(11)
    tiles = np.array(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 12))[:400]
    places = np.array([h3.cell_to_latlng(int(tile)) for tile in tiles])
    start, ends = np.datetime64("2024-01-01T00:30:00"), {}
    for end in ("origin", "destination"):
        at = places[rng.integers(0, len(places), 168 * pairs)]
        ends |= {f"{end}_lat": at[:, 0], f"{end}_lon": at[:, 1]}
    hours = np.repeat(np.arange(168), pairs)
    table = pa.table(
        {
            **ends,
            "start": start + hours.astype("timedelta64[h]"),
            "n": rng.integers(10, 500, len(hours)),
        }
    )
    slices = flowveil.read_slices(
        table, time="start", every="weekday-hour", resolution=8, trips="n"
    )
    return flowveil.anonymize_slices(slices, "suppression", k=10)


def opened(pages: dict[str, Path], repeat: int) -> dict[str, tuple[float, float]]:
    """The best time of each page until it is ready, by the clock and of the processor, taken in
    turns."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    best = dict.fromkeys(pages, (float("inf"), float("inf")))
    with sync_playwright() as driver:
        for _ in range(repeat):
            for name, page in pages.items():
                # A browser for each opening has one process that shows pages.
                browser = driver.chromium.launch(
                    executable_path=path, args=["--no-sandbox", "--disable-gpu"]
                )
                tab = browser.new_page(viewport={"width": 1366, "height": 768})
                tab.goto("about:blank")
                before = _processor_seconds(browser)
                tab.goto(page.as_uri())
                tab.wait_for_selector("html[data-ready=true]", state="attached", timeout=60_000)
                found = (
                    tab.evaluate("performance.now() / 1000"),
                    _processor_seconds(browser) - before,
                )
                best[name] = min(best[name][0], found[0]), min(best[name][1], found[1])
                browser.close()
    return best


def _processor_seconds(browser: Any) -> float:
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(process["cpuTime"] for process in processes if process["type"] == "renderer")


if __name__ == "__main__":
    main()
