"""Every number of the answer panel is what DuckDB finds in the published tables, for releases of
several kinds, questions of each form, and windows of three sizes."""

from __future__ import annotations

import base64
import json
import math
import re
from urllib.parse import parse_qs, quote

import duckdb
import h3
import numpy as np
import pyarrow as pa
import pytest

from browser.pages import redrawn
from conftest import trip_table
from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from samples.drafts import unchecked
from samples.hourly import hourly_trips

WINDOWS = [(1366, 768), (820, 1100), (390, 844)]
KINDS = ["layered", "weighted", "homogeneous", "nested", "hourly", "intervals"]


@pytest.fixture(scope="module", autouse=True)
def without_recounts():
    with unchecked():
        yield


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    """A release of each kind, in its folder."""
    trips = trip_table(4000)
    plain = trips.drop_columns(["weight"])
    if request.param == "hourly":
        slices = read_slices(hourly_trips(), every="8h", time="start", resolution=8)
        release = anonymize_slices(slices, k=5)
    elif request.param == "intervals":
        release = anonymize(
            read_trips(hourly_trips(), every="hour", time="start", resolution=8).folded(), k=5
        )
    elif request.param == "weighted":
        release = anonymize(read_trips(trips, resolution=9, weight="weight"), k=10, protect="trips")
    else:
        method = {"layered": "layercut", "homogeneous": "twincut", "nested": "paircut"}
        flows = read_trips(plain, resolution=9, person="person_id")
        release = anonymize(flows, method[request.param], k=10)
    return release.write(tmp_path_factory.mktemp(request.param) / "out")


class Tables:
    """The published tables, and the places of the page's areas."""

    def __init__(self, folder, data) -> None:
        answer = data["answer"]
        self.basis, self.level = answer["basis"], answer["level"]
        place = np.frombuffer(
            base64.b64decode(answer["areas"]["place"]["bytes"]),
            dtype=f"<{answer['areas']['place']['type']}",
        )
        self.area_place = dict(
            zip(answer["areas"]["code"], [answer["places"]["name"][i] for i in place], strict=True)
        )
        self.sql = duckdb.connect()
        for name in ("estimate", "flows", "zones"):
            self.sql.execute(f"create table {name} as from '{folder}/{name}.parquet'")
        self.timed = "time" in self.columns("estimate")
        self.zones = dict(self.sql.sql("select zone, h3_cells from zones").fetchall())

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self.sql.execute(f"describe {table}").fetchall()]

    def areas(self, *places: str) -> set[str]:
        return {area for area, place in self.area_place.items() if place in places}

    def relation(self, zone: str, areas: set[str] | None) -> int:
        """Whether a zone touches a set of areas (1), or is completely in it (2)."""
        if areas is None:
            return 2
        inside, touches = True, False
        for cell in self.zones[zone]:
            if h3.get_resolution(cell) >= self.level:
                parts = {h3.cell_to_parent(cell, self.level)}
            else:
                parts = set(h3.cell_to_children(cell, self.level))
            inside &= parts <= areas
            touches |= bool(parts & areas)
        return 2 * inside or 1 * touches

    def answer(self, origins, destinations, hour=None) -> tuple[float, float, float]:
        """The estimate and its range between two sets of areas; None is everything."""
        pairs = []
        for name, codes in (("origin", origins), ("destination", destinations)):
            pairs.append("true" if codes is None else f"{name} in ({', '.join(map(repr, codes))})")
        if hour is not None:
            pairs.append(f"time = '{hour}'")
        where = " and ".join(pairs)
        trips = self.sql.sql(f"select sum({self.basis}) from estimate where {where}").fetchall()
        flags = [(z, self.relation(z, origins), self.relation(z, destinations)) for z in self.zones]
        columns = dict(zip(("zone", "o", "d"), map(list, zip(*flags, strict=True)), strict=True))
        self.sql.register("flags", pa.table(columns))
        when, narrow = "", "true"
        if hour is not None and "time_from" in self.columns("flows"):
            when = f"and time_from <= '{hour}' and '{hour}' < time_to"
            narrow = "left(time_to, 2)::int - left(time_from, 2)::int = 1"
        elif hour is not None:
            when = f"and time = '{hour}'"
        bounds = self.sql.sql(
            f"select sum({self.basis}) filter (a.o = 2 and b.d = 2 and {narrow}),"
            f" sum({self.basis}) from flows"
            " join flags a on a.zone = origin_zone join flags b on b.zone = destination_zone"
            f" where a.o > 0 and b.d > 0 {when}"
        ).fetchall()
        return tuple(float(value or 0) for value in (trips[0][0], *bounds[0]))


def to_three(value: float, up=lambda v: math.floor(v + 0.5)) -> int:
    """Three digits."""
    if value <= 0:
        return 0
    step = 10 ** max(0, math.floor(math.log10(value)) - 2)
    return up(round(value / step, 6)) * step


