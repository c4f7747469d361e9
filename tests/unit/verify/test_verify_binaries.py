"""Notes in corners of binary files that no table shows, with the manifest hashed anew."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contract.cases import pairwise
from flowveil.published.folder import publish
from flowveil.verify.binaries import UNREAD
from samples.drafts import unchecked
from samples.releases import city_flows, region_flows, rehash, release_of, write_table
from samples.remembered import desk, verify_release


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    release = release_of(city_flows(), budget="volume")
    # That files of this version hold is said by the test of other versions.
    with unchecked():
        return publish(release, tmp_path_factory.mktemp("made") / "out", formats="gpkg,omx,arrow"), release.input


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    with desk(tmp_path_factory.mktemp("desk") / "copy") as copied:
        yield copied


@pytest.fixture
def city(made, copied):
    return copied(made[0]), made[1]


def found(folder, flows, unread=None) -> list[str]:
    rehash(folder)
    return verify_release(folder, flows, unread=unread)


def of_another_hdf5(folder) -> None:
    with h5py.File(folder / "flows.omx", "a") as file:
        file.attrs.create("WRITTEN_BY", np.bytes_("flowveil with HDF5 1.0.0"))


def of_another_pyarrow(folder) -> None:
    for name in ("flows.parquet", "zones.parquet"):
        ours = f"version {pa.__version__}".encode()
        content = (folder / name).read_bytes()
        assert ours in content
        (folder / name).write_bytes(content.replace(ours, ours[:-1] + b"x"))


# ---- OMX: no code runs -------------------------------------------------------------------------------------------


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize(
    ("name", "place", "other"), pairwise(["TITLE", "FILTERS"], ["/", "/data", "/data/trips"], [False, True])
)
def test_a_pickled_object_in_an_attribute_runs_no_code_and_is_found(city, tmp_path, name, place, other):
    folder, flows = city
    planted = pickle.dumps(Evil(str(tmp_path / "ran")), protocol=0)
    if other:
        of_another_hdf5(folder)
    with h5py.File(folder / "flows.omx", "a") as file:
        file[place].attrs.create(name, np.bytes_(planted))
    findings = found(folder, flows)
    assert not (tmp_path / "ran").exists()
    expected = "has attributes that no release has" if other else "is not what HDF5"
    assert len(findings) == 1
    assert findings[0].startswith(f"flows.omx: {expected}")


def _matrix(file):
    file["data"].create_dataset("raw", data=np.ones(file["data/trips"].shape))


def _value(file):
    rows = file["data/trips"][:]
    o, d = np.argwhere(rows == 0)[0]
    file["data/trips"][o, d] = 1


def _soft(file):
    file["data/raw"] = h5py.SoftLink("/data/trips")


def _external(file):
    file["data/raw"] = h5py.ExternalLink("/etc/passwd", "/")


def _virtual(file):
    layout = h5py.VirtualLayout(shape=file["data/trips"].shape, dtype="f8")
    del file["data/trips"]
    file["data"].create_virtual_dataset("trips", layout)


def _objects(file):
    file["lookup"].create_dataset("raw", data=["a"] * len(file["lookup/index"]))


def _named_type(file):
    file["raw"] = np.dtype("f8")


@pytest.mark.parametrize("change", [_matrix, _value, _soft, _external, _virtual, _objects, _named_type])
@pytest.mark.parametrize("other", [False, True])
def test_whatever_else_an_omx_file_holds_is_found(city, change, other):
    folder, flows = city
    if other:
        of_another_hdf5(folder)
    with h5py.File(folder / "flows.omx", "a") as file:
        change(file)
    findings = found(folder, flows)
    assert [line.split(":")[0] for line in findings] == ["flows.omx"]


@pytest.mark.parametrize("name", ["flows.omx", "release.gpkg", "flows.arrow", "zones.arrow"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_bytes_around_a_file(city, name, where):
    folder, flows = city
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(b"\0" * 512 + content if where == "before" else content + b"three trips")
    assert [line.split(":")[0] for line in found(folder, flows)] == [name]


# ---- GeoPackage --------------------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["CREATE TABLE raw (n)", "INSERT INTO raw VALUES (3)"], "other tables, views"),
        (["CREATE TRIGGER t AFTER INSERT ON flows BEGIN SELECT 1; END"], "other tables, views"),
        (["CREATE INDEX raw ON flows (trips)"], "other tables, views"),
        (["DROP TABLE flows", f"CREATE VIEW flows AS {ENDLESS}"], "other tables, views"),
        (["CREATE VIRTUAL TABLE raw USING fts5(n)"], "other tables, views"),
        (["UPDATE gpkg_contents SET description = 'three trips'"], "tables of the format"),
        (["UPDATE sqlite_sequence SET seq = 333"], "tables of the format"),
        (["DELETE FROM flows WHERE fid = 1"], "its flows"),
        (["UPDATE zones SET geom = x'00' WHERE fid = 1"], "its zones"),
        (["CREATE TABLE raw (n)", "INSERT INTO raw VALUES ('three trips')", "DROP TABLE raw"], "none of its tables"),
        (["PRAGMA user_version = 3"], "none of its tables"),
    ],
)
def test_a_geopackage_holds_the_two_layers_and_nothing_else(city, statements, words):
    folder, flows = city
    with closing(sqlite3.connect(folder / "release.gpkg")) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    findings = found(folder, flows)
    assert len(findings) == 1
    assert findings[0].startswith("release.gpkg: ")
    assert words in findings[0]


# ---- Arrow -------------------------------------------------------------------------------------------------------


def write_arrow(table, path, **options) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, **options) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace_schema_metadata({"note": "three trips"}),
        lambda t: t.cast(pa.schema([f.with_metadata({"note": "three"}) if f.name == "trips" else f for f in t.schema])),
        lambda t: t.append_column("people", pa.array([3] * len(t))),
        lambda t: t.slice(1),
        lambda t: t.set_column(2, "trips", pa.array([t["trips"][0].as_py() + 1, *t["trips"].to_pylist()[1:]])),
    ],
)
def test_an_arrow_file_says_what_the_table_says(city, change, other):
    folder, flows = city
    write_arrow(change(pq.read_table(folder / "flows.parquet")), folder / "flows.arrow")
    if other:
        of_another_pyarrow(folder)
    assert [line.split(":")[0] for line in found(folder, flows)] == ["flows.arrow"]


def test_a_packed_arrow_file_is_not_unpacked(city):
    folder, flows = city
    table = pq.read_table(folder / "flows.parquet")
    write_arrow(table, folder / "flows.arrow", options=pa.ipc.IpcWriteOptions(compression="zstd"))
    of_another_pyarrow(folder)
    assert found(folder, flows) == ["flows.arrow: cannot be read"]


def test_a_value_under_an_empty_field(tmp_path):
    release = release_of(region_flows(), budget="volume")
    folder = release.write(tmp_path / "out", formats="arrow")
    table = pq.read_table(folder / "zones.parquet")
    at = table.column_names.index("lat")
    assert table["lat"].null_count == len(table)
    hidden = pa.Array.from_buffers(
        pa.float64(), len(table), [pa.py_buffer(bytes(len(table) // 8 + 1)), pa.array([3.0] * len(table)).buffers()[1]]
    )
    changed = table.set_column(at, table.schema.field(at), hidden)
    assert changed.equals(table)
    write_arrow(changed, folder / "zones.arrow")
    assert [line.split(":")[0] for line in found(folder, release.input)] == ["zones.arrow"]


# ---- Parquet -----------------------------------------------------------------------------------------------------


def _before_the_footer(path):
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[: -8 - length] + b"three trips" + content[-8 - length :])


def _unused_entry(path):
    table = pq.read_table(path)
    codes = table.column(0).combine_chunks().dictionary_encode()
    more = pa.concat_arrays([codes.dictionary, pa.array(["secret"])])
    changed = table.set_column(0, table.column_names[0], pa.DictionaryArray.from_arrays(codes.indices, more))
    write_table(changed, path)


def _index(path):
    pq.write_table(pq.read_table(path), path, compression="zstd", version="2.6", write_page_index=True)


def _field_metadata(path):
    table = pq.read_table(path)
    fields = [field.with_metadata({"note": "three trips"}) for field in table.schema]
    write_table(table.cast(pa.schema(fields, table.schema.metadata)), path)


@pytest.mark.parametrize("name", ["flows.parquet", "zones.parquet"])
@pytest.mark.parametrize("change", [_before_the_footer, _unused_entry, _index, _field_metadata])
def test_a_parquet_file_is_what_its_rows_make(city, name, change):
    folder, flows = city
    for export in ("flows.arrow", "zones.arrow", "flows.omx", "release.gpkg"):
        (folder / export).unlink()
    change(folder / name)
    findings = found(folder, flows)
    assert [line.split(":")[0] for line in findings] == [name], findings


def test_notes_beside_columns_by_another_version(city):
    folder, flows = city
    _field_metadata(folder / "flows.parquet")
    of_another_pyarrow(folder)
    assert found(folder, flows) == ["flows.parquet: its columns carry notes that no release has"]


# ---- other versions ----------------------------------------------------------------------------------------------


def test_files_of_other_versions_hold_and_what_is_left_unread_is_said(city):
    folder, flows = city
    unread: list[str] = []
    assert found(folder, flows, unread) == []
    assert unread == []
    of_another_pyarrow(folder)
    of_another_hdf5(folder)
    assert found(folder, flows, unread) == []
    assert {line.split(":")[0] for line in unread} <= set(UNREAD)
    assert {"flows.parquet", "zones.parquet"} <= {line.split(":")[0] for line in unread}
    assert verify_release(folder, flows, strict=True) == unread


def test_the_docs_name_what_is_left_unread():
    page = " ".join((Path(__file__).parents[3] / "docs" / "threat-model.md").read_text("utf-8").split())
    for words in ("statistics, padding and unused dictionary entries", "unused bytes inside the structures of HDF5"):
        assert words in page
    assert set(UNREAD) == {"flows.parquet", "zones.parquet", "flows.omx", "flows.arrow", "zones.arrow"}
