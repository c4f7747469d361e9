"""What the maps of sliced, nested and folded releases are made from: the published tables, slice by slice."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import anonymize, anonymize_slices, read_slices, read_trips, reconstruct
from samples.drafts import unchecked
from samples.hourly import hourly_trips

HOW = {"time": "start", "resolution": 8}


def on_page(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', text, re.S)
    return json.loads(data)


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    trips = hourly_trips()
    trips = trips.append_column("sex", pa.array(np.where(np.arange(len(trips)) % 3, "f", "m")))
    flows = read_slices(trips, every="hour", by="sex", **HOW)
    release = anonymize_slices(flows, "odkanon", k=10, accept_differencing=True)
    with unchecked():
        return release.write(tmp_path_factory.mktemp("sliced") / "out")


def test_each_slice_is_shown_with_its_own_zones_and_flows(sliced):
    data, flows = on_page(sliced), pq.read_table(sliced / "flows.parquet").to_pylist()
    slices, codes = data["slices"], data["areas"]["code"]
    published = {(row["sex"], row["time"]) for row in flows}
    assert slices["columns"] == ["sex", "time"]
    assert {tuple(key) for key in slices["keys"]} == published
    for key, view, volume in zip(slices["keys"], data["views"]["list"], slices["volumes"]["trips"], strict=True):
        rows = {
            (row["origin_zone"], row["destination_zone"], row["trips"])
            for row in flows
            if [row["sex"], row["time"]] == key
        }
        origin, destination = ([codes[z] for z in view[end]["zone"]] for end in ("origin", "destination"))
        held = view["flows"]
        pairs = zip(held["origin"], held["destination"], held["trips"], strict=True)
        assert {(origin[o], destination[d], trips) for o, d, trips in pairs} == rows
        assert set(origin) == {row[0] for row in rows}
        assert volume == sum(row[2] for row in rows) == sum(view["origin"]["trips"])


def test_the_overview_of_slices_is_on_common_areas_and_says_that_it_is_estimated(sliced):
    data, flows = on_page(sliced), pq.read_table(sliced / "flows.parquet")
    assert data["estimated"]
    assert "estimate" in data["views"]["ownNote"]
    assert {len(code) for code in data["layers"]["origin"]["code"]} == {15}
    assert len(set(data["layers"]["origin"]["level"])) == 1
    assert sum(data["layers"]["origin"]["trips"]) == pytest.approx(sum(flows["trips"].to_pylist()), abs=1)


def test_zones_that_overlap_are_spread_over_common_areas_as_reconstruct_does(tmp_path):
    with unchecked():
        folder = anonymize(read_trips(hourly_trips(), resolution=8), "paircut", k=10).write(tmp_path / "out")
    data, zones = on_page(folder), pq.read_table(folder / "zones.parquet")
    (level,) = set(data["layers"]["origin"]["level"])
    expected = {
        (row["origin"], row["destination"]): row["trips"] for row in reconstruct(folder, int(level)).to_pylist()
    }
    origin, destination = (data["layers"][end]["code"] for end in ("origin", "destination"))
    held = data["flows"]
    pairs = list(zip(held["origin"], held["destination"], held["trips"], strict=True))
    assert len(pairs) == len(expected)
    for o, d, trips in pairs:
        assert trips == pytest.approx(expected[origin[o], destination[d]], abs=0.006)
    # The zones as published are the other view.
    assert set(data["areas"]["code"]) == set(zones["zone"].to_pylist())


def test_a_pair_of_a_folded_release_has_its_times_on_the_page(tmp_path):
    folded = read_slices(hourly_trips(), every="hour", **HOW).folded()
    with unchecked():
        folder = anonymize(folded, "paircut", k=10).write(tmp_path / "o")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "The maps begin with common areas" in text
    assert "Each shape is a published zone" not in text
    assert re.search(r"<summary>[^<]*km [a-z-]+ of [^<]*\([0-9a-f]{15}[.0-9]*\) → ", text)
    data = on_page(folder)
    view = data["views"]["list"][0]
    times, codes = view["times"], data["areas"]["code"]
    assert (times["from"], times["to"], times["ends"]) == (0, 24, ["00:00", "24:00"])
    found = set()
    for o, d, intervals in zip(view["flows"]["origin"], view["flows"]["destination"], times["of"], strict=True):
        pair = codes[view["origin"]["zone"][o]], codes[view["destination"]["zone"][d]]
        found |= {(*pair, said, trips) for _, _, trips, said in intervals}
    rows = pq.read_table(folder / "flows.parquet").to_pylist()
    assert found == {
        (row["origin_zone"], row["destination_zone"], f"{row['time_from']} to {row['time_to']}", row["trips"])
        for row in rows
    }
