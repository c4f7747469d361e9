"""The folder of a release: its files are safe to read, and its public inputs produce every byte of it.

Before a file is parsed, it is a regular file of a sane size that the manifest lists and hashes. Then the folder is made
again from its cells, its statement and the map. Files, fields and bytes that the rebuild does not produce are findings,
so verification fails closed: whatever a later version adds to a folder is compared.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil import __version__
from flowveil.errors import FlowveilError
from flowveil.paths import most_bytes, open_regular, parse_json, read_json
from flowveil.published.folder import MANIFEST, FolderContent, write_files
from flowveil.published.read_release import read_published
from flowveil.release.folder import ReleaseFolder, read_bounded, taken_at_its_word
from flowveil.zoning.public_map import PublicMap

_NEEDED = ("flows.parquet", "zones.parquet", "report.json", "report.html")
_MOST_ENTRIES = 1_000
_CHUNK = 1 << 20
_TEXTS = (".csv", ".geojson", ".json", ".jsonld")
_OTHER_VALUES = "its values are not what the cells, the zones and the statement produce"

# ---- files -----------------------------------------------------------------------------------------------------------


def check_files(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Returns findings on the files of a folder, and the SHA-256 of each; only without findings may they be parsed."""
    try:
        names = _entries(folder)
    except OSError:
        return ["the folder is missing or cannot be read"], {}
    if len(names) > _MOST_ENTRIES:
        return ["the folder has more entries than any release"], {}
    findings, hashes = [], {}
    for name in names:
        found = os.lstat(folder / name)
        if not stat.S_ISREG(found.st_mode):
            findings.append(f"{_printable(name)}: not a regular file")
        elif found.st_size > most_bytes(name):
            findings.append(f"{_printable(name)}: larger than any file of a release")
        else:
            hashes[name] = _sha256(folder / name)
    listed = _listed(folder) if MANIFEST in hashes else None
    if listed is None:
        return [*findings, f"{MANIFEST}: missing or not readable"], hashes
    findings += [f"{_printable(name)}: missing" for name in sorted({*listed, *_NEEDED} - set(names))]
    findings += [f"{_printable(name)}: not listed in {MANIFEST}" for name in names if name not in (*listed, MANIFEST)]
    for name in sorted(set(hashes) & set(listed)):
        if hashes[name] != listed[name]:
            findings.append(f"{_printable(name)}: its SHA-256 is not the one in {MANIFEST}")
    return findings, {_printable(name): value for name, value in hashes.items()}


def _entries(folder: Path) -> list[str]:
    found: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            found.add(entry.name)
            if len(found) > _MOST_ENTRIES:
                break
    return sorted(found)


