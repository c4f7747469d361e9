"""Trip tables of every kind, made readable for DuckDB: files, and tables in memory.

Whatever the source is, the engine gets the names of its columns, and reads those it needs as ``c0, c1, ...``
from one FROM clause. Only these are touched, so a geometry column beside them neither costs nor hurts.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as pads

from flowveil.errors import DataError, MissingExtraError, ParameterError
from flowveil.headers import Header
from flowveil.paths import named_path
from flowveil.reading import sampling
from flowveil.reading.addresses import database_address
from flowveil.reading.database import in_own_words
from flowveil.reading.databases import read_address
from flowveil.reading.matrices import Form, omx_table, wide_sql
from flowveil.reading.partitions import partition_sql
from flowveil.reading.sql import csv_sql, literal_path, quoted_name, quoted_text

_CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET_ENDINGS = (".parquet", ".pq", ".parq")
_ACCEPTED = (
    "Allowed: a path to .csv, .tsv, .txt (also with .gz), .parquet or .omx, a folder or pattern of Parquet or of text "
    "files, a table of a database (duckdb:FILE?table=NAME), or a pyarrow, pandas, polars or geopandas table."
)
#: What to do with files of other programs.
_EXPORTED = {
    ".xlsx": "is a workbook, which is not read. Hint: save the sheet as CSV UTF-8, or as Parquet from Python.",
    ".xls": "is a workbook, which is not read. Hint: save the sheet as CSV UTF-8, or as Parquet from Python.",
    ".zip": "is a zip archive, which is not read. Hint: unpack it, or compress the CSV as .csv.gz instead.",
}
#: Addresses that may be read from elsewhere, where that is asked for.
_REMOTE = ("s3://", "https://")
_DELIMITERS = ",;\t|"
_PEEKED_BYTES = 1 << 20
_PEEKED_ROWS = 1000
#: Rows that are looked through for what stands in the first line.
_SEARCHED_ROWS = 100_000
_NAME_IN_DUCKDB = "flowveil_source"
#: The column with the path of each row's file, where that is needed.
_PATH_COLUMN = "flowveil_path"


class Table(Protocol):
    """A trip table that can be read once, column by column of choice."""

    @property
    def label(self) -> str:
        """How messages call it."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Its columns; the same name may be there twice."""
        ...

    @property
    def partitions(self) -> Sequence[str]:
        """Those of its columns that come from the path of a file, not from its contents."""
        ...

    @property
    def form(self) -> Form | None:
        """What its columns are, where its form says so: a matrix; None where they are to be recognised."""
        ...

    @property
    def n_rows(self) -> int | None:
        """How many rows to expect, for progress only: known, estimated, or None."""
        ...

    def peek(self, con: Any, position: int) -> list[Any]:
        """The first values of one column."""
        ...

    def sample(self, con: Any, position: int) -> list[Any]:
        """Some values of one column, spread over the table where that is possible without reading all of it."""
        ...

    def timezone_of(self, position: int) -> str | None:
        """The time zone that the type of a column names; None if it names none."""
        ...

    def header(self, con: Any) -> Header:
        """The names of the columns for messages; rows are looked through for them, so only where there is a message."""
        ...

    def attach(self, con: Any, positions: Sequence[int]) -> str:
        """Make these columns readable as c0, c1, ...; return a FROM clause."""
        ...

    def kept(self, con: Any, relation: str) -> str:
        """A FROM clause of the same rows that can be read more than once."""
        ...


@dataclass(frozen=True)
class Opening:
    """What is said about a source besides where it is.

    Attributes:
        partition_columns: names of folders ``name=value`` whose values shall be columns.
        remote: whether an address of another machine may be read.
        matrices: of an OMX file, those to read; all by default.
        lookup: of an OMX file, which lookup has the codes of the zones.
        wide: whether a text file is a matrix with a column for each destination.
    """

    partition_columns: tuple[str, ...] = ()
    remote: bool = False
    matrices: tuple[str, ...] = ()
    lookup: str | None = None
    wide: bool = False

    def refuse_for_tables(self) -> None:
        """Raise ParameterError for what only files have."""
        if self.partition_columns:
            raise ParameterError("Partition columns come from the folders of files; a table in memory has none.")
        if self.matrices or self.lookup or self.wide:
            raise ParameterError("matrix, lookup and wide are for files that hold matrices, not for a table in memory.")


