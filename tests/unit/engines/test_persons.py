"""Whoever cannot be told apart for sure is not counted as two, and nobody is not counted as somebody."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import trip_table
from flowveil.api import describe, verify_folder
from flowveil.cli import main
from flowveil.engines.persons import PLACEHOLDERS
from flowveil.errors import ParameterError
from flowveil.trips import read_slices, read_trips

CELL = "8a1fb46622dffff"


def trips_of(persons: object, **columns: object) -> pa.Table:
    n = len(persons)  # type: ignore[arg-type]
    return pa.table({"start_h3": [CELL] * n, "end_h3": [CELL] * n, "person_id": persons, **columns})


def n_people(persons: object, **reading: object) -> int:
    return int(read_trips(trips_of(persons), **reading).n_people()[0])


@pytest.mark.parametrize(
    "spellings",
    [["a7", "A7"], ["Straße", "STRASSE", "straße"], ["ΣΑΣ", "σας"], ["É", "é", "e\u0301"], ["K1", "\u212a1"]],
)
def test_case_makes_no_new_person_unless_asked_for(spellings):
    assert n_people(spellings) == 1
    assert n_people(spellings, person_case="keep") == len(spellings)


def test_folding_does_not_depend_on_what_else_is_in_the_batch():
    assert n_people(["A7", "a7", "Zoë", None]) == 2
    assert n_people(["A7", "a7", None]) == 1


@pytest.mark.parametrize("word", [*PLACEHOLDERS, "?", "???", "--", "..", "-1", "-999", "0000", "NULL", "n/a", "none"])
@pytest.mark.parametrize("case", ["fold", "keep"])
def test_a_placeholder_is_nobody(word, case):
    spelled = [word, word.upper(), f" {word.title()} "]
    assert n_people([*spelled, "p"], person_case=case) == 1


@pytest.mark.parametrize(
    "persons", [pa.array([-1, -999, 0, 7]), pa.array([-1.0, -999.0, 0.0, 7.0]), ["-1.0", "-9", "0", "7"]]
)
def test_negative_numbers_that_stand_for_nobody_are_no_person_and_zero_is_one(persons):
    assert n_people(persons) == 2


def test_an_empty_uuid_is_nobody():
    assert n_people(["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"]) == 1


def test_rows_of_nobody_are_counted_by_word():
    table = trips_of(["?", "??", "Unknown", "", None, "secret1"], sex=["F"] * 6)
    expected = {"?": 2, "empty": 2, "unknown": 1}
    assert read_trips(table).intake.nobody == expected
    assert read_slices(table, by="sex", by_many=True).intake.nobody == expected
    assert describe(table).to_dict()["nobody"] == expected


def test_another_case_is_refused():
    with pytest.raises(ParameterError, match="fold, keep"):
        n_people(["a"], person_case="lower")


def test_the_release_says_how_persons_were_read_and_verify_reads_them_so(tmp_path, capsys):
    table = trip_table(400)
    persons = [p if i % 2 else p.lower() for i, p in enumerate(table["person_id"].to_pylist())]
    persons[:30] = ["unknown"] * 30
    table = table.set_column(table.column_names.index("person_id"), "person_id", pa.array(persons))
    pq.write_table(table, tmp_path / "t.parquet")
    fewest = {}
    for case in ("fold", "keep"):
        out = tmp_path / case
        asked = ["anonymize", str(tmp_path / "t.parquet"), "--protect", "people", "--k", "5", "--out", str(out)]
        main([*asked, "--resolution", "6", "--person-case", case])
        assert f"--person-case {case}" in capsys.readouterr().out
        main([*asked, "--resolution", "6", "--person-case", case, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert told["parameters"]["person_case"] == case
        assert told.get("nobody", {"unknown": 30}) == {"unknown": 30}
        assert verify_folder(out, against=tmp_path / "t.parquet") == []
        fewest[case] = told["measures"]["trips"]["k_people"]
    assert fewest["fold"] < fewest["keep"]
    assert verify_folder(tmp_path / "keep", against=tmp_path / "t.parquet", person_case="fold") != []
