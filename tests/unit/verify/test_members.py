"""Members that are counted by sorting: the same numbers as those of SQL, and every finding with them."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.fuzz_releases import small_flows

import flowveil
from flowveil.verify import members, verify_release


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_sorting_counts_every_member_of_a_group_once(threads):
    rng = np.random.default_rng(3)
    n_rows, n_groups = 500, 40
    row, member = rng.integers(n_rows, size=4000).astype(np.int32), rng.integers(60, size=4000).astype(np.int32)
    asked = rng.permutation(n_rows)[:300]
    group = rng.integers(n_groups, size=300).astype(np.int32)
    # Of the first group there is no row.
    group[group == 0] = 1
    found = {(g, m) for a, g in zip(asked, group, strict=True) for m in member[row == a].tolist()}
    with flowveil.limits(threads=threads):
        counted = members.count_sorted(group, asked, n_groups, row, member)
    assert counted.tolist() == [sum(g == one for one, _ in found) for g in range(n_groups)]
    assert counted[0] == 0


def test_nothing_is_counted_by_sorting_where_a_row_is_in_two_groups():
    one = np.array([0, 1], np.int32)
    assert members.count_sorted(one, np.array([3, 3]), 2, np.array([3, 3], np.int32), one) is None
    none = np.zeros(0, np.int32)
    assert members.count_sorted(none, none, 0, none, none).tolist() == []
    assert members.count_sorted(np.zeros(2, np.int32), np.array([3, 3]), 1, one + 3, one).tolist() == [1]


def _people():
    return flowveil.anonymize(small_flows(persons=True), k=5, protect="people")


def _pairs():
    return flowveil.anonymize(small_flows(persons=True), k=5, protect="people", method="paircut")


def _boxes():
    return flowveil.anonymize(small_flows(persons=True), k=5, protect="people", method="mondrian")


def _rows():
    return flowveil.anonymize(small_flows(persons=True), k=5, protect="people", method="odkanon")


@pytest.mark.parametrize("make", [_people, _pairs, _boxes, _rows])
def test_findings_are_the_same_whichever_way_members_are_counted(make, tmp_path, monkeypatch):
    release = make()
    release.write(tmp_path / "release")
    # A guarantee that the release does not have: cells fall short by persons.
    asked = [{}, {"k": 6, "protect": "people"}, {"k": 12, "protect": "people"}]
    by_sql = [verify_release(tmp_path / "release", release.input, expect=expect) for expect in asked]
    monkeypatch.setattr(members, "MOST_IN_SQL", 0)
    sorted_too = [verify_release(tmp_path / "release", release.input, expect=expect) for expect in asked]
    assert sorted_too == by_sql
    assert by_sql[0] == []
    assert by_sql[2]


def test_persons_that_are_missing_are_missed_by_sorting_too(tmp_path, monkeypatch):
    """Against other persons of the same flows, cells have too few."""
    release = _people()
    release.write(tmp_path / "release")
    flows = release.input
    alone = replace(flows, people=replace(flows.people, person=flows.people.person * 0))
    by_sql = verify_release(tmp_path / "release", alone)
    assert any("fewer than 5 people" in line for line in by_sql)
    monkeypatch.setattr(members, "MOST_IN_SQL", 0)
    assert verify_release(tmp_path / "release", alone) == by_sql
