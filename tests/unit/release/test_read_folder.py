"""An untrusted published folder: readers get an answer or a plain refusal, in bounded time."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import anonymize, read_trips
from flowveil.analysis.audit import audit
from flowveil.core.errors import FlowveilError, ParameterError
from flowveil.publishing.api import freeze, picture, reconstruct
from flowveil.release.folder import ReleaseFolder, read_bounded
from flowveil.release.revision import Earlier
from flowveil.release.zone_map import FrozenMap
from samples.drafts import unchecked
from samples.hourly import hourly_trips
from samples.odd_files import endless, pipe
from samples.releases import read_json, rehash, write_json


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    flows = read_trips(hourly_trips().select(range(4)), resolution=7)
    with unchecked():
        return anonymize(flows, k=5).write(tmp_path_factory.mktemp("made") / "out")


@pytest.fixture
def release(made, tmp_path):
    return shutil.copytree(made, tmp_path / "release")


#: Everything that reads a folder, except verify, which has a separate reader.
READERS = {
    "freeze": lambda folder: freeze(folder),
    "audit": lambda folder: audit([folder]),
    "reconstruct": lambda folder: reconstruct(folder, zones=6),
    "picture": lambda folder: picture(folder, folder.parent / "map.svg"),
    "revision": lambda folder: Earlier.read(folder).zones_of(None),
}
readers = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def _link(path, tmp_path):
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")


@readers
@pytest.mark.parametrize("change", [pipe, endless, _link])
@pytest.mark.parametrize("name", ["report.json", "flows.parquet"])
def test_only_regular_files_are_opened(release, tmp_path, read, name, change):
    change(release / name, tmp_path)
    with pytest.raises(ParameterError, match=r"release that can be read|as it was published"):
        read(release)


def test_a_table_that_unpacks_to_far_more_is_not_read(tmp_path):
    n = 40_000_000
    column = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int8()), ["x"])
    pq.write_table(pa.table({"zone": column}), tmp_path / "zones.parquet", compression="zstd")
    assert (tmp_path / "zones.parquet").stat().st_size < 1 << 20
    with pytest.raises(ValueError, match="more rows than fit"):
        read_bounded(tmp_path / "zones.parquet")
    with pytest.raises(ParameterError, match="release that can be read"):
        _ = ReleaseFolder(tmp_path).zones
    with pytest.raises(ParameterError, match="frozen map"):
        FrozenMap.read(tmp_path / "zones.parquet")


def test_the_path_of_a_folder_is_no_column(made, tmp_path):
    (tmp_path / "trips=1000").mkdir()
    folder = ReleaseFolder(shutil.copytree(made, tmp_path / "trips=1000" / "zone=x"))
    assert folder.flows.equals(pq.read_table(made / "flows.parquet", partitioning=None))
    assert "x" not in folder.zones["zone"].to_pylist()


@pytest.mark.parametrize("resolution", [None, "8", True, 99])
def test_a_map_without_its_resolution_is_not_kept(release, resolution):
    report = read_json(release / "report.json")
    report["parameters"]["resolution"] = resolution
    write_json(release / "report.json", report)
    rehash(release)
    with pytest.raises(
        ParameterError, match=r"at which resolution|form of a release|only zones of a tree"
    ):
        FrozenMap.read(release)


def test_changed_folders_are_read_or_refused(made, tmp_path):
    fuzz = pytest.importorskip(
        "benchmarks.fuzz_verify", reason="needs the repository's folder benchmarks"
    )
    names = ["flows.parquet", "zones.parquet", "report.json"]
    for number in range(20):
        folder = shutil.copytree(made, tmp_path / "changed")
        done = fuzz.change_folder(folder, random.Random(number), names)
        fuzz.rehash(folder)
        for name, read in READERS.items():
            if name == "picture" and number > 3:
                continue  # Drawing takes long.
            try:
                read(folder)
            except FlowveilError:
                continue
            except Exception as problem:
                raise AssertionError(f"{number}, {name}: {done}") from problem
        shutil.rmtree(folder)