def open_table(con: Any, source: Any, *, opening: Opening | None = None) -> Table:
    """Find out what the source is and which columns it has.

    Columns come from the contents of files: a folder named ``weight=100000`` would otherwise give every trip that
    weight.

    Args:
        con: a database.
        source: files or a table in memory.
        opening: what is said about the source.

    Raises:
        ParameterError: it is nothing that can be read, or a path to nothing.
        DataError: the file is empty or is not what its name says.
    """
    opening = opening or Opening()
    if isinstance(source, str | PathLike):
        return _open_path(con, fspath(source), opening)
    opening.refuse_for_tables()
    if isinstance(source, pa.Table | pa.RecordBatch):
        return MemoryTable(source.schema.names, source.num_rows, _ArrowColumns(source))
    if isinstance(source, pa.RecordBatchReader):
        return MemoryTable(source.schema.names, None, _ReaderColumns(source))
    if isinstance(source, pads.Dataset):
        # Whoever made this data set asked for its partition columns; what they may serve as is the same.
        folders = getattr(getattr(source, "partitioning", None), "schema", None)
        from_path = () if folders is None else tuple(folders.names)
        return MemoryTable(source.schema.names, source.count_rows(), _DatasetColumns(source), from_path)
    library = type(source).__module__.partition(".")[0]
    if library in ("pandas", "geopandas") and hasattr(source, "iloc") and hasattr(source, "columns"):
        return MemoryTable([str(c) for c in source.columns], len(source), _PandasColumns(source))
    if library == "polars" and hasattr(source, "collect_schema"):
        rows = source.height if hasattr(source, "height") else None
        return MemoryTable(source.collect_schema().names(), rows, _PolarsColumns(source))
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        return MemoryTable(reader.schema.names, None, _ReaderColumns(reader))
    raise ParameterError(f"A {type(source).__name__} cannot be read as trips. {_ACCEPTED}")


# ---- files -------------------------------------------------------------------------------------------------


def _open_path(con: Any, path: str, opening: Opening) -> Table:
    address = database_address(path)
    if address is not None:
        opening.refuse_for_tables()
        reader = read_address(address)
        return MemoryTable(reader.schema.names, None, _ReaderColumns(reader), label="the table of the database")
    if "://" in path:
        return _open_remote(con, path, opening)
    here = named_path(path, what="the input").expanduser()
    if here.is_dir():
        return _open_files(con, here.name, _files_in(here), opening)
    if here.is_file():
        return _open_files(con, here.name, [here], opening)
    if has_magic(str(here)):
        found = sorted(Path(p) for p in glob(str(here), recursive=True) if Path(p).is_file())
        if not found:
            raise ParameterError(f"The pattern '{path}' matches no file. {_ACCEPTED}")
        return _open_files(con, here.name, found, opening)
    raise ParameterError(f"There is no file '{path}'. {_ACCEPTED}")


def _open_files(con: Any, label: str, files: list[Path], opening: Opening) -> Table:
    """Files of one kind, in their order."""
    kinds = {_kind(file) for file in files}
    if (opening.matrices or opening.lookup) and kinds != {"omx"}:
        raise ParameterError(f"matrix and lookup (--matrix, --lookup) are for OMX files; not for '{label}'.")
    if kinds == {"parquet"} and not opening.wide:
        return _open_parquet(con, label, files, opening.partition_columns)
    if kinds == {"csv"} and opening.wide and len(files) == 1:
        return _open_wide(con, files[0])
    if kinds == {"csv"} and not opening.wide:
        return _open_csv(label, files, opening.partition_columns)
    if kinds == {"omx"} and len(files) == 1 and not opening.wide:
        rows, form = omx_table(files[0], matrices=opening.matrices, lookup=opening.lookup)
        return MemoryTable(rows.schema.names, rows.num_rows, _ArrowColumns(rows), form=form, label=f"'{label}'")
    if opening.wide:
        raise ParameterError(f"wide (--wide) is for one text file; not for '{label}'.")
    if len(files) == 1:
        how = next((how for ending, how in _EXPORTED.items() if label.casefold().endswith(ending)), None)
        raise ParameterError(f"'{label}' {how}" if how else f"The kind of '{label}' is not known. {_ACCEPTED}")
    raise ParameterError(f"'{label}' stands for files of several kinds, or of a kind that is not read. {_ACCEPTED}")


