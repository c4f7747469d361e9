"""The exports that are not text: each is made anew from the two tables, and must be the same to the last byte.

A list of places where something could hide in SQLite, HDF5 or Arrow is never complete: free pages, unused heaps,
triggers, attributes, values under a null. So the file that the release's tables make is built here, by code that shares
nothing with the writers, and compared. A file that is the same has no such place. One that differs is not opened, with
two exceptions:

- GeoPackage: SQLite writes the same rows to the same pages in every version, so a difference is always a finding; the
  file is then read, with nothing in it trusted, only to say what differs.
- OMX and Arrow by a version of HDF5 or pyarrow that is not the one here (the file's own mark, or the footer of
  flows.parquet, says so): every object, attribute, row and metadata key is read and compared. What that cannot see is
  in `UNREAD`, and said.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.errors import DataError
from flowveil.paths import open_regular
from flowveil.verify.exports import present_exports
from flowveil.verify.geopackage import differences, expected_geopackage
from flowveil.verify.parquet import UNREAD as UNREAD_IN_TABLES
from flowveil.verify.parquet import our_writer

#: What is not compared, by file, and only where another version of the library wrote it.
UNREAD = {
    "flows.parquet": UNREAD_IN_TABLES,
    "zones.parquet": UNREAD_IN_TABLES,
    "flows.omx": "unused bytes inside its HDF5 structures",
    "flows.arrow": "padding between its columns",
    "zones.arrow": "padding between its columns",
}
_ROWS_PER_BATCH = 1 << 20
_OMX_PIECE = 256
_OMX_MARK = re.compile(rb"flowveil with HDF5 ([0-9.]{1,20})")


@dataclass(frozen=True, eq=False)
class Tables:
    """The two tables of the release, as the recount has read them.

    Attributes:
        flows: the rows of flows.parquet.
        zones: the rows of zones.parquet, outlines as WKB, with the metadata of a GeoParquet.
        written_by: the program that wrote them, by their own words.
        unread: lines on what cannot be compared are added here.
    """

    flows: Any
    zones: Any
    written_by: str
    unread: list[str] = field(default_factory=list)
    about: Mapping[str, str] = field(default_factory=dict)


def binary_exports(place: Path) -> list[str]:
    """The exports of a folder that are compared here."""
    return [name for name in present_exports(place) if Path(name).suffix in _CHECKS]


def check_binaries(place: Path, tables: Tables) -> Iterator[str]:
    """Findings on GeoPackage, OMX and Arrow; ``place`` has passed the check of its manifest."""
    for name in binary_exports(place):
        try:
            yield from (f"{name}: {finding}" for finding in _CHECKS[Path(name).suffix](place / name, tables))
        except ImportError:
            yield f"{name}: cannot be compared without the extra 'exports' (pip install 'flowveil[exports]')"
        except Exception:
            # Whatever a broken file makes a reader raise may quote its content.
            yield f"{name}: cannot be read"


def same_content(path: Path, expected: bytes) -> bool:
    """Whether a file holds exactly these bytes; no more of it is read than there should be."""
    with open_regular(path) as file:
        return file.read(len(expected) + 1) == expected


# ---- GeoPackage --------------------------------------------------------------------------------------------------


def _check_geopackage(path: Path, tables: Tables) -> Iterator[str]:
    expected = expected_geopackage(tables.flows, tables.zones, tables.about)
    if same_content(path, expected):
        return
    found = list(differences(path, expected))
    yield from found
    if not found:
        yield "has bytes that none of its tables shows"


# ---- Arrow -------------------------------------------------------------------------------------------------------


def _check_arrow(path: Path, tables: Tables) -> Iterator[str]:
    import pyarrow as pa

    table = tables.flows if path.name.startswith("flows") else tables.zones
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(_without_hidden(table), max_chunksize=_ROWS_PER_BATCH)
    if same_content(path, sink.getvalue().to_pybytes()):
        return
    if tables.written_by == our_writer():
        yield f"is not what pyarrow {pa.__version__} writes for the tables of this release"
        return
    yield from _arrow_of_another_version(path, table)
    tables.unread.append(f"{path.name}: not compared: {UNREAD[path.name]} (another version of the library wrote it)")


def _without_hidden(table: Any) -> Any:
    """The same table with nothing but zeros where it is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for name in table.column_names:
        column = pa.concat_arrays(table[name].chunks) if table[name].num_chunks else table[name].combine_chunks()
        if column.null_count:
            nothing = {"string": "", "binary": b""}.get(str(column.type), 0)
            filled = pc.fill_null(column, pa.scalar(nothing, column.type))
            valid = pa.concat_arrays([column.is_valid()])
            column = pa.Array.from_buffers(column.type, len(column), [valid.buffers()[1], *filled.buffers()[1:]])
        columns.append(column)
    return pa.table(columns, schema=table.schema)


