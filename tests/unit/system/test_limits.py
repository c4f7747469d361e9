"""A memory limit holds for the whole run: what would not fit is refused before it is taken, with a
figure."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.apps.cli import main
from flowveil.reading.database import open_database
from flowveil.system import limits

CELLS = np.array([0x8A1FB46622DFFFF, 0x8A1FB46622D7FFF], dtype=np.uint64)


def trips(n: int = 400) -> pa.Table:
    return pa.table(
        {
            "start_h3": CELLS[np.arange(n) % 2],
            "end_h3": CELLS[:1].repeat(n),
            "person": np.arange(n) % 90,
        }
    )


def test_reading_is_refused_with_a_figure_that_suffices():
    with flowveil.limits(memory="200MB"), pytest.raises(flowveil.ParameterError) as refused:
        flowveil.read_trips(trips())
    figure = re.search(r"needs about ([\d.]+ GB)", str(refused.value))
    assert figure is not None
    with flowveil.limits(memory=figure[1]):
        assert flowveil.read_trips(trips()).trips.sum() == 400


def test_deciding_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch):
    flows = flowveil.read_trips(trips())
    # As if there were a million times as many.
    monkeypatch.setattr("flowveil.publishing.anonymization.FLOW_DECIDED", 10**9)
    with (
        flowveil.limits(memory="1GB"),
        pytest.raises(flowveil.ParameterError, match=r"twincut needs about 2\.\d GB"),
    ):
        flowveil.anonymize(flows, method="twincut", k=10)
    assert flowveil.anonymize(flows, method="twincut", k=10).flows.num_rows == 2


def test_the_limit_of_a_command_writes_nothing_where_it_does_not_suffice(tmp_path: Path, capsys):
    pq.write_table(trips(), tmp_path / "trips.parquet")
    out = tmp_path / "release"
    said = ["anonymize", str(tmp_path / "trips.parquet"), "--k", "10", "--out", str(out)]
    with pytest.raises(SystemExit, match="2"):
        main([*said, "--memory-limit", "0.1GB"])
    assert "--memory-limit 0.4GB or more" in capsys.readouterr().err
    assert not out.exists()


def test_what_does_not_fit_goes_to_the_folder_that_was_named(tmp_path: Path):
    with flowveil.limits(temp_dir=tmp_path), open_database(None) as con:
        folder = con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        assert Path(folder).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_rows_that_are_spilled_give_the_same_flows(tmp_path: Path):
    rng = np.random.default_rng(3)
    n = 400_000
    table = pa.table(
        {
            "start_h3": CELLS[rng.integers(2, size=n)],
            "end_h3": CELLS[rng.integers(2, size=n)],
            "person": [f"{p:040d}" for p in rng.integers(10**9, size=n).tolist()],
        }
    )
    expected = flowveil.read_trips(table)
    with flowveil.limits(memory="450MB", temp_dir=tmp_path):
        found = flowveil.read_trips(table)
    for name in ("origin", "destination", "trips"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert np.array_equal(found.people.person, expected.people.person)
    assert np.array_equal(found.people.cell, expected.people.cell)


def test_slices_under_a_limit_give_the_same_release(tmp_path: Path):
    rng = np.random.default_rng(5)
    n = 3000
    table = pa.table(
        {
            "start_h3": CELLS[rng.integers(2, size=n)],
            "end_h3": CELLS[rng.integers(2, size=n)],
            "person": rng.integers(300, size=n),
            "purpose": (
                pa.array(["work", "school", "other"]).take(pa.array(rng.integers(3, size=n)))
            ),
            "w": rng.integers(1, 9, size=n) / 4,
        }
    )

    def made() -> pa.Table:
        flows = flowveil.read_slices(table, by="purpose", weight="w")
        return flowveil.anonymize_slices(flows, k=10, protect="people").flows

    expected = made()
    with flowveil.limits(memory="2GB", temp_dir=tmp_path):
        found = made()
        assert list(tmp_path.iterdir()) == []
    assert found.equals(expected)


def test_duckdb_draws_no_bar_among_what_is_printed():
    with open_database(None) as con:
        assert con.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_a_notebook_in_which_duckdb_cannot_be_asked_works(monkeypatch):
    connect = duckdb.connect

    class Notebook:
        def __init__(self, *given, **config):
            self.con = connect(*given, **config)
            self.close = self.con.close

        def execute(self, sql):
            if "progress_bar" in sql:
                raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")
            return self.con.execute(sql)

    monkeypatch.setattr(duckdb, "connect", Notebook)
    with open_database(None) as con:
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_container_has_what_it_may_take_and_not_what_the_machine_has(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_CONTAINER_LIMITS", ())
    machine = limits._memory_of_machine()
    allowed = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "_CONTAINER_LIMITS", (str(tmp_path / "missing"), str(allowed)))
    allowed.write_text("max\n")
    assert limits._memory_of_machine() == machine
    allowed.write_text("1048576\n")
    assert limits._memory_of_machine() == 1048576
