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
from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from samples.drafts import unchecked

h5py = pytest.importorskip("h5py")

#: Codes that are not in the order of numbers, one with a leading zero.
CODES = ["101", "102", "0103", "204", "205", *(str(300 + i) for i in range(11))]
N = len(CODES)
ZONES = pa.table({"zone": CODES, "lat": 1 + np.arange(N) / 10, "lon": 5 + np.arange(N) % 4 / 10})


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted() -> Iterator[None]:
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def matrix(seed: int) -> np.ndarray:
    cells = np.random.default_rng(seed).integers(0, 30, (N, N)).astype(float)
    cells[0, 1] = cells[3, 2] = 0
    return cells


def write_omx(
    path: Path, cores: dict[str, np.ndarray], lookups: dict[str, np.ndarray] | None = None
) -> None:
    """A file as transport models write it: attributes of the file, matrices, lookups."""
    with h5py.File(path, "w") as file:
        file.attrs["OMX_VERSION"], file.attrs["SHAPE"] = np.bytes_("0.2"), np.array([N, N])
        for name, cells in cores.items():
            file.create_dataset(f"data/{name}", data=cells, compression="gzip", chunks=(2, N))
        for name, values in (lookups or {}).items():
            file.create_dataset(f"lookup/{name}", data=values)


def table_of(flows: flowveil.Flows) -> dict[tuple[str, str], int]:
    origin, destination = (t.code[t.leaf_node] for t in (flows.origins, flows.destinations))
    ends = zip(origin[flows.origin].tolist(), destination[flows.destination].tolist(), strict=True)
    return dict(zip(ends, flows.trips.tolist(), strict=True))


def cells_of(cells: np.ndarray) -> dict[tuple[str, str], int]:
    return {(CODES[i], CODES[j]): int(cells[i, j]) for i, j in zip(*np.nonzero(cells), strict=True)}


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def test_an_omx_file_with_its_lookup_is_its_matrix(tmp_path) -> None:
    path = tmp_path / "demand.omx"
    write_omx(
        path,
        {"trips": matrix(0)},
        {"index": np.arange(N), "zone_code": np.array(CODES, dtype="S4")},
    )
    flows = flowveil.read_trips(path, zones=ZONES)
    assert table_of(flows) == cells_of(matrix(0))
    assert flows.intake.columns == {
        "origin_tile": "origin",
        "destination_tile": "destination",
        "trips": "trips",
        "person": "",
        "weight": "",
    }


def test_without_a_lookup_zones_are_numbered_from_one(tmp_path) -> None:
    path = tmp_path / "demand.omx"
    write_omx(path, {"all": matrix(1)})
    zones = ZONES.set_column(0, "zone", pa.array([str(i + 1) for i in range(N)]))
    assert table_of(flowveil.read_trips(path, zones=zones)) == {
        (str(CODES.index(o) + 1), str(CODES.index(d) + 1)): n
        for (o, d), n in cells_of(matrix(1)).items()
    }


def test_several_matrices_become_slices_and_are_never_added_up(tmp_path, capsys) -> None:
    path, zones, out = tmp_path / "modes.omx", tmp_path / "zones.csv", tmp_path / "release"
    cores = {"car": matrix(2) * 4, "pt": matrix(3) * 4}
    write_omx(path, cores, {"taz": np.array(CODES, dtype="S4")})
    csv.write_csv(ZONES, zones)
    with pytest.raises(ParameterError, match=r"2 matrices: 'car', 'pt'. They are not added up"):
        flowveil.read_trips(path, zones=ZONES)
    assert table_of(flowveil.read_trips(path, zones=ZONES, matrix="pt")) == cells_of(cores["pt"])
    sliced = flowveil.read_slices(path, zones=ZONES, by="matrix")
    assert {key[0]: table_of(part) for key, part in sliced.split()} == {
        name: cells_of(cells) for name, cells in cores.items()
    }
    assert run("anonymize", path, "--zones", zones, "--k", 10, "--out", out) == 0, (
        capsys.readouterr().err
    )
    assert set(pq.read_table(out / "flows.parquet")["matrix"].to_pylist()) == {"car", "pt"}
    assert run("verify", out, "--against", path, "--zones", zones) == 0, capsys.readouterr().err


