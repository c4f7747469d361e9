"""Who is hidden: thresholds by unit, and what cannot be promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee, SmallKWarning, confirmed
from flowveil.core.hierarchy import Hierarchy
from reference.trees import is_safe
from samples.strategies import flow_tables

TREE, _ = Hierarchy.from_parents([-1, 0, 0], np.array(["root", "a", "b"]))
PLAIN = Flows.from_pairs([0, 1], [0, 1], [5, 15], origins=TREE, destinations=TREE)
RICH = Flows.from_pairs(
    [0, 1], [0, 1], [5, 15], weight=[100.0, 100.0], person=[1, 2], origins=TREE, destinations=TREE
)


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "10", None])
def test_k_is_a_whole_number_from_one(k):
    with pytest.raises(ParameterError, match="k must be"):
        Guarantee.resolve(PLAIN, k=k)


def test_unknown_units_are_refused_with_a_suggestion():
    with pytest.raises(ParameterError, match=r"Did you mean 'people'"):
        Guarantee.resolve(PLAIN, k=5, protect="peopel")


def test_units_the_data_does_not_have_are_refused():
    with pytest.raises(DataError, match="no person column"):
        Guarantee.resolve(PLAIN, k=5, protect="people")
    with pytest.raises(DataError, match="no weights"):
        Guarantee.resolve(PLAIN, k=5, protect="population")


def test_the_population_threshold_is_k_mean_weights_unless_given():
    assert Guarantee.resolve(RICH, k=5, protect="population").population == 5 * 200 / 20
    assert Guarantee.resolve(RICH, k=5, protect="population", k_population=77).population == 77
    with pytest.raises(ParameterError, match="not among the protected"):
        Guarantee.resolve(RICH, k=5, k_population=77)


def test_one_commuter_making_ten_trips_is_one_person():
    flows = Flows.from_pairs([0], [0], [10], person=[3], origins=TREE, destinations=TREE)
    assert Guarantee.resolve(flows, k=10, protect="trips").safe(flows).tolist() == [True]
    # People are protected by default.
    assert Guarantee.resolve(flows, k=10).units == ("people",)
    assert Guarantee.resolve(flows, k=2, protect="people").safe(flows).tolist() == [False]
    assert Guarantee.resolve(flows, k=1, protect=["trips", "people"]).units == ("trips", "people")


@settings(max_examples=40, deadline=None)
@given(flow_tables(weights=True, persons=True), st.integers(1, 6), st.integers(1, 3), st.data())
def test_safe_is_the_definition_and_merging_never_lowers_it(flows, k, l, data):  # noqa: E741
    units = data.draw(
        st.lists(st.sampled_from(["trips", "people", "population"]), min_size=1, unique=True)
    )
    kp = data.draw(st.floats(0.1, 20)) if "population" in units else None
    guarantee = Guarantee.resolve(flows, k=k, protect=units, k_population=kp, l=l)
    flows = guarantee.prepare(flows)
    ends = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(flows), max_size=len(flows))), np.int32
    )
    fine = flows.merge(ends, ends * 0, 4, 1)
    # Merging what was merged counts the same as merging the flows at once.
    coarse = fine.cells.merge(fine.cells.origin // 2, fine.cells.destination, 2, 1)
    for cells, row in (
        (flows, np.arange(len(flows))),
        (fine.cells, fine.row),
        (coarse.cells, coarse.row[fine.row]),
    ):
        rows = [np.flatnonzero(row == cell).tolist() for cell in range(len(cells))]
        assert guarantee.safe(cells).tolist() == [is_safe(flows, part, guarantee) for part in rows]
    assert np.all(guarantee.safe(coarse.cells)[coarse.row] | ~guarantee.safe(fine.cells))


def test_locations_are_counted_from_trips_never_from_zones():
    flows = Flows.from_pairs([0, 0, 1], [0, 1, 1], [5, 5, 5], origins=TREE, destinations=TREE)
    guarantee = Guarantee.resolve(flows, k=5, l=2)
    one = np.zeros(3, np.int32)
    with pytest.raises(DataError, match="carry no tiles"):
        guarantee.safe(flows.merge(one, one, 1, 1).cells)
    located = guarantee.prepare(flows)
    assert guarantee.safe(located.merge(one, one, 1, 1).cells).tolist() == [True]
    first_two = np.array([0, 0, -1], np.int32)
    assert guarantee.safe(located.merge(first_two, one, 1, 1).cells).tolist() == [False]
    assert Guarantee.resolve(flows, k=5).prepare(flows) is flows


@pytest.mark.parametrize("k", [3, 4, 5])
def test_a_small_k_is_warned_of(k, recwarn):
    confirmed(Guarantee.resolve(PLAIN, k=k), PLAIN, allow_small_k=False, population_only=False)
    assert [str(w.message).partition(":")[0] for w in recwarn] == ["Weak"] * (k < 5)
    assert all(w.category is SmallKWarning for w in recwarn)
