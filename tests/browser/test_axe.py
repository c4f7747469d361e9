"""axe-core finds nothing on any kind of page, light and dark.

It is an npm package, fetched by .ci/run.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from browser.pages import COLOURS, redrawn, violations
from conftest import trip_table
from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from flowveil.analysis.comparison import Comparison
from flowveil.analysis.experiment import MeasuredRun
from flowveil.analysis.release_analysis import analyze_release
from flowveil.analysis.tables import Sheet, html_part
from flowveil.apps.cli import main
from flowveil.published.document import page
from samples.drafts import unchecked
from samples.hourly import hourly_trips

AXE = Path(
    os.environ.get(
        "AXE_CORE", Path(__file__).resolve().parents[2] / "build" / "axe-core" / "axe.min.js"
    )
)
pytestmark = pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not there (AXE_CORE names its axe.min.js)"
)
AREA = "2.31,48.83,2.37,48.88"


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


def _releases(folder: Path) -> dict[str, Path]:
    """A report of every kind of release."""
    trips = trip_table(1500)
    flows = read_trips(trips, resolution=7, person="")
    plain = anonymize(flows, k=5)
    hours = read_slices(hourly_trips(), every="hour", time="start", resolution=7)
    crossing = read_trips(trips, resolution=8, person="", within=AREA, outside="keep")
    releases = {
        "plain": plain,
        "nested": anonymize(flows, "paircut", k=5),
        "boxed": anonymize(flows, "mondrian", k=20),
        "noisy": anonymize(flows, "laplace", epsilon=1.0, region="observed"),
        "sliced": anonymize_slices(hours, "odkanon", k=10),
        "folded": anonymize(hours.folded(), "paircut", k=10),
        "outside": anonymize(crossing, k=5, max_suppressed=0.3),
    }
    about = {"title": "Trips", "source": "A test"}
    found = {
        name: one.write(folder / name, **about) / "report.html" for name, one in releases.items()
    }
    found["internal"] = analyze_release(plain).write(folder / "private") / "before-after.html"
    measures = {"suppressed_share": 0.1, "mean_generalization_error": 12.0}
    runs = tuple(
        MeasuredRun(
            m,
            5,
            ("trips",),
            "done",
            by_basis={"trips": measures},
            seconds=1.0,
            flows=plain.flows,
            zones=plain.zones,
        )
        for m in ("twincut", "odkanon")
    )
    found["comparison"] = (
        Comparison(runs, 60.0, 0.1).write(folder / "comparison") / "comparison.html"
    )
    return found


def _of_commands(folder: Path) -> dict[str, Path]:
    """Pages that commands write next to releases."""
    trips = trip_table(600)
    days = pa.array([f"2024-0{1 + i % 2}-03 08:00:00" for i in range(len(trips))])
    csv.write_csv(trips.append_column("day", days), folder / "t.csv")
    source, shared = str(folder / "t.csv"), ["--k", "5", "--resolution", "6", "--quiet"]
    for words in (
        ["anonymize", source, *shared, "--out", str(folder / "one")],
        ["verify", str(folder / "one"), "--against", source, "--certificate", str(folder / "certificate.html")],
        ["audit", str(folder / "one"), "--out", str(folder / "audit"), "--quiet"],
        ["series", source, "--every", "month", "--time", "day", *shared, "--out", str(folder / "series")],
    ):  # fmt: skip
        with suppress(SystemExit):
            main(words)
    found = {name: next((folder / name).glob("*.html")) for name in ("audit", "series")}
    return {**found, "certificate": folder / "certificate.html"}


KINDS = (
    "plain",
    "nested",
    "boxed",
    "noisy",
    "sliced",
    "folded",
    "outside",
    "internal",
    "comparison",
    "study",
    "audit",
    "series",
    "certificate",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    sheet = Sheet(("Method", "G"), (("TwinCut", 1),), "Results", label="1")
    tables = html_part("tables", "Tables", [sheet], notes=["A note."])
    study = page(title="Study", heading="Study", lead="One method.", parts=[tables])
    (folder / "study.html").write_text(study, encoding="utf-8")
    return {**_releases(folder), **_of_commands(folder), "study": folder / "study.html"}


@pytest.mark.parametrize(
    ("name", "fragment"),
    [*((name, "") for name in KINDS), ("nested", "cells"), ("sliced", "cells")],
)
def test_nothing_is_found_light_or_dark(name, fragment, pages, open_page):
    with open_page(pages[name], bypass_csp=True, fragment=fragment) as opened:
        for scheme, rules in (("light", None), ("dark", COLOURS)):
            opened.page.emulate_media(color_scheme=scheme)
            redrawn(opened.page)
            assert violations(opened.page, AXE, rules=rules) == [], scheme
        opened.keep(f"{name}-dark")


def test_text_with_too_little_contrast_is_found(tmp_path, open_page):
    pale = "<p style='background: #fff; color: #eee'>pale</p>"
    text = f"<!doctype html><html lang='en'><title>x</title><img src='data:,'>{pale}"
    (tmp_path / "page.html").write_text(text, "utf-8")
    with open_page(tmp_path / "page.html", bypass_csp=True) as opened:
        assert {"image-alt", "color-contrast"} <= set(dict(violations(opened.page, AXE)))
        assert "color-contrast" in dict(violations(opened.page, AXE, rules=COLOURS))
