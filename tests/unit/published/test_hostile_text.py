"""No text from outside becomes markup: pages and pictures have the same elements whatever names
are."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import flowveil
from flowveil.analysis.audit import Audit, AuditOfOne, audit_files
from flowveil.analysis.comparison import Comparison, Frontier
from flowveil.analysis.experiment import MeasuredRun
from flowveil.analysis.pages.before_after import Profile, profile_chart
from flowveil.analysis.pages.trade_offs import joint_part
from flowveil.analysis.tables import Sheet, html_part
from flowveil.published.charts import Bars, Mark, bar_chart, box_chart, curve_chart
from flowveil.published.document import frame, page
from flowveil.published.html import render, render_series
from flowveil.published.pictures import draw
from flowveil.verify.audit.subtraction import Group, ReleaseGroups
from flowveil.verify.verification import Verification, certificate, certificate_text
from samples.releases import city_flows, release_of

PLAIN = "plain"
HOSTILE = (
    "<img src=x onerror=alert(1)>\"' onload='x'"
    " </script></style></title></svg><script>alert(2)</script><!-- ]]> &lt;b&gt; {{ 7 * 7 }} {% raw"
    " %} $\\frac$ \u2028\u2029\u202e\u200f"
)


class Skeleton(HTMLParser):
    """The elements of a document with the names of their attributes, its comments, and all that it
    says."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, ...]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, *sorted(name for name, _ in attrs)))
        self.said += [value or "" for _, value in attrs]

    def handle_endtag(self, tag):
        self.elements.append(("end", tag))

    def handle_comment(self, data):
        self.elements.append(("comment", data))

    def handle_data(self, data):
        self.said.append(data)


@cache
def published():
    release = release_of(city_flows(), budget="volume")
    return release.summary(), release.flows, release.zones


def named(text: str):
    """Report and tables of a release in two slices whose zones, columns, values, parameters and
    words are this text."""
    report, flows, zones = published()

    def renamed(table: pa.Table, name: str) -> pa.Table:
        codes = pa.array([f"{text}{code}" for code in table[name].to_pylist()])
        return table.set_column(table.column_names.index(name), name, codes)

    flows = renamed(renamed(flows, "origin_zone"), "destination_zone").append_column(
        text, pa.array([text] * len(flows))
    )
    figures = {
        "cells": 3,
        "trips": 9,
        "smallest_cell": 5,
        "origin_zones": 1,
        "destination_zones": 1,
    }
    slices = [{"slice": {text: value}, **figures} for value in (text, None)]
    said = [
        *report["published"]["sentences"],
        text,
        f"Not protected: people {text}",
        f"Protected: {text}",
    ]
    report = {
        **report,
        "method": text,
        "parameters": {
            **report["parameters"],
            text: [text, {text: text}],
            "slices": {"by": [text]},
        },
        "statement": {**report["statement"], "slice_columns": [text]},
        "published": {**report["published"], "command": text, "sentences": said, "slices": slices},
    }
    return report, flows, renamed(zones, "zone")


def report_page(text: str) -> Iterator[str]:
    yield render(*named(text))


def notebook(text: str) -> Iterator[str]:
    page = render(*named(text), compact=True)
    framed = Skeleton(frame(page))
    assert framed.elements == [("iframe", "sandbox", "srcdoc", "style", "title"), ("end", "iframe")]
    yield next(said for said in framed.said if said == page)


def comparison(text: str) -> Iterator[str]:
    _, flows, zones = named(text)
    measures = {"suppressed_share": 0.1, "mean_generalization_error": 9.0}
    done = {"status": "done", "seconds": 1.0, "by_basis": {"trips": measures}}
    runs = [
        MeasuredRun(text, 5, (text,), **done, flows=flows, zones=zones),
        MeasuredRun(text, 9, (text,), "failed", reason=text),
    ]
    yield Comparison(
        tuple(runs), 9.0, 0.1, (Frontier(5, (text,), ((0.0, 9.0), (0.1, 4.0))),)
    ).to_html()


def charts(text: str) -> Iterator[str]:
    yield str(box_chart({text: (0.5, 0.8, 1.0, 1.5, 2.0)}, title=text, reference=text))
    yield str(bar_chart(Bars((text,), (3,), 1, text), title=text, label=text))
    curve = [(0.0, 9.0), (0.1, 4.0)]
    marks = [Mark(text, 0.1, 5.0)]
    yield str(curve_chart(curve, marks=marks, limit=0.1, limit_text=text, title=text, x_label=text))
    profile = profile_chart([Profile(text, text, (text, text), np.ones(2), np.ones(2))])
    ElementTree.fromstring(profile)
    yield profile


