"""A folder of somebody else's: what is not a regular file of a sane size is never opened, let alone believed."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil.verify.database
import flowveil.verify.exports
import flowveil.verify.order
from flowveil.api import verify_folder
from flowveil.errors import DataError
from flowveil.paths import parse_json, read_json
from flowveil.verify import verify_release
from flowveil.verify.database import opened
from flowveil.verify.parquet import check_layouts
from flowveil.verify.rendering import not_compared
from samples.drafts import unchecked
from samples.odd_files import endless, pipe
from samples.releases import city_flows, rehash, release_of


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is tampered with need not be recounted before."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    release = release_of(city_flows(), budget="volume")
    return release.write(tmp_path_factory.mktemp("made") / "out"), release.input


@pytest.fixture
def city(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "release"), made[1]


def _link(path, tmp_path):
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")


def _folder(path, _):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["manifest.json", "report.json", "report.html", "flows.parquet"])
@pytest.mark.parametrize("change", [_link, pipe, endless, _folder])
def test_only_regular_files_are_opened(city, tmp_path, name, change):
    folder, flows = city
    change(folder / name, tmp_path)
    assert verify_release(folder, flows) == [f"{name}: not a regular file"]
    # The command asks the report how to read the trips; not before it is known to be a file.
    assert verify_folder(folder, against="no such file") == [f"{name}: not a regular file"]
    # Nor does it ask for the version of a report that lies elsewhere, or never ends.
    assert not_compared(folder) is None


def test_a_file_larger_than_any_of_a_release_is_not_hashed(city):
    folder, flows = city
    with open(folder / "report.html", "r+b") as file:
        file.truncate(1 << 40)
    assert verify_release(folder, flows) == ["report.html: larger than any file of a release"]


def test_names_of_extra_files_stay_on_their_line(city):
    folder, flows = city
    (folder / "a\n\x1b[2Jb").write_text("x")
    assert verify_release(folder, flows) == [r"'a\n\x1b[2Jb': extra file, not part of a release"]


def test_nothing_is_parsed_before_the_manifest_holds(city, monkeypatch):
    folder, flows = city
    (folder / "flows.omx").write_bytes(b"\x89HDF\r\n\x1a\n")

    def trap(*_, **__):
        raise AssertionError("parsed")

    for name in ("check_layouts", "check_exports", "check_binaries", "read_report", "opened"):
        monkeypatch.setattr(flowveil.verify.order, name, trap)
    assert verify_release(folder, flows) == ["flows.omx: extra file, not part of a release"]


@pytest.mark.parametrize("name", ["report.json", "manifest.json"])
def test_an_entry_that_stands_twice(city, name):
    folder, flows = city
    text = (folder / name).read_text("utf-8")
    entry = "measures" if name == "report.json" else "sha256"
    (folder / name).write_text(text.replace("{", f'{{"{entry}": {{"secret": 3}},', 1), "utf-8")
    if name == "report.json":
        rehash(folder)
    findings = verify_release(folder, flows)
    assert any(line.startswith(name) and "readable" in line for line in findings), findings
    assert "secret" not in str(findings)


def test_json_that_is_nested_without_end(tmp_path):
    (tmp_path / "report.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="deeply"):
        read_json(tmp_path / "report.json")


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e999", "1e101", "-1e308", str(2**63), str(-(2**63) - 1), "1" + "0" * 400],
)
def test_numbers_that_nothing_can_count_with(number):
    with pytest.raises(ValueError, match=r"number|not JSON"):
        parse_json(f"[1, {number}]".encode())


def test_the_largest_numbers_are_read_as_they_are():
    assert parse_json(f"[{2**63 - 1}, {-(2**63)}, 1e100]".encode()) == [2**63 - 1, -(2**63), 1e100]


def test_many_rows_in_few_bytes_are_refused_unread(city, monkeypatch):
    folder, flows = city
    rows = 10_000_000
    nothing = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["a"]))
    table = pa.table({"origin_zone": nothing, "destination_zone": nothing, "trips": np.zeros(rows, np.int8)})
    pq.write_table(table, folder / "flows.parquet", compression="zstd")
    assert (folder / "flows.parquet").stat().st_size < 1_000_000
    rehash(folder)
    monkeypatch.setattr(flowveil.verify.order, "opened", None)
    refused = ["flows.parquet: claims more rows than a release of this input can have"]
    assert verify_release(folder, flows) == refused
    # Noise may have more rows than the input, but not so many in so few bytes.
    assert check_layouts(folder, most_rows=None) == refused


def test_an_export_longer_than_its_rows_is_refused_unread(made, tmp_path, monkeypatch):
    folder = release_of(made[1], budget="volume").write(tmp_path / "release", formats="geojson")
    with (folder / "flows.geojson").open("a", encoding="utf-8") as file:
        file.write(" " * 8_000_000)
    rehash(folder)
    monkeypatch.setitem(flowveil.verify.exports._READERS, ".geojson", None)
    assert "flows.geojson: is larger than the rows of a release make it" in verify_release(folder, made[1])


def test_text_that_would_fill_the_memory_when_repeated(city):
    folder, flows = city
    table = pq.read_table(folder / "flows.parquet")
    long = pa.array(["a" * 50_000] * len(table))
    pq.write_table(table.set_column(0, "origin_zone", long), folder / "flows.parquet", compression="zstd")
    rehash(folder)
    assert verify_release(folder, flows) == ["flows.parquet: has text longer than any code"]


def test_a_recount_that_does_not_fit_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(flowveil.verify.database, "_MEMORY", "20MB")
    monkeypatch.setattr(flowveil.verify.database, "_DISK", "1MB")
    with pytest.raises(DataError, match="does not fit"), opened(tmp_path) as db:
        db.create("rows", "SELECT range AS row, md5(range::VARCHAR) AS code FROM range(1000000) ORDER BY code")


def test_the_database_reads_no_other_folder(tmp_path):
    import duckdb

    (tmp_path / "in").mkdir()
    (tmp_path / "out.csv").write_text("a\n1\n")
    with opened(tmp_path / "in") as db, pytest.raises(duckdb.PermissionException):
        db.rows(f"SELECT * FROM read_csv('{tmp_path}/out.csv')")
