"""One real Chromium for all pages, with the network cut; tests are skipped without Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

#: Kept as artefacts; git ignores the folder.
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
#: Painting whole pages is slow: only where the pictures are kept.
KEPT = bool(os.environ.get("CI") or os.environ.get("SCREENSHOTS"))

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium_path() -> str | None:
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium is installed (apt install chromium, or set CHROMIUM)")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        except playwright.Error as problem:
            pytest.skip(f"Chromium does not start here: {type(problem).__name__}")
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page that was opened, with everything it said and asked for."""

    page: object
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def keep(self, name: str, *, full: bool = True) -> None:
        keep(self.page, name, full=full)


def keep(page, name: str, *, full: bool = False) -> None:
    """A picture of a page, where pictures are kept."""
    if KEPT:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full)


#: The rules of axe-core that look at colours: all that can change between light and dark.
COLOURS = ("color-contrast", "link-in-text-block")


def violations(
    page, axe: Path, *, rules: Sequence[str] | None = None
) -> list[tuple[str, list[str]]]:
    """What axe-core finds on a page, by some of its rules or by all.

    What it does not mind stays in the browser: reading it here takes seconds.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.read_text(encoding="utf-8"))
    asked = {
        "resultTypes": ["violations"],
        **({"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}),
    }
    found = page.evaluate(
        "(asked) => axe.run(document, asked).then((found) => found.violations)", asked
    )
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


def redrawn(page) -> None:
    """Waits until the page shows the result: maps are drawn in the next frame."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " done(null))))"
    )


def until(page, holds: str) -> None:
    """Wait until an expression holds.

    The pages' policy lets no script be made of text, as wait_for_function does.
    """
    for _ in range(600):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never: {holds}")


@pytest.fixture
def open_page(chromium):
    """Open a file from disk, offline: by default the map of the cells.

    Afterwards the page must have said nothing and asked for nothing.
    """

    @contextmanager
    def opening(
        path: Path,
        *,
        phone: bool = False,
        offline: bool = True,
        fragment: str = "cells",
        **context,
    ) -> Iterator[Opened]:
        if phone:
            context |= {
                "viewport": {"width": 390, "height": 844},
                "has_touch": True,
                "is_mobile": True,
            }
        context.setdefault("viewport", {"width": 1366, "height": 768})
        around = chromium.new_context(offline=offline, **context)
        try:
            opened = Opened(around.new_page())
            opened.page.on(
                "console", lambda message: opened.said.append(f"{message.type}: {message.text}")
            )
            opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
            opened.page.on("request", lambda request: opened.asked.append(request.url))
            opened.page.goto(f"{path.resolve().as_uri()}#{fragment}")
            if opened.page.locator("#map-data").count():
                opened.page.wait_for_selector("html[data-ready=true]", timeout=30_000)
            opened.seconds = opened.page.evaluate("performance.now() / 1000")
            yield opened
            assert not opened.said, opened.said
            if offline:
                assert [url for url in opened.asked if not url.startswith("file:")] == []
        finally:
            around.close()

    return opening
