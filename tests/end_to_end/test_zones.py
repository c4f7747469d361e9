"""Trips between the zones of a user's own map: read, anonymise, publish, verify."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from samples.drafts import unchecked
from samples.parts import first_rows
from samples.releases import edit_report, edit_table

#: Codes with leading zeros and blanks: what number readers spoil.
ZONES = pa.table(
    {
        "zone": ["001", "002", "003", "010", "011 b", "012"],
        "district": ["North", "North", "North", "South", "South", "South"],
        "lat": [48.90, 48.91, 48.92, 48.80, 48.81, 48.82],
        "lon": [2.30, 2.31, 2.33, 2.30, 2.32, 2.35],
    }
)


def trips_between(codes: list[str], n: int = 500, *, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    pick = rng.choice(len(codes), size=(n, 2), p=np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03]))
    return pa.table(
        {"origin": [codes[i] for i in pick[:, 0]], "destination": [codes[i] for i in pick[:, 1]]}
    )


@pytest.fixture(autouse=True)
def _no_draft_is_recounted() -> Iterator[None]:
    """What is published here is verified by the command, which recounts more."""
    with unchecked():
        yield


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    zones, trips = tmp_path / "zones.csv", tmp_path / "trips.csv"
    csv.write_csv(ZONES, zones)
    csv.write_csv(trips_between(ZONES["zone"].to_pylist()), trips)
    return zones, trips


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.mark.parametrize(
    ("method", "levels"),
    list(
        zip(
            ["twincut", "odkanon", "atg-dual", "atg-soft", "oigh", "suppression"],
            [["--zones-levels", "district,zone"], []] * 3,
            strict=True,
        )
    ),
)
def test_codes_survive_from_file_to_release(tmp_path, files, method, levels, capsys):
    zones, trips = files
    out = tmp_path / "release"
    arguments = ["--zones", zones, *levels, "--k", 10, "--method", method, "--out", out]
    assert run("anonymize", trips, *arguments) == 0, capsys.readouterr().err
    published = pq.read_table(out / "flows.parquet").to_pydict()
    tiles = set(ZONES["zone"].to_pylist())
    assert tiles & {*published["origin_zone"], *published["destination_zone"]}
    if levels:
        assert set(published["origin_zone"]) <= tiles | {"North", "South", "all"}
    assert min(published["trips"]) >= 10
    assert run("verify", out, "--against", trips, "--zones", zones) == 0, capsys.readouterr().err
    assert json.loads((out / "report.json").read_text())["parameters"]["resolution"] is None


@pytest.mark.parametrize("slices", [[], ["--by", "day"]])
def test_tiles_are_those_of_the_map_seen_or_not_and_verify_counts_them(
    tmp_path, files, slices, capsys
):
    zones, _ = files
    codes, trips, out = ZONES["zone"].to_pylist(), tmp_path / "few.csv", tmp_path / "release"
    # Two of three tiles of the south are never seen; its zone has three all the same.
    seen = trips_between([*codes[:4], "010", "010"], seed=1)
    csv.write_csv(
        seen.append_column("day", pa.array(["Monday", "Tuesday"] * (len(seen) // 2))), trips
    )
    reading = ["--zones", zones, "--zones-levels", "district,zone"]
    arguments = [*reading, *slices, "--k", 40, "--method", "oigh", "--out", out]
    assert run("anonymize", trips, *arguments) == 0, capsys.readouterr().err
    large = {"North": 3, "South": 3, "all": 6}
    tiles = {r["zone"]: r["tiles"] for r in pq.read_table(out / "zones.parquet").to_pylist()}
    assert tiles == {zone: large.get(zone, 1) for zone in tiles}
    assert {"South", "all"} & set(tiles)

    def count_those_seen(rows):
        return [{**r, "tiles": {"South": 1, "all": 4}.get(r["zone"], r["tiles"])} for r in rows]

    edit_table(out, "zones.parquet", count_those_seen)
    assert run("verify", out, "--against", trips, "--zones", zones) == 3
    assert "zones.parquet: is not what" in capsys.readouterr().err


def test_verify_needs_the_map(tmp_path, files, capsys):
    zones, trips = files
    assert run("anonymize", trips, "--zones", zones, "--out", tmp_path / "r") == 0
    assert run("verify", tmp_path / "r", "--against", trips) == 2
    assert "--zones" in capsys.readouterr().err


def test_zone_numbers_match_text_codes():
    zones = pa.table(
        {"LocationID": ["1", "2", "3"], "lat": [1.0, 2.0, 3.0], "lon": [1.0, 2.0, 3.0]}
    )
    trips = {"PULocationID": [1, 1, 2, 2], "DOLocationID": [2, 3, 3, 3]}
    for kind in (pa.int64(), pa.float64(), pa.string()):
        columns = {
            name: pa.array(values).cast(pa.int64()).cast(kind) for name, values in trips.items()
        }
        flows = flowveil.read_trips(pa.table(columns), zones=zones)
        assert flows.intake.columns == {
            "origin_tile": "PULocationID",
            "destination_tile": "DOLocationID",
        }
        assert flows.origins.code[flows.origins.leaf_node].tolist() == ["1", "2"]
        assert flows.trips.tolist() == [1, 1, 2]


def test_unknown_zones_are_refused_or_left_out():
    trips = pa.table({"origin": ["001"] * 30 + ["264"], "destination": ["002"] * 31})
    with pytest.raises(DataError, match="not on the map"):
        flowveil.read_trips(trips, zones=ZONES)
    flows = flowveil.read_trips(trips, zones=ZONES, skip_unknown=True)
    assert flows.intake.left_out == {"unknown tile": 1}
    assert flows.trips.tolist() == [30]


def test_coordinates_do_not_go_with_a_map():
    trips = pa.table({n: [1.0] for n in ("start_lat", "start_lon", "end_lat", "end_lon")})
    with pytest.raises(ParameterError, match="codes of its zones"):
        flowveil.read_trips(
            trips, zones=ZONES, origin="start_lat,start_lon", destination="end_lat,end_lon"
        )


@pytest.mark.real
def test_taxi_zones_of_new_york(shared_data, tmp_path, capsys):
    folder = shared_data / "nyc_green_taxi_zones"
    trips, zones = first_rows(folder / "trips.parquet", 60_000, tmp_path), folder / "zones.geojson"
    how = ["--zones", zones, "--zones-tile", "LocationID", "--set", "input.skip_unknown=true"]
    assert run("anonymize", trips, *how, "--method", "atg-dual", "--out", tmp_path / "r") == 0, (
        capsys.readouterr().err
    )
    assert (
        run(
            "verify",
            tmp_path / "r",
            "--against",
            trips,
            "--zones",
            zones,
            "--set",
            "input.skip_unknown=true",
        )
        == 0
    )


def test_outlines_that_overlap_in_the_users_map_are_counted_and_no_finding(tmp_path: Path) -> None:
    codes = ZONES["zone"].to_pylist()

    def square(west: float) -> dict[str, object]:
        ring = [[west, 48.0], [west + 1, 48.0], [west + 1, 49.0], [west, 49.0], [west, 48.0]]
        return {"type": "Polygon", "coordinates": [ring]}

    # The second lies over a tenth of the first; the others only touch.
    features = [
        {
            "type": "Feature",
            "properties": {"zone": code},
            "geometry": square(0.9 if i == 1 else 1.0 * i),
        }
        for i, code in enumerate(codes)
    ]
    zones = tmp_path / "zones.geojson"
    zones.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    flows = flowveil.read_trips(trips_between(codes, 2000), zones=zones)
    folder = flowveil.anonymize(flows, method="suppression", k=3).write(tmp_path / "release")
    report = json.loads((folder / "report.json").read_text())
    assert (
        report["published"]["overlapping_outlines"] == 2
    )  # one pair of origins, one of destinations
    assert "Outlines overlap: 2 pairs of zones" in (folder / "manifest.json").read_text()
    assert "Zones do not overlap" not in (folder / "report.html").read_text()
    edit_report(folder, lambda said: said["published"].update(overlapping_outlines=0))
    assert not flowveil.verify_release(
        folder, against=trips_between(codes, 2000), zones=zones
    ).holds
