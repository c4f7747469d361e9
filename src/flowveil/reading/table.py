"""The trip table that engines read: columns by position, whatever its source.

And tables in memory.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.matrices import Form

PEEKED_ROWS = 1000
#: Rows in a sample.
SAMPLED_ROWS = 2_000
_NAME_IN_DUCKDB = "flowveil_source"
_DEGREES = "EPSG:4326"
_TWO_ENDS = ("MultiPoint", "LineString")
ACCEPTED = (
    "Allowed: a path to .csv, .tsv, .txt, .json (also with .gz), .parquet, .omx, .zip, .xlsx,"
    " .geojson or .gpkg, a matrix of Visum or SUMO, plans of MATSim, a folder or pattern of"
    " Parquet or of text files, a table of a database (duckdb:FILE?table=NAME), or a pyarrow,"
    " pandas, polars or geopandas table."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(ABC):
    """A trip table that can be read once, with any choice of columns.

    Attributes:
        n_rows: the number of rows, known or estimated, for progress only; or None.
        partitions: the columns that come from the paths of files.
        form: the roles of the columns of a matrix; None if they are to be recognised.
        in_text: whether the names are the first line of a text file.
        timezones: the time zones that the types of columns name, by position.
        once: whether an attached table can be read only once.
    """

    con: Any
    label: str
    names: Sequence[str]
    n_rows: int | None = None
    partitions: Sequence[str] = ()
    form: Form | None = None
    in_text: bool = False
    timezones: Mapping[int, str] = field(default_factory=dict)
    once: bool = False

    @abstractmethod
    def peek(self, position: int) -> list[Any]:
        """Returns the first values of a column."""

    def sample(self, position: int) -> list[Any]:
        """Returns some values of a column, spread over the table if that is possible without
        reading all of it.
        """
        return self.peek(position)

    @abstractmethod
    def attach(self, positions: Sequence[int]) -> str:
        """Makes columns readable as c0, c1, ...; returns a FROM clause."""

    def rereadable(self, relation: str) -> str:
        """Returns a FROM clause of the same rows that can be read more than once.

        DuckDB spills a copy to disk.
        """
        if not self.once:
            return relation
        self.con.execute(f"CREATE TEMP TABLE {_NAME_IN_DUCKDB}_kept AS SELECT * FROM {relation}")
        return f"{_NAME_IN_DUCKDB}_kept"


def timezones_of(types: Iterable[Any]) -> dict[int, str]:
    """Returns the time zones that types of pyarrow, pandas or polars name, by position."""
    zones = (getattr(kind, "tz", None) or getattr(kind, "time_zone", None) for kind in types)
    return {i: str(zone) for i, zone in enumerate(zones) if zone is not None}


def open_in_memory(
    con: Any, source: Any, *, label: str = "the table", form: Form | None = None
) -> Table:
    """Returns the table of an object."""
    library = type(source).__module__.partition(".")[0]
    common: dict[str, Any] = {"con": con, "label": label, "source": source}
    if (
        library in ("pandas", "geopandas")
        and hasattr(source, "iloc")
        and hasattr(source, "columns")
    ):
        names, zones = [str(c) for c in source.columns], timezones_of(source.dtypes)
        return _PandasTable(**common, names=names, n_rows=len(source), timezones=zones)
    if library == "polars" and hasattr(source, "collect_schema"):
        schema, n_rows = source.collect_schema(), getattr(source, "height", None)
        return _PolarsTable(
            **common, names=schema.names(), n_rows=n_rows, timezones=timezones_of(schema.dtypes())
        )
    # The caller has imported it to make a data set; importing it here would load pandas.
    datasets = sys.modules.get("pyarrow.dataset")
    is_dataset = datasets is not None and isinstance(source, datasets.Dataset)
    if not is_dataset and not isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        if not hasattr(source, "__arrow_c_stream__"):
            raise ParameterError(f"A {type(source).__name__} cannot be read as trips. {ACCEPTED}")
        source = pa.RecordBatchReader.from_stream(source)
    schema = source.schema
    common |= {"source": source, "names": schema.names, "timezones": timezones_of(schema.types)}
    if is_dataset:
        folders = getattr(getattr(source, "partitioning", None), "schema", None)
        from_path = () if folders is None else tuple(folders.names)
        return _DatasetTable(**common, n_rows=source.count_rows(), partitions=from_path, once=True)
    if isinstance(source, pa.RecordBatchReader):
        return _StreamTable(**common, once=True)
    return _MemoryTable(**common, n_rows=source.num_rows, form=form)


@dataclass(frozen=True, eq=False, kw_only=True)
class _MemoryTable(Table):
    """A table of Arrow; other libraries differ in how they select."""

    source: Any

    def peek(self, position: int) -> list[Any]:
        return self._values(
            position, range(PEEKED_ROWS if self.n_rows is None else min(self.n_rows, PEEKED_ROWS))
        )

    def sample(self, position: int) -> list[Any]:
        if self.n_rows is None:
            return self.peek(position)
        rows = min(self.n_rows, SAMPLED_ROWS)
        return self._values(position, [i * self.n_rows // rows for i in range(rows)])

    def attach(self, positions: Sequence[int]) -> str:
        columns = self._select(positions)
        self.con.register(
            _NAME_IN_DUCKDB, pa.table({f"c{i}": column for i, column in enumerate(columns)})
        )
        return _NAME_IN_DUCKDB

    def _values(self, position: int, rows: Sequence[int]) -> list[Any]:
        """Returns the values of a column in these rows.

        If the number of rows is not known, in as many others.
        """
        return self.source.column(position).take(pa.array(rows, pa.int64())).to_pylist()  # type: ignore[no-any-return]

    def _select(self, positions: Sequence[int]) -> list[Any]:
        return [self.source.column(p) for p in positions]


class _PandasTable(_MemoryTable):
    def _values(self, position: int, rows: Sequence[int]) -> list[Any]:
        return self.source.iloc[list(rows), position].tolist()  # type: ignore[no-any-return]

    def _select(self, positions: Sequence[int]) -> list[Any]:
        return [_from_pandas(self.source.iloc[:, p]) for p in positions]


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


class _PolarsTable(_MemoryTable):
    def _values(self, position: int, rows: Sequence[int]) -> list[Any]:
        column = self.source.lazy().select(self.names[position])
        # A lazy frame has no number of rows.
        column = (
            column.head(len(rows)).collect()
            if self.n_rows is None
            else column.collect()[list(rows)]
        )
        return column.to_series().to_list()  # type: ignore[no-any-return]

    def _select(self, positions: Sequence[int]) -> list[Any]:
        names = [self.names[p] for p in positions]
        table = self.source.lazy().select(list(dict.fromkeys(names))).collect().to_arrow()
        return [table.column(name) for name in names]


@dataclass(frozen=True, eq=False, kw_only=True)
class _StreamTable(Table):
    """Batches that can be read once; those that were peeked at are kept and come first."""

    source: Any
    _peeked: list[pa.RecordBatch] = field(default_factory=list)

    def peek(self, position: int) -> list[Any]:
        while not any(b.num_rows for b in self._peeked):
            try:
                self._peeked.append(self.source.read_next_batch())
            except StopIteration:
                return []
        return self._peeked[-1].column(position)[:PEEKED_ROWS].to_pylist()  # type: ignore[no-any-return]

    def attach(self, positions: Sequence[int]) -> str:
        schema = pa.schema(
            [(f"c{i}", self.source.schema.field(p).type) for i, p in enumerate(positions)]
        )
        batches = (
            pa.RecordBatch.from_arrays([batch.column(p) for p in positions], schema=schema)
            for batch in chain(self._peeked, self.source)
        )
        self.con.register(_NAME_IN_DUCKDB, pa.RecordBatchReader.from_batches(schema, batches))
        return _NAME_IN_DUCKDB


class _DatasetTable(_StreamTable):
    def peek(self, position: int) -> list[Any]:
        head = self.source.head(PEEKED_ROWS, columns=[self.names[position]])
        return head.column(0).to_pylist()  # type: ignore[no-any-return]

    def attach(self, positions: Sequence[int]) -> str:
        names = list(dict.fromkeys(self.names[p] for p in positions))
        reader = self.source.scanner(columns=names).to_reader()
        stream = _StreamTable(con=self.con, label=self.label, names=names, source=reader)
        return stream.attach([names.index(self.names[p]) for p in positions])


# ---- ends that are geometries --------------------------------------------------------------------


def with_coordinates(source: Any) -> Any:
    """Returns a table with the geometries of its ends as columns of degrees.

    Other sources unchanged.

    Points become ``NAME_lat`` and ``NAME_lon``. A geometry with both ends (two points, or a line,
    as in trips of trackintel) becomes ``start_lat``, ``start_lon``, ``end_lat`` and ``end_lon``.
    """
    if type(source).__module__.partition(".")[0] == "movingpandas" and hasattr(
        source, "trajectories"
    ):
        source = _from_trajectories(source.trajectories)
    names = geometry_columns(source)
    if not names:
        return source
    import pandas as pd

    added: dict[str, Any] = {}
    for name in names:
        added |= _ends(source[name], name)
    frame = pd.DataFrame({name: source[name].array for name in source.columns if name not in names})
    return frame.assign(
        **{name: values for name, values in added.items() if name not in frame.columns}
    )


def _from_trajectories(trajectories: Sequence[Any]) -> Any:
    """Returns a line from end to end for each trajectory of movingpandas, its start, and the moving
    object if known.
    """
    import geopandas
    import shapely

    lines = [
        shapely.LineString([one.get_start_location(), one.get_end_location()])
        for one in trajectories
    ]
    columns = {"started_at": [one.get_start_time() for one in trajectories]}
    # The name of the trajectory is not used: one person makes several.
    persons = [getattr(one, "obj_id", None) for one in trajectories]
    columns |= {"person": persons} if any(person is not None for person in persons) else {}
    crs = getattr(trajectories[0], "crs", None) if trajectories else None
    return geopandas.GeoDataFrame(columns, geometry=lines, crs=crs)


def named_points(source: Any, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of reading with names of point columns replaced by those of their
    coordinates.
    """
    points = set(geometry_columns(source))
    given = dict(reading)
    for end in ("origin", "destination"):
        if isinstance(given.get(end), str) and given[end] in points:
            given[end] = (f"{given[end]}_lat", f"{given[end]}_lon")
    return given


