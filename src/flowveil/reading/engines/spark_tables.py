"""Trip tables of Spark: a DataFrame, a table of the catalogue, or files on any file system that
Spark reads.

The rules are those of `flowveil.reading.tables`: columns come from the contents of files, not from
folders; text files have a first line of names, and all their columns are text; names that begin
with a dot or underscore are ignored.
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

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading import Reading
from flowveil.reading.sql import partition_sql
from flowveil.reading.table import PEEKED_ROWS, Table
from flowveil.reading.tables import delimiter_of, kind_of

#: Name of the table of rows in a task; see `SparkTable.attach`.
ROWS = "flowveil_source"
#: Additional columns: the path of a row's file, and whether a line of text is malformed.
PATH, BROKEN = "flowveil_path", "flowveil_broken"

_ACCEPTED = (
    "Allowed with Spark: a Spark DataFrame, the name of a table, or a path to .csv, .tsv, .txt"
    " (also with .gz) or .parquet, a folder or a pattern of them."
)


def is_dataframe(source: Any) -> bool:
    """Returns whether this is a Spark DataFrame, without importing pyspark."""
    return type(source).__module__.startswith("pyspark.sql.") and hasattr(source, "mapInArrow")


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkTable(Table):
    """A trip table on a cluster: a DataFrame with columns c0, c1, ..., of which some are attached.

    Times are instants, so no column has a time zone. Files are listed for partition columns.
    """

    frame: Any
    files: Sequence[PurePosixPath] = ()
    attached: list[str] = field(default_factory=list)

    @cached_property
    def _beginning(self) -> pa.Table:
        columns = [f"c{i}" for i in range(len(self.names) - len(self.partitions))]
        rows = self.frame.select(*columns).limit(PEEKED_ROWS).toArrow()
        if self.in_text and len(rows):
            heads = [
                pc.equal(rows.column(c), name) for c, name in zip(columns, self.names, strict=False)
            ]
            rows = rows.filter(pc.invert(pc.fill_null(reduce(pc.and_, heads), False)))
        return rows

    def peek(self, position: int) -> list[Any]:
        """Returns some values of a column: the rows have no order."""
        if position >= self._beginning.num_columns:
            return []
        return self._beginning.column(position).to_pylist()  # type: ignore[no-any-return]

    def attach(self, positions: Sequence[int]) -> str:
        """Selects columns, and registers an empty table of their types on the driver.

        The returned FROM clause reads `ROWS`, so that the same SQL runs in every task that has a
        table of that name.
        """
        of_files = len(self.names) - len(self.partitions)
        kept = [f"c{p}" for p in positions if p < of_files]
        kept += [name for name in (PATH, BROKEN) if name in self.frame.columns]
        self.attached[:] = kept
        self.con.register(ROWS, self.selected.limit(0).toArrow())
        # The path is a URI: names of folders are encoded twice.
        path = f"url_decode({PATH})"
        columns = [
            f"c{p}" if p < of_files else partition_sql(self.files, self.names[p], path)
            for p in positions
        ]
        return (
            f"(SELECT {', '.join(f'{sql} AS c{i}' for i, sql in enumerate(columns))} FROM {ROWS})"
        )

    @property
    def selected(self) -> Any:
        """The DataFrame with the attached columns."""
        return self.frame.select(*self.attached)


def open_spark_table(con: Any, session: Any, source: Any, reading: Reading) -> SparkTable:
    """Opens a source and finds its columns."""
    if reading.matrix or reading.lookup or reading.wide:
        raise ParameterError(
            "matrix, lookup and wide are for files that hold matrices, which Spark does not read."
        )
    if is_dataframe(source):
        _refuse_partitions(reading)
        return _from_frame(con, "the table", source)
    if not isinstance(source, str | PathLike):
        raise ParameterError(f"A {type(source).__name__} is not read by Spark. {_ACCEPTED}")
    path = fspath(source)
    named = "/" not in path and kind_of(path) is None and not isinstance(source, PathLike)
    if named and re.fullmatch(r"[\w.`-]+", path) and session.catalog.tableExists(path):
        _refuse_partitions(reading)
        return _from_frame(con, f"'{path}'", session.table(path))
    files = _files(session, path)
    label = f"'{PurePosixPath(path).name}'"
    if kind_of(files[0].name) == "csv":
        return _open_text(con, session, label, files, reading.partition_columns)
    frame = session.read.options(recursiveFileLookup=True, mergeSchema=len(files) > 1)
    return _from_frame(
        con, label, frame.parquet(*map(_escaped, files)), files, reading.partition_columns
    )


def _refuse_partitions(reading: Reading) -> None:
    if reading.partition_columns:
        raise ParameterError("Partition columns come from the folders of files; a table has none.")


def _from_frame(
    con: Any,
    label: str,
    frame: Any,
    files: Sequence[PurePosixPath] = (),
    partitions: tuple[str, ...] = (),
) -> SparkTable:
    names = list(frame.columns)
    numbered = [f"c{i}" for i in range(len(names))]
    if partitions:
        frame, numbered = frame.select("*", frame["_metadata.file_path"]), [*numbered, PATH]
    every = [*names, *partitions]
    # By position: Spark ignores case in names.
    frame = frame.toDF(*numbered)
    return SparkTable(
        con=con, label=label, names=every, partitions=partitions, frame=frame, files=files
    )


def _files(session: Any, path: str) -> list[PurePosixPath]:
    """Returns the files of a path: Parquet if there is some, else text."""
    found = _listed(session, _escaped(path))
    if found is None and any(sign in path for sign in "*?[{"):
        found = _listed(session, path)
    if not found:
        raise ParameterError(f"Spark finds no file and no table '{path}'. {_ACCEPTED}")
    for kind in ("parquet", "csv"):
        files = [file for file in found if kind_of(file.name) == kind]
        if files:
            return sorted(files)
    raise ParameterError(f"'{path}' holds no Parquet file and no text file. {_ACCEPTED}")


def _listed(session: Any, path: str) -> list[PurePosixPath] | None:
    """Returns all files at or below a path or pattern, on any file system that Spark reads.

    None without files.
    """
    from pyspark.errors import AnalysisException

    try:
        files = (
            session.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(path)
            .inputFiles()
        )
    except AnalysisException:
        return None
    addresses = [(uri, urlparse(uri)) for uri in files]
    # Remote file systems keep their scheme.
    paths = (
        parts.path if parts.scheme in ("", "file") else uri.split("?")[0]
        for uri, parts in addresses
    )
    return [PurePosixPath(unquote(path)) for path in paths]


def _escaped(path: PurePosixPath | str) -> str:
    """Returns a pattern that matches the path alone."""
    # PurePosixPath removes the second slash after a scheme.
    text = re.sub(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/(?!/)", r"\1://", str(path))
    return "".join("\\" + sign if sign in "{}[]*?\\" else sign for sign in text)


def _open_text(
    con: Any, session: Any, label: str, files: Sequence[PurePosixPath], partitions: tuple[str, ...]
) -> SparkTable:
    """Opens text files, first lines included: every column is text, malformed rows are marked in
    `BROKEN`.

    After an unclosed quote Spark reads the rest of a file as one value: line breaks are refused,
    one task reads a file.
    """
    names, delimiter = _first_line(session, label, files[0])
    columns = [f"c{i}" for i in range(len(names))]
    how = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": BROKEN,
        "columnPruning": False,
        "header": False,
        "maxColumns": max(len(names) + 1, 20_480),
        "quote": '"',
        "escape": '"',
        "encoding": "UTF-8",
        "multiLine": True,
        "recursiveFileLookup": True,
        "sep": delimiter,
    }
    schema = ", ".join(f"{name} string" for name in (*columns, BROKEN))
    frame = session.read.schema(schema).options(**how).csv([_escaped(file) for file in files])
    # Spark replaces bytes that are not UTF-8 by U+FFFD.
    strange = f"{BROKEN} IS NOT NULL OR concat_ws('', {', '.join(columns)}) RLIKE '[\\r\\n\ufffd]'"
    frame = frame.selectExpr(*columns, f"_metadata.file_path AS {PATH}", f"{strange} AS {BROKEN}")
    every = [*names, *partitions]
    return SparkTable(
        con=con,
        label=label,
        names=every,
        partitions=partitions,
        in_text=True,
        frame=frame,
        files=files,
    )


def _first_line(session: Any, label: str, file: PurePosixPath) -> tuple[list[str], str]:
    """Returns the names of the columns, and the delimiter."""
    # Parsed by Python: Spark cannot read the header of a file with characters of patterns in its
    # name.
    start = session.read.text(_escaped(file)).limit(1).collect()
    line = str(start[0][0]).lstrip("\ufeff") if start else ""
    if not line.strip():
        raise DataError(f"{label} is empty. A first line with the names of the columns is needed.")
    delimiter = delimiter_of(file.name, line)
    return next(csv.reader([line], delimiter=delimiter)), delimiter


class FirstLines:
    """Removes the first lines of the text files of a task, after comparing them with the names."""

    def __init__(self, table: SparkTable) -> None:
        self._expected = {
            name: table.names[int(name[1:])]
            for name in table.attached
            if name not in (PATH, BROKEN)
        }
        self._path: str | None = None

    def without(self, rows: pa.Table, label: str) -> pa.Table:
        """Returns the rows that are not first lines."""
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
                    f"The text files of {label} have different columns; all must have the same, in"
                    " one order."
                )
        if pc.any(rows.column(BROKEN)).as_py():
            raise DataError(
                f"{label} cannot be read as a table. Every line needs as many columns as the first,"
                " quotes that are closed, and text in UTF-8; with Spark, no value may hold a line"
                " break. Hint: Parquet has no such limits."
            )
        return rows.filter(pc.invert(first))
