"""Trip tables in memory: pyarrow, pandas and polars tables, data sets, and streams of Arrow batches."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flowveil.reading.table import PEEKED_ROWS, Table, spread_rows, timezone_of_type

_NAME_IN_DUCKDB = "flowveil_source"


def open_in_memory(con: Any, source: Any) -> Table | None:
    """Returns the table of an object; None if it is of an unknown kind."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return ArrowTable(con=con, names=source.schema.names, n_rows=source.num_rows, table=source)
    if isinstance(source, pa.RecordBatchReader):
        return StreamTable(con=con, names=source.schema.names, reader=source)
    # The caller has imported it to make a data set; importing it here would load pandas.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(source, datasets.Dataset):
        folders = getattr(getattr(source, "partitioning", None), "schema", None)
        from_path = () if folders is None else tuple(folders.names)
        return _DatasetTable(
            con=con, names=source.schema.names, n_rows=source.count_rows(), partitions=from_path, dataset=source
        )
    library = type(source).__module__.partition(".")[0]
    if library in ("pandas", "geopandas") and hasattr(source, "iloc") and hasattr(source, "columns"):
        return _PandasTable(con=con, names=[str(c) for c in source.columns], n_rows=len(source), frame=source)
    if library == "polars" and hasattr(source, "collect_schema"):
        names = source.collect_schema().names()
        return _PolarsTable(con=con, names=names, n_rows=getattr(source, "height", None), frame=source)
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        return StreamTable(con=con, names=reader.schema.names, reader=reader)
    return None


@dataclass(frozen=True, eq=False, kw_only=True)
class _MemoryTable(Table):
    label: str = "the table"

    def attach(self, positions: Sequence[int]) -> str:
        """Registers the selected columns, without a copy if the table is Arrow."""
        self.con.register(_NAME_IN_DUCKDB, self._select(positions))
        return _NAME_IN_DUCKDB

    @abstractmethod
    def _select(self, positions: Sequence[int]) -> pa.Table | pa.RecordBatchReader:
        """Returns columns as c0, c1, ..."""

    def _copied(self, relation: str) -> str:
        self.con.execute(f"CREATE TEMP TABLE {_NAME_IN_DUCKDB}_kept AS SELECT * FROM {relation}")
        return f"{_NAME_IN_DUCKDB}_kept"


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrowTable(_MemoryTable):
    """A table or batch of pyarrow."""

    table: pa.Table | pa.RecordBatch

    def peek(self, position: int) -> list[Any]:
        """Returns the first values of a column."""
        return self.table.column(position)[:PEEKED_ROWS].to_pylist()  # type: ignore[no-any-return]

    def sample(self, position: int) -> list[Any]:
        """Returns values from rows spread over the table."""
        rows = pa.array(spread_rows(self.table.num_rows))
        return self.table.column(position).take(rows).to_pylist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        """Returns the time zone of a column's type."""
        return timezone_of_type(self.table.schema.field(position).type)

    def _select(self, positions: Sequence[int]) -> pa.Table:
        return pa.table({f"c{i}": self.table.column(p) for i, p in enumerate(positions)})


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTable(_MemoryTable):
    """Batches that can be read once; those that were peeked at are kept and come first."""

    reader: pa.RecordBatchReader
    _peeked: list[pa.RecordBatch] = field(default_factory=list)

    def peek(self, position: int) -> list[Any]:
        """Returns the first values of a column."""
        while not any(b.num_rows for b in self._peeked):
            try:
                self._peeked.append(self.reader.read_next_batch())
            except StopIteration:
                return []
        return self._peeked[-1].column(position)[:PEEKED_ROWS].to_pylist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        """Returns the time zone of a column's type."""
        return timezone_of_type(self.reader.schema.field(position).type)

    def rereadable(self, relation: str) -> str:
        """Copies the rows into DuckDB, which spills to disk."""
        return self._copied(relation)

    def _select(self, positions: Sequence[int]) -> pa.RecordBatchReader:
        schema = pa.schema([(f"c{i}", self.reader.schema.field(p).type) for i, p in enumerate(positions)])

        def batches() -> Iterator[pa.RecordBatch]:
            for source in (self._peeked, self.reader):
                for batch in source:
                    yield pa.RecordBatch.from_arrays([batch.column(p) for p in positions], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


@dataclass(frozen=True, eq=False, kw_only=True)
class _DatasetTable(_MemoryTable):
    dataset: Any

    def peek(self, position: int) -> list[Any]:
        name = self.names[position]
        return self.dataset.head(PEEKED_ROWS, columns=[name]).column(0).to_pylist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        return timezone_of_type(self.dataset.schema.field(position).type)

    def rereadable(self, relation: str) -> str:
        return self._copied(relation)

    def _select(self, positions: Sequence[int]) -> pa.RecordBatchReader:
        names = list(dict.fromkeys(self.names[p] for p in positions))
        stream = StreamTable(con=self.con, names=names, reader=self.dataset.scanner(columns=names).to_reader())
        return stream._select([names.index(self.names[p]) for p in positions])


@dataclass(frozen=True, eq=False, kw_only=True)
class _PandasTable(_MemoryTable):
    frame: Any

    def peek(self, position: int) -> list[Any]:
        return self.frame.iloc[:PEEKED_ROWS, position].tolist()  # type: ignore[no-any-return]

    def sample(self, position: int) -> list[Any]:
        return self.frame.iloc[spread_rows(len(self.frame)), position].tolist()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        zone = getattr(self.frame.dtypes.iloc[position], "tz", None)
        return None if zone is None else str(zone)

    def _select(self, positions: Sequence[int]) -> pa.Table:
        return pa.table({f"c{i}": _from_pandas(self.frame.iloc[:, p]) for i, p in enumerate(positions)})


def _from_pandas(series: Any) -> Any:
    first = series.dropna().head(1).tolist() if series.dtype == object else []
    if first and getattr(first[0], "tzinfo", None):
        # Times may have different offsets; an Arrow type would keep only the first.
        return pa.array([None if t != t or t is None else str(t) for t in series], pa.string())
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Values of several types in one column: as text, each row is checked separately.
        return pa.array(series.astype("string"), from_pandas=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class _PolarsTable(_MemoryTable):
    frame: Any

    def peek(self, position: int) -> list[Any]:
        head = self.frame.lazy().select(self.names[position]).head(PEEKED_ROWS)
        return head.collect().to_series().to_list()  # type: ignore[no-any-return]

    def sample(self, position: int) -> list[Any]:
        if self.n_rows is None:
            return self.peek(position)
        return self.frame.to_series(position).gather(spread_rows(self.n_rows)).to_list()  # type: ignore[no-any-return]

    def timezone_of(self, position: int) -> str | None:
        zone: str | None = getattr(self.frame.collect_schema().dtypes()[position], "time_zone", None)
        return zone

    def _select(self, positions: Sequence[int]) -> pa.Table:
        wanted = list(dict.fromkeys(self.names[p] for p in positions))
        table = self.frame.lazy().select(wanted).collect().to_arrow()
        return pa.table({f"c{i}": table.column(self.names[p]) for i, p in enumerate(positions)})
