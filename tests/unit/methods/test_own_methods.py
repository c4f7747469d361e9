"""Methods from elsewhere: functions, `Method`s, and those of other packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import flowveil
from conftest import trip_table
from flowveil.apps.cli import cli
from samples.processes import in_this_process
from samples.segmented import own_method

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flowveil-quarters"


@pytest.fixture(scope="module")
def flows():
    return flowveil.read_trips(trip_table(), resolution=6)


def test_a_function_is_a_method_and_its_release_verifies(flows, tmp_path):
    release = flowveil.anonymize(flows, own_method, k=5, protect="trips", flag=True)
    assert release.method == "own-method"
    assert release.flows.equals(
        flowveil.anonymize(flows, "suppression", k=5, protect="trips").flows
    )
    folder = release.write(tmp_path / "r")
    assert json.loads((folder / "report.json").read_text("utf-8"))["parameters"]["options"] == {
        "flag": True
    }
    assert flowveil.verify_release(folder, against=trip_table()).findings == ()
    named = flowveil.Method("mine", own_method, "tiles")
    assert flowveil.anonymize(flows, named, k=5, protect="trips").method == "mine"


def test_a_method_that_publishes_short_cells_is_stopped(flows):
    def careless(flows, guarantee, *, max_suppressed):  # noqa: ARG001
        return flowveil.Plan.from_cuts(
            flows, flows.origins.leaf_node, flows.destinations.leaf_node, flows.trips > 0
        )

    with pytest.raises(flowveil.GuaranteeError, match="careless"):
        flowveil.anonymize(flows, careless, k=50)


def test_a_method_that_suppresses_more_than_the_limit_is_refused(flows):
    def wasteful(flows, guarantee, *, max_suppressed):  # noqa: ARG001
        kept = np.zeros(len(flows), dtype=bool)
        kept[np.argmax(flows.trips)] = True
        return flowveil.Plan.from_cuts(
            flows, flows.origins.leaf_node, flows.destinations.leaf_node, kept
        )

    with pytest.raises(
        flowveil.InfeasibleError,
        match=r"'wasteful' suppresses \d+\.\d% of the trips; allowed are 50",
    ):
        flowveil.anonymize(flows, wasteful, k=3, protect="trips", max_suppressed=0.5)
    assert (
        len(flowveil.anonymize(flows, wasteful, k=3, protect="trips", max_suppressed=0.9999).flows)
        == 1
    )


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (3, "a function or a Method"),
        (lambda _: None, "name"),
        (flowveil.Method("twincut", own_method, ""), "user-defined"),
    ],
)
def test_an_invalid_method_is_refused(flows, method, match):
    with pytest.raises(flowveil.ParameterError, match=match):
        flowveil.anonymize(flows, method)


@pytest.mark.slow
def test_compare_and_study_run_it_in_worker_processes(flows, tmp_path):
    found = flowveil.compare(flows, methods=["suppression", own_method], k=5, protect="trips")
    first, second = found.runs
    assert (second.method, second.status) == ("own-method", "done")
    assert second.flows.equals(first.flows)
    assert found.table.column("method").to_pylist() == ["suppression", "own-method"]
    table = trip_table().append_column("sex", [["f", "m"] * 200])
    with in_this_process():
        study = flowveil.run_study(
            table,
            tmp_path / "s",
            by="sex",
            methods=[own_method],
            protections=["trips"],
            k=5,
            resolution=6,
        )
    assert {row["status"] for row in study.rows} == {"done"}
    with pytest.raises(flowveil.ParameterError, match="worker process"):
        flowveil.compare(flows, methods=[flowveil.Method("mine", lambda _: None, "")])


def wheel_of(source: Path, folder: Path) -> Path:
    """A wheel of a package of one module, made from its pyproject.toml.

    No build system is needed.
    """
    about = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
    project = about["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in entries.items())
        for group, entries in project["entry-points"].items()
    )
    files = {
        f"{m}.py": (source / f"{m}.py").read_text("utf-8")
        for m in about["tool"]["setuptools"]["py-modules"]
    }
    files[f"{stem}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n"
    )
    files[f"{stem}.dist-info/WHEEL"] = (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{stem}.dist-info/entry_points.txt"] = points
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{name},,\n" for name in [*files, record])
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return folder / f"{stem}-py3-none-any.whl"


@pytest.mark.slow
def test_an_installed_package_brings_a_method(tmp_path, trips_csv):
    site = tmp_path / "site"
    # To install a wheel of Python files is to unpack it.
    with zipfile.ZipFile(wheel_of(EXAMPLE, tmp_path)) as wheel:
        wheel.extractall(site)
    paths = os.pathsep.join([str(site), *(p for p in sys.path if p)])
    flowveil_ = [sys.executable, "-m", "flowveil"]
    asked = [
        "anonymize",
        trips_csv,
        "--k",
        "5",
        "--resolution",
        "8",
        "--method",
        "quarters",
        "--option",
        "levels=3",
    ]
    environment = {**os.environ, "PYTHONPATH": paths}
    words = [*flowveil_, *asked, "--out", tmp_path / "r"]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    # Who verifies need not have the package.
    verified = CliRunner().invoke(
        cli, ["verify", str(tmp_path / "r"), "--against", str(trips_csv), "--strict"]
    )
    assert verified.exit_code == 0, verified.output
    assert json.loads((tmp_path / "r" / "report.json").read_text("utf-8"))["method"] == "quarters"
