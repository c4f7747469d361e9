"""Exit codes of `flowveil audit`, and what it finds in published folders."""

from __future__ import annotations

import json

import h3
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv

import flowveil
from flowveil.apps.cli import cli
from unit.apps.cli.test_cli import run


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
    message = json.loads(CliRunner().invoke(cli, ["audit", here, away, "--json"]).stdout)
    assert (message["verdict"], len(message["not_compared"])) == ("not everything compared", 1)
    # The second suppresses three trips that the first counts together with fifty.
    one, other, *_ = h3.cell_to_children("871fb4662ffffff", 8)
    table = pa.table({"start_h3": [one] * 50 + [other] * 3, "end_h3": ["881fb46601fffff"] * 53})
    for name, share in (("whole", 0.0), ("part", 0.3)):
        flows = flowveil.read_trips(table, resolution=8)
        flowveil.anonymize(flows, "twincut", k=5, max_suppressed=share, hierarchy="h3").write(
            tmp_path / name
        )
    done = CliRunner().invoke(cli, ["audit", str(tmp_path / "whole"), str(tmp_path / "part")])
    assert done.exit_code == 3
    assert done.output.startswith("Something is disclosed.")


def test_trips_are_placed_in_the_first_layer_that_counts_them(tmp_path):
    ends = np.random.default_rng(2).normal(0, 0.02, (3_000, 4)) + np.array(
        [48.85, 2.35, 48.85, 2.35]
    )
    columns = dict(zip(("start_lat", "start_lon", "end_lat", "end_lon"), ends.T, strict=True))
    csv.write_csv(pa.table(columns), tmp_path / "trips.csv")
    flows = flowveil.read_trips(tmp_path / "trips.csv", resolution=9)
    release = flowveil.anonymize(flows, "layercut", k=5)
    assert len(set(release.flows["layer"].to_pylist())) > 2
    folder = str(release.write(tmp_path / "layers"))
    done = CliRunner().invoke(cli, ["audit", folder, "--against", str(tmp_path / "trips.csv")])
    assert "Every cell has the trips that it states." in done.output


def test_derived_releases_reveal_nothing_more_than_their_sources(tmp_path, capsys):
    source = released(tmp_path / "source", 48.85, 2.35)
    assert run("derive", source, "--out", tmp_path / "coarse", "--level", 7) == 0
    for releases, code in (((source, tmp_path / "coarse"), 0), ((tmp_path / "coarse", source), 0)):
        assert run("audit", *releases) == code
    # Without its source, it is compared like any other release.
    other = released(tmp_path / "other", 48.851, 2.351)
    capsys.readouterr()
    run("audit", other, tmp_path / "coarse", "--json")
    alone = json.loads(capsys.readouterr().out.splitlines()[0])
    assert alone["subtraction"]["compared_cells"] or alone["not_compared"]
    # Places in the list stay those of the user.
    run("audit", tmp_path / "coarse", source, other, "--json")
    places = json.loads(capsys.readouterr().out.splitlines()[0])["subtraction"]["unchecked"]
    assert all(0 not in one["releases"] for one in places)


FINE = sorted(h3.cell_to_children("871fb4662ffffff", 9))
QUARTER = "2024-01-01/2024-03-31"
TILE, OTHER, FEW = FINE[0], FINE[1], FINE[2]


def rows(n: int, tile: str = TILE, *, sex: str = "f", age: str = "old", month: int = 1) -> pa.Table:
    """Trips inside one tile."""
    columns = {
        "start_h3": tile,
        "end_h3": tile,
        "sex": sex,
        "age": age,
        "t": f"2024-{month:02}-05 08:00:00",
    }
    return pa.table({name: [value] * n for name, value in columns.items()})


SEX_AND_AGE = [rows(10), rows(10, sex="m"), rows(10, age="young"), rows(10, sex="m", age="young")]
YEAR = [rows(20), rows(1, month=2), rows(20, month=3)]
#: Trips, and two or three releases of them: what a reader computes is 3, 1, 3 and 1 trips.
CASES = {
    "sex, then age": (
        [*SEX_AND_AGE, rows(1, age="child"), rows(2, sex="m", age="child")],
        [("--by", "sex", "--by-many"), ("--by", "age", "--by-many")],
    ),
    "sex, then sex and age": (
        [rows(20), rows(1, age="young"), rows(30, sex="m")],
        [("--by", "sex", "--by-many"), ("--by", "sex,age", "--by-many")],
    ),
    "fine zones, then sex on coarser ones": (
        [
            rows(15),
            rows(15, OTHER),
            rows(15, sex="m"),
            rows(15, OTHER, sex="m"),
            rows(3, FEW, sex="m"),
        ],
        [
            ("--hierarchy", "h3", "--method", "suppression"),
            ("--by", "sex", "--by-many", "--resolution", 7),
        ],
    ),
    "a quarter, then January, then March": (
        YEAR,
        [
            ("--time", "t", "--set", f"slices.during=2024-0{m}") if m else ("--period", QUARTER)
            for m in (0, 1, 3)
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_what_published_folders_reveal_together_is_found_and_the_ledger_refuses_it(
    name, tmp_path, capsys
):
    parts, requests = CASES[name]
    csv.write_csv(pa.concat_tables(parts), tmp_path / "trips.csv")
    asked = (
        "anonymize",
        tmp_path / "trips.csv",
        "--k",
        10,
        "--protect",
        "trips",
        "--no-person",
        "--resolution",
        9,
    )
    asked += ("--method", "twincut", "--max-suppressed", 0.5)
    codes, folders = [], []
    for n, options in enumerate(requests):
        folders.append(tmp_path / f"release-{n}")
        assert run(*asked, *options, "--out", folders[-1]) == 0
        # The ledger needs the days of the quarter, too.
        timed = ("--time", "t") if "--period" in options else ()
        ledger = ("--ledger", tmp_path / "ledger", "--out", tmp_path / f"recorded-{n}")
        codes.append(run(*asked, *options, *timed, *ledger))
    assert codes == [0, *[3] * (len(requests) - 1)]
    for order in (folders, folders[::-1]):
        capsys.readouterr()
        assert run("audit", *order) == 3
        assert "below the guarantee" in capsys.readouterr().out
