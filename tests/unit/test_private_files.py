"""Scratch folders with raw trips do not outlive their processes for longer than until the next start."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flowveil.private_files import SPILL, scratch_folder
from flowveil.reading.database import open_database
from flowveil.reading.limits import limits

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs file locks")

SPILLING = """
import sys, time
from flowveil.reading.database import open_database
from flowveil.reading.limits import limits
with limits(memory="130MB", temp_dir=sys.argv[1]), open_database(1) as con:
    con.execute("CREATE TABLE persons AS SELECT 'SECRETPERSON' || hash(i) AS person FROM range(3000000) t(i)")
    print("spilled", flush=True)
    time.sleep(600)
"""


def test_a_killed_run_leaves_persons_only_until_the_next_start(tmp_path):
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", SPILLING, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "spilled\n"
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("flowveil-raw-trips-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sum(file.stat().st_size for file in folder.rglob("*")) > 10**6
        # A living run keeps its folder.
        with limits(temp_dir=tmp_path), open_database(1):
            assert folder.exists()
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert folder.exists()
    with limits(temp_dir=tmp_path), open_database(1):
        assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_only_dead_folders_of_ours_are_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (tmp_path / f"{SPILL}link").symlink_to(elsewhere)
    (tmp_path / f"{SPILL}file").touch()
    (tmp_path / "flowveil-other").mkdir()
    (tmp_path / f"{SPILL}dead" / "inner").mkdir(parents=True)
    with scratch_folder(parent=tmp_path) as one, scratch_folder(parent=tmp_path) as two:
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"elsewhere", f"{SPILL}link", f"{SPILL}file", "flowveil-other", one.name, two.name}
    assert (elsewhere / "kept").exists()
    assert not Path(one).exists()
    assert not Path(two).exists()
