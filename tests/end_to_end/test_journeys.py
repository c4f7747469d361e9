"""Nine kinds of input go from file to verified release in at most three commands that the messages
suggest."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import flowveil
from flowveil.apps.cli import main

RNG = np.random.default_rng(7)
ZONES = [f"E0200{i:04}" for i in range(16)]
#: Commands that messages suggest, in backticks or after a word.
_COMMAND = re.compile(r"`(flowveil [^`]+)`|^(?:Verify|Next): (flowveil .+)$", re.MULTILINE)
#: The first options that a message suggests, with their values.
_OPTIONS = re.compile(
    r"(?:Hint: |Say which: |: )((?:--[a-z-]+(?: (?!--)(?:'[^']*'|[^\s,;?]+))? ?)+)"
)


def points(n: int) -> tuple[list[float], list[float]]:
    return (59.91 + RNG.normal(0, 0.01, n)).round(6).tolist(), (
        10.75 + RNG.normal(0, 0.02, n)
    ).round(6).tolist()


def write(path: Path, **columns: object) -> None:
    pa.csv.write_csv(pa.table(columns), path)


def zones(folder: Path) -> None:
    squares = []
    for i, code in enumerate(ZONES):
        x, y = -1.6 + 0.02 * (i % 4), 53.7 + 0.02 * (i // 4)
        ring = [[x, y], [x + 0.02, y], [x + 0.02, y + 0.02], [x, y + 0.02], [x, y]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        squares.append({"type": "Feature", "properties": {"MSOA11CD": code}, "geometry": shape})
    (folder / "zones.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": squares})
    )


def numbered_zones(folder: Path) -> None:
    lat, lon = points(16)
    write(folder / "taz.csv", taz=list(range(1, 17)), lat=lat, lon=lon)


def bike(folder: Path) -> str:
    ends = dict(
        zip(
            ("start_lat", "start_lng", "end_lat", "end_lng"),
            (*points(400), *points(400)),
            strict=True,
        )
    )
    write(
        folder / "bike.csv",
        ride_id=[f"T{i:05}" for i in range(400)],
        rider_id=[i % 90 for i in range(400)],
        **ends,
    )
    return "flowveil anonymize bike.csv --k 5 --out release"


def stations(folder: Path) -> str:
    lat, lon = points(12)
    write(folder / "stations.csv", station_id=list(range(100, 112)), lat=lat, lon=lon)
    start, end = (RNG.integers(100, 112, 500).tolist() for _ in range(2))
    write(
        folder / "trips.csv", start_station_id=start, end_station_id=end, duration=list(range(500))
    )
    return "flowveil anonymize trips.csv --zones stations.csv --k 5 --out release"


def office(folder: Path) -> str:
    zones(folder)
    pairs = [(o, d) for o in ZONES for d in ZONES]
    counts, cars = RNG.poisson(6, 256).tolist(), RNG.poisson(3, 256).tolist()
    home, work = zip(*pairs, strict=True)
    write(
        folder / "pairs.csv",
        **{"Residence": home, "Workplace": work, "all": counts, "car_driver": cars},
    )
    return "flowveil anonymize pairs.csv --zones zones.geojson --k 5 --out release"


def hourly(folder: Path) -> str:
    zones(folder)
    ends = {end: [ZONES[i] for i in RNG.integers(0, 16, 900)] for end in ("origin", "destination")}
    hours = [f"{hour}.0" for hour in RNG.integers(7, 10, 900).tolist()]
    write(folder / "volumes.csv", **ends, hour=hours, trips=RNG.gamma(2, 8, 900).round(3).tolist())
    return (
        "flowveil anonymize volumes.csv --zones zones.geojson --trips trips --time hour --every 1h"
        " --out release"
    )


def gps(folder: Path) -> str:
    cab, minute = (
        part.ravel().tolist() for part in np.meshgrid(range(30), range(240), indexing="ij")
    )
    lat, lon = points(len(cab))
    when = [f"2024-05-01T{m // 60:02}:{m % 60:02}:00" for m in minute]
    occupied = [m // 20 % 2 for m in minute]
    write(
        folder / "points.csv",
        taxi_id=[f"c{c}" for c in cab],
        time=when,
        lat=lat,
        lon=lon,
        occupancy=occupied,
    )
    return "flowveil describe points.csv"


def survey(folder: Path) -> str:
    numbered_zones(folder)
    ends = {end: RNG.integers(1, 17, 600).tolist() for end in ("orig_taz", "dest_taz")}
    households = [i // 4 for i in range(600)]
    write(
        folder / "survey.csv",
        household_id=households,
        factor=RNG.uniform(20, 90, 600).tolist(),
        **ends,
    )
    return "flowveil anonymize survey.csv --zones taz.csv --weight factor --k 5 --out release"


def matrices(folder: Path) -> str:
    numbered_zones(folder)
    openmatrix = pytest.importorskip("openmatrix")
    with openmatrix.open_file(str(folder / "model.omx"), "w") as file:
        file["car"], file["bus"] = RNG.gamma(2, 4, (16, 16)), RNG.gamma(1, 3, (16, 16))
        file.create_mapping("taz", list(range(1, 17)))
        file.create_mapping("row", list(range(16)))
    return "flowveil anonymize model.omx --zones taz.csv --k 5 --out release"


def wide(folder: Path) -> str:
    numbered_zones(folder)
    rows = [
        ",".join(map(str, (i + 1, *row))) for i, row in enumerate(RNG.poisson(6, (16, 16)).tolist())
    ]
    (folder / "wide.csv").write_text(
        "\n".join([",".join(["zone", *map(str, range(1, 17))]), *rows]) + "\n"
    )
    return "flowveil anonymize wide.csv --zones taz.csv --k 5 --out release"


def suggested(message: str, command: str) -> str:
    """Returns the command that a message suggests.

    Its own, or the last one with the suggested options.
    """
    found = _COMMAND.search(message)
    if found is not None:
        return (found[1] or found[2]).replace("INPUT", shlex.split(command)[2])
    options = _OPTIONS.search(message)
    assert options is not None, message
    given = options[1].rstrip(". ")
    name = given.split()[0]
    kept = re.sub(rf"{name} \S+ ", "", command) if name != "--set" else command
    return f"{kept} {given}"


@pytest.mark.parametrize("journey", [bike, stations, office, hourly, gps, survey, matrices, wide])
def test_a_file_becomes_a_verified_release_in_three_suggested_commands(
    journey: Callable[[Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command = journey(tmp_path)
    for _ in range(4):
        try:
            main(shlex.split(command)[1:])
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        message = "".join(capsys.readouterr())
        assert code in (0, 2), message
        if command.startswith("flowveil verify"):
            assert code == 0, message
            assert "holds" in message
            return
        command = suggested(message, command)
    pytest.fail(f"After three suggested commands, the next one is: {command}")


def test_a_data_frame_becomes_a_verified_release_by_the_arguments_that_messages_suggest(
    tmp_path: Path,
) -> None:
    pandas = pytest.importorskip("pandas")
    bike(tmp_path)
    frame = pandas.read_csv(tmp_path / "bike.csv")
    given: dict[str, str] = {}
    with pytest.raises(flowveil.ParameterError) as refused:
        flowveil.read_trips(frame, **given)
    given |= dict(re.findall(r"(\w+)='(\w+)'", str(refused.value))[:1])
    release = flowveil.anonymize(flowveil.read_trips(frame, **given), k=5)
    release.write(tmp_path / "release")
    assert flowveil.verify_release(tmp_path / "release", against=frame).holds
