"""Opens trip tables of every kind for DuckDB: files, databases, and tables in memory.

A `Table` has the names of its columns, and reads those that are needed as ``c0, c1, ...`` from one
FROM clause. Other columns, such as geometries, are never touched.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.core.errors import DataError, MissingExtraError, ParameterError, option
from flowveil.core.headers import plain_name
from flowveil.reading import Reading
from flowveil.reading.database import in_own_words
from flowveil.reading.databases import read_address
from flowveil.reading.formats import chosen_format, time_of_two_columns
from flowveil.reading.matrices import Form, omx_table, wide_sql
from flowveil.reading.model_files import model_table
from flowveil.reading.nested import fields_of, opened_records, wkt_columns
from flowveil.reading.sql import csv_sql, literal_path, partition_sql, quoted_name, quoted_text
from flowveil.reading.table import (
    ACCEPTED,
    PEEKED_ROWS,
    SAMPLED_ROWS,
    Table,
    open_in_memory,
    timezones_of,
    with_coordinates,
)
from flowveil.request.database_address import database_address
from flowveil.system.paths import named_path

#: Endings of file names, by kind.
ENDINGS = {
    "csv": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
    "parquet": (".parquet", ".pq", ".parq"),
    "omx": (".omx",),
    "json": (
        *(".json", ".ndjson", ".jsonl"),
        *(".json.gz", ".ndjson.gz", ".jsonl.gz"),
    ),
    "zip": (".zip",),
    "sheet": (".xlsx", ".ods"),
    "drawn": (".geojson", ".gpkg", ".fgb", ".shp"),
}
DELIMITERS = ",;\t|"
_OTHERS = (
    "Hint: save a sheet of a workbook as CSV UTF-8; unpack a zip archive, or compress the CSV as"
    " .csv.gz instead."
)
_REMOTE = ("s3://", "https://")
_PEEKED_BYTES = 1 << 20
#: Names of columns that may hold geometries as text.
_GEOMETRIES = re.compile("geom|wkt|point|line|shape|route|origin|dest|start|end", re.IGNORECASE)
_BRACES = re.compile(r"\{([^\W\d][^{}]*)\}")
#: Larger tables in a zip archive, a sheet or a drawn file are not read into memory.
_MOST_UNPACKED = 1 << 31
#: Lines that may stand above the header, and lines of as many fields that prove it.
_MOST_TITLES, _LINES_BELOW = 20, 3
_NUMBER = re.compile(r"\s*[+-]?\d")
#: The column with the path of each row's file.
_PATH_COLUMN = "flowveil_path"
#: Places in the files that a sample is read from, and bytes read at each place of a text file.
_SAMPLED_PLACES, _BLOCK_BYTES = 20, 1 << 16


def open_table(con: Any, source: Any, reading: Reading | None = None) -> Table:
    """Opens a source and finds its columns.

    Columns come from the contents of files: a folder named ``weight=100000`` would otherwise give
    every trip that weight. The reading says which partition columns, matrices and remote addresses
    are read.
    """
    reading = reading or Reading()
    if isinstance(source, str | PathLike):
        return _with_derived(_open_path(con, fspath(source), reading), reading)
    return _open_in_memory(con, source, reading)


def _with_derived(table: Table, reading: Reading) -> Table:
    """Returns a table with the columns that the reading makes of others: those of a layout, the
    ends of geometries in text, and a day joined with an hour.
    """
    if table.form is not None:
        return table
    if not isinstance(table, FileTable):
        layout = chosen_format(reading.source_format, table.names)
        if layout is not None and layout.derived:
            raise ParameterError(
                f"{layout.about} is read from its files, not from a table in memory."
            )
        return table
    columns = dict(zip(table.names, table.identifiers, strict=False))
    maybe = {name: sql for name, sql in columns.items() if _GEOMETRIES.search(name)}
    derived = wkt_columns(maybe, lambda name: table.peek(list(table.names).index(name)))
    layout = chosen_format(reading.source_format, [*table.names, *derived])
    derived |= {} if layout is None else dict(layout.derived)
    moment = time_of_two_columns(reading.columns.time, table.names)
    derived |= {} if moment is None else {str(reading.columns.time): moment}
    by_plain = {plain_name(name): sql for name, sql in columns.items()}
    made = {
        name: _BRACES.sub(lambda found: by_plain.get(plain_name(found[1]), "NULL"), sql)
        for name, sql in derived.items()
        if name not in columns
    }
    kept = len(table.names) - len(table.partitions)
    return replace(
        table,
        names=[*table.names[:kept], *made, *table.partitions],
        identifiers=(*table.identifiers[:kept], *made.values(), *table.identifiers[kept:]),
    )


def _open_in_memory(con: Any, source: Any, reading: Reading, label: str = "the table") -> Table:
    if reading.partition_columns:
        raise ParameterError(
            "Partition columns come from the folders of files; a table in memory has none."
        )
    if reading.matrix or reading.lookup or reading.wide:
        raise ParameterError(
            "matrix, lookup and wide are for files that hold matrices, not for a table in memory."
        )
    return open_in_memory(con, source, label=label)


def _open_path(con: Any, path: str, reading: Reading) -> Table:
    address = database_address(path)
    if address is not None:
        return _open_in_memory(
            con, read_address(address), reading, label="the table of the database"
        )
    if "://" in path:
        return _open_remote(con, path, reading)
    here = named_path(path, what="the input").expanduser()
    if here.is_dir():
        files = _files_in(here)
    elif here.is_file():
        files = [here]
    elif has_magic(str(here)):
        files = sorted(Path(p) for p in glob(str(here), recursive=True) if Path(p).is_file())
        if not files:
            raise ParameterError(f"The pattern '{path}' matches no file. {ACCEPTED}")
    else:
        raise ParameterError(f"There is no file '{path}'. {ACCEPTED}")
    return _open_files(con, here.name, files, reading)


def _open_files(con: Any, label: str, files: list[Path], reading: Reading) -> Table:
    """Opens files of one kind, in their order."""
    kinds = {kind_of(file.name) for file in files}
    if (reading.matrix or reading.lookup) and kinds != {"omx"}:
        raise ParameterError(
            f"{option('matrix')} and {option('lookup')} are for OMX files; not for '{label}'."
        )
    if len(files) == 1 and kinds <= {None, "csv"} and (model := model_table(files[0])) is not None:
        rows, form = model
        return open_in_memory(con, rows, label=f"'{label}'", form=form)
    if reading.wide:
        if kinds != {"csv"} or len(files) > 1:
            raise ParameterError(f"{option('wide')} is for one text file; not for '{label}'.")
        return _open_wide(con, files[0])
    if kinds == {"parquet"}:
        return _open_parquet(con, label, files, reading.partition_columns)
    if kinds == {"csv"}:
        return _open_csv(con, label, files, reading.partition_columns, reading.column_names)
    if kinds == {"json"}:
        return _open_json(con, label, files)
    if len(files) == 1 and (unpack := _UNPACKED.get(next(iter(kinds)) or "")) is not None:
        if files[0].stat().st_size > _MOST_UNPACKED:
            raise DataError(
                f"'{label}' is too large for its kind. Hint: save it as Parquet or CSV."
            )
        rows = with_coordinates(unpack(files[0]))
        return replace(open_in_memory(con, rows, label=f"'{label}'"), in_text=True)
    if kinds == {"omx"} and len(files) == 1:
        rows, form = omx_table(files[0], matrices=reading.matrix, lookup=reading.lookup)
        return open_in_memory(con, rows, label=f"'{label}'", form=form)
    if len(files) == 1:
        raise ParameterError(f"The kind of '{label}' is not known. {ACCEPTED} {_OTHERS}")
    raise ParameterError(
        f"'{label}' matches files of several kinds, or of a kind that is not read. {ACCEPTED}"
    )


def kind_of(name: str) -> str | None:
    """Returns the kind of a file by its name, or None."""
    return next(
        (kind for kind, endings in ENDINGS.items() if name.casefold().endswith(endings)), None
    )


def _files_in(folder: Path) -> list[Path]:
    """Returns the Parquet files of a folder and its subfolders, else its text files.

    Ignores names with . or _.
    """
    found = sorted(
        p
        for p in folder.rglob("*")
        if p.is_file()
        and not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)
    )
    for kind in ("parquet", "csv"):
        files = [p for p in found if kind_of(p.name) == kind]
        if files:
            return files
    raise ParameterError(
        f"The folder '{folder.name}' holds no Parquet file and no text file. {ACCEPTED}"
    )


def _open_remote(con: Any, address: str, reading: Reading) -> FileTable:
    """Opens Parquet on another machine, through DuckDB's extension httpfs."""
    import duckdb

    if not reading.remote:
        raise ParameterError(
            "Only local files are read, found an address. Hint: remote=True (--set"
            " input.remote=true) reads s3:// and https://."
        )
    if not address.startswith(_REMOTE) or kind_of(address.partition("?")[0]) != "parquet":
        raise ParameterError(
            "From another machine only Parquet is read, and only from s3:// and https://."
        )
    try:
        con.execute("LOAD httpfs")
    except duckdb.Error:
        raise MissingExtraError(
            "Reading from another machine needs DuckDB's extension httpfs, which is not installed."
            ' Hint: run "INSTALL httpfs" once in DuckDB.'
        ) from None
    return _open_parquet(con, "the address", [address], reading.partition_columns)


