"""The search for safe pairs: the results of a depth do not depend on the order of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from flowveil.engines import read_trips
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import safe_pairs
from flowveil.methods.safe_pairs import Level, sketch


@pytest.fixture(scope="module")
def flows() -> Flows:
    """Persons who set out from several tiles each, to few places: together at many depths, and enough above them."""
    rng = np.random.default_rng(3)
    person = rng.integers(0, 500, 12_000)
    start = (rng.normal(0, 0.03, (500, 2)))[person] + rng.normal(0, 0.002, (12_000, 2))
    stop = rng.integers(0, 3, 12_000) * 0.02
    columns = {"o_lat": 48.8 + start[:, 0], "o_lon": 2.3 + start[:, 1], "d_lat": 48.8 + stop, "d_lon": 2.3 + stop}
    return read_trips(pa.table({**columns, "id": person}), resolution=9, person="id")


def told(levels: list[Level]) -> list[tuple[int, list[int], list[int]]]:
    return [(level.depth, level.start.tolist(), level.stop.tolist()) for level in levels]


def test_a_depth_that_is_looked_at_late_finds_the_same(flows: Flows) -> None:
    """Depths above it have dropped persons whom they need not distinguish. Here they must be distinct."""
    guarantee = Guarantee(k=10, people=10)
    origins = sketch(flows.origins, flows.origin, flows, guarantee)
    destinations = sketch(flows.destinations, flows.destination, flows, guarantee)

    def walks() -> Iterator[Callable[[], list[Level]]]:
        walk = safe_pairs._Walk(flows, guarantee, destinations)
        return safe_pairs._depths(walk, origins, np.arange(len(flows)), None)

    in_turn = [told(depth()) for depth in walks()]
    for late in range(len(in_turn)):
        waiting = None
        for number, depth in enumerate(walks()):
            if number == late:
                waiting = depth
            else:
                assert told(depth()) == in_turn[number]
        assert waiting is not None
        assert told(waiting()) == in_turn[late]
