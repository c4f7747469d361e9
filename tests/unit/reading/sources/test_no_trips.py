"""Sources in which no trip is found, and tables that are prepared first."""

from __future__ import annotations

import pytest

import flowveil
from flowveil.core.errors import DataError
from flowveil.reading.sources import prepare


def test_no_trips_are_an_error_that_leads_on(tmp_path):
    path = tmp_path / "points.csv"
    rows = (f"u1,2023-01-31 08:{i:02}:00,59.9,10.7" for i in range(20))
    path.write_text("\n".join(["uid,datetime,lat,lng", *rows]))
    with pytest.raises(DataError, match=r"No trip was found.*prepare cdr"):
        prepare("gps", path, person="uid", time="datetime")


def test_a_table_of_sightings_leads_to_prepare(tmp_path):
    path = tmp_path / "records.csv"
    rows = (f"p1,2023-01-31 08:{i:02}:00,a{i % 3}" for i in range(20))
    path.write_text("\n".join(["person,timestamp,antenna_id", *rows]))
    with pytest.raises(DataError, match="flowveil prepare cdr INPUT --antennas"):
        flowveil.read_trips(path)
    made = prepare("cdr", path, person="person", time="timestamp", antenna="antenna_id")
    assert made.trips.num_rows > 0
