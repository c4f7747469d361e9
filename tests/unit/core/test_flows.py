"""Merging cells: trips and weights add up exactly, people stay distinct."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core import flows as flows_module
from flowveil.core.errors import DataError
from flowveil.core.flows import LARGEST_SUM, MILLION, SUM_COLUMNS, Flows, People, to_fixed_point
from flowveil.core.hierarchy import Hierarchy
from reference.trees import persons_by_flow
from samples.strategies import flow_tables, generators

TREE, _ = Hierarchy.from_parents([-1, 0, 0, 0], np.array(["root", "a", "b", "c"]))


@pytest.mark.parametrize("dense", [0, 10**6])
@settings(max_examples=40, deadline=None)
@given(flows=flow_tables(), data=st.data())
def test_merge_equals_a_dictionary(dense, flows, data):
    n = len(flows)
    ends = [
        np.array(data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)), dtype=np.int32)
        for _ in range(2)
    ]
    want_trips, want_weight, want_people = defaultdict(int), defaultdict(float), defaultdict(set)
    who = persons_by_flow(flows)
    for f in range(n):
        pair = int(ends[0][f]), int(ends[1][f])
        if min(pair) >= 0:
            want_trips[pair] += int(flows.trips[f])
            want_weight[pair] += float(flows.weight[f]) if flows.weight is not None else 0.0
            want_people[pair] |= who[f]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows_module, "DENSE_ENTRIES_PER_ROW", dense)
        merged = flows.merge(*ends, 4, 4)
    cells = merged.cells
    pairs = list(zip(cells.origin.tolist(), cells.destination.tolist(), strict=True))
    assert pairs == sorted(want_trips)
    assert cells.trips.tolist() == [want_trips[p] for p in pairs]
    if flows.weight is not None:
        assert cells.weight.tolist() == [want_weight[p] for p in pairs]
    if flows.people is not None:
        assert cells.n_people().tolist() == [len(want_people[p]) for p in pairs]
    for f in range(n):
        pair = int(ends[0][f]), int(ends[1][f])
        assert merged.row[f] == (pairs.index(pair) if min(pair) >= 0 else -1)


@settings(max_examples=40, deadline=None)
@given(generators, st.booleans())
def test_renumbering_moves_every_row_of_a_person(rng, in_order):
    """Whether rows are sorted already, or in any order."""
    rows = sorted({(int(c), int(p)) for c, p in rng.integers(0, 6, (12, 2))})
    if not in_order:
        rng.shuffle(rows)
    cell, person = np.array(rows, dtype=np.int32).T
    place = rng.permutation(6).astype(np.int32)
    moved = People(cell, person, person * 10 + cell).renumber(place)
    got = zip(moved.cell.tolist(), moved.person.tolist(), moved.trips.tolist(), strict=True)
    assert list(got) == sorted((int(place[c]), p, p * 10 + c) for c, p in rows)


@settings(max_examples=50, deadline=None)
@given(generators, st.integers(1, 50))
def test_weights_add_up_to_the_same_in_any_order(rng, n):
    """The sum of any order is the double nearest to the decimal.

    What Python reads from its text.
    """
    whole = rng.integers(1, 10**13, n)
    expected = float(Decimal(int(whole.sum())) / MILLION)
    for order in (whole.tolist(), rng.permutation(whole).tolist()):
        weight = SUM_COLUMNS["weight"].round_fixed_point(
            np.array([float(Decimal(m) / MILLION) for m in order])
        )
        flows = Flows.from_pairs(
            np.arange(len(order)) % 3,
            np.zeros(len(order)),
            origins=TREE,
            destinations=TREE,
            weight=weight,
        )
        one = np.zeros(len(flows), np.int32)
        assert (
            flows.merge(one, one, 1, 1).cells.weight.tolist()
            == [expected]
            == [flows.total("weight")]
        )


@given(st.integers(0, LARGEST_SUM * MILLION - 1))
def test_every_millionth_has_a_distinct_double(whole):
    one, next_one = np.array([whole, whole + 1]) / MILLION
    assert one < next_one
    assert to_fixed_point(np.array([one, next_one])).tolist() == [whole, whole + 1]


@pytest.mark.parametrize(
    ("weight", "why"),
    [([2.0**32, 2.0**32, 1], "too large"), ([1, 1e-7], "too fine"), ([0.0000014] * 3, "too fine")],
)
def test_weights_that_millionths_cannot_count_are_refused(weight, why):
    with pytest.raises(DataError, match=why):
        Flows.from_pairs(
            [0, 1, 2][: len(weight)],
            [0] * len(weight),
            origins=TREE,
            destinations=TREE,
            weight=weight,
        )


def test_rows_of_the_same_pair_are_added_up_whatever_their_order():
    a = Flows.from_pairs([2, 0, 2], [1, 1, 1], [3, 1, 4], origins=TREE, destinations=TREE)
    b = Flows.from_pairs([0, 2, 2], [1, 1, 1], [1, 4, 3], origins=TREE, destinations=TREE)
    for flows in (a, b):
        assert flows.origin.tolist() == [0, 2]
        assert flows.trips.tolist() == [1, 7]


def test_an_unknown_person_is_not_counted():
    flows = Flows.from_pairs(
        [0, 0, 0], [1, 1, 1], person=[4, -1, 4], origins=TREE, destinations=TREE
    )
    assert flows.trips.tolist() == [3]
    assert flows.n_people().tolist() == [1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"origin": np.array([0, 9], np.int32)}, "outside the hierarchy"),
        ({"trips": np.array([1, 0])}, "no trips"),
        ({"weight": np.array([1.0, -1.0])}, "negative or infinite"),
        ({"weight": np.array([1.0, np.nan])}, "negative or infinite"),
        ({"origin": np.array([1, 0], np.int32)}, "sorted"),
        (
            {"origin": np.array([1, 1], np.int32), "destination": np.array([0, 0], np.int32)},
            "distinct",
        ),
        ({"trips": np.array([1])}, "different lengths"),
    ],
)
def test_what_is_not_a_flow_table_is_refused(change, problem):
    good = {
        "origin": np.array([0, 1], np.int32),
        "destination": np.array([0, 0], np.int32),
        "trips": np.array([1, 2]),
    }
    Flows(**good, origins=TREE, destinations=TREE)
    with pytest.raises(DataError, match=problem):
        Flows(**{**good, **change}, origins=TREE, destinations=TREE)
