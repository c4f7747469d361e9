"""No CSV file has a cell that a spreadsheet would run, and every text can be had back."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowveil
from flowveil.analysis.comparison import Comparison
from flowveil.analysis.experiment import MeasuredRun, Settings
from flowveil.analysis.study import Study
from flowveil.analysis.study_tables import write_study
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method
from flowveil.published.spreadsheets import decoded, encoded, encoded_table
from flowveil.tabular.records import write_records
from samples.drafts import unchecked
from samples.releases import rehash
from samples.verified import findings_of


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


CODES = [
    "=cmd",
    "+1+1",
    "@SUM",
    "-1",
    "\t=tab",
    "\rreturn",
    "'quoted",
    "a;=cmd",
    "a\n-2",
    ' "=x',
    "plain",
    "l'Isle",
]
#: What programs run: a first sign after blanks, in whole fields and after other separators.
FORMULA = re.compile(r"(^|[;\t\r\n])[\s\"]*[=+\-@]")
TEXTS = st.text(st.sampled_from("=+-@'\";,\t\r\n ab"), max_size=8)


def csv_text(text: str) -> str:
    """How a text must be written in a CSV file.

    An apostrophe wherever a spreadsheet could start a formula.
    """
    written = []
    for at, sign in enumerate(text):
        if at == 0 or text[at - 1] in ";\t\r\n":
            first = next((s for s in text[at:] if s != '"' and not s.isspace()), "")
            if sign in "'\t\r\n" or (first and first in "=+-@\uff1d\uff0b\uff0d\uff20"):
                written.append("'")
        written.append(sign)
    return "".join(written)


@given(TEXTS, TEXTS)
def test_text_is_harmless_and_can_be_had_back(text, other):
    assert not FORMULA.search(encoded(text))
    assert decoded(encoded(text)) == text
    assert (encoded(text) == encoded(other)) == (text == other)
    assert csv_text(text) == encoded(text)


def test_numbers_and_harmless_text_stay_as_they_are():
    table = pa.table(
        {
            "lat": [-33.4, None],
            "zone": ["88a", "Val-d'Oise, -2"],
            "shape": ["POLYGON ((-1 2, -3 4))", None],
        }
    )
    assert encoded_table(table).equals(table)
    listed = pa.table({"=zone": pa.array(["=a", None, "=a"]).dictionary_encode()})
    assert encoded_table(listed).to_pydict() == {"'=zone": ["'=a", None, "'=a"]}


@pytest.fixture(scope="module")
def flows():
    tree, _ = Hierarchy.from_parents([-1] + [0] * len(CODES), np.array(["root", *CODES]))
    place = np.arange(len(CODES))
    return Flows.from_pairs(
        place, place[::-1], np.full(len(CODES), 20), origins=tree, destinations=tree
    )


def fields(path) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        return [field for row in csv.reader(file) for field in row]


def test_exports_are_neutral_verified_and_other_formats_keep_the_code(flows, tmp_path):
    release = flowveil.anonymize(flows, method="suppression", k=5)
    folder = release.write(tmp_path / "out", formats="csv,omx,arrow")
    for name in ("flows.csv", "zones.csv", "omx_zones.csv"):
        texts = [
            field
            for field in fields(folder / name)
            if not re.fullmatch(r"-?[\d.]+", field) or field == "-1"
        ]
        assert not [text for text in texts if FORMULA.search(text)]
        assert {encoded(code) for code in CODES} <= set(texts)
    assert "=cmd" in release.flows["origin_zone"].to_pylist()
    assert findings_of(folder, flows) == []
    raw = (folder / "flows.csv").read_text(encoding="utf-8").replace("'=cmd", "=cmd")
    (folder / "flows.csv").write_text(raw, encoding="utf-8")
    rehash(folder)
    assert any(finding.startswith("flows.csv") for finding in findings_of(folder, flows))


def test_slice_values_and_their_columns_are_neutral(tmp_path):
    trips = pa.table(
        {
            "start_lat": [48.85] * 400,
            "start_lon": [2.35] * 400,
            "end_lat": [48.86] * 400,
            "end_lon": [2.34] * 400,
            "=who()": ["=a", "+b"] * 200,
        }
    )
    sliced = flowveil.read_slices(trips, by=["=who()"])
    folder = flowveil.anonymize_slices(sliced, k=5).write(tmp_path / "out", formats="csv")
    assert {"'=who()", "'=a", "'+b"} <= set(fields(folder / "flows.csv"))
    assert findings_of(folder, sliced) == []
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["statement"][
        "slice_columns"
    ] == ["=who()"]


def test_tables_of_records_comparisons_and_studies_are_neutral(tmp_path):
    write_records(pa.table({"=job": ["=cmd", "-1"]}), tmp_path / "records.csv")
    assert fields(tmp_path / "records.csv") == ["'=job", "'=cmd", "'-1"]
    # Every text of the input, in whichever column.
    run = MeasuredRun("=method", 5, ("@protect",), "-status", reason="=reason", basis="+basis")
    (read,) = csv.DictReader(
        Comparison((run,), time_limit=1.0, max_suppressed=0.1).to_csv().splitlines()
    )
    texts = {"method": "=", "protect": "@", "status": "-", "reason": "=", "basis": "+"}
    assert {name: read[name] for name in texts} == {
        name: f"'{sign}{name}" for name, sign in texts.items()
    }
    assert not [field for field in read.values() if FORMULA.search(field)]
    row = {
        "by": "=sex",
        "segment": "@f",
        "method": "odkanon",
        "protect": "trips",
        "basis": "trips",
        "status": "failed",
    }
    settings = Settings(
        methods={"odkanon": find_method("odkanon")},
        protections=(("trips",),),
        k=(5,),
        max_suppressed=0.1,
    )
    write_study(Study((row,), ("=sex",), settings), tmp_path)
    assert {"'=sex", "'@f"} <= set(fields(tmp_path / "results.csv"))