def _open_parquet(
    con: Any, label: str, files: Sequence[Path | str], partition_columns: tuple[str, ...]
) -> FileTable:
    import duckdb
    import pyarrow.parquet as pq

    paths = ", ".join(quoted_text(literal_path(p) if isinstance(p, Path) else p) for p in files)
    together = ", union_by_name = true" if len(files) > 1 else ""
    where = f", filename = '{_PATH_COLUMN}'" if partition_columns else ""
    relation = f"read_parquet([{paths}]{together}, hive_partitioning = false{where})"
    try:
        names = [row[0] for row in con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
        n_rows = con.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0]
    except duckdb.Error:
        raise DataError(
            f"'{label}' cannot be read as Parquet: it is damaged, empty or not Parquet."
            + (" Hint: all files must have columns of the same types." if len(files) > 1 else "")
        ) from None
    if partition_columns:
        names.remove(_PATH_COLUMN)
    from_paths = [
        partition_sql([Path(p) for p in files], name, _PATH_COLUMN) for name in partition_columns
    ]
    schemas = [pq.read_schema(path) for path in files if isinstance(path, Path)]
    nested = {field: sql for field, sql, _ in fields_of(con, relation) if field not in names}
    return FileTable(
        con=con,
        label=f"'{label}'",
        names=[*_names_in_files(label, schemas, names), *nested, *partition_columns],
        n_rows=n_rows,
        partitions=partition_columns,
        relation=relation,
        identifiers=(*map(quoted_name, names), *nested.values(), *from_paths),
        timezones={
            i: zone
            for i, name in enumerate(names)
            if (zone := _timezone_of(schemas, name)) is not None
        },
        files=[path for path in files if isinstance(path, Path)],
    )


