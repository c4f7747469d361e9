"""A second column that adds up, from a file to a verified release: run with sources that have it (`test_columns`)."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import h3
import numpy as np
import pytest
from click.testing import CliRunner
from flowveil.published.schema import schema_text

import flowveil
from flowveil.cli import cli
from flowveil.errors import DataError
from flowveil.guarantee import Guarantee
from flowveil.slices import SlicedFlows

HOW = {"origin_tile": "o", "destination_tile": "d", "resolution": 9, "vehicles": "cars", "weight": "w"}
K = 5


def write_trips(path: Path, cars: np.ndarray) -> Path:
    """Trips with weights, and so many vehicles each."""
    tiles = sorted(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 9), 2))
    rng = np.random.default_rng(5)
    # Squares of a number between 0 and 1 leave few trips at one end of the list.
    ends = (len(tiles) * rng.random((2, len(cars))) ** 2).astype(int)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["o", "d", "cars", "w", "sex"])
        for i, (o, d) in enumerate(ends.T.tolist()):
            rows.writerow([tiles[o], tiles[d], cars[i], 1 + i % 7, "fm"[i % 2]])
    return path


def columns(read: SlicedFlows) -> list[list[float]]:
    """Weights and vehicles of all flows of all slices."""
    return [part.volume(name).tolist() for part in read.slices for name in ("weight", "vehicles")]


def run(*words: object) -> str:
    """What a command prints, which must not fail."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def check_reading(path: Path, cars: np.ndarray, folder: Path) -> None:
    """Both engines, slices on disk and merges carry the column; what it cannot hold is refused in its own words."""
    flows, sliced = flowveil.read_trips(path, **HOW), flowveil.read_slices(path, by="sex", **HOW)
    nowhere = np.zeros(len(flows), np.int32)
    assert flows.merge(nowhere, nowhere, 1, 1).cells.vehicles.tolist() == [round(float(cars.sum()), 6)]
    on_disk = sliced.on_disk(str(folder))
    assert columns(on_disk) == columns(sliced)
    assert not any(part.vehicles.flags.owndata for part in on_disk.slices)
    assert sliced.whole.vehicles.tolist() == flows.vehicles.tolist()
    # Methods add up in many orders, so that what is protected must be whole numbers while they search.
    whole, asked = Guarantee.resolve(flows, k=K, protect="vehicles").to_fixed_point(flows)
    assert whole.vehicles.tolist() == [round(million) for million in 1e6 * flows.vehicles]
    assert (whole.vehicles.dtype, asked.vehicles) == (np.int64, K * 1_000_000)
    if "spark" in sys.argv:
        assert columns(flowveil.read_slices(path, by="sex", engine="spark", **HOW)) == columns(sliced)
    with pytest.raises(DataError, match=r"a negative number of vehicles: 1 row \(row 1\)\n- an infinite number of"):
        flowveil.read_trips(write_trips(folder / "wrong.csv", np.array([-1.0, np.inf, 1.0])), **HOW)


def check_releases(path: Path, cars: np.ndarray, folder: Path) -> None:
    """Cells reach the threshold in every release; where they do not, the recount says so."""
    asked = ["--origin-tile", "o", "--destination-tile", "d", "--resolution", 9, "--vehicles", "cars", "--weight", "w"]
    asked += ["--protect", "vehicles", "--k", K]
    ways = {"fine": ["twincut"], "few": ["suppression", "--max-suppressed", 0.9], "sliced": ["twincut", "--by", "sex"]}
    for name, way in ways.items():
        out = folder / name
        run("anonymize", path, *asked, "--method", *way, "--out", out)
        assert "holds at least 5 vehicles" in run("verify", out, "--against", path, "--protect", "vehicles", "--k", K)
    fewer = write_trips(folder / "fewer.csv", np.minimum(cars, 0.1))
    found = flowveil.verify_folder(folder / "fine", against=fewer)
    assert any("cells have fewer than 5 vehicles" in line for line in found), found


if __name__ == "__main__":
    here = Path(sys.argv[1])
    # Before it is read for the first time: the schema knows the unit.
    (Path(flowveil.__file__).parent / "verify" / "report.schema.json").write_text(schema_text(), encoding="utf-8")
    # Tenths, of which sums of doubles are off.
    vehicles = np.random.default_rng(6).choice([0, 0.1, 0.2, 0.7, 1, 3], 900)
    trips = write_trips(here / "trips.csv", vehicles)
    check_reading(trips, vehicles, here)
    check_releases(trips, vehicles, here)
