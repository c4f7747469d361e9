"""The folder made again from its public inputs and compared byte by byte.

Cells, statement and map are all that `flowveil.published` needs. Files, fields and bytes that the rebuild does not
produce are findings, so verification fails closed: whatever a later version adds to a folder is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil import __version__
from flowveil.errors import FlowveilError, ParameterError
from flowveil.paths import open_regular, parse_json, read_json
from flowveil.published.folder import MANIFEST, FolderContent, write_files
from flowveil.published.user_outlines import CONTEXT
from flowveil.release.folder import ReleaseFolder, read_bounded, taken_at_its_word
from flowveil.release.published import Published
from flowveil.release.statement import Statement
from flowveil.zoning.box_geometry import BoxMap
from flowveil.zoning.files import ZoneMap
from flowveil.zoning.map_halves import halved_map
from flowveil.zoning.outside import with_outside
from flowveil.zoning.public_map import H3Map, PublicMap, TreeMap

_CHUNK = 1 << 20
#: Columns of flows.parquet besides slice columns, by type.
_CELL_TYPES = {
    "origin_zone": pa.string(),
    "destination_zone": pa.string(),
    "trips": pa.int64(),
    "weight": pa.float64(),
    "revised": pa.bool_(),
    "layer": pa.int8(),
}


def map_of_statement(statement: Statement, zones: ZoneMap | None) -> PublicMap | None:
    """Returns the map that a release was drawn on; None if it belongs to no map that can be given.

    Args:
        statement: of the release.
        zones: the operator's map, where the release has one.

    Raises:
        ParameterError: the release is on the operator's map, and none is given.
    """
    parameters = statement.parameters
    if statement.boxes is not None:
        return BoxMap()
    if isinstance(parameters.get("resolution"), int):
        return H3Map(parameters["resolution"])
    if zones is None:
        if parameters.get("zones"):
            raise ParameterError("The release is on a map of its operator. Hint: give the map with --zones.")
        return None
    tree = with_outside(zones.hierarchy) if parameters.get("outside") == "keep" else zones.hierarchy
    return TreeMap(halved_map(tree) if parameters.get("hierarchy") == "halves" else tree)


def check_rebuild(folder: Path, given: PublicMap | None, notes: list[str]) -> list[str]:
    """Returns one line for each file or byte of a folder that its public inputs do not produce.

    Args:
        folder: a release whose files are those of its manifest.
        given: the map; None if it is unknown, then zones and pages are not compared.
        notes: gets a line for what could only be compared by value, or not at all.
    """
    try:
        with taken_at_its_word(folder):
            published = _read(folder, given)
            if published is None:
                notes.append("zones, page and exports were not compared: the release belongs to no map.")
                return []
            same_version = ReleaseFolder(folder).report["version"] == __version__
            with TemporaryDirectory(prefix="flowveil-rebuild-") as made:
                write_files(FolderContent(published), Path(made))
                return list(_compare(folder, Path(made), notes, same_version=same_version))
    except FlowveilError as problem:
        return [f"the folder cannot be made again from its tables and its statement: {problem}"]


def _read(folder: Path, given: PublicMap | None) -> Published | None:
    release = ReleaseFolder(folder)
    statement = release.statement
    outlines = None
    if statement.context:
        try:
            with open_regular(folder / CONTEXT) as file:
                outlines = file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ParameterError(f"{CONTEXT} is missing or cannot be read.") from None
    return None if given is None else Published(_plain_cells(release.flows, statement), statement, given, outlines)


def _plain_cells(found: pa.Table, statement: Statement) -> pa.Table:
    """Returns the cells with the types of a release and without metadata, in which something could be hidden."""
    types = {name: _CELL_TYPES.get(name, pa.string()) for name in found.column_names}
    if "trips" in types and pa.types.is_floating(found.schema.field("trips").type):
        types["trips"] = pa.float64()
    extra = set(types) - set(_CELL_TYPES) - set(statement.slice_columns) - {"time_from", "time_to"}
    if extra:
        raise ParameterError(f"flows.parquet has {len(extra)} columns that no release of this kind has.")
    return found.cast(pa.schema(list(types.items()))).replace_schema_metadata(None)


def _compare(folder: Path, made: Path, notes: list[str], *, same_version: bool) -> Iterator[str]:
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
