"""A reading is what a report records, and what it records reads the same again."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from flowveil.core.errors import ParameterError
from flowveil.reading import Reading
from flowveil.reading.engines import read_flows

CELL, AT = "8a1fb46622dffff", 1_700_000_000
TABLE = pa.table(
    {
        "a": [CELL] * 200,
        "b": [CELL] * 200,
        "w": [2.5] * 200,
        "sex": ["f", "m"] * 100,
        "at": [1_700_000_000] * 200,
    }
)


def test_what_a_report_records_reads_the_same_again():
    given = {
        "origin_tile": "a",
        "destination_tile": "b",
        "weight": "w",
        "by": "sex",
        "time": "at",
        "every": "1h",
    }
    given["timezone"] = "Europe/Oslo"
    asked = Reading.from_arguments(
        **given, resolution=8, max_dropped=0.2, skip_unknown=True, person_case="keep", by_many=True
    )
    intake = read_flows(TABLE, asked).intake
    recorded = {**intake.parameters(), "slices": {"every": "1h", "by_many": intake.by_many}}
    again = Reading.from_parameters(json.loads(json.dumps(recorded)))
    # Reading trips again does not ask again whether a column holds persons.
    assert again == replace(asked, ask_person=False)
    assert Reading.from_parameters(recorded, resolution=7).resolution == 7


def test_columns_that_were_recognised_are_recorded():
    table = TABLE.rename_columns(["o_h3", "d_h3", "uid", "sex", "at"])
    again = Reading.from_parameters(read_flows(table, Reading()).intake.parameters())
    assert again.columns.names() == ("o_h3", "d_h3", "uid")


def test_a_map_is_not_in_the_report_and_must_be_given_again():
    with pytest.raises(ParameterError, match="on a map that it does not contain"):
        Reading.from_parameters({"columns": {}, "zones": {"tile": "zone"}})


WRONG = (
    {"resolution": 16}, {"resolution": True}, {"max_dropped": 2}, {"person_case": "any"},
    {"every": "1h"}, {"by": "trips"}, {"by": "sex,sex"},
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_reading_that_cannot_be_is_refused(wrong):
    with pytest.raises(ParameterError):
        Reading.from_arguments(**wrong)
