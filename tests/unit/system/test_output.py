"""Results take their places whole or not at all, and no failing command leaves anything new."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowveil.core.errors import OutputError
from flowveil.reading.database import open_database
from flowveil.system import output
from flowveil.system.limits import limits
from flowveil.system.output import (
    SPILL,
    Draft,
    check_file,
    check_private_folder,
    remove_stale_drafts,
    scratch_folder,
    write_files,
    write_folder,
)
from samples.drafts import unchecked
from samples.killed import KILL_AT_CHANGE
from samples.processes import light_sources
from samples.releases import city_flows, release_of
from unit.apps.cli.test_cli import run, snapshot

#: A process that begins a draft, moves the earlier result aside if asked to, and then waits.
_BEGIN = """
import os, sys, time
from flowveil.system.output import Draft
with Draft(sys.argv[1]) as draft:
    os.mkdir(draft.new)
    (draft.new / "unverified").write_text("secret")
    if sys.argv[2] == "aside":
        os.mkdir(draft._old.parent)
        os.rename(draft.target, draft._old)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def light(tmp_path_factory):
    """Where processes find their flowveil."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", light_sources(tmp_path_factory.mktemp("light")))
        yield


def begin(target, *, aside=False):
    command = [sys.executable, "-c", _BEGIN, str(target), "aside" if aside else ""]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_what_a_killed_run_left_is_removed_by_the_next_and_a_living_one_is_not_touched(tmp_path):
    (tmp_path / ".flowveil-draft-notes").mkdir()
    (tmp_path / f".flowveil-draft-{0:016x}").mkdir()
    (tmp_path / f".flowveil-draft-{0:016x}" / "thesis.docx").write_text("years of work")
    strangers = set(tmp_path.iterdir())
    dead, living = begin(tmp_path / "a"), begin(tmp_path / "b")
    try:
        assert len(set(tmp_path.iterdir()) - strangers) == 2
        kill(dead)
        write_files({tmp_path / "c": lambda path: path.write_text("c")})
        (room,) = set(tmp_path.iterdir()) - strangers - {tmp_path / "c"}
        assert (room / "new" / "unverified").read_text() == "secret"
    finally:
        kill(living)
    check_file(tmp_path / "d")
    assert set(tmp_path.iterdir()) == strangers | {tmp_path / "c"}


@pytest.mark.slow
def test_a_folder_survives_a_kill_at_every_change_of_a_file(tmp_path):
    target = tmp_path / "out"
    program = (
        KILL_AT_CHANGE
        + "from flowveil.system.output import write_folder\nwrite_folder(sys.argv[1], {'a': 'new',"
        " 'b': 'new'})"
    )

    def killed_at(change):
        write_folder(target, {"a": "old", "b": "old"})
        command = [sys.executable, "-B", "-c", program, str(change), str(target)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    changes = int(killed_at(0).stdout.split()[-1])
    assert changes > 8
    for change in range(1, changes + 1):
        assert killed_at(change).returncode == -signal.SIGKILL
        remove_stale_drafts(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["out"], change
        assert {path.read_text() for path in target.iterdir()} in ({"old"}, {"new"}), change
        assert len(list(target.iterdir())) == 2, change


def test_a_note_that_flowveil_did_not_write_keeps_its_folder(tmp_path):
    room = tmp_path / f".flowveil-draft-{0:016x}"
    room.mkdir()
    (room / "draft.json").write_text("mine")
    remove_stale_drafts(tmp_path)
    assert (room / "draft.json").read_text() == "mine"


def test_a_release_that_a_killed_run_had_moved_aside_comes_back(tmp_path):
    release = release_of(city_flows(), budget="volume")
    with unchecked():
        target = release.write(tmp_path / "out")
    before = snapshot(target)
    kill(begin(target, aside=True))
    assert not target.exists()
    remove_stale_drafts(tmp_path)
    assert snapshot(target) == before
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.slow
def test_an_interrupt_at_any_line_leaves_the_old_result_or_the_new_one_and_no_draft(
    tmp_path, there
):
    """Ctrl-C is raised at the first line of the module that runs, at the second, and so on until
    none is left."""
    target, left = tmp_path / "release", {"old": "1"} if there else None

    def write_interrupted(stop):
        lines = iter(range(stop))

        def interrupt(frame, event, _):
            if frame.f_code.co_filename != output.__file__:
                return None
            if event == "line" and next(lines, None) is None:
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt

        try:
            sys.settrace(interrupt)
            check_private_folder(target, "a result", lambda _: True)
            write_folder(target, {"new": "2"})
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(None)
        return True

    # In another thread: an exception raised by a trace function can stay the handled one of its
    # thread.
    with ThreadPoolExecutor(1) as pool:
        for stop in range(1000):
            shutil.rmtree(target, ignore_errors=True)
            if left:
                write_folder(target, left)
            whole = pool.submit(write_interrupted, stop).result()
            output.remove_own_drafts()
            found = (
                {file.name: file.read_text() for file in target.iterdir()}
                if target.exists()
                else None
            )
            assert found in (left, {"new": "2"}), stop
            assert [path.name for path in tmp_path.iterdir() if path != target] == [], stop
            if whole:
                break
    assert whole
    assert stop > 50


def test_a_folder_that_only_looks_like_a_draft_is_neither_unpacked_nor_removed(tmp_path):
    def room(number, name, note):
        made = tmp_path / f".flowveil-draft-{number:016x}"
        for part in ("old", "new"):
            (made / part).mkdir(parents=True)
            (made / part / name).write_text("planted")
        if note is not None:
            note.setdefault("folder", made.stat().st_ino)
            (made / "draft.json").write_text(json.dumps(note))
        return made

    room(1, ".bashrc", None)
    room(2, ".bashrc", {"target": ".bashrc", "folder": 1})
    room(3, ".bashrc", {"target": "out"})
    room(4, "up", {"target": "../up"})
    room(5, "out", {"target": ["out"]})
    (room(6, "out", {}) / "draft.json").write_text("[" * 10_000)
    before = listing(tmp_path)
    # Drafts of a killed run as they come out of an archive: another folder with the same content.
    (tmp_path / "moved").mkdir()
    kill(begin(tmp_path / "moved" / "release"))
    (draft,) = (tmp_path / "moved").iterdir()
    shutil.copytree(draft, tmp_path / draft.name)
    before |= listing(tmp_path)
    with Draft(tmp_path / "out") as own:
        own.new.write_text("whole")
        own.take_place()
    assert listing(tmp_path) == before | {tmp_path / "out": b"whole"}


def test_a_draft_that_is_removed_before_it_is_locked_is_begun_again(tmp_path, monkeypatch):
    real, first = output.lock_folder, []

    def late(room):
        if not first:
            first.append(room)
            remove_stale_drafts(tmp_path)
        return real(room)

    monkeypatch.setattr(output, "lock_folder", late)
    with Draft(tmp_path / "out") as draft:
        draft.new.write_text("whole")
        draft.take_place()
    assert (tmp_path / "out").read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_files_appear_together_or_not_at_all(tmp_path, monkeypatch):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("old")
    files = {a: lambda path: path.write_text("new"), b: lambda path: path.write_text("new")}
    real = os.rename

    def rename(source, goal):
        if os.fspath(goal) == os.fspath(b):
            raise OSError(28, "No space left on device")
        real(source, goal)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(OutputError, match="No space left"):
            write_files(files)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "old"}
    (tmp_path / "link").symlink_to(a)
    write_files({tmp_path / "link": files[a], b: files[b]}, private=True)
    assert (tmp_path / "link").is_symlink()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "a": "new",
        "b": "new",
        "link": "new",
    }
    assert b.stat().st_mode & 0o777 == 0o600


def _places(tmp_path):
    (tmp_path / "file").write_text("a file")
    yield "a" * 300
    yield str(tmp_path / ("a" * 300))
    yield "a\0b"
    yield str(tmp_path / "\ud800")
    yield str(tmp_path / "\udcff")
    yield ""
    yield str(tmp_path / "file" / "below")
    yield "/proc/x"


COMMANDS = {
    "demo": ("demo", "--out"),
    "anonymize": ("anonymize", "TRIPS", "--resolution", 8, "--k", 5, "--out"),
    "compare": ("compare", "TRIPS", "--resolution", 8, "--out"),
    "picture": ("picture", "RELEASE", "--out"),
    "study": ("study", "TRIPS", "--by", "person", "--out"),
    "prepare": ("prepare", "gps", "TRIPS", "--out"),
    "mondrian": (
        "tabular",
        "mondrian",
        "TRIPS",
        "--k",
        5,
        "--quasi",
        "start_lat",
        "--no-identifiers",
        "--out",
    ),
    "ipf": ("tabular", "ipf", "TRIPS", "--epsilon", 1, "--out"),
    "tabular compare": (
        *(
            "tabular",
            "compare",
            "TRIPS",
            "--quasi",
            "a",
            "--sensitive",
            "b",
            "--no-identifiers",
            "--out",
        ),
    ),
}
ENDINGS = {"picture": ".png", "mondrian": ".csv", "ipf": ".csv"}


def listing(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_cannot_be_is_bad_usage_before_anything_is_read(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = {"TRIPS": "absent.csv", "OUT": tmp_path / "out", "RELEASE": tmp_path / "release"}
    if command == "picture":
        with unchecked():
            release_of(city_flows(), budget="volume").write(tmp_path / "release")
    for place in _places(tmp_path):
        before = listing(tmp_path)
        code = run(
            *(words.get(word, word) for word in COMMANDS[command]),
            place and place + ENDINGS.get(command, ""),
        )
        said = capsys.readouterr().err
        assert (code, said[:7]) == (2, "Error: "), place
        assert "absent.csv" not in said
        assert listing(tmp_path) == before


def test_a_terminal_that_cannot_show_a_sign_does_not_make_a_finished_command_fail(
    trips_csv, tmp_path, monkeypatch
):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    with monkeypatch.context() as patch, unchecked():
        patch.setattr(sys, "stdout", terminal)
        code = run("anonymize", trips_csv, "--k", 5, "--resolution", 6, "--out", tmp_path / "out-ε")
        terminal.flush()
    assert (code, (tmp_path / "out-ε").is_dir()) == (0, True)
    assert b"\\u03b5" in terminal.buffer.getvalue()


# ---- scratch folders ----


SPILLING = """
import sys, time
from flowveil.reading.database import open_database
from flowveil.system.limits import limits
with limits(memory="130MB", temp_dir=sys.argv[1]), open_database(1) as con:
    con.execute("CREATE TABLE persons AS SELECT 'SECRETPERSON' || hash(i) AS person FROM range(3000000) t(i)")
    print("spilled", flush=True)
    time.sleep(600)
"""


def test_a_killed_run_leaves_persons_only_until_the_next_start(tmp_path):
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", SPILLING, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "spilled\n"
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("flowveil-raw-trips-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sum(file.stat().st_size for file in folder.rglob("*")) > 10**6
        # A living run keeps its folder.
        with limits(temp_dir=tmp_path), open_database(1):
            assert folder.exists()
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert folder.exists()
    with limits(temp_dir=tmp_path), open_database(1):
        assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_only_dead_folders_of_ours_are_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (tmp_path / f"{SPILL}link").symlink_to(elsewhere)
    (tmp_path / f"{SPILL}file").touch()
    (tmp_path / "flowveil-other").mkdir()
    (tmp_path / f"{SPILL}dead" / "inner").mkdir(parents=True)
    with scratch_folder(parent=tmp_path) as one, scratch_folder(parent=tmp_path) as two:
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {
            "elsewhere",
            f"{SPILL}link",
            f"{SPILL}file",
            "flowveil-other",
            one.name,
            two.name,
        }
    assert (elsewhere / "kept").exists()
    assert not Path(one).exists()
    assert not Path(two).exists()
