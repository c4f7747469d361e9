"""Families of slices: every cell of every slice is safe, and so is every difference a reader can compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flowveil.analysis.areas import Zoning
from flowveil.anonymization import anonymize_slices
from flowveil.errors import InfeasibleError
from flowveil.flows import Flows
from flowveil.release.release import SlicedRelease
from flowveil.slices import Every, SlicedFlows, holds
from reference.differencing import attacks
from samples.drafts import unchecked
from samples.strategies import hierarchies
from samples.verified import findings_of

QUICK = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
TREE_METHODS = ("odkanon", "oigh", "suppression", "atg-dual")


@st.composite
def sliced_flows(draw, *, persons: bool = True, max_slices: int = 3) -> SlicedFlows:
    """Slices of small flows over common trees; one person may make many trips of a pair."""
    origins, destinations = draw(hierarchies(max_nodes=8)), draw(hierarchies(max_nodes=8))
    slices = []
    for _ in range(draw(st.integers(1, max_slices))):
        n = draw(st.integers(1, 14))
        o = draw(st.lists(st.integers(0, origins.n_tiles - 1), min_size=n, max_size=n))
        d = draw(st.lists(st.integers(0, destinations.n_tiles - 1), min_size=n, max_size=n))
        trips = draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))
        person = draw(st.lists(st.integers(0, 7), min_size=n, max_size=n)) if persons else None
        slices.append(
            Flows.from_pairs(
                np.array(o),
                np.array(d),
                np.array(trips),
                origins=origins,
                destinations=destinations,
                person=None if person is None else np.array(person),
                weight=np.array(trips) * 1.5,
            )
        )
    keys = tuple((f"s{i}",) for i in range(len(slices)))
    return SlicedFlows(columns=("group",), keys=keys, slices=tuple(slices))


def family_of(flows: SlicedFlows, **parameters) -> SlicedRelease:
    try:
        return anonymize_slices(flows, max_suppressed=0.3, allow_small_k=True, population_only=True, **parameters)
    except InfeasibleError:
        assume(False)
        raise


@st.composite
def hours(draw) -> SlicedFlows:
    """The same, as two days of one or two hours each."""
    flows = draw(sliced_flows(max_slices=4))
    labels = ["2024-03-04T08:00", "2024-03-04T09:00", "2024-03-05T08:00", "2024-03-05T09:00"]
    chosen = sorted(draw(st.permutations(labels))[: len(flows)])
    return SlicedFlows(
        columns=("time",), keys=tuple((label,) for label in chosen), slices=flows.slices, every=Every.parse("1h")
    )


def withstands_not(family: SlicedRelease, k: int, *, people: bool) -> Iterator[bool]:
    """Whether an attack on a matrix by means of the finer ones succeeds, for each matrix that has any."""
    flows = family.input
    for key, release in family:
        members = flows.members(key)
        finer = [
            ([members.index(m) for m in flows.members(other)], own)
            for other, own in family
            if other != key and holds(key, other, columns=family.slice_columns)
        ]
        if finer:
            yield attacks(release, [flows.slices[m] for m in members], finer, k, people=people)


@QUICK
@given(sliced_flows(), st.integers(1, 4), st.sampled_from(TREE_METHODS))
def test_no_cell_of_any_slice_has_fewer_than_k_people(flows, k, method):
    family = family_of(flows, k=k, method=method, protect="people")
    for key, release in family:
        own = flows.together(flows.members(key))
        for cell in range(len(release.cells)):
            rows = np.flatnonzero(release.cell_of_flow == cell)
            persons = set(own.people.person[np.isin(own.people.cell, rows)].tolist())
            assert len(persons) >= k


@QUICK
@given(sliced_flows(), st.integers(2, 4), st.sampled_from(TREE_METHODS), st.booleans())
def test_what_is_called_harmless_withstands_every_subtraction(flows, k, method, people):
    protect = "people" if people else "trips"
    family = family_of(flows, k=k, method=method, protect=protect, total=True, accept_differencing=True)
    if any(withstands_not(family, k, people=people)):
        assert family.differencing.short > 0
        assert not family.differencing.harmless


@QUICK
@given(hours(), st.integers(2, 4), st.sampled_from(TREE_METHODS), st.booleans())
def test_mixtures_of_days_and_hours_are_subtracted_too(flows, k, method, people):
    protect = "people" if people else "trips"
    family = family_of(
        flows, k=k, method=method, protect=protect, total=True, also_every=["day"], accept_differencing=True
    )
    if any(withstands_not(family, k, people=people)):
        assert family.differencing.short > 0


@QUICK
@given(hours(), st.integers(2, 4), st.sampled_from(["trips", "people", "population"]))
def test_coarser_matrices_over_common_zones_tell_nothing_new(flows, k, protect):
    family = family_of(flows, k=k, protect=protect, total=True, also_every=["day"], common_zones=True)
    assert family.differencing.harmless
    assert len({tuple(r.plan.origin_zones.nodes.tolist()) for r in family.releases}) == 1
    finest = {key: cells_by_zone(release) for key, release in family if key in flows.keys}
    for key, release in family:
        want: Counter = Counter()
        for m in flows.members(key):
            want.update(finest.get(flows.keys[m], {}))
        assert cells_by_zone(release) == want


def cells_by_zone(release) -> Counter:
    cells = release.cells
    pairs = zip(cells.origin.tolist(), cells.destination.tolist(), strict=True)
    return Counter(dict(zip(pairs, cells.trips.tolist(), strict=True)))


@settings(QUICK, max_examples=5)
@given(hours(), st.integers(2, 4), st.sampled_from(TREE_METHODS), st.booleans(), st.booleans())
def test_whatever_family_is_published_holds(flows, k, method, people, shared):
    family = family_of(
        flows,
        k=k,
        method="odkanon" if shared else method,
        protect="people" if people else "trips",
        total=True,
        also_every=["day"],
        common_zones=shared,
        accept_differencing=not shared,
    )
    with TemporaryDirectory() as place:
        with unchecked():
            folder = family.write(Path(place) / "release")
        assert findings_of(folder, flows) == []


@QUICK
@given(sliced_flows(persons=False))
def test_slices_add_up_to_the_whole(flows):
    assert flows.whole.trips.sum() == sum(part.trips.sum() for part in flows.slices)
    pairs = {(o, d) for part in flows.slices for o, d in zip(part.origin, part.destination, strict=True)}
    assert len(flows.whole) == len(pairs)


@QUICK
@given(sliced_flows(persons=False), st.data())
def test_reconstruction_is_the_even_spread_over_pairs_of_tiles(flows, data):
    family = family_of(flows, k=2, method="atg-dual")
    release = family.releases[0]
    tree_o, tree_d = flows.origins, flows.destinations
    area_o = np.array(
        data.draw(st.lists(st.integers(-1, 2), min_size=tree_o.n_tiles, max_size=tree_o.n_tiles)), np.int32
    )
    area_d = np.array(
        data.draw(st.lists(st.integers(-1, 2), min_size=tree_d.n_tiles, max_size=tree_d.n_tiles)), np.int32
    )
    found = release.reconstruct(Zoning("areas", None, ["a", "b", "c"], np.zeros((3, 2)), area_o, area_d))
    expected = np.zeros((3, 3))
    for zone_o, zone_d, trips in zip(release.cells.origin, release.cells.destination, release.cells.trips, strict=True):
        node_o, node_d = release.plan.origin_zones.nodes[zone_o], release.plan.destination_zones.nodes[zone_d]
        tiles_o = range(tree_o.leaf_start[node_o], tree_o.leaf_stop[node_o])
        tiles_d = range(tree_d.leaf_start[node_d], tree_d.leaf_stop[node_d])
        for o in tiles_o:
            for d in tiles_d:
                if area_o[o] >= 0 and area_d[d] >= 0:
                    expected[area_o[o], area_d[d]] += trips / len(tiles_o) / len(tiles_d)
    got = np.zeros((3, 3))
    got[found.origin, found.destination] = found.trips
    assert got == pytest.approx(expected)
