"""Every relative link of the documents points to a file, and every anchor to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = (*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.md"))
DOCUMENTS = [*(ROOT / name for name in NAMES), *sorted(PAGES)]

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b[A-Z]+_HERE\b|\b(TODO|TBD|FIXME|XXX)\b")


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as the usual renderers make them.

    Lower case, no punctuation, blanks to hyphens.
    """
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", h.casefold()).replace(" ", "-")
        for h in _HEADING.findall(without_blocks)
    }


def broken_links(document: Path) -> list[str]:
    found = []
    for pair in _LINK.findall(_CODE.sub("", document.read_text(encoding="utf-8"))):
        link = pair[0] or pair[1]
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        known = (
            anchors(target.read_text(encoding="utf-8"))
            if target.suffix == ".md" and target.exists()
            else set()
        )
        if not target.exists() or (anchor and anchor not in known):
            found.append(link)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_placeholders(document: Path):
    assert broken_links(document) == []
    assert _PLACEHOLDER.findall(document.read_text(encoding="utf-8")) == []


def test_every_test_that_a_page_names_is_there():
    named = {
        (page.name, path)
        for page in DOCUMENTS
        for path in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["architecture.md", "data-model.md"])
def test_every_module_that_a_developer_is_sent_to_is_there(page: str):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*\.py)`", text))
    assert named
    folders = (ROOT, ROOT / "src" / "flowveil")
    assert [path for path in named if not any((top / path).exists() for top in folders)] == []


def test_the_first_sentence_of_a_page_says_for_whom_it_is():
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts]
    starts = {
        p: p.read_text(encoding="utf-8").partition("\n")[2].strip().lstrip("*") for p in pages
    }
    assert [page.name for page, start in starts.items() if not start.startswith("For ")] == []


def test_a_broken_link_is_found(tmp_path: Path):
    (tmp_path / "b.md").write_text("# Two words, *really*\n", encoding="utf-8")
    page = tmp_path / "a.md"
    page.write_text(
        "[x](b.md) [x](b.md#two-words-really) [x](b.md#three) [x](c.md) [x](#here) "
        "[x](https://example.org) `[x](d.md)`\n",
        encoding="utf-8",
    )
    assert broken_links(page) == ["b.md#three", "c.md", "#here"]
