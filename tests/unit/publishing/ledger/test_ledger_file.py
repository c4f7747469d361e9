"""The files of a ledger: what was changed or removed is noticed, and a crash leaves them on the
safe side."""

from __future__ import annotations

import json
import os
import stat
import tarfile

import pytest

from flowveil import OutputError
from flowveil.publishing.ledger.ledger_file import HEAD, LEDGER, SECRET, open_ledger
from flowveil.system.output import Draft
from samples.drafts import unchecked
from unit.publishing.ledger.test_ledger_rule import trips, write


@pytest.fixture
def ledger(tmp_path):
    """A ledger of four lines."""
    with open_ledger(tmp_path / "ledger") as book:
        for name in "abcd":
            book.append({"name": name})
    return tmp_path / "ledger"


def names(ledger, **opening):
    with open_ledger(ledger, **opening) as book:
        return "".join(entry["name"] for entry in book.entries)


def lines(ledger):
    return (ledger / LEDGER).read_bytes().splitlines(keepends=True)


def test_all_files_are_for_their_owner_alone(ledger):
    assert names(ledger) == "abcd"
    for name in (LEDGER, SECRET, HEAD):
        assert stat.S_IMODE((ledger / name).stat().st_mode) == 0o600


def test_no_ledger_is_made_inside_a_release(tmp_path):
    with unchecked():
        folder = write(trips(), tmp_path / "ledger", "release")
    with pytest.raises(OutputError, match="inside a release"), open_ledger(folder / "ledger"):
        pass
    assert not (folder / "ledger").exists()


@pytest.mark.parametrize("left", ["bcd", "acd", "abc", "", "acbd", "abcdd"])
def test_lines_that_were_removed_moved_or_repeated_are_noticed(ledger, left):
    by_name = dict(zip("abcd", lines(ledger), strict=True))
    (ledger / LEDGER).write_bytes(b"".join(by_name[name] for name in left))
    with pytest.raises(OutputError, match="not as it was written"):
        names(ledger)


@pytest.mark.parametrize(
    "change", [(b'"a"', b'"x"'), (b'"d"', b'"x"'), (b"ledger", b"other"), (b"}\n", b"")]
)
def test_a_changed_or_truncated_line_is_noticed(ledger, change):
    (ledger / LEDGER).write_bytes((ledger / LEDGER).read_bytes().replace(*change))
    with pytest.raises(OutputError, match="not as it was written"):
        names(ledger)


@pytest.mark.parametrize("name", [HEAD, SECRET])
def test_a_missing_file_is_refused(ledger, name):
    (ledger / name).unlink()
    with pytest.raises(OutputError):
        names(ledger)
    assert not (ledger / name).exists()


def test_an_older_copy_of_the_lines_is_refused(ledger):
    older = (ledger / LEDGER).read_bytes()
    with open_ledger(ledger) as book:
        book.append({"name": "e"})
    (ledger / LEDGER).write_bytes(older)
    with pytest.raises(OutputError, match="not as it was written"):
        names(ledger)


def test_a_restored_backup_is_refused_until_it_is_acknowledged(ledger, tmp_path):
    with open_ledger(ledger) as book:
        book.write_backup(tmp_path / "backup.tar")
    assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600
    restored = tmp_path / "restored"
    with tarfile.open(tmp_path / "backup.tar") as archive:
        archive.extractall(restored, filter="data")
    with pytest.raises(OutputError, match="restored from a backup with 4 lines"):
        names(restored)
    assert names(restored, accept_restored=True) == "abcd"
    assert names(restored) == "abcd"
    with open_ledger(ledger) as book, pytest.raises(OutputError, match="cannot be written"):
        book.write_backup(tmp_path / "backup.tar")


def test_an_incomplete_line_of_a_crash_is_removed_and_a_line_before_its_head_is_kept(ledger):
    whole, head = (ledger / LEDGER).read_bytes(), (ledger / HEAD).read_bytes()
    (ledger / LEDGER).write_bytes(whole + whole[:20])
    assert names(ledger) == "abcd"
    assert (ledger / LEDGER).read_bytes() == whole
    with open_ledger(ledger) as book:
        book.append({"name": "e"})
    (ledger / HEAD).write_bytes(head)
    assert names(ledger) == "abcde"
    assert (ledger / HEAD).read_bytes() != head


def rewrite(ledger, entries, **head):
    """Lines without their chain and a head without its HMAC: what someone without the key can
    write."""
    (ledger / LEDGER).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (ledger / HEAD).write_text(json.dumps({"entries": len(entries), "chain": "", **head}))


@pytest.mark.parametrize("kept", [0, 1, 4])
@pytest.mark.parametrize("removed", [(), (HEAD,), (LEDGER, HEAD)])
def test_without_the_key_no_ledger_can_be_written(ledger, kept, removed):
    entries = [json.loads(line) for line in lines(ledger)][:kept]
    unchained = [{name: own for name, own in one.items() if name != "chain"} for one in entries]
    stored = json.loads((ledger / HEAD).read_text())["hmac"]
    for content in (entries, unchained):
        rewrite(ledger, content, hmac=stored)
        for name in removed:
            (ledger / name).unlink()
        with pytest.raises(OutputError, match="not as it was written"):
            names(ledger)


def test_the_mark_of_a_backup_cannot_be_removed(ledger, tmp_path):
    with open_ledger(ledger) as book:
        book.write_backup(tmp_path / "backup.tar")
    with tarfile.open(tmp_path / "backup.tar") as archive:
        archive.extractall(tmp_path / "restored", filter="data")
    head = json.loads((tmp_path / "restored" / HEAD).read_text())
    del head["backup"]
    (tmp_path / "restored" / HEAD).write_text(json.dumps(head))
    with pytest.raises(OutputError, match="not as it was written"):
        names(tmp_path / "restored")


def test_a_crash_between_recording_and_publishing_leaves_the_release_recorded(tmp_path):
    """A killed process: the ledger knows the release, readers do not.

    The same run again publishes it.
    """
    ledger = tmp_path / "ledger"
    child = os.fork()
    if child == 0:
        Draft.take_place = lambda _: os._exit(9)
        with unchecked():
            write(trips(), ledger, "first")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (tmp_path / "first").exists()
    assert names(ledger) == "first"
    with unchecked():
        write(trips(), ledger, "first")
    assert (tmp_path / "first" / "report.json").exists()
    assert names(ledger) == "first"
