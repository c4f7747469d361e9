"""The command in every report makes the release again, byte by byte, once its placeholders are
filled in."""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import flowveil
from conftest import trip_table
from contract.cases import RUNS
from flowveil.apps.cli import main
from samples.drafts import unchecked

#: What a report leaves out: paths. A command names them by these words.
PLACEHOLDERS = ("INPUT", "MAP", "AREA", "CONTEXT", "EARLIER", "PLACES", "LEDGER", "DIR")


def run(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """Trips with persons, weights, times and attributes; the same between zones of a user's map.

    An area.
    """
    folder = tmp_path_factory.mktemp("again")
    n = 240
    times = pa.array([f"2024-03-0{4 + i % 2}T0{7 + i % 3}:15:00" for i in range(n)])
    trips = (
        trip_table(n)
        .append_column("sex", pa.array(["f", "m"] * (n // 2)))
        .append_column("t", times)
    )
    zone = pa.array([f"z{i * i % 9}" for i in range(n)])
    trips = trips.append_column("from", zone).append_column("to", pa.array(zone.to_pylist()[::-1]))
    csv.write_csv(trips, folder / "trips.csv")
    y, x = np.divmod(np.arange(9), 3)
    named = {"zone": [f"z{i}" for i in range(9)], "label": [f"Place {i}" for i in range(9)]}
    csv.write_csv(pa.table({**named, "y": y / 50, "x": x / 40}), folder / "map.csv")
    sectors = {"code": [f"z{i}" for i in range(9)], "sector": [f"s{i // 3}" for i in range(9)]}
    csv.write_csv(
        pa.table({**sectors, "name": named["label"], "lat": y / 50, "lon": x / 40}),
        folder / "sectors.csv",
    )
    box = {
        "type": "Polygon",
        "coordinates": [[[2.2, 48.7], [2.5, 48.7], [2.5, 49.0], [2.2, 49.0], [2.2, 48.7]]],
    }
    drawn = {
        "type": "FeatureCollection",
        "features": [{"type": "Feature", "properties": {}, "geometry": box}],
    }
    (folder / "area.geojson").write_text(json.dumps(drawn), "utf-8")
    places = {
        "INPUT": "trips.csv",
        "MAP": "map.csv",
        "SECTORS": "sectors.csv",
        "AREA": "area.geojson",
    }
    return {name: str(folder / place) for name, place in places.items()}


@pytest.fixture(scope="module")
def flows(files):
    return flowveil.read_trips(files["INPUT"], resolution=7, weight="weight")


def again(folder: Path, files: dict[str, str], other: Path) -> None:
    """Run the command of a release into another folder."""
    command = json.loads((folder / "report.json").read_text("utf-8"))["published"]["command"]
    places = {**files, "DIR": str(other)}
    words = [places.get(word, word) for word in shlex.split(command)]
    assert words[0] == "flowveil"
    assert not set(words) & set(PLACEHOLDERS)
    # What has the bytes of a release that was recounted need not be recounted again.
    with unchecked():
        assert run(*words[1:], "--quiet") == 0, command


def same(one: Path, two: Path) -> None:
    names = sorted(p.name for p in one.iterdir())
    assert names == sorted(p.name for p in two.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


@pytest.mark.parametrize("number", range(len(RUNS)), ids=[str(run) for run in RUNS])
@pytest.mark.slow
def test_every_method(number, files, flows, tmp_path):
    chosen = RUNS[number]
    guarantees = (
        {"k": 5, "protect": "trips", "max_suppressed": 0.25},
        {"k": 4},
        {"k": 2, "protect": ("trips", "people"), "allow_small_k": True, "l": 2},
        {"k": 5, "protect": "population", "population_only": True, "k_population": 600.0},
    )
    asked = guarantees[number % len(guarantees)]
    try:
        release = flowveil.anonymize(
            flows, chosen.method, **{"max_suppressed": 0.5, **asked}, **chosen.options
        )
    except flowveil.InfeasibleError:
        release = flowveil.anonymize(
            flows, chosen.method, k=5, protect="trips", max_suppressed=0.9, **chosen.options
        )
    # The recount of a release does not depend on the options of its method.
    with unchecked() if chosen.options else nullcontext():
        folder = release.write(tmp_path / "one", formats="geojson,csv" if number % 2 else ())
    again(folder, files, tmp_path / "two")
    same(folder, tmp_path / "two")


MAPPED = ["--zones", "MAP"]
MAPPED += [
    "--set",
    "zones.zones_lat=y",
    "--set",
    "zones.zones_lon=x",
    "--set",
    "zones.zones_name=label",
]
ENDS = ["--origin-tile", "from", "--destination-tile", "to"]
TREE = ["--zones", "SECTORS", "--zones-parent", "sector", "--set", "zones.zones_root=everywhere"]


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "sex", "--time", "t", "--every", "1h", "--by-many", "--protect", "trips"],
        ["--by", "sex", "--common-zones", "--by-many"],
        [
            "--by",
            "sex",
            "--by-many",
            "--protect",
            "trips",
            "--method",
            "suppression",
        ],
        [
            *("--no-person", "--max-dropped", "0.2", "--set", "input.skip_unknown=true"),
            *("--set", "people.person_case=keep", "--within", "AREA"),
        ],
        [
            *(
                "--set",
                "output.basemap=https://tiles.example.org/{z}/{x}/{y}.png",
                "--set",
                "output.replace_stronger=true",
            ),
            *("--within", "2.2,48.7,2.5,49.0", "--same-zones"),
        ],
        [*ENDS, *MAPPED, "--format", "csv,flowmap"],
        [*ENDS, *TREE],
    ],
    ids=lambda words: " ".join(words)[-40:],
)
@pytest.mark.slow
def test_every_option(words, files, tmp_path):
    filled = [files.get(word, word) for word in words]
    tiles = [] if "--zones" in words else ["--resolution", "7"]
    asked = ["anonymize", files["INPUT"], "--k", "5", "--max-suppressed", "0.5", *tiles, *filled]
    assert run(*asked, "--out", str(tmp_path / "one"), "--quiet") == 0
    where = {**files, "MAP": files["SECTORS"]} if "SECTORS" in words else files
    again(tmp_path / "one", where, tmp_path / "two")
    same(tmp_path / "one", tmp_path / "two")


def test_noise_is_all_that_differs(files, tmp_path):
    noise = [
        "--method",
        "laplace",
        "--option",
        "epsilon=2",
        "--option",
        "bound=3",
        "--option",
        "region=observed",
    ]
    asked = [
        "anonymize",
        files["INPUT"],
        "--resolution",
        "6",
        *noise,
        "--out",
        str(tmp_path / "one"),
        "--quiet",
    ]
    assert run(*asked) == 0
    again(tmp_path / "one", files, tmp_path / "two")
    one, two = (
        json.loads((tmp_path / name / "report.json").read_text("utf-8")) for name in ("one", "two")
    )
    assert one["published"]["command"] == two["published"]["command"]
    assert {**one, "published": None} == {**two, "published": None}
    names = [sorted(p.name for p in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert names[0] == names[1]
