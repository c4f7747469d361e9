"""The folder before anything in it is believed: regular files of a sane size, each listed and hashed, nothing else.

A release comes from somebody. Until this check has passed, no file but the manifest is parsed, and no file is opened
that is not a regular one: a link could lead anywhere, and reading a pipe or a device never ends. Nothing in a folder is
ever unpickled, imported or executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

FILES = ("flows.parquet", "zones.parquet", "report.json", "report.html")
MANIFEST = "manifest.json"
#: Which tiles of a map of one's own each zone holds; only a release on such a map has it.
LOOKUP = "lookup.csv"
#: More bytes than any release has; hashing them is still a matter of a minute.
_LARGEST = {MANIFEST: 1 << 20, "report.json": 1 << 28, "report.html": 1 << 30}
_LARGEST_OTHER = 1 << 33
_MOST_ENTRIES = 1_000
#: Numbers of JSON beyond these are refused where they are read, so that nothing that counts or compares meets them.
_LARGEST_WHOLE, _LARGEST_FRACTION = 1 << 63, 1e100


class NotRegularError(OSError):
    """A file that is not a regular one, or larger than any file of a release."""


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


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, if it is a regular one of a sane size; never waits, never follows a link.

    Raises:
        OSError: it is missing, cannot be read, or is something else.
    """
    # Looked at through the handle: between a look at the name and the opening it could be exchanged.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise NotRegularError("not a regular file")
    handle = os.open(path, flags)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST.get(path.name, _LARGEST_OTHER):
            raise NotRegularError("not a regular file, or too large")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_json(path: Path) -> Any:
    """The content of a JSON file that every reader understands alike.

    Raises:
        OSError: it is missing or not a regular file.
        ValueError: it is not JSON in UTF-8, has an entry twice (readers differ in which they take), or a number that is
            none, or larger than any of a release.
    """
    with open_regular(path) as file:
        return parse_json(file.read())


def parse_json(content: bytes) -> Any:
    """The same of bytes; raises ValueError like `read_json`."""
    try:
        text = content.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
            parse_float=_fraction,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate entries")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole_number(digits: str) -> int:
    number = int(digits)
    if not -_LARGEST_WHOLE <= number < _LARGEST_WHOLE:
        raise ValueError("a whole number that no table can hold")
    return number


def _fraction(digits: str) -> float:
    number = float(digits)
    if not abs(number) <= _LARGEST_FRACTION:
        raise ValueError("a number whose square is none that a computer has")
    return number


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
        elif found.st_size > _LARGEST.get(name, _LARGEST_OTHER):
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
    parts = set(FILES) | (set(listed) & {*exports, LOOKUP})
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
