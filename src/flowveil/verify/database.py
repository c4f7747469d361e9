"""The tables of a recount: each is written once, by one statement, and nothing can change it afterwards.

A check that deletes or replaces rows of another step is right only as long as the steps keep their order. So what
writes here names a new table and gets no second chance, and everything else is a query.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.errors import DataError, option
from flowveil.reading.limits import duckdb_settings, silence, temporary_folder
from flowveil.scratch import scratch_folder

#: The folder's name is a name, not a pattern, and 'k=10' in it is not a column.
SOURCE = "read_parquet(?, hive_partitioning = false)"
#: What a recount may take of the machine's memory, and of the disk for what does not fit, whatever the folder holds.
_MEMORY, _DISK = "50%", "64GB"
#: Weights of the input are whole millionths: their sum is exact in any order, and so is the double nearest to it.
_TOTAL_WEIGHT = "CREATE MACRO total_weight(w) AS sum(round(w * 1000000)::BIGINT)::DOUBLE / 1000000"


class Database:
    """Tables that are written once, and queries on them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        #: Members that stay where they were read, by unit; see `flowveil.verify.members`.
        self.elsewhere: dict[str, Any] = {}
        #: Tables of members that are at hand as columns as well, by their names; see `flowveil.verify.members`.
        self.at_hand: dict[str, tuple[Any, Any]] = {}
        self._numbers = count()

    def next_number(self) -> int:
        """For the name of a table."""
        return next(self._numbers)

    def create(self, name: str, query: str, values: Sequence[Any] = ()) -> None:
        """Write a table; there must be none of this name."""
        self._connection.execute(_parsed(f"CREATE TABLE {name} AS {query}", "CREATE"), list(values)).fetchall()

    def define(self, name: str, query: str) -> None:
        """The same as a view: what is looked at once need not be kept."""
        self._connection.execute(_parsed(f"CREATE VIEW {name} AS {query}", "CREATE")).fetchall()

    def store(self, name: str, table: Any) -> None:
        """Write an Arrow table."""
        self._connection.register("arriving", table)
        try:
            self.create(name, "SELECT * FROM arriving")
        finally:
            self._connection.unregister("arriving")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query: newer versions of DuckDB refuse other work while a result is only half read."""
        found: list[tuple[Any, ...]] = self._connection.execute(_parsed(query), list(values)).fetchall()
        return found

    def one(self, query: str) -> Any:
        """The only value of a query."""
        return self.rows(query)[0][0]

    def counts(self, table: str, tests: Mapping[str, str]) -> dict[str, int]:
        """How many rows of a table pass each test, by one statement: most of what a small one costs is its planning."""
        found = ", ".join(f"count(*) FILTER ({test})" for test in tests.values())
        return dict(zip(tests, self.rows(f"SELECT {found} FROM {table}")[0], strict=True))

    def numbers(self, query: str) -> set[int]:
        """The only column of a query, as a set."""
        return {n for (n,) in self.rows(query)}

    def masked(self, query: str, values: Sequence[Any] = ()) -> dict[str, Any]:
        """The columns of a query as numpy arrays, empty fields masked."""
        found: dict[str, Any] = self._connection.execute(_parsed(query), list(values)).fetchnumpy()
        return found

    def columns(self, query: str) -> dict[str, Any]:
        """The columns of a query as numpy arrays, numbers that are empty as NaN."""
        return {
            name: np.ma.filled(column.astype(np.float64), np.nan) if np.ma.is_masked(column) else np.ma.getdata(column)
            for name, column in self.masked(query).items()
        }

    @contextmanager
    def batches(self, path: Path, rows: int) -> Iterator[Any]:
        """All rows of a Parquet file in order, in Arrow batches."""
        relation = self._connection.sql(f"SELECT * FROM {SOURCE}", params=[escape(str(path))])
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        with reader(rows) as found:
            yield found


@lru_cache(maxsize=1024)
def _parsed(text: str, kind: str = "SELECT") -> Any:
    """The statement, if it is one of this kind and nothing else: what is created holds a query, or does not parse.

    Kept, because recounts ask the same of every folder, and what a text is does not depend on the database.
    """
    import duckdb

    statements = duckdb.extract_statements(text)
    if [statement.type for statement in statements] != [getattr(duckdb.StatementType, kind)]:
        raise ValueError(f"not one query, so it could change a table: {text}")
    return statements[0]


# DuckDB complains about statements that outlive it.
atexit.register(_parsed.cache_clear)


@contextmanager
def opened(place: Path) -> Iterator[Database]:
    """An empty database that may read the files of one folder and no others, nor change its settings.

    What does not fit into its share of the memory goes to a private folder that is removed.

    Raises:
        DataError: that does not fit either.
    """
    import duckdb

    # What a file is called by here is a pattern that only its name fits: DuckDB asks whether it may read the pattern,
    # and then whether it may read the file.
    allowed = ", ".join(text(name) for name in dict.fromkeys([str(place), escape(str(place))]))
    with scratch_folder(parent=temporary_folder()) as spill:
        limits = {"memory_limit": _MEMORY, "max_temp_directory_size": _DISK, "temp_directory": str(spill)}
        connection = duckdb.connect(":memory:", config={**limits, **duckdb_settings()})
        try:
            silence(connection)
            for setting in (
                "autoinstall_known_extensions = false",
                f"allowed_directories = [{allowed}]",
                "enable_external_access = false",
                "lock_configuration = true",
            ):
                connection.execute(f"SET {setting}")
            connection.execute(_TOTAL_WEIGHT)
            yield Database(connection)
        except duckdb.OutOfMemoryException:
            raise DataError(
                f"The recount does not fit into the memory it may take and {_DISK} of temporary disk space. "
                f"Hint: free some, or give a folder with more space ({option('temp_dir')})."
            ) from None
        finally:
            connection.close()


def text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """The name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: float | None) -> str:
    """A number as SQL writes it: as text and cast, for a bare number would be a DECIMAL, and comparisons round it."""
    return f"CAST('{value!r}' AS DOUBLE)"
