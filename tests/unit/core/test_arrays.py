"""What holds trips shows sizes in logs and notebooks, and no value."""

from __future__ import annotations

import polars as pl

import flowveil
from conftest import trip_table


def test_no_repr_shows_a_tile_or_a_person():
    trips = trip_table(400)
    flows = flowveil.read_trips(trips, resolution=8, person="person_id")
    release = flowveil.anonymize(flows, k=5)
    tiles = flows.origins.code_text(flows.origins.leaf_node).tolist()
    persons = [str(one) for one in trips["person_id"].to_pylist()]
    shown = [flows, flows.origins, flows.people, release, release.plan, release.plan.origin_zones]
    for holder in shown:
        text = repr(holder)
        assert len(text) < 500, type(holder).__name__
        assert not any(code in text for code in (*tiles, *persons))
    assert f"parent: {flows.origins.n_nodes:,} int32" in repr(flows.origins)


def test_other_libraries_take_a_release_as_a_table():
    release = flowveil.anonymize(flowveil.read_trips(trip_table(400), resolution=8), k=5)
    assert pl.DataFrame(release)["trips"].sum() == sum(release.flows["trips"].to_pylist())
