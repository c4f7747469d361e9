"""Engines: trips in, flows out. The only part of flowveil that reads trips.

An engine is a module with a function ``read`` that is an `Engine`. Engines are named here and loaded when they are
asked for, so that ``import flowveil`` loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from flowveil.errors import ParameterError, did_you_mean
from flowveil.flows import Flows
from flowveil.progress import lines_every
from flowveil.reading import Reading
from flowveil.reading.geometries import named_points, with_coordinates
from flowveil.reading.limits import is_limited, temporary_folder
from flowveil.request import refuse_unknown
from flowveil.slices import SlicedFlows, check_slice_columns
from flowveil.zoning.steps import flows_during

#: The module of each engine, by the name users give.
ENGINES: dict[str, str] = {"duckdb": "flowveil.engines.duckdb", "spark": "flowveil.engines.spark"}

#: Called now and then with the share that is read, from 0 to 1.
Progress = Callable[[float], None]


class Engine(Protocol):
    """What every engine offers: the same slices of flows from the same rows, whatever their order."""

    def __call__(self, source: Any, reading: Reading, *, progress: Progress | None = None) -> SlicedFlows:
        """Read the source once. Where trips are not cut into slices there is one, with the key ``()``."""
        ...


def load_engine(name: str) -> Engine:
    """The ``read`` function of an engine.

    Raises:
        ParameterError: there is no engine of that name.
    """
    if name not in ENGINES:
        known = ", ".join(sorted(ENGINES))
        raise ParameterError(
            f"There is no engine {name!r}. The engines are: {known}.{did_you_mean(str(name), ENGINES)}"
        )
    read: Engine = import_module(ENGINES[name]).read
    return read


def read_flows(
    source: Any, reading: Reading, *, engine: str = "duckdb", progress: Progress | None = None
) -> SlicedFlows:
    """Read trips as a `Reading` says: the one way to every engine.

    Raises:
        ParameterError: there is no such engine, or nothing to read at the path.
        DataError: the table cannot be used; the message has all problems found.
    """
    source = with_coordinates(source)
    # Only Spark can read what Spark holds.
    engine = "spark" if type(source).__module__.startswith("pyspark.") else engine
    read = load_engine(engine)(source, reading, progress=progress or lines_every("Reading"))
    if reading.during is None:
        # Where memory is limited, slices wait on disk for their turn.
        return read.on_disk(temporary_folder()) if is_limited() and len(read) > 1 else read
    return SlicedFlows((), ((),), (flows_during(read, reading.during),))


def read_trips(
    source: Any,
    *,
    engine: str = "duckdb",
    progress: Progress | None = None,
    ask_person: bool = True,
    **reading: Any,
) -> Flows:
    """Read a trip table into flows between H3 tiles.

    The same rows give the same flows, bit by bit, whatever their order, the file format or the number of
    threads. Nothing is guessed silently: `Flows.intake` says which columns were used and how many rows were
    dropped and why. Files larger than memory are read in one streaming pass.

    A row is one trip; with ``trips`` it is that many trips, fractions allowed; with ``weight`` it is a sampled trip
    that represents so many. Rows with a missing end, an end off the earth or an end at exactly 0,0 are dropped, as are
    rows with a missing count or weight. Text in a number column, negative counts, negative weights, tiles that are not
    H3 cells and tiles of several resolutions are errors. A row
    whose person is missing, or a placeholder such as ``unknown``, ``?`` or ``-1``, counts as a trip but adds nobody to
    the people of its flow; ``intake.nobody`` counts such rows.

    Args:
        source: a path to .csv, .tsv, .txt (also .gz), .parquet or .omx, a folder or pattern of Parquet or of text
            files with the same columns, the address of a table in a database, or a pyarrow, pandas, polars or
            geopandas table, trackintel trips or movingpandas trajectories. Text files are UTF-8 with a first line of
            names. Or a Spark DataFrame, and with ``engine="spark"`` a table or path that Spark reads.
        resolution: H3 resolution of the tiles. Given tiles that are finer are lifted to it; coarser ones keep
            their own, and ``intake.resolution`` says so.
        origin: latitude and longitude column of the origin, ``"lat,lon"`` or a pair, or a column of points. Usual
            names are recognised where neither these nor tiles are given.
        destination: the same for the destination.
        origin_tile: column of H3 cells, as text or as 64-bit integers, instead of coordinates.
        destination_tile: the same for the destination.
        person: column that identifies the person; usual names are recognised. An empty text says that there is none. If
            a column looks like persons and nothing is said, the table is refused.
        no_person: the same as an empty ``person``.
        ask_person: False reads the table without asking who travelled, for trips whose people are not to be protected.
        weight: column with the expansion factor of a row: what its one trip represents, or all its trips where there is
            a trips column. Never guessed: columns that may hold one are named in ``intake.notes``, unless an empty text
            says that there is none. Weights are summed in millionths.
        trips: column with the number of trips of a row; without it a row is one trip. Never guessed, like the weight.
            With fractions, `Flows.trips` is float64, summed in millionths.
        time: column of the time, together with ``during``.
        during: read the trips of this month (``2024-01``) or day (``2024-01-31``) alone.
        time_format, timezone: how times are read; see `read_slices`.
        zones: a map of the user's own whose zones are the tiles, instead of H3 cells: what `read_zones` returns, or
            what it takes. The ends are then codes of its zones, or, where the map has outlines, coordinates: a point on
            a border belongs to the zone with the smallest code, rows with a point in no zone are left out and counted.
        within: the study area: ``"west,south,east,north"`` in degrees, H3 cells separated by commas, a file with
            polygons or a geopandas table. A tile is in it when its centre is; rows with an end outside are left out,
            counted, and not held against ``max_dropped``.
        outside: ``keep`` keeps trips with one end outside the area (or, on a map, in no zone or with an unknown code),
            with that end as one tile ``outside``; ``drop``, the default, does not use them. Trips with both ends
            outside are never used.
        max_dropped: largest share of the rows, trips or weight that may be dropped, whichever is largest.
        skip_unknown: leave out rows with a tile that is not an H3 cell, instead of refusing them.
        partition_columns: columns come from the contents of files. These come from folders such as ``month=3``,
            ``"a,b"`` or a list; they may cut trips (``by``, ``time``) and be nothing else.
        person_case: ``fold`` takes persons that differ in upper and lower case only for one, which counts fewer people
            and so is the safe side; ``keep`` counts them as different.
        same_zones: give both ends one tree, over the tiles seen at either. Methods then make one set of zones for both
            ends; those that cannot refuse.
        matrix: of an OMX file, the matrix to read, ``"a,b"`` or a list. Several are never added up: cut by them with
            `read_slices` and ``by="matrix"``.
        lookup: of an OMX file, the lookup with the codes of the zones, where there are several.
        wide: take a text file for a matrix: the first column has the origins, and there is one for each destination.
        crs: reference system of the coordinates, such as ``EPSG:25832``; what is named as latitude is then the northing
            or y, as longitude the easting or x. Degrees without it.
        decimal_comma: read numbers in text with a decimal comma.
        remote: allow an address (``s3://``, ``https://``) of Parquet on another machine, by DuckDB's extension httpfs.
        engine: who reads, ``duckdb`` or ``spark``: the flows are the same. See `flowveil.cluster` for Spark.
        progress: called now and then with the share that is read, from 0 to 1.

    Raises:
        ParameterError: an argument is wrong, or there is nothing to read at the path.
        DataError: the table cannot be used. The message has all problems found, counted, with row numbers as
            examples.
    """
    refuse_unknown(reading, call="reading", but=("by", "every", "by_many"))
    asked = Reading.of(**named_points(source, reading), ask_person=ask_person)
    return read_flows(source, asked, engine=engine, progress=progress).whole


def read_slices(
    source: Any,
    *,
    engine: str = "duckdb",
    progress: Progress | None = None,
    ask_person: bool = True,
    **reading: Any,
) -> SlicedFlows:
    """Read a trip table into the flows of each slice: of each segment, each step of time, or both.

    All slices are over the same two hierarchies. Rows whose time or attribute is missing are left out and counted.
    Times may be timestamps, dates, text in one of the usual forms, or Unix seconds, milliseconds or microseconds; the
    whole column must have one form (see `flowveil.reading.times`).

    Args:
        source: as for `read_trips`.
        by: columns of attributes, ``"sex,age"`` or a list; slices are their combinations.
        time: column of the time, together with ``every``.
        every: step of time: minutes or hours that divide a day (``15min``, ``1h``), ``day``, ``month``, ``hour``,
            ``weekday``, or ``weekday-hour`` (168 slices, each collecting that hour of all weeks).
        by_many: allow attributes with more than 50 values, or more than one for 100 rows. They are refused otherwise: a
            column like an identifier makes matrices of one contributor each. `anonymize_slices` refuses more than one
            combination of attributes for 100 rows likewise. Times are not concerned.
        time_format: format of ``strptime`` for times in text that are not recognised, or could be read in two ways.
        timezone: name such as ``Europe/Paris``: shows Unix times and times with a zone in its local time. Without it,
            times with a zone are shown in that zone, and Unix times and times in UTC are refused; ``UTC`` confirms UTC.
            Times without a zone are local. ``intake.timezone`` records the zone that was used.

    All other arguments are those of `read_trips`.

    Raises:
        ParameterError: an argument is wrong, or no slices are asked for.
        DataError: the table cannot be used.
    """
    refuse_unknown(reading, call="reading", but=("during",))
    asked = Reading.of(**named_points(source, reading), ask_person=ask_person)
    # A reading may have no slices; who asks for slices without naming any has forgotten something.
    check_slice_columns(asked.columns.by, time=asked.slice_time, every=asked.every)
    return read_flows(source, asked, engine=engine, progress=progress)
