"""Hostile folders: before a file is parsed, it is a regular file of a sane size that the manifest lists and hashes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from flowveil.paths import most_bytes, open_regular, read_json
from flowveil.published.folder import MANIFEST

_NEEDED = ("flows.parquet", "zones.parquet", "report.json", "report.html")
_MOST_ENTRIES = 1_000


def check_files(folder: Path) -> list[str]:
    """Returns findings on the files of a folder; only if there are none may they be parsed."""
    if not folder.is_dir():
        return ["there is no such folder"]
    try:
        present = _entries(folder)
    except OSError:
        return ["the folder cannot be read"]
    if len(present) > _MOST_ENTRIES:
        return ["the folder has more entries than any release"]
    irregular = dict(_irregular(folder, present))
    if MANIFEST in irregular:
        return list(irregular.values())
    listed = _listed(folder)
    if listed is None:
        return [*irregular.values(), f"{MANIFEST}: missing or not readable"]
    return [*irregular.values(), *_compare(folder, present, listed, set(irregular))]


def hash_files(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every regular file of a folder, by name."""
    try:
        names = sorted(_entries(folder))
    except OSError:
        return {}
    found = {_printable(name): _sha256(folder / name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _entries(folder: Path) -> set[str]:
    found: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            found.add(entry.name)
            if len(found) > _MOST_ENTRIES:
                break
    return found


def _irregular(folder: Path, present: set[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(present):
        found = os.lstat(folder / name)
        if not stat.S_ISREG(found.st_mode):
            yield name, f"{_printable(name)}: not a regular file"
        elif found.st_size > most_bytes(name):
            yield name, f"{_printable(name)}: larger than any file of a release"


def _listed(folder: Path) -> dict[str, str] | None:
    try:
        listed = read_json(folder / MANIFEST)["sha256"]
        return {str(name): str(value) for name, value in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _compare(folder: Path, present: set[str], listed: dict[str, str], irregular: set[str]) -> Iterator[str]:
    for name in sorted((set(listed) | set(_NEEDED)) - present):
        yield f"{_printable(name)}: missing"
    for name in sorted(present - set(listed) - {MANIFEST}):
        yield f"{_printable(name)}: not listed in {MANIFEST}"
    for name in sorted(present & set(listed) - irregular):
        if _sha256(folder / name) != listed[name]:
            yield f"{_printable(name)}: its SHA-256 is not the one in {MANIFEST}"


def _printable(name: str) -> str:
    """Returns a name from a folder on one line, without control characters."""
    return name if name.isprintable() else ascii(name)


def _sha256(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
