"""Finds groups of trips that several releases confine together, though each of them is safe alone.

docs/audit/README.md defines groups and says how they are found. Guaranteed: no group is
reported that some trips which give the published tables would contradict, if the releases are of
the trips that they state and a release lists all values of its slice columns. What is not compared
is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.errors import DataError
from flowveil.core.flows import MILLION
from flowveil.verify.audit import published
from flowveil.verify.audit.bounds import (
    UNKNOWN,
    Side,
    TableBlocks,
    blocks_of,
    confined,
    confined_components,
)
from flowveil.verify.audit.published import PublishedMatrix, PublishedRelease
from flowveil.verify.audit.zone_forest import Ground, ground_of
from flowveil.zoning.covering import containing_cells

#: Matrices of the same trips that are solved together: the sets of their cells that overlap double
#: with each.
MOST_LAYERS = 4
#: A matrix with the place of its release.
Placed = tuple[int, PublishedMatrix]


@dataclass(frozen=True)
class Group:
    """A group of trips whose number a reader can confine.

    Kinds are those of `flowveil.verify.audit.bounds.Finding`, and ``shared``: what certain cells of
    several releases share and no published cell of the others counts.
    """

    releases: tuple[int, ...]  # the places of the releases that confine it
    kind: str
    origin: str  # codes of the zones around it: a cell of one release, or a common area of both
    destination: str
    low: float
    high: float
    single: bool  # it is one pair of zones
    absent: int = (
        -1
    )  # the place of the release that does not publish it; -1 where it is what several cells share
    # That one pair; or, where cells of several releases share the group, the pair of each: ("", "")
    # for what is in none of a release's zones or, of kind ``shared``, in none of its cells.
    pairs: tuple[tuple[str, str], ...] = ()
    unit: str = "trips"  # what is below the guarantee: trips or weight


@dataclass(frozen=True)
class ReleaseGroups:
    """What was confined, and what could not be compared."""

    groups: tuple[Group, ...] = ()
    compared: int = 0  # cells of which another matrix counts a part or the whole
    # Areas where two releases cannot be of the same trips, as they should be; nothing is concluded
    # there.
    contradictions: int = 0
    # Why pairs of releases could not be compared, by their places.
    unchecked: tuple[tuple[tuple[int, ...], str], ...] = ()
    # groups of overlapping cells whose bounds are exact, because an integer program was solved
    solved: int = 0
    bounded: int = (
        0  # groups whose bounds are those of a linear program, and may be wider than the exact ones
    )

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
            "unchecked": [
                {"releases": list(places), "reason": reason} for places, reason in self.unchecked
            ],
        }


def confined_groups(releases: Sequence[PublishedRelease]) -> ReleaseGroups:
    """Returns every group that these releases confine together to values above 0 and below the
    guarantee.

    Deterministic; empty for a single release. Releases derived from others of these
    are not compared: everything that follows from them follows from their sources. Where zones
    overlap in part, the only release is refused (DataError), and of several the pairs are reported
    as not compared.
    """
    derived = published.derived_places(releases)
    kept = [i for i in range(len(releases)) if i not in derived]
    placed = [i for i in kept if releases[i].nodes and not releases[i].noisy]
    try:
        work = _Work(releases, placed, ground_of({i: releases[i] for i in placed}))
    except DataError as problem:
        if len(kept) < 2:
            raise
        work = _Work(releases, [], ground_of({}), misplaced=str(problem))
    for i, j in combinations(kept, 2):
        work.compare(i, j)
    for i in work.places:
        work.compare_sum(i)
    work.compare_many()
    counts = {
        name: work.counts[name] for name in ("compared", "contradictions", "solved", "bounded")
    }
    return ReleaseGroups(tuple(work.found.values()), unchecked=tuple(work.unchecked), **counts)


@dataclass
class _Work:
    """The comparison of several releases, under way."""

    releases: Sequence[PublishedRelease]
    places: Sequence[int]  # those of the releases whose zones are in the forest
    ground: Ground
    misplaced: str | None = None  # why no zone is
    found: dict[tuple[Any, ...], Group] = field(default_factory=dict)
    unchecked: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    counts: Counter[str] = field(
        default_factory=Counter
    )  # entries of `Groups`, and cells that ``met`` others
    # The matrices of each release, and those that follow by summing over slices.
    _wholes: dict[int, tuple[PublishedMatrix, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in self.places:
            matrices = self.releases[i].matrices
            sums = published.sums_over_slices(self.releases[i]) if len(matrices) > 1 else ()
            self._wholes[i] = (*matrices, *sums)

    # ---- which matrices are of which trips -------------------------------------------------------

    def compare(self, i: int, j: int) -> None:
        """All that follows from two releases of the same trips, or of a part of the other's."""
        a, b = self.releases[i], self.releases[j]
        if published.have_equal_tables(a, b) and not (a.noisy or b.noisy):
            names = published.differing_statements(a, b)
            if names:
                entries = ", ".join(names[:5])
                reason = (
                    f"their tables are equal and their statements differ ({entries}), which may"
                    " reveal more"
                )
                self.unchecked.append(((i, j), reason))
            return
        obstacle = published.incomparable(a, b) or self.misplaced
        if obstacle:
            self.unchecked.append(((i, j), obstacle))
        if obstacle or published.disjoint(a, b):
            return
        met = self.counts["met"]
        if a.period == b.period:
            self._compare_twins(i, j)
        for whole, part in ((i, j), (j, i)):
            if a.period == b.period or published.inside(self.releases[part], self.releases[whole]):
                self._compare_part(whole, part)
        if self.counts["met"] == met:
            self.unchecked.append(((i, j), "no cell of one is known to hold trips of the other"))

    def _compare_twins(self, i: int, j: int) -> None:
        """Matrices of the same trips: all of them, or those with the same values of slice
        columns.
        """
        a, b = self.releases[i], self.releases[j]
        by_values = {frozenset(published.fixed_values(b, m).items()): m for m in b.matrices}
        for matrix in a.matrices if a.homogeneous and b.homogeneous else ():
            twin = by_values.get(frozenset(published.fixed_values(a, matrix).items()))
            if twin is not None:
                self._compare_matrices((i, matrix), (j, twin))

    def _compare_part(self, whole: int, part: int) -> None:
        """Subtracts cells of one release from those of another, published ones and sums over its
        slices.
        """
        a, b = self.releases[whole], self.releases[part]
        for matrix in self._wholes[whole]:
            values = published.fixed_values(a, matrix)
            family = published.with_values(b, values)
            same = (
                len(family) == 1
                and published.fixed_values(b, family[0]) == values
                and matrix in a.matrices
            )
            # Two homogeneous matrices of the same trips have been compared exactly.
            if not (same and a.period == b.period and a.homogeneous and b.homogeneous):
                self._subtract(whole, matrix, [(part, m) for m in family])

    def compare_sum(self, i: int) -> None:
        """A release, and all others of separate parts of its period together."""
        parts = published.disjoint_parts(self.releases, self.places, i)
        for matrix in self._wholes[i] if len(parts) > 1 else ():
            fine: list[Placed] = []
            for j in parts:
                values = published.fixed_values(self.releases[i], matrix)
                fine += [(j, m) for m in published.with_values(self.releases[j], values)]
            self._subtract(i, matrix, fine)

    # ---- comparing -------------------------------------------------------------------------------

    def _note(
        self,
        key: tuple[Any, ...],
        nodes: Sequence[Any],
        low: float,
        high: float,
        kind: str = "remainder",
        **more: Any,
    ) -> None:
        """Adds a group.

        Its key begins with the places of its releases, and more of the same key replace it.
        """
        origin, destination = (self.ground.codes[int(node)] for node in nodes)
        self.found[key] = Group(
            key[0], kind, origin, destination, low, high, **{"single": False, **more}
        )

    def _population_limit(self, places: Sequence[int]) -> float | None:
        limits = [self.releases[i].thresholds.get("population") for i in places]
        return min((limit for limit in limits if limit is not None), default=None)

    def _side(self, i: int, family: Sequence[PublishedMatrix]) -> Side:
        """All cells of matrices that share no trip, as one side."""
        release = self.releases[i]
        columns = zip(*((*self.ground.ends(i, m), m.trips) for m in family), strict=True)
        origin, destination, trips = map(np.concatenate, columns)
        most = UNKNOWN if release.most_unlisted is None else release.most_unlisted
        return Side(origin, destination, trips, int(most), release.whole_cells)

    def _compare_matrices(self, one: Placed, other: Placed) -> None:
        places = one[0], other[0]
        blocks = blocks_of(
            self.ground, (self._side(one[0], [one[1]]), self._side(other[0], [other[1]]))
        )
        both = (blocks.published > 0).all(axis=0)
        # Cells that one side counts whole and the other in parts: what a reader would subtract
        # first.
        whole = ((blocks.pairs == 1) & (blocks.published == 1) & ~blocks.rest).any(axis=0)
        n_compared, n_met = int(np.count_nonzero(both & whole)), int(np.count_nonzero(both))
        self.counts.update(
            contradictions=int(blocks.contradictions.sum()), compared=n_compared, met=n_met
        )
        for found in confined(blocks, min(self.releases[i].k for i in places)):
            names = [self.ground.codes.get(node, "") for node in found.members]
            key = (places, found.kind, found.block, found.side, found.members)
            absent, pairs = (
                (*places, -1)[found.side],
                tuple(zip(names[::2], names[1::2], strict=True)),
            )
            more: dict[str, Any] = {"single": bool(found.members), "absent": absent, "pairs": pairs}
            self._note(key, found.block, found.low, found.high, found.kind, **more)
        self._weights(blocks, places, (one[1], other[1]))

    def _weights(
        self, blocks: TableBlocks, places: tuple[int, int], matrices: Sequence[PublishedMatrix]
    ) -> None:
        """Remainders that are short in weight, where a threshold of the population is a number."""
        below = self._population_limit(places)
        sums = np.zeros((2, len(blocks.nodes)))
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
                key, value = (places, "weight", b, s), float(left[b])
                self._note(key, blocks.nodes[b], value, value, absent=places[s], unit="weight")

    def _subtract(self, whole: int, matrix: PublishedMatrix, fine: Sequence[Placed]) -> None:
        """Subtracts from each cell the cells of others inside it."""
        # The others must share no trip with each other, and hold no trip that the matrix does not
        # count.
        if not fine or not self.releases[whole].whole_cells:
            return
        origin, destination = self.ground.ends(whole, matrix)
        left, n_inside = matrix.trips.copy(), np.zeros(len(matrix.trips), np.int64)
        weight = _millionths(matrix)
        for j, part in fine:
            cell = containing_cells(
                [self.ground.parent] * 2, (origin, destination), self.ground.ends(j, part)
            )
            held = cell >= 0
            np.subtract.at(left, cell[held], part.trips[held])
            np.add.at(n_inside, cell[held], 1)
            own = _millionths(part)
            if weight is not None and own is not None:
                np.subtract.at(weight, cell[held], own[held])
            weight = None if own is None else weight
        n_met = int(np.count_nonzero(n_inside))
        self.counts.update(
            contradictions=int(np.count_nonzero(left < 0)), compared=n_met, met=n_met
        )
        places = tuple(sorted({whole, *(j for j, _ in fine)}))
        some = (left > 0) & (n_inside > 0)
        short: list[tuple[Any, NDArray[Any], str]] = [
            (some & (left < min(self.releases[i].k for i in places)), left, "trips")
        ]
        least = self._population_limit(places)
        if weight is not None and least is not None:
            light = some & (weight > 0) & (weight < least * MILLION)
            short.append((light, weight / MILLION, "weight"))
        keys = tuple(m.key for _, m in fine)
        for cells, values, unit in short:
            for c in np.flatnonzero(cells).tolist():
                value, key = values[c].item(), (places, unit, whole, matrix.key, c, keys)
                self._note(
                    key, (origin[c], destination[c]), value, value, absent=fine[0][0], unit=unit
                )

    def compare_many(self) -> None:
        """Linear programs over what the cells of several matrices share.

        Three or more, nested zones, or slices.
        """
        same: dict[tuple[Any, ...], list[int]] = {}
        for i in self.places:
            if self.releases[i].whole_cells:
                same.setdefault((self.releases[i].period, self.releases[i].ground), []).append(i)
        for places in same.values():
            layers = [(i, list(self.releases[i].matrices)) for i in places]
            sliced = any(len(family) > 1 for _, family in layers)
            nested = any(not self.releases[i].homogeneous for i in places)
            if len(places) < 2 or (len(layers) == 2 and not nested and not sliced):
                continue
            if len(layers) > MOST_LAYERS:
                self.unchecked.append(
                    (tuple(places), f"more than {MOST_LAYERS} are of the same trips: only in pairs")
                )
            else:
                self._solve(tuple(places), layers)

    def _solve(
        self, places: tuple[int, ...], layers: Sequence[tuple[int, list[PublishedMatrix]]]
    ) -> None:
        sides = [self._side(i, family) for i, family in layers]
        below, codes = min(self.releases[i].k for i in places), self.ground.codes
        known = {(g.origin, g.destination, g.low, g.high) for g in self.found.values()}
        found = confined_components(self.ground, sides, below, self._values_of_cells(layers))
        self.counts.update(solved=found.solved, bounded=found.bounded)
        if found.left_out:
            reason = (
                f"{found.left_out:,} groups of cells overlap in too many ways for linear programs"
            )
            self.unchecked.append((places, reason))
        for n, one in enumerate(found.shared):
            # Remainders and crossings may have been found by comparing two of the matrices.
            if (*(codes[node] for node in one.block), one.low, one.high) not in known:
                pairs = tuple(
                    (
                        ("", "")
                        if c < 0
                        else (codes[int(side.origin[c])], codes[int(side.destination[c])])
                    )
                    for side, c in zip(sides, one.members, strict=True)
                )
                single = min(one.members) >= 0
                self._note(
                    (places, one.kind, n),
                    one.block,
                    one.low,
                    one.high,
                    one.kind,
                    single=single,
                    pairs=pairs,
                )

    def _values_of_cells(
        self, layers: Sequence[tuple[int, list[PublishedMatrix]]]
    ) -> list[NDArray[np.int64]]:
        """For each layer and cell the number of its value in each slice column of any layer.

        -1 for all values.
        """
        columns = sorted({c for i, _ in layers for c in self.releases[i].slice_columns})
        numbers: list[dict[str, int]] = [{} for _ in columns]
        found = []
        for i, family in layers:
            rows = []
            for matrix in family:
                values = published.fixed_values(self.releases[i], matrix)
                row = [
                    number.setdefault(values[c], len(number)) if c in values else -1
                    for c, number in zip(columns, numbers, strict=True)
                ]
                rows.append(np.tile(np.array(row, dtype=np.int64), (len(matrix.trips), 1)))
            found.append(np.concatenate(rows))
        return found


def _millionths(matrix: PublishedMatrix) -> NDArray[np.float64] | None:
    """Weights as whole millionths, whose sums are exact: equal sums leave nothing."""
    return None if matrix.weight is None else np.rint(matrix.weight * MILLION)
