"""report.html: whole, offline, and saying what report.json says."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from flowveil.published.html import render
from samples.releases import city_flows, release_of

VOID = {"meta", "link", "br", "hr", "img", "input", "rect", "circle", "line", "path"}


class Page(HTMLParser):
    """Collects the tags, checks that they nest, and keeps the text of table rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += text


@pytest.fixture(scope="module")
def report():
    return release_of(city_flows(), budget="volume").summary()


def test_it_is_one_page_that_needs_nothing_else(report):
    metadata = re.compile(r'<script type="application/ld\+json">(.*?)</script>', re.DOTALL)
    text = render(report)
    # Metadata for search engines are data: no browser runs them or follows their addresses.
    described = json.loads(metadata.findall(text)[0])
    assert described["@type"] == "Dataset"
    text = metadata.sub("", text)
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|url\(|@import|\bsrc=", text)
    # Links lead to places on the page and to files next to it.
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert all(re.fullmatch(r"#\w+|\w+\.\w+", link) for link in links)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_method_guarantee_and_statement_are_there_and_parameters_are_not(report):
    text = render(report)
    assert "odkanon" in text
    for line in report["published"]["sentences"]:
        if not line.startswith("Incomplete"):
            assert line.partition(":")[2].strip()[1:] in text
    rows = {row[0]: row[1:] for row in Page(text).rows}
    assert set(rows) == {f"within {radius}" for radius in ("500 m", "1 km", "2 km", "5 km")}
    assert (
        rows["within 1 km"][-1]
        == f"{100 * report['published']['both_ends_within_m']['1000']:.0f} %"
    )


def test_the_questions_of_a_reader_come_in_order(report):
    heads = re.findall(r"<h2[^>]*>([^<]+)</h2>", render(report))
    assert heads == [
        "What is this?",
        "How precise is it?",
        "What is missing?",
        "May I use it?",
        "Where are the data?",
        "For researchers",
    ]


def test_a_threshold_by_the_mean_weight_is_explained(report):
    hidden = {**report, "guarantee": {"k": 5, "protect": ["population"], "population": None}}
    release = release_of(city_flows(), budget="volume")
    text = render(hidden, release.flows, release.zones)
    assert "5 times the mean weight of a trip" in text
