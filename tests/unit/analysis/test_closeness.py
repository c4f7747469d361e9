"""How far the destinations of a zone are from those of all.

By hand, by linear programme, and recounted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, read_trips
from flowveil.analysis import closeness as module
from flowveil.analysis.closeness import closeness
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from samples.releases import city_flows

ENDS = ("start_lat", "start_lon", "end_lat", "end_lon")


class Line:
    """Places on the equator, so that metres are easy."""

    def __init__(self, x):
        self.x = np.asarray(x, dtype=np.float64)

    def centers(self, nodes):
        return np.zeros(len(nodes)), self.x[nodes]


def test_by_hand():
    """Two tiles below each of two inner nodes.

    From a all trips go to c, from b half to c, half to f.
    """
    tree, node = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2], np.array(list("RXYcdef")))
    x = np.zeros(7)
    x[node] = [0, -3, 3, -4, -2, 2, 4]
    destinations = Hierarchy(tree.parent, tree.code, geography=Line(x), kind="table")
    origins, _ = Hierarchy.from_parents([-1, 0, 0], np.array(list("Qab")))
    flows = Flows.from_pairs(
        np.array([0, 1, 1]),
        np.array([0, 0, 3]),
        np.array([20, 10, 10]),
        origins=origins,
        destinations=destinations,
    )
    found = closeness(anonymize(flows, "suppression", k=5))["origin"]
    assert found.zones == ["a", "b"]
    # Everybody: 30 of 40 to c, 10 to f.
    assert found.total_variation.tolist() == [0.25, 0.25]
    degree = 111_319.49
    # A quarter goes from f (4) by Y (4), the middle of all (-2) and X (-4) to c (-4): 8 degrees.
    assert found.metres == pytest.approx([0.25 * 8 * degree] * 2, rel=1e-4)


def test_against_a_linear_programme():
    """Along the tree the distance is the optimum of the transport problem whose costs are the ways
    along the tree."""
    optimize = pytest.importorskip("scipy.optimize")
    release = anonymize(city_flows(), "twincut", k=5, hierarchy="h3")
    found = closeness(release)["origin"]
    assert found.total_variation.max() > 0.1
    zones = release.plan.destination_zones
    tree = zones.hierarchy
    cells, n = release.cells, len(zones)
    whole = np.bincount(cells.destination, weights=cells.trips, minlength=n) / cells.trips.sum()
    share = np.zeros(tree.n_nodes)
    share[zones.nodes] = whole
    length = module._lengths(zones, share)
    ways = []
    for node in zones.nodes.tolist():
        way = {}
        while tree.parent[node] >= 0:
            way[node] = length[node]
            node = int(tree.parent[node])
        ways.append(way)
    cost = np.array([[sum({**a, **b}[n] for n in a.keys() ^ b.keys()) for b in ways] for a in ways])
    used = np.unique(cells.origin)
    for zone, metres, variation in list(
        zip(used, found.metres, found.total_variation, strict=True)
    )[:5]:
        here = cells.origin == zone
        own = np.bincount(cells.destination[here], weights=cells.trips[here], minlength=n)
        own /= own.sum()
        assert variation == pytest.approx(np.abs(own - whole).sum() / 2)
        rows = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
        solved = optimize.linprog(
            cost.ravel(), A_eq=np.vstack(rows), b_eq=np.concatenate((own, whole))
        )
        assert metres == pytest.approx(solved.fun, rel=1e-6, abs=1e-6)


def test_zones_that_overlap_have_none():
    assert closeness(anonymize(city_flows(), "atg-dual", k=5)) is None


@pytest.mark.usefixtures("small_surroundings")
@pytest.mark.parametrize(("k", "hierarchy"), [(20, "halves"), (20, "h3"), (40, "halves")])
def test_everything_may_be_a_zone_of_base_cells_that_are_far_apart(k, hierarchy, tmp_path):
    """Three towns in Spain and three around Moscow.

    One end has to be everything, with its centre and outline.
    """
    towns = [(40.4, -3.7), (39.5, -0.4), (41.4, 2.2), (55.7, 37.6), (56.3, 38.1), (54.5, 36.3)]
    pairs = [
        (a, b)
        for a in range(6)
        for b in range(6)
        for _ in range(1 if a > 2 and k > 20 else 5 + (a * b) % 7)
    ]
    table = pa.table(
        {name: [towns[p[n // 2]][n % 2] for p in pairs] for n, name in enumerate(ENDS)}
    )
    flows = read_trips(table, resolution=5, within="-10,30,45,60")
    release = anonymize(flows, "oigh", k=k, max_suppressed=0.0, hierarchy=hierarchy)
    assert "all" in release.zones["zone"].to_pylist()
    release.write(tmp_path / "first")
    anonymize(flows, k=k, zones_of=tmp_path / "first").write(tmp_path / "second")
