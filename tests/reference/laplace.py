"""Discrete Laplace noise and bounded contributions, trip by trip and number by number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import cache

import numpy as np

from flowveil.core.flows import Flows
from reference.trees import leaf_nodes

DIGITS = 80


def chance(x: int, scale: float) -> float:
    """P(X = x)."""
    with localcontext(prec=DIGITS):
        q = (-1 / Decimal(scale)).exp()
        return float((1 - q) / (1 + q) * q ** abs(x))


@cache
def tail(least: int, scale: float) -> Decimal:
    """P(X >= least)."""
    with localcontext(prec=DIGITS):
        q = (-1 / Decimal(scale)).exp()
        if least >= 1:
            return q**least / (1 + q)
        return 1 - q ** (1 - least) / (1 + q)


def splits(trips: int, largest: int | None = None) -> Iterator[list[int]]:
    """All ways to spread trips over pairs, whichever these are."""
    if trips == 0:
        yield []
    for first in range(min(trips, largest or trips), 0, -1):
        for rest in splits(trips - first, first):
            yield [first, *rest]


def threshold(bound: int, scale: float, delta: float) -> int:
    """The smallest count to publish from, by trying every number and every split of up to ``bound``
    trips."""
    least = 1
    while True:
        with localcontext(prec=DIGITS):
            worst = max(
                sum((tail(least - c, scale) for c in split), Decimal(0))
                for trips in range(1, bound + 1)
                for split in splits(trips)
            )
            if worst <= Decimal(delta):
                return least
        least += 1


def bounded_counts(flows: Flows, bound: int | None) -> dict[tuple[str, str], int]:
    """The trips of each pair of tiles that are counted, by code.

    At most ``bound`` of each person, evenly spread.
    """
    names = [
        tree.code_text(np.array(leaf_nodes(tree))).tolist()
        for tree in (flows.origins, flows.destinations)
    ]
    pairs = [
        (names[0][o], names[1][d]) for o, d in zip(flows.origin, flows.destination, strict=True)
    ]
    counts: dict[tuple[str, str], int] = defaultdict(int)
    if bound is None:
        for pair, trips in zip(pairs, flows.trips.tolist(), strict=True):
            counts[pair] += trips
        return dict(counts)
    made: dict[int, list[tuple[str, str]]] = defaultdict(list)
    people = flows.people
    for flow, person, trips in zip(
        people.cell.tolist(), people.person.tolist(), people.trips.tolist(), strict=True
    ):
        made[person] += [pairs[flow]] * trips
    for trips in made.values():
        n = len(trips)
        for i, pair in enumerate(trips, start=1):
            kept = n <= bound or (i * bound + n // 2) // n > ((i - 1) * bound + n // 2) // n
            counts[pair] += kept
    return {pair: n for pair, n in counts.items() if n}


def distance(one: dict[tuple[str, str], int], other: dict[tuple[str, str], int]) -> int:
    """Sum of absolute differences over all pairs."""
    return sum(abs(one.get(pair, 0) - other.get(pair, 0)) for pair in set(one) | set(other))
