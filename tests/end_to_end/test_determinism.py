"""The same trips give the same bytes, whatever the row order, hash seed or thread count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from conftest import trip_table

METHODS = ["twincut", "odkanon", "atg-dual", "oigh"]

#: All methods in one process: what differs between two runs is the process, not the method.
PUBLISH = """
import sys
from flowveil.cli import main
source, out, *methods = sys.argv[1:]
for method in methods:
    main(["anonymize", source, "--k", "5", "--out", f"{out}/{method}", "--method", method])
"""


def published(folder: Path, table, **environment: str) -> dict[Path, bytes]:
    (folder / "out").mkdir(parents=True)
    pq.write_table(table, folder / "trips.parquet")
    command = [sys.executable, "-c", PUBLISH, str(folder / "trips.parquet"), str(folder / "out"), *METHODS]
    subprocess.run(command, check=True, env={**os.environ, **environment}, capture_output=True)
    out = folder / "out"
    return {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_same_bytes(tmp_path):
    table = trip_table(500)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    one = published(tmp_path / "a", table, PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
    two = published(tmp_path / "b", shuffled, PYTHONHASHSEED="12345", OMP_NUM_THREADS="2")
    assert {path.parts[0] for path in one} == set(METHODS)
    assert one == two
