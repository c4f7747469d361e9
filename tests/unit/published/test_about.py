"""What a release is about: words of the publisher, in every file that readers open, and the
sentence at the top."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from flowveil import anonymize
from flowveil.core.errors import ParameterError
from flowveil.published.about import checked, period_in_words, title
from flowveil.published.report import typical_radius_m
from flowveil.published.sentences import sentence, sides
from samples.releases import city_flows, edit_report
from samples.verified import findings_of

ABOUT = {
    "title": "Trips <b>of</b> & in the city",
    "source": "Counts of 2024",
    "period": "2024-01-01/2024-03-31",
    "licence": "CC BY 4.0",
    "contact": "data@example.org",
}

PI = 3.141592653589793


@pytest.fixture(scope="module")
def release():
    return anonymize(city_flows(), k=5, protect="trips")


def test_it_stands_in_the_report_the_page_and_the_exports(release, tmp_path: Path) -> None:
    folder = release.write(tmp_path / "release", formats="geojson,gpkg,kepler", **ABOUT)
    report = json.loads((folder / "report.json").read_text())
    assert report["statement"]["about"] == ABOUT
    assert json.loads((folder / "manifest.json").read_text())["about"] == ABOUT
    page = (folder / "report.html").read_text()
    assert "Trips &lt;b&gt;of&lt;/b&gt; &amp; in the city ·" in page
    assert "1 January 2024 to 31 March 2024" in page
    for name in ("zones.geojson", "flows.geojson"):
        assert json.loads((folder / name).read_text())["metadata"] == ABOUT
    assert json.loads((folder / "kepler.json").read_text())["info"]["title"] == ABOUT["title"]
    with sqlite3.connect(folder / "release.gpkg") as base:
        said = {
            row[0]
            for row in base.execute("SELECT description FROM gpkg_contents WHERE srs_id = 4326")
        }
    assert said == {
        "Title: Trips <b>of</b> & in the city. Source: Counts of 2024. Period:"
        " 2024-01-01/2024-03-31. Licence: CC BY 4.0. Contact: data@example.org"
    }
    assert "--title" in report["published"]["command"]
    edit_report(folder, lambda report: report["statement"]["about"].update(source="Another office"))
    assert findings_of(folder, release.input)


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": "x" * 201},
        {"title": " "},
        {"source": "two\nlines"},
        {"contact": "right\u202eleft"},
        {"period": "January 2024"},
        {"period": "2024-03-31/2024-01-01"},
        {"period": "2024-02-30"},
        {"colour": "blue"},
    ],
)
def test_free_text_is_short_visible_and_of_one_line(wrong: dict[str, str]) -> None:
    with pytest.raises(ParameterError):
        checked(wrong)


def test_a_title_is_made_from_what_is_published(release) -> None:
    report = release.summary()
    m = report["published"]
    assert (
        title(report) == f"Trips between {m['origin_zones']:,} and {m['destination_zones']:,} areas"
    )
    assert title(report, "Paris, France") == "Trips in Paris, France"
    given = {**report, "statement": {**report["statement"], "about": {"title": "Commuters"}}}
    assert title(given, "Paris, France") == "Commuters"
    assert period_in_words("2024-05-01") == "1 May 2024"


def test_one_sentence_says_how_much_between_what_and_how_fine(release) -> None:
    report, flows, zones = release.summary(), release.flows, release.zones
    said = sentence(report)
    m = report["published"]
    assert said.startswith(
        f"{sum(flows['trips'].to_pylist()):,} trips between {m['origin_zones']} origins and "
        f"{m['destination_zones']} destinations; every number covers at least 5 trips; "
    )
    radius = typical_radius_m(flows, zones)
    ends = [
        (row[f"{end}_zone"], end, row["trips"])
        for row in flows.to_pylist()
        for end in ("origin", "destination")
    ]
    area = {
        (z["zone"], end): z["area_km2"]
        for z in zones.to_pylist()
        for end in ("origin", "destination")
    }
    smaller = sum(
        n for zone, end, n in ends if 1000 * (area[zone, end] / PI) ** 0.5 < radius * 0.999
    )
    assert smaller <= sum(n for _, _, n in ends) / 2
    within = [
        row
        for row in flows.to_pylist()
        if max(area[row[f"{e}_zone"], e] for e in ("origin", "destination")) <= PI
    ]
    share = sum(row["trips"] for row in within) / sum(flows["trips"].to_pylist())
    assert said.endswith(f"both ends are known within 1 km for {100 * share:.0f} % of the trips.")


def test_protected_and_not_protected_stand_side_by_side(release) -> None:
    protected, not_protected, rest = sides(release.summary()["published"]["sentences"])
    assert ("", "every published cell holds at least 5 trips.") in protected
    assert any(text.startswith("outside knowledge") for _, text in not_protected)
    assert not any(head.startswith("Not protected") for head, _ in rest)


def test_the_sum_of_noisy_counts_is_rounded_and_not_given_where_it_is_mostly_noise():
    published = {"origin_zones": 2, "destination_zones": 1, "cells": 2, "trips": 123_463}
    published["both_ends_within_m"] = {"1000": None}
    noise = {"epsilon": 1, "deviation": 70.7, "mechanism": "geometric"}
    report = {"kind": "noisy", "method": "laplace", "published": published, "guarantee": noise}
    said = sentence(report)
    assert said.startswith(
        "About 123,000 trips between 2 origins and 1 destination; every number has random noise"
    )
    said = sentence({**report, "published": {**published, "trips": 130}})
    assert said.startswith("Noisy counts of 2 pairs, whose sum is mostly noise, between 2 origins")
