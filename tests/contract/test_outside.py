"""Trips across the border of a study area, kept with `outside` as one zone.

Every method and every command.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import cycle
from pathlib import Path

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import shapely
from pyarrow import csv

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.methods import METHODS
from samples.drafts import unchecked
from samples.processes import in_this_process
from samples.verified import findings_of

BOX = (2.27, 48.80, 2.43, 48.92)
AREA = ",".join(map(str, BOX))
SIDE = 0.03
FORMATS = "csv,geojson,gpkg,omx,flowmap,kepler,arrow"
ON_TREES = [
    name
    for name, method in METHODS.items()
    if method.hierarchy is not None and method.counts == "exact"
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    n = 600
    ends = [rng.normal((48.86, 2.35), (0.05, 0.07), size=(n, 2)) for _ in range(2)]
    clock = zip(rng.integers(4, 9, n).tolist(), rng.integers(7, 10, n).tolist(), strict=True)
    return pa.table(
        {
            **{f"start_{a}": ends[0][:, i] for i, a in enumerate(("lat", "lon"))},
            **{f"end_{a}": ends[1][:, i] for i, a in enumerate(("lat", "lon"))},
            "person_id": [f"p{p}" for p in rng.integers(0, 300, n).tolist()],
            "weight": np.round(1 + 9 * rng.random(n), 3),
            "sex": rng.choice(["f", "m"], n),
            "t": [f"2024-03-{day:02d}T{hour:02d}:15:00" for day, hour in clock],
        }
    )


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory) -> Path:
    """The trips, and two maps of square zones with names: one without parents, one with a root."""
    place = tmp_path_factory.mktemp("outside")
    csv.write_csv(table, place / "t.csv")
    for name, extra in (("map", {}), ("nested", {"town": "town"})):
        features = []
        for i, j in np.ndindex(8, 6):
            x, y = 2.23 + SIDE * i, 48.77 + SIDE * j
            said = {
                "code": f"z{i}{j}",
                "label": f"Place {i}{j}",
                **({"sector": f"s{i // 3}{j // 3}"} if extra else {}),
            }
            shape = shapely.geometry.mapping(shapely.box(x, y, x + SIDE, y + SIDE))
            features.append({"type": "Feature", "properties": said | extra, "geometry": shape})
        (place / f"{name}.geojson").write_text(
            json.dumps({"type": "FeatureCollection", "features": features}), "utf-8"
        )
    return place


def read(table, folder, kind: str, **more):
    """The trips on H3, on a map whose tree is made of places, or on one with sectors and a root."""
    if kind == "h3":
        return flowveil.read_trips(
            table, resolution=7, within=AREA, outside="keep", weight="weight", **more
        )
    columns = {"map": {}, "nested": {"levels": "town,sector,code"}}[kind]
    zones = flowveil.read_zones(folder / f"{kind}.geojson", tile="code", name="label", **columns)
    # The map covers a part of the ends: points in no zone are outside, with an area and without.
    within = AREA if kind == "map" else None
    return flowveil.read_trips(
        table, zones=zones, within=within, outside="keep", weight="weight", **more
    )


@pytest.mark.parametrize("kind", ["h3", "map", "nested"])
def test_flows_are_those_of_a_slow_reading(kind, table, folder):
    flows = read(table, folder, kind)
    expected: Counter[tuple[str, str]] = Counter()
    both_outside = 0
    for row in table.to_pylist():
        ends = [_tile(kind, row[f"{end}_lat"], row[f"{end}_lon"]) for end in ("start", "end")]
        both_outside += ends == ["outside", "outside"]
        expected[ends[0], ends[1]] += ends != ["outside", "outside"]
    codes = [t.code_text(t.leaf_node) for t in (flows.origins, flows.destinations)]
    pairs = zip(codes[0][flows.origin].tolist(), codes[1][flows.destination].tolist(), strict=True)
    assert dict(zip(pairs, flows.trips.tolist(), strict=True)) == {
        pair: n for pair, n in expected.items() if n
    }
    assert flows.intake.left_out == {"outside the area": both_outside}
    assert both_outside > 0
    assert {o == "outside" for o, _ in expected} == {True, False}


def _tile(kind: str, lat: float, lon: float) -> str:
    west, south, east, north = BOX
    if kind == "h3":
        cell = h3_int.latlng_to_cell(lat, lon, 7)
        y, x = h3_int.cell_to_latlng(cell)
        return f"{cell:x}" if west <= x <= east and south <= y <= north else "outside"
    i, j = int((lon - 2.23) // SIDE), int((lat - 48.77) // SIDE)
    x, y = 2.23 + SIDE * (i + 0.5), 48.77 + SIDE * (j + 0.5)
    on_map = 0 <= i < 8 and 0 <= j < 6
    if kind == "map":
        on_map = on_map and west <= x <= east and south <= y <= north
    return f"z{i}{j}" if on_map else "outside"


@pytest.fixture(scope="module")
def flows_on(table, folder):
    """The trips on a kind of map, read once."""
    return cache(lambda kind: read(table, folder, kind))


#: Every method on one of the maps, and the first of them on all.
KINDS = ("h3", "map", "nested")
PLACED = [(ON_TREES[0], kind) for kind in KINDS] + list(zip(ON_TREES[1:], cycle(KINDS)))


@pytest.mark.parametrize(("method", "kind"), PLACED)
def test_every_method_on_a_tree_publishes_and_is_verified(method, kind, flows_on, tmp_path):
    release = flowveil.anonymize(flows_on(kind), method=method, k=5, max_suppressed=0.3)
    # An export writes zones and cells, whichever method made them: all of them once on every map.
    release.write(tmp_path / "r", formats=FORMATS if method == ON_TREES[0] else ())
    zones = {
        row["zone"]: row for row in pq.read_table(tmp_path / "r" / "zones.parquet").to_pylist()
    }
    if "outside" in zones:
        assert {zones["outside"][name] for name in ("lat", "lon", "area_km2", "geometry")} == {None}
        assert zones["outside"]["tiles"] == 1
    report = json.loads((tmp_path / "r" / "report.json").read_text("utf-8"))
    assert report["parameters"]["outside"] == "keep"
    assert any(
        line.startswith("Kept: trips with one end outside")
        for line in report["published"]["sentences"]
    )


def test_a_release_in_which_all_trips_end_outside_is_published(table, tmp_path):
    """No destination has a place, so no distance is known, and nothing of the folder needs one."""
    leaving = pc.and_(pc.less(table["start_lon"], 2.4), pc.greater(table["end_lon"], 2.45))
    flows = flowveil.read_trips(table.filter(leaving), resolution=6, within=AREA, outside="keep")
    release = flowveil.anonymize(flows, method="suppression", k=5, protect="trips")
    assert set(release.flows["destination_zone"].to_pylist()) == {"outside"}
    assert findings_of(release.write(tmp_path / "r"), flows) == []


def test_a_release_that_places_outside_or_hides_it_is_found(table, folder, tmp_path):
    flows = read(table, folder, "h3")
    flowveil.anonymize(flows, "odkanon", k=5).write(tmp_path / "r")
    dropped = flowveil.read_trips(table, resolution=7, within=AREA, weight="weight")
    assert findings_of(tmp_path / "r", dropped)


def test_keeping_the_outside_needs_an_area_and_a_method_on_trees(table, folder):
    flows = read(table, folder, "h3")
    for method in set(METHODS) - set(ON_TREES):
        promise = {"epsilon": 1.0} if METHODS[method].counts == "noisy" else {}
        with pytest.raises(ParameterError, match="outside"):
            flowveil.anonymize(flows, method=method, **promise)
    with pytest.raises(ParameterError, match="within"):
        flowveil.read_trips(table, outside="keep")
    with pytest.raises(ParameterError, match="drop, keep"):
        flowveil.read_trips(table, within=AREA, outside="maybe")
    with pytest.raises(DataError, match="outside"):
        flowveil.read_trips(table.slice(0, 50), within="2.0,48.0,2.001,48.001", outside="keep")


def run(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture
def at(folder, tmp_path, monkeypatch):
    """Runs commands in an empty folder, on the trips and an area, or on the map with a root."""
    monkeypatch.chdir(tmp_path)
    nested = str(folder / "nested.geojson")
    zones = ["--zones", nested, "--zones-tile", "code", "--zones-levels", "town,sector,code"]
    zones += ["--set", "zones.zones_name=label"]
    words = {
        "TRIPS": [str(folder / "t.csv")],
        "MAP": [nested],
        "AREA": ["--within", AREA, "--outside", "keep", "--resolution", "7"],
        "SAME_AREA": [
            "--set",
            f"zones.within={AREA}",
            "--set",
            "zones.outside=keep",
            "--resolution",
            "7",
        ],
        "ZONES": [*zones, "--outside", "keep"],
        "SOME": ["--k", "5", "--max-suppressed", "0.3"],
    }

    def go(command: str) -> None:
        given = [part for word in command.split() for part in words.get(word, [word])]
        assert run(*given, "--quiet") == 0, command

    return go


@pytest.mark.slow
def test_every_kind_of_release(at):
    # Those whose zones are used again are verified by the next test.
    with unchecked():
        at("anonymize TRIPS SOME AREA --method twincut --out a")
        at("anonymize TRIPS SOME ZONES --method twincut --out b")
    at("anonymize TRIPS SOME AREA --same-zones --out same")
    at("anonymize TRIPS SOME ZONES --same-zones --method odkanon --out same2")
    at("anonymize TRIPS SOME AREA --by sex --out sex")
    at("anonymize TRIPS SOME AREA --time t --every hour --fold-time --method paircut --out folded")
    at("anonymize TRIPS SOME AREA --hierarchy h3 --ledger ledger --out h")
    at("anonymize TRIPS --zones-of a SOME AREA --out again")
    at("anonymize TRIPS --zones-of b SOME ZONES --out again2")


@pytest.mark.slow
def test_every_other_command(at):
    with unchecked():
        at("anonymize TRIPS SOME AREA --method twincut --out a")
        at("anonymize TRIPS SOME ZONES --method twincut --out b")
    at("verify a --against TRIPS")
    at("verify b --against TRIPS --zones MAP")
    at("describe TRIPS --k 5 SAME_AREA")
    at("analyze b --against TRIPS --zones MAP --out private")
    with in_this_process():
        at("compare TRIPS --k 5 SAME_AREA --methods twincut,paircut --out compared")
    at("audit b")
    at("reconstruct a --zones 6 --out r.csv")
    at("reconstruct b --zones MAP --set zones.zones_tile=code --out r2.csv")
    at("picture b --show both --out both.svg")
    at("picture a --show flows --out flows.svg")
    # What is kept of the trips to and from outside is kept when they are spread over areas.
    for name, release in (("r.csv", "a"), ("r2.csv", "b")):
        spread, published = csv.read_csv(name), pq.read_table(f"{release}/flows.parquet")
        totals = [sum(t["trips"].to_pylist()) for t in (spread, published)]
        assert totals[0] == pytest.approx(totals[1])
        assert "outside" in spread["origin"].to_pylist()
    # Names of zones are on pictures.
    assert "Place" in Path("both.svg").read_text("utf-8")
