"""A release folder appears whole and verified, or not at all."""

from __future__ import annotations

import errno
import getpass
import json
import os
import shutil
import socket
from contextlib import nullcontext

import pytest

from flowveil.core.errors import GuaranteeError, OutputError, ParameterError
from flowveil.published import folder as folder_module
from flowveil.published.folder import check_target
from flowveil.publishing import publish as publication
from flowveil.publishing.publish import publish
from flowveil.verify.recount import Result
from samples.drafts import unchecked
from samples.releases import city_flows, content, read_json, region_flows, release_of

FILES = [
    *("README.txt", "datapackage.json", "estimate.parquet", "flows.parquet"),
    *("manifest.json", "report.html", "report.json", "zones.parquet"),
]


@pytest.fixture
def not_recounted():
    """Where a test looks at what becomes of the files, not at the recount before they are there."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def release():
    return release_of(city_flows(), budget="volume")


@pytest.fixture(scope="module")
def other():
    return release_of(region_flows(), budget="volume")


@pytest.fixture(scope="module")
def earlier(other, tmp_path_factory):
    with unchecked():
        return publish(other, tmp_path_factory.mktemp("earlier") / "out")


def test_the_folder_has_its_files_and_their_hashes(release, tmp_path):
    out = publish(release, tmp_path / "out")
    assert out == tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    manifest = read_json(out / "manifest.json")
    assert sorted(manifest["sha256"]) == sorted(set(FILES) - {"manifest.json"})
    assert manifest["statement"] == read_json(out / "report.json")["published"]["sentences"]
    assert (out / "report.json").read_text(encoding="utf-8") == (
        json.dumps(read_json(out / "report.json"), sort_keys=True, indent=2, ensure_ascii=False)
        + "\n"
    )


@pytest.mark.usefixtures("not_recounted")
def test_the_same_release_gives_the_same_bytes(release, tmp_path):
    again = release_of(city_flows(), budget="volume")
    assert content(publish(release, tmp_path / "a")) == content(publish(again, tmp_path / "b"))


@pytest.mark.usefixtures("not_recounted")
def test_nothing_tells_where_or_by_whom_it_was_written(tmp_path):
    place = tmp_path / "secret-place"
    place.mkdir()
    release = release_of(city_flows(), budget="volume")
    out = publish(release, place / "out")
    everything = b"".join(content(out).values())
    assert b"secret-place" not in everything
    assert socket.gethostname().encode() not in everything
    assert getpass.getuser().encode() + b"/" not in everything


def test_a_parameter_that_no_release_has_is_not_published(tmp_path):
    release = release_of(city_flows(), budget="volume")
    object.__setattr__(release, "parameters", dict(release.parameters) | {"input": "trips.csv"})
    with pytest.raises(ParameterError, match="see parameters"):
        publish(release, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("not_recounted")
def test_rights_are_those_of_a_new_folder(release, tmp_path):
    (tmp_path / "plain").mkdir()
    out = publish(release, tmp_path / "out")
    assert out.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.usefixtures("not_recounted")
def test_an_empty_folder_and_an_earlier_release_are_replaced(release, other, tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    publish(other, target)
    old = content(target)
    (target / ".DS_Store").write_bytes(b"litter")
    publish(release, target)
    assert content(target) != old
    assert sorted(p.name for p in target.iterdir()) == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("not_recounted")
def test_a_link_stays_a_link(release, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    publish(release, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in (tmp_path / "real").iterdir()) == FILES


# ---- refusals ------------------------------------------------------------------------------------


def _file(tmp_path):
    (tmp_path / "out").write_text("a file")


def _strangers(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.docx").write_text("years of work")


def _foreign_manifest(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text('{"format": "web app", "sha256": {}}')


def _broken_manifest(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("{")


@pytest.mark.parametrize("prepare", [_file, _strangers, _foreign_manifest, _broken_manifest])
def test_what_is_not_a_release_is_never_overwritten(prepare, release, tmp_path):
    prepare(tmp_path)
    target = tmp_path / "out"
    before = target.read_bytes() if target.is_file() else content(target)
    with pytest.raises(OutputError) as raised:
        check_target(target)
    assert raised.value.exit_code == 2
    assert "Hint" in str(raised.value)
    with pytest.raises(OutputError):
        publish(release, target)
    assert (target.read_bytes() if target.is_file() else content(target)) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("not_recounted")
def test_a_users_own_file_in_a_release_is_not_deleted(release, tmp_path):
    out = publish(release, tmp_path / "out")
    (out / "my-notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"my-notes\.txt"):
        publish(release, out)
    assert (out / "my-notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("not_recounted")
def test_overwrite_can_be_forbidden(release, tmp_path):
    (tmp_path / "out").mkdir()
    out = publish(release, tmp_path / "out", overwrite=False)
    with pytest.raises(OutputError, match="may not be overwritten"):
        publish(release, out, overwrite=False)
    with pytest.raises(OutputError, match="may not be overwritten"):
        check_target(out, overwrite=False)


def test_parents_are_made(release, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of its path is a file"):
        publish(release, tmp_path / "file" / "no" / "out")
    assert publish(release, tmp_path / "no" / "out").is_dir()


# ---- crashes -------------------------------------------------------------------------------------


def fail_at(monkeypatch, owner, name, problem, call):
    """Let the n-th call of a function fail before it does anything."""
    real, calls = getattr(owner, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise problem
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return calls


def full_disk():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


POINTS = [
    (os, "mkdir", 1),
    (os, "fsync", 1),
    (os, "fsync", 3),
    (os, "fsync", 5),
    (folder_module.pq, "write_table", 1),
    (folder_module.pq, "write_table", 2),
    (folder_module, "json_text", 2),
    (folder_module, "render", 1),
    (publication, "recount_flows", 1),
    (os, "rename", 1),
    (os, "rename", 2),
]
PROBLEMS = [full_disk, KeyboardInterrupt, MemoryError]


@pytest.mark.parametrize(
    ("owner", "name", "call", "problem"),
    # Every point meets two kinds of problems, in turn.
    [
        (*point, p)
        for i, point in enumerate(POINTS)
        for p in PROBLEMS[: i % 3] + PROBLEMS[i % 3 + 1 :]
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_a_crash_leaves_the_old_release_untouched(
    release, earlier, tmp_path, monkeypatch, owner, name, call, problem
):
    target = shutil.copytree(earlier, tmp_path / "out")
    old = content(target)
    wanted = problem()
    with monkeypatch.context() as patch, nullcontext() if name == "recount_flows" else unchecked():
        calls = fail_at(patch, owner, name, wanted, call)
        with pytest.raises(OutputError if isinstance(wanted, OSError) else type(wanted)) as raised:
            publish(release, target)
    assert len(calls) >= call
    if isinstance(wanted, OSError):
        assert "No space left" in str(raised.value)
        assert raised.value.exit_code == 2
    assert content(target) == old
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("not_recounted")
@pytest.mark.parametrize("problem", [full_disk, KeyboardInterrupt])
@pytest.mark.parametrize(("owner", "name", "call"), [(os, "fsync", 2), (os, "rename", 1)], ids=str)
def test_a_crash_leaves_nothing_where_nothing_was(
    release, tmp_path, monkeypatch, problem, owner, name, call
):
    fail_at(monkeypatch, owner, name, problem(), call)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        publish(release, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("not_recounted")
def test_an_interrupt_right_after_the_rename_leaves_the_old_release(
    release, earlier, tmp_path, monkeypatch
):
    target = shutil.copytree(earlier, tmp_path / "out")
    old, real, calls = content(target), os.rename, []

    def rename(source, goal):
        real(source, goal)
        if os.fspath(goal) == os.fspath(target) and not calls:
            calls.append(goal)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            publish(release, target)
    assert calls
    assert content(target) == old
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_release_that_fails_the_recount_is_not_published(release, earlier, tmp_path, monkeypatch):
    target = shutil.copytree(earlier, tmp_path / "out")
    old = content(target)
    real = folder_module.pq.write_table

    def one_trip_more(table, file, **how):
        if "trips" in table.schema.names:
            table = table.set_column(
                2, "trips", [[value + 1 for value in table["trips"].to_pylist()]]
            )
        real(table, file, **how)

    monkeypatch.setattr(folder_module.pq, "write_table", one_trip_more)
    with pytest.raises(GuaranteeError, match="another number of trips") as raised:
        publish(release, target)
    assert raised.value.findings
    assert content(target) == old
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_appears_during_the_run_is_not_overwritten(release, tmp_path, monkeypatch):
    """A folder that appears while the release is written is looked at again, not swept away."""
    target = tmp_path / "out"

    def meanwhile(*_, **__):
        _strangers(tmp_path)
        return Result((), (), {})

    monkeypatch.setattr(publication, "recount_flows", meanwhile)
    with pytest.raises(OutputError, match="holds no release"):
        publish(release, target)
    assert content(target) == {"thesis.docx": b"years of work"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
