"""The promise itself, measured: how much likelier a release is with a person than without.

One release holds thousands of small worlds. Each has a pair of zones that ten people use and a pair
that is never used; in a second input, one more person uses both, forty times each, far more than
the bound allows. Worlds share neither pairs nor people, so one release runs the real mechanism once
in each world. Whatever an attacker looks for may be at most exp(ε) times as frequent with that
person as without, plus δ, and the other way round.

A right mechanism fails here once in ten thousand million runs. That a wrong one fails is tested as
well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from flowveil import Flows, Hierarchy, anonymize, anonymize_slices
from reference.goodness import FALSE_ALARM
from reference.privacy_audit import certified_epsilon

SIDE = 200
WORLDS = SIDE * SIDE // 2
BOUND = 2
OFTEN = 40

Worlds = tuple[np.ndarray, np.ndarray]


def star(n: int) -> Hierarchy:
    return Hierarchy.from_parents(
        [-1] + [0] * n, np.array(["all", *(f"t{i:04d}" for i in range(n))])
    )[0]


TREE = star(SIDE)


def flows_with(person: bool, *, as_many: bool = False) -> Flows:
    """All worlds, with the one more person in each or without.

    ``as_many``: counted as if each trip were another's.
    """
    world = np.arange(WORLDS)
    used, unused = 2 * world, 2 * world + 1
    pair = [np.repeat(used, 10)]
    trips = [np.full(10 * WORLDS, 2)]
    who = [np.arange(10 * WORLDS)]
    if person:
        times = OFTEN if as_many else 1
        pair += [np.repeat(used, times), np.repeat(unused, times)]
        trips += [np.full(times * WORLDS, OFTEN // times)] * 2
        first = 10 * WORLDS
        number = np.arange(2 * times * WORLDS) if as_many else np.tile(world, 2)
        who.append(first + number)
    o, d = np.divmod(np.concatenate(pair), SIDE)
    return Flows.from_pairs(
        o, d, np.concatenate(trips), origins=TREE, destinations=TREE, person=np.concatenate(who)
    )  # fmt: skip


def released(flows: Flows, **options) -> Worlds:
    """What is published of the used and of the unused pair of each world.

    Zero where a pair is not listed.
    """
    matrix = matrix_of(anonymize(flows, "laplace", bound=BOUND, **options))
    return matrix[::2], matrix[1::2]


def matrix_of(release) -> np.ndarray:
    """The published trips of all pairs of zones."""
    zones = [
        z.codes(np.arange(len(z), dtype=np.int32))
        for z in (release.plan.origin_zones, release.plan.destination_zones)
    ]
    place = [np.searchsorted(TREE.code[TREE.leaf_node], z) for z in zones]
    matrix = np.zeros((SIDE, SIDE), dtype=np.int64)
    matrix[place[0][release.cells.origin], place[1][release.cells.destination]] = (
        release.cells.trips
    )
    return matrix.ravel()


#: What an attacker may look for in the used and the unused pair of a world. Without noise they have
#: 20 trips and none.
EVENTS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "the used pair is large": lambda used, _: used >= 21,
    "the used pair is small": lambda used, _: used <= 20,
    "the unused pair is listed": lambda _, unused: unused >= 1,
    "the unused pair is large": lambda _, unused: unused >= 4,
    "the unused pair is not listed": lambda _, unused: unused == 0,
    "both are large": lambda used, unused: (used >= 21) & (unused >= 1),
    "neither is": lambda used, unused: (used <= 20) & (unused == 0),
}


def measured(one: Worlds, other: Worlds, delta: float = 0.0) -> tuple[float, str]:
    with_person, without = (
        {name: event(*worlds) for name, event in EVENTS.items()} for worlds in (one, other)
    )
    return certified_epsilon(with_person, without, delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_all_pairs(epsilon):
    runs = [
        released(flows_with(person), epsilon=epsilon, region="observed") for person in (True, False)
    ]
    # Sharp enough to see half of the loss.
    assert epsilon / 2 < measured(*runs)[0] <= epsilon


def released_in_slices(person: bool, epsilon: float) -> Worlds:
    """The person uses the used pair of each world in one slice and the unused one in another."""
    whole = flows_with(person)
    parts = []
    for odd in (0, 1):
        cell, who, trips = whole.people.cell, whole.people.person, whole.people.trips
        pair = whole.origin[cell] * SIDE + whole.destination[cell]
        own = pair % 2 == odd
        o, d = np.divmod(pair[own], SIDE)
        parts.append(
            Flows.from_pairs(o, d, trips[own], origins=TREE, destinations=TREE, person=who[own])
        )
    sliced = Flows.from_slices(("mode",), (("a",), ("b",)), tuple(parts))
    release = anonymize_slices(
        sliced, "laplace", values={"mode": ["a", "b"]}, bound=BOUND, region="observed",
        epsilon=epsilon,
    )  # fmt: skip
    used, unused = (matrix_of(release[key]) for key in ("a", "b"))
    return used[::2], unused[1::2]


def test_all_slices_together():
    epsilon = 1.5
    runs = [released_in_slices(person, epsilon) for person in (True, False)]
    assert epsilon / 2 < measured(*runs)[0] <= epsilon


def test_noise_of_a_scale_divided_by_one_and_a_half_is_noticed():
    epsilon = 1.5
    runs = [
        released(flows_with(person), epsilon=1.5 * epsilon, region="observed")
        for person in (True, False)
    ]
    assert measured(*runs)[0] > epsilon


def test_from_a_threshold():
    epsilon, delta = 1.0, 0.01
    with_person, without = (
        released(flows_with(p), epsilon=epsilon, delta=delta) for p in (True, False)
    )
    assert measured(with_person, without, delta)[0] <= epsilon
    # A pair of that person alone shows with probability δ at most.
    shown = int((with_person[1] > 0).sum())
    assert stats.binomtest(shown, WORLDS, delta, alternative="greater").pvalue > FALSE_ALARM
    assert shown > 0
    assert not (without[1] > 0).any()


def test_a_person_who_is_not_bounded_is_noticed():
    with_person = released(flows_with(True, as_many=True), epsilon=1.0, region="observed")
    without = released(flows_with(False), epsilon=1.0, region="observed")
    assert measured(with_person, without)[0] > 1.0
