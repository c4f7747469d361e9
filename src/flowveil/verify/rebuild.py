"""The folder made again from its public inputs and compared byte by byte.

Cells, statement and map are all that `flowveil.published` needs. Files, fields and bytes that the rebuild does not
produce are findings, so verification fails closed: whatever a later version adds to a folder is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from flowveil import __version__
from flowveil.errors import FlowveilError
from flowveil.paths import open_regular, parse_json, read_json
from flowveil.published.folder import MANIFEST, FolderContent, write_files
from flowveil.published.read_release import read_published
from flowveil.release.folder import ReleaseFolder, read_bounded, taken_at_its_word
from flowveil.zoning.public_map import PublicMap

_CHUNK = 1 << 20


def check_rebuild(folder: Path, given: PublicMap | None, notes: list[str]) -> list[str]:
    """Returns one line for each file or byte of a folder that its public inputs do not produce.

    Args:
        folder: a release whose files are those of its manifest.
        given: the map; None if it is unknown, then zones and pages are not compared.
        notes: gets a line for what could only be compared by value, or not at all.
    """
    try:
        with taken_at_its_word(folder):
            published = read_published(folder, given)
            if published is None:
                notes.append("zones, page and exports were not compared: the release belongs to no map.")
                return []
            same_version = ReleaseFolder(folder).report["version"] == __version__
            with TemporaryDirectory(prefix="flowveil-rebuild-") as made:
                write_files(FolderContent(published), Path(made))
                return list(compare_folders(folder, Path(made), notes, same_version=same_version))
    except FlowveilError as problem:
        return [f"the folder cannot be made again from its tables and its statement: {problem}"]


def compare_folders(folder: Path, made: Path, notes: list[str], *, same_version: bool) -> Iterator[str]:
    """Yields one line for each file of a folder that is not the one that was made again."""
    found, expected = ({path.name for path in place.iterdir()} for place in (folder, made))
    for name in sorted(expected - found):
        yield f"{name}: missing"
    for name in sorted(found - expected):
        yield f"{name if name.isprintable() else ascii(name)}: not part of this release"
    for name in sorted(found & expected):
        if _same_bytes(folder / name, made / name):
            continue
        if same_version and _same_writer(folder / name, made / name):
            yield f"{name}: is not what the cells, the zones and the statement produce"
        else:
            yield from _compare_values(name, folder / name, made / name, notes)


def _same_bytes(one: Path, other: Path) -> bool:
    with open_regular(one) as first, open_regular(other) as second:
        while True:
            block = first.read(_CHUNK)
            if block != second.read(_CHUNK):
                return False
            if not block:
                return True


def _same_writer(one: Path, other: Path) -> bool:
    """Whether two files were written by the same version of a file library; true for text files."""
    if one.suffix == ".parquet":
        return _written_by(one) == _written_by(other)
    if one.suffix == ".omx":
        return bool(_omx_writer(one) == _omx_writer(other))
    if one.suffix == ".gpkg":
        # Bytes 96 to 100 of a SQLite file are the version of the library.
        with open_regular(one) as first, open_regular(other) as second:
            return first.read(100)[96:] == second.read(100)[96:]
    return True


def _written_by(path: Path) -> str:
    with open_regular(path) as file:
        return str(pq.ParquetFile(file).metadata.created_by)


def _omx_writer(path: Path) -> Any:
    import h5py

    with h5py.File(path, "r") as file:
        return file.attrs.get("WRITTEN_BY")


def _compare_values(name: str, found: Path, made: Path, notes: list[str]) -> Iterator[str]:
    """Compares files of another version by value, as far as that is possible."""
    if found.suffix == ".parquet":
        if not read_bounded(found).equals(read_bounded(made), check_metadata=True):
            yield f"{name}: its values are not what the cells, the zones and the statement produce"
    elif name == "report.json":
        one, other = read_json(found), read_json(made)
        if {**one, "version": None, "published": None} != {**other, "version": None, "published": None}:
            yield f"{name}: is not what the cells, the zones and the statement produce"
    elif name == MANIFEST:
        return
    elif name == "report.html":
        with open_regular(found) as file:
            page = file.read(_CHUNK)
        with open_regular(made) as file:
            policy = _policy(file.read(_CHUNK))
        if _policy(page) != policy:
            yield f"{name}: its content policy is not that of a release"
        notes.append(f"{name}: not compared: another version of flowveil wrote it")
    elif found.suffix in (".csv", ".geojson", ".json") and _as_values(found) == _as_values(made):
        return
    else:
        notes.append(f"{name}: not compared: another version of flowveil or of a file library wrote it")


def _policy(page: bytes) -> bytes:
    start = page.find(b"Content-Security-Policy")
    return page[start : page.find(b">", start)]


def _as_values(path: Path) -> Any:
    with open_regular(path) as file:
        content = file.read()
    return content if path.suffix == ".csv" else parse_json(content)
