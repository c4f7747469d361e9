"""Noisy releases where releases are looked at.

Exports, pictures, notebooks, the internal report, comparisons.
"""

from __future__ import annotations

import csv
import shutil

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from conftest import trip_table
from flowveil import NoisyRelease, ParameterError, anonymize, read_trips
from flowveil.published.exports import FORMATS
from flowveil.published.sentences import rounded
from flowveil.system.workers import LATE, Ended
from samples.drafts import unchecked
from samples.processes import in_this_process
from samples.releases import rehash
from samples.verified import findings_of

REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ASKED = {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7}


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """One test verifies the release that all look at."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def release() -> NoisyRelease:
    return anonymize(read_trips(trip_table(1500), resolution=9), "laplace", **ASKED)


@pytest.fixture(scope="module")
def written(release, tmp_path_factory):
    place = tmp_path_factory.mktemp("written") / "out"
    return release.write(
        place,
        formats=list(FORMATS),
        contact="Office",
        basemap="https://tiles.example/{z}/{x}/{y}.png",
    )


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "out")


# ---- exports -------------------------------------------------------------------------------------


def test_exports_carry_the_noisy_rows_and_no_others(release, folder):
    expected = sorted(tuple(row.values()) for row in release.flows.to_pylist())
    with open(folder / "flows.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {
        *(
            f"{end}_{what}"
            for end in ("origin", "destination")
            for what in ("zone", "name", "size")
        ),
        "trips",
    }
    assert (
        sorted((r["origin_zone"], r["destination_zone"], int(r["trips"])) for r in rows) == expected
    )
    with pa.memory_map(str(folder / "flows.arrow")) as file:
        assert (
            pa.ipc.open_file(file).read_all().select(["origin_zone", "destination_zone", "trips"])
            == release.flows
        )
    openmatrix = pytest.importorskip("openmatrix")
    with openmatrix.open_file(str(folder / "flows.omx"), "r") as file:
        assert file.list_matrices() == ["trips"]
        assert np.array(file["trips"]).sum() == release.flows["trips"].to_numpy().sum()
    assert findings_of(folder, release.input) == []


def test_an_export_that_tells_something_else_is_found(release, folder):
    path = folder / "flows.csv"
    head, first, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
    *ends, trips = first.strip().split(",")
    changed = ",".join([*ends, str(int(trips) + 1)])
    path.write_text("".join([head, f"{changed}\n", *rest]), encoding="utf-8")
    rehash(folder)
    assert any("flows.csv" in finding for finding in findings_of(folder, release.input))


def test_an_export_with_unpublished_tile_counts_is_found(tmp_path):
    flows = read_trips(trip_table(900), resolution=9)
    tree = flows.origins
    plain = flowveil.Flows.from_pairs(
        flows.origin,
        flows.destination,
        flows.trips,
        origins=renamed(tree),
        destinations=renamed(flows.destinations),
    )
    release = anonymize(plain, "laplace", epsilon=1, delta=1e-3, level=0)
    folder = release.write(tmp_path / "out", formats="csv")
    assert pq.read_table(folder / "zones.parquet")["tiles"].null_count > 0
    with open(folder / "zones.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["tiles"] for row in rows} == {""}
    for row in rows:
        row["tiles"] = "12"
    with open(folder / "zones.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    rehash(folder)
    assert any("zones.csv" in finding for finding in findings_of(folder, release.input))


def renamed(tree: flowveil.Hierarchy) -> flowveil.Hierarchy:
    """Tiles below one zone, on no map."""
    parent = np.array([-1, *([0] * tree.n_tiles)])
    return flowveil.Hierarchy.from_parents(
        parent, np.array(["all", *(f"t{i:05d}" for i in range(tree.n_tiles))])
    )[0]


# ---- maps ----------------------------------------------------------------------------------------


def test_large_noise_is_written_out():
    assert [rounded(2154.3), rounded(2.1092), rounded(58.04), rounded(2154.3, 2)] == [
        "2,150",
        "2.11",
        "58",
        "2,200",
    ]


def test_the_page_says_noise_and_unit_before_anything_else(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    top = page[: page.index('id="map"')]
    assert "Noisy:" in top
    assert "for each person" in page[: page.index("<script")]
    assert "k = " not in page[: page.index("<script")]
    assert "NaN" not in page
    assert "byte by byte" not in page
    assert "not known" not in page[: page.index("<script")]


def test_pictures_are_drawn_from_the_release_and_from_its_folder(release, folder, tmp_path):
    """Zones and flows together; what a picture of one of them has is in it too."""
    pytest.importorskip("matplotlib")
    one = flowveil.picture(release, tmp_path / "a.png", show="both")
    two = flowveil.picture(folder, tmp_path / "b.png", show="both")
    assert one.read_bytes() == two.read_bytes()


def test_a_notebook_shows_what_may_be_published(release):
    shown = release._repr_html_()
    assert "NOT FOR PUBLICATION" not in shown
    assert "Noisy:" in shown


def test_repeatable_noise_is_not_shown_either(tmp_path):
    release = anonymize(
        read_trips(trip_table(300), resolution=9), "laplace", **ASKED, unsafe_seed_for_tests=1
    )
    with pytest.raises(ParameterError, match="seed"):
        release._repr_html_()
    with pytest.raises(ParameterError, match="seed"):
        release.picture(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


# ---- comparisons ---------------------------------------------------------------------------------


def test_a_comparison_of_k_and_epsilon_has_one_planner_error_for_both(tmp_path):
    flows = read_trips(trip_table(600), resolution=9)
    with pytest.raises(ParameterError, match="compared by ε"):
        flowveil.compare(flows, methods="suppression,laplace", k=5)
    options = {"topdown": {"region": h3.latlng_to_cell(48.85, 2.35, 4), "level": 6, "bound": 4}}
    asked = {
        "k": 3,
        "protect": "trips",
        "max_suppressed": 0.99,
        "epsilon": [2.0],
        "options": options,
    }
    with in_this_process():
        found = flowveil.compare(flows, methods="suppression,topdown", **asked)
    assert [run.status for run in (*found.runs, *found.noisy)] == ["done", "done"]
    assert all(0 <= run.measures["misplaced"] <= 1 for run in (*found.runs, *found.noisy))
    page = (found.write(tmp_path / "out") / "comparison.html").read_text(encoding="utf-8")
    assert "ε = 2 for each person" in page
    assert "not for publication" in page.lower()
    assert found.table["epsilon"].to_pylist() == [None, 2.0]


def test_all_methods_are_those_that_promise_k(monkeypatch):
    monkeypatch.setattr(
        "flowveil.system.workers.run_tasks",
        lambda _, __, tasks, **___: (Ended(i, LATE) for i in range(len(tasks))),
    )
    found = flowveil.compare(read_trips(trip_table(300), resolution=9), methods="all", k=5)
    ran = [run.method for run in found.runs]
    assert "odkanon" in ran
    assert "laplace" not in ran
