"""Files and scratch folders that only the operator may read: where they may be, and with which permissions.

Private files hold raw counts. They are refused inside every release folder, and created with mode 0600. Scratch folders
hold raw trips. They are locked while in use. The lock ends with the process, so the next start recognises folders of
killed processes and removes them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from flowveil.errors import OutputError
from flowveil.output import Content, check_file, lock_folder, real_place, write_files
from flowveil.paths import read_json

#: The `format` entry of a release's manifest.json.
_RELEASE_FORMAT = "flowveil release"
#: Folders that DuckDB spills to start with this.
SPILL = "flowveil-raw-trips-"


def check_place(path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> None:
    """Refuse a file that cannot be written, or that lies inside a release. Nothing is computed or written.

    Raises:
        OutputError: it cannot be written, or it lies inside a release.
    """
    refuse_inside_release(path, release=release)
    check_file(path)


def refuse_inside_release(path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> None:
    """Refuse a place inside a release folder.

    Args:
        path: a file or folder.
        release: a folder in which a release is about to be written.

    Raises:
        OutputError: it lies there.
    """
    target = real_place(path)
    around = {Path(os.path.realpath(release))} if release is not None else set()
    if around & {target, *target.parents} or any(_is_release(folder) for folder in (target, *target.parents)):
        raise OutputError(
            f"'{path}' lies inside a release, and private files are not for publication. Hint: name a place outside "
            "of it."
        )


def write_private(path: str | PathLike[str], document: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Write a document that only its owner may read.

    Args:
        path: the file.
        document: its text.
        folder: a release folder, in addition to existing ones, that must not contain it.

    Raises:
        OutputError: the file would lie inside a release, or cannot be written.
    """
    check_place(path, release=folder)
    write_files({path: lambda file: file.write_text(document, encoding="utf-8", newline="")}, private=True)
    return Path(path)


def make_private_folder(directory: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> Path:
    """Create a folder that only its owner may enter (mode 0700). An existing folder keeps its mode.

    Raises:
        OutputError: it is a file, lies inside a release, or cannot be created.
    """
    refuse_inside_release(directory, release=release)
    target = real_place(directory)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
    try:
        target.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be written: {problem.strerror}.") from problem
    return target


def write_private_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files with mode 0600 into a folder made by `make_private_folder`.

    Raises:
        OutputError: one cannot be written.
    """
    write_files({folder / name: content for name, content in files.items()}, private=True)


def _is_release(folder: Path) -> bool:
    try:
        content = read_json(folder / "manifest.json")
        return bool(content["format"] == _RELEASE_FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


# ---- scratch folders -------------------------------------------------------------------------------------------------


@contextmanager
def scratch_folder(prefix: str = SPILL, parent: str | Path | None = None) -> Iterator[Path]:
    """Creates a locked folder with mode 0700, and removes it at the end.

    Folders with the same prefix that killed processes left in `parent` or in the system's temporary folder are removed
    first.

    Args:
        prefix: start of the name of the folder.
        parent: where it is created; the system's temporary folder by default.
    """
    system = Path(tempfile.gettempdir())
    place = system if parent is None else Path(parent)
    for folder in {place, system}:
        remove_dead_folders(folder, prefix)
    path, lock = _locked(place, prefix)
    try:
        yield path
    finally:
        # Child processes that are about to end may still create a file.
        for _ in range(3):
            shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_dead_folders(parent: Path, prefix: str) -> None:
    """Removes the unlocked folders with this prefix that belong to this user.

    Does nothing on systems without file locks, where a dead folder cannot be recognised.
    """
    if not hasattr(os, "getuid"):
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                    continue
                lock = lock_folder(Path(entry.path))
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def _locked(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """A new folder and its lock; None where the system or the file system has no locks."""
    while True:
        path = parent / f"{prefix}{secrets.token_hex(8)}"
        os.mkdir(path, 0o700)
        try:
            lock = lock_folder(path)
        except BlockingIOError:
            # Another process removes it as dead: it was faster than the lock.
            continue
        except OSError:
            return path, None
        if lock is not None or not hasattr(os, "getuid"):
            return path, lock
