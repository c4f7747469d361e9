"""The folder before anything in it is believed: regular files of a sane size, each listed and hashed, nothing else.

A release comes from somebody. Until this check has passed, no file but the manifest is parsed, and no file is opened
that is not a regular one: a link could lead anywhere, and reading a pipe or a device never ends. Nothing in a folder is
ever unpickled, imported or executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from flowveil.paths import most_bytes, open_regular, read_json

FILES = ("flows.parquet", "zones.parquet", "report.json", "report.html")
MANIFEST = "manifest.json"
#: Which tiles of a map of one's own each zone holds; only a release on such a map has it.
LOOKUP = "lookup.csv"
#: Outlines for orientation that the publisher brought; only a release with such outlines has it.
CONTEXT = "context.geojson"
_MOST_ENTRIES = 1_000


def check_folder(place: Path, *, exports: Collection[str]) -> list[str]:
    """Findings on what a folder holds; only if there are none may its files be parsed.

    Args:
        place: the folder.
        exports: names of files that a release may have beside its own.
    """
    try:
        present = _entries(place)
    except OSError:
        return ["the folder cannot be read"]
    if len(present) > _MOST_ENTRIES:
        return ["the folder has more entries than any release"]
    strange = list(_not_regular(place, present))
    if MANIFEST in {name for name, _ in strange}:
        return [finding for _, finding in strange]
    listed = _listed(place)
    findings = [finding for _, finding in strange]
    if listed is None:
        return [*findings, f"{MANIFEST}: missing or not readable"]
    return findings + list(_compared(place, present, listed, exports, {name for name, _ in strange}))


def _entries(place: Path) -> set[str]:
    found: set[str] = set()
    with os.scandir(place) as entries:
        for entry in entries:
            found.add(entry.name)
            if len(found) > _MOST_ENTRIES:
                break
    return found


def _not_regular(place: Path, present: set[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(present):
        found = os.lstat(place / name)
        if not stat.S_ISREG(found.st_mode):
            yield name, f"{_shown(name)}: not a regular file"
        elif found.st_size > most_bytes(name):
            yield name, f"{_shown(name)}: larger than any file of a release"


def _listed(place: Path) -> dict[str, str] | None:
    try:
        listed = read_json(place / MANIFEST)["sha256"]
        return {str(name): str(value) for name, value in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _compared(
    place: Path, present: set[str], listed: dict[str, str], exports: Collection[str], strange: set[str]
) -> Iterator[str]:
    parts = set(FILES) | (set(listed) & {*exports, LOOKUP, CONTEXT})
    for name in sorted(parts - present):
        yield f"{name}: missing"
    for name in sorted(present - parts - {MANIFEST}):
        yield f"{_shown(name)}: extra file, not part of a release"
    for name in sorted(set(listed) - parts):
        yield f"{MANIFEST}: lists '{_shown(name)}', which is not part of a release"
    for name in sorted(present & parts - strange):
        if name not in listed:
            yield f"{MANIFEST}: does not list '{name}'"
        elif _sha256(place / name) != listed[name]:
            yield f"{name}: its sha256 is not the one in {MANIFEST}"


def hashes(place: Path) -> dict[str, str]:
    """The sha256 of every regular file of a folder, by name."""
    try:
        names = sorted(_entries(place))
    except OSError:
        return {}
    found = {_shown(name): _sha256(place / name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _shown(name: str) -> str:
    """A name that somebody else has chosen, on one line and without signs that a terminal obeys."""
    return name if name.isprintable() else ascii(name)


def _sha256(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
