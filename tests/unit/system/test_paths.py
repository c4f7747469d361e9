"""An empty path names nothing: it must not mean the current folder."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import ParameterError
from flowveil.reading.sources import prepare
from flowveil.tabular.records import read_records


@pytest.fixture
def beside_trips(tmp_path, monkeypatch, trips):
    """The current folder holds trips."""
    pq.write_table(trips, tmp_path / "trips.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("empty", ["", "  ", "\t\n"])
def test_an_empty_path_is_refused_by_the_library(beside_trips, empty):
    asked = (
        lambda: flowveil.read_trips(empty),
        lambda: flowveil.read_slices(empty, by="sex"),
        lambda: flowveil.read_zones(empty),
        lambda: flowveil.verify_release(empty, against="trips.parquet"),
        lambda: flowveil.picture(empty, "a.png"),
        lambda: prepare("gps", empty),
        lambda: prepare("netmob25", empty),
        lambda: prepare("netmob25", beside_trips, individuals=empty),
        lambda: read_records(empty),
    )
    for ask in asked:
        with pytest.raises(ParameterError, match="is empty"):
            ask()


@pytest.mark.parametrize(
    "words",
    [
        ["anonymize", "EMPTY", "--out", "o"],
        ["anonymize", "trips.parquet", "--out", "EMPTY"],
        ["anonymize", "trips.parquet", "--out", "o", "--zones", "EMPTY"],
        ["demo", "--out", "EMPTY"],
        ["describe", "EMPTY"],
        ["compare", "EMPTY", "--out", "o"],
        ["compare", "trips.parquet", "--out", "EMPTY"],
        ["study", "EMPTY", "--by", "sex", "--out", "o"],
        ["study", "trips.parquet", "--by", "sex", "--out", "EMPTY"],
        ["verify", "EMPTY", "--against", "trips.parquet"],
        ["verify", "o", "--against", "EMPTY"],
        ["picture", "EMPTY", "--out", "a.png"],
        ["picture", "o", "--out", "EMPTY"],
        ["prepare", "gps", "EMPTY", "--out", "o"],
        ["prepare", "gps", "trips.parquet", "--out", "EMPTY"],
    ],
)
def test_an_empty_path_is_refused_by_every_command(beside_trips, capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main(["" if word == "EMPTY" else word for word in words])
    assert stopped.value.code == 2
    assert "is empty" in capsys.readouterr().err
    assert [p.name for p in beside_trips.iterdir()] == ["trips.parquet"]
