"""Random groups divide the trips, keep persons whole, and are a yardstick of gaps between segments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from flowveil.analysis.random_groups import person_weights, random_groups
from flowveil.analysis.study_tables import study_sheets
from flowveil.core.errors import ParameterError
from flowveil.reading.sources.synthetic import synthetic_survey
from samples.processes import in_this_process

READ = {"resolution": 6, "weight": "weight"}


@pytest.fixture(scope="module")
def flows() -> flowveil.Flows:
    return flowveil.read_slices(synthetic_survey(people=40), by="sex", **READ)


@pytest.mark.parametrize("with_persons", [True, False])
@settings(max_examples=15, deadline=None)
@given(split=st.integers(0, 50))
def test_groups_divide_the_trips_of_all_and_persons_stay_whole(flows, with_persons, split):
    if not with_persons:
        survey = synthetic_survey(people=40).drop_columns(["person_id"])
        flows = flowveil.read_slices(survey, by="sex", **READ)
    whole, groups = flows.whole, random_groups(flows, "sex", split)
    assert sorted(groups) == ["female", "male"]
    pairs: dict[tuple[int, int], np.ndarray] = {}
    for group in groups.values():
        for o, d, n, w in zip(
            group.origin, group.destination, group.trips, group.weight, strict=True
        ):
            before = pairs.get((int(o), int(d)), np.zeros(2))
            pairs[int(o), int(d)] = before + np.array([n, w])
    rows = zip(whole.origin, whole.destination, whole.trips, whole.weight, strict=True)
    for o, d, n, w in rows:
        assert pairs.pop((int(o), int(d))) == pytest.approx((n, w), rel=1e-6)
    assert not pairs
    # As many trips as the segments, up to those of one person.
    largest = 1
    if with_persons:
        sets = [set(group.people.person.tolist()) for group in groups.values()]
        assert not sets[0] & sets[1]
        of_all = [group.people for group in groups.values()]
        largest = max(np.bincount(p.person, weights=p.trips).max() for p in of_all)
    for (value,), part in zip(flows.slice_keys, flows.slices, strict=True):
        assert abs(int(groups[value].trips.sum()) - int(part.trips.sum())) <= largest
    again = random_groups(flows, "sex", split)
    assert all(np.array_equal(again[v].trips, groups[v].trips) for v in groups)


def test_the_weight_of_a_person_follows_from_the_trips(flows):
    survey = synthetic_survey(people=40)
    expected = dict(zip(survey["person_id"].to_pylist(), survey["weight"].to_pylist(), strict=True))
    known = person_weights(flows)
    assert sorted(known[~np.isnan(known)]) == pytest.approx(sorted(expected.values()))


def test_fairness_names_the_floor_and_random_groups(flows, tmp_path):
    chosen = {"methods": ["odkanon", "oigh"], "protections": ["trips"], "k": 5}
    with in_this_process():
        found = flowveil.run_study(flows, tmp_path / "s", random_groups=3, **chosen)
    (sheet,) = (s for s in study_sheets(found) if s.title.startswith("Fairness"))
    assert sheet.head[-3:] == (
        "of lower bounds of G",
        "of 3 random splits (median)",
        "the gap is",
    )
    rows = {(row["by"], row["segment"], row["method"], row["basis"]): row for row in found.rows}
    for line in sheet.rows:
        if line[1] != "ODkAnon" or line[2] != "GDM (m)":
            continue
        ratios = []
        for label in ["sex", *(f"sex, random groups {n}" for n in (1, 2, 3))]:
            values = [
                rows[label, sex, "odkanon", "trips"]["generalization_distance_m"]
                for sex in ("female", "male")
            ]
            ratios.append(max(values) / min(values))
        assert line[8] == ratios[0]
        assert line[10] == np.median(ratios[1:])
        assert line[11].startswith("the algorithm") == (ratios[0] <= np.quantile(ratios[1:], 0.95))
        break
    else:
        raise AssertionError("no row of ODkAnon")
    # The random groups are in no other table.
    assert not any(
        "random groups" in str(cell)
        for one in study_sheets(found)
        if not one.title.startswith("Fairness")
        for row in one.rows
        for cell in row
    )


def test_random_groups_need_segments(flows, tmp_path):
    with pytest.raises(ParameterError, match="--by"):
        flowveil.run_study(
            synthetic_survey(people=40), tmp_path / "a", random_groups=2, methods=["oigh"], **READ
        )
    with pytest.raises(ParameterError, match="0 to 1000"):
        flowveil.run_study(flows, tmp_path / "a", random_groups=-1, methods=["oigh"])
