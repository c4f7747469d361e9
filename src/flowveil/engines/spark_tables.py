"""Trip tables that Spark holds: a DataFrame, a table of its catalogue, or files on any file system it reads.

The rules are those of `flowveil.reading.tables`: columns come from the contents of files and not from the names of
folders, text files have a first line of names and all their columns are text, and files whose names begin with a dot or
an underscore are bookkeeping.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from os import PathLike, fspath
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.errors import DataError, ParameterError
from flowveil.headers import Header
from flowveil.reading.matrices import Form
from flowveil.reading.partitions import partition_sql
from flowveil.reading.tables import Opening

#: What the rows of a part of the table are called where they are read: see `SparkTable.attach`.
ROWS = "flowveil_source"
#: Columns beside those of the table: the path of a row's file, and a line of text that has too few or too many columns.
PATH, BROKEN = "flowveil_path", "flowveil_broken"

_CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET_ENDINGS = (".parquet", ".pq", ".parq")
_TEXT = {
    "header": False,
    "quote": '"',
    "escape": '"',
    "encoding": "UTF-8",
    "multiLine": True,
    "recursiveFileLookup": True,
}
_DELIMITERS = ",;\t|"
_PEEKED_ROWS = 1000
_ACCEPTED = (
    "Allowed with Spark: a Spark DataFrame, the name of a table, or a path to .csv, .tsv, .txt (also with .gz) or "
    ".parquet, a folder or a pattern of them."
)


def is_dataframe(source: Any) -> bool:
    """Whether this is a Spark DataFrame; asks its class and loads nothing."""
    return type(source).__module__.startswith("pyspark.sql.") and hasattr(source, "mapInArrow")


@dataclass(frozen=True, eq=False)
class SparkTable:
    """A trip table on a cluster; see `flowveil.reading.tables.Table`.

    Attributes:
        label: how messages call it.
        names: its columns; the same name may be there twice.
        frame: the DataFrame with columns c0, c1, ... in that order, and those of this module.
        files: the files of the rows, where a partition column is asked for.
        partitions: those of the names that come from the path of a file.
        in_text: whether the names are the first line of a text file.
        attached: the columns that are needed.
    """

    label: str
    names: Sequence[str]
    frame: Any
    files: Sequence[PurePosixPath] = ()
    partitions: Sequence[str] = ()
    in_text: bool = False
    form: Form | None = None
    n_rows: int | None = None
    attached: list[str] = field(default_factory=list)

    @cached_property
    def _beginning(self) -> pa.Table:
        columns = [f"c{i}" for i in range(len(self.names) - len(self.partitions))]
        rows = self.frame.select(*columns).limit(_PEEKED_ROWS).toArrow()
        if self.in_text and len(rows):
            heads = [pc.equal(rows.column(c), name) for c, name in zip(columns, self.names, strict=False)]
            rows = rows.filter(pc.invert(pc.fill_null(reduce(pc.and_, heads), False)))
        return rows

    def peek(self, con: Any, position: int) -> list[Any]:  # noqa: ARG002  the interface of `Table`
        """Some values of one column: a table on a cluster has no first ones."""
        if position >= self._beginning.num_columns:
            return []
        return self._beginning.column(position).to_pylist()  # type: ignore[no-any-return]

    def sample(self, con: Any, position: int) -> list[Any]:
        """Some values of one column."""
        return self.peek(con, position)

    def timezone_of(self, position: int) -> str | None:  # noqa: ARG002  the interface of `Table`
        """None: times of Spark are instants, shown in the zone of the session."""
        return None

    def header(self, con: Any) -> Header:
        """The names of the columns; those that recur among some rows are data."""
        below = [self.peek(con, i) for i in range(len(self.names))]
        return Header(self.names, below=below, in_text=self.in_text)

    def attach(self, con: Any, positions: Sequence[int]) -> str:
        """Remember the columns that are needed, and show the database on the driver an empty table of their types.

        What is returned reads `ROWS`, so that the same SQL reads the rows wherever a table of that name is.
        """
        of_files = len(self.names) - len(self.partitions)
        kept = [f"c{p}" for p in positions if p < of_files]
        kept += [name for name in (PATH, BROKEN) if name in self.frame.columns]
        self.attached[:] = kept
        con.register(ROWS, self.selected.limit(0).toArrow())
        # The path is a URI, in which signs are written %20; the names of folders are written so once more.
        path = f"url_decode({PATH})"
        columns = [
            f"c{p}" if p < of_files else partition_sql(self.files, self.names[p], path)  # type: ignore[arg-type]
            for p in positions
        ]
        return f"(SELECT {', '.join(f'{sql} AS c{i}' for i, sql in enumerate(columns))} FROM {ROWS})"

    def kept(self, con: Any, relation: str) -> str:  # noqa: ARG002  the interface of `Table`
        """A DataFrame can be read again."""
        return relation

    @property
    def selected(self) -> Any:
        """The DataFrame with the columns that were attached."""
        return self.frame.select(*self.attached)


def open_spark_table(session: Any, source: Any, opening: Opening) -> SparkTable:
    """Find out what the source is and which columns it has.

    Raises:
        ParameterError: it is nothing that Spark can read, or a path to nothing.
        DataError: text files have different columns.
    """
    if opening.matrices or opening.lookup or opening.wide:
        raise ParameterError("matrix, lookup and wide are for files that hold matrices, which Spark does not read.")
    if is_dataframe(source):
        _refuse_partitions(opening)
        return _of_frame("the table", source)
    if not isinstance(source, str | PathLike):
        raise ParameterError(f"A {type(source).__name__} is not read by Spark. {_ACCEPTED}")
    path = fspath(source)
    named = "/" not in path and _kind(path) is None and not isinstance(source, PathLike)
    if named and re.fullmatch(r"[\w.`-]+", path) and session.catalog.tableExists(path):
        _refuse_partitions(opening)
        return _of_frame(f"'{path}'", session.table(path))
    files = _files(session, path)
    label = f"'{PurePosixPath(path).name}'"
    kind = _kind(files[0].name)
    if kind == "csv":
        return _open_text(session, label, files, opening.partition_columns)
    frame = session.read.options(recursiveFileLookup=True, mergeSchema=len(files) > 1)
    return _of_frame(label, frame.parquet(*map(_escaped, files)), files, opening.partition_columns)


def _refuse_partitions(opening: Opening) -> None:
    if opening.partition_columns:
        raise ParameterError("Partition columns come from the folders of files; a table has columns of its own.")


def _of_frame(
    label: str, frame: Any, files: Sequence[PurePosixPath] = (), partitions: tuple[str, ...] = ()
) -> SparkTable:
    names = list(frame.columns)
    numbered = [f"c{i}" for i in range(len(names))]
    if partitions:
        frame, numbered = frame.select("*", frame["_metadata.file_path"]), [*numbered, PATH]
    # By position, because Spark takes names that differ in upper and lower case for one.
    return SparkTable(label, [*names, *partitions], frame.toDF(*numbered), files, partitions)


# ---- files -------------------------------------------------------------------------------------------------------


def _kind(name: str) -> str | None:
    name = name.casefold()
    return "csv" if name.endswith(_CSV_ENDINGS) else "parquet" if name.endswith(_PARQUET_ENDINGS) else None


def _files(session: Any, path: str) -> list[PurePosixPath]:
    """The files that a path stands for: Parquet where there is some, else text."""
    found = _listed(session, _escaped(path))
    if found is None and any(sign in path for sign in "*?[{"):
        found = _listed(session, path)
    if not found:
        raise ParameterError(f"Spark finds no file and no table '{path}'. {_ACCEPTED}")
    for kind in ("parquet", "csv"):
        files = [file for file in found if _kind(file.name) == kind]
        if files:
            return sorted(files)
    raise ParameterError(f"'{path}' holds no Parquet file and no text file. {_ACCEPTED}")


def _listed(session: Any, path: str) -> list[PurePosixPath] | None:
    """All files at or below a path or pattern, by Spark itself, so on any file system; None where there is nothing."""
    from pyspark.errors import AnalysisException

    try:
        files = session.read.format("binaryFile").option("recursiveFileLookup", "true").load(path).inputFiles()
    except AnalysisException:
        return None
    return [_path_of(uri) for uri in files]


def _path_of(uri: str) -> PurePosixPath:
    """The path in an address. That of a file system keeps its scheme: there may be several."""
    parts = urlparse(uri)
    path = unquote(uri.split("?")[0] if parts.scheme not in ("", "file") else parts.path)
    return PurePosixPath(path)


def _escaped(path: PurePosixPath | str) -> str:
    """A path in which the signs of patterns stand for themselves."""
    # PurePosixPath makes one slash of two; addresses have two after their scheme.
    text = re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/(?!/)", r"\1://", str(path))
    return "".join("\\" + sign if sign in "{}[]*?\\" else sign for sign in text)


def _open_text(session: Any, label: str, files: Sequence[PurePosixPath], partitions: tuple[str, ...]) -> SparkTable:
    """Text files: every column is text. What cannot be a row of such a file is marked in `BROKEN`.

    Where a quote is not closed, Spark takes the rest of the file for one value. So a value with a line
    break is refused, and files are read by tasks that see them whole. The first line of every file is a row here: the
    tasks know by `PATH` where a file begins, and compare it with the names (see `FirstLines`).
    """
    names, delimiter = _first_line(session, label, files[0])
    columns = [f"c{i}" for i in range(len(names))]
    how = {
        "mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN, "columnPruning": False,
        "maxColumns": max(len(names) + 1, 20_480), **_TEXT, "sep": delimiter,
    }  # fmt: skip
    schema = ", ".join(f"{name} string" for name in (*columns, BROKEN))
    frame = session.read.schema(schema).options(**how).csv([_escaped(file) for file in files])
    # A sign that Spark puts where bytes are no UTF-8.
    strange = f"{BROKEN} IS NOT NULL OR concat_ws('', {', '.join(columns)}) RLIKE '[\\r\\n\ufffd]'"
    frame = frame.selectExpr(*columns, f"_metadata.file_path AS {PATH}", f"{strange} AS {BROKEN}")
    return SparkTable(label, [*names, *partitions], frame, files, partitions, in_text=True)


def _first_line(session: Any, label: str, file: PurePosixPath) -> tuple[list[str], str]:
    """The names of the columns, and what separates them."""
    path = _escaped(file)
    # By Python and not by Spark, which cannot find out columns of a file with the signs of patterns in its name.
    start = session.read.text(path).limit(1).collect()
    line = str(start[0][0]).lstrip("\ufeff") if start else ""
    if not line.strip():
        raise DataError(f"{label} is empty. A first line with the names of the columns is needed.")
    delimiter = "\t" if ".tsv" in file.name.casefold() else max(_DELIMITERS, key=line.count)
    return next(csv.reader([line], delimiter=delimiter)), delimiter


class FirstLines:
    """The first lines of the text files that one task reads, one after the other: left out, and compared."""

    def __init__(self, table: SparkTable) -> None:
        self._expected = {name: table.names[int(name[1:])] for name in table.attached if name not in (PATH, BROKEN)}
        self._path: str | None = None

    def without(self, rows: pa.Table, label: str) -> pa.Table:
        """The rows that are none.

        Raises:
            DataError: a file has other columns, or something in it cannot be a row.
        """
        if not len(rows):
            return rows
        paths = rows.column(PATH).combine_chunks()
        before = pa.concat_arrays([pa.array([self._path], paths.type), paths[:-1]])
        first = pc.fill_null(pc.not_equal(paths, before), True)
        self._path = paths[-1].as_py()
        heads = rows.filter(first)
        for column, name in self._expected.items():
            if any((value or "") != name for value in heads.column(column).to_pylist()):
                raise DataError(
                    f"The text files of {label} have different columns; all must have the same, in one order."
                )
        if pc.any(rows.column(BROKEN)).as_py():
            raise DataError(
                f"{label} cannot be read as a table. Every line needs as many columns as the first, quotes that are "
                "closed, and text in UTF-8; with Spark, no value may hold a line break. Hint: Parquet has no such "
                "limits."
            )
        return rows.filter(pc.invert(first))
