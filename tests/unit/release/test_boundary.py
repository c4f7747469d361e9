"""The boundary: what a release publishes in addition to its cells narrows no count below k."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowveil
from flowveil import anonymize
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.read_summary import ReadSummary
from flowveil.published.sentences import sentences
from flowveil.release.boundary import to_published
from flowveil.release.statement import round_share, share_step
from samples.releases import city_flows, tile_release

K = 3


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50))
def test_a_share_is_the_smallest_multiple_of_the_step_that_is_not_below_it(part, published, k):
    step = share_step(k, published)
    assert step >= Fraction(1, 100)
    shown = Fraction(round_share(Fraction(part, part + published), step)).limit_denominator(10**9)
    exact = Fraction(part, part + published)
    assert shown >= exact - Fraction(1, 10**8)
    assert shown <= max(step, exact + step) + Fraction(1, 10**8)


def test_shares_leave_at_least_k_counts_open_in_every_small_world():
    """Brute force: of all worlds with the same cells and shares, no count is confined to fewer than
    k values."""
    most = 15
    for published in (*range(K, 12), 20, 39, 80):
        worlds: dict[tuple[float, ...], list[tuple[int, ...]]] = defaultdict(list)
        step = share_step(K, published)
        for counts in itertools.product(range(most + 1), repeat=3):
            # Suppressed, dropped and outside the area.
            total = published + sum(counts)
            worlds[tuple(round_share(Fraction(count, total), step) for count in counts)].append(
                counts
            )
        for shown, alike in worlds.items():
            if max(map(max, alike)) == most:
                continue  # The world is cut off here: larger counts look the same.
            for values in map(set, zip(*alike, strict=True)):
                assert len(values) >= K, (published, shown, values)


def test_zero_and_one_suppressed_trip_look_the_same():
    reports = [json.dumps(tile_release(trips).summary()) for trips in ([20, 30], [20, 30, 1])]
    assert reports[0] == reports[1]


def test_what_each_smaller_tile_holds_is_nowhere_in_the_folder(tmp_path):
    """12 zones of two tiles with 20 + 1 and with 19 + 2 trips each give the same folder, byte by
    byte."""
    folders = []
    for larger, smaller in ((20, 1), (19, 2)):
        parent = [-1, *[0] * 12, *np.repeat(np.arange(1, 13), 2).tolist()]
        tree, _ = Hierarchy.from_parents(
            parent, np.array([f"z{n:02d}" for n in range(len(parent))])
        )
        end, _ = Hierarchy.from_parents([-1], np.array(["there"]))
        trips = np.tile([larger, smaller], 12)
        tiles = np.arange(24)
        flows = Flows.from_pairs(tiles, np.zeros(24), trips, origins=tree, destinations=end)
        release = anonymize(
            flows,
            "odkanon",
            k=10,
            protect="trips",
            hierarchy="h3",
            budget="volume",
            max_suppressed=0,
        )
        folder = release.write(tmp_path / f"{smaller}")
        assert release.flows["trips"].to_pylist() == [21] * 12
        folders.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert folders[0] == folders[1]


def test_noise_and_revisions_state_no_share():
    flows = tile_release([20, 30, 12]).input
    release = anonymize(flows, "laplace", epsilon=5, region="observed", level=1)
    assert release.summary()["statement"]["shares"] is None


def test_rows_that_could_not_be_read_are_in_the_shares():
    flows = tile_release([60, 40]).input
    summary = ReadSummary(rows=112, dropped={"missing end": 12}, dropped_trips=12, input_trips=112)
    release = anonymize(replace(flows, intake=summary), "suppression", k=10, protect="trips")
    assert release.summary()["statement"]["shares"]["dropped"] >= 12 / 112


PRIVATE = (
    "flows",
    "reading",
    "engines",
    "sources",
    "methods",
    "analysis",
    "anonymization",
    "slices",
)


def test_published_loads_nothing_that_has_seen_raw_trips():
    code = (
        "import flowveil.published.folder, sys; print([m for m in sys.modules if"
        " m.startswith('flowveil.')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for name in PRIVATE:
        assert f"'flowveil.{name}'" not in loaded, name
        assert f"'flowveil.{name}." not in loaded, name


def test_published_imports_nothing_private_even_inside_functions():
    place = Path(flowveil.__file__).parent / "published"
    for path in sorted(place.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                room = (
                    name.removeprefix("flowveil.").partition(".")[0]
                    if name.startswith("flowveil.")
                    else ""
                )
                assert room not in PRIVATE, f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["measure", "metrics", "notes", "intake"])
def test_the_folder_has_no_word_of_raw_trips(name, tmp_path):
    folder = tile_release([20, 30, 4]).write(tmp_path / "out")
    report = json.loads((folder / "report.json").read_text())
    keys = json.dumps([*report, *report["statement"], *report["published"]])
    assert name not in keys


@pytest.mark.parametrize("locations", [None, 2])
def test_secret_thresholds_except_what_locations_say(locations):
    """Trips in two tiles at each end are proven where a zone has two."""
    published = to_published(anonymize(city_flows(), "layercut", 5, "trips", l=locations))
    line = next(s for s in sentences(published.statement) if "secret amount" in s)
    assert ("a zone of just 2 locations has trips in each" in line) == (locations == 2)
