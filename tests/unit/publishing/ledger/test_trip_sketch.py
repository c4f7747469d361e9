"""Releases of the same trips are recognised by their places; independent ones are not."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import trip_table
from flowveil import read_slices, read_trips
from flowveil.publishing.ledger.trip_facts import _canonical
from flowveil.publishing.ledger.trip_sketch import MOST_PAIRS, shares_trips, trip_sketch

#: In place of a ledger: hashes without a key.
LEDGER: Any = SimpleNamespace(
    keyed_hash=lambda *parts: hashlib.sha256("\0".join(parts).encode()).hexdigest()
)


def sketch(table: pa.Table, **reading: Any) -> Any:
    read = read_slices if "by" in reading else read_trips
    reading = {"resolution": 9, "no_person": True, **reading}
    return trip_sketch(read(table, **reading), LEDGER)


def counts(trips: Any) -> Any:
    """A sample of numbers of trips."""
    return {"map": {str(pair): [0, int(n)] for pair, n in enumerate(trips) if n}}


TRIPS = trip_table(3000)
OTHERS = trip_table(3000, seed=1)


@pytest.mark.parametrize(
    "table",
    [TRIPS, TRIPS.slice(1), pa.concat_tables([TRIPS, OTHERS.slice(0, 1)])],
)
@pytest.mark.parametrize("reading", [{}, {"resolution": 8}, {"by": "sex"}])
def test_the_same_trips_are_recognised(table, reading):
    sexes = ["f", "m"] * len(table)
    table = table.append_column("sex", pa.array(sexes[: len(table)]))
    before, after = sketch(TRIPS), sketch(table, **reading)
    assert shares_trips(after, before)
    assert shares_trips(before, after)


def test_other_trips_are_not():
    for resolution in (6, 9):
        samples = [sketch(table, resolution=resolution) for table in (TRIPS, OTHERS)]
        assert not shares_trips(*samples)
    assert len(samples[0]["h3 9"]) <= MOST_PAIRS < 3000


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0.05, 1, 30, 1000]), st.sampled_from([0.2, 1, 3])
)
def test_independent_trips_are_never_taken_for_the_same(seed, mean, ratio):
    """Days of the same city: the same expectations, independent numbers."""
    rng = np.random.default_rng(seed)
    expected = rng.gamma(0.5, mean, 300)
    one, other = counts(rng.poisson(expected)), counts(rng.poisson(ratio * expected))
    assert not shares_trips(one, other)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 1, 30, 1000]))
def test_a_trip_more_or_less_is_the_same_trips(seed, mean):
    rng = np.random.default_rng(seed)
    trips = rng.poisson(rng.gamma(0.5, mean, 300)) + (np.arange(300) < 30)
    changed = trips.copy()
    changed[rng.integers(30)] += rng.choice([-1, 1])
    assert shares_trips(counts(changed), counts(trips))


def test_trips_that_are_part_of_others_are_recognised():
    """Where few trips of a release have both tiles in common."""
    rng = np.random.default_rng(0)
    trips = rng.poisson(0.05, 5000)
    part = trips * (rng.random(5000) < 0.3)
    assert shares_trips(counts(part), counts(trips))
    assert not shares_trips(counts(part), counts(rng.poisson(0.05, 5000)))


def test_commuters_who_travel_on_most_days_are_no_copy():
    """Numbers that differ less than independent ones, of people nine in ten of whom travel."""
    rng = np.random.default_rng(0)
    commuters = rng.poisson(20, 500)
    one, other = (counts(rng.binomial(commuters, 0.85)) for _ in range(2))
    assert not shares_trips(one, other)


@pytest.mark.parametrize(
    "spellings",
    [
        ("1", "01", "1.0", "true", "TRUE"),
        ("2024-07-01", "2024-07-01 00:00:00", "2024-07-01T00:00:00"),
        ("not known", "not  known ", "Not\u00a0known", "not known\u200b"),
    ],
)
def test_a_value_has_one_spelling(spellings):
    assert len(set(map(_canonical, spellings))) == 1