def _kind(file: Path) -> str | None:
    name = file.name.casefold()
    known = {"csv": _CSV_ENDINGS, "parquet": _PARQUET_ENDINGS, "omx": (".omx",)}
    return next((kind for kind, endings in known.items() if name.endswith(endings)), None)


def _files_in(folder: Path) -> list[Path]:
    """The Parquet files, else the text files, of a folder and its subfolders; names after . or _ are bookkeeping."""
    found = sorted(
        p
        for p in folder.rglob("*")
        if p.is_file() and not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)
    )
    for kind in ("parquet", "csv"):
        files = [p for p in found if _kind(p) == kind]
        if files:
            return files
    raise ParameterError(f"The folder '{folder.name}' holds no Parquet file and no text file. {_ACCEPTED}")


def _open_remote(con: Any, address: str, opening: Opening) -> FileTable:
    """Parquet on another machine, through DuckDB's extension httpfs; only where that was asked for.

    Raises:
        ParameterError: it was not asked for, or the address is of a kind that is not read.
        MissingExtraError: the extension is not installed.
    """
    import duckdb

    if not opening.remote:
        raise ParameterError(
            "Only local files are read, found an address. Hint: remote=True (--set input.remote=true) reads s3:// and https://."
        )
    if not address.startswith(_REMOTE) or not address.casefold().partition("?")[0].endswith(_PARQUET_ENDINGS):
        raise ParameterError("From another machine only Parquet is read, and only from s3:// and https://.")
    try:
        con.execute("LOAD httpfs")
    except duckdb.Error:
        raise MissingExtraError(
            "Reading from another machine needs DuckDB's extension httpfs, which is not installed. Hint: run "
            '"INSTALL httpfs" once in DuckDB.'
        ) from None
    return _open_parquet(con, "the address", [address], opening.partition_columns)


def _open_parquet(con: Any, label: str, files: Sequence[Path | str], partition_columns: tuple[str, ...]) -> FileTable:
    import duckdb

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
    identifiers = [quoted_name(name) for name in names]
    timezones = _timezones_of(files, names)
    names = _as_written(label, files, names)
    columns = (
        *identifiers,
        *(partition_sql([Path(p) for p in files], name, _PATH_COLUMN) for name in partition_columns),
    )
    return FileTable(
        f"'{label}'",
        [*names, *partition_columns],
        n_rows,
        relation,
        columns,
        partition_columns,
        timezones=timezones,
        files=[path for path in files if isinstance(path, Path)],
    )


def _timezones_of(files: Sequence[Path | str], names: Sequence[str]) -> dict[int, str]:
    """The time zones of columns by position, where all Parquet files name the same."""
    import pyarrow.parquet as pq

    found: dict[str, set[str | None]] = {}
    for path in files:
        if isinstance(path, Path):
            for column in pq.read_schema(path):
                found.setdefault(column.name, set()).add(_zone_of_type(column.type))
    zones = {name: zone for name, (zone, *others) in found.items() if zone is not None and not others}
    return {i: zones[name] for i, name in enumerate(names) if name in zones}


def _as_written(label: str, files: Sequence[Path | str], names: list[str]) -> list[str]:
    """The names as they stand in the files: DuckDB gives a name that is there twice a number, and nobody would know."""
    import pyarrow.parquet as pq

    written = [pq.read_schema(path).names for path in files if isinstance(path, Path)]
    if len(written) == 1 and len(written[0]) == len(names):
        return list(written[0])
    if any(len({name.casefold() for name in one}) < len(one) for one in written):
        raise DataError(f"'{label}' has a column more than once. Hint: give every column a name of its own.")
    return names


def _open_csv(label: str, files: Sequence[Path], partition_columns: tuple[str, ...]) -> FileTable:
    starts = [_Start.of(path) for path in files]
    first = starts[0]
    if any((start.names, start.delimiter) != (first.names, first.delimiter) for start in starts):
        raise DataError(f"The text files of '{label}' have different columns; all must have the same, in one order.")
    names, count = first.names, len(first.names)
    paths = ", ".join(quoted_text(literal_path(path)) for path in files)
    where = f", filename = '{_PATH_COLUMN}'" if partition_columns and len(files) > 1 else ""
    relation = csv_sql(f"[{paths}]", delimiter=first.delimiter, columns=count, more=where)
    identifiers = (
        *(f"c{i}" for i in range(count)),
        *(partition_sql(files, name, _PATH_COLUMN) for name in partition_columns),
    )
    n_rows = sum(start.n_rows for start in starts)
    return FileTable(
        f"'{label}'",
        [*names, *partition_columns],
        n_rows,
        relation,
        identifiers,
        partition_columns,
        in_text=True,
        files=files,
        delimiter=first.delimiter,
    )


