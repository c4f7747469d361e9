"""Spellings that may be one person count as one, and placeholders count as none."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import describe, verify_release
from flowveil.apps.cli import main
from flowveil.core.errors import ParameterError
from flowveil.reading.engines import read_slices, read_trips
from flowveil.reading.persons import PLACEHOLDERS
from flowveil.verify.verification import FOLDED
from samples.drafts import unchecked


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


CELL = "8a1fb46622dffff"


def trips_of(persons: object, **columns: object) -> pa.Table:
    n = len(persons)  # type: ignore[arg-type]
    return pa.table({"start_h3": [CELL] * n, "end_h3": [CELL] * n, "person_id": persons, **columns})


def n_people(persons: object, **reading: object) -> int:
    return int(read_trips(trips_of(persons), **reading).n_people()[0])


def own_map(n: int) -> pa.Table:
    return pa.table(
        {
            "zone": [f"zone {i}" for i in range(n)],
            "lat": [48.0] * n,
            "lon": [2 + i / n for i in range(n)],
        }
    )


@pytest.mark.parametrize(
    "spellings",
    [
        ["a7", "A7"],
        ["Straße", "STRASSE", "straße"],
        ["ΣΑΣ", "σας"],
        ["É", "é", "e\u0301"],
        ["K1", "\u212a1"],
    ],
)
def test_case_makes_no_new_person_by_default(spellings):
    assert n_people(spellings) == 1
    assert n_people(spellings, person_case="keep") == len(spellings)


def test_folding_does_not_depend_on_what_else_is_in_the_batch():
    assert n_people(["A7", "a7", "Zoë", None]) == 2
    assert n_people(["A7", "a7", None]) == 1


@pytest.mark.parametrize("case", ["fold", "keep"])
def test_a_placeholder_is_not_a_person(case):
    """Each word has separate places, so that a failure names it."""
    words = [
        *PLACEHOLDERS,
        "?",
        "???",
        "--",
        "..",
        "-1",
        "-999",
        "0000",
        "NULL",
        "n/a",
        "none",
        "x",
        "xxx",
    ]
    spelled = [
        (f"zone {n}", text)
        for n, w in enumerate(words)
        for text in (w, w.upper(), f" {w.title()} ", "p")
    ]
    zones, persons = zip(*spelled, strict=True)
    table = pa.table({"o": zones, "d": zones, "person_id": persons})
    flows = read_trips(
        table, origin_tile="o", destination_tile="d", zones=own_map(len(words)), person_case=case
    )
    people = dict(
        zip(
            flows.origins.code[flows.origins.leaf_node][flows.origin].tolist(),
            flows.n_people(),
            strict=True,
        )
    )
    assert [word for n, word in enumerate(words) if people[f"zone {n}"] != 1] == []


@pytest.mark.parametrize(
    "persons",
    [pa.array([-1, -999, 0, 7]), pa.array([-1.0, -999.0, 0.0, 7.0]), ["-1.0", "-9", "0", "7"]],
)
def test_negative_placeholders_are_no_person_and_zero_is_one(persons):
    assert n_people(persons) == 2


def test_what_an_identifier_may_well_be_is_a_person():
    assert n_people(["999", "99999", "0", "x1", "test1", "xy"]) == 6


def test_an_empty_uuid_is_not_a_person():
    assert (
        n_people(["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"])
        == 1
    )


def test_rows_without_a_person_are_counted_by_placeholder():
    table = trips_of(["?", "??", "Unknown", "", None, "secret1"], sex=["F"] * 6)
    expected = {"?": 2, "empty": 2, "unknown": 1}
    assert read_trips(table).intake.nobody == expected
    assert read_slices(table, by="sex", by_many=True).intake.nobody == expected
    assert describe(table).to_dict()["nobody"] == expected


def test_another_case_is_refused():
    with pytest.raises(ParameterError, match="fold, keep"):
        n_people(["a"], person_case="lower")


def test_the_release_says_how_persons_were_read_and_verify_reads_them_so(tmp_path, capsys):
    path, out = tmp_path / "t.parquet", tmp_path / "out"
    six = [f"p{i}" for i in range(6)]
    pq.write_table(trips_of([*six, *map(str.upper, six), "unknown"] * 5), path)
    asked = ["anonymize", str(path), "--protect", "people", "--out", str(out)]
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--k", "10"])
    assert stopped.value.code == 3
    capsys.readouterr()
    main([*asked, "--k", "6", "--show-measures"])
    message = capsys.readouterr()
    assert "add no person: 5 (unknown: 5)" in message.err
    assert "nobody" not in message.out
    main([*asked, "--k", "10", "--set", "people.person_case=keep", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"]["person_case"] == "keep"
    assert any("one person in two spellings" in line for line in report["published"]["sentences"])
    assert verify_release(out, against=path, person_case="keep").findings == ()


def test_verify_takes_upper_and_lower_case_for_one_unless_the_reader_says_otherwise(
    tmp_path, capsys
):
    path, out = tmp_path / "t.parquet", tmp_path / "out"
    six = [f"p{i}" for i in range(6)]
    pq.write_table(trips_of([*six, *map(str.upper, six)] * 5), path)
    made = [
        "anonymize",
        str(path),
        "--out",
        str(out),
        "--set",
        "people.person_case=keep",
        "--k",
        "10",
        "--protect",
    ]
    checked = ["verify", str(out), "--against", str(path), "--protect"]
    main([*made, "people"])
    with pytest.raises(SystemExit) as stopped:
        main([*checked, "people", "--k", "10"])
    assert stopped.value.code == 3
    refused = capsys.readouterr().err
    assert FOLDED in refused
    assert "confirm it with --set people.person_case=keep." in refused
    main([*checked, "people", "--k", "10", "--set", "people.person_case=keep"])
    said = capsys.readouterr().out
    assert "every cell was recounted" in said
    assert FOLDED not in said
    # A release that protects trips counts people for a measure only: that is recounted as it was
    # counted.
    main([*made, "trips", "--set", "output.replace_stronger=true"])
    assert verify_release(out, against=path).findings == ()
    required = verify_release(out, against=path, expect={"k": 10, "protect": "people"})
    assert required.findings
    assert any(note.startswith(FOLDED) for note in required.not_compared)
    # All spellings are of one case: nothing falls short, and the reader learns how people were
    # counted.
    pq.write_table(trips_of([f"p{i}" for i in range(12)] * 5), path)
    main([*made, "people"])
    capsys.readouterr()
    main([*checked, "people"])
    assert FOLDED in capsys.readouterr().err
