"""The documentation site builds strictly, its search works, and it fetches nothing.

Its notebooks run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Constants, and names of version 0.3 that are one-line aliases.
ALIASES = ("METHODS", "Zones", "__version__", "SlicedFlows", "read_slices", "anonymize_slices")
NEEDED = ("mkdocs", "material", "mkdocstrings", "nbclient", "ipykernel")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"the extra docs is not installed: {', '.join(MISSING)}"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it.

    A notebook that fails, or a broken link, fails the build.
    """
    folder, ipython = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("ipython")
    # What a kernel does first: see to it, for as long as it lives, that a comparison starts no
    # process for each method and that tables of a few hundred rows are counted by one thread, as in
    # all tests.
    startup = ipython / "profile_default" / "startup"
    startup.mkdir(parents=True)
    tests = [str(ROOT / "tests"), str(ROOT)]
    (startup / "here.py").write_text(
        f"import sys\nsys.path += {tests!r}\nfrom samples.processes import in_this_process\n"
        "in_this_process.kept = in_this_process()\nin_this_process.kept.__enter__()\n"
        "from functools import partial\nimport duckdb\n"
        "duckdb.connect = partial(duckdb.connect, config={'threads': 1})\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    around = {**os.environ, "IPYTHONDIR": str(ipython)}
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=around)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    return folder


class Fetched(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.addresses.append(given.get("src") or "")
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "edit"):
            self.addresses.append(given.get("href") or "")


def test_nothing_is_fetched_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        reader = Fetched()
        reader.feed(page.read_text(encoding="utf-8"))
        assert [a for a in reader.addresses if re.match(r"(https?:)?//", a)] == [], page.name


def test_search_knows_the_pages(site: Path):
    words = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    text = {entry["location"].split("#")[0]: "" for entry in words}
    for entry in words:
        text[entry["location"].split("#")[0]] += f"{entry['title']} {entry['text']}".casefold()
    assert "minimality" in text["audit/index.html"]
    assert "read_trips" in text["reference/python.html"]
    assert "--max-suppressed" in text["reference/command-line.html"]


def test_search_works_by_double_click(site: Path, chromium):
    page = chromium.new_page()
    try:
        page.goto((site / "index.html").as_uri())
        page.locator("input.md-search__input").click()
        # The index is read by then.
        page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for()
        page.keyboard.type("minimality")
        page.locator("a.md-search-result__link").first.wait_for()
        assert "inimality" in page.locator(".md-search-result__list").inner_text()
    finally:
        page.close()


def test_every_command_and_public_name_is_in_the_reference(site: Path):
    import flowveil
    from flowveil.apps.cli import cli

    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    names = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert [
        name for name in cli.list_commands(None) if f'id="flowveil-{name}"' not in commands
    ] == []
    listed = [name for name in flowveil.__all__ if name not in ALIASES]
    assert [
        name
        for name in listed
        if f"flowveil.{name}" not in names and f"flowveil.core.errors.{name}" not in names
    ] == []


def test_notebooks_show_what_they_made(site: Path):
    assert "at least 5 people" in (site / "notebooks" / "quickstart.html").read_text(
        encoding="utf-8"
    )
    assert list((site / "notebooks").glob("choosing-k-*.png"))


def test_notebooks_are_kept_without_output():
    for path in (ROOT / "examples").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [c for c in cells if c.get("outputs") or c.get("execution_count")] == [], path.name


def test_manual_pages():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from manual import pages
    finally:
        sys.path.pop(0)
    from flowveil.apps.cli import cli

    made = dict(pages(cli))
    assert "\\-\\-max\\-suppressed" in made["flowveil-anonymize.1"]
    assert {f"flowveil-{name}.1" for name in cli.list_commands(None)} < set(made)
