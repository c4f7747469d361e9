"""The promise of PrivTree's divisions, measured.

How much likelier a tree is with a person than without.

Many small worlds are divided at once, as in test_topdown_audit: each has four zones below two
nodes. Two trips use one pair of each world; in a second input one person makes one more, as many as
the bound allows. With these numbers the event that the pair is divided four times attains 4.31 of ε
= 4.5.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest

from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.discrete_noise import DiscreteLaplace, system_bits
from flowveil.methods.noise_guarantee import NoiseGuarantee
from flowveil.methods.privtree import _Budget, divide_pairs
from flowveil.methods.public_domain import PublicTree
from flowveil.release.plan import NodeZones
from reference.privacy_audit import certified_epsilon

WORLDS = 200_000
#: Nodes of a world.
NODES = 7
BOUND, TRIPS = 1, 2
EPSILON = 3.0


def worlds() -> PublicTree:
    """All worlds below one root: each a node with two halves, and two zones below each half."""
    world = 1 + NODES * np.arange(WORLDS)
    # A world, its first half with two zones, and its second half with two zones.
    parent = np.column_stack(
        (np.zeros(WORLDS, int), *(world + at for at in (0, 1, 1, 0, 4, 4)))
    ).ravel()
    tree = Hierarchy(np.append(-1, parent), np.arange(1 + len(parent), dtype=np.uint64))
    return PublicTree(
        tree, NodeZones(tree, np.arange(tree.n_nodes, dtype=np.int32)), tree.leaf_node, world
    )


@pytest.fixture(autouse=True)
def each_world_alone(monkeypatch):
    """Each world begins with the pair of itself.

    Pairs of different worlds would be many, and empty.
    """

    def top(_tree: PublicTree, from_: np.ndarray, _to: np.ndarray) -> tuple:
        world = 1 + NODES * np.arange(WORLDS, dtype=np.int32)
        return (world, world), from_ // 4

    monkeypatch.setattr(sys.modules["flowveil.methods.privtree"], "_top", top)


def events(person: bool, noise: _Budget) -> dict[str, np.ndarray]:
    """How often the used pair was divided out of each world, from 0 to 4.

    Exactly, at most, at least.
    """
    tree = worlds()
    used = 4 * np.arange(WORLDS, dtype=np.int32)
    leaves, leaf = divide_pairs(
        tree, noise, used, used + 1, np.full(WORLDS, TRIPS + BOUND * person), system_bits
    )
    size = tree.tree.size
    halvings = 4 - np.log2(size[leaves.origin[leaf]] * size[leaves.destination[leaf]]).astype(int)
    signs = {"=": np.equal, "<=": np.less_equal, ">=": np.greater_equal}
    return {
        f"{sign} {depth}": event(halvings, depth)
        for sign, event in signs.items()
        for depth in range(5)
    }


def budget(epsilon: float) -> _Budget:
    """All but a little of ε for the divisions, which alone are looked at."""
    return _Budget.from_options(
        NoiseGuarantee("person", epsilon, 0.0, BOUND), "0.999,0.001", 8.0, 0
    )


def measured(noise: _Budget) -> float:
    return certified_epsilon(events(True, noise), events(False, noise))[0]


@pytest.mark.slow
def test_divisions_keep_the_promise():
    assert measured(budget(EPSILON)) <= EPSILON


@pytest.mark.slow
def test_noise_of_a_scale_divided_by_one_and_a_half_is_noticed():
    assert measured(budget(1.5 * EPSILON)) > EPSILON


@pytest.mark.slow
def test_noise_for_one_decision_on_many_is_noticed():
    distribution = DiscreteLaplace(Fraction(BOUND) / Fraction(EPSILON))
    assert measured(_Budget(distribution, distribution, 1, TRIPS, ())) > EPSILON
