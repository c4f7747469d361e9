"""Reads tables and queries of databases as streams of Arrow batches.

Addresses are ``duckdb:FILE?table=NAME``, ``sqlite:FILE?query=SELECT ...`` and
``postgresql://host/db?table=NAME``. They never hold a secret: passwords come from the environment
or the password file of PostgreSQL. Databases are opened for reading only. Messages name the kind of
the database, and never quote a server or driver: that could repeat a row, a host or a secret.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from flowveil.reading.database import batches_of
from flowveil.reading.sql import quoted_name
from flowveil.request.database_address import DatabaseAddress

_BATCH_ROWS = 100_000
_NAMES = {"duckdb": "DuckDB", "sqlite": "SQLite", "postgresql": "PostgreSQL"}


def select_of(address: DatabaseAddress) -> str:
    """The SELECT that reads the rows of an address."""
    return address.query or "SELECT * FROM " + ".".join(
        map(quoted_name, str(address.table).split("."))
    )


def read_address(address: DatabaseAddress) -> pa.RecordBatchReader:
    """Opens the table or query of an address as a stream, which closes its database at the end."""
    if not address.is_server and not Path(address.place).expanduser().is_file():
        raise ParameterError(f"The {_NAMES[address.kind]} file '{address.place}' does not exist.")
    return {"duckdb": _read_duckdb, "sqlite": _read_sqlite, "postgresql": _read_postgresql}[
        address.kind
    ](address)


def _stream(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *closed: Any
) -> pa.RecordBatchReader:
    def until_closed() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        finally:
            for one in closed:
                with suppress(Exception):
                    one.close()

    return pa.RecordBatchReader.from_batches(schema, until_closed())


def _refused(address: DatabaseAddress, hint: str) -> DataError:
    what = "query" if address.table is None else f"table '{address.table}'"
    return DataError(f"The {what} cannot be read from {_NAMES[address.kind]}. Hint: {hint}")


def _read_duckdb(address: DatabaseAddress) -> pa.RecordBatchReader:
    import duckdb

    config: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "enable_external_access": "false",
    }
    try:
        con = duckdb.connect(str(Path(address.place).expanduser()), read_only=True, config=config)
        reader = batches_of(con.sql(select_of(address)), _BATCH_ROWS)
    except duckdb.Error:
        raise _refused(
            address, "check the name, and that no other program is writing to the file."
        ) from None
    return _stream(reader.schema, reader, con)


def _read_sqlite(address: DatabaseAddress) -> pa.RecordBatchReader:
    """Reads every value as text: in SQLite values have types, columns do not."""
    path = Path(address.place).expanduser().absolute()
    con = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        cursor = con.execute(select_of(address))
    except sqlite3.Error:
        con.close()
        raise _refused(
            address, "check the name, and that the file is an SQLite database."
        ) from None
    schema = pa.schema([(column[0], pa.string()) for column in cursor.description])

    def batches() -> Iterator[pa.RecordBatch]:
        while rows := cursor.fetchmany(_BATCH_ROWS):
            columns = [
                pa.array([_text(value) for value in column], pa.string())
                for column in zip(*rows, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return _stream(schema, batches(), cursor, con)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else repr(value)


def _read_postgresql(address: DatabaseAddress) -> pa.RecordBatchReader:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise MissingExtraError(
            "Reading from PostgreSQL needs a driver that is not installed. Hint: pip install"
            " 'flowveil[postgres]'."
        ) from None
    try:
        con = dbapi.connect(address.place)
    except dbapi.Error:
        raise DataError(
            "The PostgreSQL database of the input cannot be opened. Hint: check host and database;"
            " user and password come from PGUSER and PGPASSWORD, or from ~/.pgpass."
        ) from None
    try:
        with closing(con.cursor()) as first:
            first.execute("SET TRANSACTION READ ONLY")
        cursor = con.cursor()
        cursor.execute(select_of(address))
        reader = cursor.fetch_record_batch()
    except dbapi.Error:
        con.close()
        raise _refused(address, "check the name, and that this user may read it.") from None
    # Types without a counterpart in Arrow, such as numeric, arrive as text.
    schema = pa.schema(
        [(one.name, getattr(one.type, "storage_type", one.type)) for one in reader.schema]
    )

    batches = (
        pa.RecordBatch.from_arrays(
            [getattr(column, "storage", column) for column in batch.columns], schema=schema
        )
        for batch in reader
    )
    return _stream(schema, batches, cursor, con)
