"""The promise of TopDown, measured: how much likelier a release is with a person than without.

Thousands of small worlds are walked down at once: each is a tree of its own with four zones below two nodes, and
begins with its own whole. Ten people use one pair of each world; in a second input one more person uses that pair and
another one that nobody uses, as often as the bound allows. Worlds share no draws, so one run is the real mechanism once
in each world. See test_laplace_audit for how frequencies are compared; a right mechanism fails once in ten thousand
million runs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy import stats

from flowveil.flows import Cells
from flowveil.methods.discrete_gaussian import DiscreteGaussian
from flowveil.methods.discrete_laplace import DiscreteLaplace, system_bits
from flowveil.methods.epsilon import largest_rho
from flowveil.methods.levels import Level
from flowveil.methods.topdown import NoiseDistribution, noisy_children, noisy_roots
from reference.goodness import FALSE_ALARM

WORLDS = 20_000
BOUND = 2
#: Zones 0 and 1 of a world lie below one node, 2 and 3 below the other.
USED, UNUSED = (0, 1), (2, 2)


def steps() -> list[Level]:
    world = np.repeat(np.arange(WORLDS, dtype=np.int32), 4)
    half = np.repeat(np.arange(2 * WORLDS, dtype=np.int32), 2)
    zone = np.arange(4 * WORLDS, dtype=np.int32)
    none = np.zeros(0, np.int32)
    halves = Level("0", half, np.arange(2 * WORLDS, dtype=np.int32) // 2, 2 * WORLDS)
    return [Level("all", world, none, WORLDS), halves, Level("1", zone, zone // 2, 4 * WORLDS)]


def walked(person: bool, distributions: list[NoiseDistribution]) -> dict[str, np.ndarray]:
    """What is published of each world: the used pair, the unused one, and the whole."""
    world = np.arange(WORLDS, dtype=np.int32)
    pairs = [(*USED, 20 + person), *([(*UNUSED, 1)] if person else [])]
    table = Cells(
        np.concatenate([4 * world + o for o, _, _ in pairs]),
        np.concatenate([4 * world + d for _, d, _ in pairs]),
        np.concatenate([np.full(WORLDS, n, np.int64) for _, _, n in pairs]),
    )
    levels = steps()
    cells = noisy_roots(Cells(world, world, np.full(WORLDS, 20 + 2 * person, np.int64)), distributions[0], system_bits)
    for step, distribution in zip(levels[1:], distributions[1:], strict=True):
        cells = noisy_children(cells, table, step, distribution, system_bits)
    o, d = cells.origin % 4, cells.destination % 4
    assert np.array_equal(cells.origin // 4, cells.destination // 4)
    out = {}
    for name, (a, b) in {"used": USED, "unused": UNUSED}.items():
        chosen = (o == a) & (d == b)
        out[name] = np.bincount(cells.origin[chosen] // 4, cells.trips[chosen], WORLDS)
    out["whole"] = np.bincount(cells.origin // 4, cells.trips, WORLDS)
    return out


#: What an attacker may look for. Without noise the whole and the used pair have 20 trips, and the unused one none.
EVENTS: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    "the whole is large": lambda w: w["whole"] >= 22,
    "the whole is small": lambda w: w["whole"] <= 20,
    "the used pair is large": lambda w: w["used"] >= 21,
    "the unused pair is listed": lambda w: w["unused"] >= 1,
    "the unused pair is not listed": lambda w: w["unused"] == 0,
    "nothing is listed": lambda w: w["whole"] == 0,
    "all are large": lambda w: (w["whole"] >= 22) & (w["unused"] >= 1) & (w["used"] >= 20),
    "none is": lambda w: (w["whole"] <= 20) & (w["unused"] == 0) & (w["used"] <= 20),
}


def broken(one: dict[str, np.ndarray], other: dict[str, np.ndarray], epsilon: float, delta: float) -> list[str]:
    """The events that are surely more frequent in one than exp(ε) times their frequency in the other, plus δ."""
    level = FALSE_ALARM / (4 * len(EVENTS))
    found = []
    for name, event in EVENTS.items():
        a, b = int(event(one).sum()), int(event(other).sum())
        least = stats.beta.ppf(level, a, WORLDS - a + 1) if a else 0.0
        most = stats.beta.isf(level, b + 1, WORLDS - b) if b < WORLDS else 1.0
        if least > np.exp(epsilon) * most + delta:
            found.append(name)
    return found


def both_ways(distributions: list[NoiseDistribution], epsilon: float, delta: float = 0.0) -> list[str]:
    with_person, without = (walked(person, distributions) for person in (True, False))
    return broken(with_person, without, epsilon, delta) + broken(without, with_person, epsilon, delta)


SHARES = [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]


def test_the_steps_together_keep_the_promise():
    assert both_ways([DiscreteLaplace(BOUND / (3 * share)) for share in SHARES], 3.0) == []


def test_so_do_steps_of_gaussian_noise():
    rho = largest_rho(3.0, 0.01)
    distributions = [DiscreteGaussian(BOUND**2 / (2 * share * rho)) for share in SHARES]
    assert both_ways(distributions, 3.0, 0.01) == []
    # The audit is sharp enough to see that a tenth of it would not do.
    assert both_ways(distributions, 0.3, 0.01) != []


def test_a_budget_that_is_spent_anew_on_every_step_is_found():
    assert "all are large" in both_ways([DiscreteLaplace(Fraction(BOUND))] * 3, 1.0)
