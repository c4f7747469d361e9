"""Random trees and flows for property tests: ragged, with ties, chains and stars.

Hypothesis draws sizes and shapes, which is what it shrinks; the numbers within come from a
generator whose seed it draws. Drawing each number on its own took most of the time of the tests.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy

#: Generators of numbers, one for each seed.
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def weights_of(rng: np.random.Generator, n: int) -> np.ndarray:
    """Weights of n trips up to 5, with ties and zeros.

    Whole 64ths: these are whole millionths too, and their sums are exact also where a test adds up
    floats.
    """
    few = rng.random() < 0.3
    return (rng.choice((0, 0, 1, 32, 64, 160, 320), n) if few else rng.integers(0, 321, n)) / 64


@st.composite
def hierarchies(draw, max_nodes: int = 14) -> Hierarchy:
    n, rng = draw(st.integers(1, max_nodes)), draw(generators)
    # Parents among the last few nodes make chains, among the first few stars; a reach of all nodes
    # makes neither.
    reach, wide = draw(st.integers(1, n)), draw(st.booleans())
    picked = [int(rng.integers(0, min(i, reach))) for i in range(1, n)]
    parent = [-1] + [p if wide else i - p for i, p in enumerate(picked)]
    tree, _ = Hierarchy.from_parents(parent, rng.permutation([f"n{i:02d}" for i in range(n)]))
    return tree


@st.composite
def flow_tables(
    draw,
    *,
    max_nodes: int = 14,
    max_rows: int = 25,
    min_rows: int = 1,
    weights: bool | None = None,
    persons: bool | None = None,
) -> Flows:
    origins, destinations = draw(hierarchies(max_nodes)), draw(hierarchies(max_nodes))
    n, rng = draw(st.integers(min_rows, max_rows)), draw(generators)
    trips = rng.integers(1, 7, n)
    with_weights = draw(st.booleans()) if weights is None else weights
    with_persons = draw(st.booleans()) if persons is None else persons
    return Flows.from_pairs(
        rng.integers(0, origins.n_tiles, n),
        rng.integers(0, destinations.n_tiles, n),
        trips,
        origins=origins,
        destinations=destinations,
        weight=weights_of(rng, n) * trips if with_weights else None,
        person=rng.integers(-1, 6, n) if with_persons else None,
    )
