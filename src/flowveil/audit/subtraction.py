"""Finds groups of trips that several releases confine together, though each of them is safe alone.

Every published cell is an equation: it states the number of trips between its two zones. Cells of two releases overlap,
so the equations have terms in common, and their differences are counts that were not published. A *group* is what a
release does not publish of an area that another counts, a pair of zones that is not listed, or what one cell of each
release share. It is confined if its smallest and its largest possible value lie above 0 and below the guarantee.

- Two homogeneous matrices of the same trips are solved exactly (`flowveil.audit.blocks`).
- From each cell, and from each sum over slices that all publish, the cells of other matrices inside it are subtracted:
  the slices of one release, of another, and those of all disjoint parts of its period together.
- Three or more matrices, nested zones and slices are solved by linear programs, component by component
  (`flowveil.audit.components`).

Guaranteed: no group is reported that some trips which give the published tables would contradict, if the releases are
of the trips that they state and a release lists all values of its slice columns. Releases without a period count the
same trips; disjoint periods share none; a period inside another is a part of it; periods that overlap in part share an
unknown part, and are not compared. What is not compared is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.audit.blocks import UNKNOWN, Blocks, Finding, Side, blocks_of, confined, contradictions
from flowveil.audit.components import confined_components
from flowveil.audit.periods import (
    derived_places,
    differing_statements,
    disjoint,
    disjoint_parts,
    families,
    fixed_values,
    have_equal_tables,
    incomparable,
    inside,
    sums_over_slices,
)
from flowveil.audit.published import PublishedMatrix, PublishedRelease
from flowveil.audit.zone_forest import Ground, Nodes, ground_of, holders
from flowveil.errors import DataError
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
        origin, destination: codes of the zones around it: a cell of one release, or a common area of both.
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
        solved: groups of overlapping cells whose bounds are exact, because an integer program was solved.
        bounded: groups whose bounds are those of a linear program, and may be wider than the exact ones.
    """

    groups: tuple[Group, ...] = ()
    compared: int = 0
    contradictions: int = 0
    unchecked: tuple[tuple[tuple[int, ...], str], ...] = ()
    solved: int = 0
    bounded: int = 0

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
            "solved_exactly": self.solved,
            "bounded": self.bounded,
            "unchecked": [{"releases": list(places), "reason": reason} for places, reason in self.unchecked],
        }


def confined_groups(releases: Sequence[PublishedRelease]) -> Groups:
    """Returns every group that these releases confine together to values above 0 and below the guarantee.

    Deterministic; empty for a single release without slices. Releases derived from others of these are not compared:
    everything that follows from them follows from their sources.

    Raises:
        DataError: zones of the only release overlap in part. Of several, the pairs are reported as not compared.
    """
    derived = derived_places(releases)
    if derived:
        kept = [i for i in range(len(releases)) if i not in derived]
        return _renumbered(confined_groups([releases[i] for i in kept]), kept)
    placed = [r for r in releases if r.nodes and not r.noisy]
    try:
        work = _Work(releases, ground_of(placed))
    except DataError as problem:
        if len(releases) < 2:
            raise
        work = _Work(releases, ground_of([]), misplaced=str(problem))
    for i, j in combinations(range(len(releases)), 2):
        work.compare(i, j)
    for i in range(len(releases)):
        work.compare_slices(i)
        work.compare_sum(i)
    work.compare_many()
    return work.result()


def _renumbered(found: Groups, places: Sequence[int]) -> Groups:
    """Returns the same groups with the places of releases in a longer list."""
    groups = tuple(
        replace(
            group,
            releases=tuple(places[i] for i in group.releases),
            absent=places[group.absent] if group.absent >= 0 else -1,
        )
        for group in found.groups
    )
    unchecked = tuple((tuple(places[i] for i in listed), reason) for listed, reason in found.unchecked)
    return replace(found, groups=groups, unchecked=unchecked)