def _open_wide(con: Any, path: Path) -> FileTable:
    """A matrix: the first column has the origins, and there is a column for each destination."""
    start = _Start.of(path)
    codes = [name.strip() for name in start.names[1:]]
    if not codes or "" in codes or len(set(codes)) < len(codes):
        raise DataError(f"'{path.name}' is not a matrix: codes in its first line are empty or duplicates.")
    relation = csv_sql(quoted_text(literal_path(path)), delimiter=start.delimiter, columns=len(start.names))
    with in_own_words(f"'{path.name}'"):
        twice = con.execute(f"SELECT count(c0) - count(DISTINCT trim(c0)) FROM {relation}").fetchall()[0][0]
    if twice:
        raise DataError(f"'{path.name}' is not a matrix: {twice} codes in its first column are duplicates.")
    names = ("origin", "destination", "trips")
    n_rows = start.n_rows * len(codes)
    return FileTable(f"'{path.name}'", names, n_rows, wide_sql(relation, codes), names, form=Form(), in_text=True)


@dataclass(frozen=True)
class _Start:
    """The beginning of a text file: its columns, what separates them, and about how many rows follow."""

    names: tuple[str, ...]
    delimiter: str
    n_rows: int

    @classmethod
    def of(cls, path: Path) -> _Start:
        label = f"'{path.name}'"
        text, bytes_read, size = _beginning(path, label)
        if not text.strip():
            raise DataError(f"{label} is empty. A first line with the names of the columns is needed.")
        head = text.splitlines()[0]
        delimiter = "\t" if ".tsv" in path.name.casefold() else max(_DELIMITERS, key=head.count)
        # A header may hold quoted line breaks, so the first record is read from the whole beginning.
        names = tuple(next(csv.reader(io.StringIO(text), delimiter=delimiter)))
        return cls(names, delimiter, round(max(text.count("\n"), 1) * size / max(bytes_read, 1)))


def _beginning(path: Path, label: str) -> tuple[str, int, int]:
    """The first part of a text file, how many of the file's bytes it took, and how many there are."""
    size = path.stat().st_size
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
    if start.startswith(b"PK\x03\x04"):
        kind = "an Excel workbook" if b"xl/" in start or b"[Content_Types].xml" in start[:200] else "a zip archive"
        named = ".xlsx" if "Excel" in kind else ".zip"
        raise DataError(f"{label} is {kind}, although its name says text. Hint: name it {named}, or save it as CSV.")
    if start.startswith(b"PAR1"):
        raise DataError(f"{label} is a Parquet file, although its name says text. Hint: name it .parquet.")
    if b"\0" in start:
        raise DataError(f"{label} is not a text file, although its name says so.")
    return start.decode("utf-8-sig", errors="replace"), taken, size


