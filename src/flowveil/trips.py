"""Reading trips: the front door to the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowveil.engines import load_engine
from flowveil.engines.columns import ColumnMap, parse_pair
from flowveil.flows import Flows


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
    whose person is missing counts as a trip but adds nobody to the people of its flow.

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
        engine: who reads; see `flowveil.engines.ENGINES`.
        progress: called now and then with the share that is read, from 0 to 1.

    Raises:
        ParameterError: an argument is wrong, or there is nothing to read at the path.
        DataError: the table cannot be used. The message has all problems found, counted, with row numbers as
            examples.
    """
    read = load_engine(engine)
    if zones is not None:
        from flowveil.zoning.files import ZoneMap, read_zones

        zones = zones if isinstance(zones, ZoneMap) else read_zones(zones)
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
        progress=progress,
    )
