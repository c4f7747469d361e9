"""Iterative proportional fitting on the full table, one cell after the other."""

from __future__ import annotations

from itertools import product


def fit_full_table(shape, margins, targets, rounds):
    """A dict from cells to probabilities, after a number of rounds over all margins from the
    uniform start."""
    cells = list(product(*(range(n) for n in shape)))
    table = dict.fromkeys(cells, 1 / len(cells))
    for _ in range(rounds):
        for margin, target in zip(margins, targets, strict=True):
            current = {}
            for cell in cells:
                key = tuple(cell[v] for v in margin)
                current[key] = current.get(key, 0.0) + table[cell]
            for cell in cells:
                key = tuple(cell[v] for v in margin)
                table[cell] = (
                    table[cell] * float(target[key]) / current[key] if current[key] > 0 else 0.0
                )
    return table
