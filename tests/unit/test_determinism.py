"""The same trips give the same bytes, whatever the row order, hash seed or thread count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import trip_table

METHODS = ["twincut", "odkanon", "atg-dual", "oigh"]


def published(folder: Path, table, name: str, method: str, **environment: str) -> dict[str, bytes]:
    source, out = folder / f"{name}.parquet", folder / f"{name}-{method}"
    pq.write_table(table, source)
    command = [sys.executable, "-m", "flowveil", "anonymize", source, "--k", "5", "--out", out, "--method", method]
    subprocess.run([str(c) for c in command], check=True, env={**os.environ, **environment}, capture_output=True)
    return {p.name: p.read_bytes() for p in sorted(out.iterdir())}


@pytest.mark.parametrize("method", METHODS)
def test_same_bytes(tmp_path, method):
    table = trip_table(3000)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    one = published(tmp_path, table, "a", method, PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
    two = published(tmp_path, shuffled, "b", method, PYTHONHASHSEED="12345", OMP_NUM_THREADS="2")
    assert one == two
