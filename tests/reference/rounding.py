"""Rounding, count by count; and controlled tables, all of them by brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reference.cellkey import WHOLE, mixed

Table = Mapping[tuple[int, int], int]


def rounded(count: int, key: int, base: int, *, small_only: bool = False) -> int:
    """The published count of a cell: up for the lowest remainder / base of all mixed keys."""
    if small_only and count >= base:
        return count
    up = mixed(key) * base < count % base * WHOLE
    return count // base * base + base * up


def neighbours(count: int, base: int) -> Sequence[int]:
    """The multiples next to a count."""
    below = count // base * base
    return (below,) if below == count else (below, below + base)


def totals(table: Table) -> Counter[tuple[str, int]]:
    """The totals of origins, of destinations and of all."""
    found: Counter[tuple[str, int]] = Counter()
    for (o, d), n in table.items():
        found.update({("o", o): n, ("d", d): n, ("all", 0): n})
    return found


def is_controlled(table: Table, published: Table, base: int) -> bool:
    """Whether every count and every total is a neighbouring multiple."""
    true, shown = totals(table), totals({cell: published.get(cell, 0) for cell in table})
    return all(published.get(cell, 0) in neighbours(n, base) for cell, n in table.items()) and all(
        shown[name] in neighbours(true[name], base) for name in true
    )


def controlled_tables(table: Table, base: int) -> Iterator[Table]:
    """All controlled roundings of a table."""
    for values in itertools.product(*(neighbours(n, base) for n in table.values())):
        published = dict(zip(table, values, strict=True))
        if is_controlled(table, published, base):
            yield published