def _timezone_of(schemas: Sequence[pa.Schema], name: str) -> str | None:
    """Returns the time zone of a column, if all files that have it name the same."""
    types = [schema.field(name).type for schema in schemas if schema.names.count(name) == 1]
    zones = timezones_of(types)
    return zones[0] if len(zones) == len(types) > 0 and len(set(zones.values())) == 1 else None


def _names_in_files(label: str, schemas: Sequence[pa.Schema], names: list[str]) -> list[str]:
    """Returns the names in the files: DuckDB silently adds a number to a name that occurs twice."""
    if len(schemas) == 1 and len(schemas[0].names) == len(names):
        return list(schemas[0].names)
    if any(
        len({name.casefold() for name in schema.names}) < len(schema.names) for schema in schemas
    ):
        raise DataError(
            f"'{label}' has several columns of one name. Hint: give every column a different name."
        )
    return names


def _open_csv(
    con: Any,
    label: str,
    files: Sequence[Path],
    partition_columns: tuple[str, ...],
    column_names: tuple[str, ...] = (),
) -> FileTable:
    starts = [_Start.from_file(path, column_names) for path in files]
    first = starts[0]
    if any(replace(start, n_rows=0) != replace(first, n_rows=0) for start in starts):
        raise DataError(
            f"The text files of '{label}' have different columns; all must have the same, in one"
            " order."
        )
    count = len(first.names)
    paths = ", ".join(quoted_text(literal_path(path)) for path in files)
    where = f", filename = '{_PATH_COLUMN}'" if partition_columns and len(files) > 1 else ""
    from_paths = [partition_sql(files, name, _PATH_COLUMN) for name in partition_columns]
    return FileTable(
        con=con,
        label=f"'{label}'",
        names=[*first.names, *partition_columns],
        n_rows=sum(start.n_rows for start in starts),
        partitions=partition_columns,
        in_text=not column_names,
        relation=csv_sql(
            f"[{paths}]",
            delimiter=first.delimiter,
            columns=count,
            header=not column_names,
            more=f"{f', skip = {first.skip}' if first.skip else ''}{where}",
        ),
        identifiers=(*(f"c{i}" for i in range(count)), *from_paths),
        files=files,
        delimiter=first.delimiter,
    )


