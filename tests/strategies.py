"""Random trees and flows for property tests: ragged, with ties, chains and stars."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy


@st.composite
def hierarchies(draw, max_nodes: int = 14) -> Hierarchy:
    n = draw(st.integers(1, max_nodes))
    parent = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    names = draw(st.permutations([f"n{i:02d}" for i in range(n)]))
    tree, _ = Hierarchy.from_parents(parent, np.array(names))
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
    n = draw(st.integers(min_rows, max_rows))

    def column(strategy):
        return np.array(draw(st.lists(strategy, min_size=n, max_size=n)))

    trips = column(st.integers(1, 6)).astype(np.int64)
    with_weights = draw(st.booleans()) if weights is None else weights
    with_persons = draw(st.booleans()) if persons is None else persons
    return Flows.from_pairs(
        column(st.integers(0, origins.n_tiles - 1)).astype(np.int32),
        column(st.integers(0, destinations.n_tiles - 1)).astype(np.int32),
        trips,
        origins=origins,
        destinations=destinations,
        weight=column(st.floats(0, 5)) * trips if with_weights else None,
        person=column(st.integers(-1, 5)).astype(np.int32) if with_persons else None,
    )
