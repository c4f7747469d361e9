"""Reading trips: the front door to the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowveil.engines import load_engine, load_slicing_engine
from flowveil.flows import Flows
from flowveil.reading.columns import ColumnMap, parse_pair
from flowveil.reading.partitions import parse_partition_columns
from flowveil.slices import Every, SlicedFlows, check_slice_columns


def read_trips(
    source: Any,
    *,
    resolution: int = 10,
    origin: str | Sequence[str] | None = None,
    destination: str | Sequence[str] | None = None,
    origin_tile: str | None = None,
    destination_tile: str | None = None,
    person: str | None = None,
    weight: str | None = None,
    trips: str | None = None,
    zones: Any = None,
    max_dropped: float = 0.05,
    skip_unknown: bool = False,
    partition_columns: str | Sequence[str] = (),
    person_case: str = "fold",
    engine: str = "duckdb",
    progress: Callable[[float], None] | None = None,
) -> Flows:
    """Read a trip table into flows between H3 tiles.

    The same rows give the same flows, bit by bit, whatever their order, the file format or the number of
    threads. Nothing is guessed silently: `Flows.intake` says which columns were used and how many rows were
    left out and why. Files larger than memory are read in one streaming pass.

    Rows with a missing end, an end off the earth or an end at exactly 0,0 are left out, as are rows with a
    missing count or weight and rows that stand for no trip. Text in a number column, negative or fractional
    counts, negative weights, tiles that are no H3 cells and tiles of several resolutions are errors. A row
    whose person is missing, or a placeholder such as ``unknown``, ``?`` or ``-1``, counts as a trip but adds nobody to
    the people of its flow; ``intake.nobody`` counts such rows.

    Args:
        source: a path to .csv, .tsv, .txt (also .gz) or .parquet, a folder or pattern of Parquet files, or a
            pyarrow, pandas, polars or geopandas table. CSV files are UTF-8 with a first line of names.
        resolution: H3 resolution of the tiles. Given tiles that are finer are lifted to it; coarser ones keep
            their own, and ``intake.resolution`` says so.
        origin: latitude and longitude column of the origin, ``"lat,lon"`` or a pair. Usual names are
            recognised where neither these nor tiles are given.
        destination: the same for the destination.
        origin_tile: column of H3 cells, as text or as 64-bit integers, instead of coordinates.
        destination_tile: the same for the destination.
        person: column that says who travelled; usual names are recognised, an empty text means none.
        weight: column with the weight of a row: of its one trip, or of all its trips where there is a trips
            column. Usual names are recognised, an empty text means none. Weights are summed in steps of
            2**-20.
        trips: column that says how many trips a row stands for. ``trips``, ``n_trips`` and ``count`` are
            recognised beside tile columns only; an empty text means none.
        zones: a map of the user's own whose zones are the tiles, instead of H3 cells: what `read_zones` returns, or
            what it takes. The ends must then be codes of its zones.
        max_dropped: share of the rows that may be left out; rows that stand for no trip are not counted.
        skip_unknown: leave out rows with a tile that is not an H3 cell, instead of refusing them.
        partition_columns: columns come from the contents of files. These come from folders such as ``month=3``,
            ``"a,b"`` or a list; they may cut trips (``by``, ``time``) and be nothing else.
        person_case: ``fold`` takes persons that differ in upper and lower case only for one, which counts fewer people
            and so is the safe side; ``keep`` tells them apart.
        engine: who reads; see `flowveil.engines.ENGINES`.
        progress: called now and then with the share that is read, from 0 to 1.

    Raises:
        ParameterError: an argument is wrong, or there is nothing to read at the path.
        DataError: the table cannot be used. The message has all problems found, counted, with row numbers as
            examples.
    """
    read = load_engine(engine)
    zones = _map_of(zones)
    columns = ColumnMap(
        origin=parse_pair(origin, role="origin"),
        destination=parse_pair(destination, role="destination"),
        origin_tile=origin_tile or None,
        destination_tile=destination_tile or None,
        person=person,
        weight=weight,
        trips=trips,
    )
    return read(
        source,
        columns=columns,
        resolution=resolution,
        zones=zones,
        max_dropped=max_dropped,
        skip_unknown=skip_unknown,
        partition_columns=parse_partition_columns(partition_columns),
        person_case=person_case,
        progress=progress,
    )


def read_slices(
    source: Any,
    *,
    by: str | Sequence[str] = (),
    time: str | None = None,
    every: str | None = None,
    by_many: bool = False,
    resolution: int = 10,
    origin: str | Sequence[str] | None = None,
    destination: str | Sequence[str] | None = None,
    origin_tile: str | None = None,
    destination_tile: str | None = None,
    person: str | None = None,
    weight: str | None = None,
    trips: str | None = None,
    zones: Any = None,
    max_dropped: float = 0.05,
    skip_unknown: bool = False,
    partition_columns: str | Sequence[str] = (),
    person_case: str = "fold",
    engine: str = "duckdb",
    progress: Callable[[float], None] | None = None,
) -> SlicedFlows:
    """Read a trip table into the flows of each slice: of each segment, each step of time, or both.

    All slices are over the same two hierarchies. Rows whose time or attribute is missing are left out and counted.
    Times may be timestamps, dates, text, or Unix seconds (milliseconds and microseconds are told by their size);
    those with a zone are taken in UTC, those without as they stand.

    Args:
        source: as for `read_trips`.
        by: columns of attributes, ``"sex,age"`` or a list; slices are their combinations.
        time: column of the time, together with ``every``.
        every: step of time: minutes or hours that divide a day (``15min``, ``1h``), ``day``, ``month``, ``hour``,
            ``weekday``, or ``weekday-hour`` (168 slices, each collecting that hour of all weeks).
        by_many: allow attributes with more than 50 values, or more than one for 100 rows. They are refused otherwise: a
            column like an identifier makes matrices of one contributor each. Times are not concerned.
        resolution: as for `read_trips`, like all that follow.
        origin: latitude and longitude column of the origin.
        destination: latitude and longitude column of the destination.
        origin_tile: column of the origin's tile.
        destination_tile: column of the destination's tile.
        person: column that says who travelled.
        weight: column with the weight of a row.
        trips: column that says how many trips a row stands for.
        zones: map whose zones are the tiles.
        max_dropped: share of the rows that may be left out.
        skip_unknown: leave out rows with unknown tiles.
        partition_columns: columns that come from folders such as ``month=3``.
        person_case: whether upper and lower case of persons count.
        engine: who reads.
        progress: called now and then with the share that is read.

    Raises:
        ParameterError: an argument is wrong, or no slices are asked for.
        DataError: the table cannot be used.
    """
    attributes = tuple(n.strip() for n in by.split(",") if n.strip()) if isinstance(by, str) else tuple(by)
    check_slice_columns(attributes, time=time, every=every)
    columns = ColumnMap(
        origin=parse_pair(origin, role="origin"),
        destination=parse_pair(destination, role="destination"),
        origin_tile=origin_tile or None,
        destination_tile=destination_tile or None,
        person=person,
        weight=weight,
        trips=trips,
        by=attributes,
        time=time,
    )
    return load_slicing_engine(engine)(
        source,
        columns=columns,
        every=None if every is None else Every.parse(every),
        by_many=by_many,
        resolution=resolution,
        zones=_map_of(zones),
        max_dropped=max_dropped,
        skip_unknown=skip_unknown,
        partition_columns=parse_partition_columns(partition_columns),
        person_case=person_case,
        progress=progress,
    )


def _map_of(zones: Any) -> Any:
    """The user's own map, read if it is not yet; None where the tiles are H3 cells."""
    if zones is None:
        return None
    from flowveil.zoning.files import ZoneMap, read_zones

    return zones if isinstance(zones, ZoneMap) else read_zones(zones)
