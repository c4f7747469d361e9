"""Which groups of trips several releases confine together, though each of them is safe alone.

Every published cell is an equation: the trips between its two zones are so many. Cells of two releases overlap, so the
equations have terms in common, and their differences are counts that nobody published. A *group* is what a release does
not publish of an area that another counts, a pair of zones that is not listed, or what one cell of each release share.
It is confined where its smallest and its largest possible value lie above 0 and below the guarantee.

Two homogeneous matrices are solved exactly (`flowveil.audit.blocks`). Where one has nested zones, or several matrices
together are the trips of one (the months of a quarter, the slices of a release), the cells that lie inside a cell are
subtracted from it; and where three matrices or nested ones overlap, a linear programme on each connected component
(`flowveil.audit.components`) gives the bounds of what their cells share.

Guaranteed: no group is reported that some trips which give the published tables would contradict, as long as the
releases are of the trips that they say. Which trips those are is stated, never guessed: releases without a period count
the same trips; periods that do not meet share none; a period inside another is a part of it; a period that is exactly
made of others is their sum; periods that overlap in part share an unknown part, and nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.blocks import UNKNOWN, Blocks, Finding, Side, blocks_of, confined, contradictions
from flowveil.audit.cells import holders
from flowveil.audit.components import confined_components
from flowveil.audit.periods import disjoint, incomparable, inside, layers, matching, parts_of
from flowveil.audit.published import PublishedMatrix, PublishedRelease
from flowveil.audit.zone_forest import Ground, Nodes, ground_of
from flowveil.flows import MILLION

#: Matrices of the same trips that are solved together: the sets of their cells that overlap double with each.
MOST_LAYERS = 4


@dataclass(frozen=True)
class Group:
    """A group of trips whose number a reader can confine.

    Attributes:
        releases: the places of the releases that confine it.
        kind: ``remainder``, ``cell`` or ``crossing``, as in `flowveil.audit.blocks.Finding`; ``shared``: what certain
            cells of several releases share and no published cell of the others counts.
        origin, destination: codes of the zones that it lies in: a cell of one release, or a common area of both.
        absent: the place of the release that does not publish it; -1 where it is what several cells share.
        pairs: where it is one pair of zones, that pair; where cells of several releases share it, the pair of each,
            which is ("", "") for what is in none of a release's zones, or, of kind ``shared``, in none of its cells.
        low, high: its smallest and largest possible number of trips.
        single: it is one pair of zones.
        unit: what is below the guarantee: trips or weight.
    """

    releases: tuple[int, ...]
    kind: str
    origin: str
    destination: str
    low: float
    high: float
    single: bool
    absent: int = -1
    pairs: tuple[tuple[str, str], ...] = ()
    unit: str = "trips"


@dataclass(frozen=True)
class Groups:
    """What was confined, and what could not be compared.

    Attributes:
        groups: the groups.
        compared: cells of which another matrix counts a part or the whole.
        contradictions: areas where two releases cannot be of the same trips, as they should be; nothing is concluded
            there.
        unchecked: why pairs of releases could not be compared, by their places.
    """

    groups: tuple[Group, ...] = ()
    compared: int = 0
    contradictions: int = 0
    unchecked: tuple[tuple[tuple[int, ...], str], ...] = ()

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def single_cells(self) -> int:
        """How many groups are one pair of zones."""
        return sum(group.single for group in self.groups)

    @property
    def single_trips(self) -> int:
        """How many groups are exactly one trip."""
        return sum(group.unit == "trips" and group.low == group.high == 1 for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """The counts: no cell, no code."""
        return {
            "groups": len(self),
            "single_cells": self.single_cells,
            "single_trips": self.single_trips,
            "exact": sum(group.low == group.high for group in self.groups),
            "compared_cells": self.compared,
            "contradictions": self.contradictions,
            "unchecked": [{"releases": list(places), "reason": reason} for places, reason in self.unchecked],
        }


def confined_groups(releases: Sequence[PublishedRelease], *, newest: int | None = None) -> Groups:
    """Every group that these releases confine together to values above 0 and below the guarantee.

    Args:
        releases: published releases of one data set.
        newest: only what this one, by its place, adds to the others; None for all of them.

    Returns:
        The groups. Deterministic; empty for a single release without slices.

    Raises:
        DataError: zones overlap in part, so that they are not of one map.
    """
    work = _Work(releases, ground_of([r for r in releases if r.nodes and not r.noisy]))
    for i, j in combinations(range(len(releases)), 2):
        if newest is None or newest in (i, j):
            work.compare(i, j)
    for i in range(len(releases)):
        if newest is None or newest == i:
            work.compare_slices(i)
            work.compare_sum(i)
    work.compare_many(newest)
    return work.result()


@dataclass
class _Work:
    """The comparison of several releases, under way."""

    releases: Sequence[PublishedRelease]
    ground: Ground
    found: dict[tuple[Any, ...], Group] = field(default_factory=dict)
    compared: int = 0
    contradicted: int = 0
    unchecked: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    _place: dict[int, int] = field(default_factory=dict)
    _nodes: dict[tuple[int, int], Nodes] = field(default_factory=dict)
    _codes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [i for i, r in enumerate(self.releases) if r.nodes and not r.noisy]
        self._place = {release: n for n, release in enumerate(places)}
        for n, i in enumerate(places):
            release = self.releases[i]
            for end, codes in enumerate((release.origin_zones, release.destination_zones)):
                self._nodes[i, end] = self.ground.nodes(n, codes)
                self._codes.update(zip(self._nodes[i, end].tolist(), codes, strict=True))

    def result(self) -> Groups:
        return Groups(tuple(self.found.values()), self.compared, self.contradicted, tuple(self.unchecked))

    # ---- which matrices are of which trips ------------------------------------------------------------------

    def compare(self, i: int, j: int) -> None:
        """All that follows from two releases of the same trips, or of a part of the other's."""
        a, b = self.releases[i], self.releases[j]
        reason = incomparable(a, b)
        if reason:
            self.unchecked.append(((i, j), reason))
        if reason or disjoint(a, b):
            return
        if a.period == b.period:
            self._compare_same(i, j)
            return
        for whole, part in ((i, j), (j, i)):
            if inside(self.releases[part], self.releases[whole]):
                for matrix in self.releases[whole].matrices:
                    self._subtract(whole, matrix, [(part, m) for m in matching(self.releases[part], matrix.key)])

    def _compare_same(self, i: int, j: int) -> None:
        a, b = self.releases[i], self.releases[j]
        same_columns = a.slice_columns == b.slice_columns
        by_key = {m.key: m for m in b.matrices}
        for matrix in a.matrices:
            twin = by_key.get(matrix.key) if same_columns else None
            if not any(matrix.key) and twin is None:
                twin = next((m for m in b.matrices if not any(m.key)), None)
            if twin is not None:
                self._compare_matrices((i, matrix), (j, twin))
        for whole, part in ((i, j), (j, i)):
            for matrix in self.releases[whole].matrices:
                for layer in layers(self.releases[part], self.releases[whole], matrix.key):
                    self._subtract(whole, matrix, [(part, m) for m in layer])

    def compare_slices(self, i: int) -> None:
        """The matrices of one release: a total beside its slices."""
        release = self.releases[i]
        if i not in self._place or len(release.matrices) < 2:
            return
        for matrix in release.matrices:
            for layer in layers(release, release, matrix.key):
                self._subtract(i, matrix, [(i, m) for m in layer])

    def compare_sum(self, i: int) -> None:
        """A release whose period is exactly made of those of others: they are its parts."""
        parts = parts_of(self.releases, i)
        if len(parts) > 1 and i in self._place:
            for matrix in self.releases[i].matrices:
                fine = [(j, m) for j in parts for m in matching(self.releases[j], matrix.key)]
                self._subtract(i, matrix, fine)

    # ---- comparing ------------------------------------------------------------------------------------------

    def _compare_matrices(self, one: tuple[int, PublishedMatrix], other: tuple[int, PublishedMatrix]) -> None:
        i, j = one[0], other[0]
        if not (self.releases[i].homogeneous and self.releases[j].homogeneous):
            self._subtract(i, one[1], [other])
            self._subtract(j, other[1], [one])
            return
        sides = (self._side(*one), self._side(*other))
        nearest = (
            (self.ground.nearest(sides[0].origins), self.ground.nearest(sides[1].origins)),
            (self.ground.nearest(sides[0].destinations), self.ground.nearest(sides[1].destinations)),
        )
        totals = [m.total for m in (one[1], other[1]) if m.total is not None]
        blocks = blocks_of(self.ground.parent, self.ground.size, nearest, sides, min(totals, default=None))
        below = min(self.releases[i].k, self.releases[j].k)
        self.contradicted += int(contradictions(blocks).sum())
        self.compared += _n_compared(blocks)
        for finding in confined(blocks, below):
            self._add((i, j), finding)
        self._weights(blocks, one, other)

    def _side(self, i: int, matrix: PublishedMatrix) -> Side:
        release = self.releases[i]
        origin, destination = self._nodes[i, 0][matrix.origin], self._nodes[i, 1][matrix.destination]
        most = UNKNOWN if release.most_unlisted is None else release.most_unlisted
        return Side(
            np.unique(origin), np.unique(destination), origin, destination, matrix.trips, int(most),
            release.whole_cells,
        )  # fmt: skip

    def _add(self, places: tuple[int, int], finding: Finding) -> None:
        names = [self._codes.get(node, "") for node in finding.members]
        key = (places, finding.kind, finding.origin, finding.destination, finding.side, finding.members)
        self.found[key] = Group(
            places,
            finding.kind,
            self._codes[finding.origin],
            self._codes[finding.destination],
            finding.low,
            finding.high,
            finding.single,
            absent=places[finding.side] if finding.side >= 0 else -1,
            pairs=tuple(zip(names[::2], names[1::2], strict=True)),
        )

    def _weights(self, blocks: Blocks, one: tuple[int, PublishedMatrix], other: tuple[int, PublishedMatrix]) -> None:
        """Remainders that are short in weight, where a threshold of the population is a number."""
        matrices, places = (one[1], other[1]), (one[0], other[0])
        limits = [self.releases[i].thresholds.get("population") for i in places]
        below = min((limit for limit in limits if limit is not None), default=None)
        sums = np.zeros((2, len(blocks.origin)))
        for s, matrix in enumerate(matrices):
            weight = _millionths(matrix)
            if below is None or weight is None:
                return
            np.add.at(sums[s], blocks.block_of_cell[s], weight)
        for s in (0, 1):
            whole = (blocks.pairs[1 - s] == blocks.published[1 - s]) & ~blocks.rest[1 - s]
            left, trips = (sums[1 - s] - sums[s]) / MILLION, blocks.shown[1 - s] - blocks.shown[s]
            short = whole & blocks.sides[1 - s].exact & (trips > 0) & (left > 0) & (left < below)
            for b in np.flatnonzero(short).tolist():
                origin, destination = self._codes[int(blocks.origin[b])], self._codes[int(blocks.destination[b])]
                value = float(left[b])
                self.found[places, "weight", b, s] = Group(
                    places,
                    "remainder",
                    origin,
                    destination,
                    value,
                    value,
                    single=False,
                    absent=places[s],
                    unit="weight",
                )

    def _subtract(self, whole: int, matrix: PublishedMatrix, fine: Sequence[tuple[int, PublishedMatrix]]) -> None:
        """What is left of each cell after the cells of others that lie inside it.

        The others must share no trip with each other, and hold no trip that the matrix does not count.
        """
        if not fine or not self.releases[whole].whole_cells:
            return
        origin, destination = self._nodes[whole, 0][matrix.origin], self._nodes[whole, 1][matrix.destination]
        holder = holders((self.ground.parent, self.ground.parent), origin, destination)
        held, n_inside = np.zeros(len(matrix.trips), np.int64), np.zeros(len(matrix.trips), np.int64)
        weight = _millionths(matrix)
        for j, part in fine:
            o, d = self._nodes[j, 0][part.origin], self._nodes[j, 1][part.destination]
            cell = holder(o, d)
            np.add.at(held, cell[cell >= 0], part.trips[cell >= 0])
            np.add.at(n_inside, cell[cell >= 0], 1)
            own = _millionths(part)
            if weight is not None and own is not None:
                np.subtract.at(weight, cell[cell >= 0], own[cell >= 0])
            weight = None if own is None else weight
        left = matrix.trips - held
        self.contradicted += int(np.count_nonzero(left < 0))
        self.compared += int(np.count_nonzero(n_inside))
        below = min(self.releases[i].k for i in (whole, *(j for j, _ in fine)))
        places = tuple(sorted({whole, *(j for j, _ in fine)}))
        for c in np.flatnonzero((left > 0) & (left < below) & (n_inside > 0)).tolist():
            value = int(left[c])
            codes = self._codes[int(origin[c])], self._codes[int(destination[c])]
            key = (places, "remainder", whole, matrix.key, c, tuple(m.key for _, m in fine))
            self.found[key] = Group(places, "remainder", *codes, value, value, single=False, absent=fine[0][0])
        limits = [self.releases[i].thresholds.get("population") for i in places]
        least = min((limit for limit in limits if limit is not None), default=None)
        if weight is None or least is None:
            return
        short = (left > 0) & (n_inside > 0) & (weight > 0) & (weight < least * MILLION)
        for c in np.flatnonzero(short).tolist():
            codes, heavy = (self._codes[int(origin[c])], self._codes[int(destination[c])]), float(weight[c] / MILLION)
            key = (places, "weight", whole, matrix.key, c, tuple(m.key for _, m in fine))
            self.found[key] = Group(
                places, "remainder", *codes, heavy, heavy, single=False, absent=fine[0][0], unit="weight"
            )

    def compare_many(self, newest: int | None) -> None:
        """Three matrices or more of the same trips, and nested ones: linear programmes on what they share."""
        same: dict[tuple[Any, ...], list[int]] = {}
        for i, release in enumerate(self.releases):
            if i in self._place and release.whole_cells:
                same.setdefault((release.period, release.ground), []).append(i)
        for places in same.values():
            totals = [(i, m) for i in places for m in self.releases[i].matrices if not any(m.key)]
            nested = any(not self.releases[i].homogeneous for i, _ in totals)
            if len(totals) < 2 or (len(totals) == 2 and not nested) or (newest is not None and newest not in places):
                continue
            if len(totals) > MOST_LAYERS:
                self.unchecked.append((tuple(places), f"more than {MOST_LAYERS} are of the same trips: only in pairs"))
                continue
            if find_spec("scipy") is None:
                self.unchecked.append((tuple(places), "scipy is not installed (pip install 'flowveil[audit]')"))
                continue
            sides = [self._side(i, m) for i, m in totals]
            below = min(self.releases[i].k for i, _ in totals)
            known = {(g.origin, g.destination, g.low, g.high) for g in self.found.values()}
            for n, shared in enumerate(confined_components(self.ground, sides, below)):
                if shared is None:
                    self.unchecked.append((tuple(places), "too many cells overlap for linear programmes"))
                    continue
                if (self._codes[shared.origin], self._codes[shared.destination], shared.low, shared.high) in known:
                    # What is left of a cell, or crosses, has been found by comparing two of the matrices.
                    continue
                self.found[tuple(places), "shared", n] = Group(
                    tuple(i for i, _ in totals),
                    "shared",
                    self._codes[shared.origin],
                    self._codes[shared.destination],
                    shared.low,
                    shared.high,
                    single=min(shared.cells) >= 0,
                    pairs=tuple(self._pair(sides[x], cell) for x, cell in enumerate(shared.cells)),
                )

    def _pair(self, side: Side, cell: int) -> tuple[str, str]:
        if cell < 0:
            return "", ""
        return self._codes[int(side.origin[cell])], self._codes[int(side.destination[cell])]


def _millionths(matrix: PublishedMatrix) -> NDArray[np.float64] | None:
    """Weights as whole millionths, whose sums are exact: equal sums leave nothing."""
    return None if matrix.weight is None else np.rint(matrix.weight * MILLION)


def _n_compared(blocks: Blocks) -> int:
    """Cells that one side counts whole and the other in parts: what a reader would subtract first."""
    both = (blocks.published > 0).all(axis=0)
    whole = ((blocks.pairs == 1) & (blocks.published == 1) & ~blocks.rest).any(axis=0)
    return int(np.count_nonzero(both & whole))