def _arrow_of_another_version(path: Path, table: Any) -> Iterator[str]:
    import pyarrow as pa

    with open_regular(path) as file:
        content = file.read()
    rows = _arrow_rows(content)
    if rows != len(table):
        yield "its rows are not those of the release"
        return
    found = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    if not found.schema.equals(table.schema, check_metadata=True):
        yield "its columns or their metadata are not those of the release"
    elif not found.equals(table):
        yield "its rows are not those of the release"


def _arrow_rows(content: bytes) -> int:
    """How many rows an Arrow file holds, after accounting for all of its messages.

    Raises:
        ValueError: it is not an Arrow file, its messages are packed or carry notes, or bytes are left over.
    """
    view = memoryview(content)
    if content[:8] != b"ARROW1\0\0" or content[-6:] != b"ARROW1":
        raise ValueError("not Arrow")
    position, rows = 8, 0
    while True:
        mark, length = _int(view, position, 4), _int(view, position + 4, 4)
        if mark != 0xFFFFFFFF:
            raise ValueError("bytes between messages")
        if length == 0:
            break
        message = _Flat(view[position + 8 : position + 8 + length])
        if message.has(4):
            raise ValueError("a note in a message")
        kind, body = message.number(1, 1), message.number(3, 8)
        if kind not in (1, 3):
            raise ValueError("neither a schema nor rows")
        if kind == 3:
            batch = message.table(2)
            if batch.has(3):
                raise ValueError("packed")
            rows += batch.number(0, 8)
        position += 8 + length + body
    footer = _int(view, len(view) - 10, 4)
    if position + 8 + footer + 10 != len(view):
        raise ValueError("bytes before the footer")
    return rows


def _int(view: Any, position: int, size: int) -> int:
    if not 0 <= position <= len(view) - size:
        raise ValueError("ends too early")
    return int.from_bytes(view[position : position + size], "little")


class _Flat:
    """A table of a FlatBuffer, in which Arrow describes its messages: fields by number."""

    def __init__(self, view: Any, start: int | None = None) -> None:
        self.view = view
        self.start = _int(view, 0, 4) if start is None else start
        # How far before the table its list of fields lies.
        self.fields = self.start - _int(view, self.start, 4)
        self.size = _int(view, self.fields, 2)

    def has(self, number: int) -> bool:
        return self._place(number) != 0

    def number(self, number: int, size: int) -> int:
        place = self._place(number)
        return _int(self.view, self.start + place, size) if place else 0

    def table(self, number: int) -> _Flat:
        place = self.start + self._place(number)
        return _Flat(self.view, place + _int(self.view, place, 4))

    def _place(self, number: int) -> int:
        return _int(self.view, self.fields + 4 + 2 * number, 2) if 4 + 2 * number < self.size else 0


# ---- OMX ---------------------------------------------------------------------------------------------------------


def _check_omx(path: Path, tables: Tables) -> Iterator[str]:
    import h5py

    ours = h5py.version.hdf5_version
    with open_regular(path) as file:
        found = _OMX_MARK.search(file.read(1 << 14))
    version = ours if found is None else found[1].decode("ascii")
    with tempfile.TemporaryDirectory(prefix="flowveil-") as folder:
        expected = Path(folder, path.name)
        codes, row, column = _square(tables)
        _make_omx(expected, tables, codes, row, column, version)
        if _same_files(path, expected):
            return
        if version == ours:
            yield f"is not what HDF5 {ours} writes for the tables of this release"
            return
        if path.stat().st_size > 2 * expected.stat().st_size:
            yield "is larger than its matrices need"
            return
    yield from _omx_of_another_version(path, tables, version)
    tables.unread.append(f"{path.name}: not compared: {UNREAD[path.name]} (another version of the library wrote it)")


def _square(tables: Tables) -> tuple[Any, Any, Any]:
    """The codes of all zones in text order, and the place of each flow among them."""
    codes = np.unique(np.array(tables.zones["zone"].to_pylist(), dtype=np.str_))
    ends = (np.array(tables.flows[name].to_pylist(), dtype=np.str_) for name in ("origin_zone", "destination_zone"))
    row, column = (np.searchsorted(codes, end) for end in ends)
    return codes, row, column


