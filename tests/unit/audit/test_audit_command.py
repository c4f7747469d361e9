"""Exit codes of `flowveil audit`."""

from __future__ import annotations

import json

import h3
import numpy as np
import pyarrow as pa
from click.testing import CliRunner

import flowveil
from flowveil.cli import cli


def released(folder, lat: float, lon: float) -> str:
    rng = np.random.default_rng(0)
    ends = rng.normal(0, 0.01, (400, 4)) + np.array([lat, lon, lat, lon])
    columns = dict(zip(("start_lat", "start_lon", "end_lat", "end_lon"), ends.T, strict=True))
    flows = flowveil.read_trips(pa.table(columns), resolution=8)
    flowveil.anonymize(flows, "twincut", k=10).write(folder)
    return str(folder)


def test_exit_codes_are_the_three_verdicts(tmp_path):
    here = released(tmp_path / "here", 48.85, 2.35)
    away = released(tmp_path / "away", 40.71, -74.0)
    done = CliRunner().invoke(cli, ["audit", here])
    assert done.exit_code == 0, done.output
    assert "Nothing below the guarantee was found, and everything was compared." in done.output
    done = CliRunner().invoke(cli, ["audit", here, away, "--out", str(tmp_path / "audit")])
    assert done.exit_code == 4
    lines = done.output.splitlines()
    assert lines[0] == "Not everything could be compared."
    assert lines[1].startswith("Not compared: ")
    assert "othing below the guarantee was found" not in done.output
    assert "othing was found" not in (tmp_path / "audit" / "audit.html").read_text("utf-8")
    told = json.loads(CliRunner().invoke(cli, ["audit", here, away, "--json"]).stdout)
    assert (told["verdict"], len(told["not_compared"])) == ("not everything compared", 1)
    # The second suppresses three trips that the first counts together with fifty.
    one, other, *_ = h3.cell_to_children("871fb4662ffffff", 8)
    table = pa.table({"start_h3": [one] * 50 + [other] * 3, "end_h3": ["881fb46601fffff"] * 53})
    for name, share in (("whole", 0.0), ("part", 0.3)):
        flows = flowveil.read_trips(table, resolution=8)
        flowveil.anonymize(flows, "twincut", k=5, max_suppressed=share, hierarchy="h3").write(tmp_path / name)
    done = CliRunner().invoke(cli, ["audit", str(tmp_path / "whole"), str(tmp_path / "part")])
    assert done.exit_code == 3
    assert done.output.startswith("Something is disclosed.")
