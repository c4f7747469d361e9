"""Distributions over many variables, known through some of their margins.

A junction tree of small tables.

The distribution splits along a junction tree into tables over cliques (a graphical model). Fitting
one margin means rescaling one clique and passing the change on to the others. The result is exactly
that of the full table (Jiroušek and Přeučil 1995), in memory of the sum of the cliques. All pairs
make one clique: then this is ordinary IPF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from flowveil.core.arrays import Floats, Numbers

Margin = tuple[int, ...]


@dataclass(frozen=True)
class JunctionTree:
    """Cliques of variables, joined so that each variable's cliques hang together."""

    shape: tuple[int, ...]  # number of categories of each variable
    cliques: tuple[
        Margin, ...
    ]  # sorted variables of each clique; clique 0 is the root, parents before children
    parent: tuple[int, ...]  # of each clique; -1 for the root
    separators: tuple[Margin, ...]  # the variables each clique shares with its parent (may be none)

    def cells(self) -> list[int]:
        """Number of cells of each clique."""
        return [prod(self.shape[v] for v in clique) for clique in self.cliques]

    def home(self, margin: Margin) -> int:
        """The smallest clique that holds a margin."""
        size = self.cells()
        return min(
            (i for i, c in enumerate(self.cliques) if set(margin) <= set(c)), key=lambda i: size[i]
        )


def build_junction_tree(shape: Sequence[int], margins: Sequence[Margin]) -> JunctionTree:
    """Triangulates the graph of the margins (least fill first) and joins the cliques.

    Independent of the data.
    """
    n = len(shape)
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for margin in margins:
        for v in margin:
            neighbours[v] |= set(margin) - {v}
    found: list[set[int]] = []
    left = set(range(n))
    while left:
        # Eliminating a variable makes a clique of it and its neighbours: take the one with the
        # smallest table.
        v = min(left, key=lambda v: (prod(shape[u] for u in neighbours[v] | {v}), v))
        clique = neighbours[v] | {v}
        if not any(clique <= other for other in found):
            found.append(clique)
        for u in neighbours[v]:
            neighbours[u] |= neighbours[v] - {u}
            neighbours[u].discard(v)
        left.discard(v)
    return _joined(tuple(shape), [tuple(sorted(c)) for c in found])


def _joined(shape: tuple[int, ...], cliques: list[Margin]) -> JunctionTree:
    """Maximum spanning tree over shared variables (Prim).

    A junction tree if the graph is triangulated.
    """
    cliques = sorted(cliques, key=lambda c: (-prod(shape[v] for v in c), c))
    order, parent = [0], [-1]
    while len(order) < len(cliques):
        rest = [i for i in range(len(cliques)) if i not in order]
        shared = {
            (i, p): len(set(cliques[i]) & set(cliques[j]))
            for i in rest
            for p, j in enumerate(order)
        }
        i, p = max(shared, key=lambda pair: (shared[pair], -pair[0], -pair[1]))
        order.append(i)
        parent.append(p)
    ordered = tuple(cliques[i] for i in order)
    separators = tuple(
        () if p < 0 else tuple(sorted(set(c) & set(ordered[p])))
        for c, p in zip(ordered, parent, strict=True)
    )
    return JunctionTree(shape, ordered, tuple(parent), separators)


class JunctionModel:
    """A distribution on a junction tree, at first uniform.

    One table a clique, kept in agreement by `fit_margin`.
    """

    def __init__(self, tree: JunctionTree) -> None:
        self.tree = tree
        self.tables = [
            np.full([tree.shape[v] for v in clique], 1.0 / cells)
            for clique, cells in zip(tree.cliques, tree.cells(), strict=True)
        ]

    def margin(self, margin: Margin) -> Floats:
        """The distribution of these variables (sorted; all in one clique)."""
        return self._summed(self.tree.home(margin), margin)

    def _summed(self, clique: int, margin: Margin) -> Floats:
        away = tuple(i for i, v in enumerate(self.tree.cliques[clique]) if v not in margin)
        summed: Floats = np.asarray(self.tables[clique].sum(axis=away))
        return summed

    def _scale(self, clique: int, margin: Margin, ratio: Floats) -> None:
        shape = [self.tree.shape[v] if v in margin else 1 for v in self.tree.cliques[clique]]
        self.tables[clique] *= ratio.reshape(shape)

    def fit_margin(self, margin: Margin, target: Floats) -> Floats:
        """Rescales to the target distribution of these variables, zeros stay zero.

        Returns the one they had before.
        """
        home = self.tree.home(margin)
        before = self._summed(home, margin)
        self._scale(home, margin, _ratio(target, before))
        # Pass the change on: up to the root, then down to all other cliques.
        path = [home]
        while path[-1]:
            path.append(self.tree.parent[path[-1]])
        up = [(child, parent, child) for child, parent in pairwise(path)]
        down = [(self.tree.parent[i], i, i) for i in range(len(self.tables)) if i not in path]
        for here, there, child in [*up, *down]:
            separator = self.tree.separators[child]
            self._scale(
                there,
                separator,
                _ratio(self._summed(here, separator), self._summed(there, separator)),
            )
        return before

    def sample(self, n: int, generator: np.random.Generator) -> Numbers:
        """Draw n independent records: a row each, a column a variable."""
        drawn = np.zeros((n, len(self.tree.shape)), dtype=np.int64)
        for i, clique in enumerate(self.tree.cliques):
            separator = self.tree.separators[i]
            rest = tuple(v for v in clique if v not in separator)
            # Rows: what is known from the parent; columns: what is drawn now.
            axes = [clique.index(v) for v in (*separator, *rest)]
            known = [self.tree.shape[v] for v in separator]
            new = [self.tree.shape[v] for v in rest]
            table = self.tables[i].transpose(axes).reshape(prod(known), prod(new))
            row = np.zeros(n, dtype=np.int64)
            if separator:
                row += np.ravel_multi_index(drawn[:, separator].T, known)
            column = _draw_in_rows(table, row, generator)
            for v, values in zip(rest, np.unravel_index(column, new) if rest else (), strict=True):
                drawn[:, v] = values
        return drawn


def _ratio(target: Floats, current: Floats) -> Floats:
    return np.divide(
        target, current, out=np.zeros_like(current, dtype=np.float64), where=current > 0
    )


def _draw_in_rows(table: Floats, row: Numbers, generator: np.random.Generator) -> Numbers:
    """Draw a column for each given row, with probabilities proportional to that row."""
    width = table.shape[1]
    running = np.cumsum(table, axis=1)
    total = running[:, -1:]
    # Each row becomes an increasing stretch r..r+1 of one long increasing array: one search serves
    # all rows.
    scaled = running / np.where(total > 0, total, 1.0)
    last = width - 1 - np.argmax(table[:, ::-1] > 0, axis=1)
    stretches = (scaled + np.arange(len(table))[:, None]).ravel()
    found = np.searchsorted(stretches, row + generator.random(len(row)), side="right") - row * width
    # Rounding may point just past the last cell that has any probability.
    column: Numbers = np.clip(found, 0, last[row])
    return column
