# ruff: noqa: E741
"""Mondrian as a plain recursion, partition by partition.

Slow, and short enough to be checked by eye.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

TINY = 2.2250738585072014e-308


def mondrian(columns, sensitive, *, k, l=None, t=None, strict, choose="width", first=False):
    """The partitions as a set of frozensets of record numbers."""
    return {
        frozenset(p)
        for p in _cut(
            _canonical(columns, sensitive), columns, sensitive, k, l, t, strict, choose, first
        )
    }


def _canonical(columns, sensitive):
    records = range(len(columns[0].codes))
    key = {r: tuple(int(c.codes[r]) for c in columns) for r in records}
    value = {r: tuple(int(c.codes[r]) for c in sensitive) for r in records}
    count = Counter((key[r], value[r]) for r in records)
    seen = Counter()
    spread = {}
    for r in records:
        spread[r] = Fraction(2 * seen[key[r], value[r]] + 1, 2 * count[key[r], value[r]])
        seen[key[r], value[r]] += 1
    return sorted(records, key=lambda r: (key[r], spread[r], value[r]))


def _cut(partition, columns, sensitive, k, l, t, strict, choose, first):
    best, parts = 0, None
    for column in columns:
        values = {int(column.codes[r]) for r in partition}
        merit = _width(column, values) if choose == "width" else len(values)
        if len(values) < 2 or merit <= best:
            continue

        def safe(records):
            return is_safe(records, sensitive, k, l, t)

        candidate = _in_two(partition, column, strict)
        if all(safe(p) for p in candidate):
            best, parts = merit, candidate
        elif first:
            best, parts = merit, None
    if parts is None:
        return [partition]
    return [q for p in parts for q in _cut(p, columns, sensitive, k, l, t, strict, choose, first)]


def _width(column, values):
    whole = max(column.n_values - 1, 1)
    if column.kind == "unordered":
        return (len(values) - 1) / whole
    if column.kind == "ordered":
        return (max(values) - min(values)) / whole
    if column.kind == "hierarchy":
        children = {_child(column.tree, values, v) for v in values}
        return (sum(int(column.tree.size[c]) for c in children) - 1) / whole
    if column.missing in values:
        return 1.0 if len(values) > 1 else 0.0
    known = [float(p) / 2 for i, p in enumerate(column.position) if i != column.missing]
    spread = max(known) - min(known)
    return max((known[max(values)] - known[min(values)]) / (spread or 1.0), TINY)


def _in_two(partition, column, strict):
    value = {r: int(column.codes[r]) for r in partition}
    if column.tree is not None:
        value = {r: _child(column.tree, set(value.values()), value[r]) for r in partition}
    count = Counter(value.values())
    order = sorted(count)
    if column.kind in ("unordered", "hierarchy"):
        order = sorted(count, key=lambda v: (-count[v], v))
    rank = {v: i for i, v in enumerate(order)}
    by_value = sorted(partition, key=lambda r: rank[value[r]])
    if not strict and column.tree is None:
        half = len(partition) // 2
        left = set(by_value[:half])
    else:
        best, left = -1, set()
        for boundary in range(1, len(order)):
            here = {r for r in partition if rank[value[r]] < boundary}
            smaller = min(len(here), len(partition) - len(here))
            if smaller > best:
                best, left = smaller, here
    return [[r for r in partition if r in left], [r for r in partition if r not in left]]


def _ancestors(tree, node):
    path = [node]
    while tree.parent[path[-1]] >= 0:
        path.append(int(tree.parent[path[-1]]))
    return path


def _common(tree, leaves):
    paths = [_ancestors(tree, int(tree.leaf_node[v])) for v in leaves]
    return next(node for node in paths[0] if all(node in p for p in paths))


def _child(tree, leaves, leaf):
    """The child of the lowest common ancestor of some leaves that holds one of them."""
    top = _common(tree, leaves)
    path = _ancestors(tree, int(tree.leaf_node[leaf]))
    return path[max(path.index(top) - 1, 0)]


def published_terms(column, leaves):
    """What a class with these leaves is published as: a term, or a set of sibling terms."""
    tree = column.tree
    top = _common(tree, leaves)
    children = sorted({_child(tree, leaves, v) for v in leaves})
    if children == [int(c) for c in range(tree.n_nodes) if tree.parent[c] == top]:
        children = [top]
    names = [str(tree.code[c]) for c in children]
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def is_safe(records, sensitive, k, l, t):
    if len(records) < k:
        return False
    for column in sensitive:
        inside = Counter(int(column.codes[r]) for r in records)
        if l is not None and len(inside) < l:
            return False
        if t is not None and distance(column, records) > Fraction(t) + Fraction(1, 10**9):
            return False
    return True


def distance(column, records):
    """Exact distance between the distribution in ``records`` and in the whole column."""
    everybody = Counter(int(c) for c in column.codes)
    inside = Counter(int(column.codes[r]) for r in records)
    values = sorted(everybody)
    difference = [
        Fraction(inside[v], len(records)) - Fraction(everybody[v], len(column.codes))
        for v in values
    ]
    if not column.has_order:
        return sum(abs(d) for d in difference) / 2
    moved, running = Fraction(0), Fraction(0)
    for d in difference:
        running += d
        moved += abs(running)
    return moved / max(len(values) - 1, 1)


def default_step(values, k):
    """The smallest 1, 2 or 5 times a power of ten, at least 1, that cuts the trimmed range into few
    enough cells."""
    ordered = sorted(values)
    n = len(ordered)
    low, high = ordered[min(k - 1, (n - 1) // 2)], ordered[max(n - k, (n - 1) // 2)]
    least = Fraction(high - low, max(1, min(50, n // k)))
    return next(m * 10**e for e in range(20) for m in (1, 2, 5) if m * 10**e >= least)


def range_text(members, everybody, *, step, k, lowest=None, highest=None):
    """How whole numbers of a class are published.

    The cells that hold them, the tails of the table open.
    """

    def cell(value):
        return value // step

    ordered = sorted(everybody)
    first = (
        cell(lowest) if lowest is not None else cell(ordered[k - 1]) if len(ordered) >= k else None
    )
    last = cell(ordered[-k]) if len(ordered) >= k else None
    if highest is not None:
        last = cell(highest)
        if step > 1 and last * step == highest and (first is None or last > first):
            last -= 1
    if first is None or last is None or first > last:
        first = last = first if lowest is not None else last if highest is not None else 0
    cells = [min(max(cell(v), first), last) for v in members]
    low, high = min(cells), max(cells)
    opening = f"[{low * step}"
    if low == first:
        opening = "(-inf" if lowest is None else f"[{lowest}"
    closing = f"{(high + 1) * step})"
    if high == last:
        closing = "inf)" if highest is None else f"{highest}]"
    if low == high and step == 1 and opening[0] == "[" and closing != "inf)":
        return str(low)
    return f"{opening}, {closing}"