def check_headline(text: str, tables: Tables) -> None:
    """Compares the share of the finding with the estimate: "in five" is 20 %, within 6 %."""
    place = next(
        name
        for name in sorted(set(tables.area_place.values()), key=len, reverse=True)
        if text.endswith(f" {name}")
    )
    own = tables.areas(place)
    touching = (
        tables.answer(own, None)[0] + tables.answer(None, own)[0] - tables.answer(own, own)[0]
    )
    share = touching / tables.answer(None, None)[0]
    words = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    one_in = re.match(r"One trip in (\w+) ", text)
    if one_in:
        assert share * (words.index(one_in[1]) + 2) == pytest.approx(1, abs=0.06)
    else:
        assert text.startswith(f"{100 * share:.0f}%")


def check_share(figures, trips: float, total: float) -> None:
    """Compares the share that a reader sees with that of the tables."""
    words = figures.locator("small").inner_text().split(" · ")[0]
    assert words == f"{math.floor(100 * trips / total + 0.5)}%"


def shown(figures) -> tuple[int, int, int]:
    """The number and the range that a reader sees."""
    number = figures.locator("strong").inner_text()
    low, high = figures.locator("small").inner_text().split(" · ")[-1].split("–")
    return tuple(int(re.sub(r"\D", "", text)) for text in (number, low, high))


