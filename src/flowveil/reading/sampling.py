"""Samples rows from places all over a table, without reading all of it.

Rows of a trip table are often sorted by time or by person, so its first rows say little about the rest.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Rows in a sample, and places of a file that they are read from.
_ROWS, _PLACES = 2_000, 20
_BLOCK_BYTES = 1 << 16


def spread(n: int) -> list[int]:
    """Returns up to `_ROWS` row numbers, evenly spread over n rows."""
    return list(range(n)) if n <= _ROWS else [i * n // _ROWS for i in range(_ROWS)]


def text_rows(files: Sequence[Path], *, delimiter: str, columns: int) -> list[list[str]]:
    """Returns rows of text files, read from blocks at evenly spread positions; empty for compressed files.

    A block begins and ends in the middle of a row, so its first and last line are not used, nor are rows with another
    number of columns: a block may begin inside a quoted text.
    """
    if any(path.name.casefold().endswith(".gz") for path in files):
        return []
    sizes = [path.stat().st_size for path in files]
    rows: list[list[str]] = []
    for place in range(_PLACES):
        at = place * sum(sizes) // _PLACES
        number = 0
        while at >= sizes[number]:
            at -= sizes[number]
            number += 1
        with files[number].open("rb") as file:
            file.seek(at)
            block = file.read(_BLOCK_BYTES).decode("utf-8", errors="replace")
            is_whole = len(block) < _BLOCK_BYTES
        lines = block.splitlines()[1 : None if is_whole else -1][: _ROWS // _PLACES]
        try:
            found = list(csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=delimiter))
        except csv.Error:
            continue
        rows += [row for row in found if len(row) == columns]
    return rows


def parquet_values(files: Sequence[Path], position: int) -> list[Any]:
    """Returns values of one column from row groups all over Parquet files; empty for nested columns."""
    import pyarrow.parquet as pq

    opened = [pq.ParquetFile(path) for path in files[:: max(1, len(files) // _PLACES)]]
    name = opened[0].schema_arrow.names[position] if position < len(opened[0].schema_arrow.names) else None
    groups = [(file, group) for file in opened for group in range(file.metadata.num_row_groups)]
    chosen = [groups[i * len(groups) // _PLACES] for i in range(_PLACES)] if len(groups) > _PLACES else groups
    values: list[Any] = []
    for file, group in chosen:
        if name is None or file.schema_arrow.names.count(name) != 1:
            continue
        column = file.read_row_group(group, columns=[name]).column(0)
        step = max(1, len(column) * len(chosen) // _ROWS)
        values += column.take(list(range(0, len(column), step))).to_pylist()
    return values
