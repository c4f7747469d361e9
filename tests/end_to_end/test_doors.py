"""What people bring and need: their zones, study areas, one set of zones.

Each read, published, verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyarrow import csv

from flowveil import read_trips
from flowveil.apps.cli import main
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.processes import in_this_process
from samples.releases import edit_report, edit_table

geopandas = pytest.importorskip("geopandas")


@pytest.fixture(autouse=True)
def _no_draft_is_recounted() -> Iterator[None]:
    """What is published here is verified by the command, which recounts more."""
    with unchecked():
        yield


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def write_rides(path: Path, n: int = 600) -> None:
    """Rides as bike-share systems publish them: coordinates and other columns."""
    rng = np.random.default_rng(3)
    ends = {
        end: np.round(rng.normal((43.65, -79.38), 0.012, (n, 2)), 5) for end in ("start", "end")
    }
    columns = {
        f"{end}_{axis}": at[:, i]
        for end, at in ends.items()
        for i, axis in enumerate(("lat", "lng"))
    }
    csv.write_csv(
        pa.table({"ride_id": np.arange(n), "rideable_type": ["classic"] * n, **columns}), path
    )


def write_districts(path: Path) -> None:
    """A grid of squares in metres (UTM 17N), with a column for what is above each."""
    corners = [(x, y) for x in range(6) for y in range(6)]
    west, south = 626_500.0, 4_830_500.0
    geopandas.GeoDataFrame(
        {
            "zone": [f"{x}{y}" for x, y in corners],
            "borough": ["west" if x < 3 else "east" for x, _ in corners],
        },
        geometry=[
            shapely.box(
                west + 900 * x, south + 900 * y, west + 900 * (x + 1), south + 900 * (y + 1)
            )
            for x, y in corners
        ],
        crs=32617,
    ).to_file(path)


@pytest.mark.parametrize("ending", ["gpkg", "geojson"])
def test_coordinates_go_into_the_polygons_of_a_map_and_verify_recounts_them(
    tmp_path, capsys, ending
) -> None:
    trips, zones, out = tmp_path / "rides.csv", tmp_path / f"zones.{ending}", tmp_path / "release"
    write_rides(trips)
    write_districts(zones)
    reading = ["--zones", zones, "--zones-levels", "borough,zone", "--max-dropped", 0.9]
    assert run("anonymize", trips, *reading, "--k", 5, "--json", "--out", out) == 0, (
        capsys.readouterr().err
    )
    said = json.loads(capsys.readouterr().out)
    rides = csv.read_csv(trips).to_pydict()
    drawn = geopandas.read_file(zones).to_crs(4326).geometry
    inside = [
        np.array(
            [
                drawn.covers(shapely.Point(x, y)).any()
                for x, y in zip(rides[f"{e}_lng"], rides[f"{e}_lat"], strict=True)
            ]
        )
        for e in ("start", "end")
    ]
    # Rounded up, so that the number of rides in no zone cannot be computed.
    shares, missed = said["statement"]["shares"], float(np.mean(~(inside[0] & inside[1])))
    assert missed <= shares["dropped"] < missed + shares["step"] + 1e-9
    assert said["parameters"]["columns"] == {
        "origin": "start_lat,start_lng",
        "destination": "end_lat,end_lng",
    }
    published = pq.read_table(out / "flows.parquet").to_pydict()
    assert min(published["trips"]) >= 5
    assert sum(published["trips"]) <= np.sum(inside[0] & inside[1])
    assert run("verify", out, "--against", trips, "--zones", zones) == 0, capsys.readouterr().err


def test_points_need_a_map_with_outlines(tmp_path, capsys) -> None:
    trips, zones = tmp_path / "rides.csv", tmp_path / "zones.csv"
    write_rides(trips, 50)
    csv.write_csv(pa.table({"zone": ["a", "b"], "lat": [43.6, 43.7], "lon": [-79.4, -79.3]}), zones)
    assert run("anonymize", trips, "--zones", zones, "--out", tmp_path / "r") == 2
    assert "has no outlines" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_map_of_another_place_is_refused(tmp_path, capsys) -> None:
    trips, zones = tmp_path / "rides.csv", tmp_path / "zones.geojson"
    write_rides(trips, 50)
    geopandas.GeoDataFrame({"zone": ["a"]}, geometry=[shapely.box(2, 48, 3, 49)], crs=4326).to_file(
        zones
    )
    assert run("anonymize", trips, "--zones", zones, "--out", tmp_path / "r") == 2
    assert "is the map one of the same place?" in capsys.readouterr().err


@pytest.mark.parametrize("area", ["box", "file"])
def test_a_study_area_is_in_the_report_and_verify_reads_it_again(tmp_path, capsys, area) -> None:
    trips, out, park = tmp_path / "rides.csv", tmp_path / "release", tmp_path / "park.geojson"
    write_rides(trips)
    geopandas.GeoSeries([shapely.box(-79.4, 43.64, -79.36, 43.67)], crs=4326).to_file(park)
    within = "-79.4,43.64,-79.36,43.67" if area == "box" else str(park)
    arguments = ["--within", within, "--resolution", 8, "--k", 5]
    assert run("anonymize", trips, *arguments, "--out", out) == 0, capsys.readouterr().err
    report = json.loads((out / "report.json").read_text())
    assert report["parameters"]["within"] == ("AREA" if area == "file" else within)
    assert f"--within {report['parameters']['within']}" in report["published"]["command"].replace(
        "=", " "
    )
    assert "park" not in (out / "report.json").read_text()
    again = ["--set", f"zones.within={within}"] if area == "file" else []
    assert run("verify", out, "--against", trips, *again) == 0, capsys.readouterr().err
    if area == "file":
        assert run("verify", out, "--against", trips) == 2
        assert "within" in capsys.readouterr().err
    else:
        assert (
            run("verify", out, "--against", trips, "--set", "zones.within=-79.5,43.5,-79.3,43.8")
            == 3
        )
    assert run("describe", trips, "--set", f"zones.within={within}", *arguments[2:]) == 0
    assert "outside the area" in capsys.readouterr().out


def zones_of(folder: Path) -> list[dict]:
    return pq.read_table(folder / "zones.parquet", columns=["zone", "role"]).to_pylist()


@pytest.mark.parametrize(
    ("method", "tiles"),
    [("twincut", "h3"), ("odkanon", "map"), ("oigh", "h3"), ("suppression", "map")],
)
def test_the_same_zones_serve_both_ends_in_every_file(tmp_path, capsys, method, tiles) -> None:
    trips, zones, out = tmp_path / "rides.csv", tmp_path / "zones.gpkg", tmp_path / "release"
    write_rides(trips)
    write_districts(zones)
    of_map = ["--zones", zones, "--zones-levels", "borough,zone", "--max-dropped", 0.9]
    reading = [*(of_map if tiles == "map" else ["--resolution", 8]), "--same-zones"]
    k = 3 if method == "suppression" else 5
    arguments = [
        *reading,
        "--k",
        k,
        "--method",
        method,
        "--format",
        "csv,geojson,omx,flowmap",
        "--out",
        out,
    ]
    assert run("anonymize", trips, *arguments) == 0, capsys.readouterr().err
    assert {row["role"] for row in zones_of(out)} == {"both"}
    flows = pq.read_table(out / "flows.parquet").to_pydict()
    used = {*flows["origin_zone"], *flows["destination_zone"]}
    assert {row["zone"] for row in zones_of(out)} == used
    report = json.loads((out / "report.json").read_text())
    assert report["parameters"]["same_zones"] is True
    assert "--same-zones" in report["published"]["command"]
    map_again = ["--zones", zones] if tiles == "map" else []
    assert run("verify", out, "--against", trips, *map_again) == 0, capsys.readouterr().err


@pytest.mark.parametrize("how", [[], ["--common-zones"]])
def test_slices_have_the_same_zones_at_both_ends(tmp_path, capsys, how) -> None:
    trips, out = tmp_path / "rides.csv", tmp_path / "release"
    write_rides(trips, 900)
    table = csv.read_csv(trips)
    csv.write_csv(table.append_column("member", pa.array(["yes", "no", "yes"] * 300)), trips)
    arguments = [
        "--by",
        "member",
        *how,
        "--same-zones",
        "--resolution",
        8,
        "--k",
        5,
    ]
    assert run("anonymize", trips, *arguments, "--out", out) == 0, capsys.readouterr().err
    assert {row["role"] for row in zones_of(out)} == {"both"}
    assert run("verify", out, "--against", trips) == 0, capsys.readouterr().err


def test_verify_finds_zones_that_differ_between_the_ends(tmp_path, capsys) -> None:
    trips, out = tmp_path / "rides.csv", tmp_path / "release"
    write_rides(trips)
    assert run("anonymize", trips, "--same-zones", "--resolution", 8, "--k", 5, "--out", out) == 0
    edit_table(out, "zones.parquet", lambda rows: [{**rows[0], "role": "origin"}, *rows[1:]])
    assert run("verify", out, "--against", trips) == 3
    assert "zones.parquet" in capsys.readouterr().err
    # A release of two cuts that says it has one.
    assert (
        run("anonymize", trips, "--method", "twincut", "--resolution", 8, "--k", 5, "--out", out)
        == 0
    )
    edit_report(out, lambda report: report["parameters"].update(same_zones=True))
    edit_table(out, "zones.parquet", lambda rows: one_role(rows))
    assert run("verify", out, "--against", trips) == 3
    said = recount_flows(out, read_trips(trips, resolution=8)).findings
    assert any("zones differ, but the report says that they are the same" in line for line in said)


def one_role(rows: list[dict]) -> list[dict]:
    return list({row["zone"]: {**row, "role": "both"} for row in rows}.values())


def test_methods_that_cannot_have_the_same_zones_refuse(tmp_path, capsys) -> None:
    trips = tmp_path / "rides.csv"
    write_rides(trips, 100)
    assert (
        run("anonymize", trips, "--same-zones", "--method", "atg-dual", "--out", tmp_path / "r")
        == 2
    )
    assert "cannot be combined with method" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    compared = [
        "compare",
        trips,
        "--set",
        "zones.same_zones=true",
        "--resolution",
        7,
        "--k",
        5,
        "--json",
        "--out",
        tmp_path / "c",
    ]
    with in_this_process():
        assert run(*compared) == 0
    assert {r["method"] for r in json.loads(capsys.readouterr().out)["runs"]} == {
        "twincut",
        "odkanon",
        "oigh",
        "suppression",
    }
    assert run(*compared, "--methods", "twincut,mondrian") == 2
