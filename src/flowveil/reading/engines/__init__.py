"""Engines read trips into flows: modules with a function ``read`` that is an `Engine`, loaded when
used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, Unpack

from flowveil.core.flows import Flows
from flowveil.core.slices import check_slice_columns
from flowveil.reading import Reading
from flowveil.reading.table import named_points, with_coordinates
from flowveil.request.keywords import FurtherReading, ReadingKeywords
from flowveil.request.request import find_setting, refuse_unknown
from flowveil.system.progress import lines_every
from flowveil.zoning.restriction import flows_during

#: The module of each engine, by name.
ENGINES: dict[str, str] = {
    "duckdb": "flowveil.reading.engines.duckdb",
    "spark": "flowveil.reading.engines.spark",
}

#: Called with the share that is read, from 0 to 1.
Progress = Callable[[float], None]


class Engine(Protocol):
    """Reads rows into flows; the result does not depend on the order of rows."""

    def __call__(self, source: Any, reading: Reading, *, progress: Progress | None = None) -> Flows:
        """Reads the source once; columns that the reading does not name are recognised.

        ``progress`` is called with the share that is read. Each slice column of the reading is a
        separate dimension of the flows.
        """
        ...


def read_flows(
    source: Any, reading: Reading, *, engine: str = "duckdb", progress: Progress | None = None
) -> Flows:
    """Reads trips with an engine; raises like `read_trips`."""
    source = with_coordinates(source)
    # Only Spark can read its DataFrames.
    engine = "spark" if type(source).__module__.startswith("pyspark.") else engine
    load: Engine = import_module(ENGINES[find_setting("engine").check(engine) or "duckdb"]).read
    read = load(source, reading, progress=progress or lines_every("Reading"))
    return read if reading.during is None else flows_during(read, reading.during)


def read_trips(
    source: Any,
    *,
    resolution: int = 10,
    origin: Any = None,
    destination: Any = None,
    person: str | None = None,
    weight: str | None = None,
    time: str | None = None,
    every: str | None = None,
    engine: str = "duckdb",
    progress: Callable[[float], None] | None = None,
    ask_person: bool = True,
    **reading: Unpack[FurtherReading],
) -> Flows:
    """Reads a trip table into flows between tiles.

    The same rows give the same flows, whatever their order, the file format or the number of
    threads. `Flows.intake` records the columns that were used and the rows that were dropped. Files
    larger than memory are streamed.

    A row is one trip; with ``trips`` a number of trips; with ``weight`` a sampled trip that
    represents several. Rows without an end, with an end off the earth or at exactly 0,0, or without
    a count or weight, are dropped. Text among numbers, negative counts or weights, unknown tiles
    and mixed H3 resolutions are errors. A row without a person, or with a placeholder such as
    ``unknown`` or ``-1``, counts as a trip but adds no person; see ``intake.nobody``.

    Args:
        source: a path to .csv, .tsv, .txt (also .gz), .parquet or .omx; a folder or pattern of
            Parquet or text files; the address of a table in a database; a pyarrow, pandas, polars
            or geopandas table, trackintel trips or movingpandas trajectories; or a Spark DataFrame.
        resolution: H3 resolution of the tiles.
        origin, destination: columns of the coordinates, ``"lat,lon"``.
        person, weight: columns of the person and of the expansion factor.
        time, every: column of the time and step of time, for a matrix of each step: minutes or
            hours that divide a day (``15min``, ``1h``), ``day``, ``month``, ``hour``, ``weekday``
            or ``weekday-hour``.
        engine: ``duckdb`` or ``spark``, with the same flows; see `flowveil.cluster`.
        progress: called with the share that is read, from 0 to 1.
        ask_person: whether to refuse a table with a column that looks like persons, if neither
            ``person`` nor ``no_person`` is given. False for trips whose people are not to be
            protected.
        **reading: other settings of the reference, such as ``origin_tile``, ``destination_tile``,
            ``no_person``, ``trips``, ``zones``, ``within``, ``outside``, ``max_dropped``,
            ``timezone`` and ``crs``. Columns of ends and persons are recognised by usual names;
            counts and weights are never guessed. Dimensions: ``by``, columns of attributes,
            ``"sex,age"`` or a list; ``time_format``, a strptime format;
            ``timezone``, such as ``Europe/Paris``, needed for Unix times and times in UTC;
            ``by_many``, to allow attributes with more than 50 values, or more than one for 100
            rows, which may be identifiers.

    Rows without the time or an attribute are dropped. Times are timestamps, dates, text in a usual
    form, or Unix seconds, milliseconds or microseconds, in one form for the whole column.

    Raises:
        ParameterError: an argument is wrong, or the source does not exist.
        DataError: the table cannot be used. The message reports all problems, with row numbers as
            examples.

    Examples:
        >>> flows = flowveil.read_trips("trips.csv", resolution=7, person="person_id")
        >>> flows
        <Flows: 83 flows between 11 origin and 10 destination tiles>
        >>> flowveil.read_trips("trips.csv", resolution=7, person="person_id", by="sex")
        <Flows: 153 flows between 11 origin and 10 destination tiles, sex (3)>
    """
    refuse_unknown(reading, call="reading")
    named = {"origin": origin, "destination": destination, "person": person, "weight": weight}
    named |= {"time": time, "every": every}
    given: dict[str, Any] = {
        **reading,
        "resolution": resolution,
        **{name: value for name, value in named.items() if value is not None},
    }
    settings = Reading.from_arguments(**named_points(source, given), ask_person=ask_person)
    return read_flows(source, settings, engine=engine, progress=progress)


def read_slices(source: Any, **reading: Unpack[ReadingKeywords]) -> Flows:
    """The same as `read_trips` with ``by`` or ``every``, under its name of earlier versions."""
    if not reading.get("by"):
        check_slice_columns((), time=reading.get("time"), every=reading.get("every"))
    return read_trips(source, **reading)
