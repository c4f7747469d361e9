"""Fitting on a junction tree against fitting the full table; the two must agree cell by cell."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.tabular.ipf import fit
from flowveil.tabular.junction import JunctionModel, build_junction_tree
from reference.tabular_ipf import fit_full_table


@st.composite
def problems(draw):
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)))
    n = len(shape)
    subsets = st.sets(st.integers(0, n - 1), min_size=1, max_size=min(n, 3)).map(
        lambda s: tuple(sorted(s))
    )
    margins = draw(st.lists(subsets, min_size=1, max_size=6, unique=True))
    margins += [(v,) for v in range(n) if not any(v in m for m in margins)]
    counts = np.array(
        draw(st.lists(st.integers(0, 4), min_size=prod(shape), max_size=prod(shape)).filter(any)),
        dtype=float,
    ).reshape(shape)
    joint = counts / counts.sum()
    targets = [joint.sum(axis=tuple(i for i in range(n) if i not in m)) for m in margins]
    return shape, margins, targets


def probability(model, cell):
    """The joint probability of a cell: the cliques' tables over what they share."""
    tree = model.tree
    found = 1.0
    for i, clique in enumerate(tree.cliques):
        part = float(model.tables[i][tuple(cell[v] for v in clique)])
        if part == 0:
            return 0.0
        shared = model._summed(i, tree.separators[i])
        found *= part / (
            float(shared[tuple(cell[v] for v in tree.separators[i])])
            if tree.parent[i] >= 0
            else 1.0
        )
    return found


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(1, 6))
def test_junction_tree_equals_full_table(problem, rounds):
    shape, margins, targets = problem
    tree = build_junction_tree(shape, margins)
    # Every margin fits into a clique, and the cliques of each variable hang together.
    assert all(any(set(m) <= set(c) for c in tree.cliques) for m in margins)
    for v in range(len(shape)):
        holding = {i for i, c in enumerate(tree.cliques) if v in c}
        tops = [i for i in holding if tree.parent[i] not in holding or v not in tree.separators[i]]
        assert len(tops) == 1
    model = JunctionModel(tree)
    for _ in range(rounds):
        for margin, target in zip(margins, targets, strict=True):
            model.fit_margin(margin, target)
    expected = fit_full_table(shape, margins, targets, rounds)
    for cell in product(*(range(n) for n in shape)):
        assert abs(probability(model, cell) - expected[cell]) < 1e-12


@settings(max_examples=30, deadline=None)
@given(problems())
def test_consistent_margins_are_met_and_samples_stay_on_the_support(problem):
    shape, margins, targets = problem
    model = JunctionModel(build_junction_tree(shape, margins))
    gap, _, converged = fit(model, margins, targets, settled=0.0, tolerance=1e-9, max_cycles=3000)
    if converged:
        assert gap <= 1e-8
    drawn = model.sample(300, np.random.default_rng(0))
    for i, clique in enumerate(model.tree.cliques):
        assert np.all(model.tables[i][tuple(drawn[:, v] for v in clique)] > 0)
