"""The trip table that engines read: columns by position, whatever its source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowveil.headers import Header
from flowveil.reading.matrices import Form

PEEKED_ROWS = 1000
#: Rows in a sample.
SAMPLED_ROWS = 2_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(ABC):
    """A trip table that can be read once, with any choice of columns.

    Attributes:
        con: the database that reads it.
        label: its name in messages.
        names: its columns; a name may occur twice.
        n_rows: the number of rows, known or estimated, for progress only; or None.
        partitions: the columns that come from the paths of files.
        form: the roles of the columns of a matrix; None if they are to be recognised.
        in_text: whether the names are the first line of a text file.
    """

    con: Any
    label: str
    names: Sequence[str]
    n_rows: int | None = None
    partitions: Sequence[str] = ()
    form: Form | None = None
    in_text: bool = False

    @abstractmethod
    def peek(self, position: int) -> list[Any]:
        """Returns the first values of a column."""

    def sample(self, position: int) -> list[Any]:
        """Returns some values of a column, spread over the table if that is possible without reading all of it."""
        return self.peek(position)

    def timezone_of(self, position: int) -> str | None:  # noqa: ARG002
        """Returns the time zone that the type of a column names, or None."""
        return None

    def header(self) -> Header:
        """Returns the names of the columns for messages; searches rows for them."""
        return Header(self.names, below=map(self.peek, range(len(self.names))), in_text=self.in_text)

    @abstractmethod
    def attach(self, positions: Sequence[int]) -> str:
        """Makes columns readable as c0, c1, ...; returns a FROM clause."""

    def rereadable(self, relation: str) -> str:
        """Returns a FROM clause of the same rows that can be read more than once."""
        return relation


def spread_rows(n: int) -> list[int]:
    """Returns up to `SAMPLED_ROWS` row numbers, evenly spread over n rows."""
    return list(range(n)) if n <= SAMPLED_ROWS else [i * n // SAMPLED_ROWS for i in range(SAMPLED_ROWS)]


def timezone_of_type(kind: pa.DataType) -> str | None:
    """Returns the time zone of an Arrow type, or None."""
    return kind.tz if pa.types.is_timestamp(kind) else None
