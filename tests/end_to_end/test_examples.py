"""The scripts of examples/readers/ run on a release, and their results agree with it."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

READERS = Path(__file__).resolve().parents[2] / "examples" / "readers"


def run(*command: str | Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "AEQ_SHOW_PROGRESS": "FALSE",
    }
    ended = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "release"
    run(sys.executable, READERS / "make_release.py", folder)
    return folder


def test_aequilibrae_assigns_every_published_trip_between_zones(release, tmp_path):
    pytest.importorskip("aequilibrae", reason="AequilibraE is not installed")
    run(sys.executable, READERS / "assignment.py", release, tmp_path / "volumes.csv")
    flows = pq.read_table(release / "flows.parquet")
    between = pc.sum(
        flows.filter(pc.not_equal(flows["origin_zone"], flows["destination_zone"]))["trips"]
    ).as_py()
    with open(tmp_path / "volumes.csv", encoding="utf-8", newline="") as file:
        connectors = [
            float(row["trips"]) for row in csv.DictReader(file) if int(row["a_node"]) < 1000
        ]
    assert sum(connectors) == pytest.approx(2 * between)


def test_styles_for_qgis_are_written_for_both_layers(release, tmp_path):
    run(sys.executable, READERS / "qgis_styles.py", release, tmp_path)
    assert 'type="fill"' in (tmp_path / "zones.qml").read_text(encoding="utf-8")
    assert "sqrt" in (tmp_path / "flows.qml").read_text(encoding="utf-8")


def test_r_reads_geopackage_and_csv(release, tmp_path):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    if subprocess.run(
        ["Rscript", "-e", "library(sf)"], capture_output=True, check=False
    ).returncode:
        pytest.skip("the R package sf is not installed")
    printed = run("Rscript", READERS / "read_release.R", release, tmp_path / "origins.png")
    flows = pq.read_table(release / "flows.parquet")
    assert printed.startswith(f"{pc.sum(flows['trips']).as_py()} trips in {flows.num_rows} cells")
    assert (tmp_path / "origins.png").stat().st_size > 1000


def test_the_graphic_for_a_newspaper_says_what_it_shows(release, tmp_path):
    run(sys.executable, READERS / "newspaper.py", release, tmp_path)
    assert (tmp_path / "flows.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "flows.svg").read_text(encoding="utf-8")
    caption = (tmp_path / "caption.txt").read_text(encoding="utf-8")
    assert "every published cell holds at least 5 people" in caption
    assert "Source: synthetic survey" in caption
