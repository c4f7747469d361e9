"""The promise of PrivTree's divisions, measured: how much likelier a tree is with a person than without.

Thousands of small worlds are divided at once, as in test_topdown_audit: each has four zones below two nodes. Six
trips use one pair of each world; in a second input one person makes two more, as many as the bound allows.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from flowveil.methods.discrete_laplace import DiscreteLaplace, system_bits
from flowveil.methods.noise_guarantee import NoiseGuarantee
from flowveil.methods.privtree import _Budget, divide_pairs
from flowveil.methods.public_tree import PublicTree
from reference.goodness import FALSE_ALARM

WORLDS = 20_000
BOUND = 2
EPSILON = 2.0


def worlds() -> PublicTree:
    """All worlds as one tree with many tops: first the worlds, then their halves, then the zones."""
    parent = [np.full(WORLDS, -1), np.arange(2 * WORLDS) // 2, WORLDS + np.arange(4 * WORLDS) // 2]
    first = [4 * np.arange(WORLDS), 2 * np.arange(2 * WORLDS), np.arange(4 * WORLDS)]
    size = np.repeat([4, 2, 1], [WORLDS, 2 * WORLDS, 4 * WORLDS])
    first_zone = np.concatenate(first)
    zones = np.arange(4 * WORLDS, dtype=np.int32)
    return PublicTree(
        None, np.concatenate(parent).astype(np.int32), first_zone, first_zone + size, zones, 3 * WORLDS + zones, size
    )


@pytest.fixture(autouse=True)
def each_world_alone(monkeypatch):
    """Each world begins with the pair of itself: pairs of different worlds would be many, and empty."""

    def top(_tree: PublicTree, from_: np.ndarray, _to: np.ndarray) -> tuple:
        world = np.arange(WORLDS, dtype=np.int32)
        return (world, world), from_ // 4

    monkeypatch.setattr(sys.modules["flowveil.methods.privtree"], "_top", top)


def depth_of_used_pair(person: bool, noise: _Budget) -> np.ndarray:
    """How often the pair of zones that is used was divided out of each world: from 0 to 4."""
    tree = worlds()
    used = 4 * np.arange(WORLDS, dtype=np.int32)
    leaves, leaf = divide_pairs(tree, noise, used, used + 1, np.full(WORLDS, 6 + 2 * person), system_bits)
    size = tree.stop - tree.first
    steps = {4: 0, 2: 1, 1: 2}
    return np.array([steps[a] + steps[b] for a, b in zip(
        size[leaves.origin[leaf]].tolist(), size[leaves.destination[leaf]].tolist(), strict=True)])  # fmt: skip


def broken(noise: _Budget, epsilon: float) -> list[str]:
    """The depths, alone or as least or most, that are surely likelier one way than exp(ε) times the other."""
    one, other = (depth_of_used_pair(person, noise) for person in (True, False))
    level, found = FALSE_ALARM / 60, []
    for depth in range(5):
        events = {"=": np.equal, "<=": np.less_equal, ">=": np.greater_equal}
        for sign, event in events.items():
            for x, y in ((one, other), (other, one)):
                a, b = int(event(x, depth).sum()), int(event(y, depth).sum())
                least = stats.beta.ppf(level, a, WORLDS - a + 1) if a else 0.0
                most = stats.beta.isf(level, b + 1, WORLDS - b) if b < WORLDS else 1.0
                if least > np.exp(epsilon) * most:
                    found.append(f"{sign} {depth}")
    return found


def spent_for(decay: float) -> _Budget:
    """All but a little of ε for the divisions, which alone are looked at."""
    promise = NoiseGuarantee("person", EPSILON, 0.0, BOUND)
    return _Budget.from_options(promise, "0.999,0.001", decay, 0)


def test_divisions_keep_the_promise():
    assert broken(spent_for(8.0), EPSILON) == []
    # The audit is sharp enough to see that a third of it would not do.
    assert broken(spent_for(8.0), EPSILON / 3) != []


def test_noise_for_one_decision_on_many_is_found():
    distribution = DiscreteLaplace(Fraction(BOUND) / Fraction(EPSILON))
    assert ">= 3" in broken(_Budget(distribution, distribution, 1, 6, ()), EPSILON)
