"""Which published matrices are of the same trips, of a part of them, or of others: as stated, never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from flowveil.audit.published import PublishedMatrix, PublishedRelease


def incomparable(a: PublishedRelease, b: PublishedRelease) -> str | None:
    """Why nothing can be concluded from two releases together; None where something can."""
    if a.noisy or b.noisy:
        return "counts of one carry noise"
    if not (a.nodes and b.nodes):
        return "the cells of one are boxes, or have times of their own"
    if a.ground != b.ground:
        return "they are of different areas, or left out different rows"
    if (a.period is None) != (b.period is None):
        return "one of them gives no period"
    if (a.revised or b.revised) and not disjoint(a, b):
        return "one of them is a revision: its cells are of the trips at different times"
    if a.period and b.period and not (disjoint(a, b) or inside(a, b) or inside(b, a)):
        return "their periods overlap in part"
    return None


def disjoint(a: PublishedRelease, b: PublishedRelease) -> bool:
    """Whether their periods do not meet: they share no trip."""
    return bool(a.period and b.period and (a.period[1] < b.period[0] or b.period[1] < a.period[0]))


def inside(part: PublishedRelease, whole: PublishedRelease) -> bool:
    """Whether the trips of one are a part of the other's."""
    if part.period is None or whole.period is None:
        return False
    return whole.period[0] <= part.period[0] and part.period[1] <= whole.period[1]


def parts_of(releases: Sequence[PublishedRelease], i: int) -> list[int]:
    """The releases whose periods are, one after the other, exactly the period of this one; none if there is a gap."""
    whole = releases[i]
    candidates = sorted(
        (r.period, j)
        for j, r in enumerate(releases)
        if j != i and r.period and r.period != whole.period and inside(r, whole) and not incomparable(whole, r)
    )
    chain: list[int] = []
    following = whole.period[0] if whole.period else None
    for period, j in candidates:
        if period[0] == following:
            chain.append(j)
            following = period[1] + timedelta(days=1)
    complete = whole.period is not None and following == whole.period[1] + timedelta(days=1)
    return chain if complete else []


def matching(release: PublishedRelease, key: tuple[str | None, ...]) -> list[PublishedMatrix]:
    """The matrix of a release that is of the same slice, or of all its trips."""
    same = [m for m in release.matrices if m.key == key]
    return same or [m for m in release.matrices if not any(m.key) and not any(key)]


def layers(
    fine: PublishedRelease, coarse: PublishedRelease, key: tuple[str | None, ...]
) -> Iterator[list[PublishedMatrix]]:
    """Sets of slices of one release that share no trip and are parts of a matrix: one set for each kind of slice."""
    if any(key) and fine.slice_columns != coarse.slice_columns:
        return
    kinds: dict[tuple[Any, ...], list[PublishedMatrix]] = {}
    for matrix in fine.matrices:
        wider = all(a is None or a == b for a, b in zip(key, matrix.key, strict=False)) if any(key) else True
        if wider and any(matrix.key) and matrix.key != key:
            # Steps of different length stand in one column; their values are written with different lengths.
            kinds.setdefault(tuple(value and len(value) for value in matrix.key), []).append(matrix)
    by_columns: dict[tuple[bool, ...], list[list[PublishedMatrix]]] = {}
    for kind, matrices in kinds.items():
        by_columns.setdefault(tuple(length is not None for length in kind), []).append(matrices)
    for sets in by_columns.values():
        several_steps = bool((fine.report["parameters"].get("slices") or {}).get("also_every"))
        yield from sets if several_steps else [[m for matrices in sets for m in matrices]]
