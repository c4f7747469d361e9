"""No step of the recount can change what another has written."""

from __future__ import annotations

import pytest

from flowveil.verify.database import opened


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE raw",
        "DELETE FROM raw",
        "UPDATE raw SET trips = 0",
        "INSERT INTO raw VALUES (3)",
        "ALTER TABLE raw RENAME TO cooked",
        "CREATE OR REPLACE TABLE raw AS SELECT 3 AS trips",
        "SELECT 1; DROP TABLE raw",
    ],
)
def test_a_table_is_written_once(tmp_path, change):
    import duckdb

    with opened(tmp_path) as db:
        db.create("raw", "SELECT 5 AS trips")
        for run in (db.rows, lambda query: db.create("other", query), lambda query: db.define("other", query)):
            with pytest.raises((ValueError, duckdb.Error)):
                run(change)
        with pytest.raises(duckdb.CatalogException):
            db.create("raw", "SELECT 3 AS trips")
        assert db.rows("SELECT * FROM raw") == [(5,)]
