"""Scratch folders for raw trips: readable by their owner only, locked while in use, removed when their process is gone.

A process that is killed cannot remove its folder. The lock ends with the process, so the next start recognises folders
without a lock as dead and removes them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowveil.output import lock_folder

#: Folders that DuckDB spills to start with this.
SPILL = "flowveil-raw-trips-"


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
