"""Folders of the workbench: the private one for trips, flows and results, and the one that files are picked from."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowveil.private_files import scratch_folder
from flowveil.workbench.guard import RefusedError

_PREFIX = "flowveil-workbench-"
#: Endings of the names of trip files and of maps.
TRIPS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".omx")
ZONES = (".csv", ".parquet", ".geojson", ".json", ".gpkg")
#: Upper bound for the listed entries of a folder.
MOST_LISTED = 500


@contextmanager
def private_folder() -> Iterator[Path]:
    """Creates the private folder of a server, and removes it at the end."""
    with scratch_folder(_PREFIX) as room:
        for name in ("files", "jobs", "releases", "tmp"):
            os.mkdir(room / name, 0o700)
        yield room


def below(root: Path, asked: str) -> Path:
    """Resolves a relative path below a folder, symbolic links included.

    Raises:
        RefusedError: the path leads out of the folder, or a part of it is hidden or missing.
    """
    refused = RefusedError(403, "Only files below the folder that flowveil serve was started in can be picked.")
    parts = asked.replace("\\", "/").split("/") if asked else []
    if "\0" in asked or os.path.isabs(asked) or any(part in ("", "..") or part.startswith(".") for part in parts):
        raise refused
    base = Path(os.path.realpath(root))
    try:
        place = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    except (OSError, ValueError):
        raise RefusedError(404, "This file is not below the folder.") from None
    if place != base and base not in place.parents:
        raise refused
    if any(part.startswith(".") for part in place.relative_to(base).parts):
        # Links to hidden files count as hidden.
        raise refused
    return place


def listing(root: Path, asked: str, suffixes: tuple[str, ...]) -> list[dict[str, object]]:
    """Lists folders and files with the given endings in a folder below the root, folders first.

    Raises:
        RefusedError: the path is not a folder below the root.
    """
    folder = below(root, asked)
    if not folder.is_dir():
        raise RefusedError(404, "This folder is unknown.")
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
    """Whether a path is a regular file with one of the endings."""
    return place.name.casefold().endswith(suffixes) and stat.S_ISREG(os.stat(place).st_mode)


def suffix_of(name: str, suffixes: tuple[str, ...]) -> str:
    """The ending of a file name.

    Raises:
        RefusedError: the ending is not known.
    """
    found = [suffix for suffix in suffixes if name.casefold().endswith(suffix)]
    if not found:
        raise RefusedError(415, f"Files of this kind are not read here. Known are {', '.join(suffixes)}.")
    return max(found, key=len)
