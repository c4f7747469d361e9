"""The workbench in a real browser: the whole way with the mouse and with keys, and what goes wrong
on the way."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import time
import webbrowser
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from browser import pages
from conftest import trip_table
from flowveil.apps.cli import main
from samples.served import Served, serving, serving_here

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

AXE = Path(
    os.environ.get(
        "AXE_CORE", Path(__file__).resolve().parents[2] / "build" / "axe-core" / "axe.min.js"
    )
)
SECONDS = 90_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    csv.write_csv(trip_table(1000), folder / "trips.csv")
    # Every second trip at 06:30 UTC, the others at 07:30.
    started = pa.array([1_720_161_000 + 3600 * (n % 2) for n in range(1000)])
    csv.write_csv(trip_table(1000).append_column("started", started), folder / "timed.csv")
    cabs = pa.array([f"c{n % 90}" for n in range(1000)])
    unnamed = trip_table(1000).drop_columns(["person_id"])
    csv.write_csv(unnamed.append_column("cab_id", cabs), folder / "cabs.csv")
    outline = {"type": "Polygon", "coordinates": [[[2, 48], [3, 48], [3, 49], [2, 48]]]}
    feature = {"type": "Feature", "properties": {"code": "a"}, "geometry": outline}
    zones = {"type": "FeatureCollection", "features": [feature]}
    (folder / "zones.geojson").write_text(json.dumps(zones), "utf-8")
    (folder / "broken.csv").write_text(
        "start_lat,start_lon,end_lat,end_lon\n" + "north,1,2,3\n" * 20, "utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def served(folder, tmp_path_factory) -> Iterator[Served]:
    with serving_here(
        folder, tmp_path_factory.mktemp("tmp"), max_upload=10**6, demo_people=400
    ) as running:
        running.enter()
        yield running


@contextmanager
def opened(chromium, served, *, step: str = "", quiet: bool = True, **context):
    """A page of the workbench; it must contact no other host and log no error."""
    context.setdefault("viewport", {"width": 1366, "height": 900})
    around = chromium.new_context(**context)
    said: list[str] = []
    asked: list[str] = []
    try:
        page = around.new_page()
        page.set_default_timeout(SECONDS)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "response",
            lambda answer: (
                answer.status == 400
                and said.append((answer.request.post_data or "") + answer.text())
            ),
        )
        served.cookie_for(around)
        page.goto(served.root)
        page.wait_for_selector("html[data-ready=true]")
        if step:
            at_step(page, step)
        try:
            yield page
        except Exception as problem:
            # Where it waited in vain, what it saw instead.
            with suppress(Exception):
                problem.add_note(f"{page.url} {said}\n{page.locator('body').inner_text()[:2000]}")
            raise
        assert not quiet or not said, said
        own = (f"http://127.0.0.1:{served.port}/", "data:,", "blob:")
        assert [url for url in asked if not url.startswith(own)] == []
    finally:
        around.close()


def at_step(page, step: str) -> None:
    """Go to a step by its address, as the links of the page do."""
    page.evaluate("(step) => { location.hash = step }", step)
    page.wait_for_selector(f"section[data-step={step}]:not([hidden])")


def keep(page, name: str, *, full: bool = False) -> None:
    page.evaluate("scrollTo(0, 0)")
    pages.keep(page, f"workbench-{name}", full=full)


def fits(page) -> None:
    """Nothing is wider than the window."""
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= page.viewport_size["width"], (page.url, wide)


def accessible(page) -> None:
    """axe-core finds nothing, where it is there."""
    if AXE.is_file():
        assert pages.violations(page, AXE) == [], page.url


def drop(page, selector: str, file: Path) -> None:
    """Drag a file from the desktop over an element, and let it go there."""
    box = page.locator(selector).bounding_box()
    browser = page.context.new_cdp_session(page)
    for what in ("dragEnter", "dragOver", "drop"):
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        dragged = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        browser.send("Input.dispatchDragEvent", {"type": what, "data": dragged, **at})
        assert page.locator(".drop.over").count() == (
            what != "drop" and selector.startswith("#drop")
        )
    browser.detach()


def empty(served: Served) -> None:
    served.do("POST", "/api/empty", {})


def shown(page, of: str) -> None:
    """Wait for the page of a method, or of a method and its k.

    Not for one that was there before.
    """
    page.locator(f"#which[data-of^='{of}']", has_text="what would be published").wait_for()


def figures(page, at: str) -> dict[str, str]:
    """The figures that the page shows below an element."""
    names, values = (page.locator(f"{at} {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return {n: v.splitlines()[0] for n, v in zip(names, values, strict=True)}


def equal_to_folder(found: dict[str, str], report: dict[str, Any]) -> None:
    """Every number that was shown on the way is that of the folder."""
    published = report["published"]
    assert found["Cells published"] == f"{published['cells']:,}"
    zones = f"{published['origin_zones']:,} × {published['destination_zones']:,}"
    assert found["Zones"] == zones
    assert found["Smallest cell"] == f"{published['smallest_cell']:,}"


def test_the_whole_way_with_the_mouse(chromium, served, folder, tmp_path, monkeypatch):
    """From a CSV to a signed folder, by the hour, with a time zone."""
    empty(served)
    with opened(chromium, served, bypass_csp=True) as page:
        accessible(page)
        keep(page, "drop")
        assert "NOT FOR PUBLICATION" in page.locator("#mark").inner_text()
        # A file that misses its place does not replace the page.
        drop(page, "h1", folder / "timed.csv")
        assert page.locator("#name-trips").inner_text() == ""
        drop(page, "#drop-trips", folder / "timed.csv")
        # Where the trips lie is shown before anything is chosen.
        page.locator("#place", has_text="Around Paris, France").wait_for()
        box = page.locator("#densities canvas").first.bounding_box()
        to_scale(box["width"] / box["height"])
        assert page.locator("#densities canvas").count() == 2
        page.locator("#intake", has_text="1,000 rows were read").wait_for()
        page.wait_for_selector(
            "[data-choice=person] option[value=person_id]:checked", state="attached"
        )
        page.select_option("#time", "started")
        page.fill("[data-choice=timezone]", "Europe/Oslo")
        page.locator("[data-choice=timezone]").blur()
        page.locator(".hours", has_text="in Europe/Oslo").wait_for()
        page.select_option("#every", "hour")
        page.locator("#intake", has_text="published by time").wait_for()
        fits(page)
        accessible(page)
        keep(page, "columns")
        page.click("text=Next: decide")
        shown(page, "recommended 10")
        page.locator("#safety", has_text="in 10 trips are safe").wait_for()
        page.locator("[data-choice=resolution]").fill("7")
        shown(page, "recommended 10")
        slider = page.locator("#k").bounding_box()
        page.mouse.click(slider["x"] + 4, slider["y"] + slider["height"] / 2)
        k = page.locator("#k-value").inner_text()
        assert int(k) < 10
        shown(page, f"recommended {k}")
        # The real page, without any way to the workbench.
        draft = page.frame_locator("#draft")
        draft.locator("html[data-ready=true]").wait_for()
        page.locator("[data-point='layercut 5']").click()
        shown(page, "recommended 5")
        assert page.locator(".point.now").get_attribute("data-point") == "layercut 5"
        fits(page)
        accessible(page)
        keep(page, "decide", full=True)
        tried = figures(page, "#figures")
        on_page = draft.locator("body").inner_text()
        page.click("text=Sign off this one")
        page.fill("[data-choice=title]", "Trips of a test")
        page.click("#check")
        page.wait_for_selector(".ticks input")
        assert page.locator("#go").is_disabled()
        # A check stays valid when the formats change.
        page.check("[data-choice=formats][value=csv]")
        page.wait_for_selector(".ticks input")
        checked = figures(page, "#checked")
        page.fill("#signer", "Data protection office")
        assert page.locator("#sentence").inner_text().endswith("Signed by Data protection office.")
        # The last one is there where other tests have published these trips before.
        for tick in page.locator(".ticks input, #accept").all():
            tick.check()
        # Ticks and the name survive a reload.
        wait_for(lambda: served.do("GET", "/api/state")["signing"]["signer"])
        page.reload()
        page.wait_for_selector("#go:not([disabled])")
        assert page.input_value("#signer") == "Data protection office"
        accessible(page)
        keep(page, "sign", full=True)
        page.click("#go")
        page.locator(".release", has_text="Trips of a test").wait_for()
        assert page.locator("#mark").is_hidden()
        accessible(page)
        keep(page, "publish")
        sentence = page.locator(".release .sentence").first.inner_text()
        for link, name in (("Download as zip", "release.zip"), ("Recipe", "recipe.toml")):
            with page.expect_download() as waiting:
                page.locator(".release").first.get_by_role("link", name=link).click()
            waiting.value.save_as(tmp_path / name)
        page.locator(".release summary", has_text="For programmers").first.click()
        command = page.locator(".release pre").first.inner_text()
        with page.context.expect_page() as report:
            page.locator(".release").first.get_by_text("Open the report").click()
        report.value.wait_for_selector("html[data-ready=true]")
        assert "Trips of a test" in report.value.locator("body").inner_text()
    # One computation: what was tried is what was checked and published.
    assert tried.items() >= checked.items()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timed.csv").write_bytes((folder / "timed.csv").read_bytes())
    main([*shlex.split(command)[1:], "--quiet"])
    main(["verify", "release", "--against", "timed.csv", "--quiet"])
    report = json.loads(Path("release/report.json").read_text(encoding="utf-8"))
    equal_to_folder(tried, report)
    published = report["published"]
    assert f"{published['trips']:,} trips" in on_page
    assert (
        f"at least 5 people. It has {published['cells']:,} cells with {published['trips']:,} trips,"
        " by hour of the day in Europe/Oslo time, joined where cells would be too small."
    ) in sentence
    cells = pq.read_table("release/flows.parquet")
    assert (published["cells"], published["trips"]) == (len(cells), sum(cells["trips"].to_pylist()))
    assert report["statement"]["timezone"] == "Europe/Oslo"
    starts = {
        (one["time_from"], one["time_to"])
        for one in cells.select(["time_from", "time_to"]).to_pylist()
    }
    assert {("08:00", "09:00"), ("09:00", "10:00")} <= starts
    with zipfile.ZipFile("release.zip") as packed:
        found = {name.removeprefix("release/"): packed.read(name) for name in packed.namelist()}
    assert found == {path.name: path.read_bytes() for path in Path("release").iterdir()}
    assert "Europe/Oslo" in Path("recipe.toml").read_text("utf-8")


def wait_for(holds) -> None:
    until = time.monotonic() + SECONDS / 1000
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_framed_page_is_a_stranger_to_the_workbench(chromium, served):
    """It has an opaque origin: no cookie, no storage, and no request that is answered."""
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    with opened(chromium, served, step="decide", quiet=False) as page:
        shown(page, "recommended 10")
        page.frame_locator("#draft").locator("html[data-ready=true]").wait_for()
        frame = page.frame(url=re.compile("/drafts/"))
        assert frame.evaluate("self.origin") == "null"
        for private in ("document.cookie", "localStorage.length", "parent.document.title"):
            tried = f"(() => {{ try {{ return {private} }} catch {{ return 'refused' }} }})()"
            assert frame.evaluate(tried) == "refused"
        fetched = "fetch('/api/state').then(() => 'read', () => 'refused')"
        assert frame.evaluate(fetched) == "refused"


def to_scale(ratio: float) -> None:
    """The trips of the test spread over 0.08 by 0.12 degrees at 49 degrees north.

    Nearly a square of kilometres.
    """
    assert 0.6 < ratio < 1.7


def test_the_demonstration_is_one_click_away(chromium, served):
    empty(served)
    with opened(chromium, served) as page:
        page.click("#demo")
        page.locator("#intake", has_text="rows were read").wait_for()
        page.wait_for_selector(
            "[data-choice=weight] option[value=weight]:checked", state="attached"
        )
        page.wait_for_selector(".hours")
        keep(page, "columns-demo", full=True)
        # Nothing answers for the reader.
        at_step(page, "decide")
        shown(page, "recommended 10")
        page.frame_locator("#draft").locator("html[data-ready=true]").wait_for()
        keep(page, "demo")


def to(page, selector: str, text: str = "") -> None:
    """Go to an element with the tab key alone, to the first one that says so."""
    found = (
        "([s, text]) => document.activeElement.matches(s) &&"
        " document.activeElement.textContent.includes(text)"
    )
    for _ in range(120):
        if page.evaluate(found, [selector, text]):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the tab key does not reach {selector}")


def type_into(page, selector: str, text: str) -> None:
    to(page, selector)
    page.keyboard.type(text)


def test_the_whole_way_with_keys(chromium, served):
    """By the hour, with a time zone, from a CSV to a signed folder."""
    empty(served)
    with opened(chromium, served) as page:
        to(page, "#pick")
        page.keyboard.press("Enter")
        page.wait_for_selector("#entries button")
        to(page, "#entries button:has(span)", "timed.csv")
        page.keyboard.press("Enter")
        page.locator("#intake", has_text="rows were read").wait_for()
        assert page.evaluate("document.activeElement.id") == "h-columns"
        type_into(page, "#time", "started")
        page.locator(".hours", has_text="choose the time zone").wait_for()
        type_into(page, "[data-choice=timezone]", "Europe/Oslo")
        page.keyboard.press("Tab")
        page.locator(".hours", has_text="in Europe/Oslo").wait_for()
        type_into(page, "#every", "hour of the d")
        page.locator("#intake", has_text="published by time").wait_for()
        to(page, "a[href='#decide']:not([data-step])")
        page.keyboard.press("Enter")
        page.wait_for_selector("#h-decide:focus")
        shown(page, "recommended 10")
        to(page, "#k")
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
        assert page.locator("#k-value").inner_text() == "7"
        shown(page, "recommended 7")
        to(page, "#resolution")
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
        shown(page, "recommended 7")
        to(page, "#skip-draft")
        page.keyboard.press("Enter")
        page.locator("[data-point='layercut 5']").wait_for()
        to(page, "[data-point='layercut 5']")
        page.keyboard.press("Enter")
        shown(page, "recommended 5")
        tried = figures(page, "#figures")
        to(page, "a[href='#sign']:not([data-step])")
        page.keyboard.press("Enter")
        page.wait_for_selector("#h-sign:focus")
        to(page, "#check")
        page.keyboard.press("Enter")
        page.wait_for_selector(".ticks input")
        for _ in range(page.locator(".ticks input").count()):
            to(page, ".ticks input:not(:checked)")
            page.keyboard.press("Space")
        if page.locator("#accept").count():
            to(page, "#accept")
            page.keyboard.press("Space")
        type_into(page, "#signer", "Data protection office")
        to(page, "#go")
        page.keyboard.press("Enter")
        page.locator("#publishing", has_text="recounted from your file").wait_for()
    release = served.do("GET", "/api/state")["releases"][-1]
    packed = served.ask("GET", f"/releases/{release['id']}/release.zip")[2]
    with zipfile.ZipFile(io.BytesIO(packed)) as found:
        equal_to_folder(tried, json.loads(found.read("release/report.json")))


def test_on_a_phone_in_the_dark(chromium, served):
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    # Two releases: the controls of each have distinct names.
    while sum(release["own"] for release in served.do("GET", "/api/state")["releases"]) < 2:
        served.job("check")
        published = served.do(
            "POST",
            "/api/publish",
            {"read": True, "accepted": True, "signer": "Data protection office"},
        )
        assert served.ended(published["id"])["state"] == "done"
    phone = {
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
        "color_scheme": "dark",
    }
    with opened(chromium, served, bypass_csp=True, **phone) as page:
        for step in ("drop", "columns", "decide", "sign", "publish"):
            at_step(page, step)
            if step == "decide":
                page.wait_for_selector("html[data-drawn]")
                page.wait_for_selector(".point")
                # Labels of the axes can be read; a finger moves the chart.
                assert page.locator("#chart text").first.bounding_box()["height"] >= 10
                keep(page, "phone-dark", full=True)
            fits(page)
            accessible(page)


def test_a_broken_file_says_what_is_wrong(chromium, served, folder):
    empty(served)
    with opened(chromium, served, quiet=False) as page:
        page.set_input_files("#file-trips", folder / "broken.csv")
        page.wait_for_selector("#question-person.unanswered")
        page.select_option("[data-choice=person]", "")
        page.locator("#intake .notice", has_text="start_lat").wait_for()
        at_step(page, "decide")
        page.locator("#which.notice", has_text="start_lat").wait_for()
        page.set_input_files(
            "#file-trips", files=[{"name": "x.exe", "mimeType": "", "buffer": b"x"}]
        )
        refused = page.locator("#problem", has_text="not read here")
        refused.wait_for()
        # Automatic requests that succeed leave the message on the page.
        with page.expect_response(re.compile("/api/jobs$")) as answered:
            page.locator("#k").focus()
            page.keyboard.press("ArrowRight")
        assert answered.value.ok
        page.locator("#which.notice[data-of='']", has_text="start_lat").wait_for()
        assert refused.is_visible()
        large = {"name": "large.csv", "mimeType": "text/csv", "buffer": b"1" * 1_100_000}
        page.set_input_files("#file-trips", files=[large])
        page.locator("#problem", has_text="at most 1.0 MB are taken").wait_for()
        assert refused.count() == 0
        at_step(page, "drop")
        page.locator("#problem").wait_for(state="hidden")


def test_an_error_is_shown_at_its_field_in_the_page_s_words(chromium, served):
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    with opened(chromium, served, step="sign", quiet=False, bypass_csp=True) as page:
        page.fill("[data-choice=period]", "yesterday")
        page.locator("[data-choice=period]").blur()
        problem = page.locator("label:has([data-choice=period]) + .field-problem")
        problem.wait_for()
        assert problem.inner_text().startswith("‘Period’")
        assert "--" not in problem.inner_text()
        assert page.locator("[data-choice=period]").get_attribute("aria-invalid") == "true"
        assert page.locator("#problem").is_hidden()
        accessible(page)
        page.fill("[data-choice=period]", "2024-05-06")
        page.locator("[data-choice=period]").blur()
        problem.wait_for(state="detached")


def test_a_typed_time_zone_stays_and_a_wrong_one_is_refused_at_its_field(chromium, served):
    """In the page's own order: the column of the time, its zone, then the person and the hours."""
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "timed.csv"})
    with opened(chromium, served, step="columns", quiet=False) as page:
        page.locator("#intake", has_text="rows were read").wait_for()
        page.select_option("#time", "started")
        page.locator(".hours", has_text="choose the time zone").wait_for()
        zone = page.locator("[data-choice=timezone]")
        zone.fill("Europe/Olso")
        zone.blur()
        problem = page.locator("label:has([data-choice=timezone]) + .field-problem")
        problem.wait_for()
        assert problem.inner_text().startswith("‘Time zone")
        assert "Europe/Oslo" in problem.inner_text()
        assert "--" not in problem.inner_text()
        zone.fill("Europe/Oslo")
        zone.blur()
        page.locator(".hours", has_text="in Europe/Oslo").wait_for()
        problem.wait_for(state="detached")
        page.select_option("[data-choice=person]", "person_id")
        page.select_option("#every", "hour")
        page.locator("#intake", has_text="published by time").wait_for()
        assert zone.input_value() == "Europe/Oslo"
        assert served.do("GET", "/api/state")["choices"]["timezone"] == "Europe/Oslo"


