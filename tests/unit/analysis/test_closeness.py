"""How far the destinations of a zone are from those of all: by hand, and by the definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, read_trips
from flowveil.analysis.release_analysis import closeness
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from samples.releases import city_flows

ENDS = ("start_lat", "start_lon", "end_lat", "end_lon")


def test_by_hand():
    """From a all trips go to c, from b half to c, half to f."""
    destinations, _ = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2], np.array(list("RXYcdef")))
    origins, _ = Hierarchy.from_parents([-1, 0, 0], np.array(list("Qab")))
    flows = Flows.from_pairs(
        np.array([0, 1, 1]), np.array([0, 0, 3]), np.array([20, 10, 10]), origins=origins, destinations=destinations
    )
    found = closeness(anonymize(flows, "suppression", k=5))
    # Everybody: 30 of 40 to c, 10 to f. To c, 20 of 30 come from a and 10 from b; to f all from b.
    assert set(found["origin"]["total_variation"].values()) == {0.25}
    expected = {"mean": 0.25, "median": 1 / 6, "upper_quartile": 1 / 6, "upper_decile": 0.5, "largest": 0.5}
    assert found["destination"]["total_variation"] == pytest.approx(expected)


def test_against_the_definition():
    release = anonymize(city_flows(), "twincut", k=5, hierarchy="h3")
    cells, n = release.cells, len(release.plan.destination_zones)
    whole = np.bincount(cells.destination, weights=cells.trips, minlength=n) / cells.trips.sum()
    distances = []
    for zone in np.unique(cells.origin):
        here = cells.origin == zone
        own = np.bincount(cells.destination[here], weights=cells.trips[here], minlength=n)
        distances.append((np.abs(own / own.sum() - whole).sum() / 2, own.sum()))
    found = closeness(release)["origin"]["total_variation"]
    assert found["largest"] == pytest.approx(max(distances)[0])
    assert found["largest"] > 0.1
    assert found["mean"] == pytest.approx(np.average(*np.array(distances).T[:1], weights=np.array(distances).T[1]))


def test_zones_that_overlap_have_none():
    assert closeness(anonymize(city_flows(), "atg-dual", k=5)) is None


@pytest.mark.usefixtures("small_surroundings")
@pytest.mark.parametrize(("k", "hierarchy"), [(20, "halves"), (20, "h3"), (40, "halves")])
def test_everything_may_be_a_zone_of_base_cells_that_are_far_apart(k, hierarchy, tmp_path):
    """Three towns in Spain and three around Moscow: one end has to be everything, with its centre and outline."""
    towns = [(40.4, -3.7), (39.5, -0.4), (41.4, 2.2), (55.7, 37.6), (56.3, 38.1), (54.5, 36.3)]
    pairs = [(a, b) for a in range(6) for b in range(6) for _ in range(1 if a > 2 and k > 20 else 5 + (a * b) % 7)]
    table = pa.table({name: [towns[p[n // 2]][n % 2] for p in pairs] for n, name in enumerate(ENDS)})
    flows = read_trips(table, resolution=5, within="-10,30,45,60")
    release = anonymize(flows, "oigh", k=k, max_suppressed=0.0, hierarchy=hierarchy)
    assert "all" in release.zones["zone"].to_pylist()
    release.write(tmp_path / "first")
    anonymize(flows, k=k, zones_of=tmp_path / "first").write(tmp_path / "second")