@dataclass(frozen=True, eq=False)
class FileTable:
    """Files that DuckDB reads by itself; see `Table`."""

    label: str
    names: Sequence[str]
    n_rows: int | None
    relation: str
    identifiers: tuple[str, ...]
    partitions: Sequence[str] = ()
    in_text: bool = False
    form: Form | None = None
    timezones: Mapping[int, str] = field(default_factory=dict)
    files: Sequence[Path] = ()
    delimiter: str = ","

    def sample(self, con: Any, position: int) -> list[Any]:
        """Values from places all over the files; the first ones for files that cannot be read from the middle."""
        if not self.files or self.form is not None:
            return self.peek(con, position)
        if self.in_text:
            found = [row[position] for row in self._sampled_rows]
        else:
            found = sampling.parquet_values(self.files, position)
        return found or self.peek(con, position)

    @cached_property
    def _sampled_rows(self) -> list[list[str]]:
        return sampling.text_rows(self.files, delimiter=self.delimiter, columns=len(self.names) - len(self.partitions))

    def timezone_of(self, position: int) -> str | None:
        """The time zone that the schema of a Parquet file names."""
        return self.timezones.get(position)

    def peek(self, con: Any, position: int) -> list[Any]:
        """The first values of one column."""
        column = self.identifiers[position]
        query = f"SELECT {column} FROM {self.relation} LIMIT {_PEEKED_ROWS}"
        return [row[0] for row in con.execute(query).fetchall()]

    def header(self, con: Any) -> Header:
        """The names of the columns; those that recur among the first rows, or cannot be looked for there, are data."""
        import duckdb

        # Each value once, or twice where it is the only one and comes again: a single number may be chance.
        first = f"SELECT * FROM {self.relation} LIMIT {_SEARCHED_ROWS}"
        held = "count(nullif(trim(CAST(COLUMNS(*) AS VARCHAR)), ''))"
        try:
            (found,) = con.execute(f"SELECT list(DISTINCT COLUMNS(*)), {held} FROM ({first})").fetchall()
        except duckdb.Error:
            return Header(self.names, below=[self.names])
        lists, counts = found[: len(self.names)], found[len(self.names) :]
        below = [(column or []) * (2 if n > 1 else 1) for column, n in zip(lists, counts, strict=True)]
        return Header(self.names, below=below, in_text=self.in_text)

    def attach(self, con: Any, positions: Sequence[int]) -> str:  # noqa: ARG002  the interface of `Table`
        """A subquery over the files: DuckDB reads the selected columns only."""
        selected = ", ".join(f"{self.identifiers[p]} AS c{i}" for i, p in enumerate(positions))
        return f"(SELECT {selected} FROM {self.relation})"

    def kept(self, con: Any, relation: str) -> str:  # noqa: ARG002  the interface of `Table`
        """Files can be read again."""
        return relation


# ---- tables in memory --------------------------------------------------------------------------------------


class _Columns(Protocol):
    def peek(self, position: int) -> list[Any]: ...

    def sample(self, position: int) -> list[Any]: ...

    def timezone_of(self, position: int) -> str | None: ...

    def select(self, positions: Sequence[int]) -> pa.Table | pa.RecordBatchReader: ...


@dataclass(frozen=True, eq=False)
class MemoryTable:
    """A table in memory, or a stream of batches; see `Table`."""

    names: Sequence[str]
    n_rows: int | None
    columns: _Columns
    partitions: Sequence[str] = ()
    form: Form | None = None
    label: str = "the table"

    def peek(self, con: Any, position: int) -> list[Any]:  # noqa: ARG002  the interface of `Table`
        """The first values of one column."""
        return self.columns.peek(position)

    def sample(self, con: Any, position: int) -> list[Any]:  # noqa: ARG002  the interface of `Table`
        """Every n-th value, or the first ones of a stream."""
        return self.columns.sample(position)

    def timezone_of(self, position: int) -> str | None:
        """The time zone that the type of a column names."""
        return self.columns.timezone_of(position)

    def header(self, con: Any) -> Header:  # noqa: ARG002  the interface of `Table`
        """The names of the columns; those that recur among the first values are data."""
        return Header(self.names, below=map(self.columns.peek, range(len(self.names))))

    def attach(self, con: Any, positions: Sequence[int]) -> str:
        """Register the selected columns, without a copy where the table is Arrow."""
        con.register(_NAME_IN_DUCKDB, self.columns.select(positions))
        return _NAME_IN_DUCKDB

    def kept(self, con: Any, relation: str) -> str:
        """A stream is gone once it is read, so DuckDB keeps its rows, on disk where they outgrow the memory."""
        if isinstance(self.columns, _ReaderColumns | _DatasetColumns):
            con.execute(f"CREATE TEMP TABLE {_NAME_IN_DUCKDB}_kept AS SELECT * FROM {relation}")
            return f"{_NAME_IN_DUCKDB}_kept"
        return relation


def _numbered(positions: Sequence[int]) -> list[str]:
    return [f"c{i}" for i in range(len(positions))]


def _zone_of_type(kind: pa.DataType) -> str | None:
    return kind.tz if pa.types.is_timestamp(kind) else None


@dataclass(frozen=True, eq=False)
class _ArrowColumns:
    table: pa.Table | pa.RecordBatch

    def sample(self, position: int) -> list[Any]:
        rows = sampling.spread(self.table.num_rows)
        return self.table.column(position).take(pa.array(rows)).to_pylist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        return _zone_of_type(self.table.schema.field(position).type)

    def peek(self, position: int) -> list[Any]:
        return self.table.column(position)[:_PEEKED_ROWS].to_pylist()  # type: ignore[no-any-return]

    def select(self, positions: Sequence[int]) -> pa.Table:
        return pa.table([self.table.column(p) for p in positions], names=_numbered(positions))


