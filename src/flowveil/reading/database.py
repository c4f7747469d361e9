"""A private DuckDB that works out of core.

Its messages quote the input, so they are replaced by flowveil's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from flowveil.core.errors import DataError, FlowveilError, option
from flowveil.system.limits import duckdb_settings, temporary_folder
from flowveil.system.output import scratch_folder

#: Less than DuckDB's default of 0.8, because the flows need memory as well.
MEMORY_SHARE = 0.6

_INTERRUPTED = re.compile(r"\W*(INTERRUPT Error|(Query )?interrupted)", re.IGNORECASE)


@contextmanager
def open_database(threads: int | None) -> Iterator[Any]:
    """Opens a database in memory that spills to a scratch folder, which is removed at the end."""
    with ExitStack() as stack:
        # Closed before its folder is removed.
        folder = stack.enter_context(scratch_folder(parent=temporary_folder()))
        config: dict[str, Any] = {
            "temp_directory": str(folder),
            "autoinstall_known_extensions": False,
        }
        config |= duckdb_settings()
        if threads is not None:
            config["threads"] = threads
        con = stack.enter_context(closing(duckdb.connect(":memory:", config=config)))
        # Otherwise DuckDB's progress bar appears in the output of a command, JSON included.
        with suppress(duckdb.InvalidInputException):
            # Refused in notebooks without the package that draws the bar.
            con.execute("SET enable_progress_bar = false")
        if "memory_limit" not in config:
            limit = con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
            amount, unit = limit.split()
            con.execute(f"SET memory_limit = '{float(amount) * MEMORY_SHARE:.3f} {unit}'")
        yield con


@contextmanager
def in_own_words(label: str) -> Iterator[None]:
    """Replaces errors of DuckDB and Arrow by a DataError that quotes nothing from the input."""
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise DataError(
            f"{label} does not fit: memory and temporary disk space are used up. "
            f"Hint: free some, or give a folder with more space ({option('temp_dir')})."
        ) from None
    except FlowveilError:
        raise
    except Exception as error:
        # The message of any library that read the source may quote a row.
        foreign = type(error).__module__.partition(".")[0] in (
            "polars",
            "pandas",
            "pyarrow",
            "_csv",
        )
        if not (
            foreign or isinstance(error, duckdb.Error | pa.ArrowException | OSError | RuntimeError)
        ):
            raise
        # Ctrl-C during a query is raised by DuckDB, or by Arrow's stream over it, as one of these.
        chain = (error.__cause__, error.__context__)
        if _INTERRUPTED.match(str(error)) or any(isinstance(e, KeyboardInterrupt) for e in chain):
            raise KeyboardInterrupt from None
        line = re.search(r"\bLine: (\d+)", str(error))
        where = f" Line {line[1]} is the first that cannot be read." if line else ""
        raise DataError(
            f"{label} cannot be read as a table.{where} Every line needs as many columns as the"
            " first, quotes that are closed, and text in UTF-8. Hint: is the file complete, and"
            " saved as UTF-8?"
        ) from None


def fetch_table(con: Any, sql: str) -> pa.Table:
    """Returns the result of a query as an Arrow table, in older and newer versions of DuckDB."""
    relation = con.sql(sql)
    fetch = getattr(relation, "to_arrow_table", None) or relation.fetch_arrow_table
    return fetch()


def batches_of(relation: Any, rows: int) -> Any:
    """Returns the rows of a query in Arrow batches, in older and newer versions of DuckDB."""
    # Newer versions warn about the older name.
    return (getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader)(rows)
