"""A folder is what its cells, its zones and its statement produce, and nothing is made or checked
twice on the way."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil import anonymize, anonymize_slices, read_slices, read_trips, verify_release
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.published import folder as published_folder
from flowveil.publishing.publish import publish
from flowveil.release import folder as release_folder
from flowveil.verify import verification
from samples.releases import city_flows, edit_table, release_of
from samples.segmented import survey
from samples.verified import findings_of


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return release_of(city_flows(), budget="volume").write(
        tmp_path_factory.mktemp("original") / "release"
    )


@pytest.fixture
def release(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "release"))


def change(folder: Path, name: str, values: dict[str, Any]) -> None:
    """Changes entries of a JSON file; all hashes are right afterwards."""
    content = json.loads((folder / name).read_text("utf-8"))
    (folder / name).write_text(json.dumps(content | values), "utf-8")
    rehash(folder)


def rehash(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["sha256"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in manifest["sha256"]
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def claim_version(folder: Path, version: str) -> None:
    for name in ("report.json", "manifest.json"):
        change(folder, name, {"version": version})


def test_a_folder_of_another_version_is_compared_by_value(release):
    claim_version(release, "0.3.99")
    assert findings_of(release, city_flows()) == []


def test_a_folder_of_another_version_does_not_hold_strictly(release):
    """Its bytes were not compared: blanks of report.json could carry anything."""
    claim_version(release, "0.3.99")
    assert not verify_release(release, against=city_flows(), strict=True).holds


@pytest.mark.parametrize("version", ["9.9.9+mfrggzdf", "9.9." + "9" * 40, "9.9.9\n", "9.9.9.dev"])
def test_a_version_says_nothing_else(release, version):
    claim_version(release, version)
    assert not verify_release(release, against=city_flows()).holds


def test_what_was_hashed_is_what_was_verified(release, monkeypatch):
    """Another folder takes the place of a wrong one after its files were hashed."""
    good = shutil.copytree(release, release.parent / "good")
    edit_table(
        release, "flows.parquet", lambda rows: [{**row, "trips": row["trips"] + 1} for row in rows]
    )
    hashed = verification.check_files

    def check_files(folder, copy):
        found = hashed(folder, copy)
        release.rename(release.parent / "away")
        good.rename(release)
        return found

    monkeypatch.setattr(verification, "check_files", check_files)
    assert not verify_release(release, against=city_flows()).holds


@pytest.mark.parametrize("name", ["manifest.json", "report.json"])
def test_nothing_is_hidden_in_a_folder_that_claims_another_version(release, name):
    claim_version(release, "0.3.99")
    about = {"about": {"note": "three trips"}} if name == "manifest.json" else {}
    if name == "report.json":
        published = json.loads((release / name).read_text("utf-8"))["published"]
        about = {"published": {**published, "smallest_cell": published["smallest_cell"] + 1}}
    change(release, name, about)
    assert findings_of(release, city_flows())[0].startswith(f"{name}: is not what the cells")


@pytest.mark.parametrize(
    "how", [{}, {"by": "sex"}, {"method": "laplace", "epsilon": 1, "level": 5, "bound": 2}]
)
def test_a_parameter_that_is_left_out_is_found(how, tmp_path):
    """Also one that has its default, which changes nothing else in the folder."""
    pq.write_table(survey(), tmp_path / "trips.parquet")
    by = {name: how.pop(name) for name in ("by",) if name in how}
    read, make = (read_slices, anonymize_slices) if by else (read_trips, anonymize)
    flows = read(tmp_path / "trips.parquet", resolution=7, weight="weight", **by)
    region = {"region": "observed"} if how else {"k": 5}
    folder = make(flows, **how, **region).write(tmp_path / "release")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    stated = report["parameters"]
    assert verify_release(folder, against=tmp_path / "trips.parquet", noise=False).findings == ()

    def findings(parameters: dict[str, Any]) -> str:
        change(folder, "report.json", {"parameters": parameters})
        return "".join(
            verify_release(folder, against=tmp_path / "trips.parquet", noise=False).findings
        )

    for name in stated:
        assert name in findings({n: v for n, v in stated.items() if n != name}), name
    for name in stated["options"]:
        options = {n: v for n, v in stated["options"].items() if n != name}
        assert findings({**stated, "options": options}), name


#: Every format, and files whose values cannot be compared between versions: a note says so.
FORMATS = ("csv", "geojson", "gpkg", "omx", "wide", "flowmap", "kepler", "arrow", "dcat")
ONLY_NOTED = ("report.html", "release.gpkg", "flows.omx")


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    release = release_of(city_flows(), budget="volume")
    return release.write(
        tmp_path_factory.mktemp("exported") / "release", formats=FORMATS, contact="a@example.org"
    )


def with_secret(content: bytes) -> bytes:
    """Returns an Arrow file with one column more."""
    table = pa.ipc.open_file(content).read_all()
    table = table.append_column("SECRET", pa.array([3] * len(table)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.slow
def test_an_addition_to_any_file_is_found_whatever_version_is_claimed(exported, tmp_path):
    """Hashes are right again after each change."""
    names = sorted(path.name for path in exported.iterdir() if path.name != "manifest.json")
    assert len(names) > 15
    for name in names:
        for version in (None, "0.3.99"):
            folder = Path(shutil.copytree(exported, tmp_path / f"{name}-{version}"))
            content = (folder / name).read_bytes()
            if Path(name).suffix in (".json", ".jsonld", ".geojson"):
                content = json.dumps(json.loads(content) | {"SECRET": 3}).encode()
            elif name.endswith(".arrow"):
                content = with_secret(content)
            else:
                content += b"SECRET\n"
            (folder / name).write_bytes(content)
            rehash(folder)
            if version is not None:
                claim_version(folder, version)
            notes: list[str] = []
            findings = findings_of(folder, city_flows(), notes=notes)
            if version is not None and name in ONLY_NOTED:
                assert any(note.startswith(f"{name}: not compared") for note in notes), name
            else:
                assert findings, (name, version)


def test_other_sentences_of_another_version_are_not_passed_over(release):
    claim_version(release, "0.3.99")
    published = json.loads((release / "report.json").read_text("utf-8"))["published"]
    change(
        release,
        "report.json",
        {"published": {**published, "sentences": ["Three trips are hidden."]}},
    )
    notes: list[str] = []
    assert findings_of(release, city_flows(), notes=notes) == []
    assert any("sentences were not compared" in note for note in notes)


@pytest.mark.parametrize("kind", ["layers", "slices"])
def test_the_order_of_rows_carries_nothing(kind, tmp_path):
    flows = city_flows()
    if kind == "slices":
        sliced = Flows.from_slices(("sex",), (("f",), ("m",)), (flows, flows))
        release = flowveil.anonymize_slices(sliced, k=5)
    else:
        sliced, release = flows, flowveil.anonymize(flows, k=5, method="layercut")
    folder = release.write(tmp_path / "release")
    assert findings_of(folder, sliced) == []
    edit_table(folder, "flows.parquet", lambda rows: [rows[1], rows[0], *rows[2:]])
    assert findings_of(folder, sliced) == [
        "flows.parquet: its rows are not in the order of a release"
    ]


def test_a_damaged_table_is_a_finding_and_no_traceback(release):
    content = bytearray((release / "zones.parquet").read_bytes())
    content[-40:-20] = b"\xff" * 20
    (release / "zones.parquet").write_bytes(bytes(content))
    rehash(release)
    assert "zones.parquet: cannot be read" in findings_of(release, city_flows())


@pytest.mark.parametrize("zones", [5, {"no_such_role": "x"}])
def test_columns_of_a_map_that_are_none_are_no_traceback(release, trips_csv, zones):
    report = json.loads((release / "report.json").read_text("utf-8"))
    change(release, "report.json", {"parameters": report["parameters"] | {"zones": zones}})
    with pytest.raises(ParameterError, match="holds no release that can be read"):
        verify_release(release, against=trips_csv, zones=pa.table({"zone": ["a"], "parent": ["b"]}))


def test_a_folder_of_version_0_2_names_the_version_that_reads_it(release, trips_csv):
    claim_version(release, "0.2.1")
    found = flowveil.verify_release(release, against=trips_csv)
    assert not found.holds
    assert "flowveil==0.2" in found.findings[0]


def test_a_run_summarises_renders_hashes_and_validates_once(monkeypatch, tmp_path):
    calls: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        whole = getattr(module, name)

        def counted(*given: Any, **named: Any) -> Any:
            calls[f"{name} {Path(given[0]).name}" if name == "hash_file" else name] += 1
            return whole(*given, **named)

        monkeypatch.setattr(module, name, counted)

    for name in ("make_report", "render", "zones_table", "hash_file"):
        count(published_folder, name)
    count(release_folder, "check_report")
    publish(release_of(city_flows(), budget="volume"), tmp_path / "release")
    assert set(calls) >= {
        "make_report",
        "render",
        "zones_table",
        "check_report",
        "hash_file flows.parquet",
    }
    assert max(calls.values()) == 1, calls
