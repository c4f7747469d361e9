"""A vehicle is not a person, and k trips are not k people: the question, the statement and the page
say so."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from conftest import trip_table
from flowveil import anonymize, read_trips
from flowveil.core.errors import ParameterError
from flowveil.core.unit_names import names_vehicles
from samples.drafts import unchecked


def published(tmp_path, person, **asked):
    table = trip_table(300).rename_columns(
        [person if name == "person_id" else name for name in trip_table(300).column_names]
    )
    flows = read_trips(table, resolution=7, person=person)
    with unchecked():
        folder = anonymize(flows, k=5, **asked).write(tmp_path / "release")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return report["published"]["sentences"], (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("column", ["vehicle_id", "device_id", "bike_id", "cab_id", "vehicleid"])
def test_a_column_of_vehicles_counts_vehicles(column, tmp_path):
    sentences, page = published(tmp_path, column)
    assert sentences[0].endswith("holds at least 5 vehicles.")
    assert any(
        line.startswith("Not protected: people. Vehicles were counted") for line in sentences
    )
    assert "5 vehicles" in page
    assert "5 people" not in page


def test_a_column_of_persons_counts_people(tmp_path):
    sentences, page = published(tmp_path, "person_id")
    assert sentences[0].endswith("holds at least 5 people.")
    assert "5 vehicles" not in page
    assert not any(map(names_vehicles, ("person_id", "career", "cardholder", "user")))


@pytest.mark.parametrize(("protect", "stated"), [("trips", True), ("people", False)])
def test_the_lines_next_to_the_answer_say_that_trips_are_not_people(tmp_path, protect, stated):
    _, page = published(tmp_path, "person_id", protect=protect)
    data = page.partition('id="map-data">')[2].partition("</script>")[0]
    answer = json.loads(data)["answer"]
    for text in (answer["rely"][-1], answer["story"]):
        assert ("Trips are not people" in text) == stated


@pytest.mark.parametrize(("protect", "stated"), [("trips", True), ("people", False)])
def test_a_page_without_answers_says_it_before_the_map(tmp_path, protect, stated):
    _, page = published(tmp_path, "person_id", protect=protect, method="mondrian")
    shown = page.partition("<body")[2]
    first = shown[: shown.index('id="map"')]
    assert ("Trips were counted, not people" in first) == stated


def test_the_question_about_a_device_names_vehicles():
    table = pa.table({**{n: trip_table(300)[n] for n in ("start_lat", "start_lon", "end_lat", "end_lon")},
                      "device_id": [f"d{i % 40}" for i in range(300)]})  # fmt: skip
    with pytest.raises(
        ParameterError, match="device_id' protects vehicles, not the people in them"
    ):
        read_trips(table, resolution=7)
