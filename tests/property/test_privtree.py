"""PrivTree without noise against a recursion over pairs of nodes, and the proof of its promise in
numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import Flows, Hierarchy, anonymize
from flowveil.methods import epsilon as limits
from flowveil.methods.privtree import decay_step
from samples.strategies import hierarchies

SILENT = 200.0


def recursion(flows: Flows, tree: Hierarchy, above: int) -> dict[tuple[str, str], int]:
    """The pairs with trips that are not divided any more.

    Each division lowers counts by one, as little as there is.
    """
    codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    below = {
        v: [w for w in range(tree.n_nodes) if tree.parent[w] == v] for v in range(tree.n_nodes)
    }

    def finest(v: int) -> int:
        return finest(below[v][0]) if len(below[v]) == 1 else v

    table = np.zeros((tree.n_tiles, tree.n_tiles), dtype=int)
    table[flows.origin, flows.destination] = flows.trips

    def tiles(v: int) -> slice:
        return slice(int(tree.leaf_start[v]), int(tree.leaf_stop[v]))

    def width(v: int) -> int:
        return tiles(v).stop - tiles(v).start

    def divided(o: int, d: int, depth: int) -> dict[tuple[str, str], int]:
        n = int(table[tiles(o), tiles(d)].sum())
        if not (below[o] or below[d]) or max(n - depth, above - 1) <= above:
            return {(codes[o], codes[d]): n} if n else {}
        at_origin = bool(below[o]) and (width(o) >= width(d) or not below[d])
        pairs = (
            [(finest(w), d) for w in below[o]] if at_origin else [(o, finest(w)) for w in below[d]]
        )
        return {pair: n for p in pairs for pair, n in divided(*p, depth + 1).items()}

    return divided(finest(0), finest(0), 0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_without_noise_pairs_are_divided_while_their_lowered_count_is_above_the_threshold(data):
    tree = data.draw(hierarchies(max_nodes=9))
    above = data.draw(st.integers(0, 3))
    n = data.draw(st.integers(1, 12))
    places = [
        data.draw(st.lists(st.integers(0, tree.n_tiles - 1), min_size=n, max_size=n))
        for _ in range(2)
    ]
    flows = Flows.from_pairs(*places, origins=tree, destinations=tree, whole_map=tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LARGEST_EPSILON", math.inf)
        patch.setattr(limits, "WEAK_EPSILON", math.inf)
        release = anonymize(flows, "privtree", epsilon=SILENT, divide_above=above)
    rows = {
        (row["origin_zone"], row["destination_zone"]): row["trips"]
        for row in release.flows.to_pylist()
    }
    assert rows == recursion(flows, tree, above)
    assert np.array_equal(
        np.bincount(release.cell_of_flow, weights=flows.trips, minlength=len(rows)),
        release.cells.trips,
    )


@pytest.mark.parametrize("decay", [1.5, 8.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("above", [0, 5])
def test_no_way_through_the_tree_costs_more_than_promised(decay, epsilon, above):
    """One trip more along a way of 200 divisions, from every count at which the last of them can
    be, exactly."""
    b = Fraction(decay)
    scale = (2 * b - 1) / ((b - 1) * Fraction(epsilon))
    lowered = decay_step(scale, decay)
    q = math.exp(-1 / scale)
    assert math.exp(-lowered / scale) <= 1 / decay * (1 + 1e-12)

    def divides(x: np.ndarray) -> np.ndarray:
        """P(x + X > above)."""
        m = (above + 1 - np.maximum(x, above - lowered)).astype(float)
        return np.where(
            m >= 1, q ** np.maximum(m, 1) / (1 + q), 1 - q ** np.maximum(1 - m, 1) / (1 + q)
        )

    for last in range(above - 3 * lowered, above + lowered + 1):
        x = last + lowered * np.arange(200)
        cost = np.log(divides(x + 1) / divides(x))
        stays = np.log((1 - divides(x[:1])) / (1 - divides(x[:1] + 1)))
        assert cost.sum() <= epsilon * (1 + 1e-9)
        assert float(stays[0]) <= epsilon
