"""Laplace against the naive counts: what one person can change, and from which count on pairs may
show."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import trip_table
from flowveil import Flows, read_trips
from flowveil.methods.discrete_noise import DiscreteLaplace
from flowveil.methods.noise_guarantee import counted_trips
from reference import laplace as naive
from reference.trees import leaf_nodes
from samples.strategies import hierarchies


def counts_by_code(flows: Flows, bound: int | None) -> dict[tuple[str, str], int]:
    trips = counted_trips(flows, np.ones(len(flows), np.bool_), bound=bound)
    o, d = (t.code_text(np.array(leaf_nodes(t))) for t in (flows.origins, flows.destinations))
    ends = zip(o[flows.origin].tolist(), d[flows.destination].tolist(), strict=True)
    return {pair: int(n) for pair, n in zip(ends, trips, strict=True) if n}


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_person_changes_the_counts_by_more_than_the_bound(data):
    origins, destinations = data.draw(hierarchies()), data.draw(hierarchies())
    n = data.draw(st.integers(1, 30))

    def column(low: int, high: int) -> np.ndarray:
        return np.array(data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))

    o, d = column(0, origins.n_tiles - 1), column(0, destinations.n_tiles - 1)
    trips, person = column(1, 9), column(-1, 4)
    bound = data.draw(st.integers(1, 12))

    def flows_of(rows: np.ndarray) -> Flows:
        # Persons are renumbered, as an engine that has never seen the other would.
        _, number = np.unique(person[rows], return_inverse=True)
        number = number - int((person[rows] < 0).any())
        return Flows.from_pairs(
            o[rows], d[rows], trips[rows], origins=origins, destinations=destinations, person=number
        )

    everyone = flows_of(np.ones(n, np.bool_))
    counts = counts_by_code(everyone, bound)
    assert counts == naive.bounded_counts(everyone, bound)
    for one in range(5):
        rows = person != one
        without = counts_by_code(flows_of(rows), bound) if rows.any() else {}
        assert naive.distance(counts, without) <= min(bound, int(trips[~rows].sum()))
        # Exactly as much as the person contributes: nothing of anybody else moves.
        assert sum(counts.values()) - sum(without.values()) == min(bound, int(trips[~rows].sum()))


def test_nor_through_the_engine_where_tiles_come_and_go_with_a_person():
    table = trip_table(300)
    everyone = read_trips(table, resolution=9)
    for bound in (1, 3):
        counts = counts_by_code(everyone, bound)
        assert counts == naive.bounded_counts(everyone, bound)
        for person in ("SECRET0003", "SECRET0040", "SECRET0074"):
            rows = pc.not_equal(table["person_id"], pa.scalar(person))
            without = counts_by_code(read_trips(table.filter(rows), resolution=9), bound)
            assert naive.distance(counts, without) <= bound


@settings(max_examples=30, deadline=None)
@given(
    bound=st.integers(1, 7),
    epsilon=st.floats(0.2, 8),
    delta=st.sampled_from([1e-2, 1e-3, 1e-4]) | st.floats(1e-5, 1e-2),
)
def test_the_threshold_is_the_smallest_that_hides_every_split(bound, epsilon, delta):
    scale = bound / epsilon
    assert DiscreteLaplace(Fraction(scale)).threshold(bound, delta) == naive.threshold(
        bound, scale, delta
    )