def test_who_travelled_is_asked_and_vehicles_are_named(chromium, served):
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "cabs.csv"})
    with opened(chromium, served, step="columns", bypass_csp=True) as page:
        page.wait_for_selector("#question-person.unanswered")
        menu = page.locator("[data-choice=person]")
        assert menu.input_value() == "?"
        assert menu.locator("option:checked").inner_text() == "Please choose"
        assert menu.locator("optgroup[label^=Vehicles] option").all_inner_texts() == ["cab_id"]
        assert page.locator("#intake").inner_text() == ""
        accessible(page)
        # Nothing is computed before it is answered.
        at_step(page, "decide")
        page.locator("#which", has_text="Who travelled?").wait_for()
        assert not [job for job in served.do("GET", "/api/state")["jobs"] if job["kind"] == "run"]
        at_step(page, "columns")
        menu.select_option("cab_id")
        page.locator("#intake", has_text="rows were read").wait_for()
        page.wait_for_selector("#question-person:not(.unanswered)")
        at_step(page, "decide")
        page.locator("#safety", has_text="10 vehicles").wait_for()


def test_a_map_on_the_trips_is_offered_as_the_map(chromium, served, folder):
    empty(served)
    with opened(chromium, served) as page:
        page.set_input_files("#file-trips", folder / "zones.geojson")
        page.locator("#offer-map-text", has_text="zones.geojson holds outlines").wait_for()
        page.click("#use-as-map")
        page.locator("#name-zones", has_text="zones.geojson").wait_for()
        assert page.locator("#offer-map").is_hidden()
        assert "trips" not in served.do("GET", "/api/state")["files"]


