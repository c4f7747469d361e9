"""How many people are unique given a few known places."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import flowveil
from flowveil.analysis.uniqueness import uniqueness, wilson


def trips_of(rows):
    """Rows of (person, origin, destination[, hour]), places as numbers of a line of tiles."""
    places = {end: [row[i] for row in rows] for i, end in ((1, "start"), (2, "end"))}
    table = {"person": [row[0] for row in rows]}
    table |= {f"{end}_lat": [48.0 + 0.01 * p for p in at] for end, at in places.items()}
    table |= {f"{end}_lon": [2.0] * len(rows) for end in places}
    if len(rows[0]) > 3:
        table["time"] = [f"2024-03-04 {row[3]:02d}:10:00" for row in rows]
    return pa.table(table)


def test_by_hand_with_and_without_times():
    """Ann and Bob share their home and work.

    Ann alone goes to place 3, and leaves an hour earlier.
    """
    rows = [("ann", 1, 2, 7), ("bob", 1, 2, 8), ("ann", 2, 3, 17), ("bob", 2, 1, 17)]
    one, two, three = uniqueness(
        flowveil.read_trips(trips_of([row[:3] for row in rows]), person="person")
    )
    assert (one.people, two.people, three.people) == (2, 2, 1)
    assert not one.timed
    assert three.share == 1.0
    folded = flowveil.read_slices(
        trips_of(rows), person="person", time="time", every="hour"
    ).folded()
    timed = uniqueness(folded)
    assert timed[0].timed
    assert timed[1].share == 1.0


def test_against_every_choice_of_places():
    """Everybody is drawn; the expected share is that over all choices of m places."""
    rng = np.random.default_rng(3)
    rows = [(f"p{i}", *rng.integers(0, 9, 2).tolist()) for i in range(40) for _ in range(3)]
    places = {}
    for who, *ends in rows:
        places.setdefault(who, set()).update(ends)
    flows = flowveil.read_trips(trips_of(rows), person="person")
    for found in uniqueness(flows, sample=2_000):
        able = {who: own for who, own in places.items() if len(own) >= found.known}
        assert (found.people, found.sampled) == (len(able), len(able))
        chances = [
            np.mean(
                [
                    sum(set(c) <= other for other in places.values()) == 1
                    for c in combinations(own, found.known)
                ]
            )
            for own in able.values()
        ]
        assert found.low <= np.mean(chances) <= found.high


def test_the_order_of_rows_and_the_names_leave_no_trace():
    rng = np.random.default_rng(4)
    rows = [(int(i), *rng.integers(0, 12, 2).tolist()) for i in rng.integers(0, 60, 200)]
    renamed = [(f"x{99 - who}", *ends) for who, *ends in reversed(rows)]
    first, second = (
        uniqueness(flowveil.read_trips(trips_of(r), person="person"), sample=20)
        for r in (rows, renamed)
    )
    assert first == second


def test_describe_states_uniqueness_and_names_no_person():
    found = flowveil.describe(
        flowveil.read_trips(trips_of([("SECRET", 1, 2), ("bob", 1, 3)]), person="person"), k=5
    )
    assert any("known place" in line for line in found.lines())
    assert "SECRET" not in str(found.to_dict())


def test_the_interval_has_a_width_at_the_ends():
    low, high = wilson(1000, 1000)
    assert 0.99 < low < 1.0 == high
    assert wilson(0, 10)[1] == pytest.approx(0.278, abs=1e-3)
