"""Where the workbench keeps files: a private folder that is gone afterwards, and the folder that it was started in.

Trips, flows and results lie in a temporary folder that only its owner may read. It is removed when the server ends; if
the server was killed, the next one finds the folder without its lock and removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowveil.output import lock_folder
from flowveil.workbench.guard import RefusedError

_PREFIX = "flowveil-workbench-"
#: What trips and maps may be, by the end of their names.
TRIPS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".omx")
ZONES = (".csv", ".parquet", ".geojson", ".json", ".gpkg")
#: Entries of a folder that are listed.
MOST_LISTED = 500


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder with mode 0700 that is removed in the end; folders that killed servers left are removed at the start."""
    parent = Path(tempfile.gettempdir())
    remove_stale(parent)
    room = parent / f"{_PREFIX}{secrets.token_hex(8)}"
    os.mkdir(room, 0o700)
    lock = None
    try:
        with contextlib.suppress(OSError):
            lock = lock_folder(room)
        for name in ("files", "jobs", "releases", "tmp"):
            os.mkdir(room / name, 0o700)
        yield room
    finally:
        # Worker processes may be about to end: a file of theirs may appear while we look.
        for _ in range(3):
            shutil.rmtree(room, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_stale(parent: Path) -> None:
    """Remove the folders of servers that are gone: ours, real folders, and locked by nobody."""
    if not hasattr(os, "getuid"):
        # Without locks nobody knows who is gone.
        return
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX):
            continue
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = lock_folder(Path(entry.path))
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def below(root: Path, asked: str) -> Path:
    """A place below a folder by its relative path, with all links followed.

    Raises:
        RefusedError: it leads elsewhere, is hidden, or cannot be.
    """
    refused = RefusedError(403, "Only files below the folder that flowveil serve was started in can be picked.")
    parts = asked.replace("\\", "/").split("/") if asked else []
    if "\0" in asked or os.path.isabs(asked) or any(part in ("", "..") or part.startswith(".") for part in parts):
        raise refused
    base = Path(os.path.realpath(root))
    try:
        place = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    except (OSError, ValueError):
        raise RefusedError(404, "There is no such file below the folder.") from None
    if place != base and base not in place.parents:
        raise refused
    if any(part.startswith(".") for part in place.relative_to(base).parts):
        # A link to what is hidden leads to what is hidden.
        raise refused
    return place


def listing(root: Path, asked: str, suffixes: tuple[str, ...]) -> list[dict[str, object]]:
    """Folders and files of a kind in a folder below the root, folders first.

    Raises:
        RefusedError: the place is no folder below the root.
    """
    folder = below(root, asked)
    if not folder.is_dir():
        raise RefusedError(404, "There is no such folder.")
    found: list[dict[str, object]] = []
    for entry in sorted(os.scandir(folder), key=lambda e: (not e.is_dir(), e.name.casefold())):
        if entry.name.startswith(".") or len(found) == MOST_LISTED:
            continue
        path = f"{asked}/{entry.name}" if asked else entry.name
        with contextlib.suppress(RefusedError, OSError):
            place = below(root, path)
            if place.is_dir():
                found.append({"name": entry.name, "path": path, "folder": True})
            elif is_kind(place, suffixes):
                found.append({"name": entry.name, "path": path, "folder": False, "size": place.stat().st_size})
    return found


def is_kind(place: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether it is a plain file of such a kind: no pipe, no device."""
    return place.name.casefold().endswith(suffixes) and stat.S_ISREG(os.stat(place).st_mode)


def suffix_of(name: str, suffixes: tuple[str, ...]) -> str:
    """The end of a file's name that says its kind.

    Raises:
        RefusedError: none is known.
    """
    found = [suffix for suffix in suffixes if name.casefold().endswith(suffix)]
    if not found:
        raise RefusedError(415, f"Files of this kind are not read here. Known are {', '.join(suffixes)}.")
    return max(found, key=len)
