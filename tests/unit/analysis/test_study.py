"""The study: its grid, its deadline, going on after an interruption, and its tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.analysis.study import run_study
from flowveil.apps.cli import main
from flowveil.core.errors import OutputError, ParameterError
from flowveil.reading.engines import read_slices
from samples.processes import in_this_process
from samples.segmented import survey


@pytest.fixture
def one_process():
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def flows():
    return read_slices(survey(600), by="sex", resolution=7, weight="weight")


@pytest.mark.usefixtures("one_process")
def test_all_runs_are_in_the_tables_and_done_only_once(flows, tmp_path: Path):
    out = tmp_path / "study"
    grid = {"methods": ["odkanon", "oigh"], "protections": ["trips", "trips+people"], "k": 5}
    found = run_study(flows, out, **grid)
    # Everybody and three sexes, two methods, two protections, two bases.
    assert len(found.rows) == 4 * 2 * 2 * 2
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    again = run_study(flows, out, **grid)
    assert again.rows == found.rows
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == times
    table = pq.read_table(out / "results.parquet")
    assert set(table["basis"].to_pylist()) == {"trips", "weight"}
    text = (out / "tables.md").read_text("utf-8")
    assert "**Table 1.**" in text
    assert "Fairness" in text
    page = (out / "study.html").read_text("utf-8")
    assert "Table 1." in page
    assert page.count("<table") == text.count("**Table")
    # Each segment against everybody, by the numbers of the tidy table.
    kept = {
        (r["segment"], r["method"]): r
        for r in found.rows
        if r["protect"] == "trips" and r["basis"] == "trips"
    }
    ratio = (
        kept["F", "oigh"]["generalization_distance_m"]
        / kept[None, "oigh"]["generalization_distance_m"]
    )
    coarser = text[text.index("Accuracy of each segment by sex") :]
    line = next(line for line in coarser.splitlines() if "OIGH" in line and "| F |" in line)
    assert line.split("|")[-4].strip() == f"{ratio:,.2f}"
    assert r"\begin{tabular}" in (out / "tables.tex").read_text("utf-8")
    assert "SECRET" not in text


@pytest.mark.slow
def test_a_run_that_is_late_is_not_available_and_tried_again_with_more_time(tmp_path: Path):
    out = tmp_path / "study"
    # Everybody and no segments: every run that is late ends its process.
    flows = survey(200)
    late = flowveil.run_study(
        flows, out, resolution=7, methods=["odkanon"], protections=["trips"], k=5, time_limit=1e-6
    )
    assert {row["status"] for row in late.rows} == {"timed out"}
    assert "N/A" in (out / "tables.md").read_text("utf-8")
    done = flowveil.run_study(
        flows, out, resolution=7, methods=["odkanon"], protections=["trips"], k=5, time_limit=120
    )
    assert {row["status"] for row in done.rows} == {"done"}


@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_studied_is_refused(flows, tmp_path: Path):
    with pytest.raises(ParameterError, match="allowed"):
        run_study(flows, tmp_path / "a", protections=["everybody"])
    with pytest.raises(ParameterError):
        run_study(flows, tmp_path / "a", methods=["magic"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("x", "utf-8")
    with pytest.raises(OutputError, match="new folder"):
        run_study(flows, tmp_path / "b")


@pytest.mark.usefixtures("one_process")
def test_from_trips_in_one_call(tmp_path: Path):
    found = flowveil.run_study(
        survey(300),
        tmp_path / "study",
        by="sex",
        resolution=6,
        methods=["oigh"],
        protections=["people"],
        k=3,
    )
    assert {row["segment"] for row in found.rows} == {None, "F", "M", "X"}
    with pytest.raises(ParameterError, match="read already"):
        flowveil.run_study(read_slices(survey(300), by="sex"), tmp_path / "study", by="sex")


def test_an_interrupted_study_says_that_its_runs_are_kept(tmp_path: Path, monkeypatch, capsys):
    def interrupted(*_arguments, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("flowveil.analysis.study.run_study", interrupted)
    pq.write_table(survey(300), tmp_path / "trips.parquet")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "study",
                str(tmp_path / "trips.parquet"),
                "--by",
                "sex",
                "--out",
                str(tmp_path / "study"),
            ]
        )
    assert ended.value.code == 130
    assert "kept" in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_goes_on_after_its_processes_were_killed(flows, tmp_path: Path):
    grid = {"methods": ["odkanon", "oigh", "suppression"], "protections": ["trips"], "k": 5}

    def stop(_share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(flows, tmp_path / "study", progress=stop, **grid)
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "study" / "runs").glob("*.json")}
    assert len(done) == 1
    found = run_study(flows, tmp_path / "study", **grid)
    assert len(found.rows) == 4 * 3 * 2
    assert {path: path.stat().st_mtime_ns for path in done} == done


def _on_a_map(shift: float, *, more: int = 0):
    """Trips between four zones of a user's map, one of them this much further north."""
    zones = pa.table(
        {
            "zone": ["a", "b", "c", "d"],
            "area": ["west", "west", "east", "east"],
            "lat": [48.80, 48.81, 48.82, 48.83 + shift],
            "lon": [2.30, 2.31, 2.40, 2.41],
        }
    )
    n = 60 + more
    table = pa.table(
        {
            "o": ["abcd"[i % 4] for i in range(n)],
            "d": ["abcd"[i // 4 % 4] for i in range(n)],
            "sex": ["FM"[i % 3 % 2] for i in range(n)],
        }
    )
    return read_slices(
        table,
        by="sex",
        by_many=True,
        origin_tile="o",
        destination_tile="d",
        zones=flowveil.read_zones(zones, levels=["area", "zone"]),
    )


@pytest.mark.usefixtures("one_process")
def test_a_study_of_other_data_or_of_another_map_is_refused(tmp_path: Path):
    out = tmp_path / "study"
    grid = {"methods": ["oigh"], "protections": ["trips"], "k": 5}
    run_study(_on_a_map(0.0), out, **grid)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for other in (_on_a_map(0.1), _on_a_map(0.0, more=1)):
        with pytest.raises(OutputError, match=r"other data.*new folder"):
            run_study(other, out, **grid)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    # The same data with another method go on: what is done stays.
    run_study(_on_a_map(0.0), out, **{**grid, "methods": ["oigh", "suppression"]})
    runs = {path for path in before if path.parent.name == "runs"}
    assert runs < set((out / "runs").iterdir())
    assert {path: path.read_bytes() for path in runs} == {path: before[path] for path in runs}