def _lookups(tables: Tables, codes: Any) -> dict[str, Any]:
    """The texts that stand beside the numbers of zones: codes, and names where there are any."""
    found = {"zone_code": np.char.encode(codes, "utf-8")}
    if "name" in tables.zones.column_names:
        of_code = dict(zip(tables.zones["zone"].to_pylist(), tables.zones["name"].to_pylist(), strict=True))
        names = [of_code[code] or "" for code in codes.tolist()]
        if any(names):
            found["zone_name"] = np.char.encode(names, "utf-8")
    return found


def _volumes(tables: Tables) -> dict[str, Any]:
    names = [name for name in ("trips", "weight") if name in tables.flows.column_names]
    return {name: tables.flows[name].to_numpy().astype(np.float64) for name in names}


def _make_omx(path: Path, tables: Tables, codes: Any, row: Any, column: Any, version: str) -> None:
    import h5py

    n = len(codes)
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        file.attrs.create("OMX_VERSION", np.bytes_("0.2"))
        file.attrs.create("SHAPE", np.array([n, n], dtype=np.int32))
        file.attrs.create("ZERO_MEANS", np.bytes_("not published: none, or too few"))
        file.attrs.create("WRITTEN_BY", np.bytes_(f"flowveil with HDF5 {version}"))
        data, lookup = file.create_group("data"), file.create_group("lookup")
        form = {"chunks": (min(n, _OMX_PIECE),) * 2, "compression": "gzip", "compression_opts": 1, "shuffle": True}
        for name, volume in _volumes(tables).items():
            matrix = data.create_dataset(name, (n, n), np.float64, track_times=False, **form)
            for start in range(0, n, _OMX_PIECE):
                here = slice(*np.searchsorted(row, (start, start + _OMX_PIECE)))
                if here.start < here.stop:
                    block = np.zeros((min(_OMX_PIECE, n - start), n))
                    block[row[here] - start, column[here]] = volume[here]
                    matrix[start : start + _OMX_PIECE] = block
        lookup.create_dataset("index", data=np.arange(1, n + 1, dtype=np.int32), track_times=False)
        for name, texts in _lookups(tables, codes).items():
            lookup.create_dataset(name, data=texts, track_times=False)


def _same_files(one: Path, other: Path) -> bool:
    with open_regular(one) as a, open_regular(other) as b:
        while True:
            part = a.read(1 << 20)
            if part != b.read(1 << 20):
                return False
            if not part:
                return True


def _omx_of_another_version(path: Path, tables: Tables, version: str) -> Iterator[str]:
    from flowveil.reading.omx import open_omx

    codes, row, column = _square(tables)
    n = len(codes)
    volumes = _volumes(tables)
    try:
        with open_omx(path, most_zones=n) as omx:
            if omx.further or omx.zones != n or set(omx.matrices) != set(volumes):
                yield "has other objects than the matrices and lookups of the release"
                return
            if not _same_attributes(omx.attributes, n, version):
                yield "has attributes that no release has"
            expected = {"index": np.arange(1, n + 1), **_lookups(tables, codes)}
            if set(omx.lookups) != set(expected) or any(
                not np.array_equal(omx.lookups[name], value) for name, value in expected.items()
            ):
                yield "its zones are not those of the release"
            for name, volume in volumes.items():
                for start in range(0, n, _OMX_PIECE):
                    here = slice(*np.searchsorted(row, (start, start + _OMX_PIECE)))
                    block = np.zeros((min(_OMX_PIECE, n - start), n))
                    block[row[here] - start, column[here]] = volume[here]
                    if not np.array_equal(omx.matrices[name][start : start + _OMX_PIECE], block):
                        yield f"its {name} are not those of the release"
                        break
    except DataError as problem:
        yield str(problem).rstrip(".")


def _same_attributes(found: Any, n: int, version: str) -> bool:
    root: dict[str, Any] = {
        "OMX_VERSION": np.bytes_("0.2"),
        "SHAPE": np.array([n, n], dtype=np.int32),
        "ZERO_MEANS": np.bytes_("not published: none, or too few"),
        "WRITTEN_BY": np.bytes_(f"flowveil with HDF5 {version}"),
    }
    if any(values for path, values in found.items() if path != "/") or set(found["/"]) != set(root):
        return False
    return all(value is not None and np.array_equal(value, root[name]) for name, value in found["/"].items())


_CHECKS: dict[str, Callable[[Path, Tables], Iterator[str]]] = {
    ".gpkg": _check_geopackage,
    ".omx": _check_omx,
    ".arrow": _check_arrow,
}
