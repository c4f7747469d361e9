"""The same trips give the same bytes, whatever the row order, hash seed or thread count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from conftest import trip_table
from flowveil.apps.cli import main
from samples.drafts import unchecked

METHODS = ["layercut", "twincut", "odkanon", "atg-dual", "oigh"]

#: All methods in one process: what differs between two runs is the process, not the method. One is
#: this process. Whether drafts are recounted does not change their bytes.
PUBLISH = """
import sys
from flowveil.apps.cli import main
from flowveil.publishing import publish as publication
from flowveil.verify.recount import Result
source, out, *methods = sys.argv[1:]
publication.recount_flows = lambda *_, **__: Result((), (), {})
for method in methods:
    main(["anonymize", source, "--k", "5", "--out", f"{out}/{method}", "--method", method])
"""


def written(folder: Path, table) -> tuple[str, Path]:
    (folder / "out").mkdir(parents=True)
    pq.write_table(table, folder / "trips.parquet")
    return str(folder / "trips.parquet"), folder / "out"


def files_of(out: Path) -> dict[Path, bytes]:
    return {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def published_here(folder: Path, table) -> dict[Path, bytes]:
    source, out = written(folder, table)
    with unchecked():
        for method in METHODS:
            main(["anonymize", source, "--k", "5", "--out", str(out / method), "--method", method])
    return files_of(out)


def published(folder: Path, table, **environment: str) -> dict[Path, bytes]:
    source, out = written(folder, table)
    command = [sys.executable, "-c", PUBLISH, source, str(out), *METHODS]
    subprocess.run(command, check=True, env={**os.environ, **environment}, capture_output=True)
    return files_of(out)


def test_same_bytes(tmp_path):
    table = trip_table(300)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    seed = "12345" if os.environ.get("PYTHONHASHSEED") != "12345" else "54321"
    one = published_here(tmp_path / "a", table)
    two = published(tmp_path / "b", shuffled, PYTHONHASHSEED=seed, OMP_NUM_THREADS="1")
    assert {path.parts[0] for path in one} == set(METHODS)
    assert one == two
