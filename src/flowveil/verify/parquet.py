"""A Parquet file, byte by byte, before and after a reader has read its rows.

Before: the footer and the header of every page are read here, with a reader of our own that allocates nothing a file
asks for. It says how many rows there are and what they unpack to, so that a small file that claims to be a huge table
is refused unread, and it accounts for every byte: the file is its mark, the pages of each column one after the other,
the footer, and nothing between them.

After: pages hold places where rows do not reach (entries of a dictionary that no row uses, statistics, padding, what a
packed piece skips). So the rows are written anew with the same library, if it is the version that the footer names, and
the bytes compared. For another version this cannot be said; `written_by` is what the file claims.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from flowveil.paths import open_regular
from flowveil.verify.database import Database

_MARK = b"PAR1"
#: Fixed by the data model: they are part of the bytes.
_ROWS_PER_GROUP = 1 << 20
_LARGEST_FOOTER = 1 << 26
#: Files up to this size are read at once.
_SMALL = 1 << 20
#: What the pages of a file may unpack to.
_UNPACKED, _UNPACKED_PER_BYTE = 1 << 26, 100
_PAGES, _ROWS_PER_PAGE = 1_000, 100
#: Rows of noise that a byte can hold at the most; counts that are drawn do not pack so well.
_ROWS_PER_BYTE = 16
#: What is not compared where another version of pyarrow wrote a table.
UNREAD = "statistics, padding and unused entries of dictionaries inside its pages"
#: Numbers of the fields that each structure of a plain table has; any other (encryption, other files, bloom filters,
#: page indexes, notes of a column) is refused.
_FILE_FIELDS = {1, 2, 3, 4, 5, 6, 7}
_GROUP_FIELDS = {1, 2, 3, 5, 6, 7}
_CHUNK_FIELDS = {2, 3}
_COLUMN_FIELDS = {1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 16, 17}
_PAGE_FIELDS = {1, 2, 3, 5, 7, 8}


@dataclass(frozen=True)
class Layout:
    """What a Parquet file says of itself.

    Attributes:
        rows: how many.
        written_by: the program that wrote it, by its own words.
        size: bytes of the file.
        metadata: keys and values that the footer carries beside the schema.
    """

    rows: int
    written_by: str
    size: int
    metadata: tuple[tuple[bytes, bytes], ...]


def read_layout(path: Path) -> Layout:
    """Account for every byte of a Parquet file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a plain Parquet file, or has bytes that belong to no page, or would unpack to far more
            than it holds. The message says which and quotes nothing.
    """
    with open_regular(path) as file:
        size = file.seek(0, 2)
        if size > _SMALL:
            return _layout(file, size)
        file.seek(0)
        return _small_layout(file.read())


@lru_cache(maxsize=8)
def _small_layout(content: bytes) -> Layout:
    """The same of the bytes of a small file: every step asks for it, and to walk its footer is what it costs."""
    return _layout(io.BytesIO(content), len(content))


def _layout(file: IO[bytes], size: int) -> Layout:
    footer, end = _footer(file, size)
    _allow(footer, _FILE_FIELDS)
    groups = _structs(footer.get(4, []))
    position, pages, unpacked = len(_MARK), 0, 0
    for group in groups:
        _allow(group, _GROUP_FIELDS)
        for chunk in _structs(group.get(1, [])):
            _allow(chunk, _CHUNK_FIELDS)
            column = _fields(chunk.get(3))
            _allow(column, _COLUMN_FIELDS)
            starts = [_integer(column.get(i)) for i in (9, 11) if i in column]
            if not starts or min(starts) != position:
                raise ValueError("has bytes between its columns")
            stop = position + _integer(column.get(7))
            for size_unpacked in _pages(file, position, min(stop, end)):
                pages, unpacked = pages + 1, unpacked + size_unpacked
                if pages > _PAGES + _integer(footer.get(3)) // _ROWS_PER_PAGE:
                    raise ValueError("has more pages than its rows need")
                if unpacked > _UNPACKED + _UNPACKED_PER_BYTE * size:
                    raise ValueError("would unpack to far more than a release holds")
            position = stop
    if position != end:
        raise ValueError("has bytes before its footer that belong to no column")
    rows = _integer(footer.get(3))
    if rows != sum(_integer(group.get(3)) for group in groups):
        raise ValueError("counts its rows in two ways")
    written_by = _text(footer.get(6, b"")).decode("utf-8", "replace")
    metadata = tuple((_text(entry.get(1)), _text(entry.get(2, b""))) for entry in _structs(footer.get(5, [])))
    return Layout(rows=rows, written_by=written_by, size=size, metadata=metadata)


def _footer(file: IO[bytes], size: int) -> tuple[dict[int, Any], int]:
    file.seek(0)
    head = file.read(4)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if size < 12 or head != _MARK or tail[4:] != _MARK:
        raise ValueError("is not a Parquet file")
    length = int.from_bytes(tail[:4], "little")
    end = size - 8 - length
    if length > _LARGEST_FOOTER or end < len(_MARK):
        raise ValueError("has a footer longer than itself")
    file.seek(end)
    reader = _Compact(file.read(length))
    footer = reader.struct()
    if reader.position != length:
        raise ValueError("has bytes after its footer")
    return footer, end


def _pages(file: IO[bytes], position: int, stop: int) -> Iterator[int]:
    """The unpacked size of each page of a column; the pages must fill it."""
    while position < stop:
        file.seek(position)
        # Statistics are cut by writers, so that a header is short.
        reader = _Compact(file.read(min(1 << 16, stop - position)))
        header = reader.struct()
        _allow(header, _PAGE_FIELDS)
        packed, unpacked = _integer(header.get(3)), _integer(header.get(2))
        position += reader.position + packed
        yield unpacked
    if position != stop:
        raise ValueError("has a page that is longer than its column")


def _allow(found: Mapping[int, Any], allowed: set[int]) -> None:
    if set(found) - allowed:
        raise ValueError("has entries in its structure that no release has")


def _structs(found: Any) -> list[dict[int, Any]]:
    return [_fields(entry) for entry in found] if isinstance(found, list) else [_fields(None)]


def _fields(found: Any) -> dict[int, Any]:
    if not isinstance(found, dict):
        raise ValueError("is not a Parquet file")
    return found


def _text(found: Any) -> bytes:
    if not isinstance(found, bytes):
        raise ValueError("is not a Parquet file")
    return found


def _integer(found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ValueError("is not a Parquet file")
    return found


class _Compact:
    """Thrift's compact protocol, in which Parquet describes itself: a structure is fields by number."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > 10:
            raise ValueError("is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            step = kind >> 4
            number = number + step if step else self._signed()
            if number in fields:
                raise ValueError("has a field twice")
            fields[number] = kind & 15 == 1 if kind & 15 in (1, 2) else self._value(kind & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._unsigned()
            if length > len(self.content) - self.position:
                raise ValueError("has a list longer than itself")
            return [self._value(head & 15, depth + 1) for _ in range(length)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("is not a Parquet file")

    def _byte(self) -> int:
        try:
            found = self.content[self.position]
        except IndexError:
            raise ValueError("ends too early") from None
        self.position += 1
        return found

    def _bytes(self, length: int) -> bytes:
        found = self.content[self.position : self.position + length]
        if len(found) != length:
            raise ValueError("ends too early")
        self.position += length
        return found

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("has a number that is too long")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def check_layouts(place: Path, *, most_rows: int | None) -> list[str]:
    """Findings on the form and the size of both tables, before a row is read.

    Args:
        place: the folder.
        most_rows: more cells than the raw flows can have; None for noise, which may fill all pairs, but cannot be
            packed to nothing.
    """
    findings, rows = [], {}
    for name in ("flows.parquet", "zones.parquet"):
        try:
            layout = read_layout(place / name)
        except OSError:
            findings.append(f"{name}: cannot be read")
        except ValueError as problem:
            findings.append(f"{name}: {problem}")
        else:
            rows[name] = layout.rows
            if layout.rows > (_ROWS_PER_BYTE * layout.size if most_rows is None else most_rows):
                findings.append(f"{name}: claims more rows than a release of this input can have")
    # Every zone is the end of a cell.
    if not findings and rows["zones.parquet"] > 2 * rows["flows.parquet"]:
        findings.append("zones.parquet: has more rows than flows.parquet has ends")
    return findings


# ---- the same bytes again ----------------------------------------------------------------------------------------


def our_writer() -> str:
    """What Parquet files written here say of their writer."""
    import pyarrow as pa

    return f"parquet-cpp-arrow version {pa.__version__}"


def whole_table(db: Database, path: Path) -> Any | None:
    """All rows of a table that has passed `check_layouts`, outlines as WKB; None where its pages cannot be read."""
    import duckdb
    import pyarrow as pa
    import shapely

    try:
        (table,) = _with_geo([pa.concat_tables(_batches(db, path)).combine_chunks()])
    except (OSError, duckdb.Error, pa.ArrowException, shapely.errors.ShapelyError):
        # Arrow says OSError where DuckDB fails between two batches.
        return None
    return table


def check_rewriting(db: Database, place: Path, zones: Any, unread: list[str]) -> Iterator[str]:
    """Findings where a table is not what the library here writes for its rows.

    Where another version wrote it, this cannot be said: then there is a line in ``unread``.

    Args:
        db: reads the rows of flows.parquet, which may be too many to hold.
        place: the folder; its tables could be read.
        zones: the rows of zones.parquet.
        unread: gets the lines.
    """
    import duckdb
    import pyarrow as pa

    for name in ("flows.parquet", "zones.parquet"):
        batches = _batches(db, place / name) if name == "flows.parquet" else iter([zones])
        try:
            yield from _check_rewriting(place / name, batches, unread)
        except duckdb.OutOfMemoryException:
            raise
        except (OSError, duckdb.Error, pa.ArrowException):
            # Pages that one way of reading passes over may stop another.
            yield f"{name}: cannot be read"


def _check_rewriting(path: Path, batches: Iterator[Any], unread: list[str]) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name, written_by = path.name, read_layout(path).written_by
    if written_by == our_writer():
        if not same_bytes(path, batches):
            yield f"{name}: is not what {written_by} writes for its rows"
        return
    # Flows have no outlines, so that their schema is known before the first row.
    schema = next(_with_geo([next(batches)])).schema
    # Newer versions of DuckDB refuse other work while a result is only half read.
    if isinstance(batches, Generator):
        batches.close()
    try:
        noted = not _lists_named_alike(pq.read_schema(path)).equals(schema, check_metadata=True)
    except (pa.ArrowException, OSError):
        noted = True
    if noted:
        yield f"{name}: its columns carry notes that no release has"
    unread.append(f"{name}: not compared: {UNREAD} (another version of the library wrote it)")


def _lists_named_alike(schema: Any) -> Any:
    """The schema with the elements of its lists called as `_with_geo` calls them; versions of the library differ."""
    import pyarrow as pa

    for at, field in enumerate(schema):
        if pa.types.is_list(field.type):
            element = field.type.value_field.with_name("item")
            schema = schema.set(at, field.with_type(pa.list_(element)))
    return schema


def _batches(db: Database, path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with db.batches(path, _ROWS_PER_GROUP) as batches:
        yield pa.Table.from_batches([], schema=batches.schema)
        for batch in batches:
            yield pa.Table.from_batches([batch])


def same_bytes(path: Path, batches: Iterable[Any]) -> bool:
    """Whether a file is what the library here writes for its rows.

    Args:
        path: the file, accounted for.
        batches: all rows in order, as Arrow tables; of one column 'geometry', as WKB.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        sink = _Comparison(file)
        writer: Any = None
        waiting: Any = None
        for batch in _with_geo(batches):
            waiting = batch if waiting is None else pa.concat_tables([waiting, batch])
            writer = writer or pq.ParquetWriter(sink, waiting.schema, compression="zstd", version="2.6")
            while len(waiting) >= _ROWS_PER_GROUP:
                writer.write_table(waiting.slice(0, _ROWS_PER_GROUP).combine_chunks(), row_group_size=_ROWS_PER_GROUP)
                waiting = waiting.slice(_ROWS_PER_GROUP)
        if writer is None:
            return False
        if len(waiting):
            writer.write_table(waiting.combine_chunks(), row_group_size=_ROWS_PER_GROUP)
        writer.close()
        return sink.same and not file.read(1)


def _with_geo(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables whose metadata is what a table of zones says of its outlines; zones come in one piece."""
    import pyarrow as pa
    import shapely

    for table in batches:
        metadata = None
        if "geometry" in table.column_names:
            outlines = table["geometry"].drop_null().to_numpy(zero_copy_only=False)
            kinds = sorted({shape.geom_type for shape in shapely.from_wkb(outlines)})
            column = {"encoding": "WKB", "geometry_types": kinds}
            geo = {"columns": {"geometry": column}, "primary_column": "geometry", "version": "1.1.0"}
            metadata = {"geo": json.dumps(geo, sort_keys=True)} if kinds else None
        # Of the fields only names and types: what a reader notes beside them, or calls the elements of a list, is not
        # in the file.
        columns = [c.cast(pa.list_(pa.string())) if pa.types.is_list(c.type) else c for c in table.columns]
        plain = [pa.field(name, column.type) for name, column in zip(table.column_names, columns, strict=True)]
        yield pa.table(columns, schema=pa.schema(plain, metadata=metadata))


class _Comparison:
    """A file to write to that keeps nothing but whether it is the same as another."""

    def __init__(self, other: IO[bytes]) -> None:
        self.other = other
        self.same = True
        self.closed = False
        self._position = 0

    def write(self, content: Any) -> int:
        given = bytes(content)
        self.same = self.same and self.other.read(len(given)) == given
        self._position += len(given)
        return len(given)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
