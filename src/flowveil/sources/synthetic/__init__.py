"""A synthetic mobility survey of Île-de-France, without real people.

`flowveil demo`, the tests and the benchmarks need trips that behave like a GNSS survey and that anyone may
see. The survey imitates the shape of the NetMob 2025 data set (3,320 people followed for a week, 81,291
trips, some 44,000 H3 cells of resolution 10, 9.0 million inhabitants represented): people live and work where
the region does, their days are chains of trips between a few personal places, and their weights correct
for who answers surveys. See ``docs/synthetic-survey.md`` for what may and may not be concluded from it.

Everything is drawn in blocks of `BLOCK_PEOPLE` people, each from its own random stream, so the rows do not
depend on how many blocks are held in memory at once, and the first people of a survey are those of a smaller
one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.errors import ParameterError
from flowveil.output import write_files
from flowveil.sources.synthetic.flows import check_seed, synthetic_flows
from flowveil.sources.synthetic.people import AGES, BLOCK_PEOPLE, PROFESSIONS, SEXES
from flowveil.sources.synthetic.week import POPULATION, SCHEMA, draw_block, find_intensity

__all__ = [
    "AGES", "BLOCK_PEOPLE", "POPULATION", "PROFESSIONS", "SCHEMA", "SEXES", "synthetic_flows", "synthetic_survey",
    "write_synthetic_survey",
]  # fmt: skip

#: What `trips_per_person` may be: the model's days hold neither fewer nor more trips.
TRIPS_PER_PERSON: Final = (3.0, 40.0)


def synthetic_survey(*, people: int = 3_320, trips_per_person: float = 24.5, seed: int = 0) -> pa.Table:
    """Draws a week of trips of invented inhabitants of Île-de-France.

    The same arguments give the same table. With another number of people the first ones stay the same but for
    their weights, which always add up to about the region's 9.0 million inhabitants aged 16 to 80.

    Args:
        people: participants; each makes at least two trips.
        trips_per_person: trips a person makes in the week on average, 3 to 40; met to about 2 %.
        seed: another seed gives other people in the same region.

    Returns:
        One row for each trip, ordered by person and time: person_id, sex, age (group), profession (category),
        weight (inhabitants the person represents), start_time, end_time (local, without zone), start_lat,
        start_lon, end_lat, end_lon.

    Raises:
        ParameterError: an argument is out of range.
    """
    return pa.concat_tables(_blocks(people, trips_per_person, seed)).combine_chunks()


def write_synthetic_survey(
    path: str | os.PathLike[str],
    *,
    people: int,
    trips_per_person: float = 24.5,
    seed: int = 0,
    chunk_people: int = 50_000,
) -> int:
    """Writes the rows of `synthetic_survey` to a Parquet file, in chunks.

    Memory holds one chunk, so the survey may have hundreds of millions of trips. The rows do not depend on
    the chunk; each chunk is a row group. The file appears under its name only when it is complete.

    Args:
        path: the file to write; one of that name is replaced.
        people: see `synthetic_survey`.
        trips_per_person: see `synthetic_survey`.
        seed: see `synthetic_survey`.
        chunk_people: people to hold in memory, rounded up to whole thousands.

    Returns:
        The number of trips written.

    Raises:
        ParameterError: an argument is out of range.
        OutputError: the file cannot be written.
    """
    if chunk_people < 1:
        raise ParameterError(f"chunk_people is {chunk_people}; it must be at least 1.")
    blocks = _blocks(people, trips_per_person, seed)
    blocks_of_chunk = -(-chunk_people // BLOCK_PEOPLE)
    trips = 0

    def write(draft: Path) -> None:
        nonlocal trips
        with pq.ParquetWriter(draft, SCHEMA) as writer:
            while chunk := list(islice(blocks, blocks_of_chunk)):
                trips += _write_row_group(writer, pa.concat_tables(chunk))

    write_files({path: write})
    return trips


def _write_row_group(writer: pq.ParquetWriter, rows: pa.Table) -> int:
    writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    return rows.num_rows  # type: ignore[no-any-return]


def _blocks(people: int, trips_per_person: float, seed: int) -> Iterator[pa.Table]:
    """Checks the arguments now, draws the blocks one by one later."""
    if people < 1:
        raise ParameterError(f"people is {people}; a survey has at least 1 participant.")
    low, high = TRIPS_PER_PERSON
    if not low <= trips_per_person <= high:
        raise ParameterError(
            f"trips_per_person is {trips_per_person}; {low:g} to {high:g} trips a week are allowed. "
            "Hint: for more trips ask for more people."
        )
    check_seed(seed)
    intensity = find_intensity(float(trips_per_person))
    id_width = max(6, len(str(people - 1)))
    n_blocks = -(-people // BLOCK_PEOPLE)
    return (draw_block(block, people, intensity, seed, id_width) for block in range(n_blocks))
