"""t-closeness removes the zones that the slow version removes, and the remaining ones keep t."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.release.plan import Plan
from flowveil.release.post_rules import total_variation, without_distant
from flowveil.verify.recount.recount import _far_from_all
from reference.closeness import close_cells, distance

SIZE = 5
matrices = st.dictionaries(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)),
    st.integers(1, 20),
    min_size=1,
    max_size=15,
)
#: Distances between cells of at most 300 trips are never so near to these that rounding decides.
distances = st.integers(1, 999).map(lambda n: Fraction(2 * n + 1, 2003))


def planned(matrix: dict[tuple[int, int], int]) -> tuple[Flows, Plan]:
    tree, _ = Hierarchy.from_parents([-1, *[0] * SIZE], np.array(["root", *"abcde"]))
    pairs = sorted(matrix)
    origin, destination = (np.array([pair[end] for pair in pairs]) for end in (0, 1))
    trips = np.array([matrix[pair] for pair in pairs])
    flows = Flows.from_pairs(origin, destination, trips, origins=tree, destinations=tree)
    return flows, Plan.from_cuts(
        flows, tree.leaf_node, tree.leaf_node, np.ones(len(flows), np.bool_)
    )


@settings(max_examples=150, deadline=None)
@given(matrices, distances)
def test_the_same_zones_are_suppressed_as_by_the_slow_version(matrix, t):
    flows, plan = planned(matrix)
    want = close_cells(matrix, t)
    close = without_distant(flows, plan, float(t), max_suppressed=1.0, basis="trips")
    assert (close is None) == (not want)
    if close is None:
        return
    kept = close.kept
    cells = zip(
        flows.origin[kept].tolist(),
        flows.destination[kept].tolist(),
        flows.trips[kept].tolist(),
        strict=True,
    )
    assert {(o, d): n for o, d, n in cells} == want
    assert not _far_from_all(
        flows.origin[kept], flows.destination[kept], flows.trips[kept], float(t)
    ).any()


@settings(max_examples=100, deadline=None)
@given(matrices, distances)
def test_distances_and_the_recount_are_those_of_the_definition(matrix, t):
    flows, _ = planned(matrix)
    far = np.zeros(len(flows), np.bool_)
    for end, (own, other) in enumerate(
        ((flows.origin, flows.destination), (flows.destination, flows.origin))
    ):
        found = total_variation(own, other, flows.trips, SIZE, SIZE)
        for zone in range(SIZE):
            want = float(distance(matrix, end, zone)) if (own == zone).any() else 0.0
            assert found[zone] == pytest.approx(want, abs=1e-12)
        far |= found[own] > float(t)
    assert (
        _far_from_all(flows.origin, flows.destination, flows.trips, float(t)).tolist()
        == far.tolist()
    )


@settings(max_examples=60, deadline=None)
@given(matrices, st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE))
def test_coarser_zones_are_never_farther(matrix, zone):
    """So a derived table keeps the t of its source."""
    coarse: dict[tuple[int, int], int] = {}
    for (o, d), trips in matrix.items():
        coarse[zone[o], zone[d]] = coarse.get((zone[o], zone[d]), 0) + trips
    for end in (0, 1):
        fine = [distance(matrix, end, z) for z in {pair[end] for pair in matrix}]
        assert max(distance(coarse, end, z) for z in {pair[end] for pair in coarse}) <= max(fine)
