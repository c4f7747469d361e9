"""Trips that mislead: whole pairs are one person's. People must be counted, whatever the method."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import flowveil
from flowveil.core.errors import DataError, InfeasibleError
from flowveil.core.flows import Flows
from flowveil.publishing.release import Release
from samples.placed import stars

#: Methods that publish counts; noisy ones promise something else.
COUNTED = [name for name, method in flowveil.METHODS.items() if method.counts == "exact"]


@st.composite
def commuters(draw) -> Flows:
    """Every pair of tiles belongs to one person, who makes all of its many trips.

    Some persons have several pairs.
    """
    origins, destinations = draw(stars(6)), draw(stars(6))
    n = draw(st.integers(4, 25))
    persons = draw(st.integers(3, 8))
    return Flows.from_pairs(
        np.array(draw(st.lists(st.integers(0, origins.n_tiles - 1), min_size=n, max_size=n))),
        np.array(draw(st.lists(st.integers(0, destinations.n_tiles - 1), min_size=n, max_size=n))),
        np.array(draw(st.lists(st.integers(20, 60), min_size=n, max_size=n))),
        origins=origins,
        destinations=destinations,
        person=np.array(draw(st.lists(st.integers(0, persons - 1), min_size=n, max_size=n))),
        weight=np.array(draw(st.lists(st.integers(1, 900), min_size=n, max_size=n)), dtype=float),
    )


def persons_of_cells(release: Release) -> list[set[int]]:
    """The persons of each published cell, collected one by one."""
    found: list[set[int]] = [set() for _ in range(len(release.cells))]
    people = release.input.people
    for flow, person in zip(people.cell.tolist(), people.person.tolist(), strict=True):
        cell = int(release.cell_of_flow[flow])
        if cell >= 0:
            found[cell].add(person)
    return found


@pytest.mark.parametrize("method", COUNTED)
# As many as the contract draws: every example is a release and its report.
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    flows=commuters(), k=st.integers(2, 4), also=st.sampled_from([(), ("trips",), ("population",)])
)
def test_no_published_cell_has_fewer_than_k_people(method, flows, k, also):
    try:
        release = flowveil.anonymize(
            flows, method, k=k, protect=("people", *also), max_suppressed=0.4, allow_small_k=True
        )
    except InfeasibleError:
        assume(False)
        raise
    counted = [len(persons) for persons in persons_of_cells(release)]
    assert min(counted) >= k


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(commuters(), st.integers(2, 20))
def test_a_release_says_that_trips_are_not_people(flows, k):
    release = flowveil.anonymize(flows, "suppression", k=k, protect="trips", allow_small_k=True)
    assert any("one person" in line.lower() for line in release.summary()["published"]["sentences"])


@pytest.mark.parametrize("method", COUNTED)
def test_people_cannot_be_protected_without_a_person_column(method):
    tile = np.zeros(1, dtype=np.int64)
    tree = flowveil.Hierarchy(parent=np.array([-1], np.int32), code=np.array(["here"]))
    flows = Flows.from_pairs(tile, tile, np.array([99]), origins=tree, destinations=tree)
    with pytest.raises(DataError, match="--person"):
        flowveil.anonymize(flows, method, protect="people")