def test_only_what_can_be_is_offered(chromium, served):
    """Noise needs other settings than k; options that a method lacks are not offered."""
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    with opened(chromium, served, step="columns", bypass_csp=True) as page:
        page.locator("#intake", has_text="rows were read").wait_for()
        at_step(page, "decide")
        shown(page, "recommended 10")
        # Persons are known, weights were not named.
        assert page.locator("[data-choice=protect][value=people]").is_visible()
        assert page.locator("[data-choice=protect][value=population]").is_hidden()
        for details in page.locator("section[data-step=decide] .knobs summary").all():
            details.click()
        page.select_option("#method", "paircut")
        page.locator("[data-choice=same_zones]").wait_for(state="hidden")
        page.select_option("#method", "topdown")
        assert (
            page.locator(".of-method[data-method=topdown] [data-option=epsilon]").input_value()
            == "1"
        )
        assert page.locator("[data-option=unsafe_seed_for_tests]").count() == 0
        for name, text in (("level", "7"), ("region", "841fb47ffffffff")):
            field = page.locator(f".of-method[data-method=topdown] [data-option={name}]")
            field.fill(text)
            field.blur()
        shown(page, "topdown")
        assert page.locator("#k").is_hidden()
        page.locator("#chart .noisy").wait_for(state="attached")
        accessible(page)
        keep(page, "noisy", full=True)
        at_step(page, "columns")
        assert page.locator("#slicing").is_hidden()