def check(figures, expected: tuple[float, float, float]) -> None:
    """Compares shown and exact numbers with those of the tables."""
    held = [float(figures.get_attribute(f"data-{name}")) for name in ("trips", "low", "high")]
    assert held == pytest.approx(expected, abs=0.02, rel=1e-9)
    trips, low, high = held
    assert shown(figures) == (
        to_three(trips),
        to_three(low, math.floor),
        to_three(high, math.ceil),
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_every_number_is_that_of_the_tables(folder, open_page, window):
    size = {"width": window[0], "height": window[1]}
    with open_page(folder / "report.html", fragment="", viewport=size) as opened:
        page = opened.page
        tables = Tables(folder, json.loads(page.locator("#map-data").text_content()))
        panel = page.locator("aside.answer")
        places = sorted(set(tables.area_place.values()), key=lambda name: (len(name), name))
        times = (
            [row[0] for row in tables.sql.sql("select distinct time from estimate").fetchall()]
            if tables.timed
            else []
        )
        check(panel.locator(".figure"), tables.answer(None, None))
        check_headline(page.locator("h1").inner_text(), tables)
        for bar in panel.locator("ol.bars li").all():
            origin, destination = bar.locator("button").inner_text().split(" → ")
            check(
                bar.locator(".number"),
                tables.answer(tables.areas(origin), tables.areas(destination)),
            )
        compared = 0
        for place in places[:2]:
            for way in ("from", "to"):
                for hour in [None, *sorted(times)[:1]]:
                    when = "" if hour is None else f"&hour={quote(hour)}"
                    page.evaluate(f"location.hash = '{way}={quote(place)}{when}'")
                    redrawn(page)
                    own = tables.areas(place)
                    sets = (own, None) if way == "from" else (None, own)
                    whole = tables.answer(*sets, hour)
                    check(panel.locator(".figure"), whole)
                    for label, bar in zip(
                        sorted(times), panel.locator(".hours button").all(), strict=True
                    ):
                        trips = tables.answer(*sets, label)[0]
                        words = bar.get_attribute("aria-label").removeprefix(f"{label}: ")
                        assert int(words.replace(",", "")) == to_three(trips)
                    names = []
                    for bar in panel.locator("ol.bars li").all():
                        label = bar.locator("button").inner_text().removeprefix("within ")
                        names.append(label)
                        other = tables.areas(label)
                        pair = (own, other) if way == "from" else (other, own)
                        answer = tables.answer(*pair, hour)
                        check(bar.locator(".number"), answer)
                        check_share(bar.locator(".number"), answer[0], whole[0])
                        compared += 1
                    assert len(names) == len(set(names))
        assert compared
        first, second = places[0], places[-1]
        page.evaluate(f"location.hash = 'from={quote(first)}&to={quote(second)}'")
        redrawn(page)
        sets = [tables.areas(first), tables.areas(second)]
        there, back = panel.locator(".figure").all()
        check(there, tables.answer(*sets))
        check(back, tables.answer(*sets[::-1]))
        share = 100 * tables.answer(*sets)[0] / tables.answer(sets[0], None)[0]
        assert panel.locator("p.soft").first.inner_text().startswith(f"{share + 1e-9:.0f}%")


def test_the_sentence_clicks_and_the_link_are_one_state(tmp_path, open_page):
    release = anonymize(read_trips(trip_table(4000), resolution=9, person="person_id"), k=10)
    folder = release.write(tmp_path / "out")
    with open_page(folder / "report.html", fragment="") as opened:
        page = opened.page
        figure = page.locator("aside.answer .figure strong").first
        page.get_by_role("combobox", name="Find a place").fill("par")
        page.keyboard.press("Enter")
        chosen = page.locator("button.chip").first.inner_text().removesuffix(" ×")
        assert f"from={quote(chosen)}" in page.url.replace("+", "%20")
        typed = figure.inner_text()
        page.get_by_label("Direction").select_option("to")
        assert page.url.partition("#")[2].startswith("to=")
        page.get_by_label("Direction").select_option("from")
        assert figure.inner_text() == typed
        canvas = page.locator(".stage > canvas")
        canvas.focus()
        page.keyboard.press("Escape")
        assert page.url.partition("#")[2] == ""
        # The place in the middle of the map, by the keyboard and by a click; not near a border.
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        by_key = page.url
        assert "from=" in by_key
        page.keyboard.press("Escape")
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
        assert page.url == by_key
        page.get_by_role("button", name="Show the cells behind this answer").click()
        cells = page.locator(".cells .stage > canvas")
        cells.wait_for()
        assert "flows" in cells.get_attribute("data-shown")
        page.get_by_role("button", name="Back to the answer").click()
        page.locator("aside.answer").wait_for()
        assert page.url == by_key


def test_several_areas_are_chosen_by_touch_and_their_range_is_that_of_the_union(
    tmp_path, open_page
):
    release = anonymize(read_trips(trip_table(4000), resolution=9, person="person_id"), k=10)
    folder = release.write(tmp_path / "out")
    with open_page(folder / "report.html", fragment="", phone=True) as opened:
        page = opened.page
        tables = Tables(folder, json.loads(page.locator("#map-data").text_content()))
        canvas = page.locator(".stage > canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        page.get_by_role("button", name="Draw an area").tap()
        corners = [(0.35, 0.35), (0.65, 0.35), (0.65, 0.6), (0.35, 0.6)]
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
        session = page.context.new_cdp_session(page)
        for kind, places in (
            ("touchStart", points[:1]),
            *(("touchMove", [point]) for point in points[1:]),
            ("touchEnd", []),
        ):
            touches = [{"x": x, "y": y} for x, y in places]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
        redrawn(page)
        drawn = set(parse_qs(page.url.partition("#")[2])["from"])
        assert page.get_by_role("button", name="Draw an area").get_attribute("aria-pressed") == (
            "false"
        )
        areas = {area for area in tables.area_place if area in drawn} | tables.areas(*drawn)
        assert len(areas) > 1
        check(page.locator("aside.answer .figure"), tables.answer(areas, None))


@pytest.mark.real
def test_true_counts_are_within_the_ranges(shared_data, tmp_path, open_page):
    """Santiago: questions of readers, and the share of the trips that the areas misplace."""
    flows = read_trips(
        str(shared_data / "santiago_taxi" / "trips.parquet"),
        origin="o_lat,o_lon",
        destination="d_lat,d_lon",
        person="",
        resolution=10,
    )
    folder = anonymize(flows, k=10).write(tmp_path / "out")
    with open_page(folder / "report.html", fragment="") as opened:
        page = opened.page
        tables = Tables(folder, json.loads(page.locator("#map-data").text_content()))
        origin, destination = (
            [h3.cell_to_parent(code, tables.level) for code in tree.code_text(tree.leaf_node)]
            for tree in (flows.origins, flows.destinations)
        )
        true: dict[tuple[str, str], int] = {}
        for o, d, n in zip(flows.origin, flows.destination, flows.trips, strict=True):
            pair = origin[o], destination[d]
            true[pair] = true.get(pair, 0) + int(n)
        airport, town, centre = "Santiago Airport (SCL)", "Providencia", "Santiago"
        for fragment, start, stop in (
            (f"from={quote(airport)}", {airport}, None),
            (f"to={quote(airport)}", None, {airport}),
            (f"from={town}&to={centre}", {town}, {centre}),
            (f"from={quote(airport)}&to={town}", {airport}, {town}),
            (f"from={town}&from={centre}&to={quote(airport)}", {town, centre}, {airport}),
        ):
            page.evaluate(f"location.hash = '{fragment}'")
            redrawn(page)
            figure = page.locator("aside.answer .figure").first
            trips, low, high = (
                float(figure.get_attribute(f"data-{name}")) for name in ("trips", "low", "high")
            )
            count = sum(
                n
                for (o, d), n in true.items()
                if (start is None or tables.area_place.get(o) in start)
                and (stop is None or tables.area_place.get(d) in stop)
            )
            assert low <= count <= high, fragment
            assert trips == pytest.approx(count, rel=0.01)
        rows = tables.sql.sql("select origin, destination, trips from estimate").fetchall()
        shown = {(o, d): n for o, d, n in rows}
        misplaced = sum(abs(true.get(p, 0) - shown.get(p, 0)) for p in {*true, *shown})
        assert misplaced / 2 < 0.06 * sum(true.values())
