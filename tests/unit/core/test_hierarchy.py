"""The flat-array tree: invariants, sums, cuts, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import HierarchyError
from flowveil.core.hierarchy import Hierarchy
from reference.trees import ancestors, children, leaf_nodes, tiles_below
from samples.strategies import hierarchies


@settings(max_examples=40, deadline=None)
@given(hierarchies(max_nodes=20))
def test_invariants(tree):
    n = tree.n_nodes
    assert tree.parent[0] == -1
    assert np.all(tree.parent[1:] < np.arange(1, n))
    leaves = leaf_nodes(tree)
    assert tree.leaf_node.tolist() == leaves
    assert tree.n_tiles == len(leaves)
    for v in range(n):
        below = {u for u in range(n) if v in ancestors(tree, u)}
        assert below == set(range(v, tree.stop[v]))
        assert set(range(tree.leaf_start[v], tree.leaf_stop[v])) == tiles_below(tree, v)
        assert tree.depth[v] == len(ancestors(tree, v)) - 1
        assert tree.n_children[v] == len(children(tree, v))
        assert tree.size[v] == len(tiles_below(tree, v))
        codes = [tree.code[c] for c in children(tree, v)]
        assert codes == sorted(codes)
    for name in ("parent", "depth", "stop", "leaf_start", "leaf_stop", "code"):
        assert not getattr(tree, name).flags.writeable


@settings(max_examples=40, deadline=None)
@given(hierarchies(max_nodes=20), st.data())
def test_sums_and_cuts(tree, data):
    values = np.array(
        data.draw(st.lists(st.integers(0, 9), min_size=tree.n_tiles, max_size=tree.n_tiles))
    )
    want = [sum(int(values[t]) for t in tiles_below(tree, v)) for v in range(tree.n_nodes)]
    assert tree.sum_over(values).tolist() == want
    assert tree.sum_over(values.astype(float)).tolist() == want
    # Any set of nodes, closed downwards, gives a cut.
    chosen = data.draw(st.sets(st.integers(0, tree.n_nodes - 1)))
    merged = np.array([any(u in chosen for u in ancestors(tree, v)) for v in range(tree.n_nodes)])
    cut = tree.cut_from_merged(merged)
    tree.check_cut(cut)
    zone = tree.zone_of_tile(cut)
    for tile, leaf in enumerate(leaf_nodes(tree)):
        assert cut[zone[tile]] in ancestors(tree, leaf)
        top = [u for u in ancestors(tree, leaf) if u in chosen]
        assert cut[zone[tile]] == (top[-1] if top else leaf)


@pytest.mark.parametrize(
    ("parent", "problem"),
    [
        ([-1, -1], "2 roots"),
        ([1, 0], "0 roots"),
        ([-1, 2, 1], "cycle"),
        ([-1, 1], "cycle"),
        ([-1, 7], "orphan"),
    ],
)
def test_what_is_not_a_tree_is_refused(parent, problem):
    with pytest.raises(HierarchyError, match=problem):
        Hierarchy.from_parents(parent, np.array([f"n{i}" for i in range(len(parent))]))


def test_arrays_that_are_not_in_preorder_are_refused():
    code = np.array(["a", "b", "c", "d"])
    with pytest.raises(HierarchyError, match="pre-order"):
        Hierarchy(parent=np.array([-1, 0, 0, 1]), code=code)
    with pytest.raises(HierarchyError, match="roots"):
        Hierarchy(parent=np.array([-1, -1, 0, 1]), code=code)
    with pytest.raises(HierarchyError, match="Duplicate codes"):
        Hierarchy(parent=np.array([-1, 0]), code=np.array(["a", "a"]))


def test_a_chain_and_a_star_of_thousands():
    n = 5000
    chain, _ = Hierarchy.from_parents(
        np.arange(-1, n - 1), np.array([f"{i:05d}" for i in range(n)])
    )
    assert chain.n_tiles == 1
    assert chain.max_depth == n - 1
    star, node = Hierarchy.from_parents(
        np.concatenate(([-1], np.zeros(n - 1, int))), np.array([f"{i:05d}" for i in range(n)])
    )
    assert star.n_tiles == n - 1
    assert node.tolist() == list(range(n))