def study(text: str) -> Iterator[str]:
    parts = [
        joint_part({text: [Mark(text, 0.1, 5.0, 0)]}, max_suppressed=0.1),
        html_part(
            "tables",
            "Tables",
            [Sheet((text, text), ((text, 1.0),), text, label=text)],
            notes=[text],
        ),
    ]
    yield page(title="Study", heading="Study", lead=text, parts=parts, internal=text)


def series(text: str) -> Iterator[str]:
    _, flows, zones = named(text)
    steps = [{"step": text, "revisions": 0, "trips": 9, "cells": 3}]
    index = {"every": text, "steps": steps}
    yield render_series(index, {text: (flows, zones)})


def audit(text: str) -> Iterator[str]:
    groups = ReleaseGroups(
        (Group((0, 1), text, text, text, 1, 2, True, unit=text),), 1, 1, (((0, 1), text),)
    )
    found = Audit(groups, (AuditOfOne(text, None), AuditOfOne(text, None)))
    yield audit_files(found, show_cells=True)["audit.html"]


def certified(text: str) -> Iterator[str]:
    report = dict(published()[0])
    report["parameters"] = {**report["parameters"], "columns": {text: text}}
    found = Verification((text,), (text,), sha256={text: text}, report=report)
    content = certificate(found, expected={text: text}, source=None, date=text)
    yield certificate_text(content, "certificate.html")


def picture(text: str, folder: Path) -> Iterator[str]:
    _, flows, zones = named(text)
    path = draw(flows, zones, folder / "map.svg", title=text)
    ElementTree.parse(path)
    yield path.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(
    "page", [report_page, notebook, comparison, study, series, audit, certified, charts, picture]
)
def test_a_name_adds_no_element_attribute_or_comment(page, tmp_path):
    given = (tmp_path,) if page is picture else ()
    for plain, hostile in zip(page(PLAIN, *given), page(HOSTILE, *given), strict=True):
        expected, found = Skeleton(plain), Skeleton(hostile)
        assert found.elements == expected.elements
        maps = [said for said in found.said if said.startswith('{"bases"')]
        for data in maps:
            assert not set(data) & set("<>&\u2028\u2029")
            assert json.loads(data)["zones"]["code"][0].startswith(HOSTILE)
        assert maps or any(HOSTILE in said for said in found.said)


def test_no_markup_is_written_in_python():
    source = Path(flowveil.__file__).parent
    pages = [file for file in source.rglob("page/**/*") if file.is_file()]
    tags = {
        tag for file in pages for tag in re.findall(r"<([a-z]\w*)[ >]", file.read_text("utf-8"))
    }
    assert {"div", "svg", "iframe"} <= tags
    markup = re.compile(rf"</?({'|'.join(tags)})(>|/|\s)")
    # A text that holds a tag needs a sign that begins one, or is put together from one and the rest
    # of it: where there is neither, the file need not be parsed.
    begun = re.compile(r"""<[\w/"'{]|\\x3c|\\u003c|\\U0000003c|\\N|\\0?74""", re.I)
    # The verification looks for the head of a page that another version wrote.
    for file in sorted(set(source.rglob("*.py"))):
        text = file.read_text(encoding="utf-8")
        if not begun.search(text):
            continue
        tree = ast.parse(text)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
            ):
                assert not markup.search(node.value), (
                    f"{file.name}, line {node.lineno}: use a template"
                )


def test_scripts_write_text_and_never_markup():
    """The workbench's one page has no text from outside.

    Its scripts, like those of all pages, bring it as text.
    """
    source = Path(flowveil.__file__).parent
    scripts = [file for kind in ("*.mjs", "*.js", "*.html") for file in source.rglob(kind)]
    assert {"apps", "published"} <= {file.relative_to(source).parts[0] for file in scripts}
    written = re.compile(
        r"(inner|outer)HTML|insertAdjacentHTML|document\.write|createContextualFragment|\beval\(|\|\s*safe\b"
    )
    found = [file.name for file in scripts if written.search(file.read_text("utf-8"))]
    assert not found, f"{found}: bring texts as text, not as markup"
    assert any(
        "autoescape=True" in file.read_text("utf-8") for file in (source / "apps").rglob("*.py")
    )
