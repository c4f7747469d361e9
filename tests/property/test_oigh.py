"""The searched OIGH gives the levels and zones of the exhaustive one, and its schedule those of the
walk upwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.oigh import AxisLevels, Lattice, oigh
from flowveil.publishing.anonymization import anonymize
from reference.oigh import cuts as slow_cuts
from reference.oigh import oigh as slow_oigh
from samples.strategies import generators, hierarchies


@st.composite
def uniform_trees(draw, max_tiles: int = 10) -> Hierarchy:
    """Trees whose tiles are all equally deep, only children and chains among them."""
    parent, layer = [-1], [0]
    for _ in range(draw(st.integers(0, 4))):
        grown = []
        for node in layer:
            for _ in range(draw(st.integers(1, 3)) if len(grown) < max_tiles else 1):
                parent.append(node)
                grown.append(len(parent) - 1)
        layer = grown
    names = draw(generators).permutation([f"n{i:02d}" for i in range(len(parent))])
    return Hierarchy.from_parents(parent, names)[0]


@st.composite
def dendrograms(draw, max_tiles: int = 9) -> Hierarchy:
    """Binary trees as hierarchical clustering makes them.

    One merge of two clusters after another.
    """
    n, rng = draw(st.integers(1, max_tiles)), draw(generators)
    parent, clusters = [-1] * n, list(range(n))
    while len(clusters) > 1:
        for _ in range(2):
            chosen = clusters.pop(int(rng.integers(0, len(clusters))))
            parent[chosen] = len(parent)
        clusters.append(len(parent))
        parent.append(-1)
    return Hierarchy.from_parents(parent, np.array([f"n{i:02d}" for i in range(len(parent))]))[0]


trees = st.one_of(hierarchies(), uniform_trees(), dendrograms())


@st.composite
def problems(draw) -> tuple[Flows, Guarantee]:
    """Few trips on few tiles, so that thresholds are met half-way up, with every unit and every
    combination."""
    origins, destinations = draw(trees), draw(trees)
    n, rng = draw(st.integers(1, 25)), draw(generators)
    trips = rng.integers(1, 7, n)
    units = draw(
        st.lists(st.sampled_from(["trips", "people", "population"]), min_size=1, unique=True)
    )
    flows = Flows.from_pairs(
        rng.integers(0, origins.n_tiles, n),
        rng.integers(0, destinations.n_tiles, n),
        trips,
        origins=origins,
        destinations=destinations,
        weight=rng.uniform(0.125, 5, n) * trips if "population" in units else None,
        person=rng.integers(-1, 9, n) if "people" in units else None,
    )
    guarantee = Guarantee.resolve(
        flows,
        k=draw(st.integers(1, 12)),
        protect=units,
        k_population=draw(st.sampled_from([None, 0.5, 12.5])) if "population" in units else None,
        l=draw(st.sampled_from([None, None, None, 1, 2])),
    )
    return guarantee.to_fixed_point(guarantee.prepare(flows))


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from([0.0, 0.1, 0.3]))
def test_same_levels_and_zones_as_the_exhaustive_search(problem, max_suppressed):
    flows, guarantee = problem
    want, levels = slow_oigh(flows, guarantee, max_suppressed=max_suppressed)
    plan = oigh(flows, guarantee, max_suppressed=max_suppressed)
    event("at the tiles" if sum(levels) == 0 else "nothing published" if not want else "half-way")
    origin = plan.origin_zones.nodes[plan.origin_zone]
    destination = plan.destination_zones.nodes[plan.destination_zone]
    got = {int(f): (int(origin[f]), int(destination[f])) for f in np.flatnonzero(plan.kept)}
    assert (plan.notes["origin_levels_up"], plan.notes["destination_levels_up"]) == levels
    assert got == want


@settings(max_examples=40, deadline=None)
@given(trees)
def test_same_cuts_as_going_up_level_by_level(tree):
    levels = AxisLevels.from_tree(tree)
    want = slow_cuts(tree)
    assert levels.top == len(want) - 1
    for up, zone_of_tile in enumerate(want):
        cut = levels.cut(up)
        tree.check_cut(cut)
        assert cut[tree.zone_of_tile(cut)].tolist() == zone_of_tile


def test_the_worked_example_of_a_ragged_tree():
    """The page's example: pairs first, then the node of three, then the root.

    The lone tile waits all along.
    """
    #          root
    #      abc       d  (a tile)
    #    ab   c
    #   a  b
    names = ["root", "abc", "ab", "a", "b", "c", "d"]
    tree, _ = Hierarchy.from_parents([-1, 0, 1, 2, 2, 1, 0], np.array(names))
    levels = AxisLevels.from_tree(tree)
    zones = [{str(z) for z in tree.code_text(levels.cut(up))} for up in range(levels.top + 1)]
    assert zones == [{"a", "b", "c", "d"}, {"ab", "c", "d"}, {"abc", "d"}, {"root"}]


def test_a_lattice_of_many_levels_needs_few_counts(monkeypatch):
    """On a caterpillar every level merges one tile.

    The lattice has a million points, few of them are counted.
    """
    n = 1000
    chain = np.arange(-1, n - 2)
    parent = np.concatenate((chain, np.arange(n - 1), [n - 2]))
    tree, _ = Hierarchy.from_parents(parent, np.array([f"n{i:04d}" for i in range(len(parent))]))
    levels = AxisLevels.from_tree(tree)
    assert levels.top == n - 1
    rng = np.random.default_rng(5)
    rows = 3000
    flows = Flows.from_pairs(
        rng.integers(0, n, rows), rng.integers(0, n, rows), origins=tree, destinations=tree
    )
    calls = []
    average = Lattice.average
    monkeypatch.setattr(Lattice, "average", lambda self, *a: calls.append(a) or average(self, *a))
    plan = oigh(flows, Guarantee.resolve(flows, k=10), max_suppressed=0.1)
    assert plan.kept.any()
    assert len(calls) <= 2 * levels.top


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_no_share_is_refused(share):
    tree, _ = Hierarchy.from_parents([-1], np.array(["tile"]))
    flows = Flows.from_pairs(np.array([0]), np.array([0]), origins=tree, destinations=tree)
    with pytest.raises(ParameterError, match="max_suppressed"):
        anonymize(flows, "oigh", k=1, max_suppressed=share)