@dataclass(eq=False)
class _ReaderColumns:
    """A stream can be read once: what was peeked at is kept and comes first."""

    reader: pa.RecordBatchReader
    peeked: list[pa.RecordBatch] = field(default_factory=list)

    def sample(self, position: int) -> list[Any]:
        return self.peek(position)

    def timezone_of(self, position: int) -> str | None:
        return _zone_of_type(self.reader.schema.field(position).type)

    def peek(self, position: int) -> list[Any]:
        while not any(b.num_rows for b in self.peeked):
            try:
                self.peeked.append(self.reader.read_next_batch())
            except StopIteration:
                return []
        return self.peeked[-1].column(position)[:_PEEKED_ROWS].to_pylist()  # type: ignore[no-any-return]

    def select(self, positions: Sequence[int]) -> pa.RecordBatchReader:
        names = _numbered(positions)
        schema = pa.schema([(n, self.reader.schema.field(p).type) for n, p in zip(names, positions, strict=True)])

        def batches() -> Iterator[pa.RecordBatch]:
            for source in (self.peeked, self.reader):
                for batch in source:
                    yield pa.RecordBatch.from_arrays([batch.column(p) for p in positions], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


@dataclass(frozen=True, eq=False)
class _DatasetColumns:
    dataset: pads.Dataset

    def sample(self, position: int) -> list[Any]:
        return self.peek(position)

    def timezone_of(self, position: int) -> str | None:
        return _zone_of_type(self.dataset.schema.field(position).type)

    def peek(self, position: int) -> list[Any]:
        name = self.dataset.schema.names[position]
        return self.dataset.head(_PEEKED_ROWS, columns=[name]).column(0).to_pylist()  # type: ignore[no-any-return]

    def select(self, positions: Sequence[int]) -> pa.RecordBatchReader:
        names = list(dict.fromkeys(self.dataset.schema.names[p] for p in positions))
        reader = self.dataset.scanner(columns=names).to_reader()
        at = [names.index(self.dataset.schema.names[p]) for p in positions]
        return _ReaderColumns(reader).select(at)


@dataclass(frozen=True, eq=False)
class _PandasColumns:
    frame: Any

    def sample(self, position: int) -> list[Any]:
        return self.frame.iloc[sampling.spread(len(self.frame)), position].tolist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        zone = getattr(self.frame.dtypes.iloc[position], "tz", None)
        return None if zone is None else str(zone)

    def peek(self, position: int) -> list[Any]:
        return self.frame.iloc[:_PEEKED_ROWS, position].tolist()  # type: ignore[no-any-return]

    def select(self, positions: Sequence[int]) -> pa.Table:
        arrays = [self._as_arrow(self.frame.iloc[:, p]) for p in positions]
        return pa.table(arrays, names=_numbered(positions))

    def _as_arrow(self, series: Any) -> Any:
        if (
            series.dtype == object
            and (first := series.dropna().head(1)).size
            and getattr(first.iloc[0], "tzinfo", None)
        ):
            # Times may have different offsets, of which an Arrow type would keep the first.
            return pa.array([None if t != t or t is None else str(t) for t in series], pa.string())
        try:
            return pa.array(series, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # Values of several types in one column: as text each row can be judged by itself.
            return pa.array(series.astype("string"), from_pandas=True)


@dataclass(frozen=True, eq=False)
class _PolarsColumns:
    frame: Any

    def sample(self, position: int) -> list[Any]:
        if not hasattr(self.frame, "height"):
            return self.peek(position)
        return self.frame.to_series(position).gather(sampling.spread(self.frame.height)).to_list()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        zone: str | None = getattr(self.frame.collect_schema().dtypes()[position], "time_zone", None)
        return zone

    def peek(self, position: int) -> list[Any]:
        name = self.frame.collect_schema().names()[position]
        return self.frame.lazy().select(name).head(_PEEKED_ROWS).collect().to_series().to_list()  # type: ignore[no-any-return]

    def select(self, positions: Sequence[int]) -> pa.Table:
        names = self.frame.collect_schema().names()
        wanted = list(dict.fromkeys(names[p] for p in positions))
        table = self.frame.lazy().select(wanted).collect().to_arrow()
        return _ArrowColumns(table).select([wanted.index(names[p]) for p in positions])