def geometry_columns(source: Any) -> list[str]:
    """Returns the names of the columns that hold geometries."""
    if not all(hasattr(source, name) for name in ("iloc", "columns", "dtypes")):
        return []
    kinds = zip(source.columns, source.dtypes, strict=True)
    return [name for name, kind in kinds if str(kind) == "geometry" and isinstance(name, str)]


def _ends(column: Any, name: str) -> dict[str, Any]:
    """Returns the coordinates of a column of geometries, by name."""
    import shapely

    held = column.array
    if held.crs is not None and held.crs != _DEGREES:
        held = held.to_crs(_DEGREES)
    geometries = np.asarray(held, dtype=object)
    missing = shapely.is_missing(geometries) | shapely.is_empty(geometries)
    kinds = set(held[~missing].geom_type)
    if kinds <= {"Point"}:
        return {f"{name}_lat": shapely.get_y(geometries), f"{name}_lon": shapely.get_x(geometries)}
    if not kinds <= set(_TWO_ENDS):
        # Outlines are not ends of trips.
        return {}
    counts = shapely.get_num_coordinates(geometries[~missing])
    if (counts < 2).any() or ("MultiPoint" in kinds and (counts != 2).any()):
        raise DataError(
            f"Column '{name}' must hold two points or a line for each trip; some rows have other"
            " geometries."
        )
    found = np.full((4, len(geometries)), np.nan)
    where, points = np.flatnonzero(~missing), shapely.get_coordinates(geometries[~missing])
    last = np.cumsum(counts) - 1
    found[:2, where] = points[last - counts + 1].T
    found[2:, where] = points[last].T
    return dict(zip(("start_lon", "start_lat", "end_lon", "end_lat"), found, strict=True))
