"""Matrices as tables of trips: OMX files, and text files with a column for each destination.

The roles of the columns are known: the ends are codes of zones, the numbers are trips (or weights, if requested), and
the names of several matrices are an attribute to slice by. Matrices are never added up: files of transport models hold
minutes and kilometres as well as trips.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.errors import DataError, ParameterError, did_you_mean, with_value
from flowveil.flows import SUM_COLUMNS
from flowveil.headers import listed
from flowveil.reading import Reading
from flowveil.reading.omx import Omx, open_omx
from flowveil.reading.sql import quoted_text

#: The columns of a matrix as a table.
ORIGIN, DESTINATION, TRIPS, MATRIX = "origin", "destination", "trips", "matrix"
#: Upper bound for the zones; a matrix has the square of it as cells.
MOST_ZONES = 20_000
_CELLS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Form:
    """The form of a file of matrices.

    Attributes:
        matrices: the names of the matrices of an OMX file.
    """

    matrices: tuple[str, ...] = ()

    def read_as(self, reading: Reading) -> Reading:
        """Returns the reading with the columns of a matrix, unless others were named.

        Raises:
            ParameterError: there are several matrices, and trips are not sliced by them.
        """
        columns = reading.columns
        if len(self.matrices) > 1 and MATRIX not in columns.by:
            raise ParameterError(
                f"The file has {len(self.matrices)} matrices: {listed(self.matrices)}. They are not added up. Hint: "
                f"choose one with {with_value('matrix', self.matrices[0])}, or publish each as a slice with "
                f"{with_value('by', MATRIX)}."
            )
        counted = columns.trips
        if counted is None:
            counted = "" if TRIPS in columns.added.values() else TRIPS
        given = {
            "origin_tile": columns.origin_tile or ORIGIN,
            "destination_tile": columns.destination_tile or DESTINATION,
        }
        others = {"trips": counted, **{role: getattr(columns, role) or "" for role in ("person", *SUM_COLUMNS)}}
        return replace(reading, columns=replace(columns, **given, **others))  # type: ignore[arg-type]


def matrix_names(path: Path) -> tuple[str, ...]:
    """Returns the names of the matrices of an OMX file, sorted.

    Raises:
        DataError: it is not a valid OMX file.
    """
    with _opened(path) as file:
        return tuple(sorted(file.matrices))


def omx_table(path: Path, *, matrices: Sequence[str], lookup: str | None) -> tuple[pa.Table, Form]:
    """Returns the nonzero cells of an OMX file as rows.

    Args:
        path: the file.
        matrices: those to read; all if empty.
        lookup: the lookup with the codes of the zones; by default the only one, or the only one of texts. Without
            lookups the codes are 1, 2, 3, ...

    Raises:
        ParameterError: a matrix or lookup does not exist, or none of several lookups is named.
        DataError: it is not a valid OMX file, or two zones have the same code.
    """
    with _opened(path) as file:
        names = _chosen(file, matrices)
        codes = pa.array(_codes(file, lookup), pa.string())
        parts = [part for name in names for part in _cells(file, name, codes)]
    empty = pa.table({c: pa.array([], k) for c, k in zip(_NAMES, _KINDS, strict=True)})
    return pa.concat_tables([empty, *parts]), Form(tuple(names))


_NAMES = (ORIGIN, DESTINATION, TRIPS, MATRIX)
_KINDS = (pa.string(), pa.string(), pa.float64(), pa.string())


def _chosen(file: Omx, wanted: Sequence[str]) -> list[str]:
    unknown = [name for name in wanted if name not in file.matrices]
    if unknown:
        raise ParameterError(
            f"The file has no matrix {listed(unknown)}; it has {listed(sorted(file.matrices))}."
            f"{did_you_mean(unknown[0], file.matrices)}"
        )
    return sorted(dict.fromkeys(wanted)) if wanted else sorted(file.matrices)


def _codes(file: Omx, lookup: str | None) -> list[str]:
    lookups = file.lookups
    texts = [name for name, values in lookups.items() if values.dtype.kind == "S"]
    if lookup is None and len(lookups) > 1 and len(texts) != 1:
        likely = min(lookups, key=lambda name: (not re.search("zone|taz", name.casefold()), name))
        raise ParameterError(
            f"The file has {len(lookups)} lookups: {listed(sorted(lookups))}; which one has the codes of the zones is "
            f"not known. Hint: {with_value('lookup', likely)}, for example."
        )
    if lookup is not None and lookup not in lookups:
        known = f"it has {listed(sorted(lookups))}" if lookups else "it has none"
        raise ParameterError(f"The file has no lookup '{lookup}'; {known}.")
    name = lookup or (texts[0] if len(lookups) > 1 else next(iter(lookups), None))
    codes = [str(i + 1) for i in range(file.zones)] if name is None else _texts(lookups[name])
    if len(set(codes)) < len(codes) or "" in codes:
        raise DataError("The zones of the file have codes that are empty or duplicates.")
    return codes


def _texts(values: Any) -> list[str]:
    if values.dtype.kind == "S":
        return [value.decode("utf-8", errors="replace").strip() for value in values.tolist()]
    if values.dtype.kind == "f" and not np.all(values == np.rint(values)):
        raise DataError("The lookup of the file has numbers that are not whole; codes must be whole numbers or text.")
    return [str(int(value)) for value in values.tolist()]


def _cells(file: Omx, name: str, codes: pa.Array) -> list[pa.Table]:
    """Returns the nonzero cells in chunks of rows; NaN stays, and is counted as missing."""
    parts, node = [], file.matrices[name]
    step = max(1, _CELLS_AT_ONCE // max(file.zones, 1))
    for first in range(0, file.zones, step):
        block = node[first : first + step]
        row, column = np.nonzero(block)
        parts.append(
            pa.table(
                {
                    ORIGIN: codes.take(pa.array(row + first)),
                    DESTINATION: codes.take(pa.array(column)),
                    TRIPS: pa.array(block[row, column].astype(np.float64)),
                    MATRIX: pa.array([name] * len(row), pa.string()),
                }
            )
        )
    return parts


@contextmanager
def _opened(path: Path) -> Iterator[Omx]:
    """Opens an OMX file; error messages begin with its name."""
    with ExitStack() as stack:
        try:
            omx = stack.enter_context(open_omx(path, most_zones=MOST_ZONES))
        except DataError as problem:
            raise DataError(f"'{path.name}' {problem}") from None
        yield omx


def wide_sql(relation: str, codes: Sequence[str]) -> str:
    """Returns a FROM clause (origin, destination, trips) over a table with a column for each destination.

    Empty cells become no rows.

    Args:
        relation: the table; c0 has the codes of the origins.
        codes: the destinations of c1, c2, ...
    """
    columns = ", ".join(f"c{i + 1}" for i in range(len(codes)))
    names = ", ".join(quoted_text(code) for code in codes)
    return (
        f"(SELECT c0 AS {ORIGIN}, list_extract([{names}], CAST(substr(place, 2) AS INTEGER)) AS {DESTINATION}, {TRIPS} "
        f"FROM (UNPIVOT (SELECT * FROM {relation}) ON {columns} INTO NAME place VALUE {TRIPS}))"
    )
