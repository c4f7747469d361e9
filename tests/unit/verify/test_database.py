"""No step of the recount can change what another has written, and all of them read one folder."""

from __future__ import annotations

from glob import escape

import pytest

from flowveil.verify.database import SOURCE, opened


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


@pytest.mark.parametrize("name", ["b[1]", "b*", "k=1"])
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name):
    """Its files are read, and none of a folder that its name would fit."""
    import duckdb

    for folder, trips in ((name, 5), ("b1", 3)):
        (tmp_path / folder).mkdir()
        duckdb.sql(f"COPY (SELECT {trips} AS trips) TO '{tmp_path / folder / 'flows.parquet'}'")
    with opened(tmp_path / name) as db:
        assert db.rows(f"SELECT * FROM {SOURCE}", [escape(str(tmp_path / name / "flows.parquet"))]) == [(5,)]
        with db.batches(tmp_path / name / "flows.parquet", 10) as batches:
            assert batches.read_all().to_pylist() == [{"trips": 5}]
        for beside in (tmp_path / "b1", tmp_path):
            with pytest.raises(duckdb.Error):
                db.rows(f"SELECT * FROM {SOURCE}", [str(beside / "flows.parquet")])