def test_what_an_omx_file_does_not_say_is_asked_for(tmp_path) -> None:
    path = tmp_path / "demand.omx"
    write_omx(path, {"trips": matrix(0)}, {"a": np.arange(N), "b": np.arange(N) + 10})
    with pytest.raises(ParameterError, match="2 lookups: 'a', 'b'"):
        flowveil.read_trips(path, zones=ZONES)
    with pytest.raises(
        ParameterError, match=r"The file has no matrix 'trip'.*Did you mean 'trips'"
    ):
        flowveil.read_trips(path, zones=ZONES, matrix="trip")
    write_omx(path, {"trips": matrix(0)}, {"a": np.maximum(np.arange(N), 1)})
    with pytest.raises(DataError, match="duplicates"):
        flowveil.read_trips(path, zones=ZONES)
    write_omx(path, {"trips": matrix(0) + 0.5}, {"zone": np.array(CODES, dtype="S4")})
    assert float(flowveil.read_trips(path, zones=ZONES).trips.sum()) == float(
        (matrix(0) + 0.5).sum()
    )
    weighted = flowveil.read_trips(path, zones=ZONES, weight="trips")
    assert float(weighted.weight.sum()) == float((matrix(0) + 0.5).sum())
    path.write_bytes(b"no HDF5")
    with pytest.raises(DataError, match=r"'demand.omx' is not an HDF5 file"):
        flowveil.read_trips(path, zones=ZONES)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_wide_text_file_is_its_matrix(tmp_path, capsys, delimiter) -> None:
    path, zones, out = tmp_path / "wide.csv", tmp_path / "zones.csv", tmp_path / "release"
    cells = matrix(4)
    rows = [["from/to", *CODES]]
    rows += [
        [code, *("" if n == 0 else str(int(n)) for n in row)]
        for code, row in zip(CODES, cells, strict=True)
    ]
    path.write_text("\n".join(delimiter.join(row) for row in rows) + "\n", encoding="utf-8")
    csv.write_csv(ZONES, zones)
    assert table_of(flowveil.read_trips(path, zones=ZONES, wide=True)) == cells_of(cells)
    if delimiter == ";":
        # The rest knows the matrix only.
        return
    asked = (
        "anonymize",
        path,
        "--set",
        "input.wide=true",
        "--zones",
        zones,
        "--k",
        5,
        "--out",
        out,
    )
    assert run(*asked) == 0, capsys.readouterr().err
    report = json.loads((out / "report.json").read_text())
    assert report["parameters"]["wide"] is True
    assert run("verify", out, "--against", path, "--zones", zones) == 0, capsys.readouterr().err


def test_a_wide_file_with_a_code_twice_or_a_total_is_refused(tmp_path) -> None:
    path = tmp_path / "wide.csv"
    for text, problem in (
        ("z,101,101\n101,1,2\n", "duplicates"),
        ("z,101,102\n101,1,2\n101,3,4\n", "duplicates"),
        ("z,101,102,Total\n101,1,2,3\n102,3,4,7\n", "not on the map"),
        ("z,101,102\n101,1,many\n102,3,4\n", "text that is not a number"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=problem):
            flowveil.read_trips(path, zones=ZONES, wide=True)


def test_folders_and_patterns_of_text_files_are_one_table(tmp_path) -> None:
    rows = pa.table({"origin": ["101", "102", "204"] * 4, "destination": ["102", "204", "101"] * 4})
    folder = tmp_path / "months"
    for i in range(3):
        place = folder / f"month={i}"
        place.mkdir(parents=True)
        csv.write_csv(rows.slice(4 * i, 4), place / "trips.csv")
    whole = flowveil.read_trips(rows, zones=ZONES)
    for source in (folder, str(folder / "*" / "*.csv")):
        assert table_of(flowveil.read_trips(source, zones=ZONES)) == table_of(whole)
    by_month = flowveil.read_slices(
        folder, zones=ZONES, partition_columns="month", by="month", by_many=True
    )
    assert list(by_month.slice_keys) == [
        ("0",),
        ("1",),
        ("2",),
    ]  # a mapping's name
    assert [int(part.trips.sum()) for part in by_month.slices] == [4, 4, 4]
    csv.write_csv(rows.rename_columns(["from", "to"]), folder / "other.csv")
    with pytest.raises(DataError, match="different columns"):
        flowveil.read_trips(folder, zones=ZONES)


@pytest.mark.parametrize("address", ["https://example.org/t.parquet", "s3://bucket/t.parquet"])
def test_no_other_machine_is_contacted_by_accident(address) -> None:
    with pytest.raises(ParameterError, match=r"remote=True \(--set input.remote=true\)"):
        flowveil.read_trips(address)


@pytest.mark.parametrize(
    "address", ["http://example.org/t.parquet", "https://example.org/t.csv", "ftp://e/t.parquet"]
)
def test_other_addresses_are_refused_even_on_request(address) -> None:
    with pytest.raises(
        ParameterError, match="only Parquet is read, and only from s3:// and https://"
    ):
        flowveil.read_trips(address, remote=True)


def test_without_the_extension_the_error_says_what_to_install(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match="httpfs"):
        flowveil.read_trips("https://example.invalid/t.parquet", remote=True)
