"""Notes in corners of a folder that no table shows, with the manifest hashed anew."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest

from flowveil.verify import verify_release
from samples.drafts import unchecked
from samples.releases import city_flows, edit_report, rehash, release_of


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    release = release_of(city_flows())
    with unchecked():
        return release.write(tmp_path_factory.mktemp("written") / "release"), release.input


@pytest.fixture
def city(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "release"), written[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(raw={"8a1fb46622dffff": 3}),
        lambda r: r["guarantee"].update(smallest=3),
        lambda r: r["measures"]["trips"].update(raw_total=123),
        lambda r: r["measures"].update(persons={"k_trips": 3}),
        lambda r: r["suppression"].update(cells=3),
        lambda r: r["suppression"].update(beta="raw"),
        lambda r: r.update(method="raw trips"),
        lambda r: r["parameters"].update(raw="8a1fb46622dffff"),
        lambda r: r["parameters"].update(columns={"raw": "8a1fb46622dffff"}),
        lambda r: r["parameters"].update(zones={"raw": "8a1fb46622dffff"}),
        lambda r: r["parameters"].update(max_dropped=31337),
        lambda r: r["parameters"].update(person_case="raw"),
        lambda r: r["parameters"]["options"].update(raw=3),
        lambda r: r["parameters"]["options"].update(budget="raw"),
        # An option and a note of another method.
        lambda r: r["parameters"]["options"].update(objective="error"),
        lambda r: r["notes"].update(stopped_early=True),
        lambda r: r["notes"].update(steps=2**62),
        lambda r: r["notes"].update(roots_reached=31337),
        lambda r: r.update(withheld={"measures": {"raw": []}, "reason": "raw"}),
    ],
)
def test_an_entry_that_no_report_has(city, change):
    folder, flows = city
    edit_report(folder, change)
    findings = verify_release(folder, flows)
    assert findings
    assert all("report.schema.json" in line for line in findings), findings
    assert not any("raw" in line or "8a1fb46622dffff" in line for line in findings)


def test_words_of_the_manifest_alone(city):
    folder, flows = city
    place = folder / "manifest.json"
    content = json.loads(place.read_text("utf-8"))
    place.write_text(json.dumps({**content, "statement": ["Three trips went there."]}), "utf-8")
    assert any("its statement is not that of report.json" in line for line in verify_release(folder, flows))
    place.write_text(json.dumps({**content, "version": "three trips"}), "utf-8")
    assert any("its version or format is not" in line for line in verify_release(folder, flows))
    place.write_text(json.dumps({**content, "note": "three trips"}), "utf-8")
    assert any("manifest.json has 1 entries that no release has" in line for line in verify_release(folder, flows))


@pytest.mark.parametrize("name", ["flows.parquet", "zones.parquet"])
def test_metadata_of_a_table(city, name):
    folder, flows = city
    table = pq.read_table(folder / name)
    noted = {**(table.schema.metadata or {}), b"note": b"three trips went there"}
    pq.write_table(table.replace_schema_metadata(noted), folder / name)
    rehash(folder)
    assert any(line.startswith(f"{name}: has 1 entries in its metadata") for line in verify_release(folder, flows))


def test_a_note_inside_the_metadata_of_the_map(city):
    folder, flows = city
    place = folder / "zones.parquet"
    table = pq.read_table(place)
    geo = json.loads(table.schema.metadata[b"geo"])
    geo["columns"]["geometry"]["note"] = "three trips"
    pq.write_table(table.replace_schema_metadata({b"geo": json.dumps(geo).encode()}), place)
    rehash(folder)
    assert any("zones.parquet: has 1 entries in its metadata" in line for line in verify_release(folder, flows))


@pytest.mark.parametrize(
    ("name", "value"),
    [("columns", {"person": "Bob"}), ("partition_columns", ["Bob"]), ("zones", {"name": "Bob"}), ("during", "2024-01")],
)
def test_names_of_columns_that_the_input_was_not_read_with(city, name, value):
    folder, flows = city
    edit_report(folder, lambda r: r["parameters"].update({name: value}))
    assert verify_release(folder, flows) == [
        f"report.json: its parameters say another '{name}' than the input was read with"
    ]


@pytest.mark.parametrize("resolution", [10**9, 16, -1, 9])
def test_a_resolution_that_the_input_was_not_read_with(city, resolution):
    # A page drawn at such a resolution would never be finished; so nothing is drawn.
    folder, flows = city
    edit_report(folder, lambda r: r["parameters"].update(resolution=resolution))
    (finding,) = verify_release(folder, flows)
    assert "resolution'" in finding