@dataclass
class _Work:
    """The comparison of several releases, under way."""

    releases: Sequence[PublishedRelease]
    ground: Ground
    found: dict[tuple[Any, ...], Group] = field(default_factory=dict)
    compared: int = 0
    contradicted: int = 0
    unchecked: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    misplaced: str | None = None
    met: int = 0
    solved: int = 0
    bounded: int = 0
    _wholes: dict[int, tuple[PublishedMatrix, ...]] = field(default_factory=dict)
    _place: dict[int, int] = field(default_factory=dict)
    _nodes: dict[tuple[int, int], Nodes] = field(default_factory=dict)
    _codes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [i for i, r in enumerate(self.releases) if r.nodes and not r.noisy and not self.misplaced]
        self._place = {release: n for n, release in enumerate(places)}
        for n, i in enumerate(places):
            release = self.releases[i]
            for end, codes in enumerate((release.origin_zones, release.destination_zones)):
                self._nodes[i, end] = self.ground.nodes(n, codes)
                self._codes.update(zip(self._nodes[i, end].tolist(), codes, strict=True))

    def result(self) -> Groups:
        found = tuple(self.found.values())
        return Groups(found, self.compared, self.contradicted, tuple(self.unchecked), self.solved, self.bounded)

    # ---- which matrices are of which trips ------------------------------------------------------------------

    def compare(self, i: int, j: int) -> None:
        """All that follows from two releases of the same trips, or of a part of the other's."""
        a, b = self.releases[i], self.releases[j]
        equal = have_equal_tables(a, b) and not (a.noisy or b.noisy)
        if equal:
            names = differing_statements(a, b)
            if names:
                entries = ", ".join(names[:5])
                reason = f"their tables are equal and their statements differ ({entries}), which may reveal more"
                self.unchecked.append(((i, j), reason))
            return
        obstacle = incomparable(a, b) or self.misplaced
        if obstacle:
            self.unchecked.append(((i, j), obstacle))
        if obstacle or disjoint(a, b):
            return
        met = self.met
        if a.period == b.period:
            self._compare_twins(i, j)
        for whole, part in ((i, j), (j, i)):
            if a.period == b.period or inside(self.releases[part], self.releases[whole]):
                self._compare_part(whole, part)
        if self.met == met:
            self.unchecked.append(((i, j), "no cell of one is known to hold trips of the other"))

    def _compare_twins(self, i: int, j: int) -> None:
        """Matrices of the same trips: all of them, or those with the same values of slice columns."""
        a, b = self.releases[i], self.releases[j]
        by_values = {frozenset(fixed_values(b, m).items()): m for m in b.matrices}
        for matrix in a.matrices:
            twin = by_values.get(frozenset(fixed_values(a, matrix).items()))
            if twin is not None and a.homogeneous and b.homogeneous:
                self._compare_matrices((i, matrix), (j, twin))

    def _compare_part(self, whole: int, part: int) -> None:
        """Subtracts cells of one release from those of another, published ones and sums over its slices."""
        a, b = self.releases[whole], self.releases[part]
        for matrix in self.wholes(whole):
            values = fixed_values(a, matrix)
            for family in families(b, values):
                same = len(family) == 1 and fixed_values(b, family[0]) == values and matrix in a.matrices
                # Two homogeneous matrices of the same trips have been compared exactly.
                if not (same and a.period == b.period and a.homogeneous and b.homogeneous):
                    self._subtract(whole, matrix, [(part, m) for m in family])

    def wholes(self, i: int) -> tuple[PublishedMatrix, ...]:
        """The matrices of a release, and those that follow by summing over slices."""
        if i not in self._wholes:
            release = self.releases[i]
            self._wholes[i] = (*release.matrices, *(sums_over_slices(release) if len(release.matrices) > 1 else ()))
        return self._wholes[i]

    def compare_slices(self, i: int) -> None:
        """The matrices of one release: a total and its slices."""
        release = self.releases[i]
        if i not in self._place or len(release.matrices) < 2 or self.misplaced:
            return
        for matrix in release.matrices:
            values = fixed_values(release, matrix)
            for family in families(release, values):
                if matrix not in family:
                    self._subtract(i, matrix, [(i, m) for m in family])

    def compare_sum(self, i: int) -> None:
        """A release, and all others of separate parts of its period together."""
        parts = disjoint_parts(self.releases, i)
        if len(parts) < 2 or i not in self._place or self.misplaced:
            return
        for matrix in self.wholes(i):
            fine: list[tuple[int, PublishedMatrix]] = []
            for j in parts:
                sets = list(families(self.releases[j], fixed_values(self.releases[i], matrix)))
                # Of several ways to divide the trips of a part, the one that publishes most leaves least.
                most = max(sets, key=lambda family: sum(int(m.trips.sum()) for m in family), default=[])
                fine += [(j, m) for m in most]
            self._subtract(i, matrix, fine)

    # ---- comparing ------------------------------------------------------------------------------------------

    def _compare_matrices(self, one: tuple[int, PublishedMatrix], other: tuple[int, PublishedMatrix]) -> None:
        i, j = one[0], other[0]
        sides = (self._side(*one), self._side(*other))
        nearest = (
            (self.ground.nearest(sides[0].origins), self.ground.nearest(sides[1].origins)),
            (self.ground.nearest(sides[0].destinations), self.ground.nearest(sides[1].destinations)),
        )
        blocks = blocks_of(self.ground.parent, self.ground.size, nearest, sides)
        below = min(self.releases[i].k, self.releases[j].k)
        self.contradicted += int(contradictions(blocks).sum())
        self.compared += _n_compared(blocks)
        self.met += int(np.count_nonzero((blocks.published > 0).all(axis=0)))
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
        """Subtracts from each cell the cells of others inside it.

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
        self.met += int(np.count_nonzero(n_inside))
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

    def compare_many(self) -> None:
        """Linear programs over what the cells of several matrices share: three or more, nested zones, or slices."""
        same: dict[tuple[Any, ...], list[int]] = {}
        for i, release in enumerate(self.releases):
            if i in self._place and release.whole_cells:
                same.setdefault((release.period, release.ground), []).append(i)
        for places in same.values():
            layers = [(i, family) for i in places for family in families(self.releases[i], {})]
            sliced = any(len(family) > 1 for _, family in layers)
            nested = any(not self.releases[i].homogeneous for i in places)
            if len(places) < 2:
                continue
            if len(layers) == 2 and not nested and not sliced:
                continue
            if len(layers) > MOST_LAYERS:
                self.unchecked.append((tuple(places), f"more than {MOST_LAYERS} are of the same trips: only in pairs"))
            elif find_spec("scipy") is None:
                self.unchecked.append((tuple(places), "scipy is not installed (pip install 'flowveil[audit]')"))
            else:
                self._solve(tuple(places), layers)

    def _solve(self, places: tuple[int, ...], layers: Sequence[tuple[int, list[PublishedMatrix]]]) -> None:
        sides = [self._joint_side(i, family) for i, family in layers]
        values = self._values_of_cells(layers)
        below = min(self.releases[i].k for i in places)
        known = {(g.origin, g.destination, g.low, g.high) for g in self.found.values()}
        found = confined_components(self.ground, sides, below, values)
        self.solved, self.bounded = self.solved + found.solved, self.bounded + found.bounded
        if found.left_out:
            reason = f"{found.left_out:,} groups of cells overlap in too many ways for linear programs"
            self.unchecked.append((places, reason))
        for n, shared in enumerate(found.shared):
            origin, destination = self._codes[shared.origin], self._codes[shared.destination]
            # Remainders and crossings may have been found by comparing two of the matrices.
            if (origin, destination, shared.low, shared.high) not in known:
                self.found[places, "shared", n] = Group(
                    tuple(dict.fromkeys(i for i, _ in layers)),
                    "shared",
                    origin,
                    destination,
                    shared.low,
                    shared.high,
                    single=min(shared.cells) >= 0,
                    pairs=tuple(self._pair(sides[x], cell) for x, cell in enumerate(shared.cells)),
                )

    def _joint_side(self, i: int, family: Sequence[PublishedMatrix]) -> Side:
        """All cells of matrices that share no trip, as one side."""
        sides = [self._side(i, matrix) for matrix in family]
        if len(sides) == 1:
            return sides[0]
        return replace(
            sides[0],
            origins=np.unique(np.concatenate([side.origins for side in sides])),
            destinations=np.unique(np.concatenate([side.destinations for side in sides])),
            origin=np.concatenate([side.origin for side in sides]),
            destination=np.concatenate([side.destination for side in sides]),
            trips=np.concatenate([side.trips for side in sides]),
        )

    def _values_of_cells(self, layers: Sequence[tuple[int, list[PublishedMatrix]]]) -> list[NDArray[np.int64]]:
        """For each layer and cell the number of its value in each slice column of any layer; -1 for all values."""
        columns = sorted({c for i, _ in layers for c in self.releases[i].slice_columns})
        numbers: list[dict[str, int]] = [{} for _ in columns]
        found = []
        for i, family in layers:
            rows = []
            for matrix in family:
                values = fixed_values(self.releases[i], matrix)
                row = [
                    number.setdefault(values[c], len(number)) if c in values else -1
                    for c, number in zip(columns, numbers, strict=True)
                ]
                rows.append(np.tile(np.array(row, dtype=np.int64), (len(matrix.trips), 1)))
            found.append(np.concatenate(rows))
        return found

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