def _listed(folder: Path) -> dict[str, str] | None:
    try:
        listed = read_json(folder / MANIFEST)["sha256"]
        return {str(name): str(value) for name, value in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _printable(name: str) -> str:
    """Returns a name from a folder on one line, without control characters."""
    return name if name.isprintable() else ascii(name)


def _sha256(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "not readable"


# ---- rebuild ---------------------------------------------------------------------------------------------------------


def check_rebuild(release: ReleaseFolder, given: PublicMap | None, notes: list[str]) -> list[str]:
    """Returns one line for each file or byte of a folder that its public inputs do not produce.

    Args:
        release: a release whose files are those of its manifest.
        given: the map; None if it is unknown, then zones and pages are not compared.
        notes: gets a line for what could only be compared by value, or not at all.
    """
    try:
        with taken_at_its_word(release.path), TemporaryDirectory(prefix="flowveil-rebuild-") as made:
            published = read_published(release, given)
            if published is None:
                notes.append("zones, page and exports were not compared: the release belongs to no map.")
                return []
            write_files(FolderContent(published), Path(made))
            same_version = release.report["version"] == __version__
            return list(compare_folders(release.path, Path(made), notes, same_version=same_version))
    except FlowveilError as problem:
        return [f"the folder cannot be made again from its tables and its statement: {problem}"]


def compare_folders(folder: Path, made: Path, notes: list[str], *, same_version: bool) -> Iterator[str]:
    """Yields one line for each file of a folder that is not the one that was made again."""
    found, expected = ({path.name for path in place.iterdir()} for place in (folder, made))
    for name in sorted(expected - found):
        yield f"{name}: missing"
    for name in sorted(found - expected):
        yield f"{_printable(name)}: not part of this release"
    for name in sorted(found & expected):
        if _same_bytes(folder / name, made / name):
            continue
        try:
            if same_version and _writer(folder / name) == _writer(made / name):
                yield f"{name}: is not what the cells, the zones and the statement produce"
            else:
                yield from _compare_values(name, folder / name, made / name, notes)
        except (OSError, ValueError, LookupError, RuntimeError, pa.ArrowException):
            yield f"{name}: cannot be read"


def _same_bytes(one: Path, other: Path) -> bool:
    with open_regular(one) as first, open_regular(other) as second:
        while True:
            block = first.read(_CHUNK)
            if block != second.read(_CHUNK):
                return False
            if not block:
                return True


def _writer(path: Path) -> Any:
    """Returns the version of the file library that wrote a file; None for text files."""
    if path.suffix == ".omx":
        import h5py

        with h5py.File(path, "r") as file:
            return file.attrs.get("WRITTEN_BY")
    with open_regular(path) as file:
        if path.suffix == ".parquet":
            return pq.ParquetFile(file).metadata.created_by
        # Bytes 96 to 100 of a SQLite file are the version of the library.
        return file.read(100)[96:] if path.suffix == ".gpkg" else None


def _compare_values(name: str, found: Path, made: Path, notes: list[str]) -> Iterator[str]:
    """Compares files of another version by value, as far as that is possible."""
    if found.suffix == ".parquet":
        if not read_bounded(found).equals(read_bounded(made), check_metadata=True):
            yield f"{name}: {_OTHER_VALUES}"
    elif name in ("report.json", MANIFEST):
        one, other = read_json(found), read_json(made)
        if not isinstance(one["version"], str):
            yield f"{name}: has no version"
        texts = ("sentences", "command")
        for content in (one, other):
            # check_files compares the hashes.
            content.update({"version": None, **({"sha256": None} if name == MANIFEST else {})})
        words = [[content.get("published", {}).pop(text, None) for text in texts] for content in (one, other)]
        if one != other:
            yield f"{name}: is not what the cells, the zones and the statement produce"
        elif words[0] != words[1]:
            notes.append(f"{name}: its sentences were not compared: another version of flowveil wrote them")
    elif name == "report.html":
        if _policy(found) != _policy(made):
            yield f"{name}: its content policy is not that of a release"
        notes.append(f"{name}: not compared: another version of flowveil wrote it")
    elif found.suffix in _TEXTS:
        if _as_values(found) != _as_values(made):
            # An attacker who changes a file can change the version as well.
            yield f"{name}: {_OTHER_VALUES}; if another version writes it in another way, verify with that version"
    elif found.suffix == ".arrow":
        if not _read_arrow(found).equals(_read_arrow(made), check_metadata=True):
            yield f"{name}: {_OTHER_VALUES}"
    else:
        notes.append(f"{name}: not compared: another version of flowveil or of a file library wrote it")


def _read_arrow(path: Path) -> pa.Table:
    with open_regular(path) as file:
        return pa.ipc.open_file(file).read_all()


def _policy(path: Path) -> bytes:
    with open_regular(path) as file:
        page = file.read(_CHUNK)
    start = page.find(b"Content-Security-Policy")
    return page[start : page.find(b">", start)]


def _as_values(path: Path) -> Any:
    with open_regular(path) as file:
        content = file.read()
    return content if path.suffix == ".csv" else parse_json(content)
