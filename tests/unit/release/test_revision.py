"""Revisions: what they refuse, what verify finds in one that was tampered with, and their place in
a series."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import (
    InfeasibleError,
    OutputError,
    ParameterError,
    anonymize,
    anonymize_slices,
    audit_releases,
    publish_series,
    read_slices,
    read_trips,
    read_zones,
    verify_series,
)
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.releases import rehash, write_table
from samples.verified import findings_of
from unit.publishing.series.test_series import K, months
from unit.release.test_zone_map import MAP, flows_on

FIRST = [("N1", "N2")] * 20 + [("N2", "N2")] * 12 + [("S1", "S2")] * 15
LATER = [*FIRST, *[("N1", "N2")] * 3, *[("N2", "N2")] * 7]


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.fixture
def first(tmp_path):
    anonymize(flows_on(MAP, FIRST), "suppression", k=5).write(tmp_path / "first")
    return tmp_path / "first"


def test_a_change_is_held_against_every_earlier_release(tmp_path):
    """From 20 to 40 and back to 23: the last step is large, but three trips more than at first
    would be seen."""
    first, second = tmp_path / "first", tmp_path / "second"
    anonymize(flows_on(MAP, [("N1", "N2")] * 20), "suppression", k=5).write(first)
    anonymize(flows_on(MAP, [("N1", "N2")] * 40), revision=first, k=5).write(second)
    third = anonymize(flows_on(MAP, [("N1", "N2")] * 23), revision=[first, second], k=5).flows
    assert third.select(["trips", "revised"]).to_pylist() == [{"trips": 40, "revised": False}]


def test_many_trips_of_few_people_are_no_change_to_show(tmp_path):
    """Ten more trips of one person, or of unknown persons, stay hidden.

    Ten of ten people are shown.
    """
    people = [("N1", "N2", f"p{n}") for n in range(9)]

    def flows_of(rows):
        table = pa.table(
            {"o": [r[0] for r in rows], "d": [r[1] for r in rows], "p": [r[2] for r in rows]}
        )
        ends = {"origin_tile": "o", "destination_tile": "d", "person": "p"}
        return read_trips(table, zones=read_zones(MAP, root="all"), **ends)

    anonymize(flows_of(people), "suppression", k=5).write(tmp_path / "first")
    for more, shown in ((["one"] * 10, 9), ([None] * 10, 9), ([f"q{n}" for n in range(10)], 19)):
        now = flows_of([*people, *(("N1", "N2", name) for name in more)])
        assert anonymize(now, revision=tmp_path / "first", k=5).flows["trips"].to_pylist() == [
            shown
        ]


def test_what_a_revision_keeps_or_shows_wrongly_is_found(first, tmp_path):
    flows, folder = flows_on(MAP, LATER), tmp_path / "revised"
    anonymize(flows, revision=first, k=5).write(folder, formats="csv,arrow")
    given = {"zones_of": first, "revision": [first]}
    unread: list[str] = []
    assert findings_of(folder, flows, notes=unread, **given) == unread == []
    assert findings_of(folder, flows, zones_of=first, notes=unread) == []
    assert "not revised" in unread[0]
    table = pq.read_table(folder / "flows.parquet")
    assert table["trips"].to_pylist() == [20, 19, 15]
    assert table["revised"].to_pylist() == [False, True, False]
    report = json.loads((folder / "report.json").read_text())
    assert report["statement"]["shares"] is None
    for trips, revised in (
        ([23, 19, 15], [True, True, False]),
        ([23, 19, 15], [False, True, False]),
    ):
        other = tmp_path / f"{revised[0]}"
        shutil.copytree(folder, other)
        changed = pa.table(
            {**{n: table[n] for n in table.column_names[:2]}, "trips": trips, "revised": revised}
        )
        write_table(changed, other / "flows.parquet")
        rehash(other)
        assert recount_flows(other, flows, **given).findings
        assert findings_of(other, flows, **given)
    del report["guarantee"]["trips"]
    (other / "report.json").write_text(json.dumps(report))
    rehash(other)
    assert findings_of(other, flows, **given)
    # Together with other releases of the same trips nothing is concluded from it.
    assert "revision" in audit_releases([first, folder]).groups.unchecked[0][1]


def test_what_cannot_be_revised_is_refused(first, tmp_path):
    flows = flows_on(MAP, LATER)
    with pytest.raises(ParameterError, match="another guarantee"):
        anonymize(flows, revision=first, k=6)
    with pytest.raises(InfeasibleError, match="has lost all trips"):
        anonymize(flows_on(MAP, LATER[:32]), revision=first, k=5)
    anonymize(flows, revision=first, k=5).write(tmp_path / "second")
    with pytest.raises(ParameterError, match="every published release"):
        anonymize(flows, revision=tmp_path / "second", k=5)
    halves = pa.table({"o": ["N1"] * 30, "d": ["N2"] * 30, "half": ["a", "b"] * 15})
    ends = {"origin_tile": "o", "destination_tile": "d", "by_many": True, "no_person": True}
    sliced = read_slices(halves, zones=read_zones(MAP, root="all"), by="half", **ends)
    anonymize_slices(sliced, k=5).write(tmp_path / "halves")
    with pytest.raises(ParameterError, match="has other slices"):
        anonymize_slices(
            read_slices(halves, zones=read_zones(MAP, root="all"), by="o", **ends),
            revision=tmp_path / "halves",
            k=5,
        )
    listed = pa.table({"tile": ["N1", "N2", "S1", "S2"]})
    anonymize(flows, "suppression", k=5, l=1, l_places=listed).write(tmp_path / "counted")
    with pytest.raises(ParameterError, match="l counts listed places"):
        anonymize(flows, revision=tmp_path / "counted", k=5, l=1)
    with pytest.raises(OutputError, match="both are needed"):
        anonymize(flows, revision=first, k=5).write(first)
    with pytest.raises(ParameterError, match="no place for what is revised"):
        anonymize(flows, revision=first, k=5).write(tmp_path / "map", formats="omx")
    report = first / "report.json"
    report.write_text(report.read_text().replace('"k": 5', '"k": 4'))
    with pytest.raises(ParameterError, match="not as it was published"):
        anonymize(flows, revision=first, k=5)


def test_a_series_publishes_a_late_correction_next_to_the_corrected_step(tmp_path):
    place, ledger, how = tmp_path / "series", tmp_path / "ledger", {"time": "time", "resolution": 7}
    publish_series(months(2), place, asked=K, ledger=ledger, **how)
    late = pa.concat_tables([months(2), *[months(1).slice(0, 1)] * 7, months(1).slice(5, 2)])
    made = publish_series(late, place, asked=K, ledger=ledger, revision=True, **how)
    assert made.published == ("2024-01-r1",)
    assert [step["revisions"] for step in made.index["steps"]] == [1, 0]
    assert sum(pq.read_table(place / "2024-01-r1" / "flows.parquet")["revised"].to_pylist()) == 1
    assert verify_series(place, against=late).findings == ()
    assert publish_series(late, place, asked=K, ledger=ledger, **how).published == ()