def test_no_flag_is_shown_on_any_step(chromium, served):
    empty(served)
    served.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    with opened(chromium, served) as page:
        for step in ("drop", "columns", "decide", "sign", "publish"):
            at_step(page, step)
            if step == "decide":
                shown(page, "recommended 10")
                for details in page.locator(".knobs summary").all():
                    details.click()
            page.wait_for_timeout(300)
            text = page.locator("main").inner_text()
            assert not re.search(r"--[a-z]|[a-z]_[a-z]+=", text), (step, text)


def all_at_rest(served: Served) -> set[int]:
    """Wait until all jobs are over and two processes, one for previews and one for the rest, wait
    for more of them."""
    until = time.monotonic() + SECONDS / 1000
    while time.monotonic() < until:
        over = all(
            job["state"] in ("done", "failed", "cancelled")
            for job in served.do("GET", "/api/state")["jobs"]
        )
        if over and len(found := served.workers()) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError(served.do("GET", "/api/state")["jobs"])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are found in /proc")
def test_cancel_reload_two_tabs_and_a_killed_server(chromium, folder, tmp_path):
    with serving(folder, tmp_path / "tmp") as running:
        running.enter()
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        with (
            opened(chromium, running, step="decide", quiet=False) as one,
            opened(chromium, running, step="decide", quiet=False) as two,
        ):
            # What one tab tries, both see.
            one.locator("#k").focus()
            one.keyboard.press("ArrowRight")
            for page in (one, two):
                page.locator("#k-value", has_text=re.compile("^11$")).wait_for()
                shown(page, "recommended 11")
            # A run that is cancelled leaves the page before; another tab and a reload in the middle
            # see that, too. No job ends before it is cancelled: their processes are halted, and can
            # still be ended.
            halted = all_at_rest(running)
            for pid in halted:
                os.kill(pid, signal.SIGSTOP)
            one.keyboard.press("ArrowRight")
            two.locator("#k-value", has_text=re.compile("^12$")).wait_for()
            two.reload()
            two.locator("#k-value", has_text=re.compile("^12$")).wait_for()
            two.locator("button[aria-label='Cancel: Release']").wait_for()
            one.locator("button[aria-label='Cancel: Release']").click()
            for page in (one, two):
                page.locator("#which", has_text="Cancelled.").wait_for()
            for pid in halted & running.workers():
                os.kill(pid, signal.SIGCONT)
            runs = [job for job in running.do("GET", "/api/state")["jobs"] if job["kind"] == "run"]
            assert runs[-1]["state"] == "cancelled"
            running.process.send_signal(signal.SIGKILL)
            one.locator("#problem", has_text="does not answer").wait_for()


def test_a_local_file_opens_the_workbench_once(chromium, folder, tmp_path, monkeypatch):
    """Browsers count a local file as another site: the cookie must be sent all the same."""
    opened_at: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened_at.append)
    with serving_here(folder, tmp_path / "tmp", open_browser=True):
        while not opened_at:
            time.sleep(0.01)
        first, second = chromium.new_context(), chromium.new_context()
        try:
            page = first.new_page()
            page.goto(opened_at[0])
            page.wait_for_selector("html[data-ready=true]")
            assert "token" not in page.url
            page.reload()
            page.wait_for_selector("html[data-ready=true]")
            other = second.new_page()
            other.goto(opened_at[0])
            other.get_by_text("was already used").wait_for()
            other.get_by_role("link", name="Open the workbench").click()
            other.get_by_text("printed in its terminal").wait_for()
        finally:
            first.close()
            second.close()
