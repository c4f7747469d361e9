"""The promise of TopDown, measured: how much likelier a release is with a person than without.

Thousands of small worlds are processed together: each is a tree with four zones below two nodes,
and begins with its own whole. Ten people use one pair of each world; in a second input one more
person uses that pair and another one that no one uses, as often as the bound allows. Worlds share
no draws, so one run is the real mechanism once in each world. The noisy counts of all levels are
looked at, before children are fitted to their parents: that is post-processing, which only
conceals. The event that all are large attains ε.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from flowveil.core.flows import Cells
from flowveil.methods.discrete_noise import DiscreteLaplace, system_bits
from flowveil.methods.noise_guarantee import NoiseGuarantee
from flowveil.methods.public_domain import Level
from flowveil.methods.topdown import (
    NoiseDistribution,
    _noise_of_levels,
    noisy_children,
    noisy_roots,
)
from reference.privacy_audit import certified_epsilon

WORLDS = 60_000
BOUND = 2
#: Zones 0 and 1 of a world lie below one node, 2 and 3 below the other.
USED, UNUSED = (0, 1), (2, 2)


@pytest.fixture(autouse=True)
def raw_counts(monkeypatch):
    """Returns noisy counts without the correction."""
    monkeypatch.setattr(
        sys.modules["flowveil.methods.topdown"],
        "fit_to_totals",
        lambda noisy, _family, _totals: noisy,
    )


def steps() -> list[Level]:
    world = np.repeat(np.arange(WORLDS, dtype=np.int32), 4)
    half = np.repeat(np.arange(2 * WORLDS, dtype=np.int32), 2)
    zone = np.arange(4 * WORLDS, dtype=np.int32)
    none = np.zeros(0, np.int32)
    halves = Level("0", half, np.arange(2 * WORLDS, dtype=np.int32) // 2, 2 * WORLDS)
    return [Level("all", world, none, WORLDS), halves, Level("1", zone, zone // 2, 4 * WORLDS)]


def walked(person: bool, distributions: list[NoiseDistribution]) -> dict[str, np.ndarray]:
    """The noisy counts of each world: of the whole, of pairs of halves, of pairs of zones."""
    world = np.arange(WORLDS, dtype=np.int32)
    pairs = [(*USED, 20 + person), *([(*UNUSED, 1)] if person else [])]
    table = Cells(
        np.concatenate([4 * world + o for o, _, _ in pairs]),
        np.concatenate([4 * world + d for _, d, _ in pairs]),
        np.concatenate([np.full(WORLDS, n, np.int64) for _, _, n in pairs]),
    )
    levels = steps()
    cells = noisy_roots(
        Cells(world, world, np.full(WORLDS, 20 + 2 * person, np.int64)),
        distributions[0],
        system_bits,
    )
    out = {"whole": _counts(cells, 1, 0, 0)}
    cells = noisy_children(cells, table, levels[1], distributions[1], system_bits)
    out |= {"used half": _counts(cells, 2, 0, 0), "unused half": _counts(cells, 2, 1, 1)}
    cells = noisy_children(cells, table, levels[2], distributions[2], system_bits)
    return out | {"used": _counts(cells, 4, *USED), "unused": _counts(cells, 4, *UNUSED)}


def _counts(cells: Cells, n_nodes: int, origin: int, destination: int) -> np.ndarray:
    """The noisy count of one pair of nodes in each world; 0 where it is not listed."""
    assert np.array_equal(cells.origin // n_nodes, cells.destination // n_nodes)
    chosen = (cells.origin % n_nodes == origin) & (cells.destination % n_nodes == destination)
    return np.bincount(cells.origin[chosen] // n_nodes, cells.trips[chosen], WORLDS)


#: What an attacker may look for. Without noise the whole and the used pairs have 20 trips, and the
#: unused ones none.
EVENTS: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    "the whole is large": lambda w: w["whole"] >= 22,
    "the whole is small": lambda w: w["whole"] <= 20,
    "the used pair is large": lambda w: w["used"] >= 21,
    "the unused pair is listed": lambda w: w["unused"] >= 1,
    "the unused pair is not listed": lambda w: w["unused"] == 0,
    "all are large": lambda w: (
        (w["whole"] >= 22)
        & (w["used half"] >= 21)
        & (w["unused half"] >= 1)
        & (w["used"] >= 21)
        & (w["unused"] >= 1)
    ),
    "none is": lambda w: (w["whole"] <= 20) & (w["unused"] == 0) & (w["used"] <= 20),
}


def measured(distributions: list[NoiseDistribution], delta: float = 0.0) -> tuple[float, str]:
    runs = [walked(person, distributions) for person in (True, False)]
    with_person, without = ({name: event(run) for name, event in EVENTS.items()} for run in runs)
    return certified_epsilon(with_person, without, delta)


EPSILON = 3
SHARES = [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]


def levels_of(epsilon: float, delta: float = 0.0) -> list[NoiseDistribution]:
    guarantee = NoiseGuarantee("person", epsilon, delta, BOUND)
    return _noise_of_levels(guarantee, steps(), SHARES)[0]


def test_the_steps_together_keep_the_promise():
    assert measured(levels_of(EPSILON))[0] <= EPSILON


def test_noise_of_a_scale_divided_by_one_and_a_half_is_noticed():
    epsilon, event = measured(levels_of(1.5 * EPSILON))
    assert epsilon > EPSILON
    assert event == "all are large"


def test_so_do_steps_of_gaussian_noise():
    # The measurement is sharp enough to see a tenth of the loss.
    assert 0.3 < measured(levels_of(EPSILON, 0.01), 0.01)[0] <= EPSILON


def test_a_budget_that_is_spent_again_on_every_step_is_noticed():
    assert measured([DiscreteLaplace(Fraction(BOUND))] * 3)[0] > 1
