"""The study: its grid, its deadline, going on after an interruption, and its tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.cli import main
from flowveil.errors import OutputError, ParameterError
from flowveil.study import run_study
from flowveil.trips import read_slices
from segmented import survey


@pytest.fixture(scope="module")
def flows():
    return read_slices(survey(600), by="sex", resolution=7)


def test_all_runs_are_in_the_tables_and_done_only_once(flows, tmp_path: Path):
    out = tmp_path / "study"
    grid = {"methods": ["odkanon", "oigh"], "protections": ["trips", "trips+people"], "k": 5}
    found = run_study(flows, out, **grid)
    # Everybody and two sexes (the third has too few people), two methods, two protections, two bases.
    assert len(found.rows) == 3 * 2 * 2 * 2
    assert found.n_hidden == {"sex": 1}
    times = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    again = run_study(flows, out, **grid)
    assert again.rows == found.rows
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == times
    table = pq.read_table(out / "results.parquet")
    assert set(table["basis"].to_pylist()) == {"trips", "weight"}
    text = (out / "tables.md").read_text("utf-8")
    assert "**Table 3.**" in text
    assert "Fairness" in text
    # Each segment against everybody, by the numbers of the tidy table.
    kept = {(r["segment"], r["method"]): r for r in found.rows if r["protect"] == "trips" and r["basis"] == "trips"}
    ratio = kept["F", "oigh"]["generalization_distance_m"] / kept[None, "oigh"]["generalization_distance_m"]
    coarser = text[text.index("How much coarser each segment by sex") :]
    line = next(line for line in coarser.splitlines() if "OIGH" in line and "| F |" in line)
    assert line.split("|")[-2].strip() == f"{ratio:,.2f}"
    assert r"\begin{tabular}" in (out / "tables.tex").read_text("utf-8")
    assert "SECRET" not in text


def test_what_a_segment_too_small_to_be_named_holds_cannot_be_computed(flows, tmp_path: Path):
    found = run_study(flows, tmp_path / "study", methods=["mondrian"], protections=["trips"], k=5)
    total = {
        row["segment"]: row["c_avg"] * row["n_cells"] * 5 / (1 - row["suppressed_share"])
        for row in found.rows
        if row["basis"] == "trips"
    }
    assert sum(flows.slices[flows.keys.index(("X",))].trips) > 0
    assert total[None] == pytest.approx(total["F"] + total["M"])


def test_a_run_that_is_late_is_not_available_and_tried_again_with_more_time(flows, tmp_path: Path):
    out = tmp_path / "study"
    late = run_study(flows, out, methods=["odkanon"], protections=["trips"], k=5, time_limit=1e-6)
    assert {row["status"] for row in late.rows} == {"timeout"}
    assert "N/A" in (out / "tables.md").read_text("utf-8")
    done = run_study(flows, out, methods=["odkanon"], protections=["trips"], k=5, time_limit=120)
    assert {row["status"] for row in done.rows} == {"done"}


def test_what_cannot_be_studied_is_refused(flows, tmp_path: Path):
    with pytest.raises(ParameterError, match="allowed"):
        run_study(flows, tmp_path / "a", protections=["everybody"])
    with pytest.raises(ParameterError):
        run_study(flows, tmp_path / "a", methods=["magic"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("x", "utf-8")
    with pytest.raises(OutputError, match="new folder"):
        run_study(flows, tmp_path / "b")


def test_from_trips_in_one_call(tmp_path: Path):
    found = flowveil.run_study(
        survey(300), tmp_path / "study", by="sex", resolution=6, methods=["oigh"], protections=["people"], k=3
    )
    assert {row["segment"] for row in found.rows} == {None, "F", "M"}
    with pytest.raises(ParameterError, match="read already"):
        flowveil.run_study(read_slices(survey(300), by="sex"), tmp_path / "study", by="sex")


def test_an_interrupted_study_says_that_its_runs_are_kept(tmp_path: Path, monkeypatch, capsys):
    def interrupted(*_arguments, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("flowveil.study.run_study", interrupted)
    pq.write_table(survey(300), tmp_path / "trips.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["study", str(tmp_path / "trips.parquet"), "--by", "sex", "--out", str(tmp_path / "study")])
    assert ended.value.code == 130
    assert "kept" in capsys.readouterr().err


def test_a_study_goes_on_after_its_processes_were_killed(flows, tmp_path: Path):
    grid = {"methods": ["odkanon", "oigh", "suppression"], "protections": ["trips"], "k": 5}

    def stop(_share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(flows, tmp_path / "study", progress=stop, **grid)
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "study" / "runs").glob("*.json")}
    assert len(done) == 1
    found = run_study(flows, tmp_path / "study", **grid)
    assert len(found.rows) == 3 * 3 * 2
    assert {path: path.stat().st_mtime_ns for path in done} == done
