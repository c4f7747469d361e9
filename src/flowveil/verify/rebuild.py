"""The folder of a release: its files are safe to read, and its public inputs produce every byte of
it.

Before a file is parsed, it is a regular file of a sane size that the manifest lists and hashes.
Then the folder is made again from its cells, its statement and the map. Files, fields and bytes
that the rebuild does not produce are findings, so verification fails closed: whatever a later
version adds to a folder is compared.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flowveil import __version__
from flowveil.core.errors import FlowveilError
from flowveil.core.read_summary import ReadSummary
from flowveil.methods import METHODS
from flowveil.published.folder import MANIFEST, FolderContent, write_files
from flowveil.published.read_release import read_published
from flowveil.release.folder import ReleaseFolder, read_bounded, taken_at_its_word
from flowveil.release.statement import Published, report_schema
from flowveil.system.paths import most_bytes, open_regular, parse_json, read_json
from flowveil.zoning.public_map import PublicMap

_NEEDED = ("flows.parquet", "zones.parquet", "report.json", "report.html")
_VERSION = re.compile(report_schema()["properties"]["version"]["pattern"])
_MOST_ENTRIES = 1_000
_CHUNK = 1 << 20


def check_files(folder: Path, copy: Path) -> tuple[list[str], dict[str, str]]:
    """Returns findings on the files of a folder, and the SHA-256 of each.

    Only without findings may they be parsed, and only in ``copy``, an empty private folder that
    gets the bytes that were hashed: the folder itself may change in between.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_ENTRIES + 1))
    except OSError:
        return ["the folder is missing or cannot be read"], {}
    if len(names) > _MOST_ENTRIES:
        return ["the folder has more entries than any release"], {}
    findings, hashes = [], {}
    for name in names:
        status = os.lstat(folder / name)
        if not stat.S_ISREG(status.st_mode):
            findings.append(f"{_printable(name)}: not a regular file")
        elif status.st_size > most_bytes(name):
            findings.append(f"{_printable(name)}: larger than any file of a release")
        else:
            hashes[name] = "not readable"
            with suppress(OSError):
                hashes[name] = _copy_hashed(folder / name, copy / name)
    try:
        listed = {
            str(name): str(value) for name, value in read_json(copy / MANIFEST)["sha256"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [*findings, f"{MANIFEST}: missing or not readable"], hashes
    findings += [
        f"{_printable(name)}: missing" for name in sorted({*listed, *_NEEDED} - set(names))
    ]
    findings += [
        f"{_printable(name)}: not listed in {MANIFEST}"
        for name in names
        if name not in (*listed, MANIFEST)
    ]
    for name in sorted(set(hashes) & set(listed)):
        if hashes[name] != listed[name]:
            findings.append(f"{_printable(name)}: its SHA-256 is not the one in {MANIFEST}")
    return findings, {_printable(name): value for name, value in hashes.items()}


def _copy_hashed(source: Path, target: Path) -> str:
    """Copies a regular file; returns the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with open_regular(source) as file, open(target, "xb") as copy:
        while block := file.read(_CHUNK):
            digest.update(block)
            copy.write(block)
    return digest.hexdigest()


def _printable(name: str) -> str:
    """Returns a name from a folder on one line, without control characters."""
    return name if name.isprintable() else ascii(name)


def check_rebuild(release: ReleaseFolder, given: PublicMap | None, notes: list[str]) -> list[str]:
    """Returns one line for each file or byte of a folder that its tables, statement and map do not
    produce.

    ``notes`` gets a line for what could only be compared by value, or not at all.
    """
    try:
        with taken_at_its_word("the folder"):
            published = read_published(release, given)
            if published is None:
                return [
                    "report.json: states neither a resolution nor a map, so its zones lie nowhere"
                ]
            if not _is_sorted(published):
                return ["flows.parquet: its rows are not in the order of a release"]
            return compare_with(release, published, notes)
    except FlowveilError as problem:
        return [f"the folder cannot be made again from its tables and its statement: {problem}"]


def check_parameters(release: ReleaseFolder) -> list[str]:
    """Returns a finding if the parameters lack a setting that a run records, defaults included."""
    statement, stated = release.statement, release.statement.parameters
    method, options, slices = (
        METHODS.get(statement.method),
        stated.get("options"),
        stated.get("slices") or {},
    )
    required = [*ReadSummary().parameters(), "options"]
    if not statement.facets.is_noisy:
        required += ["k", "protect", "k_population", "l", "max_suppressed"]
        required += ["hierarchy"] if method is not None and method.hierarchy else []
    missing = [name for name in required if name not in stated]
    if statement.slice_columns:
        missing += [f"slices.{name}" for name in ("by_many", "every") if name not in slices]
    if (
        method is not None
        and isinstance(options, dict)
        and release.report["version"] == __version__
    ):
        unused = () if stated.get("fold") else ("fold_weight",)
        missing += [f"options.{name}" for name in method.options if name not in (*options, *unused)]
    return (
        [f"report.json: parameters lack {', '.join(missing)}, which every such run records"]
        if missing
        else []
    )


def _is_sorted(published: Published) -> bool:
    """Returns whether cells are sorted by slice, fold, zones and layer.

    Another order could carry information.
    """
    cells, statement = published.cells, published.statement
    folds = [name for name in cells.column_names if name in statement.fold_columns]
    columns = [*statement.slice_columns, *folds, "origin_zone", "destination_zone"]
    columns += ["layer"] if "layer" in cells.column_names else []
    if not set(columns) <= set(cells.column_names):
        return False
    # Totals, whose slice is null, come first.
    keys = {name: cells[name] if name == "layer" else cells[name].fill_null("") for name in columns}
    order = pc.sort_indices(
        pa.table(keys), sort_keys=[(name, "ascending") for name in columns]
    ).to_numpy()
    return bool((order[1:] > order[:-1]).all())


def compare_with(release: ReleaseFolder, published: Published, notes: list[str]) -> list[str]:
    """Returns one line for each file of a folder that these public inputs do not produce."""
    with TemporaryDirectory(prefix="flowveil-rebuild-") as made:
        write_files(FolderContent(published), Path(made))
        return list(_compare_folders(release, Path(made), notes))


def _compare_folders(release: ReleaseFolder, made: Path, notes: list[str]) -> Iterator[str]:
    folder, same_version = release.path, release.report["version"] == __version__
    if not same_version:
        notes.append(
            f"report.json: version {release.report['version']} wrote the folder; values were"
            f" compared, not bytes. Hint: verify with that version"
        )
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
        while block := first.read(_CHUNK):
            if block != second.read(_CHUNK):
                return False
        return not second.read(1)


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
    if name in ("report.json", MANIFEST):
        yield from _compare_reports(name, read_json(found), read_json(made), notes)
    elif name == "report.html":
        if _policy(found) != _policy(made):
            yield f"{name}: its content policy is not that of a release"
        notes.append(f"{name}: not compared: another version of flowveil wrote it")
    elif found.suffix in _READERS:
        one, other = (_READERS[found.suffix](path) for path in (found, made))
        if not (
            one.equals(other, check_metadata=True) if isinstance(one, pa.Table) else one == other
        ):
            # An attacker who changes a file can change the version as well.
            yield (
                f"{name}: its values are not what the cells, the zones and the statement produce;"
                " if another version writes it in another way, verify with that version"
            )
    else:
        notes.append(
            f"{name}: not compared: another version of flowveil or of a file library wrote it"
        )


def _compare_reports(
    name: str, one: dict[str, Any], other: dict[str, Any], notes: list[str]
) -> Iterator[str]:
    if name == MANIFEST and _VERSION.search(str(one["version"])) is None:
        yield f"{name}: has no version"
    for content in (one, other):
        # check_files compares the hashes.
        content.update({"version": None, **({"sha256": None} if name == MANIFEST else {})})
    texts = ("sentences", "command")
    words = [
        [content.get("published", {}).pop(text, None) for text in texts] for content in (one, other)
    ]
    if one != other:
        yield f"{name}: is not what the cells, the zones and the statement produce"
    elif words[0] != words[1]:
        notes.append(
            f"{name}: its sentences were not compared: another version of flowveil wrote them"
        )


def _bytes(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def _policy(path: Path) -> bytes:
    return _bytes(path).partition(b"Content-Security-Policy")[2].partition(b">")[0]


#: What metadata say of the bytes of other files, which another version writes in another way.
_OF_BYTES = ("bytes", "hash", "sha256", "contentSize", "dcat:byteSize", "spdx:checksum")


def _json_values(path: Path) -> Any:
    return _without_hashes(parse_json(_bytes(path)))


def _without_hashes(content: Any) -> Any:
    """Returns metadata without sizes and hashes of files: each file is compared by itself."""
    if isinstance(content, list):
        return [_without_hashes(one) for one in content]
    if not isinstance(content, dict):
        return content
    return {key: _without_hashes(one) for key, one in content.items() if key not in _OF_BYTES}


#: Values of a file, by its suffix.
_READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": read_bounded,
    ".arrow": lambda path: pa.ipc.open_file(_bytes(path)).read_all(),
    ".csv": _bytes,
    ".txt": _bytes,
    **dict.fromkeys(
        (".geojson", ".json", ".jsonld"), lambda path: _without_hashes(parse_json(_bytes(path)))
    ),
}