def _open_json(con: Any, label: str, files: Sequence[Path]) -> FileTable:
    """Opens JSON: an array of records, records line by line, or an envelope with one list of
    records.
    """
    import duckdb

    paths = ", ".join(quoted_text(literal_path(path)) for path in files)
    relation = (
        f"read_json([{paths}], maximum_object_size = {_MOST_UNPACKED - 1}, union_by_name = true,"
        " convert_strings_to_integers = false, sample_size = -1)"
    )
    try:
        relation = opened_records(con, relation)
        fields = fields_of(con, relation)
    except duckdb.Error:
        raise DataError(f"'{label}' cannot be read as JSON: it is damaged or empty.") from None
    return FileTable(
        con=con,
        label=f"'{label}'",
        names=[name for name, _, _ in fields],
        relation=relation,
        identifiers=tuple(sql for _, sql, _ in fields),
    )


def _unpack_zip(path: Path) -> Any:
    """Returns the one table of a zip archive; all columns of text files as text."""
    import zipfile

    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    try:
        with zipfile.ZipFile(path) as archive:
            held = [
                one for one in archive.infolist() if kind_of(one.filename) in ("csv", "parquet")
            ]
            if len(held) != 1:
                raise DataError(
                    f"'{path.name}' holds {len(held)} tables, and one can be read. Hint: unpack it."
                )
            if held[0].file_size > _MOST_UNPACKED:
                raise DataError(f"'{path.name}' is too large when it is unpacked. Hint: unpack it.")
            content = archive.read(held[0])
    except (zipfile.BadZipFile, OSError, RuntimeError):
        raise DataError(f"'{path.name}' cannot be unpacked: it is damaged or encrypted.") from None
    try:
        if kind_of(held[0].filename) == "parquet":
            return pq.read_table(io.BytesIO(content))
        if held[0].filename.casefold().endswith(".gz"):
            content = gzip.decompress(content)
        first = content[:_PEEKED_BYTES].decode("utf-8-sig", errors="replace")
        skip, delimiter = _header_line(held[0].filename, first)
        names = next(csv.reader([first.split("\n")[skip]], delimiter=delimiter))
        texts = dict.fromkeys(names, pa.string())
        return arrow_csv.read_csv(
            io.BytesIO(content),
            read_options=arrow_csv.ReadOptions(skip_rows=skip),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=texts, strings_can_be_null=True),
        )
    except (pa.ArrowException, OSError):
        raise DataError(f"The table in '{path.name}' cannot be read. Hint: unpack it.") from None


def _unpack_drawn(path: Path) -> Any:
    """Returns the rows of a sheet, or the features of a drawn file as a table of geopandas."""
    try:
        import geopandas
        import pyogrio
    except ImportError:
        raise MissingExtraError(
            f"Reading '{path.name}' needs pyogrio. Hint: pip install 'flowveil[zones]', or save it"
            " as CSV."
        ) from None
    try:
        if kind_of(path.name) == "drawn":
            return geopandas.read_file(path)
        sheets = [str(layer) for layer in pyogrio.list_layers(path)[:, 0]]
        if len(sheets) != 1:
            raise DataError(
                f"'{path.name}' has {len(sheets)} sheets, and one can be read. Hint: save that"
                " sheet in a separate file."
            )
        return pyogrio.read_arrow(path, HEADERS="FORCE", FIELD_TYPES="STRING")[1]
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, pa.ArrowException):
        raise DataError(f"'{path.name}' cannot be read: it is damaged.") from None


#: How files are read into memory, by kind.
_UNPACKED = {"zip": _unpack_zip, "sheet": _unpack_drawn, "drawn": _unpack_drawn}


