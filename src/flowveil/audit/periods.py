"""Decides from what releases state which of their matrices are of the same trips, of a part of them, or of others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from flowveil.audit.published import PublishedMatrix, PublishedRelease


def incomparable(a: PublishedRelease, b: PublishedRelease) -> str | None:
    """Why two releases cannot be compared; None if they can."""
    if a.noisy or b.noisy:
        return "counts of one carry noise"
    if not (a.nodes and b.nodes):
        return "the cells of one are boxes, or have folded times"
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
    """Whether the periods of two releases have no day in common, so that they share no trip."""
    return bool(a.period and b.period and (a.period[1] < b.period[0] or b.period[1] < a.period[0]))


def inside(part: PublishedRelease, whole: PublishedRelease) -> bool:
    """Whether the period of one release is inside the period of the other."""
    if part.period is None or whole.period is None:
        return False
    return whole.period[0] <= part.period[0] and part.period[1] <= whole.period[1]


def disjoint_parts(releases: Sequence[PublishedRelease], i: int) -> list[int]:
    """Releases of parts of the period of one, no two of which share a day; gaps between them are allowed.

    Of periods that overlap the shorter is taken, because a reader can subtract more of them.
    """
    whole, chosen = releases[i], list[int]()
    candidates = sorted(
        (r.period[1] - r.period[0], r.period, j)
        for j, r in enumerate(releases)
        if j != i and r.period and r.period != whole.period and inside(r, whole) and not incomparable(whole, r)
    )
    for _, _, j in candidates:
        if all(disjoint(releases[j], releases[other]) for other in chosen):
            chosen.append(j)
    return sorted(chosen)


def derived_places(releases: Sequence[PublishedRelease]) -> set[int]:
    """Returns the places of releases that state to be derived from others of these: they reveal nothing more.

    A period of a series states the hash of the manifest hashes of its steps.
    """
    manifests = {release.manifest for release in releases if release.manifest is not None}
    steps = {release.report["parameters"].get("during"): release.manifest for release in releases}
    found = set()
    for i, release in enumerate(releases):
        source = release.report["statement"].get("derived_from")
        picked = (release.report["parameters"].get("derive") or {}).get("pick", ())
        of_steps = [steps.get(text.removeprefix("time=")) for text in picked]
        joined = "\n".join(manifest for manifest in of_steps if manifest is not None)
        if source is not None and source in {*manifests, hashlib.sha256(joined.encode()).hexdigest()}:
            found.add(i)
    return found


# ---- slices ----------------------------------------------------------------------------------------------------


def fixed_values(release: PublishedRelease, matrix: PublishedMatrix) -> dict[str, str]:
    """The slice columns that a matrix has one value of; empty for a matrix of all trips."""
    return {c: v for c, v in zip(release.slice_columns, matrix.key, strict=False) if v is not None}


def families(release: PublishedRelease, whole: Mapping[str, str]) -> Iterator[list[PublishedMatrix]]:
    """Sets of matrices that share no trip with each other, and are all of trips with the values of `whole`.

    One set for each set of columns, and for each length of steps where a release has several.
    """
    several_steps = bool((release.report["parameters"].get("slices") or {}).get("also_every"))
    found: dict[tuple[Any, ...], list[PublishedMatrix]] = {}
    for matrix in release.matrices:
        own = fixed_values(release, matrix)
        if all(own.get(column) == value for column, value in whole.items()):
            # Values of steps of different length are texts of different length.
            lengths = tuple(map(len, own.values())) if several_steps else ()
            found.setdefault((tuple(sorted(own)), lengths), []).append(matrix)
    yield from found.values()


def sums_over_slices(release: PublishedRelease) -> Iterator[PublishedMatrix]:
    """Matrices that are not published but follow: sums over all values of one or several slice columns.

    Only cells that every slice publishes are in a sum: their trips are all trips of the cell, as far as the release has
    values of these columns.
    """
    published = {matrix.key for matrix in release.matrices}
    for family in families(release, {}):
        columns = [n for n, v in enumerate(family[0].key) if v is not None]
        for n_kept in range(len(columns)):
            for kept in combinations(columns, n_kept):
                by_key: dict[tuple[str | None, ...], list[PublishedMatrix]] = {}
                for matrix in family:
                    key = tuple(v if n in kept else None for n, v in enumerate(matrix.key))
                    by_key.setdefault(key, []).append(matrix)
                for key, slices in by_key.items():
                    if key not in published and len(slices) > 1:
                        yield _sum(key, slices)


def _sum(key: tuple[str | None, ...], slices: Sequence[PublishedMatrix]) -> PublishedMatrix:
    origin, destination = (np.concatenate([getattr(m, end) for m in slices]) for end in ("origin", "destination"))
    width = int(destination.max(initial=0)) + 1
    cells, place = np.unique(origin * width + destination, return_inverse=True)
    complete = np.bincount(place, minlength=len(cells)) == len(slices)
    trips = np.zeros(len(cells), dtype=np.int64)
    np.add.at(trips, place, np.concatenate([m.trips for m in slices]))
    weight = None
    if all(m.weight is not None for m in slices):
        weight = np.bincount(place, np.concatenate([m.weight for m in slices]), minlength=len(cells))[complete]
    kept = cells[complete]
    return PublishedMatrix(key, kept // width, kept % width, trips[complete], weight)


# ---- statements ------------------------------------------------------------------------------------------------

#: Entries of a report that describe a release to people, and reveal nothing about trips.
_WORDS = ("about", "title", "source", "licence", "contact", "command", "sentences", "version", "confirmed", "basemap")


def have_equal_tables(a: PublishedRelease, b: PublishedRelease) -> bool:
    """Whether two releases publish the same cells between the same zones."""
    return a.h3_cells == b.h3_cells and a.outlines == b.outlines and _table(a) == _table(b)


def differing_statements(a: PublishedRelease, b: PublishedRelease) -> list[str]:
    """Names of the entries in which the reports of two releases differ, but for words."""
    one, other = _entries(a.report), _entries(b.report)
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _entries(report: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in ("parameters", "guarantee", "statement"):
        content = report.get(part) or {}
        found |= {f"{part}.{name}": v for name, v in content.items() if name not in _WORDS} if content else {}
    return found


def _table(release: PublishedRelease) -> list[tuple[Any, ...]]:
    rows = []
    for m in release.matrices:
        weights = [None] * len(m.trips) if m.weight is None else m.weight.tolist()
        origins = [release.origin_zones[n] for n in m.origin.tolist()]
        destinations = [release.destination_zones[n] for n in m.destination.tolist()]
        keys = [tuple(sorted(fixed_values(release, m).items()))] * len(origins)
        rows += list(zip(keys, origins, destinations, m.trips.tolist(), weights, strict=True))
    return sorted(rows, key=repr)
