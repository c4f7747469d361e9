"""Names of zones and the table of their tiles, in a release on a map of one's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import flowveil
from samples.drafts import unchecked
from samples.releases import edit_table, rehash

FORMATS = "csv,geojson,omx,flowmap,kepler,arrow,gpkg"


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def zone_map(names=None) -> pa.Table:
    """Twelve zones in two rows, far apart enough that neighbours are merged first."""
    lat, lon = np.divmod(np.arange(12), 4)
    called = [f"Place {'ABCDEFGHIJKL'[i]}" for i in range(12)] if names is None else names
    return pa.table(
        {"zone": [f"z{i:02d}" for i in range(12)], "name": called, "lat": lat / 50, "lon": lon / 40}
    )


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    rng = np.random.default_rng(4)
    ends = np.minimum(rng.geometric(0.25, (2, 400)) - 1, 10)
    return pa.table({"o": [f"z{i:02d}" for i in ends[0]], "d": [f"z{i:02d}" for i in ends[1]]})


def read(trips, zones):
    return flowveil.read_trips(trips, origin_tile="o", destination_tile="d", zones=zones)


@pytest.fixture(scope="module")
def written(trips, tmp_path_factory) -> Path:
    release = flowveil.anonymize(read(trips, zone_map()), "twincut", k=10)
    return release.write(tmp_path_factory.mktemp("written") / "r", formats=FORMATS)


@pytest.fixture
def folder(written, tmp_path) -> Path:
    return shutil.copytree(written, tmp_path / "r")


def findings(folder, trips):
    return flowveil.verify_release(folder, against=trips, zones=zone_map()).findings


def test_names_reach_every_format_and_merged_zones_are_named_after_a_place_in_them(folder, trips):
    import pyarrow.parquet as pq

    from flowveil.reading.matrices import open_omx

    zones = pq.read_table(folder / "zones.parquet")
    names = dict(zip(zones["zone"].to_pylist(), zones["name"].to_pylist(), strict=True))
    tiles = dict(zip(zones["zone"].to_pylist(), zones["tiles"].to_pylist(), strict=True))
    merged = {zone for zone, n in tiles.items() if n > 1}
    assert merged
    for zone, name in names.items():
        if zone in merged:
            assert name.startswith(f"{tiles[zone]} zones around Place ")
        else:
            assert name == f"Place {'ABCDEFGHIJKL'[int(zone[1:])]}"
    for file in (
        "zones.geojson",
        "kepler.json",
        "flowmap_locations.csv",
        "omx_zones.csv",
        "zones.csv",
        "report.html",
    ):
        text = (folder / file).read_text("utf-8")
        assert all(name in text for name in names.values()), file
    with open_omx(folder / "flows.omx") as omx:
        assert {n.decode() for n in omx.lookups["zone_name"][:].tolist()} == set(names.values())
    # Seen tiles or not: the last zone of the map has no trip, and counts all the same.
    assert flowveil.verify_release(folder, against=trips, zones=zone_map()).findings == ()


def test_the_table_of_tiles_holds_all_tiles_of_the_map_and_says_nothing_of_trips(folder):
    import pyarrow.parquet as pq

    zones = pq.read_table(folder / "zones.parquet")
    rows = csv.read_csv(folder / "lookup.csv").to_pylist()
    for zone, role, tiles in zip(
        *(zones[c].to_pylist() for c in ("zone", "role", "tiles")), strict=True
    ):
        mine = [row for row in rows if (row["zone"], row["role"]) == (zone, role)]
        assert len(mine) == tiles
        assert all(
            row["tile_name"] == f"Place {'ABCDEFGHIJKL'[int(row['tile'][1:])]}" for row in mine
        )
    assert len(rows) == sum(zones["tiles"].to_pylist())


def test_a_changed_name_or_table_of_tiles_is_found(folder, trips):
    text = (folder / "lookup.csv").read_text("utf-8")
    (folder / "lookup.csv").write_text(text.replace("Place C", "Place X"), "utf-8")
    rehash(folder)
    assert any("lookup.csv" in line for line in findings(folder, trips))
    (folder / "lookup.csv").unlink()
    rehash(folder)
    assert any("lookup.csv" in line for line in findings(folder, trips))
    edit_table(folder, "zones.parquet", lambda rows: [{**row, "name": "a message"} for row in rows])
    assert any("zones.parquet" in line for line in findings(folder, trips))


def test_names_that_are_no_plain_text_do_no_harm(trips, tmp_path):
    odd = ["=1+1", "a\nb", '"q"', "<b>x</b>", "", "  ", "é" * 500, "'", "x;=2", "\t", "名", "z"]
    release = flowveil.anonymize(read(trips, zone_map(odd)), k=10)
    folder = release.write(tmp_path / "r", formats=FORMATS)
    assert "<b>x</b>" not in (folder / "report.html").read_text("utf-8")
    assert flowveil.verify_release(folder, against=trips, zones=zone_map(odd)).findings == ()
    assert (
        json.loads((folder / "report.json").read_text("utf-8"))["parameters"]["zones"]["name"]
        == "name"
    )