def _open_wide(con: Any, path: Path) -> FileTable:
    """Opens a matrix: the first column has the origins, and there is a column for each
    destination.
    """
    start = _Start.from_file(path)
    codes = [name.strip() for name in start.names[1:]]
    if not codes or "" in codes or len(set(codes)) < len(codes):
        raise DataError(
            f"'{path.name}' is not a matrix: codes in its first line are empty or duplicates."
        )
    relation = csv_sql(
        quoted_text(literal_path(path)),
        delimiter=start.delimiter,
        columns=len(start.names),
        more=f", skip = {start.skip}" if start.skip else "",
    )
    with in_own_words(f"'{path.name}'"):
        twice = con.execute(
            f"SELECT count(c0) - count(DISTINCT trim(c0)) FROM {relation}"
        ).fetchall()[0][0]
    if twice:
        raise DataError(
            f"'{path.name}' is not a matrix: {twice} codes in its first column are duplicates."
        )
    names = ("origin", "destination", "trips")
    return FileTable(
        con=con,
        label=f"'{path.name}'",
        names=names,
        n_rows=start.n_rows * len(codes),
        form=Form(),
        in_text=True,
        relation=wide_sql(relation, codes),
        identifiers=names,
    )


@dataclass(frozen=True)
class _Start:
    """The columns of a text file, their delimiter, an estimate of the number of rows, and the
    number of lines above the header.
    """

    names: tuple[str, ...]
    delimiter: str
    n_rows: int
    skip: int = 0

    @classmethod
    def from_file(cls, path: Path, column_names: tuple[str, ...] = ()) -> _Start:
        label = f"'{path.name}'"
        text, bytes_read, size = _beginning(path, label)
        if not text.strip():
            raise DataError(
                f"{label} is empty. A first line with the names of the columns is needed."
            )
        if column_names:
            return cls._without_header(path.name, label, text, column_names)
        skip, delimiter = _header_line(path.name, text)
        # A header may hold quoted line breaks, so the first record is read from the whole
        # beginning.
        below = text.split("\n", skip)[-1]
        names = tuple(next(csv.reader(io.StringIO(below), delimiter=delimiter)))
        rows = round(max(text.count("\n"), 1) * size / max(bytes_read, 1))
        return cls(names, delimiter, rows, skip)

    @classmethod
    def _without_header(
        cls, name: str, label: str, text: str, column_names: tuple[str, ...]
    ) -> _Start:
        line = text.splitlines()[0]
        delimiter = delimiter_of(name, line)
        if delimiter not in line and " " in line.strip():
            delimiter = " "
        fields = len(next(csv.reader([line], delimiter=delimiter)))
        if fields != len(column_names):
            raise DataError(
                f"{label} has {fields} columns, and {option('column_names')} names"
                f" {len(column_names)}."
            )
        return cls(column_names, delimiter, max(text.count("\n"), 1))


def _header_line(name: str, text: str) -> tuple[int, str]:
    """Returns the number of lines above the header, and the delimiter.

    Titles, sources and blank lines stand above it: they have fewer fields than it and each of the
    lines below, which have numbers where it has words.
    """
    lines = text.split("\n")[: _MOST_TITLES + _LINES_BELOW]
    delimiter = delimiter_of(name, lines[0])
    for skip in range(1, len(lines) - _LINES_BELOW + 1):
        separator = delimiter_of(name, lines[skip])
        some = list(csv.reader(lines[: skip + _LINES_BELOW], delimiter=separator))
        # A quoted text with a line break makes fewer records than lines.
        if len(some) < skip + _LINES_BELOW:
            break
        head, below = some[skip], some[skip + 1 :]
        fits = all(len(row) == len(head) for row in below) and all(map(str.strip, head))
        has_words = not any(map(_NUMBER.match, head)) and all(
            any(map(_NUMBER.match, row)) for row in below
        )
        if len(head) > 1 and fits and has_words and all(len(r) < len(head) for r in some[:skip]):
            return skip, separator
    return 0, delimiter


def layout_of_text(path: Path) -> tuple[tuple[str, ...], str, int]:
    """Returns the names of the columns of a text file, their delimiter, and the number of lines
    above the header.
    """
    start = _Start.from_file(path)
    return start.names, start.delimiter, start.skip


def delimiter_of(name: str, first_line: str) -> str:
    """Returns what separates the columns of a text file."""
    return "\t" if ".tsv" in name.casefold() else max(DELIMITERS, key=first_line.count)


