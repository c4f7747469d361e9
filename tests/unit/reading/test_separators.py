"""Separators in counts: thousands or decimals, asked where the column does not say."""

from __future__ import annotations

import pytest

import flowveil
from flowveil.core.errors import DataError, ParameterError

CELLS = ("8a1fb46622dffff", "8a1fb46622d7fff")
#: Counts as a file writes them: the question or the hint, the answer, and the true total.
WRITTEN = {
    "thousands of commas": (["121,606", "1,204", "777"], "thousands='comma'", 123_587),
    "millions of commas": (["1,121,606", "204", "777"], "thousands='comma'", 1_122_587),
    "commas and decimals": (["1,121.5", "204.5", "777"], "thousands='comma'", 2_103),
    "thousands of points": (["121.606", "1.204", "777"], "thousands='point'", 123_587),
    "points and decimals": (["1.121,5", "204,5", "777"], "thousands='point'", 2_103),
    "spaces": (["121 606", "1\u00a0204", "777"], "thousands='space'", 123_587),
    "apostrophes": (["121'606", "1’204", "777"], "thousands='apostrophe'", 123_587),
    "decimal commas": (["121,5", "1,204", "777"], "decimal_comma=True", 899.704),
    "decimals by the answer": (["121.606", "1.204", "777"], "thousands='none'", 899.81),
}


def table_of(tmp_path, counts):
    path = tmp_path / "od.csv"
    rows = (f'{CELLS[0]},{CELLS[1]},"{count}"' for count in counts)
    path.write_text("\n".join(["start_h3,end_h3,n", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_counts_that_are_not_clear_are_refused_and_the_answer_gives_the_true_total(tmp_path, name):
    counts, answer, total = WRITTEN[name]
    path = table_of(tmp_path, counts)
    with pytest.raises(DataError) as refused:
        flowveil.read_trips(path, trips="n")
    assert answer in str(refused.value)
    assert not any(count in str(refused.value) for count in counts)
    said = dict([answer.replace("'", "").split("=")])
    said = {key: True if value == "True" else value for key, value in said.items()}
    flows = flowveil.read_trips(path, trips="n", **said)
    assert flows.trips.sum() == pytest.approx(total)
    assert flows.intake.parameters()[next(iter(said))] == next(iter(said.values()))


@pytest.mark.parametrize("counts", [["1.5", "121.606"], ["0.606", "1.204"], ["606", "1204"]])
def test_clear_numbers_are_read_without_a_question(tmp_path, counts):
    flows = flowveil.read_trips(table_of(tmp_path, counts), trips="n")
    assert flows.trips.sum() == pytest.approx(sum(map(float, counts)))


def test_separators_in_other_places_are_errors(tmp_path):
    with pytest.raises(DataError, match="text that is not a number in column 'n'"):
        flowveil.read_trips(table_of(tmp_path, ["12,16", "1,204"]), trips="n", thousands="comma")
    with pytest.raises(ParameterError, match="contradict"):
        flowveil.read_trips(
            table_of(tmp_path, ["1"]), trips="n", thousands="comma", decimal_comma=True
        )
