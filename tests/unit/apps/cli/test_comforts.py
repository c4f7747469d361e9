"""Lines of progress, and limits on memory and threads."""

from __future__ import annotations

import logging

import pytest

import flowveil
from flowveil.reading.database import open_database
from flowveil.system.limits import duckdb_settings
from flowveil.system.progress import lines_every


def test_limits_reach_duckdb_and_end_with_their_block():
    with flowveil.limits(memory="300MB", threads=1), open_database(None) as con:
        ((threads, memory),) = con.execute(
            "SELECT current_setting('threads'), current_setting('memory_limit')"
        ).fetchall()
        assert threads == 1
        assert float(memory.split()[0]) == pytest.approx(143.0, abs=0.1)  # half of it, in MiB
    assert duckdb_settings() == {}
    no_limits = (
        {"memory": "much"},
        {"memory": "0GB"},
        {"threads": 0},
        {"threads": True},
        {"temp_dir": "/no/such"},
    )
    for wrong in no_limits:
        with pytest.raises(flowveil.ParameterError), flowveil.limits(**wrong):
            pass


def test_progress_is_a_line_now_and_then(caplog):
    caplog.set_level(logging.INFO, logger="flowveil")
    progress = lines_every("Reading", seconds=0.0)
    for share in (0.1, 0.1001, 0.5):
        progress(share)
    assert [record.getMessage() for record in caplog.records] == ["Reading: 10 %", "Reading: 50 %"]
    caplog.clear()
    lines_every("Reading", seconds=60)(0.5)
    assert caplog.records == []


def test_a_description_shows_itself_without_letting_markup_through(trips):
    name = "<b>weight</b>"
    renamed = trips.rename_columns(
        [name if column == "weight" else column for column in trips.column_names]
    )
    shown = flowveil.describe(renamed, k=5, resolution=7, weight=name)._repr_markdown_()
    assert "Do not publish" in shown
    assert "resolution 7" in shown
    # Markup in an indented block of code is shown as text.
    assert all(line.startswith("    ") for line in shown.splitlines() if line.strip())