def _beginning(path: Path, label: str) -> tuple[str, int, int]:
    """Returns the first part of a text file, the number of file bytes that it takes, and the size
    of the file.
    """
    try:
        with path.open("rb") as raw:
            if path.name.casefold().endswith(".gz"):
                with gzip.open(raw) as unpacked:
                    start = unpacked.read(_PEEKED_BYTES)
                taken = raw.tell()
            else:
                start = raw.read(_PEEKED_BYTES)
                taken = len(start)
    except (OSError, EOFError):
        raise DataError(f"{label} cannot be read: it is damaged, or may not be opened.") from None
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{label} is in UTF-16. Only UTF-8 is read. Hint: save it as UTF-8.")
    if b"\0" in start or start.startswith((b"PK\x03\x04", b"PAR1")):
        raise DataError(f"{label} is not a text file, although its name says so. {_OTHERS}")
    return start.decode("utf-8-sig", errors="replace"), taken, path.stat().st_size


@dataclass(frozen=True, eq=False, kw_only=True)
class FileTable(Table):
    """Files that DuckDB reads: a FROM clause, SQL of each column in it, and the local files that
    can be sampled.
    """

    relation: str
    identifiers: tuple[str, ...]
    files: Sequence[Path] = ()
    delimiter: str = ","

    def peek(self, position: int) -> list[Any]:
        """Returns the first values of a column."""
        query = f"SELECT {self.identifiers[position]} FROM {self.relation} LIMIT {PEEKED_ROWS}"
        return [row[0] for row in self.con.execute(query).fetchall()]

    def sample(self, position: int) -> list[Any]:
        """Returns values from all over the files; the first ones of compressed files."""
        if not self.files:
            return self.peek(position)
        if self.in_text:
            return [row[position] for row in self._sampled_rows] or self.peek(position)
        return _sample_parquet(self.files, position) or self.peek(position)

    @cached_property
    def _sampled_rows(self) -> list[list[str]]:
        return _sample_text(self.files, self.delimiter, len(self.names) - len(self.partitions))

    def attach(self, positions: Sequence[int]) -> str:
        """Returns a subquery: DuckDB reads the selected columns only."""
        selected = ", ".join(f"{self.identifiers[p]} AS c{i}" for i, p in enumerate(positions))
        return f"(SELECT {selected} FROM {self.relation})"


def _sample_text(files: Sequence[Path], delimiter: str, columns: int) -> list[list[str]]:
    """Returns rows from evenly spread blocks, because the first ones say little.

    Empty for compressed files.

    A block may begin within a row or a quoted text: its first and last line, and rows of another
    width, are not used.
    """
    if any(path.name.casefold().endswith(".gz") for path in files):
        return []
    sizes = [path.stat().st_size for path in files]
    rows: list[list[str]] = []
    for place in range(_SAMPLED_PLACES):
        at = place * sum(sizes) // _SAMPLED_PLACES
        number = 0
        while at >= sizes[number]:
            at -= sizes[number]
            number += 1
        with files[number].open("rb") as file:
            file.seek(at)
            block = file.read(_BLOCK_BYTES).decode("utf-8", errors="replace")
        last = None if len(block) < _BLOCK_BYTES else -1
        lines = block.splitlines()[1:last][: SAMPLED_ROWS // _SAMPLED_PLACES]
        try:
            found = list(csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=delimiter))
        except csv.Error:
            continue
        rows += [row for row in found if len(row) == columns]
    return rows


def _sample_parquet(files: Sequence[Path], position: int) -> list[Any]:
    """Returns values of a column from row groups all over Parquet files.

    Empty for nested columns.
    """
    import pyarrow.parquet as pq

    opened = [pq.ParquetFile(path) for path in files[:: max(1, len(files) // _SAMPLED_PLACES)]]
    name = (
        opened[0].schema_arrow.names[position]
        if position < len(opened[0].schema_arrow.names)
        else None
    )
    groups = [(file, group) for file in opened for group in range(file.metadata.num_row_groups)]
    if len(groups) > _SAMPLED_PLACES:
        groups = [groups[i * len(groups) // _SAMPLED_PLACES] for i in range(_SAMPLED_PLACES)]
    values: list[Any] = []
    for file, group in groups:
        if name is None or file.schema_arrow.names.count(name) != 1:
            continue
        column = file.read_row_group(group, columns=[name]).column(0)
        step = max(1, len(column) * len(groups) // SAMPLED_ROWS)
        values += column.take(list(range(0, len(column), step))).to_pylist()
    return values
